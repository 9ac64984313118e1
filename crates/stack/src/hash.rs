//! SipHash-1-3 of what identifies a flow, and the keys.

use core::hash::Hasher;

use siphasher::sip::SipHasher24;

use crate::syn_cookie::code::Codec;

/// SipHash-1-3 (Aumasson and Bernstein, "SipHash: a fast short-input PRF") of exactly twelve bytes.
///
/// The generic implementation takes more time for its buffering than for hashing so short an input; with the length
/// known it is five rounds and nothing else. It is tested against the generic one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FlowHasher {
    v: [u64; 4],
}

impl FlowHasher {
    pub(crate) const fn new(key: [u64; 2]) -> Self {
        let [k0, k1] = key;
        Self {
            v: [
                k0 ^ 0x736f_6d65_7073_6575,
                k1 ^ 0x646f_7261_6e64_6f6d,
                k0 ^ 0x6c79_6765_6e65_7261,
                k1 ^ 0x7465_6462_7974_6573,
            ],
        }
    }

    /// The hash of `words`, the first being the first eight bytes in little-endian order, the second the other four.
    #[inline]
    pub(crate) const fn hash(&self, first: u64, second: u32) -> u64 {
        let mut v = self.v;
        v = compress(v, first);
        // The last block: what is left, and the length in the uppermost byte.
        v = compress(v, 12 << 56 | second as u64);
        v[2] ^= 0xff;
        v = round(round(round(v)));
        v[0] ^ v[1] ^ v[2] ^ v[3]
    }

    /// The hash of two addresses and the ports, each in little-endian order: 36 bytes.
    #[inline]
    pub(crate) const fn hash6(&self, first: u128, second: u128, ports: u32) -> u64 {
        let mut v = self.v;
        v = compress(v, first as u64);
        v = compress(v, (first >> 64) as u64);
        v = compress(v, second as u64);
        v = compress(v, (second >> 64) as u64);
        v = compress(v, 36 << 56 | ports as u64);
        v[2] ^= 0xff;
        v = round(round(round(v)));
        v[0] ^ v[1] ^ v[2] ^ v[3]
    }
}

#[inline(always)]
const fn compress(mut v: [u64; 4], word: u64) -> [u64; 4] {
    v[3] ^= word;
    v = round(v);
    v[0] ^= word;
    v
}

#[inline(always)]
const fn round([mut v0, mut v1, mut v2, mut v3]: [u64; 4]) -> [u64; 4] {
    v0 = v0.wrapping_add(v1);
    v1 = v1.rotate_left(13) ^ v0;
    v0 = v0.rotate_left(32);
    v2 = v2.wrapping_add(v3);
    v3 = v3.rotate_left(16) ^ v2;
    v0 = v0.wrapping_add(v3);
    v3 = v3.rotate_left(21) ^ v0;
    v2 = v2.wrapping_add(v1);
    v1 = v1.rotate_left(17) ^ v2;
    v2 = v2.rotate_left(32);
    [v0, v1, v2, v3]
}

/// The stack's secrets, all from one seed.
#[derive(Clone, Debug)]
pub(crate) struct Keys {
    pub(crate) flow: FlowHasher,
    pub(crate) neighbors: FlowHasher,
    pub(crate) ports: FlowHasher,
    /// For the DHCP client.
    pub(crate) dhcp: [u64; 2],
    pub(crate) challenges: FlowHasher,
    /// For [`sidecore_tcp::initial_sequence_number`] and [`sidecore_tcp::timestamp_offset`].
    pub(crate) sequence: [u8; 16],
    /// For Fast Open's cookies.
    pub(crate) fast_open: [u8; 16],
    /// For [`Codec`].
    cookie_base: [u8; 16],
    cookie_secret: [u8; 16],
}

impl Keys {
    pub(crate) fn new(seed: &[u8; 32]) -> Self {
        let (low, high) = seed.split_at(16);
        let derive = |half: &[u8], purpose: &[u8]| {
            let mut key = [0; 16];
            key.copy_from_slice(half);
            let mut hasher = SipHasher24::new_with_key(&key);
            hasher.write(seed);
            hasher.write(purpose);
            hasher.finish()
        };
        let key = |purpose: &[u8]| [derive(low, purpose), derive(high, purpose)];
        let bytes = |purpose: &[u8]| {
            let mut bytes = [0; 16];
            for (place, half) in bytes.chunks_exact_mut(8).zip(key(purpose)) {
                place.copy_from_slice(&half.to_le_bytes());
            }
            bytes
        };
        Self {
            flow: FlowHasher::new(key(b"flow")),
            neighbors: FlowHasher::new(key(b"neighbors")),
            ports: FlowHasher::new(key(b"ports")),
            dhcp: key(b"dhcp"),
            challenges: FlowHasher::new(key(b"challenges")),
            sequence: bytes(b"sequence"),
            fast_open: bytes(b"fast open"),
            cookie_base: bytes(b"cookie base"),
            cookie_secret: bytes(b"cookie secret"),
        }
    }

    /// What makes SYN cookies.
    pub(crate) const fn cookies(&self) -> Codec {
        Codec::new(self.cookie_base, self.cookie_secret)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use siphasher::sip::SipHasher13;

    proptest! {
        #![proptest_config(sidecore_testkit::property_config(256))]

        #[test]
        fn is_siphash_1_3(key: [u64; 2], first: u64, second: u32) {
            let mut bytes = [0; 12];
            bytes[..8].copy_from_slice(&first.to_le_bytes());
            bytes[8..].copy_from_slice(&second.to_le_bytes());
            let expected = SipHasher13::new_with_keys(key[0], key[1]).hash(&bytes);
            prop_assert_eq!(FlowHasher::new(key).hash(first, second), expected);
        }

        #[test]
        fn of_36_bytes_too(key: [u64; 2], first: u128, second: u128, ports: u32) {
            let bytes = [&first.to_le_bytes()[..], &second.to_le_bytes(), &ports.to_le_bytes()].concat();
            let expected = SipHasher13::new_with_keys(key[0], key[1]).hash(&bytes);
            prop_assert_eq!(FlowHasher::new(key).hash6(first, second, ports), expected);
        }
    }

    #[test]
    fn keys_differ_by_purpose_and_seed() {
        let one = Keys::new(&[1; 32]);
        let two = Keys::new(&[2; 32]);
        let hashes = [&one.flow, &one.neighbors, &one.ports, &two.flow].map(|key| key.hash(7, 7));
        for (i, a) in hashes.iter().enumerate() {
            assert!(hashes[i + 1..].iter().all(|b| a != b));
        }
        assert_ne!(one.sequence, two.sequence);
    }
}
