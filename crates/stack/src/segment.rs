//! A TCP segment finds its connection; what comes of it is told to the host.

use core::net::Ipv4Addr;

use sidecore_tcp::{CloseReason, DropReason, Instant, Notice, Outcome, RxRange, State, reset_for};
use sidecore_wire::{TcpFlags, TcpHeader, tcp};

use crate::connections::{Owner, flag};
use crate::control::Control;
use crate::flow::FlowKey;
use crate::host::Host;
use crate::input::{Packet, Place, Transport};
use crate::stack::Stack;

/// Where a segment's payload is.
#[derive(Clone, Copy)]
pub(crate) struct Payload<'a> {
    place: Place,
    bytes: &'a [u8],
    pub(crate) len: u32,
    /// Congestion was experienced on the way.
    ce: bool,
}

impl<'a> Payload<'a> {
    #[inline]
    pub(crate) fn new(transport: Transport<'a>, data_offset: usize) -> Self {
        Self {
            place: match transport.place {
                Place::Frame(start) => Place::Frame(start + data_offset as u32),
                Place::Buffer => Place::Buffer,
            },
            bytes: transport.bytes.get(data_offset..).unwrap_or_default(),
            len: transport.len.saturating_sub(data_offset) as u32,
            ce: transport.ce,
        }
    }
}

/// What is left to be done for a segment.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    Done,
    /// Its connection has given way to the new one that it asks for.
    Reincarnation,
}

#[inline]
fn key_of(src: Ipv4Addr, dst: Ipv4Addr, header: &TcpHeader) -> FlowKey {
    FlowKey {
        local_ip: dst,
        remote_ip: src,
        local_port: header.dst_port,
        remote_port: header.src_port,
    }
}

impl Stack {
    /// A TCP segment, if it is for a connection that exists; false if it is not, or if anything else is odd about it: then
    /// nothing was done.
    ///
    /// Addresses need no look here: a connection has good ones. `link` is [`flag::LOOPBACK`] or 0: so that nobody outside
    /// can speak for a connection within.
    #[inline]
    pub(crate) fn segment_for_known<H: Host>(
        &mut self,
        now: Instant,
        src: Ipv4Addr,
        dst: Ipv4Addr,
        link: u8,
        transport: Transport<'_>,
        host: &mut H,
    ) -> bool {
        let mut header = TcpHeader::default();
        let Ok(data_offset) = header.read(transport.bytes) else {
            return false;
        };
        let header = &header;
        let Some(index) = self.connections.find_again(&key_of(src, dst, header)) else {
            return false;
        };
        if self.connections[index].flags & flag::LOOPBACK != link {
            return false;
        }
        if !transport.verified && !tcp::verify_checksum_v4(src, dst, transport.bytes) {
            return false;
        }
        let payload = Payload::new(transport, data_offset);
        self.segment_arrives(now, index, header, payload, host) == Verdict::Done
    }

    /// A TCP packet for one of our addresses, about which something is unusual.
    #[cold]
    pub(crate) fn handle_tcp<H: Host>(&mut self, now: Instant, packet: &Packet<'_>, host: &mut H) {
        let transport = packet.transport;
        let Ok((header, data_offset)) = TcpHeader::parse(transport.bytes) else {
            self.counters.tcp_malformed += 1;
            return;
        };
        if !transport.verified && !tcp::verify_checksum_v4(packet.src, packet.dst, transport.bytes)
        {
            self.counters.tcp_bad_checksum += 1;
            return;
        }
        if packet.broadcast {
            // RFC 9293 MUST-57: "a TCP implementation MUST silently discard an incoming SYN segment that is addressed to
            // a broadcast or multicast address"; no other segment can belong to a connection.
            self.counters.tcp_to_nowhere += 1;
            return;
        }
        let payload = Payload::new(transport, data_offset);
        let found = self
            .connections
            .find(&key_of(packet.src, packet.dst, &header));
        let done = found.is_some_and(|index| {
            self.segment_arrives(now, index, &header, payload, host) == Verdict::Done
        });
        if !done {
            self.segment_for_nobody(now, &header, payload, packet, host);
        }
    }

