//! What connections had in flight when they changed their UAL: it lay in memory of the old one, so it was copied.

use std::collections::HashMap;

use sidecore_shm::MemRef;

/// Bytes of all copies together.
const LIMIT: usize = 256 << 20;

/// Bytes of copies that one UAL may be the reason of: no application keeps the others from giving their connections away.
const SHARE: usize = LIMIT / 4;

/// One copy.
#[derive(Debug)]
struct Copy {
    bytes: Box<[u8]>,
    /// Number of the UAL that it counts against.
    ual: u64,
}

/// The copies, by number.
#[derive(Debug, Default)]
pub(crate) struct MovedBytes {
    places: Vec<Option<Copy>>,
    free: Vec<u32>,
    bytes: usize,
    /// Bytes that count against each UAL, also against those that are gone.
    shares: HashMap<u64, usize>,
}

impl MovedBytes {
    /// Whether so many bytes more may be kept that count against this UAL.
    pub(crate) fn has_room(&self, ual: u64, len: usize) -> bool {
        let share = self.shares.get(&ual).copied().unwrap_or(0);
        self.bytes + len <= LIMIT && share + len <= SHARE
    }

    /// Keeps bytes, which count against this UAL until they are given back. The caller has asked for room.
    pub(crate) fn keep(&mut self, ual: u64, bytes: Box<[u8]>) -> u32 {
        self.bytes += bytes.len();
        *self.shares.entry(ual).or_default() += bytes.len();
        let copy = Some(Copy { bytes, ual });
        match self.free.pop() {
            Some(number) => {
                self.places[number as usize] = copy;
                number
            }
            None => {
                self.places.push(copy);
                self.places.len() as u32 - 1
            }
        }
    }

    /// They are not needed any more.
    pub(crate) fn give(&mut self, number: u32) {
        let place = self.places.get_mut(number as usize);
        let Some(copy) = place.and_then(Option::take) else {
            return;
        };
        self.bytes -= copy.bytes.len();
        self.free.push(number);
        if let Some(share) = self.shares.get_mut(&copy.ual) {
            *share -= copy.bytes.len();
            if *share == 0 {
                self.shares.remove(&copy.ual);
            }
        }
    }

    /// Some of them.
    #[inline]
    pub(crate) fn slice(&self, number: u32, offset: u32, len: u32) -> Option<MemRef<'_>> {
        let bytes = &self.places.get(number as usize)?.as_ref()?.bytes;
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
        let first = moved.keep(1, vec![1, 2, 3].into());
        let second = moved.keep(1, vec![4; 10].into());
        assert_ne!(first, second);
        let mut out = [0; 2];
        moved.slice(first, 1, 2).unwrap().copy_to(&mut out);
        assert_eq!(out, [2, 3]);
        assert!(moved.slice(first, 2, 2).is_none() && moved.slice(9, 0, 1).is_none());
        assert!(moved.slice(first, u32::MAX, 2).is_none());
        assert!(moved.has_room(1, SHARE - 13) && !moved.has_room(1, SHARE - 12));
        moved.give(first);
        moved.give(first);
        assert!(moved.has_room(1, SHARE - 10));
        assert_eq!(moved.keep(1, vec![7].into()), first);
    }

    #[test]
    fn one_application_cannot_use_up_what_all_have() {
        let mut moved = MovedBytes::default();
        let mut numbers = Vec::new();
        let piece = 4 << 20;
        for ual in 1..=4 {
            while moved.has_room(ual, piece) {
                numbers.push(moved.keep(ual, vec![0; piece].into()));
            }
            assert_eq!(numbers.len() * piece, SHARE * ual as usize);
        }
        assert!(!moved.has_room(5, 1), "four of them have all");
        let last = numbers.pop().unwrap();
        moved.give(last);
        assert!(moved.has_room(5, piece) && !moved.has_room(1, 1));
        numbers.into_iter().for_each(|number| moved.give(number));
        assert!(moved.shares.is_empty() && moved.bytes == 0);
    }
}
