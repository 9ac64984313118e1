/* Sends from registered memory, several sends under way at a time, receives what a server sends back, and compares.
 *
 *   cc exs_echo_client.c $(pkg-config --cflags --libs sidecore-exs) -o exs_echo_client
 *   ./exs_echo_client 127.0.0.1 7000 1000                      over the kernel
 *   sidecore run -- ./exs_echo_client 10.77.0.1 7000 1000      over an engine, whose sends are not copied
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/exs.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

enum { LENGTH = 16384, SENDS = 8, EVENTS = 2 * SENDS + 1 };

static void die(const char *what)
{
    perror(what);
    exit(1);
}

int main(int count, char **arguments)
{
    struct sockaddr_in server;
    long messages, sent = 0, came = 0;
    size_t filled = 0;
    unsigned char *out, *in;
    exs_qhandle_t queue;
    exs_mhandle_t memory;
    exs_event_t events[EVENTS];
    int fd;

    if (count != 4) {
        fprintf(stderr, "usage: exs_echo_client ADDRESS PORT MESSAGES\n");
        return 2;
    }
    memset(&server, 0, sizeof server);
    server.sin_family = AF_INET;
    server.sin_port = htons((uint16_t)atoi(arguments[2]));
    messages = atol(arguments[3]);
    if (inet_pton(AF_INET, arguments[1], &server.sin_addr) != 1 || messages < 1) {
        fprintf(stderr, "no such address, or no messages\n");
        return 2;
    }

    if (exs_init(EXS_VERSION) == -1)
        die("exs_init");
    if ((queue = exs_qcreate(EVENTS)) == EXS_QHANDLE_INVALID)
        die("exs_qcreate");
    /* Memory of this kind an engine reads itself. */
    out = mmap(NULL, SENDS * LENGTH, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    in = malloc(LENGTH);
    if (out == MAP_FAILED || in == NULL)
        die("memory");
    if ((memory = exs_mregister(out, SENDS * LENGTH, 0)) == EXS_MHANDLE_INVALID)
        die("exs_mregister");

    fd = socket(AF_INET, SOCK_STREAM, 0);
    if (fd < 0 || exs_connect(fd, (struct sockaddr *)&server, sizeof server, 0, queue, 0) == -1)
        die("exs_connect");
    /* What is posted now waits for the connection. */
    if (exs_recv(fd, in, LENGTH, 0, queue, 0, EXS_MHANDLE_UNREGISTERED) == -1)
        die("exs_recv");
    for (; sent < SENDS && sent < messages; sent++) {
        memset(out + sent * LENGTH, (int)(sent & 0xff), LENGTH);
        if (exs_send(fd, out + sent * LENGTH, LENGTH, 0, queue, (exs_ahandle_t)sent, memory) == -1)
            die("exs_send");
    }

    while (came < messages) {
        int n = exs_qdequeue(queue, events, EVENTS, NULL);
        if (n == -1 && errno != EINTR)
            die("exs_qdequeue");
        for (int at = 0; at < n; at++) {
            const exs_event_t *event = &events[at];
            if (event->exs_evt_errno != 0) {
                errno = event->exs_evt_errno;
                die(event->exs_evt_type == EXS_EVT_CONNECT ? "connect" : "transfer");
            }
            if (event->exs_evt_type == EXS_EVT_SEND && sent < messages) {
                /* Its memory is free again. */
                unsigned char *place = out + (event->exs_evt_ahandle % SENDS) * LENGTH;
                long next = (long)event->exs_evt_ahandle + SENDS;
                memset(place, (int)(next & 0xff), LENGTH);
                if (exs_send(fd, place, LENGTH, 0, queue, (exs_ahandle_t)next, memory) == -1)
                    die("exs_send");
                sent++;
            } else if (event->exs_evt_type == EXS_EVT_RECV) {
                size_t length = event->exs_evt_union.exs_evt_xfer.exs_evt_length;
                if (length == 0) {
                    fprintf(stderr, "the server ended early\n");
                    return 1;
                }
                for (size_t byte = 0; byte < length; byte++) {
                    if (in[byte] != (unsigned char)(came & 0xff)) {
                        fprintf(stderr, "message %ld came back changed\n", came);
                        return 1;
                    }
                    if (++filled == LENGTH) {
                        filled = 0;
                        came++;
                    }
                }
                if (came < messages && exs_recv(fd, in, LENGTH, 0, queue, 0, EXS_MHANDLE_UNREGISTERED) == -1)
                    die("exs_recv");
            }
        }
    }
    if (close(fd) == -1)
        die("close");
    printf("%ld messages of %d bytes came back unchanged\n", messages, LENGTH);
    return 0;
}
