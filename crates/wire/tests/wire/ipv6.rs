//! IPv6 and its extension headers, ICMPv6, UDP and TCP over IPv6: layouts byte for byte, errors,
//! round trips.

use proptest::collection::vec;
use proptest::prelude::*;
use sidecore_wire::ipv6::extension::{
    ChainError, FragmentHeader, HeaderChain, MAX_HEADERS, MAX_LEN, emit_router_alert,
};
use sidecore_wire::tcp::verify_checksum_v6;
use sidecore_wire::{Icmpv6, Ipv6Addr, Ipv6Header, MacAddress, ParseError, UdpHeader};
use sidecore_wire::{icmpv6, ipv6};

use crate::checksum::naive_checksum;
use crate::strategies::{config, tcp, udp};
use crate::strategies6::{self, ipv6_addr};

const US: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1);
const THEM: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 2);

const UNSUPPORTED: ChainError = ChainError::Discard(ParseError::Unsupported);
const TRUNCATED: ChainError = ChainError::Discard(ParseError::Truncated);

fn chain(first: u8, bytes: &[u8]) -> Result<HeaderChain, ChainError> {
    HeaderChain::parse(&Ipv6Header::new(THEM, US, first), bytes)
}

fn leads_to(protocol: u8, protocol_at: u16, payload: usize) -> Result<HeaderChain, ChainError> {
    Ok(HeaderChain {
        protocol,
        protocol_at,
        payload,
        fragment: None,
        alert: false,
    })
}

fn problem(code: u8, pointer: u16) -> Result<HeaderChain, ChainError> {
    Err(ChainError::Problem {
        code,
        pointer,
        even_multicast: false,
    })
}

#[test]
fn layout_and_errors() {
    let header = Ipv6Header {
        traffic_class: 0xb8,
        flow_label: 0x1_2345,
        payload_len: 5,
        ..Ipv6Header::new(US, THEM, 17)
    };
    let mut packet = [0xee; 46];
    assert_eq!(header.emit(&mut packet, 5), 40);
    #[rustfmt::skip]
    assert_eq!(packet[..40], [
        0x6b, 0x81, 0x23, 0x45, 0, 5, 17, 64,
        0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1,
        0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2,
    ]);
    assert_eq!(Ipv6Header::parse(&packet), Ok((header, 40..45)), "padding");
    for len in 0..45 {
        let cut = Ipv6Header::parse(&packet[..len]);
        assert_eq!(cut, Err(ParseError::Truncated), "{len}");
    }
    let quoted = Ipv6Header::parse_quoted(&packet[..40]);
    assert_eq!(quoted, Ok((header, 40..45)));
    packet[0] = 0x4b;
    assert_eq!(Ipv6Header::parse(&packet), Err(ParseError::BadVersion));
}

#[test]
fn groups() {
    let address = "2001:db8::12:3456".parse().unwrap();
    let group: Ipv6Addr = "ff02::1:ff12:3456".parse().unwrap();
    assert_eq!(ipv6::solicited_node(address), group);
    // RFC 2464 section 7.
    let mac = MacAddress([0x33, 0x33, 0xff, 0x12, 0x34, 0x56]);
    assert_eq!(ipv6::multicast_mac(group), mac);
    assert!(ipv6::is_link_local("febf::1".parse().unwrap()));
    assert!(!ipv6::is_link_local("fec0::1".parse().unwrap()));
}

#[test]
fn a_chain_without_extension_headers() {
    assert_eq!(chain(6, &[]), leads_to(6, 6, 0));
    // RFC 8200 section 4.7, and a number that means nothing: that is the caller's to judge.
    assert_eq!(chain(59, &[1, 2]), leads_to(59, 6, 0));
    assert_eq!(chain(200, &[]), leads_to(200, 6, 0));
}

