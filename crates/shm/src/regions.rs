//! Which memory an application's region ids mean.
//!
//! One table for each UAL, owned by one thread: an id of another UAL means nothing here. An id is a slot (low 20 bits) and the
//! generation of its use (upper 12), so that an id from before means nothing either, until 4095 later uses of the slot.

use sidecore_abi::{Extent, RegionId};

use crate::memory::{MemMut, MemRef, Shared};

/// Bits of an id that are its slot.
pub const SLOT_BITS: u32 = 20;
const SLOT_MASK: u32 = (1 << SLOT_BITS) - 1;
/// Generations are 0 to 4094: the id u32::MAX stays free to mean none.
const GENERATIONS: u32 = (1 << (32 - SLOT_BITS)) - 1;

/// The table is full.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TableFull;

impl std::fmt::Display for TableFull {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("too many regions")
    }
}

impl std::error::Error for TableFull {}

#[derive(Debug, Default)]
struct Slot {
    generation: u32,
    region: Option<(Shared, u64)>,
}

/// The registered memory of one UAL.
#[derive(Debug)]
pub struct RegionTable {
    slots: Vec<Slot>,
    free: Vec<u32>,
    limit: u32,
    len: u32,
}

impl RegionTable {
    /// An empty table for at most `limit` regions (and never more than 2^20).
    pub fn new(limit: u32) -> Self {
        Self {
            slots: Vec::new(),
            free: Vec::new(),
            limit: limit.min(1 << SLOT_BITS),
            len: 0,
        }
    }

    /// Adds memory; `owner` is the caller's own note, given back by [`RegionTable::owner`].
    pub fn insert(&mut self, memory: Shared, owner: u64) -> Result<RegionId, TableFull> {
        let slot = match self.free.pop() {
            Some(slot) => slot,
            None if (self.slots.len() as u32) < self.limit => {
                self.slots.push(Slot::default());
                self.slots.len() as u32 - 1
            }
            None => return Err(TableFull),
        };
        let entry = &mut self.slots[slot as usize];
        entry.region = Some((memory, owner));
        self.len += 1;
        Ok(RegionId(slot | entry.generation << SLOT_BITS))
    }

    /// Takes memory out; its id means nothing any more. It is unmapped when the last clone is gone.
    pub fn remove(&mut self, id: RegionId) -> Option<Shared> {
        self.slot(id)?;
        let number = id.0 & SLOT_MASK;
        let entry = self.slots.get_mut(number as usize)?;
        let (memory, _) = entry.region.take()?;
        entry.generation = (entry.generation + 1) % GENERATIONS;
        self.free.push(number);
        self.len -= 1;
        Some(memory)
    }

    #[inline]
    fn slot(&self, id: RegionId) -> Option<&(Shared, u64)> {
        let slot = self.slots.get((id.0 & SLOT_MASK) as usize)?;
        let current = slot.generation == id.0 >> SLOT_BITS;
        slot.region.as_ref().filter(|_| current)
    }

    /// The memory that an id means.
    #[inline]
    pub fn get(&self, id: RegionId) -> Option<&Shared> {
        self.slot(id).map(|(memory, _)| memory)
    }

    /// The note that came with it.
    pub fn owner(&self, id: RegionId) -> Option<u64> {
        self.slot(id).map(|(_, owner)| *owner)
    }

    /// The bytes that an extent means; `None` when there is no such region or they do not lie inside.
    #[inline]
    pub fn resolve(&self, extent: Extent) -> Option<MemRef<'_>> {
        self.get(extent.region)?
            .slice(extent.offset, extent.len as usize)
    }

    /// The same for writing; `None` also when the region is read-only.
    #[inline]
    pub fn resolve_mut(&self, extent: Extent) -> Option<MemMut<'_>> {
        self.get(extent.region)?
            .slice_mut(extent.offset, extent.len as usize)
    }

    /// Regions in the table.
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether any region's memory vanished.
    pub fn condemned(&self) -> bool {
        let mut regions = self.slots.iter().filter_map(|slot| slot.region.as_ref());
        regions.any(|(memory, _)| memory.condemned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extent(region: RegionId, offset: u64, len: u32) -> Extent {
        Extent {
            region,
            len,
            offset,
        }
    }

    #[test]
    fn ids_mean_their_own_use_of_a_slot_only() {
        let mut table = RegionTable::new(2);
        let a = table.insert(Shared::heap(64), 7).unwrap();
        let b = table.insert(Shared::heap(128), 8).unwrap();
        assert_eq!(table.insert(Shared::heap(64), 9), Err(TableFull));
        assert_eq!(
            (table.owner(a), table.owner(b), table.len()),
            (Some(7), Some(8), 2)
        );
        table.remove(a).unwrap();
        assert!(table.remove(a).is_none() && table.get(a).is_none());
        let c = table.insert(Shared::heap(64), 9).unwrap();
        assert_ne!(a, c);
        assert!(table.get(a).is_none() && table.owner(c) == Some(9));
        for id in [2, SLOT_MASK, u32::MAX, 1 << SLOT_BITS | 1] {
            assert!(table.get(RegionId(id)).is_none());
        }
        assert!(!table.condemned() && !table.is_empty());
    }

    #[test]
    #[cfg_attr(miri, ignore = "long")]
    fn generations_come_round_without_ever_being_all_ones() {
        let mut table = RegionTable::new(1);
        let first = table.insert(Shared::heap(64), 0).unwrap();
        table.remove(first).unwrap();
        for _ in 1..GENERATIONS {
            let id = table.insert(Shared::heap(64), 0).unwrap();
            assert!(id != first && id.0 >> SLOT_BITS != GENERATIONS);
            table.remove(id).unwrap();
        }
        assert_eq!(table.insert(Shared::heap(64), 0).unwrap(), first);
    }

    #[test]
    fn extents_are_checked() {
        let mut table = RegionTable::new(4);
        let id = table.insert(Shared::heap(128), 0).unwrap();
        assert_eq!(table.resolve(extent(id, 28, 100)).unwrap().len(), 100);
        assert_eq!(table.resolve_mut(extent(id, 128, 0)).unwrap().len(), 0);
        for (offset, len) in [
            (29, 100),
            (128, 1),
            (u64::MAX, 1),
            (0, u32::MAX),
            (u64::MAX - 1, 2),
        ] {
            assert!(table.resolve(extent(id, offset, len)).is_none());
        }
        assert!(table.resolve(extent(RegionId(5), 0, 1)).is_none());
    }
}
