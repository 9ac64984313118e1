//! Frames in: Ethernet and IPv4. IPv6 is in `v6`.

use core::net::Ipv4Addr;

use sidecore_tcp::Instant;
use sidecore_wire::ethernet::{ETHERTYPE_ARP, ETHERTYPE_IPV4, ETHERTYPE_IPV6};
use sidecore_wire::ipv4::{PROTOCOL_ICMP, PROTOCOL_TCP, PROTOCOL_UDP};
use sidecore_wire::{EthernetHeader, Ipv4Header, ParseError, ecn, ethernet, igmp};

use crate::address::Destination;
use crate::connections::flag;
use crate::control::Link;
use crate::host::Host;
use crate::reassembly::{Key4, Part, Progress};
use crate::stack::Stack;
use crate::v6::Arrival6;

/// What is known of a frame's transport checksum.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum RxChecksum {
    /// Nothing: it is verified in software, for which all of the frame must be at hand.
    #[default]
    Unchecked,
    /// The device vouches for it, or the frame never left this machine.
    Valid,
}

/// Where a frame's connection probably is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FlowHint(u32);

impl FlowHint {
    /// Nothing is known.
    pub const NONE: Self = Self(u32::MAX);
}

/// What a frame's bytes do not say.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FrameMeta {
    /// The length of the whole frame, in bytes.
    pub len: usize,
    /// What is known of the transport checksum.
    pub checksum: RxChecksum,
    /// The frame comes from the loopback: it has no Ethernet header and starts with the IP header.
    pub loopback: bool,
}

/// Where a packet's transport bytes are for the host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Place {
    /// In the frame that is being handled, from this byte on.
    Frame(u32),
    /// In the reassembly buffer.
    Buffer,
}

/// What an IPv4 packet carries.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Transport<'a> {
    /// Transport header and payload: all of it, or of a loopback frame at least the header.
    pub(crate) bytes: &'a [u8],
    /// Length of transport header and payload.
    pub(crate) len: usize,
    pub(crate) place: Place,
    /// The transport checksum needs no look.
    pub(crate) verified: bool,
    /// Congestion was experienced (RFC 3168).
    pub(crate) ce: bool,
}

/// An IPv4 packet for us.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Packet<'a> {
    pub(crate) src: Ipv4Addr,
    pub(crate) dst: Ipv4Addr,
    pub(crate) transport: Transport<'a>,
    /// Time to live; of what came in fragments, that of the last.
    pub(crate) hops: u8,
    /// DSCP and ECN, likewise.
    pub(crate) class: u8,
    /// The packet from its IP header on, for errors that quote it; `None` if it came in fragments.
    pub(crate) quotable: Option<&'a [u8]>,
    /// Where answers go.
    pub(crate) link: Link,
    /// It was sent to all stations or to a group, in the Ethernet or in the IP header.
    pub(crate) broadcast: bool,
}

/// An IP header's way here.
#[derive(Clone, Copy)]
struct Arrival {
    link: Link,
    /// Bytes of the frame before the IP header.
    offset: usize,
    verified: bool,
    broadcast: bool,
}

impl Stack {
    /// Handles one frame.
    ///
    /// `head` is the contiguous start of the frame: all of it for a device's frame, at least all headers for a loopback
    /// frame. Offsets that the host is told count from its first byte. What is to be answered goes out with
    /// [`transmit`](Self::transmit).
    #[inline]
    pub fn handle_frame<H: Host>(
        &mut self,
        now: Instant,
        meta: &FrameMeta,
        head: &[u8],
        host: &mut H,
    ) {
        self.counters.frames_in += 1;
        if meta.loopback {
            self.counters.loopback_in += 1;
            if head.first().is_some_and(|first| first >> 4 == 6) {
                return self.handle_ipv6(now, Arrival6::LOOPBACK, head, meta.len, host);
            }
            let arrival = Arrival {
                link: Link::Loopback,
                offset: 0,
                verified: true,
                broadcast: false,
            };
            return self.handle_ipv4::<true, H>(now, arrival, head, meta.len, host);
        }
        let Ok((ethernet, offset)) = EthernetHeader::parse(head) else {
            self.counters.ethernet_malformed += 1;
            return;
        };
        let broadcast = ethernet.dst != self.config.mac;
        if broadcast && !ethernet.dst.is_multicast() || ethernet.src.is_multicast() {
            self.counters.ethernet_other_station += 1;
            return;
        }
        let packet = &head[offset..];
        match ethernet.ethertype {
            ETHERTYPE_IPV4 => {
                let arrival = Arrival {
                    link: Link::Station(ethernet.src),
                    offset,
                    verified: meta.checksum == RxChecksum::Valid,
                    broadcast,
                };
                self.handle_ipv4::<false, H>(now, arrival, packet, packet.len(), host);
            }
            ETHERTYPE_IPV6 => {
                let arrival = Arrival6 {
                    link: Link::Station(ethernet.src),
                    offset,
                    verified: meta.checksum == RxChecksum::Valid,
                    multicast: broadcast,
                };
                self.handle_ipv6(now, arrival, packet, packet.len(), host);
            }
            ETHERTYPE_ARP => self.handle_arp(now, packet, host),
            _ => self.counters.ethernet_other_protocol += 1,
        }
    }

