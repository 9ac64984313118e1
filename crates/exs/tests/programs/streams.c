/* Bytes over connections: both ends are in this program. Argument: an address of this machine, or of the engine's. */
#include "check.h"

enum { MUCH = 3 << 20, HALF = MUCH / 2 };

static const char *host;
static exs_qhandle_t queue;
static unsigned char *out, *in;
static exs_mhandle_t lent;

/* Sends that do not fit into any buffer, received in pieces: in order, whole, and done when they say so. */
static void much(exs_mhandle_t memory)
{
    int pair[2], sent = 0;
    size_t got = 0;
    connected(host, pair);
    fill(out, MUCH, 1);
    memset(in, 0, MUCH);
    OK(exs_send(pair[0], out, HALF, 0, queue, 1, memory));
    OK(exs_send(pair[0], out + HALF, MUCH - HALF, 0, queue, 2, memory));
    OK(exs_recv(pair[1], in, 100000, 0, queue, 100, 0));
    while (got < MUCH || sent < 2) {
        exs_event_t event = next(queue);
        TRUE(event.exs_evt_errno == 0);
        if (event.exs_evt_type == EXS_EVT_SEND) {
            TRUE(event.exs_evt_socket == pair[0] && (int)event.exs_evt_ahandle == ++sent);
            TRUE(moved(&event) == HALF);
            TRUE(event.exs_evt_union.exs_evt_xfer.exs_evt_buffer == (sent == 1 ? out : out + HALF));
            TRUE(event.exs_evt_union.exs_evt_xfer.exs_evt_mhandle == memory);
        } else {
            TRUE(event.exs_evt_type == EXS_EVT_RECV && event.exs_evt_socket == pair[1]);
            TRUE(moved(&event) > 0);
            got += moved(&event);
            if (got < MUCH)
                OK(exs_recv(pair[1], in + got, MUCH - got < 100000 ? MUCH - got : 100000, 0, queue, 100, 0));
        }
    }
    TRUE(same(in, MUCH, 1));
    /* The end, and what comes after it. */
    OK(exs_recv(pair[1], in, 10, 0, queue, 4, 0));
    OK(exs_shutdown(pair[0], EXS_SHUT_WR, queue, 3));
    {
        exs_event_t one = next(queue), two = next(queue);
        if (one.exs_evt_type == EXS_EVT_RECV) {
            exs_event_t other = one;
            one = two;
            two = other;
        }
        TRUE(one.exs_evt_type == EXS_EVT_SHUTDOWN && one.exs_evt_errno == 0);
        TRUE(two.exs_evt_type == EXS_EVT_RECV && two.exs_evt_errno == 0 && moved(&two) == 0);
    }
    OK(exs_send(pair[0], out, 1, 0, queue, 5, memory));
    expect(queue, EXS_EVT_SEND, 5, EPIPE);
    OK(exs_close(pair[0], queue, 6));
    expect(queue, EXS_EVT_CLOSE, 6, 0);
    TRUE(fcntl(pair[0], F_GETFD) == -1 && errno == EBADF);
    TRUE(close(pair[1]) == 0);
}

/* Posted receives are filled in order, with and without MSG_WAITALL. */
static void posted(void)
{
    int pair[2];
    connected(host, pair);
    memset(in, 0, 1000);
    OK(exs_recv(pair[1], in, 4, MSG_WAITALL, queue, 1, 0));
    OK(exs_recv(pair[1], in + 4, 6, MSG_WAITALL, queue, 2, 0));
    OK(exs_recv(pair[1], in + 10, 100, 0, queue, 3, 0));
    TRUE(send(pair[0], "ab", 2, 0) == 2);
    TRUE(send(pair[0], "cdefgh", 6, 0) == 6);
    MOVED(queue, EXS_EVT_RECV, 1, 4);
    TRUE(send(pair[0], "ijklm", 5, 0) == 5);
    MOVED(queue, EXS_EVT_RECV, 2, 6);
    MOVED(queue, EXS_EVT_RECV, 3, 3);
    TRUE(memcmp(in, "abcdefghijklm", 14) == 0);
    /* A look does not take anything away. */
    OK(exs_recv(pair[1], in, 4, MSG_PEEK, queue, 4, 0));
    OK(exs_send(pair[0], "wxyz", 4, 0, queue, 5, 0));
    {
        exs_event_t one = next(queue), two = next(queue);
        TRUE(one.exs_evt_errno == 0 && two.exs_evt_errno == 0);
        TRUE(one.exs_evt_ahandle + two.exs_evt_ahandle == 9);
    }
    OK(exs_recv(pair[1], in + 4, 100, 0, queue, 6, 0));
    MOVED(queue, EXS_EVT_RECV, 6, 4);
    TRUE(memcmp(in, "wxyzwxyz", 8) == 0);
    /* Nothing, either way. */
    OK(exs_send(pair[0], NULL, 0, 0, queue, 7, 0));
    MOVED(queue, EXS_EVT_SEND, 7, 0);
    /* The end cuts a receive short that wants all. */
    OK(exs_recv(pair[1], in, 100, MSG_WAITALL, queue, 8, 0));
    TRUE(send(pair[0], "end", 3, 0) == 3);
    TRUE(close(pair[0]) == 0);
    MOVED(queue, EXS_EVT_RECV, 8, 3);
    TRUE(close(pair[1]) == 0);
}

