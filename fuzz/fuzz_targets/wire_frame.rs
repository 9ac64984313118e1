//! A frame from the outside in, as the stack takes it: whatever is accepted lies within the frame, and is the same
//! after it was emitted and parsed again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sidecore_wire::{ArpPacket, EthernetHeader, Icmpv4, Ipv4Header, UdpHeader, ethernet, ipv4};

fuzz_target!(|frame: &[u8]| {
    let Ok((header, at)) = EthernetHeader::parse(frame) else {
        return;
    };
    let mut again = [0; ethernet::HEADER_LEN];
    header.emit(&mut again);
    assert_eq!(
        again,
        frame[..at],
        "every bit of an Ethernet header is kept"
    );
    match header.ethertype {
        ethernet::ETHERTYPE_ARP => arp(&frame[at..]),
        ethernet::ETHERTYPE_IPV4 => ip(&frame[at..]),
        _ => {}
    }
});

fn arp(bytes: &[u8]) {
    let Ok((packet, len)) = ArpPacket::parse(bytes) else {
        return;
    };
    let mut again = [0; 28];
    packet.emit(&mut again);
    assert_eq!(again, bytes[..len], "every bit of an ARP packet is kept");
}

fn ip(bytes: &[u8]) {
    // The checksum is not asked for: a fuzzer would seldom guess it.
    let Ok((header, payload)) = Ipv4Header::parse_unverified(bytes) else {
        return;
    };
    let mut again = vec![0; header.len() + payload.len()];
    header.emit(&mut again, payload.len());
    let (parsed, range) = Ipv4Header::parse(&again).expect("what is emitted is valid");
    let expected = Ipv4Header {
        header_len: 20,
        total_len: again.len() as u16,
        ..header
    };
    assert_eq!((parsed, range.len()), (expected, payload.len()));

    let payload = &bytes[payload];
    match header.protocol {
        ipv4::PROTOCOL_ICMP => icmp(payload),
        ipv4::PROTOCOL_UDP => udp(&header, payload),
        _ => {}
    }
}

fn icmp(message: &[u8]) {
    // Make the checksum right, so that the rest of the parser is reached.
    let mut message = message.to_vec();
    if message.len() >= 8 {
        message[2..4].fill(0);
        let checksum =
            sidecore_wire::checksum::complement(sidecore_wire::checksum::sum(&message, 0));
        message[2..4].copy_from_slice(&checksum.to_be_bytes());
    }
    let Ok((parsed, at)) = Icmpv4::parse(&message) else {
        return assert!(message.len() < 8, "only a short message is refused");
    };
    let mut again = vec![0; message.len()];
    parsed.emit(&mut again, &message[at..]);
    assert_eq!(Icmpv4::parse(&again), Ok((parsed, at)));
    if parsed.is_error() {
        quoted(&message[at..]);
    }
}

fn quoted(packet: &[u8]) {
    let Ok((_, payload)) = Ipv4Header::parse_quoted(packet) else {
        return;
    };
    let rest = &packet[payload.start..];
    assert_eq!(
        sidecore_wire::tcp::QuotedSegment::parse(rest).is_ok(),
        rest.len() >= 8
    );
    assert_eq!(UdpHeader::parse_quoted(rest).is_ok(), rest.len() >= 8);
}

fn udp(ip: &Ipv4Header, datagram: &[u8]) {
    let Ok((header, payload)) = UdpHeader::parse(datagram) else {
        return;
    };
    let mut again = datagram[..payload.end].to_vec();
    header.emit(&mut again);
    assert_eq!(
        again,
        datagram[..payload.end],
        "every bit of a UDP header is kept"
    );
    let verdict = header.verify_v4(ip.src, ip.dst, datagram);
    assert!(
        verdict || header.checksum != 0,
        "an absent checksum is never wrong"
    );
}
