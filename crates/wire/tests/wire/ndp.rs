//! Neighbour discovery and multicast listeners: layouts, the validation of RFC 4861, round trips.

use proptest::prelude::*;
use sidecore_wire::ndp::{MAX_LEN, PrefixInformation, Prefixes};
use sidecore_wire::{
    Icmpv6, Ipv6Addr, Ipv6Header, MacAddress, NdpMessage, ParseError, RouterAdvertisement, ipv6,
};

use crate::strategies::config;
use crate::strategies6::{ndp, prefix};

const MAC: MacAddress = MacAddress([2, 0, 0, 0, 0, 9]);
const LINK: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1);
const GLOBAL: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);
const MALFORMED: Result<NdpMessage, ParseError> = Err(ParseError::Malformed);

fn ip(src: Ipv6Addr, dst: Ipv6Addr) -> Ipv6Header {
    Ipv6Header {
        hop_limit: 255,
        ..Ipv6Header::new(src, dst, 58)
    }
}

fn emitted(message: &NdpMessage) -> Vec<u8> {
    let mut bytes = vec![0xee; message.len()];
    message.emit(LINK, ipv6::ALL_NODES, &mut bytes);
    bytes
}

fn solicitation(target: Ipv6Addr) -> NdpMessage {
    NdpMessage::NeighborSolicitation {
        target,
        source_link: None,
    }
}

fn advertisement(solicited: bool) -> NdpMessage {
    NdpMessage::NeighborAdvertisement {
        router: false,
        solicited,
        override_: true,
        target: GLOBAL,
        target_link: Some(MAC),
    }
}

const ROUTER: NdpMessage = NdpMessage::RouterAdvertisement(RouterAdvertisement {
    hop_limit: 64,
    managed: false,
    other: true,
    router_lifetime: 1800,
    reachable_ms: 30_000,
    retransmit_ms: 1000,
    source_link: Some(MAC),
    mtu: Some(1400),
    prefixes: Prefixes::NONE,
});

#[test]
fn a_neighbor_advertisement_byte_for_byte() {
    let bytes = emitted(&advertisement(true));
    assert_eq!(bytes[..2], [136, 0]);
    assert_eq!(bytes[4..8], [0x60, 0, 0, 0]);
    assert_eq!(bytes[8..24], GLOBAL.octets());
    assert_eq!(bytes[24..], [2, 1, 2, 0, 0, 0, 0, 9]);
    let (message, _) = Icmpv6::parse(LINK, ipv6::ALL_NODES, &bytes).expect("a right checksum");
    assert_eq!(
        message,
        Icmpv6::Other {
            type_: 136,
            code: 0
        }
    );
}

#[test]
fn a_router_advertisement_byte_for_byte() {
    let NdpMessage::RouterAdvertisement(mut ra) = ROUTER else {
        panic!()
    };
    ra.prefixes.push(PrefixInformation {
        prefix_len: 64,
        on_link: true,
        autonomous: true,
        valid_lifetime: 0x0102_0304,
        preferred_lifetime: 0x0506_0708,
        prefix: GLOBAL,
    });
    let bytes = emitted(&NdpMessage::RouterAdvertisement(ra));
    assert_eq!(
        bytes[4..16],
        [64, 0x40, 7, 8, 0, 0, 0x75, 0x30, 0, 0, 3, 232]
    );
    assert_eq!(bytes[16..24], [1, 1, 2, 0, 0, 0, 0, 9]);
    assert_eq!(bytes[24..32], [5, 1, 0, 0, 0, 0, 5, 0x78]);
    let option = [3, 4, 64, 0xc0, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0, 0];
    assert_eq!(bytes[32..48], option);
    assert_eq!(bytes[48..], GLOBAL.octets());
}

#[test]
fn rfc_4861_all_come_from_the_link_with_code_0() {
    let redirect = NdpMessage::Redirect {
        target: LINK,
        destination: GLOBAL,
        target_link: None,
    };
    let router = NdpMessage::RouterSolicitation { source_link: None };
    let messages = [
        router,
        ROUTER,
        solicitation(GLOBAL),
        advertisement(false),
        redirect,
    ];
    for message in messages {
        let mut bytes = emitted(&message);
        let header = ip(LINK, ipv6::ALL_NODES);
        assert_eq!(NdpMessage::parse(&header, &bytes), Ok(message));
        let forwarded = Ipv6Header {
            hop_limit: 254,
            ..header
        };
        assert_eq!(NdpMessage::parse(&forwarded, &bytes), MALFORMED);
        bytes[1] = 1;
        assert_eq!(NdpMessage::parse(&header, &bytes), MALFORMED);
    }
}

#[test]
fn rfc_4861_options_of_length_0_and_beyond_the_end() {
    let mut bytes = emitted(&advertisement(false));
    let header = ip(LINK, ipv6::ALL_NODES);
    bytes[25] = 0;
    assert_eq!(NdpMessage::parse(&header, &bytes), MALFORMED);
    bytes[25] = 2;
    let parsed = NdpMessage::parse(&header, &bytes);
    assert_eq!(parsed, Err(ParseError::Truncated));
    for len in 0..24 {
        assert!(
            NdpMessage::parse(&header, &bytes[..len]).is_err(),
            "{len} bytes"
        );
    }
    // Section 4.6: unknown options are ignored, what follows them is not.
    let mut bytes = emitted(&solicitation(GLOBAL));
    bytes.extend([200, 1, 9, 9, 9, 9, 9, 9]);
    bytes.extend([1, 2, 2, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0]);
    bytes.extend([1, 1, 2, 0, 0, 0, 0, 9]);
    let expected = NdpMessage::NeighborSolicitation {
        target: GLOBAL,
        source_link: Some(MAC),
    };
    assert_eq!(NdpMessage::parse(&header, &bytes), Ok(expected));
}

