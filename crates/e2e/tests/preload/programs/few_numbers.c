/* A server with few descriptors: it takes connections until there is no number left, and again when it has closed some. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

static void must(bool holds, const char *what) {
    if (!holds) {
        perror(what);
        exit(1);
    }
}

static struct sockaddr_in address(const char *ip, int port) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(port)};
    must(inet_aton(ip, &at.sin_addr), "an address");
    return at;
}

/* No number is left: everything that would need one says so. */
static void full(int listener) {
    for (int i = 0; i < 3; i++) {
        must(accept(listener, NULL, NULL) < 0 && errno == EMFILE, "accept without a number");
        must(socket(AF_INET, SOCK_STREAM, 0) < 0 && errno == EMFILE, "socket without a number");
        must(dup(listener) < 0 && errno == EMFILE, "dup without a number");
    }
}

static void serve(int fd) {
    char byte;
    must(read(fd, &byte, 1) == 1, "read");
    must(write(fd, &byte, 1) == 1, "write");
    must(close(fd) == 0, "close");
}

int main(int count, char **words) {
    must(count == 5, "arguments");
    struct sockaddr_in here = address(words[1], 8080), there = address(words[2], atoi(words[3]));
    int clients = atoi(words[4]), served = 0, one = 1;
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    must(listener >= 0, "socket");
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    must(bind(listener, (struct sockaddr *)&here, sizeof here) == 0, "bind");
    must(listen(listener, clients) == 0, "listen");
    while (served < clients) {
        int held[64], n = 0;
        while (served + n < clients) {
            int fd = accept(listener, NULL, NULL);
            if (fd < 0)
                break;
            held[n++] = fd;
        }
        if (served + n < clients) {
            must(errno == EMFILE && n > 0, "accept");
            full(listener);
        }
        for (int i = 0; i < n; i++)
            serve(held[i]);
        served += n;
    }
    /* As a client, too, with the last number there is. */
    int first = socket(AF_INET, SOCK_STREAM, 0), last = first;
    for (int next = first; next >= 0; next = dup(listener))
        last = next;
    must(errno == EMFILE && last >= 0, "dup");
    must(connect(first, (struct sockaddr *)&there, sizeof there) == 0, "connect");
    must(write(first, "again", 5) == 5, "write");
    return 0;
}
