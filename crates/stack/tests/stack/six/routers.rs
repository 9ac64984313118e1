//! Routers, prefixes, addresses made from them, redirects (RFC 4861 sections 6 and 8, RFC 4862 section 5.5).

use std::net::{Ipv6Addr, SocketAddr};

use sidecore_testkit::packet6::Station6;
use sidecore_wire::ndp::PrefixInformation;
use sidecore_wire::{NdpMessage, RouterAdvertisement, ipv6};

use super::*;

const FAR: &str = "[2001:db8:ffff::1]:80";
const OTHER: Station6 = Station6::link_local(8);

fn all() -> Station6 {
    Station6::group(ipv6::ALL_NODES)
}

fn prefix(text: &str, valid: u32) -> PrefixInformation {
    PrefixInformation {
        prefix_len: 64,
        on_link: true,
        autonomous: true,
        valid_lifetime: valid,
        preferred_lifetime: valid,
        prefix: text.parse().unwrap(),
    }
}

fn advertisement(lifetime: u16, prefixes: &[PrefixInformation]) -> RouterAdvertisement {
    RouterAdvertisement {
        router_lifetime: lifetime,
        source_link: Some(ROUTER.mac),
        prefixes: prefixes.iter().copied().collect(),
        ..RouterAdvertisement::default()
    }
}

fn advertise(raw: &mut Raw6, said: RouterAdvertisement) -> Vec<Packet6> {
    raw.send(&ROUTER.ndp(&all(), &NdpMessage::RouterAdvertisement(said)))
}

/// A node that listens to routers, with its own addresses checked.
fn node(change: impl FnOnce(&mut sidecore_stack::Ipv6Config)) -> Raw6 {
    let mut raw = Raw6::fresh(|config| {
        config.dad_transmits = 0;
        change(config);
    });
    raw.pass(Duration::from_secs(20));
    raw
}

/// Where a connection to somewhere far goes first: the station of the link; `None` if there is no way.
fn first_hop(raw: &mut Raw6) -> Option<(Ipv6Addr, MacOf)> {
    let remote: SocketAddr = FAR.parse().unwrap();
    raw.node.try_connect(raw.now, None, remote).ok()?;
    let packet = raw.turn().into_iter().next_back()?;
    Some((packet.ip.src, packet.to))
}

type MacOf = sidecore_wire::MacAddress;

#[test]
fn rfc_4861_section_6_3_7_routers_are_solicited() {
    let mut raw = Raw6::fresh(|config| config.dad_transmits = 0);
    let packets = raw.pass(Duration::from_secs(60));
    let questions = only_ndp(&packets);
    assert_eq!(questions.len(), 3, "MAX_RTR_SOLICITATIONS");
    for question in questions {
        assert_eq!(question.ip.dst, ipv6::ALL_ROUTERS);
        let source_link = Some(NODE.mac);
        let expected = NdpMessage::RouterSolicitation { source_link };
        assert_eq!(question.ndp(), Some(expected));
    }
    // An answer ends it.
    let mut raw = Raw6::fresh(|config| config.dad_transmits = 0);
    raw.pass(Duration::from_secs(1));
    advertise(&mut raw, advertisement(1800, &[]));
    assert_eq!(only_ndp(&raw.pass(Duration::from_secs(60))).len(), 0);
}

#[test]
fn rfc_4861_section_6_3_4_a_default_router_while_it_lasts() {
    let mut raw = node(|_| {});
    assert_eq!(first_hop(&mut raw), None);
    advertise(&mut raw, advertisement(100, &[]));
    // Its link address came along.
    assert_eq!(first_hop(&mut raw), Some((NODE.ip, ROUTER.mac)));
    raw.pass(Duration::from_secs(101));
    assert_eq!(first_hop(&mut raw), None, "its time has run out");
    advertise(&mut raw, advertisement(100, &[]));
    assert!(first_hop(&mut raw).is_some());
    advertise(&mut raw, advertisement(0, &[]));
    assert_eq!(first_hop(&mut raw), None, "it is none any more");
}

#[test]
fn rfc_4861_section_6_1_2_not_from_the_link() {
    let mut raw = node(|_| {});
    let said = NdpMessage::RouterAdvertisement(advertisement(100, &[]));
    raw.send(&PEER.ndp(&all(), &said));
    let mut forwarded = ROUTER.ndp(&all(), &said);
    forwarded[21] = 64;
    raw.send(&forwarded);
    assert_eq!(raw.count("ndp_malformed"), 2);
    assert_eq!(first_hop(&mut raw), None);
    let mut deaf = node(|config| config.accept_routers = false);
    advertise(&mut deaf, advertisement(100, &[]));
    assert_eq!(first_hop(&mut deaf), None);
}

#[test]
fn rfc_4862_section_5_5_addresses_are_made_and_checked() {
    let mut raw = Raw6::fresh(|config| config.addresses.clear());
    raw.pass(Duration::from_secs(20));
    let made: Ipv6Addr = "2001:db8:5::ff:fe00:1".parse().unwrap();
    advertise(
        &mut raw,
        advertisement(1800, &[prefix("2001:db8:5::", 1000)]),
    );
    let packets = raw.pass(Duration::from_secs(3));
    let checked = only_ndp(&packets).into_iter().any(|packet| {
        let question = NdpMessage::NeighborSolicitation {
            target: made,
            source_link: None,
        };
        packet.ndp() == Some(question)
    });
    assert!(checked, "{packets:?}");
    assert_eq!(first_hop(&mut raw), Some((made, ROUTER.mac)));
    raw.pass(Duration::from_secs(1000));
    // 5.5.4: it is invalid; what is left is of too small a scope, but better than nothing.
    assert_eq!(first_hop(&mut raw).map(|hop| hop.0), Some(NODE_LINK.ip));
}

