/* Threads: calls that others end, or do not; signals; cancellation; sets that wake one. */
#include "common.h"

static int ends[2], listener, set;
static volatile sig_atomic_t handled;

static void handler(int signal) {
    (void)signal;
    handled = 1;
}

static void install(int flags) {
    struct sigaction action = {.sa_handler = handler, .sa_flags = flags};
    sigaction(SIGUSR1, &action, NULL);
}

/* A call in a thread of its own. */
struct call {
    pthread_t thread;
    long (*run)(void);
    long result;
    int error;
    volatile int begun, done;
};

static void *run(void *of) {
    struct call *call = of;
    call->begun = 1;
    call->result = call->run();
    call->error = errno;
    call->done = 1;
    return NULL;
}

/* Begins it, and gives it time to block. */
static void begin(struct call *call, long (*what)(void)) {
    *call = (struct call){.run = what};
    must(pthread_create(&call->thread, NULL, run, call) == 0, "pthread_create");
    while (!call->begun)
        rest(1);
    rest(50);
}

/* Waits for its end, ten seconds at most. */
static void end(const char *what, struct call *call) {
    for (int i = 0; i < 1000 && !call->done; i++)
        rest(10);
    if (!call->done) {
        printf("%s: does not end\n", what);
        exit(1);
    }
    void *value = NULL;
    pthread_join(call->thread, &value);
    errno = call->error;
    say(what, call->result);
}

static char got[16];
static long a_recv(void) { return recv(ends[1], got, sizeof got, 0); }
static long a_read(void) { return read(ends[1], got, sizeof got); }
static long an_accept(void) { return accept(listener, NULL, NULL) < 0 ? -1 : 0; }
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
    long sent = 0;
    while (sent < 64 << 20) {
        long n = send(ends[0], much, sizeof much, 0);
        if (n < 0)
            return n;
        sent += n;
    }
    return sent;
}

/* Signals until the call ends. With SA_RESTART it must not, until there is something. */
static void signals(const char *what, long (*call)(void), bool restarts, bool timeout) {
    struct call blocked;
    install(restarts ? SA_RESTART : 0);
    handled = 0;
    begin(&blocked, call);
    for (int i = 0; i < (restarts && !timeout ? 10 : 1000) && !blocked.done; i++) {
        pthread_kill(blocked.thread, SIGUSR1);
        rest(10);
    }
    if (restarts && !timeout) {
        printf("handled: %d, still blocked: %d\n", (int)handled, !blocked.done);
        must(send(ends[0], "x", 1, 0) == 1, "send");
    }
    end(what, &blocked);
}

static void cancel(const char *what, long (*call)(void)) {
    struct call blocked;
    begin(&blocked, call);
    printf("cancel: %d\n", pthread_cancel(blocked.thread));
    void *value = NULL;
    struct timespec limit;
    clock_gettime(CLOCK_REALTIME, &limit);
    limit.tv_sec += 10;
    int joined = pthread_timedjoin_np(blocked.thread, &value, &limit);
    printf("%s: joined %d, cancelled: %d, returned: %d\n", what, joined,
           value == PTHREAD_CANCELED, blocked.done);
    if (joined)
        exit(1);
}

static volatile int cleaned;

static void clean(void *nothing) {
    (void)nothing;
    cleaned = 1;
}

static long held_off(void) {
    int old;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &old);
    long n = a_recv();
    pthread_setcancelstate(old, NULL);
    long result = n;
    pthread_cleanup_push(clean, NULL);
    pthread_testcancel();
    result = a_recv();
    pthread_cleanup_pop(0);
    return result;
}

static void cancellation(void) {
    cancel("recv", a_recv);
    cancel("read", a_read);
    cancel("accept", an_accept);
    cancel("poll", a_poll);
    cancel("select", a_select);
    cancel("epoll_wait", an_epoll);
    struct call blocked;
    begin(&blocked, held_off);
    pthread_cancel(blocked.thread);
    rest(100);
    printf("held off: still blocked: %d\n", !blocked.done);
    must(send(ends[0], "now", 3, 0) == 3, "send");
    void *value = NULL;
    pthread_join(blocked.thread, &value);
    printf("then cancelled: %d, cleaned up: %d, received: %.3s\n", value == PTHREAD_CANCELED,
           cleaned, got);
    must(send(ends[0], "works", 5, 0) == 5, "send");
    say("and the socket works", recv(ends[1], got, sizeof got, 0));
    /* A pipe is the system's: its reader is unwound through the same function. */
    int pipe_ends[2], keep = ends[1];
    must(pipe(pipe_ends) == 0, "pipe");
    ends[1] = pipe_ends[0];
    cancel("read of a pipe", a_read);
    ends[1] = keep;
}

