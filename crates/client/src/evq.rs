//! Event queues: what the engine has to say.

use std::cell::Cell;
use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use sidecore_abi::entry::mark_at;
use sidecore_abi::{DtiHandle, Event, EventKind, Operation, Status};
use sidecore_shm::Consumer;
use sidecore_shm::control::Sleep;
use sidecore_shm::lane::LaneMemory;
use sidecore_sys::wake::Sleeper;

use crate::error::Disconnected;
use crate::ual::{IdleQueue, Inner};

/// Names an event queue where a DTI is made or an answer is asked for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct EvqId(pub(crate) u16);

impl EvqId {
    /// Its number, below [`crate::Granted::geometry`]'s `evqs`.
    pub const fn index(self) -> u16 {
        self.0
    }
}

impl From<&EventQueue> for EvqId {
    fn from(queue: &EventQueue) -> Self {
        queue.id
    }
}

impl From<&mut EventQueue> for EvqId {
    fn from(queue: &mut EventQueue) -> Self {
        queue.id
    }
}

/// How a wait ended; see [`EventQueue::wait_interruptible`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Waited {
    /// An event is there, or the thread was woken for another reason.
    Came,
    /// Time is up.
    TimedOut,
    /// A signal handler ran.
    Interrupted,
}

/// How many times a wait looks at its queues between two looks at the clock.
const SPINS: u32 = 64;

/// Without a thread that watches the engine, a sleeper looks after it itself this often.
const UNWATCHED: Duration = Duration::from_millis(100);

/// An event queue of a UAL, claimed by one consumer at a time (`Send`, not `Sync`) and given back when dropped.
///
/// Which DTIs answer here is chosen when they are made. Polling and dequeuing make no system call.
///
/// A program should keep up: while a queue is full the engine keeps what is for it, and reads no more commands of this UAL.
pub struct EventQueue {
    ual: Arc<Inner>,
    id: EvqId,
    ends: IdleQueue,
    /// Engine thread whose lane is looked at next.
    next: usize,
    spin: Duration,
    unknown: u64,
    _not_sync: PhantomData<Cell<()>>,
}

impl EventQueue {
    pub(crate) fn new(ual: Arc<Inner>, id: EvqId, idle: IdleQueue) -> Self {
        Self {
            spin: ual.spin,
            ual,
            id,
            ends: idle,
            next: 0,
            unknown: 0,
            _not_sync: PhantomData,
        }
    }

    /// What it is called where a DTI is made.
    pub fn id(&self) -> EvqId {
        self.id
    }

    /// The next event, if there is one. Costs a load of a cache line when there is none.
    #[inline]
    pub fn poll(&mut self) -> Option<Event> {
        self.take()
    }

    /// Inlined where it is used, so that an event goes from the lane by registers to where the caller wants it: a copy of what was just
    /// stored piece by piece costs more than all else here.
    #[inline(always)]
    fn take(&mut self) -> Option<Event> {
        let mut left = self.ends.consumers.len();
        loop {
            let Some(entry) = self.ends.consumers.get_mut(self.next)?.pop() else {
                left -= 1;
                if left == 0 {
                    return None;
                }
                self.turn_to_next();
                continue;
            };
            self.turn_to_next();
            let Some(event) = Event::decode(&entry) else {
                // A newer engine's event: nothing in it can be ours to answer.
                self.unknown += 1;
                continue;
            };
            if matches!(
                event.kind,
                EventKind::Closed | EventKind::Completion | EventKind::Detached
            ) {
                self.settle(event.kind, event.status, event.dti, event.body[4]);
            }
            return Some(event);
        }
    }

    /// Engine threads are served in turn, so that a busy one does not hide the others.
    #[inline]
    fn turn_to_next(&mut self) {
        let engines = self.ends.consumers.len();
        if engines > 1 {
            self.next = (self.next + 1) % engines;
        }
    }

    /// Keeps the table of handles: a DTI that was closed, or never came to be, needs no Closed any more.
    #[inline(never)]
    fn settle(&self, kind: EventKind, status: Status, dti: DtiHandle, operation: u64) {
        let over = match kind {
            EventKind::Closed => true,
            EventKind::Detached => return self.ual.forget_handle(dti),
            _ if status == Status::Ok => false,
            _ => match Operation::from_raw(operation as u8) {
                Some(Operation::CreateStream | Operation::CreateDatagram | Operation::Attach) => {
                    true
                }
                Some(Operation::Close | Operation::Abort) => status == Status::BadHandle,
                _ => false,
            },
        };
        if over {
            self.ual.handles.seen(dti);
        }
    }

    /// Appends at most `max` events to `out`, and says how many.
    #[inline]
    pub fn dequeue(&mut self, out: &mut Vec<Event>, max: usize) -> usize {
        let before = out.len();
        while out.len() - before < max {
            let Some(event) = self.take() else { break };
            out.push(event);
        }
        out.len() - before
    }

