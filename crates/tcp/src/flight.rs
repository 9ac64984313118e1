//! What is in flight and when it was sent: the transmit times of RFC 8985.
//!
//! A sorted list of disjoint ranges in the [`RangePool`], each with a [`Sent`]: when it was sent last, whether that was not
//! the first time, and whether it is deemed lost. Segments that were sent together are one range, so that a super-segment or
//! a burst costs one node. What is selectively acknowledged is taken out: the list and the scoreboard never overlap.

use serde::{Deserialize, Serialize};

use crate::range_pool::{MAX_RANGES_PER_LIST, NIL, NoRanges, Range, RangePool};
use crate::time::Instant;

#[cfg(test)]
mod tests;

const TIME_BITS: u32 = 30;
const TIME_MASK: u32 = (1 << TIME_BITS) - 1;
const LOST: u32 = 1 << 30;
const RESENT: u32 = 1 << 31;

/// A time in microseconds modulo 2^30 (18 minutes); two of them compare as long as they are less than 9 minutes apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Tick(u32);

impl Tick {
    pub(crate) fn at(now: Instant) -> Self {
        Self((now.as_nanos() / 1_000) as u32 & TIME_MASK)
    }

    /// What is to be added to a tick when the moment `from` is called `to`.
    pub(crate) fn jump(from: Instant, to: Instant) -> u32 {
        Self::at(to).0.wrapping_sub(Self::at(from).0) & TIME_MASK
    }

    pub(crate) fn shifted(self, jump: u32) -> Self {
        Self(self.0.wrapping_add(jump) & TIME_MASK)
    }

    /// Microseconds since `earlier`; negative: it is later.
    pub(crate) fn since(self, earlier: Self) -> i32 {
        let difference = self.0.wrapping_sub(earlier.0) << (32 - TIME_BITS);
        difference as i32 >> (32 - TIME_BITS)
    }
}

/// What is known of a range in flight.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Sent(u32);

impl Sent {
    pub(crate) fn first(at: Tick) -> Self {
        Self(at.0)
    }

    pub(crate) fn again(at: Tick) -> Self {
        Self(at.0 | RESENT)
    }

    /// When it was sent last.
    pub(crate) fn at(self) -> Tick {
        Tick(self.0 & TIME_MASK)
    }

    pub(crate) fn is_lost(self) -> bool {
        self.0 & LOST != 0
    }

    /// It was sent more than once.
    pub(crate) fn is_resent(self) -> bool {
        self.0 & RESENT != 0
    }

    pub(crate) fn lost(self) -> Self {
        Self(self.0 | LOST)
    }

    pub(crate) fn not_lost(self) -> Self {
        Self(self.0 & !LOST)
    }

    /// The same on another clock, which shows `jump` microseconds more.
    pub(crate) fn shifted(self, jump: u32) -> Self {
        Self(self.0 & !TIME_MASK | self.at().shifted(jump).0)
    }
}

/// The list. Not `Copy`: one list owns its nodes. [`Flight::clear`] must be called before it is dropped.
#[derive(Debug)]
pub(crate) struct Flight {
    head: u32,
    tail: u32,
    len: u16,
}

impl Default for Flight {
    fn default() -> Self {
        Self::new()
    }
}

