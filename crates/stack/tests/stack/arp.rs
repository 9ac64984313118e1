use std::time::Duration;

use sidecore_tcp::CloseReason;
use sidecore_testkit::packet::{Packet, Station, header};
use sidecore_testkit::{A, B, Event, Pair};
use sidecore_wire::{ArpOperation, ArpPacket, MacAddress};

use crate::raw::*;

fn arp(packet: Packet) -> (MacAddress, ArpPacket) {
    match packet {
        Packet::Arp(ethernet, arp) => {
            assert_eq!((ethernet.src, arp.sender_mac), (NODE.mac, NODE.mac));
            (ethernet.dst, arp)
        }
        other => panic!("not ARP: {other:?}"),
    }
}

/// A request for the peer, to everybody or to where it was.
fn assert_request(packet: Packet, to: MacAddress) {
    let (dst, arp) = arp(packet);
    assert_eq!(dst, to);
    assert_eq!(arp.operation, ArpOperation::Request);
    assert_eq!((arp.sender_ip, arp.target_ip), (NODE.ip, PEER.ip));
}

fn connect(raw: &mut Raw) -> u32 {
    raw.node.connect(raw.now, "10.0.0.2:80".parse().unwrap())
}

#[test]
fn own_addresses_are_announced() {
    let mut raw = Raw::with(|config| config.arp.announce = true);
    let (dst, packet) = arp(one(raw.turn()));
    assert!(dst.is_broadcast());
    assert_eq!((packet.sender_ip, packet.target_ip), (NODE.ip, NODE.ip));
}

#[test]
fn requests_are_answered_and_teach() {
    let mut raw = Raw::with(|_| {});
    let (dst, reply) = arp(one(raw.send(&PEER.arp(ArpOperation::Request, &NODE))));
    assert_eq!(dst, PEER.mac);
    assert_eq!(reply.operation, ArpOperation::Reply);
    assert_eq!((reply.target_mac, reply.target_ip), (PEER.mac, PEER.ip));
    // So nothing need be asked.
    connect(&mut raw);
    assert_eq!(one_tcp(raw.turn()).0, SYN);
}

#[test]
fn connections_wait_for_the_answer() {
    let mut raw = Raw::with(|_| {});
    connect(&mut raw);
    assert_request(one(raw.turn()), MacAddress::BROADCAST);
    // A second one waits too, without another request.
    connect(&mut raw);
    assert_eq!(raw.turn(), []);
    assert!(!raw.node.stack.has_work());
    let syns = raw.answer_arp();
    assert_eq!(syns.len(), 2);
    for syn in syns {
        assert_eq!(one_tcp(vec![syn]).0, SYN);
    }
}

#[test]
fn a_syn_does_not_teach() {
    let mut raw = Raw::with(|_| {});
    raw.listen(80, 4);
    let answer = raw.tcp(&header(9, 80, SYN, 1, 0), &[]);
    assert_request(one(answer), MacAddress::BROADCAST);
    assert_eq!(one_tcp(raw.answer_arp()).0, SYN | ACK);
}

#[test]
fn nobody_answers() {
    let mut raw = Raw::with(|_| {});
    let user = connect(&mut raw);
    let requests = raw.pass(Duration::from_millis(2900));
    assert_eq!(requests.len(), 3);
    assert_eq!(raw.node.closed(user), None);
    assert_eq!(raw.pass(Duration::from_millis(200)), []);
    assert_eq!(raw.node.closed(user), Some(CloseReason::Unreachable));
    assert_eq!(raw.node.stack.connection_count(), 0);
    assert_eq!(raw.count("arp_failed"), 1);
    // For a while there is no new attempt, later there is.
    let user = connect(&mut raw);
    assert_eq!(raw.turn(), []);
    assert_eq!(raw.node.closed(user), Some(CloseReason::Unreachable));
    raw.pass(Duration::from_secs(1));
    connect(&mut raw);
    assert_request(one(raw.turn()), MacAddress::BROADCAST);
}

#[test]
fn a_neighbour_that_is_used_is_asked_again_where_it_was() {
    let mut raw = Raw::with(|_| {});
    let (_, listener) = raw.listen(80, 4);
    raw.send(&PEER.arp(ArpOperation::Request, &NODE));
    let (iss, user) = raw.open(listener, 9, 80);
    assert_eq!(
        raw.pass(Duration::from_secs(61)),
        [],
        "idle entries cost nothing"
    );
    raw.node.write(user, b"x");
    let packets = raw.turn();
    assert_eq!(packets.len(), 2, "{packets:?}");
    let (first, second) = (packets[0].clone(), packets[1].clone());
    // The data goes out without waiting.
    assert_eq!(first.tcp().1, b"x");
    assert_request(second, PEER.mac);
    assert_eq!(raw.answer_arp(), []);
    // Were it not acknowledged, the third retransmission would cast doubt on the neighbour.
    raw.tcp(&header(9, 80, ACK, 1001, iss + 2), &[]);
    let later = raw.pass(Duration::from_secs(5));
    assert!(
        later
            .iter()
            .all(|packet| !matches!(packet, Packet::Arp(..))),
        "{later:?}"
    );
}

