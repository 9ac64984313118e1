//! The Internet checksum (RFC 1071) and its incremental update (RFC 1624).

use core::net::{Ipv4Addr, Ipv6Addr};

/// Adds `data` to a partial sum.
///
/// `initial` is an earlier result of this function, of a `pseudo_*` function, or 0; it may be
/// folded or not. The result is not folded. An odd last byte counts as if a zero byte followed, so
/// only the last of several pieces may have an odd length; for other pieces use [`Accumulator`].
#[inline]
pub fn sum(data: &[u8], initial: u32) -> u32 {
    fold32(initial) + u32::from(fold64(sum_native(data)).to_be())
}

/// Folds a partial sum into 16 bits. The result is the sum itself, **not** its complement.
#[inline]
pub const fn fold(sum: u32) -> u16 {
    let sum = (sum >> 16) + (sum & 0xffff);
    ((sum >> 16) + (sum & 0xffff)) as u16
}

/// What goes into a checksum field: the complement of the folded sum.
#[inline]
pub const fn complement(sum: u32) -> u16 {
    !fold(sum)
}

/// The partial sum of an IPv4 pseudo-header (RFC 9293 section 3.1, RFC 768).
///
/// `len` is the length of the transport header and payload in bytes; for a segment that a device
/// will cut into several, pass 0 and let the device add each length, or the whole length, as the
/// device asks.
#[inline]
pub const fn pseudo_v4(src: Ipv4Addr, dst: Ipv4Addr, protocol: u8, len: u32) -> u32 {
    let src = u32::from_be_bytes(src.octets());
    let dst = u32::from_be_bytes(dst.octets());
    (src >> 16)
        + (src & 0xffff)
        + (dst >> 16)
        + (dst & 0xffff)
        + protocol as u32
        + (len >> 16)
        + (len & 0xffff)
}

/// The partial sum of an IPv6 pseudo-header (RFC 8200 section 8.1); `len` as for [`pseudo_v4`].
#[inline]
pub fn pseudo_v6(src: Ipv6Addr, dst: Ipv6Addr, next_header: u8, len: u32) -> u32 {
    let words = src.segments().into_iter().chain(dst.segments());
    words.map(u32::from).sum::<u32>() + u32::from(next_header) + (len >> 16) + (len & 0xffff)
}

/// Bytes that are copied before they are summed: even, and small enough that they are still in the
/// first-level cache.
const COPY_BLOCK: usize = 8 << 10;

/// Copies `src` to `dst` and adds it to a partial sum in the same pass.
///
/// The two have the same length; in a release build the shorter length is taken if they do not.
/// Otherwise like [`sum`].
#[inline]
pub fn copy_and_sum(dst: &mut [u8], src: &[u8], initial: u32) -> u32 {
    debug_assert_eq!(dst.len(), src.len());
    let len = dst.len().min(src.len());
    let pieces = dst[..len]
        .chunks_mut(COPY_BLOCK)
        .zip(src[..len].chunks(COPY_BLOCK));
    pieces.fold(initial, |total, (to, from)| {
        to.copy_from_slice(from);
        sum(from, total)
    })
}

/// A checksum field after one 16-bit word under it changed from `old` to `new` (RFC 1624 equation
/// 3).
#[inline]
pub const fn update16(checksum: u16, old: u16, new: u16) -> u16 {
    complement(!checksum as u32 + !old as u32 + new as u32)
}

/// Sums pieces of any length, odd ones too, as if they were one run of bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Accumulator {
    sum: u32,
    odd: bool,
}

impl Accumulator {
    /// Starts from a partial sum (of a pseudo-header, say), or from 0.
    #[inline]
    pub const fn new(initial: u32) -> Self {
        Self {
            sum: initial,
            odd: false,
        }
    }

    /// Adds the next piece.
    #[inline]
    pub fn add(&mut self, piece: &[u8]) {
        self.add_sum(sum(piece, 0), piece.len());
    }

    /// Adds a piece that was summed elsewhere, as by [`copy_and_sum`] from 0; `len` is its length
    /// in bytes.
    #[inline]
    pub fn add_sum(&mut self, piece_sum: u32, len: usize) {
        let folded = fold(piece_sum);
        // RFC 1071 2(B): a piece that starts at an odd offset has its bytes in the other halves of
        // the words.
        let aligned = if self.odd {
            folded.swap_bytes()
        } else {
            folded
        };
        self.sum = fold32(self.sum) + u32::from(aligned);
        self.odd ^= !len.is_multiple_of(2);
    }

