/* Event queues: depth, thresholds, time, signals, threads, forks. */
#include "check.h"

#include <pthread.h>
#include <signal.h>
#include <sys/time.h>
#include <sys/wait.h>

static exs_qhandle_t queue;
static int pair[2];
static char buffer[64];
static volatile sig_atomic_t rang, named;

static int attribute(int which)
{
    int value = -1;
    size_t size = 100;
    OK(exs_qstatus(queue, which, &value, &size));
    TRUE(size == sizeof value);
    return value;
}

static void depths(void)
{
    exs_event_t events[8];
    int depth = 3;
    exs_qhandle_t small = exs_qcreate(2);
    TRUE(small > 0);
    OK(exs_send(pair[0], "a", 1, 0, small, 1, 0));
    OK(exs_recv(pair[0], buffer, 1, 0, small, 2, 0));
    /* One event and one operation: full. */
    FAILS(EAGAIN, exs_send(pair[0], "b", 1, 0, small, 3, 0));
    FAILS(EBUSY, exs_qdelete(small));
    OK(exs_qmodify(small, EXS_QATTR_DEPTH, &depth, sizeof depth));
    OK(exs_send(pair[0], "b", 1, 0, small, 3, 0));
    depth = 2;
    FAILS(EBUSY, exs_qmodify(small, EXS_QATTR_DEPTH, &depth, sizeof depth));
    TRUE(exs_qdequeue(small, events, 8, NULL) == 2);
    TRUE(events[0].exs_evt_ahandle == 1 && events[1].exs_evt_ahandle == 3);
    OK(exs_cancel(pair[0], 0, EXS_CAF_FILDES));
    /* Undequeued events do not keep it. */
    OK(exs_qdelete(small));
    TRUE(recv(pair[1], buffer, 2, MSG_WAITALL) == 2);
}

static void thresholds(void)
{
    exs_event_t events[8];
    struct timeval none = {0, 0}, soon = {0, 10000};
    for (int at = 0; at < 5; at++)
        OK(exs_send(pair[0], "x", 1, 0, queue, 10 + at, 0));
    TRUE(attribute(EXS_QATTR_EVENTS) == 5);
    /* There is no sixth: time gives what is there. */
    TRUE(exs_qdequeue(queue, events, -6, &soon) == 5);
    for (int at = 0; at < 5; at++)
        TRUE(events[at].exs_evt_ahandle == (exs_ahandle_t)(10 + at));
    TRUE(exs_qdequeue(queue, events, 8, &none) == 0);
    TRUE(exs_qdequeue(queue, events, -1, &soon) == 0);
    TRUE(recv(pair[1], buffer, 5, MSG_WAITALL) == 5);
    /* Three receives, and a threshold of three. */
    for (int at = 0; at < 3; at++)
        OK(exs_recv(pair[1], buffer + at, 1, 0, queue, at, 0));
    TRUE(send(pair[0], "abc", 3, 0) == 3);
    TRUE(exs_qdequeue(queue, events, -3, NULL) == 3);
    TRUE(memcmp(buffer, "abc", 3) == 0);
    TRUE(attribute(EXS_QATTR_DEPTH) == 16);
}

static void ring(int number)
{
    (void)number;
    rang++;
}

static void ring_with(int number, siginfo_t *info, void *context)
{
    (void)number;
    (void)context;
    named = info->si_value.sival_int;
    rang++;
}

static void signals(void)
{
    exs_event_t event;
    exs_signal_t by = {EXS_SIG_ENABLE, SIGUSR1}, said;
    struct itimerval alarm_ = {{0, 0}, {0, 20000}};
    struct sigaction action;
    size_t size = sizeof said;
    memset(&action, 0, sizeof action);
    /* A handler ends the wait, as it ends a blocked recv. */
    action.sa_handler = ring;
    TRUE(sigaction(SIGALRM, &action, NULL) == 0);
    TRUE(setitimer(ITIMER_REAL, &alarm_, NULL) == 0);
    FAILS(EINTR, exs_qdequeue(queue, &event, 1, NULL));
    TRUE(rang == 1);
    TRUE(setitimer(ITIMER_REAL, &alarm_, NULL) == 0);
    FAILS(EINTR, exs_qdequeue(queue, &event, 1, &LONG));
    TRUE(rang == 2);

    action.sa_sigaction = ring_with;
    action.sa_flags = SA_SIGINFO;
    TRUE(sigaction(SIGUSR1, &action, NULL) == 0);
    rang = 0;
    OK(exs_qmodify(queue, EXS_QATTR_SIGNAL, &by, sizeof by));
    OK(exs_qstatus(queue, EXS_QATTR_SIGNAL, &said, &size));
    TRUE(said.exs_sig_state == EXS_SIG_ENABLE && said.exs_sig_number == SIGUSR1);
    OK(exs_send(pair[0], "s", 1, 0, queue, 1, 0));
    OK(exs_send(pair[0], "s", 1, 0, queue, 2, 0));
    /* Once for an empty queue, not for each event. */
    TRUE(rang == 1 && named == queue);
    expect(queue, EXS_EVT_SEND, 1, 0);
    expect(queue, EXS_EVT_SEND, 2, 0);
    by.exs_sig_state = EXS_SIG_DISABLE;
    OK(exs_qmodify(queue, EXS_QATTR_SIGNAL, &by, sizeof by));
    OK(exs_send(pair[0], "s", 1, 0, queue, 3, 0));
    expect(queue, EXS_EVT_SEND, 3, 0);
    TRUE(rang == 1);
    TRUE(recv(pair[1], buffer, 3, MSG_WAITALL) == 3);
}

