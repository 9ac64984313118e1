//! Descriptors as numbers: closing, doubling, flags.

use std::os::fd::{OwnedFd, RawFd};

use libc::{c_int, c_uint, c_ulong};
use rustix::io::Errno;
use sidecore_client::RawSocket;

use super::{is_socket, socket_of};
use crate::cancel::point;
use crate::descriptors::Used;
use crate::guard::{Edge, answer, is_inside, within};
use crate::process::{Process, existing};
use crate::socket::{Kind, Route, Socket};
use crate::table::Thing;
use crate::{errors, memory, real, sys};

/// Whether this is a child of vfork, which has our memory but descriptors of its own: nothing may be noted down.
pub(super) fn is_visitor(process: &Process) -> bool {
    std::process::id() != process.pid
}

/// A number stands for nothing of ours any more. To be called before the system closes it, as far as that may be: others that hold it go on.
pub(super) fn forget(process: &Process, fd: RawFd) -> Option<Thing> {
    if let Some(Thing::Socket(socket)) = process.get(fd) {
        socket.before_last_close(fd);
    }
    let thing = process.table.take(fd)?;
    match &thing {
        Thing::Socket(socket) => socket.remove_number(fd),
        Thing::Epoll(set) => set.remove_number(fd),
    }
    Some(thing)
}

/// A number stands for the same as another.
fn copy(process: &Process, from: RawFd, to: RawFd) {
    let Some(thing) = process.get(from) else {
        drop(forget(process, to));
        return;
    };
    drop(forget(process, to));
    match &thing {
        Thing::Socket(socket) => socket.add_number(to),
        Thing::Epoll(set) => set.add_number(to),
    }
    process.table.put(to, thing);
}

/// The library's number for the descriptor of a connection whose only number is about to be closed, if it may serve another.
fn spare(process: &Process, fd: RawFd) -> Option<(Used, OwnedFd)> {
    let Some(Thing::Socket(socket)) = process.get(fd) else {
        return None;
    };
    let used = socket.spare(fd)?;
    let high = process.stash.retain(process, fd, socket.take_twin())?;
    Some((used, high))
}

/// close(2).
///
/// # Safety
///
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn close(fd: c_int) -> c_int {
    // SAFETY: as libc's.
    point(|| close_here(fd), || unsafe { real::close(fd) })
}

fn close_here(fd: c_int) -> Option<c_int> {
    let process = existing()?;
    if process.is_kept(fd) && !is_visitor(process) {
        // The library's own: for the program there is nothing.
        sys::set_errno(libc::EBADF);
        return Some(-1);
    }
    if process.get(fd).is_none() || is_visitor(process) {
        return None;
    }
    // The number goes first: the next open may have it at once.
    let (thing, spare) = within((None, None), || {
        let spare = spare(process, fd);
        (forget(process, fd), spare)
    });
    sys::close(fd);
    within((), || {
        if let Some(Thing::Socket(socket)) = &thing {
            socket.after_last_close();
        }
        drop(thing);
        // Only now: the connection that it stood for is closed.
        if let Some((used, high)) = spare {
            process.stash.give_back(high, &used);
        }
    });
    Some(0)
}

/// close_range(2).
///
/// # Safety
///
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
    let _edge = Edge::begin();
    const CLOEXEC: c_int = libc::CLOSE_RANGE_CLOEXEC as c_int;
    let process = existing().filter(|process| !is_inside() && !is_visitor(process));
    let Some(process) = process.filter(|_| first <= last) else {
        // SAFETY: as libc's.
        return unsafe { real::close_range(first, last, flags) };
    };
    let bound = |number: c_uint| number.min(c_int::MAX as c_uint) as c_int;
    let things: Vec<Thing> = within(Vec::new(), || {
        if flags & CLOEXEC != 0 {
            return Vec::new();
        }
        let ours = process.table.used(bound(first), bound(last));
        ours.iter().filter_map(|fd| forget(process, *fd)).collect()
    });
    // Around the library's own.
    let mut kept = within(Vec::new(), || process.all_kept());
    kept.retain(|fd| (bound(first)..=bound(last)).contains(fd));
    let mut from = first;
    let mut done = 0;
    for fd in kept {
        let fd = fd as c_uint;
        if fd > from {
            // SAFETY: as libc's.
            done = done.min(unsafe { real::close_range(from, fd - 1, flags) });
        }
        from = fd + 1;
    }
    if from <= last {
        // SAFETY: as libc's.
        done = done.min(unsafe { real::close_range(from, last, flags) });
    }
    within((), || drop(things));
    done
}

