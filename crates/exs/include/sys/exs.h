/* The Extended Sockets API (ES-API, The Open Group, 2005): asynchronous calls on socket descriptors, with event queues and registered memory.
 *
 * This file is made from crates/exs/src by `cargo xtask header`. The guide, which also says what was taken from where and what is our own reading, is
 * docs/extended-sockets.md; each call has a man page.
 *
 * In short: a program makes its sockets as ever, by socket, bind, listen, and hands their descriptors to these calls. Each begins an operation and answers 0,
 * or answers -1 with errno when it did not begin. What becomes of the operation is told by one event on the queue that was named, with the ahandle that was
 * given. Memory that an operation names is the operation's until that event. Any descriptor of a socket will do: those that the kernel serves, and under
 * `sidecore run` those that an engine serves.
 *
 * Any thread may make any call; none may be made in a signal handler. A forked child has no part in what its parent began, and calls exs_init itself.
 */

#ifndef SYS_EXS_H
#define SYS_EXS_H

#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/types.h>

/* The first and only version of the interface. */
#define EXS_VERSION1 1

/* The version to ask for. */
#define EXS_VERSION EXS_VERSION1

/* Of exs_mregister: the memory may become shared with other processes, forked children among them. */
#define EXS_MRF_SHARED 1

/* Of exs_qmodify and exs_qstatus, an int: how many operations and undequeued events the queue takes together. */
#define EXS_QATTR_DEPTH 1

/* Of exs_qmodify and exs_qstatus, an exs_signal_t: the signal that tells of events. */
#define EXS_QATTR_SIGNAL 2

/* Of exs_qstatus, an int: how many events wait to be dequeued. */
#define EXS_QATTR_EVENTS 3

/* Of exs_signal_t: no signal. */
#define EXS_SIG_DISABLE 0

/* Of exs_signal_t: a signal whenever the first event comes to an empty queue. */
#define EXS_SIG_ENABLE 1

/* Of exs_poll: a receive or an accept would not wait. The number is POLLIN's. */
#define EXS_POLLIN 1

/* Of exs_poll: a send would not wait. The number is POLLOUT's. */
#define EXS_POLLOUT 4

/* Of exs_xferfile_t: the piece is memory. */
#define EXS_IOVEC 1

/* Of exs_xferfile_t: the piece is of a file. */
#define EXS_FDVEC 2

/* Of exs_shutdown: sending ends. The number is SHUT_WR's. */
#define EXS_SHUT_WR 1

/* An exs_poll has found something. */
#define EXS_EVT_POLL 1

/* An exs_connect is done. */
#define EXS_EVT_CONNECT 2

/* An exs_accept is done. */
#define EXS_EVT_ACCEPT 3

/* An exs_send is done. */
#define EXS_EVT_SEND 4

/* An exs_recv is done. */
#define EXS_EVT_RECV 5

/* An exs_sendmsg is done. */
#define EXS_EVT_SENDMSG 6

/* An exs_recvmsg is done. */
#define EXS_EVT_RECVMSG 7

/* An exs_sendfile is done. */
#define EXS_EVT_SENDFILE 8

/* An exs_shutdown is done. */
#define EXS_EVT_SHUTDOWN 9

/* An exs_close is done. */
#define EXS_EVT_CLOSE 10

/* The most events that one exs_qdequeue waits for or gives, and the largest depth of a queue. */
#define EXS_EVTVEC_MAX 65536

/* The most pieces of one exs_sendmsg, exs_recvmsg or exs_sendfile. */
#define EXS_IOV_MAX 1024

/* Of exs_cancel: operations on this descriptor's socket. */
#define EXS_CAF_FILDES 1

/* Of exs_cancel: operations with this handle. */
#define EXS_CAF_AHANDLE 2

/* Room for a peer's address. */
typedef struct exs_acceptaddr_t {
  /* The room. */
  struct sockaddr *exs_acc_addr;
  /* Its size; when the accept is done, the address's length. */
  socklen_t exs_acc_addrlen;
} exs_acceptaddr_t;

/* An event queue. */
typedef int exs_qhandle_t;

