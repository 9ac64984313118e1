//! TCP Fast Open (RFC 7413): cookies, limits, what clients remember.

use std::time::Duration;

use sidecore_tcp::{CloseReason, State};
use sidecore_testkit::packet::header;
use sidecore_testkit::{A, B, Event, Link, Pair};
use sidecore_wire::{FastOpenCookie, TcpHeader};

use crate::raw::*;

/// A node with a listener at port 80 that takes so many.
fn server(queue: u32) -> (Raw, u32) {
    let mut raw = Raw::new();
    raw.node.socket.fast_open_queue = queue;
    let (_, listener) = raw.listen(80, 16);
    (raw, listener)
}

fn syn(port: u16, cookie: &[u8]) -> TcpHeader {
    let mut syn = header(port, 80, SYN, 1000, 0);
    syn.options.mss = Some(1460);
    syn.options.fast_open = FastOpenCookie::new(cookie);
    syn
}

/// Asks for a cookie.
fn cookie(raw: &mut Raw) -> Vec<u8> {
    let (answer, _) = one(raw.tcp(&syn(7, &[]), &[])).tcp();
    assert_eq!((answer.flags, answer.ack.0), (SYN | ACK, 1001));
    let cookie = answer.options.fast_open.expect("a cookie");
    raw.tcp(&header(7, 80, RST, 1001, 0), &[]);
    cookie.as_slice().to_vec()
}

fn pending(raw: &Raw) -> u32 {
    raw.node.stack.listeners().map(|l| l.fast_open_queue).sum()
}

#[test]
fn data_on_the_syn_is_delivered_and_answered_before_the_handshake_is_complete() {
    let (mut raw, listener) = server(4);
    let cookie = cookie(&mut raw);
    let (answer, _) = one(raw.tcp(&syn(9, &cookie), b"question")).tcp();
    assert_eq!((answer.flags, answer.ack.0), (SYN | ACK, 1009));
    assert_eq!(answer.options.fast_open, None, "it has one");
    let user = raw.node.accept(listener).expect("at once");
    assert_eq!(raw.node.received(user), b"question");
    assert_eq!(raw.node.tcp(user).unwrap().state(), State::SynReceived);
    raw.node.write(user, b"answer");
    let (data, payload) = one(raw.turn()).tcp();
    assert_eq!(
        (data.seq.0, &payload[..]),
        (answer.seq.0 + 1, &b"answer"[..])
    );
    assert_eq!((pending(&raw), raw.count("fast_opens")), (1, 1));
    // The end of the handshake is told to nobody: the connection was there before.
    let told = raw.node.events(user).len();
    raw.tcp(&header(9, 80, ACK, 1009, answer.seq.0 + 7), &[]);
    assert_eq!(raw.node.events(user).len(), told);
    assert_eq!(raw.node.acknowledged(user), 6);
    assert_eq!((pending(&raw), raw.count("passive_established")), (0, 1));
    raw.tcp(&header(9, 80, ACK, 1009, answer.seq.0 + 7), b" and more");
    assert_eq!(raw.node.received(user), b"question and more");
}

#[test]
fn a_repeated_syn_delivers_nothing_twice() {
    let (mut raw, listener) = server(4);
    let cookie = cookie(&mut raw);
    let first = one_tcp(raw.tcp(&syn(9, &cookie), b"once"));
    let user = raw.node.accept(listener).unwrap();
    // With and without data.
    assert_eq!(one_tcp(raw.tcp(&syn(9, &cookie), b"once")), first);
    assert_eq!(one_tcp(raw.tcp(&header(9, 80, SYN, 1000, 0), &[])), first);
    raw.tcp(&header(9, 80, ACK, 1001, first.1 + 1), b"once");
    assert_eq!(raw.node.received(user), b"once");
    assert!(raw.node.accept(listener).is_none());
}

#[test]
fn a_wrong_cookie_makes_a_usual_handshake_and_brings_a_good_one() {
    let (mut raw, listener) = server(4);
    let good = cookie(&mut raw);
    for bad in [&[9; 8][..], &[9; 4], &[9; 16]] {
        let (answer, _) = one(raw.tcp(&syn(9, bad), b"early")).tcp();
        assert_eq!(answer.ack.0, 1001, "its data is not taken");
        assert_eq!(answer.options.fast_open.unwrap().as_slice(), good);
        assert!(raw.node.accept(listener).is_none());
        raw.tcp(&header(9, 80, RST, 1001, 0), &[]);
    }
    assert_eq!(raw.count("fast_open_bad_cookies"), 3);
    // Of another client's address it is no better.
    let other = sidecore_testkit::packet::Station::new(3);
    let answer = raw.send(&other.tcp(&NODE, &syn(9, &good), b"early"));
    assert!(
        answer
            .iter()
            .all(|packet| !format!("{packet:?}").contains("ack 1006"))
    );
    assert!(raw.node.accept(listener).is_none());
}

#[test]
fn cookies_get_old() {
    let (mut raw, listener) = server(4);
    let old = cookie(&mut raw);
    let day = Duration::from_secs(24 * 3600);
    raw.pass(day);
    let (answer, _) = one(raw.tcp(&syn(9, &old), b"early")).tcp();
    assert_eq!(answer.ack.0, 1006, "still good");
    let newer = answer.options.fast_open.expect("but there is a newer one");
    assert_ne!(newer.as_slice(), old);
    assert!(raw.node.accept(listener).is_some());
    raw.pass(day);
    let (answer, _) = one(raw.tcp(&syn(10, &old), b"early")).tcp();
    assert_eq!(answer.ack.0, 1001);
}

