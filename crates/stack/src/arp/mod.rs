//! ARP (RFC 826): the neighbour cache, and the packets that fill it.

pub(crate) mod cache;

use sidecore_tcp::Instant;
use sidecore_wire::{ArpOperation, ArpPacket, MacAddress, arp};

use crate::control::Control;
use crate::host::Host;
use crate::stack::Stack;
use cache::{Place, Request};

impl Stack {
    /// An ARP packet came. Only ARP changes the neighbour cache; other traffic never does.
    pub(crate) fn handle_arp<H: Host>(&mut self, now: Instant, packet: &[u8], host: &mut H) {
        self.counters.arp_in += 1;
        let packet = match ArpPacket::parse(packet) {
            Ok((packet, _)) if packet.sender_mac.is_unicast() => packet,
            _ => {
                self.counters.arp_malformed += 1;
                return;
            }
        };
        if self.dhcp.is_some() {
            self.check_dhcp_conflict(now, &packet);
        }
        let for_us = self.addresses.is_configured(packet.target_ip);
        if self.addresses.is_configured(packet.sender_ip) {
            // RFC 5227 section 2.4: another station has our address. It does not get into the cache; we say that it is
            // ours (at most as often as we are asked).
            if packet.sender_mac != self.config.mac {
                self.counters.arp_conflicts += 1;
            }
            return;
        }
        // RFC 5227: a probe comes from 0.0.0.0, teaches nothing, and is answered.
        let probe = packet.sender_ip.is_unspecified();
        if !probe && !self.addresses.is_neighbor(packet.sender_ip) {
            self.counters.arp_malformed += 1;
            return;
        }
        if !probe {
            // RFC 826: "if the pair <protocol type, sender protocol address> is already in my translation table, update";
            // "?Am I the target protocol address?" then add.
            let create = for_us && packet.operation == ArpOperation::Request;
            let (ip, mac) = (packet.sender_ip, packet.sender_mac);
            if let Some(place) = self.neighbors.learn(now, ip, mac, create) {
                self.wake_waiting(now, place, false, host);
            }
        }
        if for_us && packet.operation == ArpOperation::Request {
            self.answer_arp(&packet);
        }
    }

    fn answer_arp(&mut self, request: &ArpPacket) {
        let reply = ArpPacket {
            operation: ArpOperation::Reply,
            sender_mac: self.config.mac,
            sender_ip: request.target_ip,
            target_mac: request.sender_mac,
            target_ip: request.sender_ip,
        };
        self.push_control(Control::Arp {
            to: request.sender_mac,
            packet: reply,
        });
    }

    /// Announces the own addresses (RFC 5227 section 2.3): whoever knew another station there, now knows better.
    pub(crate) fn announce(&mut self) {
        for address in self.addresses.iter().collect::<Vec<_>>() {
            self.push_control(Control::Arp {
                to: MacAddress::BROADCAST,
                packet: ArpPacket {
                    operation: ArpOperation::Request,
                    sender_mac: self.config.mac,
                    sender_ip: address,
                    target_mac: MacAddress::UNSPECIFIED,
                    target_ip: address,
                },
            });
        }
    }

    /// Sends requests again, and gives up those that nobody answers.
    #[cold]
    pub(crate) fn handle_arp_timers<H: Host>(&mut self, now: Instant, host: &mut H) {
        loop {
            let (control, mac) = (&mut self.control, self.config.mac);
            let addresses = &self.addresses;
            let failed = self.neighbors.expire(now, |request| {
                control.push(request_packet(request, mac, addresses));
            });
            let Some(place) = failed else { break };
            self.counters.arp_failed += 1;
            self.wake_waiting(now, place, true, host);
        }
    }

    /// Those that waited for a neighbour go on: to send, or to learn that they cannot.
    fn wake_waiting<H: Host>(&mut self, now: Instant, place: Place, failed: bool, host: &mut H) {
        loop {
            let entry = self.neighbors.entry_mut(place);
            let Some(index) = entry.waiting.pop_front(self.connections.slots()) else {
                break;
            };
            self.leave_neighbor(now, index, failed, host);
        }
        let entry = self.neighbors.entry_mut(place);
        let ip = entry.ip;
        if core::mem::take(&mut entry.datagrams_wait) {
            self.wake_datagrams(ip.into(), host);
        }
    }
}

/// The packet for a request.
pub(crate) fn request_packet(
    request: Request,
    mac: MacAddress,
    addresses: &crate::address::Addresses,
) -> Control {
    let sender_ip = addresses
        .source_for(request.ip)
        .unwrap_or(core::net::Ipv4Addr::UNSPECIFIED);
    Control::Arp {
        to: request.at.unwrap_or(MacAddress::BROADCAST),
        packet: ArpPacket {
            operation: ArpOperation::Request,
            sender_mac: mac,
            sender_ip,
            target_mac: MacAddress::UNSPECIFIED,
            target_ip: request.ip,
        },
    }
}

const _: () = assert!(arp::PACKET_LEN == 28);