static void closing(void) {
    struct call blocked;
    connected(ends);
    begin(&blocked, a_recv);
    int other = open("/dev/null", O_RDONLY);
    say("close while another receives", close(ends[1]));
    rest(50);
    printf("it goes on: %d\n", !blocked.done);
    must(send(ends[0], "late", 4, 0) == 4, "send");
    end("and has what comes", &blocked);
    printf("%.4s\n", got);
    close(ends[0]);
    connected(ends);
    begin(&blocked, a_recv);
    say("dup2 over it", dup2(other, ends[1]) == ends[1]);
    rest(50);
    printf("it goes on: %d\n", !blocked.done);
    must(send(ends[0], "dup2", 4, 0) == 4, "send");
    end("and has what comes", &blocked);
    printf("%.4s\n", got);
    close(ends[0]);
    close(ends[1]);
    connected(ends);
    begin(&blocked, a_recv);
    say("shutdown", shutdown(ends[1], SHUT_RD));
    end("ends it", &blocked);
    begin(&blocked, an_accept);
    say("shutdown of a listener", shutdown(listener, SHUT_RDWR));
    end("ends its accept", &blocked);
    close(listener);
}

static int sets[2];
static volatile pid_t waiting[2];
static volatile int woken;

static void *waits(void *which) {
    struct epoll_event event;
    waiting[(long)which] = gettid();
    if (epoll_wait(sets[(long)which], &event, 1, 5000) == 1)
        __atomic_add_fetch(&woken, 1, __ATOMIC_SEQ_CST);
    return NULL;
}

static void exclusive(void) {
    struct sockaddr_in address;
    listener = bound(SOCK_STREAM, &address);
    must(listen(listener, 5) == 0, "listen");
    struct epoll_event event = {.events = EPOLLIN | EPOLLEXCLUSIVE};
    pthread_t threads[2];
    for (long i = 0; i < 2; i++) {
        sets[i] = epoll_create1(0);
        say("add", epoll_ctl(sets[i], EPOLL_CTL_ADD, listener, &event));
        pthread_create(&threads[i], NULL, waits, (void *)i);
    }
    say("modify", epoll_ctl(sets[0], EPOLL_CTL_MOD, listener, &event));
    event.events |= EPOLLONESHOT;
    say("once", epoll_ctl(set, EPOLL_CTL_ADD, listener, &event));
    for (int i = 0; i < 2; i++) {
        while (!waiting[i])
            rest(1);
        until_asleep(waiting[i]);
    }
    int client = socket(AF_INET, SOCK_STREAM, 0);
    must(connect(client, (struct sockaddr *)&address, sizeof address) == 0, "connect");
    pthread_join(threads[0], NULL);
    pthread_join(threads[1], NULL);
    printf("woken by one connection: %d\n", woken);
    struct timespec time = {0, 300}, wrong = {0, 1000000000};
    struct epoll_event told;
    set = epoll_create1(0);
    say("epoll_pwait2 for 300 ns", epoll_pwait2(set, &told, 1, &time, NULL));
    say("epoll_pwait2 for nonsense", epoll_pwait2(set, &told, 1, &wrong, NULL));
}

int main(void) {
    struct sockaddr_in address;
    connected(ends);
    listener = bound(SOCK_STREAM, &address);
    must(listen(listener, 5) == 0, "listen");
    set = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN};
    must(epoll_ctl(set, EPOLL_CTL_ADD, ends[1], &event) == 0, "epoll_ctl");

    signals("recv, SA_RESTART", a_recv, true, false);
    signals("recv", a_recv, false, false);
    signals("accept", an_accept, false, false);
    signals("poll, SA_RESTART", a_poll, true, true);
    signals("select", a_select, false, false);
    signals("epoll_wait, SA_RESTART", an_epoll, true, true);
    struct timeval time = {20, 0};
    setsockopt(ends[1], SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time);
    signals("recv with a timeout, SA_RESTART", a_recv, true, true);
    time.tv_sec = 0;
    setsockopt(ends[1], SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time);
    cancellation();
    cancel("send", a_send);
    closing();
    exclusive();
    return 0;
}
