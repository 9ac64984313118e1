//! Reading and writing.

use std::io::{IoSlice, IoSliceMut};
use std::net::SocketAddr;

use libc::{c_int, c_void, iovec, off_t, size_t, sockaddr, socklen_t, ssize_t};
use rustix::io::Errno;

use super::{is_to_repeat, on_descriptor, socket_of};
use crate::guard::answer;
use crate::socket::Socket;
use crate::transfer::{Outcome, Received};
use crate::{real, sys};

/// What was received, for callers that want a length only; `None`: the system is to do it.
fn length(outcome: Outcome) -> Option<i64> {
    match outcome {
        Outcome::Kernel => None,
        Outcome::Done(n) => Some(n as i64),
        Outcome::Engine(Received { len, .. }) => Some(len as i64),
    }
}

/// Receives into buffers; `None`: the system is to do it as it was asked.
fn receive(
    socket: &Socket,
    fd: c_int,
    buffers: &mut [IoSliceMut<'_>],
    flags: c_int,
    system: impl FnMut() -> Result<usize, Errno>,
) -> Option<i64> {
    let mut passed = false;
    let done = answer(|| {
        let received = socket.receive(fd, buffers, flags, system)?;
        let received = length(received);
        passed = received.is_none();
        Ok(received.unwrap_or(0))
    });
    (!passed).then_some(done)
}

/// Sends; `None`: the system is to do it as it was asked.
pub(super) fn transmit(
    socket: &Socket,
    data: &[IoSlice<'_>],
    flags: c_int,
    to: Option<SocketAddr>,
) -> Option<i64> {
    let mut passed = false;
    let done = answer(|| {
        let sent = length(socket.send(data, flags, to)?);
        passed = sent.is_none();
        Ok(sent.unwrap_or(0))
    });
    (!passed).then_some(done)
}

/// -1 and errno as a result.
pub(super) fn outcome(result: ssize_t) -> Result<usize, Errno> {
    usize::try_from(result).map_err(|_| Errno::from_raw_os_error(sys::errno()))
}

/// read(2).
///
/// # Safety
///
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn read(fd: c_int, buffer: *mut c_void, len: size_t) -> ssize_t {
    if let Some(socket) = socket_of(fd) {
        if let Some(_call) = on_descriptor(&socket) {
            // SAFETY: as libc's.
            return unsafe { real::read(fd, buffer, len) };
        }
        // SAFETY: the program's promise.
        let mut list = [IoSliceMut::new(unsafe { sys::bytes_mut(buffer, len) })];
        // SAFETY: the program's promise.
        let system = || outcome(unsafe { real::recv(fd, buffer, len, libc::MSG_DONTWAIT) });
        if let Some(done) = receive(&socket, fd, &mut list, 0, system) {
            if is_to_repeat(done) {
                // SAFETY: as libc's.
                return unsafe { read(fd, buffer, len) };
            }
            return done as ssize_t;
        }
    }
    // SAFETY: as libc's.
    unsafe { real::read(fd, buffer, len) }
}

/// read(2), checked.
///
/// # Safety
///
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __read_chk(
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
pub unsafe extern "C" fn readv(fd: c_int, list: *const iovec, count: c_int) -> ssize_t {
    if let Some(socket) = socket_of(fd) {
        if let Some(_call) = on_descriptor(&socket) {
            // SAFETY: as libc's.
            return unsafe { real::readv(fd, list, count) };
        }
        // SAFETY: the program's promise.
        let mut buffers = unsafe { sys::slices_mut(list, count.max(0) as usize) };
        // SAFETY: a msghdr of zeros is one.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        message.msg_iov = list.cast_mut();
        message.msg_iovlen = count.max(0) as usize;
        // SAFETY: the program's promise.
        let system = || outcome(unsafe { real::recvmsg(fd, &mut message, libc::MSG_DONTWAIT) });
        if let Some(done) = receive(&socket, fd, &mut buffers, 0, system) {
            if is_to_repeat(done) {
                // SAFETY: as libc's.
                return unsafe { readv(fd, list, count) };
            }
            return done as ssize_t;
        }
    }
    // SAFETY: as libc's.
    unsafe { real::readv(fd, list, count) }
}

/// recv(2).
///
/// # Safety
///
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn recv(
    fd: c_int,
    buffer: *mut c_void,
    len: size_t,
    flags: c_int,
) -> ssize_t {
    if let Some(socket) = socket_of(fd) {
        if let Some(_call) = on_descriptor(&socket) {
            // SAFETY: as libc's.
            return unsafe { real::recv(fd, buffer, len, flags) };
        }
        // SAFETY: the program's promise.
        let mut list = [IoSliceMut::new(unsafe { sys::bytes_mut(buffer, len) })];
        let now = flags | libc::MSG_DONTWAIT;
        // SAFETY: the program's promise.
        let system = || outcome(unsafe { real::recv(fd, buffer, len, now) });
        if let Some(done) = receive(&socket, fd, &mut list, flags, system) {
            if is_to_repeat(done) {
                // SAFETY: as libc's.
                return unsafe { recv(fd, buffer, len, flags) };
            }
            return done as ssize_t;
        }
    }
    // SAFETY: as libc's.
    unsafe { real::recv(fd, buffer, len, flags) }
}

/// recv(2), checked.
///
/// # Safety
///
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __recv_chk(
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
pub unsafe extern "C" fn recvfrom(
    fd: c_int,
    buffer: *mut c_void,
    len: size_t,
    flags: c_int,
    address: *mut sockaddr,
    size: *mut socklen_t,
) -> ssize_t {
    let Some(socket) = socket_of(fd) else {
        // SAFETY: as libc's.
        return unsafe { real::recvfrom(fd, buffer, len, flags, address, size) };
    };
    if let Some(_call) = on_descriptor(&socket) {
        // As Linux has it for streams of TCP: there is no address.
        if !size.is_null() && !address.is_null() {
            // SAFETY: the program's promise.
            unsafe { *size = 0 };
        }
        // SAFETY: as libc's.
        return unsafe { real::recv(fd, buffer, len, flags) };
    }
    // SAFETY: the program's promise.
    let mut list = [IoSliceMut::new(unsafe { sys::bytes_mut(buffer, len) })];
    let now = flags | libc::MSG_DONTWAIT;
    // SAFETY: the program's promise.
    let system = || outcome(unsafe { real::recvfrom(fd, buffer, len, now, address, size) });
    let mut passed = false;
    let done = answer(|| match socket.receive(fd, &mut list, flags, system)? {
        Outcome::Kernel => {
            passed = true;
            Ok(0)
        }
        Outcome::Done(n) => Ok(n as i64),
        Outcome::Engine(received) => {
            match received.from {
                // SAFETY: the program's promise.
                Some(from) => unsafe { sys::write_address(from, socket.is_v6(), address, size) },
                // As Linux has it for streams.
                // SAFETY: the program's promise.
                None if !size.is_null() && !address.is_null() => unsafe { *size = 0 },
                None => {}
            }
            let whole = flags & libc::MSG_TRUNC != 0;
            Ok(if whole { received.whole } else { received.len } as i64)
        }
    });
    if passed {
        // SAFETY: as libc's.
        return unsafe { real::recvfrom(fd, buffer, len, flags, address, size) };
    }
    if is_to_repeat(done) {
        // SAFETY: as libc's.
        return unsafe { recvfrom(fd, buffer, len, flags, address, size) };
    }
    done as ssize_t
}

/// recvfrom(2), checked.
///
/// # Safety
///
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __recvfrom_chk(
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
pub unsafe extern "C" fn write(fd: c_int, buffer: *const c_void, len: size_t) -> ssize_t {
    if let Some(socket) = socket_of(fd) {
        if let Some(_call) = on_descriptor(&socket) {
            // SAFETY: as libc's.
            return unsafe { real::write(fd, buffer, len) };
        }
        // SAFETY: the program's promise.
        let list = [IoSlice::new(unsafe { sys::bytes(buffer, len) })];
        if let Some(done) = transmit(&socket, &list, 0, None) {
            if is_to_repeat(done) {
                // SAFETY: as libc's.
                return unsafe { write(fd, buffer, len) };
            }
            return done as ssize_t;
        }
    }
    // SAFETY: as libc's.
    unsafe { real::write(fd, buffer, len) }
}

/// writev(2).
///
/// # Safety
///
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn writev(fd: c_int, list: *const iovec, count: c_int) -> ssize_t {
    if let Some(socket) = socket_of(fd) {
        if let Some(_call) = on_descriptor(&socket) {
            // SAFETY: as libc's.
            return unsafe { real::writev(fd, list, count) };
        }
        // SAFETY: the program's promise.
        let data = unsafe { sys::slices(list, count.max(0) as usize) };
        if let Some(done) = transmit(&socket, data, 0, None) {
            if is_to_repeat(done) {
                // SAFETY: as libc's.
                return unsafe { writev(fd, list, count) };
            }
            return done as ssize_t;
        }
    }
    // SAFETY: as libc's.
    unsafe { real::writev(fd, list, count) }
}

/// send(2).
///
/// # Safety
///
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn send(
    fd: c_int,
    buffer: *const c_void,
    len: size_t,
    flags: c_int,
) -> ssize_t {
    if let Some(socket) = socket_of(fd) {
        if let Some(_call) = on_descriptor(&socket) {
            // SAFETY: as libc's.
            return unsafe { real::send(fd, buffer, len, flags) };
        }
        // SAFETY: the program's promise.
        let list = [IoSlice::new(unsafe { sys::bytes(buffer, len) })];
        if let Some(done) = transmit(&socket, &list, flags, None) {
            if is_to_repeat(done) {
                // SAFETY: as libc's.
                return unsafe { send(fd, buffer, len, flags) };
            }
            return done as ssize_t;
        }
    }
    // SAFETY: as libc's.
    unsafe { real::send(fd, buffer, len, flags) }
}

/// sendto(2).
///
/// # Safety
///
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendto(
    fd: c_int,
    buffer: *const c_void,
    len: size_t,
    flags: c_int,
    address: *const sockaddr,
    size: socklen_t,
) -> ssize_t {
    if let Some(socket) = socket_of(fd) {
        if let Some(_call) = on_descriptor(&socket) {
            // SAFETY: as libc's.
            return unsafe { real::send(fd, buffer, len, flags) };
        }
        // SAFETY: the program's promise.
        let (list, to) = unsafe {
            let list = [IoSlice::new(sys::bytes(buffer, len))];
            (list, sys::read_address(address, size))
        };
        if let Some(done) = transmit(&socket, &list, flags, to) {
            if is_to_repeat(done) {
                // SAFETY: as libc's.
                return unsafe { sendto(fd, buffer, len, flags, address, size) };
            }
            return done as ssize_t;
        }
    }
    // SAFETY: as libc's.
    unsafe { real::sendto(fd, buffer, len, flags, address, size) }
}

/// Bytes of a file that are copied at a time.
const FILE_PIECE: usize = 256 << 10;

/// sendfile(2).
///
/// # Safety
///
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendfile(
    to: c_int,
    from: c_int,
    offset: *mut off_t,
    count: size_t,
) -> ssize_t {
    let Some(socket) = socket_of(to).filter(|socket| socket.is_engines()) else {
        // SAFETY: as libc's.
        return unsafe { real::sendfile(to, from, offset, count) };
    };
    if let Some(_call) = on_descriptor(&socket) {
        // SAFETY: as libc's.
        return unsafe { real::sendfile(to, from, offset, count) };
    }
    let done = answer(|| {
        let file = sys::borrow(from.max(0));
        let begin = match offset.is_null() {
            // SAFETY: the program's promise.
            false => unsafe { *offset }.try_into().map_err(|_| Errno::INVAL)?,
            true => rustix::fs::tell(file)?,
        };
        let (sent, error) = send_file(&socket, from, begin, count);
        let end = begin + sent as u64;
        match offset.is_null() {
            // SAFETY: the program's promise.
            false => unsafe { *offset = end as off_t },
            true => {
                rustix::fs::seek(file, rustix::fs::SeekFrom::Start(end))?;
            }
        }
        match error {
            Some(error) if sent == 0 => Err(error),
            _ => Ok(sent as i64),
        }
    });
    if is_to_repeat(done) {
        // SAFETY: as libc's.
        return unsafe { sendfile(to, from, offset, count) };
    }
    done as ssize_t
}

/// Sends from a file; how much, and what ended it before `count` bytes were sent.
fn send_file(socket: &Socket, from: c_int, begin: u64, count: usize) -> (usize, Option<Errno>) {
    let mut piece = vec![0; count.min(FILE_PIECE)];
    let mut sent = 0;
    while sent < count {
        let room = (count - sent).min(piece.len());
        let read = rustix::io::pread(
            sys::borrow(from.max(0)),
            &mut piece[..room],
            begin + sent as u64,
        );
        let n = match read {
            Ok(0) => break,
            Ok(n) => n,
            Err(error) => return (sent, Some(error)),
        };
        match socket.send(&[IoSlice::new(&piece[..n])], 0, None) {
            Ok(outcome) => {
                let done = length(outcome).unwrap_or(0) as usize;
                sent += done;
                if done < n {
                    break;
                }
            }
            Err(error) => return (sent, Some(error)),
        }
    }
    (sent, None)
}

/// sendfile(2) by its other name.
///
/// # Safety
///
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendfile64(
    to: c_int,
    from: c_int,
    offset: *mut off_t,
    count: size_t,
) -> ssize_t {
    // SAFETY: as libc's.
    unsafe { sendfile(to, from, offset, count) }
}
