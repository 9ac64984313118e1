//! ICMP (RFC 792, RFC 1122 section 3.2.2).

use core::net::{IpAddr, SocketAddrV4};

use sidecore_tcp::{IcmpKind, Instant};
use sidecore_wire::ipv4::{PROTOCOL_TCP, PROTOCOL_UDP};
use sidecore_wire::tcp::QuotedSegment;
use sidecore_wire::{Icmpv4, Ipv4Header, SeqNumber, UdpHeader, icmpv4, udp};

use crate::flow::FlowKey;
use crate::host::{DatagramError, Host};
use crate::input::Packet;
use crate::path_mtu::By;
use crate::stack::Stack;
use crate::v6::HEADER_DIFFERENCE;

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
                if self
                    .handle_icmp_error(now, packet, &message, data, host)
                    .is_none()
                {
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
        packet: &Packet<'_>,
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
            PROTOCOL_TCP if claims_no_less(kind, payload.end) => return None,
            PROTOCOL_TCP => {
                let segment = QuotedSegment::parse(transport).ok()?;
                let local = SocketAddrV4::new(header.src, segment.src_port);
                let remote = SocketAddrV4::new(header.dst, segment.dst_port);
                let index = self.connections.find(&FlowKey::new(local, remote))?;
                self.icmp_for_connection(now, index, segment.seq, kind, host);
            }
            PROTOCOL_UDP => {
                let datagram = UdpHeader::parse_quoted(transport).ok()?;
                let remote = SocketAddrV4::new(header.dst, datagram.dst_port);
                let (src, port) = (header.src, datagram.src_port);
                let user = self.udp.user_at(src, port, remote.into())?;
                self.note_datagram_too_big(now, header.dst.into(), payload.end, kind);
                let error = DatagramError {
                    remote: remote.into(),
                    kind,
                    message: type_and_code(packet.transport.bytes),
                    info: match *message {
                        Icmpv4::DestinationUnreachable { next_hop_mtu, .. } => next_hop_mtu.into(),
                        _ => 0,
                    },
                    offender: packet.src.into(),
                    payload: payload_of(&datagram, transport),
                };
                host.icmp_error(user, &error);
            }
            _ => return None,
        }
        Some(())
    }

    /// An error about a segment of a connection. What it says of the path is remembered if TCP believes it.
    pub(crate) fn icmp_for_connection<H: Host>(
        &mut self,
        now: Instant,
        index: u32,
        seq: SeqNumber,
        kind: IcmpKind,
        host: &mut H,
    ) {
        let tcp = &mut self.connections[index].tcp;
        let before = tcp.path_mtu();
        let closed = tcp.handle_icmp(now, seq, kind);
        let after = tcp.path_mtu();
        if after < before {
            let (_, remote) = self.connections.addresses(index);
            let more = if remote.is_ipv6() {
                HEADER_DIFFERENCE
            } else {
                0
            };
            let mtu = after.saturating_add(more);
            self.paths.lower(now, remote.ip(), mtu, By::Tcp);
            self.counters.path_mtu_lowered += 1;
        }
        if let Some(reason) = closed {
            self.ended(index, reason, host);
        }
        self.touch(index);
    }

    /// An error about a datagram of ours that was `len` bytes long, headers included.
    pub(crate) fn note_datagram_too_big(
        &mut self,
        now: Instant,
        to: IpAddr,
        len: usize,
        kind: IcmpKind,
    ) {
        if claims_no_less(kind, len) {
            return;
        }
        if let IcmpKind::FragmentationNeeded { mtu } = kind {
            // A router of before RFC 1191: half of it is a guess as good as any.
            let half = u16::try_from(len / 2).unwrap_or(u16::MAX);
            let mtu = if mtu == 0 { half } else { mtu };
            self.paths.lower(now, to, mtu, By::Datagram);
            self.counters.path_mtu_lowered += 1;
        }
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

/// Type and code of a message that was parsed.
pub(crate) fn type_and_code(message: &[u8]) -> (u8, u8) {
    let byte = |at| message.get(at).copied().unwrap_or_default();
    (byte(0), byte(1))
}

/// As much of a datagram's payload as there is in what quotes it.
pub(crate) fn payload_of<'a>(datagram: &UdpHeader, quoted: &'a [u8]) -> &'a [u8] {
    let end = usize::from(datagram.length).min(quoted.len());
    quoted.get(udp::HEADER_LEN..end).unwrap_or_default()
}

/// Whether an error says that a packet of `len` bytes was too large for what it would have fitted into: nobody's error (RFC 5927
/// section 7.2).
pub(crate) fn claims_no_less(kind: IcmpKind, len: usize) -> bool {
    matches!(kind, IcmpKind::FragmentationNeeded { mtu } if usize::from(mtu) >= len)
}

/// What an error means for a transport; `None` for those that mean nothing.
fn kind_of(message: &Icmpv4) -> Option<IcmpKind> {
    use icmpv4::*;
    Some(match *message {
        Icmpv4::DestinationUnreachable { code, next_hop_mtu } => match code {
            // RFC 1122 section 3.2.2.1 and RFC 1812: 6 and 7 are "unknown", 8 "isolated", 11 and 12 "unreachable for type of service".
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
