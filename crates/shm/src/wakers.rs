//! A thread that wakes applications in the engine's place.
//!
//! What a wake-up costs is up to the one who is woken. A socket's other end can be put into a hundred thousand epolls, and every byte
//! sent there walks them all (60 ns each, measured); a futex shares its hash bucket with whoever else sleeps there. The engine's thread
//! serves everybody, so with applications that it does not trust it only notes whom to wake, and this thread makes the system calls. It
//! measures them, and takes the socket of a cell away whose wake-ups are too dear.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use sidecore_abi::control::{ENGINE_AWAKE, ENGINE_SLEEPING};
use sidecore_sys::clock;
use sidecore_sys::futex::{futex_wait, futex_wake};
use sidecore_sys::wake::Waker;

use crate::atomics::{Atomics, Real};
use crate::control::{Layout, WakeCost};
use crate::protocol;

/// Processor time of one byte to a socket from which on it counts as slow.
const SLOW_NS: u64 = 1_000_000;
/// After so many slow ones the socket is taken away.
const STRIKES: u32 = 4;
/// The thread looks around at least this often, in case of an end that was not told.
const PATIENCE: Duration = Duration::from_secs(1);

/// The thread. Ends, and is joined, on drop.
#[derive(Debug)]
pub struct WakerThread {
    inner: Arc<Inner>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Inner {
    /// As an engine's word: asleep or awake. The engine is the application here.
    word: AtomicU32,
    stop: AtomicBool,
    clients: Mutex<Vec<Weak<Client>>>,
}

/// The wait cells of one UAL, and who of them is to be woken. Held by the engine's view, known to the thread as long as that lives.
#[derive(Debug)]
pub(crate) struct Client {
    layout: Layout,
    thread: Arc<Inner>,
    /// Cells to be woken, a bit each: by futex, by socket.
    futexes: Box<[AtomicU64]>,
    sockets: Box<[AtomicU64]>,
    wakers: Mutex<Vec<Option<Cell>>>,
    count: AtomicU64,
    cycles: AtomicU64,
    slowest: AtomicU64,
    taken_away: AtomicU64,
}

#[derive(Debug)]
struct Cell {
    waker: Waker,
    strikes: u32,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl WakerThread {
    /// Starts the thread.
    pub fn spawn() -> io::Result<Self> {
        let inner = Arc::new(Inner {
            word: AtomicU32::new(ENGINE_AWAKE),
            stop: AtomicBool::new(false),
            clients: Mutex::new(Vec::new()),
        });
        let run = Arc::clone(&inner);
        let thread = std::thread::Builder::new()
            .name("sidecore-waker".into())
            .spawn(move || run.run())?;
        Ok(Self {
            inner,
            thread: Some(thread),
        })
    }

    pub(crate) fn add(&self, layout: Layout, wakers: Vec<Option<Waker>>) -> Arc<Client> {
        let words = wakers.len().div_ceil(64);
        let bits = || (0..words).map(|_| AtomicU64::new(0)).collect();
        let cells = wakers
            .into_iter()
            .map(|waker| waker.map(|waker| Cell { waker, strikes: 0 }));
        let client = Arc::new(Client {
            layout,
            thread: Arc::clone(&self.inner),
            futexes: bits(),
            sockets: bits(),
            wakers: Mutex::new(cells.collect()),
            count: AtomicU64::new(0),
            cycles: AtomicU64::new(0),
            slowest: AtomicU64::new(0),
            taken_away: AtomicU64::new(0),
        });
        lock(&self.inner.clients).push(Arc::downgrade(&client));
        client
    }
}

impl Drop for WakerThread {
    fn drop(&mut self) {
        self.inner.stop.store(true, Ordering::SeqCst);
        self.inner.word.store(ENGINE_AWAKE, Ordering::SeqCst);
        futex_wake(&self.inner.word, 1);
        if let Some(thread) = self.thread.take() {
            // Its panic was printed where it happened; there is nothing more to do about it.
            let _ = thread.join();
        }
    }
}

impl Inner {
    fn run(&self) {
        while !self.stop.load(Ordering::SeqCst) {
            if self.serve() > 0 {
                continue;
            }
            protocol::announce_sleep::<Real>(&self.word);
            Real::fence();
            if self.serve() == 0 && !self.stop.load(Ordering::SeqCst) {
                let _ = futex_wait(&self.word, ENGINE_SLEEPING, Some(PATIENCE));
            }
            protocol::announce_awake::<Real>(&self.word);
        }
    }

