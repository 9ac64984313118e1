//! Ethernet, ARP, IPv4, ICMP and UDP: layouts byte for byte, errors, round trips.

use proptest::collection::vec;
use proptest::prelude::*;
use sidecore_wire::{
    ArpOperation, ArpPacket, EthernetHeader, Icmpv4, Ipv4Addr, Ipv4Header, MacAddress, ParseError,
    UdpHeader,
};
use sidecore_wire::{checksum, ethernet, icmpv4, ipv4, udp};

use crate::strategies;
use crate::strategies::config;

const OURS: MacAddress = MacAddress([2, 0, 0, 0, 0, 1]);
const THEIRS: MacAddress = MacAddress([2, 0, 0, 0, 0, 2]);
const OUR_IP: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const THEIR_IP: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);

#[test]
fn ethernet_layout_and_errors() {
    let header = EthernetHeader {
        dst: THEIRS,
        src: OURS,
        ethertype: ethernet::ETHERTYPE_ARP,
    };
    let mut frame = [0xee; 15];
    assert_eq!(header.emit(&mut frame), 14);
    assert_eq!(frame, [2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 6, 0xee]);
    assert_eq!(EthernetHeader::parse(&frame), Ok((header, 14)));
    assert_eq!(
        EthernetHeader::parse(&frame[..13]),
        Err(ParseError::Truncated)
    );
    for tag in [[0x81, 0x00], [0x88, 0xa8]] {
        frame[12..14].copy_from_slice(&tag);
        assert_eq!(EthernetHeader::parse(&frame), Err(ParseError::Unsupported));
    }
}

#[test]
fn arp_layout_and_errors() {
    let packet = ArpPacket {
        operation: ArpOperation::Reply,
        sender_mac: OURS,
        sender_ip: OUR_IP,
        target_mac: THEIRS,
        target_ip: THEIR_IP,
    };
    let mut bytes = [0xee; 46];
    assert_eq!(packet.emit(&mut bytes), 28);
    #[rustfmt::skip]
    assert_eq!(bytes[..28], [
        0, 1, 8, 0, 6, 4, 0, 2,
        2, 0, 0, 0, 0, 1, 10, 0, 0, 1,
        2, 0, 0, 0, 0, 2, 10, 0, 0, 2,
    ]);
    assert_eq!(ArpPacket::parse(&bytes), Ok((packet, 28)));
    assert_eq!(ArpPacket::parse(&bytes[..27]), Err(ParseError::Truncated));
    // Another link, another protocol, other lengths, another operation.
    for at in [1, 2, 4, 5, 6] {
        let mut bytes = bytes;
        bytes[at] ^= 0x40;
        assert_eq!(
            ArpPacket::parse(&bytes),
            Err(ParseError::Unsupported),
            "byte {at}"
        );
    }
}

/// The example of RFC 1071's readers everywhere: the checksum of this header is b861.
const KNOWN_IPV4: [u8; 20] = [
    0x45, 0x00, 0x00, 0x73, 0x00, 0x00, 0x40, 0x00, 0x40, 0x11, 0xb8, 0x61, 0xc0, 0xa8, 0x00, 0x01,
    0xc0, 0xa8, 0x00, 0xc7,
];

#[test]
fn ipv4_layout() {
    let header = Ipv4Header {
        total_len: 0x73,
        ..Ipv4Header::new(
            Ipv4Addr::new(192, 168, 0, 1),
            Ipv4Addr::new(192, 168, 0, 199),
            ipv4::PROTOCOL_UDP,
        )
    };
    let mut bytes = [0xee; 0x73];
    assert_eq!(header.emit(&mut bytes, 0x73 - 20), 20);
    assert_eq!(bytes[..20], KNOWN_IPV4);
    assert_eq!(Ipv4Header::parse(&bytes), Ok((header, 20..0x73)));
    assert_eq!(header.payload_len(), 95);
    assert!(!header.is_fragment());
}

#[test]
fn ipv4_padding_is_not_payload() {
    let mut bytes = [0; 46];
    Ipv4Header::new(OUR_IP, THEIR_IP, ipv4::PROTOCOL_TCP).emit(&mut bytes, 20);
    assert_eq!(Ipv4Header::parse(&bytes).unwrap().1, 20..40);
}

