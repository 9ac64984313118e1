/* What the interface offers, each thing once. */
#include "check.h"

#include <fcntl.h>
#include <netinet/tcp.h>
#include <sys/mman.h>
#include <unistd.h>

static char *allocate(Pair *pair, size_t length, Dusi_Region *region)
{
    void *at;
    OK(Dusi_Allocate_Memory(pair->ual, length, 0, region, &at));
    return (char *)at;
}

/* Takes received bytes until there are `length` of them, and compares. */
static void receive(Pair *pair, Dusi_Dti dti, const char *expected, size_t length)
{
    size_t got = 0;
    while (got < length) {
        Dusi_Event event = next_of(pair->evq, DUSI_EVENT_RECEIVED);
        TRUE(event.dti == dti && event.position == 0 + event.position && event.chunk != DUSI_NO_CHUNK);
        TRUE(got + event.length <= length);
        TRUE(memcmp(event.data, expected + got, (size_t)event.length) == 0);
        got += (size_t)event.length;
        OK(Dusi_Return_Chunk(event.chunk));
    }
}

static void small_sends(Pair *pair)
{
    char bytes[DUSI_COPY_MAX];
    size_t length;
    for (length = 0; length < sizeof bytes; length++)
        bytes[length] = (char)(length * 31);
    for (length = 1; length <= sizeof bytes; length += 15) {
        char copy[DUSI_COPY_MAX];
        memcpy(copy, bytes, sizeof copy);
        OK(Dusi_Send(pair->client, DUSI_NO_REGION, copy, length, DUSI_NOTIFY, length));
        memset(copy, 0, sizeof copy);
        receive(pair, pair->server, bytes, length);
    }
}

/* More copied sends than there are slots for them, some not read at once. */
static void many_small_sends(Pair *pair)
{
    enum { ROUNDS = 200, BURST = 50 };
    int round, i;
    for (round = 0; round < ROUNDS; round++) {
        char all[BURST * 40];
        for (i = 0; i < BURST; i++) {
            char one[40];
            memset(one, round * 7 + i, sizeof one);
            memcpy(all + i * 40, one, sizeof one);
            OK(Dusi_Send(pair->client, DUSI_NO_REGION, one, sizeof one, 0, 0));
        }
        receive(pair, pair->server, all, sizeof all);
    }
}

static void regions_and_vectors(Pair *pair)
{
    Dusi_Region a, b;
    char *first = allocate(pair, 8192, &a), *second = allocate(pair, 100, &b);
    Dusi_Buffer pieces[4];
    Dusi_Event event;
    char whole[8192];
    int i;

    for (i = 0; i < 8192; i++)
        first[i] = (char)(i * 13);
    memcpy(whole, first, 8192);
    OK(Dusi_Send(pair->client, a, first, 8192, DUSI_NOTIFY, 77));
    receive(pair, pair->server, whole, 8192);
    event = next_of(pair->evq, DUSI_EVENT_SENT);
    TRUE(event.cookie == 77 && event.dti == pair->client);

    memcpy(second, "header: ", 8);
    pieces[0].region = b;
    pieces[0].data = second;
    pieces[0].length = 8;
    pieces[1].region = a;
    pieces[1].data = NULL;
    pieces[1].length = 0;
    pieces[2].region = a;
    pieces[2].data = first + 100;
    pieces[2].length = 200;
    pieces[3] = pieces[0];
    memcpy(whole, second, 8);
    memcpy(whole + 8, first + 100, 200);
    memcpy(whole + 208, second, 8);
    OK(Dusi_Send_Vector(pair->client, pieces, 4, DUSI_NOTIFY, 78));
    memset(pieces, 0, sizeof pieces);
    receive(pair, pair->server, whole, 216);
    TRUE(next_of(pair->evq, DUSI_EVENT_SENT).cookie == 78);

    /* Received bytes, sent on from where they lie. */
    OK(Dusi_Send(pair->client, DUSI_NO_REGION, "there and back", 14, 0, 0));
    event = next_of(pair->evq, DUSI_EVENT_RECEIVED);
    OK(Dusi_Send(pair->server, event.chunk, event.data, (size_t)event.length, DUSI_NOTIFY, 79));
    IS(DUSI_BAD_EXTENT, Dusi_Send(pair->server, event.chunk, whole, 1, 0, 0));
    IS(DUSI_BAD_HANDLE, Dusi_Recv(pair->server, event.chunk, (void *)(uintptr_t)event.data, 1, 0, 0));
    receive(pair, pair->client, "there and back", 14);
    TRUE(next_of(pair->evq, DUSI_EVENT_SENT).cookie == 79);
    OK(Dusi_Return_Chunk(event.chunk));

    OK(Dusi_Deregister_Memory(b, pair->evq, 80));
    event = next_of(pair->evq, DUSI_EVENT_COMPLETION);
    TRUE(event.operation == DUSI_OP_DEREGISTER && event.cookie == 80 && event.status == DUSI_OK);
    TRUE(event.dti == DUSI_NULL_HANDLE);
}

