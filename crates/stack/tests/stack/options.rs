//! What sockets can be told: segments, retries, marks, deferred accepts.

use std::num::NonZeroU8;
use std::time::Duration;

use sidecore_stack::{SocketOption, SocketOptions};
use sidecore_tcp::{CloseReason, State};
use sidecore_testkit::packet::{Packet, header};
use sidecore_testkit::{A, B, Pair};
use sidecore_wire::Ipv4Header;

use crate::raw::*;

const SECOND: Duration = Duration::from_secs(1);

fn ip_of(packet: &Packet) -> Ipv4Header {
    match packet {
        Packet::Tcp(ip, ..) | Packet::Udp(ip, ..) => *ip,
        other => panic!("{other:?}"),
    }
}

/// Traffic class and time to live.
fn mark(packet: &Packet) -> (u8, u8) {
    let ip = ip_of(packet);
    (ip.dscp_ecn, ip.ttl)
}

#[test]
fn every_packet_of_a_marked_connection_says_so() {
    let mut raw = Raw::new();
    raw.node.socket.traffic_class = 0xb8;
    raw.node.socket.hop_limit = NonZeroU8::new(5);
    let (_, listener) = raw.listen(80, 4);
    let answer = one(raw.tcp(&header(9, 80, SYN, 1000, 0), &[]));
    assert_eq!(mark(&answer), (0xb8, 5), "the SYN-ACK");
    let iss = answer.tcp().0.seq.0;
    raw.tcp(&header(9, 80, ACK, 1001, iss + 1), &[]);
    let user = raw.node.accept(listener).unwrap();
    let conn = raw.node.conn(user);
    let stack = &mut raw.node.stack;
    assert!(stack.set_option(conn, SocketOption::NoDelay(true)));
    raw.node.write(user, b"data");
    assert_eq!(mark(&one(raw.turn())), (0xb8, 5), "data");
    let stack = &mut raw.node.stack;
    assert!(stack.set_option(conn, SocketOption::TrafficClass(0x23)));
    assert_eq!(stack.marking(conn), Some((0x20, NonZeroU8::new(5))));
    assert!(stack.set_option(conn, SocketOption::HopLimit(None)));
    raw.node.write(user, b"more");
    assert_eq!(
        mark(&one(raw.turn())),
        (0x20, 64),
        "the bits of ECN are TCP's"
    );
    // As usual again, by the short way.
    let stack = &mut raw.node.stack;
    assert!(stack.set_option(conn, SocketOption::TrafficClass(0)));
    raw.node.write(user, b"last");
    assert_eq!(mark(&one(raw.turn())), (0, 64));
}

#[test]
fn datagrams_are_marked_too_and_may_be_of_one_family() {
    let mut raw = Raw::new();
    let options = SocketOptions {
        traffic_class: 0x11,
        ..SocketOptions::default()
    };
    let any = "0.0.0.0:7".parse::<std::net::SocketAddr>().unwrap();
    let id = raw.node.stack.udp_bind_with(any, &options, 1).unwrap();
    assert!(
        raw.node
            .stack
            .udp_set_option(id, SocketOption::HopLimit(NonZeroU8::new(9)))
    );
    assert!(
        !raw.node
            .stack
            .udp_set_option(id, SocketOption::NoDelay(true))
    );
    let sent = raw
        .node
        .udp_send(raw.now, id, (PEER.ip, 9).into(), b"datagram");
    sent.unwrap();
    assert_eq!(mark(&one(raw.turn())), (0x11, 9));
}

#[test]
fn a_segment_size_holds_for_what_is_announced_and_what_is_sent() {
    let mut pair = Pair::default();
    pair.nodes[B].socket.mss = Some(700);
    let (client, server) = pair.establish(80);
    let mss = |pair: &Pair, n: usize, user| pair.nodes[n].tcp(user).unwrap().effective_mss();
    assert_eq!((mss(&pair, A, client), mss(&pair, B, server)), (688, 688));
    let conn = pair.nodes[A].conn(client);
    let stack = &mut pair.nodes[A].stack;
    assert!(stack.set_option(conn, SocketOption::MaxSegment(500)));
    assert_eq!(mss(&pair, A, client), 488);
    let stack = &mut pair.nodes[A].stack;
    assert!(stack.set_option(conn, SocketOption::MaxSegment(10_000)));
    assert_eq!(mss(&pair, A, client), 488, "never more than before");
    pair.nodes[A].write(client, &[7; 5000]);
    pair.run_until(|pair| pair.nodes[B].received(server).len() == 5000);
}

