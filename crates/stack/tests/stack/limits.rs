//! Tables that are full.

use std::net::SocketAddr;
use std::time::Duration;

use sidecore_stack::StackError;
use sidecore_tcp::State;
use sidecore_testkit::packet::{Packet, Station, header};
use sidecore_wire::{ArpOperation, Icmpv4};

use crate::raw::*;

fn with_peer(change: impl FnOnce(&mut sidecore_stack::StackConfig)) -> Raw {
    Raw::with(|config| {
        config.neighbors.push((PEER.ip, PEER.mac));
        change(config);
    })
}

#[test]
fn no_place_for_another_connection() {
    let mut raw = with_peer(|config| config.max_connections = 3);
    let (_, listener) = raw.listen(80, 8);
    for port in 1..=3 {
        raw.open(listener, port, 80);
    }
    assert_eq!(raw.tcp(&header(4, 80, SYN, 1, 0), &[]), []);
    let remote: SocketAddr = "10.0.0.2:80".parse().unwrap();
    let refused = raw.node.try_connect(raw.now, None, remote);
    assert_eq!(refused, Err(StackError::Full));
    assert_eq!(raw.count("connections_full"), 2);
    // One ends, another may come.
    raw.tcp(&header(2, 80, RST, 1001, 0), &[]);
    raw.open(listener, 5, 80);
    assert!(raw.node.stack.is_consistent());
}

#[test]
fn time_wait_gives_way() {
    let mut raw = with_peer(|config| config.max_connections = 2);
    let (_, listener) = raw.listen(80, 8);
    for port in 1..=2 {
        let (iss, user) = raw.open(listener, port, 80);
        raw.node.close(user);
        raw.turn();
        raw.tcp(&header(port, 80, ACK | FIN, 1001, iss + 2), &[]);
    }
    let states: Vec<_> = raw.node.stack.connections().map(|c| c.tcp.state).collect();
    assert_eq!(states, [State::TimeWait, State::TimeWait]);
    raw.open(listener, 3, 80);
    assert_eq!(raw.count("time_wait_recycled"), 1);
    let left: Vec<_> = raw
        .node
        .stack
        .connections()
        .map(|c| c.remote.port())
        .collect();
    assert_eq!(left.len(), 2);
    assert!(
        left.contains(&2) && left.contains(&3),
        "the older one went: {left:?}"
    );
}

#[test]
fn listeners_and_udp_sockets() {
    let mut raw = with_peer(|config| {
        config.max_listeners = 1;
        config.max_udp_sockets = 1;
    });
    let addr = |port| SocketAddr::from((NODE.ip, port));
    let stack = &mut raw.node.stack;
    let options = Default::default();
    let first = stack.listen(addr(1), &options, 1, 0).unwrap();
    assert_eq!(stack.listen(addr(2), &options, 1, 0), Err(StackError::Full));
    stack.close_listener(first);
    assert!(stack.listen(addr(2), &options, 1, 0).is_ok());
    let first = stack.udp_bind(addr(1), 0).unwrap();
    assert_eq!(stack.udp_bind(addr(2), 0), Err(StackError::Full));
    assert!(stack.udp_close(first) && !stack.udp_close(first));
    assert!(stack.udp_bind(addr(2), 0).is_ok());
}

#[test]
fn ephemeral_ports_run_out() {
    let mut raw = with_peer(|config| config.ephemeral_ports = 5000..=5003);
    let remote: SocketAddr = "10.0.0.2:80".parse().unwrap();
    raw.listen(5001, 1);
    for _ in 0..3 {
        raw.node.try_connect(raw.now, None, remote).unwrap();
    }
    let refused = raw.node.try_connect(raw.now, None, remote);
    assert_eq!(refused, Err(StackError::AddressInUse));
    // Another peer is another matter.
    let other: SocketAddr = "10.0.0.2:81".parse().unwrap();
    assert!(raw.node.try_connect(raw.now, None, other).is_ok());
}

#[test]
fn more_control_packets_than_a_turn_takes() {
    let mut raw = with_peer(|config| config.control_queue = 10);
    for port in 1..=30 {
        let frame = PEER.tcp(&NODE, &header(port, 80, SYN, 1, 0), &[]);
        raw.node.receive(raw.now, &frame);
    }
    assert_eq!(raw.turn().len(), 10);
    assert_eq!(raw.count("control_dropped"), 20);
    assert_eq!(raw.count("tcp_resets_out"), 10);
}

#[test]
fn echo_replies_within_the_arena() {
    let mut raw = with_peer(|config| config.echo_rate.burst = 1000);
    let ping = PEER.icmp(&NODE, &Icmpv4::EchoRequest { ident: 1, seq: 2 }, &[7; 1400]);
    for _ in 0..200 {
        raw.node.receive(raw.now, &ping);
    }
    let replies = raw.turn().len();
    assert!((90..200).contains(&replies), "{replies}");
    assert_eq!(raw.count("control_dropped"), 200 - replies as u64);
    // The arena is empty again.
    assert_eq!(raw.send(&ping).len(), 1);
}

#[test]
fn neighbours_are_forgotten_for_others() {
    let mut raw = Raw::with(|config| config.arp.capacity = 8);
    for host in 2..=20 {
        let station = Station::new(host);
        let answer = raw.send(&station.arp(ArpOperation::Request, &NODE));
        assert!(matches!(one(answer), Packet::Arp(..)));
    }
    raw.turn();
    raw.node.connect(raw.now, "10.0.0.99:80".parse().unwrap());
    raw.turn();
    assert_eq!(raw.count("arp_evicted"), 19 - 8 + 1);
}

#[test]
fn only_so_many_neighbours_are_asked_for() {
    let mut raw = Raw::with(|config| {
        config.arp.max_pending = 4;
        config.arp.capacity = 256;
    });
    let users: Vec<_> = (10..20)
        .map(|host| {
            let remote = SocketAddr::from((Station::new(host).ip, 80));
            raw.node.connect(raw.now, remote)
        })
        .collect();
    let requests = raw.turn();
    assert_eq!(requests.len(), 4, "{requests:?}");
    // Those beyond fail at once.
    let failed = users
        .iter()
        .filter(|user| raw.node.closed(**user).is_some());
    assert_eq!(failed.count(), 6);
    raw.pass(Duration::from_secs(10));
    assert_eq!(raw.node.stack.connection_count(), 0);
}