/* What the program calls an operation by: the library only gives it back. A number, or a pointer that is cast to it. */
typedef uintptr_t exs_ahandle_t;

/* What exs_poll waits for. The layout is that of struct pollfd. */
typedef struct exs_pollfd_t {
  /* The descriptor. */
  int fd;
  /* EXS_POLLIN, EXS_POLLOUT, or both. */
  short events;
  /* When the poll is done: which of these, and POLLERR, POLLHUP or POLLNVAL without being asked. */
  short revents;
} exs_pollfd_t;

/* Registered memory. */
typedef int exs_mhandle_t;

/* What became of an exs_send or exs_recv. */
typedef struct exs_evt_xfer_t {
  /* The buffer that was given. */
  void *exs_evt_buffer;
  /* Bytes sent or received. 0 of a receive from a stream: the peer has ended its direction. */
  size_t exs_evt_length;
  /* The handle of registered memory that was given. */
  exs_mhandle_t exs_evt_mhandle;
} exs_evt_xfer_t;

/* A piece of memory. */
typedef struct exs_iovec_t {
  /* Its first byte. */
  void *iov_base;
  /* Bytes. */
  size_t iov_len;
  /* The registered memory that it lies in, or EXS_MHANDLE_UNREGISTERED. */
  exs_mhandle_t iov_mhandle;
} exs_iovec_t;

/* A message for exs_sendmsg and exs_recvmsg. The fields are those of struct msghdr. */
typedef struct exs_msghdr_t {
  /* An address, or NULL: where a datagram goes to, or where it came from. */
  void *msg_name;
  /* Bytes of the address; when a receive is done, its length. */
  socklen_t msg_namelen;
  /* The pieces. */
  struct exs_iovec_t *msg_iov;
  /* How many. */
  int msg_iovlen;
  /* Ancillary data, or NULL. */
  void *msg_control;
  /* Bytes of it; when a receive is done, how many came. */
  size_t msg_controllen;
  /* Set when a receive is done, as recvmsg sets it. */
  int msg_flags;
} exs_msghdr_t;

/* What became of an exs_sendmsg or exs_recvmsg. */
typedef struct exs_evt_xfermsg_t {
  /* The message that was given. */
  struct exs_msghdr_t *exs_evt_message;
  /* Bytes sent or received. */
  size_t exs_evt_length;
} exs_evt_xfermsg_t;

/* A piece of a file. */
typedef struct exs_fdvec_t {
  /* The file. It may be closed once exs_sendfile has returned. */
  int fdv_fd;
  /* Where the piece begins. The file's own offset is not used. */
  off_t fdv_offset;
  /* Bytes. */
  size_t fdv_len;
} exs_fdvec_t;

/* What a piece of exs_sendfile is. */
typedef union exs_xferfile_union_t {
  /* Of type EXS_IOVEC. */
  struct exs_iovec_t exs_xf_iovec;
  /* Of type EXS_FDVEC. */
  struct exs_fdvec_t exs_xf_fdvec;
} exs_xferfile_union_t;

/* A piece of exs_sendfile: memory or of a file. */
typedef struct exs_xferfile_t {
  /* EXS_IOVEC or EXS_FDVEC. */
  int exs_xf_type;
  /* The piece. */
  union exs_xferfile_union_t exs_xf_union;
} exs_xferfile_t;

/* What became of an exs_sendfile. */
typedef struct exs_evt_xferfile_t {
  /* The pieces that were given. */
  struct exs_xferfile_t *exs_evt_pieces;
  /* Bytes sent. */
  size_t exs_evt_length;
} exs_evt_xferfile_t;

/* What became of an exs_accept. */
typedef struct exs_evt_accept_t {
  /* The descriptor of the connection; -1 if there is none. */
  int exs_evt_newsocket;
  /* The room that was given for the peer's address. */
  struct exs_acceptaddr_t *exs_evt_address;
} exs_evt_accept_t;

/* What became of an exs_poll. */
typedef struct exs_evt_poll_t {
  /* The list that was given. */
  struct exs_pollfd_t *exs_evt_fds;
  /* How many places of it have something in revents. */
  int exs_evt_count;
} exs_evt_poll_t;

