/*
 * An echo client: sends lines from registered memory, receives the echo into posted buffers, and compares.
 *
 *   cc dusi_echo_client.c $(pkg-config --cflags --libs sidecore-dusi) -o dusi_echo_client
 *   ./dusi_echo_client --socket /run/sidecore.sock --address 10.77.0.2 --port 7 --count 1000
 */
#include "dusi_example.h"

/* Bytes of a message: a receive is posted for all of it at once. */
enum { MESSAGE = 4096 };

enum { CONNECT = 1, SEND, RECEIVE, SHUTDOWN, CLOSE };

typedef struct Client {
    Dusi_Ual ual;
    /* What comes in has a queue of its own, which is served first. */
    Dusi_Evq rx, tx;
    Dusi_Dti dti;
    Dusi_Region region;
    unsigned char *out, *in;
} Client;

static void start(Client *client, const Options *wished)
{
    void *memory = NULL;
    must(Dusi_Open_Ual(wished->socket, NULL, &client->ual), "Dusi_Open_Ual");
    must(Dusi_Create_Evq(client->ual, &client->rx), "Dusi_Create_Evq");
    must(Dusi_Create_Evq(client->ual, &client->tx), "Dusi_Create_Evq");
    must(Dusi_Allocate_Memory(client->ual, 2 * MESSAGE, 0, &client->region, &memory), "Dusi_Allocate_Memory");
    client->out = (unsigned char *)memory;
    client->in = client->out + MESSAGE;
    must(Dusi_Create_Dti(client->ual, DUSI_STREAM, client->rx, client->tx, DUSI_POSTED_ONLY, &client->dti), "Dusi_Create_Dti");
    must(Dusi_Connect(client->dti, (const struct sockaddr *)&wished->address, sizeof wished->address, 0, CONNECT),
         "Dusi_Connect");
}

/* The next event of a queue: it must have this kind and cookie, and be no failure. */
static Dusi_Event expect(Dusi_Evq evq, uint32_t kind, uint64_t cookie)
{
    Dusi_Event event;
    must(Dusi_Wait_Evq(evq, 20 * 1000 * 1000), "Dusi_Wait_Evq");
    must(Dusi_Dequeue_Event(evq, &event), "Dusi_Dequeue_Event");
    must((Dusi_Status)event.status, "an operation");
    if (event.kind != kind || event.cookie != cookie) {
        fprintf(stderr, "event %u with cookie %llu\n", (unsigned)event.kind, (unsigned long long)event.cookie);
        exit(1);
    }
    return event;
}

static void round_trip(Client *client, long number)
{
    Dusi_Event event;
    size_t i;
    for (i = 0; i < MESSAGE; i++)
        client->out[i] = (unsigned char)(i * 7 + (size_t)number);
    must(Dusi_Recv(client->dti, client->region, client->in, MESSAGE, DUSI_WAIT_ALL, RECEIVE), "Dusi_Recv");
    must(Dusi_Send(client->dti, client->region, client->out, MESSAGE, DUSI_NOTIFY, SEND), "Dusi_Send");
    event = expect(client->rx, DUSI_EVENT_RECEIVED_INTO, RECEIVE);
    if (event.length != MESSAGE || memcmp(client->out, client->in, MESSAGE) != 0) {
        fprintf(stderr, "message %ld came back changed\n", number);
        exit(1);
    }
    /* Before the memory is written again. */
    expect(client->tx, DUSI_EVENT_SENT, SEND);
}

int main(int argc, char **argv)
{
    Options wished = options(argc, argv, 1000);
    Dusi_Event event;
    Client client;
    long i;

    memset(&client, 0, sizeof client);
    start(&client, &wished);
    expect(client.tx, DUSI_EVENT_CONNECTED, CONNECT);
    for (i = 0; i < wished.count; i++)
        round_trip(&client, i);

    must(Dusi_Recv(client.dti, client.region, client.in, 1, 0, RECEIVE), "Dusi_Recv");
    must(Dusi_Shutdown(client.dti, DUSI_SHUTDOWN_WRITE, DUSI_NOTIFY, SHUTDOWN), "Dusi_Shutdown");
    expect(client.tx, DUSI_EVENT_COMPLETION, SHUTDOWN);
    event = expect(client.rx, DUSI_EVENT_RECEIVED_INTO, RECEIVE);
    if (event.length != 0 || !(event.flags & DUSI_EVENT_END)) {
        fprintf(stderr, "more came back than was sent\n");
        return 1;
    }
    must(Dusi_Close(client.dti, CLOSE), "Dusi_Close");
    do {
        must(Dusi_Wait_Evq(client.rx, 20 * 1000 * 1000), "Dusi_Wait_Evq");
        must(Dusi_Dequeue_Event(client.rx, &event), "Dusi_Dequeue_Event");
    } while (event.kind != DUSI_EVENT_CLOSED);
    must(Dusi_Close_Ual(client.ual), "Dusi_Close_Ual");
    printf("%ld messages of %d bytes came back unchanged\n", wished.count, (int)MESSAGE);
    return 0;
}
