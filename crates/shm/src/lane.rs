//! A lane: a ring of 64-byte entries with one writer and one reader, in two processes.
//!
//! An entry publishes itself: its first word, stored last, carries the number of the lap ([`sidecore_abi::entry::mark_at`]). The
//! reader looks at the entry it expects next and sees by the mark whether it is there. It tells the writer how many entries it has
//! taken (the *credit*) only once in a quarter of the lane, and the writer looks only when it has run out; so the
//! usual entry costs one cache line moved and nothing else.
//!
//! Neither side believes the other. A writer accepts a count of taken entries only if it lies between what it knew and what it wrote;
//! any other *poisons* the lane: it never takes an entry again. A reader takes what lies in the line, copies it once, and leaves it to its
//! caller to judge; a writer that lies about marks, or writes over entries not yet read, changes its own entries only.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use sidecore_abi::control::{LANE_ACTIVE, READER_STATE, READER_TAKEN};
use sidecore_abi::entry::mark_at;
use sidecore_abi::{Entry, LINE};

use crate::atomics::{Atomic32, Atomic64, Atomics, Real};
use crate::memory::Shared;

/// Where a lane's words live.
pub trait LaneMemory {
    /// What they are.
    type Atomics: Atomics;

    /// log2 of the number of entries.
    fn order(&self) -> u32;

    /// The words of the entry with this running number.
    fn entry(&self, position: u64) -> &[<Self::Atomics as Atomics>::U64; 8];

    /// Entries taken, modulo 2^32. The reader writes.
    fn taken(&self) -> &<Self::Atomics as Atomics>::U32;

    /// Whether the reader looks at the lane without being rung. The reader writes.
    fn state(&self) -> &<Self::Atomics as Atomics>::U32;

    /// Asks for the line of an entry ahead of its use.
    #[inline]
    fn prefetch(&self, position: u64) {
        let _ = position;
    }
}

/// A lane in mapped memory.
pub struct MappedLane {
    entries: NonNull<[AtomicU64; 8]>,
    taken: NonNull<AtomicU32>,
    state: NonNull<AtomicU32>,
    mask: u64,
    order: u32,
    _memory: Shared,
}

// SAFETY: the pointers lead into `_memory`, which is Send and Sync, and only to atomics.
unsafe impl Send for MappedLane {}
// SAFETY: as above.
unsafe impl Sync for MappedLane {}

impl MappedLane {
    /// The lane whose reader's line lies at `offset`, followed by `1 << order` entries. `None` when that is not inside, or not aligned to
    /// lines, or the memory is read-only.
    pub fn new(memory: &Shared, offset: u64, order: u32) -> Option<Self> {
        let bytes = LINE.checked_shl(order)?;
        let entries = memory.slice_mut(offset.checked_add(LINE as u64)?, bytes)?;
        let first = NonNull::new(entries.as_mut_ptr())?;
        if order > 31 || first.as_ptr().align_offset(LINE) != 0 {
            return None;
        }
        Some(Self {
            entries: first.cast(),
            taken: memory.atomic_u32(offset + READER_TAKEN as u64)?.into(),
            state: memory.atomic_u32(offset + READER_STATE as u64)?.into(),
            mask: (1 << order) - 1,
            order,
            _memory: memory.clone(),
        })
    }
}

impl LaneMemory for MappedLane {
    type Atomics = Real;

    #[inline]
    fn order(&self) -> u32 {
        self.order
    }

    #[inline]
    fn entry(&self, position: u64) -> &[AtomicU64; 8] {
        // SAFETY: the masked number is below 1 << order, and that many lines were checked to lie inside `_memory`, aligned and writable.
        unsafe { self.entries.add((position & self.mask) as usize).as_ref() }
    }

    #[inline]
    fn taken(&self) -> &AtomicU32 {
        // SAFETY: an atomic inside `_memory`, which lives as long as `self`.
        unsafe { self.taken.as_ref() }
    }

