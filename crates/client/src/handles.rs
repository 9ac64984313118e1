//! Handles of DTIs: which are free, and when one may be used again.
//!
//! The application chooses a DTI's handle, so that creating one needs no answer. A handle is free for another use when the
//! application has closed the DTI *and* has seen its Closed event, in either order. One thing more: the engine must have read the
//! Close before it reads the next Create of the same index, and lanes are not ordered among each other. So a freed
//! index remembers the lane and the place of its Close; another lane takes it only when the engine has passed that place.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use sidecore_abi::DtiHandle;

/// A DTI, as its application names it. It is a name, not an owner: dropping it does nothing, copies mean the same DTI. A
/// stale one (closed, and its index used again) does no harm: the engine answers `BadHandle`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Dti(DtiHandle);

impl Dti {
    /// The name as it stands in commands and events.
    #[inline]
    pub const fn handle(self) -> DtiHandle {
        self.0
    }

    /// Slot in the UAL's table, below [`crate::Granted::dtis`]: fit to index an application's own table of connections. Check
    /// [`Self::generation`] (or compare the whole `Dti`) before trusting that an event is for the present user of the slot.
    #[inline]
    pub const fn index(self) -> usize {
        self.0.index as usize
    }

    /// Use of that slot.
    #[inline]
    pub const fn generation(self) -> u32 {
        self.0.generation
    }
}

impl From<DtiHandle> for Dti {
    #[inline]
    fn from(handle: DtiHandle) -> Self {
        Self(handle)
    }
}

impl From<Dti> for DtiHandle {
    #[inline]
    fn from(dti: Dti) -> Self {
        dti.0
    }
}

impl PartialEq<DtiHandle> for Dti {
    #[inline]
    fn eq(&self, other: &DtiHandle) -> bool {
        self.0 == *other
    }
}

impl PartialEq<Dti> for DtiHandle {
    #[inline]
    fn eq(&self, other: &Dti) -> bool {
        *self == other.0
    }
}

/// Slots in a segment of the table, which is allocated when its first slot is used.
const SEGMENT: usize = 1024;

/// How many freed handles one acquire looks at before it takes a fresh one or gives up.
const LOOK: usize = 16;

const LIVE: u64 = 1;
/// The Closed event was seen.
const SEEN: u64 = 2;
/// The application has posted Close or Abort.
const LEFT: u64 = 4;

struct Slot {
    /// Generation in the high half, LIVE, SEEN, LEFT in the low.
    state: AtomicU64,
    /// Lane (high 16 bits) and place (low 32) of the Close.
    left_at: AtomicU64,
}

/// Where on which lane a command was posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) lane: u16,
    /// Entries posted to that lane so far, this one included (wrapping).
    pub(crate) posted: u32,
}

impl Place {
    fn pack(self) -> u64 {
        u64::from(self.lane) << 32 | u64::from(self.posted)
    }

    fn unpack(word: u64) -> Self {
        Self {
            lane: (word >> 32) as u16,
            posted: word as u32,
        }
    }
}

pub(crate) struct Handles {
    limit: u32,
    segments: Box<[OnceLock<Box<[Slot]>>]>,
    free: Mutex<Free>,
}

struct Free {
    /// Freed indexes, oldest first, with the place of their Close.
    used: VecDeque<(u32, Place)>,
    /// The lowest index that was never used.
    fresh: u32,
}

impl Handles {
    pub(crate) fn new(limit: u32) -> Self {
        let segments = (limit as usize).div_ceil(SEGMENT);
        Self {
            limit,
            segments: (0..segments).map(|_| OnceLock::new()).collect(),
            free: Mutex::new(Free {
                used: VecDeque::new(),
                fresh: 0,
            }),
        }
    }

    fn slot(&self, index: u32) -> Option<&Slot> {
        let segment = self.segments.get(index as usize / SEGMENT)?.get()?;
        segment.get(index as usize % SEGMENT)
    }

    fn slot_made(&self, index: u32) -> Option<&Slot> {
        let segment = self.segments.get(index as usize / SEGMENT)?;
        let make = || {
            let slot = || Slot {
                state: AtomicU64::new(0),
                left_at: AtomicU64::new(0),
            };
            (0..SEGMENT).map(|_| slot()).collect()
        };
        segment.get_or_init(make).get(index as usize % SEGMENT)
    }