#[test]
fn rfc_8200_section_4_all_kinds_in_the_recommended_order() {
    let mut bytes = vec![60, 0, 1, 4, 0, 0, 0, 0];
    bytes.extend([43, 0, 1, 4, 0, 0, 0, 0]);
    bytes.extend([44, 0, 4, 0, 0, 0, 0, 0]);
    bytes.extend([60, 0, 0, 0, 0, 0, 0, 9]);
    bytes.extend([6, 1, 0x1e, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(chain(0, &bytes), leads_to(6, 40 + 32, 48));
    for len in 0..48 {
        assert_eq!(chain(0, &bytes[..len]), Err(TRUNCATED), "{len}");
    }
}

#[test]
fn rfc_8200_section_4_1_hop_by_hop_comes_first_or_is_unrecognized() {
    let bytes = [0, 0, 1, 4, 0, 0, 0, 0, 6, 0, 1, 4, 0, 0, 0, 0];
    assert_eq!(chain(60, &bytes), problem(icmpv6::PROBLEM_NEXT_HEADER, 40));
    assert_eq!(chain(0, &bytes), problem(icmpv6::PROBLEM_NEXT_HEADER, 40));
}

#[test]
fn rfc_8200_section_4_2_what_an_unknown_option_asks_for() {
    let with = |kind: u8| [6, 0, 0, kind, 3, 0, 0, 0];
    let option = |even_multicast| {
        Err(ChainError::Problem {
            code: icmpv6::PROBLEM_OPTION,
            pointer: 43,
            even_multicast,
        })
    };
    for header in [0, 60] {
        assert_eq!(chain(header, &with(0x3e)), leads_to(6, 40, 8));
        assert_eq!(chain(header, &with(0x7e)), Err(UNSUPPORTED));
        assert_eq!(chain(header, &with(0xbe)), option(true));
        assert_eq!(chain(header, &with(0xfe)), option(false));
    }
    // An option that goes beyond its header.
    assert_eq!(
        chain(60, &[6, 0, 0, 0, 0, 0x3e, 2, 0]),
        Err(TRUNCATED),
        "one byte too many"
    );
    assert_eq!(chain(60, &[6, 0, 0, 0, 0, 0, 0, 0x3e]), Err(TRUNCATED));
}

#[test]
fn rfc_8200_section_4_4_routing_types_nobody_knows() {
    // RFC 5095: type 0 is as unknown as any.
    for type_ in [0, 2, 200] {
        assert_eq!(chain(43, &[6, 0, type_, 0, 0, 0, 0, 0]), leads_to(6, 40, 8));
        let segments_left = chain(43, &[6, 0, type_, 1, 0, 0, 0, 0]);
        assert_eq!(segments_left, problem(icmpv6::PROBLEM_FIELD, 42));
    }
}

#[test]
fn rfc_8504_section_5_3_limits() {
    let small = |next: u8| [next, 0, 0x1e, 4, 0, 0, 0, 0];
    let chain_of = |count: u8| {
        let next = |n| if n == count { 6 } else { 60 };
        (1..=count).flat_map(|n| small(next(n))).collect::<Vec<_>>()
    };
    let full = chain_of(MAX_HEADERS);
    let last_at = 40 + (full.len() - 8) as u16;
    assert_eq!(chain(60, &full), leads_to(6, last_at, full.len()));
    assert_eq!(chain(60, &chain_of(MAX_HEADERS + 1)), Err(UNSUPPORTED));

    let long = |len: usize| {
        let mut header = vec![0x1e; len];
        header[..4].copy_from_slice(&[6, (len / 8 - 1) as u8, 0x1e, 200]);
        header.iter_mut().skip(4).step_by(202).for_each(|b| *b = 0);
        let mut at = 2;
        while at < len {
            let option = (len - at).min(202);
            header[at] = 0x1e;
            header[at + 1] = option.saturating_sub(2) as u8;
            at += option;
        }
        header
    };
    assert_eq!(chain(60, &long(MAX_LEN)), leads_to(6, 40, MAX_LEN));
    assert_eq!(chain(60, &long(MAX_LEN + 8)), Err(UNSUPPORTED));

    // Padding of seven bytes is the most that aligns anything.
    assert!(chain(60, &[6, 1, 1, 5, 0, 0, 0, 0, 0, 0x1e, 4, 0, 0, 0, 0, 0]).is_ok());
    let eight = [6, 1, 1, 5, 0, 0, 0, 0, 0, 0, 0x1e, 4, 0, 0, 0, 0];
    assert_eq!(chain(60, &eight), Err(UNSUPPORTED));
    // Nine options that are none.
    let mut many = vec![6, 2];
    many.extend([0x1e, 0].repeat(9));
    many.extend([1, 2, 0, 0]);
    assert_eq!(chain(60, &many), Err(UNSUPPORTED));
}

fn fragment_of(next_header: u8, offset: u16, more: bool, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; 8];
    let header = FragmentHeader {
        next_header,
        offset,
        more,
        ident: 7,
    };
    header.emit(&mut bytes);
    bytes.extend(payload);
    bytes
}

/// The result for a packet with these bytes behind its IPv6 header.
fn fragment_chain(bytes: &[u8]) -> Result<HeaderChain, ChainError> {
    chain(44, bytes)
}

#[test]
fn fragments_end_the_walk() {
    let bytes = fragment_of(17, 0, true, &[0; 16]);
    let first = fragment_chain(&bytes).unwrap();
    assert_eq!((first.protocol, first.payload), (17, 8));
    let fragment = first.fragment.unwrap();
    assert_eq!(
        (fragment.offset, fragment.more, fragment.ident),
        (0, true, 7)
    );
    // Of a later fragment the bytes are the middle of something: nobody reads headers out of them.
    let bytes = fragment_of(60, 16, false, &[0xff; 5]);
    let last = fragment_chain(&bytes).unwrap();
    assert_eq!((last.protocol, last.payload), (60, 8));
    assert!(last.fragment.is_some());
}

#[test]
fn rfc_6946_an_atomic_fragment_is_a_packet() {
    let bytes = fragment_of(17, 0, false, &[0; 3]);
    assert_eq!(fragment_chain(&bytes), leads_to(17, 40, 8));
}

#[test]
fn rfc_8200_section_4_5_lengths_of_fragments() {
    let ragged = fragment_of(17, 8, true, &[0; 15]);
    assert_eq!(fragment_chain(&ragged), problem(icmpv6::PROBLEM_FIELD, 4));
    let too_long = fragment_of(17, 65528, false, &[0; 8]);
    assert_eq!(
        fragment_chain(&too_long),
        problem(icmpv6::PROBLEM_FIELD, 42)
    );
    assert!(fragment_chain(&fragment_of(17, 65528, false, &[0; 7])).is_ok());
}

#[test]
fn rfc_7112_a_first_fragment_has_all_headers() {
    let incomplete = problem(icmpv6::PROBLEM_FIRST_FRAGMENT, 0);
    for (protocol, len) in [(6, 20usize), (17, 8), (58, 8)] {
        let whole = fragment_of(protocol, 0, true, &vec![0; len.next_multiple_of(8)]);
        assert!(fragment_chain(&whole).is_ok(), "{protocol}");
        let cut = fragment_of(protocol, 0, true, &vec![0; (len - 1) & !7]);
        assert_eq!(fragment_chain(&cut), incomplete, "{protocol}");
    }
    // The chain itself is cut.
    let options = [6, 1, 0x1e, 12, 0, 0, 0, 0];
    let cut = fragment_of(60, 0, true, &options);
    assert_eq!(fragment_chain(&cut), incomplete);
    // The rest, when it is whole: neither hop-by-hop options nor fragments again.
    assert!(HeaderChain::parse_rest(60, &[6, 0, 1, 4, 0, 0, 0, 0]).is_ok());
    assert!(HeaderChain::parse_rest(0, &[6, 0, 1, 4, 0, 0, 0, 0]).is_err());
    assert!(HeaderChain::parse_rest(44, &[6, 0, 0, 0, 0, 0, 0, 0]).is_err());
}

#[test]
fn rfc_2711_a_router_alert_is_no_obstacle() {
    let mut header = [0xee; 8];
    assert_eq!(emit_router_alert(58, &mut header), 8);
    assert_eq!(header, [58, 0, 5, 2, 0, 0, 1, 0]);
    let expected = leads_to(58, 40, 8).map(|chain| HeaderChain {
        alert: true,
        ..chain
    });
    assert_eq!(chain(0, &header), expected);
}

#[test]
fn an_icmpv6_message_and_its_errors() {
    let mut message = [0; 12];
    let request = Icmpv6::EchoRequest {
        ident: 0x1234,
        seq: 9,
    };
    assert_eq!(request.emit(US, THEM, &mut message, b"data"), 12);
    assert_eq!(message[..2], [128, 0]);
    assert_eq!(message[4..], *b"\x12\x34\x00\x09data");
    assert_eq!(Icmpv6::parse(US, THEM, &message), Ok((request, 8)));
    let other = Ipv6Addr::LOCALHOST;
    let elsewhere = Icmpv6::parse(US, other, &message);
    assert_eq!(elsewhere, Err(ParseError::BadChecksum), "RFC 4443 2.3");
    let short = Icmpv6::parse(US, THEM, &message[..7]);
    assert_eq!(short, Err(ParseError::Truncated));
}

#[test]
fn rfc_4443_section_2_1_errors_are_told_by_the_high_bit() {
    for error in [
        Icmpv6::DestinationUnreachable { code: 0 },
        Icmpv6::PacketTooBig { mtu: 1280 },
        Icmpv6::TimeExceeded { code: 0 },
        Icmpv6::ParameterProblem {
            code: 0,
            pointer: 40,
        },
        Icmpv6::Other { type_: 5, code: 0 },
        Icmpv6::Other {
            type_: 127,
            code: 0,
        },
    ] {
        assert!(error.is_error(), "{error:?}");
    }
    let ndp = Icmpv6::Other {
        type_: 135,
        code: 0,
    };
    assert!(!ndp.is_error() && !Icmpv6::EchoReply { ident: 0, seq: 0 }.is_error());
}

/// RFC 8200 section 8.1, taken literally.
fn covered(src: Ipv6Addr, dst: Ipv6Addr, protocol: u8, bytes: &[u8]) -> Vec<u8> {
    let mut covered = [src.octets(), dst.octets()].concat();
    covered.extend((bytes.len() as u32).to_be_bytes());
    covered.extend([0, 0, 0, protocol]);
    covered.extend(bytes);
    covered
}

#[test]
fn rfc_8200_section_8_1_udp_has_a_checksum() {
    let mut datagram = [0x5a; 12];
    let mut header = UdpHeader {
        src_port: 1,
        dst_port: 2,
        length: 12,
        checksum: 0,
    };
    header.emit(&mut datagram);
    assert!(!header.verify_v6(US, THEM, &datagram), "absent");
    header.checksum = naive_checksum(&covered(US, THEM, 17, &datagram));
    header.emit(&mut datagram);
    assert!(header.verify_v6(US, THEM, &datagram));
    assert!(!header.verify_v6(US, US, &datagram));
    assert!(!header.verify_v6(US, THEM, &datagram[..11]));
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn round_trip((header, payload_len) in strategies6::ipv6()) {
        let mut buf = vec![0; 40 + payload_len];
        prop_assert_eq!(header.emit(&mut buf, payload_len), header.len());
        prop_assert_eq!(Ipv6Header::parse(&buf), Ok((header, 40..buf.len())));
    }

    #[test]
    fn fragment_round_trip(header in strategies6::fragment()) {
        let mut buf = [0xff; 8];
        prop_assert_eq!(header.emit(&mut buf), 8);
        prop_assert_eq!(FragmentHeader::parse(&buf), Ok((header, 8)));
        prop_assert_eq!(FragmentHeader::parse(&buf[..7]), Err(ParseError::Truncated));
    }

    #[test]
    fn icmpv6_round_trip(message in strategies6::icmpv6(), src in ipv6_addr(), dst in ipv6_addr(), data in vec(any::<u8>(), 0..100)) {
        let mut buf = vec![0; message.len() + data.len()];
        prop_assert_eq!(message.emit(src, dst, &mut buf, &data), buf.len());
        prop_assert_eq!(Icmpv6::parse(src, dst, &buf), Ok((message, 8)));
        prop_assert_eq!(&buf[8..], data);
    }

    #[test]
    fn transport_checksums(header in tcp(), (mut datagram, len) in udp(), src in ipv6_addr(), dst in ipv6_addr()) {
        let mut segment = vec![0; header.len()];
        header.emit(&mut segment);
        let checksum = naive_checksum(&covered(src, dst, 6, &segment));
        segment[16..18].copy_from_slice(&checksum.to_be_bytes());
        prop_assert!(verify_checksum_v6(src, dst, &segment));
        segment[3] ^= 4;
        prop_assert!(!verify_checksum_v6(src, dst, &segment));

        let mut bytes = vec![0x5a; 8 + len];
        datagram.checksum = 0;
        datagram.emit(&mut bytes);
        datagram.checksum = naive_checksum(&covered(src, dst, 17, &bytes)).max(1);
        datagram.emit(&mut bytes);
        let computed_zero = naive_checksum(&covered(src, dst, 17, &bytes)) != 0;
        prop_assert_eq!(datagram.verify_v6(src, dst, &bytes), !computed_zero);
    }
}
