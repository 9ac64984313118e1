//! Messages with headers, one and many.

use libc::{c_int, c_uint, mmsghdr, msghdr, socklen_t, ssize_t, timespec};

use super::data::{outcome, transmit};
use super::socket_of;
use crate::guard::answer;
use crate::transfer::Outcome;
use crate::{real, sys};

/// recvmsg(2).
///
/// # Safety
///
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t {
    let Some(socket) = socket_of(fd).filter(|_| !message.is_null()) else {
        // SAFETY: as libc's.
        return unsafe { real::recvmsg(fd, message, flags) };
    };
    // SAFETY: the program's promise.
    let mut buffers = unsafe { sys::slices_mut((*message).msg_iov, (*message).msg_iovlen) };
    let now = flags | libc::MSG_DONTWAIT;
    // SAFETY: the program's promise.
    let system = || outcome(unsafe { real::recvmsg(fd, message, now) });
    let mut passed = false;
    let done = answer(|| match socket.receive(fd, &mut buffers, flags, system)? {
        Outcome::Kernel => {
            passed = true;
            Ok(0)
        }
        Outcome::Done(n) => Ok(n as i64),
        Outcome::Engine(received) => {
            // SAFETY: the program's promise.
            let message = unsafe { &mut *message };
            message.msg_controllen = 0;
            message.msg_flags = 0;
            if received.whole > received.len {
                message.msg_flags |= libc::MSG_TRUNC;
            }
            match received.from {
                Some(from) => {
                    let mut room: socklen_t = message.msg_namelen;
                    // SAFETY: the program's promise.
                    unsafe {
                        sys::write_address(from, socket.v6, message.msg_name.cast(), &mut room);
                    }
                    message.msg_namelen = if message.msg_name.is_null() { 0 } else { room };
                }
                None => message.msg_namelen = 0,
            }
            let whole = flags & libc::MSG_TRUNC != 0;
            Ok(if whole { received.whole } else { received.len } as i64)
        }
    });
    if passed {
        // SAFETY: as libc's.
        return unsafe { real::recvmsg(fd, message, flags) };
    }
    done as ssize_t
}

/// sendmsg(2).
///
/// # Safety
///
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t {
    if let Some(socket) = socket_of(fd).filter(|_| !message.is_null()) {
        // SAFETY: the program's promise.
        let (data, to) = unsafe {
            let message = &*message;
            let data = sys::slices(message.msg_iov, message.msg_iovlen);
            let to = sys::read_address(message.msg_name.cast(), message.msg_namelen);
            (data, to)
        };
        if let Some(done) = transmit(&socket, data, flags, to) {
            return done as ssize_t;
        }
    }
    // SAFETY: as libc's.
    unsafe { real::sendmsg(fd, message, flags) }
}

/// sendmmsg(2).
///
/// # Safety
///
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendmmsg(
    fd: c_int,
    list: *mut mmsghdr,
    count: c_uint,
    flags: c_int,
) -> c_int {
    if socket_of(fd).is_none() || list.is_null() {
        // SAFETY: as libc's.
        return unsafe { real::sendmmsg(fd, list, count, flags) };
    }
    let mut sent = 0;
    for at in 0..count as usize {
        // SAFETY: the program's promise: `count` messages.
        let message = unsafe { &mut *list.add(at) };
        // SAFETY: the program's promise.
        let done = unsafe { sendmsg(fd, &message.msg_hdr, flags) };
        if done < 0 {
            break;
        }
        message.msg_len = done as c_uint;
        sent += 1;
    }
    if sent == 0 && count > 0 { -1 } else { sent }
}

/// recvmmsg(2).
///
/// # Safety
///
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn recvmmsg(
    fd: c_int,
    list: *mut mmsghdr,
    count: c_uint,
    flags: c_int,
    timeout: *mut timespec,
) -> c_int {
    if socket_of(fd).is_none() || list.is_null() {
        // SAFETY: as libc's.
        return unsafe { real::recvmmsg(fd, list, count, flags, timeout) };
    }
    let one = flags & libc::MSG_WAITFORONE != 0;
    let mut flags = flags & !libc::MSG_WAITFORONE;
    // SAFETY: the program's promise: null or a time.
    let limit = unsafe { timeout.as_ref() }.map(|time| {
        let seconds = std::time::Duration::from_secs(time.tv_sec.max(0) as u64);
        seconds + std::time::Duration::from_nanos(time.tv_nsec.clamp(0, 999_999_999) as u64)
    });
    let begun = std::time::Instant::now();
    let mut received = 0;
    for at in 0..count as usize {
        // SAFETY: the program's promise: `count` messages.
        let message = unsafe { &mut *list.add(at) };
        // SAFETY: the program's promise.
        let done = unsafe { recvmsg(fd, &mut message.msg_hdr, flags) };
        if done < 0 {
            break;
        }
        message.msg_len = done as c_uint;
        received += 1;
        if one {
            flags |= libc::MSG_DONTWAIT;
        }
        // As Linux has it, the time is looked at after each message only.
        if limit.is_some_and(|limit| begun.elapsed() >= limit) {
            break;
        }
    }
    if received == 0 && count > 0 {
        -1
    } else {
        received
    }
}