    #[inline]
    pub(crate) fn segment_arrives<H: Host>(
        &mut self,
        now: Instant,
        index: u32,
        header: &TcpHeader,
        payload: Payload<'_>,
        host: &mut H,
    ) -> Verdict {
        self.counters.tcp_segments_in += 1;
        if self.connections[index].owner == Owner::Listener
            && !self.may_establish(now, index, header, payload.len, host)
        {
            return Verdict::Done;
        }
        let slot = &mut self.connections[index];
        let mut seq = header.seq;
        if header.flags.contains(TcpFlags::SYN) {
            if slot.tcp.state() == State::SynSent {
                slot.irs = seq;
            }
            seq = seq.add(1);
        }
        let mut out_of_order_room = true;
        if payload.len > 0
            && let Some(in_order) = slot.accepts(seq, payload.len)
        {
            let room = match slot.owner {
                Owner::Host => host.room(slot.user, payload.len, in_order),
                // No host knows it yet: what completes the handshake may bring data, nothing is kept out of order.
                Owner::Listener => in_order,
                // TCP answers with a reset.
                Owner::Closed | Owner::Stack | Owner::Free => true,
            };
            if in_order && !room {
                self.counters.tcp_no_room += 1;
                return Verdict::Done;
            }
            out_of_order_room = room;
        }
        if !payload.ce
            && let Some(outcome) =
                slot.tcp
                    .handle_predicted(now, header, payload.len, &mut self.ranges)
        {
            self.common_outcome(index, &outcome, payload, host);
            // An acknowledgement that may wait, and be carried by the answer, needs no look at the turn's end.
            self.touch_if_due(index);
            return Verdict::Done;
        }
        self.unpredicted(now, index, header, &{ payload }, out_of_order_room, host)
    }

    /// A segment that header prediction leaves.
    #[inline(never)]
    fn unpredicted<H: Host>(
        &mut self,
        now: Instant,
        index: u32,
        header: &TcpHeader,
        payload: &Payload<'_>,
        out_of_order_room: bool,
        host: &mut H,
    ) -> Verdict {
        let (tcp, ranges) = (&mut self.connections[index].tcp, &mut self.ranges);
        let outcome = if payload.ce {
            tcp.handle_marked_segment(now, header, payload.len, out_of_order_room, ranges)
        } else {
            tcp.handle_unpredicted(now, header, payload.len, out_of_order_room, ranges)
        };
        if is_rare(&outcome) {
            return self.rare_outcome(now, index, &outcome, payload, host);
        }
        self.common_outcome(index, &outcome, *payload, host);
        self.touch_if_due(index);
        Verdict::Done
    }

    /// What most segments bring: acknowledgments and data.
    #[inline]
    pub(crate) fn common_outcome<H: Host>(
        &mut self,
        index: u32,
        outcome: &Outcome,
        payload: Payload<'_>,
        host: &mut H,
    ) {
        let slot = &self.connections[index];
        if !matches!(slot.owner, Owner::Host | Owner::Closed) {
            return;
        }
        let (user, id) = (slot.user, self.connections.id(index));
        if outcome.acked {
            host.acknowledged(user, id, slot.tcp.send_una());
        }
        let mut in_order = outcome.fin;
        if let Some(range) = outcome.accept {
            let RxRange {
                len, stream_offset, ..
            } = range;
            match payload.place {
                Place::Frame(start) => {
                    let offset = start + range.payload_offset;
                    host.store(user, id, offset, len, stream_offset, range.in_order);
                }
                Place::Buffer => {
                    let start = range.payload_offset as usize;
                    let bytes = payload.bytes.get(start..start + len as usize);
                    let bytes = bytes.unwrap_or_default();
                    host.store_bytes(user, id, bytes, stream_offset, range.in_order);
                }
            }
            self.counters.tcp_bytes_in += u64::from(len);
            if range.in_order {
                in_order = true;
            } else {
                self.counters.tcp_out_of_order += 1;
            }
        }
        if in_order {
            let receive_next = self.connections[index].tcp.receive_next();
            host.readable(user, id, receive_next, outcome.fin);
        }
    }

