//! TCP headers (RFC 9293 section 3.1) and their options (RFC 9293, 7323, 2018).
//!
//! Payload and checksum are not looked at here; the checksum covers addresses and payload, see
//! [`verify_checksum_v4`] and [`verify_checksum_v6`].

mod flags;
mod options;
mod window;

use core::net::{Ipv4Addr, Ipv6Addr};

pub use flags::TcpFlags;
pub use options::{FastOpenCookie, MAX_SACK_BLOCKS, SackBlock, SackBlocks, TcpOptions, Timestamps};
pub use window::{UnscaledWindow, WindowScale};

use crate::{ParseError, SeqNumber, checksum, ipv4::PROTOCOL_TCP};

/// Bytes of a header without options.
pub const MIN_HEADER_LEN: usize = 20;
/// Bytes of the longest header.
pub const MAX_HEADER_LEN: usize = 60;
/// Where in the header the checksum lies.
pub const CHECKSUM_OFFSET: usize = 16;

/// A TCP header with its options, but for the checksum.
///
/// ```text
///  0                   1                   2                   3
///  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
/// +---------------+---------------+---------------+---------------+
/// |            src_port           |            dst_port           |
/// |                              seq                              |
/// |                              ack                              |
/// | offset|0 0 0|      flags      |             window            |
/// |            checksum           |             urgent            |
/// |                           options …                           |
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TcpHeader {
    /// The sender's port.
    pub src_port: u16,
    /// The receiver's port.
    pub dst_port: u16,
    /// SEG.SEQ: of the first payload byte, or of the SYN.
    pub seq: SeqNumber,
    /// SEG.ACK: the next sequence number that the sender expects; meaningless without ACK.
    pub ack: SeqNumber,
    /// Control bits.
    pub flags: TcpFlags,
    /// SEG.WND as on the wire: not scaled.
    pub window: UnscaledWindow,
    /// SEG.UP: the urgent pointer; meaningless without URG.
    pub urgent: u16,
    /// What the option list says.
    pub options: TcpOptions,
}

impl TcpHeader {
    /// Reads the header of a segment; the payload starts at the returned offset and goes to the end
    /// of `segment`.
    ///
    /// Only the header itself can be in error. A malformed option list ends the list: options
    /// before the malformed one count, those after it are ignored (RFC 9293 MUST-7 asks that an
    /// illegal option length do no harm).
    ///
    /// # Errors
    /// [`ParseError::Truncated`] if `segment` is shorter than 20 bytes or than the header,
    /// [`ParseError::BadLength`] if the data offset is below 20 bytes.
    #[inline]
    pub fn parse(segment: &[u8]) -> Result<(Self, usize), ParseError> {
        let mut header = Self::default();
        let data_offset = header.read(segment)?;
        Ok((header, data_offset))
    }

    /// As [`parse`](Self::parse), into a header that is there, of which nothing is left: in the usual case no part of it is moved
    /// once more. Returns where the payload starts.
    ///
    /// # Errors
    /// As [`parse`](Self::parse); then the header is as it was.
    #[inline]
    pub fn read(&mut self, segment: &[u8]) -> Result<usize, ParseError> {
        let Some(h) = segment.first_chunk::<MIN_HEADER_LEN>() else {
            return Err(ParseError::Truncated);
        };
        let data_offset = usize::from(h[12] >> 4) * 4;
        if data_offset < MIN_HEADER_LEN {
            return Err(ParseError::BadLength);
        }
        let Some(list) = segment.get(MIN_HEADER_LEN..data_offset) else {
            return Err(ParseError::Truncated);
        };
        self.src_port = u16::from_be_bytes([h[0], h[1]]);
        self.dst_port = u16::from_be_bytes([h[2], h[3]]);
        self.seq = SeqNumber(u32::from_be_bytes([h[4], h[5], h[6], h[7]]));
        self.ack = SeqNumber(u32::from_be_bytes([h[8], h[9], h[10], h[11]]));
        self.flags = TcpFlags::from_bits(u16::from_be_bytes([h[12], h[13]]));
        self.window = UnscaledWindow(u16::from_be_bytes([h[14], h[15]]));
        self.urgent = u16::from_be_bytes([h[18], h[19]]);
        self.options = TcpOptions::parse(list);
        Ok(data_offset)
    }

