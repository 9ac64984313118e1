//! Blocks in one large piece of memory: for back-ends whose memory is registered once, with the engine or with the kernel.
//!
//! The arena deals in offsets alone; what lies there is the back-end's. Blocks are aligned to cache lines, found by best fit, and join
//! with free neighbours when they go. It is used when files are read or dated anew, not for every request.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

const ALIGN: u64 = 64;

#[derive(Debug, Default)]
struct Free {
    bytes: u64,
    by_offset: BTreeMap<u64, u64>,
    by_len: BTreeSet<(u64, u64)>,
}

impl Free {
    fn add(&mut self, offset: u64, len: u64) {
        self.bytes += len;
        self.by_offset.insert(offset, len);
        self.by_len.insert((len, offset));
    }

    fn take(&mut self, offset: u64, len: u64) {
        self.bytes -= len;
        self.by_offset.remove(&offset);
        self.by_len.remove(&(len, offset));
    }

    fn release(&mut self, mut offset: u64, mut len: u64) {
        if let Some((&before, &before_len)) = self.by_offset.range(..offset).next_back()
            && before + before_len == offset
        {
            self.take(before, before_len);
            offset = before;
            len += before_len;
        }
        if let Some(&after_len) = self.by_offset.get(&(offset + len)) {
            self.take(offset + len, after_len);
            len += after_len;
        }
        self.add(offset, len);
    }
}

/// What is free of one piece of memory.
#[derive(Clone, Debug)]
pub struct Arena {
    free: Rc<RefCell<Free>>,
    capacity: u64,
}

impl Arena {
    /// An arena over the bytes `start..end`.
    pub fn new(start: u64, end: u64) -> Self {
        let start = start.next_multiple_of(ALIGN);
        let capacity = end.saturating_sub(start) / ALIGN * ALIGN;
        let mut free = Free::default();
        if capacity > 0 {
            free.add(start, capacity);
        }
        Self {
            free: Rc::new(RefCell::new(free)),
            capacity,
        }
    }

    /// Bytes in all.
    pub fn capacity(&self) -> u64 {
        self.capacity
    }

    /// Bytes that are free, in holes of whatever size.
    pub fn free(&self) -> u64 {
        self.free.borrow().bytes
    }

    /// A block of `len` bytes, or `None` when there is no hole of that size.
    pub fn allocate(&self, len: u64) -> Option<Block> {
        let size = len.max(1).checked_next_multiple_of(ALIGN)?;
        let mut free = self.free.borrow_mut();
        let (hole, offset) = free.by_len.range((size, 0)..).next().copied()?;
        free.take(offset, hole);
        if hole > size {
            free.add(offset + size, hole - size);
        }
        drop(free);
        Some(Block {
            offset,
            len,
            size,
            free: Rc::clone(&self.free),
        })
    }
}

/// Memory of one's own, free again when dropped.
#[derive(Debug)]
pub struct Block {
    offset: u64,
    len: u64,
    size: u64,
    free: Rc<RefCell<Free>>,
}

impl Block {
    /// First byte, counted from the start of the memory.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Bytes that were asked for.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether no byte was asked for.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        self.free.borrow_mut().release(self.offset, self.size);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_full_arena_refuses_and_a_freed_one_is_whole_again() {
        let arena = Arena::new(10, 64 * 11);
        assert_eq!(arena.capacity(), 640);
        let blocks: Vec<Block> = (0..10).map(|_| arena.allocate(64).unwrap()).collect();
        assert!(arena.allocate(1).is_none());
        assert_eq!(arena.free(), 0);
        drop(blocks);
        assert_eq!(arena.free(), 640);
        let whole = arena.allocate(640).unwrap();
        assert_eq!((whole.offset(), whole.len()), (64, 640));
        drop(whole);
        assert!(arena.allocate(641).is_none());
        assert!(arena.allocate(u64::MAX).is_none());
        assert!(Arena::new(0, 63).allocate(1).is_none());
    }

    proptest! {
        #[test]
        fn blocks_never_overlap_and_all_comes_back(steps in proptest::collection::vec((any::<bool>(), 0u64..5000, any::<usize>()), 0..200)) {
            let arena = Arena::new(0, 100_000);
            let mut held: Vec<Block> = Vec::new();
            for (take, len, which) in steps {
                if take || held.is_empty() {
                    if let Some(block) = arena.allocate(len) {
                        prop_assert!(block.offset() % ALIGN == 0 && block.offset() + len <= 100_000);
                        for other in &held {
                            prop_assert!(block.offset() + block.len() <= other.offset() || other.offset() + other.len() <= block.offset());
                        }
                        held.push(block);
                    }
                } else {
                    held.swap_remove(which % held.len());
                }
            }
            held.clear();
            let capacity = arena.capacity();
            prop_assert_eq!(arena.allocate(capacity).map(|b| b.offset()), Some(0));
        }
    }
}