/* What became of an operation, by its type. */
typedef union exs_evt_union_t {
  /* EXS_EVT_SEND, EXS_EVT_RECV. */
  struct exs_evt_xfer_t exs_evt_xfer;
  /* EXS_EVT_SENDMSG, EXS_EVT_RECVMSG. */
  struct exs_evt_xfermsg_t exs_evt_xfermsg;
  /* EXS_EVT_SENDFILE. */
  struct exs_evt_xferfile_t exs_evt_xferfile;
  /* EXS_EVT_ACCEPT. */
  struct exs_evt_accept_t exs_evt_accept;
  /* EXS_EVT_POLL. */
  struct exs_evt_poll_t exs_evt_poll;
} exs_evt_union_t;

/* An event: an operation is done. */
typedef struct exs_event_t {
  /* Of which kind: EXS_EVT_SEND and so on. */
  int exs_evt_type;
  /* 0, or why it failed, as errno has it. ECANCELED: exs_cancel or exs_close ended it. */
  int exs_evt_errno;
  /* The descriptor that was given; of an exs_poll, the first of the list that is ready. */
  int exs_evt_socket;
  /* The handle that was given. */
  exs_ahandle_t exs_evt_ahandle;
  /* What else there is to say. */
  union exs_evt_union_t exs_evt_union;
} exs_event_t;

/* When exs_qdequeue need not be called to learn that events have come. */
typedef struct exs_signal_t {
  /* EXS_SIG_ENABLE or EXS_SIG_DISABLE. */
  int exs_sig_state;
  /* The signal; it is sent to the process, with the queue's handle as its value (SA_SIGINFO, si_value.sival_int). */
  int exs_sig_number;
} exs_signal_t;

/* No event queue. */
#define EXS_QHANDLE_INVALID -1

/* No registered memory: what exs_mregister answers when it fails. */
#define EXS_MHANDLE_INVALID -1

/* In place of a handle of registered memory: the bytes may lie anywhere. */
#define EXS_MHANDLE_UNREGISTERED 0

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/*
 * Takes a connection. The event EXS_EVT_ACCEPT has its descriptor. Several may be posted.
 *
 * Parameters:
 * - `socket`: a descriptor of a socket that listens
 * - `address`: room for the peer's address, which is the operation's until the event, or NULL
 * - `flags`: 0
 * - `qhandle`: the queue for the event
 * - `ahandle`: given back in the event
 *
 * Errors: as exs_send; EINVAL for flags. The event says EINVAL for a socket that does not listen.
 *
 * Blocking: no.
 *
 * Origin: the types' names are in a public editor's list of the interface's words; the rest is our reading.
 *
 * Pointers:
 * `address` is NULL, or points to such room, until the event.
 */
int exs_accept(int socket, struct exs_acceptaddr_t *address, int flags, exs_qhandle_t qhandle, exs_ahandle_t ahandle);

/*
 * Connects. The event EXS_EVT_CONNECT tells how it ended. Operations that are posted on the socket meanwhile wait for that.
 *
 * Parameters:
 * - `socket`: a descriptor of the socket
 * - `address`: the peer's address; it may go once the call has returned
 * - `address_len`: its length
 * - `flags`: 0
 * - `qhandle`: the queue for the event
 * - `ahandle`: given back in the event
 *
 * Errors: as exs_send; EFAULT for NULL; EINVAL for flags or a length that no address has. The event says why there is no connection: ECONNREFUSED and so on.
 *
 * Blocking: no.
 *
 * Origin: our reading, after connect(2).
 *
 * Pointers:
 * `address` is NULL, or points to `address_len` bytes.
 */
int exs_connect(int socket,
                const struct sockaddr *address,
                socklen_t address_len,
                int flags,
                exs_qhandle_t qhandle,
                exs_ahandle_t ahandle);

