//! Frames out, at the end of a turn.

use core::net::Ipv4Addr;
use core::ops::Range;

use sidecore_tcp::{CloseReason, Instant, State, TxLimits, TxSegment};
use sidecore_wire::ethernet::{ETHERTYPE_ARP, ETHERTYPE_IPV4};
use sidecore_wire::ipv4::{PROTOCOL_ICMP, PROTOCOL_TCP, PROTOCOL_UDP};
use sidecore_wire::{
    ArpOperation, Ipv4Header, MacAddress, TcpHeader, UnscaledWindow, igmp, ipv4, tcp,
};

use crate::DETACHED;
use crate::arp::cache::Resolution;
use crate::arp::request_packet;
use crate::connections::{Owner, flag};
use crate::control::{Control, Link};
use crate::frame::HeaderBuffer;
use crate::frame::usual::UsualHeader;
use crate::host::Host;
use crate::sink::{FrameSink, SinkCaps, TxOffload, TxPayload};
use crate::stack::Stack;

/// Frames that one connection may send before the next one's turn comes.
pub(crate) const QUANTUM: usize = 4;

/// IP packets are at most this long, and so are super-segments; with all options.
const MAX_SUPER_SEGMENT: u32 = u16::MAX as u32 - 20 - 60;

/// What a connection did when its turn came.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Visit {
    /// It has sent all that it may for now.
    Done,
    /// Others first.
    QuantumUsed,
    /// The sink is full.
    NoRoom,
    /// Its neighbour's link address is being asked for.
    Waits,
}

impl Stack {
    /// Sends what is due, up to `budget` frames: resets, ARP and ICMP first, then connection by connection. Returns how many
    /// frames were sent.
    ///
    /// To be called at the end of each turn. Something may be left, for want of budget or of room in the sink: then
    /// [`has_work`](Self::has_work) stays true. `out` is host and sink in one, since both usually need the same tables.
    #[inline]
    pub fn transmit<O: Host + FrameSink>(
        &mut self,
        now: Instant,
        out: &mut O,
        budget: usize,
    ) -> usize {
        self.turn = now;
        if !self.has_work() {
            return 0;
        }
        self.transmit_all(now, out, budget)
    }

    #[inline(never)]
    fn transmit_all<O: Host + FrameSink>(
        &mut self,
        now: Instant,
        out: &mut O,
        budget: usize,
    ) -> usize {
        let caps = out.caps();
        let mut left = budget;
        if !self.control.is_empty() {
            self.transmit_control(out, &mut left);
        }
        // Neither way starves the other, and what one leaves the other gets.
        if !self.loopback_queue.is_empty() {
            let reserved = if self.link_queue.is_empty() {
                0
            } else {
                left / 2
            };
            let mut share = left - reserved;
            self.transmit_queue(now, true, &caps, out, &mut share);
            left = reserved + share;
        }
        if !self.link_queue.is_empty() {
            self.transmit_queue(now, false, &caps, out, &mut left);
        }
        if left > 0 && !self.loopback_queue.is_empty() {
            self.transmit_queue(now, true, &caps, out, &mut left);
        }
        if !self.control.is_empty() {
            // Requests for link addresses that came up on the way.
            self.transmit_control(out, &mut left);
        }
        let sent = budget - left;
        self.counters.frames_out += sent as u64;
        sent
    }

    /// Connections that may have something to send, each once.
    fn transmit_queue<O: Host + FrameSink>(
        &mut self,
        now: Instant,
        loopback: bool,
        caps: &SinkCaps,
        out: &mut O,
        left: &mut usize,
    ) {
        let most = caps.tso_max.min(MAX_SUPER_SEGMENT);
        let limits = TxLimits {
            max_segments_bytes: if loopback { 0 } else { most },
        };
        // With nothing in the way every connection is visited; those that come back have their next turn then.
        while *left > 0 && out.has_room(loopback) {
            let queue = if loopback {
                &mut self.loopback_queue
            } else {
                &mut self.link_queue
            };
            let Some(index) = queue.pop_front(self.connections.slots()) else {
                break;
            };
            let slot = &mut self.connections[index];
            slot.flags &= !flag::QUEUED;
            let visit = if slot.has(flag::V6) {
                self.visit6(now, index, loopback, &limits, out, left)
            } else {
                self.visit(now, index, loopback, &limits, out, left)
            };
            match visit {
                Visit::Done => self.settle(index, out),
                Visit::Waits => self.connections.arm(index),
                Visit::QuantumUsed | Visit::NoRoom => self.touch(index),
            }
        }
    }

