//! TCP and UDP over IPv6.

use std::net::SocketAddr;
use std::time::Duration;

use sidecore_stack::StackError;
use sidecore_tcp::{CloseReason, IcmpKind};
use sidecore_testkit::packet::{self, header};
use sidecore_testkit::packet6::{Content6, Station6};
use sidecore_testkit::{A, B, Event, Link, Pair, pattern};
use sidecore_wire::{Icmpv6, TcpOptions};

use super::*;
use crate::raw::RST;

fn addr(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

#[test]
fn a_connection_from_a_peer() {
    let mut raw = Raw6::new();
    let listener = raw.listen(80);
    let mut syn = header(9, 80, SYN, 1000, 0);
    syn.options.mss = Some(1440);
    let answer = one(raw.tcp(&syn, &[]));
    assert_eq!((answer.ip.src, answer.ip.dst), (NODE.ip, PEER.ip));
    // RFC 6437: one label for the connection.
    let label = answer.ip.flow_label;
    let (answer, _) = answer.tcp();
    // RFC 8200 section 8.3: the MTU less 60 bytes.
    assert_eq!(answer.options.mss, Some(1440));
    let iss = answer.seq.0;
    raw.tcp(&header(9, 80, ACK, 1001, iss + 1), b"question");
    let user = raw.node.accept(listener).expect("accepted");
    assert_eq!(raw.node.received(user), b"question");
    assert_eq!(
        raw.node.addresses(user),
        Some((addr("[fd00::1]:80"), addr("[fd00::2]:9")))
    );
    raw.node.write(user, b"answer");
    let packet = one(raw.turn());
    assert_eq!(packet.ip.flow_label, label);
    assert_eq!(packet.tcp().1, b"answer");
    raw.tcp(&header(9, 80, RST, 1009, 0), &[]);
    assert_eq!(raw.node.closed(user), Some(CloseReason::Reset));
}

#[test]
fn a_segment_to_nobody_is_reset() {
    let mut raw = Raw6::new();
    assert_eq!(
        one_flags(raw.tcp(&header(9, 80, SYN, 1, 0), &[])),
        RST | ACK
    );
    let mut damaged = PEER.tcp(&NODE, &header(9, 80, SYN, 1, 0), &[]);
    damaged[54] ^= 1;
    assert_eq!(raw.send(&damaged), []);
    assert_eq!(raw.count("tcp_bad_checksum"), 1);
    // RFC 9293 MUST-57.
    let all = Station6::group("ff02::1".parse().unwrap());
    assert_eq!(
        raw.send(&PEER.tcp(&all, &header(9, 80, SYN, 1, 0), &[])),
        []
    );
}

/// What two nodes send each other arrives, whatever happens on the way.
fn transfer(link: Link, tso_max: u32, len: usize) -> Pair {
    let configs = [1, 2].map(|host| {
        let mut config = node_config(host);
        config.stack.ipv6.dad_transmits = 0;
        config.stack.ipv6.accept_routers = false;
        config.tso_max = tso_max;
        config
    });
    let mut pair = Pair::new(configs, link, 7);
    let all = addr("[::]:80");
    let (_, listener) = pair.nodes[B].listen_at(all, false, 4).unwrap();
    let now = pair.now();
    let client = pair.nodes[A].connect(now, addr("[fd00::2]:80"));
    let mut server = None;
    pair.run_until(|pair| {
        server = server.or_else(|| pair.nodes[B].accept(listener));
        server.is_some()
    });
    let server = server.expect("accepted");
    let (there, back) = (pattern(1, 0, len), pattern(2, 0, len));
    pair.run_until(|pair| pair.nodes[A].events(client).contains(&Event::Connected));
    pair.nodes[A].write(client, &there);
    pair.nodes[B].write(server, &back);
    pair.run_until(|pair| {
        pair.nodes[B].received(server).len() == len && pair.nodes[A].received(client).len() == len
    });
    assert_eq!(pair.nodes[B].received(server), there);
    assert_eq!(pair.nodes[A].received(client), back);
    pair.nodes[A].close(client);
    pair.nodes[B].close(server);
    pair.run_until(|pair| pair.nodes[B].closed(server).is_some());
    assert_eq!(pair.nodes[B].closed(server), Some(CloseReason::Normal));
    pair
}

#[test]
fn both_ways_over_a_good_link() {
    let pair = transfer(Link::default(), 0, 100_000);
    assert_eq!(pair.nodes[A].count("tcp_retransmissions"), 0);
    assert!(pair.nodes[A].count("ndp_out") <= 2, "asked once");
}

#[test]
fn both_ways_with_super_segments_over_a_bad_link() {
    let bad = Link {
        loss: 30,
        duplicate: 20,
        corrupt: 10,
        jitter: Duration::from_micros(300),
        ..Link::default()
    };
    let pair = transfer(bad, 65000, 200_000);
    assert!(pair.nodes[A].count("tcp_retransmissions") > 0);
}

#[test]
fn within_the_stack() {
    let mut raw = Raw6::new();
    let listener = raw.listen(80);
    let client = raw.node.connect(raw.now, addr("[::1]:80"));
    assert_eq!(raw.turn(), []);
    let server = raw.node.accept(listener).expect("accepted");
    let bytes = pattern(1, 0, 300_000);
    raw.node.write(client, &bytes);
    raw.pass(Duration::from_secs(1));
    assert_eq!(raw.node.received(server), bytes);
    let (local, remote) = raw.node.addresses(server).expect("addresses");
    assert!(local.ip().is_loopback() && remote.ip().is_loopback());
    // To an own address it is the same.
    raw.node.connect(raw.now, addr("[fd00::1]:80"));
    assert_eq!(raw.turn(), []);
    assert!(raw.node.accept(listener).is_some());
    // RFC 4291 section 2.5.3: nobody outside speaks for ::1.
    let thief = Station6 {
        ip: "::1".parse().unwrap(),
        ..PEER
    };
    assert_eq!(
        raw.send(&thief.tcp(&NODE, &header(9, 80, SYN, 1, 0), &[])),
        []
    );
    assert_eq!(raw.count("ip_bad_source"), 1);
}

#[test]
fn rfc_3493_section_5_3_one_listener_for_both_versions() {
    let (station, peer) = (packet::Station::new(1), packet::Station::new(2));
    let syn = header(9, 80, SYN, 1, 0);
    let v4 = peer.tcp(&station, &syn, &[]);
    let v6 = PEER.tcp(&NODE, &syn, &[]);
    for (v6_only, answers) in [(false, SYN | ACK), (true, RST | ACK)] {
        let mut config = node_config(1);
        config.stack.ipv6.neighbors.push((PEER.ip, PEER.mac));
        config.stack.ipv6.dad_transmits = 0;
        config.stack.neighbors.push((peer.ip, peer.mac));
        let now = Instant::from_secs(1000);
        let mut node = Node::new(&config, now);
        node.turn(now);
        node.listen_at(addr("[::]:80"), v6_only, 4).unwrap();
        node.receive(now, &v4);
        let (answer, _) = packet::Packet::parse(&node.turn(now)[0]).tcp();
        assert_eq!(answer.flags, answers);
        node.receive(now, &v6);
        let answer = Packet6::parse(&node.turn(now)[0]).expect("IPv6");
        assert_eq!(answer.tcp().0.flags, SYN | ACK);
        // What it leaves to others.
        let another = node.listen_at(addr("0.0.0.0:80"), false, 4);
        assert_eq!(another.is_ok(), v6_only);
        let again = node.listen_at(addr("[fd00::1]:80"), true, 4);
        assert_eq!(again.unwrap_err(), StackError::AddressInUse);
    }
}

#[test]
fn addresses_to_listen_at() {
    let mut raw = Raw6::new();
    let listen = |raw: &mut Raw6, text: &str| raw.node.listen_at(addr(text), false, 4);
    let elsewhere = listen(&mut raw, "[fd00::5]:80").unwrap_err();
    assert_eq!(elsewhere, StackError::AddressNotAvailable);
    assert!(listen(&mut raw, "[fd00::1]:80").is_ok());
    assert!(listen(&mut raw, "[::1]:80").is_ok());
    assert!(listen(&mut raw, "0.0.0.0:80").is_ok(), "the other version");
    let mapped = listen(&mut raw, "[::ffff:10.0.0.1]:80").unwrap_err();
    assert_eq!(mapped, StackError::AddressInUse);
    let mut without = Raw6::fresh(|config| config.enabled = false);
    let off = listen(&mut without, "[::]:80").unwrap_err();
    assert_eq!(off, StackError::AddressNotAvailable);
    let connect = without
        .node
        .try_connect(without.now, None, addr("[fd00::2]:80"));
    assert_eq!(connect, Err(StackError::Unreachable));
}

#[test]
fn where_connections_cannot_go() {
    let mut raw = Raw6::new();
    let mut connect = |to: &str| raw.node.try_connect(raw.now, None, addr(to)).unwrap_err();
    assert_eq!(connect("[ff02::1]:80"), StackError::InvalidAddress);
    assert_eq!(connect("[fd00::2]:0"), StackError::InvalidAddress);
    assert_eq!(connect("[2001:db8::1]:80"), StackError::Unreachable);
    let local = Some(addr("[fd00::7]:0"));
    let wrong = raw.node.try_connect(raw.now, local, addr("[fd00::2]:80"));
    assert_eq!(wrong, Err(StackError::AddressNotAvailable));
}

/// The SYN of a connection to the peer, and the peer's answer to it.
fn connected(raw: &mut Raw6) -> (u32, u16, User) {
    let user = raw.node.connect(raw.now, addr("[fd00::2]:80"));
    let (syn, _) = one(raw.turn()).tcp();
    let mut answer = header(80, syn.src_port, SYN | ACK, 500, syn.seq.0 + 1);
    answer.options = TcpOptions {
        mss: Some(1440),
        ..TcpOptions::NONE
    };
    assert_eq!(one_flags(raw.tcp(&answer, &[])), ACK);
    (syn.seq.0, syn.src_port, user)
}

#[test]
fn rfc_8201_section_4_packet_too_big() {
    let mut raw = Raw6::new();
    let (_, _, user) = connected(&mut raw);
    raw.node.write(user, &pattern(0, 0, 5000));
    let frames = raw.node.turn(raw.now);
    assert_eq!(frames[0].len(), 1514);
    let too_big = |mtu| ROUTER.icmp(&NODE, &Icmpv6::PacketTooBig { mtu }, &frames[0][14..]);
    // Less than any link carries: a lie.
    assert_eq!(raw.send(&too_big(1279)), []);
    assert_eq!(raw.count("icmp_unmatched"), 1);
    raw.send(&too_big(1280));
    let mss = raw.node.tcp(user).expect("a connection").effective_mss();
    assert_eq!(mss, 1220, "1280 less both headers");
    let again = raw.node.turn(raw.now);
    assert!(again.iter().all(|frame| frame.len() <= 1280 + 14));
}

#[test]
fn rfc_4443_errors_end_an_open_and_not_a_connection() {
    let mut raw = Raw6::new();
    let user = raw.node.connect(raw.now, addr("[fd00::2]:80"));
    let syn = raw.node.turn(raw.now).remove(0);
    let refused = Icmpv6::DestinationUnreachable { code: 4 };
    let error = |quoted: &[u8]| ROUTER.icmp(&NODE, &refused, quoted);
    let mut forged = syn[14..].to_vec();
    forged[44] ^= 1;
    raw.send(&error(&forged));
    assert_eq!(raw.node.closed(user), None, "another sequence number");
    raw.send(&error(&syn[14..]));
    assert_eq!(raw.node.closed(user), Some(CloseReason::Refused));

    let (_, _, user) = connected(&mut raw);
    raw.node.write(user, b"x");
    let data = raw.node.turn(raw.now).remove(0);
    raw.send(&error(&data[14..]));
    assert_eq!(raw.node.closed(user), None);
}

#[test]
fn datagrams_there_and_back() {
    let mut raw = Raw6::new();
    let (id, user) = raw.node.udp_bind(addr("[::]:53"));
    raw.send(&PEER.udp(&NODE, (9, 53), b"query"));
    let got = raw.node.take_datagrams().remove(0);
    assert_eq!((got.user, got.bytes.as_slice()), (user, &b"query"[..]));
    assert_eq!(
        (got.from, got.to),
        (addr("[fd00::2]:9"), addr("[fd00::1]:53"))
    );
    let most = pattern(0, 0, 1500 - 48);
    raw.node.udp_send(raw.now, id, got.from, &most).unwrap();
    let answer = one(raw.turn());
    assert!(matches!(answer.content, Content6::Udp(h, p) if h.dst_port == 9 && p == most));
    let too_long = raw.node.udp_send(raw.now, id, got.from, &[0; 1453]);
    assert_eq!(too_long, Err(StackError::MessageTooLarge));
    // Bound to :: it reaches both versions; and hears both.
    let v4 = raw.node.udp_send(raw.now, id, addr("10.0.0.2:9"), b"x");
    assert_eq!(v4, Err(StackError::Resolving));
    let taken = raw.node.stack.udp_bind(addr("0.0.0.0:53"), 0);
    assert_eq!(taken, Err(StackError::AddressInUse));
    // To all nodes of the link.
    raw.node.turn(raw.now);
    raw.node
        .udp_send(raw.now, id, addr("[ff02::1]:9"), b"all")
        .unwrap();
    assert_eq!(one(raw.turn()).ip.src, NODE_LINK.ip);
}

#[test]
fn rfc_8200_section_8_1_a_datagram_without_checksum_is_dropped() {
    let mut raw = Raw6::new();
    raw.node.udp_bind(addr("[::]:53"));
    let mut frame = PEER.udp(&NODE, (9, 53), b"query");
    frame[60..62].fill(0);
    assert_eq!(raw.send(&frame), []);
    assert_eq!(raw.count("udp_bad_checksum"), 1);
    assert!(raw.node.take_datagrams().is_empty());
}

#[test]
fn rfc_4443_section_3_1_port_unreachable_both_ways() {
    let mut raw = Raw6::new();
    let query = PEER.udp(&NODE, (9, 53), b"query");
    let answer = one(raw.send(&query));
    let code = Icmpv6::DestinationUnreachable { code: 4 };
    assert_eq!(answer.content, Content6::Icmp(code, query[14..].to_vec()));

    let (id, user) = raw.node.udp_bind(addr("[::]:53"));
    let to = addr("[fd00::2]:9");
    raw.node.udp_send(raw.now, id, to, b"query").unwrap();
    let sent = raw.node.turn(raw.now).remove(0);
    for (message, kind) in [
        (code, IcmpKind::PortUnreachable),
        // Path MTU discovery is the caller's, over UDP.
        (
            Icmpv6::PacketTooBig { mtu: 1400 },
            IcmpKind::FragmentationNeeded { mtu: 1400 },
        ),
    ] {
        raw.send(&PEER.icmp(&NODE, &message, &sent[14..]));
        let events = raw.node.take_datagram_events();
        assert_eq!(events, [(user, Event::IcmpError(to, kind))]);
        let report = raw.node.take_datagram_errors().remove(0);
        assert_eq!((report.remote, report.offender), (to, PEER.ip.into()));
        assert_eq!(report.payload, b"query");
        let expected = match kind {
            IcmpKind::PortUnreachable => ((1, 4), 0),
            _ => ((2, 0), 1400),
        };
        assert_eq!((report.message, report.info), expected);
    }
}