    /// The folded sum of everything added. **Not** complemented, like [`fold`].
    #[inline]
    pub const fn finish(self) -> u16 {
        fold(self.sum)
    }
}

#[inline]
const fn fold32(sum: u32) -> u32 {
    (sum >> 16) + (sum & 0xffff)
}

#[inline]
const fn fold64(sum: u64) -> u16 {
    let sum = (sum >> 32) + (sum & 0xffff_ffff);
    let sum = (sum >> 32) + (sum & 0xffff_ffff);
    fold(sum as u32)
}

/// From this many bytes on, the vectors pay for their set-up.
const VECTORS_FROM: usize = 256;
/// Bytes that one step of the vector loop takes.
const STEP: usize = 64;
/// 32-bit words in a step.
const LANES: usize = STEP / 4;
/// Steps after which a 32-bit lane of 16-bit halves could overflow.
const STEPS_PER_BLOCK: usize = 1 << 16;

/// The sum of the bytes as words of this machine's byte order, in a form that [`fold64`] brings
/// down to 16 bits.
///
/// RFC 1071 2(B): the sum is the same in either byte order but for a swap of the result's bytes.
/// And 2(C): words of any multiple of 16 bits may be added, as long as the carries come back in at
/// the bottom.
#[inline]
fn sum_native(data: &[u8]) -> u64 {
    if data.len() < VECTORS_FROM {
        sum_words(data, 0)
    } else {
        sum_long(data)
    }
}

fn sum_long(data: &[u8]) -> u64 {
    let (steps, rest) = data.as_chunks::<STEP>();
    let long = steps
        .chunks(STEPS_PER_BLOCK)
        .fold(0, |total, block| add_with_carry(total, sum_block(block)));
    sum_words(rest, long)
}

/// The sum of at most [`STEPS_PER_BLOCK`] steps: at most 2^37.
///
/// A loop of its own, with nothing else in the function, since that is what LLVM turns into vector
/// instructions. A lane sums its 32-bit words twice: the words themselves modulo 2^32, and their
/// upper halves exactly. The sum of the lower halves is then exact too, being the difference modulo
/// 2^32; that is one operation less per word than to sum both halves apart.
#[inline(never)]
fn sum_block(steps: &[[u8; STEP]]) -> u64 {
    let mut words = [0u32; LANES];
    let mut uppers = [0u32; LANES];
    for step in steps {
        let (lanes, _) = step.as_chunks::<4>();
        for ((lane, word), upper) in lanes.iter().zip(&mut words).zip(&mut uppers) {
            let value = u32::from_ne_bytes(*lane);
            *word = word.wrapping_add(value);
            *upper = upper.wrapping_add(value >> 16);
        }
    }
    let lowers = words
        .iter()
        .zip(&uppers)
        .map(|(word, upper)| word.wrapping_sub(upper << 16));
    lowers.chain(uppers).map(u64::from).sum()
}

/// Adds a short run of bytes, eight at a time.
#[inline]
fn sum_words(data: &[u8], initial: u64) -> u64 {
    let (words, mut rest) = data.as_chunks::<8>();
    let mut total = words.iter().fold(initial, |total, word| {
        add_with_carry(total, u64::from_ne_bytes(*word))
    });
    if let Some((word, behind)) = rest.split_first_chunk() {
        total = add_with_carry(total, u64::from(u32::from_ne_bytes(*word)));
        rest = behind;
    }
    if let Some((word, behind)) = rest.split_first_chunk() {
        total = add_with_carry(total, u64::from(u16::from_ne_bytes(*word)));
        rest = behind;
    }
    match *rest {
        [last] => add_with_carry(total, u64::from(u16::from_ne_bytes([last, 0]))),
        _ => total,
    }
}

/// One's complement addition: the carry out of the top comes in at the bottom.
#[inline]
const fn add_with_carry(a: u64, b: u64) -> u64 {
    let (sum, carry) = a.overflowing_add(b);
    // If there was a carry, the sum is at most 2^64 - 2.
    sum + carry as u64
}