/*
 * Waits for descriptors. The event EXS_EVT_POLL comes when the first of them is ready, and says how many are; the list's revents say which, and what
 * for. It comes once: poll again for more.
 *
 * Parameters:
 * - `fds`: the list, which is the operation's until the event. Any descriptor that poll(2) and epoll take
 * - `nfds`: how many, 1 to EXS_EVTVEC_MAX. A negative descriptor is passed over
 * - `flags`: 0
 * - `qhandle`: the queue for the event
 * - `ahandle`: given back in the event
 *
 * Errors: EAGAIN when the queue is full; EBADF for what is no queue, or before exs_init; EFAULT for NULL; EINVAL for another count, flags, or events that
 * are not EXS_POLLIN and EXS_POLLOUT, or when there is nothing to wait for; EMFILE, ENFILE or ENOMEM when the library has no descriptors to wait with. A
 * descriptor that is not open is found ready (POLLNVAL).
 *
 * Blocking: no.
 *
 * Origin: the types' names are in a public editor's list of the interface's words; the rest is our reading.
 *
 * Pointers:
 * `fds` is NULL, or points to `nfds` places, until the event.
 */
int exs_poll(struct exs_pollfd_t *fds,
             int nfds,
             int flags,
             exs_qhandle_t qhandle,
             exs_ahandle_t ahandle);

/*
 * Ends sending, after all that was posted on the socket before: the peer sees the end. The event is EXS_EVT_SHUTDOWN.
 *
 * Parameters:
 * - `socket`: a descriptor of the socket
 * - `how`: EXS_SHUT_WR
 * - `qhandle`: the queue for the event
 * - `ahandle`: given back in the event
 *
 * Errors: as exs_send; EINVAL for another way. The event says ENOTCONN where there is no connection.
 *
 * Blocking: no.
 *
 * Origin: EXS_SHUT_WR and EXS_EVT_SHUTDOWN are in a public editor's list of the interface's words; the call is our reading.
 */
int exs_shutdown(int socket,
                 int how,
                 exs_qhandle_t qhandle,
                 exs_ahandle_t ahandle);

/*
 * Closes a descriptor, after all sends that were posted on its socket before; receives, accepts and polls that wait end with ECANCELED. The event is
 * EXS_EVT_CLOSE. The number must not be used after the call.
 *
 * Parameters:
 * - `socket`: the descriptor
 * - `qhandle`: the queue for the event
 * - `ahandle`: given back in the event
 *
 * Errors: as exs_send. The event says EBADF if the program has closed the descriptor by itself meanwhile.
 *
 * Blocking: no.
 *
 * Origin: EXS_EVT_CLOSE is in a public editor's list of the interface's words; the call is our reading.
 */
int exs_close(int socket,
              exs_qhandle_t qhandle,
              exs_ahandle_t ahandle);

/*
 * Begins to use the interface: to be called before any other call. Calling it again does nothing. A forked child calls it anew: it has no part in its
 * parent's queues, memory and operations.
 *
 * Parameters:
 * - `version`: EXS_VERSION
 *
 * Errors: EINVAL for a version that is not known; EMFILE, ENFILE, EAGAIN or ENOMEM when the library cannot have its descriptors and its thread.
 *
 * Blocking: no.
 *
 * Origin: call and constant are in netperf, with -1 for failure.
 */
int exs_init(int version);

/*
 * Registers memory, for operations to name. It must stay mapped until exs_mderegister.
 *
 * With the kernel's sockets this says where an operation's bytes may lie, and no more. On sockets of a Sidecore engine, sends from memory of this kind go
 * without a copy: memory that is mapped MAP_SHARED | MAP_ANONYMOUS, and begins at a page; or, with EXS_MRF_SHARED, whole pages of any anonymous
 * mapping. To that end the memory may be moved to other pages at the same addresses during this call. So nothing may write to it meanwhile, and
 * processes that shared it before (children forked already) share it no more. Memory of any other kind is copied.
 *
 * Parameters:
 * - `addr`: its first byte
 * - `len`: bytes
 * - `flags`: 0 or EXS_MRF_SHARED
 *
 * Errors: the answer is a handle, which is positive, or EXS_MHANDLE_INVALID. EFAULT for NULL; EINVAL for no bytes, more than an address space has, or
 * unknown flags; EBADF before exs_init; ENFILE when 65534 are registered.
 *
 * Blocking: for the time of copying the memory, where it is moved.
 *
 * Origin: call and EXS_MHANDLE_INVALID are in netperf; what EXS_MRF_SHARED means is our reading.
 *
 * Pointers:
 * `addr` points to `len` bytes.
 */
