//! A UAL's control memory as its two sides see it.
//!
//! Where everything lies follows from the [`Geometry`] that the agent granted. Each side copies that into its own memory and
//! computes from there; nothing read from the shared memory is ever used as an offset.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use sidecore_abi::control::{EVQ_STARVED, Geometry, WAIT_POLLING, WAIT_SLEEPING, WAIT_WOKEN};
use sidecore_sys::clock;
use sidecore_sys::futex::{futex_wait, futex_wait_interruptible, futex_wake};
use sidecore_sys::wake::Waker;

use crate::atomics::{Atomics, Real};
use crate::lane::{Consumer, MappedLane, Producer, Reader, Writer};
use crate::memory::Shared;
use crate::protocol::{self, Wake};
use crate::wakers::{Client, WakerThread};

/// Memory and geometry that fit together: every offset of the geometry lies inside.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    memory: Shared,
    geometry: Geometry,
}

impl Layout {
    fn new(memory: Shared, geometry: Geometry) -> io::Result<Self> {
        let fits = geometry.is_valid() && memory.len() >= geometry.size() as u64;
        if !fits || !memory.is_writable() {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "control memory does not fit its geometry",
            ));
        }
        Ok(Self { memory, geometry })
    }

    #[inline]
    fn engine_word(&self, engine: u32) -> Option<&AtomicU32> {
        let known = engine < self.geometry.engines;
        known.then(|| self.u32_at(self.geometry.engine_word(engine)))?
    }

    #[inline]
    fn bell_word(&self, engine: u32, word: u32) -> Option<&AtomicU64> {
        let known = engine < self.geometry.engines && word < self.geometry.lanes.div_ceil(64);
        let at = known.then(|| self.geometry.bell_word(engine, word))?;
        self.memory.atomic_u64(at as u64)
    }

    #[inline]
    pub(crate) fn wait_cell(&self, cell: u32) -> Option<&AtomicU32> {
        let known = cell < self.geometry.wait_cells;
        known.then(|| self.u32_at(self.geometry.wait_cell(cell)))?
    }

    #[inline]
    fn evq_word(&self, evq: u32, engine: u32) -> Option<&AtomicU32> {
        let known = evq < self.geometry.evqs && engine < self.geometry.engines;
        known.then(|| self.u32_at(self.geometry.evq_word(evq, engine)))?
    }

    #[inline]
    fn starved_word(&self, evq: u32, engine: u32) -> Option<&AtomicU32> {
        let known = evq < self.geometry.evqs && engine < self.geometry.engines;
        known.then(|| self.u32_at(self.geometry.evq_word(evq, engine) + EVQ_STARVED))?
    }

    #[inline]
    fn u32_at(&self, offset: usize) -> Option<&AtomicU32> {
        self.memory.atomic_u32(offset as u64)
    }

    fn dbq(&self, lane: u32, engine: u32) -> Option<MappedLane> {
        let known = lane < self.geometry.lanes && engine < self.geometry.engines;
        let at = known.then(|| self.geometry.lane(lane, engine))?;
        MappedLane::new(&self.memory, at as u64, self.geometry.lane_order)
    }

    fn evq(&self, evq: u32, engine: u32) -> Option<MappedLane> {
        let known = evq < self.geometry.evqs && engine < self.geometry.engines;
        let at = known.then(|| self.geometry.evq(evq, engine))?;
        MappedLane::new(&self.memory, at as u64, self.geometry.evq_order)
    }
}

/// What an application did that it should not have, as seen in the words of its control memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Lies {
    /// Event queue words that named a wait cell which does not exist.
    pub wait_cells: u64,
    /// Bells of lanes that do not exist.
    pub bells: u64,
    /// Event queues whose credit made no sense; nothing can be delivered there any more.
    pub credits: u64,
}

