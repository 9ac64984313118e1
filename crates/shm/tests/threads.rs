//! The same scenarios on real threads: under Miri with its weak memory, else at full speed.

mod models;

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use std::sync::{Condvar, Mutex};

use sidecore_abi::control::{WAIT_POLLING, WAIT_SLEEPING};

use models::{atomics, scenarios, sleeping, world};

atomics!(U32, U64, std::convert::identity);
sleeping!(RealSleeping);
world!(
    Threads,
    Real,
    U32,
    U64,
    fence(Ordering::SeqCst),
    RealSleeping,
    std
);

/// How many entries: few where each instruction is interpreted.
const COUNT: u64 = if cfg!(miri) { 24 } else { 20_000 };

#[test]
fn streams_of_entries() {
    scenarios::lane::<Threads>(3, COUNT, COUNT);
    for order in [1, 3, 8] {
        scenarios::stream::<Threads>(order, COUNT);
    }
}

#[test]
fn sleeping_applications() {
    scenarios::application_sleeps::<Threads>(3, COUNT, WAIT_SLEEPING);
    scenarios::application_sleeps::<Threads>(3, COUNT, WAIT_POLLING);
}

#[test]
fn sleeping_engines() {
    scenarios::engine_sleeps::<Threads>(3, COUNT);
    scenarios::engine_parks_and_sleeps::<Threads>(3, COUNT);
    scenarios::engine_starves::<Threads>(3, COUNT);
}
