/* Signal handlers that use sockets, whatever their thread was doing; that leave blocked calls by longjmp; and what handlers are told. */
#include "common.h"
#include <setjmp.h>
#include <sys/time.h>

static int ends[2], other[2], listener, set;
static volatile sig_atomic_t handled;
static volatile long told;
static sigjmp_buf away;

static void count(int signal) {
    (void)signal;
    handled++;
}

static void leave(int signal) {
    siglongjmp(away, signal);
}

static void install(int signal, void (*handler)(int), int flags) {
    struct sigaction action = {.sa_handler = handler, .sa_flags = flags};
    sigaction(signal, &action, NULL);
}

static void every(long microseconds) {
    struct itimerval time = {{0, microseconds}, {0, microseconds}};
    setitimer(ITIMER_REAL, &time, NULL);
}

static void once(long microseconds) {
    struct itimerval time = {{0, 0}, {0, microseconds}};
    setitimer(ITIMER_REAL, &time, NULL);
}

/* The handler that ends a blocked read of the same connection, by writing to its other end. */
static void writes_to_it(int signal) {
    (void)signal;
    told = write(ends[0], "wake up", 7);
}

static void self_made(void) {
    char got[16];
    install(SIGALRM, writes_to_it, SA_RESTART);
    once(20000);
    say("recv that its own handler feeds", recv(ends[1], got, sizeof got, 0));
    printf("the handler wrote %ld: %.7s\n", told, got);
    struct pollfd one = {.fd = ends[1], .events = POLLIN};
    once(20000);
    say("poll that its own handler feeds", poll(&one, 1, -1));
    say("and again", poll(&one, 1, 5000));
    say("recv", recv(ends[1], got, sizeof got, 0));
    struct epoll_event event;
    once(20000);
    say("epoll_wait that its own handler feeds", epoll_wait(set, &event, 1, -1));
    say("and again", epoll_wait(set, &event, 1, 5000));
    say("recv", recv(ends[1], got, sizeof got, 0));
}

/* Records of two kinds on one connection: from the thread, and from a handler that interrupts it in the midst of its own. */
enum { RECORD = 16, OF_THREAD = 2000 };
static volatile long of_handler, refused;

static void writes_a_record(int signal) {
    (void)signal;
    char record[RECORD];
    memset(record, 'h', RECORD);
    int before = errno;
    long n = send(ends[0], record, RECORD, MSG_DONTWAIT);
    if (n == RECORD)
        of_handler++;
    else
        refused++;
    errno = before;
}

static long whole[2], torn;

static void *reads_records(void *nothing) {
    (void)nothing;
    char record[RECORD];
    while (recv(ends[1], record, RECORD, MSG_WAITALL) == RECORD) {
        int alike = 1;
        for (int i = 1; i < RECORD; i++)
            alike &= record[i] == record[0];
        if (alike)
            whole[record[0] == 'h']++;
        else
            torn++;
    }
    return NULL;
}

static void storm(void) {
    pthread_t reader;
    sigset_t alarm;
    sigemptyset(&alarm);
    sigaddset(&alarm, SIGALRM);
    pthread_sigmask(SIG_BLOCK, &alarm, NULL);
    must(pthread_create(&reader, NULL, reads_records, NULL) == 0, "pthread_create");
    pthread_sigmask(SIG_UNBLOCK, &alarm, NULL);
    install(SIGALRM, writes_a_record, SA_RESTART);
    every(500);
    char record[RECORD], back[RECORD];
    memset(record, 't', RECORD);
    long echoed = 0, errors = 0;
    for (int i = 0; i < OF_THREAD; i++) {
        /* All of it, as the system may end a send early for a handler's sake. */
        errors += send(ends[0], record, RECORD, 0) != RECORD;
        /* Something else is at work on, too. */
        if (i % 64 == 0 && send(other[0], record, RECORD, 0) == RECORD)
            echoed += recv(other[1], back, RECORD, MSG_WAITALL) == RECORD;
    }
    while (of_handler < 5)
        rest(1);
    every(0);
    rest(20);
    shutdown(ends[0], SHUT_WR);
    pthread_join(reader, NULL);
    printf("errors %ld, echoed %ld, of the thread %ld, torn %ld\n", errors, echoed, whole[0], torn);
    printf("of the handler, all that was written: %d\n", whole[1] == of_handler);
    close(ends[0]);
    close(ends[1]);
    connected(ends);
}

