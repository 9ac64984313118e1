/* Sends back what comes, to any number of clients, in one thread.
 *
 *   cc exs_echo_server.c $(pkg-config --cflags --libs sidecore-exs) -o exs_echo_server
 *   ./exs_echo_server 127.0.0.1 7000 0                         over the kernel, without end
 *   sidecore run -- ./exs_echo_server 10.77.0.2 7000 3         over an engine, for three clients
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/exs.h>
#include <sys/socket.h>

enum { LENGTH = 65536, EVENTS = 64 };

/* A client: its bytes are received, sent, and so on. */
typedef struct Client {
    int fd;
    unsigned char bytes[LENGTH];
} Client;

static exs_qhandle_t queue;

static void die(const char *what)
{
    perror(what);
    exit(1);
}

static void must(int answer, const char *what)
{
    if (answer == -1)
        die(what);
}

/* What became of a client's operation leads to the next. Says whether the client is gone. */
static int go_on(Client *client, const exs_event_t *event)
{
    size_t length = event->exs_evt_union.exs_evt_xfer.exs_evt_length;
    exs_ahandle_t self = (exs_ahandle_t)client;
    if (event->exs_evt_type == EXS_EVT_CLOSE) {
        free(client);
        return 1;
    }
    if (event->exs_evt_errno != 0 || (event->exs_evt_type == EXS_EVT_RECV && length == 0))
        must(exs_close(client->fd, queue, self), "exs_close");
    else if (event->exs_evt_type == EXS_EVT_RECV)
        must(exs_send(client->fd, client->bytes, length, 0, queue, self, EXS_MHANDLE_UNREGISTERED), "exs_send");
    else
        must(exs_recv(client->fd, client->bytes, LENGTH, 0, queue, self, EXS_MHANDLE_UNREGISTERED), "exs_recv");
    return 0;
}

static void welcome(const exs_event_t *event)
{
    Client *client;
    if (event->exs_evt_errno != 0) {
        errno = event->exs_evt_errno;
        die("accept");
    }
    client = malloc(sizeof *client);
    if (client == NULL)
        die("memory");
    client->fd = event->exs_evt_union.exs_evt_accept.exs_evt_newsocket;
    must(exs_recv(client->fd, client->bytes, LENGTH, 0, queue, (exs_ahandle_t)client, EXS_MHANDLE_UNREGISTERED),
         "exs_recv");
}

int main(int count, char **arguments)
{
    struct sockaddr_in own;
    socklen_t length = sizeof own;
    exs_event_t events[EVENTS];
    long clients, gone = 0;
    int fd;

    if (count != 4) {
        fprintf(stderr, "usage: exs_echo_server ADDRESS PORT CLIENTS\n");
        return 2;
    }
    memset(&own, 0, sizeof own);
    own.sin_family = AF_INET;
    own.sin_port = htons((uint16_t)atoi(arguments[2]));
    clients = atol(arguments[3]);
    if (inet_pton(AF_INET, arguments[1], &own.sin_addr) != 1) {
        fprintf(stderr, "no such address\n");
        return 2;
    }
    must(exs_init(EXS_VERSION), "exs_init");
    must(queue = exs_qcreate(4096), "exs_qcreate");
    must(fd = socket(AF_INET, SOCK_STREAM, 0), "socket");
    must(bind(fd, (struct sockaddr *)&own, length), "bind");
    must(listen(fd, 128), "listen");
    must(getsockname(fd, (struct sockaddr *)&own, &length), "getsockname");
    printf("listening on port %d\n", ntohs(own.sin_port));
    fflush(stdout);

    must(exs_accept(fd, NULL, 0, queue, 0), "exs_accept");
    while (clients == 0 || gone < clients) {
        int n = exs_qdequeue(queue, events, EVENTS, NULL);
        if (n == -1 && errno != EINTR)
            die("exs_qdequeue");
        for (int at = 0; at < n; at++) {
            if (events[at].exs_evt_type == EXS_EVT_ACCEPT) {
                welcome(&events[at]);
                must(exs_accept(fd, NULL, 0, queue, 0), "exs_accept");
            } else {
                gone += go_on((Client *)events[at].exs_evt_ahandle, &events[at]);
            }
        }
    }
    return 0;
}
