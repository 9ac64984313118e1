//! What the two sides do to each other, for any checker.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use sidecore_abi::Entry;
use sidecore_abi::control::{LANE_ACTIVE, WAIT_SLEEPING};

use super::heap::HeapLane;
use super::{ModelAtomics, Sleeping, World};
use sidecore_shm::atomics::{Atomic32, Atomics};
use sidecore_shm::lane::{LaneMemory, Reader, Writer};
use sidecore_shm::protocol::{self, Wake};

fn entry(n: u64) -> Entry {
    Entry::new(n as u8, 0, 0, [n; 7])
}

fn check(got: Entry, n: u64) {
    assert_eq!((got.code(), &got.0[1..]), (n as u8, &[n; 7][..]));
}

/// A writer that tries to push and a reader that tries to pop, at the same time: what comes out is what went in, whole, in order, once.
pub(crate) fn lane<W: World>(order: u32, pushes: u64, pops: u64) {
    let memory = HeapLane::<W::A>::new(order);
    let mut writer = Writer::new(memory.clone());
    let mut reader = Reader::new(memory.clone());
    let thread = W::spawn(move || {
        let mut got = 0;
        for _ in 0..pops {
            if let Some(one) = reader.pop() {
                check(one, got);
                got += 1;
            }
        }
        // What is left comes out as well once the writer is done: see below.
        assert_eq!(reader.taken(), got);
    });
    let mut sent = 0;
    for _ in 0..pushes {
        if writer.push(entry(sent)).is_ok() {
            sent += 1;
        }
    }
    assert!(!writer.poisoned());
    W::join(thread);
}

/// All of `count` entries go through a lane that is smaller than that; both sides wait by pausing.
pub(crate) fn stream<W: World>(order: u32, count: u64) {
    let memory = HeapLane::<W::A>::new(order);
    let mut writer = Writer::new(memory.clone());
    let mut reader = Reader::new(memory);
    let thread = W::spawn(move || {
        for n in 0..count {
            while writer.push(entry(n)).is_err() {
                W::pause();
            }
        }
        assert!(!writer.poisoned());
    });
    for n in 0..count {
        let got = loop {
            match reader.pop() {
                Some(one) => break one,
                None => W::pause(),
            }
        };
        check(got, n);
    }
    W::join(thread);
    assert!(reader.is_empty());
}

/// The shared words of one event queue, its lane and one wait cell.
struct EventQueue<W: World> {
    lane: HeapLane<W::A>,
    word: <W::A as Atomics>::U32,
    cell: <W::A as Atomics>::U32,
    futex: W::Sleeping,
}

/// The engine publishes events while the application's thread goes to sleep again and again. `wait_state` is how it sleeps.
pub(crate) fn application_sleeps<W: World>(order: u32, events: u64, wait_state: u32) {
    let queue = Arc::new(EventQueue::<W> {
        lane: HeapLane::new(order),
        word: W::A::u32(0),
        cell: W::A::u32(0),
        futex: W::Sleeping::new(),
    });
    let engine = {
        let queue = Arc::clone(&queue);
        W::spawn(move || {
            let mut writer = Writer::new(queue.lane.clone());
            for n in 0..events {
                while writer.push(entry(n)).is_err() {
                    W::pause();
                }
                W::A::fence();
                let wake = protocol::take_waiter::<W::A>(&queue.word, |cell| {
                    (cell == 0).then_some(&queue.cell)
                });
                match wake {
                    Wake::Cell { futex: true, .. } => queue.futex.wake(),
                    Wake::Cell { futex: false, .. } => queue.futex.send(),
                    Wake::Nobody => {}
                    Wake::Nonsense => panic!("nobody lies here"),
                }
            }
        })
    };
    let mut reader = Reader::new(queue.lane.clone());
    let words = || std::iter::once(&queue.word);
    let mut got = 0;
    while got < events {
        if let Some(one) = reader.pop() {
            check(one, got);
            got += 1;
            continue;
        }
        protocol::announce_wait::<W::A>(&queue.cell, 0, wait_state, words());
        if reader.is_empty() {
            if wait_state == WAIT_SLEEPING {
                queue
                    .futex
                    .wait_while(|| queue.cell.load(Ordering::Acquire) == WAIT_SLEEPING);
            } else {
                queue.futex.receive();
            }
        }
        protocol::cancel_wait::<W::A>(&queue.cell, 0, words());
    }
    W::join(engine);
}

/// States of a thread that others of its program may wake: nobody did, it is about to sleep or does, somebody did.
const AWAKE: u32 = 0;
const LYING: u32 = 1;
const CALLED: u32 = 2;

/// A thread goes to sleep on its cell and is woken by another of the application, which has nothing for the queue. `looks`: whether the
/// sleeper looks for that between the announcement and the sleep.
pub(crate) fn application_is_called<W: World>(times: u32, looks: bool) {
    let queue = Arc::new(EventQueue::<W> {
        lane: HeapLane::new(1),
        word: W::A::u32(0),
        cell: W::A::u32(0),
        futex: W::Sleeping::new(),
    });
    let calls: Arc<Vec<_>> = Arc::new((0..times).map(|_| W::A::u32(AWAKE)).collect());
    let caller = {
        let (queue, calls) = (Arc::clone(&queue), Arc::clone(&calls));
        W::spawn(move || {
            for call in &*calls {
                let lies = call.swap(CALLED, Ordering::AcqRel) == LYING;
                if lies && protocol::wake_by_hand::<W::A>(&queue.cell) {
                    queue.futex.wake();
                }
            }
        })
    };
    let reader = Reader::new(queue.lane.clone());
    let words = || std::iter::once(&queue.word);
    for call in &*calls {
        while call.exchange(AWAKE, LYING, Ordering::AcqRel) {
            protocol::announce_wait::<W::A>(&queue.cell, 0, WAIT_SLEEPING, words());
            let called = looks && call.load(Ordering::Acquire) == CALLED;
            if reader.is_empty() && !called {
                queue
                    .futex
                    .wait_while(|| queue.cell.load(Ordering::Acquire) == WAIT_SLEEPING);
            }
            protocol::cancel_wait::<W::A>(&queue.cell, 0, words());
            call.exchange(LYING, AWAKE, Ordering::Acquire);
        }
    }
    W::join(caller);
}

