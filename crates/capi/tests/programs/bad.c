/* Every call with arguments that are wrong: each is answered, none crashes. */
#include "check.h"

static const uint64_t garbage[] = {
    0, 1, UINT64_MAX, UINT64_C(0xdeadbeefdeadbeef), UINT64_C(1) << 61, UINT64_C(2) << 61, UINT64_C(3) << 61,
    UINT64_C(4) << 61, UINT64_C(5) << 61 | UINT64_C(0xfff) << 32, (UINT64_C(3) << 61) | 0xfffff, UINT64_C(7) << 61,
};

/* All calls that take a handle, with something that is none of the kind. */
static void all_calls_with(uint64_t bad, Dusi_Status wanted)
{
    struct sockaddr_in address = local(9);
    const struct sockaddr *to = (const struct sockaddr *)&address;
    char bytes[8] = "1234567";
    Dusi_Buffer buffer = { bad, bytes, sizeof bytes };
    Dusi_Ual_Info info;
    Dusi_Event event;
    void *place;
    uint64_t handle;
    uint32_t number;
    size_t count;
    int fd;

    IS(wanted, Dusi_Close_Ual(bad));
    IS(wanted, Dusi_Get_Ual_Info(bad, &info, sizeof info));
    IS(wanted, Dusi_Check_Ual(bad));
    IS(wanted, Dusi_Flush(bad));
    IS(wanted, Dusi_Get_Doorbell_Room(bad, &number));
    IS(wanted, Dusi_Nop(bad, 0));
    IS(wanted, Dusi_Create_Evq(bad, &handle));
    IS(wanted, Dusi_Destroy_Evq(bad));
    IS(wanted, Dusi_Poll_Evq(bad));
    IS(wanted, Dusi_Dequeue_Event(bad, &event));
    IS(wanted, Dusi_Dequeue_Events(bad, &event, 1, &count));
    IS(wanted, Dusi_Get_Evq_Depth(bad, &count));
    IS(wanted, Dusi_Wait_Evq(bad, 0));
    IS(wanted, Dusi_Wait_Evqs(&bad, 1, 0));
    IS(wanted, Dusi_Set_Evq_Spin(bad, 0));
    IS(wanted, Dusi_Get_Evq_Fd(bad, &fd));
    IS(wanted, Dusi_Set_Evq_Signal(bad, 0, 0));
    IS(wanted, Dusi_Arm_Evq(bad));
    IS(wanted, Dusi_Disarm_Evq(bad));
    IS(wanted, Dusi_Create_Dti(bad, DUSI_STREAM, bad, bad, 0, &handle));
    IS(wanted, Dusi_Bind(bad, to, sizeof address, 0));
    IS(wanted, Dusi_Listen(bad, 1, 0));
    IS(wanted, Dusi_Accept(bad, bad, 0));
    IS(wanted, Dusi_Connect(bad, to, sizeof address, 0, 0));
    IS(wanted, Dusi_Shutdown(bad, DUSI_SHUTDOWN_WRITE, 0, 0));
    IS(wanted, Dusi_Close(bad, 0));
    IS(wanted, Dusi_Abort(bad, 0));
    IS(wanted, Dusi_Cancel(bad, 0, 0));
    IS(wanted, Dusi_Set_Option(bad, DUSI_OPT_CORK, 1, 0, 0));
    IS(wanted, Dusi_Get_Option(bad, DUSI_OPT_CORK, 0));
    IS(wanted, Dusi_Get_Info(bad, bad, bytes, sizeof bytes, 0));
    IS(wanted, Dusi_Send(bad, DUSI_NO_REGION, bytes, sizeof bytes, 0, 0));
    IS(wanted, Dusi_Send_To(bad, DUSI_NO_REGION, bytes, sizeof bytes, to, sizeof address, 0, 0));
    IS(wanted, Dusi_Send_Vector(bad, &buffer, 1, 0, 0));
    IS(wanted, Dusi_Recv(bad, bad, bytes, sizeof bytes, 0, 0));
    IS(wanted, Dusi_Recv_Vector(bad, &buffer, 1, 0, 0));
    IS(wanted, Dusi_Allocate_Memory(bad, 4096, 0, &handle, &place));
    IS(wanted, Dusi_Register_Memory(bad, 0, &handle, &place, NULL));
    IS(wanted, Dusi_Register_Memory_Async(bad, 0, bad, 0, &handle, &place));
    IS(wanted, Dusi_Register_File(bad, "/proc/self/exe", &handle, &place, &count));
    IS(wanted, Dusi_Deregister_Memory(bad, bad, 0));
    if (bad != DUSI_NO_CHUNK)
        IS(wanted, Dusi_Return_Chunk(bad));
}

