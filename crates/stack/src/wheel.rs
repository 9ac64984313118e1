//! Timers: a hierarchical wheel (Varghese and Lauck, "Hashed and hierarchical timing wheels"), intrusive by index.
//!
//! ```text
//!            tick, 48 bits: │  7  │  6  │  5  │  4  │  3  │  2  │  1  │  0  │   six bits a level
//!  elapsed                    a     b     c     d     e     f     g     h
//!  a timer on level 2         a     b     c     d     e     s     *     *      s > f: it is in slot s of level 2
//! ```
//!
//! A timer lies on the level of the first six bits in which its tick differs from `elapsed`, in the slot of these six
//! bits. So on each level only slots after that of `elapsed` are in use (on level 0 also the very one), the first slot in
//! use of the lowest level in use has the next timers, and `elapsed` may go up to that slot's first tick without
//! moving any timer. When it gets there, the timers of that slot go down to lower levels, one at a time.

use sidecore_tcp::Instant;

use crate::list::NIL;

/// A tick is 2^16 ns, 66 µs, and takes a shift, not a division. No timer of TCP but pacing's is finer than a millisecond; at 10 Gbit/s
/// such a tick lets 80 KB through, about what goes out as one super-segment.
const TICK_SHIFT: u32 = 16;
const LEVEL_BITS: u32 = 6;
const SLOTS: usize = 1 << LEVEL_BITS;
/// All ticks that nanoseconds in 64 bits can make (48 bits) fit.
const LEVELS: usize = 8;
/// Bucket of a timer that is in none.
const UNARMED: u16 = u16::MAX;

/// The timer of an element.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TimerNode {
    prev: u32,
    next: u32,
    /// The tick, 48 bits.
    tick_low: u32,
    tick_high: u16,
    /// Level and slot.
    bucket: u16,
}

impl TimerNode {
    pub(crate) const UNARMED: Self = Self {
        prev: NIL,
        next: NIL,
        tick_low: 0,
        tick_high: 0,
        bucket: UNARMED,
    };

    const fn tick(&self) -> u64 {
        (self.tick_high as u64) << 32 | self.tick_low as u64
    }

    fn set_tick(&mut self, tick: u64) {
        self.tick_low = tick as u32;
        self.tick_high = (tick >> 32) as u16;
    }

    /// Whether it is in the wheel.
    #[inline]
    pub(crate) const fn is_armed(&self) -> bool {
        self.bucket != UNARMED
    }

    /// Whether it is in the wheel and fires not later than a timer for `deadline` would.
    #[inline]
    pub(crate) const fn covers(&self, deadline: Instant) -> bool {
        self.is_armed() && self.tick() <= tick_after(deadline)
    }
}

/// Where the timers are.
pub(crate) trait Timers {
    fn timer(&mut self, index: u32) -> &mut TimerNode;
}

/// The first tick that is not before a time.
const fn tick_after(time: Instant) -> u64 {
    let nanos = time.as_nanos();
    (nanos >> TICK_SHIFT) + (nanos & ((1 << TICK_SHIFT) - 1) != 0) as u64
}

const fn start_of(tick: u64) -> Instant {
    Instant::from_nanos(tick.saturating_mul(1 << TICK_SHIFT))
}

/// The wheel. Timers fire in the order of their ticks, never early, and as late as the caller asks.
#[derive(Debug)]
pub(crate) struct TimerWheel {
    /// All timers of earlier ticks have fired.
    elapsed: u64,
    /// Slots in use, by level.
    occupied: [u64; LEVELS],
    heads: [[u32; SLOTS]; LEVELS],
    /// The bucket whose first tick is `elapsed` and whose timers are being moved down.
    cascading: Option<u16>,
}

