//! The steps by which the two sides wake each other, each written once, over any atomics.
//!
//! All of them have the shape of Dekker's: *I write mine, fence, read yours; you write yours, fence, read mine*. With a sequentially
//! consistent fence between the write and the read on both sides, at least one of the two sees the other's write, so that either the sleeper
//! does not sleep or the other wakes it. `crates/abi/src/control.rs` tells who writes what.

use std::sync::atomic::Ordering;

use sidecore_abi::control::{
    ENGINE_AWAKE, ENGINE_SLEEPING, EVQ_STARVING, LANE_ACTIVE, LANE_PARKED, WAIT_IDLE, WAIT_POLLING,
    WAIT_SLEEPING, WAIT_WOKEN,
};

use crate::atomics::{Atomic32, Atomic64, Atomics};
use crate::lane::{LaneMemory, Reader, Writer};

/// Application, after pushing to a lane: rings the bell if the lane is parked, and says whether the engine sleeps and is this caller's to
/// wake (a byte on the wake socket).
#[inline]
pub fn ring<A: Atomics>(state: &A::U32, bell: &A::U64, bit: u64, engine: &A::U32) -> bool {
    // The entry before, the lane's state and the engine's word after.
    A::fence();
    if state.load(Ordering::Relaxed) != LANE_ACTIVE {
        bell.fetch_or(bit, Ordering::Release);
        // The bell before, the engine's word after: a sleeping engine may look at bells only.
        A::fence();
    }
    wake_engine::<A>(engine)
}

/// Application, after a fence: whether the engine sleeps and is this caller's to wake.
#[inline]
pub fn wake_engine<A: Atomics>(engine: &A::U32) -> bool {
    engine.load(Ordering::Relaxed) == ENGINE_SLEEPING
        && engine.swap(ENGINE_AWAKE, Ordering::AcqRel) == ENGINE_SLEEPING
}

/// Engine: says that it is about to sleep. Then: [`Atomics::fence`] (once for all UALs), a last look at every lane and bell, and only
/// then the sleep.
#[inline]
pub fn announce_sleep<A: Atomics>(engine: &A::U32) {
    // An exchange, so that an application's late exchange for AWAKE comes clearly before or after.
    engine.swap(ENGINE_SLEEPING, Ordering::AcqRel);
}

/// Engine: says that it looks at its lanes again.
#[inline]
pub fn announce_awake<A: Atomics>(engine: &A::U32) {
    engine.store(ENGINE_AWAKE, Ordering::Relaxed);
}

/// Engine: parks a lane that has been empty for long. False, and the lane active as before, when something came meanwhile.
pub fn park<M: LaneMemory>(reader: &mut Reader<M>) -> bool {
    reader.set_state(LANE_PARKED);
    // The state before, the entry after.
    M::Atomics::fence();
    if reader.is_empty() {
        return true;
    }
    reader.set_state(LANE_ACTIVE);
    false
}

/// Engine: takes the bits of a bell word. A quiet word costs a load of a line that nobody writes.
#[inline]
pub fn take_bells<A: Atomics>(bell: &A::U64) -> u64 {
    if bell.load(Ordering::Relaxed) == 0 {
        return 0;
    }
    bell.swap(0, Ordering::Acquire)
}

/// What became of a wake-up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wake {
    /// Nobody waits.
    Nobody,
    /// The sleeper of this cell is the caller's to wake: by its socket if it has one, and, if `futex`, by its futex.
    Cell {
        /// Its number.
        number: u32,
        /// Whether it may sleep on the futex.
        futex: bool,
    },
    /// The word names a cell that does not exist.
    Nonsense,
}

