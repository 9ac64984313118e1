/* Wrong arguments: each call answers with the errno that its page says, and does nothing. */
#include "check.h"

static exs_qhandle_t queue;
static int pair[2], file;
static char buffer[64];

static void before_init(void)
{
    exs_event_t event;
    FAILS(EINVAL, exs_qcreate(8));
    FAILS(EBADF, exs_mregister(buffer, sizeof buffer, 0));
    FAILS(EBADF, exs_mderegister(1, 0));
    FAILS(EBADF, exs_qdequeue(1, &event, 1, NULL));
    FAILS(EBADF, exs_qdelete(1));
    FAILS(EBADF, exs_send(0, buffer, 1, 0, 1, 0, 0));
    FAILS(EBADF, exs_cancel(0, 0, EXS_CAF_FILDES));
    FAILS(EINVAL, exs_init(0));
    FAILS(EINVAL, exs_init(EXS_VERSION + 1));
    FAILS(EINVAL, exs_init(-1));
    OK(exs_init(EXS_VERSION));
    OK(exs_init(EXS_VERSION1));
}

static void queues(void)
{
    exs_event_t event;
    exs_signal_t signal_ = {EXS_SIG_ENABLE, 0};
    struct timeval negative = {-1, 0}, much = {0, 1000000};
    int depth = 0;
    size_t size = sizeof depth;
    exs_qhandle_t other;
    FAILS(EINVAL, exs_qcreate(0));
    FAILS(EINVAL, exs_qcreate(-5));
    FAILS(EINVAL, exs_qcreate(EXS_EVTVEC_MAX + 1));
    queue = exs_qcreate(EXS_EVTVEC_MAX);
    TRUE(queue > 0 && queue != EXS_QHANDLE_INVALID);
    for (int bad = -2; bad < 3; bad++) {
        FAILS(EBADF, exs_qdequeue(bad, &event, 1, NULL));
        FAILS(EBADF, exs_qdelete(bad));
        FAILS(EBADF, exs_qmodify(bad, EXS_QATTR_DEPTH, &depth, sizeof depth));
        FAILS(EBADF, exs_qstatus(bad, EXS_QATTR_DEPTH, &depth, &size));
    }
    FAILS(EFAULT, exs_qdequeue(queue, NULL, 1, NULL));
    FAILS(EINVAL, exs_qdequeue(queue, &event, EXS_EVTVEC_MAX + 1, NULL));
    FAILS(EINVAL, exs_qdequeue(queue, &event, INT32_MIN, NULL));
    FAILS(EINVAL, exs_qdequeue(queue, &event, 1, &negative));
    FAILS(EINVAL, exs_qdequeue(queue, &event, 1, &much));
    OK(exs_qdequeue(queue, NULL, 0, NULL));
    FAILS(EINVAL, exs_qmodify(queue, EXS_QATTR_DEPTH, &depth, sizeof depth));
    FAILS(EINVAL, exs_qmodify(queue, EXS_QATTR_DEPTH, &depth, 1));
    FAILS(EFAULT, exs_qmodify(queue, EXS_QATTR_DEPTH, NULL, sizeof depth));
    FAILS(EINVAL, exs_qmodify(queue, EXS_QATTR_EVENTS, &depth, sizeof depth));
    FAILS(EINVAL, exs_qmodify(queue, 99, &depth, sizeof depth));
    FAILS(EINVAL, exs_qmodify(queue, EXS_QATTR_SIGNAL, &signal_, sizeof signal_));
    signal_.exs_sig_number = 1000;
    FAILS(EINVAL, exs_qmodify(queue, EXS_QATTR_SIGNAL, &signal_, sizeof signal_));
    signal_.exs_sig_state = 7;
    FAILS(EINVAL, exs_qmodify(queue, EXS_QATTR_SIGNAL, &signal_, sizeof signal_));
    FAILS(EFAULT, exs_qstatus(queue, EXS_QATTR_DEPTH, NULL, &size));
    FAILS(EFAULT, exs_qstatus(queue, EXS_QATTR_DEPTH, &depth, NULL));
    FAILS(EINVAL, exs_qstatus(queue, 99, &depth, &size));
    size = 1;
    FAILS(EINVAL, exs_qstatus(queue, EXS_QATTR_DEPTH, &depth, &size));
    other = exs_qcreate(1);
    OK(exs_qdelete(other));
    FAILS(EBADF, exs_qdelete(other));
    FAILS(EBADF, exs_qdequeue(other, &event, 1, NULL));
    FAILS(EBADF, exs_send(pair[0], buffer, 1, 0, other, 0, 0));
}