    /// A handle for a DTI that will be created on `lane`. `passed` says whether the engine has read what was posted at a place of another
    /// lane. Locks, but only for the set-up of a connection.
    pub(crate) fn acquire(&self, lane: u16, passed: impl Fn(Place) -> bool) -> Option<Dti> {
        let index = {
            let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
            let mut found = None;
            for _ in 0..free.used.len().min(LOOK) {
                let Some((index, place)) = free.used.pop_front() else {
                    break;
                };
                if place.lane == lane || passed(place) {
                    found = Some(index);
                    break;
                }
                free.used.push_back((index, place));
            }
            match found {
                Some(index) => index,
                None if free.fresh < self.limit => {
                    free.fresh += 1;
                    free.fresh - 1
                }
                None => return None,
            }
        };
        let slot = self.slot_made(index)?;
        let generation = ((slot.state.load(Ordering::Relaxed) >> 32) as u32).wrapping_add(1);
        slot.state
            .store(u64::from(generation) << 32 | LIVE, Ordering::Release);
        Some(Dti(DtiHandle { index, generation }))
    }

    /// The create was not posted after all.
    pub(crate) fn unacquire(&self, dti: Dti, lane: u16, posted: u32) {
        self.left(dti, Place { lane, posted });
        self.seen(dti.0);
    }

    /// The application posted Close or Abort at `place`.
    pub(crate) fn left(&self, dti: Dti, place: Place) {
        if let Some(slot) = self.slot(dti.0.index) {
            let state = slot.state.load(Ordering::Acquire);
            // Only the first Close counts; the place is published by the flag.
            if (state >> 32) as u32 == dti.0.generation && state & (LIVE | LEFT) == LIVE {
                slot.left_at.store(place.pack(), Ordering::Release);
            }
        }
        self.mark(dti.0, LEFT);
    }

    /// It was given away, as the engine says: nothing is to be closed. `place`: one that the engine has passed.
    pub(crate) fn gone(&self, handle: DtiHandle, place: Place) {
        self.left(Dti(handle), place);
        self.seen(handle);
    }

    /// The Closed event was seen, or the DTI never came to be.
    pub(crate) fn seen(&self, handle: DtiHandle) {
        self.mark(handle, SEEN);
    }

    fn mark(&self, handle: DtiHandle, flag: u64) {
        let Some(slot) = self.slot(handle.index) else {
            return;
        };
        let change = |state: u64| {
            let ours = (state >> 32) as u32 == handle.generation;
            let after = state | flag;
            let both = after & (SEEN | LEFT) == SEEN | LEFT;
            let next = if both {
                after & !(LIVE | SEEN | LEFT)
            } else {
                after
            };
            (ours && state & LIVE != 0 && after != state).then_some(next)
        };
        let changed = slot
            .state
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, change);
        let Ok(before) = changed else { return };
        if (before | flag) & (SEEN | LEFT) == SEEN | LEFT {
            let place = Place::unpack(slot.left_at.load(Ordering::Acquire));
            let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
            free.used.push_back((handle.index, place));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(lane: u16, posted: u32) -> Place {
        Place { lane, posted }
    }

    #[test]
    fn a_handle_is_free_when_closed_and_seen_in_either_order() {
        let handles = Handles::new(2);
        let a = handles.acquire(0, |_| true).unwrap();
        let b = handles.acquire(0, |_| true).unwrap();
        assert_eq!((a.index(), b.index()), (0, 1));
        assert_eq!(handles.acquire(0, |_| true), None);
        handles.left(a, place(0, 1));
        assert_eq!(handles.acquire(0, |_| true), None, "Closed was not seen");
        handles.seen(a.handle());
        let c = handles.acquire(0, |_| true).unwrap();
        assert_eq!(c.index(), 0);
        assert_ne!(c.generation(), a.generation());
        handles.seen(b.handle());
        assert_eq!(handles.acquire(0, |_| true), None, "b was not closed");
        handles.left(b, place(0, 2));
        assert_eq!(handles.acquire(0, |_| true).unwrap().index(), 1);
    }

    #[test]
    fn another_lane_waits_until_the_close_was_read() {
        let handles = Handles::new(1);
        let a = handles.acquire(3, |_| true).unwrap();
        handles.seen(a.handle());
        handles.left(a, place(3, 17));
        let asked = std::cell::Cell::new(None);
        let passed = |p: Place| {
            asked.set(Some(p));
            false
        };
        assert_eq!(handles.acquire(5, passed), None);
        assert_eq!(asked.get(), Some(place(3, 17)));
        assert!(
            handles.acquire(3, |_| false).is_some(),
            "its own lane keeps the order"
        );
    }

    #[test]
    fn stale_and_doubled_marks_change_nothing() {
        let handles = Handles::new(1);
        let a = handles.acquire(0, |_| true).unwrap();
        handles.left(a, place(0, 1));
        handles.left(a, place(0, 9));
        handles.seen(a.handle());
        let b = handles.acquire(0, |_| true).unwrap();
        handles.seen(a.handle());
        handles.left(a, place(0, 2));
        assert_eq!(handles.acquire(0, |_| true), None, "b is still in use");
        handles.seen(DtiHandle {
            index: 77,
            generation: 1,
        });
        handles.unacquire(b, 0, 3);
        assert_eq!(
            handles.acquire(0, |_| true).unwrap().generation(),
            b.generation() + 1
        );
    }
}
