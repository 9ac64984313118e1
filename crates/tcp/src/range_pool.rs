//! The pool of sequence ranges that all connections of one engine thread share.
//!
//! Out-of-order receive ranges and the SACK scoreboard are sorted lists of disjoint ranges. Both are lists by index in
//! one array, so that a connection that loses nothing holds no memory for them and nothing is allocated after start.

use serde::{Deserialize, Serialize};

#[cfg(test)]
mod tests;

/// No node.
pub(crate) const NIL: u32 = u32::MAX;

/// How many ranges one list may hold.
pub const MAX_RANGES_PER_LIST: u16 = 256;

/// Stream offsets `start..end`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Range {
    pub(crate) start: u64,
    pub(crate) end: u64,
}

impl Range {
    pub(crate) const fn new(start: u64, end: u64) -> Self {
        Self { start, end }
    }

    pub(crate) const fn len(self) -> u64 {
        self.end.saturating_sub(self.start)
    }

    /// How many bytes of this range lie in `start..end`.
    pub(crate) fn overlap(self, start: u64, end: u64) -> u64 {
        self.end.min(end).saturating_sub(self.start.max(start))
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Node {
    pub(crate) range: Range,
    /// The next range of the list, or the next free node.
    pub(crate) next: u32,
    /// What a [`crate::flight::Flight`] says about the range; others leave it 0.
    pub(crate) tag: u32,
}

/// A bounded pool of sequence ranges, shared by all connections of one engine thread.
///
/// It is created once and never grows. When it is empty, or when one list holds [`MAX_RANGES_PER_LIST`] ranges, the
/// newest segment (or SACK block) is dropped and counted.
#[derive(Debug)]
pub struct RangePool {
    nodes: Box<[Node]>,
    free: u32,
    available: u32,
    refused: u64,
}

impl RangePool {
    /// A pool of `capacity` ranges (at most 2^32 - 2), 24 bytes each.
    pub fn new(capacity: usize) -> Self {
        let capacity = u32::try_from(capacity).unwrap_or(NIL).min(NIL - 1);
        let nodes: Box<[Node]> = (0..capacity)
            .map(|index| Node {
                range: Range::new(0, 0),
                next: if index + 1 == capacity {
                    NIL
                } else {
                    index + 1
                },
                tag: 0,
            })
            .collect();
        Self {
            nodes,
            free: if capacity == 0 { NIL } else { 0 },
            available: capacity,
            refused: 0,
        }
    }

    /// How many ranges there are in all.
    pub fn capacity(&self) -> usize {
        self.nodes.len()
    }

    /// How many ranges are free.
    pub fn available(&self) -> usize {
        self.available as usize
    }

    /// Whether there is enough for what can do without: a quarter is kept for data out of order and the scoreboard.
    pub(crate) fn is_plentiful(&self) -> bool {
        self.available as usize > self.nodes.len() / 4
    }

    /// A range was refused.
    pub(crate) fn refuse(&mut self) {
        self.refused += 1;
    }

    /// How often a range was refused: the pool was empty, or the list was at its limit.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    pub(crate) fn node(&self, index: u32) -> &Node {
        &self.nodes[index as usize]
    }

    pub(crate) fn node_mut(&mut self, index: u32) -> &mut Node {
        &mut self.nodes[index as usize]
    }

    pub(crate) fn allocate(&mut self, range: Range, next: u32, tag: u32) -> Option<u32> {
        if self.free == NIL {
            return None;
        }
        let index = self.free;
        self.free = self.node(index).next;
        self.available -= 1;
        *self.node_mut(index) = Node { range, next, tag };
        Some(index)
    }

    /// Gives a node back; returns the one that followed it.
    pub(crate) fn give_back(&mut self, index: u32) -> u32 {
        let free = self.free;
        let next = core::mem::replace(&mut self.node_mut(index).next, free);
        self.free = index;
        self.available += 1;
        next
    }
}

/// What [`RangeList::insert`] did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Inserted {
    /// The range of the list that now covers what was inserted.
    pub(crate) merged: Range,
    /// How many of the bytes were not in the list before.
    pub(crate) new_bytes: u64,
}

/// There was no room for another range.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct NoRanges;

/// A sorted list of disjoint, non-adjacent ranges in a [`RangePool`].
///
/// Not `Copy`: one list owns its nodes. [`RangeList::clear`] must be called before a list is dropped.
#[derive(Debug)]
pub(crate) struct RangeList {
    head: u32,
    tail: u32,
    len: u16,
}

impl Default for RangeList {
    fn default() -> Self {
        Self::new()
    }
}

impl RangeList {
    pub(crate) const fn new() -> Self {
        Self {
            head: NIL,
            tail: NIL,
            len: 0,
        }
    }

