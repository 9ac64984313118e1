use std::time::Duration;

use sidecore_tcp::{CloseReason, State};
use sidecore_testkit::packet::header;
use sidecore_testkit::{A, B, Event, Pair};

use crate::raw::*;

fn states(pair: &Pair, node: usize) -> Vec<State> {
    pair.nodes[node]
        .stack
        .connections()
        .map(|c| c.tcp.state)
        .collect()
}

#[test]
fn an_orderly_end_tells_the_host_only_after_its_own_close() {
    let mut pair = Pair::default();
    let (client, server) = pair.establish(80);
    pair.nodes[A].shutdown(client);
    pair.run_until(|pair| pair.nodes[B].has_fin(server));
    pair.nodes[B].shutdown(server);
    pair.run_until(|pair| pair.nodes[A].has_fin(client));
    pair.run_for(Duration::from_secs(300));
    // Both are over on the wire, and both hosts still have their ids.
    assert_eq!(
        (pair.nodes[A].closed(client), pair.nodes[B].closed(server)),
        (None, None)
    );
    assert_eq!(pair.nodes[A].tcp(client).unwrap().state(), State::Closed);
    assert_eq!(pair.nodes[B].tcp(server).unwrap().state(), State::Closed);
    pair.nodes[A].close(client);
    pair.nodes[B].close(server);
    pair.run_for(Duration::ZERO);
    assert_eq!(pair.nodes[A].closed(client), Some(CloseReason::Normal));
    assert_eq!(pair.nodes[B].closed(server), Some(CloseReason::Normal));
    assert_eq!(pair.nodes[A].stack.connection_count(), 0);
    assert_eq!(pair.nodes[B].stack.connection_count(), 0);
}

#[test]
fn the_one_that_closes_first_waits_and_its_host_does_not() {
    let mut pair = Pair::default();
    let (client, server) = pair.establish(80);
    pair.nodes[A].write(client, b"last words");
    pair.nodes[A].close(client);
    pair.run_until(|pair| pair.nodes[B].has_fin(server));
    assert_eq!(pair.nodes[B].received(server), b"last words");
    pair.run_for(Duration::from_secs(1));
    assert_eq!(states(&pair, A), [State::FinWait2]);
    assert_eq!(pair.nodes[A].closed(client), None);
    assert_eq!(pair.nodes[A].acknowledged(client), 10);
    pair.nodes[B].close(server);
    pair.run_for(Duration::from_secs(1));
    assert_eq!(pair.nodes[A].closed(client), Some(CloseReason::Normal));
    assert_eq!(pair.nodes[B].closed(server), Some(CloseReason::Normal));
    assert_eq!(states(&pair, A), [State::TimeWait]);
    assert_eq!(states(&pair, B), []);
    assert!(pair.nodes[A].tcp(client).is_none(), "the id is dead");
    pair.run_for(Duration::from_secs(58));
    assert_eq!(states(&pair, A), [State::TimeWait]);
    pair.run_for(Duration::from_secs(2));
    assert_eq!(states(&pair, A), []);
}

#[test]
fn simultaneous_close() {
    let mut pair = Pair::default();
    let (client, server) = pair.establish(80);
    pair.nodes[A].close(client);
    pair.nodes[B].close(server);
    pair.run_for(Duration::from_secs(1));
    assert_eq!(states(&pair, A), [State::TimeWait]);
    assert_eq!(states(&pair, B), [State::TimeWait]);
    assert_eq!(pair.nodes[A].closed(client), Some(CloseReason::Normal));
    assert_eq!(pair.nodes[B].closed(server), Some(CloseReason::Normal));
    pair.run_out();
    assert_eq!((states(&pair, A), states(&pair, B)), (vec![], vec![]));
}

#[test]
fn a_reset_tells_the_host_at_once() {
    let mut pair = Pair::default();
    let (client, server) = pair.establish(80);
    pair.nodes[B].abort(server);
    pair.run_for(Duration::from_secs(1));
    assert_eq!(pair.nodes[A].closed(client), Some(CloseReason::Reset));
    assert_eq!(
        pair.nodes[A].events(client).last(),
        Some(&Event::Closed(CloseReason::Reset))
    );
    // Who aborts hears nothing more.
    assert!(matches!(pair.nodes[B].events(server), [Event::Incoming(_)]));
    assert_eq!((states(&pair, A), states(&pair, B)), (vec![], vec![]));
}

