//! Event queues.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use rustix::io::Errno;
use sidecore_sys::futex::{futex_wait_interruptible, futex_wake};

use crate::sys;

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What an operation was given, and what came of it. Addresses in the program's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Detail {
    None,
    Transfer {
        buffer: usize,
        len: usize,
        memory: i32,
    },
    Message {
        message: usize,
        len: usize,
    },
    File {
        pieces: usize,
        len: usize,
    },
    Accept {
        fd: i32,
        room: usize,
    },
    Poll {
        list: usize,
        count: i32,
    },
}

/// An operation is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Event {
    /// EXS_EVT_SEND and so on.
    pub(crate) kind: i32,
    pub(crate) errno: i32,
    /// The descriptor, as the program named it.
    pub(crate) fd: i32,
    pub(crate) ahandle: usize,
    pub(crate) detail: Detail,
}

struct Inner {
    events: VecDeque<Event>,
    depth: usize,
    /// Operations that are not done.
    outstanding: usize,
    signal: Option<i32>,
    /// How many events each of the waiting threads waits for.
    waiting: Vec<usize>,
    deleted: bool,
}

/// An event queue.
pub(crate) struct Queue {
    inner: Mutex<Inner>,
    /// Changes whenever a thread that waits has to look.
    bell: AtomicU32,
    /// Its handle, once it has one.
    name: AtomicU32,
}

impl Queue {
    pub(crate) fn new(depth: usize) -> Self {
        Self {
            inner: Mutex::new(Inner {
                events: VecDeque::new(),
                depth,
                outstanding: 0,
                signal: None,
                waiting: Vec::new(),
                deleted: false,
            }),
            bell: AtomicU32::new(0),
            name: AtomicU32::new(0),
        }
    }

    pub(crate) fn set_name(&self, handle: i32) {
        self.name.store(handle as u32, Ordering::Relaxed);
    }

    /// Takes room for the event of an operation that begins.
    pub(crate) fn reserve(&self) -> Result<(), Errno> {
        let mut inner = lock(&self.inner);
        if inner.deleted {
            return Err(Errno::BADF);
        }
        if inner.outstanding + inner.events.len() >= inner.depth {
            return Err(Errno::AGAIN);
        }
        inner.outstanding += 1;
        Ok(())
    }

    /// An operation did not begin after all.
    pub(crate) fn release(&self) {
        lock(&self.inner).outstanding -= 1;
    }

    /// An operation is done. There is room: it was taken when it began.
    pub(crate) fn push(&self, event: Event) {
        let mut inner = lock(&self.inner);
        let signal = inner.signal.filter(|_| inner.events.is_empty());
        inner.outstanding = inner.outstanding.saturating_sub(1);
        inner.events.push_back(event);
        let there = inner.events.len();
        let somebody = inner.waiting.iter().any(|wanted| *wanted <= there);
        drop(inner);
        if somebody {
            self.ring();
        }
        if let Some(signal) = signal {
            sys::raise(signal, self.name.load(Ordering::Relaxed) as i32);
        }
    }

    fn ring(&self) {
        self.bell.fetch_add(1, Ordering::Release);
        futex_wake(&self.bell, u32::MAX >> 1);
    }

    /// Waits until `least` events are there or time is up, and hands out `most` of them at most. How many. `INTR` when a signal handler ran
    /// before that.
    pub(crate) fn dequeue(
        &self,
        least: usize,
        most: usize,
        deadline: Option<Instant>,
        mut take: impl FnMut(usize, Event),
    ) -> Result<usize, Errno> {
        let mut inner = lock(&self.inner);
        loop {
            if inner.deleted {
                return Err(Errno::BADF);
            }
            let left = deadline.map(|at| at.saturating_duration_since(Instant::now()));
            let late = left.is_some_and(|left| left.is_zero());
            if inner.events.len() >= least || late {
                let n = inner.events.len().min(most);
                for (at, event) in inner.events.drain(..n).enumerate() {
                    take(at, event);
                }
                return Ok(n);
            }
            let seen = self.bell.load(Ordering::Acquire);
            inner.waiting.push(least);
            drop(inner);
            let slept = futex_wait_interruptible(&self.bell, seen, left);
            inner = lock(&self.inner);
            if let Some(at) = inner.waiting.iter().position(|wanted| *wanted == least) {
                inner.waiting.swap_remove(at);
            }
            let interrupted =
                slept.is_err_and(|error| error.kind() == std::io::ErrorKind::Interrupted);
            if interrupted && inner.events.len() < least {
                return Err(Errno::INTR);
            }
        }
    }

