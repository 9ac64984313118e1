//! Reading and writing.

use std::borrow::Cow;
use std::io::IoSlice;
use std::net::SocketAddr;
use std::sync::Arc;

use libc::{c_int, c_void, iovec, off_t, size_t, sockaddr, socklen_t, ssize_t};
use rustix::io::Errno;

use super::call;
use crate::control::Asked;
use crate::guard::answer;
use crate::memory::may_be;
use crate::socket::Socket;
use crate::transfer::{Outcome, Received};
use crate::{real, sys};

/// What was received, for callers that want a length only; `None`: the system is to do it.
pub(super) fn length(outcome: &Outcome) -> Option<i64> {
    match outcome {
        Outcome::Kernel => None,
        Outcome::Done(n) => Some(*n as i64),
        Outcome::Engine(Received { len, .. }) => Some(*len as i64),
    }
}

/// Receives into buffers; `None`: the system is to do it as it was asked.
///
/// # Safety
///
/// `list` points to `count` buffers of the program's.
unsafe fn receive(
    (socket, fd): (&Socket, c_int),
    list: *const iovec,
    count: usize,
    flags: c_int,
) -> Option<i64> {
    let mut passed = false;
    let done = answer(|| {
        // SAFETY: the caller's promise.
        let mut buffers = unsafe { buffers(list, count)? };
        // SAFETY: a msghdr of zeros is one.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        message.msg_iov = list.cast_mut();
        message.msg_iovlen = count;
        // SAFETY: the caller's promise.
        let system = || unsafe { sys::receive_now(fd, &raw mut message, flags) };
        let received = socket.receive(fd, &mut buffers, flags, system)?;
        let whole = flags & libc::MSG_TRUNC != 0;
        let told = match &received {
            // With MSG_TRUNC the whole length of a datagram is told.
            Outcome::Engine(received) if whole => Some(received.whole as i64),
            received => length(received),
        };
        passed = told.is_none();
        Ok(told.unwrap_or(0))
    });
    (!passed).then_some(done)
}

/// Sends; `None`: the system is to do it as it was asked.
///
/// # Safety
///
/// `list` points to `count` buffers of the program's.
unsafe fn transmit(
    socket: &Socket,
    list: *const iovec,
    count: usize,
    flags: c_int,
    to: Option<SocketAddr>,
) -> Option<i64> {
    // SAFETY: the caller's promise.
    send_pieces(socket, flags, to, &Asked::default(), || unsafe {
        pieces(list, count)
    })
}

/// The same, with the pieces, and with what messages ask for.
pub(super) fn send_pieces<'a>(
    socket: &Socket,
    flags: c_int,
    to: Option<SocketAddr>,
    asked: &Asked,
    pieces: impl FnOnce() -> Result<Cow<'a, [IoSlice<'a>]>, Errno>,
) -> Option<i64> {
    let mut passed = false;
    let done = answer(|| {
        let sent = length(&socket.send(&pieces()?, flags, to, asked)?);
        passed = sent.is_none();
        Ok(sent.unwrap_or(0))
    });
    (!passed).then_some(done)
}

/// Most pieces of one call: IOV_MAX.
const PIECES: usize = 1024;

/// A list of pieces to send.
///
/// # Safety
///
/// `list` points to `count` of them, each of the program's memory.
pub(super) unsafe fn pieces<'a>(
    list: *const iovec,
    count: usize,
) -> Result<Cow<'a, [IoSlice<'a>]>, Errno> {
    // SAFETY: the caller's promise.
    let list = unsafe { checked(list, count)? };
    if list.iter().any(|piece| piece.iov_base.is_null()) {
        // SAFETY: the caller's promise. One of no bytes may be anywhere.
        let slice = |piece: &iovec| unsafe { sys::bytes(piece.iov_base, piece.iov_len) };
        return Ok(list
            .iter()
            .map(|piece| IoSlice::new(slice(piece)))
            .collect());
    }
    // SAFETY: the caller's promise.
    Ok(Cow::Borrowed(unsafe { sys::slices(list) }))
}

/// A list as it came. `FAULT` if it, or a piece, can never be memory.
///
/// # Safety
///
/// `list` points to `count` of them.
unsafe fn checked<'a>(list: *const iovec, count: usize) -> Result<&'a [iovec], Errno> {
    if count > PIECES {
        return Err(Errno::INVAL);
    }
    may_be(list.cast(), count * size_of::<iovec>())?;
    if count == 0 {
        return Ok(&[]);
    }
    // SAFETY: the caller's promise.
    let list = unsafe { std::slice::from_raw_parts(list, count) };
    for piece in list {
        may_be(piece.iov_base.cast_const(), piece.iov_len)?;
    }
    Ok(list)
}

