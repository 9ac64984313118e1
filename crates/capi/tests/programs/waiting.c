/* Sleeping on queues: signals, descriptors, threads, forks, and an engine that goes away. */
#include "check.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static void by_descriptor(Pair *pair)
{
    struct pollfd poll_on;
    int again;
    memset(&poll_on, 0, sizeof poll_on);
    OK(Dusi_Get_Evq_Fd(pair->evq, &poll_on.fd));
    OK(Dusi_Get_Evq_Fd(pair->evq, &again));
    TRUE(again == poll_on.fd);
    poll_on.events = POLLIN;
    OK(Dusi_Arm_Evq(pair->evq));
    OK(Dusi_Nop(pair->evq, 5));
    for (;;) {
        TRUE(poll(&poll_on, 1, 20000) == 1);
        OK(Dusi_Disarm_Evq(pair->evq));
        /* One wake-up too many is allowed. */
        if (Dusi_Poll_Evq(pair->evq) == DUSI_OK || Dusi_Arm_Evq(pair->evq) == DUSI_NOT_EMPTY)
            break;
    }
    IS(DUSI_NOT_EMPTY, Dusi_Arm_Evq(pair->evq));
    TRUE(next(pair->evq).cookie == 5);
    OK(Dusi_Arm_Evq(pair->evq));
    OK(Dusi_Disarm_Evq(pair->evq));
    TRUE(poll(&poll_on, 1, 0) == 0);
}

/* As the paper's applications wait for several queues: one signal for all. */
static void by_signal(Pair *pair, uint32_t flags)
{
    struct timespec limit = { 20, 0 };
    int number = SIGRTMIN + 1, fds[2], i;
    sigset_t set, old;
    siginfo_t info;
    Dusi_Evq evqs[2];

    sigemptyset(&set);
    sigaddset(&set, number);
    TRUE(pthread_sigmask(SIG_BLOCK, &set, &old) == 0);
    evqs[0] = pair->evq;
    OK(Dusi_Create_Evq(pair->ual, &evqs[1]));
    for (i = 0; i < 2; i++) {
        OK(Dusi_Set_Evq_Signal(evqs[i], number, flags));
        OK(Dusi_Get_Evq_Fd(evqs[i], &fds[i]));
    }
    for (i = 0; i < 2; i++) {
        Dusi_Status armed[2];
        armed[0] = Dusi_Arm_Evq(evqs[0]);
        armed[1] = Dusi_Arm_Evq(evqs[1]);
        TRUE(armed[0] == DUSI_OK && armed[1] == DUSI_OK);
        OK(Dusi_Nop(evqs[i], 6));
        while (armed[i] == DUSI_OK) {
            TRUE(sigtimedwait(&set, &info, &limit) == number);
            TRUE(info.si_fd == fds[0] || info.si_fd == fds[1]);
            OK(Dusi_Disarm_Evq(evqs[i]));
            /* One wake-up too many is allowed. */
            armed[i] = Dusi_Arm_Evq(evqs[i]);
        }
        IS(DUSI_NOT_EMPTY, armed[i]);
        OK(Dusi_Disarm_Evq(evqs[1 - i]));
        TRUE(next(evqs[i]).cookie == 6);
    }
    /* Without the association there is none. */
    for (i = 0; i < 2; i++)
        OK(Dusi_Set_Evq_Signal(evqs[i], 0, 0));
    limit.tv_sec = 0;
    while (sigtimedwait(&set, &info, &limit) == number)
        continue;
    OK(Dusi_Arm_Evq(evqs[0]));
    OK(Dusi_Nop(evqs[0], 7));
    TRUE(next(evqs[0]).cookie == 7);
    OK(Dusi_Disarm_Evq(evqs[0]));
    TRUE(sigtimedwait(&set, &info, &limit) == -1 && errno == EAGAIN);
    OK(Dusi_Destroy_Evq(evqs[1]));
    TRUE(pthread_sigmask(SIG_SETMASK, &old, NULL) == 0);
}

