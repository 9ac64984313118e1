//! Files in memory that is shared with the kernel for as long as it sends from it.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::rc::Rc;
use std::sync::Arc;

use crate::cache::budget::{Budget, Leased};
use crate::cache::{AdmitError, Store};
use crate::http::condition::DATE_LEN;

/// Bytes of a chunk, and so of one send. Large enough that the work for each is small beside copying it, small enough that a slow
/// reader is seen to make progress.
pub(super) const CHUNK: u64 = 128 * 1024;

/// Keeps files as chunks: the first begins with the head.
pub(super) struct RingStore {
    budget: Budget,
}

/// A file.
pub(super) enum RingEdition {
    /// In memory: the first chunk, with the head, and the others, which editions with another date share.
    Memory {
        first: Leased<Arc<[u8]>>,
        rest: Rc<Leased<Vec<Arc<[u8]>>>>,
    },
    /// Too large to keep.
    Open(File),
}

impl RingEdition {
    /// The chunk that holds byte `at`, counted from the head, and where it begins.
    pub(super) fn chunk(&self, at: u64) -> Option<(&Arc<[u8]>, u64)> {
        let Self::Memory { first, rest } = self else {
            return None;
        };
        let number = at / CHUNK;
        let chunk = match number {
            0 => &first.value,
            _ => rest.value.get((number - 1) as usize)?,
        };
        Some((chunk, number * CHUNK))
    }
}

impl RingStore {
    pub(super) fn new(limit: u64) -> Self {
        Self {
            budget: Budget::new(limit),
        }
    }
}

/// Reads `len` bytes at `offset`, behind `before`.
fn read_chunk(before: &[u8], file: &File, offset: u64, len: usize) -> std::io::Result<Arc<[u8]>> {
    let mut chunk: Arc<[u8]> = std::iter::repeat_n(0, before.len() + len).collect();
    if let Some(bytes) = Arc::get_mut(&mut chunk) {
        let (start, content) = bytes.split_at_mut(before.len());
        start.copy_from_slice(before);
        file.read_exact_at(content, offset)?;
    }
    Ok(chunk)
}

impl Store for RingStore {
    type Edition = RingEdition;

    fn admit(&mut self, head: &[u8], file: &File, len: u64) -> Result<RingEdition, AdmitError> {
        let total = self.budget.room_for(head.len() as u64, len)? as u64;
        let mut offset = len.min(CHUNK - head.len() as u64);
        let first = read_chunk(head, file, 0, offset as usize)?;
        let mut rest = Vec::new();
        while offset < len {
            let part = (len - offset).min(CHUNK);
            rest.push(read_chunk(&[], file, offset, part as usize)?);
            offset += part;
        }
        let first_len = first.len() as u64;
        Ok(RingEdition::Memory {
            first: self.budget.lease(first, first_len),
            rest: Rc::new(self.budget.lease(rest, total - first_len)),
        })
    }

    fn open(&mut self, file: File) -> RingEdition {
        RingEdition::Open(file)
    }

    fn carries_head(edition: &RingEdition) -> bool {
        matches!(edition, RingEdition::Memory { .. })
    }

    fn set_date(&mut self, edition: &mut RingEdition, at: usize, date: &[u8; DATE_LEN]) -> bool {
        // No mutable reference while the kernel has its share.
        if let RingEdition::Memory { first, .. } = edition
            && let Some(place) =
                Arc::get_mut(&mut first.value).and_then(|bytes| bytes.get_mut(at..at + DATE_LEN))
        {
            place.copy_from_slice(date);
            return true;
        }
        false
    }

    fn reissue(
        &mut self,
        edition: &RingEdition,
        at: usize,
        date: &[u8; DATE_LEN],
    ) -> Option<RingEdition> {
        let RingEdition::Memory { first, rest } = edition else {
            return None;
        };
        let len = first.value.len() as u64;
        if !self.budget.has_room(len) {
            return None;
        }
        let mut copy = RingEdition::Memory {
            first: self.budget.lease(Arc::from(&first.value[..]), len),
            rest: Rc::clone(rest),
        };
        self.set_date(&mut copy, at, date).then_some(copy)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn chunks_hold_head_and_content_in_order() {
        for len in [0, 1, CHUNK - 5, CHUNK - 4, CHUNK, 3 * CHUNK + 7] {
            let content: Vec<u8> = (0..len).map(|i| (i * 7 % 251) as u8).collect();
            let mut file = tempfile::tempfile().unwrap();
            file.write_all(&content).unwrap();
            let mut store = RingStore::new(64 << 20);
            let edition = store.admit(b"head", &file, len).unwrap();
            assert_eq!(store.budget.alive(), len + 4);
            let mut all = Vec::new();
            while (all.len() as u64) < len + 4 {
                let (chunk, begin) = edition.chunk(all.len() as u64).unwrap();
                assert_eq!(begin, all.len() as u64);
                all.extend_from_slice(chunk);
            }
            assert!(all == [b"head", &content[..]].concat());
        }
    }

    #[test]
    fn what_the_kernel_reads_is_not_written() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&[1; 300_000]).unwrap();
        let mut store = RingStore::new(64 << 20);
        let mut edition = store.admit(&[0; 50], &file, 300_000).unwrap();
        assert!(store.set_date(&mut edition, 5, &[b'a'; DATE_LEN]));
        let shared = Arc::clone(edition.chunk(0).unwrap().0);
        assert!(!store.set_date(&mut edition, 5, &[b'b'; DATE_LEN]));
        let other = store.reissue(&edition, 5, &[b'b'; DATE_LEN]).unwrap();
        assert_eq!(shared[5], b'a');
        assert_eq!(other.chunk(0).unwrap().0[5], b'b');
        assert!(Arc::ptr_eq(
            other.chunk(CHUNK).unwrap().0,
            edition.chunk(CHUNK).unwrap().0
        ));
        assert_eq!(store.budget.alive(), 300_050 + CHUNK);
        drop((edition, other));
        assert_eq!(store.budget.alive(), 0);
    }
}