/* Pieces of messages, and of files. */
static void pieces(const char *path, exs_mhandle_t memory)
{
    exs_iovec_t from[3], to[3];
    exs_msghdr_t message, room;
    exs_xferfile_t parts[3];
    int pair[2], file;
    connected(host, pair);
    memset(&message, 0, sizeof message);
    memset(&room, 0, sizeof room);
    fill(out, 10000, 2);
    for (int at = 0; at < 3; at++) {
        from[at].iov_base = out + at * 3000;
        from[at].iov_len = at == 2 ? 4000 : 3000;
        from[at].iov_mhandle = memory;
        to[at].iov_base = in + at * 5000;
        to[at].iov_len = 5000;
        to[at].iov_mhandle = memory == 0 ? 0 : lent;
    }
    message.msg_iov = from;
    message.msg_iovlen = 3;
    room.msg_iov = to;
    room.msg_iovlen = 2;
    room.msg_flags = -1;
    OK(exs_sendmsg(pair[0], &message, 0, queue, 1));
    MOVED(queue, EXS_EVT_SENDMSG, 1, 10000);
    OK(exs_recvmsg(pair[1], &room, MSG_WAITALL, queue, 2));
    {
        exs_event_t event = expect(queue, EXS_EVT_RECVMSG, 2, 0);
        TRUE(event.exs_evt_union.exs_evt_xfermsg.exs_evt_message == &room);
        TRUE(moved(&event) == 10000);
    }
    TRUE(same(in, 10000, 2));
    TRUE(room.msg_controllen == 0 && (room.msg_flags & MSG_TRUNC) == 0);
    message.msg_iovlen = 0;
    OK(exs_sendmsg(pair[0], &message, 0, queue, 3));
    MOVED(queue, EXS_EVT_SENDMSG, 3, 0);

    /* A header, a file from its middle, a trailer. */
    file = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    TRUE(file >= 0);
    fill(out, MUCH, 3);
    TRUE(write(file, out, MUCH) == MUCH);
    memset(parts, 0, sizeof parts);
    parts[0].exs_xf_type = EXS_IOVEC;
    parts[0].exs_xf_union.exs_xf_iovec.iov_base = out;
    parts[0].exs_xf_union.exs_xf_iovec.iov_len = 1000;
    parts[1].exs_xf_type = EXS_FDVEC;
    parts[1].exs_xf_union.exs_xf_fdvec.fdv_fd = file;
    parts[1].exs_xf_union.exs_xf_fdvec.fdv_offset = 1000;
    parts[1].exs_xf_union.exs_xf_fdvec.fdv_len = MUCH - 2000;
    parts[2].exs_xf_type = EXS_IOVEC;
    parts[2].exs_xf_union.exs_xf_iovec.iov_base = out + MUCH - 1000;
    parts[2].exs_xf_union.exs_xf_iovec.iov_len = 1000;
    OK(exs_sendfile(pair[0], parts, 3, 0, queue, 4));
    /* List and file may go. */
    memset(parts, 255, sizeof parts);
    TRUE(lseek(file, 0, SEEK_CUR) == MUCH);
    TRUE(close(file) == 0);
    memset(in, 0, MUCH);
    OK(exs_recv(pair[1], in, MUCH, MSG_WAITALL, queue, 5, 0));
    for (int at = 0; at < 2; at++) {
        exs_event_t event = next(queue);
        TRUE(event.exs_evt_errno == 0 && moved(&event) == MUCH);
        TRUE(event.exs_evt_type == (event.exs_evt_ahandle == 4 ? EXS_EVT_SENDFILE : EXS_EVT_RECV));
    }
    TRUE(same(in, MUCH, 3));
    /* A file that is shorter than it is said to be. */
    file = open(path, O_RDONLY);
    parts[0].exs_xf_type = EXS_FDVEC;
    parts[0].exs_xf_union.exs_xf_fdvec.fdv_fd = file;
    parts[0].exs_xf_union.exs_xf_fdvec.fdv_offset = MUCH - 10;
    parts[0].exs_xf_union.exs_xf_fdvec.fdv_len = 1000;
    OK(exs_sendfile(pair[0], parts, 1, 0, queue, 6));
    MOVED(queue, EXS_EVT_SENDFILE, 6, 10);
    TRUE(close(file) == 0 && unlink(path) == 0);
    TRUE(close(pair[0]) == 0 && close(pair[1]) == 0);
}