exs_mhandle_t exs_mregister(void *addr,
                            size_t len,
                            int flags);

/*
 * Ends a registration. The memory stays as it is.
 *
 * Parameters:
 * - `mhandle`: what exs_mregister answered
 * - `flags`: 0
 *
 * Errors: EBADF for what is no such handle; EBUSY while operations use it, which their events end; EINVAL for unknown flags.
 *
 * Blocking: no.
 *
 * Origin: our reading, beside exs_mregister.
 */
int exs_mderegister(exs_mhandle_t mhandle,
                    int flags);

/*
 * Ends operations that are under way. Each of them has its event, as any other: with errno ECANCELED, and how much was sent or received before. A send
 * that the engine has already goes on, and a send that has been sent in part leaves the peer without the rest.
 *
 * Parameters:
 * - `socket`: a descriptor of the socket; not looked at without EXS_CAF_FILDES
 * - `ahandle`: the operations' handle; not looked at without EXS_CAF_AHANDLE
 * - `flags`: EXS_CAF_FILDES for the operations of that socket (an exs_poll whose list names it among them), EXS_CAF_AHANDLE for those with that
 * handle, both for those that are both
 *
 * Errors: 0 also when there was nothing to end. EINVAL for no flags or unknown ones; EBADF for a descriptor that is not open, or before exs_init.
 *
 * Blocking: no.
 *
 * Origin: the names of the flags are in a public editor's list of the interface's words; the call is our reading.
 */
int exs_cancel(int socket,
               exs_ahandle_t ahandle,
               int flags);

/*
 * Makes an event queue. Operations on any number of sockets may name it, and any thread may dequeue.
 *
 * Parameters:
 * - `depth`: how many operations and undequeued events it takes together, 1 to EXS_EVTVEC_MAX. One more is refused with EAGAIN, so no event is
 * ever lost
 *
 * Errors: the answer is a handle, which is positive, or EXS_QHANDLE_INVALID. EINVAL for such a depth, or before exs_init; ENFILE when there are 65534.
 *
 * Blocking: no.
 *
 * Origin: call and EXS_QHANDLE_INVALID are in netperf, which goes on after EAGAIN as flow control.
 */
exs_qhandle_t exs_qcreate(int depth);

/*
 * Changes an attribute of a queue.
 *
 * Parameters:
 * - `qhandle`: the queue
 * - `attribute`: EXS_QATTR_DEPTH, an int; or EXS_QATTR_SIGNAL, an exs_signal_t
 * - `value`: the value
 * - `size`: its size in bytes
 *
 * Errors: EBADF for what is no queue; EFAULT for NULL; EINVAL for another attribute, size or value, or a signal that does not exist; EBUSY for a depth
 * below what is under way.
 *
 * Blocking: no.
 *
 * Origin: the attributes' names are in a public editor's list of the interface's words; the rest is our reading.
 *
 * Pointers:
 * `value` is NULL, or points to `size` bytes.
 */
int exs_qmodify(exs_qhandle_t qhandle,
                int attribute,
                const void *value,
                size_t size);

/*
 * Tells an attribute of a queue.
 *
 * Parameters:
 * - `qhandle`: the queue
 * - `attribute`: EXS_QATTR_DEPTH or EXS_QATTR_EVENTS, an int; or EXS_QATTR_SIGNAL, an exs_signal_t
 * - `value`: where it goes
 * - `size`: bytes there are; afterwards, bytes that were stored
 *
 * Errors: EBADF for what is no queue; EFAULT for NULL; EINVAL for another attribute, or too little room.
 *
 * Blocking: no.
 *
 * Origin: our reading, beside exs_qmodify.
 *
 * Pointers:
 * Each pointer is NULL, or points to what is said of it.
 */