static char got[64];
static long a_recv(void) { return recv(ends[1], got, sizeof got, 0); }
static long an_accept(void) { return accept(listener, NULL, NULL); }
static long a_poll(void) {
    struct pollfd one = {.fd = ends[1], .events = POLLIN};
    return poll(&one, 1, -1);
}
static long a_select(void) {
    fd_set fds;
    FD_ZERO(&fds);
    FD_SET(ends[1], &fds);
    return select(ends[1] + 1, &fds, NULL, NULL, NULL);
}
static long an_epoll(void) {
    struct epoll_event event;
    return epoll_wait(set, &event, 1, -1);
}
static long a_send(void) {
    static char much[1 << 20];
    while (send(ends[0], much, sizeof much, 0) != 0)
        continue;
    return 0;
}

static void *uses(void *nothing) {
    (void)nothing;
    char byte;
    long done = send(other[0], "t", 1, 0) + recv(other[1], &byte, 1, 0);
    return (void *)done;
}

/* Leaves a blocked call by siglongjmp, again and again; then other threads get on, and so does this one. */
static void jumps(const char *what, long (*call)(void), int flags) {
    install(SIGALRM, leave, flags);
    volatile int left = 0;
    for (volatile int i = 0; i < 10; i++) {
        if (sigsetjmp(away, 1) == 0) {
            once(3000);
            call();
            printf("%s ended\n", what);
        } else {
            left++;
        }
    }
    pthread_t thread;
    void *done = NULL;
    pthread_create(&thread, NULL, uses, NULL);
    pthread_join(thread, &done);
    printf("%s: left %d times, another thread moves %ld bytes, ", what, left, (long)done);
    printf("this one %ld\n", (long)uses(NULL));
}

static void jumping(void) {
    jumps("recv", a_recv, 0);
    jumps("recv, SA_RESTART", a_recv, SA_RESTART);
    jumps("accept", an_accept, SA_RESTART);
    jumps("poll", a_poll, 0);
    jumps("select", a_select, 0);
    jumps("epoll_wait", an_epoll, SA_RESTART);
    struct sockaddr_in address;
    socklen_t len = sizeof address;
    must(getsockname(listener, (struct sockaddr *)&address, &len) == 0, "getsockname");
    int client = socket(AF_INET, SOCK_STREAM, 0);
    must(connect(client, (struct sockaddr *)&address, sizeof address) == 0, "connect");
    int server = accept(listener, NULL, NULL);
    printf("the listener accepts: %d\n", server >= 0);
    send(client, "abc", 3, 0);
    say("and its connection carries", recv(server, got, sizeof got, 0));
    close(client);
    say("to the end", recv(server, got, sizeof got, 0));
    close(server);
    jumps("send", a_send, 0);
    /* Nothing keeps what was left by a jump: its end is told. */
    install(SIGALRM, leave, 0);
    if (sigsetjmp(away, 1) == 0) {
        once(3000);
        recv(other[0], got, sizeof got, 0);
    }
    close(other[0]);
    say("the end of one that was left", recv(other[1], got, sizeof got, 0));
    close(other[1]);
    close(ends[0]);
    close(ends[1]);
}

/* The same call, jumped out of at any moment of its way in and out. */
static void early_jumps(void) {
    connected(ends);
    connected(other);
    install(SIGALRM, leave, 0);
    volatile long left = 0;
    every(70);
    for (volatile int i = 0; i < 200000 && left < 200; i++) {
        if (sigsetjmp(away, 1) == 0) {
            char byte = 'j';
            send(other[0], &byte, 1, MSG_DONTWAIT);
            recv(other[1], &byte, 1, MSG_DONTWAIT);
            struct pollfd one = {.fd = ends[1], .events = POLLIN};
            poll(&one, 1, 0);
            int value;
            socklen_t len = sizeof value;
            getsockopt(ends[0], SOL_SOCKET, SO_ERROR, &value, &len);
            setsockopt(ends[0], IPPROTO_TCP, TCP_NODELAY, &value, sizeof value);
        } else {
            left++;
        }
    }
    every(0);
    printf("left at any moment: %d\n", left >= 200);
    say("send", send(ends[0], "still", 5, 0));
    say("recv", recv(ends[1], got, sizeof got, 0));
    close(ends[0]);
    say("the end", recv(ends[1], got, sizeof got, 0));
    close(ends[1]);
    close(other[0]);
    close(other[1]);
}

static volatile int value_told, code_told, blocked_inside;
static volatile void *context_told;