    pub(crate) const fn len(&self) -> u16 {
        self.len
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(crate) fn first(&self, pool: &RangePool) -> Option<Range> {
        (self.head != NIL).then(|| pool.node(self.head).range)
    }

    pub(crate) fn last(&self, pool: &RangePool) -> Option<Range> {
        (self.tail != NIL).then(|| pool.node(self.tail).range)
    }

    /// The ranges, in order.
    pub(crate) fn iter<'a>(&self, pool: &'a RangePool) -> Iter<'a> {
        Iter {
            pool,
            next: self.head,
        }
    }

    /// Adds `range`, merging it with the ranges that it touches or overlaps.
    ///
    /// # Errors
    /// [`NoRanges`] if it would be a range of its own and there is no room; the list is as before, and counted.
    pub(crate) fn insert(
        &mut self,
        pool: &mut RangePool,
        range: Range,
    ) -> Result<Inserted, NoRanges> {
        debug_assert!(range.start < range.end);
        // The newest data mostly lies behind everything else.
        let (mut previous, mut current) = (NIL, self.head);
        if self.tail != NIL && pool.node(self.tail).range.end < range.start {
            (previous, current) = (self.tail, NIL);
        } else if self.tail != NIL && pool.node(self.tail).range.start <= range.start {
            // Its predecessor is not needed: nothing is inserted before it.
            current = self.tail;
        }
        while current != NIL && pool.node(current).range.end < range.start {
            previous = current;
            current = pool.node(current).next;
        }
        if current == NIL || range.end < pool.node(current).range.start {
            return self.insert_between(pool, previous, current, range);
        }
        Ok(self.merge_into(pool, current, range))
    }

    fn insert_between(
        &mut self,
        pool: &mut RangePool,
        previous: u32,
        next: u32,
        range: Range,
    ) -> Result<Inserted, NoRanges> {
        let index = if self.len < MAX_RANGES_PER_LIST {
            pool.allocate(range, next, 0)
        } else {
            None
        };
        let Some(index) = index else {
            pool.refused += 1;
            return Err(NoRanges);
        };
        self.len += 1;
        if previous == NIL {
            self.head = index;
        } else {
            pool.node_mut(previous).next = index;
        }
        if next == NIL {
            self.tail = index;
        }
        Ok(Inserted {
            merged: range,
            new_bytes: range.len(),
        })
    }

    /// `range` touches the range of node `index` and none before it.
    fn merge_into(&mut self, pool: &mut RangePool, index: u32, range: Range) -> Inserted {
        let node = *pool.node(index);
        let mut merged = Range::new(
            node.range.start.min(range.start),
            node.range.end.max(range.end),
        );
        let mut known = node.range.len();
        let mut next = node.next;
        while next != NIL && pool.node(next).range.start <= merged.end {
            let absorbed = pool.node(next).range;
            merged.end = merged.end.max(absorbed.end);
            known += absorbed.len();
            next = pool.give_back(next);
            self.len -= 1;
        }
        *pool.node_mut(index) = Node {
            range: merged,
            next,
            tag: 0,
        };
        if next == NIL {
            self.tail = index;
        }
        Inserted {
            merged,
            new_bytes: merged.len() - known,
        }
    }

    /// Forgets everything before `offset`. Returns how many bytes of the list that were.
    pub(crate) fn remove_before(&mut self, pool: &mut RangePool, offset: u64) -> u64 {
        let mut removed = 0;
        while self.head != NIL {
            let range = pool.node(self.head).range;
            if range.start >= offset {
                break;
            }
            if range.end > offset {
                pool.node_mut(self.head).range.start = offset;
                return removed + (offset - range.start);
            }
            removed += range.len();
            self.pop_front(pool);
        }
        removed
    }

    /// Takes the first range out.
    pub(crate) fn pop_front(&mut self, pool: &mut RangePool) {
        if self.head == NIL {
            return;
        }
        self.head = pool.give_back(self.head);
        self.len -= 1;
        if self.head == NIL {
            self.tail = NIL;
        }
    }

    /// Gives all ranges back.
    pub(crate) fn clear(&mut self, pool: &mut RangePool) {
        while self.head != NIL {
            self.pop_front(pool);
        }
    }

    /// The part of `range` from its first byte that is not in the list to its last one; `None` if all of it is.
    ///
    /// Ranges of the list that lie wholly inside are not cut out: what is between stays one piece.
    pub(crate) fn trim(&self, pool: &RangePool, range: Range) -> Option<Range> {
        let Range { mut start, mut end } = range;
        for known in self.iter(pool) {
            if known.start > end {
                break;
            }
            if known.start <= start && start < known.end {
                start = known.end;
            }
            if known.start < end && end <= known.end {
                end = known.start;
            }
        }
        (start < end).then_some(Range { start, end })
    }
}

/// See [`RangeList::iter`].
pub(crate) struct Iter<'a> {
    pool: &'a RangePool,
    next: u32,
}

impl Iterator for Iter<'_> {
    type Item = Range;

    fn next(&mut self) -> Option<Range> {
        if self.next == NIL {
            return None;
        }
        let node = self.pool.node(self.next);
        self.next = node.next;
        Some(node.range)
    }
}
