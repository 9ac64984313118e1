use std::net::{Ipv4Addr, SocketAddr};

use sidecore_stack::{DETACHED, SocketOptions, StackError, SynCookies};
use sidecore_tcp::{CloseReason, State};
use sidecore_testkit::packet::header;
use sidecore_testkit::{A, B, Event, Pair};

use crate::raw::*;

#[test]
fn both_sides_are_told_once() {
    let mut pair = Pair::default();
    let (client, server) = pair.establish(80);
    assert_eq!(pair.nodes[A].events(client), [Event::Connected]);
    assert!(matches!(pair.nodes[B].events(server), [Event::Incoming(_)]));
    let (local, remote) = pair.nodes[A].addresses(client).unwrap();
    assert_eq!(pair.nodes[B].addresses(server), Some((remote, local)));
    assert_eq!(remote, "10.0.0.2:80".parse().unwrap());
    assert!(
        pair.nodes[A]
            .stack
            .config()
            .ephemeral_ports
            .contains(&local.port())
    );
    for node in &pair.nodes {
        let states: Vec<_> = node.stack.connections().map(|c| c.tcp.state).collect();
        assert_eq!(states, [State::Established]);
        assert!(node.stack.is_consistent());
    }
    assert_eq!(pair.nodes[A].count("active_established"), 1);
    assert_eq!(pair.nodes[B].count("passive_established"), 1);
}

#[test]
fn a_closed_port_refuses() {
    let mut pair = Pair::default();
    let client = pair.connect_to(81);
    pair.run_until(|pair| pair.nodes[A].closed(client).is_some());
    assert_eq!(pair.nodes[A].closed(client), Some(CloseReason::Refused));
    assert_eq!(pair.nodes[A].stack.connection_count(), 0);
    assert_eq!(pair.nodes[B].count("tcp_resets_out"), 1);
    assert!(pair.nodes[A].tcp(client).is_none(), "the id is dead");
}

#[test]
fn resets_to_nowhere_follow_the_rfc() {
    let mut raw = Raw::new();
    // RFC 9293 3.10.7.1: with ACK, <SEQ=SEG.ACK><CTL=RST>.
    let answer = raw.tcp(&header(9, 80, ACK, 500, 700), b"data");
    assert_eq!(one_tcp(answer), (RST, 700, 0));
    // Without: <SEQ=0><ACK=SEG.SEQ+SEG.LEN><CTL=RST,ACK>.
    let answer = raw.tcp(&header(9, 80, SYN, 500, 0), &[]);
    assert_eq!(one_tcp(answer), (RST | ACK, 0, 501));
    assert_eq!(raw.tcp(&header(9, 80, RST, 500, 0), &[]), []);
    assert_eq!(raw.tcp(&header(9, 80, RST | ACK, 500, 7), &[]), []);
    assert_eq!(raw.count("tcp_resets_out"), 2);
    assert_eq!(raw.count("tcp_to_nowhere"), 4);
}

#[test]
fn a_listener_answers_ack_with_reset_and_ignores_reset() {
    let mut raw = Raw::new();
    raw.listen(80, 4);
    assert_eq!(
        one_tcp(raw.tcp(&header(9, 80, ACK, 5, 77), &[])),
        (RST, 77, 0)
    );
    assert_eq!(
        one_tcp(raw.tcp(&header(9, 80, SYN | ACK, 5, 77), &[])),
        (RST, 77, 0)
    );
    assert_eq!(raw.tcp(&header(9, 80, RST, 5, 0), &[]), []);
    assert_eq!(raw.tcp(&header(9, 80, SYN | RST, 5, 0), &[]), []);
    assert_eq!(raw.node.stack.connection_count(), 0);
}

#[test]
fn a_lost_syn_ack_is_sent_again_and_given_up_in_the_end() {
    let mut raw = Raw::new();
    raw.listen(80, 4);
    let (flags, iss, _) = one_tcp(raw.tcp(&header(9, 80, SYN, 1000, 0), &[]));
    assert_eq!(flags, SYN | ACK);
    let again = raw.pass(std::time::Duration::from_secs(400));
    assert!(!again.is_empty());
    for packet in again {
        assert_eq!(one_tcp(vec![packet]), (SYN | ACK, iss, 1001));
    }
    assert_eq!(raw.node.stack.connection_count(), 0);
    assert_eq!(raw.node.stack.next_timeout(), None);
    assert!(raw.node.stack.is_consistent());
}

