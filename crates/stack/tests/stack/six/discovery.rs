//! Neighbours and own addresses (RFC 4861 section 7, RFC 4862 section 5.4).

use std::net::Ipv6Addr;

use sidecore_stack::{InterfaceId, Ipv6Config};
use sidecore_tcp::CloseReason;
use sidecore_testkit::packet6::{Content6, Station6};
use sidecore_wire::{Icmpv6, MacAddress, NdpMessage, ipv6, mld};

use super::*;

const NOBODY: Station6 = Station6 {
    mac: PEER.mac,
    ip: Ipv6Addr::UNSPECIFIED,
};

fn connect(raw: &mut Raw6) -> User {
    let remote = "[fd00::2]:80".parse().unwrap();
    raw.node.connect(raw.now, remote)
}

/// Where solicitations for the peer went, in order.
fn asked(packets: &[Packet6]) -> Vec<MacAddress> {
    let question = NdpMessage::NeighborSolicitation {
        target: PEER.ip,
        source_link: Some(NODE.mac),
    };
    let packets = only_ndp(packets).into_iter();
    packets
        .map(|packet| {
            assert_eq!(packet.ndp(), Some(question));
            packet.to
        })
        .collect()
}

fn peer_group() -> MacAddress {
    ipv6::multicast_mac(ipv6::solicited_node(PEER.ip))
}

fn moved() -> Station6 {
    Station6 {
        mac: MacAddress([2, 0, 0, 0, 0, 99]),
        ..PEER
    }
}

#[test]
fn rfc_4862_section_5_4_an_address_is_checked_before_it_is_used() {
    let mut raw = Raw6::fresh(|config| config.accept_routers = false);
    let packets = raw.pass(Duration::from_secs(3));
    let probes: Vec<_> = only_ndp(&packets)
        .into_iter()
        .map(|packet| (packet.ip.src, packet.ip.dst, packet.ndp().unwrap()))
        .collect();
    let probe = |target| {
        let question = NdpMessage::NeighborSolicitation {
            target,
            source_link: None,
        };
        (NOBODY.ip, ipv6::solicited_node(target), question)
    };
    assert_eq!(probes.len(), 2);
    assert!(probes.contains(&probe(NODE.ip)) && probes.contains(&probe(NODE_LINK.ip)));
    assert_eq!(raw.count("addresses_assigned"), 2);
    // RFC 3810: each group is joined before, twice at least.
    let report = |packet: &&Packet6| {
        matches!(
            packet.content,
            Content6::Icmp(
                Icmpv6::Other {
                    type_: mld::REPORT_V2,
                    ..
                },
                _
            )
        )
    };
    let reports: Vec<_> = packets.iter().filter(report).collect();
    assert!(reports.len() >= 3, "{reports:?}");
    for report in reports {
        assert_eq!(report.ip.dst, ipv6::ALL_MLDV2_ROUTERS);
        assert_eq!((report.ip.hop_limit, report.ip.next_header), (1, 0));
    }
}

#[test]
fn rfc_4862_section_5_4_before_that_it_is_nobodys() {
    let mut raw = Raw6::fresh(|config| config.accept_routers = false);
    raw.pass(Duration::from_millis(900));
    // Programs may listen already; nothing reaches them.
    let listener = raw.listen(80);
    assert_eq!(raw.tcp(&header(9, 80, SYN, 1, 0), &[]), []);
    let ping = Icmpv6::EchoRequest { ident: 1, seq: 1 };
    assert_eq!(raw.send(&PEER.icmp(&NODE, &ping, b"")), []);
    assert_eq!(
        only_ndp(&raw.send(&PEER.solicit(&NODE))).len(),
        0,
        "not answered"
    );
    raw.pass(Duration::from_secs(2));
    let answers = raw.tcp(&header(9, 80, SYN, 1, 0), &[]);
    assert_eq!(asked(&answers), [peer_group()]);
    assert_eq!(one_flags(raw.send(&PEER.advertise(&NODE))), SYN | ACK);
    assert_eq!(raw.node.accept(listener), None);
}

#[test]
fn rfc_4862_section_5_4_5_an_address_that_another_station_has() {
    let advertised = PEER.mac;
    let thief = Station6 {
        mac: advertised,
        ..NODE
    };
    let claims = [
        // Section 5.4.4: it says so; 5.4.3: it is about to say so.
        thief.advertise(&Station6::group(ipv6::ALL_NODES)),
        NOBODY.solicit(&NODE),
    ];
    for claim in claims {
        let mut raw = Raw6::fresh(|config| config.accept_routers = false);
        raw.pass(Duration::from_millis(1000));
        raw.send(&claim);
        assert_eq!(raw.count("addresses_duplicate"), 1);
        raw.pass(Duration::from_secs(10));
        assert_eq!(raw.count("addresses_assigned"), 1, "the link-local one");
        let gone = raw
            .node
            .stack
            .udp_bind("[fd00::1]:1".parse::<std::net::SocketAddr>().unwrap(), 0);
        assert!(gone.is_err());
    }
    // Our own question, come back from the link.
    let mut raw = Raw6::fresh(|config| config.accept_routers = false);
    raw.pass(Duration::from_millis(1000));
    let ours = Station6 {
        mac: NODE.mac,
        ..NOBODY
    };
    raw.send(&ours.solicit(&NODE));
    assert_eq!(raw.count("addresses_duplicate"), 0);
    // Once it is ours it stays.
    raw.pass(Duration::from_secs(3));
    raw.send(&thief.advertise(&Station6::group(ipv6::ALL_NODES)));
    assert_eq!(raw.count("addresses_contested"), 1);
    assert_eq!(raw.count("addresses_assigned"), 2);
}

