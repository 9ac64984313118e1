//! IPv6 frames out, at the end of a turn.

use core::net::Ipv6Addr;

use sidecore_tcp::{Instant, TxLimits, TxSegment};
use sidecore_wire::ipv6::extension::{FRAGMENT_HEADER_LEN, ROUTER_ALERT_LEN};
use sidecore_wire::ipv6::extension::{FragmentHeader, emit_router_alert};
use sidecore_wire::{
    Ipv6Header, MacAddress, SeqNumber, TcpFlags, TcpHeader, UnscaledWindow, checksum, ipv6, tcp,
};

use super::address::Route6;
use super::frame::HeaderBuffer6;
use super::nd::solicit;
use super::neighbor::Resolution6;
use crate::DETACHED;
use crate::connections::flag;
use crate::control::{Link, SynAck};
use crate::host::Host;
use crate::output::{QUANTUM, Visit};
use crate::sink::{FrameSink, TxOffload, TxPayload};
use crate::stack::Stack;

/// A packet that waits and belongs to no connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Control6 {
    /// An ICMPv6 message, in the arena, its checksum in it.
    Message {
        link: Link,
        src: Ipv6Addr,
        dst: Ipv6Addr,
        hop_limit: u8,
        alert: bool,
        start: u32,
        len: u32,
    },
    /// A reset for a segment to nowhere.
    Reset {
        link: Link,
        src: Ipv6Addr,
        dst: Ipv6Addr,
        src_port: u16,
        dst_port: u16,
        seq: SeqNumber,
        ack: SeqNumber,
        flags: TcpFlags,
    },
    /// A SYN-ACK with a cookie, for a SYN of which nothing is kept.
    SynAck {
        link: Link,
        src: Ipv6Addr,
        dst: Ipv6Addr,
        answer: SynAck,
    },
}

impl Control6 {
    pub(super) fn reset(link: Link, src: Ipv6Addr, dst: Ipv6Addr, header: &TcpHeader) -> Self {
        Self::Reset {
            link,
            src,
            dst,
            src_port: header.src_port,
            dst_port: header.dst_port,
            seq: header.seq,
            ack: header.ack,
            flags: header.flags,
        }
    }

    /// Whether it goes to the loopback.
    pub(crate) const fn is_loopback(&self) -> bool {
        let (Self::Message { link, .. } | Self::Reset { link, .. } | Self::SynAck { link, .. }) =
            self;
        matches!(link, Link::Loopback)
    }
}

impl Stack {
    /// Lets one connection send.
    pub(crate) fn visit6<O: Host + FrameSink>(
        &mut self,
        now: Instant,
        index: u32,
        loopback: bool,
        limits: &TxLimits,
        out: &mut O,
        left: &mut usize,
    ) -> Visit {
        let link = if loopback {
            Link::Loopback
        } else {
            let slot = &self.connections[index];
            let hop = self.connections.six.get(index).next_hop;
            let hop = hop.unwrap_or(Ipv6Addr::UNSPECIFIED);
            match self.six.neighbors.known(now, hop, slot.neighbor) {
                Some(station) => Link::Station(station),
                None if !slot.tcp.wants_transmit() => return Visit::Done,
                None => match self.resolve6(now, index) {
                    Ok(Some(station)) => Link::Station(station),
                    Ok(None) => return self.discard(now, index, out),
                    Err(visit) => return visit,
                },
            }
        };
        let mut quantum = QUANTUM.min(*left);
        // The caller has asked for the first frame's room.
        let mut room = true;
        while quantum > 0 {
            if !room && !out.has_room(loopback) {
                return Visit::NoRoom;
            }
            room = false;
            let slot = &mut self.connections[index];
            let polled = slot.tcp.poll_transmit(now, limits, &mut self.ranges);
            let Some(segment) = &polled else {
                return Visit::Done;
            };
            self.send_segment6(index, link, segment, out);
            quantum -= 1;
            *left -= 1;
        }
        Visit::QuantumUsed
    }