/* All calls that give something back, with nowhere to put it. */
static void results_to_nowhere(const char *path, Pair *pair)
{
    union {
        uint64_t words[32];
        char bytes[256];
    } room;
    void *odd = room.bytes + 1;
    void *places[2];
    Dusi_Region region;
    Dusi_Event event;
    void *place;
    size_t count;
    int i;

    memset(&room, 0, sizeof room);
    places[0] = NULL;
    places[1] = odd;
    for (i = 0; i < 2; i++) {
        void *bad = places[i];
        IS(DUSI_BAD_ARGUMENT, Dusi_Open_Ual(path, NULL, (Dusi_Ual *)bad));
        IS(DUSI_BAD_ARGUMENT, Dusi_Open_Ual_On(0, NULL, (Dusi_Ual *)bad));
        IS(DUSI_BAD_ARGUMENT, Dusi_Get_Ual_Info(pair->ual, (Dusi_Ual_Info *)bad, sizeof(Dusi_Ual_Info)));
        IS(DUSI_BAD_ARGUMENT, Dusi_Get_Doorbell_Room(pair->ual, (uint32_t *)bad));
        IS(DUSI_BAD_ARGUMENT, Dusi_Create_Evq(pair->ual, (Dusi_Evq *)bad));
        IS(DUSI_BAD_ARGUMENT, Dusi_Dequeue_Event(pair->evq, (Dusi_Event *)bad));
        IS(DUSI_BAD_ARGUMENT, Dusi_Dequeue_Events(pair->evq, (Dusi_Event *)bad, 1, &count));
        IS(DUSI_BAD_ARGUMENT, Dusi_Dequeue_Events(pair->evq, &event, 1, (size_t *)bad));
        IS(DUSI_BAD_ARGUMENT, Dusi_Get_Evq_Depth(pair->evq, (size_t *)bad));
        IS(DUSI_BAD_ARGUMENT, Dusi_Wait_Evqs((Dusi_Evq *)bad, 1, 0));
        IS(DUSI_BAD_ARGUMENT, Dusi_Get_Evq_Fd(pair->evq, (int *)bad));
        IS(DUSI_BAD_ARGUMENT, Dusi_Create_Dti(pair->ual, DUSI_STREAM, pair->evq, pair->evq, 0, (Dusi_Dti *)bad));
        IS(DUSI_BAD_ARGUMENT, Dusi_Get_Dti_Index(pair->client, (uint32_t *)bad));
        IS(DUSI_BAD_ARGUMENT, Dusi_Send_Vector(pair->client, (Dusi_Buffer *)bad, 1, 0, 0));
        IS(DUSI_BAD_ARGUMENT, Dusi_Recv_Vector(pair->client, (Dusi_Buffer *)bad, 1, 0, 0));
        IS(DUSI_BAD_ARGUMENT, Dusi_Allocate_Memory(pair->ual, 1, 0, (Dusi_Region *)bad, &place));
        IS(DUSI_BAD_ARGUMENT, Dusi_Allocate_Memory(pair->ual, 1, 0, &region, (void **)bad));
        IS(DUSI_BAD_ARGUMENT, Dusi_Register_Memory(pair->ual, 0, (Dusi_Region *)bad, &place, NULL));
        IS(DUSI_BAD_ARGUMENT, Dusi_Register_Memory_Async(pair->ual, 0, pair->evq, 0, (Dusi_Region *)bad, &place));
        IS(DUSI_BAD_ARGUMENT, Dusi_Register_File(pair->ual, "/proc/self/exe", &region, &place, (size_t *)bad));
        IS(DUSI_BAD_ARGUMENT, Dusi_Event_Address((Dusi_Event *)bad, (struct sockaddr *)room.bytes, (socklen_t *)room.words));
    }
    IS(DUSI_BAD_ARGUMENT, Dusi_Register_File(pair->ual, NULL, &region, &place, &count));
    IS(DUSI_BAD_ARGUMENT, Dusi_Register_Memory(pair->ual, 0, &region, &place, (size_t *)odd));
    IS(DUSI_BAD_ARGUMENT, Dusi_Send(pair->client, DUSI_NO_REGION, NULL, 1, 0, 0));
}

