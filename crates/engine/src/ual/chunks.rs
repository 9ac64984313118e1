//! The receive pool of one UAL, with what the engine knows of each chunk: who holds it, and whose bytes are in it.

use sidecore_abi::pool::{SLAB, SMALL};
use sidecore_shm::pool::{NotHeld, PoolAllocator};
use sidecore_shm::{MemRef, Shared};

/// Whose bytes a chunk holds.
#[derive(Debug, Clone, Copy, Default)]
struct Owner {
    slot: u32,
    epoch: u32,
    /// Bytes that were delivered from it and not yet given back.
    delivered: u32,
}

/// What giving back the last reference of a chunk says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Freed {
    /// DTI (slot and epoch) whose bytes were in it.
    pub(crate) slot: u32,
    /// See `slot`.
    pub(crate) epoch: u32,
    /// Bytes that are credited to its window.
    pub(crate) bytes: u32,
}

/// The pool.
pub(crate) struct Chunks {
    memory: Shared,
    allocator: PoolAllocator,
    owners: Vec<Owner>,
    bytes: u64,
}

impl Chunks {
    /// Over pool memory of a size that the agent chose.
    pub(crate) fn new(memory: Shared) -> Self {
        let bytes = memory.len();
        let slabs = (bytes / SLAB as u64) as usize;
        Self {
            memory,
            allocator: PoolAllocator::new(slabs),
            owners: vec![Owner::default(); slabs * (SLAB / SMALL)],
            bytes,
        }
    }

    /// Size of the pool in bytes.
    #[inline]
    pub(crate) fn size(&self) -> u64 {
        self.bytes
    }

    /// Free bytes.
    #[inline]
    pub(crate) fn free_bytes(&self) -> u64 {
        self.allocator.free_bytes()
    }

    /// Whether `len` bytes can be stored now, whatever is free in half-filled chunks.
    #[inline]
    pub(crate) fn has_room(&self, len: u32) -> bool {
        if len as usize <= SMALL {
            self.allocator.has_small()
        } else {
            self.allocator.has_slabs(slabs_for(len))
        }
    }

    /// A chunk for `len` bytes with one reference: a small one, or a slab. Returns number, offset and size.
    #[inline]
    pub(crate) fn allocate(&mut self, len: u32, slot: u32, epoch: u32) -> Option<(u32, u64, u32)> {
        let (chunk, size) = if len as usize <= SMALL {
            (self.allocator.alloc_small()?, SMALL)
        } else {
            (self.allocator.alloc_slab()?, SLAB)
        };
        *self.owners.get_mut(chunk as usize)? = Owner {
            slot,
            epoch,
            delivered: 0,
        };
        Some((chunk, u64::from(chunk) * SMALL as u64, size as u32))
    }

    /// Takes one more reference to a chunk that this DTI still owns; false when it does not.
    #[inline]
    pub(crate) fn extend(&mut self, chunk: u32, slot: u32, epoch: u32) -> bool {
        let owned = self
            .owners
            .get(chunk as usize)
            .is_some_and(|o| o.slot == slot && o.epoch == epoch);
        owned && self.allocator.add_ref(chunk)
    }

    /// The application gets one of the engine's references with an event; the bytes count against the window until the chunk
    /// comes back.
    #[inline]
    pub(crate) fn hand_over(&mut self, chunk: u32, bytes: u32) {
        if self.allocator.hand_over(chunk)
            && let Some(owner) = self.owners.get_mut(chunk as usize)
        {
            owner.delivered += bytes;
        }
    }

    /// A connection moved to another DTI (it was accepted).
    pub(crate) fn change_owner(&mut self, chunk: u32, slot: u32, epoch: u32) {
        if let Some(owner) = self.owners.get_mut(chunk as usize) {
            (owner.slot, owner.epoch) = (slot, epoch);
        }
    }

    /// Gives back a reference that the engine held itself. `Err` when it held none.
    #[inline]
    pub(crate) fn release(&mut self, chunk: u32) -> Result<Option<Freed>, NotHeld> {
        let free = self.allocator.release(chunk)?;
        Ok(free.then(|| self.freed(chunk)))
    }

    /// The application gives back a reference that it was lent. `Err` when it was lent none: any number may come here.
    #[inline]
    pub(crate) fn take_back(&mut self, chunk: u32) -> Result<Option<Freed>, NotHeld> {
        let free = self.allocator.take_back(chunk)?;
        Ok(free.then(|| self.freed(chunk)))
    }

    #[inline]
    fn freed(&self, chunk: u32) -> Freed {
        let owner = self.owners[chunk as usize];
        Freed {
            slot: owner.slot,
            epoch: owner.epoch,
            bytes: owner.delivered,
        }
    }

    /// Copies into the pool. The place comes from [`Self::allocate`].
    #[inline]
    pub(crate) fn write(&self, offset: u64, data: MemRef<'_>) {
        if let Some(to) = self.memory.slice_mut(offset, data.len()) {
            to.write(0, data);
        }
    }

    /// Bytes of the pool (what a piece names).
    #[inline]
    pub(crate) fn slice(&self, offset: u64, len: u32) -> Option<MemRef<'_>> {
        self.memory.slice(offset, len as usize)
    }

    /// Whether the memory vanished under the engine.
    pub(crate) fn condemned(&self) -> bool {
        self.memory.condemned()
    }
}

#[inline]
fn slabs_for(len: u32) -> usize {
    (len as usize).div_ceil(SLAB)
}