/// What wake-ups cost, see [`EngineControl::wake_cost`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct WakeCost {
    /// Wake-ups.
    pub count: u64,
    /// Processor cycles that they took.
    pub cycles: u64,
    /// Cycles of the slowest.
    pub slowest: u64,
    /// Sockets to which nothing is sent any more, because that was too dear ([`crate::wakers`]).
    pub taken_away: u64,
}

/// One engine thread's view: it reads the UAL's DbQ lanes and writes its EvQ lanes.
#[derive(Debug)]
pub struct EngineControl {
    layout: Layout,
    engine: u32,
    lanes: Vec<Consumer>,
    evqs: Vec<Producer>,
    sockets: Vec<Option<Waker>>,
    lies: Lies,
    wakes: WakeCost,
    /// Who makes the system calls, if it is not this thread.
    delegate: Option<Arc<Client>>,
}

impl EngineControl {
    /// Of engine thread 0, over fresh memory. `InvalidInput` when memory and geometry do not fit.
    pub fn new(memory: Shared, geometry: Geometry) -> io::Result<Self> {
        Self::for_engine(memory, geometry, 0)
    }

    /// Of any engine thread.
    pub fn for_engine(memory: Shared, geometry: Geometry, engine: u32) -> io::Result<Self> {
        let layout = Layout::new(memory, geometry)?;
        let outside = || io::Error::new(io::ErrorKind::InvalidInput, "no such engine thread");
        let lanes: Option<Vec<_>> = (0..geometry.lanes)
            .map(|lane| layout.dbq(lane, engine).map(Reader::new))
            .collect();
        let evqs: Option<Vec<_>> = (0..geometry.evqs)
            .map(|evq| layout.evq(evq, engine).map(Writer::new))
            .collect();
        Ok(Self {
            lanes: lanes.ok_or_else(outside)?,
            evqs: evqs.ok_or_else(outside)?,
            sockets: (0..geometry.wait_cells).map(|_| None).collect(),
            lies: Lies::default(),
            wakes: WakeCost::default(),
            delegate: None,
            engine,
            layout,
        })
    }

    /// The granted numbers.
    #[inline]
    pub fn geometry(&self) -> &Geometry {
        &self.layout.geometry
    }

    /// Whether the memory vanished under the engine.
    #[inline]
    pub fn condemned(&self) -> bool {
        self.layout.memory.condemned()
    }

    /// The reading end of a DbQ lane.
    #[inline]
    pub fn lane(&mut self, lane: usize) -> Option<&mut Consumer> {
        self.lanes.get_mut(lane)
    }

    /// The writing end of an event queue.
    #[inline]
    pub fn evq(&mut self, evq: usize) -> Option<&mut Producer> {
        self.evqs.get_mut(evq)
    }

    /// Takes bell word `word`: bit b is set when somebody posted to lane `64 * word + b` while it was parked. Bits of lanes that do not
    /// exist are dropped and counted. Costs one load while nobody rings.
    #[inline]
    pub fn take_bells(&mut self, word: u32) -> u64 {
        let Some(bell) = self.layout.bell_word(self.engine, word) else {
            return 0;
        };
        let bits = protocol::take_bells::<Real>(bell);
        if bits == 0 {
            return 0;
        }
        let lanes = self.layout.geometry.lanes - 64 * word;
        let known = if lanes >= 64 {
            u64::MAX
        } else {
            (1 << lanes) - 1
        };
        self.lies.bells += (bits & !known).count_ones() as u64;
        bits & known
    }

    /// Parks a lane; false when something came meanwhile (or there is no such lane). See [`protocol::park`].
    pub fn park(&mut self, lane: usize) -> bool {
        self.lanes.get_mut(lane).is_some_and(protocol::park)
    }

    /// Says that this engine thread is about to sleep. Then: [`EngineControl::fence`] once for all UALs, a last look at all lanes, the sleep.
    #[inline]
    pub fn announce_sleep(&self) {
        if let Some(word) = self.layout.engine_word(self.engine) {
            protocol::announce_sleep::<Real>(word);
        }
    }

