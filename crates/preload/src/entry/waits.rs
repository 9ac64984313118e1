//! poll, select and epoll.

use std::time::Duration;

use libc::{c_int, c_long, fd_set, nfds_t, pollfd, sigset_t, size_t, timespec, timeval};

use rustix::io::Errno;

use crate::cancel::point;
use crate::guard::{answer, is_inside, within};
use crate::process::existing;
use crate::sys::Mask;
use crate::{poll as polling, real};

/// Whether any of these is the engine's.
///
/// # Safety
///
/// `list` points to `count` of them.
unsafe fn concerns(list: *mut pollfd, count: nfds_t) -> bool {
    if is_inside() || existing().is_none() || list.is_null() || count == 0 {
        return false;
    }
    // SAFETY: the caller's promise.
    let fds = unsafe { std::slice::from_raw_parts(list, count as usize) };
    within(false, || polling::concerns(fds))
}

fn milliseconds(timeout: c_int) -> Option<Duration> {
    u64::try_from(timeout).ok().map(Duration::from_millis)
}

/// poll(2).
///
/// # Safety
///
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn poll(list: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int {
    let ours = || {
        // SAFETY: as libc's.
        if !unsafe { concerns(list, count) } {
            return None;
        }
        // SAFETY: the program's promise.
        let fds = unsafe { std::slice::from_raw_parts_mut(list, count as usize) };
        let done = answer(|| polling::poll(fds, milliseconds(timeout), None).map(|n| n as i64));
        Some(done as c_int)
    };
    // SAFETY: as libc's.
    point(ours, || unsafe { real::poll(list, count, timeout) })
}

/// poll(2), checked.
///
/// # Safety
///
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn __poll_chk(
    list: *mut pollfd,
    count: nfds_t,
    timeout: c_int,
    room: size_t,
) -> c_int {
    if room / size_of::<pollfd>() < count as usize {
        std::process::abort();
    }
    // SAFETY: as libc's.
    unsafe { poll(list, count, timeout) }
}

/// A time that a program gives; `None` for null: no limit. `INVAL` for one that is none.
///
/// # Safety
///
/// Null, or a time.
pub(super) unsafe fn limit(time: *const timespec) -> Result<Option<Duration>, Errno> {
    // SAFETY: the caller's promise.
    match unsafe { time.as_ref() } {
        None => Ok(None),
        Some(time) => match (u64::try_from(time.tv_sec), u32::try_from(time.tv_nsec)) {
            (Ok(seconds), Ok(nanos)) if nanos < 1_000_000_000 => {
                Ok(Some(Duration::new(seconds, nanos)))
            }
            _ => Err(Errno::INVAL),
        },
    }
}

fn time(seconds: i64, nanos: i64) -> Duration {
    Duration::from_secs(seconds.max(0) as u64) + Duration::from_nanos(nanos.max(0) as u64)
}

/// ppoll(2).
///
/// # Safety
///
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn ppoll(
    list: *mut pollfd,
    count: nfds_t,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    let ours = || {
        // SAFETY: as libc's.
        if !unsafe { concerns(list, count) } {
            return None;
        }
        // SAFETY: the program's promise.
        let (fds, mask) = unsafe {
            let fds = std::slice::from_raw_parts_mut(list, count as usize);
            (fds, Mask::new(mask))
        };
        let done = answer(|| {
            // SAFETY: the program's promise.
            let limit = unsafe { limit(timeout)? };
            polling::poll(fds, limit, mask).map(|n| n as i64)
        });
        Some(done as c_int)
    };
    // SAFETY: as libc's.
    point(ours, || unsafe { real::ppoll(list, count, timeout, mask) })
}

/// ppoll(2), checked.
///
/// # Safety
///
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn __ppoll_chk(
    list: *mut pollfd,
    count: nfds_t,
    timeout: *const timespec,
    mask: *const sigset_t,
    room: size_t,
) -> c_int {
    if room / size_of::<pollfd>() < count as usize {
        std::process::abort();
    }
    // SAFETY: as libc's.
    unsafe { ppoll(list, count, timeout, mask) }
}

/// The sets of a select, as a list for poll.
struct Sets {
    sets: [*mut fd_set; 3],
    list: Vec<pollfd>,
}

/// Bits of a word of a set.
const BITS: usize = c_long::BITS as usize;

/// What each of the three sets asks for, and what counts as an answer (Linux: fs/select.c has the same three groups).
const ASKED: [i16; 3] = [libc::POLLIN, libc::POLLOUT, libc::POLLPRI];
const ANSWERS: [i16; 3] = [
    libc::POLLIN | libc::POLLRDNORM | libc::POLLHUP | libc::POLLERR,
    libc::POLLOUT | libc::POLLWRNORM | libc::POLLERR,
    libc::POLLPRI,
];

impl Sets {
    /// # Safety
    ///
    /// Each is null or has at least `count` bits, while this is used.
    unsafe fn new(count: c_int, sets: [*mut fd_set; 3]) -> Self {
        let mut list = Vec::new();
        for fd in 0..count.max(0) {
            let mut events = 0;
            for (set, asked) in sets.iter().zip(ASKED) {
                // SAFETY: the caller's promise.
                if !set.is_null() && unsafe { *word(*set, fd) } >> (fd as usize % BITS) & 1 == 1 {
                    events |= asked;
                }
            }
            if events != 0 {
                list.push(pollfd {
                    fd,
                    events,
                    revents: 0,
                });
            }
        }
        Self { sets, list }
    }

    /// Writes the answer into the sets; how many bits are set.
    fn answer(&self, count: c_int) -> Result<i64, Errno> {
        if self.list.iter().any(|fd| fd.revents & libc::POLLNVAL != 0) {
            return Err(Errno::BADF);
        }
        let mut found = 0;
        for ((set, answers), asked) in self.sets.iter().zip(ANSWERS).zip(ASKED) {
            if set.is_null() {
                continue;
            }
            for at in 0..(count.max(0) as usize).div_ceil(BITS) {
                // SAFETY: as was promised in `new`.
                unsafe { *word(*set, (at * BITS) as c_int) = 0 };
            }
            for fd in &self.list {
                if fd.events & asked != 0 && fd.revents & answers != 0 {
                    // SAFETY: as was promised in `new`.
                    unsafe { *word(*set, fd.fd) |= 1 << (fd.fd as usize % BITS) };
                    found += 1;
                }
            }
        }
        Ok(found)
    }
}

/// The word of a set in which a descriptor's bit is.
///
/// # Safety
///
/// The set has so many bits.
unsafe fn word(set: *mut fd_set, fd: c_int) -> *mut u64 {
    // SAFETY: the caller's promise. Programs may have made sets larger than FD_SETSIZE.
    unsafe { set.cast::<u64>().add(fd as usize / BITS) }
}

/// select(2).
///
/// # Safety
///
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn select(
    count: c_int,
    read: *mut fd_set,
    write: *mut fd_set,
    except: *mut fd_set,
    timeout: *mut timeval,
) -> c_int {
    // SAFETY: the program's promise.
    let ours = || unsafe { select_here(count, [read, write, except], timeout) };
    // SAFETY: as libc's.
    point(ours, || unsafe {
        real::select(count, read, write, except, timeout)
    })
}

/// # Safety
///
/// As select's.
unsafe fn select_here(
    count: c_int,
    sets: [*mut fd_set; 3],
    timeout: *mut timeval,
) -> Option<c_int> {
    if is_inside() || existing().is_none() {
        return None;
    }
    // SAFETY: the program's promise.
    let (mut sets, time) = unsafe {
        let sets = Sets::new(count, sets);
        let limit = timeout.as_ref();
        (sets, limit.map(|t| time(t.tv_sec, t.tv_usec * 1000)))
    };
    if !within(false, || polling::concerns(&sets.list)) {
        return None;
    }
    let begun = std::time::Instant::now();
    let done = answer(|| {
        polling::poll(&mut sets.list, time, None)?;
        sets.answer(count)
    });
    if let Some(time) = time {
        // Linux tells what is left.
        let left = time.saturating_sub(begun.elapsed());
        // SAFETY: it was not null above.
        unsafe {
            (*timeout).tv_sec = left.as_secs() as i64;
            (*timeout).tv_usec = i64::from(left.subsec_micros());
        }
    }
    Some(done as c_int)
}

/// pselect(2).
///
/// # Safety
///
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn pselect(
    count: c_int,
    read: *mut fd_set,
    write: *mut fd_set,
    except: *mut fd_set,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    let ours = || {
        if is_inside() || existing().is_none() {
            return None;
        }
        // SAFETY: the program's promise.
        let mut sets = unsafe { Sets::new(count, [read, write, except]) };
        if !within(false, || polling::concerns(&sets.list)) {
            return None;
        }
        let done = answer(|| {
            // SAFETY: the program's promise.
            let (limit, mask) = unsafe { (limit(timeout)?, Mask::new(mask)) };
            polling::poll(&mut sets.list, limit, mask)?;
            sets.answer(count)
        });
        Some(done as c_int)
    };
    // SAFETY: as libc's.
    point(ours, || unsafe {
        real::pselect(count, read, write, except, timeout, mask)
    })
}
