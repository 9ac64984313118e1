//! All DTIs of one engine thread, in slots that the stack knows as its `User`.

use super::Dti;

/// Slots with reuse; a slot's epoch changes with each use.
#[derive(Debug)]
pub(crate) struct DtiTable {
    slots: Vec<Slot>,
    free: Vec<u32>,
    limit: usize,
}

#[derive(Debug)]
struct Slot {
    epoch: u32,
    dti: Option<Dti>,
}

impl DtiTable {
    /// At most `limit` DTIs.
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            slots: Vec::new(),
            free: Vec::new(),
            // The stack's names of other things begin there.
            limit: limit.min(1 << 31),
        }
    }

    /// DTIs in use.
    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// All of them. Walks the whole table: not for the packet path.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Dti> {
        self.slots.iter().filter_map(|slot| slot.dti.as_ref())
    }

    /// Whether [`insert`](Self::insert) would find a place.
    pub(crate) fn has_room(&self) -> bool {
        !self.free.is_empty() || self.slots.len() < self.limit
    }

    /// Puts one in; `make` gets the slot's new epoch. `None` when the table is full.
    pub(crate) fn insert(&mut self, make: impl FnOnce(u32) -> Dti) -> Option<u32> {
        let slot = match self.free.pop() {
            Some(slot) => slot,
            None if self.slots.len() < self.limit => {
                self.slots.push(Slot {
                    epoch: 0,
                    dti: None,
                });
                self.slots.len() as u32 - 1
            }
            None => return None,
        };
        let place = &mut self.slots[slot as usize];
        place.epoch = place.epoch.wrapping_add(1);
        place.dti = Some(make(place.epoch));
        Some(slot)
    }

    /// Takes one out.
    pub(crate) fn remove(&mut self, slot: u32) -> Option<Dti> {
        let dti = self.slots.get_mut(slot as usize)?.dti.take()?;
        self.free.push(slot);
        Some(dti)
    }

    /// The DTI in a slot.
    #[inline]
    pub(crate) fn get(&self, slot: u32) -> Option<&Dti> {
        self.slots.get(slot as usize)?.dti.as_ref()
    }

    /// The DTI in a slot, to change.
    #[inline]
    pub(crate) fn get_mut(&mut self, slot: u32) -> Option<&mut Dti> {
        self.slots.get_mut(slot as usize)?.dti.as_mut()
    }

    /// The DTI that was in this slot at this epoch, if it still is.
    #[inline]
    pub(crate) fn at_epoch(&self, slot: u32, epoch: u32) -> Option<&Dti> {
        self.get(slot).filter(|dti| dti.epoch == epoch)
    }

    /// The same, to change.
    #[inline]
    pub(crate) fn at_epoch_mut(&mut self, slot: u32, epoch: u32) -> Option<&mut Dti> {
        self.get_mut(slot).filter(|dti| dti.epoch == epoch)
    }
}