static void posted_buffers(Pair *pair)
{
    Dusi_Region region;
    char *bytes = allocate(pair, 4096, &region);
    Dusi_Buffer pieces[2];
    Dusi_Event event;
    int i;

    for (i = 0; i < 2; i++) {
        pieces[i].region = region;
        pieces[i].data = bytes + 5 * i;
        pieces[i].length = 5;
    }
    OK(Dusi_Recv_Vector(pair->server, pieces, 2, DUSI_WAIT_ALL, 5));
    OK(Dusi_Recv(pair->server, region, bytes + 100, 100, 0, 6));
    OK(Dusi_Send(pair->client, DUSI_NO_REGION, "0123456789rest", 14, 0, 0));
    for (i = 0; i < 3; i++) {
        event = next_of(pair->evq, DUSI_EVENT_RECEIVED_INTO);
        TRUE(event.cookie == (i < 2 ? 5u : 6u) && event.length == (i < 2 ? 5u : 4u));
    }
    TRUE(memcmp(bytes, "0123456789", 10) == 0 && memcmp(bytes + 100, "rest", 4) == 0);

    OK(Dusi_Recv(pair->server, region, bytes, 10, 0, 7));
    OK(Dusi_Cancel(pair->server, 7, 8));
    do {
        event = next(pair->evq);
    } while (event.cookie != 7);
    TRUE(event.status == DUSI_CANCELLED);
}

static void options_and_info(Pair *pair)
{
    Dusi_Region region;
    char *bytes = allocate(pair, 4096, &region);
    struct sockaddr_storage address;
    socklen_t length = sizeof address;
    struct tcp_info info;
    Dusi_Event event;

    OK(Dusi_Set_Option(pair->client, DUSI_OPT_CORK, 1, DUSI_NOTIFY, 1));
    event = next_of(pair->evq, DUSI_EVENT_COMPLETION);
    TRUE(event.operation == DUSI_OP_SET_OPTION && event.cookie == 1 && event.status == DUSI_OK);
    OK(Dusi_Get_Option(pair->client, DUSI_OPT_CORK, 2));
    event = next_of(pair->evq, DUSI_EVENT_COMPLETION);
    TRUE(event.operation == DUSI_OP_GET_OPTION && event.value == 1);
    /* Corked bytes leave with the option. */
    OK(Dusi_Send(pair->client, DUSI_NO_REGION, "head", 4, 0, 0));
    OK(Dusi_Send(pair->client, DUSI_NO_REGION, "body", 4, 0, 0));
    OK(Dusi_Set_Option(pair->client, DUSI_OPT_CORK, 0, 0, 0));
    receive(pair, pair->server, "headbody", 8);

    OK(Dusi_Get_Option(pair->client, DUSI_OPT_PEER_ADDRESS, 3));
    event = next_of(pair->evq, DUSI_EVENT_COMPLETION);
    OK(Dusi_Event_Address(&event, (struct sockaddr *)&address, &length));
    TRUE(length == sizeof(struct sockaddr_in) && address.ss_family == AF_INET);
    length = 4;
    OK(Dusi_Event_Address(&event, (struct sockaddr *)&address, &length));
    TRUE(length == sizeof(struct sockaddr_in));
    event.address[2] = 0;
    IS(DUSI_EMPTY, Dusi_Event_Address(&event, (struct sockaddr *)&address, &length));

    OK(Dusi_Get_Info(pair->client, region, bytes, sizeof info, 4));
    event = next_of(pair->evq, DUSI_EVENT_COMPLETION);
    TRUE(event.operation == DUSI_OP_GET_OPTION && event.value >= 104 && event.value <= sizeof info);
    memcpy(&info, bytes, sizeof info);
    TRUE(info.tcpi_state == TCP_ESTABLISHED && info.tcpi_snd_mss > 500);
}