/* Connections by exs_connect and exs_accept; what is posted meanwhile waits for them. */
static void connections(void)
{
    struct sockaddr_in address, room;
    exs_acceptaddr_t peer = {(struct sockaddr *)&room, sizeof room};
    int listening = listener(host, &address), fd = socket(AF_INET, SOCK_STREAM, 0), taken = -1;
    int seen = 0, begun = 0;
    OK(exs_accept(listening, &peer, 0, queue, 1));
    OK(exs_accept(listening, NULL, 0, queue, 2));
    OK(exs_connect(fd, (struct sockaddr *)&address, sizeof address, 0, queue, 3));
    OK(exs_recv(fd, in, 5, MSG_WAITALL, queue, 4, 0));
    OK(exs_send(fd, "hello", 5, 0, queue, 5, 0));
    while (seen != 3) {
        exs_event_t event = next(queue);
        TRUE(event.exs_evt_errno == 0);
        if (event.exs_evt_ahandle == 1) {
            taken = event.exs_evt_union.exs_evt_accept.exs_evt_newsocket;
            TRUE(event.exs_evt_type == EXS_EVT_ACCEPT && event.exs_evt_socket == listening);
            TRUE(event.exs_evt_union.exs_evt_accept.exs_evt_address == &peer);
        } else if (event.exs_evt_ahandle == 3) {
            TRUE(event.exs_evt_type == EXS_EVT_CONNECT && !begun);
            begun = 1;
        } else {
            TRUE(event.exs_evt_type == EXS_EVT_SEND && event.exs_evt_ahandle == 5 && begun);
        }
        seen++;
    }
    TRUE(taken >= 0 && peer.exs_acc_addrlen == sizeof room && room.sin_family == AF_INET);
    {
        struct sockaddr_in own;
        socklen_t length = sizeof own;
        TRUE(getsockname(fd, (struct sockaddr *)&own, &length) == 0 && own.sin_port == room.sin_port);
    }
    OK(exs_recv(taken, in + 100, 5, MSG_WAITALL, queue, 6, 0));
    MOVED(queue, EXS_EVT_RECV, 6, 5);
    TRUE(memcmp(in + 100, "hello", 5) == 0);
    OK(exs_send(taken, "world", 5, 0, queue, 7, 0));
    {
        exs_event_t one = next(queue), two = next(queue);
        TRUE(one.exs_evt_errno == 0 && two.exs_evt_errno == 0 && moved(&one) == 5 && moved(&two) == 5);
    }
    TRUE(memcmp(in, "world", 5) == 0);
    OK(exs_close(listening, queue, 8));
    {
        exs_event_t one = next(queue), two = next(queue);
        TRUE(one.exs_evt_ahandle + two.exs_evt_ahandle == 10);
        TRUE((one.exs_evt_ahandle == 2 ? one : two).exs_evt_errno == ECANCELED);
        TRUE((one.exs_evt_ahandle == 8 ? one : two).exs_evt_errno == 0);
    }
    TRUE(close(fd) == 0 && close(taken) == 0);
    /* Nobody listens there any more. */
    fd = socket(AF_INET, SOCK_STREAM, 0);
    OK(exs_connect(fd, (struct sockaddr *)&address, sizeof address, 0, queue, 9));
    expect(queue, EXS_EVT_CONNECT, 9, ECONNREFUSED);
    TRUE(close(fd) == 0);
}