int exs_qstatus(exs_qhandle_t qhandle, int attribute, void *value, size_t *size);

/*
 * Takes events out of a queue, oldest first, and waits for them. Events of operations on one socket and in one direction come in the order in which
 * the operations were posted; others in any order.
 *
 * Parameters:
 * - `qhandle`: the queue
 * - `evtvec`: room for the events
 * - `evtvec_count`: how many events there is room for. A positive number waits for one event at least; a negative number is a threshold: it waits for as many
 * as there is room for. 0 takes nothing and does not wait
 * - `timeout`: how long to wait at most, or NULL for any time. When it has passed, what is there is taken
 *
 * Errors: the answer is how many events were taken, or -1. EINTR when a signal handler ran while it waited (with a timeout after every handler, without
 * one after those that were installed without SA_RESTART): no event was taken. EBADF for what is no queue, or one that another thread deletes meanwhile;
 * EFAULT for NULL; EINVAL for a count beyond EXS_EVTVEC_MAX or a timeout that is none.
 *
 * Blocking: until there are enough events, the timeout or a signal.
 *
 * Origin: netperf, which passes minus half the number of its outstanding sends as threshold, NULL for the timeout, and takes EINTR for the end of
 * its time. That the timeout is a struct timeval is our reading.
 *
 * Pointers:
 * `evtvec` is NULL or has room for as many events as is said; `timeout` is NULL or points to a timeval.
 */
int exs_qdequeue(exs_qhandle_t qhandle,
                 struct exs_event_t *evtvec,
                 int evtvec_count,
                 const struct timeval *timeout);

/*
 * Ends a queue. Events that were not dequeued are dropped; threads that wait in exs_qdequeue get EBADF.
 *
 * Parameters:
 * - `qhandle`: the queue
 *
 * Errors: EBADF for what is no queue; EBUSY while operations that name it are under way.
 *
 * Blocking: no.
 *
 * Origin: our reading, beside exs_qcreate.
 */
int exs_qdelete(exs_qhandle_t qhandle);

/*
 * Sends bytes. The event EXS_EVT_SEND comes when all of them were taken over: by the system, or, where they go from registered memory to an engine without a
 * copy, when the peer has acknowledged them. Until then they must stay as they are. No signal SIGPIPE is sent: the event says EPIPE.
 *
 * Sends on one socket go out in the order in which they were posted. One that fails does not end those behind it.
 *
 * Parameters:
 * - `socket`: a descriptor of the socket, whether it waits or not (O_NONBLOCK) otherwise. It may be closed meanwhile: what was posted goes on
 * - `buffer`: the bytes
 * - `length`: how many
 * - `flags`: as send(2) has them: MSG_OOB, MSG_DONTROUTE, MSG_EOR, MSG_MORE, MSG_NOSIGNAL
 * - `qhandle`: the queue for the event
 * - `ahandle`: given back in the event
 * - `mhandle`: the registered memory that the bytes lie in, or EXS_MHANDLE_UNREGISTERED
 *
 * Errors: EAGAIN when the queue is full: dequeue events first. EBADF for what is no open descriptor, queue or memory, or before exs_init; ENOTSOCK; EFAULT
 * for NULL, or bytes that do not lie in the registered memory; EINVAL for other flags; EMFILE, ENFILE or ENOMEM when the library has no descriptor to wait
 * with. Whatever else goes wrong, the event says.
 *
 * Blocking: no.
 *
 * Origin: netperf, whose call has these arguments in this order, 0 for success and EAGAIN for a full queue.
 *
 * Pointers:
 * `buffer` points to `length` bytes, until the event.
 */
int exs_send(int socket,
             const void *buffer,
             size_t length,
             int flags,
             exs_qhandle_t qhandle,
             exs_ahandle_t ahandle,
             exs_mhandle_t mhandle);