    /// Whether no event waits.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.ends.consumers.iter().all(Consumer::is_empty)
    }

    /// How many events wait. Looks at log2 of the queue's size of them.
    pub fn depth(&self) -> usize {
        self.ends.consumers.iter().map(depth).sum()
    }

    /// Events of kinds that this library does not know, skipped so far.
    pub fn unknown(&self) -> u64 {
        self.unknown
    }

    /// How long [`Self::wait`] polls before it sleeps; at first what the UAL was opened with.
    pub fn set_spin(&mut self, spin: Duration) {
        self.spin = spin;
    }

    /// Blocks until an event is there (true) or time is up (false; `None`: no limit). It polls for a moment ([`Self::set_spin`]) and then sleeps.
    ///
    /// Events that came before the engine went away are still told; then it is [`Disconnected`]. Flush your lane first:
    /// what was not flushed may never be answered.
    pub fn wait(&mut self, timeout: Option<Duration>) -> Result<bool, Disconnected> {
        Self::wait_any(&mut [self], timeout)
    }

    /// Blocks until one of several queues of one UAL has an event (true) or time is up (false). As [`Self::wait`].
    ///
    /// # Panics
    ///
    /// When the queues are of different UALs.
    pub fn wait_any(
        queues: &mut [&mut Self],
        timeout: Option<Duration>,
    ) -> Result<bool, Disconnected> {
        let waited = Self::wait_for(queues, timeout, false, &|| false);
        waited.map(|waited| waited == Waited::Came)
    }

    /// As [`Self::wait`], but ended by a signal handler where POSIX ends a blocked call: always if there is a timeout, else if the handler was
    /// installed without SA_RESTART.
    pub fn wait_interruptible(
        &mut self,
        timeout: Option<Duration>,
    ) -> Result<Waited, Disconnected> {
        self.wait_unless(timeout, true, &|| false)
    }

    /// A wait that ends, too, when another thread of the program calls ([`Inner::call`]), having made `called` true before. A call that comes just
    /// before the sleep is not lost: `called` is looked at when the queue is, after the announcement.
    pub(crate) fn wait_unless(
        &mut self,
        timeout: Option<Duration>,
        interruptible: bool,
        called: &dyn Fn() -> bool,
    ) -> Result<Waited, Disconnected> {
        Self::wait_for(&mut [self], timeout, interruptible, called)
    }

    fn wait_for(
        queues: &mut [&mut Self],
        timeout: Option<Duration>,
        interruptible: bool,
        called: &dyn Fn() -> bool,
    ) -> Result<Waited, Disconnected> {
        let Some(first) = queues.first() else {
            return Ok(Waited::TimedOut);
        };
        let ual = Arc::clone(&first.ual);
        assert!(
            queues.iter().all(|queue| Arc::ptr_eq(&queue.ual, &ual)),
            "wait_any: queues of different UALs"
        );
        if queues.iter().any(|queue| !queue.is_empty()) {
            return Ok(Waited::Came);
        }
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let spin = queues.iter().map(|queue| queue.spin).max();
        if spin_on(queues, spin.unwrap_or_default(), deadline) {
            return Ok(Waited::Came);
        }
        let watched = ual.watch().is_ok();
        loop {
            // Asked before the queues are looked at, so that what came before the end is told first.
            let gone = ual.is_gone() || !watched && !ual.is_alive();
            if queues.iter().any(|queue| !queue.is_empty()) {
                return Ok(Waited::Came);
            }
            if gone {
                return Err(Disconnected);
            }
            let left = deadline.map(|at| at.saturating_duration_since(Instant::now()));
            if left == Some(Duration::ZERO) {
                return Ok(Waited::TimedOut);
            }
            let nap = if watched {
                left
            } else {
                Some(left.map_or(UNWATCHED, |left| left.min(UNWATCHED)))
            };
            if sleep_on(queues, &ual, nap, interruptible, called) {
                return Ok(Waited::Interrupted);
            }
            if interruptible || called() {
                // Somebody may have something else for the caller.
                return Ok(Waited::Came);
            }
        }
    }

    /// A descriptor to put into epoll (poll, io_uring) beside others: readable when [`Self::arm`]ed and an event came, or the engine went away.
    /// The first call asks the agent for it and blocks for its answer; later ones give the same.
    ///
    /// ```text
    ///   let fd = queue.fd()?;                 // register it for EPOLLIN, level-triggered
    ///   loop {
    ///       while let Some(event) = queue.poll() { … }
    ///       lane.flush();
    ///       if queue.arm() {                  // false: events are there already
    ///           epoll_wait(…);
    ///           queue.disarm();
    ///       }
    ///   }
    /// ```
    pub fn fd(&mut self) -> io::Result<BorrowedFd<'_>> {
        let missing = || io::Error::from(io::ErrorKind::NotFound);
        if self.ends.socket.is_none() {
            let cell = self.ends.cell.as_ref().ok_or_else(missing)?;
            self.ends.socket = Some(self.ual.wait_socket(cell.number())?);
        }
        let socket = self.ends.socket.as_ref().ok_or_else(missing)?;
        Ok(socket.as_fd())
    }

    /// Asks to be woken through [`Self::fd`]. False, and nothing asked, when an event is there already (or the engine is known to have gone).
    /// After the sleep, and before the next arm, comes [`Self::disarm`].
    pub fn arm(&mut self) -> bool {
        if let Some(cell) = &mut self.ends.cell {
            cell.prepare_polling(&[u32::from(self.id.0)]);
        }
        if self.is_empty() && !self.ual.is_gone() {
            return true;
        }
        self.cancel();
        false
    }

    /// Takes [`Self::arm`] back, and out of the descriptor what ended the sleep.
    pub fn disarm(&mut self) {
        self.cancel();
        if let Some(socket) = &self.ends.socket {
            // The engine sends one byte for each time that it was armed. What another thread adds ends the next sleep early, and is taken then.
            Sleeper::take(socket);
        }
    }

    /// Whether the engine still holds the UAL open; see [`crate::Ual::is_alive`].
    pub fn is_alive(&self) -> bool {
        self.ual.is_alive()
    }

    fn prepare(&mut self, queues: &[u32]) {
        if let Some(cell) = &mut self.ends.cell {
            cell.prepare(queues);
        }
    }

    fn cancel(&mut self) {
        if let Some(cell) = &mut self.ends.cell {
            cell.cancel();
        }
    }
}