#[test]
fn a_syn_is_repeated_as_often_as_the_socket_says() {
    let mut raw = Raw::new();
    raw.node.socket.syn_retries = Some(2);
    let user = raw.node.connect(raw.now, (PEER.ip, 80).into());
    let syns = raw.pass(Duration::from_secs(60));
    assert_eq!(syns.len(), 3);
    assert_eq!(raw.node.closed(user), Some(CloseReason::TimedOut));
}

#[test]
fn fin_wait_2_ends_when_the_socket_says() {
    for (wanted, after, gone) in [(2, 1, false), (2, 3, true), (0, 0, true)] {
        let mut raw = Raw::new();
        raw.node.socket.fin_wait_2 = Some(wanted * SECOND);
        let (_, listener) = raw.listen(80, 4);
        let (iss, user) = raw.open(listener, 9, 80);
        raw.node.close(user);
        let (flags, seq, _) = one_tcp(raw.turn());
        assert!(flags.contains(FIN) && seq == iss + 1);
        raw.tcp(&header(9, 80, ACK, 1001, iss + 2), &[]);
        raw.pass(after * SECOND + Duration::from_millis(10));
        assert_eq!(
            raw.node.stack.connection_count() == 0,
            gone,
            "{wanted} {after}"
        );
    }
}

#[test]
fn a_deferred_connection_waits_for_data() {
    let mut raw = Raw::new();
    raw.node.socket.defer_accept = Some(5 * SECOND);
    let (_, listener) = raw.listen(80, 4);
    let (_, iss, _) = one_tcp(raw.tcp(&header(9, 80, SYN, 1000, 0), &[]));
    raw.now += Duration::from_millis(20);
    assert_eq!(raw.tcp(&header(9, 80, ACK, 1001, iss + 1), &[]), []);
    assert!(raw.node.accept(listener).is_none());
    assert_eq!(raw.count("deferred"), 1);
    // The SYN-ACK was answered: nobody is asked again meanwhile.
    assert_eq!(raw.pass(3 * SECOND), []);
    raw.tcp(&header(9, 80, ACK, 1001, iss + 1), b"question");
    let user = raw.node.accept(listener).expect("data came");
    assert_eq!(raw.node.received(user), b"question");
    // The round trip is that of the handshake, not the time that the peer took for its question.
    assert_eq!(raw.node.tcp(user).unwrap().info().srtt_us, 20_000);
}

#[test]
fn a_deferred_connection_without_data_is_asked_again_and_accepted_at_the_end() {
    let mut raw = Raw::new();
    raw.node.socket.defer_accept = Some(3 * SECOND);
    let (_, listener) = raw.listen(80, 4);
    let (_, iss, _) = one_tcp(raw.tcp(&header(9, 80, SYN, 1000, 0), &[]));
    raw.tcp(&header(9, 80, ACK, 1001, iss + 1), &[]);
    // As with Linux: one SYN-ACK at the end of the time, and its answer is taken.
    let asked = raw.pass(3 * SECOND + Duration::from_millis(100));
    assert_eq!(one_tcp(asked), (SYN | ACK, iss, 1001));
    raw.tcp(&header(9, 80, ACK, 1001, iss + 1), &[]);
    let user = raw.node.accept(listener).expect("the time is over");
    let tcp = raw.node.tcp(user).unwrap();
    assert_eq!(tcp.state(), State::Established);
    // That SYN-ACK tells of no loss: the initial window stays.
    assert!(tcp.info().cwnd >= 10 * u32::from(tcp.effective_mss()));
    assert!(raw.node.stack.is_consistent());
}

#[test]
fn a_fin_ends_the_wait_and_options_of_listeners_can_change() {
    let mut raw = Raw::new();
    let (id, listener) = raw.listen(80, 4);
    let defer = SocketOption::DeferAccept(Some(SECOND));
    assert!(raw.node.stack.set_listener_option(id, defer));
    assert!(
        !raw.node
            .stack
            .set_listener_option(id, SocketOption::V6Only(true))
    );
    let (_, iss, _) = one_tcp(raw.tcp(&header(9, 80, SYN, 1000, 0), &[]));
    raw.tcp(&header(9, 80, ACK, 1001, iss + 1), &[]);
    assert!(raw.node.accept(listener).is_none());
    raw.tcp(&header(9, 80, FIN | ACK, 1001, iss + 1), &[]);
    let user = raw
        .node
        .accept(listener)
        .expect("there is something to tell");
    assert!(raw.node.has_fin(user));
    let conn = raw.node.conn(user);
    assert!(!raw.node.stack.set_option(conn, defer), "it is no listener");
}
