/*
 * stress HOST PORT CONNECTIONS ROUNDS: eight threads wait on one epoll set for connections to an echo server. Whoever is woken reads what came,
 * sends the next message and arms the entry again: one-shot, by taking it out and putting it in, or edge by edge. Meanwhile one more thread takes
 * entries out and puts them in, as they are. A missed wake-up ends in a stall, which the watchdog tells.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

enum { THREADS = 8, MESSAGE = 64, STALL_SECONDS = 20 };

struct connection {
    pthread_mutex_t lock;
    int fd;
    int mode; /* 0: one-shot, 1: out and in, 2: edges */
    unsigned sent, got; /* messages */
    size_t have; /* bytes of the next */
    unsigned char buffer[MESSAGE];
};

static struct connection *all;
static unsigned connections, rounds;
static int set, end;
static atomic_uint finished;
static atomic_ulong progress;

static void fail(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, strerror(errno));
    exit(1);
}

static uint32_t events_of(const struct connection *c)
{
    return c->mode == 0 ? EPOLLIN | EPOLLONESHOT : c->mode == 1 ? EPOLLIN | EPOLLONESHOT : EPOLLIN | EPOLLET;
}

static void control(int operation, struct connection *c)
{
    struct epoll_event event = {.events = events_of(c), .data.ptr = c};
    if (epoll_ctl(set, operation, c->fd, &event) != 0)
        fail("epoll_ctl");
}

static void send_next(struct connection *c)
{
    unsigned char message[MESSAGE];
    memset(message, (int)(c->sent & 0xff), sizeof message);
    if (send(c->fd, message, sizeof message, MSG_NOSIGNAL) != MESSAGE)
        fail("send");
    c->sent++;
}

/* Reads until nothing is there. The lock is held. */
static void serve(struct connection *c)
{
    for (;;) {
        ssize_t n = recv(c->fd, c->buffer + c->have, MESSAGE - c->have, 0);
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            return;
        if (n <= 0)
            fail("recv");
        c->have += (size_t)n;
        if (c->have < MESSAGE)
            continue;
        for (unsigned at = 0; at < MESSAGE; at++)
            if (c->buffer[at] != (c->got & 0xff)) {
                errno = EILSEQ;
                fail("other bytes");
            }
        c->have = 0;
        c->got++;
        atomic_fetch_add(&progress, 1);
        if (c->got == rounds) {
            if (atomic_fetch_add(&finished, 1) + 1 == connections && eventfd_write(end, 1) != 0)
                fail("eventfd");
            return;
        }
        send_next(c);
    }
}

static void *worker(void *unused)
{
    struct epoll_event events[4];
    for (;;) {
        int n = epoll_wait(set, events, 4, -1);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            fail("epoll_wait");
        for (int at = 0; at < n; at++) {
            struct connection *c = events[at].data.ptr;
            if (c == NULL)
                return unused;
            pthread_mutex_lock(&c->lock);
            serve(c);
            if (c->mode == 1)
                control(EPOLL_CTL_DEL, c);
            if (c->mode < 2)
                control(c->mode == 0 ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, c);
            pthread_mutex_unlock(&c->lock);
        }
    }
}

/* Takes entries out and puts them in again, which tells what is there anew. */
static void *mover(void *unused)
{
    for (unsigned turn = 0; atomic_load(&finished) < connections; turn++) {
        struct connection *c = &all[turn * 7 % connections];
        pthread_mutex_lock(&c->lock);
        control(EPOLL_CTL_DEL, c);
        if (turn % 3 == 0)
            usleep(100);
        control(EPOLL_CTL_ADD, c);
        pthread_mutex_unlock(&c->lock);
        usleep(200);
    }
    return unused;
}

static void *watchdog(void *unused)
{
    unsigned long last = 0;
    for (int still = 0;;) {
        sleep(1);
        unsigned long now = atomic_load(&progress);
        still = now == last ? still + 1 : 0;
        last = now;
        if (still == STALL_SECONDS) {
            fprintf(stderr, "stall after %lu messages, %u connections done\n", now, atomic_load(&finished));
            _exit(2);
        }
    }
    return unused;
}

int main(int argc, char **argv)
{
    if (argc != 5)
        return 64;
    connections = (unsigned)atoi(argv[3]);
    rounds = (unsigned)atoi(argv[4]);
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(argv[2]))};
    inet_pton(AF_INET, argv[1], &to.sin_addr);
    all = calloc(connections, sizeof *all);
    set = epoll_create1(EPOLL_CLOEXEC);
    end = eventfd(0, EFD_CLOEXEC);
    if (all == NULL || set < 0 || end < 0)
        fail("set-up");
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = NULL};
    if (epoll_ctl(set, EPOLL_CTL_ADD, end, &event) != 0)
        fail("epoll_ctl");
    pthread_t threads[THREADS], others[2];
    for (int at = 0; at < THREADS; at++)
        pthread_create(&threads[at], NULL, worker, NULL);
    /* Connections come to a set on which threads sleep already. */
    for (unsigned at = 0; at < connections; at++) {
        struct connection *c = &all[at];
        pthread_mutex_init(&c->lock, NULL);
        c->mode = (int)(at % 3);
        c->fd = socket(AF_INET, SOCK_STREAM, 0);
        if (c->fd < 0 || connect(c->fd, (struct sockaddr *)&to, sizeof to) != 0)
            fail("connect");
        if (fcntl(c->fd, F_SETFL, O_NONBLOCK) != 0)
            fail("fcntl");
        pthread_mutex_lock(&c->lock);
        control(EPOLL_CTL_ADD, c);
        send_next(c);
        pthread_mutex_unlock(&c->lock);
    }
    pthread_create(&others[0], NULL, watchdog, NULL);
    pthread_create(&others[1], NULL, mover, NULL);
    for (int at = 0; at < THREADS; at++)
        pthread_join(threads[at], NULL);
    pthread_join(others[1], NULL);
    printf("%lu\n", atomic_load(&progress));
    return 0;
}