    /// Touches what the frame's look-up will need, without waiting for it: for all frames of a burst before the first
    /// is handled. Optional, and never wrong: it changes nothing.
    #[inline]
    pub fn prefetch(&self, head: &[u8]) -> FlowHint {
        let packet = head.get(ethernet::HEADER_LEN..).unwrap_or_default();
        flow_of(packet).map_or(FlowHint::NONE, |key| {
            FlowHint(self.connections.touch_flow(&key))
        })
    }

    /// The frame that is handled next gave this hint. Saves its look-up; never wrong, even if the hint is.
    #[inline]
    pub fn expect(&mut self, hint: FlowHint) {
        self.connections.expect(hint.0);
    }

    /// `len` is that of the packet with its padding, of which `packet` is the start.
    #[inline]
    fn handle_ipv4<const LOOPBACK: bool, H: Host>(
        &mut self,
        now: Instant,
        arrival: Arrival,
        packet: &[u8],
        len: usize,
        host: &mut H,
    ) {
        let parsed = if LOOPBACK {
            Ipv4Header::parse_quoted(packet).and_then(|(header, payload)| {
                let fits = payload.end <= len;
                fits.then_some((header, payload))
                    .ok_or(ParseError::Truncated)
            })
        } else {
            Ipv4Header::parse(packet)
        };
        // By reference: the header is not moved once more.
        let (header, payload) = match &parsed {
            Ok(parsed) => parsed,
            Err(error) => return self.count_ip_error(*error),
        };
        let end = payload.end.min(packet.len());
        let Some(bytes) = packet.get(payload.start..end) else {
            self.counters.ip_malformed += 1;
            return;
        };
        let start = (arrival.offset + payload.start) as u32;
        if header.protocol == PROTOCOL_TCP && !header.is_fragment() && !arrival.broadcast {
            let transport = Transport {
                bytes,
                len: payload.len(),
                place: Place::Frame(start),
                verified: arrival.verified,
                ce: ecn::is_ce(header.dscp_ecn),
            };
            let link = if LOOPBACK { flag::LOOPBACK } else { 0 };
            if self.segment_for_known(now, header.src, header.dst, link, transport, host) {
                return;
            }
        }
        let quotable = packet.get(..end);
        let (header, arrival) = (&{ *header }, &{ arrival });
        let transport = Transport {
            bytes,
            len: payload.len(),
            place: Place::Frame(start),
            verified: arrival.verified,
            ce: ecn::is_ce(header.dscp_ecn),
        };
        self.handle_other::<LOOPBACK, H>(now, arrival, header, &transport, quotable, host);
    }

    /// A packet that is no segment of a connection that exists.
    #[cold]
    fn handle_other<const LOOPBACK: bool, H: Host>(
        &mut self,
        now: Instant,
        arrival: &Arrival,
        header: &Ipv4Header,
        transport: &Transport<'_>,
        quotable: Option<&[u8]>,
        host: &mut H,
    ) {
        let Some(to_all) = self.admit::<LOOPBACK>(header) else {
            return;
        };
        let packet = Packet {
            src: header.src,
            dst: header.dst,
            transport: *transport,
            hops: header.ttl,
            class: header.dscp_ecn,
            quotable,
            link: arrival.link,
            broadcast: arrival.broadcast || to_all,
        };
        if header.is_fragment() {
            self.handle_fragment(now, header, &packet, host);
        } else {
            self.handle_transport(now, header.protocol, &packet, host);
        }
    }

