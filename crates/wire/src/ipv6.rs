//! IPv6 headers (RFC 8200 section 3); what may follow them is in [`extension`].

pub mod extension;

use core::net::Ipv6Addr;
use core::ops::Range;

use crate::ParseError;

/// Bytes of a header.
pub const HEADER_LEN: usize = 40;
/// Every link carries packets of so many bytes (RFC 8200 section 5).
pub const MIN_MTU: u16 = 1280;
/// Hop limit of what we send; routers say another (RFC 4861 section 6.3.4).
pub const DEFAULT_HOP_LIMIT: u8 = 64;
/// Where in the header the payload length lies.
pub const PAYLOAD_LEN_OFFSET: u16 = 4;
/// Where in the header the next header's number lies.
pub const NEXT_HEADER_OFFSET: u16 = 6;

/// Next header: hop-by-hop options.
pub const HOP_BY_HOP: u8 = 0;
/// Next header: TCP.
pub const PROTOCOL_TCP: u8 = 6;
/// Next header: UDP.
pub const PROTOCOL_UDP: u8 = 17;
/// Next header: routing header.
pub const ROUTING: u8 = 43;
/// Next header: fragment header.
pub const FRAGMENT: u8 = 44;
/// Next header: ICMPv6.
pub const PROTOCOL_ICMPV6: u8 = 58;
/// Next header: nothing follows.
pub const NO_NEXT_HEADER: u8 = 59;
/// Next header: destination options.
pub const DESTINATION_OPTIONS: u8 = 60;

/// All nodes of the link, `ff02::1` (RFC 4291 section 2.7.1).
pub const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
/// All routers of the link, `ff02::2`.
pub const ALL_ROUTERS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 2);
/// All routers that speak MLDv2, `ff02::16` (RFC 3810 section 5.2.14).
pub const ALL_MLDV2_ROUTERS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 0x16);

/// The solicited-node group of an address, within `ff02::1:ff00:0/104` (RFC 4291 section 2.7.1).
#[inline]
pub const fn solicited_node(address: Ipv6Addr) -> Ipv6Addr {
    let prefix = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, 0xff00, 0).to_bits();
    Ipv6Addr::from_bits(prefix | address.to_bits() & 0x00ff_ffff)
}

/// The Ethernet address of a group: `33:33` and its last four bytes (RFC 2464 section 7).
#[inline]
pub const fn multicast_mac(group: Ipv6Addr) -> crate::MacAddress {
    let [.., a, b, c, d] = group.octets();
    crate::MacAddress([0x33, 0x33, a, b, c, d])
}

/// Whether this is a unicast address of the link only, `fe80::/10`.
#[inline]
pub const fn is_link_local(address: Ipv6Addr) -> bool {
    address.segments()[0] & 0xffc0 == 0xfe80
}

/// An IPv6 header.
///
/// ```text
///  0                   1                   2                   3
///  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
/// +-------+---------------+---------------------------------------+
/// |   6   | traffic class |               flow label              |
/// |          payload_len          |  next_header  |   hop_limit   |
/// |                         src (16 bytes)                        |
/// |                         dst (16 bytes)                        |
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Ipv6Header {
    /// DSCP in the upper six bits, ECN in the lower two (RFC 2474, RFC 3168).
    pub traffic_class: u8,
    /// Flow label, 20 bits (RFC 6437); upper bits are not emitted.
    pub flow_label: u32,
    /// Bytes that follow the header, as parsed. [`emit`](Self::emit) writes its argument.
    pub payload_len: u16,
    /// What follows: an extension header or a transport.
    pub next_header: u8,
    /// Hop limit.
    pub hop_limit: u8,
    /// From whom.
    pub src: Ipv6Addr,
    /// To whom.
    pub dst: Ipv6Addr,
}

impl Ipv6Header {
    /// A header for a packet of our own: default hop limit, traffic class and flow label 0.
    #[inline]
    pub const fn new(src: Ipv6Addr, dst: Ipv6Addr, next_header: u8) -> Self {
        Self {
            traffic_class: 0,
            flow_label: 0,
            payload_len: 0,
            next_header,
            hop_limit: DEFAULT_HOP_LIMIT,
            src,
            dst,
        }
    }

    /// Reads a header; what it carries lies in the returned range of `packet`, which ends where the
    /// header says: bytes behind it are the link's padding. Jumbograms (RFC 2675) are not spoken: a
    /// payload length of 0 means that there is none.
    ///
    /// # Errors
    /// [`ParseError::Truncated`] if `packet` is shorter than the header or than header and payload,
    /// [`ParseError::BadVersion`].
    #[inline]
    pub fn parse(packet: &[u8]) -> Result<(Self, Range<usize>), ParseError> {
        let (header, payload) = Self::parse_quoted(packet)?;
        if packet.len() < payload.end {
            return Err(ParseError::Truncated);
        }
        Ok((header, payload))
    }

    /// Like [`parse`](Self::parse), for a packet that is cut short, as ICMPv6 errors quote it: only
    /// the header must be there.
    ///
    /// # Errors
    /// [`ParseError::Truncated`] below 40 bytes, [`ParseError::BadVersion`].
    #[inline]
    pub fn parse_quoted(packet: &[u8]) -> Result<(Self, Range<usize>), ParseError> {
        let Some(h) = packet.first_chunk::<HEADER_LEN>() else {
            return Err(ParseError::Truncated);
        };
        let first = u32::from_be_bytes([h[0], h[1], h[2], h[3]]);
        if first >> 28 != 6 {
            return Err(ParseError::BadVersion);
        }
        let payload_len = u16::from_be_bytes([h[4], h[5]]);
        let header = Self {
            traffic_class: (first >> 20) as u8,
            flow_label: first & 0x000f_ffff,
            payload_len,
            next_header: h[6],
            hop_limit: h[7],
            src: address_at(h, 8),
            dst: address_at(h, 24),
        };
        Ok((header, HEADER_LEN..HEADER_LEN + usize::from(payload_len)))
    }

    /// Bytes that [`emit`](Self::emit) writes.
    #[inline]
    #[allow(clippy::len_without_is_empty, reason = "a header is never empty")]
    pub const fn len(&self) -> usize {
        HEADER_LEN
    }

    /// Writes the header for `payload_len` bytes behind it at the start of `buf` and returns its
    /// length, 40. `payload_len` of `self` is not looked at.
    ///
    /// # Panics
    /// If `buf` is shorter than 40 bytes; in debug builds also if `payload_len` is above 65535.
    #[inline]
    pub fn emit(&self, buf: &mut [u8], payload_len: usize) -> usize {
        debug_assert!(payload_len <= usize::from(u16::MAX));
        let payload_len = u16::try_from(payload_len).unwrap_or(u16::MAX);
        let first = 6 << 28 | u32::from(self.traffic_class) << 20 | self.flow_label & 0x000f_ffff;
        let h = &mut buf[..HEADER_LEN];
        h[..4].copy_from_slice(&first.to_be_bytes());
        h[4..6].copy_from_slice(&payload_len.to_be_bytes());
        h[6] = self.next_header;
        h[7] = self.hop_limit;
        h[8..24].copy_from_slice(&self.src.octets());
        h[24..40].copy_from_slice(&self.dst.octets());
        HEADER_LEN
    }
}

#[inline]
fn address_at(header: &[u8; HEADER_LEN], at: usize) -> Ipv6Addr {
    let mut octets = [0; 16];
    octets.copy_from_slice(&header[at..at + 16]);
    Ipv6Addr::from(octets)
}