impl Flight {
    pub(crate) const fn new() -> Self {
        Self {
            head: NIL,
            tail: NIL,
            len: 0,
        }
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether so many more nodes can be had.
    pub(crate) fn has_room(&self, pool: &RangePool, nodes: u16) -> bool {
        self.len + nodes <= MAX_RANGES_PER_LIST && pool.available() >= usize::from(nodes)
    }

    /// The ranges, in order.
    pub(crate) fn iter<'a>(
        &self,
        pool: &'a RangePool,
    ) -> impl Iterator<Item = (Range, Sent)> + use<'a> {
        let mut next = self.head;
        core::iter::from_fn(move || {
            if next == NIL {
                return None;
            }
            let node = pool.node(next);
            next = node.next;
            Some((node.range, Sent(node.tag)))
        })
    }

    /// Changes what is known of each range.
    pub(crate) fn update(&mut self, pool: &mut RangePool, mut f: impl FnMut(Range, Sent) -> Sent) {
        let mut index = self.head;
        while index != NIL {
            let node = pool.node_mut(index);
            node.tag = f(node.range, Sent(node.tag)).0;
            index = node.next;
        }
    }

    /// The first range that is deemed lost.
    pub(crate) fn first_lost(&self, pool: &RangePool) -> Option<Range> {
        self.iter(pool)
            .find(|(_, sent)| sent.is_lost())
            .map(|(range, _)| range)
    }

    /// Adds `range`, which lies after all others.
    pub(crate) fn push(
        &mut self,
        pool: &mut RangePool,
        range: Range,
        sent: Sent,
    ) -> Result<(), NoRanges> {
        if self.tail != NIL {
            let tail = pool.node_mut(self.tail);
            debug_assert!(tail.range.end <= range.start);
            if tail.range.end == range.start && tail.tag == sent.0 {
                tail.range.end = range.end;
                return Ok(());
            }
        }
        if self.len >= MAX_RANGES_PER_LIST {
            return Err(NoRanges);
        }
        let index = pool.allocate(range, NIL, sent.0).ok_or(NoRanges)?;
        self.len += 1;
        if self.tail == NIL {
            self.head = index;
        } else {
            pool.node_mut(self.tail).next = index;
        }
        self.tail = index;
        Ok(())
    }

    /// Takes out what lies before `end`. Returns what was known of the last of it.
    pub(crate) fn drop_before(&mut self, pool: &mut RangePool, end: u64) -> Option<Sent> {
        let mut last = None;
        while self.head != NIL {
            let node = pool.node_mut(self.head);
            if node.range.start >= end {
                return last;
            }
            last = Some(Sent(node.tag));
            if node.range.end > end {
                node.range.start = end;
                return last;
            }
            self.head = pool.give_back(self.head);
            self.len -= 1;
        }
        self.tail = NIL;
        last
    }

    fn insert_after(
        &mut self,
        pool: &mut RangePool,
        previous: u32,
        range: Range,
        sent: Sent,
    ) -> Result<(), NoRanges> {
        let next = if previous == NIL {
            self.head
        } else {
            pool.node(previous).next
        };
        if self.len >= MAX_RANGES_PER_LIST {
            return Err(NoRanges);
        }
        let index = pool.allocate(range, next, sent.0).ok_or(NoRanges)?;
        self.len += 1;
        if previous == NIL {
            self.head = index;
        } else {
            pool.node_mut(previous).next = index;
        }
        if next == NIL {
            self.tail = index;
        }
        Ok(())
    }

    /// Takes the node after `previous` (NIL: the first) out.
    fn unlink(&mut self, pool: &mut RangePool, previous: u32, index: u32) -> u32 {
        let next = pool.give_back(index);
        self.len -= 1;
        if previous == NIL {
            self.head = next;
        } else {
            pool.node_mut(previous).next = next;
        }
        if next == NIL {
            self.tail = previous;
        }
        next
    }

    /// Takes out what of the list lies in `range`, and shows it to `f`, in order.
    ///
    /// # Errors
    /// [`NoRanges`] if a node had to be split and there is none; then nothing of that node was taken out.
    pub(crate) fn take(
        &mut self,
        pool: &mut RangePool,
        range: Range,
        mut f: impl FnMut(Range, Sent),
    ) -> Result<(), NoRanges> {
        let (mut previous, mut index) = (NIL, self.head);
        while index != NIL {
            let node = *pool.node(index);
            let sent = Sent(node.tag);
            let start = node.range.start.max(range.start);
            let end = node.range.end.min(range.end);
            if node.range.start >= range.end {
                break;
            }
            if start >= end {
                (previous, index) = (index, node.next);
                continue;
            }
            if node.range.start < start {
                if end < node.range.end {
                    self.insert_after(pool, index, Range::new(end, node.range.end), sent)?;
                }
                pool.node_mut(index).range.end = start;
                (previous, index) = (index, pool.node(index).next);
            } else if end < node.range.end {
                pool.node_mut(index).range.start = end;
                index = NIL;
            } else {
                index = self.unlink(pool, previous, index);
            }
            f(Range::new(start, end), sent);
        }
        Ok(())
    }

    /// `range`, which lies within one node, was sent again.
    ///
    /// # Errors
    /// [`NoRanges`] if there are not enough nodes; the list is as before.
    pub(crate) fn resend(
        &mut self,
        pool: &mut RangePool,
        range: Range,
        sent: Sent,
    ) -> Result<(), NoRanges> {
        let (mut previous, mut index) = (NIL, self.head);
        while index != NIL && pool.node(index).range.end <= range.start {
            (previous, index) = (index, pool.node(index).next);
        }
        if index == NIL {
            return Ok(());
        }
        let node = *pool.node(index);
        debug_assert!(node.range.start <= range.start && range.end <= node.range.end);
        if node.range.start == range.start && previous != NIL {
            // Mostly what was sent again a moment ago goes on.
            let before = pool.node_mut(previous);
            if before.tag == sent.0 && before.range.end == range.start {
                before.range.end = range.end;
                if range.end == node.range.end {
                    self.unlink(pool, previous, index);
                } else {
                    pool.node_mut(index).range.start = range.end;
                }
                return Ok(());
            }
        }
        let head = node.range.start < range.start;
        let tail = range.end < node.range.end;
        if !self.has_room(pool, u16::from(head) + u16::from(tail)) {
            return Err(NoRanges);
        }
        if tail {
            let rest = Range::new(range.end, node.range.end);
            self.insert_after(pool, index, rest, Sent(node.tag))?;
        }
        if head {
            pool.node_mut(index).range.end = range.start;
            return self.insert_after(pool, index, range, sent);
        }
        let node = pool.node_mut(index);
        node.range.end = range.end;
        node.tag = sent.0;
        Ok(())
    }

    /// Gives all nodes back.
    pub(crate) fn clear(&mut self, pool: &mut RangePool) {
        while self.head != NIL {
            self.unlink(pool, NIL, self.head);
        }
    }
}
