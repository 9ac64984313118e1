//! The checksum against RFC 1071 taken literally.

use proptest::collection::vec;
use proptest::prelude::*;
use sidecore_wire::checksum::{
    Accumulator, complement, copy_and_sum, fold, pseudo_v4, pseudo_v6, sum, update16,
};
use sidecore_wire::{Ipv4Addr, Ipv6Addr};

use crate::strategies::{config, ipv4_addr};

/// RFC 1071 section 4.1, the C program: the complement of the sum of big-endian words.
pub fn naive_checksum(data: &[u8]) -> u16 {
    let mut sum: u64 = 0;
    for word in data.chunks(2) {
        sum += u64::from(word[0]) << 8 | word.get(1).copied().map_or(0, u64::from);
    }
    while sum >> 16 != 0 {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

/// Bytes without a pattern, the same each time.
fn noise(len: usize) -> Vec<u8> {
    let mut state: u32 = 0x9e37_79b9;
    let next = |_| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    };
    (0..len).map(next).collect()
}

#[test]
fn every_short_length_at_every_alignment() {
    let bytes = noise(300);
    for start in 0..16 {
        for len in 0..=200 {
            let data = &bytes[start..start + len];
            assert_eq!(
                complement(sum(data, 0)),
                naive_checksum(data),
                "{len} bytes at {start}"
            );
        }
    }
}

#[test]
fn lengths_around_every_threshold() {
    let bytes = noise(70_000);
    for near in [256, 320, 1460, 4096, 8192, 16_384, 65_536] {
        for len in near - 70..near + 70 {
            let data = &bytes[len % 8..][..len];
            assert_eq!(
                complement(sum(data, 0)),
                naive_checksum(data),
                "{len} bytes"
            );
        }
    }
}

#[test]
fn lanes_do_not_overflow() {
    // More than two blocks of steps, of the bytes that make the largest sums and the most carries.
    for byte in [0xff, 0xfe, 0x80, 0x01] {
        let data = vec![byte; (128 << 16) + 64 + 13];
        assert_eq!(
            complement(sum(&data, 0)),
            naive_checksum(&data),
            "{byte:#x}"
        );
    }
}

#[test]
fn zero_has_two_forms_and_only_zeros_sum_to_the_first() {
    assert_eq!(fold(sum(&[0; 1500], 0)), 0);
    assert_eq!(fold(sum(&[0xff; 1500], 0)), 0xffff);
    assert_eq!(fold(sum(&[], 0)), 0);
}

#[test]
fn an_initial_sum_may_be_anything() {
    assert_eq!(fold(sum(&[0xff; 1500], u32::MAX)), 0xffff);
    assert_eq!(fold(sum(&[0, 1], 0xffff_fffe)), 0xffff);
    assert_eq!(fold(sum(&[], 0x0001_ffff)), 1);
    assert_eq!(fold(0xffff_ffff), 0xffff);
}

#[test]
fn rfc_1071_example() {
    // Section 3: 0001 f203 f4f5 f6f7 sum to ddf2.
    assert_eq!(
        fold(sum(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7], 0)),
        0xddf2
    );
}

#[test]
fn rfc_1624_example() {
    // Section 4: HC = dd2f, m = 5555, m' = 3285 give 0000 with equation 3.
    assert_eq!(update16(0xdd2f, 0x5555, 0x3285), 0x0000);
}

#[test]
fn pseudo_header_v6_is_the_sum_of_its_bytes() {
    let (src, dst): (Ipv6Addr, Ipv6Addr) = (
        "fe80::ffff:1:ffff".parse().unwrap(),
        "2001:db8:ffff::9".parse().unwrap(),
    );
    let mut header = [src.octets(), dst.octets()].concat();
    header.extend(0x0012_3456u32.to_be_bytes());
    header.extend([0, 0, 0, 6]);
    assert_eq!(
        complement(pseudo_v6(src, dst, 6, 0x0012_3456)),
        naive_checksum(&header)
    );
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn as_the_rfc_says(data in vec(any::<u8>(), 0..3000)) {
        prop_assert_eq!(complement(sum(&data, 0)), naive_checksum(&data));
    }

    #[test]
    fn even_pieces_compose(data in vec(any::<u8>(), 0..3000), cut in 0..1500usize) {
        let (head, tail) = data.split_at((cut * 2).min(data.len() & !1));
        prop_assert_eq!(complement(sum(tail, sum(head, 0))), naive_checksum(&data));
    }

    #[test]
    fn any_pieces_compose_in_an_accumulator(pieces in vec(vec(any::<u8>(), 0..500), 0..8), initial: u32) {
        let mut accumulator = Accumulator::new(initial);
        let mut copied = Accumulator::new(initial);
        for piece in &pieces {
            accumulator.add(piece);
            let mut copy = vec![0; piece.len()];
            copied.add_sum(copy_and_sum(&mut copy, piece, 0), piece.len());
        }
        prop_assert_eq!(accumulator.finish(), fold(sum(&pieces.concat(), initial)));
        prop_assert_eq!(copied.finish(), accumulator.finish());
    }

    #[test]
    fn a_copy_is_a_copy(data in vec(any::<u8>(), 0..20_000), initial: u32) {
        let mut copy = vec![0; data.len()];
        let partial = copy_and_sum(&mut copy, &data, initial);
        prop_assert_eq!(fold(partial), fold(sum(&data, initial)));
        prop_assert_eq!(copy, data);
    }

    #[test]
    fn pseudo_header_v4_is_the_sum_of_its_bytes(src in ipv4_addr(), dst in ipv4_addr(), protocol: u8, len: u16) {
        let mut header = [src.octets(), dst.octets()].concat();
        header.extend([0, protocol]);
        header.extend(len.to_be_bytes());
        prop_assert_eq!(complement(pseudo_v4(src, dst, protocol, len.into())), naive_checksum(&header));
    }

    /// A datagram whose checksum is updated is as valid as one whose checksum is computed anew.
    #[test]
    fn an_update_keeps_a_checksum_valid(mut words in vec(any::<u16>(), 1..40), at: prop::sample::Index, new: u16) {
        let bytes = |words: &[u16]| words.iter().flat_map(|w| w.to_be_bytes()).collect::<Vec<_>>();
        let before = naive_checksum(&bytes(&words));
        let at = at.index(words.len());
        let after = update16(before, words[at], new);
        words[at] = new;
        words.push(after);
        let checked = fold(sum(&bytes(&words), 0));
        // All-zero data has the sum 0, which is the other form of ffff.
        prop_assert!(checked == 0xffff || words.iter().all(|w| *w == 0), "{:x}", checked);
    }
}

#[test]
fn the_largest_pseudo_header_does_not_overflow() {
    let all = Ipv4Addr::BROADCAST;
    assert_eq!(fold(pseudo_v4(all, all, 255, u32::MAX)), 255);
}
