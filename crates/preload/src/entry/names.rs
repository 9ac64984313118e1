//! Addresses and options.

use std::net::SocketAddr;

use libc::{c_int, c_void, sockaddr, socklen_t};
use rustix::io::Errno;

use super::{ask, socket_of};
use crate::guard::{Edge, within};
use crate::memory;
use crate::socket::Socket;
use crate::{real, sys};

/// getsockname(2).
///
/// # Safety
///
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn getsockname(
    fd: c_int,
    address: *mut sockaddr,
    len: *mut socklen_t,
) -> c_int {
    let _edge = Edge::begin();
    let Some(socket) = socket_of(fd).filter(|socket| socket.is_engines()) else {
        // SAFETY: as libc's.
        return unsafe { real::getsockname(fd, address, len) };
    };
    ask(|| {
        let local = socket.local()?;
        // SAFETY: the program's promise.
        unsafe { tell(local, socket.is_v6(), address, len)? };
        Ok(0)
    })
}

/// getpeername(2).
///
/// # Safety
///
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn getpeername(
    fd: c_int,
    address: *mut sockaddr,
    len: *mut socklen_t,
) -> c_int {
    let _edge = Edge::begin();
    let Some(socket) = socket_of(fd).filter(|socket| socket.is_engines()) else {
        // SAFETY: as libc's.
        return unsafe { real::getpeername(fd, address, len) };
    };
    ask(|| {
        let peer = socket.peer()?;
        // SAFETY: the program's promise.
        unsafe { tell(peer, socket.is_v6(), address, len)? };
        Ok(0)
    })
}

/// getsockopt(2).
///
/// # Safety
///
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn getsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    len: *mut socklen_t,
) -> c_int {
    let _edge = Edge::begin();
    let Some(socket) = socket_of(fd).filter(|socket| socket.is_engines()) else {
        // SAFETY: as libc's.
        return unsafe { real::getsockopt(fd, level, name, value, len) };
    };
    ask(|| {
        // SAFETY: the program's promise.
        let room = unsafe { memory::value(len)? };
        if (room as i32) < 0 {
            return Err(Errno::INVAL);
        }
        let found = socket.value(level, name)?;
        let told = cut(level, &found, room as usize);
        // SAFETY: the program's promise: `len` bytes at `value`.
        unsafe {
            memory::write(value, &told)?;
            memory::write(len.cast(), &(told.len() as socklen_t).to_ne_bytes())?;
        }
        Ok(0)
    })
}

/// What of a value is told to a program that has room for so many bytes. Of IPv4's numbers, as Linux has it, one byte is told if they fit.
fn cut(level: c_int, value: &[u8], room: usize) -> Vec<u8> {
    let number = value.try_into().map(i32::from_ne_bytes);
    match number {
        Ok(number @ 0..=255) if level == libc::IPPROTO_IP && (1..4).contains(&room) => {
            vec![number as u8]
        }
        _ => value[..value.len().min(room)].to_vec(),
    }
}

/// Tells an address.
///
/// # Safety
///
/// As getsockname's.
unsafe fn tell(
    told: SocketAddr,
    as_v6: bool,
    address: *mut sockaddr,
    len: *mut socklen_t,
) -> Result<(), Errno> {
    // SAFETY: the program's promise.
    let room = unsafe { memory::value(len)? };
    if (room as i32) < 0 {
        return Err(Errno::INVAL);
    }
    let (bytes, whole) = sys::address_bytes(told, as_v6);
    let n = whole.min(room as usize);
    // SAFETY: the program's promise.
    unsafe {
        memory::write(address.cast(), &bytes[..n])?;
        memory::write(len.cast(), &(whole as socklen_t).to_ne_bytes())
    }
}

/// Whether the system keeps the time, while bytes go through the descriptor.
fn is_descriptors(level: c_int, name: c_int) -> bool {
    level == libc::SOL_SOCKET
        && matches!(
            name,
            libc::SO_RCVTIMEO | libc::SO_SNDTIMEO | libc::SO_OOBINLINE
        )
}

/// setsockopt(2).
///
/// # Safety
///
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn setsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *const c_void,
    len: socklen_t,
) -> c_int {
    let _edge = Edge::begin();
    let Some(socket) = socket_of(fd) else {
        // SAFETY: as libc's.
        return unsafe { real::setsockopt(fd, level, name, value, len) };
    };
    // The longest is a change of a group's source.
    let mut copy = [0u8; 512];
    let copied = match usize::try_from(len as c_int) {
        // SAFETY: the program's promise.
        Ok(len) => unsafe {
            let n = len.min(copy.len());
            memory::read(value, &mut copy[..n]).map(|()| &copy[..n])
        },
        Err(_) => Err(Errno::INVAL),
    };
    if copied.is_ok_and(|bytes| Socket::refuses(level, name, bytes)) {
        return ask(|| Err(Errno::OPNOTSUPP));
    }
    let ours = |bytes: &[u8]| {
        socket.is_engines() || within(false, || socket.is_about_engine(level, name, bytes))
    };
    if ours(copied.unwrap_or_default()) {
        let done = ask(|| socket.set(level, name, copied?).map(|()| 0));
        if done == 0 && is_descriptors(level, name) && socket.is_proxied() {
            // SAFETY: as libc's.
            return unsafe { real::setsockopt(fd, level, name, value, len) };
        }
        return done;
    }
    // SAFETY: as libc's.
    let done = unsafe { real::setsockopt(fd, level, name, value, len) };
    if let (0, Ok(bytes)) = (done, copied) {
        within((), || {
            if let crate::socket::Route::Both(_) = socket.route() {
                // The system has taken it; the engine does as far as it can.
                let _ = socket.set(level, name, bytes);
            } else {
                let kind = socket.kind();
                socket.settings(|settings| settings.remember(kind, level, name, bytes));
            }
        });
    }
    done
}
