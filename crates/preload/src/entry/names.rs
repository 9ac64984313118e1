//! Addresses and options.

use libc::{c_int, c_void, sockaddr, socklen_t};
use rustix::io::Errno;

use super::socket_of;
use crate::guard::{answer, within};
use crate::{real, sys};

/// getsockname(2).
///
/// # Safety
///
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn getsockname(
    fd: c_int,
    address: *mut sockaddr,
    len: *mut socklen_t,
) -> c_int {
    let Some(socket) = socket_of(fd).filter(|socket| socket.is_engines()) else {
        // SAFETY: as libc's.
        return unsafe { real::getsockname(fd, address, len) };
    };
    answer(|| {
        let local = socket.local()?;
        // SAFETY: the program's promise.
        unsafe { sys::write_address(local, socket.is_v6(), address, len) };
        Ok(0)
    }) as c_int
}

/// getpeername(2).
///
/// # Safety
///
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn getpeername(
    fd: c_int,
    address: *mut sockaddr,
    len: *mut socklen_t,
) -> c_int {
    let Some(socket) = socket_of(fd).filter(|socket| socket.is_engines()) else {
        // SAFETY: as libc's.
        return unsafe { real::getpeername(fd, address, len) };
    };
    answer(|| {
        let peer = socket.peer()?;
        // SAFETY: the program's promise.
        unsafe { sys::write_address(peer, socket.is_v6(), address, len) };
        Ok(0)
    }) as c_int
}

/// getsockopt(2).
///
/// # Safety
///
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn getsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    len: *mut socklen_t,
) -> c_int {
    let Some(socket) = socket_of(fd).filter(|socket| socket.is_engines()) else {
        // SAFETY: as libc's.
        return unsafe { real::getsockopt(fd, level, name, value, len) };
    };
    answer(|| {
        if value.is_null() || len.is_null() {
            return Err(Errno::FAULT);
        }
        let found = socket.value(level, name)?;
        // SAFETY: the program's promise: `len` bytes at `value`.
        unsafe {
            let n = found.len().min(*len as usize);
            sys::bytes_mut(value, n).copy_from_slice(&found[..n]);
            *len = n as socklen_t;
        }
        Ok(0)
    }) as c_int
}

/// Whether the system keeps the time, while bytes go through the descriptor.
fn is_timeout(level: c_int, name: c_int) -> bool {
    level == libc::SOL_SOCKET && matches!(name, libc::SO_RCVTIMEO | libc::SO_SNDTIMEO)
}

/// setsockopt(2).
///
/// # Safety
///
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn setsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *const c_void,
    len: socklen_t,
) -> c_int {
    let Some(socket) = socket_of(fd) else {
        // SAFETY: as libc's.
        return unsafe { real::setsockopt(fd, level, name, value, len) };
    };
    // SAFETY: the program's promise.
    let bytes = unsafe { sys::bytes(value, (len as usize).min(256)) };
    if socket.is_engines() {
        let done = answer(|| socket.set(level, name, bytes).map(|()| 0));
        if done == 0 && socket.is_proxied() && is_timeout(level, name) {
            // SAFETY: as libc's.
            return unsafe { real::setsockopt(fd, level, name, value, len) };
        }
        return done as c_int;
    }
    // SAFETY: as libc's.
    let done = unsafe { real::setsockopt(fd, level, name, value, len) };
    if done == 0 {
        within((), || {
            if let crate::socket::Route::Both(_) = socket.route() {
                // The system has taken it; the engine does as far as it can.
                let _ = socket.set(level, name, bytes);
            } else {
                socket.settings(|settings| settings.remember(level, name, bytes));
            }
        });
    }
    done
}