    /// The link address of a connection's next hop, which is not known for certain; `Ok(None)` if it cannot be reached.
    #[cold]
    fn resolve6(&mut self, now: Instant, index: u32) -> Result<Option<MacAddress>, Visit> {
        // RFC 4861 section 5.2: next-hop determination is done anew when there is doubt, and routers and redirects change.
        let remote = self.connections.six.get(index).key.remote_ip;
        let Some(Route6::Link(hop)) = self.route6(remote) else {
            return Ok(None);
        };
        self.connections.six.set_next_hop(index, hop);
        match self.resolve_neighbor6(now, hop) {
            Resolution6::Known(place, station) => {
                self.connections[index].neighbor = place;
                Ok(Some(station))
            }
            Resolution6::Pending(place) => {
                let slot = &mut self.connections[index];
                slot.neighbor = place;
                slot.flags |= flag::WAITING;
                let waiting = &mut self.six.neighbors.entry_mut(place).waiting;
                waiting.push_back(self.connections.slots(), index);
                Err(Visit::Waits)
            }
            Resolution6::Unreachable => Ok(None),
        }
    }

    /// The link address of a neighbour, which is solicited if need be.
    pub(super) fn resolve_neighbor6(&mut self, now: Instant, hop: Ipv6Addr) -> Resolution6 {
        let (control, addresses, mac) = (&mut self.control, &self.six.addresses, self.config.mac);
        let mut asked = 0;
        let resolution = self.six.neighbors.resolve(now, hop, |question| {
            asked += 1;
            solicit(control, addresses, now, mac, question);
        });
        self.counters.ndp_out += asked;
        // A look-up adds timers and never takes one away.
        let due = self.six.neighbors.next_timeout();
        self.six.next = due.map_or(self.six.next, |due| due.min(self.six.next));
        resolution
    }

    #[inline]
    fn send_segment6<O: FrameSink>(
        &mut self,
        index: u32,
        link: Link,
        segment: &TxSegment,
        out: &mut O,
    ) {
        let slot = &self.connections[index];
        let flow = self.connections.six.get(index);
        let payload = &segment.payload;
        let len = payload.end.saturating_sub(payload.start) as u32;
        debug_assert!(len == 0 || slot.user != DETACHED, "data of nobody");
        let bytes = match len {
            0 => TxPayload::None,
            len => TxPayload::Stream {
                user: slot.user,
                start: payload.start,
                len,
            },
        };
        let size = segment.segment_size;
        let loopback = link == Link::Loopback;
        let mut buffer = HeaderBuffer6::new();
        let way = (flow, self.six.hop_limit);
        let start = buffer.segment(
            link,
            self.config.mac,
            way,
            &segment.header,
            len,
            segment.ecn,
        );
        buffer.mark(start, slot);
        let offload = TxOffload {
            checksum: Some((start, tcp::CHECKSUM_OFFSET as u16)),
            segment_size: if len > u32::from(size) { size } else { 0 },
            loopback,
            header_len: buffer.len() as u16,
        };
        out.send(buffer.bytes(), bytes, &offload);
        self.counters.tcp_segments_out += 1;
        self.counters.tcp_retransmissions += u64::from(segment.retransmission);
        self.counters.tcp_bytes_out += u64::from(len);
        self.counters.loopback_out += u64::from(loopback);
    }

    /// A packet of no connection; false if there was no room for it.
    pub(crate) fn send_control6<O: FrameSink>(
        &mut self,
        packet: Control6,
        out: &mut O,
        left: &mut usize,
    ) {
        match packet {
            Control6::Reset { .. } => {
                self.send_reset6(packet, out);
                *left -= 1;
            }
            Control6::SynAck {
                link,
                src,
                dst,
                answer,
            } => {
                self.send_answer6(link, (src, dst), &answer.header(), out);
                *left -= 1;
            }
            Control6::Message { alert: true, .. } => {
                self.send_alert(packet, out);
                *left -= 1;
            }
            Control6::Message { .. } => self.send_message6(packet, out, left),
        }
    }

    fn send_reset6<O: FrameSink>(&mut self, packet: Control6, out: &mut O) {
        let Control6::Reset {
            link,
            src,
            dst,
            src_port,
            dst_port,
            seq,
            ack,
            flags,
        } = packet
        else {
            return;
        };
        let header = TcpHeader {
            src_port,
            dst_port,
            seq,
            ack,
            flags,
            window: UnscaledWindow(0),
            ..TcpHeader::default()
        };
        self.send_answer6(link, (src, dst), &header, out);
    }