/// Engine, after publishing events and a fence: whom to wake on an event queue.
#[inline]
pub fn take_waiter<'a, A: Atomics>(
    word: &A::U32,
    cell: impl FnOnce(u32) -> Option<&'a A::U32>,
) -> Wake
where
    A::U32: 'a,
{
    if word.load(Ordering::Relaxed) == 0 {
        return Wake::Nobody;
    }
    // Acquire: the cell's own word was written before its number came here.
    let Some(number) = word.swap(0, Ordering::AcqRel).checked_sub(1) else {
        return Wake::Nobody;
    };
    let Some(cell) = cell(number) else {
        return Wake::Nonsense;
    };
    let state = cell.load(Ordering::Relaxed);
    let sleeps = matches!(state, WAIT_SLEEPING | WAIT_POLLING);
    // When the cell changed meanwhile its owner is awake, and looks at its queues again before it sleeps.
    if sleeps && cell.exchange(state, WAIT_WOKEN, Ordering::AcqRel) {
        let futex = state == WAIT_SLEEPING;
        Wake::Cell { number, futex }
    } else {
        Wake::Nobody
    }
}

/// Engine, when an event queue is full and the engine is about to sleep on it, *after* [`announce_sleep`]: asks to be told of credit. False
/// when there is credit already, and nothing was asked.
pub fn starve<M: LaneMemory>(
    writer: &mut Writer<M>,
    starved: &<M::Atomics as Atomics>::U32,
) -> bool {
    // Release: whoever sees it sees the engine asleep. Exchanges and no stores, here and below, so that an application's exchange for 0 comes
    // clearly before or after.
    starved.swap(EVQ_STARVING, Ordering::AcqRel);
    // The word before, the credit after.
    M::Atomics::fence();
    if writer.free() == 0 {
        return true;
    }
    starved.swap(0, Ordering::AcqRel);
    false
}

/// Application, after returning credit of an event queue: whether the engine waits for it, sleeps, and is this caller's to wake.
#[inline]
pub fn relieve<A: Atomics>(starved: &A::U32, engine: &A::U32) -> bool {
    // The credit before, the words after.
    A::fence();
    if starved.load(Ordering::Relaxed) == 0 {
        return false;
    }
    starved.swap(0, Ordering::AcqRel);
    wake_engine::<A>(engine)
}

/// Application: announces that the owner of cell `number` is about to sleep until something comes to one of these queues' words.
/// Then it looks at the queues once more, and only then sleeps. `state` says how: WAIT_SLEEPING or WAIT_POLLING.
pub fn announce_wait<'a, A: Atomics>(
    cell: &A::U32,
    number: u32,
    state: u32,
    words: impl Iterator<Item = &'a A::U32>,
) where
    A::U32: 'a,
{
    cell.store(state, Ordering::Relaxed);
    for word in words {
        // Release: whoever reads the number sees the cell sleeping. An exchange, so that the engine's exchange for 0 comes clearly before or
        // after.
        word.swap(number + 1, Ordering::AcqRel);
    }
    // The words before, the entries after.
    A::fence();
}

/// Application, another thread than the cell's owner, after writing somewhere why: whether the owner sleeps on its futex and is this caller's to wake.
/// The owner looks for the reason between [`announce_wait`] and the sleep, as it looks at its queues.
pub fn wake_by_hand<A: Atomics>(cell: &A::U32) -> bool {
    // The reason before, the cell after.
    A::fence();
    // Release: whoever wakes by it sees the reason. One that polls is left alone: the engine would not wake it any more.
    cell.exchange(WAIT_SLEEPING, WAIT_WOKEN, Ordering::Release)
}

/// Application: takes the announcement back, after a sleep or in place of one.
pub fn cancel_wait<'a, A: Atomics>(
    cell: &A::U32,
    number: u32,
    words: impl Iterator<Item = &'a A::U32>,
) where
    A::U32: 'a,
{
    cell.store(WAIT_IDLE, Ordering::Relaxed);
    for word in words {
        // Unless another thread waits there by now.
        if word.load(Ordering::Relaxed) == number + 1 {
            word.exchange(number + 1, 0, Ordering::Relaxed);
        }
    }
}