    /// Says that this engine thread is awake.
    #[inline]
    pub fn announce_awake(&self) {
        if let Some(word) = self.layout.engine_word(self.engine) {
            protocol::announce_awake::<Real>(word);
        }
    }

    /// What stands between publishing events and [`EngineControl::wake`], once for any number of queues.
    #[inline]
    pub fn fence(&self) {
        Real::fence();
    }

    /// Whether somebody said that it will sleep on this queue. A hint: the application writes it.
    pub fn has_sleeper(&self, evq: usize) -> bool {
        let word = self.layout.evq_word(evq as u32, self.engine);
        word.is_some_and(|word| word.load(std::sync::atomic::Ordering::Relaxed) != 0)
    }

    /// Lets wake-ups of a wait cell go to this socket too. False when there is no such cell. Replaces the cell's last one.
    pub fn set_wait_socket(&mut self, cell: u32, waker: Waker) -> bool {
        if let Some(delegate) = &self.delegate {
            return delegate.set_waker(cell, waker);
        }
        let place = self.sockets.get_mut(cell as usize);
        place.map(|place| *place = Some(waker)).is_some()
    }

    /// Lets another thread make the system calls of waking from now on: for an application that is not trusted ([`crate::wakers`] tells why).
    pub fn delegate_wakes(&mut self, thread: &WakerThread) {
        let sockets = std::mem::take(&mut self.sockets);
        self.delegate = Some(thread.add(self.layout.clone(), sockets));
    }

    /// Wakes who sleeps on an event queue, if anybody does; says so. To be called after a fence, once a turn for each queue that got events. A
    /// system call (or two, with a socket) when there is somebody, else one load.
    #[inline]
    pub fn wake(&mut self, evq: usize) -> bool {
        let Some(word) = self.layout.evq_word(evq as u32, self.engine) else {
            return false;
        };
        match protocol::take_waiter::<Real>(word, |cell| self.layout.wait_cell(cell)) {
            Wake::Nobody => false,
            Wake::Nonsense => {
                self.lies.wait_cells += 1;
                false
            }
            Wake::Cell { number, futex } => {
                self.wake_cell(number, futex);
                true
            }
        }
    }

    fn wake_cell(&mut self, cell: u32, futex: bool) {
        if let Some(delegate) = &self.delegate {
            return delegate.note(cell, futex);
        }
        let begun = clock::cycles();
        if futex && let Some(word) = self.layout.wait_cell(cell) {
            futex_wake(word, 1);
        }
        if let Some(Some(socket)) = self.sockets.get(cell as usize) {
            socket.wake();
        }
        let cycles = clock::cycles().wrapping_sub(begun);
        self.wakes.count += 1;
        self.wakes.cycles += cycles;
        self.wakes.slowest = self.wakes.slowest.max(cycles);
    }

    /// Wakes every thread that sleeps on a wait cell, whatever it waits for: when the UAL ends.
    pub fn wake_all(&mut self) {
        for cell in 0..self.layout.geometry.wait_cells {
            let Some(word) = self.layout.wait_cell(cell) else {
                break;
            };
            let state = word.swap(WAIT_WOKEN, Ordering::AcqRel);
            if matches!(state, WAIT_SLEEPING | WAIT_POLLING) {
                self.wake_cell(cell, state == WAIT_SLEEPING);
            }
        }
    }

    /// What waking this application's threads has cost so far.
    pub fn wake_cost(&self) -> WakeCost {
        self.delegate
            .as_ref()
            .map_or(self.wakes, |delegate| delegate.cost())
    }

    /// When the engine is about to sleep while events wait for room on a full queue, after [`EngineControl::announce_sleep`]: asks the application
    /// to tell when it returns credit. False when there is room already (or no such queue): then the engine goes on instead.
    pub fn starve(&mut self, evq: usize) -> bool {
        let word = self.layout.starved_word(evq as u32, self.engine);
        let (Some(word), Some(writer)) = (word, self.evqs.get_mut(evq)) else {
            return false;
        };
        protocol::starve(writer, word)
    }