    /// A segment that was dropped, or that changed the connection's state.
    #[cold]
    fn rare_outcome<H: Host>(
        &mut self,
        now: Instant,
        index: u32,
        outcome: &Outcome,
        payload: &Payload<'_>,
        host: &mut H,
    ) -> Verdict {
        if let Some(reason) = outcome.dropped {
            self.count_drop(reason);
        }
        if outcome.challenge && !self.challenges.take(now) {
            self.counters.challenges_withheld += 1;
            self.connections[index].tcp.withhold_challenge();
        }
        if outcome.notice == Some(Notice::Respawn) {
            return self.give_way(index);
        }
        if outcome.established && !self.established(now, index, host) {
            return Verdict::Done;
        }
        if outcome.notice == Some(Notice::Urgent) {
            self.urgent_ahead(index, host);
        }
        self.common_outcome(index, outcome, *payload, host);
        match outcome.closed {
            Some(reason) => {
                self.ended(index, reason, host);
                self.touch(index);
            }
            None => self.touch_if_due(index),
        }
        Verdict::Done
    }

    /// The host hears of urgent data before it gets any of it.
    fn urgent_ahead<H: Host>(&mut self, index: u32, host: &mut H) {
        let slot = &self.connections[index];
        let id = self.connections.id(index);
        if slot.owner == Owner::Host
            && let Some(end) = slot.tcp.urgent_receive_end()
        {
            host.urgent(slot.user, id, end);
        }
    }

    /// The handshake is complete; false if the host does not want the connection.
    fn established<H: Host>(&mut self, now: Instant, index: u32, host: &mut H) -> bool {
        let slot = &self.connections[index];
        let id = self.connections.id(index);
        if slot.owner != Owner::Listener {
            if self.early_is_established(index) {
                return true;
            }
            self.learn_fast_open(now, index);
            self.counters.active_established += 1;
            let slot = &self.connections[index];
            if slot.owner == Owner::Host {
                host.connected(slot.user, id);
            }
            return true;
        }
        let (local, remote) = self.connections.addresses(index);
        let listener = self.leave_listener(index);
        let accepted = listener.and_then(|user| host.incoming(user, id, local, remote));
        let slot = &mut self.connections[index];
        match accepted {
            Some((user, receive_limit)) => {
                slot.owner = Owner::Host;
                slot.user = user;
                slot.tcp.set_receive_limit(receive_limit);
                self.counters.passive_established += 1;
                true
            }
            None => {
                self.counters.incoming_refused += 1;
                slot.tcp.abort(now);
                self.connections.detach(index);
                self.touch(index);
                false
            }
        }
    }

    /// TCP is done with a connection.
    pub(crate) fn ended<H: Host>(&mut self, index: u32, reason: CloseReason, host: &mut H) {
        match reason {
            CloseReason::Reset | CloseReason::Refused => self.counters.resets_in += 1,
            CloseReason::TimedOut | CloseReason::Unreachable => self.counters.timed_out += 1,
            CloseReason::Normal | CloseReason::Aborted => {}
        }
        self.counters.connections_ended += 1;
        self.fast_open_ended(index, reason);
        let slot = &self.connections[index];
        let (user, id) = (slot.user, self.connections.id(index));
        match slot.owner {
            Owner::Host if reason == CloseReason::Normal => {
                // The host has not closed it yet and may still ask about it; others may have its addresses.
                self.connections.finish(index);
                return;
            }
            Owner::Host | Owner::Closed => host.closed(user, id, reason),
            Owner::Listener => {
                self.leave_listener(index);
            }
            Owner::Stack | Owner::Free => {}
        }
        self.connections.detach(index);
    }

    /// A new SYN came for a connection in TIME-WAIT, which gives way if somebody listens there.
    fn give_way(&mut self, index: u32) -> Verdict {
        let (local, _) = self.connections.addresses(index);
        if !self.listeners.is_bound(local) {
            self.counters.tcp_dropped_suspicious += 1;
            return Verdict::Done;
        }
        self.note_predecessor(index);
        if self.connections[index].owner == Owner::Stack {
            self.free(index);
        } else {
            // The host still has an id for it; only its addresses are free.
            self.connections.finish(index);
        }
        self.counters.time_wait_reused += 1;
        Verdict::Reincarnation
    }

