//! Who owns which chunk of a receive pool: the engine's private books.
//!
//! The pool is cut into slabs, a slab is handed out whole or as small chunks (see [`sidecore_abi::pool`]); a chunk is named by the number
//! of its first small chunk. Every chunk has two counts of references: the engine's *own* (it still writes there) and those that were *lent* to the
//! application with events. An application can give back what was lent and no more, so that a lie costs it chunks of its own pool and
//! nobody anything else.
//!
//! All operations are O(1) and nothing is allocated after [`PoolAllocator::new`].

use sidecore_abi::pool::{MAX_BYTES, SLAB, SMALL, SMALL_PER_SLAB};

/// The application gave back, or the engine named, a chunk to which no such reference is held.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NotHeld;

impl std::fmt::Display for NotHeld {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("no reference to this chunk is held")
    }
}

impl std::error::Error for NotHeld {}

/// How a slab is used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Use {
    Free,
    Whole,
    /// As small chunks; some may be free.
    Cut,
}

#[derive(Clone, Copy, Debug)]
struct Slab {
    used: Use,
    /// Of a cut slab: which small chunks are free.
    free: u32,
    /// Neighbours in the list of cut slabs with free chunks, or [`NONE`].
    before: u32,
    after: u32,
}

#[derive(Clone, Copy, Default, Debug)]
struct References {
    own: u32,
    lent: u32,
}

const NONE: u32 = u32::MAX;
const _: () = assert!(SMALL_PER_SLAB == 32, "one bit of a u32 for each");

/// The books of one pool.
#[derive(Debug)]
pub struct PoolAllocator {
    slabs: Vec<Slab>,
    references: Vec<References>,
    /// Free slabs; the last freed is taken first, as it is likely in the cache.
    free_slabs: Vec<u32>,
    /// First cut slab with free chunks.
    partial: u32,
    /// Free small chunks in cut slabs.
    free_small: u32,
    lies: u64,
}

impl PoolAllocator {
    /// All chunks of a pool of so many slabs are free. More than the largest pool holds are cut off.
    pub fn new(slabs: usize) -> Self {
        let slabs = slabs.min((MAX_BYTES / SLAB as u64) as usize);
        let free = Slab {
            used: Use::Free,
            free: 0,
            before: NONE,
            after: NONE,
        };
        Self {
            slabs: vec![free; slabs],
            references: vec![References::default(); slabs * SMALL_PER_SLAB],
            free_slabs: (0..slabs as u32).rev().collect(),
            partial: NONE,
            free_small: 0,
            lies: 0,
        }
    }

    /// A small chunk with one reference of the engine's own, or `None` when the pool is used up.
    #[inline]
    pub fn alloc_small(&mut self) -> Option<u32> {
        if self.partial == NONE {
            let slab = self.free_slabs.pop()?;
            self.slabs[slab as usize].used = Use::Cut;
            self.slabs[slab as usize].free = u32::MAX;
            self.free_small += SMALL_PER_SLAB as u32;
            self.link(slab);
        }
        let slab = self.partial;
        let entry = &mut self.slabs[slab as usize];
        let bit = entry.free.trailing_zeros();
        entry.free &= entry.free - 1;
        if entry.free == 0 {
            self.unlink(slab);
        }
        self.free_small -= 1;
        let chunk = slab * SMALL_PER_SLAB as u32 + bit;
        self.references[chunk as usize].own = 1;
        Some(chunk)
    }

    /// A whole slab with one reference of the engine's own, or `None` when no slab is free (small chunks may be).
    #[inline]
    pub fn alloc_slab(&mut self) -> Option<u32> {
        let slab = self.free_slabs.pop()?;
        self.slabs[slab as usize].used = Use::Whole;
        let chunk = slab * SMALL_PER_SLAB as u32;
        self.references[chunk as usize].own = 1;
        Some(chunk)
    }

    /// One more reference of the engine's own; false when the chunk is not in use, or has too many.
    #[inline]
    pub fn add_ref(&mut self, chunk: u32) -> bool {
        let Some(held) = self.in_use(chunk) else {
            return false;
        };
        let more = held.own.checked_add(1);
        held.own = more.unwrap_or(held.own);
        more.is_some()
    }

    /// Gives back one of the engine's own references; true when it was the chunk's last reference and the chunk is free now.
    #[inline]
    pub fn release(&mut self, chunk: u32) -> Result<bool, NotHeld> {
        let held = self.in_use(chunk).filter(|held| held.own > 0);
        let Some(held) = held else {
            self.lies += 1;
            return Err(NotHeld);
        };
        held.own -= 1;
        Ok(self.free_if_unused(chunk))
    }

