//! The Internet checksum (RFC 1071) and its incremental update (RFC 1624).

use core::net::{Ipv4Addr, Ipv6Addr};

/// Adds `data` to a partial sum.
///
/// `initial` is an earlier result of this function, of a `pseudo_*` function, or 0; it may be folded or not. The
/// result is not folded. An odd last byte counts as if a zero byte followed, so only the last of several pieces may
/// have an odd length; for other pieces use [`Accumulator`].
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
/// `len` is the length of the transport header and payload in bytes; for a segment that a device will cut into
/// several, pass 0 and let the device add each length, or the whole length, as the device asks.
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

/// Copies `src` to `dst` and adds it to a partial sum in the same pass.
///
/// The two have the same length; in a release build the shorter length is taken if they do not. Otherwise like [`sum`].
#[inline]
pub fn copy_and_sum(dst: &mut [u8], src: &[u8], initial: u32) -> u32 {
    debug_assert_eq!(dst.len(), src.len());
    let len = dst.len().min(src.len());
    let (dst, src) = (&mut dst[..len], &src[..len]);
    dst.copy_from_slice(src);
    sum(src, initial)
}

/// A checksum field after one 16-bit word under it changed from `old` to `new` (RFC 1624 equation 3).
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

    /// Adds a piece that was summed elsewhere, as by [`copy_and_sum`] from 0; `len` is its length in bytes.
    #[inline]
    pub fn add_sum(&mut self, piece_sum: u32, len: usize) {
        let folded = fold(piece_sum);
        // RFC 1071 2(B): a piece that starts at an odd offset has its bytes in the other halves of the words.
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

const fn fold32(sum: u32) -> u32 {
    (sum >> 16) + (sum & 0xffff)
}

fn fold64(sum: u64) -> u16 {
    let sum = (sum >> 32) + (sum & 0xffff_ffff);
    let sum = (sum >> 32) + (sum & 0xffff_ffff);
    fold(sum as u32)
}

/// The sum of the bytes as 16-bit words of this machine's byte order.
///
/// RFC 1071 2(B): the sum is the same in either byte order but for a swap of the result's bytes.
fn sum_native(data: &[u8]) -> u64 {
    let (words, rest) = data.as_chunks::<4>();
    let mut total: u64 = words
        .iter()
        .map(|w| u64::from(u32::from_ne_bytes(*w)))
        .sum();
    let mut last = [0; 4];
    last[..rest.len()].copy_from_slice(rest);
    total += u64::from(u32::from_ne_bytes(last));
    total
}