#[test]
fn data_with_the_handshakes_last_ack_is_delivered() {
    let mut raw = Raw::new();
    let (_, listener) = raw.listen(80, 4);
    let (_, iss, _) = one_tcp(raw.tcp(&header(9, 80, SYN, 1000, 0), &[]));
    raw.tcp(&header(9, 80, ACK, 1001, iss + 1), b"at once");
    let user = raw.node.accept(listener).unwrap();
    assert_eq!(raw.node.received(user), b"at once");
}

#[test]
fn data_and_fin_before_the_handshakes_ack() {
    let mut raw = Raw::new();
    let (_, listener) = raw.listen(80, 4);
    let (_, iss, _) = one_tcp(raw.tcp(&header(9, 80, SYN, 1000, 0), &[]));
    // Overtakes the ACK: out of order, but it acknowledges our SYN.
    raw.tcp(&header(9, 80, ACK, 1006, iss + 1), b"later");
    let user = raw.node.accept(listener).unwrap();
    assert_eq!(raw.node.received(user), b"");
    raw.tcp(&header(9, 80, ACK | FIN, 1001, iss + 1), b"early");
    // What could not be kept is sent again.
    raw.tcp(&header(9, 80, ACK, 1001, iss + 1), b"earlylater");
    assert!(raw.node.received(user).starts_with(b"early"));
}

#[test]
fn the_host_may_refuse() {
    let mut raw = Raw::new();
    raw.listen(80, 4);
    raw.node.host.refuse = true;
    let (_, iss, _) = one_tcp(raw.tcp(&header(9, 80, SYN, 1000, 0), &[]));
    let answer = raw.tcp(&header(9, 80, ACK, 1001, iss + 1), b"data");
    let (flags, seq, _) = one_tcp(answer);
    assert!(flags.contains(RST));
    assert_eq!(seq, iss + 1);
    assert_eq!(raw.count("incoming_refused"), 1);
    assert_eq!(raw.node.stack.connection_count(), 0);
}

#[test]
fn without_cookies_the_oldest_handshake_gives_way() {
    let mut raw = Raw::with(|config| {
        config.neighbors.push((PEER.ip, PEER.mac));
        config.syn_cookies = SynCookies::Off;
    });
    let (_, listener) = raw.listen(80, 3);
    let iss: Vec<u32> = (1..=5)
        .map(|port| one_tcp(raw.tcp(&header(port, 80, SYN, 1000, 0), &[])).1)
        .collect();
    assert_eq!(raw.node.stack.connection_count(), 3);
    assert_eq!(raw.count("syn_evicted"), 2);
    // The first is gone without a word; its ACK is answered with a reset.
    let (flags, ..) = one_tcp(raw.tcp(&header(1, 80, ACK, 1001, iss[0] + 1), &[]));
    assert_eq!(flags, RST);
    assert_eq!(raw.tcp(&header(5, 80, ACK, 1001, iss[4] + 1), &[]), []);
    assert!(raw.node.accept(listener).is_some());
    let queued: Vec<_> = raw.node.stack.listeners().map(|l| l.syn_queue).collect();
    assert_eq!(queued, [2]);
    assert!(raw.node.stack.is_consistent());
}

#[test]
fn the_total_of_handshakes_is_limited() {
    let mut raw = Raw::with(|config| {
        config.neighbors.push((PEER.ip, PEER.mac));
        config.syn_backlog_total = 2;
        config.syn_cookies = SynCookies::Off;
    });
    raw.listen(80, 10);
    raw.listen(81, 10);
    raw.tcp(&header(1, 80, SYN, 1000, 0), &[]);
    raw.tcp(&header(2, 80, SYN, 1000, 0), &[]);
    // Nothing of this listener's own can give way.
    assert_eq!(raw.tcp(&header(3, 81, SYN, 1000, 0), &[]), []);
    assert_eq!((raw.count("syn_dropped"), raw.count("syn_evicted")), (1, 0));
    raw.tcp(&header(3, 80, SYN, 1000, 0), &[]);
    assert_eq!((raw.count("syn_dropped"), raw.count("syn_evicted")), (1, 1));
}

