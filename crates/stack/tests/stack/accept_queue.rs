//! Handshakes that are complete while the host has no room for another connection: nobody is refused, nothing is lost, and
//! nothing grows.

use std::time::Duration;

use sidecore_stack::SynCookies;
use sidecore_testkit::packet::header;
use sidecore_testkit::{A, B, Pair, pattern};

use crate::raw::*;

/// Where a full SYN queue means what it says.
fn without_cookies() -> Raw {
    Raw::with(|config| {
        config.neighbors.push((PEER.ip, PEER.mac));
        config.syn_cookies = SynCookies::Off;
    })
}

/// A listener with a backlog whose host has no room, and a handshake from port 9 whose last ACK found none: its sequence
/// number.
fn held_up(backlog: u32) -> (Raw, u32, u32) {
    let mut raw = without_cookies();
    let (_, listener) = raw.listen(80, backlog);
    let (_, iss, _) = one_tcp(raw.tcp(&header(9, 80, SYN, 1000, 0), &[]));
    raw.node.host.accept_queue = 0;
    assert_eq!(raw.tcp(&header(9, 80, ACK, 1001, iss + 1), b"data"), []);
    assert_eq!(raw.count("accept_queue_full"), 1);
    (raw, listener, iss)
}

#[test]
fn the_last_ack_is_dropped_and_asked_for_again() {
    let (mut raw, listener, iss) = held_up(4);
    assert!(raw.node.accept(listener).is_none());
    let again = raw.pass(Duration::from_millis(1500));
    assert_eq!(one_tcp(again), (SYN | ACK, iss, 1001));
    raw.node.host.accept_queue = 1;
    // Answered as RFC 9293 has it, by an ACK; the data come by the peer's own timer.
    assert_eq!(raw.tcp(&header(9, 80, ACK, 1005, iss + 1), &[]), []);
    let user = raw.node.accept(listener).expect("there is room now");
    raw.tcp(&header(9, 80, ACK, 1001, iss + 1), b"data");
    assert_eq!(raw.node.received(user), b"data");
    assert_eq!(raw.count("passive_established"), 1);
    assert_eq!(raw.count("incoming_refused"), 0);
    assert!(raw.node.stack.is_consistent());
}

#[test]
fn data_and_fin_that_came_too_early_arrive_later() {
    let mut pair = Pair::default();
    let (_, listener) = pair.nodes[B].listen(80, 8);
    pair.nodes[B].host.accept_queue = 1;
    let (first, second) = (pair.connect_to(80), pair.connect_to(80));
    let data = pattern(3, 0, 200_000);
    for client in [first, second] {
        pair.nodes[A].write(client, &data);
        pair.nodes[A].shutdown(client);
    }
    // Longer than the last of the SYN-ACK's first timers.
    pair.run_for(Duration::from_secs(2));
    assert!(pair.nodes[B].count("accept_queue_full") >= 1);
    for _ in 0..2 {
        let mut user = None;
        pair.run_until(|pair| {
            user = user.or_else(|| pair.nodes[B].accept(listener));
            user.is_some_and(|user| pair.nodes[B].has_fin(user))
        });
        assert_eq!(pair.nodes[B].received(user.unwrap()), data);
    }
    assert_eq!(pair.nodes[B].count("incoming_refused"), 0);
    assert_eq!(pair.nodes[B].count("tcp_resets_out"), 0);
    assert_eq!(pair.nodes[A].count("resets_in"), 0);
}

#[test]
fn it_is_given_up_in_the_end() {
    let (mut raw, listener, iss) = held_up(4);
    let again = raw.pass(Duration::from_secs(400));
    assert!(!again.is_empty());
    for packet in again {
        assert_eq!(one_tcp(vec![packet]), (SYN | ACK, iss, 1001));
    }
    assert_eq!(raw.node.stack.connection_count(), 0);
    assert_eq!(raw.node.stack.next_timeout(), None);
    assert!(raw.node.accept(listener).is_none());
    // Whoever still believes in it learns that it is gone.
    let (flags, ..) = one_tcp(raw.tcp(&header(9, 80, ACK, 1001, iss + 1), b"data"));
    assert_eq!(flags, RST);
    assert!(raw.node.stack.is_consistent());
}

