//! Messages with headers, one and many.

use libc::{c_int, c_uint, mmsghdr, msghdr, socklen_t, ssize_t, timespec};

use super::data::{outcome, transmit};
use super::{is_to_repeat, on_descriptor, socket_of};
use crate::guard::{answer, is_inside, within};
use crate::process::existing;
use crate::transfer::{Outcome, Received};
use crate::{real, sys};

/// recvmsg(2).
///
/// # Safety
///
/// As libc's.
// tidy: long function because what the program sees of a message is written in one place
#[unsafe(no_mangle)]
pub unsafe extern "C" fn recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t {
    let Some(socket) = socket_of(fd).filter(|_| !message.is_null()) else {
        // SAFETY: as libc's.
        let done = unsafe { real::recvmsg(fd, message, flags) };
        if done >= 0 && !message.is_null() && !is_inside() {
            // SAFETY: the system has just written it.
            unsafe { receive_descriptors(message) };
        }
        return done;
    };
    if let Some(_call) = on_descriptor(&socket) {
        // SAFETY: the program's promise.
        return unsafe { receive_nameless(fd, message, flags) };
    }
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
            unsafe { describe(&received, socket.is_v6(), &mut *message) };
            let whole = flags & libc::MSG_TRUNC != 0;
            Ok(if whole { received.whole } else { received.len } as i64)
        }
    });
    if passed {
        // SAFETY: as libc's.
        return unsafe { real::recvmsg(fd, message, flags) };
    }
    if is_to_repeat(done) {
        // SAFETY: as libc's.
        return unsafe { recvmsg(fd, message, flags) };
    }
    done as ssize_t
}

/// What a message's header says of what was received.
///
/// # Safety
///
/// The header's place for a name is null, or as large as it says.
unsafe fn describe(received: &Received, v6: bool, message: &mut msghdr) {
    message.msg_controllen = 0;
    message.msg_flags = 0;
    if received.whole > received.len {
        message.msg_flags |= libc::MSG_TRUNC;
    }
    match received.from {
        Some(from) => {
            let mut room: socklen_t = message.msg_namelen;
            // SAFETY: the caller's promise.
            unsafe {
                sys::write_address(from, v6, message.msg_name.cast(), &mut room);
            }
            message.msg_namelen = if message.msg_name.is_null() { 0 } else { room };
        }
        None => message.msg_namelen = 0,
    }
}

/// A message of a stream, which has no address.
///
/// # Safety
///
/// As libc's recvmsg.
unsafe fn receive_nameless(fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t {
    // SAFETY: the program's promise.
    let mut nameless = unsafe { *message };
    (nameless.msg_name, nameless.msg_namelen) = (std::ptr::null_mut(), 0);
    nameless.msg_controllen = 0;
    // SAFETY: as libc's.
    let done = unsafe { real::recvmsg(fd, &mut nameless, flags) };
    if done >= 0 {
        // SAFETY: the program's promise.
        let message = unsafe { &mut *message };
        (message.msg_namelen, message.msg_controllen) = (0, 0);
        message.msg_flags = nameless.msg_flags;
    }
    done
}

/// The descriptors that a message carries.
///
/// # Safety
///
/// The message is one that the system has written, or is to read.
unsafe fn descriptors(message: *const msghdr) -> Vec<c_int> {
    let mut all = Vec::new();
    // SAFETY: the caller's promise: these walk through the control memory, and stay within it.
    unsafe {
        let mut part = libc::CMSG_FIRSTHDR(message);
        while let Some(header) = part.as_ref() {
            if (header.cmsg_level, header.cmsg_type) == (libc::SOL_SOCKET, libc::SCM_RIGHTS) {
                let head = libc::CMSG_LEN(0) as usize;
                let count = header.cmsg_len.saturating_sub(head) / size_of::<c_int>();
                let data = libc::CMSG_DATA(part).cast::<c_int>();
                all.extend((0..count).map(|at| data.add(at).read_unaligned()));
            }
            part = libc::CMSG_NXTHDR(message, part);
        }
    }
    all
}

/// Sockets of the engine that came with a message are known for what they are.
///
/// # Safety
///
/// The message is one that the system has written.
unsafe fn receive_descriptors(message: *const msghdr) {
    // SAFETY: the caller's promise.
    let received = unsafe { descriptors(message) };
    if !received.is_empty() {
        within((), || received.into_iter().for_each(crate::fork::receive));
    }
}

/// Sockets of the engine that go with a message have one more holder.
///
/// # Safety
///
/// The message is one that the system is to read.
unsafe fn pass_descriptors(message: *const msghdr) {
    let Some(process) = existing() else { return };
    // SAFETY: the caller's promise.
    let passed = unsafe { descriptors(message) };
    let sockets = passed.into_iter().filter_map(super::socket_of);
    let sockets: Vec<_> = sockets.filter(|socket| socket.is_engines()).collect();
    if !sockets.is_empty() {
        within((), || {
            sockets.iter().for_each(|socket| socket.is_passed());
            process.spreads();
        });
    }
}

/// sendmsg(2).
///
/// # Safety
///
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t {
    if let Some(socket) = socket_of(fd).filter(|_| !message.is_null()) {
        if let Some(_call) = on_descriptor(&socket) {
            // SAFETY: the program's promise.
            let mut nameless = unsafe { *message };
            (nameless.msg_name, nameless.msg_namelen) = (std::ptr::null_mut(), 0);
            // SAFETY: as libc's.
            return unsafe { real::sendmsg(fd, &nameless, flags) };
        }
        // SAFETY: the program's promise.
        let (data, to) = unsafe {
            let message = &*message;
            let data = sys::slices(message.msg_iov, message.msg_iovlen);
            let to = sys::read_address(message.msg_name.cast(), message.msg_namelen);
            (data, to)
        };
        if let Some(done) = transmit(&socket, data, flags, to) {
            if is_to_repeat(done) {
                // SAFETY: as libc's.
                return unsafe { sendmsg(fd, message, flags) };
            }
            return done as ssize_t;
        }
    } else if !message.is_null() && !is_inside() {
        // SAFETY: the program's promise.
        unsafe { pass_descriptors(message) };
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
