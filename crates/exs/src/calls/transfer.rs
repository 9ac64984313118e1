//! Sends and receives.

use std::ffi::c_void;

use libc::{c_int, size_t};
use rustix::io::Errno;

use super::Given;
use crate::boundary::{self, bytes, call};
use crate::operation::{Part, Piece, Pieces, Work};
use crate::process::Kept;
use crate::queue::Detail;
use crate::sys::{self, Beside};
use crate::types::{
    EXS_FDVEC, EXS_IOV_MAX, EXS_IOVEC, exs_ahandle_t, exs_iovec_t, exs_mhandle_t, exs_msghdr_t,
    exs_qhandle_t, exs_xferfile_t,
};

const SEND_FLAGS: c_int =
    libc::MSG_OOB | libc::MSG_DONTROUTE | libc::MSG_EOR | libc::MSG_MORE | libc::MSG_NOSIGNAL;
const RECEIVE_FLAGS: c_int = libc::MSG_OOB | libc::MSG_PEEK | libc::MSG_TRUNC | libc::MSG_WAITALL;
/// With these the engine may have a send as it is.
const DIRECT_FLAGS: c_int = libc::MSG_MORE | libc::MSG_NOSIGNAL;

fn send_of(pieces: Vec<Piece>, beside: Beside, flags: c_int) -> Work {
    let pieces = Pieces::new(pieces);
    let plain = beside.name == 0 && beside.control == 0 && flags & !DIRECT_FLAGS == 0;
    Work::Send {
        direct: plain && pieces.are_lent(),
        pieces,
        beside,
        flags,
    }
}

/// `message`: where its header is, to be filled in; 0: nowhere.
fn receive_of(pieces: Vec<Piece>, beside: Beside, flags: c_int, message: usize) -> Work {
    Work::Receive {
        pieces: Pieces::new(pieces),
        beside,
        flags,
        message,
    }
}

/// What the event tells of a buffer, but for the length.
fn transfer(buffer: *const c_void, memory: exs_mhandle_t) -> Detail {
    Detail::Transfer {
        buffer: buffer as usize,
        len: 0,
        memory,
    }
}

/// The same of a message.
fn told_of(message: *const exs_msghdr_t) -> Detail {
    Detail::Message {
        message: message as usize,
        len: 0,
    }
}

/// Sends bytes. The event EXS_EVT_SEND comes when all of them were taken over: by the system, or, where they go from registered memory to an engine without a
/// copy, when the peer has acknowledged them. Until then they must stay as they are. No signal SIGPIPE is sent: the event says EPIPE.
///
/// Sends on one socket go out in the order in which they were posted. One that fails does not end those behind it.
///
/// Parameters:
/// - `socket`: a descriptor of the socket, whether it waits or not (O_NONBLOCK) otherwise. It may be closed meanwhile: what was posted goes on
/// - `buffer`: the bytes
/// - `length`: how many
/// - `flags`: as send(2) has them: MSG_OOB, MSG_DONTROUTE, MSG_EOR, MSG_MORE, MSG_NOSIGNAL
/// - `qhandle`: the queue for the event
/// - `ahandle`: given back in the event
/// - `mhandle`: the registered memory that the bytes lie in, or EXS_MHANDLE_UNREGISTERED
///
/// Errors: EAGAIN when the queue is full: dequeue events first. EBADF for what is no open descriptor, queue or memory, or before exs_init; ENOTSOCK; EFAULT
/// for NULL, or bytes that do not lie in the registered memory; EINVAL for other flags; EMFILE, ENFILE or ENOMEM when the library has no descriptor to wait
/// with. Whatever else goes wrong, the event says.
///
/// Blocking: no.
///
/// Origin: netperf, whose call has these arguments in this order, 0 for success and EAGAIN for a full queue.
///
/// # Safety
/// `buffer` points to `length` bytes, until the event.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn exs_send(
    socket: c_int,
    buffer: *const c_void,
    length: size_t,
    flags: c_int,
    qhandle: exs_qhandle_t,
    ahandle: exs_ahandle_t,
    mhandle: exs_mhandle_t,
) -> c_int {
    call(|| {
        let given = Given::new(socket, qhandle, ahandle)?.with(flags, SEND_FLAGS)?;
        let piece = given.piece(bytes(buffer, length)?, mhandle)?;
        let work = send_of(vec![piece], Beside::default(), flags);
        given.post(work, transfer(buffer, mhandle))
    })
}