/// Polls for a moment; says whether an event came.
fn spin_on(queues: &[&mut EventQueue], spin: Duration, deadline: Option<Instant>) -> bool {
    if spin.is_zero() {
        return false;
    }
    let now = Instant::now();
    let end = deadline.map_or(now + spin, |deadline| deadline.min(now + spin));
    while Instant::now() < end {
        for _ in 0..SPINS {
            if queues.iter().any(|queue| !queue.is_empty()) {
                return true;
            }
            std::hint::spin_loop();
        }
    }
    false
}

/// Sleeps on the first queue's cell until an event comes to any of them, or the engine goes, or time is up.
/// Says whether a signal handler ended it.
fn sleep_on(
    queues: &mut [&mut EventQueue],
    ual: &Inner,
    timeout: Option<Duration>,
    interruptible: bool,
    called: &dyn Fn() -> bool,
) -> bool {
    for queue in queues.iter_mut() {
        // While we sleep the engine shall know of all the room that there is.
        let consumers = queue.ends.consumers.iter_mut();
        consumers.for_each(Consumer::publish_credit);
    }
    let mut ids = [0u32; 8];
    let many: Vec<u32>;
    let ids = if queues.len() <= ids.len() {
        for (id, queue) in ids.iter_mut().zip(queues.iter()) {
            *id = u32::from(queue.id.0);
        }
        &ids[..queues.len()]
    } else {
        many = queues.iter().map(|queue| u32::from(queue.id.0)).collect();
        &many
    };
    let Some((first, _)) = queues.split_first_mut() else {
        return false;
    };
    first.prepare(ids);
    let quiet = queues.iter().all(|queue| queue.is_empty()) && !ual.is_gone() && !called();
    let Some(first) = queues.first_mut() else {
        return false;
    };
    let mut interrupted = false;
    if quiet && let Some(cell) = &first.ends.cell {
        let slept = if interruptible {
            cell.sleep_interruptible(timeout)
        } else {
            cell.sleep(timeout)
        };
        match slept {
            Ok(Sleep::Woken | Sleep::TimedOut) => {}
            Ok(Sleep::Interrupted) => interrupted = true,
            // A futex word of ours that the system cannot sleep on: go on without sleeping long.
            Err(_) => std::thread::sleep(Duration::from_millis(1)),
        }
    }
    first.cancel();
    interrupted
}

/// Entries that wait on one lane: they are published in order, so the first that is not is found by halving.
fn depth(consumer: &Consumer) -> usize {
    let lane = consumer.memory();
    let (taken, order) = (consumer.taken(), lane.order());
    let published = |ahead: u64| {
        let position = taken + ahead;
        let head = lane.entry(position)[0].load(std::sync::atomic::Ordering::Acquire);
        head as u32 == mark_at(position, order)
    };
    let (mut low, mut high) = (0u64, 1u64 << order);
    while low < high {
        let middle = (low + high) / 2;
        if published(middle) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    low as usize
}

impl Drop for EventQueue {
    fn drop(&mut self) {
        self.cancel();
        let ends = std::mem::take(&mut self.ends);
        self.ual.put_queue_back(self.id, ends);
    }
}

impl std::fmt::Debug for EventQueue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EventQueue")
            .field("id", &self.id)
            .field("depth", &self.depth())
            .finish_non_exhaustive()
    }
}