static void informed(int signal, siginfo_t *info, void *context) {
    sigset_t now;
    pthread_sigmask(SIG_BLOCK, NULL, &now);
    blocked_inside = sigismember(&now, signal) * 10 + sigismember(&now, SIGUSR2);
    value_told = info->si_value.sival_int;
    code_told = info->si_code;
    context_told = context;
    handled++;
}

static void *queues(void *to) {
    rest(50);
    union sigval value = {.sival_int = 4711};
    pthread_sigqueue(*(pthread_t *)to, SIGUSR1, value);
    rest(50);
    send(ends[0], "x", 1, 0);
    return NULL;
}

static void information(void) {
    connected(ends);
    struct sigaction action = {.sa_sigaction = informed, .sa_flags = SA_SIGINFO | SA_RESTART}, was;
    sigaddset(&action.sa_mask, SIGUSR2);
    say("sigaction", sigaction(SIGUSR1, &action, NULL));
    say("sigaction asked", sigaction(SIGUSR1, NULL, &was));
    printf("its handler %d, flags %x, mask %d\n", was.sa_sigaction == informed,
           (unsigned)was.sa_flags & (SA_SIGINFO | SA_RESTART | SA_RESETHAND | SA_NODEFER),
           sigismember(&was.sa_mask, SIGUSR2));
    pthread_t me = pthread_self(), thread;
    handled = 0;
    pthread_create(&thread, NULL, queues, &me);
    say("recv", recv(ends[1], got, sizeof got, 0));
    pthread_join(thread, NULL);
    printf("handled %d, value %d, queued %d, blocked inside %d, context %d\n", (int)handled,
           value_told, code_told == SI_QUEUE, blocked_inside, context_told != NULL);
    sigset_t now;
    pthread_sigmask(SIG_BLOCK, NULL, &now);
    printf("blocked after: %d %d\n", sigismember(&now, SIGUSR1), sigismember(&now, SIGUSR2));

    printf("signal tells the one before: %d", (void *)signal(SIGUSR1, count) == (void *)informed);
    printf(" %d", signal(SIGUSR1, SIG_IGN) == count);
    printf(" %d\n", signal(SIGUSR1, SIG_DFL) == SIG_IGN);
    say("none for SIGKILL", signal(SIGKILL, count) == SIG_ERR);
    say("nor for 0", sigaction(0, &action, NULL));

    handled = 0;
    install(SIGUSR1, count, SA_RESETHAND);
    raise(SIGUSR1);
    sigaction(SIGUSR1, NULL, &was);
    printf("handled once %d, then default: %d\n", (int)handled, was.sa_handler == SIG_DFL);

    /* Blocked but for the time of a ppoll. */
    install(SIGUSR1, count, SA_RESTART);
    sigset_t one, none;
    sigemptyset(&none);
    sigemptyset(&one);
    sigaddset(&one, SIGUSR1);
    pthread_sigmask(SIG_BLOCK, &one, NULL);
    handled = 0;
    raise(SIGUSR1);
    struct pollfd fd = {.fd = ends[1], .events = POLLIN};
    struct timespec time = {5, 0};
    printf("blocked: handled %d\n", (int)handled);
    say("ppoll that lets it through", ppoll(&fd, 1, &time, &none));
    pthread_sigmask(SIG_BLOCK, NULL, &now);
    printf("handled %d, blocked again %d\n", (int)handled, sigismember(&now, SIGUSR1));
    raise(SIGUSR1);
    struct epoll_event event;
    epoll_ctl(set, EPOLL_CTL_ADD, ends[1], &(struct epoll_event){.events = EPOLLIN});
    say("epoll_pwait that lets it through", epoll_pwait(set, &event, 1, 5000, &none));
    printf("handled %d\n", (int)handled);
    pthread_sigmask(SIG_UNBLOCK, &one, NULL);

    /* SIGPIPE comes from within. */
    install(SIGPIPE, count, 0);
    handled = 0;
    shutdown(ends[0], SHUT_WR);
    say("send after the end", send(ends[0], "x", 1, 0));
    printf("handled %d\n", (int)handled);
}

int main(void) {
    struct sockaddr_in address;
    connected(ends);
    connected(other);
    listener = bound(SOCK_STREAM, &address);
    must(listen(listener, 5) == 0, "listen");
    set = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN};
    must(epoll_ctl(set, EPOLL_CTL_ADD, ends[1], &event) == 0, "epoll_ctl");
    self_made();
    storm();
    must(epoll_ctl(set, EPOLL_CTL_ADD, ends[1], &event) == 0, "epoll_ctl");
    jumping();
    early_jumps();
    information();
    return 0;
}
