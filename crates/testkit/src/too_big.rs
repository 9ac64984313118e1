//! What a router says of a packet that is too long for its next link (RFC 1191 section 4, RFC 4443 section 3.2).

use std::net::{Ipv4Addr, Ipv6Addr};

use sidecore_wire::ethernet::{ETHERTYPE_IPV4, ETHERTYPE_IPV6};
use sidecore_wire::{EthernetHeader, Icmpv4, Icmpv6, Ipv4Header, Ipv6Header, MacAddress, icmpv4};

use crate::packet::Station;
use crate::packet6::Station6;

/// The router, on the link of both nodes.
const MAC: MacAddress = MacAddress([2, 0, 0, 0, 0, 254]);

/// The frame for the sender of `frame`; `None` if that is nothing that a router would answer.
pub(crate) fn answer(frame: &[u8], mtu: u16) -> Option<Vec<u8>> {
    let (ethernet, offset) = EthernetHeader::parse(frame).ok()?;
    let packet = &frame[offset..];
    let quote = &packet[..packet.len().min(128)];
    match ethernet.ethertype {
        ETHERTYPE_IPV4 => {
            let (header, _) = Ipv4Header::parse(packet).ok()?;
            let router = Station {
                mac: MAC,
                ip: Ipv4Addr::new(10, 0, 0, 254),
            };
            let sender = Station {
                mac: ethernet.src,
                ip: header.src,
            };
            let message = Icmpv4::DestinationUnreachable {
                code: icmpv4::UNREACHABLE_FRAGMENTATION_NEEDED,
                next_hop_mtu: mtu,
            };
            Some(router.icmp(&sender, &message, quote))
        }
        ETHERTYPE_IPV6 => {
            let (header, _) = Ipv6Header::parse(packet).ok()?;
            let router = Station6 {
                mac: MAC,
                ip: Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 254),
            };
            let sender = Station6 {
                mac: ethernet.src,
                ip: header.src,
            };
            let message = Icmpv6::PacketTooBig { mtu: mtu.into() };
            Some(router.icmp(&sender, &message, quote))
        }
        _ => None,
    }
}
