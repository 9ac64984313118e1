//! IPv4 headers (RFC 791).

use core::net::Ipv4Addr;
use core::ops::Range;

use crate::{ParseError, checksum};

/// Bytes of a header without options, which is all that [`Ipv4Header::emit`] writes.
pub const MIN_HEADER_LEN: usize = 20;
/// Bytes of the longest header with options.
pub const MAX_HEADER_LEN: usize = 60;

/// Protocol number of ICMP.
pub const PROTOCOL_ICMP: u8 = 1;
/// Protocol number of TCP.
pub const PROTOCOL_TCP: u8 = 6;
/// Protocol number of UDP.
pub const PROTOCOL_UDP: u8 = 17;

/// TTL of what we send (RFC 1122 section 3.2.1.7; the recommended value of the Assigned Numbers).
pub const DEFAULT_TTL: u8 = 64;

/// Bytes of a header with a router alert.
pub const ALERT_HEADER_LEN: usize = MIN_HEADER_LEN + 4;
/// The router alert option's type and length (RFC 2113).
const ROUTER_ALERT: [u8; 2] = [0x94, 4];

const DONT_FRAGMENT: u16 = 0x4000;
const MORE_FRAGMENTS: u16 = 0x2000;
const FRAGMENT_OFFSET: u16 = 0x1fff;

/// An IPv4 header. Options are skipped when parsing and never emitted.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Ipv4Header {
    /// DSCP in the upper six bits, ECN in the lower two (RFC 2474, RFC 3168).
    pub dscp_ecn: u8,
    /// Header and payload in bytes, as parsed. [`emit`](Self::emit) computes its own.
    pub total_len: u16,
    /// Identification: the same for all fragments of one datagram.
    pub ident: u16,
    /// DF.
    pub dont_fragment: bool,
    /// MF.
    pub more_fragments: bool,
    /// Where the payload lies in the whole datagram, in **bytes**: a multiple of 8, at most 65528.
    pub fragment_offset: u16,
    /// Time to live, in hops.
    pub ttl: u8,
    /// What the payload is: `PROTOCOL_*` or another.
    pub protocol: u8,
    /// From whom.
    pub src: Ipv4Addr,
    /// To whom.
    pub dst: Ipv4Addr,
    /// Length of the header in bytes with options, as parsed (20..=60). [`emit`](Self::emit) writes
    /// 20.
    pub header_len: u8,
}

impl Ipv4Header {
    /// A header for a datagram of our own: DF set, default TTL, identification 0 (RFC 6864 section
    /// 4.1).
    #[inline]
    pub const fn new(src: Ipv4Addr, dst: Ipv4Addr, protocol: u8) -> Self {
        Self {
            dscp_ecn: 0,
            total_len: 0,
            ident: 0,
            dont_fragment: true,
            more_fragments: false,
            fragment_offset: 0,
            ttl: DEFAULT_TTL,
            protocol,
            src,
            dst,
            header_len: MIN_HEADER_LEN as u8,
        }
    }

    /// Reads a header and verifies its checksum; the payload lies in the returned range of
    /// `packet`, which ends where the header says: bytes behind it are the link's padding.
    ///
    /// # Errors
    /// [`ParseError::Truncated`] if `packet` is shorter than the header or than the total length,
    /// [`ParseError::BadVersion`], [`ParseError::BadLength`] if the header length is below 20 or
    /// above the total length, [`ParseError::BadChecksum`].
    #[inline]
    pub fn parse(packet: &[u8]) -> Result<(Self, Range<usize>), ParseError> {
        let (header, payload) = Self::parse_unverified(packet)?;
        let sum = match payload.start {
            // A length that the compiler knows: the usual header, summed without a loop.
            MIN_HEADER_LEN => checksum::sum(&packet[..MIN_HEADER_LEN], 0),
            header_len => checksum::sum(&packet[..header_len], 0),
        };
        if checksum::fold(sum) != 0xffff {
            return Err(ParseError::BadChecksum);
        }
        Ok((header, payload))
    }

    /// Like [`parse`](Self::parse), for frames whose header checksum the device vouches for or that
    /// never left this machine: the checksum is not looked at.
    ///
    /// # Errors
    /// Those of [`parse`](Self::parse) but `BadChecksum`.
    #[inline]
    pub fn parse_unverified(packet: &[u8]) -> Result<(Self, Range<usize>), ParseError> {
        let (header, payload) = Self::parse_quoted(packet)?;
        if packet.len() < payload.end {
            return Err(ParseError::Truncated);
        }
        Ok((header, payload))
    }

