//! Small sends that the engine copied: slots of [`COPY_MAX`] bytes.

use sidecore_abi::command::COPY_MAX;
use sidecore_shm::MemRef;

const SLOT: usize = COPY_MAX as usize;
/// Slots in one piece of memory; the arena grows by such pieces, as they are first needed.
const PIECE: usize = 256;

/// The arena.
pub(crate) struct CopyArena {
    pieces: Vec<Box<[[u8; SLOT]; PIECE]>>,
    free: Vec<u32>,
    limit: u32,
}

impl CopyArena {
    /// At most `limit` slots.
    pub(crate) fn new(limit: u32) -> Self {
        Self {
            pieces: Vec::new(),
            free: Vec::new(),
            limit,
        }
    }

    /// A free slot, to be written by the caller.
    pub(crate) fn take(&mut self) -> Option<(u32, &mut [u8; SLOT])> {
        if self.free.is_empty() {
            let first = (self.pieces.len() * PIECE) as u32;
            if first.saturating_add(PIECE as u32) > self.limit {
                return None;
            }
            self.pieces.push(Box::new([[0; SLOT]; PIECE]));
            self.free.extend((first..first + PIECE as u32).rev());
        }
        let slot = self.free.pop()?;
        let bytes = &mut self.pieces[slot as usize / PIECE][slot as usize % PIECE];
        Some((slot, bytes))
    }

    /// Gives a slot back.
    #[inline]
    pub(crate) fn give(&mut self, slot: u32) {
        self.free.push(slot);
    }

    /// Bytes of a slot.
    #[inline]
    pub(crate) fn slice(&self, slot: u32, offset: u32, len: u32) -> Option<MemRef<'_>> {
        let bytes = self
            .pieces
            .get(slot as usize / PIECE)?
            .get(slot as usize % PIECE)?;
        bytes
            .get(offset as usize..(offset + len) as usize)
            .map(MemRef::from_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_bounded_and_reused() {
        let mut arena = CopyArena::new(PIECE as u32 + 5);
        let taken: Vec<u32> = std::iter::from_fn(|| arena.take().map(|(slot, _)| slot)).collect();
        assert_eq!(taken.len(), PIECE, "a second piece would pass the limit");
        arena.give(taken[7]);
        let (slot, bytes) = arena.take().unwrap();
        assert_eq!(slot, taken[7]);
        bytes[..3].copy_from_slice(b"abc");
        let mut out = [0; 2];
        arena.slice(slot, 1, 2).unwrap().copy_to(&mut out);
        assert_eq!(&out, b"bc");
        assert!(arena.slice(slot, 255, 2).is_none() && arena.slice(9999, 0, 1).is_none());
    }
}