    /// A segment for which there is no connection: a SYN for a listener, or one to be reset.
    #[cold]
    fn segment_for_nobody<H: Host>(
        &mut self,
        now: Instant,
        header: &TcpHeader,
        payload: Payload<'_>,
        packet: &Packet<'_>,
        host: &mut H,
    ) {
        // RFC 9293 section 3.10.7.2: a listener ignores RST, answers ACK with a reset, and takes SYN.
        let others = TcpFlags::ACK | TcpFlags::RST;
        if header.flags.contains(TcpFlags::SYN)
            && !header.flags.intersects(others)
            && self.syn_arrives(now, header, payload, packet, host)
        {
            return;
        }
        let listener = self.listeners.heard(packet.dst, header.dst_port);
        if let Some(at) = listener
            && let Some(endpoints) = self.endpoints_of(header, packet)
            && self.cookie_returns(now, header, payload, at, endpoints, host)
        {
            return;
        }
        self.counters.tcp_to_nowhere += 1;
        // RFC 9293 section 3.10.7.2: what comes to a listener with none of RST, ACK and SYN: "Drop the segment and return."
        let any = others | TcpFlags::SYN;
        if listener.is_some() && !header.flags.intersects(any) {
            return;
        }
        if let Some(reset) = reset_for(header, payload.len) {
            let reset = Control::reset(packet.link, packet.dst, packet.src, &reset);
            self.counters.tcp_resets_out += u64::from(self.push_control(reset));
        }
    }

    #[cold]
    fn count_drop(&mut self, reason: DropReason) {
        let counter = match reason {
            DropReason::Paws => &mut self.counters.tcp_dropped_paws,
            DropReason::OutOfWindow => &mut self.counters.tcp_dropped_out_of_window,
            DropReason::Duplicate => &mut self.counters.tcp_dropped_duplicate,
            DropReason::BadAck | DropReason::NoAck => &mut self.counters.tcp_dropped_bad_ack,
            DropReason::UnexpectedSyn | DropReason::BadReset => {
                &mut self.counters.tcp_dropped_suspicious
            }
            DropReason::NoRanges => &mut self.counters.tcp_dropped_no_ranges,
            DropReason::NoRoom => &mut self.counters.tcp_dropped_no_room,
            DropReason::Closed | DropReason::AfterFin | DropReason::AfterClose => {
                &mut self.counters.tcp_dropped_after_end
            }
        };
        *counter += 1;
    }

    /// What is left to be told of a connection that has sent all that was due: to be called after each such time.
    #[inline]
    pub(crate) fn settle<H: Host>(&mut self, index: u32, host: &mut H) {
        let slot = &self.connections[index];
        match slot.tcp.state() {
            State::TimeWait | State::Closed => self.settle_end(index, host),
            _ => self.connections.arm(index),
        }
    }

    #[cold]
    fn settle_end<H: Host>(&mut self, index: u32, host: &mut H) {
        let slot = &self.connections[index];
        let closed = slot.tcp.state() == State::Closed;
        if slot.owner == Owner::Closed {
            // TIME-WAIT needs nothing of the host, and what the host closes after the end has ended in all order. A
            // connection closed before there was one was aborted.
            let orderly = !closed || slot.has(flag::FINISHED);
            let reason = if orderly {
                CloseReason::Normal
            } else {
                CloseReason::Aborted
            };
            let (user, id) = (slot.user, self.connections.id(index));
            host.closed(user, id, reason);
            self.connections.detach(index);
        }
        if self.connections[index].owner == Owner::Stack {
            if closed {
                return self.free(index);
            }
            self.connections.enter_time_wait(index);
        }
        self.connections.arm(index);
    }
}

#[inline]
fn is_rare(outcome: &Outcome) -> bool {
    outcome.established
        || outcome.notice.is_some()
        || outcome.closed.is_some()
        || outcome.dropped.is_some()
}
