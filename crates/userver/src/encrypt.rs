//! Encryption of some small files, anew for every answer: the paper's way of giving the server work of its own
//! (EuroSys'06, section 7.2: "the userver to encrypt a configurable percentage of the files that are at most 7500 bytes in size").
//!
//! The cipher is AES-128 in counter mode. The initialisation vector is fresh for every answer and travels in its head, the key is one of the
//! process's or the configuration's. It is a load, not a protection: who needs that puts TLS in front.

use aes::Aes128;
use aes::cipher::{InnerIvInit, KeyInit, StreamCipher, StreamCipherCoreWrapper};

/// Files above this size, in bytes, are never encrypted.
pub const MAX_BYTES: u64 = 7500;

/// Bytes of a key.
pub const KEY_BYTES: usize = 16;

type Core = ctr::CtrCore<Aes128, ctr::flavors::Ctr64BE>;

/// Which files are encrypted, and with what.
#[derive(Clone)]
pub struct Encryption {
    percent: u8,
    cipher: Aes128,
    nonce: u64,
}

impl Encryption {
    /// Encrypts `percent` (0 to 100) of the small files. `nonce` is where vectors begin; at random, so that workers that share the key
    /// share no vector.
    pub fn new(percent: u8, key: &[u8; KEY_BYTES], nonce: u64) -> Self {
        Self {
            percent: percent.min(100),
            cipher: Aes128::new(&(*key).into()),
            nonce,
        }
    }

    /// Whether the file at a path is one of those. The same files on every run and on every back-end.
    pub fn applies(&self, path: &[u8], len: u64) -> bool {
        len <= MAX_BYTES && fnv1a(path) % 100 < self.percent as u64
    }

    /// The vector of the next answer: a number that is used once, then the block counter from 0.
    pub fn next_vector(&mut self) -> [u8; 16] {
        self.nonce = self.nonce.wrapping_add(1);
        let mut vector = [0; 16];
        vector[..8].copy_from_slice(&self.nonce.to_be_bytes());
        vector
    }

    /// Encrypts, or decrypts, in place.
    pub fn apply(&self, vector: &[u8; 16], data: &mut [u8]) {
        let core = Core::inner_iv_init(self.cipher.clone(), &(*vector).into());
        StreamCipherCoreWrapper::from_core(core).apply_keystream(data);
    }
}

impl core::fmt::Debug for Encryption {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Encryption")
            .field("percent", &self.percent)
            .finish_non_exhaustive()
    }
}

/// Fowler, Noll and Vo's hash, folded: spreads similar paths well enough for percentages.
fn fnv1a(bytes: &[u8]) -> u64 {
    let hash = bytes.iter().fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| {
        (hash ^ *byte as u64).wrapping_mul(0x0100_0000_01b3)
    });
    hash ^ (hash >> 32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_percentage_is_met() {
        for percent in [0, 25, 50, 100] {
            let encryption = Encryption::new(percent, &[7; 16], 0);
            let hits = (0..10_000)
                .filter(|n| {
                    encryption.applies(format!("/dir{}/class{}", n / 36, n % 36).as_bytes(), 5000)
                })
                .count() as i64;
            assert!(
                (hits - percent as i64 * 100).abs() < 250,
                "{percent} {hits}"
            );
            assert!(!encryption.applies(b"/any", MAX_BYTES + 1));
        }
    }

    #[test]
    fn the_keystream_is_the_standard_one() {
        // NIST SP 800-38A, F.5.1: AES-128 in counter mode, first block; the low half of the counter block counts.
        let key = 0x2b7e1516_28aed2a6_abf71588_09cf4f3cu128.to_be_bytes();
        let vector = 0xf0f1f2f3_f4f5f6f7_f8f9fafb_fcfdfeffu128.to_be_bytes();
        let mut data = 0x6bc1bee2_2e409f96_e93d7e11_7393172au128.to_be_bytes();
        let encryption = Encryption::new(100, &key, 0);
        encryption.apply(&vector, &mut data);
        assert_eq!(
            data,
            0x874d6191_b620e326_1bef6864_990db6ceu128.to_be_bytes()
        );
    }

    #[test]
    fn vectors_differ_between_answers_and_workers() {
        let mut one = Encryption::new(1, &[0; 16], 1);
        let mut two = Encryption::new(1, &[0; 16], 1 << 40);
        let vectors = [
            one.next_vector(),
            one.next_vector(),
            two.next_vector(),
            two.next_vector(),
        ];
        for (i, vector) in vectors.iter().enumerate() {
            assert!(vectors[..i].iter().all(|other| other != vector));
            assert_eq!(vector[8..], [0; 8]);
        }
    }
}