#[test]
fn a_flood_of_syns_meets_a_full_queue() {
    let (mut raw, listener, iss) = held_up(4);
    for port in 1000..3000 {
        assert_eq!(raw.tcp(&header(port, 80, SYN, 1, 0), &[]), []);
    }
    assert_eq!(raw.count("syn_accept_queue_full"), 2000);
    assert_eq!(raw.node.stack.connection_count(), 1);
    raw.node.host.accept_queue = 1;
    raw.tcp(&header(9, 80, ACK, 1001, iss + 1), b"data");
    let user = raw.node.accept(listener).unwrap();
    assert_eq!(raw.node.received(user), b"data");
}

#[test]
fn whoever_has_answered_gives_way_to_nobody() {
    let (mut raw, listener, iss) = held_up(3);
    raw.node.host.accept_queue = 1;
    // One answered, the others not: these give way to each other.
    for port in 1000..3000 {
        one_tcp(raw.tcp(&header(port, 80, SYN, 1, 0), &[]));
    }
    assert_eq!(raw.node.stack.connection_count(), 3);
    assert_eq!(raw.count("syn_evicted"), 1998);
    assert!(raw.node.stack.is_consistent());
    raw.tcp(&header(9, 80, ACK, 1001, iss + 1), b"data");
    assert!(raw.node.accept(listener).is_some());
}

#[test]
fn a_backlog_of_answered_handshakes_takes_no_more_syns() {
    let mut raw = without_cookies();
    let (id, listener) = raw.listen(80, 2);
    let iss: Vec<u32> = (1..=2)
        .map(|port| one_tcp(raw.tcp(&header(port, 80, SYN, 1000, 0), &[])).1)
        .collect();
    raw.node.host.accept_queue = 0;
    for (port, iss) in (1..=2).zip(&iss) {
        for _ in 0..3 {
            assert_eq!(raw.tcp(&header(port, 80, ACK, 1001, iss + 1), &[]), []);
        }
    }
    raw.node.host.accept_queue = 1;
    assert_eq!(raw.tcp(&header(3, 80, SYN, 1000, 0), &[]), []);
    assert_eq!((raw.count("syn_dropped"), raw.count("syn_evicted")), (1, 0));
    let queued: Vec<_> = raw.node.stack.listeners().map(|l| l.syn_queue).collect();
    assert_eq!(queued, [2]);
    // One gets in, the other is reset with its listener.
    raw.tcp(&header(2, 80, ACK, 1001, iss[1] + 1), &[]);
    assert!(raw.node.accept(listener).is_some());
    assert!(raw.node.stack.close_listener(id));
    let (flags, seq, _) = one_tcp(raw.turn());
    assert!(flags.contains(RST));
    assert_eq!(seq, iss[0] + 1);
    assert!(raw.node.stack.is_consistent());
}

#[test]
fn what_does_not_complete_a_handshake_is_handled_as_ever() {
    let (mut raw, listener, iss) = held_up(4);
    // A repeated SYN asks for the SYN-ACK.
    let answer = raw.tcp(&header(9, 80, SYN, 1000, 0), &[]);
    assert_eq!(one_tcp(answer), (SYN | ACK, iss, 1001));
    // An ACK of something else is answered with a reset and changes nothing.
    let (flags, seq, _) = one_tcp(raw.tcp(&header(9, 80, ACK, 1001, iss + 9), &[]));
    assert_eq!((flags, seq), (RST, iss + 9));
    assert_eq!(raw.count("accept_queue_full"), 1);
    assert_eq!(raw.node.stack.connection_count(), 1);
    // The peer gives up.
    assert_eq!(raw.tcp(&header(9, 80, RST, 1001, 0), &[]), []);
    assert_eq!(raw.node.stack.connection_count(), 0);
    assert!(raw.node.accept(listener).is_none());
    assert!(raw.node.stack.is_consistent());
}