static void opening(const char *path)
{
    Dusi_Ual_Config config;
    Dusi_Ual ual = 7;

    IS(DUSI_NO_ENGINE, Dusi_Open_Ual("/nonexistent/sidecore.sock", NULL, &ual));
    TRUE(errno == ENOENT);
    memset(&config, 0, sizeof config);
    IS(DUSI_BAD_ARGUMENT, Dusi_Open_Ual(path, &config, &ual));
    config.size = sizeof config;
    config.flags = 0x80;
    IS(DUSI_BAD_ARGUMENT, Dusi_Open_Ual(path, &config, &ual));
    config.flags = 0;
    config.doorbell_depth = 7;
    IS(DUSI_BAD_ARGUMENT, Dusi_Open_Ual(path, &config, &ual));
    IS(DUSI_BAD_ARGUMENT, Dusi_Open_Ual(path, (Dusi_Ual_Config *)((char *)&config + 1), &ual));
    IS(DUSI_BAD_ARGUMENT, Dusi_Open_Ual_On(-1, NULL, &ual));
    IS(DUSI_SYSTEM, Dusi_Open_Ual_On(12345, NULL, &ual));
    TRUE(errno == EBADF);
    TRUE(ual == 7);
}

static void sockets(Pair *pair)
{
    struct sockaddr_storage address;
    struct sockaddr *at = (struct sockaddr *)&address;
    Dusi_Dti dti, fresh = stream(pair);

    memset(&address, 0, sizeof address);
    address.ss_family = AF_UNIX;
    IS(DUSI_BAD_ARGUMENT, Dusi_Bind(fresh, at, sizeof address, 0));
    IS(DUSI_BAD_ARGUMENT, Dusi_Connect(fresh, at, sizeof address, 0, 0));
    address.ss_family = AF_INET;
    IS(DUSI_BAD_ARGUMENT, Dusi_Bind(fresh, at, sizeof(struct sockaddr_in) - 1, 0));
    IS(DUSI_BAD_ARGUMENT, Dusi_Bind(fresh, at, 0, 0));
    IS(DUSI_BAD_ARGUMENT, Dusi_Bind(fresh, NULL, sizeof(struct sockaddr_in), 0));
    IS(DUSI_BAD_ARGUMENT, Dusi_Connect(fresh, NULL, sizeof(struct sockaddr_in), 0, 0));
    IS(DUSI_BAD_ARGUMENT, Dusi_Connect(fresh, at, sizeof address, 1, 0));
    address.ss_family = AF_INET6;
    IS(DUSI_BAD_ARGUMENT, Dusi_Bind(fresh, at, sizeof(struct sockaddr_in), 0));

    IS(DUSI_BAD_ARGUMENT, Dusi_Create_Dti(pair->ual, 0, pair->evq, pair->evq, 0, &dti));
    IS(DUSI_BAD_ARGUMENT, Dusi_Create_Dti(pair->ual, 3, pair->evq, pair->evq, 0, &dti));
    IS(DUSI_BAD_ARGUMENT, Dusi_Create_Dti(pair->ual, DUSI_STREAM, pair->evq, pair->evq, 2, &dti));
    IS(DUSI_BAD_ARGUMENT, Dusi_Create_Dti(pair->ual, DUSI_DATAGRAM, pair->evq, pair->evq, DUSI_POSTED_ONLY, &dti));
    IS(DUSI_BAD_HANDLE, Dusi_Create_Dti(pair->ual, DUSI_STREAM, pair->evq, 0, 0, &dti));
    IS(DUSI_BAD_HANDLE, Dusi_Create_Dti(pair->ual, DUSI_STREAM, pair->client, pair->evq, 0, &dti));
    IS(DUSI_BAD_HANDLE, Dusi_Accept(fresh, pair->evq, 0));
    IS(DUSI_BAD_ARGUMENT, Dusi_Shutdown(fresh, 0, 0, 0));
    IS(DUSI_BAD_ARGUMENT, Dusi_Shutdown(fresh, 4, 0, 0));
    IS(DUSI_BAD_ARGUMENT, Dusi_Shutdown(fresh, DUSI_SHUTDOWN_READ, 2, 0));
    IS(DUSI_BAD_ARGUMENT, Dusi_Set_Option(fresh, 0, 1, 0, 0));
    IS(DUSI_BAD_ARGUMENT, Dusi_Set_Option(fresh, 25, 1, 0, 0));
    IS(DUSI_BAD_ARGUMENT, Dusi_Set_Option(fresh, 99, 1, 0, 0));
    IS(DUSI_BAD_ARGUMENT, Dusi_Set_Option(fresh, DUSI_OPT_LOCAL_ADDRESS, 1, 0, 0));
    IS(DUSI_BAD_ARGUMENT, Dusi_Set_Option(fresh, DUSI_OPT_CORK, 1, 2, 0));
    IS(DUSI_BAD_ARGUMENT, Dusi_Get_Option(fresh, 25, 0));
    IS(DUSI_BAD_ARGUMENT, Dusi_Get_Option(fresh, 1 << 16, 0));
    IS(DUSI_BAD_HANDLE, Dusi_Get_Dti_Index(pair->ual, (uint32_t *)&address));
    OK(Dusi_Close(fresh, 0));
    IS(DUSI_BAD_HANDLE, Dusi_Close(fresh, 0));
    IS(DUSI_BAD_HANDLE, Dusi_Send(fresh, DUSI_NO_REGION, "x", 1, 0, 0));
}

