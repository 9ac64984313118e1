//! IGMP: IPv4's messages about groups (RFC 1112 appendix I, RFC 2236, RFC 3376).

use core::net::Ipv4Addr;

use sidecore_tcp::Instant;
use sidecore_wire::groups::report_len;
use sidecore_wire::{GroupVersion, Igmp, Ipv4Header, ParseError, igmp, ipv4};

use super::{Said, pack};
use crate::control::Control;
use crate::input::Packet;
use crate::stack::Stack;

impl Stack {
    /// An IGMP message to us or to a group that we are in.
    #[cold]
    pub(crate) fn handle_igmp(&mut self, now: Instant, packet: &Packet<'_>) {
        self.counters.igmp_in += 1;
        let parsed = match packet.quotable {
            Some(whole) => read(whole, packet.transport.bytes),
            // What came in fragments: no router's message is that long.
            None => Err(ParseError::Unsupported),
        };
        match parsed {
            Ok(Igmp::Query(query)) => self.groups.query(now, &query),
            Ok(Igmp::Report(group)) => self.groups.heard(now, group),
            Ok(Igmp::Other(_)) => {}
            Err(_) => self.counters.igmp_ignored += 1,
        }
    }

    /// Says what is due.
    #[cold]
    pub(crate) fn handle_group_timers(&mut self, now: Instant) {
        match self.groups.due(now) {
            None => {}
            Some(Said::Records(records)) => {
                let room = usize::from(self.config.mtu).saturating_sub(ipv4::ALERT_HEADER_LEN);
                pack(&records, room, |records| {
                    let len = report_len(records);
                    let to = igmp::ALL_IGMPV3_ROUTERS;
                    let src = source(&self.addresses);
                    self.counters.igmp_out += 1;
                    self.control.push_message(
                        len,
                        |buf| igmp::emit_report(records, buf),
                        |start, len| Control::Igmp {
                            src,
                            dst: to,
                            start,
                            len,
                        },
                    );
                });
            }
            Some(Said::Old(version, groups)) => {
                for (group, listened) in groups {
                    self.say_old(version, group, listened);
                }
            }
        }
    }

    /// RFC 2236 section 3, RFC 1112 appendix I: one message a group, to the group; that it was left, to the routers.
    fn say_old(&mut self, version: GroupVersion, group: Ipv4Addr, listened: bool) {
        let (type_, dst) = match (version, listened) {
            (GroupVersion::V1, _) => (igmp::REPORT_V1, group),
            (_, true) => (igmp::REPORT_V2, group),
            (_, false) => (igmp::LEAVE, igmp::ALL_ROUTERS),
        };
        let src = source(&self.addresses);
        self.counters.igmp_out += 1;
        self.control.push_message(
            igmp::SHORT_LEN,
            |buf| igmp::emit_short(type_, group, buf),
            |start, len| Control::Igmp {
                src,
                dst,
                start,
                len,
            },
        );
    }
}

/// RFC 3376 section 4.2.13: 0.0.0.0 while there is no address.
fn source(addresses: &crate::address::Addresses) -> Ipv4Addr {
    addresses.iter().next().unwrap_or(Ipv4Addr::UNSPECIFIED)
}

/// Reads a message that may be listened to; `whole` is the packet from its IP header on.
fn read<'a>(whole: &[u8], message: &'a [u8]) -> Result<Igmp<'a>, ParseError> {
    let (ip, payload) = Ipv4Header::parse_quoted(whole)?;
    let parsed = Igmp::parse(message)?;
    // RFC 3376 section 4: "IP time-to-live of 1". What came from farther away was forged there.
    if ip.ttl != igmp::TTL {
        return Err(ParseError::Malformed);
    }
    if let Igmp::Query(query) = &parsed {
        let options = whole.get(ipv4::MIN_HEADER_LEN..payload.start);
        let alert = options.is_some_and(ipv4::has_router_alert);
        // RFC 3376 section 9.1: "Hosts SHOULD ignore v2 or v3 Queries without the Router-Alert option"; "Hosts SHOULD ignore v1,
        // v2, or v3 General Queries sent to a multicast address other than 224.0.0.1".
        let misses_alert = query.version != GroupVersion::V1 && !alert;
        let general = query.group.is_unspecified();
        let odd_group = ip.dst.is_multicast() && ip.dst != igmp::ALL_SYSTEMS;
        if misses_alert || general && odd_group {
            return Err(ParseError::Malformed);
        }
    }
    Ok(parsed)
}
