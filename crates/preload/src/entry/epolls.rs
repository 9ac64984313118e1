//! epoll.

use std::cell::RefCell;
use std::time::Duration;

use libc::{c_int, epoll_event, sigset_t, timespec};
use rustix::io::Errno;

use super::waits::limit;
use crate::cancel::point;
use crate::epoll::Epoll;
use crate::guard::{Edge, answer, is_inside, within};
use crate::memory;
use crate::process::{existing, process};
use crate::sys::Mask;
use crate::table::Thing;
use crate::{real, sys};
use std::sync::Arc;

fn set_of(fd: c_int) -> Option<Arc<Epoll>> {
    if is_inside() {
        return None;
    }
    set_of_inside(fd)
}

fn set_of_inside(fd: c_int) -> Option<Arc<Epoll>> {
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
pub unsafe extern "C-unwind" fn epoll_create1(flags: c_int) -> c_int {
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
pub unsafe extern "C-unwind" fn epoll_create(size: c_int) -> c_int {
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
pub unsafe extern "C-unwind" fn epoll_ctl(
    set: c_int,
    operation: c_int,
    fd: c_int,
    event: *mut epoll_event,
) -> c_int {
    let _edge = Edge::begin();
    let Some(of_ours) = set_of(set) else {
        // SAFETY: as libc's.
        return unsafe { real::epoll_ctl(set, operation, fd, event) };
    };
    answer(|| {
        let (events, data) = if operation == libc::EPOLL_CTL_DEL {
            (0, 0)
        } else {
            // SAFETY: the program's promise.
            let event = unsafe { memory::value(event)? };
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
pub unsafe extern "C-unwind" fn epoll_wait(
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
pub unsafe extern "C-unwind" fn epoll_pwait(
    set: c_int,
    events: *mut epoll_event,
    max: c_int,
    timeout: c_int,
    mask: *const sigset_t,
) -> c_int {
    let system = |room: *mut epoll_event| {
        // SAFETY: as libc's.
        unsafe { real::epoll_pwait(set, room, max, timeout, mask) }
    };
    let limit = u64::try_from(timeout).ok().map(Duration::from_millis);
    // SAFETY: the program's promise.
    unsafe { wait(set, (events, max), Ok(limit), mask, system) }
}

/// epoll_pwait2(2).
///
/// # Safety
///
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn epoll_pwait2(
    set: c_int,
    events: *mut epoll_event,
    max: c_int,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    let system = |room: *mut epoll_event| {
        // SAFETY: as libc's.
        unsafe { real::epoll_pwait2(set, room, max, timeout, mask) }
    };
    // SAFETY: the program's promise.
    unsafe { wait(set, (events, max), limit(timeout), mask, system) }
}

/// Waits for a set: by the system alone as long as nothing of the engine's is in it.
///
/// # Safety
///
/// As epoll_pwait's.
unsafe fn wait(
    set: c_int,
    (events, max): (*mut epoll_event, c_int),
    limit: Result<Option<Duration>, Errno>,
    mask: *const sigset_t,
    system: impl Fn(*mut epoll_event) -> c_int,
) -> c_int {
    let is_set = || {
        let _edge = Edge::begin();
        set_of(set).is_some()
    };
    if !is_set() || max <= 0 || events.is_null() {
        return system(events);
    }
    // SAFETY: the program's promise: room for `max` events.
    let room = || unsafe { std::slice::from_raw_parts_mut(events, max as usize) };
    if in_system(set, true) {
        let found = point(|| None, || system(events));
        in_system(set, false);
        if let Some(found) = Epoll::found(room(), found) {
            return found;
        }
    }
    let ours = || {
        let ours = set_of(set)?;
        // SAFETY: the program's promise.
        let mask = unsafe { Mask::new(mask) };
        let wait = || ours.wait(process(), room(), limit?, mask).map(|n| n as i64);
        Some(answer(wait) as c_int)
    };
    point(ours, || system(events))
}

thread_local! {
    /// The set in whose own wait of the system this thread is. There libc may unwind it; then what was noted down is taken back here.
    static WAITS: RefCell<Option<InSystem>> = const { RefCell::new(None) };
}

struct InSystem(Arc<Epoll>);

impl Drop for InSystem {
    fn drop(&mut self) {
        within((), || self.0.end_system_wait());
    }
}

/// Notes down that this thread waits by the system alone, or does not any more. False if the set has something of the engine's.
fn in_system(set: c_int, waits: bool) -> bool {
    within(false, || {
        let begun = set_of_inside(set).filter(|set| waits && set.begin_system_wait());
        let waits = begun.is_some();
        let before = WAITS.try_with(|place| place.replace(begun.map(InSystem)));
        drop(before);
        waits
    })
}
