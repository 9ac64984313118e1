//! Bytes from the network cannot make a parser panic, and what it accepts lies within the bytes.

use proptest::collection::vec;
use proptest::prelude::*;
use sidecore_wire::ipv6::extension::{FragmentHeader, HeaderChain, MAX_LEN};
use sidecore_wire::tcp::{QuotedSegment, verify_checksum_v4, verify_checksum_v6};
use sidecore_wire::{
    ArpPacket, EthernetHeader, Icmpv4, Icmpv6, Igmp, Ipv4Addr, Ipv4Header, Ipv6Addr, Ipv6Header,
    Mld, NdpMessage, TcpHeader, UdpHeader,
};

use crate::strategies::{
    config, damaged, damaged_segment, odd_ipv4_packet, segment_of_odd_options,
};
use crate::strategies6::{chain, ndp, odd_ipv6_packet};

/// Everything that parses; asserts that payloads lie within `bytes`.
fn parse_all(bytes: &[u8]) {
    let any = Ipv4Addr::UNSPECIFIED;
    if let Ok((_, at)) = EthernetHeader::parse(bytes) {
        assert!(at <= bytes.len());
    }
    if let Ok((_, at)) = ArpPacket::parse(bytes) {
        assert!(at <= bytes.len());
    }
    let parsed = [
        Ipv4Header::parse(bytes),
        Ipv4Header::parse_unverified(bytes),
    ];
    for (header, payload) in parsed.into_iter().flatten() {
        assert_eq!(payload.len(), usize::from(header.payload_len()));
        assert!(bytes.get(payload).is_some());
    }
    if let Ok((_, payload)) = Ipv4Header::parse_quoted(bytes) {
        assert!(payload.start <= payload.end && payload.start <= bytes.len());
    }
    if let Ok((_, at)) = Icmpv4::parse(bytes) {
        assert!(at <= bytes.len());
    }
    if let Ok((header, at)) = TcpHeader::parse(bytes) {
        assert!((20..=60).contains(&at) && at <= bytes.len());
        assert!((20..=60).contains(&header.len()));
    }
    if let Ok((header, payload)) = UdpHeader::parse(bytes) {
        assert!(bytes.get(payload).is_some());
        header.verify_v4(any, any, bytes);
    }
    if let Ok(header) = UdpHeader::parse_quoted(bytes) {
        header.verify_v4(any, any, bytes);
    }
    if let Ok(Igmp::Query(query)) = Igmp::parse(bytes) {
        assert!(8 + query.sources.iter().count() * 4 <= bytes.len());
    }
    sidecore_wire::ipv4::has_router_alert(bytes);
    assert_eq!(QuotedSegment::parse(bytes).is_ok(), bytes.len() >= 8);
    verify_checksum_v4(any, any, bytes);
    parse_all_v6(bytes);
}

fn parse_all_v6(bytes: &[u8]) {
    let any = Ipv6Addr::UNSPECIFIED;
    let mut header = Ipv6Header::new(any, any, bytes.first().copied().unwrap_or(0));
    if let Ok((parsed, payload)) = Ipv6Header::parse(bytes) {
        assert_eq!(payload.len(), usize::from(parsed.payload_len));
        assert!(bytes.get(payload).is_some());
    }
    if let Ok((_, at)) = FragmentHeader::parse(bytes) {
        assert!(at <= bytes.len());
    }
    let rest = HeaderChain::parse_rest(header.next_header, bytes);
    for chain in [HeaderChain::parse(&header, bytes), rest]
        .into_iter()
        .flatten()
    {
        // What follows the limit is a fragment header, at most.
        assert!(chain.payload <= bytes.len() && chain.payload <= MAX_LEN + 8);
    }
    if let Ok((_, at)) = Icmpv6::parse(any, any, bytes) {
        assert!(at <= bytes.len());
    }
    for hop_limit in [1, 255] {
        header.hop_limit = hop_limit;
        header.src = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1);
        if let Ok(message) = NdpMessage::parse(&header, bytes) {
            assert!(message.len() <= sidecore_wire::ndp::MAX_LEN);
        }
        if let Ok(message) = Mld::parse(&header, hop_limit == 1, bytes) {
            assert!(bytes.len() >= 24);
            if let Mld::Query(query) = message {
                assert!(24 + query.sources.iter().count() * 16 <= bytes.len());
            }
        }
    }
    if let Ok(datagram) = UdpHeader::parse_quoted(bytes) {
        datagram.verify_v6(any, any, bytes);
    }
    verify_checksum_v6(any, any, bytes);
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn on_any_bytes(bytes in vec(any::<u8>(), 0..128)) {
        parse_all(&bytes);
    }

    #[test]
    fn on_damaged_segments(bytes in prop_oneof![damaged_segment(), segment_of_odd_options()]) {
        parse_all(&bytes);
    }

    #[test]
    fn on_damaged_packets(bytes in odd_ipv4_packet()) {
        parse_all(&bytes);
    }

    #[test]
    fn on_damaged_packets_v6(bytes in odd_ipv6_packet()) {
        parse_all(&bytes);
    }

    #[test]
    fn on_damaged_chains((first, bytes) in chain(), byte: u8, at: prop::sample::Index) {
        let any = Ipv6Addr::UNSPECIFIED;
        let mut bytes = bytes;
        if !bytes.is_empty() {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if let Ok(chain) = HeaderChain::parse(&Ipv6Header::new(any, any, first), &bytes) {
            prop_assert!(chain.payload <= bytes.len());
        }
    }

    #[test]
    fn on_damaged_neighbor_discovery(bytes in damaged(ndp().prop_map(|message| {
        let mut bytes = vec![0; message.len()];
        message.emit(Ipv6Addr::UNSPECIFIED, Ipv6Addr::UNSPECIFIED, &mut bytes);
        bytes
    }), 60)) {
        parse_all(&bytes);
    }
}