/// closefrom(3).
///
/// # Safety
///
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn closefrom(first: c_int) {
    // SAFETY: as libc's.
    unsafe { close_range(first.max(0) as c_uint, c_uint::MAX, 0) };
}

/// dup(2).
///
/// # Safety
///
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn dup(fd: c_int) -> c_int {
    // SAFETY: as libc's.
    let made = unsafe { real::dup(fd) };
    doubled(fd, made)
}

/// dup2(2).
///
/// # Safety
///
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn dup2(fd: c_int, to: c_int) -> c_int {
    if fd != to
        && let Err(error) = may_replace(to)
    {
        sys::set_errno(error.raw_os_error());
        return -1;
    }
    // SAFETY: as libc's.
    let made = unsafe { real::dup2(fd, to) };
    if fd == to { made } else { doubled(fd, made) }
}

/// dup3(2).
///
/// # Safety
///
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn dup3(fd: c_int, to: c_int, flags: c_int) -> c_int {
    if let Err(error) = may_replace(to) {
        sys::set_errno(error.raw_os_error());
        return -1;
    }
    // SAFETY: as libc's.
    let made = unsafe { real::dup3(fd, to, flags) };
    doubled(fd, made)
}

/// The library's own descriptors stay where they are.
fn may_replace(to: c_int) -> Result<(), Errno> {
    let _edge = Edge::begin();
    match existing() {
        Some(process) if !is_inside() && process.is_kept(to) && !is_visitor(process) => {
            Err(Errno::BUSY)
        }
        Some(process) if !is_inside() && !is_visitor(process) => {
            if let Some(Thing::Socket(socket)) = process.get(to) {
                within((), || socket.before_last_close(to));
            }
            Ok(())
        }
        _ => Ok(()),
    }
}

/// After the system has made a double.
fn doubled(fd: c_int, made: c_int) -> c_int {
    let _edge = Edge::begin();
    if made >= 0
        && !is_inside()
        && let Some(process) = existing()
        && (process.get(fd).is_some() || process.get(made).is_some())
        && !is_visitor(process)
    {
        within((), || {
            copy(process, fd, made);
            // The numbers of stdio are used without the library.
            if made <= libc::STDERR_FILENO
                && let Some(Thing::Socket(socket)) = process.get(made)
            {
                socket.stays();
            }
        });
    }
    made
}

/// fcntl(2).
///
/// # Safety
///
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn fcntl(fd: c_int, command: c_int, argument: c_ulong) -> c_int {
    if matches!(command, libc::F_DUPFD | libc::F_DUPFD_CLOEXEC) {
        // Of epoll sets, too.
        // SAFETY: as libc's.
        let made = unsafe { real::fcntl(fd, command, argument) };
        return doubled(fd, made);
    }
    let edge = Edge::begin();
    let Some(socket) = socket_of(fd) else {
        // It may wait (for a lock of a file).
        drop(edge);
        // SAFETY: as libc's.
        return unsafe { real::fcntl(fd, command, argument) };
    };
    match command {
        libc::F_SETFL => {
            let on = argument as c_int & libc::O_NONBLOCK != 0;
            let silent = within(false, || socket.set_nonblocking(on));
            let argument = if silent {
                argument | libc::O_NONBLOCK as c_ulong
            } else {
                argument
            };
            // SAFETY: as libc's.
            unsafe { real::fcntl(fd, command, argument) }
        }
        libc::F_GETFL => {
            // SAFETY: as libc's.
            let flags = unsafe { real::fcntl(fd, command, argument) };
            match (flags, socket.is_nonblocking()) {
                (..0, _) => flags,
                (_, true) => flags | libc::O_NONBLOCK,
                (_, false) => flags & !libc::O_NONBLOCK,
            }
        }
        // SAFETY: as libc's.
        _ => unsafe { real::fcntl(fd, command, argument) },
    }
}

