//! What connections had in flight when they changed their UAL: it lay in memory of the old one, so it was copied.

use sidecore_shm::MemRef;

/// Bytes of all copies together.
const LIMIT: usize = 256 << 20;

/// The copies, by number.
#[derive(Debug, Default)]
pub(crate) struct MovedBytes {
    places: Vec<Option<Box<[u8]>>>,
    free: Vec<u32>,
    bytes: usize,
}

impl MovedBytes {
    /// Whether so many bytes more may be kept.
    pub(crate) fn has_room(&self, len: usize) -> bool {
        self.bytes + len <= LIMIT
    }

    /// Keeps bytes. The caller has asked for room.
    pub(crate) fn keep(&mut self, bytes: Box<[u8]>) -> u32 {
        self.bytes += bytes.len();
        match self.free.pop() {
            Some(number) => {
                self.places[number as usize] = Some(bytes);
                number
            }
            None => {
                self.places.push(Some(bytes));
                self.places.len() as u32 - 1
            }
        }
    }

    /// They are not needed any more.
    pub(crate) fn give(&mut self, number: u32) {
        if let Some(bytes) = self.places.get_mut(number as usize).and_then(Option::take) {
            self.bytes -= bytes.len();
            self.free.push(number);
        }
    }

    /// Some of them.
    #[inline]
    pub(crate) fn slice(&self, number: u32, offset: u32, len: u32) -> Option<MemRef<'_>> {
        let bytes = self.places.get(number as usize)?.as_ref()?;
        let end = offset.checked_add(len)?;
        bytes
            .get(offset as usize..end as usize)
            .map(MemRef::from_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_are_bounded_and_their_numbers_used_again() {
        let mut moved = MovedBytes::default();
        let first = moved.keep(vec![1, 2, 3].into());
        let second = moved.keep(vec![4; 10].into());
        assert_ne!(first, second);
        let mut out = [0; 2];
        moved.slice(first, 1, 2).unwrap().copy_to(&mut out);
        assert_eq!(out, [2, 3]);
        assert!(moved.slice(first, 2, 2).is_none() && moved.slice(9, 0, 1).is_none());
        assert!(moved.slice(first, u32::MAX, 2).is_none());
        assert!(moved.has_room(LIMIT - 13) && !moved.has_room(LIMIT - 12));
        moved.give(first);
        moved.give(first);
        assert!(moved.has_room(LIMIT - 10));
        assert_eq!(moved.keep(vec![7].into()), first);
    }
}
