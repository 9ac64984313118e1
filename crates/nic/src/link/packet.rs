//! What a link knows about the packets in its frames: marks, sizes, and answers to senders of what is too big.

use sidecore_wire::ethernet::{ETHERTYPE_IPV4, ETHERTYPE_IPV6, EthernetHeader};
use sidecore_wire::ipv4::PROTOCOL_ICMP;
use sidecore_wire::ipv6::PROTOCOL_ICMPV6;
use sidecore_wire::{Icmpv4, Icmpv6, Ipv4Header, Ipv6Header, checksum, icmpv4};

/// Bytes of an Ethernet header.
pub(super) const ETHERNET: usize = sidecore_wire::ethernet::HEADER_LEN;

/// "Congestion experienced" (RFC 3168 section 5), and the mask of the field.
const CE: u8 = 3;

/// Bytes of a packet that an ICMP error quotes: the error is no longer than 576 bytes (RFC 1812 section 4.3.2.3).
const QUOTED_V4: usize = 576 - 20 - 8;
/// With IPv6, no longer than the least MTU, 1280 (RFC 4443 section 2.4 (c)).
const QUOTED_V6: usize = 1280 - 40 - 8;

/// What a router may do with a frame that it wants to mark.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Marking {
    /// Mark it: its transport is ECN-capable.
    Capable,
    /// Drop it.
    NotCapable,
    /// Nothing: it is no IP packet.
    NoPacket,
}

/// What Ethernet carries, by its type field.
fn ethertype(frame: &[u8]) -> Option<u16> {
    let bytes = frame.get(12..ETHERNET)?.first_chunk()?;
    Some(u16::from_be_bytes(*bytes))
}

/// Whether the packet in a frame can be marked.
pub(super) fn marking(frame: &[u8]) -> Marking {
    let field = match (ethertype(frame), frame.get(ETHERNET + 1)) {
        (Some(ETHERTYPE_IPV4), Some(byte)) if frame.len() >= ETHERNET + 20 => *byte,
        // The traffic class lies across two bytes.
        (Some(ETHERTYPE_IPV6), Some(byte)) => *byte >> 4,
        _ => return Marking::NoPacket,
    };
    match field & CE {
        0 => Marking::NotCapable,
        _ => Marking::Capable,
    }
}

/// Sets CE in a frame of which [`marking`] says [`Marking::Capable`].
pub(super) fn mark(frame: &mut [u8]) {
    let kind = ethertype(frame);
    let Some(packet) = frame.get_mut(ETHERNET..) else {
        return;
    };
    if kind == Some(ETHERTYPE_IPV6) {
        if let Some(byte) = packet.get_mut(1) {
            *byte |= CE << 4;
        }
    } else if let Some(header) = packet.first_chunk_mut::<20>() {
        let old = u16::from_be_bytes([header[0], header[1]]);
        header[1] |= CE;
        let new = u16::from_be_bytes([header[0], header[1]]);
        let sum = u16::from_be_bytes([header[10], header[11]]);
        let sum = checksum::update16(sum, old, new);
        header[10..12].copy_from_slice(&sum.to_be_bytes());
    }
}

/// Bytes of the IP packet in a frame; `None`: there is none.
pub(super) fn packet_len(frame: &[u8]) -> Option<usize> {
    let is_ip = matches!(ethertype(frame), Some(ETHERTYPE_IPV4 | ETHERTYPE_IPV6));
    is_ip.then(|| frame.len() - ETHERNET)
}

/// A frame that tells the sender of `frame` that its packet is larger than `mtu` bytes. It speaks in the name of the station that the packet was for,
/// as the router has no address of its own. `None`: the sender is not to be told, since its packet might have been cut, or is an ICMP error or
/// multicast (RFC 1122 section 3.2.2, RFC 4443 section 2.4 (e)).
pub(super) fn too_big(frame: &[u8], mtu: u16) -> Option<Vec<u8>> {
    let (ethernet, at) = EthernetHeader::parse(frame).ok()?;
    let back = EthernetHeader {
        dst: ethernet.src,
        src: ethernet.dst,
        ethertype: ethernet.ethertype,
    };
    let packet = frame.get(at..)?;
    let mut answer = vec![0; ETHERNET];
    back.emit(&mut answer);
    match ethernet.ethertype {
        ETHERTYPE_IPV4 => answer.extend(too_big_v4(packet, mtu)?),
        ETHERTYPE_IPV6 => answer.extend(too_big_v6(packet, mtu)?),
        _ => return None,
    }
    Some(answer)
}

