//! Making, naming, connecting and ending sockets.

use std::net::SocketAddr;

use libc::{c_int, sockaddr, socklen_t};
use rustix::io::Errno;

use super::socket_of;
use crate::cancel::point;
use crate::guard::{Edge, answer, is_inside, within};
use crate::memory;
use crate::process::{Process, existing, process};
use crate::socket::{Kind, Socket, install};
use crate::{real, sys};

/// socket(2). An internet socket is remembered: its address decides whose it is.
///
/// # Safety
///
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
    // SAFETY: as libc's.
    let fd = unsafe { real::socket(domain, kind, protocol) };
    if fd < 0 || is_inside() || !matches!(domain, libc::AF_INET | libc::AF_INET6) {
        return fd;
    }
    let carries = match kind & !(libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC) {
        libc::SOCK_STREAM if matches!(protocol, 0 | libc::IPPROTO_TCP) => Kind::Stream,
        libc::SOCK_DGRAM if matches!(protocol, 0 | libc::IPPROTO_UDP) => Kind::Datagram,
        _ => return fd,
    };
    if existing().is_some_and(Process::is_aside) {
        return fd;
    }
    within((), || {
        let nonblocking = kind & libc::SOCK_NONBLOCK != 0;
        let socket = Socket::undecided(domain == libc::AF_INET6, carries, nonblocking);
        // Where the number is too high, the socket is the system's.
        install(process(), fd, socket);
    });
    fd
}

/// The system has it for good.
fn forget(fd: c_int) {
    within((), || drop(process().table.take(fd)));
}

/// bind(2).
///
/// # Safety
///
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn bind(fd: c_int, address: *const sockaddr, len: socklen_t) -> c_int {
    let _edge = Edge::begin();
    let Some(socket) = socket_of(fd) else {
        // SAFETY: as libc's.
        return unsafe { real::bind(fd, address, len) };
    };
    // SAFETY: the program's promise.
    let local = match unsafe { given(address, len) } {
        Ok((local, _)) => local,
        Err(error) => return answer(|| Err(error)) as c_int,
    };
    let mut system = false;
    let done = answer(|| {
        let bound = match local {
            Some(local) => socket.bind(local)?,
            None => false,
        };
        system = !bound;
        Ok(0)
    });
    if !system {
        return done as c_int;
    }
    // SAFETY: as libc's.
    let done = unsafe { real::bind(fd, address, len) };
    if done == 0 && local.is_some_and(|local| !within(false, || socket.bound_by_system(local))) {
        forget(fd);
    }
    done
}

/// listen(2).
///
/// # Safety
///
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn listen(fd: c_int, backlog: c_int) -> c_int {
    let _edge = Edge::begin();
    let Some(socket) = socket_of(fd) else {
        // SAFETY: as libc's.
        return unsafe { real::listen(fd, backlog) };
    };
    let mut system = false;
    let done = answer(|| {
        system = !socket.listen(fd, backlog)?;
        Ok(0)
    });
    if !system {
        return done as c_int;
    }
    forget(fd);
    // SAFETY: as libc's.
    unsafe { real::listen(fd, backlog) }
}

/// accept(2).
///
/// # Safety
///
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn accept(
    fd: c_int,
    address: *mut sockaddr,
    len: *mut socklen_t,
) -> c_int {
    // SAFETY: as libc's.
    unsafe { accept4(fd, address, len, 0) }
}

/// accept4(2).
///
/// # Safety
///
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn accept4(
    fd: c_int,
    address: *mut sockaddr,
    len: *mut socklen_t,
    flags: c_int,
) -> c_int {
    // SAFETY: the program's promise.
    let ours = || unsafe { accept_here(fd, address, len, flags) };
    // SAFETY: as libc's.
    point(ours, || unsafe { real::accept4(fd, address, len, flags) })
}

/// # Safety
///
/// As accept4's.
unsafe fn accept_here(
    fd: c_int,
    address: *mut sockaddr,
    len: *mut socklen_t,
    flags: c_int,
) -> Option<c_int> {
    let socket = socket_of(fd).filter(|socket| socket.may_accept())?;
    let done = answer(|| {
        if flags & !(libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC) != 0 {
            return Err(Errno::INVAL);
        }
        let (child, peer) = socket.accept(fd, flags)?;
        // SAFETY: the program's promise.
        let told = unsafe { sys::write_address(peer, socket.is_v6(), address, len) };
        if let Err(error) = told {
            // As Linux has it, the connection is lost.
            drop(process().table.take(child));
            sys::close(child);
            return Err(error);
        }
        Ok(child.into())
    });
    Some(done as c_int)
}

/// connect(2).
///
/// # Safety
///
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn connect(
    fd: c_int,
    address: *const sockaddr,
    len: socklen_t,
) -> c_int {
    // SAFETY: the program's promise.
    let ours = || unsafe { connect_here(fd, address, len) };
    // SAFETY: as libc's.
    point(ours, || unsafe { real::connect(fd, address, len) })
}

/// # Safety
///
/// As connect's.
unsafe fn connect_here(fd: c_int, address: *const sockaddr, len: socklen_t) -> Option<c_int> {
    let socket = socket_of(fd)?;
    // SAFETY: the program's promise.
    let (peer, unspecified) = match unsafe { given(address, len) } {
        Ok(given) => given,
        Err(error) => return Some(answer(|| Err(error)) as c_int),
    };
    let mut system = false;
    let done = answer(|| {
        let connected = match peer {
            Some(peer) => socket.connect(peer)?,
            None if unspecified => socket.disconnect()?,
            None if socket.is_engines() => return Err(Errno::AFNOSUPPORT),
            None => false,
        };
        system = !connected;
        Ok(0)
    });
    if !system {
        return Some(done as c_int);
    }
    if socket.kind() == Kind::Stream && peer.is_some() {
        forget(fd);
    }
    None
}

/// An address that a program gives, `None` if it is none of an internet protocol; and whether it is AF_UNSPEC. `FAULT` if it is not there,
/// `INVAL` if it cannot be one.
///
/// # Safety
///
/// As libc's.
unsafe fn given(
    address: *const sockaddr,
    len: socklen_t,
) -> Result<(Option<SocketAddr>, bool), Errno> {
    if (len as c_int) < size_of::<libc::sa_family_t>() as c_int {
        return Err(Errno::INVAL);
    }
    let mut copy = [0u8; 128];
    let n = (len as usize).min(copy.len());
    // SAFETY: the caller's promise.
    unsafe { memory::read(address.cast(), &mut copy[..n])? };
    // SAFETY: so many bytes of the copy.
    let known = unsafe { sys::read_address(copy.as_ptr().cast(), n as socklen_t) };
    let family = libc::sa_family_t::from_ne_bytes([copy[0], copy[1]]);
    Ok((known, c_int::from(family) == libc::AF_UNSPEC))
}

/// shutdown(2).
///
/// # Safety
///
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn shutdown(fd: c_int, how: c_int) -> c_int {
    let _edge = Edge::begin();
    let Some(socket) = socket_of(fd).filter(|socket| socket.is_engines()) else {
        // SAFETY: as libc's.
        return unsafe { real::shutdown(fd, how) };
    };
    answer(|| socket.shutdown(how).map(|()| 0)) as c_int
}
