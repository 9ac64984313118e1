//! What waits for the end of the turn and belongs to no connection: resets, cookies, ARP packets, ICMP messages.

use core::net::Ipv4Addr;
use std::collections::VecDeque;

use sidecore_wire::{
    ArpPacket, Icmpv4, MacAddress, SeqNumber, TcpFlags, TcpHeader, TcpOptions, Timestamps,
    UnscaledWindow, WindowScale,
};

use crate::v6::Control6;

/// Bytes of ICMP messages that may wait.
const ARENA: usize = 128 << 10;

/// Where an answer goes: back where the question came from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Link {
    Loopback,
    Station(MacAddress),
}

/// A packet that waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Control {
    Arp {
        to: MacAddress,
        packet: ArpPacket,
    },
    /// A reset for a segment to nowhere.
    Reset {
        link: Link,
        src: Ipv4Addr,
        dst: Ipv4Addr,
        src_port: u16,
        dst_port: u16,
        seq: SeqNumber,
        ack: SeqNumber,
        flags: TcpFlags,
    },
    /// A SYN-ACK with a cookie, for a SYN of which nothing is kept.
    SynAck {
        link: Link,
        src: Ipv4Addr,
        dst: Ipv4Addr,
        answer: SynAck,
    },
    /// An ICMP message, in the arena.
    Icmp {
        link: Link,
        src: Ipv4Addr,
        dst: Ipv4Addr,
        start: u32,
        len: u32,
    },
    /// A datagram with its UDP header, in the arena. It fits the MTU.
    Datagram {
        to: MacAddress,
        src: Ipv4Addr,
        dst: Ipv4Addr,
        start: u32,
        len: u32,
    },
    /// An IGMP message, in the arena.
    Igmp {
        src: Ipv4Addr,
        dst: Ipv4Addr,
        start: u32,
        len: u32,
    },
    /// One of IPv6.
    Six(Control6),
}

/// What a SYN-ACK says, in few bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SynAck {
    src_port: u16,
    dst_port: u16,
    seq: SeqNumber,
    ack: SeqNumber,
    flags: TcpFlags,
    window: UnscaledWindow,
    mss: Option<u16>,
    window_scale: Option<WindowScale>,
    sack_permitted: bool,
    timestamps: Option<Timestamps>,
}

impl SynAck {
    pub(crate) const fn new(src_port: u16, dst_port: u16, header: &TcpHeader) -> Self {
        let options = &header.options;
        Self {
            src_port,
            dst_port,
            seq: header.seq,
            ack: header.ack,
            flags: header.flags,
            window: header.window,
            mss: options.mss,
            window_scale: options.window_scale,
            sack_permitted: options.sack_permitted,
            timestamps: options.timestamps,
        }
    }

    /// As a header.
    pub(crate) fn header(&self) -> TcpHeader {
        TcpHeader {
            src_port: self.src_port,
            dst_port: self.dst_port,
            seq: self.seq,
            ack: self.ack,
            flags: self.flags,
            window: self.window,
            options: TcpOptions {
                mss: self.mss,
                window_scale: self.window_scale,
                sack_permitted: self.sack_permitted,
                timestamps: self.timestamps,
                ..TcpOptions::NONE
            },
            ..TcpHeader::default()
        }
    }
}

impl Control {
    pub(crate) fn reset(link: Link, src: Ipv4Addr, dst: Ipv4Addr, header: &TcpHeader) -> Self {
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
    pub(crate) fn is_loopback(&self) -> bool {
        if let Self::Six(packet) = self {
            return packet.is_loopback();
        }
        matches!(
            self,
            Self::Reset {
                link: Link::Loopback,
                ..
            } | Self::SynAck {
                link: Link::Loopback,
                ..
            } | Self::Icmp {
                link: Link::Loopback,
                ..
            }
        )
    }
}

/// The queue. Its memory is taken once.
#[derive(Debug)]
pub(crate) struct ControlQueue {
    queue: VecDeque<Control>,
    limit: usize,
    arena: Vec<u8>,
    dropped: u64,
}

impl ControlQueue {
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            queue: VecDeque::with_capacity(limit),
            limit,
            arena: Vec::with_capacity(ARENA),
            dropped: 0,
        }
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// How many were dropped for want of room.
    pub(crate) const fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Adds a packet, or drops and counts it.
    pub(crate) fn push(&mut self, packet: Control) -> bool {
        let fits = self.queue.len() < self.limit;
        if fits {
            self.queue.push_back(packet);
        } else {
            self.dropped += 1;
        }
        fits
    }

    /// Adds an ICMP message with its data, or drops and counts it.
    pub(crate) fn push_icmp(
        &mut self,
        link: Link,
        src: Ipv4Addr,
        dst: Ipv4Addr,
        message: &Icmpv4,
        data: &[u8],
    ) -> bool {
        let len = message.len() + data.len();
        self.push_message(
            len,
            |buf| message.emit(buf, data),
            |start, len| Control::Icmp {
                link,
                src,
                dst,
                start,
                len,
            },
        )
    }

    /// Adds what `packet` makes of the place of a message of `len` bytes, which `emit` writes, or drops and counts it.
    pub(crate) fn push_message(
        &mut self,
        len: usize,
        emit: impl FnOnce(&mut [u8]) -> usize,
        packet: impl FnOnce(u32, u32) -> Control,
    ) -> bool {
        let start = self.arena.len();
        if self.queue.len() >= self.limit || start + len > ARENA {
            self.dropped += 1;
            return false;
        }
        self.arena.resize(start + len, 0);
        emit(&mut self.arena[start..]);
        self.push(packet(start as u32, len as u32))
    }

    /// The oldest packet.
    pub(crate) fn front(&self) -> Option<Control> {
        self.queue.front().copied()
    }

    /// An ICMP message's bytes.
    pub(crate) fn message(&self, start: u32, len: u32) -> &[u8] {
        let start = start as usize;
        self.arena
            .get(start..start.saturating_add(len as usize))
            .unwrap_or_default()
    }

    /// The oldest packet was sent.
    pub(crate) fn pop(&mut self) {
        self.queue.pop_front();
        if self.queue.is_empty() {
            self.arena.clear();
        }
    }
}