fn too_big_v4(packet: &[u8], mtu: u16) -> Option<Vec<u8>> {
    let (header, payload) = Ipv4Header::parse(packet).ok()?;
    let is_error = header.protocol == PROTOCOL_ICMP
        && Icmpv4::parse(&packet[payload]).is_ok_and(|(message, _)| message.is_error());
    if !header.dont_fragment || is_error || header.dst.is_multicast() || header.dst.is_broadcast() {
        return None;
    }
    let message = Icmpv4::DestinationUnreachable {
        code: icmpv4::UNREACHABLE_FRAGMENTATION_NEEDED,
        next_hop_mtu: mtu,
    };
    let quoted = packet.get(..QUOTED_V4).unwrap_or(packet);
    let ip = Ipv4Header::new(header.dst, header.src, PROTOCOL_ICMP);
    let mut answer = vec![0; ip.len() + message.len() + quoted.len()];
    let at = ip.emit(&mut answer, message.len() + quoted.len());
    message.emit(&mut answer[at..], quoted);
    Some(answer)
}

fn too_big_v6(packet: &[u8], mtu: u16) -> Option<Vec<u8>> {
    let (header, payload) = Ipv6Header::parse(packet).ok()?;
    // An ICMPv6 error has a type below 128 (RFC 4443 section 2.1).
    let is_error = header.next_header == PROTOCOL_ICMPV6
        && packet.get(payload.start).is_some_and(|kind| *kind < 128);
    if is_error || header.dst.is_multicast() {
        return None;
    }
    let message = Icmpv6::PacketTooBig { mtu: mtu.into() };
    let quoted = packet.get(..QUOTED_V6).unwrap_or(packet);
    let ip = Ipv6Header::new(header.dst, header.src, PROTOCOL_ICMPV6);
    let mut answer = vec![0; ip.len() + message.len() + quoted.len()];
    let at = ip.emit(&mut answer, message.len() + quoted.len());
    message.emit(ip.src, ip.dst, &mut answer[at..], quoted);
    Some(answer)
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use sidecore_wire::{EthernetHeader, MacAddress};

    use super::*;

    const STATIONS: [MacAddress; 2] = [
        MacAddress([2, 0, 0, 0, 0, 1]),
        MacAddress([2, 0, 0, 0, 0, 2]),
    ];

    fn framed(ethertype: u16, packet: &[u8]) -> Vec<u8> {
        let mut frame = vec![0; ETHERNET];
        let header = EthernetHeader {
            dst: STATIONS[1],
            src: STATIONS[0],
            ethertype,
        };
        header.emit(&mut frame);
        frame.extend_from_slice(packet);
        frame
    }

    /// A TCP packet of so many bytes of payload, with this ECN field.
    fn v4(ecn: u8, len: usize) -> Vec<u8> {
        let (src, dst) = (Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2));
        let header = Ipv4Header {
            dscp_ecn: 0xb8 | ecn,
            ..Ipv4Header::new(src, dst, 6)
        };
        let mut packet = vec![7; 20 + len];
        header.emit(&mut packet, len);
        framed(ETHERTYPE_IPV4, &packet)
    }

    fn v6(ecn: u8, len: usize) -> Vec<u8> {
        let (src, dst) = ("fd00::1".parse().unwrap(), "fd00::2".parse().unwrap());
        let header = Ipv6Header {
            traffic_class: 0xb8 | ecn,
            flow_label: 0xabcde,
            ..Ipv6Header::new(src, dst, 6)
        };
        let mut packet = vec![7; 40 + len];
        header.emit(&mut packet, len);
        framed(ETHERTYPE_IPV6, &packet)
    }

    #[test]
    fn what_is_ecn_capable_is_marked_and_stays_valid() {
        for ecn in 1..=3 {
            let (mut four, mut six) = (v4(ecn, 100), v6(ecn, 100));
            for frame in [&mut four, &mut six] {
                assert_eq!(marking(frame), Marking::Capable);
                mark(frame);
            }
            let (header, _) = Ipv4Header::parse(&four[ETHERNET..]).unwrap();
            assert_eq!(header.dscp_ecn, 0xb8 | 3);
            let (header, _) = Ipv6Header::parse(&six[ETHERNET..]).unwrap();
            assert_eq!(
                (header.traffic_class, header.flow_label),
                (0xb8 | 3, 0xabcde)
            );
        }
    }

    #[test]
    fn nothing_else_can_be_marked() {
        for (frame, expected) in [
            (v4(0, 100), Marking::NotCapable),
            (v6(0, 100), Marking::NotCapable),
            (framed(0x0806, &[0xff; 28]), Marking::NoPacket),
            (framed(ETHERTYPE_IPV4, &[0xff; 19]), Marking::NoPacket),
            (framed(ETHERTYPE_IPV6, &[]), Marking::NoPacket),
            (vec![1; 13], Marking::NoPacket),
        ] {
            assert_eq!(marking(&frame), expected, "{frame:?}");
        }
    }

    #[test]
    fn the_sender_of_what_is_too_big_is_told_how_much_is_not() {
        let frame = v4(0, 1480);
        assert_eq!(packet_len(&frame), Some(1500));
        let answer = too_big(&frame, 1400).unwrap();
        let (ethernet, at) = EthernetHeader::parse(&answer).unwrap();
        assert_eq!((ethernet.dst, ethernet.src), (STATIONS[0], STATIONS[1]));
        let packet = &answer[at..];
        let (header, payload) = Ipv4Header::parse(packet).unwrap();
        assert_eq!(header.dst, Ipv4Addr::new(10, 0, 0, 1));
        let (message, data) = Icmpv4::parse(&packet[payload.clone()]).unwrap();
        let expected = Icmpv4::DestinationUnreachable {
            code: 4,
            next_hop_mtu: 1400,
        };
        assert_eq!((message, packet.len()), (expected, 576));
        assert_eq!(
            packet[payload][data..],
            frame[ETHERNET..ETHERNET + QUOTED_V4]
        );

        let frame = v6(0, 1460);
        let answer = too_big(&frame, 1280).unwrap();
        let packet = &answer[ETHERNET..];
        let (header, payload) = Ipv6Header::parse(packet).unwrap();
        assert_eq!(header.dst, "fd00::1".parse::<Ipv6Addr>().unwrap());
        let (message, _) = Icmpv6::parse(header.src, header.dst, &packet[payload]).unwrap();
        assert_eq!(message, Icmpv6::PacketTooBig { mtu: 1280 });
        assert_eq!(packet.len(), 1280);
    }

    #[test]
    fn errors_are_not_answered_nor_what_might_be_cut() {
        let error = too_big(&v4(0, 600), 576).unwrap();
        assert_eq!(too_big(&error, 200), None);
        let error = too_big(&v6(0, 600), 576).unwrap();
        assert_eq!(too_big(&error, 200), None);
        let mut may_be_cut = v4(0, 600);
        let header = Ipv4Header {
            dont_fragment: false,
            ..Ipv4Header::parse(&may_be_cut[ETHERNET..]).unwrap().0
        };
        header.emit(&mut may_be_cut[ETHERNET..], 600);
        assert_eq!(too_big(&may_be_cut, 576), None);
        for nonsense in [
            vec![],
            vec![0; 20],
            framed(ETHERTYPE_IPV4, &[0x45; 30]),
            framed(0x0806, &[1; 900]),
        ] {
            assert_eq!(too_big(&nonsense, 576), None);
        }
        assert_eq!(packet_len(&framed(0x0806, &[1; 900])), None);
    }
}