static void other_memory(Pair *pair, const char *path)
{
    int memfd = memfd_create("test", MFD_ALLOW_SEALING | MFD_CLOEXEC);
    Dusi_Region region;
    Dusi_Event event;
    size_t length;
    void *at;
    FILE *file;

    TRUE(memfd >= 0 && ftruncate(memfd, 8192) == 0);
    IS(DUSI_BAD_ARGUMENT, Dusi_Register_Memory(pair->ual, memfd, &region, &at, NULL));
    TRUE(fcntl(memfd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) == 0);
    TRUE(pwrite(memfd, "from a memfd", 12, 4000) == 12);
    OK(Dusi_Register_Memory(pair->ual, memfd, &region, &at, &length));
    TRUE(length == 8192);
    OK(Dusi_Send(pair->client, region, (char *)at + 4000, 12, DUSI_COPY, 0));
    receive(pair, pair->server, "from a memfd", 12);

    OK(Dusi_Register_Memory_Async(pair->ual, memfd, pair->evq, 9, &region, &at));
    event = next_of(pair->evq, DUSI_EVENT_REGISTERED);
    TRUE(event.cookie == 9 && event.status == DUSI_OK);
    OK(Dusi_Send(pair->client, region, (char *)at + 4000, 12, 0, 0));
    receive(pair, pair->server, "from a memfd", 12);
    close(memfd);

    file = fopen(path, "w");
    TRUE(file != NULL && fputs("of a file", file) >= 0 && fclose(file) == 0);
    OK(Dusi_Register_File(pair->ual, path, &region, &at, &length));
    TRUE(length == 9 && memcmp(at, "of a file", 9) == 0);
    OK(Dusi_Send(pair->client, region, at, 9, 0, 0));
    receive(pair, pair->server, "of a file", 9);
}

