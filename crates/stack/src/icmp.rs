//! ICMP (RFC 792, RFC 1122 section 3.2.2).

use core::net::SocketAddrV4;

use sidecore_tcp::{IcmpKind, Instant};
use sidecore_wire::ipv4::{PROTOCOL_TCP, PROTOCOL_UDP};
use sidecore_wire::tcp::QuotedSegment;
use sidecore_wire::{Icmpv4, Ipv4Header, UdpHeader, icmpv4};

use crate::flow::FlowKey;
use crate::host::Host;
use crate::input::Packet;
use crate::stack::Stack;

/// An error quotes as much of a packet as keeps the error within 576 bytes (RFC 1812 section 4.3.2.3).
const MAX_QUOTE: usize = 576 - 20 - icmpv4::HEADER_LEN;

impl Stack {
    /// An ICMP message for one of our addresses.
    #[cold]
    pub(crate) fn handle_icmp<H: Host>(&mut self, now: Instant, packet: &Packet<'_>, host: &mut H) {
        let parsed = if packet.transport.bytes.len() == packet.transport.len {
            Icmpv4::parse(packet.transport.bytes).ok()
        } else {
            None
        };
        let Some((message, offset)) = parsed else {
            self.counters.icmp_malformed += 1;
            return;
        };
        self.counters.icmp_in += 1;
        let data = packet.transport.bytes.get(offset..).unwrap_or_default();
        match message {
            Icmpv4::EchoRequest { ident, seq } => {
                self.answer_echo(now, packet, Icmpv4::EchoReply { ident, seq }, data);
            }
            Icmpv4::DestinationUnreachable { .. }
            | Icmpv4::TimeExceeded { .. }
            | Icmpv4::ParameterProblem => {
                if self.handle_icmp_error(now, &message, data, host).is_none() {
                    self.counters.icmp_unmatched += 1;
                }
            }
            Icmpv4::EchoReply { .. } | Icmpv4::Other { .. } => {}
        }
    }

    fn answer_echo(&mut self, now: Instant, packet: &Packet<'_>, reply: Icmpv4, data: &[u8]) {
        // RFC 1122 section 3.2.2.6: "An ICMP Echo Request destined to an IP broadcast or IP multicast address MAY be silently
        // discarded." Answering would make us an amplifier.
        if packet.broadcast {
            return;
        }
        if !self.echo_limiter.take(now) {
            self.counters.icmp_rate_limited += 1;
            return;
        }
        let (src, dst) = (packet.dst, packet.src);
        if self.control.push_icmp(packet.link, src, dst, &reply, data) {
            self.counters.icmp_echo_replies += 1;
        }
    }

    /// An error about a packet that we sent: `None` if it matches nothing of ours.
    fn handle_icmp_error<H: Host>(
        &mut self,
        now: Instant,
        message: &Icmpv4,
        quoted: &[u8],
        host: &mut H,
    ) -> Option<()> {
        let kind = kind_of(message)?;
        let (header, payload) = Ipv4Header::parse_quoted(quoted).ok()?;
        let transport = quoted.get(payload.start..)?;
        if header.fragment_offset != 0 {
            return None;
        }
        match header.protocol {
            PROTOCOL_TCP => {
                let segment = QuotedSegment::parse(transport).ok()?;
                let local = SocketAddrV4::new(header.src, segment.src_port);
                let remote = SocketAddrV4::new(header.dst, segment.dst_port);
                let index = self.connections.find(&FlowKey::new(local, remote))?;
                let tcp = &mut self.connections[index].tcp;
                if let Some(reason) = tcp.handle_icmp(now, segment.seq, kind) {
                    self.ended(index, reason, host);
                }
                self.touch(index);
            }
            PROTOCOL_UDP => {
                let datagram = UdpHeader::parse_quoted(transport).ok()?;
                let user = self.udp.user_at(header.src, datagram.src_port)?;
                let remote = SocketAddrV4::new(header.dst, datagram.dst_port);
                host.icmp_error(user, remote.into(), kind);
            }
            _ => return None,
        }
        Some(())
    }

    /// Tells the sender of a packet that it cannot be delivered, unless that could make things worse (RFC 1122 section
    /// 3.2.2: no errors about broadcasts, nor about fragments but the first).
    pub(crate) fn send_unreachable(&mut self, now: Instant, packet: &Packet<'_>, code: u8) {
        let Some(quotable) = packet.quotable else {
            return;
        };
        if packet.broadcast {
            return;
        }
        if !self.error_limiter.take(now) {
            self.counters.icmp_rate_limited += 1;
            return;
        }
        let quote = &quotable[..quotable.len().min(MAX_QUOTE)];
        let message = Icmpv4::DestinationUnreachable {
            code,
            next_hop_mtu: 0,
        };
        let (src, dst) = (packet.dst, packet.src);
        if self
            .control
            .push_icmp(packet.link, src, dst, &message, quote)
        {
            self.counters.icmp_errors_out += 1;
        }
    }
}

/// What an error means for a transport; `None` for those that mean nothing.
fn kind_of(message: &Icmpv4) -> Option<IcmpKind> {
    use icmpv4::*;
    Some(match *message {
        Icmpv4::DestinationUnreachable { code, next_hop_mtu } => match code {
            // RFC 1122 section 3.2.2.1 and RFC 1812: 6 and 7 are "unknown", 8 "isolated", 11 and 12 "for this type of service".
            UNREACHABLE_NET | 5 | 6 | 11 => IcmpKind::NetUnreachable,
            UNREACHABLE_HOST | 7 | 8 | 12 => IcmpKind::HostUnreachable,
            UNREACHABLE_PROTOCOL => IcmpKind::ProtocolUnreachable,
            UNREACHABLE_PORT => IcmpKind::PortUnreachable,
            UNREACHABLE_FRAGMENTATION_NEEDED => IcmpKind::FragmentationNeeded { mtu: next_hop_mtu },
            9 | 10 | 13 => IcmpKind::AdministrativelyProhibited,
            _ => return None,
        },
        Icmpv4::TimeExceeded { .. } => IcmpKind::TimeExceeded,
        Icmpv4::ParameterProblem => IcmpKind::ParameterProblem,
        _ => return None,
    })
}