    /// What the application was caught at so far.
    pub fn lies(&self) -> Lies {
        let credits = self.evqs.iter().filter(|evq| evq.poisoned()).count() as u64;
        Lies {
            credits,
            ..self.lies
        }
    }
}

/// The application's view. Cheap to clone.
#[derive(Clone, Debug)]
pub struct AppControl {
    layout: Layout,
}

impl AppControl {
    /// Over the memory that the agent sent. `InvalidInput` when memory and geometry do not fit.
    pub fn new(memory: Shared, geometry: Geometry) -> io::Result<Self> {
        Ok(Self {
            layout: Layout::new(memory, geometry)?,
        })
    }

    /// The granted numbers.
    #[inline]
    pub fn geometry(&self) -> &Geometry {
        &self.layout.geometry
    }

    /// The writing end of a DbQ lane. To be asked for once a lane: it begins at the first entry.
    pub fn dbq(&self, lane: u32, engine: u32) -> Option<Producer> {
        self.layout.dbq(lane, engine).map(Writer::new)
    }

    /// The reading end of an event queue. To be asked for once a queue and engine thread: it begins at the first entry.
    pub fn evq(&self, evq: u32, engine: u32) -> Option<Consumer> {
        self.layout.evq(evq, engine).map(Reader::new)
    }

    /// After pushing any number of entries to a lane: rings its bell if it is parked, and says whether the caller must send a byte on
    /// the wake socket because the engine sleeps.
    #[inline]
    pub fn ring(&self, producer: &Producer, lane: u32, engine: u32) -> bool {
        use crate::lane::LaneMemory;
        let bell = self.layout.bell_word(engine, lane / 64);
        let (Some(bell), Some(word)) = (bell, self.layout.engine_word(engine)) else {
            return false;
        };
        protocol::ring::<Real>(producer.memory().state(), bell, 1 << (lane % 64), word)
    }

    /// After taking entries from an event queue: if that returned credit for which the engine waits, says whether the caller must send
    /// a byte on the wake socket because the engine sleeps. Nothing but a test of a flag in most cases; to be called after each burst of
    /// [`Consumer::pop`].
    #[inline]
    pub fn relieve(&self, consumer: &mut Consumer, evq: u32, engine: u32) -> bool {
        if !consumer.returned_credit() {
            return false;
        }
        let starved = self.layout.starved_word(evq, engine);
        let (Some(starved), Some(word)) = (starved, self.layout.engine_word(engine)) else {
            return false;
        };
        protocol::relieve::<Real>(starved, word)
    }

    /// A cell for one thread at a time to sleep on.
    pub fn wait_cell(&self, cell: u32) -> Option<WaitCell> {
        self.layout.wait_cell(cell)?;
        Some(WaitCell {
            layout: self.layout.clone(),
            number: cell,
            queues: Vec::new(),
        })
    }
}

/// How a sleep ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sleep {
    /// The engine woke the cell: look at the queues.
    Woken,
    /// Time is up.
    TimedOut,
    /// A signal handler ran ([`WaitCell::sleep_interruptible`] only).
    Interrupted,
}

/// Where one thread sleeps.
///
/// ```text
///   cell.prepare(&queues);            // announce
///   if every queue is still empty {   // look again
///       cell.sleep(timeout)?;         // or epoll on the cell's socket
///   }
///   cell.cancel();                    // take the announcement back
/// ```
#[derive(Debug)]
pub struct WaitCell {
    layout: Layout,
    number: u32,
    /// Queues that the present announcement names.
    queues: Vec<u32>,
}

impl WaitCell {
    /// Its number.
    pub fn number(&self) -> u32 {
        self.number
    }

