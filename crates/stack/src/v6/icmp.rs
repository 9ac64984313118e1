//! ICMPv6 (RFC 4443).

use core::net::{Ipv6Addr, SocketAddrV6};

use sidecore_tcp::{IcmpKind, Instant};
use sidecore_wire::ipv6::extension::HeaderChain;
use sidecore_wire::tcp::QuotedSegment;
use sidecore_wire::{Icmpv6, Ipv6Header, Mld, NdpMessage, UdpHeader, icmpv6, ipv6};

use super::flow::FlowKey6;
use super::input::Packet6;
use super::{Envelope, push_message};
use crate::host::{DatagramError, Host};
use crate::icmp::{claims_no_less, payload_of, type_and_code};
use crate::input::Place;
use crate::stack::Stack;

/// An error quotes "as much of invoking packet as possible without the ICMPv6 packet exceeding the minimum IPv6 MTU" (RFC 4443
/// section 3).
const MAX_QUOTE: usize = icmpv6::MAX_ERROR_LEN - ipv6::HEADER_LEN - icmpv6::HEADER_LEN;

/// What an IPv6 packet has more in front of TCP than an IPv4 one: TCP counts in IPv4's.
pub(crate) const HEADER_DIFFERENCE: u16 = 20;

impl Stack {
    /// An ICMPv6 message for one of our addresses or groups; `alert`: with a router alert in front of it.
    pub(super) fn handle_icmp6<H: Host>(
        &mut self,
        now: Instant,
        packet: &Packet6<'_>,
        alert: bool,
        host: &mut H,
    ) {
        let bytes = packet.transport.bytes;
        let parsed = if bytes.len() == packet.transport.len {
            Icmpv6::parse(packet.src(), packet.dst(), bytes).ok()
        } else {
            None
        };
        let Some((message, offset)) = parsed else {
            self.counters.icmp_malformed += 1;
            return;
        };
        self.counters.icmp_in += 1;
        let data = bytes.get(offset..).unwrap_or_default();
        let whole = packet.transport.place != Place::Buffer;
        match message {
            Icmpv6::Other { type_, .. } if NdpMessage::is_type(type_) => match packet.station() {
                // RFC 6980: "Nodes MUST silently ignore" fragmented messages of neighbour discovery.
                Some(station) if whole => {
                    self.handle_ndp(now, &packet.header, bytes, station, host);
                }
                _ => self.counters.ndp_malformed += 1,
            },
            Icmpv6::Other { type_, .. } if Mld::is_type(type_) && packet.station().is_some() => {
                self.handle_mld(now, &packet.header, alert && whole, bytes);
            }
            _ if packet.discovery_only => self.counters.ip_bad_source += 1,
            Icmpv6::EchoRequest { ident, seq } => {
                self.answer_echo6(now, packet, &Icmpv6::EchoReply { ident, seq }, data);
            }
            _ if message.is_error() => {
                let matched = self.handle_icmp6_error(now, packet, &message, data, host);
                self.counters.icmp_unmatched += u64::from(matched.is_none());
            }
            _ => {}
        }
    }

    /// RFC 4443 section 4.2: a request to a group may be answered; that would make us an amplifier.
    fn answer_echo6(&mut self, now: Instant, packet: &Packet6<'_>, reply: &Icmpv6, data: &[u8]) {
        if packet.multicast {
            return;
        }
        if !self.echo_limiter.take(now) {
            self.counters.icmp_rate_limited += 1;
            return;
        }
        if self.push_icmp6(packet, packet.dst(), reply, data) {
            self.counters.icmp_echo_replies += 1;
        }
    }

    /// Queues a message for where a packet came from.
    fn push_icmp6(
        &mut self,
        packet: &Packet6<'_>,
        src: Ipv6Addr,
        message: &Icmpv6,
        data: &[u8],
    ) -> bool {
        let dst = packet.src();
        let envelope = Envelope {
            link: packet.link,
            src,
            dst,
            hop_limit: self.six.hop_limit,
            alert: false,
        };
        let len = message.len() + data.len();
        push_message(&mut self.control, &envelope, len, |buf| {
            message.emit(src, dst, buf, data)
        })
    }