#[test]
fn rfc_4862_section_5_5_3_prefixes_that_make_no_address() {
    let mut raw = node(|_| {});
    let good = prefix("2001:db8:5::", 1000);
    let long = PrefixInformation {
        prefix_len: 72,
        ..good
    };
    let contradictory = PrefixInformation {
        preferred_lifetime: 1001,
        ..good
    };
    let not_meant = PrefixInformation {
        autonomous: false,
        ..good
    };
    let link_local = prefix("fe80::", 1000);
    let over = prefix("2001:db8:6::", 0);
    let before = raw.count("addresses_assigned");
    let odd = [long, contradictory, not_meant, link_local, over];
    advertise(&mut raw, advertisement(1800, &odd));
    raw.pass(Duration::from_secs(3));
    assert_eq!(raw.count("addresses_assigned"), before);
    // Limits.
    let mut raw = node(|config| config.max_addresses = 4);
    let flood: Vec<_> = (0..8)
        .map(|n| prefix(&format!("2001:db8:{n}::"), 1000))
        .collect();
    advertise(&mut raw, advertisement(1800, &flood));
    raw.pass(Duration::from_secs(3));
    assert_eq!(raw.count("addresses_assigned"), 4);
}

#[test]
fn rfc_4861_section_6_3_4_prefixes_of_the_link() {
    let mut raw = node(|_| {});
    let neighbor: SocketAddr = "[2001:db8:5::77]:80".parse().unwrap();
    let connect = |raw: &mut Raw6| raw.node.try_connect(raw.now, None, neighbor);
    assert!(connect(&mut raw).is_err());
    advertise(&mut raw, advertisement(0, &[prefix("2001:db8:5::", 100)]));
    raw.pass(Duration::from_secs(3));
    assert!(connect(&mut raw).is_ok());
    let question = raw.turn();
    let SocketAddr::V6(wanted) = neighbor else {
        panic!()
    };
    let group = ipv6::solicited_node(*wanted.ip());
    assert_eq!(one(question).ip.dst, group, "asked for itself");
    raw.pass(Duration::from_secs(100));
    assert!(connect(&mut raw).is_err(), "its time has run out");
}

#[test]
fn rfc_4861_section_6_3_4_mtu_and_hop_limit() {
    let mut raw = node(|config| config.neighbors.push((PEER.ip, PEER.mac)));
    let listener = raw.listen(80);
    let said = |mtu| RouterAdvertisement {
        hop_limit: 33,
        mtu: Some(mtu),
        ..advertisement(1800, &[])
    };
    for (mtu, mss) in [(1279, 1440), (9000, 1440), (1280, 1220)] {
        advertise(&mut raw, said(mtu));
        let answer = one(raw.tcp(&header(mtu as u16, 80, SYN, 1, 0), &[]));
        assert_eq!(answer.ip.hop_limit, 33);
        assert_eq!(answer.tcp().0.options.mss, Some(mss), "{mtu}");
    }
    assert_eq!(raw.node.accept(listener), None);
}

fn redirect(from: &Station6, target: Ipv6Addr, mac: MacOf) -> Vec<u8> {
    let SocketAddr::V6(far) = FAR.parse().unwrap() else {
        panic!()
    };
    let message = NdpMessage::Redirect {
        target,
        destination: *far.ip(),
        target_link: Some(mac),
    };
    from.ndp(&NODE, &message)
}

#[test]
fn rfc_4861_section_8_redirects_of_the_first_hop_are_followed() {
    let mut raw = node(|_| {});
    advertise(&mut raw, advertisement(1800, &[]));
    // Section 8.1: not of another.
    raw.send(&redirect(&OTHER, OTHER.ip, OTHER.mac));
    assert_eq!(first_hop(&mut raw), Some((NODE.ip, ROUTER.mac)));
    raw.send(&redirect(&ROUTER, OTHER.ip, OTHER.mac));
    assert_eq!(first_hop(&mut raw), Some((NODE.ip, OTHER.mac)));
    // Section 7.3.3: when the other one vanishes, the way is looked for anew.
    raw.pass(Duration::from_secs(60));
    advertise(&mut raw, advertisement(1800, &[]));
    assert_eq!(first_hop(&mut raw), Some((NODE.ip, ROUTER.mac)));
}

#[test]
fn rfc_4861_section_7_2_5_a_router_that_says_that_it_is_none() {
    let mut raw = node(|_| {});
    advertise(&mut raw, advertisement(1800, &[]));
    assert!(first_hop(&mut raw).is_some());
    // An advertisement without the router flag.
    raw.send(&ROUTER.advertise(&NODE));
    assert_eq!(first_hop(&mut raw), None);
}

#[test]
fn a_configured_router_needs_no_advertisement() {
    let mut raw = node(|config| {
        config.gateway = Some(ROUTER.ip);
        config.neighbors.push((ROUTER.ip, ROUTER.mac));
        config.accept_routers = false;
    });
    assert_eq!(first_hop(&mut raw), Some((NODE.ip, ROUTER.mac)));
}
