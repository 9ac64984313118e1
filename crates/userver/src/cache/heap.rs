//! Files in ordinary memory, for back-ends whose sends copy or are over when they return.

use std::fs::File;
use std::os::unix::fs::FileExt;

use super::budget::{Budget, Leased};
use super::{AdmitError, Store};
use crate::http::condition::DATE_LEN;

/// Editions up to this size are copied for a new date while an old copy is being sent, in bytes.
const REISSUE_MAX: usize = 64 * 1024;

/// Memory of editions: what is alive, cached or only still being sent, never exceeds the limit.
#[derive(Debug)]
pub struct HeapStore {
    budget: Budget,
}

/// A file as [`HeapStore`] keeps it.
#[derive(Debug)]
pub enum HeapEdition {
    /// Head and content.
    Memory(Leased<Box<[u8]>>),
    /// Too large to keep.
    Open(File),
}

impl HeapStore {
    /// A store of at most `limit` bytes.
    pub fn new(limit: u64) -> Self {
        Self {
            budget: Budget::new(limit),
        }
    }

    /// Bytes alive.
    pub fn alive(&self) -> u64 {
        self.budget.alive()
    }
}

impl Store for HeapStore {
    type Edition = HeapEdition;

    fn admit(&mut self, head: &[u8], file: &File, len: u64) -> Result<HeapEdition, AdmitError> {
        let total = self.budget.room_for(head.len() as u64, len)?;
        let mut bytes = vec![0; total].into_boxed_slice();
        let (start, content) = bytes.split_at_mut(head.len());
        start.copy_from_slice(head);
        file.read_exact_at(content, 0)?;
        Ok(HeapEdition::Memory(self.budget.lease(bytes, total as u64)))
    }

    fn open(&mut self, file: File) -> HeapEdition {
        HeapEdition::Open(file)
    }

    fn carries_head(edition: &HeapEdition) -> bool {
        matches!(edition, HeapEdition::Memory(_))
    }

    fn set_date(&mut self, edition: &mut HeapEdition, at: usize, date: &[u8; DATE_LEN]) -> bool {
        if let HeapEdition::Memory(lease) = edition
            && let Some(place) = lease.value.get_mut(at..at + DATE_LEN)
        {
            place.copy_from_slice(date);
            return true;
        }
        false
    }

    fn reissue(
        &mut self,
        edition: &HeapEdition,
        at: usize,
        date: &[u8; DATE_LEN],
    ) -> Option<HeapEdition> {
        let HeapEdition::Memory(lease) = edition else {
            return None;
        };
        let len = lease.value.len();
        if len > REISSUE_MAX || !self.budget.has_room(len as u64) {
            return None;
        }
        let copy = self.budget.lease(lease.value.clone(), len as u64);
        let mut copy = HeapEdition::Memory(copy);
        self.set_date(&mut copy, at, date).then_some(copy)
    }
}
