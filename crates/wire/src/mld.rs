//! Multicast listener discovery, as far as joining groups needs it: queries, and the reports of MLDv2
//! (RFC 3810) and MLDv1 (RFC 2710).
//!
//! Source filters are not spoken: a group is joined with all its sources, or not.

use core::net::Ipv6Addr;

use crate::ipv6::{Ipv6Header, is_link_local};
use crate::{ParseError, icmpv6};

/// ICMPv6 type of queries, of both versions.
pub const QUERY: u8 = 130;
/// ICMPv6 type of MLDv1 reports.
pub const REPORT_V1: u8 = 131;
/// ICMPv6 type of MLDv1's Done.
pub const DONE: u8 = 132;
/// ICMPv6 type of MLDv2 reports.
pub const REPORT_V2: u8 = 143;

/// The hop limit of all these messages.
pub const HOP_LIMIT: u8 = 1;

/// Bytes of an MLDv1 message.
pub const V1_LEN: usize = 24;
/// Bytes of an MLDv2 query without sources; all that is shorter is MLDv1 (RFC 3810 section 8.1).
const QUERY_V2_LEN: usize = 28;
/// Bytes of a group record without sources.
const RECORD_LEN: usize = 20;

/// A query (RFC 3810 section 5.1, RFC 2710 section 3).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct MldQuery {
    /// The asker speaks MLDv2.
    pub v2: bool,
    /// Within what time is to be answered, in milliseconds.
    pub max_response_ms: u32,
    /// Which group is asked for; unspecified: all.
    pub group: Ipv6Addr,
}

impl MldQuery {
    /// Reads and validates a query, that is the whole payload of an IPv6 packet with this header.
    /// Its checksum has been verified. Sources are not looked at.
    ///
    /// # Errors
    /// [`ParseError::Truncated`], [`ParseError::Unsupported`] for other types, and
    /// [`ParseError::Malformed`] for what is to be ignored: not from the link, or of a length that
    /// neither version has.
    pub fn parse(ip: &Ipv6Header, message: &[u8]) -> Result<Self, ParseError> {
        let Some(h) = message.first_chunk::<V1_LEN>() else {
            return Err(ParseError::Truncated);
        };
        if h[0] != QUERY {
            return Err(ParseError::Unsupported);
        }
        let v2 = message.len() >= QUERY_V2_LEN;
        let length_is_odd = !v2 && message.len() != V1_LEN;
        // RFC 3810 section 6.2: "If a received Query … doesn't have a valid IPv6 link-local address as the source or the Hop
        // Limit is not 1 … it is ignored".
        if !is_link_local(ip.src) || ip.hop_limit != HOP_LIMIT || length_is_odd {
            return Err(ParseError::Malformed);
        }
        let mut group = [0; 16];
        group.copy_from_slice(&h[8..]);
        let code = u16::from_be_bytes([h[4], h[5]]);
        Ok(Self {
            v2,
            max_response_ms: if v2 {
                response_ms(code)
            } else {
                u32::from(code)
            },
            group: Ipv6Addr::from(group),
        })
    }
}

/// A maximum response code of MLDv2 in milliseconds (RFC 3810 section 5.1.3).
const fn response_ms(code: u16) -> u32 {
    if code < 0x8000 {
        return code as u32;
    }
    let (exponent, mantissa) = ((code >> 12) & 7, (code & 0x0fff) as u32);
    (mantissa | 0x1000) << (exponent + 3)
}

/// What a group record of an MLDv2 report says (RFC 3810 section 5.2.5).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum RecordKind {
    /// The answer to a query: joined, with all sources.
    ModeIsExclude,
    /// Just left.
    ChangeToInclude,
    /// Just joined, with all sources.
    ChangeToExclude,
}

impl RecordKind {
    const fn number(self) -> u8 {
        match self {
            Self::ModeIsExclude => 2,
            Self::ChangeToInclude => 3,
            Self::ChangeToExclude => 4,
        }
    }
}

/// Bytes of an MLDv2 report about so many groups.
pub const fn report_v2_len(groups: usize) -> usize {
    icmpv6::HEADER_LEN + groups * RECORD_LEN
}

/// Writes an MLDv2 report that says the same of all these groups, with its checksum, at the start of
/// `buf` and returns its length.
///
/// # Panics
/// If `buf` is shorter than [`report_v2_len`], or if there are more than 65535 groups.
pub fn emit_report_v2(
    src: Ipv6Addr,
    dst: Ipv6Addr,
    kind: RecordKind,
    groups: &[Ipv6Addr],
    buf: &mut [u8],
) -> usize {
    let message = &mut buf[..report_v2_len(groups.len())];
    message.fill(0);
    assert!(groups.len() <= usize::from(u16::MAX));
    message[0] = REPORT_V2;
    message[6..8].copy_from_slice(&(groups.len() as u16).to_be_bytes());
    let records = message[icmpv6::HEADER_LEN..].chunks_mut(RECORD_LEN);
    for (record, group) in records.zip(groups) {
        record[0] = kind.number();
        record[4..].copy_from_slice(&group.octets());
    }
    icmpv6::put_checksum(src, dst, message);
    message.len()
}

/// Writes an MLDv1 report of a group, or its Done, with its checksum, at the start of `buf` and
/// returns its length, 24.
///
/// # Panics
/// If `buf` is shorter than 24 bytes.
pub fn emit_v1(src: Ipv6Addr, dst: Ipv6Addr, done: bool, group: Ipv6Addr, buf: &mut [u8]) -> usize {
    let message = &mut buf[..V1_LEN];
    message.fill(0);
    message[0] = if done { DONE } else { REPORT_V1 };
    message[8..].copy_from_slice(&group.octets());
    icmpv6::put_checksum(src, dst, message);
    V1_LEN
}