#[test]
fn a_repeated_syn_is_the_same_handshake() {
    let mut raw = Raw::new();
    raw.listen(80, 3);
    let first = one_tcp(raw.tcp(&header(7, 80, SYN, 1000, 0), &[]));
    let second = one_tcp(raw.tcp(&header(7, 80, SYN, 1000, 0), &[]));
    assert_eq!(first, second);
    assert_eq!(raw.node.stack.connection_count(), 1);
}

#[test]
fn closing_a_listener_resets_handshakes_and_leaves_connections() {
    let mut raw = Raw::new();
    let (id, listener) = raw.listen(80, 8);
    let (_, user) = raw.open(listener, 5, 80);
    let (_, iss, _) = one_tcp(raw.tcp(&header(6, 80, SYN, 1000, 0), &[]));
    assert!(raw.node.stack.close_listener(id));
    let (flags, seq, _) = one_tcp(raw.turn());
    assert!(flags.contains(RST));
    assert_eq!(seq, iss + 1);
    assert_eq!(raw.node.stack.connection_count(), 1);
    assert!(raw.node.tcp(user).is_some());
    assert!(!raw.node.stack.close_listener(id), "stale");
    assert_eq!(raw.node.stack.listener_local(id), None);
    // The port is free again.
    let (other, _) = raw.listen(80, 8);
    assert_ne!(other, id);
}

#[test]
fn a_held_listener_has_its_port_and_refuses() {
    let mut raw = Raw::new();
    let (id, _) = raw.listen(80, 8);
    raw.node.stack.hold_listener(id, true);
    let (flags, _, ack) = one_tcp(raw.tcp(&header(7, 80, SYN, 1000, 0), &[]));
    assert_eq!((flags, ack), (RST | ACK, 1001));
    // An acknowledgement of nothing, likewise.
    let (flags, _, _) = one_tcp(raw.tcp(&header(7, 80, ACK, 1000, 5), &[]));
    assert_eq!(flags, RST);
    let local = raw.node.stack.listener_local(id).unwrap();
    let options = SocketOptions::default();
    let again = raw.node.stack.listen(local, &options, 8, 99);
    assert_eq!(again, Err(StackError::AddressInUse));
    raw.node.stack.hold_listener(id, false);
    let (flags, ..) = one_tcp(raw.tcp(&header(7, 80, SYN, 1000, 0), &[]));
    assert_eq!(flags, SYN | ACK);
}

#[test]
fn a_reset_ends_a_handshake() {
    let mut raw = Raw::new();
    raw.listen(80, 8);
    raw.tcp(&header(6, 80, SYN, 1000, 0), &[]);
    assert_eq!(raw.tcp(&header(6, 80, RST, 1001, 0), &[]), []);
    assert_eq!(raw.node.stack.connection_count(), 0);
    assert!(raw.node.stack.is_consistent());
}

#[test]
fn bad_binds_and_connects() {
    let mut raw = Raw::new();
    let now = raw.now;
    let addr = |text: &str| -> SocketAddr { text.parse().unwrap() };
    let stack = &mut raw.node.stack;
    let options = Default::default();
    let mut listen = |text: &str| stack.listen(addr(text), &options, 1, 0).map(|_| ());
    assert_eq!(listen("10.0.0.1:80"), Ok(()));
    assert_eq!(listen("10.0.0.1:80"), Err(StackError::AddressInUse));
    assert_eq!(listen("0.0.0.0:80"), Err(StackError::AddressInUse));
    assert_eq!(listen("127.0.0.1:80"), Ok(()));
    assert_eq!(listen("10.0.0.9:81"), Err(StackError::AddressNotAvailable));
    assert_eq!(listen("0.0.0.0:0"), Ok(()));
    let chosen = stack.listeners().last().unwrap().local.port();
    assert!(stack.config().ephemeral_ports.contains(&chosen));

    let mut connect = |local: Option<&str>, remote: &str| {
        let local = local.map(addr);
        let connected = stack.connect(now, local, addr(remote), &options, 0);
        connected.map(|_| ())
    };
    assert_eq!(connect(None, "10.0.0.2:0"), Err(StackError::InvalidAddress));
    assert_eq!(
        connect(None, "224.0.0.1:80"),
        Err(StackError::InvalidAddress)
    );
    assert_eq!(
        connect(None, "10.0.0.255:80"),
        Err(StackError::InvalidAddress)
    );
    assert_eq!(connect(None, "8.8.8.8:80"), Err(StackError::Unreachable));
    assert_eq!(
        connect(Some("10.0.0.7:0"), "10.0.0.2:80"),
        Err(StackError::AddressNotAvailable)
    );
    assert_eq!(
        connect(Some("127.0.0.1:0"), "10.0.0.2:80"),
        Err(StackError::AddressNotAvailable)
    );
    assert_eq!(connect(Some("10.0.0.1:5"), "10.0.0.2:80"), Ok(()));
    assert_eq!(
        connect(Some("0.0.0.0:5"), "10.0.0.2:80"),
        Err(StackError::AddressInUse)
    );
    assert_eq!(connect(Some("0.0.0.0:5"), "10.0.0.2:81"), Ok(()));
    assert_eq!(
        connect(Some("10.0.0.1:9"), "10.0.0.1:9"),
        Err(StackError::AddressInUse)
    );
}