static void memory(void)
{
    exs_mhandle_t handle;
    FAILS(EFAULT, exs_mregister(NULL, 10, 0));
    FAILS(EINVAL, exs_mregister(buffer, 0, 0));
    FAILS(EINVAL, exs_mregister(buffer, SIZE_MAX, 0));
    FAILS(EINVAL, exs_mregister(buffer, SIZE_MAX / 2, EXS_MRF_SHARED << 1));
    handle = exs_mregister(buffer + 8, 16, 0);
    TRUE(handle > 0 && handle != EXS_MHANDLE_INVALID && handle != EXS_MHANDLE_UNREGISTERED);
    FAILS(EFAULT, exs_send(pair[0], buffer, 8, 0, queue, 0, handle));
    FAILS(EFAULT, exs_send(pair[0], buffer + 8, 17, 0, queue, 0, handle));
    FAILS(EFAULT, exs_recv(pair[0], buffer + 23, 2, 0, queue, 0, handle));
    FAILS(EINVAL, exs_mderegister(handle, 1));
    FAILS(EBADF, exs_mderegister(0, 0));
    FAILS(EBADF, exs_mderegister(-1, 0));
    FAILS(EBADF, exs_mderegister(queue + 1, 0));
    /* In use while a receive waits. */
    OK(exs_recv(pair[0], buffer + 8, 16, 0, queue, 5, handle));
    FAILS(EBUSY, exs_mderegister(handle, 0));
    OK(exs_cancel(pair[0], 0, EXS_CAF_FILDES));
    expect(queue, EXS_EVT_RECV, 5, ECANCELED);
    OK(exs_mderegister(handle, 0));
    FAILS(EBADF, exs_mderegister(handle, 0));
    FAILS(EBADF, exs_send(pair[0], buffer + 8, 1, 0, queue, 0, handle));
    FAILS(EBADF, exs_send(pair[0], buffer + 8, 1, 0, queue, 0, EXS_MHANDLE_INVALID));
}

static void transfers(void)
{
    exs_iovec_t piece = {buffer, sizeof buffer, 0};
    exs_msghdr_t message;
    exs_xferfile_t part;
    memset(&message, 0, sizeof message);
    memset(&part, 0, sizeof part);
    FAILS(EBADF, exs_send(-1, buffer, 1, 0, queue, 0, 0));
    FAILS(EBADF, exs_send(1000000, buffer, 1, 0, queue, 0, 0));
    FAILS(ENOTSOCK, exs_send(file, buffer, 1, 0, queue, 0, 0));
    FAILS(EBADF, exs_send(pair[0], buffer, 1, 0, EXS_QHANDLE_INVALID, 0, 0));
    FAILS(EFAULT, exs_send(pair[0], NULL, 1, 0, queue, 0, 0));
    FAILS(EINVAL, exs_send(pair[0], buffer, SIZE_MAX, 0, queue, 0, 0));
    FAILS(EINVAL, exs_send(pair[0], buffer, 1, MSG_PEEK, queue, 0, 0));
    FAILS(EBADF, exs_recv(-1, buffer, 1, 0, queue, 0, 0));
    FAILS(ENOTSOCK, exs_recv(file, buffer, 1, 0, queue, 0, 0));
    FAILS(EBADF, exs_recv(pair[0], buffer, 1, 0, 0, 0, 0));
    FAILS(EFAULT, exs_recv(pair[0], NULL, 1, 0, queue, 0, 0));
    FAILS(EINVAL, exs_recv(pair[0], buffer, 1, MSG_MORE, queue, 0, 0));
    FAILS(EBADF, exs_recv(pair[0], buffer, 1, 0, queue, 0, 77));

    FAILS(EFAULT, exs_sendmsg(pair[0], NULL, 0, queue, 0));
    FAILS(EFAULT, exs_recvmsg(pair[0], NULL, 0, queue, 0));
    message.msg_iovlen = 1;
    FAILS(EFAULT, exs_sendmsg(pair[0], &message, 0, queue, 0));
    message.msg_iov = &piece;
    message.msg_iovlen = EXS_IOV_MAX + 1;
    FAILS(EINVAL, exs_sendmsg(pair[0], &message, 0, queue, 0));
    message.msg_iovlen = -1;
    FAILS(EINVAL, exs_recvmsg(pair[0], &message, 0, queue, 0));
    message.msg_iovlen = 1;
    FAILS(EINVAL, exs_sendmsg(pair[0], &message, MSG_WAITALL, queue, 0));
    FAILS(EINVAL, exs_recvmsg(pair[0], &message, MSG_EOR, queue, 0));
    piece.iov_mhandle = 3;
    FAILS(EBADF, exs_recvmsg(pair[0], &message, 0, queue, 0));
    piece.iov_mhandle = 0;
    piece.iov_base = NULL;
    FAILS(EFAULT, exs_sendmsg(pair[0], &message, 0, queue, 0));

    FAILS(EFAULT, exs_sendfile(pair[0], NULL, 1, 0, queue, 0));
    FAILS(EINVAL, exs_sendfile(pair[0], &part, 0, 0, queue, 0));
    FAILS(EINVAL, exs_sendfile(pair[0], &part, EXS_IOV_MAX + 1, 0, queue, 0));
    FAILS(EINVAL, exs_sendfile(pair[0], &part, 1, 0, queue, 0)); /* of no type */
    part.exs_xf_type = EXS_FDVEC;
    part.exs_xf_union.exs_xf_fdvec.fdv_fd = -1;
    FAILS(EBADF, exs_sendfile(pair[0], &part, 1, 0, queue, 0));
    part.exs_xf_union.exs_xf_fdvec.fdv_fd = file;
    part.exs_xf_union.exs_xf_fdvec.fdv_offset = -1;
    FAILS(EINVAL, exs_sendfile(pair[0], &part, 1, 0, queue, 0));
    part.exs_xf_union.exs_xf_fdvec.fdv_offset = 0;
    FAILS(EINVAL, exs_sendfile(pair[0], &part, 1, 1, queue, 0));
    part.exs_xf_union.exs_xf_fdvec.fdv_len = SIZE_MAX;
    FAILS(EINVAL, exs_sendfile(pair[0], &part, 1, 0, queue, 0));
}