    /// An error about a packet that we sent: `None` if it matches nothing of ours.
    fn handle_icmp6_error<H: Host>(
        &mut self,
        now: Instant,
        packet: &Packet6<'_>,
        message: &Icmpv6,
        quoted: &[u8],
        host: &mut H,
    ) -> Option<()> {
        let (header, payload) = Ipv6Header::parse_quoted(quoted).ok()?;
        let bytes = quoted.get(payload.start..)?;
        let chain = HeaderChain::parse(&header, bytes).ok()?;
        if chain.fragment.is_some() {
            return None;
        }
        let transport = bytes.get(chain.payload..)?;
        match chain.protocol {
            ipv6::PROTOCOL_TCP => {
                let kind = kind_of(message, HEADER_DIFFERENCE)?;
                if claims_no_less(kind, payload.end - usize::from(HEADER_DIFFERENCE)) {
                    return None;
                }
                let segment = QuotedSegment::parse(transport).ok()?;
                let local = SocketAddrV6::new(header.src, segment.src_port, 0, 0);
                let remote = SocketAddrV6::new(header.dst, segment.dst_port, 0, 0);
                let index = self.connections.find6(&FlowKey6::new(local, remote))?;
                self.icmp_for_connection(now, index, segment.seq, kind, host);
            }
            ipv6::PROTOCOL_UDP => {
                let kind = kind_of(message, 0)?;
                let datagram = UdpHeader::parse_quoted(transport).ok()?;
                let remote = SocketAddrV6::new(header.dst, datagram.dst_port, 0, 0);
                let (src, port) = (header.src, datagram.src_port);
                let user = self.udp.user_at6(src, port, remote.into())?;
                self.note_datagram_too_big(now, header.dst.into(), payload.end, kind);
                let error = DatagramError {
                    remote: remote.into(),
                    kind,
                    message: type_and_code(packet.transport.bytes),
                    info: match *message {
                        Icmpv6::PacketTooBig { mtu } => mtu,
                        Icmpv6::ParameterProblem { pointer, .. } => pointer,
                        _ => 0,
                    },
                    offender: packet.src().into(),
                    payload: payload_of(&datagram, transport),
                };
                host.icmp_error(user, &error);
            }
            _ => return None,
        }
        Some(())
    }

    /// Tells the sender of a packet what is wrong with it, unless that could make things worse (RFC 4443 section 2.4 (e)).
    /// Whoever calls has seen to it that a packet to a group deserves an answer.
    pub(super) fn send_error6(&mut self, now: Instant, packet: &Packet6<'_>, message: &Icmpv6) {
        let Some(quotable) = packet.quotable else {
            return;
        };
        if packet.discovery_only || is_icmp_error(packet, quotable) {
            return;
        }
        // (f): "An IPv6 node MUST limit the rate of ICMPv6 error messages it originates."
        if !self.error_limiter.take(now) {
            self.counters.icmp_rate_limited += 1;
            return;
        }
        // Section 2.2: from the address that was asked for, or from one that leads back.
        let src = if packet.dst().is_multicast() {
            self.six.addresses.source_for(now, packet.src())
        } else {
            Some(packet.dst())
        };
        let Some(src) = src else { return };
        let quote = &quotable[..quotable.len().min(MAX_QUOTE)];
        if self.push_icmp6(packet, src, message, quote) {
            self.counters.icmp_errors_out += 1;
        }
    }
}

/// Whether a packet is an ICMPv6 error or a redirect, which are never answered by errors, however its headers are wrong (RFC
/// 4443 section 2.4 (e.1), (e.2)).
fn is_icmp_error(packet: &Packet6<'_>, quotable: &[u8]) -> bool {
    let bytes = quotable.get(ipv6::HEADER_LEN..).unwrap_or_default();
    match HeaderChain::parse(&packet.header, bytes) {
        Ok(chain) if chain.protocol == ipv6::PROTOCOL_ICMPV6 => {
            let type_ = bytes.get(chain.payload).copied().unwrap_or(0);
            type_ < 128 || type_ == sidecore_wire::ndp::REDIRECT
        }
        _ => false,
    }
}

/// What an error means for a transport that counts `difference` bytes less in front of it; `None` for those that mean
/// nothing.
fn kind_of(message: &Icmpv6, difference: u16) -> Option<IcmpKind> {
    use icmpv6::*;
    Some(match *message {
        Icmpv6::DestinationUnreachable { code } => match code {
            UNREACHABLE_NO_ROUTE | UNREACHABLE_SCOPE | UNREACHABLE_REJECT => {
                IcmpKind::NetUnreachable
            }
            UNREACHABLE_ADDRESS => IcmpKind::HostUnreachable,
            UNREACHABLE_PORT => IcmpKind::PortUnreachable,
            UNREACHABLE_PROHIBITED | UNREACHABLE_POLICY => IcmpKind::AdministrativelyProhibited,
            _ => return None,
        },
        Icmpv6::PacketTooBig { mtu } => {
            // RFC 8201 section 4: "If a node receives a Packet Too Big message reporting a next-hop MTU that is less than the
            // IPv6 minimum link MTU, it must discard it."
            let mtu = u16::try_from(mtu).unwrap_or(u16::MAX);
            if mtu < ipv6::MIN_MTU {
                return None;
            }
            IcmpKind::FragmentationNeeded {
                mtu: mtu - difference,
            }
        }
        Icmpv6::TimeExceeded { .. } => IcmpKind::TimeExceeded,
        // Section 3.4: an unrecognized next header is what an unreachable protocol is to IPv4.
        Icmpv6::ParameterProblem {
            code: PROBLEM_NEXT_HEADER,
            ..
        } => IcmpKind::ProtocolUnreachable,
        Icmpv6::ParameterProblem { .. } => IcmpKind::ParameterProblem,
        _ => return None,
    })
}