    #[inline]
    fn state(&self) -> &AtomicU32 {
        // SAFETY: an atomic inside `_memory`, which lives as long as `self`.
        unsafe { self.state.as_ref() }
    }

    #[inline]
    fn prefetch(&self, position: u64) {
        #[cfg(target_arch = "x86_64")]
        {
            use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            // SAFETY: a prefetch has no effect but on caches; every x86-64 processor has it.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(self.entry(position)).cast()) };
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = position;
    }
}

/// There is no room in the lane now (or ever again, when it is poisoned).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Full;

impl std::fmt::Display for Full {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the lane is full")
    }
}

impl std::error::Error for Full {}

/// The writing end of a lane in mapped memory.
pub type Producer = Writer<MappedLane>;

/// The reading end of a lane in mapped memory.
pub type Consumer = Reader<MappedLane>;

/// The writing end of a lane. One only.
pub struct Writer<M> {
    memory: M,
    /// Running number of the next entry.
    position: u64,
    /// First running number that must not be written yet.
    limit: u64,
    mask: u64,
    /// Mark of the present lap.
    mark: u32,
    poisoned: bool,
}

impl<M: LaneMemory> Writer<M> {
    /// Of a lane in which nothing was written yet.
    pub fn new(memory: M) -> Self {
        let slots = 1u64 << memory.order();
        Self {
            position: 0,
            limit: slots,
            mask: slots - 1,
            mark: mark_at(0, memory.order()),
            poisoned: false,
            memory,
        }
    }

    /// Writes and publishes an entry (whose own mark does not matter). Eight stores, unless the known credit is used up and the reader's
    /// line has to be looked at.
    #[inline]
    pub fn push(&mut self, entry: Entry) -> Result<(), Full> {
        if self.position == self.limit && !self.refresh() {
            return Err(Full);
        }
        let words = self.memory.entry(self.position);
        for (word, value) in words[1..].iter().zip(&entry.0[1..]) {
            word.store(*value, Ordering::Relaxed);
        }
        words[0].store(entry.with_mark(self.mark).0[0], Ordering::Release);
        self.position += 1;
        if self.position & self.mask == 0 {
            self.mark = mark_at(self.position, self.memory.order());
        }
        Ok(())
    }

    /// Reads the credit; says whether there is any.
    #[cold]
    fn refresh(&mut self) -> bool {
        if self.poisoned {
            return false;
        }
        // Acquire: the reader's loads of the entries it has taken come before our stores over them.
        let taken = self.memory.taken().load(Ordering::Acquire);
        let known = self.limit - (self.mask + 1);
        let more = taken.wrapping_sub(known as u32) as u64;
        if more > self.position - known {
            // More than was written, or fewer than were known to be taken.
            self.poisoned = true;
            self.limit = self.position;
            return false;
        }
        self.limit += more;
        self.limit > self.position
    }

    /// How many entries can be pushed now. Looks at the reader's line when less than a quarter of the lane is known to be free: who waits
    /// for room for several entries must not wait on old news. (The reader keeps back the credit of less than a quarter.)
    #[inline]
    pub fn free(&mut self) -> u32 {
        if self.limit - self.position <= self.mask >> 2 {
            self.refresh();
        }
        // Never more than the lane holds, so that it fits.
        (self.limit - self.position) as u32
    }

    /// How many entries were pushed so far.
    #[inline]
    pub fn pushed(&self) -> u64 {
        self.position
    }

    /// Entries pushed that the reader is not known to have taken.
    #[inline]
    pub fn outstanding(&self) -> u64 {
        let known = self.limit.saturating_sub(self.mask + 1);
        (self.position - known).min(self.mask + 1)
    }

    /// Entries that the lane holds.
    #[inline]
    pub fn capacity(&self) -> u32 {
        (self.mask + 1) as u32
    }

    /// Whether the reader was caught in a lie about what it has taken. Nothing can be pushed any more.
    #[inline]
    pub fn poisoned(&self) -> bool {
        self.poisoned
    }