    /// Lends one reference to the application, with an event; false when the chunk is not in use, or is lent too often.
    #[inline]
    pub fn lend(&mut self, chunk: u32) -> bool {
        let Some(held) = self.in_use(chunk) else {
            return false;
        };
        let more = held.lent.checked_add(1);
        held.lent = more.unwrap_or(held.lent);
        more.is_some()
    }

    /// Turns one of the engine's own references into a lent one; false when it holds none.
    #[inline]
    pub fn hand_over(&mut self, chunk: u32) -> bool {
        let held = self.in_use(chunk).filter(|held| held.own > 0);
        let Some(held) = held.filter(|held| held.lent < u32::MAX) else {
            return false;
        };
        held.own -= 1;
        held.lent += 1;
        true
    }

    /// The application gives back what it was lent, by a number that may be anything; true when the chunk is free now. What it does not
    /// hold is refused and counted.
    #[inline]
    pub fn take_back(&mut self, chunk: u32) -> Result<bool, NotHeld> {
        let held = self.in_use(chunk).filter(|held| held.lent > 0);
        let Some(held) = held else {
            self.lies += 1;
            return Err(NotHeld);
        };
        held.lent -= 1;
        Ok(self.free_if_unused(chunk))
    }

    /// References of a chunk in use: the engine's own, and lent.
    pub fn references(&self, chunk: u32) -> Option<(u32, u32)> {
        let held = self.references.get(chunk as usize)?;
        (held.own > 0 || held.lent > 0).then_some((held.own, held.lent))
    }

    #[inline]
    fn in_use(&mut self, chunk: u32) -> Option<&mut References> {
        // Chunks that are free, and the inner parts of a whole slab, have no references at all.
        let held = self.references.get_mut(chunk as usize)?;
        (held.own > 0 || held.lent > 0).then_some(held)
    }

    #[inline]
    fn free_if_unused(&mut self, chunk: u32) -> bool {
        let held = self.references[chunk as usize];
        if held.own > 0 || held.lent > 0 {
            return false;
        }
        let slab = chunk / SMALL_PER_SLAB as u32;
        let entry = &mut self.slabs[slab as usize];
        if entry.used == Use::Whole {
            entry.used = Use::Free;
            self.free_slabs.push(slab);
            return true;
        }
        let was_full = entry.free == 0;
        entry.free |= 1 << (chunk % SMALL_PER_SLAB as u32);
        let whole_again = entry.free == u32::MAX;
        self.free_small += 1;
        if was_full {
            self.link(slab);
        }
        if whole_again {
            self.unlink(slab);
            self.slabs[slab as usize].used = Use::Free;
            self.free_small -= SMALL_PER_SLAB as u32;
            self.free_slabs.push(slab);
        }
        true
    }

    fn link(&mut self, slab: u32) {
        let head = self.partial;
        self.slabs[slab as usize].before = NONE;
        self.slabs[slab as usize].after = head;
        if head != NONE {
            self.slabs[head as usize].before = slab;
        }
        self.partial = slab;
    }

    fn unlink(&mut self, slab: u32) {
        let Slab { before, after, .. } = self.slabs[slab as usize];
        match before {
            NONE => self.partial = after,
            _ => self.slabs[before as usize].after = after,
        }
        if after != NONE {
            self.slabs[after as usize].before = before;
        }
    }

    /// Whether [`Self::alloc_small`] would succeed.
    #[inline]
    pub fn has_small(&self) -> bool {
        self.partial != NONE || !self.free_slabs.is_empty()
    }

    /// Whether so many slabs can be allocated.
    #[inline]
    pub fn has_slabs(&self, count: usize) -> bool {
        self.free_slabs.len() >= count
    }

    /// Free bytes, in whole slabs and in small chunks.
    #[inline]
    pub fn free_bytes(&self) -> u64 {
        self.free_slabs.len() as u64 * SLAB as u64 + self.free_small as u64 * SMALL as u64
    }

    /// Bytes of the pool.
    #[inline]
    pub fn size(&self) -> u64 {
        self.slabs.len() as u64 * SLAB as u64
    }

    /// Where a chunk begins, counted from the start of the pool, and how long it is; `None` when it is not in use.
    #[inline]
    pub fn place(&self, chunk: u32) -> Option<(u64, u32)> {
        self.references(chunk)?;
        let slab = self.slabs.get(chunk as usize / SMALL_PER_SLAB)?;
        let len = match slab.used {
            Use::Whole => SLAB as u32,
            Use::Cut => SMALL as u32,
            Use::Free => return None,
        };
        Some((chunk as u64 * SMALL as u64, len))
    }

    /// How often something was given back that was not held.
    #[inline]
    pub fn lies(&self) -> u64 {
        self.lies
    }
}

#[cfg(test)]
mod tests;