    /// Wakes whoever is to be woken, and says how many that were.
    fn serve(&self) -> usize {
        let mut clients = lock(&self.clients);
        clients.retain(|client| client.strong_count() > 0);
        let living: Vec<_> = clients.iter().filter_map(Weak::upgrade).collect();
        drop(clients);
        living.iter().map(|client| client.serve()).sum()
    }
}

impl Client {
    /// Engine: notes that a cell is to be woken, and wakes the thread if it sleeps.
    pub(crate) fn note(&self, cell: u32, futex: bool) {
        let (word, bit) = (cell as usize / 64, 1 << (cell % 64));
        let by = |bits: &[AtomicU64]| {
            if let Some(word) = bits.get(word) {
                word.fetch_or(bit, Ordering::Release);
            }
        };
        by(&self.sockets);
        if futex {
            by(&self.futexes);
        }
        Real::fence();
        if protocol::wake_engine::<Real>(&self.thread.word) {
            futex_wake(&self.thread.word, 1);
        }
    }

    pub(crate) fn set_waker(&self, cell: u32, waker: Waker) -> bool {
        let mut wakers = lock(&self.wakers);
        let place = wakers.get_mut(cell as usize);
        place
            .map(|place| *place = Some(Cell { waker, strikes: 0 }))
            .is_some()
    }

    pub(crate) fn cost(&self) -> WakeCost {
        WakeCost {
            count: self.count.load(Ordering::Relaxed),
            cycles: self.cycles.load(Ordering::Relaxed),
            slowest: self.slowest.load(Ordering::Relaxed),
            taken_away: self.taken_away.load(Ordering::Relaxed),
        }
    }

    fn serve(&self) -> usize {
        let mut served = 0;
        for (at, bits) in self.futexes.iter().enumerate() {
            for cell in take(bits, at) {
                served += 1;
                self.timed(|| {
                    if let Some(word) = self.layout.wait_cell(cell) {
                        futex_wake(word, 1);
                    }
                });
            }
        }
        for (at, bits) in self.sockets.iter().enumerate() {
            for cell in take(bits, at) {
                served += 1;
                self.send(cell);
            }
        }
        served
    }

