//! Random schedules of larger scenarios, sequentially consistent.

#![cfg(not(miri))]

mod models;

use std::convert::identity;

use shuttle::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use shuttle::sync::{Condvar, Mutex};
use sidecore_abi::control::{WAIT_POLLING, WAIT_SLEEPING};

use models::{atomics, scenarios, sleeping, world};

atomics!(U32, U64, identity);
sleeping!(ShuttleSleeping);
world!(Shuttle, Scheduled, U32, U64, (), ShuttleSleeping, shuttle);

const SEED: u64 = 0x51de_c04e;

/// The same schedules every time.
fn check(iterations: usize, run: impl Fn() + Send + Sync + 'static) {
    let mut config = shuttle::Config::new();
    config.failure_persistence = shuttle::FailurePersistence::Print;
    let scheduler = shuttle::scheduler::RandomScheduler::new_from_seed(SEED, iterations);
    shuttle::Runner::new(scheduler, config.clone()).run({
        let run = std::sync::Arc::new(run);
        let again = std::sync::Arc::clone(&run);
        // Few preemptions in the worst places find other things than many anywhere.
        let pct = shuttle::scheduler::PctScheduler::new_from_seed(SEED, 3, iterations);
        shuttle::Runner::new(pct, config).run(move || again());
        move || run()
    });
}

#[test]
fn streams_of_entries() {
    check(100, || scenarios::lane::<Shuttle>(3, 30, 40));
    check(50, || scenarios::stream::<Shuttle>(2, 30));
    check(50, || scenarios::stream::<Shuttle>(3, 40));
}

#[test]
fn sleeping_applications() {
    check(200, || {
        scenarios::application_sleeps::<Shuttle>(2, 12, WAIT_SLEEPING);
    });
    check(200, || {
        scenarios::application_sleeps::<Shuttle>(2, 12, WAIT_POLLING);
    });
    check(200, || {
        scenarios::application_is_called::<Shuttle>(12, true)
    });
}

#[test]
fn sleeping_engines() {
    check(200, || scenarios::engine_sleeps::<Shuttle>(2, 12));
    check(200, || scenarios::engine_parks_and_sleeps::<Shuttle>(2, 12));
    check(200, || scenarios::engine_starves::<Shuttle>(2, 20));
}
