//! Regions: memory that the engine may read for sends and write for posted receives.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use sidecore_abi::handle::EXTENT_BYTES;
use sidecore_abi::{Extent, RegionId};
use sidecore_shm::{MemRef, Shared};

use crate::error::OutOfRange;

/// Registered memory. Cheap to clone: all clones mean the same memory, and the mapping goes when the last is dropped.
///
/// The engine reads it while it sends and writes it for posted receives, at any moment, so no `&[u8]` into it exists: bytes are copied in
/// and out. Bytes that change while a send refers to them reach the peer in either form; nothing else comes of it.
///
/// Dropping it does not deregister: the engine keeps its own mapping until [`crate::Lane::deregister`] or the end of the UAL.
#[derive(Clone)]
pub struct Region {
    id: RegionId,
    memory: Arc<Shared>,
}

impl Region {
    pub(crate) fn new(id: RegionId, memory: Shared) -> Self {
        Self {
            id,
            memory: Arc::new(memory),
        }
    }

    /// What it is called in extents.
    pub fn id(&self) -> RegionId {
        self.id
    }

    /// Bytes.
    pub fn len(&self) -> u64 {
        self.memory.len()
    }

    /// Whether it has no bytes (no registered region has).
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether it was mapped writable here.
    pub fn is_writable(&self) -> bool {
        self.memory.is_writable()
    }

    /// All of it, as a place: for interfaces of other languages that hand out addresses. Valid while a clone of the region lives.
    pub fn memory(&self) -> MemRef<'_> {
        let all = self.memory.slice(0, self.memory.len() as usize);
        all.unwrap_or(MemRef::EMPTY)
    }

    fn holds(&self, offset: u64, len: u64) -> bool {
        offset
            .checked_add(len)
            .is_some_and(|end| end <= self.memory.len())
    }

    /// The piece from `offset` on, `len` bytes long, as commands name it.
    pub fn extent(&self, offset: u64, len: u32) -> Result<Extent, OutOfRange> {
        let extent = Extent {
            region: self.id,
            len,
            offset,
        };
        if self.holds(offset, u64::from(len)) {
            Ok(extent)
        } else {
            Err(OutOfRange)
        }
    }

    /// Copies `data` to `offset`.
    #[inline]
    pub fn write(&self, offset: u64, data: &[u8]) -> Result<(), OutOfRange> {
        if self.memory.copy_in(offset, data) {
            Ok(())
        } else {
            Err(OutOfRange)
        }
    }

    /// Fills `len` bytes at `offset` from a file, from byte `place` of that on: how many there were, 0 at its end. Blocks as the file does.
    pub(crate) fn read_file(
        &self,
        (offset, len): (u64, u32),
        file: BorrowedFd<'_>,
        place: u64,
    ) -> io::Result<usize> {
        match self.memory.slice_mut(offset, len as usize) {
            Some(memory) => memory.read_file(file, place),
            None => Err(io::ErrorKind::InvalidInput.into()),
        }
    }

    /// Copies from `offset` into all of `out`.
    #[inline]
    pub fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), OutOfRange> {
        if self.memory.copy_out(offset, out) {
            Ok(())
        } else {
            Err(OutOfRange)
        }
    }

    /// Copies what a ReceivedInto event announced: the first bytes of `buffer`, as many as fit into `out`. Says how many.
    pub fn read_extent(&self, buffer: Extent, out: &mut [u8]) -> Result<usize, OutOfRange> {
        let n = out.len().min(buffer.len as usize);
        if buffer.region != self.id {
            return Err(OutOfRange);
        }
        self.read(buffer.offset, &mut out[..n])?;
        Ok(n)
    }

    /// Stores a list of extents at `offset`, for [`crate::Lane::send_list`], and says which piece it is.
    pub fn write_extents(&self, offset: u64, pieces: &[Extent]) -> Result<Extent, OutOfRange> {
        let len = pieces
            .len()
            .checked_mul(EXTENT_BYTES)
            .and_then(|n| u32::try_from(n).ok())
            .ok_or(OutOfRange)?;
        let list = self.extent(offset, len)?;
        let mut at = offset;
        for piece in pieces {
            let mut bytes = [0u8; EXTENT_BYTES];
            bytes[..4].copy_from_slice(&piece.region.0.to_le_bytes());
            bytes[4..8].copy_from_slice(&piece.len.to_le_bytes());
            bytes[8..].copy_from_slice(&piece.offset.to_le_bytes());
            self.write(at, &bytes)?;
            at += EXTENT_BYTES as u64;
        }
        Ok(list)
    }
}

impl std::fmt::Debug for Region {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Region")
            .field("id", &self.id)
            .field("len", &self.len())
            .finish()
    }
}
