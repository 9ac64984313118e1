//! epoll.

use std::time::Duration;

use libc::{c_int, epoll_event, sigset_t, timespec};
use rustix::io::Errno;

use crate::epoll::Epoll;
use crate::guard::{answer, is_inside, within};
use crate::process::{existing, process};
use crate::sys::Mask;
use crate::table::Thing;
use crate::{real, sys};
use std::sync::Arc;

fn set_of(fd: c_int) -> Option<Arc<Epoll>> {
    if is_inside() {
        return None;
    }
    match existing()?.get(fd)? {
        Thing::Epoll(set) => Some(set),
        Thing::Socket(_) => None,
    }
}

/// epoll_create1(2).
///
/// # Safety
///
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn epoll_create1(flags: c_int) -> c_int {
    // SAFETY: as libc's.
    let fd = unsafe { real::epoll_create1(flags) };
    if fd >= 0 && !is_inside() {
        within((), || {
            process().table.put(fd, Thing::Epoll(Epoll::new(fd)));
        });
    }
    fd
}

/// epoll_create(2).
///
/// # Safety
///
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn epoll_create(size: c_int) -> c_int {
    if size <= 0 {
        sys::set_errno(libc::EINVAL);
        return -1;
    }
    // SAFETY: as libc's.
    unsafe { epoll_create1(0) }
}

/// epoll_ctl(2).
///
/// # Safety
///
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn epoll_ctl(
    set: c_int,
    operation: c_int,
    fd: c_int,
    event: *mut epoll_event,
) -> c_int {
    let Some(of_ours) = set_of(set) else {
        // SAFETY: as libc's.
        return unsafe { real::epoll_ctl(set, operation, fd, event) };
    };
    answer(|| {
        if event.is_null() && operation != libc::EPOLL_CTL_DEL {
            return Err(Errno::FAULT);
        }
        let (events, data) = if event.is_null() {
            (0, 0)
        } else {
            // SAFETY: the program's promise.
            let event = unsafe { event.read_unaligned() };
            (event.events, event.u64)
        };
        of_ours.control(process(), operation, fd, events, data)?;
        Ok(0)
    }) as c_int
}

/// epoll_wait(2).
///
/// # Safety
///
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn epoll_wait(
    set: c_int,
    events: *mut epoll_event,
    max: c_int,
    timeout: c_int,
) -> c_int {
    // SAFETY: as libc's.
    unsafe { epoll_pwait(set, events, max, timeout, std::ptr::null()) }
}

/// epoll_pwait(2).
///
/// # Safety
///
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn epoll_pwait(
    set: c_int,
    events: *mut epoll_event,
    max: c_int,
    timeout: c_int,
    mask: *const sigset_t,
) -> c_int {
    let ours = set_of(set).filter(|_| max > 0 && !events.is_null());
    let Some(ours) = ours else {
        // SAFETY: as libc's.
        return unsafe { real::epoll_pwait(set, events, max, timeout, mask) };
    };
    // SAFETY: the program's promise: room for `max` events.
    let room = unsafe { std::slice::from_raw_parts_mut(events, max as usize) };
    let found = ours.wait_in_system(room, |room| {
        // SAFETY: the room is `max` events long.
        unsafe { real::epoll_pwait(set, room.as_mut_ptr(), max, timeout, mask) }
    });
    if let Some(found) = found {
        return found;
    }
    // SAFETY: the program's promise.
    let mask = unsafe { Mask::new(mask) };
    let time = u64::try_from(timeout).ok().map(Duration::from_millis);
    answer(|| ours.wait(process(), room, time, mask).map(|n| n as i64)) as c_int
}

/// epoll_pwait2(2).
///
/// # Safety
///
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn epoll_pwait2(
    set: c_int,
    events: *mut epoll_event,
    max: c_int,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    // SAFETY: the program's promise: null or a time.
    let time = unsafe { timeout.as_ref() };
    // Milliseconds, rounded up: a wait may be a little long, and never too short.
    let milliseconds = time.map_or(-1, |time| {
        let nanos = time.tv_nsec.clamp(0, 999_999_999);
        let all = time
            .tv_sec
            .saturating_mul(1000)
            .saturating_add((nanos + 999_999) / 1_000_000);
        c_int::try_from(all.max(0)).unwrap_or(c_int::MAX)
    });
    // SAFETY: as libc's.
    unsafe { epoll_pwait(set, events, max, milliseconds, mask) }
}
