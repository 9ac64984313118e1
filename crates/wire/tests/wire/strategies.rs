//! What the property tests are fed with.

use proptest::array::{uniform4, uniform6};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use sidecore_wire::{
    ArpOperation, ArpPacket, EthernetHeader, Icmpv4, Ipv4Addr, Ipv4Header, MacAddress, SackBlock,
    SeqNumber, TcpFlags, TcpHeader, TcpOptions, Timestamps, UdpHeader, UnscaledWindow, WindowScale,
};

/// The same cases in every run: a test that fails once fails always. `PROPTEST_CASES` makes them
/// more.
pub fn config() -> ProptestConfig {
    let default = ProptestConfig::default();
    ProptestConfig {
        cases: default.cases.max(512),
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(0x5eed),
        ..default
    }
}

pub fn mac() -> impl Strategy<Value = MacAddress> {
    uniform6(any::<u8>()).prop_map(MacAddress)
}

pub fn ipv4_addr() -> impl Strategy<Value = Ipv4Addr> {
    uniform4(any::<u8>()).prop_map(Ipv4Addr::from)
}

pub fn ethernet() -> impl Strategy<Value = EthernetHeader> {
    let untagged =
        any::<u16>().prop_filter("VLAN tags are refused", |t| !matches!(t, 0x8100 | 0x88a8));
    (mac(), mac(), untagged).prop_map(|(dst, src, ethertype)| EthernetHeader {
        dst,
        src,
        ethertype,
    })
}

pub fn arp() -> impl Strategy<Value = ArpPacket> {
    let operation = prop_oneof![Just(ArpOperation::Request), Just(ArpOperation::Reply)];
    (operation, mac(), ipv4_addr(), mac(), ipv4_addr()).prop_map(
        |(operation, sender_mac, sender_ip, target_mac, target_ip)| ArpPacket {
            operation,
            sender_mac,
            sender_ip,
            target_mac,
            target_ip,
        },
    )
}

/// A header with `total_len` for the payload length that comes with it.
pub fn ipv4() -> impl Strategy<Value = (Ipv4Header, usize)> {
    let bits = (any::<bool>(), any::<bool>(), 0..8192u16);
    let bytes = (any::<u8>(), any::<u8>(), any::<u8>());
    (
        bytes,
        any::<u16>(),
        bits,
        ipv4_addr(),
        ipv4_addr(),
        0..200usize,
    )
        .prop_map(
            |((dscp_ecn, ttl, protocol), ident, (df, mf, offset), src, dst, payload_len)| {
                let header = Ipv4Header {
                    dscp_ecn,
                    total_len: 20 + payload_len as u16,
                    ident,
                    dont_fragment: df,
                    more_fragments: mf,
                    fragment_offset: offset * 8,
                    ttl,
                    protocol,
                    src,
                    dst,
                    header_len: 20,
                };
                (header, payload_len)
            },
        )
}

pub fn icmpv4() -> impl Strategy<Value = Icmpv4> {
    let others = (any::<u8>(), any::<u8>())
        .prop_filter("types with a variant of their own", |(type_, code)| {
            !matches!((type_, code), (0 | 8, 0) | (3 | 11 | 12, _))
        });
    prop_oneof![
        any::<(u16, u16)>().prop_map(|(ident, seq)| Icmpv4::EchoRequest { ident, seq }),
        any::<(u16, u16)>().prop_map(|(ident, seq)| Icmpv4::EchoReply { ident, seq }),
        any::<(u8, u16)>()
            .prop_map(|(code, next_hop_mtu)| Icmpv4::DestinationUnreachable { code, next_hop_mtu }),
        any::<u8>().prop_map(|code| Icmpv4::TimeExceeded { code }),
        Just(Icmpv4::ParameterProblem),
        others.prop_map(|(type_, code)| Icmpv4::Other { type_, code }),
    ]
}

/// A header for the payload length that comes with it.
pub fn udp() -> impl Strategy<Value = (UdpHeader, usize)> {
    (any::<u16>(), any::<u16>(), any::<u16>(), 0..200usize).prop_map(
        |(src_port, dst_port, checksum, payload_len)| {
            (
                UdpHeader {
                    src_port,
                    dst_port,
                    length: 8 + payload_len as u16,
                    checksum,
                },
                payload_len,
            )
        },
    )
}

pub fn sack_block() -> impl Strategy<Value = SackBlock> {
    any::<(u32, u32)>().prop_map(|(start, end)| SackBlock {
        start: SeqNumber(start),
        end: SeqNumber(end),
    })
}