    /// Lets one connection send.
    #[inline]
    fn visit<O: Host + FrameSink>(
        &mut self,
        now: Instant,
        index: u32,
        loopback: bool,
        limits: &TxLimits,
        out: &mut O,
        left: &mut usize,
    ) -> Visit {
        let slot = &self.connections[index];
        let known = self.neighbors.known(now, slot.next_hop, slot.neighbor);
        let link = match known {
            _ if loopback => Link::Loopback,
            Some(station) => Link::Station(station),
            None if !slot.tcp.wants_transmit() => return Visit::Done,
            None => match self.resolve(now, index) {
                Ok(Some(station)) => Link::Station(station),
                Ok(None) => return self.discard(now, index, out),
                Err(visit) => return visit,
            },
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
            // By reference: the segment is not moved once more.
            let polled = slot.tcp.poll_transmit(now, limits, &mut self.ranges);
            let Some(segment) = &polled else {
                return Visit::Done;
            };
            self.send_segment(index, link, segment, out);
            quantum -= 1;
            *left -= 1;
            if self.connections[index].tcp.has_nothing_to_send() {
                return Visit::Done;
            }
        }
        Visit::QuantumUsed
    }

    /// The link address of a connection's next hop, which is not known for certain; `Ok(None)` if it cannot be reached.
    #[cold]
    fn resolve(&mut self, now: Instant, index: u32) -> Result<Option<MacAddress>, Visit> {
        let slot = &self.connections[index];
        let (control, addresses, mac) = (&mut self.control, &self.addresses, self.config.mac);
        let resolution = self.neighbors.resolve(now, slot.next_hop, |request| {
            control.push(request_packet(request, mac, addresses));
        });
        match resolution {
            Resolution::Known(place, station) => {
                self.connections[index].neighbor = place;
                self.connections.neighbor = place;
                Ok(Some(station))
            }
            Resolution::Pending(place) => {
                let slot = &mut self.connections[index];
                slot.neighbor = place;
                slot.flags |= flag::WAITING;
                let waiting = &mut self.neighbors.entry_mut(place).waiting;
                waiting.push_back(self.connections.slots(), index);
                Err(Visit::Waits)
            }
            Resolution::Unreachable => Ok(None),
        }
    }

    /// The neighbour does not answer: what the connection sends is lost, so that its own timers decide how long it lasts.
    #[cold]
    pub(crate) fn discard<O: Host>(&mut self, now: Instant, index: u32, out: &mut O) -> Visit {
        let slot = &mut self.connections[index];
        if slot.tcp.state() == State::SynSent && slot.owner == Owner::Host {
            slot.tcp.abort(now);
            self.ended(index, CloseReason::Unreachable, out);
            return Visit::Done;
        }
        let limits = TxLimits::default();
        for _ in 0..QUANTUM {
            if slot
                .tcp
                .poll_transmit(now, &limits, &mut self.ranges)
                .is_none()
            {
                return Visit::Done;
            }
            self.counters.no_neighbor += 1;
        }
        Visit::QuantumUsed
    }