#[test]
fn data_after_close_is_answered_with_a_reset() {
    let mut pair = Pair::default();
    let (client, server) = pair.establish(80);
    pair.nodes[A].close(client);
    pair.run_until(|pair| pair.nodes[B].has_fin(server));
    pair.nodes[B].write(server, b"nobody reads this");
    pair.run_for(Duration::from_secs(1));
    assert_eq!(pair.nodes[B].closed(server), Some(CloseReason::Reset));
    assert_eq!(pair.nodes[A].closed(client), Some(CloseReason::Reset));
    assert_eq!((states(&pair, A), states(&pair, B)), (vec![], vec![]));
}

#[test]
fn fin_wait_2_does_not_last_for_ever() {
    let mut pair = Pair::default();
    let (client, server) = pair.establish(80);
    pair.nodes[A].close(client);
    pair.run_for(Duration::from_secs(61));
    assert_eq!(pair.nodes[A].closed(client), Some(CloseReason::TimedOut));
    assert_eq!(states(&pair, A), []);
    assert_eq!(pair.nodes[B].closed(server), None);
    // Half-open: the other side finds out when it says something.
    pair.nodes[B].write(server, b"hello?");
    pair.run_for(Duration::from_secs(1));
    assert_eq!(pair.nodes[B].closed(server), Some(CloseReason::Reset));
}

#[test]
fn closing_before_there_is_a_connection() {
    let mut raw = Raw::new();
    let user = raw.node.connect(raw.now, "10.0.0.2:80".parse().unwrap());
    assert_eq!(raw.turn().len(), 1);
    raw.node.close(user);
    assert_eq!(raw.turn(), []);
    assert_eq!(raw.node.closed(user), Some(CloseReason::Aborted));
    assert_eq!(raw.node.stack.connection_count(), 0);
}

#[test]
fn a_connection_times_out_when_nobody_answers() {
    let mut raw = Raw::new();
    let user = raw.node.connect(raw.now, "10.0.0.2:80".parse().unwrap());
    let syns = raw.pass(Duration::from_secs(400));
    assert_eq!(syns.len(), 1 + 7);
    assert_eq!(raw.node.closed(user), Some(CloseReason::TimedOut));
    assert_eq!(raw.node.stack.connection_count(), 0);
    assert_eq!(raw.count("timed_out"), 1);
}

#[test]
fn stale_ids_do_nothing() {
    let mut raw = Raw::new();
    let (_, listener) = raw.listen(80, 8);
    let (iss, user) = raw.open(listener, 9, 80);
    let id = raw.node.conn(user);
    raw.tcp(&header(9, 80, RST, 1001, 0), &[]);
    assert_eq!(raw.node.closed(user), Some(CloseReason::Reset));
    // Another connection gets the slot.
    let (_, other) = raw.open(listener, 10, 80);
    let other_id = raw.node.conn(other);
    assert_eq!(other_id.index(), id.index());
    assert_ne!(other_id, id);
    let stack = &mut raw.node.stack;
    assert!(!stack.set_send_limit(id, 10, false) && !stack.set_receive_limit(id, 1 << 20));
    assert!(!stack.shutdown_send(id) && !stack.close(id) && !stack.abort(id));
    assert!(!stack.set_user(id, 5) && stack.user(id).is_none());
    assert!(stack.connection(id).is_none() && stack.addresses(id).is_none());
    assert_eq!(stack.user(other_id), Some(other));
    assert_eq!(raw.turn(), []);
    let _ = iss;
}

#[test]
fn after_close_the_id_takes_no_orders_but_abort() {
    let mut raw = Raw::new();
    let (_, listener) = raw.listen(80, 8);
    let (_, user) = raw.open(listener, 9, 80);
    let id = raw.node.conn(user);
    raw.node.close(user);
    let stack = &mut raw.node.stack;
    assert!(!stack.close(id) && !stack.shutdown_send(id) && !stack.set_send_limit(id, 5, false));
    assert!(stack.connection(id).is_some());
    raw.node.abort(user);
    assert!(!raw.node.stack.abort(id));
    let (flags, ..) = one_tcp(raw.turn());
    assert!(flags.contains(RST));
    assert_eq!(raw.node.stack.connection_count(), 0);
}