    pub(crate) fn depth(&self) -> usize {
        lock(&self.inner).depth
    }

    /// `BUSY` when more is under way than that.
    pub(crate) fn set_depth(&self, depth: usize) -> Result<(), Errno> {
        let mut inner = lock(&self.inner);
        if inner.outstanding + inner.events.len() > depth {
            return Err(Errno::BUSY);
        }
        inner.depth = depth;
        Ok(())
    }

    pub(crate) fn signal(&self) -> Option<i32> {
        lock(&self.inner).signal
    }

    /// With events there already it is sent at once.
    pub(crate) fn set_signal(&self, signal: Option<i32>) {
        let mut inner = lock(&self.inner);
        inner.signal = signal;
        let now = signal.filter(|_| !inner.events.is_empty());
        drop(inner);
        if let Some(signal) = now {
            sys::raise(signal, self.name.load(Ordering::Relaxed) as i32);
        }
    }

    pub(crate) fn len(&self) -> usize {
        lock(&self.inner).events.len()
    }

    /// Its end: whoever waits is told. `BUSY` while operations are under way.
    pub(crate) fn delete(&self) -> Result<(), Errno> {
        let mut inner = lock(&self.inner);
        if inner.outstanding > 0 {
            return Err(Errno::BUSY);
        }
        inner.deleted = true;
        drop(inner);
        self.ring();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn event(ahandle: usize) -> Event {
        Event {
            kind: 1,
            errno: 0,
            fd: 3,
            ahandle,
            detail: Detail::None,
        }
    }

    #[test]
    fn operations_and_events_share_the_depth() {
        let queue = Queue::new(2);
        queue.reserve().unwrap();
        queue.reserve().unwrap();
        assert_eq!(queue.reserve(), Err(Errno::AGAIN));
        queue.push(event(1));
        assert_eq!(queue.reserve(), Err(Errno::AGAIN), "the event has the room");
        assert_eq!(queue.delete(), Err(Errno::BUSY));
        assert_eq!(queue.set_depth(1), Err(Errno::BUSY));
        let mut taken = Vec::new();
        let n = queue.dequeue(1, 8, None, |at, event| taken.push((at, event)));
        assert_eq!((n, taken), (Ok(1), vec![(0, event(1))]));
        queue.reserve().unwrap();
        queue.release();
        queue.push(event(2));
        queue.delete().unwrap();
        assert_eq!(queue.reserve(), Err(Errno::BADF));
    }

    #[test]
    fn a_threshold_is_waited_for_and_time_gives_what_is_there() {
        let queue = Queue::new(8);
        for n in 0..3 {
            queue.reserve().unwrap();
            queue.push(event(n));
        }
        let soon = Some(Instant::now() + Duration::from_millis(5));
        assert_eq!(queue.dequeue(4, 4, soon, |_, _| ()), Ok(3));
        queue.reserve().unwrap();
        queue.reserve().unwrap();
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| queue.dequeue(2, 2, None, |_, _| ()));
            queue.push(event(4));
            queue.push(event(5));
            assert_eq!(waiter.join().unwrap(), Ok(2));
        });
        assert_eq!(queue.dequeue(0, 4, None, |_, _| ()), Ok(0));
    }
}