/// The shared words of one DbQ lane.
struct Doorbell<W: World> {
    lane: HeapLane<W::A>,
    bell: <W::A as Atomics>::U64,
    engine: <W::A as Atomics>::U32,
    socket: W::Sleeping,
}

impl<W: World> Doorbell<W> {
    fn new(order: u32) -> Arc<Self> {
        Arc::new(Self {
            lane: HeapLane::new(order),
            bell: W::A::u64(0),
            engine: W::A::u32(0),
            socket: W::Sleeping::new(),
        })
    }

    /// The application's thread: posts and rings.
    fn post(self: &Arc<Self>, commands: u64) -> W::Thread {
        let door = Arc::clone(self);
        W::spawn(move || {
            let mut writer = Writer::new(door.lane.clone());
            for n in 0..commands {
                while writer.push(entry(n)).is_err() {
                    W::pause();
                }
                if protocol::ring::<W::A>(door.lane.state(), &door.bell, 1, &door.engine) {
                    door.socket.send();
                }
            }
        })
    }
}

/// The application posts while the engine goes to sleep whenever it finds nothing.
pub(crate) fn engine_sleeps<W: World>(order: u32, commands: u64) {
    let door = Doorbell::<W>::new(order);
    let application = door.post(commands);
    let mut reader = Reader::new(door.lane.clone());
    let mut got = 0;
    while got < commands {
        if let Some(one) = reader.pop() {
            check(one, got);
            got += 1;
            continue;
        }
        protocol::announce_sleep::<W::A>(&door.engine);
        W::A::fence();
        if reader.is_empty() {
            door.socket.receive();
        }
        protocol::announce_awake::<W::A>(&door.engine);
    }
    W::join(application);
}

/// The same with an engine that parks the lane whenever it is empty, and before sleeping looks only at the bell.
pub(crate) fn engine_parks_and_sleeps<W: World>(order: u32, commands: u64) {
    let door = Doorbell::<W>::new(order);
    let application = door.post(commands);
    let mut reader = Reader::new(door.lane.clone());
    let mut got = 0;
    while got < commands {
        while reader.state() == LANE_ACTIVE {
            match reader.pop() {
                Some(one) => {
                    check(one, got);
                    got += 1;
                }
                None => drop(protocol::park(&mut reader)),
            }
        }
        if got == commands {
            break;
        }
        if protocol::take_bells::<W::A>(&door.bell) != 0 {
            reader.set_state(LANE_ACTIVE);
            continue;
        }
        protocol::announce_sleep::<W::A>(&door.engine);
        W::A::fence();
        let bells = protocol::take_bells::<W::A>(&door.bell);
        if bells != 0 {
            reader.set_state(LANE_ACTIVE);
        } else {
            door.socket.receive();
        }
        protocol::announce_awake::<W::A>(&door.engine);
    }
    W::join(application);
}

/// What an engine with a full event queue shares with the application.
struct Starving<W: World> {
    lane: HeapLane<W::A>,
    starved: <W::A as Atomics>::U32,
    engine: <W::A as Atomics>::U32,
    socket: W::Sleeping,
    /// Stands for the event queue's own wake-up.
    events: W::Sleeping,
}

/// The engine has more events than the queue holds, and sleeps on it; the application takes them all, and never asks for more.
pub(crate) fn engine_starves<W: World>(order: u32, events: u64) {
    let shared = Arc::new(Starving::<W> {
        lane: HeapLane::new(order),
        starved: W::A::u32(0),
        engine: W::A::u32(0),
        socket: W::Sleeping::new(),
        events: W::Sleeping::new(),
    });
    let mut writer = Writer::new(shared.lane.clone());
    let mut sent = 0;
    while sent < events && writer.push(entry(sent)).is_ok() {
        sent += 1;
    }
    let engine = {
        let shared = Arc::clone(&shared);
        W::spawn(move || {
            while sent < events {
                if writer.push(entry(sent)).is_ok() {
                    sent += 1;
                    shared.events.send();
                    continue;
                }
                protocol::announce_sleep::<W::A>(&shared.engine);
                if protocol::starve(&mut writer, &shared.starved) {
                    shared.socket.receive();
                }
                protocol::announce_awake::<W::A>(&shared.engine);
            }
        })
    };
    let mut reader = Reader::new(shared.lane.clone());
    let mut got = 0;
    while got < events {
        match reader.pop() {
            Some(one) => {
                check(one, got);
                got += 1;
            }
            None => shared.events.receive(),
        }
        let told =
            reader.returned_credit() && protocol::relieve::<W::A>(&shared.starved, &shared.engine);
        if told {
            shared.socket.send();
        }
    }
    W::join(engine);
}
