//! Between sockets and files or pipes: sendfile and splice. The bytes go through a buffer here: the engine's are not the system's pages.

use std::io::{IoSlice, IoSliceMut};
use std::sync::Arc;

use libc::{c_int, c_uint, off_t, size_t, ssize_t};
use rustix::io::Errno;

use super::data::length;
use super::{call, elsewhere, is_socket, socket_of};
use crate::control::Asked;
use crate::guard::answer;
use crate::memory;
use crate::real;
use crate::socket::Socket;
use crate::sys;

/// Bytes that are copied at a time.
const PIECE: usize = 256 << 10;

/// sendfile(2).
///
/// # Safety
///
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn sendfile(
    to: c_int,
    from: c_int,
    offset: *mut off_t,
    count: size_t,
) -> ssize_t {
    // SAFETY: the program's promise.
    let ours = |socket: &Arc<Socket>| unsafe { send_from(socket, from, offset, count) };
    // SAFETY: as libc's.
    call(to, ours, || unsafe {
        real::sendfile(to, from, offset, count)
    })
}

/// sendfile(2) by its other name.
///
/// # Safety
///
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn sendfile64(
    to: c_int,
    from: c_int,
    offset: *mut off_t,
    count: size_t,
) -> ssize_t {
    // SAFETY: as libc's.
    unsafe { sendfile(to, from, offset, count) }
}

/// # Safety
///
/// As sendfile's.
unsafe fn send_from(
    socket: &Socket,
    from: c_int,
    offset: *mut off_t,
    count: usize,
) -> Option<ssize_t> {
    if let Some(source) = socket_of(from).filter(|source| source.is_engines()) {
        drop(source);
        // As from every socket: it cannot be mapped.
        sys::set_errno(libc::EINVAL);
        return Some(-1);
    }
    if !socket.is_engines() {
        return None;
    }
    let done = answer(|| {
        let file = sys::borrow(from.max(0));
        let begin = match offset.is_null() {
            false => {
                // It is the program's own as the buffers of a write are, and is used like these: a copy by the system would cost as much as the file.
                memory::may_be(offset.cast_const().cast(), size_of::<off_t>())?;
                // SAFETY: the program's promise.
                unsafe { offset.read_unaligned() }
            }
            true => rustix::fs::tell(file)? as off_t,
        };
        let begin = u64::try_from(begin).map_err(|_| Errno::INVAL)?;
        let sent = socket.send_file(file, begin, count)?;
        let end = begin + sent as u64;
        match offset.is_null() {
            // SAFETY: the program's promise.
            false => unsafe { offset.write_unaligned(end as off_t) },
            true => {
                rustix::fs::seek(file, rustix::fs::SeekFrom::Start(end))?;
            }
        }
        Ok(sent as i64)
    });
    Some(done as ssize_t)
}

/// splice(2). One side must be a pipe; if the other is a socket of the engine, the bytes are copied.
///
/// # Safety
///
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn splice(
    from: c_int,
    from_at: *mut off_t,
    to: c_int,
    to_at: *mut off_t,
    len: size_t,
    flags: c_uint,
) -> ssize_t {
    // SAFETY: as libc's.
    let system = || unsafe { real::splice(from, from_at, to, to_at, len, flags) };
    if let Some(done) = elsewhere(from, system) {
        return done;
    }
    let socket = if is_socket(to) { to } else { from };
    let ours =
        |_: &Arc<Socket>| splice_here(from, !from_at.is_null(), to, !to_at.is_null(), len, flags);
    // SAFETY: as libc's.
    call(socket, ours, || unsafe {
        real::splice(from, from_at, to, to_at, len, flags)
    })
}

fn splice_here(
    from: c_int,
    from_place: bool,
    to: c_int,
    to_place: bool,
    len: usize,
    flags: c_uint,
) -> Option<ssize_t> {
    let source = socket_of(from).filter(|socket| socket.is_engines());
    let target = socket_of(to).filter(|socket| socket.is_engines());
    let done = match (source, target) {
        (None, None) => return None,
        (Some(source), None) => answer(|| {
            check(from_place, to_place, to)?;
            into_pipe(&source, from, to, len, flags)
        }),
        (None, Some(target)) => answer(|| {
            check(to_place, from_place, from)?;
            out_of_pipe(&target, from, len, flags)
        }),
        // Neither is a pipe.
        (Some(_), Some(_)) => answer(|| Err(Errno::INVAL)),
    };
    Some(done as ssize_t)
}

