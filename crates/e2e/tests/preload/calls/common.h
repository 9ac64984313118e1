/* What the programs of this folder share. Each prints what calls answer, line by line: under the library it must be what it is without. */

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <linux/errqueue.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <netinet/udp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* What is said is read by another program, also of one that hangs. */
__attribute__((constructor)) static void by_lines(void) {
    setvbuf(stdout, NULL, _IOLBF, 0);
}

/* One line: what was called, what it gave, and errno's name if it failed. */
static inline long say(const char *what, long result) {
    int error = errno;
    if (result < 0)
        printf("%s: %ld %s\n", what, result, strerrorname_np(error));
    else
        printf("%s: %ld\n", what, result);
    errno = error;
    return result;
}

/* The program is wrong about what it stands on. */
static inline void must(bool holds, const char *what) {
    if (!holds) {
        printf("%s: %s\n", what, strerrorname_np(errno));
        exit(1);
    }
}

static inline struct sockaddr_in loopback(int port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
}

/* A socket bound to the loopback address, at a port of the system's choice, which is put into `address`. */
static inline int bound(int type, struct sockaddr_in *address) {
    int fd = socket(AF_INET, type, 0);
    *address = loopback(0);
    socklen_t len = sizeof *address;
    must(fd >= 0 && bind(fd, (struct sockaddr *)address, len) == 0, "bind");
    must(getsockname(fd, (struct sockaddr *)address, &len) == 0, "getsockname");
    return fd;
}

/* Two ends of a connection. */
static inline void connected(int ends[2]) {
    struct sockaddr_in address;
    int listener = bound(SOCK_STREAM, &address);
    must(listen(listener, 5) == 0, "listen");
    ends[0] = socket(AF_INET, SOCK_STREAM, 0);
    must(connect(ends[0], (struct sockaddr *)&address, sizeof address) == 0, "connect");
    ends[1] = accept(listener, NULL, NULL);
    must(ends[1] >= 0, "accept");
    close(listener);
}

/* Waits until poll tells one of these bits, ten seconds at most; what it tells of them. */
static inline int await_bits(int fd, short bits) {
    struct pollfd one = {.fd = fd, .events = bits};
    int found = poll(&one, 1, 10000);
    return found > 0 ? one.revents & bits : 0;
}

static inline void rest(int milliseconds) {
    struct timespec time = {milliseconds / 1000, milliseconds % 1000 * 1000000L};
    nanosleep(&time, NULL);
}

/* Waits until a thread of this program has slept for a while, ten seconds at most: it is in the call that it was to block in. */
static inline void until_asleep(pid_t thread) {
    char path[64];
    snprintf(path, sizeof path, "/proc/self/task/%d/stat", (int)thread);
    int asleep = 0;
    for (int i = 0; i < 2000 && asleep < 20; i++) {
        char state = 'R';
        FILE *file = fopen(path, "r");
        if (!file || fscanf(file, "%*d (%*[^)]) %c", &state) != 1)
            state = 'R';
        if (file)
            fclose(file);
        asleep = state == 'S' ? asleep + 1 : 0;
        rest(5);
    }
}
