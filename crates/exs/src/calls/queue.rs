//! Event queues.

use std::ffi::c_void;
use std::mem::size_of;
use std::sync::Arc;

use libc::{c_int, size_t, timeval};
use rustix::io::Errno;

use crate::boundary::{self, call};
use crate::process::process;
use crate::queue::Queue;
use crate::sys;
use crate::types::{
    EXS_EVTVEC_MAX, EXS_QATTR_DEPTH, EXS_QATTR_EVENTS, EXS_QATTR_SIGNAL, EXS_SIG_DISABLE,
    EXS_SIG_ENABLE, exs_event_t, exs_qhandle_t, exs_signal_t,
};

fn depth(depth: c_int) -> Result<usize, Errno> {
    match depth {
        1..=EXS_EVTVEC_MAX => Ok(depth as usize),
        _ => Err(Errno::INVAL),
    }
}

/// Makes an event queue. Operations on any number of sockets may name it, and any thread may dequeue.
///
/// Parameters:
/// - `depth`: how many operations and undequeued events it takes together, 1 to EXS_EVTVEC_MAX. One more is refused with EAGAIN, so no event is
///   ever lost
///
/// Errors: the answer is a handle, which is positive, or EXS_QHANDLE_INVALID. EINVAL for such a depth, or before exs_init; ENFILE when there are 65534.
///
/// Blocking: no.
///
/// Origin: call and EXS_QHANDLE_INVALID are in netperf, which goes on after EAGAIN as flow control.
#[unsafe(no_mangle)]
pub extern "C" fn exs_qcreate(depth: c_int) -> exs_qhandle_t {
    call(|| {
        let process = process().ok_or(Errno::INVAL)?;
        let queue = Arc::new(Queue::new(self::depth(depth)?));
        let handle = process.queues.put(Arc::clone(&queue))?;
        queue.set_name(handle);
        Ok(handle)
    })
}

/// Changes an attribute of a queue.
///
/// Parameters:
/// - `qhandle`: the queue
/// - `attribute`: EXS_QATTR_DEPTH, an int; or EXS_QATTR_SIGNAL, an exs_signal_t
/// - `value`: the value
/// - `size`: its size in bytes
///
/// Errors: EBADF for what is no queue; EFAULT for NULL; EINVAL for another attribute, size or value, or a signal that does not exist; EBUSY for a depth
/// below what is under way.
///
/// Blocking: no.
///
/// Origin: the attributes' names are in a public editor's list of the interface's words; the rest is our reading.
///
/// # Safety
/// `value` is NULL, or points to `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn exs_qmodify(
    qhandle: exs_qhandle_t,
    attribute: c_int,
    value: *const c_void,
    size: size_t,
) -> c_int {
    call(|| {
        let queue = process().ok_or(Errno::BADF)?.queues.get(qhandle)?;
        let is = |wanted: usize| {
            if size == wanted {
                Ok(())
            } else {
                Err(Errno::INVAL)
            }
        };
        match attribute {
            EXS_QATTR_DEPTH => {
                is(size_of::<c_int>())?;
                // SAFETY: so many bytes, as the caller promises.
                let wanted = unsafe { boundary::read(value.cast::<c_int>()) }?;
                queue.set_depth(depth(wanted)?)?;
            }
            EXS_QATTR_SIGNAL => {
                is(size_of::<exs_signal_t>())?;
                // SAFETY: as above.
                let wanted = unsafe { boundary::read(value.cast::<exs_signal_t>()) }?;
                match wanted.exs_sig_state {
                    EXS_SIG_DISABLE => queue.set_signal(None),
                    EXS_SIG_ENABLE if sys::is_signal(wanted.exs_sig_number) => {
                        queue.set_signal(Some(wanted.exs_sig_number));
                    }
                    _ => return Err(Errno::INVAL),
                }
            }
            _ => return Err(Errno::INVAL),
        }
        Ok(0)
    })
}