    #[inline]
    fn send_segment<O: FrameSink>(
        &mut self,
        index: u32,
        link: Link,
        segment: &TxSegment,
        out: &mut O,
    ) {
        let slot = &self.connections[index];
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
        let segment_size = if len > u32::from(size) { size } else { 0 };
        let offload = |start, header: &[u8]| TxOffload {
            checksum: Some((start, tcp::CHECKSUM_OFFSET as u16)),
            segment_size,
            loopback: link == Link::Loopback,
            header_len: header.len() as u16,
        };
        let (mac, key, header) = (self.config.mac, &slot.key, &segment.header);
        let station = match link {
            Link::Station(station) => station,
            Link::Loopback => MacAddress::UNSPECIFIED,
        };
        let usual = || UsualHeader::new(mac, station, key, header, len, segment.ecn);
        let usual = (!slot.has(flag::MARKED)).then(usual).flatten();
        // By reference: the header is not moved once more.
        match &usual {
            Some(usual) if link == Link::Loopback => {
                let header = usual.without_ethernet();
                let offload = offload(UsualHeader::TCP_START_LOOPBACK, header);
                out.send(header, bytes, &offload);
            }
            Some(usual) => {
                let header = usual.with_ethernet();
                out.send(header, bytes, &offload(UsualHeader::TCP_START, header));
            }
            None => {
                let mut buffer = HeaderBuffer::new();
                let start = buffer.segment(link, mac, key, header, len, segment.ecn);
                buffer.mark(start, slot);
                out.send(buffer.bytes(), bytes, &offload(start, buffer.bytes()));
            }
        }
        self.counters.tcp_segments_out += 1;
        self.counters.tcp_retransmissions += u64::from(segment.retransmission);
        self.counters.tcp_bytes_out += u64::from(len);
        self.counters.loopback_out += u64::from(link == Link::Loopback);
    }

    /// Resets, ARP packets, ICMP messages.
    #[cold]
    fn transmit_control<O: FrameSink>(&mut self, out: &mut O, left: &mut usize) {
        self.counters.control_dropped = self.control.dropped();
        self.counters.arp_evicted = self.neighbors.evicted;
        while let Some(packet) = self.control.front() {
            if *left == 0 || !out.has_room(packet.is_loopback()) {
                return;
            }
            match packet {
                Control::Arp { to, packet } => {
                    match packet.operation {
                        ArpOperation::Request => self.counters.arp_requests_out += 1,
                        ArpOperation::Reply => self.counters.arp_replies_out += 1,
                    }
                    send_arp(self.config.mac, to, |buf| packet.emit(buf), out);
                    *left -= 1;
                }
                Control::Reset { .. } => {
                    self.send_reset(packet, out);
                    *left -= 1;
                }
                Control::SynAck {
                    link,
                    src,
                    dst,
                    answer,
                } => {
                    self.send_answer(link, (src, dst), &answer.header(), out);
                    *left -= 1;
                }
                Control::Icmp { .. } => {
                    if !self.send_icmp(packet, out, left) {
                        return;
                    }
                }
                Control::Datagram {
                    to,
                    src,
                    dst,
                    start,
                    len,
                } => {
                    let link = Link::Station(to);
                    let ip = Ipv4Header::new(src, dst, PROTOCOL_UDP);
                    self.send_message(link, &ip, start..start + len, out);
                    *left -= 1;
                }
                Control::Igmp { .. } => {
                    self.send_igmp(packet, out);
                    *left -= 1;
                }
                Control::Six(packet) => self.send_control6(packet, out, left),
            }
            self.counters.loopback_out += u64::from(packet.is_loopback());
            self.control.pop();
        }
    }

