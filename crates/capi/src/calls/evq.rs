//! Event queues.

use std::ffi::c_int;
use std::os::fd::AsRawFd;
use std::time::Duration;

use sidecore_client::EventQueue;

use crate::boundary::{self, Out, OutArray, call};
use crate::queue::Queue;
use crate::status::Dusi_Status::{self, *};
use crate::status::Outcome;
use crate::types::{DUSI_SIGNAL_THREAD, Dusi_Event, Dusi_Evq, Dusi_Ual};
use crate::{signal, table};

/// Creates an event queue.
///
/// DTIs name the queues that their events go to when they are made; any number of DTIs may share one. While a queue is full the engine keeps what
/// is for it, and reads no more operations of this UAL: so take events before you wait for room.
///
/// One thread at a time may sleep on a queue. Other threads' calls on it are answered DUSI_BUSY meanwhile; without a sleeper any thread may take
/// events, and each event is taken once.
///
/// Parameters:
/// - `ual`: the UAL.
/// - `evq`: where the handle is stored. The caller owns it, and ends it by Dusi_Destroy_Evq (or Dusi_Close_Ual).
///
/// Blocking: no.
///
/// Statuses: DUSI_OK; DUSI_BAD_HANDLE; DUSI_BAD_ARGUMENT; DUSI_EXHAUSTED if as many exist as were granted; DUSI_FORKED.
///
/// Paper: sections 4.1 and 5, "The application creates Event Queues in the UAL".
///
/// # Safety
/// `evq` is NULL or points to room for a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn Dusi_Create_Evq(ual: Dusi_Ual, evq: *mut Dusi_Evq) -> Dusi_Status {
    call(|| {
        // SAFETY: as the header asks of the caller.
        let mut out = unsafe { Out::new(evq)? };
        let (name, queue, generation) = table::with_ual(ual, |door| {
            let events = door.ual.event_queue()?;
            let generation = door.open_queue(events.id());
            let queue = Queue::new(door.name, generation, events, door.ual.pool().clone());
            Ok((door.name, queue, generation))
        })?;
        let index = queue.index();
        table::put_queue(name, index, queue)?;
        let handle = name.evq(index, generation);
        if !table::with_name(name, |_| ()) {
            // The UAL was closed meanwhile.
            table::take_queue(handle, |_| Ok(()))?;
            return Err(DUSI_BAD_HANDLE.into());
        }
        out.set(handle);
        Ok(())
    })
}

/// Destroys an event queue.
///
/// Events that are still on it are dropped, and their chunks returned. It cannot be destroyed while DTIs name it (a DTI ends when it was closed and its
/// DUSI_EVENT_CLOSED was taken), nor while answers to Dusi_Nop, Dusi_Register_Memory_Async or Dusi_Deregister_Memory are still to come.
///
/// Parameters:
/// - `evq`: the queue.
///
/// Blocking: no.
///
/// Statuses: DUSI_OK; DUSI_BAD_HANDLE; DUSI_BUSY if it is in use, or slept on; DUSI_FORKED.
///
/// Paper: not named there; the counterpart of creating one.
#[unsafe(no_mangle)]
pub extern "C" fn Dusi_Destroy_Evq(evq: Dusi_Evq) -> Dusi_Status {
    call(|| {
        table::take_queue(evq, |queue| {
            let index = queue.index();
            let mut closed: Outcome = Ok(());
            table::with_name(queue.ual(), |door| closed = door.close_queue(index));
            closed?;
            queue.drain()
        })
    })
}

/// Tells whether an event waits on a queue, and takes none.
///
/// Parameters:
/// - `evq`: the queue.
///
/// Blocking: no.
///
/// Statuses: DUSI_OK if there is one; DUSI_EMPTY; DUSI_BUSY; DUSI_BAD_HANDLE; DUSI_FORKED.
///
/// Paper: section 5, "very efficient functions for polling EvQs".
#[unsafe(no_mangle)]
pub extern "C" fn Dusi_Poll_Evq(evq: Dusi_Evq) -> Dusi_Status {
    call(|| {
        let empty = table::with_queue(evq, |queue| Ok(queue.events.is_empty()))?;
        if empty {
            Err(DUSI_EMPTY.into())
        } else {
            Ok(())
        }
    })
}

