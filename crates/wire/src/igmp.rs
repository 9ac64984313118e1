//! Internet Group Management Protocol: versions 1 (RFC 1112 appendix I), 2 (RFC 2236) and 3 (RFC 3376).

use core::net::Ipv4Addr;

use crate::groups::{self, GroupQuery, GroupRecord, GroupVersion, Sources};
use crate::{ParseError, checksum};

/// Protocol number.
pub const PROTOCOL: u8 = 2;
/// TTL of all these messages (RFC 3376 section 4).
pub const TTL: u8 = 1;
/// Type of service of all these messages: internetwork control (RFC 3376 section 4).
pub const TOS: u8 = 0xc0;

/// All systems of the link, 224.0.0.1: every host is in this group and never says so.
pub const ALL_SYSTEMS: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 1);
/// All routers of the link, 224.0.0.2: where IGMPv2's leaves go.
pub const ALL_ROUTERS: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 2);
/// All routers that speak IGMPv3, 224.0.0.22: where its reports go (RFC 3376 section 4.2.14).
pub const ALL_IGMPV3_ROUTERS: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 22);

/// Type of queries, of all versions.
pub const QUERY: u8 = 0x11;
/// Type of IGMPv1 reports.
pub const REPORT_V1: u8 = 0x12;
/// Type of IGMPv2 reports.
pub const REPORT_V2: u8 = 0x16;
/// Type of IGMPv2's leaves.
pub const LEAVE: u8 = 0x17;
/// Type of IGMPv3 reports.
pub const REPORT_V3: u8 = 0x22;

/// Bytes of a message of versions 1 and 2.
pub const SHORT_LEN: usize = 8;
/// Bytes of an IGMPv3 query without sources (RFC 3376 section 7.1).
const QUERY_V3_LEN: usize = 12;
/// What an IGMPv1 query would say if it had a field for that (RFC 2236 section 4).
const V1_RESPONSE_MS: u32 = 10_000;

/// The Ethernet address of a group: `01:00:5e` and its last 23 bits (RFC 1112 section 6.4).
#[inline]
pub const fn multicast_mac(group: Ipv4Addr) -> crate::MacAddress {
    let [_, a, b, c] = group.octets();
    crate::MacAddress([0x01, 0x00, 0x5e, a & 0x7f, b, c])
}

/// A message as a host needs to know it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Igmp<'a> {
    /// A router asks.
    Query(GroupQuery<'a, Ipv4Addr>),
    /// Another host is in this group (versions 1 and 2: hosts listen to each other).
    Report(Ipv4Addr),
    /// Anything else; RFC 3376 section 4: "Unrecognized message types MUST be silently ignored."
    Other(u8),
}

impl<'a> Igmp<'a> {
    /// Reads a message, that is the whole payload of an IPv4 packet, and verifies its checksum.
    ///
    /// # Errors
    /// [`ParseError::Truncated`] below 8 bytes, or if sources are missing; [`ParseError::BadChecksum`];
    /// [`ParseError::BadLength`] for a query that is none of any version.
    pub fn parse(message: &'a [u8]) -> Result<Self, ParseError> {
        let Some(&[type_, code, _, _, a, b, c, d]) = message.first_chunk::<SHORT_LEN>() else {
            return Err(ParseError::Truncated);
        };
        // RFC 3376 section 4.1.2: over "the whole IGMP message (the entire IP payload)".
        if checksum::fold(checksum::sum(message, 0)) != 0xffff {
            return Err(ParseError::BadChecksum);
        }
        let group = Ipv4Addr::new(a, b, c, d);
        match type_ {
            QUERY => query(message, code, group).map(Self::Query),
            REPORT_V1 | REPORT_V2 => Ok(Self::Report(group)),
            other => Ok(Self::Other(other)),
        }
    }
}

/// RFC 3376 section 7.1: the length and the code tell the version. "Query messages that do not match any of the above conditions
/// … MUST be silently ignored."
fn query(
    message: &[u8],
    code: u8,
    group: Ipv4Addr,
) -> Result<GroupQuery<'_, Ipv4Addr>, ParseError> {
    let old = |version, max_response_ms| GroupQuery {
        version,
        max_response_ms,
        group,
        robustness: 0,
        interval_s: 0,
        sources: Sources::NONE,
    };
    match (message.len(), code) {
        (SHORT_LEN, 0) => return Ok(old(GroupVersion::V1, V1_RESPONSE_MS)),
        (SHORT_LEN, code) => return Ok(old(GroupVersion::V2, u32::from(code) * 100)),
        _ => {}
    }
    let Some((head, rest)) = message.split_first_chunk::<QUERY_V3_LEN>() else {
        return Err(ParseError::BadLength);
    };
    let count = usize::from(u16::from_be_bytes([head[10], head[11]]));
    Ok(GroupQuery {
        version: GroupVersion::V3,
        max_response_ms: groups::code8(code) * 100,
        group,
        robustness: head[8] & 7,
        interval_s: groups::code8(head[9]),
        sources: Sources::new(rest, count).ok_or(ParseError::Truncated)?,
    })
}

fn put_checksum(message: &mut [u8]) {
    message[2..4].fill(0);
    let sum = checksum::complement(checksum::sum(message, 0));
    message[2..4].copy_from_slice(&sum.to_be_bytes());
}

/// Writes an IGMPv3 report with its checksum at the start of `buf` and returns its length, [`groups::report_len`].
///
/// # Panics
/// If `buf` is shorter than that, or if there are more than 65535 records.
pub fn emit_report(records: &[GroupRecord<'_, Ipv4Addr>], buf: &mut [u8]) -> usize {
    let message = &mut buf[..groups::report_len(records)];
    groups::emit_records(records, message);
    message[0] = REPORT_V3;
    put_checksum(message);
    message.len()
}

/// Writes a message of versions 1 and 2 about a group with its checksum at the start of `buf` and returns its length, 8.
///
/// # Panics
/// If `buf` is shorter than 8 bytes.
pub fn emit_short(type_: u8, group: Ipv4Addr, buf: &mut [u8]) -> usize {
    let message = &mut buf[..SHORT_LEN];
    message.fill(0);
    message[0] = type_;
    message[4..].copy_from_slice(&group.octets());
    put_checksum(message);
    SHORT_LEN
}