#[test]
fn ipv4_errors() {
    let mut good = [0u8; 64];
    Ipv4Header::new(OUR_IP, THEIR_IP, ipv4::PROTOCOL_TCP).emit(&mut good, 44);
    let with = |at: usize, value: u8| {
        let mut bytes = good;
        bytes[at] = value;
        bytes
    };
    for len in 0..good.len() {
        assert_eq!(
            Ipv4Header::parse(&good[..len]),
            Err(ParseError::Truncated),
            "{len}"
        );
    }
    assert_eq!(
        Ipv4Header::parse(&with(0, 0x65)),
        Err(ParseError::BadVersion)
    );
    assert_eq!(
        Ipv4Header::parse(&with(0, 0x44)),
        Err(ParseError::BadLength),
        "header below 20"
    );
    assert_eq!(
        Ipv4Header::parse(&with(3, 19)),
        Err(ParseError::BadLength),
        "total below header"
    );
    assert_eq!(
        Ipv4Header::parse(&with(3, 65)),
        Err(ParseError::Truncated),
        "total above buffer"
    );
    assert_eq!(
        Ipv4Header::parse(&with(8, 63)),
        Err(ParseError::BadChecksum)
    );
    assert_eq!(
        Ipv4Header::parse_unverified(&with(8, 63)).unwrap().0.ttl,
        63
    );
}

#[test]
fn a_quoted_packet_may_be_cut_behind_its_header() {
    let mut packet = [0; 28];
    let header = Ipv4Header {
        total_len: 1500,
        ..Ipv4Header::new(OUR_IP, THEIR_IP, ipv4::PROTOCOL_TCP)
    };
    header.emit(&mut packet, 1480);
    assert_eq!(Ipv4Header::parse_quoted(&packet), Ok((header, 20..1500)));
    assert_eq!(Ipv4Header::parse(&packet), Err(ParseError::Truncated));
    packet[0] = 0x48;
    assert_eq!(
        Ipv4Header::parse_quoted(&packet),
        Err(ParseError::Truncated),
        "options cut"
    );
}

#[test]
fn fragments_are_told_by_either_field() {
    let whole = Ipv4Header::new(OUR_IP, THEIR_IP, ipv4::PROTOCOL_UDP);
    assert!(
        Ipv4Header {
            more_fragments: true,
            ..whole
        }
        .is_fragment()
    );
    assert!(
        Ipv4Header {
            fragment_offset: 8,
            ..whole
        }
        .is_fragment()
    );
}

#[test]
fn an_echo_request_from_a_capture() {
    // ping -c1, type 8, ident 0x0001, sequence 9, 32 bytes of data.
    let mut message = vec![0x08, 0x00, 0x4d, 0x52, 0x00, 0x01, 0x00, 0x09];
    message.extend(b"abcdefghijklmnopqrstuvwabcdefghi");
    let request = Icmpv4::EchoRequest { ident: 1, seq: 9 };
    assert_eq!(Icmpv4::parse(&message), Ok((request, 8)));
    let mut emitted = [0; 40];
    assert_eq!(request.emit(&mut emitted, &message[8..]), 40);
    assert_eq!(emitted[..], message);
}

#[test]
fn icmp_errors_are_told_from_answers() {
    let unreachable = Icmpv4::DestinationUnreachable {
        code: icmpv4::UNREACHABLE_PORT,
        next_hop_mtu: 0,
    };
    for error in [
        unreachable,
        Icmpv4::TimeExceeded { code: 0 },
        Icmpv4::ParameterProblem,
    ] {
        assert!(error.is_error(), "{error:?}");
    }
    assert!(Icmpv4::Other { type_: 5, code: 1 }.is_error(), "redirect");
    assert!(
        !Icmpv4::Other { type_: 13, code: 0 }.is_error(),
        "timestamp"
    );
    assert!(!Icmpv4::EchoRequest { ident: 0, seq: 0 }.is_error());
}

