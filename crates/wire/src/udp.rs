//! UDP headers (RFC 768).

use core::net::{Ipv4Addr, Ipv6Addr};
use core::ops::Range;

use crate::{ParseError, checksum, ipv4::PROTOCOL_UDP};

/// Bytes of a UDP header.
pub const HEADER_LEN: usize = 8;

/// A UDP header.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct UdpHeader {
    /// From which port; 0 if no answer is expected.
    pub src_port: u16,
    /// To which port.
    pub dst_port: u16,
    /// Header and payload in bytes.
    pub length: u16,
    /// As on the wire: 0 means that the sender computed none (over IPv4 only).
    pub checksum: u16,
}

impl UdpHeader {
    /// Reads a header; the payload lies in the returned range of `datagram`, which ends where the
    /// header says.
    ///
    /// The checksum is not verified, as it covers addresses and payload: see
    /// [`verify_v4`](Self::verify_v4) and [`verify_v6`](Self::verify_v6).
    ///
    /// # Errors
    /// [`ParseError::Truncated`] if `datagram` is shorter than 8 bytes or than its length field
    /// says, [`ParseError::BadLength`] if that field says less than 8.
    #[inline]
    pub fn parse(datagram: &[u8]) -> Result<(Self, Range<usize>), ParseError> {
        let header = Self::parse_quoted(datagram)?;
        let payload = HEADER_LEN..usize::from(header.length);
        if payload.end < HEADER_LEN {
            return Err(ParseError::BadLength);
        }
        if datagram.len() < payload.end {
            return Err(ParseError::Truncated);
        }
        Ok((header, payload))
    }

    /// Reads the header of a datagram that is cut short, as ICMP errors quote it; its length is not
    /// looked at.
    ///
    /// # Errors
    /// [`ParseError::Truncated`] below 8 bytes.
    #[inline]
    pub fn parse_quoted(datagram: &[u8]) -> Result<Self, ParseError> {
        let Some(&[s0, s1, d0, d1, l0, l1, c0, c1]) = datagram.first_chunk::<HEADER_LEN>() else {
            return Err(ParseError::Truncated);
        };
        Ok(Self {
            src_port: u16::from_be_bytes([s0, s1]),
            dst_port: u16::from_be_bytes([d0, d1]),
            length: u16::from_be_bytes([l0, l1]),
            checksum: u16::from_be_bytes([c0, c1]),
        })
    }

    /// Whether the checksum of this datagram, as parsed from the start of `datagram`, is right or
    /// absent.
    #[inline]
    pub fn verify_v4(&self, src: Ipv4Addr, dst: Ipv4Addr, datagram: &[u8]) -> bool {
        let Some(covered) = datagram.get(..usize::from(self.length)) else {
            return false;
        };
        let pseudo = checksum::pseudo_v4(src, dst, PROTOCOL_UDP, u32::from(self.length));
        self.checksum == 0 || checksum::fold(checksum::sum(covered, pseudo)) == 0xffff
    }

    /// Whether the checksum of this datagram, as parsed from the start of `datagram`, is right. Over
    /// IPv6 there must be one (RFC 8200 section 8.1).
    #[inline]
    pub fn verify_v6(&self, src: Ipv6Addr, dst: Ipv6Addr, datagram: &[u8]) -> bool {
        let Some(covered) = datagram.get(..usize::from(self.length)) else {
            return false;
        };
        let pseudo = checksum::pseudo_v6(src, dst, PROTOCOL_UDP, u32::from(self.length));
        self.checksum != 0 && checksum::fold(checksum::sum(covered, pseudo)) == 0xffff
    }

    /// Bytes that [`emit`](Self::emit) writes.
    #[inline]
    #[allow(clippy::len_without_is_empty, reason = "a header is never empty")]
    pub const fn len(&self) -> usize {
        HEADER_LEN
    }

    /// Writes the header, its checksum field as given, at the start of `buf` and returns its
    /// length.
    ///
    /// # Panics
    /// If `buf` is shorter than 8 bytes.
    #[inline]
    pub fn emit(&self, buf: &mut [u8]) -> usize {
        let h = &mut buf[..HEADER_LEN];
        h[..2].copy_from_slice(&self.src_port.to_be_bytes());
        h[2..4].copy_from_slice(&self.dst_port.to_be_bytes());
        h[4..6].copy_from_slice(&self.length.to_be_bytes());
        h[6..8].copy_from_slice(&self.checksum.to_be_bytes());
        HEADER_LEN
    }
}

/// What goes into a UDP checksum field for a complete partial sum (pseudo-header, header with a
/// zero checksum, payload): a computed zero is sent as all ones (RFC 768), since zero means that
/// there is none.
#[inline]
pub const fn checksum_field(sum: u32) -> u16 {
    match checksum::complement(sum) {
        0 => 0xffff,
        computed => computed,
    }
}
