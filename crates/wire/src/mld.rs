//! Multicast listener discovery: versions 1 (RFC 2710) and 2 (RFC 3810), as a host speaks them.

use core::net::Ipv6Addr;

use crate::groups::{self, GroupQuery, GroupRecord, GroupVersion, Sources};
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

/// A message of a router or another host.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Mld<'a> {
    /// A router asks.
    Query(GroupQuery<'a, Ipv6Addr>),
    /// Another host listens to this group (MLDv1: hosts listen to each other).
    Report(Ipv6Addr),
}

impl<'a> Mld<'a> {
    /// Whether an ICMPv6 message of this type is one that a host listens to.
    #[inline]
    pub const fn is_type(type_: u8) -> bool {
        matches!(type_, QUERY | REPORT_V1)
    }

    /// Reads and validates a message, that is the whole payload of an IPv6 packet with this header, in front of which a router
    /// alert stood or not. Its checksum has been verified.
    ///
    /// # Errors
    /// [`ParseError::Truncated`], also if sources are missing; [`ParseError::Unsupported`] for other types; and
    /// [`ParseError::Malformed`] for what is to be ignored: not from the link, without the alert, or of a length that neither
    /// version has.
    pub fn parse(ip: &Ipv6Header, alert: bool, message: &'a [u8]) -> Result<Self, ParseError> {
        let Some((h, _)) = message.split_first_chunk::<V1_LEN>() else {
            return Err(ParseError::Truncated);
        };
        if !Self::is_type(h[0]) {
            return Err(ParseError::Unsupported);
        }
        // RFC 3810 section 6.2: without a link-local source, a hop limit of 1 and a router alert it is discarded in silence.
        if !is_link_local(ip.src) || ip.hop_limit != HOP_LIMIT || !alert {
            return Err(ParseError::Malformed);
        }
        let mut octets = [0; 16];
        octets.copy_from_slice(&h[8..]);
        let group = Ipv6Addr::from(octets);
        if h[0] == REPORT_V1 {
            return Ok(Self::Report(group));
        }
        let code = u16::from_be_bytes([h[4], h[5]]);
        query(message, code, group).map(Self::Query)
    }
}

/// RFC 3810 section 8.1: the length tells the version.
fn query(
    message: &[u8],
    code: u16,
    group: Ipv6Addr,
) -> Result<GroupQuery<'_, Ipv6Addr>, ParseError> {
    if message.len() == V1_LEN {
        return Ok(GroupQuery {
            version: GroupVersion::V2,
            max_response_ms: u32::from(code),
            group,
            robustness: 0,
            interval_s: 0,
            sources: Sources::NONE,
        });
    }
    let Some((head, rest)) = message.split_first_chunk::<QUERY_V2_LEN>() else {
        return Err(ParseError::Malformed);
    };
    let count = usize::from(u16::from_be_bytes([head[26], head[27]]));
    Ok(GroupQuery {
        version: GroupVersion::V3,
        max_response_ms: groups::code16(code),
        group,
        robustness: head[24] & 7,
        interval_s: groups::code8(head[25]),
        sources: Sources::new(rest, count).ok_or(ParseError::Truncated)?,
    })
}

/// Writes an MLDv2 report with its checksum at the start of `buf` and returns its length, [`groups::report_len`].
///
/// # Panics
/// If `buf` is shorter than that, or if there are more than 65535 records.
pub fn emit_report(
    src: Ipv6Addr,
    dst: Ipv6Addr,
    records: &[GroupRecord<'_, Ipv6Addr>],
    buf: &mut [u8],
) -> usize {
    let message = &mut buf[..groups::report_len(records)];
    groups::emit_records(records, message);
    message[0] = REPORT_V2;
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