static void memory(Pair *pair)
{
    char stack[512] = "not registered";
    Dusi_Buffer many[DUSI_VECTOR_MAX + 1];
    Dusi_Region region, other;
    size_t length;
    void *at;
    char *bytes;

    IS(DUSI_BAD_ARGUMENT, Dusi_Allocate_Memory(pair->ual, 0, 0, &region, &at));
    IS(DUSI_BAD_ARGUMENT, Dusi_Allocate_Memory(pair->ual, SIZE_MAX, 0, &region, &at));
    IS(DUSI_BAD_ARGUMENT, Dusi_Allocate_Memory(pair->ual, 4096, 2, &region, &at));
    IS(DUSI_BAD_ARGUMENT, Dusi_Register_Memory(pair->ual, -1, &region, &at, NULL));
    IS(DUSI_BAD_ARGUMENT, Dusi_Register_Memory_Async(pair->ual, -1, pair->evq, 0, &region, &at));
    IS(DUSI_BAD_HANDLE, Dusi_Register_Memory_Async(pair->ual, 0, pair->ual, 0, &region, &at));
    TRUE(Dusi_Register_Memory(pair->ual, 0, &region, &at, NULL) != DUSI_OK);
    IS(DUSI_SYSTEM, Dusi_Register_File(pair->ual, "/nonexistent", &region, &at, &length));
    TRUE(errno == ENOENT);

    OK(Dusi_Allocate_Memory(pair->ual, 4096, 0, &region, &at));
    bytes = (char *)at;
    IS(DUSI_BAD_EXTENT, Dusi_Send(pair->client, region, bytes + 4096, 1, 0, 0));
    IS(DUSI_BAD_EXTENT, Dusi_Send(pair->client, region, bytes - 1, 2, 0, 0));
    IS(DUSI_BAD_EXTENT, Dusi_Send(pair->client, region, bytes, 4097, 0, 0));
    IS(DUSI_BAD_EXTENT, Dusi_Send(pair->client, region, stack, 8, 0, 0));
    IS(DUSI_BAD_EXTENT, Dusi_Send(pair->client, region, NULL, 8, 0, 0));
    TRUE(Dusi_Send(pair->client, region, bytes, SIZE_MAX, 0, 0) != DUSI_OK);
    IS(DUSI_BAD_ARGUMENT, Dusi_Send(pair->client, region, bytes, 0, 0, 0));
    IS(DUSI_BAD_ARGUMENT, Dusi_Send(pair->client, region, bytes, 257, DUSI_COPY, 0));
    IS(DUSI_BAD_ARGUMENT, Dusi_Send(pair->client, region, bytes, 8, 1u << 31, 0));
    IS(DUSI_BAD_ARGUMENT, Dusi_Send(pair->client, region, bytes, 8, 2, 0));
    IS(DUSI_BAD_ARGUMENT, Dusi_Send(pair->client, DUSI_NO_REGION, stack, 257, 0, 0));
    IS(DUSI_BAD_HANDLE, Dusi_Send(pair->client, pair->ual, stack, 8, 0, 0));
    IS(DUSI_BAD_HANDLE, Dusi_Send(pair->client, region + 1, bytes, 8, 0, 0));
    IS(DUSI_BAD_ARGUMENT, Dusi_Send_To(pair->client, region, bytes, 8, NULL, 16, 0, 0));
    {
        struct sockaddr_in address = local(9);
        const struct sockaddr *to = (const struct sockaddr *)&address;
        IS(DUSI_BAD_ARGUMENT, Dusi_Send_To(pair->client, region, bytes, 8, to, sizeof address, 0, 0));
        IS(DUSI_BAD_ARGUMENT, Dusi_Send_To(pair->client, region, bytes, 8, to, sizeof address, DUSI_MORE, 0));
    }
    IS(DUSI_BAD_EXTENT, Dusi_Recv(pair->client, region, stack, 8, 0, 0));
    IS(DUSI_BAD_ARGUMENT, Dusi_Recv(pair->client, region, bytes, 0, 0, 0));
    IS(DUSI_BAD_ARGUMENT, Dusi_Recv(pair->client, region, bytes, 8, DUSI_NOTIFY, 0));
    IS(DUSI_BAD_HANDLE, Dusi_Recv(pair->client, DUSI_NO_REGION, bytes, 8, 0, 0));
    IS(DUSI_BAD_EXTENT, Dusi_Get_Info(pair->client, region, stack, 8, 0));

    memset(many, 0, sizeof many);
    for (length = 0; length <= DUSI_VECTOR_MAX; length++) {
        many[length].region = region;
        many[length].data = bytes;
        many[length].length = 8;
    }
    IS(DUSI_BAD_ARGUMENT, Dusi_Send_Vector(pair->client, many, DUSI_VECTOR_MAX + 1, 0, 0));
    IS(DUSI_BAD_ARGUMENT, Dusi_Send_Vector(pair->client, many, 0, 0, 0));
    IS(DUSI_BAD_ARGUMENT, Dusi_Send_Vector(pair->client, many, 1, DUSI_COPY, 0));
    IS(DUSI_BAD_ARGUMENT, Dusi_Recv_Vector(pair->client, many, 0, 0, 0));
    IS(DUSI_BAD_ARGUMENT, Dusi_Recv_Vector(pair->client, many, DUSI_VECTOR_MAX + 1, 0, 0));
    many[3].data = stack;
    IS(DUSI_BAD_EXTENT, Dusi_Send_Vector(pair->client, many, 8, 0, 0));
    IS(DUSI_BAD_EXTENT, Dusi_Recv_Vector(pair->client, many, 8, 0, 0));
    many[3].region = DUSI_NO_REGION;
    IS(DUSI_BAD_HANDLE, Dusi_Send_Vector(pair->client, many, 8, 0, 0));
    many[0].length = 0;
    IS(DUSI_BAD_ARGUMENT, Dusi_Send_Vector(pair->client, many, 1, 0, 0));

    /* Memory of one UAL is none of another. */
    {
        Dusi_Ual ual;
        Dusi_Evq evq;
        Dusi_Dti dti;
        OK(Dusi_Open_Ual(getenv("DUSI_SOCKET"), NULL, &ual));
        OK(Dusi_Create_Evq(ual, &evq));
        OK(Dusi_Create_Dti(ual, DUSI_STREAM, evq, evq, 0, &dti));
        IS(DUSI_BAD_HANDLE, Dusi_Send(dti, region, bytes, 8, 0, 0));
        IS(DUSI_BAD_HANDLE, Dusi_Create_Dti(ual, DUSI_STREAM, pair->evq, evq, 0, &dti));
        IS(DUSI_BAD_HANDLE, Dusi_Accept(dti, pair->client, 0));
        IS(DUSI_BAD_HANDLE, Dusi_Deregister_Memory(region, evq, 0));
        {
            Dusi_Evq both[2];
            both[0] = evq;
            both[1] = pair->evq;
            IS(DUSI_BAD_ARGUMENT, Dusi_Wait_Evqs(both, 2, 0));
        }
        OK(Dusi_Close_Ual(ual));
        all_calls_with(ual, DUSI_BAD_HANDLE);
        all_calls_with(evq, DUSI_BAD_HANDLE);
        all_calls_with(dti, DUSI_BAD_HANDLE);
    }
    OK(Dusi_Deregister_Memory(region, pair->evq, 0));
    IS(DUSI_BAD_HANDLE, Dusi_Send(pair->client, region, bytes, 8, 0, 0));
    OK(Dusi_Allocate_Memory(pair->ual, 4096, 0, &other, &at));
    TRUE(other != region);
    IS(DUSI_BAD_HANDLE, Dusi_Deregister_Memory(region, pair->evq, 0));
}