static void datagrams(Pair *pair)
{
    struct sockaddr_in address = local(0), from;
    socklen_t length = sizeof address;
    Dusi_Dti a, b;
    Dusi_Event event;
    Dusi_Buffer piece = { 0, NULL, 1 };
    struct sockaddr none = { .sa_family = AF_UNSPEC };
    char big[200];

    memset(big, 'x', sizeof big);
    OK(Dusi_Create_Dti(pair->ual, DUSI_DATAGRAM, pair->evq, pair->evq, 0, &a));
    OK(Dusi_Create_Dti(pair->ual, DUSI_DATAGRAM, pair->evq, pair->evq, 0, &b));
    OK(Dusi_Bind(a, (struct sockaddr *)&address, sizeof address, 1));
    event = next_of(pair->evq, DUSI_EVENT_COMPLETION);
    OK(Dusi_Event_Address(&event, (struct sockaddr *)&address, &length));
    OK(Dusi_Send_To(b, DUSI_NO_REGION, "hello", 5, (struct sockaddr *)&address, sizeof address, 0, 0));
    event = next_of(pair->evq, DUSI_EVENT_DATAGRAM);
    TRUE(event.dti == a && event.length == 5 && memcmp(event.data, "hello", 5) == 0);
    length = sizeof from;
    OK(Dusi_Event_Address(&event, (struct sockaddr *)&from, &length));
    TRUE(from.sin_port != 0);
    OK(Dusi_Return_Chunk(event.chunk));

    OK(Dusi_Connect(b, (struct sockaddr *)&address, sizeof address, 0, 2));
    event = next_of(pair->evq, DUSI_EVENT_COMPLETION);
    TRUE(event.operation == DUSI_OP_CONNECT && event.cookie == 2 && event.status == DUSI_OK);
    OK(Dusi_Send(b, DUSI_NO_REGION, big, sizeof big, 0, 0));
    event = next_of(pair->evq, DUSI_EVENT_DATAGRAM);
    TRUE(event.length == sizeof big && memcmp(event.data, big, sizeof big) == 0);
    OK(Dusi_Return_Chunk(event.chunk));
    IS(DUSI_NOT_SUPPORTED, Dusi_Send_Vector(b, &piece, 1, 0, 0));

    OK(Dusi_Connect(b, &none, sizeof none, 0, 3));
    event = next_of(pair->evq, DUSI_EVENT_COMPLETION);
    TRUE(event.operation == DUSI_OP_CONNECT && event.cookie == 3 && event.status == DUSI_OK);
    OK(Dusi_Send(b, DUSI_NO_REGION, "nowhere", 7, 0, 4));
    event = next_of(pair->evq, DUSI_EVENT_COMPLETION);
    TRUE(event.operation == DUSI_OP_SEND && event.cookie == 4 && event.status == DUSI_WRONG_STATE);
    OK(Dusi_Close(a, 0));
    OK(Dusi_Close(b, 0));
}

/* Urgent data is told of, and comes in line. */
static void urgent_data(Pair *pair)
{
    Dusi_Event event;
    uint64_t mark;
    OK(Dusi_Send(pair->client, DUSI_NO_REGION, "!", 1, DUSI_URGENT, 0));
    event = next_of(pair->evq, DUSI_EVENT_URGENT);
    TRUE(event.dti == pair->server && event.position > 0);
    mark = event.position;
    event = next_of(pair->evq, DUSI_EVENT_RECEIVED);
    TRUE(event.length == 1 && event.position + 1 == mark && *(const char *)event.data == '!');
    OK(Dusi_Return_Chunk(event.chunk));
    OK(Dusi_Get_Option(pair->server, DUSI_OPT_URGENT_MARK, 0));
    TRUE(next_of(pair->evq, DUSI_EVENT_COMPLETION).value == mark);
}

/* What became of a datagram to a port that nobody has. */
static void error_reports(Pair *pair)
{
    struct sockaddr_in address = local(9), to;
    socklen_t length = sizeof to;
    Dusi_Event event;
    uint32_t number;
    Dusi_Dti dti;

    OK(Dusi_Create_Dti(pair->ual, DUSI_DATAGRAM, pair->evq, pair->evq, 0, &dti));
    OK(Dusi_Set_Option(dti, DUSI_OPT_RECEIVE_ERRORS, 1, 0, 0));
    IS(DUSI_BAD_ARGUMENT, Dusi_Send(dti, DUSI_NO_REGION, "x", 1, DUSI_URGENT, 0));
    OK(Dusi_Send_To(dti, DUSI_NO_REGION, "anybody?", 8, (struct sockaddr *)&address, sizeof address, 0, 0));
    event = next_of(pair->evq, DUSI_EVENT_ERROR_REPORT);
    TRUE(event.dti == dti && event.length >= 32 && event.status == DUSI_CONNECTION_REFUSED);
    memcpy(&number, event.data, sizeof number);
    TRUE(number == ECONNREFUSED);
    OK(Dusi_Event_Address(&event, (struct sockaddr *)&to, &length));
    TRUE(to.sin_port == address.sin_port && to.sin_addr.s_addr == address.sin_addr.s_addr);
    OK(Dusi_Return_Chunk(event.chunk));
    OK(Dusi_Close(dti, 0));
}

