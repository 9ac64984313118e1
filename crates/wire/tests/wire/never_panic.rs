//! Bytes from the network cannot make a parser panic, and what it accepts lies within the bytes.

use proptest::collection::vec;
use proptest::prelude::*;
use sidecore_wire::tcp::{QuotedSegment, verify_checksum_v4};
use sidecore_wire::{
    ArpPacket, EthernetHeader, Icmpv4, Ipv4Addr, Ipv4Header, TcpHeader, UdpHeader,
};

use crate::strategies::{config, damaged_segment, odd_ipv4_packet, segment_of_odd_options};

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
    assert_eq!(QuotedSegment::parse(bytes).is_ok(), bytes.len() >= 8);
    verify_checksum_v4(any, any, bytes);
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
}
