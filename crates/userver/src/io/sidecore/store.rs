//! Files in memory that the engine reads itself: one registered region, in which a file lies right behind its head.

use std::fs::File;
use std::os::unix::fs::FileExt;

use sidecore_client::{Extent, OutOfRange, Region};

use crate::cache::arena::{Arena, Block};
use crate::cache::{AdmitError, Store};
use crate::http::condition::DATE_LEN;

/// Bytes read, or copied, at once.
const STEP: usize = 64 * 1024;

/// Editions up to this size are copied for a new date while an old copy is being sent, in bytes.
const REISSUE_MAX: u64 = 64 * 1024;

/// Keeps files in a region.
pub(super) struct RegionStore {
    region: Region,
    arena: Arena,
    step: Vec<u8>,
}

/// A file.
pub(super) enum RegionEdition {
    /// Head and content, in the region.
    Memory(Block),
    /// Too large to keep.
    Open(File),
}

impl RegionEdition {
    /// The piece from byte `start` on, as the engine knows it; `None` for what is not in the region.
    pub(super) fn extent(&self, region: &Region, start: u64, len: u64) -> Option<Extent> {
        let Self::Memory(block) = self else {
            return None;
        };
        let inside = start.checked_add(len).is_some_and(|end| end <= block.len());
        let len = u32::try_from(len).ok().filter(|_| inside)?;
        region.extent(block.offset() + start, len).ok()
    }
}

impl RegionStore {
    /// A store in the part of the region that the arena gives out.
    pub(super) fn new(region: Region, arena: Arena) -> Self {
        Self {
            region,
            arena,
            step: vec![0; STEP],
        }
    }
}

impl From<OutOfRange> for AdmitError {
    fn from(error: OutOfRange) -> Self {
        Self::Io(error.into())
    }
}

impl Store for RegionStore {
    type Edition = RegionEdition;

    fn admit(&mut self, head: &[u8], file: &File, len: u64) -> Result<RegionEdition, AdmitError> {
        // As on the heap: a few large files must not push everything else out.
        if len > self.arena.capacity() / 8 {
            return Err(AdmitError::TooLarge);
        }
        let head_len = head.len() as u64;
        let block = self
            .arena
            .allocate(head_len + len)
            .ok_or(AdmitError::NoRoom)?;
        self.region.write(block.offset(), head)?;
        let mut at = 0;
        while at < len {
            let count = (len - at).min(STEP as u64) as usize;
            let step = &mut self.step[..count];
            file.read_exact_at(step, at)?;
            self.region.write(block.offset() + head_len + at, step)?;
            at += count as u64;
        }
        Ok(RegionEdition::Memory(block))
    }

    fn open(&mut self, file: File) -> RegionEdition {
        RegionEdition::Open(file)
    }

    fn carries_head(edition: &RegionEdition) -> bool {
        matches!(edition, RegionEdition::Memory(_))
    }

    fn set_date(&mut self, edition: &mut RegionEdition, at: usize, date: &[u8; DATE_LEN]) -> bool {
        match edition {
            RegionEdition::Memory(block) => {
                self.region.write(block.offset() + at as u64, date).is_ok()
            }
            RegionEdition::Open(_) => false,
        }
    }

    fn reissue(
        &mut self,
        edition: &RegionEdition,
        at: usize,
        date: &[u8; DATE_LEN],
    ) -> Option<RegionEdition> {
        let RegionEdition::Memory(old) = edition else {
            return None;
        };
        // Idle connections may hold old copies for long; these must not take the room of files.
        if old.len() > REISSUE_MAX || self.arena.free() < self.arena.capacity() / 2 {
            return None;
        }
        let new = self.arena.allocate(old.len())?;
        let mut done = 0;
        while done < old.len() {
            let count = (old.len() - done).min(STEP as u64) as usize;
            let step = &mut self.step[..count];
            self.region.read(old.offset() + done, step).ok()?;
            self.region.write(new.offset() + done, step).ok()?;
            done += count as u64;
        }
        let mut copy = RegionEdition::Memory(new);
        self.set_date(&mut copy, at, date).then_some(copy)
    }
}