enum { THREADS = 4, EACH = 500 };

static void *post(void *of)
{
    int fd = *(int *)of;
    for (int at = 0; at < EACH;) {
        if (exs_send(fd, "t", 1, 0, queue, 1, 0) == 0)
            at++;
        else
            TRUE(errno == EAGAIN);
    }
    return NULL;
}

static void *take(void *of)
{
    exs_event_t event;
    int *all = of;
    for (;;) {
        /* One at a time: each thread is to find its own end. */
        TRUE(exs_qdequeue(queue, &event, 1, NULL) == 1);
        TRUE(event.exs_evt_errno == 0);
        if (event.exs_evt_ahandle == 99)
            return NULL;
        __atomic_add_fetch(all, 1, __ATOMIC_SEQ_CST);
    }
}

/* Threads that post on one socket, and threads that dequeue. */
static void threads(void)
{
    pthread_t posting[THREADS], taking[2];
    int all = 0, got = 0;
    for (int at = 0; at < 2; at++)
        TRUE(pthread_create(&taking[at], NULL, take, &all) == 0);
    for (int at = 0; at < THREADS; at++)
        TRUE(pthread_create(&posting[at], NULL, post, &pair[0]) == 0);
    while (got < THREADS * EACH) {
        int n = recv(pair[1], buffer, sizeof buffer, 0);
        TRUE(n > 0);
        got += n;
    }
    for (int at = 0; at < THREADS; at++)
        TRUE(pthread_join(posting[at], NULL) == 0);
    for (int at = 0; at < 2; at++) {
        while (exs_send(pair[0], "e", 1, 0, queue, 99, 0) != 0)
            TRUE(errno == EAGAIN);
    }
    for (int at = 0; at < 2; at++)
        TRUE(pthread_join(taking[at], NULL) == 0);
    TRUE(all == THREADS * EACH);
    TRUE(recv(pair[1], buffer, 2, MSG_WAITALL) == 2);
    TRUE(attribute(EXS_QATTR_EVENTS) == 0);
}

static void *wait_for_end(void *of)
{
    exs_event_t event;
    exs_qhandle_t other = *(exs_qhandle_t *)of;
    FAILS(EBADF, exs_qdequeue(other, &event, 1, NULL));
    return NULL;
}

/* A queue that goes while somebody waits for it. */
static void deletes(void)
{
    exs_qhandle_t other = exs_qcreate(4);
    pthread_t waiting;
    TRUE(pthread_create(&waiting, NULL, wait_for_end, &other) == 0);
    usleep(10000);
    OK(exs_qdelete(other));
    TRUE(pthread_join(waiting, NULL) == 0);
}

/* A child has nothing of its parent's, and may begin anew; the parent does not notice. */
static void forks(void)
{
    int status;
    pid_t child;
    OK(exs_recv(pair[1], buffer, 5, MSG_WAITALL, queue, 50, 0));
    child = fork();
    TRUE(child >= 0);
    if (child == 0) {
        exs_event_t event;
        int own[2];
        FAILS(EBADF, exs_qdequeue(queue, &event, 1, NULL));
        FAILS(EBADF, exs_send(pair[0], "c", 1, 0, queue, 1, 0));
        OK(exs_init(EXS_VERSION));
        queue = exs_qcreate(4);
        TRUE(queue > 0);
        TRUE(socketpair(AF_UNIX, SOCK_STREAM, 0, own) == 0);
        OK(exs_recv(own[1], buffer, 5, MSG_WAITALL, queue, 1, 0));
        OK(exs_send(own[0], "child", 5, 0, queue, 2, 0));
        next(queue);
        next(queue);
        _exit(memcmp(buffer, "child", 5) != 0);
    }
    TRUE(waitpid(child, &status, 0) == child && status == 0);
    OK(exs_send(pair[0], "hello", 5, 0, queue, 51, 0));
    TRUE(next(queue).exs_evt_errno == 0 && next(queue).exs_evt_errno == 0);
    TRUE(memcmp(buffer, "hello", 5) == 0);
}

/* A child that outlives a connection of its parent's does not keep it up by what the library had open. */
static void forks_keep_nothing(void)
{
    int own[2], status, stop[2];
    pid_t child;
    TRUE(socketpair(AF_UNIX, SOCK_STREAM, 0, own) == 0 && pipe(stop) == 0);
    OK(exs_recv(own[1], buffer, 5, 0, queue, 60, 0));
    child = fork();
    TRUE(child >= 0);
    if (child == 0) {
        close(own[0]);
        close(own[1]);
        close(stop[1]);
        _exit(read(stop[0], buffer, 1) != 0);
    }
    OK(exs_close(own[1], queue, 61));
    TRUE(next(queue).exs_evt_ahandle + next(queue).exs_evt_ahandle == 121);
    TRUE(read(own[0], buffer, 1) == 0);
    TRUE(close(stop[0]) == 0 && close(stop[1]) == 0 && close(own[0]) == 0);
    TRUE(waitpid(child, &status, 0) == child && status == 0);
}

int main(int count, char **arguments)
{
    alarm(120);
    connected(count > 1 ? arguments[1] : "127.0.0.1", pair);
    OK(exs_init(EXS_VERSION));
    queue = exs_qcreate(16);
    TRUE(queue > 0);
    depths();
    thresholds();
    signals();
    threads();
    deletes();
    forks();
    forks_keep_nothing();
    OK(exs_qdelete(queue));
    puts("fine");
    return 0;
}