/// Takes the next event from a queue.
///
/// Parameters:
/// - `evq`: the queue.
/// - `event`: where it is stored. With a chunk in it, the caller owes a Dusi_Return_Chunk.
///
/// Blocking: no.
///
/// Statuses: DUSI_OK; DUSI_EMPTY; DUSI_BUSY; DUSI_BAD_HANDLE; DUSI_BAD_ARGUMENT; DUSI_FORKED.
///
/// Paper: section 5, "dequeuing events".
///
/// # Safety
/// `event` is NULL or points to room for an event.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn Dusi_Dequeue_Event(evq: Dusi_Evq, event: *mut Dusi_Event) -> Dusi_Status {
    call(|| {
        // SAFETY: as the header asks of the caller.
        let mut out = unsafe { Out::new(event)? };
        let event = table::with_queue(evq, |queue| Ok(queue.take()))?;
        out.set(event.ok_or(DUSI_EMPTY)?);
        Ok(())
    })
}

/// Takes several events from a queue.
///
/// Parameters:
/// - `evq`: the queue.
/// - `events`: where they are stored.
/// - `room`: how many fit there, at least 1.
/// - `count`: where it is stored how many there were; fewer than `room` when no more waited.
///
/// Blocking: no.
///
/// Statuses: DUSI_OK; DUSI_EMPTY, with a count of 0; DUSI_BUSY; DUSI_BAD_HANDLE; DUSI_BAD_ARGUMENT; DUSI_FORKED.
///
/// Paper: section 5, "dequeuing events".
///
/// # Safety
/// `events` is NULL or points to room for `room` events; `count` is NULL or points to room for a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn Dusi_Dequeue_Events(
    evq: Dusi_Evq,
    events: *mut Dusi_Event,
    room: usize,
    count: *mut usize,
) -> Dusi_Status {
    call(|| {
        // SAFETY: as the header asks of the caller.
        let (mut out, mut count) = unsafe { (OutArray::new(events, room)?, Out::new(count)?) };
        count.set(0);
        let taken = table::with_queue(evq, |queue| {
            let mut taken = 0;
            while taken < out.len()
                && let Some(event) = queue.take()
            {
                out.set(taken, event);
                taken += 1;
            }
            Ok(taken)
        })?;
        count.set(taken);
        if taken == 0 {
            Err(DUSI_EMPTY.into())
        } else {
            Ok(())
        }
    })
}

/// Tells how many events wait on a queue.
///
/// Parameters:
/// - `evq`: the queue.
/// - `depth`: where the number is stored.
///
/// Blocking: no. It looks at as many entries as log2 of the queue's size.
///
/// Statuses: DUSI_OK; DUSI_BUSY; DUSI_BAD_HANDLE; DUSI_BAD_ARGUMENT; DUSI_FORKED.
///
/// Paper: section 5, "determining the EvQ event depth".
///
/// # Safety
/// `depth` is NULL or points to room for a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn Dusi_Get_Evq_Depth(evq: Dusi_Evq, depth: *mut usize) -> Dusi_Status {
    call(|| {
        // SAFETY: as the header asks of the caller.
        let mut out = unsafe { Out::new(depth)? };
        out.set(table::with_queue(evq, |queue| Ok(queue.events.depth()))?);
        Ok(())
    })
}

