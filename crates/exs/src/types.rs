//! Types and constants of the C interface.

use std::ffi::c_void;

use libc::{c_int, c_short, off_t, size_t, sockaddr, socklen_t, uintptr_t};

/// The first and only version of the interface.
pub const EXS_VERSION1: c_int = 1;
/// The version to ask for.
pub const EXS_VERSION: c_int = EXS_VERSION1;

/// No event queue.
pub const EXS_QHANDLE_INVALID: exs_qhandle_t = -1;
/// No registered memory: what exs_mregister answers when it fails.
pub const EXS_MHANDLE_INVALID: exs_mhandle_t = -1;
/// In place of a handle of registered memory: the bytes may lie anywhere.
pub const EXS_MHANDLE_UNREGISTERED: exs_mhandle_t = 0;

/// Of exs_mregister: the memory may become shared with other processes, forked children among them.
pub const EXS_MRF_SHARED: c_int = 1;

/// Of exs_qmodify and exs_qstatus, an int: how many operations and undequeued events the queue takes together.
pub const EXS_QATTR_DEPTH: c_int = 1;
/// Of exs_qmodify and exs_qstatus, an exs_signal_t: the signal that tells of events.
pub const EXS_QATTR_SIGNAL: c_int = 2;
/// Of exs_qstatus, an int: how many events wait to be dequeued.
pub const EXS_QATTR_EVENTS: c_int = 3;

/// Of exs_signal_t: no signal.
pub const EXS_SIG_DISABLE: c_int = 0;
/// Of exs_signal_t: a signal whenever the first event comes to an empty queue.
pub const EXS_SIG_ENABLE: c_int = 1;

/// Of exs_poll: a receive or an accept would not wait. The number is POLLIN's.
pub const EXS_POLLIN: c_short = 1;
/// Of exs_poll: a send would not wait. The number is POLLOUT's.
pub const EXS_POLLOUT: c_short = 4;

/// Of exs_xferfile_t: the piece is memory.
pub const EXS_IOVEC: c_int = 1;
/// Of exs_xferfile_t: the piece is of a file.
pub const EXS_FDVEC: c_int = 2;

/// Of exs_shutdown: sending ends. The number is SHUT_WR's.
pub const EXS_SHUT_WR: c_int = 1;

/// An exs_poll has found something.
pub const EXS_EVT_POLL: c_int = 1;
/// An exs_connect is done.
pub const EXS_EVT_CONNECT: c_int = 2;
/// An exs_accept is done.
pub const EXS_EVT_ACCEPT: c_int = 3;
/// An exs_send is done.
pub const EXS_EVT_SEND: c_int = 4;
/// An exs_recv is done.
pub const EXS_EVT_RECV: c_int = 5;
/// An exs_sendmsg is done.
pub const EXS_EVT_SENDMSG: c_int = 6;
/// An exs_recvmsg is done.
pub const EXS_EVT_RECVMSG: c_int = 7;
/// An exs_sendfile is done.
pub const EXS_EVT_SENDFILE: c_int = 8;
/// An exs_shutdown is done.
pub const EXS_EVT_SHUTDOWN: c_int = 9;
/// An exs_close is done.
pub const EXS_EVT_CLOSE: c_int = 10;

/// The most events that one exs_qdequeue waits for or gives, and the largest depth of a queue.
pub const EXS_EVTVEC_MAX: c_int = 65536;
/// The most pieces of one exs_sendmsg, exs_recvmsg or exs_sendfile.
pub const EXS_IOV_MAX: c_int = 1024;

/// Of exs_cancel: operations on this descriptor's socket.
pub const EXS_CAF_FILDES: c_int = 1;
/// Of exs_cancel: operations with this handle.
pub const EXS_CAF_AHANDLE: c_int = 2;

/// An event queue.
pub type exs_qhandle_t = c_int;
/// Registered memory.
pub type exs_mhandle_t = c_int;
/// What the program calls an operation by: the library only gives it back. A number, or a pointer that is cast to it.
pub type exs_ahandle_t = uintptr_t;

/// When exs_qdequeue need not be called to learn that events have come.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct exs_signal_t {
    /// EXS_SIG_ENABLE or EXS_SIG_DISABLE.
    pub exs_sig_state: c_int,
    /// The signal; it is sent to the process, with the queue's handle as its value (SA_SIGINFO, si_value.sival_int).
    pub exs_sig_number: c_int,
}

/// A piece of memory.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct exs_iovec_t {
    /// Its first byte.
    pub iov_base: *mut c_void,
    /// Bytes.
    pub iov_len: size_t,
    /// The registered memory that it lies in, or EXS_MHANDLE_UNREGISTERED.
    pub iov_mhandle: exs_mhandle_t,
}