/* A receive on the child before its accept, and the end of a connection on both sides. */
static void before_the_accept(Pair *pair)
{
    struct sockaddr_in address;
    Dusi_Dti listening = listener(pair, &address), child = stream(pair), client = stream(pair);
    Dusi_Region region;
    char *bytes = allocate(pair, 4096, &region);
    Dusi_Event event;
    uint32_t index;
    int closed = 0;

    OK(Dusi_Recv(child, region, bytes, 100, 0, 11));
    OK(Dusi_Recv(child, region, bytes + 100, 100, 0, 12));
    OK(Dusi_Accept(listening, child, 13));
    OK(Dusi_Connect(client, (struct sockaddr *)&address, sizeof address, 0, 14));
    OK(Dusi_Send(client, DUSI_NO_REGION, "GET /", 5, DUSI_FIN, 0));
    event = next_of(pair->evq, DUSI_EVENT_RECEIVED_INTO);
    TRUE(event.cookie == 11 && event.length == 5 && event.dti == child && memcmp(bytes, "GET /", 5) == 0);
    if (!(event.flags & DUSI_EVENT_END)) {
        event = next_of(pair->evq, DUSI_EVENT_RECEIVED_INTO);
        TRUE(event.cookie == 12 && event.length == 0 && (event.flags & DUSI_EVENT_END));
    }
    OK(Dusi_Shutdown(child, DUSI_SHUTDOWN_WRITE, DUSI_NOTIFY, 15));
    do {
        event = next_of(pair->evq, DUSI_EVENT_COMPLETION);
    } while (event.operation != DUSI_OP_SHUTDOWN);
    TRUE(event.cookie == 15 && event.status == DUSI_OK);
    OK(Dusi_Close(child, 16));
    OK(Dusi_Close(client, 17));
    OK(Dusi_Close(listening, 18));
    while (closed < 3) {
        event = next_of(pair->evq, DUSI_EVENT_CLOSED);
        TRUE(event.dti == child || event.dti == client || event.dti == listening);
        OK(Dusi_Get_Dti_Index(event.dti, &index));
        closed++;
    }
    IS(DUSI_BAD_HANDLE, Dusi_Abort(child, 0));

    /* An abort is seen as a reset. */
    connect_pair(pair);
    OK(Dusi_Abort(pair->client, 19));
    event = next_of(pair->evq, DUSI_EVENT_CLOSED);
    if (event.dti != pair->server) {
        TRUE(event.dti == pair->client);
        event = next_of(pair->evq, DUSI_EVENT_CLOSED);
    }
    TRUE(event.dti == pair->server && event.status == DUSI_CONNECTION_RESET);
    OK(Dusi_Close(pair->server, 0));

    /* Refused. */
    client = stream(pair);
    address = local(1);
    OK(Dusi_Connect(client, (struct sockaddr *)&address, sizeof address, DUSI_FAST_OPEN, 20));
    OK(Dusi_Send(client, DUSI_NO_REGION, "x", 1, 0, 0));
    do {
        event = next(pair->evq);
    } while (event.cookie != 20);
    TRUE(event.status == DUSI_CONNECTION_REFUSED);
    OK(Dusi_Close(client, 0));
}