/// A list of pieces to fill.
///
/// # Safety
///
/// `list` points to `count` of them, each of the program's memory.
pub(super) unsafe fn buffers<'a>(
    list: *const iovec,
    count: usize,
) -> Result<sys::Buffers<'a>, Errno> {
    // SAFETY: the caller's promise.
    unsafe { checked(list, count).map(|list| sys::slices_mut(list)) }
}

fn one(buffer: *const c_void, len: size_t) -> iovec {
    iovec {
        iov_base: buffer.cast_mut(),
        iov_len: len,
    }
}

/// A count of pieces as C has it; one that is negative is too large.
pub(super) fn count_of(count: c_int) -> usize {
    usize::try_from(count).unwrap_or(usize::MAX)
}

/// read(2).
///
/// # Safety
///
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn read(fd: c_int, buffer: *mut c_void, len: size_t) -> ssize_t {
    let list = one(buffer, len);
    // SAFETY: the program's promise.
    let ours =
        |socket: &Arc<Socket>| unsafe { receive((socket, fd), &list, 1, 0).map(|n| n as ssize_t) };
    // SAFETY: as libc's.
    call(fd, ours, || unsafe { real::read(fd, buffer, len) })
}

/// read(2), checked.
///
/// # Safety
///
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn __read_chk(
    fd: c_int,
    buffer: *mut c_void,
    len: size_t,
    room: size_t,
) -> ssize_t {
    check(len, room);
    // SAFETY: as libc's.
    unsafe { read(fd, buffer, len) }
}

/// What `_chk` functions are for: a call that would write behind its buffer ends the program.
fn check(len: size_t, room: size_t) {
    if len > room {
        sys::write_error(b"*** buffer overflow detected ***: terminated\n");
        std::process::abort();
    }
}

/// readv(2).
///
/// # Safety
///
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn readv(fd: c_int, list: *const iovec, count: c_int) -> ssize_t {
    // SAFETY: the program's promise.
    let ours = |socket: &Arc<Socket>| unsafe {
        receive((socket, fd), list, count_of(count), 0).map(|n| n as ssize_t)
    };
    // SAFETY: as libc's.
    call(fd, ours, || unsafe { real::readv(fd, list, count) })
}

/// preadv2(2). With the offset -1 it is readv with flags; no socket has another.
///
/// # Safety
///
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn preadv2(
    fd: c_int,
    list: *const iovec,
    count: c_int,
    offset: off_t,
    flags: c_int,
) -> ssize_t {
    let now = if flags & libc::RWF_NOWAIT != 0 {
        libc::MSG_DONTWAIT
    } else {
        0
    };
    let ours = |socket: &Arc<Socket>| match offset {
        // SAFETY: the program's promise.
        -1 => unsafe { receive((socket, fd), list, count_of(count), now).map(|n| n as ssize_t) },
        _ => None,
    };
    // SAFETY: as libc's.
    call(fd, ours, || unsafe {
        real::preadv2(fd, list, count, offset, flags)
    })
}

/// recv(2).
///
/// # Safety
///
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn recv(
    fd: c_int,
    buffer: *mut c_void,
    len: size_t,
    flags: c_int,
) -> ssize_t {
    let list = one(buffer, len);
    // SAFETY: the program's promise.
    let ours = |socket: &Arc<Socket>| unsafe {
        receive((socket, fd), &list, 1, flags).map(|n| n as ssize_t)
    };
    // SAFETY: as libc's.
    call(fd, ours, || unsafe { real::recv(fd, buffer, len, flags) })
}

/// recv(2), checked.
///
/// # Safety
///
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn __recv_chk(
    fd: c_int,
    buffer: *mut c_void,
    len: size_t,
    room: size_t,
    flags: c_int,
) -> ssize_t {
    check(len, room);
    // SAFETY: as libc's.
    unsafe { recv(fd, buffer, len, flags) }
}

/// recvfrom(2).
///
/// # Safety
///
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn recvfrom(
    fd: c_int,
    buffer: *mut c_void,
    len: size_t,
    flags: c_int,
    address: *mut sockaddr,
    size: *mut socklen_t,
) -> ssize_t {
    // SAFETY: the program's promise.
    let ours = |socket: &Arc<Socket>| unsafe {
        receive_from((socket, fd), one(buffer, len), flags, address, size)
    };
    // SAFETY: as libc's.
    call(fd, ours, || unsafe {
        real::recvfrom(fd, buffer, len, flags, address, size)
    })
}

