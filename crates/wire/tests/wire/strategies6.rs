//! What the property tests of IPv6 are fed with.

use proptest::array::uniform16;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use sidecore_wire::ipv6::extension::FragmentHeader;
use sidecore_wire::ndp::PrefixInformation;
use sidecore_wire::{Icmpv6, Ipv6Addr, Ipv6Header, NdpMessage, RouterAdvertisement};

use crate::strategies::{damaged, mac};

pub fn ipv6_addr() -> impl Strategy<Value = Ipv6Addr> {
    uniform16(any::<u8>()).prop_map(Ipv6Addr::from)
}

pub fn link_local() -> impl Strategy<Value = Ipv6Addr> {
    any::<u64>().prop_map(|id| Ipv6Addr::from_bits(0xfe80 << 112 | u128::from(id)))
}

pub fn unicast() -> impl Strategy<Value = Ipv6Addr> {
    ipv6_addr().prop_filter("a group", |address| !address.is_multicast())
}

/// A header with `payload_len` for the payload length that comes with it.
pub fn ipv6() -> impl Strategy<Value = (Ipv6Header, usize)> {
    let small = (any::<u8>(), 0..1u32 << 20, any::<u8>(), any::<u8>());
    (small, ipv6_addr(), ipv6_addr(), 0..200usize).prop_map(
        |((traffic_class, flow_label, next_header, hop_limit), src, dst, payload_len)| {
            let header = Ipv6Header {
                traffic_class,
                flow_label,
                payload_len: payload_len as u16,
                next_header,
                hop_limit,
                src,
                dst,
            };
            (header, payload_len)
        },
    )
}

/// An IPv6 packet, perhaps damaged, cut or padded.
pub fn odd_ipv6_packet() -> impl Strategy<Value = Vec<u8>> {
    let valid = (ipv6(), vec(any::<u8>(), 0..20)).prop_map(|((header, payload_len), padding)| {
        let mut packet = vec![0x5a; 40 + payload_len];
        header.emit(&mut packet, payload_len);
        packet.extend(padding);
        packet
    });
    damaged(valid, 40)
}

pub fn fragment() -> impl Strategy<Value = FragmentHeader> {
    (any::<u8>(), 0..8192u16, any::<bool>(), any::<u32>()).prop_map(
        |(next_header, offset, more, ident)| FragmentHeader {
            next_header,
            offset: offset * 8,
            more,
            ident,
        },
    )
}

/// One extension header, with its number and without what follows it.
fn extension() -> impl Strategy<Value = (u8, Vec<u8>)> {
    let units = prop_oneof![4 => Just(0u8), 1 => 1..4u8];
    let options = (prop::sample::select(vec![0u8, 60, 60]), units.clone()).prop_flat_map(
        |(number, units)| {
            let len = (usize::from(units) + 1) * 8 - 2;
            let fill = prop_oneof![
                3 => Just(pad(len)),
                1 => vec(prop_oneof![3 => 0..4u8, 1 => any::<u8>()], len),
            ];
            fill.prop_map(move |fill| (number, [vec![0, units], fill].concat()))
        },
    );
    let routing = (any::<u8>(), 0..2u8, units).prop_map(|(type_, left, units)| {
        let mut header = vec![0, units, type_, left];
        header.resize((usize::from(units) + 1) * 8, 0);
        (43, header)
    });
    let fragment = (fragment(), any::<bool>()).prop_map(|(header, atomic)| {
        let mut bytes = vec![0; 8];
        let header = if atomic {
            FragmentHeader {
                offset: 0,
                more: false,
                ..header
            }
        } else {
            header
        };
        header.emit(&mut bytes);
        (44, bytes)
    });
    prop_oneof![3 => options, 1 => routing, 1 => fragment]
}

/// Padding of this many bytes, in PadN options of up to seven.
fn pad(len: usize) -> Vec<u8> {
    // A padding option next to another counts with it, so an experimental option stands between.
    let mut bytes = vec![0x1e, (len - 2) as u8];
    bytes.resize(len, 0);
    bytes
}