    fn send(&self, cell: u32) {
        let mut wakers = lock(&self.wakers);
        let Some(place) = wakers.get_mut(cell as usize) else {
            return;
        };
        let Some(socket) = place else { return };
        let begun = clock::thread_cpu_ns();
        self.timed(|| {
            socket.waker.wake();
        });
        if clock::thread_cpu_ns().saturating_sub(begun) < SLOW_NS {
            return;
        }
        socket.strikes += 1;
        if socket.strikes >= STRIKES {
            *place = None;
            self.taken_away.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn timed(&self, work: impl FnOnce()) {
        let begun = clock::cycles();
        work();
        let cycles = clock::cycles().wrapping_sub(begun);
        self.count.fetch_add(1, Ordering::Relaxed);
        self.cycles.fetch_add(cycles, Ordering::Relaxed);
        self.slowest.fetch_max(cycles, Ordering::Relaxed);
    }
}

/// The numbers of the bits of one word, which are 0 afterwards.
fn take(bits: &AtomicU64, word: usize) -> impl Iterator<Item = u32> + use<> {
    let mut left = protocol::take_bells::<Real>(bits);
    std::iter::from_fn(move || {
        let bit = (left != 0).then(|| left.trailing_zeros())?;
        left &= left - 1;
        Some(word as u32 * 64 + bit)
    })
}

#[cfg(test)]
#[cfg(not(miri))]
mod tests {
    use super::*;
    use crate::Shared;
    use crate::control::{AppControl, EngineControl, Sleep};
    use rustix::event::epoll;
    use sidecore_abi::control::Geometry;
    use sidecore_sys::wake::{Sleeper, WakePair};
    use std::os::fd::AsFd;

    const GEOMETRY: Geometry = Geometry {
        engines: 1,
        lanes: 1,
        lane_order: 3,
        evqs: 80,
        evq_order: 3,
        wait_cells: 80,
    };

    fn both(thread: &WakerThread) -> (EngineControl, AppControl) {
        let memory = Shared::heap(GEOMETRY.size());
        let mut engine = EngineControl::new(memory.clone(), GEOMETRY).unwrap();
        engine.delegate_wakes(thread);
        (engine, AppControl::new(memory, GEOMETRY).unwrap())
    }

    fn wait_socket(engine: &mut EngineControl, cell: u32) -> Sleeper {
        let (waker, sleeper) = WakePair::new().unwrap().split();
        assert!(engine.set_wait_socket(cell, waker));
        sleeper
    }

    #[test]
    fn sleepers_of_both_kinds_are_woken() {
        let thread = WakerThread::spawn().unwrap();
        let (mut engine, app) = both(&thread);
        let long = Some(Duration::from_secs(20));
        let socket = wait_socket(&mut engine, 70);
        assert!(!engine.set_wait_socket(80, WakePair::new().unwrap().waker));
        for round in 0..50 {
            let mut sleeps = app.wait_cell(3).unwrap();
            let mut polls = app.wait_cell(70).unwrap();
            sleeps.prepare(&[3]);
            polls.prepare_polling(&[70]);
            engine.fence();
            assert!(engine.wake(3) && engine.wake(70));
            assert_eq!(sleeps.sleep(long).unwrap(), Sleep::Woken);
            assert!(socket.wait(long).unwrap(), "{round}");
            socket.drain();
        }
        // Each round waited for its byte; the last may not be counted yet.
        assert!(engine.wake_cost().count >= 49);
        assert_eq!(engine.wake_cost().taken_away, 0);
        drop(thread);
    }

    #[test]
    fn a_socket_that_is_dear_to_wake_is_taken_away() {
        let thread = WakerThread::spawn().unwrap();
        let (mut engine, app) = both(&thread);
        let (slow, fair) = (wait_socket(&mut engine, 0), wait_socket(&mut engine, 1));
        // Some 30 000 places where the byte is looked for: 2 ms and more.
        let copies: Vec<_> = (0..300)
            .map(|_| slow.as_fd().try_clone_to_owned().unwrap())
            .collect();
        let mut epolls = Vec::new();
        for _ in 0..150 {
            let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
            for copy in &copies {
                let data = epoll::EventData::new_u64(0);
                if epoll::add(&epoll, copy, data, epoll::EventFlags::IN).is_err() {
                    eprintln!("skipped: not enough epoll watches here");
                    return;
                }
            }
            epolls.push(epoll);
        }
        let mut polls = app.wait_cell(0).unwrap();
        for _ in 0..200 {
            polls.prepare_polling(&[0]);
            engine.fence();
            assert!(engine.wake(0));
            if engine.wake_cost().taken_away > 0 {
                break;
            }
            std::thread::sleep(Duration::from_millis(5));
            slow.drain();
        }
        assert_eq!(engine.wake_cost().taken_away, 1);
        let mut honest = app.wait_cell(1).unwrap();
        honest.prepare_polling(&[1]);
        engine.fence();
        assert!(engine.wake(1));
        assert!(fair.wait(Some(Duration::from_secs(20))).unwrap());
    }

    #[test]
    fn an_end_is_prompt_and_the_dead_are_forgotten() {
        let thread = WakerThread::spawn().unwrap();
        let (engine, _app) = both(&thread);
        drop(engine);
        let (mut engine, app) = both(&thread);
        let mut cell = app.wait_cell(0).unwrap();
        let deadline = std::time::Instant::now() + Duration::from_secs(20);
        loop {
            cell.prepare(&[0]);
            engine.fence();
            assert!(engine.wake(0));
            cell.sleep(None).unwrap();
            if lock(&thread.inner.clients).len() == 1 {
                break;
            }
            assert!(std::time::Instant::now() < deadline, "still remembered");
        }
        let begun = std::time::Instant::now();
        drop(thread);
        assert!(begun.elapsed() < Duration::from_millis(900));
        cell.prepare(&[0]);
        engine.fence();
        assert!(engine.wake(0), "noted, though nobody acts on it any more");
    }
}
