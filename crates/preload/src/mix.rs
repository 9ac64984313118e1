//! A hash for small keys of the library's own making: numbers of descriptors, addresses of what is kept for them. The standard library's
//! withstands keys that were chosen to collide, and takes more than a hundred instructions for it; here a program could only harm itself.

use std::hash::{BuildHasherDefault, Hasher};

/// Makes a [`Mixer`] for each key.
pub(crate) type Mix = BuildHasherDefault<Mixer>;

/// Any odd number with bits all over: the golden ratio's.
const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

/// Each word multiplied in.
#[derive(Default)]
pub(crate) struct Mixer(u64);

impl Hasher for Mixer {
    #[inline]
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.write_u64(u64::from_ne_bytes(word));
        }
    }

    #[inline]
    fn write_u64(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(23) ^ word).wrapping_mul(FACTOR);
    }

    #[inline]
    fn write_i32(&mut self, number: i32) {
        self.write_u64(number as u64);
    }

    #[inline]
    fn write_usize(&mut self, number: usize) {
        self.write_u64(number as u64);
    }

    #[inline]
    fn finish(&self) -> u64 {
        // A product is best mixed in its upper bits, and a table looks at the lowest, too.
        self.0 ^ self.0 >> 32
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::hash::BuildHasher;

    use super::*;

    #[test]
    fn keys_as_they_are_spread() {
        // Numbers of descriptors, and addresses that are multiples of sixteen: in a table of 4096 places that is a quarter full.
        let hash =
            |fd: i32| Mix::default().hash_one((fd, 0x7f00_1234_5670usize + fd as usize * 736));
        let low: HashSet<u64> = (0..1024).map(|fd| hash(fd) & 4095).collect();
        assert!(low.len() > 800, "{}", low.len());
        let high: HashSet<u64> = (0..1024).map(|fd| hash(fd) >> 57).collect();
        assert_eq!(high.len(), 128);
        assert_ne!(
            Mix::default().hash_one([1u8; 9]),
            Mix::default().hash_one([1u8; 8])
        );
    }
}