    /// Bytes that [`emit`](Self::emit) writes: 20..=60, a multiple of 4.
    #[inline]
    #[allow(clippy::len_without_is_empty, reason = "a header is never empty")]
    pub const fn len(&self) -> usize {
        MIN_HEADER_LEN + self.options.len()
    }

    /// Writes the header at the start of `buf` and returns its length. The checksum field is
    /// written as 0.
    ///
    /// Options go out in the order that Linux sends, so that its fast path takes them. If SACK
    /// blocks do not all fit into the 40 bytes of options, the last ones are left out: with
    /// timestamps, three fit.
    ///
    /// # Panics
    /// If `buf` is shorter than [`len`](Self::len).
    #[inline]
    pub fn emit(&self, buf: &mut [u8]) -> usize {
        let len = self.len();
        let (h, list) = buf[..len].split_at_mut(MIN_HEADER_LEN);
        let offset_and_flags = ((len as u16 / 4) << 12) | self.flags.bits();
        h[..2].copy_from_slice(&self.src_port.to_be_bytes());
        h[2..4].copy_from_slice(&self.dst_port.to_be_bytes());
        h[4..8].copy_from_slice(&self.seq.0.to_be_bytes());
        h[8..12].copy_from_slice(&self.ack.0.to_be_bytes());
        h[12..14].copy_from_slice(&offset_and_flags.to_be_bytes());
        h[14..16].copy_from_slice(&self.window.0.to_be_bytes());
        h[16..18].fill(0);
        h[18..20].copy_from_slice(&self.urgent.to_be_bytes());
        self.options.emit(list);
        len
    }

    /// SEG.LEN: the sequence numbers that a segment with this header and `payload_len` bytes takes,
    /// SYN and FIN counted (RFC 9293 section 3.4).
    #[inline]
    pub const fn segment_len(&self, payload_len: u32) -> u32 {
        let syn = self.flags.contains(TcpFlags::SYN) as u32;
        let fin = self.flags.contains(TcpFlags::FIN) as u32;
        payload_len.wrapping_add(syn).wrapping_add(fin)
    }
}

/// What an ICMP error quotes of a segment: the first 8 bytes of its header are sure to be there
/// (RFC 792), and tell which connection it was and where in the sequence space (RFC 5927 section
/// 4).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct QuotedSegment {
    /// The port of the quoted segment's sender, that is ours.
    pub src_port: u16,
    /// The port of its receiver.
    pub dst_port: u16,
    /// SEG.SEQ.
    pub seq: SeqNumber,
}

impl QuotedSegment {
    /// Reads the start of a quoted segment.
    ///
    /// # Errors
    /// [`ParseError::Truncated`] below 8 bytes.
    #[inline]
    pub fn parse(quoted: &[u8]) -> Result<Self, ParseError> {
        let Some(&[s0, s1, d0, d1, n0, n1, n2, n3]) = quoted.first_chunk::<8>() else {
            return Err(ParseError::Truncated);
        };
        Ok(Self {
            src_port: u16::from_be_bytes([s0, s1]),
            dst_port: u16::from_be_bytes([d0, d1]),
            seq: SeqNumber(u32::from_be_bytes([n0, n1, n2, n3])),
        })
    }
}

/// Whether the checksum of a whole segment, header and payload, between these addresses is right.
#[inline]
pub fn verify_checksum_v4(src: Ipv4Addr, dst: Ipv4Addr, segment: &[u8]) -> bool {
    let pseudo = checksum::pseudo_v4(src, dst, PROTOCOL_TCP, segment.len() as u32);
    checksum::fold(checksum::sum(segment, pseudo)) == 0xffff
}

/// As [`verify_checksum_v4`], over IPv6 (RFC 8200 section 8.1).
#[inline]
pub fn verify_checksum_v6(src: Ipv6Addr, dst: Ipv6Addr, segment: &[u8]) -> bool {
    let pseudo = checksum::pseudo_v6(src, dst, PROTOCOL_TCP, segment.len() as u32);
    checksum::fold(checksum::sum(segment, pseudo)) == 0xffff
}