#[test]
fn icmp_refuses() {
    let mut message = [0; 9];
    Icmpv4::EchoReply { ident: 7, seq: 8 }.emit(&mut message, &[9]);
    assert_eq!(Icmpv4::parse(&message[..7]), Err(ParseError::Truncated));
    message[8] ^= 1;
    assert_eq!(Icmpv4::parse(&message), Err(ParseError::BadChecksum));
}

#[test]
fn udp_layout_and_errors() {
    let header = UdpHeader {
        src_port: 0x1234,
        dst_port: 53,
        length: 10,
        checksum: 0xabcd,
    };
    let mut datagram = [0xee; 12];
    assert_eq!(header.emit(&mut datagram), 8);
    assert_eq!(datagram[..8], [0x12, 0x34, 0, 53, 0, 10, 0xab, 0xcd]);
    assert_eq!(
        UdpHeader::parse(&datagram),
        Ok((header, 8..10)),
        "what follows is the link's padding"
    );
    assert_eq!(UdpHeader::parse(&datagram[..9]), Err(ParseError::Truncated));
    assert_eq!(UdpHeader::parse(&datagram[..7]), Err(ParseError::Truncated));
    assert_eq!(UdpHeader::parse_quoted(&datagram[..8]), Ok(header));
    datagram[5] = 7;
    assert_eq!(UdpHeader::parse(&datagram), Err(ParseError::BadLength));
}

#[test]
fn a_udp_checksum_is_never_sent_as_zero() {
    assert_eq!(udp::checksum_field(0xffff), 0xffff);
    assert_eq!(udp::checksum_field(0x1234), !0x1234);
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn ethernet_round_trip(header in strategies::ethernet()) {
        let mut buf = vec![0; header.len()];
        header.emit(&mut buf);
        prop_assert_eq!(EthernetHeader::parse(&buf), Ok((header, buf.len())));
    }

    #[test]
    fn arp_round_trip(packet in strategies::arp()) {
        let mut buf = vec![0; packet.len()];
        packet.emit(&mut buf);
        prop_assert_eq!(ArpPacket::parse(&buf), Ok((packet, buf.len())));
    }

    #[test]
    fn ipv4_round_trip((header, payload_len) in strategies::ipv4()) {
        let mut buf = vec![0; header.len() + payload_len];
        header.emit(&mut buf, payload_len);
        prop_assert_eq!(Ipv4Header::parse(&buf), Ok((header, 20..buf.len())));
        prop_assert_eq!(usize::from(header.payload_len()), payload_len);
    }

    #[test]
    fn icmpv4_round_trip(message in strategies::icmpv4(), data in vec(any::<u8>(), 0..100)) {
        let mut buf = vec![0; message.len() + data.len()];
        prop_assert_eq!(message.emit(&mut buf, &data), buf.len());
        prop_assert_eq!(Icmpv4::parse(&buf), Ok((message, 8)));
        prop_assert_eq!(&buf[8..], data);
    }

    #[test]
    fn udp_round_trip((header, payload_len) in strategies::udp()) {
        let mut buf = vec![0; header.len() + payload_len];
        header.emit(&mut buf);
        prop_assert_eq!(UdpHeader::parse(&buf), Ok((header, 8..buf.len())));
    }

    #[test]
    fn a_udp_checksum_verifies(
        (mut header, payload_len) in strategies::udp(),
        src in strategies::ipv4_addr(),
        dst in strategies::ipv4_addr(),
        bit: prop::sample::Index,
    ) {
        let mut datagram = vec![0x5a; 8 + payload_len];
        header.checksum = 0;
        header.emit(&mut datagram);
        prop_assert!(header.verify_v4(src, dst, &datagram), "no checksum is no error");
        let pseudo = checksum::pseudo_v4(src, dst, 17, header.length.into());
        header.checksum = udp::checksum_field(checksum::sum(&datagram, pseudo));
        header.emit(&mut datagram);
        prop_assert!(header.verify_v4(src, dst, &datagram));
        prop_assert!(!header.verify_v4(src, dst, &datagram[..datagram.len() - 1]), "cut short");
        let bit = bit.index(datagram.len() * 8);
        datagram[bit / 8] ^= 1 << (bit % 8);
        prop_assert!(!header.verify_v4(src, dst, &datagram));
    }
}