/*
 * Receives bytes. The event EXS_EVT_RECV comes when there are some (with MSG_WAITALL, when the buffer is full), or the peer has ended its
 * direction, which is told by a length of 0. Several may be posted: they are filled in the order in which they were.
 *
 * Parameters:
 * - `socket`: as with exs_send
 * - `buffer`: where the bytes go. It is the operation's until the event
 * - `length`: how many there is room for
 * - `flags`: as recv(2) has them: MSG_OOB, MSG_PEEK, MSG_TRUNC, MSG_WAITALL
 * - `qhandle`: the queue for the event
 * - `ahandle`: given back in the event
 * - `mhandle`: the registered memory that the buffer lies in, or EXS_MHANDLE_UNREGISTERED
 *
 * Errors: as exs_send.
 *
 * Blocking: no.
 *
 * Origin: our reading, after exs_send.
 *
 * Pointers:
 * `buffer` points to room for `length` bytes, until the event.
 */
int exs_recv(int socket,
             void *buffer,
             size_t length,
             int flags,
             exs_qhandle_t qhandle,
             exs_ahandle_t ahandle,
             exs_mhandle_t mhandle);

/*
 * Sends the pieces of a message as one. The event is EXS_EVT_SENDMSG; otherwise as exs_send.
 *
 * Parameters:
 * - `socket`: as with exs_send
 * - `message`: the pieces, each with its memory; a datagram's address; ancillary data. What it names is the operation's until the event
 * - `flags`: as with exs_send
 * - `qhandle`: the queue for the event
 * - `ahandle`: given back in the event
 *
 * Errors: as exs_send; EINVAL for more than EXS_IOV_MAX pieces.
 *
 * Blocking: no.
 *
 * Origin: the types' names are in a public editor's list of the interface's words; the rest is our reading.
 *
 * Pointers:
 * `message` is NULL, or points to a message whose pointers are what its fields say, until the event.
 */
int exs_sendmsg(int socket,
                const struct exs_msghdr_t *message,
                int flags,
                exs_qhandle_t qhandle,
                exs_ahandle_t ahandle);

/*
 * Receives into the pieces of a message, one after the other. The event is EXS_EVT_RECVMSG; otherwise as exs_recv. Before it comes, the message's
 * msg_namelen, msg_controllen and msg_flags are set, as recvmsg(2) sets them.
 *
 * Parameters:
 * - `socket`: as with exs_send
 * - `message`: the pieces, each with its memory; room for a datagram's address and for ancillary data. All of it is the operation's until the event
 * - `flags`: as with exs_recv
 * - `qhandle`: the queue for the event
 * - `ahandle`: given back in the event
 *
 * Errors: as exs_send; EINVAL for more than EXS_IOV_MAX pieces.
 *
 * Blocking: no.
 *
 * Origin: as exs_sendmsg.
 *
 * Pointers:
 * `message` is NULL, or points to a message whose pointers are what its fields say, until the event.
 */
int exs_recvmsg(int socket,
                struct exs_msghdr_t *message,
                int flags,
                exs_qhandle_t qhandle,
                exs_ahandle_t ahandle);

/*
 * Sends pieces of memory and of files, one after the other. The event EXS_EVT_SENDFILE comes when all was taken over, or a file turned out to be
 * shorter than was said: then with what was sent until there.
 *
 * Parameters:
 * - `socket`: as with exs_send, of a stream
 * - `pieces`: the pieces. The list may go once the call has returned, the memory of its pieces when the event has come
 * - `count`: how many, 1 to EXS_IOV_MAX
 * - `flags`: 0
 * - `qhandle`: the queue for the event
 * - `ahandle`: given back in the event
 *
 * Errors: as exs_send; EBADF for a file that is not open; EINVAL for another count, flags, a type of piece that is none, or a negative offset.
 *
 * Blocking: as far as reading a file waits for a disk; the library's thread then waits, too.
 *
 * Origin: the types' names are in a public editor's list of the interface's words; the rest is our reading.
 *
 * Pointers:
 * `pieces` is NULL, or points to `count` pieces; memory that they name stays until the event.
 */
int exs_sendfile(int socket,
                 const struct exs_xferfile_t *pieces,
                 int count,
                 int flags,
                 exs_qhandle_t qhandle,
                 exs_ahandle_t ahandle);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* SYS_EXS_H */