static void on_several(Pair *pair)
{
    Dusi_Evq both[3];
    both[0] = pair->evq;
    OK(Dusi_Create_Evq(pair->ual, &both[1]));
    both[2] = both[0];
    IS(DUSI_TIMEOUT, Dusi_Wait_Evqs(both, 3, 1000));
    OK(Dusi_Nop(both[1], 8));
    OK(Dusi_Wait_Evqs(both, 3, LONG));
    OK(Dusi_Poll_Evq(both[1]));
    IS(DUSI_EMPTY, Dusi_Poll_Evq(both[0]));
    TRUE(next(both[1]).cookie == 8);
    OK(Dusi_Destroy_Evq(both[1]));
}

static void *sleeper(void *argument)
{
    Dusi_Evq evq = *(Dusi_Evq *)argument;
    static Dusi_Status answer;
    answer = Dusi_Wait_Evq(evq, LONG);
    return &answer;
}

static Dusi_Status joined(pthread_t thread)
{
    void *answer;
    TRUE(pthread_join(thread, &answer) == 0);
    return *(Dusi_Status *)answer;
}

/* Starts a thread that sleeps on the queue, and waits until it does. */
static pthread_t sleep_on(Dusi_Evq *evq)
{
    pthread_t thread;
    TRUE(pthread_create(&thread, NULL, sleeper, evq) == 0);
    while (Dusi_Poll_Evq(*evq) != DUSI_BUSY)
        sched_yield();
    return thread;
}

static void by_threads(Pair *pair)
{
    Dusi_Event event;
    pthread_t thread = sleep_on(&pair->evq);
    IS(DUSI_BUSY, Dusi_Dequeue_Event(pair->evq, &event));
    IS(DUSI_BUSY, Dusi_Wait_Evq(pair->evq, 0));
    IS(DUSI_BUSY, Dusi_Destroy_Evq(pair->evq));
    OK(Dusi_Nop(pair->evq, 9));
    IS(DUSI_OK, joined(thread));
    TRUE(next(pair->evq).cookie == 9);
}

typedef struct Sender {
    Pair *pair;
    int number;
} Sender;

static void *send_many(void *argument)
{
    Sender *sender = (Sender *)argument;
    unsigned char letter = (unsigned char)('a' + sender->number);
    int i;
    for (i = 0; i < 500; i++) {
        Dusi_Status status;
        while ((status = Dusi_Send(sender->pair->client, DUSI_NO_REGION, &letter, 1, 0, 0)) == DUSI_DOORBELL_FULL)
            sched_yield();
        IS(DUSI_OK, status);
    }
    return NULL;
}

/* Four threads send on one DTI while the main one takes events. */
static void many_threads(Pair *pair)
{
    pthread_t threads[4];
    Sender senders[4];
    size_t counts[4] = { 0, 0, 0, 0 }, all = 0, i;
    for (i = 0; i < 4; i++) {
        senders[i].pair = pair;
        senders[i].number = (int)i;
        TRUE(pthread_create(&threads[i], NULL, send_many, &senders[i]) == 0);
    }
    while (all < 2000) {
        Dusi_Event event = next_of(pair->evq, DUSI_EVENT_RECEIVED);
        for (i = 0; i < event.length; i++)
            counts[((const char *)event.data)[i] - 'a']++;
        all += (size_t)event.length;
        OK(Dusi_Return_Chunk(event.chunk));
    }
    for (i = 0; i < 4; i++) {
        TRUE(pthread_join(threads[i], NULL) == 0);
        TRUE(counts[i] == 500);
    }
}