/// The link-local address of a node with this configuration.
fn link_local(change: impl FnOnce(&mut Ipv6Config)) -> Ipv6Addr {
    let mut raw = Raw6::with(change);
    let all = "[ff02::1]:9".parse().unwrap();
    let (id, _) = raw.node.udp_bind("[::]:0".parse().unwrap());
    raw.node.udp_send(raw.now, id, all, b"who am I?").unwrap();
    one(raw.turn()).ip.src
}

#[test]
fn rfc_7217_identifiers_and_those_of_the_link_address() {
    assert_eq!(
        link_local(|_| {}),
        "fe80::ff:fe00:1".parse::<Ipv6Addr>().unwrap()
    );
    let stable =
        |secret: u8| link_local(|config| config.interface_id = InterfaceId::Stable([secret; 16]));
    assert_eq!(stable(1), stable(1));
    assert_ne!(stable(1), stable(2));
    // Section 6: one that is taken gives way to another.
    let taken = Station6 {
        ip: stable(1),
        ..PEER
    };
    let mut raw = Raw6::fresh(|config| {
        config.interface_id = InterfaceId::Stable([1; 16]);
        config.accept_routers = false;
    });
    raw.pass(Duration::from_millis(1000));
    raw.send(&taken.advertise(&Station6::group(ipv6::ALL_NODES)));
    raw.pass(Duration::from_secs(3));
    assert_eq!(raw.count("addresses_duplicate"), 1);
    assert_eq!(raw.count("addresses_assigned"), 2);
}

#[test]
fn rfc_4861_section_7_2_4_questions_are_answered() {
    let mut raw = Raw6::with(|_| {});
    let answer = one(raw.send(&PEER.solicit(&NODE)));
    let said = |solicited| NdpMessage::NeighborAdvertisement {
        router: false,
        solicited,
        override_: true,
        target: NODE.ip,
        target_link: Some(NODE.mac),
    };
    assert_eq!(
        (answer.to, answer.ip.dst, answer.ip.hop_limit),
        (PEER.mac, PEER.ip, 255)
    );
    assert_eq!(answer.ndp(), Some(said(true)));
    // So nothing need be asked.
    connect(&mut raw);
    assert_eq!(one_flags(raw.turn()), SYN);
    // A probe: to all.
    let answer = one(raw.send(&NOBODY.solicit(&NODE)));
    assert_eq!(
        (answer.ip.dst, answer.ndp()),
        (ipv6::ALL_NODES, Some(said(false)))
    );
    // For another; with a hop limit that a router has passed.
    assert_eq!(raw.send(&PEER.solicit(&ROUTER)), []);
    let mut forwarded = PEER.solicit(&NODE);
    forwarded[21] = 254;
    assert_eq!(raw.send(&forwarded), []);
    assert_eq!(raw.count("ndp_malformed"), 1);
}

#[test]
fn rfc_4861_section_7_2_2_connections_wait_for_the_answer() {
    let mut raw = Raw6::with(|_| {});
    connect(&mut raw);
    let question = one(raw.turn());
    assert_eq!(
        (question.ip.src, question.ip.dst),
        (NODE.ip, ipv6::solicited_node(PEER.ip))
    );
    assert_eq!(asked(&[question]), [peer_group()]);
    connect(&mut raw);
    assert_eq!(raw.turn(), [], "one question for both");
    let syns = raw.send(&PEER.advertise(&NODE));
    assert_eq!(syns.len(), 2);
    assert!(syns.iter().all(|syn| syn.to == PEER.mac));
}

#[test]
fn rfc_4861_section_7_2_2_nobody_answers() {
    let mut raw = Raw6::with(|_| {});
    let user = connect(&mut raw);
    let packets = raw.pass(Duration::from_millis(2900));
    assert_eq!(asked(&packets), [peer_group(); 3]);
    assert_eq!(raw.node.closed(user), None);
    raw.pass(Duration::from_millis(200));
    assert_eq!(raw.node.closed(user), Some(CloseReason::Unreachable));
    assert_eq!(raw.count("ndp_failed"), 1);
    let user = connect(&mut raw);
    assert_eq!(raw.turn(), []);
    assert_eq!(raw.node.closed(user), Some(CloseReason::Unreachable));
    raw.pass(Duration::from_secs(1));
    connect(&mut raw);
    assert_eq!(asked(&raw.turn()), [peer_group()]);
}