/// Tells an attribute of a queue.
///
/// Parameters:
/// - `qhandle`: the queue
/// - `attribute`: EXS_QATTR_DEPTH or EXS_QATTR_EVENTS, an int; or EXS_QATTR_SIGNAL, an exs_signal_t
/// - `value`: where it goes
/// - `size`: bytes there are; afterwards, bytes that were stored
///
/// Errors: EBADF for what is no queue; EFAULT for NULL; EINVAL for another attribute, or too little room.
///
/// Blocking: no.
///
/// Origin: our reading, beside exs_qmodify.
///
/// # Safety
/// Each pointer is NULL, or points to what is said of it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn exs_qstatus(
    qhandle: exs_qhandle_t,
    attribute: c_int,
    value: *mut c_void,
    size: *mut size_t,
) -> c_int {
    call(|| {
        let queue = process().ok_or(Errno::BADF)?.queues.get(qhandle)?;
        // SAFETY: as the caller promises.
        let room = unsafe { boundary::read(size) }?;
        if value.is_null() {
            return Err(Errno::FAULT);
        }
        let number = |value: usize| c_int::try_from(value).unwrap_or(c_int::MAX);
        let needed = match attribute {
            EXS_QATTR_DEPTH | EXS_QATTR_EVENTS => size_of::<c_int>(),
            EXS_QATTR_SIGNAL => size_of::<exs_signal_t>(),
            _ => return Err(Errno::INVAL),
        };
        if room < needed {
            return Err(Errno::INVAL);
        }
        // SAFETY: room for so much was promised, and looked for.
        unsafe {
            match attribute {
                EXS_QATTR_DEPTH => value.cast::<c_int>().write_unaligned(number(queue.depth())),
                EXS_QATTR_EVENTS => value.cast::<c_int>().write_unaligned(number(queue.len())),
                _ => {
                    let signal = queue.signal();
                    value.cast::<exs_signal_t>().write_unaligned(exs_signal_t {
                        exs_sig_state: signal.map_or(EXS_SIG_DISABLE, |_| EXS_SIG_ENABLE),
                        exs_sig_number: signal.unwrap_or(0),
                    });
                }
            }
            size.write_unaligned(needed);
        }
        Ok(0)
    })
}

/// Takes events out of a queue, oldest first, and waits for them. Events of operations on one socket and in one direction come in the order in which
/// the operations were posted; others in any order.
///
/// Parameters:
/// - `qhandle`: the queue
/// - `evtvec`: room for the events
/// - `evtvec_count`: how many events there is room for. A positive number waits for one event at least; a negative number is a threshold: it waits for as many
///   as there is room for. 0 takes nothing and does not wait
/// - `timeout`: how long to wait at most, or NULL for any time. When it has passed, what is there is taken
///
/// Errors: the answer is how many events were taken, or -1. EINTR when a signal handler ran while it waited (with a timeout after every handler, without
/// one after those that were installed without SA_RESTART): no event was taken. EBADF for what is no queue, or one that another thread deletes meanwhile;
/// EFAULT for NULL; EINVAL for a count beyond EXS_EVTVEC_MAX or a timeout that is none.
///
/// Blocking: until there are enough events, the timeout or a signal.
///
/// Origin: netperf, which passes minus half the number of its outstanding sends as threshold, NULL for the timeout, and takes EINTR for the end of
/// its time. That the timeout is a struct timeval is our reading.
///
/// # Safety
/// `evtvec` is NULL or has room for as many events as is said; `timeout` is NULL or points to a timeval.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn exs_qdequeue(
    qhandle: exs_qhandle_t,
    evtvec: *mut exs_event_t,
    evtvec_count: c_int,
    timeout: *const timeval,
) -> c_int {
    call(|| {
        let queue = process().ok_or(Errno::BADF)?.queues.get(qhandle)?;
        // SAFETY: as the caller promises.
        let deadline = unsafe { boundary::deadline(timeout) }?;
        let most = evtvec_count.unsigned_abs() as usize;
        if most > EXS_EVTVEC_MAX as usize {
            return Err(Errno::INVAL);
        }
        if most == 0 {
            return Ok(0);
        }
        if evtvec.is_null() {
            return Err(Errno::FAULT);
        }
        let least = if evtvec_count < 0 { most } else { 1 };
        let taken = queue.dequeue(least, most, deadline, |at, event| {
            // SAFETY: there is room for `most`, as the caller promises, and `at` is less.
            unsafe { evtvec.add(at).write_unaligned(boundary::event(&event)) };
        })?;
        Ok(taken as c_int)
    })
}

/// Ends a queue. Events that were not dequeued are dropped; threads that wait in exs_qdequeue get EBADF.
///
/// Parameters:
/// - `qhandle`: the queue
///
/// Errors: EBADF for what is no queue; EBUSY while operations that name it are under way.
///
/// Blocking: no.
///
/// Origin: our reading, beside exs_qcreate.
#[unsafe(no_mangle)]
pub extern "C" fn exs_qdelete(qhandle: exs_qhandle_t) -> c_int {
    call(|| {
        let process = process().ok_or(Errno::BADF)?;
        process
            .queues
            .take(qhandle, |queue| queue.delete())
            .map(|_| 0)
    })
}