pub fn tcp_options() -> impl Strategy<Value = TcpOptions> {
    let timestamps = any::<(u32, u32)>().prop_map(|(value, echo)| Timestamps { value, echo });
    let scale = (0..=14u8).prop_map(WindowScale::new);
    let sack = vec(sack_block(), 0..=4);
    (
        option::of(any::<u16>()),
        option::of(scale),
        any::<bool>(),
        option::of(timestamps),
        sack,
    )
        .prop_map(
            |(mss, window_scale, sack_permitted, timestamps, sack)| TcpOptions {
                mss,
                window_scale,
                sack_permitted,
                timestamps,
                sack: sack.into_iter().collect(),
                // An option of SYNs, which have no SACK blocks: tested apart.
                fast_open: None,
            },
        )
}

pub fn tcp() -> impl Strategy<Value = TcpHeader> {
    (
        any::<(u16, u16, u32, u32)>(),
        any::<(u16, u16, u16)>(),
        tcp_options(),
    )
        .prop_map(
            |((src_port, dst_port, seq, ack), (flags, window, urgent), options)| TcpHeader {
                src_port,
                dst_port,
                seq: SeqNumber(seq),
                ack: SeqNumber(ack),
                flags: TcpFlags::from_bits(flags),
                window: UnscaledWindow(window),
                urgent,
                options,
            },
        )
}

/// A segment that was valid before up to four bytes of its header changed, and perhaps its end was
/// lost.
pub fn damaged_segment() -> impl Strategy<Value = Vec<u8>> {
    let valid = (tcp(), vec(any::<u8>(), 0..20)).prop_map(|(header, payload)| {
        let mut segment = vec![0; header.len()];
        header.emit(&mut segment);
        segment.extend(payload);
        segment
    });
    damaged(valid, 60)
}

/// An option list of plausible kinds and lengths, at most 40 bytes, behind a header that says so.
pub fn segment_of_odd_options() -> impl Strategy<Value = Vec<u8>> {
    let kind = prop_oneof![4 => 0..=8u8, 1 => any::<u8>()];
    let len = prop_oneof![4 => prop::sample::select(vec![0u8, 1, 2, 3, 4, 10, 18, 26, 34]), 1 => any::<u8>()];
    let option = (kind, option::weighted(0.8, len), vec(any::<u8>(), 0..10)).prop_map(
        |(kind, len, mut value)| {
            value.splice(0..0, [kind].into_iter().chain(len));
            value
        },
    );
    (tcp(), vec(option, 0..8), vec(any::<u8>(), 0..20)).prop_map(|(header, options, payload)| {
        let mut list = options.concat();
        list.resize(list.len().next_multiple_of(4).min(40), 0);
        let mut segment = vec![0; 20];
        TcpHeader {
            options: TcpOptions::NONE,
            ..header
        }
        .emit(&mut segment);
        segment[12] = ((20 + list.len() as u8) / 4) << 4 | segment[12] & 0x0f;
        segment.extend(list);
        segment.extend(payload);
        segment
    })
}

/// An IPv4 packet, with options or without, half of them damaged; the checksum is mostly right.
pub fn odd_ipv4_packet() -> impl Strategy<Value = Vec<u8>> {
    let valid = (ipv4(), 0..=10usize).prop_map(|((header, payload_len), option_words)| {
        let mut packet = vec![0; 20];
        header.emit(&mut packet, payload_len + option_words * 4);
        packet[0] += option_words as u8;
        packet.resize(20 + option_words * 4 + payload_len, 0x01);
        fix_ipv4_checksum(&mut packet);
        packet
    });
    let padded = (valid, vec(any::<u8>(), 0..20)).prop_map(|(mut packet, padding)| {
        packet.extend(padding);
        packet
    });
    let refixed = (damaged(padded, 20), any::<bool>()).prop_map(|(mut packet, fix)| {
        if fix {
            fix_ipv4_checksum(&mut packet);
        }
        packet
    });
    refixed.boxed()
}

/// Makes the checksum right, as far as the packet goes.
fn fix_ipv4_checksum(packet: &mut [u8]) {
    let Some(first) = packet.first() else { return };
    let header_len = usize::from(first & 0x0f) * 4;
    if header_len < 20 || packet.len() < header_len {
        return;
    }
    packet[10..12].fill(0);
    let checksum = crate::checksum::naive_checksum(&packet[..header_len]);
    packet[10..12].copy_from_slice(&checksum.to_be_bytes());
}

/// `valid` with up to four of the first `header_len` bytes changed, and perhaps cut.
pub fn damaged(
    valid: impl Strategy<Value = Vec<u8>>,
    header_len: usize,
) -> impl Strategy<Value = Vec<u8>> {
    let changes = vec((0..header_len, any::<u8>()), 0..=4);
    (valid, changes, option::weighted(0.2, 0..100usize)).prop_map(|(mut bytes, changes, cut)| {
        for (at, value) in changes {
            if let Some(byte) = bytes.get_mut(at) {
                *byte = value;
            }
        }
        bytes.truncate(cut.unwrap_or(usize::MAX));
        bytes
    })
}