impl TimerWheel {
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            elapsed: now.as_nanos() >> TICK_SHIFT,
            occupied: [0; LEVELS],
            heads: [[NIL; SLOTS]; LEVELS],
            cascading: None,
        }
    }

    /// Sets an element's timer, wherever it was before. A `deadline` in the past fires at once, [`Instant::NEVER`] never.
    pub(crate) fn arm(&mut self, timers: &mut impl Timers, index: u32, deadline: Instant) {
        self.cancel(timers, index);
        if deadline == Instant::NEVER {
            return;
        }
        let tick = tick_after(deadline).max(self.elapsed);
        timers.timer(index).set_tick(tick);
        self.insert(timers, index, tick);
    }

    /// Switches an element's timer off.
    pub(crate) fn cancel(&mut self, timers: &mut impl Timers, index: u32) {
        let node = *timers.timer(index);
        if node.is_armed() {
            self.unlink(timers, index, node);
        }
    }

    /// Whether [`pop`](Self::pop) may find something: not while the tick is that of the last call, but for what that left.
    #[inline]
    pub(crate) fn may_be_due(&self, now: Instant) -> bool {
        now.as_nanos() >> TICK_SHIFT > self.elapsed || self.is_due()
    }

    /// The next element whose timer has fired by `now`; its timer is off then. Each call costs one of `budget` for
    /// the timer that fires and for each that is moved on the way; `None` with `budget` 0 says nothing of what is left.
    pub(crate) fn pop(
        &mut self,
        timers: &mut impl Timers,
        now: Instant,
        budget: &mut usize,
    ) -> Option<u32> {
        let now = now.as_nanos() >> TICK_SHIFT;
        while *budget > 0 {
            if let Some(bucket) = self.cascading {
                self.move_one_down(timers, bucket, budget);
                continue;
            }
            let Some((level, slot)) = self.first_bucket() else {
                self.elapsed = self.elapsed.max(now);
                return None;
            };
            let tick = self.first_tick(level, slot);
            if tick > now {
                self.elapsed = self.elapsed.max(now);
                return None;
            }
            self.elapsed = tick;
            if level == 0 {
                *budget -= 1;
                let index = self.heads[level][slot];
                let node = *timers.timer(index);
                self.unlink(timers, index, node);
                return Some(index);
            }
            self.cascading = Some(bucket_of(level, slot));
        }
        None
    }

    /// When [`pop`](Self::pop) should be called next: never after the next timer, perhaps before it.
    pub(crate) fn next(&self) -> Option<Instant> {
        if self.cascading.is_some() {
            return Some(start_of(self.elapsed));
        }
        let (level, slot) = self.first_bucket()?;
        Some(start_of(self.first_tick(level, slot)))
    }

    /// Whether something is left to do at `elapsed`.
    #[inline]
    const fn is_due(&self) -> bool {
        let slot = self.elapsed % SLOTS as u64;
        self.cascading.is_some() || self.occupied[0] >> slot & 1 != 0
    }

    /// The bucket of the next timers.
    fn first_bucket(&self) -> Option<(usize, usize)> {
        let level = self.occupied.iter().position(|slots| *slots != 0)?;
        Some((level, self.occupied[level].trailing_zeros() as usize))
    }

    /// The first tick of a bucket.
    fn first_tick(&self, level: usize, slot: usize) -> u64 {
        let shift = level as u32 * LEVEL_BITS;
        let above = self.elapsed >> (shift + LEVEL_BITS) << (shift + LEVEL_BITS);
        above | (slot as u64) << shift
    }

    fn move_one_down(&mut self, timers: &mut impl Timers, bucket: u16, budget: &mut usize) {
        let (level, slot) = level_and_slot(bucket);
        match self.heads[level][slot] {
            NIL => self.cascading = None,
            index => {
                *budget -= 1;
                let node = *timers.timer(index);
                self.unlink(timers, index, node);
                self.insert(timers, index, node.tick());
            }
        }
    }

    fn insert(&mut self, timers: &mut impl Timers, index: u32, tick: u64) {
        let differing = self.elapsed ^ tick;
        let level = (63 - (differing | 1).leading_zeros()) / LEVEL_BITS;
        let slot = (tick >> (level * LEVEL_BITS)) as usize % SLOTS;
        let level = (level as usize).min(LEVELS - 1);
        let head = core::mem::replace(&mut self.heads[level][slot], index);
        self.occupied[level] |= 1 << slot;
        let node = timers.timer(index);
        node.prev = NIL;
        node.next = head;
        node.bucket = bucket_of(level, slot);
        if head != NIL {
            timers.timer(head).prev = index;
        }
    }

    fn unlink(&mut self, timers: &mut impl Timers, index: u32, node: TimerNode) {
        timers.timer(index).bucket = UNARMED;
        if node.next != NIL {
            timers.timer(node.next).prev = node.prev;
        }
        if node.prev != NIL {
            timers.timer(node.prev).next = node.next;
            return;
        }
        let (level, slot) = level_and_slot(node.bucket);
        self.heads[level][slot] = node.next;
        if node.next == NIL {
            self.occupied[level] &= !(1 << slot);
        }
    }
}

const fn bucket_of(level: usize, slot: usize) -> u16 {
    (level * SLOTS + slot) as u16
}

const fn level_and_slot(bucket: u16) -> (usize, usize) {
    (bucket as usize / SLOTS % LEVELS, bucket as usize % SLOTS)
}

#[cfg(test)]
mod tests;
