/* Forks of every kind, also those that libc tells nobody of, and what a child may do with sockets. */
#include "common.h"
#include <linux/sched.h>
#include <sched.h>
#include <sys/syscall.h>
#include <sys/wait.h>

static int ends[2];
static struct sockaddr_in there;

/* Uses what it inherited, and makes a connection of its own. */
static int child(void *what) {
    char bytes[100] = {0};
    say("read what was inherited", recv(ends[1], bytes, sizeof bytes, 0));
    printf("'%s'\n", bytes);
    say("answer", send(ends[1], what, strlen(what), 0));
    int own = socket(AF_INET, SOCK_STREAM, 0);
    say("connect", connect(own, (struct sockaddr *)&there, sizeof there));
    say("send", send(own, what, strlen(what), 0));
    say("the answer", recv(own, bytes, sizeof bytes, 0));
    return 7;
}

static pid_t by_fork(void) {
    return fork();
}

#ifdef SYS_fork
static pid_t by_number(void) {
    return (pid_t)syscall(SYS_fork);
}
#endif

static pid_t without_handlers(void) {
    return _Fork();
}

static pid_t by_clone(void) {
    return (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
}

static pid_t by_clone3(void) {
    struct clone_args how = {.exit_signal = SIGCHLD};
    return (pid_t)syscall(SYS_clone3, &how, sizeof how);
}

static void of(const char *what, int listener, pid_t (*make)(void)) {
    static char stack[1 << 18] __attribute__((aligned(16)));
    char bytes[100] = {0};
    printf("%s\n", what);
    connected(ends);
    send(ends[0], what, strlen(what), 0);
    pid_t pid = make ? make() : clone(child, stack + sizeof stack, SIGCHLD, (void *)what);
    if (pid == 0)
        _exit(child((void *)what));
    must(pid > 0, "fork");
    close(ends[1]);
    int its = accept(listener, NULL, NULL);
    must(its >= 0, "accept");
    ssize_t n = recv(its, bytes, sizeof bytes, 0);
    send(its, bytes, n > 0 ? (size_t)n : 0, 0);
    int status = 0;
    must(waitpid(pid, &status, 0) == pid, "waitpid");
    say("its status", WIFEXITED(status) ? WEXITSTATUS(status) : -1);
    printf("'%s'\n", bytes);
    memset(bytes, 0, sizeof bytes);
    say("what it answered", recv(ends[0], bytes, sizeof bytes, 0));
    printf("'%s'\n", bytes);
    say("and no more", recv(ends[0], bytes, sizeof bytes, 0));
    close(its);
    close(ends[0]);
}

int main(void) {
    int listener = bound(SOCK_STREAM, &there);
    must(listen(listener, 5) == 0, "listen");
    of("fork", listener, by_fork);
#ifdef SYS_fork
    of("by number", listener, by_number);
#endif
    of("without handlers", listener, without_handlers);
    of("by clone", listener, by_clone);
    of("by clone3", listener, by_clone3);
    of("libc's clone", listener, NULL);
    /* The parent is as it was. */
    connected(ends);
    say("send", send(ends[0], "still", 5, 0));
    char bytes[5];
    say("recv", recv(ends[1], bytes, sizeof bytes, 0));
    return 0;
}