/* DTIs are taken and given back more often than there is room for at a time. */
static void many_dtis(Pair *pair)
{
    struct sockaddr_in address;
    Dusi_Ual_Config config;
    Pair small;
    Dusi_Dti dtis[64], more;
    int i, round;
    (void)pair;

    memset(&config, 0, sizeof config);
    config.size = sizeof config;
    config.dtis = 64;
    config.evqs = 1;
    config.spin = 1;
    config.flags = DUSI_MANUAL_FLUSH;
    memset(&small, 0, sizeof small);
    OK(Dusi_Open_Ual(getenv("DUSI_SOCKET"), &config, &small.ual));
    OK(Dusi_Create_Evq(small.ual, &small.evq));
    for (round = 0; round < 3; round++) {
        for (i = 0; i < 64; i++)
            dtis[i] = stream(&small);
        IS(DUSI_EXHAUSTED, Dusi_Create_Dti(small.ual, DUSI_STREAM, small.evq, small.evq, 0, &more));
        for (i = 0; i < 64; i++)
            OK(Dusi_Close(dtis[i], 0));
        OK(Dusi_Flush(small.ual));
        for (i = 0; i < 64; i++)
            TRUE(next_of(small.evq, DUSI_EVENT_CLOSED).status == DUSI_OK);
        for (i = 0; i < 64; i++)
            IS(DUSI_BAD_HANDLE, Dusi_Listen(dtis[i], 1, 0));
    }
    dtis[0] = listener(&small, &address);
    IS(DUSI_BUSY, Dusi_Destroy_Evq(small.evq));
    OK(Dusi_Close(dtis[0], 0));
    next_of(small.evq, DUSI_EVENT_CLOSED);
    OK(Dusi_Nop(small.evq, 1));
    IS(DUSI_BUSY, Dusi_Destroy_Evq(small.evq));
    TRUE(next(small.evq).operation == DUSI_OP_NOP);
    OK(Dusi_Destroy_Evq(small.evq));
    OK(Dusi_Close_Ual(small.ual));
}

/* A doorbell queue that is full says so, and nothing is lost. */
static void full_doorbell(void)
{
    Dusi_Ual_Config config;
    Dusi_Evq evq;
    Dusi_Ual ual;
    Dusi_Status status;
    uint64_t posted = 0, seen = 0;
    uint32_t room;
    size_t depth;

    memset(&config, 0, sizeof config);
    config.size = sizeof config;
    config.doorbell_depth = 32;
    config.evq_depth = 32;
    OK(Dusi_Open_Ual(getenv("DUSI_SOCKET"), &config, &ual));
    OK(Dusi_Create_Evq(ual, &evq));
    OK(Dusi_Get_Doorbell_Room(ual, &room));
    TRUE(room == 32);
    while ((status = Dusi_Nop(evq, posted)) == DUSI_OK)
        posted++;
    IS(DUSI_DOORBELL_FULL, status);
    TRUE(posted >= 32);
    OK(Dusi_Get_Evq_Depth(evq, &depth));
    TRUE(depth <= 32);
    while (seen < posted) {
        TRUE(next(evq).cookie == seen);
        seen++;
    }
    IS(DUSI_EMPTY, Dusi_Poll_Evq(evq));
    OK(Dusi_Nop(evq, 0));
    TRUE(next(evq).cookie == 0);
    OK(Dusi_Close_Ual(ual));
}

int main(int argc, char **argv)
{
    Pair pair = open_pair(getenv("DUSI_SOCKET"));
    Dusi_Event event;
    size_t count;
    TRUE(argc == 2);

    OK(Dusi_Check_Ual(pair.ual));
    IS(DUSI_EMPTY, Dusi_Poll_Evq(pair.evq));
    IS(DUSI_EMPTY, Dusi_Dequeue_Event(pair.evq, &event));
    count = 1;
    IS(DUSI_EMPTY, Dusi_Dequeue_Events(pair.evq, &event, 1, &count));
    TRUE(count == 0);
    IS(DUSI_TIMEOUT, Dusi_Wait_Evq(pair.evq, 0));
    IS(DUSI_TIMEOUT, Dusi_Wait_Evq(pair.evq, 1000));
    OK(Dusi_Set_Evq_Spin(pair.evq, 0));

    small_sends(&pair);
    many_small_sends(&pair);
    regions_and_vectors(&pair);
    posted_buffers(&pair);
    options_and_info(&pair);
    other_memory(&pair, argv[1]);
    datagrams(&pair);
    urgent_data(&pair);
    error_reports(&pair);
    before_the_accept(&pair);
    many_dtis(&pair);
    full_doorbell();
    OK(Dusi_Close_Ual(pair.ual));
    puts("fine");
    return 0;
}