/// A message for exs_sendmsg and exs_recvmsg. The fields are those of struct msghdr.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct exs_msghdr_t {
    /// An address, or NULL: where a datagram goes to, or where it came from.
    pub msg_name: *mut c_void,
    /// Bytes of the address; when a receive is done, its length.
    pub msg_namelen: socklen_t,
    /// The pieces.
    pub msg_iov: *mut exs_iovec_t,
    /// How many.
    pub msg_iovlen: c_int,
    /// Ancillary data, or NULL.
    pub msg_control: *mut c_void,
    /// Bytes of it; when a receive is done, how many came.
    pub msg_controllen: size_t,
    /// Set when a receive is done, as recvmsg sets it.
    pub msg_flags: c_int,
}

/// A piece of a file.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct exs_fdvec_t {
    /// The file. It may be closed once exs_sendfile has returned.
    pub fdv_fd: c_int,
    /// Where the piece begins. The file's own offset is not used.
    pub fdv_offset: off_t,
    /// Bytes.
    pub fdv_len: size_t,
}

/// What a piece of exs_sendfile is.
#[repr(C)]
#[derive(Clone, Copy)]
pub union exs_xferfile_union_t {
    /// Of type EXS_IOVEC.
    pub exs_xf_iovec: exs_iovec_t,
    /// Of type EXS_FDVEC.
    pub exs_xf_fdvec: exs_fdvec_t,
}

/// A piece of exs_sendfile: memory or of a file.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct exs_xferfile_t {
    /// EXS_IOVEC or EXS_FDVEC.
    pub exs_xf_type: c_int,
    /// The piece.
    pub exs_xf_union: exs_xferfile_union_t,
}

/// Room for a peer's address.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct exs_acceptaddr_t {
    /// The room.
    pub exs_acc_addr: *mut sockaddr,
    /// Its size; when the accept is done, the address's length.
    pub exs_acc_addrlen: socklen_t,
}

/// What exs_poll waits for. The layout is that of struct pollfd.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct exs_pollfd_t {
    /// The descriptor.
    pub fd: c_int,
    /// EXS_POLLIN, EXS_POLLOUT, or both.
    pub events: c_short,
    /// When the poll is done: which of these, and POLLERR, POLLHUP or POLLNVAL without being asked.
    pub revents: c_short,
}

/// What became of an exs_send or exs_recv.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct exs_evt_xfer_t {
    /// The buffer that was given.
    pub exs_evt_buffer: *mut c_void,
    /// Bytes sent or received. 0 of a receive from a stream: the peer has ended its direction.
    pub exs_evt_length: size_t,
    /// The handle of registered memory that was given.
    pub exs_evt_mhandle: exs_mhandle_t,
}

/// What became of an exs_sendmsg or exs_recvmsg.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct exs_evt_xfermsg_t {
    /// The message that was given.
    pub exs_evt_message: *mut exs_msghdr_t,
    /// Bytes sent or received.
    pub exs_evt_length: size_t,
}

/// What became of an exs_sendfile.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct exs_evt_xferfile_t {
    /// The pieces that were given.
    pub exs_evt_pieces: *mut exs_xferfile_t,
    /// Bytes sent.
    pub exs_evt_length: size_t,
}

/// What became of an exs_accept.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct exs_evt_accept_t {
    /// The descriptor of the connection; -1 if there is none.
    pub exs_evt_newsocket: c_int,
    /// The room that was given for the peer's address.
    pub exs_evt_address: *mut exs_acceptaddr_t,
}

/// What became of an exs_poll.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct exs_evt_poll_t {
    /// The list that was given.
    pub exs_evt_fds: *mut exs_pollfd_t,
    /// How many places of it have something in revents.
    pub exs_evt_count: c_int,
}

/// What became of an operation, by its type.
#[repr(C)]
#[derive(Clone, Copy)]
pub union exs_evt_union_t {
    /// EXS_EVT_SEND, EXS_EVT_RECV.
    pub exs_evt_xfer: exs_evt_xfer_t,
    /// EXS_EVT_SENDMSG, EXS_EVT_RECVMSG.
    pub exs_evt_xfermsg: exs_evt_xfermsg_t,
    /// EXS_EVT_SENDFILE.
    pub exs_evt_xferfile: exs_evt_xferfile_t,
    /// EXS_EVT_ACCEPT.
    pub exs_evt_accept: exs_evt_accept_t,
    /// EXS_EVT_POLL.
    pub exs_evt_poll: exs_evt_poll_t,
}

/// An event: an operation is done.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct exs_event_t {
    /// Of which kind: EXS_EVT_SEND and so on.
    pub exs_evt_type: c_int,
    /// 0, or why it failed, as errno has it. ECANCELED: exs_cancel or exs_close ended it.
    pub exs_evt_errno: c_int,
    /// The descriptor that was given; of an exs_poll, the first of the list that is ready.
    pub exs_evt_socket: c_int,
    /// The handle that was given.
    pub exs_evt_ahandle: exs_ahandle_t,
    /// What else there is to say.
    pub exs_evt_union: exs_evt_union_t,
}
