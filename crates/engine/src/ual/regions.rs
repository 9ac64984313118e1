//! The regions that one UAL registered, and how many sends and receives refer to each.

use sidecore_abi::{Extent, RegionId};
use sidecore_shm::{MemMut, MemRef, Shared};

struct Region {
    id: RegionId,
    memory: Shared,
    /// Descriptors that refer to it.
    uses: u32,
    /// Deregister was posted: no new uses; gone when the last one ends. Cookie and queue of the answer.
    leaving: Option<(u64, u16)>,
}

impl Region {
    #[inline]
    fn may_use(&self, extent: Extent) -> bool {
        let inside = extent
            .offset
            .checked_add(u64::from(extent.len))
            .is_some_and(|end| end <= self.memory.len());
        inside && self.leaving.is_none() && !self.memory.condemned()
    }
}

/// Regions by slot (the low bits of an id).
pub(crate) struct Regions {
    slots: Vec<Option<Region>>,
    limit: u32,
}

/// Bits of an id that are its slot; the others tell one use of the slot from the next.
pub(crate) const SLOT_BITS: u32 = 20;

#[inline]
fn slot(id: u32) -> usize {
    (id & ((1 << SLOT_BITS) - 1)) as usize
}

impl Regions {
    pub(crate) fn new(limit: u32) -> Self {
        Self {
            slots: Vec::new(),
            limit: limit.min(1 << SLOT_BITS),
        }
    }

    /// Puts a region in under an id that the agent chose.
    pub(crate) fn insert(&mut self, id: RegionId, memory: Shared) -> bool {
        let slot = slot(id.0);
        if slot >= self.limit as usize {
            return false;
        }
        if self.slots.len() <= slot {
            self.slots.resize_with(slot + 1, || None);
        }
        let free = self.slots[slot].is_none();
        if free {
            self.slots[slot] = Some(Region {
                id,
                memory,
                uses: 0,
                leaving: None,
            });
        }
        free
    }

    #[inline]
    fn get(&self, id: u32) -> Option<&Region> {
        self.slots.get(slot(id))?.as_ref().filter(|r| r.id.0 == id)
    }

    #[inline]
    fn get_mut(&mut self, id: u32) -> Option<&mut Region> {
        self.slots
            .get_mut(slot(id))?
            .as_mut()
            .filter(|r| r.id.0 == id)
    }

    /// Whether an extent lies in a region that may be used.
    #[inline]
    pub(crate) fn may_use(&self, extent: Extent) -> bool {
        self.get(extent.region.0)
            .is_some_and(|region| region.may_use(extent))
    }

    /// Whether an extent lies in a region that may be used, and if so counts one more use of it.
    #[inline]
    pub(crate) fn begin_use(&mut self, extent: Extent) -> bool {
        let Some(region) = self.get_mut(extent.region.0) else {
            return false;
        };
        let may = region.may_use(extent);
        region.uses += u32::from(may);
        may
    }

    /// Ends one use. When that was the last of a region that is leaving, it is gone: its id and who gets the answer.
    #[inline]
    pub(crate) fn end_use(&mut self, id: u32) -> Option<(RegionId, u64, u16)> {
        let region = self.get_mut(id)?;
        region.uses = region.uses.saturating_sub(1);
        region.leaving?;
        self.try_remove(id)
    }

    #[cold]
    fn try_remove(&mut self, id: u32) -> Option<(RegionId, u64, u16)> {
        let region = self.get(id)?;
        let (cookie, evq) = region.leaving?;
        if region.uses > 0 {
            return None;
        }
        let id = region.id;
        self.slots[slot(id.0)] = None;
        Some((id, cookie, evq))
    }

    /// Lets no new use begin. `Err` when there is no such region; `Ok(Some)` when it is gone at once.
    pub(crate) fn leave(&mut self, id: u32, cookie: u64, evq: u16) -> Result<Option<RegionId>, ()> {
        let region = self.get_mut(id).filter(|r| r.leaving.is_none()).ok_or(())?;
        region.leaving = Some((cookie, evq));
        Ok(self.try_remove(id).map(|(id, _, _)| id))
    }

    /// Bytes of an extent for reading.
    #[inline]
    pub(crate) fn slice(&self, id: u32, offset: u64, len: u32) -> Option<MemRef<'_>> {
        self.get(id)?.memory.slice(offset, len as usize)
    }

    /// Bytes of an extent for writing; `None` also when the region was registered read-only.
    #[inline]
    pub(crate) fn slice_mut(&self, id: u32, offset: u64, len: u32) -> Option<MemMut<'_>> {
        self.get(id)?.memory.slice_mut(offset, len as usize)
    }

    /// Regions registered.
    pub(crate) fn len(&self) -> usize {
        self.slots.iter().flatten().count()
    }

    /// Bytes of all of them.
    pub(crate) fn bytes(&self) -> u64 {
        self.slots.iter().flatten().map(|r| r.memory.len()).sum()
    }

    /// Whether any region's memory vanished under the engine.
    pub(crate) fn condemned(&self) -> bool {
        self.slots.iter().flatten().any(|r| r.memory.condemned())
    }
}