#[test]
fn a_neighbour_that_vanished_is_looked_for_everywhere() {
    let mut raw = Raw::with(|_| {});
    let (_, listener) = raw.listen(80, 4);
    raw.send(&PEER.arp(ArpOperation::Request, &NODE));
    let (iss, user) = raw.open(listener, 9, 80);
    raw.pass(Duration::from_secs(61));
    raw.node.write(user, b"x");
    let packets = raw.pass(Duration::from_millis(3100));
    let asked: Vec<_> = packets
        .iter()
        .filter(|packet| matches!(packet, Packet::Arp(..)))
        .map(|packet| arp(packet.clone()).0)
        .collect();
    assert_eq!(asked[..3], [PEER.mac, PEER.mac, MacAddress::BROADCAST]);
    // It comes back with another link address, and gets what was lost meanwhile.
    raw.pass(Duration::from_secs(5));
    let moved = Station {
        mac: MacAddress([2, 0, 0, 0, 0, 99]),
        ..PEER
    };
    raw.send(&moved.arp(ArpOperation::Reply, &NODE));
    let packets = raw.pass(Duration::from_secs(60));
    let data = packets.iter().filter_map(|packet| match packet {
        Packet::Tcp(_, header, payload) => Some((header.seq.0, payload.clone())),
        _ => None,
    });
    assert!(
        data.clone()
            .any(|(seq, payload)| seq == iss + 1 && payload == b"x")
    );
    assert_eq!(raw.node.closed(user), None);
}

#[test]
fn an_established_connection_without_neighbour_times_out_in_the_end() {
    let mut raw = Raw::with(|_| {});
    let (_, listener) = raw.listen(80, 4);
    raw.send(&PEER.arp(ArpOperation::Request, &NODE));
    let (_, user) = raw.open(listener, 9, 80);
    raw.pass(Duration::from_secs(61));
    raw.node.write(user, b"x");
    raw.pass(Duration::from_secs(1200));
    assert!(matches!(
        raw.node.closed(user),
        Some(CloseReason::TimedOut | CloseReason::Unreachable)
    ));
    assert_eq!(raw.node.stack.connection_count(), 0);
}

#[test]
fn what_is_learnt_and_what_is_not() {
    let mut raw = Raw::with(|_| {});
    // An unsolicited reply makes no entry.
    raw.answer_arp();
    connect(&mut raw);
    assert_request(one(raw.turn()), MacAddress::BROADCAST);
    // Replies that no neighbour can send.
    let odd = [
        Station {
            ip: [10, 0, 0, 255].into(),
            ..PEER
        },
        Station {
            ip: [10, 9, 9, 9].into(),
            ..PEER
        },
        Station {
            ip: [224, 0, 0, 1].into(),
            ..PEER
        },
    ];
    for station in odd {
        assert_eq!(raw.send(&station.arp(ArpOperation::Reply, &NODE)), []);
    }
    assert_eq!(raw.count("arp_malformed"), 3);
    // Somebody else has our address: counted, not learnt.
    let thief = Station {
        ip: NODE.ip,
        ..PEER
    };
    assert_eq!(raw.send(&thief.arp(ArpOperation::Request, &PEER)), []);
    assert_eq!(raw.count("arp_conflicts"), 1);
    // A probe is answered (RFC 5227).
    let probe = Station {
        ip: [0, 0, 0, 0].into(),
        ..PEER
    };
    let (dst, _) = arp(one(raw.send(&probe.arp(ArpOperation::Request, &NODE))));
    assert_eq!(dst, PEER.mac);
    // A request for others is not answered; but it tells what we were asking for.
    let to_another = PEER.arp(ArpOperation::Request, &Station::new(77));
    assert_eq!(one_tcp(raw.send(&to_another)).0, SYN);
}

#[test]
fn a_request_for_others_updates_what_is_known() {
    let mut raw = Raw::with(|_| {});
    raw.send(&PEER.arp(ArpOperation::Request, &NODE));
    let moved = Station {
        mac: MacAddress([2, 0, 0, 0, 0, 99]),
        ..PEER
    };
    raw.send(&moved.arp(ArpOperation::Request, &Station::new(77)));
    connect(&mut raw);
    let frames = raw.node.turn(raw.now);
    assert_eq!(frames[0][..6], moved.mac.0);
}

#[test]
fn a_permanent_neighbour_stays() {
    let mut raw = Raw::new();
    let moved = Station {
        mac: MacAddress([2, 0, 0, 0, 0, 99]),
        ..PEER
    };
    raw.send(&moved.arp(ArpOperation::Reply, &NODE));
    connect(&mut raw);
    let frames = raw.node.turn(raw.now);
    assert_eq!(frames[0][..6], PEER.mac.0);
}

#[test]
fn beyond_the_link_goes_to_the_gateway() {
    let mut raw = Raw::with(|config| config.gateway = Some(PEER.ip));
    raw.node.connect(raw.now, "8.8.8.8:80".parse().unwrap());
    assert_request(one(raw.turn()), MacAddress::BROADCAST);
    let syn = one(raw.answer_arp());
    let Packet::Tcp(ip, ..) = syn else {
        panic!("{syn:?}")
    };
    assert_eq!(ip.dst.octets(), [8, 8, 8, 8]);
}

#[test]
fn a_pair_finds_each_other() {
    let mut pair = Pair::default();
    let (client, _) = pair.establish(80);
    assert_eq!(pair.nodes[A].events(client), [Event::Connected]);
    for n in [A, B] {
        // The announcement, and one question of A's at most.
        assert!(pair.nodes[n].count("arp_requests_out") <= 2);
    }
}