    /// Whether the packet is for us and may come from where it says; `Some(true)` if it is for all stations or for a group.
    #[inline]
    fn admit<const LOOPBACK: bool>(&mut self, header: &Ipv4Header) -> Option<bool> {
        if LOOPBACK {
            let group = self.listens_to(header.dst);
            let ours = self.addresses.is_local(header.dst) || group;
            let ours = ours && self.addresses.is_local(header.src);
            self.counters.ip_other_destination += u64::from(!ours);
            return ours.then_some(group);
        }
        let destination = self.addresses.classify(header.dst);
        let group = destination == Destination::Other && self.listens_to(header.dst);
        if destination == Destination::Other && !group {
            self.counters.ip_other_destination += 1;
            return None;
        }
        // RFC 1122 section 3.2.1.3: such addresses "MUST NOT appear" as a source; 127/8 "MUST NOT appear outside a host".
        // Nor does anybody else have our own address.
        // Switches that ask about groups have no address (RFC 4541 section 2.1.1), nor have hosts at their start (RFC 3376 section
        // 4.2.13).
        let src = header.src;
        let nobody = src.is_unspecified() && header.protocol == igmp::PROTOCOL;
        if !nobody && !self.addresses.is_unicast(src) || self.addresses.is_local(src) {
            self.counters.ip_bad_source += 1;
            return None;
        }
        Some(destination == Destination::Broadcast || group)
    }

    /// Whether packets to this address are for a group that somebody here is in; all systems' group is everybody's (RFC 1112 section
    /// 4).
    fn listens_to(&self, dst: Ipv4Addr) -> bool {
        dst.is_multicast() && (dst == igmp::ALL_SYSTEMS || self.groups.is_member(dst))
    }

    fn handle_transport<H: Host>(
        &mut self,
        now: Instant,
        protocol: u8,
        packet: &Packet<'_>,
        host: &mut H,
    ) {
        match protocol {
            PROTOCOL_TCP => self.handle_tcp(now, packet, host),
            PROTOCOL_UDP => self.handle_udp(now, packet, host),
            PROTOCOL_ICMP => self.handle_icmp(now, packet, host),
            igmp::PROTOCOL => self.handle_igmp(now, packet),
            _ => self.counters.ip_other_protocol += 1,
        }
    }

    #[cold]
    fn handle_fragment<H: Host>(
        &mut self,
        now: Instant,
        header: &Ipv4Header,
        packet: &Packet<'_>,
        host: &mut H,
    ) {
        self.counters.fragments_in += 1;
        let fragment = &packet.transport;
        if fragment.bytes.len() != fragment.len {
            // Our own loopback never cuts packets.
            self.counters.reassembly_malformed += 1;
            return;
        }
        let key = Key4::of(header);
        let part = Part {
            offset: usize::from(header.fragment_offset),
            more: header.more_fragments,
            protocol: header.protocol,
            ecn: header.dscp_ecn & ecn::MASK,
        };
        let progress = self.reassembly.add(now, key, &part, fragment.bytes);
        self.counters.reassembly_evicted = self.reassembly.evicted + self.six.reassembly.evicted;
        match progress {
            Progress::Incomplete => {}
            Progress::Malformed => self.counters.reassembly_malformed += 1,
            Progress::Complete(buffer) => {
                self.counters.reassembled += 1;
                let ce = self.reassembly.is_ce(buffer);
                let (bytes, len) = self.reassembly.take(buffer);
                let whole = Packet {
                    transport: Transport {
                        bytes: bytes.get(..len).unwrap_or_default(),
                        len,
                        place: Place::Buffer,
                        // What a device says of a checksum, it says of single fragments.
                        verified: false,
                        ce,
                    },
                    quotable: None,
                    ..*packet
                };
                self.handle_transport(now, header.protocol, &whole, host);
                self.reassembly.give_back(buffer, bytes);
            }
        }
    }

    #[cold]
    fn count_ip_error(&mut self, error: ParseError) {
        if error == ParseError::BadChecksum {
            self.counters.ip_bad_checksum += 1;
        } else {
            self.counters.ip_malformed += 1;
        }
    }
}

/// The flow of a packet that looks like TCP without IP options.
#[inline]
fn flow_of(packet: &[u8]) -> Option<crate::flow::FlowKey> {
    let h: &[u8; 24] = packet.first_chunk()?;
    if h[0] != 0x45 || h[9] != PROTOCOL_TCP {
        return None;
    }
    Some(crate::flow::FlowKey {
        local_ip: Ipv4Addr::new(h[16], h[17], h[18], h[19]),
        remote_ip: Ipv4Addr::new(h[12], h[13], h[14], h[15]),
        local_port: u16::from_be_bytes([h[22], h[23]]),
        remote_port: u16::from_be_bytes([h[20], h[21]]),
    })
}
