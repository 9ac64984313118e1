//! Neighbour solicitations and advertisements (RFC 4861 section 7.2).

use core::net::Ipv6Addr;

use sidecore_tcp::Instant;
use sidecore_wire::{Ipv6Header, MacAddress, NdpMessage, ipv6};

use super::address::{Addresses6, Status};
use super::neighbor::{Advertised, Place, Solicit};
use super::{Six, push_message};
use crate::control::{ControlQueue, Link};
use crate::host::Host;
use crate::stack::Stack;

impl Stack {
    /// A message of neighbour discovery came, from this station of the link. Its checksum is right.
    pub(super) fn handle_ndp<H: Host>(
        &mut self,
        now: Instant,
        ip: &Ipv6Header,
        message: &[u8],
        station: MacAddress,
        host: &mut H,
    ) {
        self.counters.ndp_in += 1;
        let Ok(message) = NdpMessage::parse(ip, message) else {
            self.counters.ndp_malformed += 1;
            return;
        };
        match message {
            NdpMessage::NeighborSolicitation {
                target,
                source_link,
            } => self.solicited(now, ip, target, source_link, station, host),
            NdpMessage::NeighborAdvertisement {
                router,
                solicited,
                override_,
                target,
                target_link,
            } => {
                let said = Advertised {
                    mac: target_link,
                    solicited,
                    override_,
                    router,
                };
                self.neighbor_advertised(now, target, &said, host);
            }
            NdpMessage::RouterAdvertisement(said) => {
                self.router_advertised(now, ip.src, &said, host);
            }
            NdpMessage::Redirect {
                target,
                destination,
                target_link,
            } => self.redirected(now, ip.src, (destination, target), target_link, host),
            // A host is nobody's router.
            NdpMessage::RouterSolicitation { .. } => {}
        }
        self.six.reschedule();
    }

    /// Somebody asks for a target (RFC 4861 section 7.2.3).
    fn solicited<H: Host>(
        &mut self,
        now: Instant,
        ip: &Ipv6Header,
        target: Ipv6Addr,
        source_link: Option<MacAddress>,
        station: MacAddress,
        host: &mut H,
    ) {
        if self.six.addresses.is_assigned(ip.src) {
            self.counters.addresses_contested += 1;
            return;
        }
        let probe = ip.src.is_unspecified();
        match self.six.addresses.find(target).map(|own| own.status) {
            Some(Status::Assigned) => {}
            // RFC 4862 section 5.4.3: another station checks the same address. Our own question, come back from the link,
            // says nothing.
            Some(Status::Tentative { .. }) if probe && station != self.mac() => {
                return self.address_is_taken(now, target);
            }
            _ => return,
        }
        if !probe
            && let Some(mac) = source_link.filter(|mac| mac.is_unicast())
            && self.six.addresses.is_neighbor(ip.src)
        {
            self.neighbor_heard(now, ip.src, mac, None, host);
        }
        // Section 7.2.4: to all nodes if nobody in particular asked.
        let (link, dst) = if probe {
            let all = ipv6::ALL_NODES;
            (ipv6::multicast_mac(all), all)
        } else {
            (
                source_link
                    .filter(|mac| mac.is_unicast())
                    .unwrap_or(station),
                ip.src,
            )
        };
        let answer = NdpMessage::NeighborAdvertisement {
            router: false,
            solicited: !probe,
            override_: true,
            target,
            target_link: Some(self.mac()),
        };
        self.push_ndp(Link::Station(link), target, dst, &answer);
    }

    /// A neighbour says where it is.
    fn neighbor_advertised<H: Host>(
        &mut self,
        now: Instant,
        target: Ipv6Addr,
        said: &Advertised,
        host: &mut H,
    ) {
        match self.six.addresses.find(target).map(|own| own.status) {
            // RFC 4862 section 5.4.4.
            Some(Status::Tentative { .. }) => return self.address_is_taken(now, target),
            Some(Status::Assigned) => {
                if said.mac != Some(self.mac()) {
                    self.counters.addresses_contested += 1;
                }
                return;
            }
            Some(Status::Duplicate) | None => {}
        }
        if said.mac.is_some_and(|mac| !mac.is_unicast()) {
            self.counters.ndp_malformed += 1;
            return;
        }
        let consequences = self.six.neighbors.advertised(now, target, said);
        if consequences.router_lost {
            // Section 7.2.5: "the node MUST remove that router from the Default Router List".
            self.forget_router(target);
        }
        if let Some(place) = consequences.wake {
            self.wake_waiting6(now, place, false, host);
        }
    }

    /// A neighbour's link address came along with something else.
    pub(super) fn neighbor_heard<H: Host>(
        &mut self,
        now: Instant,
        ip: Ipv6Addr,
        mac: MacAddress,
        router: Option<bool>,
        host: &mut H,
    ) {
        if let Some(place) = self.six.neighbors.heard(now, ip, mac, router) {
            self.wake_waiting6(now, place, false, host);
        }
    }

    /// Solicits again, and gives up those that do not answer.
    pub(super) fn neighbor_timers<H: Host>(&mut self, now: Instant, host: &mut H) {
        loop {
            let (control, addresses, mac) =
                (&mut self.control, &self.six.addresses, self.config.mac);
            let mut asked = 0;
            let failed = self.six.neighbors.expire(now, |question| {
                asked += 1;
                solicit(control, addresses, now, mac, question);
            });
            self.counters.ndp_out += asked;
            let Some(place) = failed else { break };
            self.counters.ndp_failed += 1;
            let gone = self.six.neighbors.entry_mut(place).ip;
            // RFC 4861 section 7.3.3: what went that way looks for another.
            self.six.addresses.redirects.retain(|(_, hop)| *hop != gone);
            self.wake_waiting6(now, place, true, host);
        }
        self.counters.ndp_evicted = self.six.neighbors.evicted;
    }

    /// Those that waited for a neighbour go on: to send, or to learn that they cannot.
    fn wake_waiting6<H: Host>(&mut self, now: Instant, place: Place, failed: bool, host: &mut H) {
        loop {
            let entry = self.six.neighbors.entry_mut(place);
            let Some(index) = entry.waiting.pop_front(self.connections.slots()) else {
                break;
            };
            self.leave_neighbor(now, index, failed, host);
        }
        let entry = self.six.neighbors.entry_mut(place);
        let ip = entry.ip;
        if core::mem::take(&mut entry.datagrams_wait) {
            self.wake_datagrams(ip.into(), host);
        }
    }
}

/// Queues a solicitation (RFC 4861 section 7.2.2).
pub(super) fn solicit(
    control: &mut ControlQueue,
    addresses: &Addresses6,
    now: Instant,
    mac: MacAddress,
    question: Solicit,
) {
    let source = addresses.source_for(now, question.ip);
    let (link, dst) = match question.at {
        Some(station) => (station, question.ip),
        None => {
            let group = ipv6::solicited_node(question.ip);
            (ipv6::multicast_mac(group), group)
        }
    };
    // From nobody it would be a probe for an address of our own.
    let Some(src) = source else { return };
    let message = NdpMessage::NeighborSolicitation {
        target: question.ip,
        source_link: Some(mac),
    };
    let envelope = Six::ndp(Link::Station(link), src, dst);
    push_message(control, &envelope, message.len(), |buf| {
        message.emit(src, dst, buf)
    });
}