#[test]
fn who_does_not_allow_it_ignores_it() {
    let (mut raw, listener) = server(0);
    for cookie in [&[][..], &[9; 8]] {
        let (answer, _) = one(raw.tcp(&syn(9, cookie), b"early")).tcp();
        assert_eq!((answer.ack.0, answer.options.fast_open), (1001, None));
        raw.tcp(&header(9, 80, RST, 1001, 0), &[]);
    }
    assert!(raw.node.accept(listener).is_none());
}

#[test]
fn there_is_a_limit_and_resets_count_for_a_minute() {
    let (mut raw, listener) = server(2);
    let cookie = cookie(&mut raw);
    for port in [11, 12] {
        assert_eq!(one_tcp(raw.tcp(&syn(port, &cookie), b"early")).2, 1006);
    }
    // RFC 7413 section 5.1: or else resets in the victim's name would make room.
    raw.tcp(&header(11, 80, RST, 1006, 0), &[]);
    let first = raw.node.accept(listener).unwrap();
    assert_eq!(raw.node.closed(first), Some(CloseReason::Reset));
    assert_eq!(one_tcp(raw.tcp(&syn(13, &cookie), b"early")).2, 1001);
    assert_eq!((pending(&raw), raw.count("fast_open_overflows")), (2, 1));
    raw.tcp(&header(13, 80, RST, 1001, 0), &[]);
    raw.pass(Duration::from_secs(61));
    assert_eq!(one_tcp(raw.tcp(&syn(14, &cookie), b"early")).2, 1006);
    // One that the host gives up makes room at once.
    let last = std::iter::from_fn(|| raw.node.accept(listener))
        .last()
        .unwrap();
    let before = pending(&raw);
    raw.node.abort(last);
    raw.turn();
    assert_eq!(pending(&raw), before - 1);
    assert!(raw.node.stack.is_consistent());
}

#[test]
fn a_syn_ack_that_is_never_answered_ends_the_connection() {
    let (mut raw, listener) = server(2);
    let cookie = cookie(&mut raw);
    raw.tcp(&syn(9, &cookie), b"early");
    let user = raw.node.accept(listener).unwrap();
    raw.pass(Duration::from_secs(400));
    assert_eq!(raw.node.closed(user), Some(CloseReason::TimedOut));
    assert_eq!((pending(&raw), raw.node.stack.connection_count()), (0, 0));
}

/// Two nodes, and the client has a cookie.
fn acquainted() -> Pair {
    let mut pair = Pair::default();
    pair.nodes[B].socket.fast_open_queue = 8;
    pair.nodes[A].socket.fast_open = true;
    let (client, server) = pair.establish(80);
    assert_eq!(pair.nodes[A].stack.fast_open_servers(), 1);
    for (n, user) in [(A, client), (B, server)] {
        pair.nodes[n].abort(user);
    }
    pair.run_for(Duration::from_millis(10));
    pair
}

fn accept(pair: &mut Pair) -> u32 {
    let listeners: Vec<_> = pair.nodes[B].stack.listeners().map(|l| l.user).collect();
    let mut accepted = listeners
        .iter()
        .filter_map(|user| pair.nodes[B].accept(*user));
    accepted.next().expect("a connection")
}

#[test]
fn a_client_with_a_cookie_saves_a_round_trip() {
    let mut pair = acquainted();
    let begun = pair.now();
    let client = pair.connect_to(80);
    pair.nodes[A].write(client, b"question");
    pair.run_until(|pair| pair.nodes[B].count("fast_opens") == 1);
    let server = accept(&mut pair);
    assert_eq!(pair.nodes[B].received(server), b"question");
    assert_eq!(
        pair.nodes[B].tcp(server).unwrap().state(),
        State::SynReceived
    );
    let one_way = pair.now().duration_since(begun);
    pair.nodes[B].write(server, b"answer");
    pair.run_until(|pair| pair.nodes[A].received(client) == b"answer");
    assert!(pair.now().duration_since(begun) <= 2 * one_way + Duration::from_millis(1));
    assert_eq!(pair.nodes[A].events(client)[0], Event::Connected);
    assert_eq!(pair.nodes[A].acknowledged(client), 8);
}

#[test]
fn destinations_that_swallow_such_syns_are_spared() {
    let mut pair = acquainted();
    for _ in 0..2 {
        // The first SYN is lost, the second arrives.
        let lossy = Link {
            loss: u32::MAX,
            ..Link::default()
        };
        pair.set_link(A, lossy);
        let client = pair.connect_to(80);
        pair.nodes[A].write(client, b"question");
        pair.run_for(Duration::from_millis(500));
        pair.set_link(A, Link::default());
        pair.run_until(|pair| pair.nodes[A].acknowledged(client) == 8);
        let server = accept(&mut pair);
        assert_eq!(pair.nodes[B].received(server), b"question");
    }
    assert_eq!(pair.nodes[A].count("fast_open_spared"), 0);
    let client = pair.connect_to(80);
    assert_eq!(pair.nodes[A].count("fast_open_spared"), 1);
    pair.nodes[A].write(client, b"question");
    pair.run_until(|pair| pair.nodes[A].acknowledged(client) == 8);
    assert_eq!(pair.nodes[B].count("fast_opens"), 0);
}