static void cancels(void)
{
    int pair[2];
    exs_pollfd_t wanted;
    connected(host, pair);
    wanted.fd = pair[1];
    wanted.events = EXS_POLLIN;
    OK(exs_recv(pair[1], in, 10, 0, queue, 1, 0));
    OK(exs_recv(pair[1], in, 10, 0, queue, 2, 0));
    OK(exs_recv(pair[0], in, 10, 0, queue, 1, 0));
    OK(exs_poll(&wanted, 1, 0, queue, 3));
    OK(exs_cancel(pair[1], 1, EXS_CAF_FILDES | EXS_CAF_AHANDLE));
    TRUE(expect(queue, EXS_EVT_RECV, 1, ECANCELED).exs_evt_socket == pair[1]);
    OK(exs_cancel(-1, 1, EXS_CAF_AHANDLE));
    TRUE(expect(queue, EXS_EVT_RECV, 1, ECANCELED).exs_evt_socket == pair[0]);
    OK(exs_cancel(pair[1], 0, EXS_CAF_FILDES));
    {
        exs_event_t one = next(queue), two = next(queue);
        TRUE(one.exs_evt_errno == ECANCELED && two.exs_evt_errno == ECANCELED);
        TRUE(one.exs_evt_ahandle + two.exs_evt_ahandle == 5);
    }
    OK(exs_cancel(pair[1], 0, EXS_CAF_FILDES));
    /* The socket is as it was. */
    OK(exs_recv(pair[1], in, 10, 0, queue, 4, 0));
    TRUE(send(pair[0], "still", 5, 0) == 5);
    MOVED(queue, EXS_EVT_RECV, 4, 5);
    /* The program may close its descriptor: what was posted goes on. */
    OK(exs_recv(pair[1], in, 10, 0, queue, 5, 0));
    TRUE(close(pair[1]) == 0);
    TRUE(send(pair[0], "more", 4, 0) == 4);
    MOVED(queue, EXS_EVT_RECV, 5, 4);
    TRUE(close(pair[0]) == 0);
}

static void polls(void)
{
    int one[2], two[2];
    exs_pollfd_t wanted[3];
    exs_event_t event;
    connected(host, one);
    connected(host, two);
    memset(wanted, 0, sizeof wanted);
    wanted[0].fd = one[1];
    wanted[0].events = EXS_POLLIN;
    wanted[1].fd = -1;
    wanted[2].fd = two[1];
    wanted[2].events = EXS_POLLIN;
    OK(exs_poll(wanted, 3, 0, queue, 1));
    TRUE(send(two[0], "x", 1, 0) == 1);
    event = expect(queue, EXS_EVT_POLL, 1, 0);
    TRUE(event.exs_evt_socket == two[1] && event.exs_evt_union.exs_evt_poll.exs_evt_fds == wanted);
    TRUE(event.exs_evt_union.exs_evt_poll.exs_evt_count == 1);
    TRUE(wanted[2].revents == EXS_POLLIN && wanted[0].revents == 0 && wanted[1].revents == 0);
    /* Found at once: both, for both. */
    wanted[0].events = wanted[2].events = EXS_POLLIN | EXS_POLLOUT;
    OK(exs_poll(wanted, 3, 0, queue, 2));
    event = expect(queue, EXS_EVT_POLL, 2, 0);
    TRUE(event.exs_evt_union.exs_evt_poll.exs_evt_count == 2 && event.exs_evt_socket == one[1]);
    TRUE(wanted[0].revents == EXS_POLLOUT && wanted[2].revents == (EXS_POLLIN | EXS_POLLOUT));
    TRUE(close(two[0]) == 0 && close(two[1]) == 0);
    /* The peer's end. */
    wanted[0].events = EXS_POLLIN;
    OK(exs_poll(wanted, 1, 0, queue, 3));
    TRUE(close(one[0]) == 0);
    expect(queue, EXS_EVT_POLL, 3, 0);
    TRUE(wanted[0].revents & EXS_POLLIN);
    TRUE(close(one[1]) == 0);
}

