/* What the test programs share. */
#ifndef CHECK_H
#define CHECK_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <sys/exs.h>

#define TRUE(condition)                                                                             \
    do {                                                                                            \
        if (!(condition)) {                                                                         \
            fprintf(stderr, "%s:%d: not so: %s (errno %d)\n", __FILE__, __LINE__, #condition, errno); \
            exit(1);                                                                                \
        }                                                                                           \
    } while (0)

/* A call that succeeds, and leaves errno alone. */
#define OK(call)                                                                                      \
    do {                                                                                              \
        errno = 12345;                                                                                \
        if ((call) != 0) {                                                                            \
            fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call, strerror(errno));           \
            exit(1);                                                                                  \
        }                                                                                             \
        TRUE(errno == 12345);                                                                         \
    } while (0)

/* A call that fails with this errno. */
#define FAILS(wanted, call)                                                                              \
    do {                                                                                                 \
        errno = 0;                                                                                       \
        if ((call) != -1 || errno != (wanted)) {                                                         \
            fprintf(stderr, "%s:%d: %s: %s, not %s\n", __FILE__, __LINE__, #call, strerror(errno), #wanted); \
            exit(1);                                                                                     \
        }                                                                                                \
    } while (0)

/* Long enough for a busy machine. */
static const struct timeval LONG = {20, 0};

/* The next event; `line` is where it is waited for. */
static inline exs_event_t next_at(int line, exs_qhandle_t queue)
{
    exs_event_t event;
    int n = exs_qdequeue(queue, &event, 1, &LONG);
    if (n != 1) {
        fprintf(stderr, "no event for line %d: %d, %s\n", line, n, strerror(errno));
        exit(1);
    }
    return event;
}

#define next(queue) next_at(__LINE__, queue)

/* The next event, which must be this one. */
static inline exs_event_t expect_at(int line, exs_qhandle_t queue, int type, exs_ahandle_t ahandle, int error)
{
    exs_event_t event = next_at(line, queue);
    if (event.exs_evt_type != type || event.exs_evt_ahandle != ahandle || event.exs_evt_errno != error) {
        fprintf(stderr, "line %d: type %d, handle %ld, errno %d; not %d, %ld, %d\n", line, event.exs_evt_type,
                (long)event.exs_evt_ahandle, event.exs_evt_errno, type, (long)ahandle, error);
        exit(1);
    }
    return event;
}

#define expect(queue, type, ahandle, error) expect_at(__LINE__, queue, type, ahandle, error)

static inline size_t moved(const exs_event_t *event)
{
    switch (event->exs_evt_type) {
    case EXS_EVT_SENDMSG:
    case EXS_EVT_RECVMSG:
        return event->exs_evt_union.exs_evt_xfermsg.exs_evt_length;
    case EXS_EVT_SENDFILE:
        return event->exs_evt_union.exs_evt_xferfile.exs_evt_length;
    default:
        return event->exs_evt_union.exs_evt_xfer.exs_evt_length;
    }
}

/* An event that must be this one, with so many bytes. */
#define MOVED(queue, type, ahandle, bytes)                            \
    do {                                                              \
        exs_event_t moved_ = expect(queue, type, ahandle, 0);         \
        TRUE(moved(&moved_) == (size_t)(bytes));                      \
    } while (0)

static inline struct sockaddr_in address_of(const char *host, uint16_t port)
{
    struct sockaddr_in address;
    memset(&address, 0, sizeof address);
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    TRUE(inet_pton(AF_INET, host, &address.sin_addr) == 1);
    return address;
}

/* A socket that listens at a free port. */
static inline int listener(const char *host, struct sockaddr_in *address)
{
    socklen_t length = sizeof *address;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    TRUE(fd >= 0);
    *address = address_of(host, 0);
    TRUE(bind(fd, (struct sockaddr *)address, sizeof *address) == 0);
    TRUE(listen(fd, 16) == 0);
    TRUE(getsockname(fd, (struct sockaddr *)address, &length) == 0);
    return fd;
}

/* Two connected sockets. */
static inline void connected(const char *host, int pair[2])
{
    struct sockaddr_in address;
    int fd = listener(host, &address);
    pair[0] = socket(AF_INET, SOCK_STREAM, 0);
    TRUE(pair[0] >= 0);
    TRUE(connect(pair[0], (struct sockaddr *)&address, sizeof address) == 0);
    pair[1] = accept(fd, NULL, NULL);
    TRUE(pair[1] >= 0);
    TRUE(close(fd) == 0);
}

/* Bytes that no two places have alike. */
static inline void fill(unsigned char *bytes, size_t length, uint32_t seed)
{
    uint32_t word = seed * 2654435761u + 1;
    for (size_t at = 0; at < length; at++) {
        word ^= word << 13;
        word ^= word >> 17;
        word ^= word << 5;
        bytes[at] = (unsigned char)word;
    }
}

static inline int same(const unsigned char *bytes, size_t length, uint32_t seed)
{
    unsigned char *wanted = malloc(length);
    int answer;
    TRUE(wanted != NULL);
    fill(wanted, length, seed);
    answer = memcmp(bytes, wanted, length) == 0;
    free(wanted);
    return answer;
}

/* Shared memory of no file, of which a Sidecore engine reads without a copy. */
static inline unsigned char *shared(size_t length)
{
    void *memory = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    TRUE(memory != MAP_FAILED);
    return memory;
}

#endif