/// The first next header, and a plausible chain of extension headers with some payload; perhaps cut.
pub fn chain() -> impl Strategy<Value = (u8, Vec<u8>)> {
    let last = prop_oneof![
        4 => prop::sample::select(vec![6u8, 17, 58, 59]),
        1 => any::<u8>(),
    ];
    let cut = option::weighted(0.1, 0..120usize);
    (vec(extension(), 0..10), last, 0..48usize, cut).prop_map(|(headers, last, payload, cut)| {
        let mut bytes = Vec::new();
        let first = headers.first().map_or(last, |(number, _)| *number);
        let next = headers[headers.len().min(1)..]
            .iter()
            .map(|(number, _)| *number)
            .chain([last]);
        for ((_, header), next) in headers.iter().zip(next) {
            let start = bytes.len();
            bytes.extend(header);
            bytes[start] = next;
        }
        bytes.resize(bytes.len() + payload, 0x11);
        bytes.truncate(cut.unwrap_or(usize::MAX));
        (first, bytes)
    })
}

pub fn icmpv6() -> impl Strategy<Value = Icmpv6> {
    let others = (any::<u8>(), any::<u8>())
        .prop_filter("types with a variant of their own", |(type_, code)| {
            !matches!((type_, code), (1..=4, _) | (128 | 129, 0))
        });
    prop_oneof![
        any::<(u16, u16)>().prop_map(|(ident, seq)| Icmpv6::EchoRequest { ident, seq }),
        any::<(u16, u16)>().prop_map(|(ident, seq)| Icmpv6::EchoReply { ident, seq }),
        any::<u8>().prop_map(|code| Icmpv6::DestinationUnreachable { code }),
        any::<u32>().prop_map(|mtu| Icmpv6::PacketTooBig { mtu }),
        any::<u8>().prop_map(|code| Icmpv6::TimeExceeded { code }),
        any::<(u8, u32)>().prop_map(|(code, pointer)| Icmpv6::ParameterProblem { code, pointer }),
        others.prop_map(|(type_, code)| Icmpv6::Other { type_, code }),
    ]
}

pub fn prefix() -> impl Strategy<Value = PrefixInformation> {
    (0..=128u8, any::<(bool, bool, u32, u32)>(), ipv6_addr()).prop_map(
        |(prefix_len, (on_link, autonomous, valid_lifetime, preferred_lifetime), prefix)| {
            PrefixInformation {
                prefix_len,
                on_link,
                autonomous,
                valid_lifetime,
                preferred_lifetime,
                prefix,
            }
        },
    )
}

pub fn router_advertisement() -> impl Strategy<Value = RouterAdvertisement> {
    (
        any::<(u8, bool, bool, u16)>(),
        any::<(u32, u32)>(),
        option::of(mac()),
        option::of(any::<u32>()),
        vec(prefix(), 0..=8),
    )
        .prop_map(
            |(
                (hop_limit, managed, other, router_lifetime),
                (reachable_ms, retransmit_ms),
                source_link,
                mtu,
                prefixes,
            )| RouterAdvertisement {
                hop_limit,
                managed,
                other,
                router_lifetime,
                reachable_ms,
                retransmit_ms,
                source_link,
                mtu,
                prefixes: prefixes.into_iter().collect(),
            },
        )
}

/// A message that is valid between two link-local unicast addresses.
pub fn ndp() -> impl Strategy<Value = NdpMessage> {
    prop_oneof![
        option::of(mac()).prop_map(|source_link| NdpMessage::RouterSolicitation { source_link }),
        router_advertisement().prop_map(NdpMessage::RouterAdvertisement),
        (unicast(), option::of(mac())).prop_map(|(target, source_link)| {
            NdpMessage::NeighborSolicitation {
                target,
                source_link,
            }
        }),
        (any::<(bool, bool, bool)>(), unicast(), option::of(mac())).prop_map(
            |((router, solicited, override_), target, target_link)| {
                NdpMessage::NeighborAdvertisement {
                    router,
                    solicited,
                    override_,
                    target,
                    target_link,
                }
            }
        ),
        (link_local(), unicast(), option::of(mac())).prop_map(
            |(target, destination, target_link)| NdpMessage::Redirect {
                target,
                destination,
                target_link,
            }
        ),
    ]
}