static void datagrams(void)
{
    struct sockaddr_in address, from;
    socklen_t length = sizeof address;
    exs_iovec_t piece = {out, 1200, 0}, room = {in, 1000, 0};
    exs_msghdr_t message;
    int one = socket(AF_INET, SOCK_DGRAM, 0), two = socket(AF_INET, SOCK_DGRAM, 0);
    address = address_of(host, 0);
    TRUE(bind(one, (struct sockaddr *)&address, sizeof address) == 0);
    TRUE(bind(two, (struct sockaddr *)&address, sizeof address) == 0);
    TRUE(getsockname(two, (struct sockaddr *)&address, &length) == 0);
    fill(out, 1200, 4);
    memset(&message, 0, sizeof message);
    message.msg_name = &from;
    message.msg_namelen = sizeof from;
    message.msg_iov = &room;
    message.msg_iovlen = 1;
    OK(exs_recvmsg(two, &message, 0, queue, 1));
    {
        exs_msghdr_t datagram = message;
        datagram.msg_name = &address;
        datagram.msg_namelen = sizeof address;
        datagram.msg_iov = &piece;
        OK(exs_sendmsg(one, &datagram, 0, queue, 2));
        for (int at = 0; at < 2; at++) {
            exs_event_t event = next(queue);
            TRUE(event.exs_evt_errno == 0);
            TRUE(moved(&event) == (event.exs_evt_ahandle == 1 ? 1000 : 1200));
        }
    }
    TRUE(same(in, 1000, 4) && message.msg_flags & MSG_TRUNC);
    TRUE(message.msg_namelen == sizeof from && from.sin_family == AF_INET && from.sin_port != 0);
    TRUE(close(one) == 0 && close(two) == 0);
}

/* A peer that resets. */
static void resets(void)
{
    struct linger hard = {1, 0};
    int pair[2];
    connected(host, pair);
    OK(exs_recv(pair[0], in, 10, 0, queue, 1, 0));
    TRUE(setsockopt(pair[1], SOL_SOCKET, SO_LINGER, &hard, sizeof hard) == 0);
    TRUE(close(pair[1]) == 0);
    expect(queue, EXS_EVT_RECV, 1, ECONNRESET);
    OK(exs_send(pair[0], out, 10, 0, queue, 2, lent));
    expect(queue, EXS_EVT_SEND, 2, EPIPE);
    TRUE(close(pair[0]) == 0);
}

int main(int count, char **arguments)
{
    exs_mhandle_t registered, private_;
    unsigned char *pages;
    host = count > 1 ? arguments[1] : "127.0.0.1";
    OK(exs_init(EXS_VERSION));
    queue = exs_qcreate(64);
    TRUE(queue != EXS_QHANDLE_INVALID);
    in = shared(MUCH);
    out = shared(MUCH);
    fill(out, MUCH, 77);
    registered = exs_mregister(out, MUCH, 0);
    lent = exs_mregister(in, MUCH, 0);
    TRUE(registered > 0 && lent > 0);
    TRUE(same(out, MUCH, 77));
    much(0);
    much(registered);
    posted();
    pieces(count > 2 ? arguments[2] : "exs-file", 0);
    pieces(count > 2 ? arguments[2] : "exs-file", registered);
    connections();
    cancels();
    polls();
    datagrams();
    exs_mderegister(lent, 0);
    lent = registered;
    resets();
    /* Memory of one's own that may become shared; and registering what was registered before. */
    pages = mmap(NULL, MUCH, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    TRUE(pages != MAP_FAILED);
    fill(pages, MUCH, 9);
    private_ = exs_mregister(pages, MUCH, EXS_MRF_SHARED);
    TRUE(private_ > 0 && same(pages, MUCH, 9));
    OK(exs_mderegister(registered, 0));
    munmap(out, MUCH);
    out = pages;
    much(private_);
    OK(exs_mderegister(private_, 0));
    private_ = exs_mregister(pages, MUCH, 0);
    TRUE(private_ > 0);
    much(private_);
    OK(exs_mderegister(private_, 0));
    OK(exs_qdelete(queue));
    puts("fine");
    return 0;
}
