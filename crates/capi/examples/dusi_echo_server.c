/*
 * An echo server: what comes is sent back from where it lies in the receive pool, without a copy.
 *
 *   cc dusi_echo_server.c $(pkg-config --cflags --libs sidecore-dusi) -o dusi_echo_server
 *   ./dusi_echo_server --socket /run/sidecore.sock --address 10.77.0.2 --port 7
 *
 * With --count N it ends after N connections; else it serves until it is killed.
 */
#include "dusi_example.h"

/* Accepts that are outstanding: connections that may come in one burst. */
enum { ACCEPTS = 64 };

/* Operations that one event can lead to. */
enum { OPERATIONS = 4 };

typedef struct Server {
    Dusi_Ual ual;
    Dusi_Evq evq;
    Dusi_Dti listener;
    /* Which DTIs we have closed, by their index. */
    unsigned char *closed;
} Server;

static uint32_t index_of(Dusi_Dti dti)
{
    uint32_t index = 0;
    must(Dusi_Get_Dti_Index(dti, &index), "Dusi_Get_Dti_Index");
    return index;
}

/* Creates a child, and lets it wait for a connection. */
static void accept_one(Server *server)
{
    Dusi_Dti child;
    must(Dusi_Create_Dti(server->ual, DUSI_STREAM, server->evq, server->evq, 0, &child), "Dusi_Create_Dti");
    server->closed[index_of(child)] = 0;
    must(Dusi_Accept(server->listener, child, 0), "Dusi_Accept");
}

static void close_once(Server *server, Dusi_Dti dti)
{
    unsigned char *closed = &server->closed[index_of(dti)];
    if (!*closed) {
        *closed = 1;
        must(Dusi_Close(dti, 0), "Dusi_Close");
    }
}

/* Returns whether a connection is over. */
static int handle(Server *server, const Dusi_Event *event)
{
    switch (event->kind) {
    case DUSI_EVENT_ACCEPTED:
        if (event->status == DUSI_OK)
            accept_one(server);
        break;
    case DUSI_EVENT_RECEIVED:
        /* The chunk comes back as the cookie of the send, when the peer has acknowledged its bytes. */
        if (event->length > 0)
            must(Dusi_Send(event->dti, event->chunk, event->data, (size_t)event->length, DUSI_NOTIFY, event->chunk),
                 "Dusi_Send");
        if (event->flags & DUSI_EVENT_END)
            close_once(server, event->dti);
        break;
    case DUSI_EVENT_SENT:
        must(Dusi_Return_Chunk(event->cookie), "Dusi_Return_Chunk");
        break;
    case DUSI_EVENT_CLOSED:
        close_once(server, event->dti);
        return 1;
    case DUSI_EVENT_COMPLETION:
        /* A send to a connection that broke off: its bytes are not needed any more. */
        if (event->operation == DUSI_OP_SEND)
            must(Dusi_Return_Chunk(event->cookie), "Dusi_Return_Chunk");
        else if (event->status != DUSI_OK)
            fprintf(stderr, "operation %u: %s\n", (unsigned)event->operation, Dusi_Status_String(event->status));
        break;
    default:
        break;
    }
    return 0;
}

/* Waits for the answer to one operation. */
static Dusi_Event answer(Server *server, const char *what)
{
    Dusi_Event event;
    must(Dusi_Wait_Evq(server->evq, -1), what);
    must(Dusi_Dequeue_Event(server->evq, &event), what);
    must((Dusi_Status)event.status, what);
    return event;
}

static void start(Server *server, const Options *wished)
{
    Dusi_Ual_Info info;
    Dusi_Event event;
    struct sockaddr_in local;
    socklen_t length = sizeof local;
    int i;

    must(Dusi_Open_Ual(wished->socket, NULL, &server->ual), "Dusi_Open_Ual");
    must(Dusi_Get_Ual_Info(server->ual, &info, sizeof info), "Dusi_Get_Ual_Info");
    server->closed = (unsigned char *)calloc(info.dtis, 1);
    if (server->closed == NULL)
        must(DUSI_SYSTEM, "calloc");
    must(Dusi_Create_Evq(server->ual, &server->evq), "Dusi_Create_Evq");
    must(Dusi_Create_Dti(server->ual, DUSI_STREAM, server->evq, server->evq, 0, &server->listener), "Dusi_Create_Dti");
    must(Dusi_Bind(server->listener, (const struct sockaddr *)&wished->address, sizeof wished->address, 0), "Dusi_Bind");
    answer(server, "Dusi_Bind");
    must(Dusi_Listen(server->listener, 1024, 0), "Dusi_Listen");
    event = answer(server, "Dusi_Listen");
    must(Dusi_Event_Address(&event, (struct sockaddr *)&local, &length), "Dusi_Event_Address");
    printf("listening on port %u\n", (unsigned)ntohs(local.sin_port));
    fflush(stdout);
    for (i = 0; i < ACCEPTS; i++)
        accept_one(server);
}

/* Events that were taken and not handled yet. The engine reads no operations while the event queue is full, so events are always taken, and wait
 * here while there is no room for what follows from them. */
typedef struct Backlog {
    Dusi_Event *events;
    size_t first, count, room;
} Backlog;

static void take_all(Server *server, Backlog *backlog)
{
    for (;;) {
        size_t taken;
        Dusi_Status status;
        if (backlog->first > 0) {
            memmove(backlog->events, backlog->events + backlog->first, backlog->count * sizeof(Dusi_Event));
            backlog->first = 0;
        }
        if (backlog->room - backlog->count < 64) {
            backlog->room = 2 * backlog->room + 64;
            backlog->events = (Dusi_Event *)realloc(backlog->events, backlog->room * sizeof(Dusi_Event));
            if (backlog->events == NULL)
                must(DUSI_SYSTEM, "realloc");
        }
        status = Dusi_Dequeue_Events(server->evq, backlog->events + backlog->count, backlog->room - backlog->count, &taken);
        if (status == DUSI_EMPTY)
            return;
        must(status, "Dusi_Dequeue_Events");
        backlog->count += taken;
    }
}

int main(int argc, char **argv)
{
    Options wished = options(argc, argv, -1);
    Backlog backlog;
    Server server;
    long left = wished.count;

    memset(&server, 0, sizeof server);
    memset(&backlog, 0, sizeof backlog);
    start(&server, &wished);
    while (left != 0) {
        uint32_t room;
        if (backlog.count == 0)
            must(Dusi_Wait_Evq(server.evq, -1), "Dusi_Wait_Evq");
        take_all(&server, &backlog);
        must(Dusi_Get_Doorbell_Room(server.ual, &room), "Dusi_Get_Doorbell_Room");
        for (; backlog.count > 0 && room >= OPERATIONS; room -= OPERATIONS) {
            int over = handle(&server, &backlog.events[backlog.first]);
            backlog.first++;
            backlog.count--;
            if (over && left > 0)
                left--;
        }
    }
    must(Dusi_Close_Ual(server.ual), "Dusi_Close_Ual");
    free(backlog.events);
    free(server.closed);
    return 0;
}