/// A connection with the peer, whose link address was learnt.
fn opened(raw: &mut Raw6) -> (u32, User) {
    let listener = raw.listen(80);
    raw.send(&PEER.solicit(&NODE));
    raw.open(listener, 80)
}

#[test]
fn rfc_4861_section_7_3_3_a_neighbor_that_is_used_is_asked_after_a_while() {
    let mut raw = Raw6::with(|_| {});
    let (iss, user) = opened(&mut raw);
    assert_eq!(raw.pass(Duration::from_secs(60)), [], "STALE costs nothing");
    raw.node.write(user, b"x");
    let packets = raw.pass(Duration::from_millis(4900));
    assert_eq!(asked(&packets), [], "DELAY");
    assert_eq!(packets[0].clone().tcp().1, b"x", "goes out without waiting");
    let packets = raw.pass(Duration::from_millis(200));
    assert_eq!(asked(&packets), [PEER.mac], "PROBE, where it was");
    raw.send(&PEER.advertise(&NODE));
    raw.tcp(&header(9, 80, ACK, 1001, iss + 2), &[]);
    assert_eq!(asked(&raw.pass(Duration::from_secs(10))), [], "REACHABLE");
}

#[test]
fn rfc_4861_section_7_3_1_acknowledgments_confirm_a_neighbor() {
    let mut raw = Raw6::with(|_| {});
    let (iss, user) = opened(&mut raw);
    raw.pass(Duration::from_secs(60));
    for n in 1..40 {
        raw.node.write(user, b"x");
        let packets = raw.pass(Duration::from_secs(3));
        assert_eq!(asked(&packets), [], "after {n}");
        raw.tcp(&header(9, 80, ACK, 1001, iss + 1 + n), &[]);
    }
}

#[test]
fn rfc_4861_section_7_3_3_a_neighbor_that_vanished_is_looked_for_anew() {
    let mut raw = Raw6::with(|_| {});
    let (iss, user) = opened(&mut raw);
    raw.pass(Duration::from_secs(60));
    raw.node.write(user, b"x");
    let packets = raw.pass(Duration::from_secs(20));
    let asked = asked(&packets);
    assert_eq!(asked[..4], [PEER.mac, PEER.mac, PEER.mac, peer_group()]);
    let packets = {
        raw.send(&moved().advertise(&NODE));
        raw.pass(Duration::from_secs(60))
    };
    let found = packets.into_iter().any(|packet| {
        let to = packet.to;
        matches!(packet.content, Content6::Tcp(header, payload)
            if to == moved().mac && header.seq.0 == iss + 1 && payload == b"x")
    });
    assert!(found, "what was lost meanwhile");
    assert_eq!(raw.node.closed(user), None);
}

#[test]
fn rfc_4861_section_7_2_3_and_7_2_5_what_is_learnt_and_what_is_not() {
    let mut raw = Raw6::with(|_| {});
    // An advertisement that nobody asked for makes no entry.
    raw.send(&PEER.advertise(&NODE));
    // Nor does a question from another network, which is answered all the same.
    let far = Station6 {
        ip: "2001:db8::7".parse().unwrap(),
        ..PEER
    };
    assert_eq!(raw.send(&far.solicit(&NODE)).len(), 1);
    connect(&mut raw);
    assert_eq!(asked(&raw.turn()), [peer_group()]);
    raw.send(&PEER.advertise(&NODE));
    // Without the override flag another address is not taken, but doubted (7.2.5 I).
    let doubtful = NdpMessage::NeighborAdvertisement {
        router: false,
        solicited: false,
        override_: false,
        target: PEER.ip,
        target_link: Some(moved().mac),
    };
    raw.send(&PEER.ndp(&NODE, &doubtful));
    connect(&mut raw);
    assert_eq!(one(raw.turn()).to, PEER.mac);
    assert_eq!(asked(&raw.pass(Duration::from_millis(5100))), [PEER.mac]);
    // With it, it is.
    raw.send(&moved().advertise(&NODE));
    connect(&mut raw);
    assert_eq!(one(raw.turn()).to, moved().mac);
}

#[test]
fn rfc_6583_who_scans_fills_a_part_of_the_cache() {
    let mut raw = Raw6::with(|config| config.neighbor.max_pending = 4);
    let (id, _) = raw.node.udp_bind("[::]:0".parse().unwrap());
    let mut results = Vec::new();
    for n in 0x100..0x120u16 {
        let to = std::net::SocketAddr::from((Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, n), 9));
        results.push(raw.node.udp_send(raw.now, id, to, b"?").unwrap_err());
    }
    let resolving = sidecore_stack::StackError::Resolving;
    assert_eq!(results.iter().filter(|r| **r == resolving).count(), 4);
    assert_eq!(raw.turn().len(), 4);
    // Who is known is reached all the same.
    raw.send(&PEER.solicit(&NODE));
    connect(&mut raw);
    assert_eq!(one_flags(raw.turn()), SYN);
}
