//! The checksum of any bytes, in one piece, in pieces of any length, and copied, against RFC 1071 taken literally.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sidecore_wire::checksum::{Accumulator, complement, copy_and_sum, sum};

fuzz_target!(|input: (Vec<u16>, Vec<u8>)| {
    let (cuts, data) = input;
    let expected = naive(&data);
    assert_eq!(complement(sum(&data, 0)), expected);

    let mut copy = vec![0; data.len()];
    assert_eq!(complement(copy_and_sum(&mut copy, &data, 0)), expected);
    assert_eq!(copy, data);

    let mut pieces = Accumulator::new(0);
    let mut rest = data.as_slice();
    for cut in cuts {
        let (piece, behind) = rest.split_at(usize::from(cut).min(rest.len()));
        pieces.add(piece);
        rest = behind;
    }
    pieces.add(rest);
    assert_eq!(!pieces.finish(), expected);
});

fn naive(data: &[u8]) -> u16 {
    let words = data
        .chunks(2)
        .map(|word| u64::from(word[0]) << 8 | word.get(1).map_or(0, |b| u64::from(*b)));
    let mut sum: u64 = words.sum();
    while sum >> 16 != 0 {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}