    /// Like [`parse_unverified`](Self::parse_unverified), for a packet that is cut short, as ICMP
    /// errors quote it: only the header must be there. The returned range is where the payload
    /// would lie; what there is of it goes from `start` to `end` or to the end of `packet`,
    /// whichever comes first.
    ///
    /// # Errors
    /// [`ParseError::Truncated`] if `packet` is shorter than the header,
    /// [`ParseError::BadVersion`], [`ParseError::BadLength`] as for [`parse`](Self::parse).
    #[inline]
    pub fn parse_quoted(packet: &[u8]) -> Result<(Self, Range<usize>), ParseError> {
        let Some(h) = packet.first_chunk::<MIN_HEADER_LEN>() else {
            return Err(ParseError::Truncated);
        };
        if h[0] >> 4 != 4 {
            return Err(ParseError::BadVersion);
        }
        let header_len = (h[0] & 0x0f) * 4;
        let total_len = u16::from_be_bytes([h[2], h[3]]);
        let payload = usize::from(header_len)..usize::from(total_len);
        if payload.start < MIN_HEADER_LEN || payload.end < payload.start {
            return Err(ParseError::BadLength);
        }
        if packet.len() < payload.start {
            return Err(ParseError::Truncated);
        }
        let fragment = u16::from_be_bytes([h[6], h[7]]);
        let header = Self {
            dscp_ecn: h[1],
            total_len,
            ident: u16::from_be_bytes([h[4], h[5]]),
            dont_fragment: fragment & DONT_FRAGMENT != 0,
            more_fragments: fragment & MORE_FRAGMENTS != 0,
            fragment_offset: (fragment & FRAGMENT_OFFSET) << 3,
            ttl: h[8],
            protocol: h[9],
            src: Ipv4Addr::new(h[12], h[13], h[14], h[15]),
            dst: Ipv4Addr::new(h[16], h[17], h[18], h[19]),
            header_len,
        };
        Ok((header, payload))
    }

    /// Whether this is a part of a datagram and not the whole of one.
    #[inline]
    pub const fn is_fragment(&self) -> bool {
        self.more_fragments || self.fragment_offset != 0
    }

    /// Bytes of payload, as parsed.
    #[inline]
    pub const fn payload_len(&self) -> u16 {
        self.total_len.saturating_sub(self.header_len as u16)
    }

    /// Bytes that [`emit`](Self::emit) writes.
    #[inline]
    #[allow(clippy::len_without_is_empty, reason = "a header is never empty")]
    pub const fn len(&self) -> usize {
        MIN_HEADER_LEN
    }

    /// Writes a header without options for a payload of `payload_len` bytes, with its checksum, at
    /// the start of `buf` and returns its length, 20. `total_len` and `header_len` of `self` are
    /// not looked at; of the fragment offset the lower three bits are lost.
    ///
    /// A payload beyond 65515 bytes does not fit into a datagram; its total length is written as
    /// 65535.
    ///
    /// # Panics
    /// If `buf` is shorter than 20 bytes.
    #[inline]
    pub fn emit(&self, buf: &mut [u8], payload_len: usize) -> usize {
        debug_assert!(payload_len <= usize::from(u16::MAX) - MIN_HEADER_LEN);
        let total_len =
            u16::try_from(payload_len.saturating_add(MIN_HEADER_LEN)).unwrap_or(u16::MAX);
        let mut fragment = self.fragment_offset >> 3;
        if self.dont_fragment {
            fragment |= DONT_FRAGMENT;
        }
        if self.more_fragments {
            fragment |= MORE_FRAGMENTS;
        }
        let first = 0x4500 | u16::from(self.dscp_ecn);
        let ttl_and_protocol = u16::from_be_bytes([self.ttl, self.protocol]);
        // From the values, not from the bytes: reading back what was just written would stall.
        let words = [first, total_len, self.ident, fragment, ttl_and_protocol];
        let addresses = checksum::pseudo_v4(self.src, self.dst, 0, 0);
        let checksum =
            checksum::complement(words.into_iter().map(u32::from).sum::<u32>() + addresses);
        let h = &mut buf[..MIN_HEADER_LEN];
        h[..2].copy_from_slice(&first.to_be_bytes());
        h[2..4].copy_from_slice(&total_len.to_be_bytes());
        h[4..6].copy_from_slice(&self.ident.to_be_bytes());
        h[6..8].copy_from_slice(&fragment.to_be_bytes());
        h[8..10].copy_from_slice(&ttl_and_protocol.to_be_bytes());
        h[10..12].copy_from_slice(&checksum.to_be_bytes());
        h[12..16].copy_from_slice(&self.src.octets());
        h[16..20].copy_from_slice(&self.dst.octets());
        MIN_HEADER_LEN
    }

    /// As [`emit`](Self::emit), with a router alert (RFC 2113) as the only option; returns the length, 24.
    ///
    /// # Panics
    /// If `buf` is shorter than 24 bytes.
    pub fn emit_with_alert(&self, buf: &mut [u8], payload_len: usize) -> usize {
        let h = &mut buf[..ALERT_HEADER_LEN];
        self.emit(h, payload_len + (ALERT_HEADER_LEN - MIN_HEADER_LEN));
        h[0] = 0x46;
        h[20..22].copy_from_slice(&ROUTER_ALERT);
        h[22..24].fill(0);
        h[10..12].fill(0);
        let sum = checksum::complement(checksum::sum(h, 0));
        h[10..12].copy_from_slice(&sum.to_be_bytes());
        ALERT_HEADER_LEN
    }
}

/// Whether the options of a header (what follows its first 20 bytes) hold a router alert with the value 0 (RFC 2113 section 2.1).
pub fn has_router_alert(options: &[u8]) -> bool {
    let mut rest = options;
    while let Some((&kind, behind)) = rest.split_first() {
        match kind {
            // End of the list, and no operation.
            0 => return false,
            1 => {
                rest = behind;
                continue;
            }
            _ => {}
        }
        let len = usize::from(behind.first().copied().unwrap_or(0));
        let Some(option) = rest.get(..len).filter(|option| option.len() >= 2) else {
            return false;
        };
        if option == [ROUTER_ALERT[0], ROUTER_ALERT[1], 0, 0] {
            return true;
        }
        rest = &rest[len..];
    }
    false
}