    /// A segment of no connection, without payload.
    fn send_answer6<O: FrameSink>(
        &mut self,
        link: Link,
        (src, dst): (Ipv6Addr, Ipv6Addr),
        header: &TcpHeader,
        out: &mut O,
    ) {
        let mut buffer = HeaderBuffer6::new();
        let ip = self.header6(src, dst, ipv6::PROTOCOL_TCP);
        buffer.ipv6(link, self.config.mac, &ip, header.len());
        let start = buffer.tcp(checksum::pseudo_v6(src, dst, 0, 0), header, 0);
        let offload = TxOffload {
            checksum: Some((start, tcp::CHECKSUM_OFFSET as u16)),
            segment_size: 0,
            loopback: link == Link::Loopback,
            header_len: buffer.len() as u16,
        };
        out.send(buffer.bytes(), TxPayload::None, &offload);
        self.counters.tcp_segments_out += 1;
    }

    /// A header of ours.
    pub(super) fn header6(&self, src: Ipv6Addr, dst: Ipv6Addr, next_header: u8) -> Ipv6Header {
        Ipv6Header {
            hop_limit: self.six.hop_limit,
            ..Ipv6Header::new(src, dst, next_header)
        }
    }

    /// A message with a router alert, which is never long.
    fn send_alert<O: FrameSink>(&self, packet: Control6, out: &mut O) {
        let Control6::Message {
            link,
            src,
            dst,
            hop_limit,
            start,
            len,
            ..
        } = packet
        else {
            return;
        };
        let message = self.control.message(start, len);
        let ip = Ipv6Header {
            hop_limit,
            ..Ipv6Header::new(src, dst, ipv6::HOP_BY_HOP)
        };
        let mut buffer = HeaderBuffer6::new();
        buffer.ipv6(link, self.config.mac, &ip, ROUTER_ALERT_LEN + message.len());
        buffer.append(|buf| emit_router_alert(ipv6::PROTOCOL_ICMPV6, buf));
        let offload = TxOffload {
            loopback: link == Link::Loopback,
            header_len: buffer.len() as u16,
            ..TxOffload::default()
        };
        out.send(buffer.bytes(), TxPayload::Bytes(message), &offload);
    }

    /// Bytes of payload that one packet takes.
    fn room_for_message(&self, loopback: bool) -> usize {
        let mtu = if loopback {
            self.config.loopback_mtu
        } else {
            self.six.mtu
        };
        usize::from(mtu).saturating_sub(ipv6::HEADER_LEN)
    }

    /// Sends an ICMPv6 message, in fragments if it is longer than the MTU (RFC 8200 section 4.5). A message of which the rest
    /// finds no room is lost, as any packet may be.
    fn send_message6<O: FrameSink>(&mut self, packet: Control6, out: &mut O, left: &mut usize) {
        let Control6::Message {
            link,
            src,
            dst,
            hop_limit,
            start,
            len,
            ..
        } = packet
        else {
            return;
        };
        let loopback = link == Link::Loopback;
        let most = self.room_for_message(loopback);
        let message = self.control.message(start, len);
        let fragmented = message.len() > most;
        let piece_len = if fragmented {
            (most.saturating_sub(FRAGMENT_HEADER_LEN) & !7).max(8)
        } else {
            message.len().max(1)
        };
        self.six.ident = self.six.ident.wrapping_add(u32::from(fragmented));
        let pieces = message.len().div_ceil(piece_len);
        for (number, piece) in message.chunks(piece_len).enumerate() {
            if *left == 0 || !out.has_room(loopback) {
                break;
            }
            let mut buffer = HeaderBuffer6::new();
            let mut ip = Ipv6Header {
                hop_limit,
                ..Ipv6Header::new(src, dst, ipv6::PROTOCOL_ICMPV6)
            };
            if fragmented {
                ip.next_header = ipv6::FRAGMENT;
                let fragment = FragmentHeader {
                    next_header: ipv6::PROTOCOL_ICMPV6,
                    offset: (number * piece_len) as u16,
                    more: number + 1 < pieces,
                    ident: self.six.ident,
                };
                buffer.ipv6(
                    link,
                    self.config.mac,
                    &ip,
                    FRAGMENT_HEADER_LEN + piece.len(),
                );
                buffer.append(|buf| fragment.emit(buf));
            } else {
                buffer.ipv6(link, self.config.mac, &ip, piece.len());
            }
            let offload = TxOffload {
                loopback,
                header_len: buffer.len() as u16,
                ..TxOffload::default()
            };
            out.send(buffer.bytes(), TxPayload::Bytes(piece), &offload);
            *left -= 1;
        }
    }
}
