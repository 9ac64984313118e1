//! Messages with headers, one and many.

use std::time::{SystemTime, UNIX_EPOCH};

use libc::{c_int, c_uint, mmsghdr, msghdr, socklen_t, ssize_t, timespec};
use rustix::io::Errno;

use super::{data, is_socket, is_to_repeat, on_descriptor, socket_of};
use crate::cancel::point;
use crate::control::{self, Asked, Writer};
use crate::guard::{Edge, answer, is_inside, within};
use crate::memory::may_be;
use crate::process::existing;
use crate::socket::{Kind, Socket};
use crate::transfer::{Beside, Outcome, Received};
use crate::{real, sys};

/// recvmsg(2).
///
/// # Safety
///
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t {
    loop {
        // SAFETY: the program's promise.
        if let Some(done) = unsafe { receive_on_descriptor(fd, message, flags) } {
            return done;
        }
        let ours = is_socket(fd);
        // SAFETY: the program's promise.
        let done = unsafe { receive_message(fd, message, flags) };
        if is_to_repeat(done as i64) {
            continue;
        }
        if done >= 0 && !ours && !message.is_null() && !is_inside() {
            // SAFETY: the system has just written it.
            unsafe { receive_descriptors(message) };
        }
        return done;
    }
}

/// # Safety
///
/// As recvmsg's.
unsafe fn receive_on_descriptor(fd: c_int, message: *mut msghdr, flags: c_int) -> Option<ssize_t> {
    if message.is_null() {
        return None;
    }
    let _call = on_descriptor(fd)?;
    // SAFETY: the program's promise.
    Some(unsafe { receive_nameless(fd, message, flags) })
}