#[test]
fn rfc_4861_section_6_1_routers() {
    let with_link = NdpMessage::RouterSolicitation {
        source_link: Some(MAC),
    };
    let nobody = ip(Ipv6Addr::UNSPECIFIED, ipv6::ALL_ROUTERS);
    assert_eq!(NdpMessage::parse(&nobody, &emitted(&with_link)), MALFORMED);
    let plain = NdpMessage::RouterSolicitation { source_link: None };
    assert!(NdpMessage::parse(&nobody, &emitted(&plain)).is_ok());
    // 6.1.2: "IP Source Address is a link-local address."
    let global = ip(GLOBAL, ipv6::ALL_NODES);
    assert_eq!(NdpMessage::parse(&global, &emitted(&ROUTER)), MALFORMED);
}

#[test]
fn rfc_4861_section_7_1_1_solicitations() {
    let group = ipv6::solicited_node(GLOBAL);
    let probe = ip(Ipv6Addr::UNSPECIFIED, group);
    let bytes = emitted(&solicitation(GLOBAL));
    assert!(NdpMessage::parse(&probe, &bytes).is_ok());
    let to_one = ip(Ipv6Addr::UNSPECIFIED, GLOBAL);
    assert_eq!(NdpMessage::parse(&to_one, &bytes), MALFORMED);
    let with_link = NdpMessage::NeighborSolicitation {
        target: GLOBAL,
        source_link: Some(MAC),
    };
    assert_eq!(NdpMessage::parse(&probe, &emitted(&with_link)), MALFORMED);
    let of_group = emitted(&solicitation(group));
    assert_eq!(NdpMessage::parse(&ip(LINK, group), &of_group), MALFORMED);
}

#[test]
fn rfc_4861_section_7_1_2_advertisements() {
    let bytes = emitted(&advertisement(true));
    let to_all = ip(LINK, ipv6::ALL_NODES);
    assert_eq!(NdpMessage::parse(&to_all, &bytes), MALFORMED);
    assert!(NdpMessage::parse(&ip(LINK, GLOBAL), &bytes).is_ok());
}

#[test]
fn rfc_4861_section_8_1_redirects() {
    let redirect = |target, destination| {
        emitted(&NdpMessage::Redirect {
            target,
            destination,
            target_link: None,
        })
    };
    let header = ip(LINK, GLOBAL);
    assert!(NdpMessage::parse(&header, &redirect(LINK, GLOBAL)).is_ok());
    assert!(NdpMessage::parse(&header, &redirect(GLOBAL, GLOBAL)).is_ok());
    let elsewhere = redirect("2001:db8::9".parse().unwrap(), GLOBAL);
    assert_eq!(NdpMessage::parse(&header, &elsewhere), MALFORMED);
    let group = redirect(LINK, ipv6::ALL_NODES);
    assert_eq!(NdpMessage::parse(&header, &group), MALFORMED);
    let routed = NdpMessage::parse(&ip(GLOBAL, GLOBAL), &redirect(LINK, GLOBAL));
    assert_eq!(routed, MALFORMED);
}

#[test]
fn more_prefixes_than_are_kept() {
    let one = PrefixInformation {
        prefix_len: 64,
        on_link: true,
        autonomous: false,
        valid_lifetime: 1,
        preferred_lifetime: 1,
        prefix: GLOBAL,
    };
    let mut prefixes = Prefixes::NONE;
    assert!((0..8).all(|_| prefixes.push(one)) && !prefixes.push(one));
    let NdpMessage::RouterAdvertisement(ra) = ROUTER else {
        panic!()
    };
    let message = NdpMessage::RouterAdvertisement(RouterAdvertisement { prefixes, ..ra });
    let mut bytes = emitted(&message);
    assert_eq!(bytes.len(), MAX_LEN);
    let again: Vec<u8> = bytes[32..64].to_vec();
    bytes.extend(again);
    let header = ip(LINK, ipv6::ALL_NODES);
    assert_eq!(NdpMessage::parse(&header, &bytes), Ok(message));
    // Longer than any address: as if the option were not there.
    bytes.truncate(64);
    bytes[34] = 129;
    let parsed = NdpMessage::parse(&header, &bytes);
    assert_eq!(
        parsed,
        Ok(ROUTER).map(|_| NdpMessage::RouterAdvertisement(RouterAdvertisement {
            prefixes: Prefixes::NONE,
            ..ra
        }))
    );
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn round_trip(message in ndp(), dst in prop::sample::select(vec![LINK, GLOBAL])) {
        let mut bytes = vec![0xee; message.len()];
        prop_assert_eq!(message.emit(LINK, dst, &mut bytes), bytes.len());
        prop_assert!(bytes.len() <= MAX_LEN);
        prop_assert!(Icmpv6::parse(LINK, dst, &bytes).is_ok());
        prop_assert_eq!(NdpMessage::parse(&ip(LINK, dst), &bytes), Ok(message));
    }

    #[test]
    fn prefixes_keep_their_order(prefixes in prop::collection::vec(prefix(), 0..12)) {
        let kept: Prefixes = prefixes.iter().copied().collect();
        let expected: Vec<_> = prefixes.into_iter().take(8).collect();
        prop_assert_eq!(kept.iter().collect::<Vec<_>>(), expected);
    }
}
