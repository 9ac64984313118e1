//! IPv6 packets in.

use core::net::Ipv6Addr;

use sidecore_tcp::Instant;
use sidecore_wire::{Ipv6Header, MacAddress, ParseError, ecn, ipv6};

use super::address::{Destination6, is_unicast};
use crate::connections::flag;
use crate::control::Link;
use crate::host::Host;
use crate::input::{Place, Transport};
use crate::stack::Stack;

/// An IPv6 packet for us.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Packet6<'a> {
    pub(crate) header: Ipv6Header,
    pub(crate) transport: Transport<'a>,
    /// The packet from its IP header on, for errors that quote it; `None` if it came in fragments.
    pub(crate) quotable: Option<&'a [u8]>,
    /// Where answers go.
    pub(crate) link: Link,
    /// It was sent to a group, in the Ethernet or in the IP header.
    pub(crate) multicast: bool,
    /// Only neighbour discovery may look at it: it comes from nobody or from an address of ours, or goes to one that is not
    /// yet ours.
    pub(crate) discovery_only: bool,
}

impl Packet6<'_> {
    pub(crate) const fn src(&self) -> Ipv6Addr {
        self.header.src
    }

    pub(crate) const fn dst(&self) -> Ipv6Addr {
        self.header.dst
    }

    /// The station of the link that it came from.
    pub(crate) const fn station(&self) -> Option<MacAddress> {
        match self.link {
            Link::Station(mac) => Some(mac),
            Link::Loopback => None,
        }
    }
}

/// An IP header's way here.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrival6 {
    pub(crate) link: Link,
    /// Bytes of the frame before the IP header.
    pub(crate) offset: usize,
    pub(crate) verified: bool,
    /// The frame was sent to a group.
    pub(crate) multicast: bool,
}

impl Arrival6 {
    pub(crate) const LOOPBACK: Self = Self {
        link: Link::Loopback,
        offset: 0,
        verified: true,
        multicast: false,
    };
}

impl Stack {
    /// `len` is that of the packet with its padding, of which `packet` is the start.
    #[inline(never)]
    pub(crate) fn handle_ipv6<H: Host>(
        &mut self,
        now: Instant,
        arrival: Arrival6,
        packet: &[u8],
        len: usize,
        host: &mut H,
    ) {
        if !self.six.enabled() {
            self.counters.ethernet_other_protocol += 1;
            return;
        }
        self.counters.ipv6_in += 1;
        let loopback = arrival.link == Link::Loopback;
        // Of a loopback frame only the headers need be there.
        let parsed = Ipv6Header::parse_quoted(packet).and_then(|(header, payload)| {
            let fits = payload.end <= len && (loopback || payload.end <= packet.len());
            fits.then_some((header, payload))
                .ok_or(ParseError::Truncated)
        });
        let Ok((header, payload)) = parsed else {
            self.counters.ip_malformed += 1;
            return;
        };
        let end = payload.end.min(packet.len());
        let transport = Transport {
            bytes: packet.get(payload.start..end).unwrap_or_default(),
            len: payload.len(),
            place: Place::Frame((arrival.offset + payload.start) as u32),
            verified: arrival.verified,
            ce: ecn::is_ce(header.traffic_class),
        };
        if header.next_header == ipv6::PROTOCOL_TCP && !arrival.multicast {
            let link = if loopback { flag::LOOPBACK } else { 0 };
            if self.segment_for_known6(now, &header, link, transport, host) {
                return;
            }
        }
        let quotable = packet.get(..end);
        self.handle_other6(now, &arrival, &header, transport, quotable, host);
    }

    /// A packet that is no segment of a connection that exists.
    #[cold]
    fn handle_other6<H: Host>(
        &mut self,
        now: Instant,
        arrival: &Arrival6,
        header: &Ipv6Header,
        transport: Transport<'_>,
        quotable: Option<&[u8]>,
        host: &mut H,
    ) {
        let Some((multicast, discovery_only)) = self.admit6(arrival, header) else {
            return;
        };
        let packet = Packet6 {
            header: *header,
            transport,
            quotable,
            link: arrival.link,
            multicast: arrival.multicast || multicast,
            discovery_only,
        };
        self.handle_chain(now, &packet, host);
    }

    /// Whether the packet is for us and may come from where it says: whether it is for a group, and whether only neighbour
    /// discovery may see it.
    fn admit6(&mut self, arrival: &Arrival6, header: &Ipv6Header) -> Option<(bool, bool)> {
        let (src, dst) = (header.src, header.dst);
        if arrival.link == Link::Loopback {
            let group = self.listens_to6(dst);
            let ours = self.six.addresses.is_local(dst) || group;
            let ours = ours && self.six.addresses.is_local(src);
            self.counters.ip_other_destination += u64::from(!ours);
            return ours.then_some((group, false));
        }
        // RFC 4291 section 2.5.3: "A packet received on an interface with a destination address of loopback must be dropped."
        let mut destination = self.six.addresses.classify(dst);
        if destination == Destination6::Other && self.listens_to6(dst) {
            destination = Destination6::Group;
        }
        if destination == Destination6::Other {
            self.counters.ip_other_destination += 1;
            return None;
        }
        // Section 2.5.3 and 2.7: neither the loopback address nor a group is a source. Who checks an address has none (section
        // 2.5.2); and who has ours should not, which neighbour discovery is to see (RFC 4861 section 7.2.5).
        let odd = src.is_unspecified() || self.six.addresses.is_assigned(src);
        if !odd && (!is_unicast(src) || src.is_loopback()) {
            self.counters.ip_bad_source += 1;
            return None;
        }
        let group = destination == Destination6::Group;
        let tentative = destination == Destination6::Tentative;
        Some((group, odd || tentative))
    }

    /// Whether packets to this address are for a group that somebody here is in.
    fn listens_to6(&self, dst: Ipv6Addr) -> bool {
        let groups = &self.six.groups;
        dst.is_multicast() && (self.six.addresses.is_member(dst) || groups.is_member(dst))
    }
}