    /// What the reader says of itself: LANE_ACTIVE or LANE_PARKED (or, from a hostile one, anything).
    #[inline]
    pub fn reader_state(&self) -> u32 {
        self.memory.state().load(Ordering::Relaxed)
    }

    /// The memory it writes to.
    #[inline]
    pub fn memory(&self) -> &M {
        &self.memory
    }
}

impl<M> std::fmt::Debug for Writer<M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Writer")
            .field("position", &self.position)
            .field("limit", &self.limit)
            .field("poisoned", &self.poisoned)
            .finish_non_exhaustive()
    }
}

/// The reading end of a lane. One only.
pub struct Reader<M> {
    memory: M,
    /// Running number of the next entry.
    position: u64,
    /// What the writer was told.
    published: u64,
    mask: u64,
    /// Mark that the next entry will carry.
    mark: u32,
    /// What [`Self::set_state`] was last told; the shared word is never read back.
    state: u32,
    /// Credit was returned since [`Self::returned_credit`] was last asked.
    returned: bool,
}

impl<M: LaneMemory> Reader<M> {
    /// Of a lane from which nothing was read yet.
    pub fn new(memory: M) -> Self {
        Self {
            position: 0,
            published: 0,
            mask: (1u64 << memory.order()) - 1,
            mark: mark_at(0, memory.order()),
            state: LANE_ACTIVE,
            returned: false,
            memory,
        }
    }

    /// Takes the next entry, if it is there: copied once, so that the writer cannot change it any more. Returns credit for every
    /// quarter of the lane.
    #[inline]
    pub fn pop(&mut self) -> Option<Entry> {
        let words = self.memory.entry(self.position);
        // Acquire: with the head all that was written before it is seen.
        let head = words[0].load(Ordering::Acquire);
        if head as u32 != self.mark {
            return None;
        }
        let mut entry = Entry([head; 8]);
        for (value, word) in entry.0[1..].iter_mut().zip(&words[1..]) {
            *value = word.load(Ordering::Relaxed);
        }
        self.position += 1;
        if self.position & self.mask == 0 {
            self.mark = mark_at(self.position, self.memory.order());
        }
        if self.position - self.published > self.mask >> 2 {
            self.publish_credit();
        }
        Some(entry)
    }

    /// Whether the next entry is not there yet.
    #[inline]
    pub fn is_empty(&self) -> bool {
        let head = self.memory.entry(self.position)[0].load(Ordering::Acquire);
        head as u32 != self.mark
    }

    /// Tells the writer at once how many entries were taken.
    #[inline]
    pub fn publish_credit(&mut self) {
        // Release: our loads of the entries come before the writer's stores over them.
        self.memory
            .taken()
            .store(self.position as u32, Ordering::Release);
        self.published = self.position;
        self.returned = true;
    }

    /// Whether credit was returned since this was last asked: then a writer that waits for credit must be told
    /// ([`crate::control::AppControl::relieve`] does it).
    #[inline]
    pub fn returned_credit(&mut self) -> bool {
        std::mem::take(&mut self.returned)
    }

    /// Asks for the line of the entry after the next.
    #[inline]
    pub fn prefetch_next(&self) {
        self.memory.prefetch(self.position + 1);
    }

    /// Says whether the lane is looked at (LANE_ACTIVE) or must be rung for (LANE_PARKED). After parking: a SeqCst fence, then
    /// [`Self::is_empty`] once more ([`crate::protocol::park`] does it all).
    #[inline]
    pub fn set_state(&mut self, state: u32) {
        self.state = state;
        self.memory.state().store(state, Ordering::Relaxed);
    }

    /// What [`Self::set_state`] last said.
    #[inline]
    pub fn state(&self) -> u32 {
        self.state
    }

    /// How many entries were taken so far.
    #[inline]
    pub fn taken(&self) -> u64 {
        self.position
    }

    /// The memory it reads from.
    #[inline]
    pub fn memory(&self) -> &M {
        &self.memory
    }
}

impl<M> std::fmt::Debug for Reader<M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reader")
            .field("position", &self.position)
            .field("published", &self.published)
            .field("state", &self.state)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