/// # Safety
///
/// As recvmsg's.
unsafe fn receive_message(fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t {
    // SAFETY: the program's promise.
    let ours = || unsafe { receive(fd, message, flags) };
    // SAFETY: as libc's.
    point(ours, || unsafe { real::recvmsg(fd, message, flags) })
}

/// # Safety
///
/// As recvmsg's.
unsafe fn receive(fd: c_int, message: *mut msghdr, flags: c_int) -> Option<ssize_t> {
    let socket = socket_of(fd)?;
    let mut passed = false;
    let done = answer(|| {
        may_be(message.cast_const().cast(), size_of::<msghdr>())?;
        // SAFETY: the program's promise.
        let header = unsafe { &mut *message };
        // SAFETY: the program's promise.
        let mut buffers = unsafe { data::buffers(header.msg_iov, header.msg_iovlen)? };
        // SAFETY: the program's promise.
        let system = || unsafe { sys::receive_now(fd, message, flags) };
        match socket.receive(fd, &mut buffers, flags, system)? {
            Outcome::Kernel => {
                passed = true;
                Ok(0)
            }
            Outcome::Done(n) => Ok(n as i64),
            Outcome::Engine(received) => {
                // SAFETY: the program's promise.
                unsafe { tell(&socket, header, &received, flags)? };
                let whole = flags & libc::MSG_TRUNC != 0;
                Ok(if whole { received.whole } else { received.len } as i64)
            }
        }
    });
    (!passed).then_some(done as ssize_t)
}

/// Writes down what came beside the bytes: who sent them, messages, flags.
///
/// # Safety
///
/// As recvmsg's.
unsafe fn tell(
    socket: &Socket,
    header: &mut msghdr,
    received: &Received,
    flags: c_int,
) -> Result<(), Errno> {
    may_be(header.msg_control.cast_const(), header.msg_controllen)?;
    // SAFETY: the program's promise.
    let room = unsafe { sys::bytes_mut(header.msg_control, header.msg_controllen) };
    let mut out = Writer::new(room);
    header.msg_flags = flags & libc::MSG_CMSG_CLOEXEC;
    match &received.beside {
        Beside::Nothing => {}
        Beside::Urgent => header.msg_flags |= libc::MSG_OOB,
        Beside::Report(report) => {
            header.msg_flags |= libc::MSG_ERRQUEUE;
            control::of_report(&mut out, socket.is_v6(), report);
        }
        Beside::Datagram(datagram) | Beside::Joined(datagram, _) => {
            if let Beside::Joined(_, size) = &received.beside {
                control::of_joined(&mut out, *size);
            }
            let wanted = socket.settings(|settings| settings.wanted(socket.is_v6()));
            let port = match wanted.original {
                true => socket.local().map_or(0, |local| local.port()),
                false => 0,
            };
            // When it is taken: the engine does not tell when it came.
            let now = SystemTime::now().duration_since(UNIX_EPOCH);
            let now = now.unwrap_or_default();
            control::of_datagram(&mut out, wanted, socket.is_v6(), datagram, port, now);
        }
    }
    let (used, cut) = out.end();
    header.msg_controllen = used;
    if cut {
        header.msg_flags |= libc::MSG_CTRUNC;
    }
    if received.whole > received.len {
        header.msg_flags |= libc::MSG_TRUNC;
    }
    match received.from {
        Some(from) if !header.msg_name.is_null() => {
            let mut room: socklen_t = header.msg_namelen;
            // SAFETY: the program's promise.
            unsafe { sys::write_address(from, socket.is_v6(), header.msg_name.cast(), &mut room)? };
            header.msg_namelen = room;
        }
        _ => header.msg_namelen = 0,
    }
    Ok(())
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

/// Sockets of the engine that go with a message have one more holder. Negative, with errno: the message is not to be sent.
///
/// # Safety
///
/// The message is one that the system is to read.
unsafe fn pass_descriptors(message: *const msghdr) -> i64 {
    let Some(process) = existing() else { return 0 };
    // SAFETY: the caller's promise.
    let passed = unsafe { descriptors(message) };
    let _edge = Edge::begin();
    let sockets = passed.into_iter().filter_map(super::socket_of);
    let sockets: Vec<_> = sockets.filter(|socket| socket.is_engines()).collect();
    if sockets.is_empty() {
        return 0;
    }
    answer(|| {
        for socket in &sockets {
            socket.is_passed()?;
        }
        process.spreads();
        Ok(0)
    })
}

/// sendmsg(2).
///
/// # Safety
///
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn sendmsg(
    fd: c_int,
    message: *const msghdr,
    flags: c_int,
) -> ssize_t {
    if !is_socket(fd) && !message.is_null() && !is_inside() {
        // SAFETY: the program's promise.
        let passed = unsafe { pass_descriptors(message) };
        if passed < 0 {
            return passed as ssize_t;
        }
    }
    loop {
        // SAFETY: the program's promise.
        if let Some(done) = unsafe { send_on_descriptor(fd, message, flags) } {
            return done;
        }
        // SAFETY: the program's promise.
        let ours = || unsafe { send(fd, message, flags) };
        // SAFETY: as libc's.
        let done = point(ours, || unsafe { real::sendmsg(fd, message, flags) });
        if !is_to_repeat(done as i64) {
            return done;
        }
    }
}

/// # Safety
///
/// As sendmsg's.
unsafe fn send_on_descriptor(fd: c_int, message: *const msghdr, flags: c_int) -> Option<ssize_t> {
    if message.is_null() {
        return None;
    }
    let _call = on_descriptor(fd)?;
    // SAFETY: the program's promise.
    let mut nameless = unsafe { *message };
    (nameless.msg_name, nameless.msg_namelen) = (std::ptr::null_mut(), 0);
    // SAFETY: as libc's.
    Some(unsafe { real::sendmsg(fd, &raw const nameless, flags) })
}

/// # Safety
///
/// As sendmsg's.
unsafe fn send(fd: c_int, message: *const msghdr, flags: c_int) -> Option<ssize_t> {
    let socket = socket_of(fd)?;
    if may_be(message.cast(), size_of::<msghdr>()).is_err() {
        return Some(answer(|| Err(Errno::FAULT)) as ssize_t);
    }
    // SAFETY: the program's promise.
    let header = unsafe { &*message };
    // SAFETY: the program's promise.
    let to = unsafe { sys::read_address(header.msg_name.cast(), header.msg_namelen) };
    let mut asked = Asked::default();
    if socket.kind() == Kind::Datagram && header.msg_controllen > 0 && socket.is_engines() {
        let found = may_be(header.msg_control.cast_const(), header.msg_controllen);
        // SAFETY: the program's promise.
        let messages = unsafe { sys::bytes(header.msg_control, header.msg_controllen) };
        match found.and_then(|()| control::asked(messages)) {
            Ok(found) => asked = found,
            Err(error) => return Some(answer(|| Err(error)) as ssize_t),
        }
    }
    // SAFETY: the program's promise.
    let pieces = || unsafe { data::pieces(header.msg_iov, header.msg_iovlen) };
    data::send_pieces(&socket, flags, to, &asked, pieces).map(|n| n as ssize_t)
}

/// sendmmsg(2).
///
/// # Safety
///
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn sendmmsg(
    fd: c_int,
    list: *mut mmsghdr,
    count: c_uint,
    flags: c_int,
) -> c_int {
    if !is_socket(fd) || list.is_null() {
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
pub unsafe extern "C-unwind" fn recvmmsg(
    fd: c_int,
    list: *mut mmsghdr,
    count: c_uint,
    flags: c_int,
    timeout: *mut timespec,
) -> c_int {
    if !is_socket(fd) || list.is_null() {
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