/// fcntl(2) by its other name.
///
/// # Safety
///
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn fcntl64(fd: c_int, command: c_int, argument: c_ulong) -> c_int {
    // SAFETY: as libc's.
    unsafe { fcntl(fd, command, argument) }
}

/// ioctl(2).
///
/// # Safety
///
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn ioctl(fd: c_int, request: c_ulong, argument: c_ulong) -> c_int {
    let edge = Edge::begin();
    let Some(socket) = socket_of(fd) else {
        // It may wait.
        drop(edge);
        // SAFETY: as libc's.
        return unsafe { real::ioctl(fd, request, argument) };
    };
    let number = argument as *mut c_int;
    if request == libc::FIONBIO {
        let mut silent = false;
        let done = answer(|| {
            // SAFETY: the program's promise: a number.
            let on = unsafe { memory::value(number)? } != 0;
            silent = socket.set_nonblocking(on);
            Ok(0)
        });
        if done < 0 || silent {
            return done as c_int;
        }
    } else if let Route::Engine(raw) = socket.route() {
        let mut known = true;
        let done = answer(|| {
            let Some(told) = tell(&socket, &raw, request)? else {
                known = false;
                return Ok(0);
            };
            // SAFETY: the program's promise: room for a number.
            unsafe { memory::write(number.cast(), &told.to_ne_bytes())? };
            Ok(0)
        });
        if known {
            return done as c_int;
        }
    }
    // SAFETY: as libc's.
    unsafe { real::ioctl(fd, request, argument) }
}

/// Bytes written that were not sent (linux/sockios.h).
const SIOCOUTQNSD: c_ulong = 0x894b;
/// Whether the next byte is the mark.
const SIOCATMARK: c_ulong = 0x8905;

/// What an ioctl asks for; `None`: it is not about the socket's bytes. SIOCINQ is FIONREAD, and SIOCOUTQ is TIOCOUTQ.
fn tell(socket: &Socket, raw: &RawSocket, request: c_ulong) -> Result<Option<c_int>, Errno> {
    let number = |bytes: usize| Ok(Some(c_int::try_from(bytes).unwrap_or(c_int::MAX)));
    raw.turn();
    let stream = socket.kind() == Kind::Stream;
    match request {
        libc::FIONREAD | libc::TIOCOUTQ | SIOCOUTQNSD if stream && raw.is_listening() => {
            Err(Errno::INVAL)
        }
        libc::FIONREAD => number(raw.available()),
        libc::TIOCOUTQ => number(errors::told(raw.unacknowledged())?),
        SIOCOUTQNSD if stream => {
            let info = errors::told(raw.info())?;
            number(info.notsent_bytes as usize)
        }
        SIOCATMARK if stream => Ok(Some(raw.at_mark().into())),
        _ => Ok(None),
    }
}

/// sockatmark(3).
///
/// # Safety
///
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn sockatmark(fd: c_int) -> c_int {
    if !is_socket(fd) {
        // SAFETY: as libc's.
        return unsafe { real::sockatmark(fd) };
    }
    let mut told: c_int = 0;
    // SAFETY: the number lives over the call.
    let done = unsafe { ioctl(fd, SIOCATMARK, &raw mut told as c_ulong) };
    if done < 0 { done } else { told }
}