/// Receives bytes. The event EXS_EVT_RECV comes when there are some (with MSG_WAITALL, when the buffer is full), or the peer has ended its
/// direction, which is told by a length of 0. Several may be posted: they are filled in the order in which they were.
///
/// Parameters:
/// - `socket`: as with exs_send
/// - `buffer`: where the bytes go. It is the operation's until the event
/// - `length`: how many there is room for
/// - `flags`: as recv(2) has them: MSG_OOB, MSG_PEEK, MSG_TRUNC, MSG_WAITALL
/// - `qhandle`: the queue for the event
/// - `ahandle`: given back in the event
/// - `mhandle`: the registered memory that the buffer lies in, or EXS_MHANDLE_UNREGISTERED
///
/// Errors: as exs_send.
///
/// Blocking: no.
///
/// Origin: our reading, after exs_send.
///
/// # Safety
/// `buffer` points to room for `length` bytes, until the event.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn exs_recv(
    socket: c_int,
    buffer: *mut c_void,
    length: size_t,
    flags: c_int,
    qhandle: exs_qhandle_t,
    ahandle: exs_ahandle_t,
    mhandle: exs_mhandle_t,
) -> c_int {
    call(|| {
        let given = Given::new(socket, qhandle, ahandle)?.with(flags, RECEIVE_FLAGS)?;
        let piece = given.piece(bytes(buffer, length)?, mhandle)?;
        let work = receive_of(vec![piece], Beside::default(), flags, 0);
        given.post(work, transfer(buffer, mhandle))
    })
}

/// The pieces of a message, and what is beside them.
///
/// # Safety
/// It is NULL, or points to a message.
unsafe fn message(
    given: &Given,
    message: *const exs_msghdr_t,
) -> Result<(Vec<Piece>, Beside), Errno> {
    // SAFETY: as the caller promises.
    let header = unsafe { boundary::read(message) }?;
    let list: Vec<exs_iovec_t> = match header.msg_iovlen {
        0 => Vec::new(),
        // SAFETY: a message's list has as many pieces as it says.
        count => unsafe { boundary::list(header.msg_iov, count, EXS_IOV_MAX) }?,
    };
    let mut total = 0usize;
    let pieces = list.iter().map(|piece| {
        total = total.checked_add(piece.iov_len).ok_or(Errno::INVAL)?;
        given.piece(bytes(piece.iov_base, piece.iov_len)?, piece.iov_mhandle)
    });
    let pieces: Result<Vec<Piece>, Errno> = pieces.collect();
    let pieces = pieces?;
    if total > isize::MAX as usize {
        return Err(Errno::INVAL);
    }
    let beside = Beside {
        name: header.msg_name as usize,
        name_len: if header.msg_name.is_null() {
            0
        } else {
            header.msg_namelen
        },
        control: header.msg_control as usize,
        control_len: if header.msg_control.is_null() {
            0
        } else {
            header.msg_controllen
        },
    };
    Ok((pieces, beside))
}

/// Sends the pieces of a message as one. The event is EXS_EVT_SENDMSG; otherwise as exs_send.
///
/// Parameters:
/// - `socket`: as with exs_send
/// - `message`: the pieces, each with its memory; a datagram's address; ancillary data. What it names is the operation's until the event
/// - `flags`: as with exs_send
/// - `qhandle`: the queue for the event
/// - `ahandle`: given back in the event
///
/// Errors: as exs_send; EINVAL for more than EXS_IOV_MAX pieces.
///
/// Blocking: no.
///
/// Origin: the types' names are in a public editor's list of the interface's words; the rest is our reading.
///
/// # Safety
/// `message` is NULL, or points to a message whose pointers are what its fields say, until the event.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn exs_sendmsg(
    socket: c_int,
    message: *const exs_msghdr_t,
    flags: c_int,
    qhandle: exs_qhandle_t,
    ahandle: exs_ahandle_t,
) -> c_int {
    call(|| {
        let given = Given::new(socket, qhandle, ahandle)?.with(flags, SEND_FLAGS)?;
        // SAFETY: as the caller promises.
        let (pieces, beside) = unsafe { self::message(&given, message) }?;
        given.post(send_of(pieces, beside, flags), told_of(message))
    })
}

