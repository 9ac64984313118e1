//! Speed of the Internet checksum at the sizes that matter: a small frame, a full one, a
//! super-segment.

use divan::counter::BytesCount;
use divan::{Bencher, black_box};
use sidecore_wire::checksum;

const SIZES: [usize; 4] = [20, 64, 1460, 65536];

fn main() {
    divan::main();
}

/// Not aligned to more than two bytes, as payload behind an Ethernet header is.
fn payload(buf: &mut Vec<u8>, len: usize) -> &mut [u8] {
    buf.extend((0..len as u32 + 2).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8));
    &mut buf[2..]
}

#[divan::bench(args = SIZES)]
fn sum(bencher: Bencher, len: usize) {
    let mut buf = Vec::new();
    let data = payload(&mut buf, len);
    bencher
        .counter(BytesCount::new(len))
        .bench_local(|| checksum::sum(black_box(data), 0));
}

#[divan::bench(args = SIZES)]
fn copy_and_sum(bencher: Bencher, len: usize) {
    let (mut from, mut to) = (Vec::new(), Vec::new());
    let (src, dst) = (payload(&mut from, len), payload(&mut to, len));
    bencher
        .counter(BytesCount::new(len))
        .bench_local(|| checksum::copy_and_sum(black_box(&mut *dst), black_box(src), 0));
}

#[divan::bench]
fn update16(bencher: Bencher) {
    bencher.bench_local(|| checksum::update16(black_box(0x1234), black_box(64), black_box(63)));
}
