/* What the test programs share. */
#ifndef CHECK_H
#define CHECK_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <dusi.h>

/* Long enough for a busy machine: 20 s. */
#define LONG INT64_C(20000000)

/* Ends the program unless a call is answered with this status. */
#define IS(wanted, call)                                                                                        \
    do {                                                                                                        \
        Dusi_Status got_ = (call);                                                                              \
        if (got_ != (wanted)) {                                                                                 \
            fprintf(stderr, "%s:%d: %s: %d (%s), not %s\n", __FILE__, __LINE__, #call, (int)got_,               \
                    Dusi_Status_String(got_), #wanted);                                                         \
            exit(1);                                                                                            \
        }                                                                                                       \
    } while (0)

#define OK(call) IS(DUSI_OK, call)

#define TRUE(condition)                                                              \
    do {                                                                             \
        if (!(condition)) {                                                          \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
            exit(1);                                                                 \
        }                                                                            \
    } while (0)

/* The address of the tests' engine. */
static inline struct sockaddr_in local(uint16_t port)
{
    struct sockaddr_in address;
    memset(&address, 0, sizeof address);
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = inet_addr("10.9.0.1");
    return address;
}

/* The next event; `line` is where it is waited for. */
static inline Dusi_Event next_at(int line, Dusi_Evq evq)
{
    Dusi_Event event;
    Dusi_Status status = Dusi_Wait_Evq(evq, LONG);
    if (status != DUSI_OK) {
        fprintf(stderr, "no event for line %d: %s\n", line, Dusi_Status_String(status));
        exit(1);
    }
    OK(Dusi_Dequeue_Event(evq, &event));
    return event;
}

#define next(evq) next_at(__LINE__, evq)

/* The next event of this kind; others before it are dropped. */
static inline Dusi_Event next_of_at(int line, Dusi_Evq evq, uint32_t kind)
{
    Dusi_Event event;
    do {
        event = next_at(line, evq);
        if (event.kind != kind)
            OK(Dusi_Return_Chunk(event.chunk));
    } while (event.kind != kind);
    return event;
}

#define next_of(evq, kind) next_of_at(__LINE__, evq, kind)

/* A UAL with one event queue, and two connected DTIs. */
typedef struct Pair {
    Dusi_Ual ual;
    Dusi_Evq evq;
    Dusi_Dti client, server;
} Pair;

static inline Dusi_Dti stream(Pair *pair)
{
    Dusi_Dti dti;
    OK(Dusi_Create_Dti(pair->ual, DUSI_STREAM, pair->evq, pair->evq, 0, &dti));
    return dti;
}

static inline Dusi_Dti listener(Pair *pair, struct sockaddr_in *address)
{
    Dusi_Dti dti = stream(pair);
    socklen_t length = sizeof *address;
    Dusi_Event event;
    *address = local(0);
    OK(Dusi_Bind(dti, (struct sockaddr *)address, sizeof *address, 1));
    OK(Dusi_Listen(dti, 16, 2));
    event = next_of(pair->evq, DUSI_EVENT_COMPLETION);
    TRUE(event.operation == DUSI_OP_BIND && event.cookie == 1);
    TRUE(event.status == DUSI_OK && event.dti == dti);
    event = next_of(pair->evq, DUSI_EVENT_COMPLETION);
    TRUE(event.operation == DUSI_OP_LISTEN && event.status == DUSI_OK);
    OK(Dusi_Event_Address(&event, (struct sockaddr *)address, &length));
    TRUE(length == sizeof *address && address->sin_family == AF_INET && address->sin_port != 0);
    return dti;
}

static inline void connect_pair(Pair *pair)
{
    struct sockaddr_in address;
    Dusi_Dti listening = listener(pair, &address);
    pair->client = stream(pair);
    pair->server = stream(pair);
    OK(Dusi_Accept(listening, pair->server, 3));
    OK(Dusi_Connect(pair->client, (struct sockaddr *)&address, sizeof address, 0, 4));
    {
        int seen = 0;
        while (seen != 3) {
            Dusi_Event event = next(pair->evq);
            TRUE(event.status == DUSI_OK);
            if (event.kind == DUSI_EVENT_ACCEPTED) {
                TRUE(event.dti == pair->server && event.cookie == 3);
                seen |= 1;
            } else if (event.kind == DUSI_EVENT_CONNECTED) {
                TRUE(event.dti == pair->client && event.cookie == 4);
                seen |= 2;
            }
        }
    }
    OK(Dusi_Set_Option(pair->client, DUSI_OPT_NODELAY, 1, 0, 0));
    OK(Dusi_Close(listening, 0));
    TRUE(next_of(pair->evq, DUSI_EVENT_CLOSED).dti == listening);
}

static inline Pair open_pair(const char *socket)
{
    Pair pair;
    memset(&pair, 0, sizeof pair);
    OK(Dusi_Open_Ual(socket, NULL, &pair.ual));
    OK(Dusi_Create_Evq(pair.ual, &pair.evq));
    connect_pair(&pair);
    return pair;
}

#endif
