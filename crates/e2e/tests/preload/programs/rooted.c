/* It has made sockets, or inherited one that listens, and changes its root; then it connects, listens and accepts. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static void must(bool holds, const char *what) {
    if (!holds) {
        perror(what);
        exit(1);
    }
}

static struct sockaddr_in address(const char *ip, const char *port) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(atoi(port))};
    must(inet_aton(ip, &at.sin_addr), "an address");
    return at;
}

static int listening(struct sockaddr_in at) {
    int listener = socket(AF_INET, SOCK_STREAM, 0), one = 1;
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    must(bind(listener, (struct sockaddr *)&at, sizeof at) == 0, "bind");
    must(listen(listener, 5) == 0, "listen");
    return listener;
}

/* Everything that comes goes back, to the end. */
static void echo(int listener) {
    int fd = accept(listener, NULL, NULL);
    must(fd >= 0, "accept");
    char bytes[4096];
    ssize_t n;
    while ((n = read(fd, bytes, sizeof bytes)) > 0)
        must(write(fd, bytes, n) == n, "write");
    must(n == 0, "read");
    close(fd);
}

/* ADDRESS OF-THE-PEER ITS-PORT ROOT AGENTS-SOCKET calls|numbers forks|alone */
int main(int count, char **words) {
    must(count == 8, "arguments");
    bool forks = !strcmp(words[7], "forks");
    int inherited = forks ? listening(address(words[1], "8080")) : -1;
    int made = socket(AF_INET, SOCK_STREAM, 0);
    pid_t child = forks ? fork() : 0;
    if (child) {
        int status;
        must(child > 0 && waitpid(child, &status, 0) == child, "fork");
        return WIFEXITED(status) ? WEXITSTATUS(status) : 9;
    }
    must(access(words[5], F_OK) == 0, "the agent's socket");
    if (!strcmp(words[6], "numbers"))
        must(syscall(SYS_chroot, words[4]) == 0, "chroot by its number");
    else
        must(chroot(words[4]) == 0, "chroot");
    must(chdir("/") == 0 && access(words[5], F_OK) != 0, "another root");

    struct sockaddr_in there = address(words[2], words[3]);
    must(connect(made, (struct sockaddr *)&there, sizeof there) == 0, "connect");
    must(write(made, "from another root", 17) == 17, "write");
    close(made);
    if (inherited < 0)
        inherited = listening(address(words[1], "8080"));
    echo(inherited);
    /* After a while the engine's addresses would be asked for again. */
    sleep(1);
    echo(listening(address(words[1], "8081")));
    return 0;
}
