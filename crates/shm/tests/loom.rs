//! Every interleaving, and every value that a load may see, of small scenarios.
//!
//! The last tests take fences or orderings away: loom must then find the lost wake-up or the torn entry, or it would not be looking
//! where we think it does.

#![cfg(not(miri))]

mod models;

use std::convert::identity;

use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use loom::sync::{Condvar, Mutex};
use sidecore_abi::control::{WAIT_POLLING, WAIT_SLEEPING};

use models::{atomics, scenarios, sleeping, world};

atomics!(U32, U64, identity);
atomics!(Relaxed32, Relaxed64, |_| Ordering::Relaxed);
sleeping!(LoomSleeping);
world!(
    Loom,
    Fenced,
    U32,
    U64,
    fence(Ordering::SeqCst),
    LoomSleeping,
    loom
);
world!(
    LoomWithoutFences,
    Unfenced,
    U32,
    U64,
    (),
    LoomSleeping,
    loom
);
world!(
    LoomWithoutOrder,
    Unordered,
    Relaxed32,
    Relaxed64,
    (),
    LoomSleeping,
    loom
);

fn model(preemptions: usize, run: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(run);
}

#[test]
fn entries_are_whole_in_order_and_once() {
    model(3, || scenarios::lane::<Loom>(1, 4, 4));
}

#[test]
fn a_lane_of_two_carries_more_than_two() {
    model(2, || scenarios::stream::<Loom>(1, 4));
}

#[test]
fn no_event_finds_its_sleeper_asleep_for_ever() {
    model(3, || {
        scenarios::application_sleeps::<Loom>(1, 3, WAIT_SLEEPING)
    });
    model(3, || {
        scenarios::application_sleeps::<Loom>(1, 3, WAIT_POLLING)
    });
}

#[test]
fn no_call_by_another_thread_finds_a_sleeper_asleep_for_ever() {
    model(3, || scenarios::application_is_called::<Loom>(2, true));
}

#[test]
fn no_command_finds_the_engine_asleep_for_ever() {
    model(3, || scenarios::engine_sleeps::<Loom>(1, 3));
}

#[test]
fn no_command_is_left_on_a_parked_lane() {
    model(3, || scenarios::engine_parks_and_sleeps::<Loom>(1, 2));
}

#[test]
fn no_credit_leaves_the_engine_starving() {
    model(3, || scenarios::engine_starves::<Loom>(1, 4));
}

#[test]
#[should_panic(expected = "deadlock")]
fn without_fences_an_application_sleeps_for_ever() {
    model(3, || {
        scenarios::application_sleeps::<LoomWithoutFences>(1, 1, WAIT_SLEEPING);
    });
}

#[test]
#[should_panic(expected = "deadlock")]
fn who_does_not_look_for_a_call_sleeps_for_ever() {
    model(3, || scenarios::application_is_called::<Loom>(1, false));
}

#[test]
#[should_panic(expected = "deadlock")]
fn without_fences_a_call_is_not_heard() {
    model(3, || {
        scenarios::application_is_called::<LoomWithoutFences>(1, true);
    });
}

#[test]
#[should_panic(expected = "deadlock")]
fn without_fences_the_engine_sleeps_for_ever() {
    model(3, || scenarios::engine_sleeps::<LoomWithoutFences>(1, 1));
}

#[test]
#[should_panic(expected = "deadlock")]
fn without_fences_a_parked_lane_is_forgotten() {
    model(3, || {
        scenarios::engine_parks_and_sleeps::<LoomWithoutFences>(1, 1);
    });
}

#[test]
#[should_panic(expected = "deadlock")]
fn without_fences_an_engine_starves() {
    model(3, || scenarios::engine_starves::<LoomWithoutFences>(1, 3));
}

#[test]
#[should_panic(expected = "left == right")]
fn without_order_entries_are_torn() {
    model(3, || scenarios::lane::<LoomWithoutOrder>(1, 3, 3));
}
