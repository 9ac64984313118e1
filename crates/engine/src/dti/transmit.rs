//! The TX descriptor queue: what the application has sent and the peer has not acknowledged.
//!
//! ```text
//!    stream offset:   una              (next new byte)              end
//!                      |                     |                       |
//!    descriptors:   [ region 3 @ 0..1460 ][ copy 17 ][ region 3 @ 5000..90000 ]
//!                                            ^ cursor
//! ```

use crate::slab_list::{List, ListPool};

/// Where a descriptor's bytes are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Source {
    /// In a region of the UAL: id and offset.
    Region(u32, u64),
    /// In the engine's own copy arena: the slot.
    Copy(u32),
    /// In a copy that was made when the connection changed its UAL: the number of that.
    Moved(u32),
}

/// One send.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TxDescriptor {
    /// Stream offset of its first byte.
    pub(crate) start: u64,
    /// Bytes.
    pub(crate) len: u32,
    /// Queue for the completion.
    pub(crate) evq: u16,
    /// Whether a completion was asked for.
    pub(crate) notify: bool,
    /// Where they are.
    pub(crate) source: Source,
    /// Cookie of the send.
    pub(crate) cookie: u64,
}

/// The queue of one DTI.
#[derive(Debug, Default)]
pub(crate) struct TransmitQueue {
    /// Descriptors, in stream order.
    pub(crate) list: List,
    /// Stream offset after the last byte that the application has sent.
    pub(crate) end: u64,
    /// Where urgent data ends, as far as the application has sent any.
    pub(crate) urgent: u64,
    /// Bytes before this are acknowledged.
    pub(crate) una: u64,
    /// Node where the last gather ended: new data nearly always begins there.
    cursor: Option<u32>,
}

impl TransmitQueue {
    /// Appends a send; false when the pool of descriptors is exhausted.
    #[inline]
    pub(crate) fn push(
        &mut self,
        pool: &mut ListPool<TxDescriptor>,
        len: u32,
        source: Source,
        notify: Option<(u64, u16)>,
    ) -> bool {
        let (cookie, evq) = notify.unwrap_or_default();
        let descriptor = TxDescriptor {
            start: self.end,
            len,
            evq,
            notify: notify.is_some(),
            source,
            cookie,
        };
        let pushed = pool.push_back(&mut self.list, descriptor);
        if pushed {
            self.end += u64::from(len);
        }
        pushed
    }

    /// In place of all descriptors, which were taken out: one for the bytes that are not acknowledged. False when the pool of descriptors is
    /// exhausted, which it is not just after something was taken out.
    pub(crate) fn replace_by_copy(
        &mut self,
        pool: &mut ListPool<TxDescriptor>,
        source: Source,
        len: u32,
    ) -> bool {
        debug_assert!(self.list.is_empty());
        self.cursor = None;
        let descriptor = TxDescriptor {
            start: self.una,
            len,
            evq: 0,
            notify: false,
            source,
            cookie: 0,
        };
        pool.push_back(&mut self.list, descriptor)
    }

