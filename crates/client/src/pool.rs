//! The receive pool, as the application sees it.

use sidecore_abi::event::NO_CHUNK;
use sidecore_abi::handle::POOL_REGION;
use sidecore_abi::{Event, EventKind, Extent};
use sidecore_shm::{MemRef, Shared};

use crate::lane::Lane;

/// Where received bytes lie until they are given back. The engine writes it, the application reads.
///
/// While the application holds the reference that came with an event, the engine writes nothing over the bytes which that event names.
/// After [`Lane::return_chunk`] it may; so take out what you need first. No `&[u8]` into the pool is ever handed out: the engine's word is
/// not the compiler's.
#[derive(Clone)]
pub struct ReceivePool {
    memory: Shared,
}

/// The part of the pool that an event names; empty for one that names none.
fn span(event: &Event) -> (u64, usize) {
    match event.kind {
        EventKind::Received | EventKind::Datagram | EventKind::ErrorReport
            if event.chunk() != NO_CHUNK =>
        {
            (event.offset(), event.len() as usize)
        }
        _ => (0, 0),
    }
}

impl ReceivePool {
    pub(crate) fn new(memory: Shared) -> Self {
        Self { memory }
    }

    /// Bytes of the whole pool.
    pub fn len(&self) -> u64 {
        self.memory.len()
    }

    /// Whether there is no pool (there always is).
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All of it, as a place: for interfaces of other languages that hand out addresses. Valid while a clone of the pool lives.
    pub fn memory(&self) -> MemRef<'_> {
        let all = self.memory.slice(0, self.memory.len() as usize);
        all.unwrap_or(MemRef::EMPTY)
    }

    /// Copies what a Received or Datagram event names, as many bytes as fit into `out`, and says how many. 0 for other events, and for
    /// one that names bytes outside the pool.
    #[inline]
    pub fn read(&self, event: &Event, out: &mut [u8]) -> usize {
        self.read_at(event, 0, out)
    }

    /// The same, `skip` bytes further on.
    #[inline]
    pub fn read_at(&self, event: &Event, skip: usize, out: &mut [u8]) -> usize {
        let (offset, len) = span(event);
        let n = out.len().min(len.saturating_sub(skip));
        let copied = n > 0
            && offset
                .checked_add(skip as u64)
                .is_some_and(|at| self.memory.copy_out(at, &mut out[..n]));
        if copied { n } else { 0 }
    }

    /// Appends all that the event names to `out`, and says how many bytes that were.
    pub fn append(&self, event: &Event, out: &mut Vec<u8>) -> usize {
        let (_, len) = span(event);
        let before = out.len();
        if self.with_chunk(event, |_| ()).is_none() {
            return 0;
        }
        out.resize(before + len, 0);
        self.read(event, &mut out[before..])
    }

    /// Lends what the event names to `use_it`, without copying; `None` when there is nothing, or nonsense.
    pub fn with_chunk<R>(&self, event: &Event, use_it: impl FnOnce(MemRef<'_>) -> R) -> Option<R> {
        let (offset, len) = span(event);
        if len == 0 {
            return None;
        }
        self.memory.slice(offset, len).map(use_it)
    }

    /// What the event names as an extent, fit for [`Lane::send`]: received bytes are sent on without a copy. The chunk is to be returned
    /// only when that send has completed. `None` when the event names no bytes.
    pub fn extent(&self, event: &Event) -> Option<Extent> {
        let (offset, len) = span(event);
        let inside = len > 0 && self.memory.slice(offset, len).is_some();
        inside.then_some(Extent {
            region: POOL_REGION,
            len: len as u32,
            offset,
        })
    }

    /// A guard over the bytes of an event, that gives the chunk back through `lane` when it is dropped.
    pub fn take<'a>(&'a self, event: Event, lane: &'a mut Lane) -> ReceivedBytes<'a> {
        ReceivedBytes {
            pool: self,
            lane,
            event,
            taken: 0,
        }
    }
}

impl std::fmt::Debug for ReceivePool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ReceivePool")
            .field("len", &self.len())
            .finish()
    }
}

/// The bytes of one Received or Datagram event. Reading goes through it once ([`std::io::Read`]); dropping gives the chunk back.
#[derive(Debug)]
pub struct ReceivedBytes<'a> {
    pool: &'a ReceivePool,
    lane: &'a mut Lane,
    event: Event,
    taken: usize,
}

impl ReceivedBytes<'_> {
    /// Bytes not yet read.
    pub fn remaining(&self) -> usize {
        span(&self.event).1.saturating_sub(self.taken)
    }

    /// The event itself.
    pub fn event(&self) -> &Event {
        &self.event
    }
}

impl std::io::Read for ReceivedBytes<'_> {
    fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
        let n = self.pool.read_at(&self.event, self.taken, out);
        self.taken += n;
        Ok(n)
    }
}

impl Drop for ReceivedBytes<'_> {
    fn drop(&mut self) {
        self.lane.return_chunk(&self.event);
    }
}