#[test]
fn an_embryonic_connection_is_nobodys() {
    let mut raw = Raw::new();
    raw.listen(80, 8);
    raw.tcp(&header(6, 80, SYN, 1000, 0), &[]);
    let info = raw.node.stack.connections().next().unwrap();
    assert_eq!((info.user, info.tcp.state), (DETACHED, State::SynReceived));
    let from_zero = header(0, 80, SYN, 1000, 0);
    assert_eq!(raw.tcp(&from_zero, &[]), []);
    assert_eq!(raw.count("syn_dropped"), 1);
    assert_eq!(info.local.ip(), Ipv4Addr::new(10, 0, 0, 1));
}

#[test]
fn simultaneous_open() {
    let mut raw = Raw::new();
    let local = "10.0.0.1:4000".parse().unwrap();
    let remote = "10.0.0.2:5000".parse().unwrap();
    let user = raw.node.try_connect(raw.now, Some(local), remote).unwrap();
    let (flags, iss, _) = one_tcp(raw.turn());
    assert_eq!(flags, SYN);
    let (flags, seq, ack) = one_tcp(raw.tcp(&header(5000, 4000, SYN, 9000, 0), &[]));
    assert_eq!((flags, seq, ack), (SYN | ACK, iss, 9001));
    raw.tcp(&header(5000, 4000, SYN | ACK, 9000, iss + 1), &[]);
    raw.tcp(&header(5000, 4000, ACK, 9001, iss + 1), b"hello");
    assert_eq!(raw.node.events(user), [Event::Connected]);
    assert_eq!(raw.node.received(user), b"hello");
}

#[test]
fn text_and_fin_of_a_syn_ack_come_after_the_connection_is_told() {
    let mut raw = Raw::new();
    let remote = "10.0.0.2:5000".parse().unwrap();
    for text in [&b"x"[..], b"early words"] {
        let user = raw.node.try_connect(raw.now, None, remote).unwrap();
        let (syn, _) = one(raw.turn()).tcp();
        let len = text.len() as u32;
        let answer = header(5000, syn.src_port, SYN | ACK | FIN, 9000, syn.seq.0 + 1);
        let (flags, _, ack) = one_tcp(raw.tcp(&answer, text));
        assert_eq!((flags, ack), (ACK, 9002 + len));
        let expected = [Event::Connected, Event::Fin(u64::from(len))];
        assert_eq!(raw.node.events(user), expected);
        assert_eq!(raw.node.received(user), text);
    }
}

#[test]
fn a_syn_ack_whose_text_finds_no_room_is_as_good_as_lost() {
    let mut raw = Raw::new();
    let remote = "10.0.0.2:5000".parse().unwrap();
    let user = raw.node.try_connect(raw.now, None, remote).unwrap();
    let (syn, _) = one(raw.turn()).tcp();
    let answer = header(5000, syn.src_port, SYN | ACK, 9000, syn.seq.0 + 1);
    raw.node.host.no_room = 1000;
    assert_eq!(raw.tcp(&answer, b"x"), []);
    assert_eq!(raw.node.events(user), []);
    raw.node.host.no_room = 0;
    assert_eq!(one_tcp(raw.tcp(&answer, b"x")).2, 9002);
    assert_eq!(raw.node.received(user), b"x");
}