static void queues(Pair *pair)
{
    Dusi_Evq none;
    size_t i;
    IS(DUSI_BAD_ARGUMENT, Dusi_Set_Evq_Signal(pair->evq, -1, 0));
    IS(DUSI_BAD_ARGUMENT, Dusi_Set_Evq_Signal(pair->evq, 9, 0));
    IS(DUSI_BAD_ARGUMENT, Dusi_Set_Evq_Signal(pair->evq, 1000, 0));
    IS(DUSI_BAD_ARGUMENT, Dusi_Set_Evq_Signal(pair->evq, 10, 2));
    IS(DUSI_BAD_ARGUMENT, Dusi_Wait_Evqs(&pair->evq, 0, 0));
    IS(DUSI_BAD_ARGUMENT, Dusi_Wait_Evqs(&pair->evq, 513, 0));
    IS(DUSI_BUSY, Dusi_Destroy_Evq(pair->evq));
    IS(DUSI_BAD_ARGUMENT, Dusi_Get_Ual_Info(pair->ual, (Dusi_Ual_Info *)&none, 8));
    for (i = 0; i < 7; i++)
        OK(Dusi_Create_Evq(pair->ual, &none));
    IS(DUSI_EXHAUSTED, Dusi_Create_Evq(pair->ual, &none));
    OK(Dusi_Destroy_Evq(none));
    IS(DUSI_BAD_HANDLE, Dusi_Destroy_Evq(none));
    IS(DUSI_BAD_HANDLE, Dusi_Nop(none, 0));
}

