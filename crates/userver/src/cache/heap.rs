//! Files in ordinary memory, for back-ends whose sends copy or are over when they return.

use std::cell::Cell;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::rc::Rc;

use super::{AdmitError, Store};
use crate::http::condition::DATE_LEN;

/// Editions up to this size are copied for a new date while an old copy is being sent, in bytes.
const REISSUE_MAX: usize = 64 * 1024;

/// Memory of editions: what is alive, cached or only still being sent, never exceeds the limit.
#[derive(Debug)]
pub struct HeapStore {
    alive: Rc<Cell<u64>>,
    limit: u64,
}

/// A file as [`HeapStore`] keeps it.
#[derive(Debug)]
pub enum HeapEdition {
    /// Head and content.
    Memory(Lease),
    /// Too large to keep.
    Open(File),
}

/// Bytes that are counted for as long as they live.
#[derive(Debug)]
pub struct Lease {
    bytes: Box<[u8]>,
    alive: Rc<Cell<u64>>,
}

impl Lease {
    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.alive
            .set(self.alive.get().saturating_sub(self.bytes.len() as u64));
    }
}

impl HeapStore {
    /// A store of at most `limit` bytes.
    pub fn new(limit: u64) -> Self {
        Self {
            alive: Rc::default(),
            limit,
        }
    }

    /// Bytes alive.
    pub fn alive(&self) -> u64 {
        self.alive.get()
    }

    fn has_room(&self, len: usize) -> bool {
        self.alive.get().saturating_add(len as u64) <= self.limit
    }

    fn lease(&self, bytes: Box<[u8]>) -> Lease {
        self.alive.set(self.alive.get() + bytes.len() as u64);
        Lease {
            bytes,
            alive: Rc::clone(&self.alive),
        }
    }
}

impl Store for HeapStore {
    type Edition = HeapEdition;

    fn admit(&mut self, head: &[u8], file: &File, len: u64) -> Result<HeapEdition, AdmitError> {
        // One file may take an eighth: a few large ones must not push everything else out.
        if len > self.limit / 8 {
            return Err(AdmitError::TooLarge);
        }
        let total = head.len() + len as usize;
        if !self.has_room(total) {
            return Err(AdmitError::NoRoom);
        }
        let mut bytes = vec![0; total].into_boxed_slice();
        let (start, content) = bytes.split_at_mut(head.len());
        start.copy_from_slice(head);
        file.read_exact_at(content, 0)?;
        Ok(HeapEdition::Memory(self.lease(bytes)))
    }

    fn open(&mut self, file: File) -> HeapEdition {
        HeapEdition::Open(file)
    }

    fn carries_head(edition: &HeapEdition) -> bool {
        matches!(edition, HeapEdition::Memory(_))
    }

    fn set_date(&mut self, edition: &mut HeapEdition, at: usize, date: &[u8; DATE_LEN]) {
        if let HeapEdition::Memory(lease) = edition
            && let Some(place) = lease.bytes.get_mut(at..at + DATE_LEN)
        {
            place.copy_from_slice(date);
        }
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
        if lease.bytes.len() > REISSUE_MAX || !self.has_room(lease.bytes.len()) {
            return None;
        }
        let mut copy = HeapEdition::Memory(self.lease(lease.bytes.clone()));
        self.set_date(&mut copy, at, date);
        Some(copy)
    }
}