/// # Safety
///
/// As recvfrom's.
unsafe fn receive_from(
    (socket, fd): (&Socket, c_int),
    list: iovec,
    flags: c_int,
    address: *mut sockaddr,
    size: *mut socklen_t,
) -> Option<ssize_t> {
    let mut passed = false;
    let done = answer(|| {
        // SAFETY: the program's promise.
        let mut buffers = unsafe { buffers(&raw const list, 1)? };
        // SAFETY: the program's promise.
        let system = || unsafe { sys::receive_from_now(fd, list, flags, address, size) };
        match socket.receive(fd, &mut buffers, flags, system)? {
            Outcome::Kernel => {
                passed = true;
                Ok(0)
            }
            Outcome::Done(n) => Ok(n as i64),
            Outcome::Engine(received) => {
                match received.from {
                    // SAFETY: the program's promise.
                    Some(from) => unsafe {
                        sys::write_address(from, socket.is_v6(), address, size)?
                    },
                    // As Linux has it for streams.
                    None if !size.is_null() && !address.is_null() => {
                        // SAFETY: the program's promise.
                        unsafe { crate::memory::write(size.cast(), &[0; 4])? };
                    }
                    None => {}
                }
                let whole = flags & libc::MSG_TRUNC != 0;
                Ok(if whole { received.whole } else { received.len } as i64)
            }
        }
    });
    (!passed).then_some(done as ssize_t)
}

/// recvfrom(2), checked.
///
/// # Safety
///
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn __recvfrom_chk(
    fd: c_int,
    buffer: *mut c_void,
    len: size_t,
    room: size_t,
    flags: c_int,
    address: *mut sockaddr,
    size: *mut socklen_t,
) -> ssize_t {
    check(len, room);
    // SAFETY: as libc's.
    unsafe { recvfrom(fd, buffer, len, flags, address, size) }
}

/// write(2).
///
/// # Safety
///
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn write(fd: c_int, buffer: *const c_void, len: size_t) -> ssize_t {
    let list = one(buffer, len);
    // SAFETY: the program's promise.
    let ours =
        |socket: &Arc<Socket>| unsafe { transmit(socket, &list, 1, 0, None).map(|n| n as ssize_t) };
    // SAFETY: as libc's.
    call(fd, ours, || unsafe { real::write(fd, buffer, len) })
}

/// writev(2).
///
/// # Safety
///
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn writev(fd: c_int, list: *const iovec, count: c_int) -> ssize_t {
    // SAFETY: the program's promise.
    let ours = |socket: &Arc<Socket>| unsafe {
        transmit(socket, list, count_of(count), 0, None).map(|n| n as ssize_t)
    };
    // SAFETY: as libc's.
    call(fd, ours, || unsafe { real::writev(fd, list, count) })
}

/// pwritev2(2). With the offset -1 it is writev with flags; no socket has another.
///
/// # Safety
///
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn pwritev2(
    fd: c_int,
    list: *const iovec,
    count: c_int,
    offset: off_t,
    flags: c_int,
) -> ssize_t {
    let ours = |socket: &Arc<Socket>| match offset {
        // SAFETY: the program's promise.
        -1 => unsafe { transmit(socket, list, count_of(count), 0, None).map(|n| n as ssize_t) },
        _ => None,
    };
    // SAFETY: as libc's.
    call(fd, ours, || unsafe {
        real::pwritev2(fd, list, count, offset, flags)
    })
}

/// send(2).
///
/// # Safety
///
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn send(
    fd: c_int,
    buffer: *const c_void,
    len: size_t,
    flags: c_int,
) -> ssize_t {
    let list = one(buffer, len);
    // SAFETY: the program's promise.
    let ours = |socket: &Arc<Socket>| unsafe {
        transmit(socket, &list, 1, flags, None).map(|n| n as ssize_t)
    };
    // SAFETY: as libc's.
    call(fd, ours, || unsafe { real::send(fd, buffer, len, flags) })
}

/// sendto(2).
///
/// # Safety
///
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn sendto(
    fd: c_int,
    buffer: *const c_void,
    len: size_t,
    flags: c_int,
    address: *const sockaddr,
    size: socklen_t,
) -> ssize_t {
    let list = one(buffer, len);
    // SAFETY: the program's promise.
    let ours = |socket: &Arc<Socket>| unsafe {
        let to = sys::read_address(address, size);
        transmit(socket, &list, 1, flags, to).map(|n| n as ssize_t)
    };
    // SAFETY: as libc's.
    call(fd, ours, || unsafe {
        real::sendto(fd, buffer, len, flags, address, size)
    })
}