int main(void)
{
    const char *path = getenv("DUSI_SOCKET");
    Pair pair = open_pair(path);
    size_t i;

    for (i = 0; i < sizeof garbage / sizeof *garbage; i++)
        all_calls_with(garbage[i], DUSI_BAD_HANDLE);
    results_to_nowhere(path, &pair);
    opening(path);
    sockets(&pair);
    memory(&pair);
    queues(&pair);

    TRUE(strcmp(Dusi_Status_String(DUSI_OK), "done") == 0);
    TRUE(strcmp(Dusi_Status_String(-5), "unknown status") == 0);
    TRUE(Dusi_Status_Errno(DUSI_CONNECTION_REFUSED) == ECONNREFUSED && Dusi_Status_Errno(4711) == EIO);
    TRUE(Dusi_Version() == DUSI_VERSION);
    OK(Dusi_Return_Chunk(DUSI_NO_CHUNK));

    /* The connection has survived all of it. */
    OK(Dusi_Send(pair.client, DUSI_NO_REGION, "still here", 10, 0, 0));
    {
        Dusi_Event event = next_of(pair.evq, DUSI_EVENT_RECEIVED);
        TRUE(event.length == 10 && memcmp(event.data, "still here", 10) == 0);
        OK(Dusi_Return_Chunk(event.chunk));
    }
    OK(Dusi_Close_Ual(pair.ual));
    IS(DUSI_BAD_HANDLE, Dusi_Close_Ual(pair.ual));
    puts("fine");
    return 0;
}