/// Receives into the pieces of a message, one after the other. The event is EXS_EVT_RECVMSG; otherwise as exs_recv. Before it comes, the message's
/// msg_namelen, msg_controllen and msg_flags are set, as recvmsg(2) sets them.
///
/// Parameters:
/// - `socket`: as with exs_send
/// - `message`: the pieces, each with its memory; room for a datagram's address and for ancillary data. All of it is the operation's until the event
/// - `flags`: as with exs_recv
/// - `qhandle`: the queue for the event
/// - `ahandle`: given back in the event
///
/// Errors: as exs_send; EINVAL for more than EXS_IOV_MAX pieces.
///
/// Blocking: no.
///
/// Origin: as exs_sendmsg.
///
/// # Safety
/// `message` is NULL, or points to a message whose pointers are what its fields say, until the event.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn exs_recvmsg(
    socket: c_int,
    message: *mut exs_msghdr_t,
    flags: c_int,
    qhandle: exs_qhandle_t,
    ahandle: exs_ahandle_t,
) -> c_int {
    call(|| {
        let given = Given::new(socket, qhandle, ahandle)?.with(flags, RECEIVE_FLAGS)?;
        // SAFETY: as the caller promises.
        let (pieces, beside) = unsafe { self::message(&given, message) }?;
        let work = receive_of(pieces, beside, flags, message as usize);
        given.post(work, told_of(message))
    })
}

/// Sends pieces of memory and of files, one after the other. The event EXS_EVT_SENDFILE comes when all was taken over, or a file turned out to be
/// shorter than was said: then with what was sent until there.
///
/// Parameters:
/// - `socket`: as with exs_send, of a stream
/// - `pieces`: the pieces. The list may go once the call has returned, the memory of its pieces when the event has come
/// - `count`: how many, 1 to EXS_IOV_MAX
/// - `flags`: 0
/// - `qhandle`: the queue for the event
/// - `ahandle`: given back in the event
///
/// Errors: as exs_send; EBADF for a file that is not open; EINVAL for another count, flags, a type of piece that is none, or a negative offset.
///
/// Blocking: as far as reading a file waits for a disk; the library's thread then waits, too.
///
/// Origin: the types' names are in a public editor's list of the interface's words; the rest is our reading.
///
/// # Safety
/// `pieces` is NULL, or points to `count` pieces; memory that they name stays until the event.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn exs_sendfile(
    socket: c_int,
    pieces: *const exs_xferfile_t,
    count: c_int,
    flags: c_int,
    qhandle: exs_qhandle_t,
    ahandle: exs_ahandle_t,
) -> c_int {
    call(|| {
        let given = Given::new(socket, qhandle, ahandle)?.with(flags, 0)?;
        // SAFETY: as the caller promises.
        let list = unsafe { boundary::list(pieces, count, EXS_IOV_MAX) }?;
        let part = |piece: &exs_xferfile_t| match piece.exs_xf_type {
            EXS_IOVEC => {
                // SAFETY: the type says which member is set; any bytes are one.
                let memory = unsafe { piece.exs_xf_union.exs_xf_iovec };
                let bytes = bytes(memory.iov_base, memory.iov_len)?;
                given.piece(bytes, memory.iov_mhandle).map(Part::Memory)
            }
            EXS_FDVEC => {
                // SAFETY: as above.
                let file = unsafe { piece.exs_xf_union.exs_xf_fdvec };
                let end = (file.fdv_len as u64).checked_add_signed(file.fdv_offset);
                if file.fdv_offset < 0 || end.is_none_or(|end| end > i64::MAX as u64) {
                    return Err(Errno::INVAL);
                }
                Ok(Part::File {
                    file: Kept::new(|| sys::duplicate(file.fdv_fd))?,
                    offset: file.fdv_offset,
                    len: file.fdv_len,
                })
            }
            _ => Err(Errno::INVAL),
        };
        let parts: Result<Vec<Part>, Errno> = list.iter().map(part).collect();
        let detail = Detail::File {
            pieces: pieces as usize,
            len: 0,
        };
        given.post(Work::File(parts?), detail)
    })
}