    fn word(&self) -> &AtomicU32 {
        // The number was checked when the cell was made, so the fallback is never used.
        static NOWHERE: AtomicU32 = AtomicU32::new(0);
        self.layout.wait_cell(self.number).unwrap_or(&NOWHERE)
    }

    fn words<'a>(layout: &'a Layout, queues: &'a [u32]) -> impl Iterator<Item = &'a AtomicU32> {
        queues.iter().flat_map(|evq| {
            (0..layout.geometry.engines).filter_map(|engine| layout.evq_word(*evq, engine))
        })
    }

    /// Announces a sleep until something comes to one of these queues. Afterwards each of them must be looked at once more before
    /// [`WaitCell::sleep`]. Queues that do not exist are ignored. An earlier announcement is replaced.
    pub fn prepare(&mut self, evqs: &[u32]) {
        self.announce(evqs, WAIT_SLEEPING);
    }

    /// The same for a sleep in epoll, on the cell's socket, and not in [`WaitCell::sleep`]: the engine sends a byte and does without the futex.
    /// Needs the socket (RequestKind::WaitSocket), or nobody wakes.
    pub fn prepare_polling(&mut self, evqs: &[u32]) {
        self.announce(evqs, WAIT_POLLING);
    }

    fn announce(&mut self, evqs: &[u32], state: u32) {
        if !self.queues.is_empty() {
            self.cancel();
        }
        self.queues.extend_from_slice(evqs);
        let words = Self::words(&self.layout, &self.queues);
        protocol::announce_wait::<Real>(self.word(), self.number, state, words);
    }

    /// Sleeps until the engine wakes the cell, or time is up. Returns at once if it did so since [`WaitCell::prepare`].
    pub fn sleep(&self, timeout: Option<Duration>) -> io::Result<Sleep> {
        self.sleep_by(timeout, futex_wait)
    }

    /// The same, ended by a signal handler where POSIX has it that a blocked call ends.
    pub fn sleep_interruptible(&self, timeout: Option<Duration>) -> io::Result<Sleep> {
        self.sleep_by(timeout, futex_wait_interruptible)
    }

    fn sleep_by(
        &self,
        timeout: Option<Duration>,
        wait: impl Fn(&AtomicU32, u32, Option<Duration>) -> io::Result<()>,
    ) -> io::Result<Sleep> {
        let deadline = timeout.and_then(|t| Instant::now().checked_add(t));
        let word = self.word();
        while word.load(Ordering::Acquire) == WAIT_SLEEPING {
            let left = deadline.map(|at| at.saturating_duration_since(Instant::now()));
            match wait(word, WAIT_SLEEPING, left) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {
                    return Ok(Sleep::Interrupted);
                }
                Err(error) if error.kind() == io::ErrorKind::TimedOut => {
                    return Ok(Sleep::TimedOut);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(Sleep::Woken)
    }

    /// Whether the engine has woken the cell since [`WaitCell::prepare`].
    pub fn is_woken(&self) -> bool {
        !matches!(
            self.word().load(Ordering::Acquire),
            WAIT_SLEEPING | WAIT_POLLING
        )
    }

    /// Wakes the cell's sleeper from another thread of the application. Why is to be written before, and the sleeper must look for it between
    /// [`WaitCell::prepare`] and [`WaitCell::sleep`], as it looks at its queues: else a wake just before the announcement is lost. One that sleeps in
    /// epoll, on the cell's socket, sleeps on: the engine would not wake it any more if this did, and there is no byte for it.
    pub fn wake(&self) {
        let word = self.word();
        if protocol::wake_by_hand::<Real>(word) {
            futex_wake(word, 1);
        }
    }

    /// Takes the announcement back: after a sleep, or in place of one.
    pub fn cancel(&mut self) {
        let words = Self::words(&self.layout, &self.queues);
        protocol::cancel_wait::<Real>(self.word(), self.number, words);
        self.queues.clear();
    }
}

#[cfg(test)]
mod tests;