/// Sleeps until an event waits on a queue.
///
/// It polls for a moment (Dusi_Set_Evq_Spin), then sleeps in the kernel. What was posted before is flushed first. Signals do not end the sleep; for
/// that, wait on the queue's descriptor (Dusi_Get_Evq_Fd). Events that came before the engine went away are told before DUSI_DISCONNECTED.
///
/// Parameters:
/// - `evq`: the queue.
/// - `timeout`: microseconds; 0 only looks, a negative number sets no limit.
///
/// Blocking: yes.
///
/// Statuses: DUSI_OK if an event waits; DUSI_TIMEOUT; DUSI_DISCONNECTED; DUSI_BUSY if another thread sleeps on the queue; DUSI_BAD_HANDLE; DUSI_FORKED.
///
/// Paper: section 5, "functions that allow an application to block on a single queue".
#[unsafe(no_mangle)]
pub extern "C" fn Dusi_Wait_Evq(evq: Dusi_Evq, timeout: i64) -> Dusi_Status {
    call(|| wait(&[evq], timeout))
}

/// Sleeps until an event waits on one of several queues of one UAL.
///
/// As Dusi_Wait_Evq. Which queue has the event Dusi_Poll_Evq tells.
///
/// Parameters:
/// - `evqs`: the queues, all of one UAL.
/// - `count`: how many, 1 to 512.
/// - `timeout`: microseconds; 0 only looks, a negative number sets no limit.
///
/// Blocking: yes.
///
/// Statuses: as Dusi_Wait_Evq; DUSI_BAD_ARGUMENT, also for queues of different UALs.
///
/// Paper: section 5, blocking on several EvQs, for which the prototype had signals only.
///
/// # Safety
/// `evqs` is NULL or points to `count` handles.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn Dusi_Wait_Evqs(
    evqs: *const Dusi_Evq,
    count: usize,
    timeout: i64,
) -> Dusi_Status {
    call(|| {
        // SAFETY: as the header asks of the caller.
        let evqs = unsafe { boundary::array(evqs, count, table::QUEUES)? };
        wait(evqs, timeout)
    })
}

fn wait(evqs: &[Dusi_Evq], timeout: i64) -> Outcome {
    let timeout = u64::try_from(timeout).ok().map(Duration::from_micros);
    table::with_queues_asleep(evqs, |queues| {
        if let Some(queue) = queues.first() {
            table::with_name(queue.ual(), |door| door.flush());
        }
        let mut events: Vec<&mut EventQueue> =
            queues.iter_mut().map(|queue| &mut queue.events).collect();
        if EventQueue::wait_any(&mut events, timeout)? {
            Ok(())
        } else {
            Err(DUSI_TIMEOUT.into())
        }
    })
}

/// Sets how long a wait on a queue polls before it sleeps.
///
/// Parameters:
/// - `evq`: the queue.
/// - `spin`: microseconds; 0 sleeps at once.
///
/// Blocking: no.
///
/// Statuses: DUSI_OK; DUSI_BUSY; DUSI_BAD_HANDLE; DUSI_FORKED.
///
/// Paper: not named there.
#[unsafe(no_mangle)]
pub extern "C" fn Dusi_Set_Evq_Spin(evq: Dusi_Evq, spin: u32) -> Dusi_Status {
    call(|| {
        table::with_queue(evq, |queue| {
            queue.events.set_spin(Duration::from_micros(spin.into()));
            Ok(())
        })
    })
}

/// Gives a descriptor for epoll, poll or io_uring.
///
/// It is readable after Dusi_Arm_Evq, when an event came or the engine went away. Watch it level-triggered for reading (EPOLLIN), and do
/// nothing else with it: it is the library's, and closed with the UAL.
///
/// Parameters:
/// - `evq`: the queue.
/// - `fd`: where the descriptor is stored. It stays the same for the life of the queue.
///
/// Blocking: the first time, until the engine's agent has answered.
///
/// Statuses: DUSI_OK; DUSI_BUSY; DUSI_DISCONNECTED; DUSI_BAD_HANDLE; DUSI_BAD_ARGUMENT; DUSI_SYSTEM (errno says why); DUSI_FORKED.
///
/// Paper: not named there.
///
/// # Safety
/// `fd` is NULL or points to room for a descriptor's number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn Dusi_Get_Evq_Fd(evq: Dusi_Evq, fd: *mut c_int) -> Dusi_Status {
    call(|| {
        // SAFETY: as the header asks of the caller.
        let mut out = unsafe { Out::new(fd)? };
        out.set(table::with_queue(evq, |queue| {
            Ok(queue.events.fd()?.as_raw_fd())
        })?);
        Ok(())
    })
}