/* The child is told, opens its own, and leaves its parent's alone. */
static void by_fork(Pair *pair)
{
    Dusi_Event event;
    int status;
    pid_t child = fork();
    TRUE(child >= 0);
    if (child == 0) {
        Pair own;
        Dusi_Region region;
        void *at;
        IS(DUSI_FORKED, Dusi_Send(pair->client, DUSI_NO_REGION, "child", 5, 0, 0));
        IS(DUSI_FORKED, Dusi_Dequeue_Event(pair->evq, &event));
        IS(DUSI_FORKED, Dusi_Wait_Evq(pair->evq, 0));
        IS(DUSI_FORKED, Dusi_Allocate_Memory(pair->ual, 1, 0, &region, &at));
        IS(DUSI_FORKED, Dusi_Check_Ual(pair->ual));
        IS(DUSI_FORKED, Dusi_Close_Ual(pair->ual));
        own = open_pair(getenv("DUSI_SOCKET"));
        TRUE(own.ual != pair->ual);
        OK(Dusi_Send(own.client, DUSI_NO_REGION, "child", 5, 0, 0));
        event = next_of(own.evq, DUSI_EVENT_RECEIVED);
        TRUE(event.length == 5 && memcmp(event.data, "child", 5) == 0);
        OK(Dusi_Close_Ual(own.ual));
        /* Not by way of exit: what only the parent's threads knew of would be called a leak. */
        _exit(0);
    }
    TRUE(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    OK(Dusi_Send(pair->client, DUSI_NO_REGION, "parent", 6, 0, 0));
    event = next_of(pair->evq, DUSI_EVENT_RECEIVED);
    TRUE(event.length == 6 && memcmp(event.data, "parent", 6) == 0);
    OK(Dusi_Return_Chunk(event.chunk));
}

/* A UAL that is closed while a child still has its descriptors is closed at the engine, too: the port is free again. */
static void close_with_a_child_left(Pair *pair)
{
    struct sockaddr_in address;
    int ends[2], status;
    pid_t child;
    char byte = 0;
    Dusi_Dti dti;
    Dusi_Event event;
    Pair own = open_pair(getenv("DUSI_SOCKET"));
    listener(&own, &address);
    TRUE(pipe(ends) == 0);
    child = fork();
    TRUE(child >= 0);
    if (child == 0) {
        close(ends[1]);
        _exit(read(ends[0], &byte, 1) == 0 ? 0 : 1);
    }
    close(ends[0]);
    OK(Dusi_Close_Ual(own.ual));
    do {
        dti = stream(pair);
        OK(Dusi_Bind(dti, (struct sockaddr *)&address, sizeof address, 1));
        do {
            event = next(pair->evq);
        } while (event.kind != DUSI_EVENT_COMPLETION || event.dti != dti);
        OK(Dusi_Close(dti, 0));
    } while (event.status == DUSI_ADDRESS_IN_USE);
    TRUE(event.status == DUSI_OK);
    close(ends[1]);
    TRUE(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* Who sleeps on a queue wakes when its UAL is closed. */
static void close_while_asleep(void)
{
    Pair own = open_pair(getenv("DUSI_SOCKET"));
    pthread_t thread = sleep_on(&own.evq);
    OK(Dusi_Close_Ual(own.ual));
    IS(DUSI_DISCONNECTED, joined(thread));
    IS(DUSI_BAD_HANDLE, Dusi_Wait_Evq(own.evq, 0));
}

/* The engine goes when it is told to by a line on standard output. */
static void engine_goes(Pair *pair)
{
    Dusi_Status status;
    puts("end the engine");
    fflush(stdout);
    do {
        Dusi_Event event;
        status = Dusi_Wait_Evq(pair->evq, LONG);
        if (status == DUSI_OK)
            OK(Dusi_Dequeue_Event(pair->evq, &event));
    } while (status == DUSI_OK);
    IS(DUSI_DISCONNECTED, status);
    IS(DUSI_DISCONNECTED, Dusi_Check_Ual(pair->ual));
    IS(DUSI_DISCONNECTED, Dusi_Arm_Evq(pair->evq));
    OK(Dusi_Close_Ual(pair->ual));
    IS(DUSI_NO_ENGINE, Dusi_Open_Ual(getenv("DUSI_SOCKET"), NULL, &pair->ual));
}

int main(void)
{
    Pair pair = open_pair(getenv("DUSI_SOCKET"));
    int i;
    by_descriptor(&pair);
    by_signal(&pair, 0);
    by_signal(&pair, DUSI_SIGNAL_THREAD);
    on_several(&pair);
    by_threads(&pair);
    many_threads(&pair);
    by_fork(&pair);
    close_with_a_child_left(&pair);
    for (i = 0; i < 20; i++)
        close_while_asleep();
    engine_goes(&pair);
    puts("fine");
    return 0;
}