    /// The first descriptor if the peer has acknowledged all of it.
    #[inline]
    pub(crate) fn first_acknowledged<'a>(
        &self,
        pool: &'a ListPool<TxDescriptor>,
    ) -> Option<&'a TxDescriptor> {
        pool.front(&self.list)
            .filter(|first| first.start + u64::from(first.len) <= self.una)
    }

    /// Drops the first descriptor.
    #[inline]
    pub(crate) fn drop_first(&mut self, pool: &mut ListPool<TxDescriptor>) {
        if self.cursor == self.list.head() {
            self.cursor = None;
        }
        pool.drop_front(&mut self.list);
    }

    /// Takes out the first descriptor, whatever became of it.
    pub(crate) fn pop(&mut self, pool: &mut ListPool<TxDescriptor>) -> Option<TxDescriptor> {
        self.cursor = None;
        pool.pop_front(&mut self.list)
    }

    /// Walks over the pieces that hold `len` bytes from stream offset `start`: `piece(source, offset in it, bytes)`.
    /// False when some of the range is not (or no longer) queued.
    pub(crate) fn gather(
        &self,
        pool: &ListPool<TxDescriptor>,
        start: u64,
        len: u32,
        mut piece: impl FnMut(Source, u32, u32) -> bool,
    ) -> Option<u32> {
        let mut node = match self.cursor {
            Some(node) if pool.get(node).start <= start => node,
            _ => self.list.head()?,
        };
        let (mut at, end) = (start, start + u64::from(len));
        while at < end {
            let descriptor = pool.get(node);
            let stop = descriptor.start + u64::from(descriptor.len);
            if at < descriptor.start {
                return None;
            }
            if at < stop {
                let take = (stop.min(end) - at) as u32;
                if !piece(descriptor.source, (at - descriptor.start) as u32, take) {
                    return None;
                }
                at += u64::from(take);
            }
            if at < end {
                node = pool.next(node)?;
            }
        }
        Some(node)
    }

    /// The one descriptor that holds all of `len` bytes from stream offset `start`: its node, and where they begin in it. `None` when
    /// they lie in several, or are not (or no longer) queued.
    #[inline]
    pub(crate) fn find_one<'a>(
        &self,
        pool: &'a ListPool<TxDescriptor>,
        start: u64,
        len: u32,
    ) -> Option<(u32, &'a TxDescriptor, u32)> {
        let mut node = match self.cursor {
            Some(node) if pool.get(node).start <= start => node,
            _ => self.list.head()?,
        };
        loop {
            let descriptor = pool.get(node);
            let skip = start.checked_sub(descriptor.start)?;
            if skip < u64::from(descriptor.len) {
                let all = skip + u64::from(len) <= u64::from(descriptor.len);
                return all.then_some((node, descriptor, skip as u32));
            }
            node = pool.next(node)?;
        }
    }

    /// Whether `len` bytes from stream offset `start` are queued; puts the cursor to where they begin.
    pub(crate) fn seek(&mut self, pool: &ListPool<TxDescriptor>, start: u64, len: u32) -> bool {
        let Some(head) = self.list.head() else {
            return false;
        };
        if pool.get(head).start > start || start + u64::from(len) > self.end {
            return false;
        }
        let mut node = match self.cursor {
            Some(node) if pool.get(node).start <= start => node,
            _ => head,
        };
        loop {
            let descriptor = pool.get(node);
            if start < descriptor.start + u64::from(descriptor.len) {
                self.cursor = Some(node);
                return true;
            }
            let Some(next) = pool.next(node) else {
                return false;
            };
            node = next;
        }
    }

    /// Remembers where a gather ended.
    #[inline]
    pub(crate) fn set_cursor(&mut self, node: u32) {
        self.cursor = Some(node);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces(
        q: &TransmitQueue,
        pool: &ListPool<TxDescriptor>,
        start: u64,
        len: u32,
    ) -> Option<Vec<(Source, u32, u32)>> {
        let mut out = Vec::new();
        q.gather(pool, start, len, |s, o, n| {
            out.push((s, o, n));
            true
        })?;
        Some(out)
    }

    #[test]
    fn gathers_across_descriptors_and_forgets_acknowledged_ones() {
        let mut pool = ListPool::new(8);
        let mut q = TransmitQueue::default();
        let (a, b, c) = (
            Source::Region(1, 100),
            Source::Copy(3),
            Source::Region(2, 0),
        );
        assert!(q.push(&mut pool, 1000, a, Some((7, 1))));
        assert!(
            q.push(&mut pool, 10, b, None)
                && q.push(&mut pool, 0, b, None)
                && q.push(&mut pool, 5000, c, None)
        );
        assert_eq!(q.end, 6010);
        assert_eq!(
            pieces(&q, &pool, 990, 30),
            Some(vec![(a, 990, 10), (b, 0, 10), (c, 0, 10)])
        );
        assert!(q.seek(&pool, 1005, 20) && q.seek(&pool, 0, 6010));
        assert!(!q.seek(&pool, 6000, 11) && !q.seek(&pool, 6010, 1));
        assert!(q.seek(&pool, 5000, 10), "forward from the head");
        assert_eq!(pieces(&q, &pool, 5000, 5), Some(vec![(c, 3990, 5)]));
        let one = |q: &TransmitQueue, start, len| {
            q.find_one(&pool, start, len)
                .map(|(_, descriptor, skip)| (descriptor.source, skip))
        };
        assert_eq!(one(&q, 990, 10), Some((a, 990)));
        assert_eq!(one(&q, 990, 11), None, "in two descriptors");
        assert_eq!(one(&q, 1010, 5000), Some((c, 0)));
        assert_eq!(one(&q, 6010, 1), None, "beyond the end");
        let node = q.gather(&pool, 990, 30, |_, _, _| true).unwrap();
        q.set_cursor(node);
        assert_eq!(pieces(&q, &pool, 1020, 5), Some(vec![(c, 10, 5)]));
        assert_eq!(
            pieces(&q, &pool, 0, 5),
            Some(vec![(a, 0, 5)]),
            "a retransmission lies before the cursor"
        );
        assert_eq!(pieces(&q, &pool, 6000, 11), None, "beyond the end");
        q.una = 1005;
        assert_eq!(
            q.first_acknowledged(&pool).map(|d| (d.cookie, d.notify)),
            Some((7, true))
        );
        q.drop_first(&mut pool);
        assert!(q.first_acknowledged(&pool).is_none());
        assert!(!q.seek(&pool, 999, 10) && q.seek(&pool, 1000, 10));
        assert_eq!(
            pieces(&q, &pool, 999, 5),
            None,
            "acknowledged bytes are gone"
        );
        q.una = 6010;
        for _ in 0..3 {
            assert!(q.first_acknowledged(&pool).is_some());
            q.drop_first(&mut pool);
        }
        assert_eq!(
            pieces(&q, &pool, 6010, 0).map(|p| p.len()),
            None,
            "nothing is queued"
        );
        assert_eq!(pool.used(), 0);
    }
}