#[test]
fn the_same_ports_again_after_the_other_side_closed_first() {
    let mut pair = Pair::default();
    let (_, listener) = pair.nodes[B].listen(80, 4);
    for round in 0..5 {
        let local = "10.0.0.1:4444".parse().unwrap();
        let remote = "10.0.0.2:80".parse().unwrap();
        let now = pair.now();
        let client = pair.nodes[A].try_connect(now, Some(local), remote).unwrap();
        let mut server = None;
        pair.run_until(|pair| {
            server = server.or_else(|| pair.nodes[B].accept(listener));
            server.is_some()
        });
        let server = server.unwrap();
        // The server closes first, so TIME-WAIT is there, and a newer SYN replaces it.
        pair.nodes[B].close(server);
        pair.run_until(|pair| pair.nodes[A].has_fin(client));
        pair.nodes[A].close(client);
        pair.run_for(Duration::from_millis(50));
        assert_eq!(pair.nodes[A].closed(client), Some(CloseReason::Normal));
        assert_eq!(states(&pair, A), []);
        assert_eq!(states(&pair, B), [State::TimeWait]);
        assert_eq!(pair.nodes[B].count("time_wait_reused"), round);
    }
}

#[test]
fn our_own_time_wait_can_be_replaced_after_a_second() {
    let mut pair = Pair::default();
    let (_, listener) = pair.nodes[B].listen(80, 4);
    let local = "10.0.0.1:4444".parse().unwrap();
    let remote = "10.0.0.2:80".parse().unwrap();
    let now = pair.now();
    let client = pair.nodes[A].try_connect(now, Some(local), remote).unwrap();
    pair.run_for(Duration::from_millis(10));
    let server = pair.nodes[B].accept(listener).unwrap();
    pair.nodes[A].close(client);
    pair.run_until(|pair| pair.nodes[B].has_fin(server));
    pair.nodes[B].close(server);
    pair.run_for(Duration::from_millis(10));
    assert_eq!(states(&pair, A), [State::TimeWait]);
    let now = pair.now();
    assert!(pair.nodes[A].try_connect(now, Some(local), remote).is_err());
    pair.run_for(Duration::from_secs(2));
    let now = pair.now();
    let again = pair.nodes[A].try_connect(now, Some(local), remote).unwrap();
    pair.run_for(Duration::from_millis(10));
    assert_eq!(pair.nodes[A].events(again), [Event::Connected]);
    assert_eq!(states(&pair, A), [State::Established]);
}

#[test]
fn a_new_syn_meets_time_wait_that_the_host_has_not_closed() {
    let mut raw = Raw::new();
    let (_, listener) = raw.listen(80, 8);
    let (iss, user) = raw.open(listener, 9, 80);
    raw.node.shutdown(user);
    assert!(one_tcp(raw.turn()).0.contains(FIN));
    raw.tcp(&header(9, 80, ACK | FIN, 1001, iss + 2), &[]);
    assert_eq!(raw.node.tcp(user).unwrap().state(), State::TimeWait);
    let (flags, _, ack) = one_tcp(raw.tcp(&header(9, 80, SYN, 500_000, 0), &[]));
    assert_eq!((flags, ack), (SYN | ACK, 500_001));
    // The old one is still the host's, until it closes it.
    assert_eq!(raw.node.stack.connection_count(), 2);
    raw.node.close(user);
    raw.turn();
    assert_eq!(raw.node.closed(user), Some(CloseReason::Normal));
    raw.pass(Duration::from_secs(120));
    assert!(raw.node.stack.is_consistent());
}

#[test]
fn time_wait_stays_where_nobody_listens() {
    let mut raw = Raw::new();
    let (id, listener) = raw.listen(80, 8);
    let (iss, user) = raw.open(listener, 9, 80);
    raw.node.close(user);
    raw.turn();
    raw.tcp(&header(9, 80, ACK | FIN, 1001, iss + 2), &[]);
    raw.node.stack.close_listener(id);
    assert_eq!(raw.tcp(&header(9, 80, SYN, 500_000, 0), &[]), []);
    let states: Vec<_> = raw.node.stack.connections().map(|c| c.tcp.state).collect();
    assert_eq!(states, [State::TimeWait]);
}

#[test]
fn keepalive_finds_the_dead() {
    use sidecore_stack::SocketOption;
    let mut raw = Raw::new();
    let (_, listener) = raw.listen(80, 8);
    let (_, user) = raw.open(listener, 9, 80);
    let keepalive = sidecore_tcp::Keepalive {
        idle: Duration::from_secs(10),
        interval: Duration::from_secs(2),
        probes: 3,
    };
    let conn = raw.node.conn(user);
    let option = SocketOption::Keepalive(Some(keepalive));
    assert!(raw.node.stack.set_option(conn, option));
    let packets = raw.pass(Duration::from_secs(20));
    assert_eq!(raw.node.closed(user), Some(CloseReason::TimedOut));
    assert_eq!(packets.len(), 4, "three probes and a reset: {packets:?}");
}