    fn send_reset<O: FrameSink>(&mut self, packet: Control, out: &mut O) {
        let Control::Reset {
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
        self.send_answer(link, (src, dst), &header, out);
    }

    /// A segment of no connection, without payload.
    fn send_answer<O: FrameSink>(
        &mut self,
        link: Link,
        (src, dst): (Ipv4Addr, Ipv4Addr),
        header: &TcpHeader,
        out: &mut O,
    ) {
        let mut buffer = HeaderBuffer::new();
        let ip = Ipv4Header::new(src, dst, PROTOCOL_TCP);
        buffer.ipv4(link, self.config.mac, &ip, header.len());
        let start = buffer.tcp(src, dst, header, 0);
        let offload = TxOffload {
            checksum: Some((start, tcp::CHECKSUM_OFFSET as u16)),
            segment_size: 0,
            loopback: link == Link::Loopback,
            header_len: buffer.len() as u16,
        };
        out.send(buffer.bytes(), TxPayload::None, &offload);
        self.counters.tcp_segments_out += 1;
    }

    /// Sends what lies in the arena as one packet.
    fn send_message<O: FrameSink>(
        &self,
        link: Link,
        ip: &Ipv4Header,
        range: Range<u32>,
        out: &mut O,
    ) {
        let message = self.control.message(range.start, range.end - range.start);
        let mut buffer = HeaderBuffer::new();
        buffer.ipv4(link, self.config.mac, ip, message.len());
        let offload = TxOffload {
            loopback: link == Link::Loopback,
            header_len: buffer.len() as u16,
            ..TxOffload::default()
        };
        out.send(buffer.bytes(), TxPayload::Bytes(message), &offload);
    }

    /// Sends an IGMP message from the arena, with what RFC 3376 section 4 asks of its IP header.
    fn send_igmp<O: FrameSink>(&self, packet: Control, out: &mut O) {
        let Control::Igmp {
            src,
            dst,
            start,
            len,
        } = packet
        else {
            return;
        };
        let message = self.control.message(start, len);
        let ip = Ipv4Header {
            ttl: igmp::TTL,
            dscp_ecn: igmp::TOS,
            ..Ipv4Header::new(src, dst, igmp::PROTOCOL)
        };
        let mut buffer = HeaderBuffer::new();
        buffer.ethernet(self.config.mac, igmp::multicast_mac(dst), ETHERTYPE_IPV4);
        buffer.append(|buf| ip.emit_with_alert(buf, message.len()));
        let offload = TxOffload {
            header_len: buffer.len() as u16,
            ..TxOffload::default()
        };
        out.send(buffer.bytes(), TxPayload::Bytes(message), &offload);
    }

    /// Sends an ICMP message, in fragments if it is longer than the MTU; false if there was no room for all of it.
    fn send_icmp<O: FrameSink>(&mut self, packet: Control, out: &mut O, left: &mut usize) -> bool {
        let Control::Icmp {
            link,
            src,
            dst,
            start,
            len,
        } = packet
        else {
            return true;
        };
        let loopback = link == Link::Loopback;
        let mtu = usize::from(if loopback {
            self.config.loopback_mtu
        } else {
            self.config.mtu
        });
        let message = self.control.message(start, len);
        let most = mtu.saturating_sub(ipv4::MIN_HEADER_LEN);
        let fragmented = message.len() > most;
        let piece_len = if fragmented {
            (most & !7).max(8)
        } else {
            message.len().max(1)
        };
        if fragmented {
            self.ip_ident = self.ip_ident.wrapping_add(1);
        }
        let pieces = message.len().div_ceil(piece_len);
        for (number, piece) in message.chunks(piece_len).enumerate() {
            // A message of which the rest finds no room is lost, as any packet may be; ICMP is not worth more.
            if *left == 0 || !out.has_room(loopback) {
                break;
            }
            let mut ip = Ipv4Header::new(src, dst, PROTOCOL_ICMP);
            if fragmented {
                ip.dont_fragment = false;
                ip.ident = self.ip_ident;
                ip.fragment_offset = (number * piece_len) as u16;
                ip.more_fragments = number + 1 < pieces;
            }
            let mut buffer = HeaderBuffer::new();
            buffer.ipv4(link, self.config.mac, &ip, piece.len());
            let offload = TxOffload {
                loopback,
                header_len: buffer.len() as u16,
                ..TxOffload::default()
            };
            out.send(buffer.bytes(), TxPayload::Bytes(piece), &offload);
            *left -= 1;
        }
        true
    }
}

fn send_arp<O: FrameSink>(
    mac: MacAddress,
    to: MacAddress,
    emit: impl FnOnce(&mut [u8]) -> usize,
    out: &mut O,
) {
    let mut buffer = HeaderBuffer::new();
    buffer.ethernet(mac, to, ETHERTYPE_ARP);
    buffer.append(emit);
    let offload = TxOffload {
        header_len: buffer.len() as u16,
        ..TxOffload::default()
    };
    out.send(buffer.bytes(), TxPayload::None, &offload);
}