static void connections(const char *host)
{
    struct sockaddr_in address = address_of(host, 1);
    exs_pollfd_t wanted = {0, EXS_POLLIN, 0};
    int fresh = socket(AF_INET, SOCK_STREAM, 0);
    FAILS(EBADF, exs_accept(-1, NULL, 0, queue, 0));
    FAILS(EINVAL, exs_accept(pair[0], NULL, 1, queue, 0));
    OK(exs_accept(pair[0], NULL, 0, queue, 6));
    TRUE(expect(queue, EXS_EVT_ACCEPT, 6, EINVAL).exs_evt_union.exs_evt_accept.exs_evt_newsocket == -1);
    FAILS(EFAULT, exs_connect(fresh, NULL, sizeof address, 0, queue, 0));
    FAILS(EINVAL, exs_connect(fresh, (struct sockaddr *)&address, 1000, 0, queue, 0));
    FAILS(EINVAL, exs_connect(fresh, (struct sockaddr *)&address, sizeof address, 1, queue, 0));
    FAILS(ENOTSOCK, exs_connect(file, (struct sockaddr *)&address, sizeof address, 0, queue, 0));
    OK(exs_connect(pair[0], (struct sockaddr *)&address, sizeof address, 0, queue, 7));
    expect(queue, EXS_EVT_CONNECT, 7, EISCONN);
    OK(exs_recv(fresh, buffer, 1, 0, queue, 8, 0));
    expect(queue, EXS_EVT_RECV, 8, ENOTCONN);
    OK(exs_shutdown(fresh, EXS_SHUT_WR, queue, 9));
    expect(queue, EXS_EVT_SHUTDOWN, 9, ENOTCONN);
    FAILS(EINVAL, exs_shutdown(pair[0], SHUT_RD, queue, 0));
    FAILS(EFAULT, exs_poll(NULL, 1, 0, queue, 0));
    FAILS(EINVAL, exs_poll(&wanted, 0, 0, queue, 0));
    FAILS(EINVAL, exs_poll(&wanted, 1, 1, queue, 0));
    FAILS(EBADF, exs_poll(&wanted, 1, 0, 0, 0));
    wanted.events = 0x100;
    FAILS(EINVAL, exs_poll(&wanted, 1, 0, queue, 0));
    wanted.events = EXS_POLLIN;
    wanted.fd = -1;
    FAILS(EINVAL, exs_poll(&wanted, 1, 0, queue, 0));
    wanted.fd = 1000000;
    OK(exs_poll(&wanted, 1, 0, queue, 10));
    expect(queue, EXS_EVT_POLL, 10, 0);
    TRUE(wanted.revents == POLLNVAL);
    FAILS(EINVAL, exs_cancel(pair[0], 0, 0));
    FAILS(EINVAL, exs_cancel(pair[0], 0, 4));
    FAILS(EBADF, exs_cancel(-1, 0, EXS_CAF_FILDES));
    OK(exs_cancel(-1, 99, EXS_CAF_AHANDLE));
    FAILS(EBADF, exs_close(-1, queue, 0));
    FAILS(EBADF, exs_close(fresh, 0, 0));
    FAILS(ENOTSOCK, exs_close(file, queue, 0));
    OK(exs_close(fresh, queue, 11));
    expect(queue, EXS_EVT_CLOSE, 11, 0);
    FAILS(EBADF, exs_close(fresh, queue, 0));
}

int main(int count, char **arguments)
{
    const char *host = count > 1 ? arguments[1] : "127.0.0.1";
    int waiting = 1;
    size_t size = sizeof waiting;
    connected(host, pair);
    file = open("/dev/null", O_RDWR);
    TRUE(file >= 0);
    before_init();
    queues();
    memory();
    transfers();
    connections(host);
    /* Nothing of all this has left an event, or an operation. */
    OK(exs_qstatus(queue, EXS_QATTR_EVENTS, &waiting, &size));
    TRUE(waiting == 0);
    OK(exs_qdelete(queue));
    puts("fine");
    return 0;
}
