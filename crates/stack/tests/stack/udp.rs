use std::net::SocketAddr;
use std::time::Duration;

use sidecore_stack::{SocketOptions, StackError};
use sidecore_testkit::packet::{Packet, Station};
use sidecore_testkit::{A, B, Datagram, Event, Pair, pattern};

use crate::raw::*;

fn addr(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

#[test]
fn there_and_back() {
    let mut pair = Pair::default();
    let (client, client_user) = pair.nodes[A].udp_bind(addr("0.0.0.0:0"));
    let (server, server_user) = pair.nodes[B].udp_bind(addr("10.0.0.2:53"));
    let now = pair.now();
    let resolving = pair.nodes[A].udp_send(now, client, addr("10.0.0.2:53"), b"query");
    // The announcements have not arrived yet.
    assert_eq!(resolving, Err(StackError::Resolving));
    pair.run_for(Duration::from_millis(1));
    assert_eq!(
        pair.nodes[A].take_datagram_events(),
        [(client_user, Event::DatagramReady)]
    );
    let now = pair.now();
    pair.nodes[A]
        .udp_send(now, client, addr("10.0.0.2:53"), b"query")
        .unwrap();
    pair.run_for(Duration::from_millis(1));
    let from = SocketAddr::from((
        pair.nodes[A].ip(),
        pair.nodes[A].stack.udp_local(client).unwrap().port(),
    ));
    let expected = Datagram {
        user: server_user,
        from,
        to: addr("10.0.0.2:53"),
        bytes: b"query".to_vec(),
    };
    assert_eq!(pair.nodes[B].take_datagrams(), [expected]);
    let now = pair.now();
    pair.nodes[B]
        .udp_send(now, server, from, &pattern(1, 0, 1472))
        .unwrap();
    pair.run_for(Duration::from_millis(1));
    let answer = pair.nodes[A].take_datagrams().remove(0);
    assert_eq!(
        (answer.user, answer.bytes),
        (client_user, pattern(1, 0, 1472))
    );
}

#[test]
fn what_cannot_be_sent() {
    let mut raw = Raw::new();
    let now = raw.now;
    let (id, _) = raw.node.udp_bind(addr("0.0.0.0:6000"));
    let mut send = |to: &str, len: usize| raw.node.udp_send(now, id, addr(to), &vec![0; len]);
    assert_eq!(send("10.0.0.2:0", 1), Err(StackError::InvalidAddress));
    assert_eq!(send("8.8.8.8:53", 1), Err(StackError::Unreachable));
    assert_eq!(send("10.0.0.2:53", 1473), Err(StackError::MessageTooLarge));
    assert_eq!(send("10.0.0.2:53", 1472), Ok(()));
    assert_eq!(send("10.0.0.2:53", 0), Ok(()));
    assert_eq!(
        send("127.0.0.1:53", 65508),
        Err(StackError::MessageTooLarge)
    );
    assert_eq!(raw.turn().len(), 2);
    raw.node.host.device_room = 0;
    let blocked = raw.node.udp_send(now, id, addr("10.0.0.2:53"), b"x");
    assert_eq!(blocked, Err(StackError::WouldBlock));
    raw.node.stack.udp_close(id);
    let gone = raw.node.udp_send(now, id, addr("10.0.0.2:53"), b"x");
    assert_eq!(gone, Err(StackError::NoSuchSocket));
    assert_eq!(raw.node.stack.udp_local(id), None);
}

#[test]
fn nobody_at_the_next_hop() {
    let mut raw = Raw::with(|_| {});
    let (id, user) = raw.node.udp_bind(addr("0.0.0.0:6000"));
    let send = |raw: &mut Raw| raw.node.udp_send(raw.now, id, addr("10.0.0.2:53"), b"x");
    assert_eq!(send(&mut raw), Err(StackError::Resolving));
    raw.pass(Duration::from_millis(3100));
    assert_eq!(
        raw.node.take_datagram_events(),
        [(user, Event::DatagramReady)]
    );
    assert_eq!(send(&mut raw), Err(StackError::Unreachable));
}

#[test]
fn broadcasts_go_out_and_come_in() {
    let mut raw = Raw::new();
    let (id, user) = raw.node.udp_bind(addr("0.0.0.0:67"));
    raw.node
        .udp_send(raw.now, id, addr("10.0.0.255:68"), b"all")
        .unwrap();
    let frames = raw.node.turn(raw.now);
    assert_eq!(frames[0][..6], [0xff; 6]);
    assert!(matches!(Packet::parse(&frames[0]), Packet::Udp(ip, ..) if ip.dst.octets()[3] == 255));
    let all = Station {
        ip: [255, 255, 255, 255].into(),
        ..NODE
    };
    raw.send(&PEER.udp(&all, 68, 67, b"hello all"));
    let datagrams = raw.node.take_datagrams();
    assert_eq!((datagrams.len(), datagrams[0].user), (1, user));
    assert_eq!(datagrams[0].to.ip(), all.ip);
}

#[test]
fn damaged_datagrams() {
    let mut raw = Raw::new();
    let (_, _) = raw.node.udp_bind(addr("0.0.0.0:53"));
    let good = PEER.udp(&NODE, 9, 53, b"payload");
    let mut wrong = good.clone();
    wrong[45] ^= 1;
    raw.send(&wrong);
    assert_eq!(raw.count("udp_bad_checksum"), 1);
    for length in [7u8, 16] {
        let mut wrong = good.clone();
        wrong[39] = length;
        raw.send(&wrong);
    }
    assert_eq!(raw.count("udp_malformed"), 2);
    // No checksum is no error (RFC 768).
    let mut without = good.clone();
    without[40..42].fill(0);
    raw.send(&without);
    raw.send(&good);
    assert_eq!(raw.node.take_datagrams().len(), 2);
}

#[test]
fn over_the_loopback() {
    let mut raw = Raw::new();
    let (a, user_a) = raw.node.udp_bind(addr("127.0.0.1:1000"));
    let (b, user_b) = raw.node.udp_bind(addr("0.0.0.0:2000"));
    let long = pattern(2, 0, 60_000);
    raw.node
        .udp_send(raw.now, a, addr("127.0.0.1:2000"), &long)
        .unwrap();
    assert_eq!(raw.turn(), []);
    let got = raw.node.take_datagrams().remove(0);
    assert_eq!(
        (got.user, got.from, &got.bytes),
        (user_b, addr("127.0.0.1:1000"), &long)
    );
    raw.node.udp_send(raw.now, b, got.from, b"back").unwrap();
    raw.turn();
    let got = raw.node.take_datagrams().remove(0);
    assert_eq!((got.user, got.from), (user_a, addr("127.0.0.1:2000")));
    // To nowhere: the error comes back over the loopback.
    raw.node
        .udp_send(raw.now, a, addr("127.0.0.1:3"), b"anyone?")
        .unwrap();
    raw.turn();
    let events = raw.node.take_datagram_events();
    assert!(
        matches!(events[..], [(user, Event::IcmpError(to, _))] if user == user_a && to.port() == 3)
    );
}

/// As with the kernel's sockets: a server gives each peer a socket of its own at the one address, and keeps one for who comes next.
#[test]
fn of_sockets_at_one_address_that_of_the_peer_gets_what_it_sends() {
    const SERVER: &str = "127.0.0.1:53";
    let mut raw = Raw::new();
    let shared = SocketOptions {
        reuse_address: true,
        ..SocketOptions::default()
    };
    let [(first, of_first), (second, of_second), (_, any)] =
        [SERVER, SERVER, "0.0.0.0:53"].map(|local| {
            let bound = raw.node.udp_bind_with(addr(local), &shared);
            bound.expect("a port that may be shared")
        });
    let peer = |n: u16| SocketAddr::from(([127, 0, 0, 1], 1000 + n));
    let clients = [0, 1, 2].map(|n| raw.node.udp_bind(peer(n)).0);
    // Who gets what each client sends.
    let takers = |raw: &mut Raw| {
        for client in clients {
            let sent = raw.node.udp_send(raw.now, client, addr(SERVER), b"x");
            sent.expect("sent");
        }
        raw.turn();
        let taken = raw.node.take_datagrams();
        taken.iter().map(|d| d.user).collect::<Vec<_>>()
    };
    assert_eq!(takers(&mut raw), [of_second; 3], "the last bound");
    assert!(raw.node.stack.udp_set_peer(second, Some(peer(1))));
    assert_eq!(takers(&mut raw), [of_first, of_second, of_first]);
    assert!(raw.node.stack.udp_set_peer(first, Some(peer(0))));
    assert_eq!(takers(&mut raw), [of_first, of_second, any]);
    assert!(raw.node.stack.udp_set_peer(second, None));
    assert_eq!(takers(&mut raw), [of_first, of_second, of_second]);
    // Nobody is there for the others: they are told.
    raw.node.stack.udp_close(second);
    assert!(raw.node.stack.udp_set_peer(first, Some(peer(7))));
    assert_eq!(takers(&mut raw), [any; 3]);
    assert!(!raw.node.stack.udp_set_peer(second, None), "stale");
}
