//! Ethernet, ARP and neighbour discovery, so that only IP is seen.

use sidecore_stack::StackConfig;
use sidecore_wire::ethernet::{ETHERTYPE_ARP, ETHERTYPE_IPV4, ETHERTYPE_IPV6};
use sidecore_wire::ipv6::PROTOCOL_ICMPV6;
use sidecore_wire::{
    ArpOperation, ArpPacket, EthernetHeader, Icmpv6, Ipv6Header, MacAddress, NdpMessage, ndp,
};

use crate::packet::Station;
use crate::packet6::Station6;

/// The link address of everybody else.
const PEER: MacAddress = MacAddress([2, 0, 0, 0, 0xff, 0xfe]);
/// Bytes of an Ethernet header.
const ETHERNET: usize = 14;

/// What becomes of a frame that the stack sends.
pub(super) enum Fate {
    /// It carries this IP packet.
    Leaves(Vec<u8>),
    /// It asked for a neighbour, who answers with this frame.
    Answered(Vec<u8>),
    /// It is about the link, and nobody answers.
    Swallowed,
}

/// The configuration of a stack that is silent about itself on the link, and knows its gateways.
pub(super) fn quiet(config: &StackConfig) -> StackConfig {
    let mut config = config.clone();
    config.arp.announce = false;
    config.ipv6.dad_transmits = 0;
    config.ipv6.accept_routers = false;
    config.neighbors.extend(config.gateway.map(|ip| (ip, PEER)));
    let gateway = config.ipv6.gateway.map(|ip| (ip, PEER));
    config.ipv6.neighbors.extend(gateway);
    config
}

/// A packet as it comes to the station `to`.
pub(super) fn frame(to: MacAddress, packet: &[u8]) -> Vec<u8> {
    let six = packet.first().is_some_and(|first| first >> 4 == 6);
    let mut frame = vec![0; ETHERNET];
    EthernetHeader {
        dst: to,
        src: PEER,
        ethertype: if six { ETHERTYPE_IPV6 } else { ETHERTYPE_IPV4 },
    }
    .emit(&mut frame);
    frame.extend_from_slice(packet);
    frame
}

/// What becomes of a frame from the station `mac`.
pub(super) fn judge(mac: MacAddress, mut frame: Vec<u8>) -> Fate {
    let packet = &frame[ETHERNET..];
    match u16::from_be_bytes([frame[12], frame[13]]) {
        ETHERTYPE_ARP => answer_arp(packet).map_or(Fate::Swallowed, Fate::Answered),
        ETHERTYPE_IPV6 => match about_the_link(packet) {
            Some(message) => {
                answer_solicitation(mac, message).map_or(Fate::Swallowed, Fate::Answered)
            }
            None => Fate::Leaves(frame.split_off(ETHERNET)),
        },
        _ => Fate::Leaves(frame.split_off(ETHERNET)),
    }
}

fn answer_arp(packet: &[u8]) -> Option<Vec<u8>> {
    let (request, _) = ArpPacket::parse(packet).ok()?;
    if request.operation != ArpOperation::Request {
        return None;
    }
    let (mac, ip) = (PEER, request.target_ip);
    let asker = Station {
        mac: request.sender_mac,
        ip: request.sender_ip,
    };
    Some(Station { mac, ip }.arp(ArpOperation::Reply, &asker))
}

/// The header and message of a packet about groups or neighbours; `None`: it is another packet.
fn about_the_link(packet: &[u8]) -> Option<(Ipv6Header, &[u8])> {
    /// Hop-by-hop options, which reports about groups begin with.
    const HOP_BY_HOP: u8 = 0;
    let (ip, payload) = Ipv6Header::parse(packet).ok()?;
    let message = packet.get(payload)?;
    let type_ = *message.first()?;
    let link = match ip.next_header {
        PROTOCOL_ICMPV6 => NdpMessage::is_type(type_),
        next => next == HOP_BY_HOP,
    };
    link.then_some((ip, message))
}

fn answer_solicitation(mac: MacAddress, (ip, message): (Ipv6Header, &[u8])) -> Option<Vec<u8>> {
    if ip.next_header != PROTOCOL_ICMPV6 || Icmpv6::parse(ip.src, ip.dst, message).is_err() {
        return None;
    }
    let NdpMessage::NeighborSolicitation { target, .. } = NdpMessage::parse(&ip, message).ok()?
    else {
        return None;
    };
    if ip.src.is_unspecified() {
        return None;
    }
    let neighbour = Station6 {
        mac: PEER,
        ip: target,
    };
    let asker = Station6 { mac, ip: ip.src };
    let answer = NdpMessage::NeighborAdvertisement {
        router: false,
        solicited: true,
        override_: true,
        target,
        target_link: Some(PEER),
    };
    debug_assert_eq!(ip.hop_limit, ndp::HOP_LIMIT);
    Some(neighbour.ndp(&asker, &answer))
}