/// Neither a socket nor a pipe has places; and the other side must be a pipe.
fn check(socket_place: bool, pipe_place: bool, pipe: c_int) -> Result<(), Errno> {
    if pipe_place {
        return Err(Errno::SPIPE);
    }
    if socket_place {
        return Err(Errno::INVAL);
    }
    let stat = rustix::fs::fstat(sys::borrow(pipe.max(0)))?;
    match rustix::fs::FileType::from_raw_mode(stat.st_mode) {
        rustix::fs::FileType::Fifo => Ok(()),
        _ => Err(Errno::INVAL),
    }
}

/// Whether a splice may not wait for its pipe.
fn at_once(pipe: c_int, flags: c_uint) -> bool {
    let own = sys::fcntl(pipe, libc::F_GETFL, 0).unwrap_or(0) & libc::O_NONBLOCK != 0;
    own || flags & libc::SPLICE_F_NONBLOCK != 0
}

/// Waits until a pipe is ready for this. AGAIN if it may not wait.
fn wait(pipe: c_int, events: i16, at_once: bool) -> Result<(), Errno> {
    let mut fds = [libc::pollfd {
        fd: pipe,
        events,
        revents: 0,
    }];
    let limit = at_once.then_some(std::time::Duration::ZERO);
    match crate::poll::poll(&mut fds, limit, None)? {
        0 => Err(Errno::AGAIN),
        _ => Ok(()),
    }
}

/// From a socket: only as much as the pipe takes at once, so that nothing is lost between the two.
fn into_pipe(
    source: &Socket,
    from: c_int,
    pipe: c_int,
    len: usize,
    flags: c_uint,
) -> Result<i64, Errno> {
    wait(pipe, libc::POLLOUT, at_once(pipe, flags))?;
    let size = usize::try_from(sys::fcntl(pipe, libc::F_GETPIPE_SZ, 0)?).unwrap_or(0);
    let held = rustix::io::ioctl_fionread(sys::borrow(pipe.max(0)))?;
    // A page that is partly full takes nothing more: what is sure is less than what is free, and one page at least.
    let free = size.saturating_sub(held as usize) / 2;
    let mut piece = vec![0; len.min(free.clamp(4096, PIECE))];
    // SPLICE_F_NONBLOCK is about the pipe only: whether the socket waits is the socket's.
    let looked = {
        let mut list = [IoSliceMut::new(&mut piece)];
        let received = source.receive(from, &mut list, libc::MSG_PEEK, || Err(Errno::AGAIN))?;
        length(&received).unwrap_or(0) as usize
    };
    let written = rustix::io::write(sys::borrow(pipe.max(0)), &piece[..looked])?;
    // What the pipe has taken is taken from the socket.
    let mut list = [IoSliceMut::new(&mut piece[..written])];
    if written > 0 {
        source.receive(from, &mut list, libc::MSG_DONTWAIT, || Err(Errno::AGAIN))?;
    }
    Ok(written as i64)
}

/// To a socket. What was read from the pipe cannot be put back, so all of it is sent, even if that must wait.
fn out_of_pipe(target: &Socket, pipe: c_int, len: usize, flags: c_uint) -> Result<i64, Errno> {
    wait(pipe, libc::POLLIN, at_once(pipe, flags))?;
    if target.is_nonblocking() && !target.raw().is_some_and(|raw| raw.ready().write) {
        return Err(Errno::AGAIN);
    }
    let mut piece = vec![0; len.min(PIECE / 4)];
    let n = rustix::io::read(sys::borrow(pipe.max(0)), &mut piece)?;
    let more = match flags & libc::SPLICE_F_MORE {
        0 => 0,
        _ => libc::MSG_MORE,
    };
    let mut sent = 0;
    while sent < n {
        let rest = [IoSlice::new(&piece[sent..n])];
        match target.send(&rest, more, None, &Asked::default()) {
            Ok(outcome) => sent += length(&outcome).unwrap_or(0) as usize,
            Err(Errno::AGAIN) => {
                let raw = target.raw().ok_or(Errno::NOTCONN)?;
                let room = || match raw.ready().write {
                    true => Ok(()),
                    false => Err(std::io::ErrorKind::WouldBlock.into()),
                };
                crate::errors::told(raw.block(None, room))?;
            }
            Err(error) if sent == 0 => return Err(error),
            Err(_) => break,
        }
    }
    Ok(sent as i64)
}