/// Associates a signal with an event queue.
///
/// Once the queue is armed (Dusi_Arm_Evq), the kernel raises the signal when an event comes to the empty queue, or the engine goes away. The
/// same signal may be associated with several queues. Block it, and take it by sigwaitinfo(2) or sigtimedwait(2), or have a handler that sets
/// a flag: no other call of this library may be made in a signal handler. Of a real-time signal, si_fd is the queue's descriptor, and each
/// queue's is delivered; SIGIO comes instead if the kernel's list of pending signals is full.
///
/// Parameters:
/// - `evq`: the queue.
/// - `signal`: the number of the signal; 0 ends the association.
/// - `flags`: 0, or DUSI_SIGNAL_THREAD: to the calling thread, not the process.
///
/// Blocking: the first time, until the engine's agent has answered.
///
/// Statuses: DUSI_OK; DUSI_BUSY; DUSI_DISCONNECTED; DUSI_BAD_HANDLE; DUSI_BAD_ARGUMENT; DUSI_SYSTEM (errno says why); DUSI_FORKED.
///
/// Paper: section 5, "A function is provided for associating a signal with an EvQ".
#[unsafe(no_mangle)]
pub extern "C" fn Dusi_Set_Evq_Signal(evq: Dusi_Evq, signal: c_int, flags: u32) -> Dusi_Status {
    call(|| {
        let fits = signal == 0 || signal::is_signal(signal);
        if !fits || flags & !DUSI_SIGNAL_THREAD != 0 {
            return Err(DUSI_BAD_ARGUMENT.into());
        }
        table::with_queue(evq, |queue| {
            let fd = queue.events.fd()?;
            if signal == 0 {
                signal::dissociate(fd)?;
            } else {
                signal::associate(fd, signal, flags & DUSI_SIGNAL_THREAD != 0)?;
            }
            queue.signals = signal != 0;
            Ok(())
        })
    })
}

/// Asks to be told by signal or descriptor when an event comes to an empty queue.
///
/// What was posted before is flushed. Nothing is armed when events wait already: take them, and arm again. An armed queue tells once; call Dusi_Disarm_Evq
/// after the sleep, and before the next arming. Sometimes it tells of nothing: look whether there is an event.
///
/// Parameters:
/// - `evq`: the queue.
///
/// Blocking: no.
///
/// Statuses: DUSI_OK if it is armed; DUSI_NOT_EMPTY if events wait; DUSI_DISCONNECTED; DUSI_BUSY; DUSI_BAD_HANDLE; DUSI_FORKED.
///
/// Paper: section 5, "it arms the corresponding signal(s)".
#[unsafe(no_mangle)]
pub extern "C" fn Dusi_Arm_Evq(evq: Dusi_Evq) -> Dusi_Status {
    call(|| {
        table::with_queue(evq, |queue| {
            table::with_name(queue.ual(), |door| door.flush());
            if queue.events.arm() {
                Ok(())
            } else if queue.events.is_empty() {
                Err(DUSI_DISCONNECTED.into())
            } else {
                Err(DUSI_NOT_EMPTY.into())
            }
        })
    })
}

/// Takes Dusi_Arm_Evq back, and empties the descriptor.
///
/// Does no harm to a queue that is not armed.
///
/// Parameters:
/// - `evq`: the queue.
///
/// Blocking: no.
///
/// Statuses: DUSI_OK; DUSI_BUSY; DUSI_BAD_HANDLE; DUSI_FORKED.
///
/// Paper: section 5, the counterpart of arming.
#[unsafe(no_mangle)]
pub extern "C" fn Dusi_Disarm_Evq(evq: Dusi_Evq) -> Dusi_Status {
    call(|| {
        table::with_queue(evq, |queue| {
            queue.events.disarm();
            Ok(())
        })
    })
}
