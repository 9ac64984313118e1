use std::time::Duration;

use sidecore_stack::User;
use sidecore_tcp::{CloseReason, State};
use sidecore_testkit::packet::{Station, header};
use sidecore_testkit::{Event, pattern};

use crate::raw::*;

fn establish(raw: &mut Raw, remote: &str) -> (User, User) {
    let (_, listener) = raw.listen(80, 8);
    let client = raw.node.connect(raw.now, remote.parse().unwrap());
    assert_eq!(raw.turn(), [], "nothing leaves the machine");
    let server = raw.node.accept(listener).unwrap();
    assert_eq!(raw.node.events(client), [Event::Connected]);
    (client, server)
}

#[test]
fn by_any_local_address() {
    for (remote, local) in [
        ("127.0.0.1:80", [127, 0, 0, 1]),
        ("127.9.9.9:80", [127, 0, 0, 1]),
        ("10.0.0.1:80", [10, 0, 0, 1]),
        ("0.0.0.0:80", [127, 0, 0, 1]),
    ] {
        let mut raw = Raw::new();
        let (client, server) = establish(&mut raw, remote);
        let (from, to) = raw.node.addresses(client).unwrap();
        assert_eq!(from.ip(), std::net::Ipv4Addr::from(local), "{remote}");
        assert_eq!(raw.node.addresses(server), Some((to, from)));
    }
}

#[test]
fn data_both_ways_in_large_segments() {
    let mut raw = Raw::new();
    raw.node.host.buffer = 1 << 20;
    let (client, server) = establish(&mut raw, "127.0.0.1:80");
    assert!(raw.node.tcp(client).unwrap().effective_mss() > 65_000);
    let (up, down) = (pattern(1, 0, 2_000_000), pattern(2, 0, 700_000));
    let before = raw.count("tcp_segments_out");
    raw.node.write(client, &up);
    raw.node.write(server, &down);
    assert_eq!(raw.pass(Duration::from_secs(1)), []);
    assert_eq!(raw.node.received(server), up);
    assert_eq!(raw.node.received(client), down);
    let segments = raw.count("tcp_segments_out") - before;
    assert!(segments < 200, "{segments}");
    assert_eq!(raw.count("tcp_retransmissions"), 0);
    raw.node.close(client);
    raw.node.close(server);
    raw.pass(Duration::from_secs(120));
    assert_eq!(raw.node.closed(client), Some(CloseReason::Normal));
    assert_eq!(raw.node.closed(server), Some(CloseReason::Normal));
    assert_eq!(raw.node.stack.connection_count(), 0);
}

#[test]
fn sack_blocks_beside_full_segments_fit_into_a_packet() {
    for remote in ["127.0.0.1:80", "10.0.0.1:80"] {
        let mut raw = Raw::new();
        raw.node.host.buffer = 1 << 20;
        let (client, server) = establish(&mut raw, remote);
        let (up, down) = (pattern(1, 0, 900_000), pattern(2, 0, 900_000));
        raw.node.write(client, &up);
        raw.node.write(server, &down);
        // What a receiver has no room for is lost, there as well; so that both have gaps to tell of.
        for _ in 0..20 {
            raw.node.stack.transmit(raw.now, &mut raw.node.host, 64);
            raw.node.lose_on_loopback(3);
            raw.node.loopback_turn(raw.now);
        }
        raw.pass(Duration::from_secs(2));
        assert_eq!(raw.node.received(server), up, "{remote}");
        assert_eq!(raw.node.received(client), down, "{remote}");
        assert!(raw.count("tcp_out_of_order") > 0 && raw.count("tcp_retransmissions") > 0);
    }
}

#[test]
fn a_full_loopback_pushes_back() {
    let mut raw = Raw::new();
    raw.node.host.loopback_room = 1;
    let (client, server) = establish(&mut raw, "127.0.0.1:80");
    let data = pattern(1, 0, 500_000);
    raw.node.write(client, &data);
    raw.pass(Duration::from_secs(1));
    assert_eq!(raw.node.received(server), data);
    assert_eq!(raw.count("tcp_retransmissions"), 0);
}

#[test]
fn refused_and_reset() {
    let mut raw = Raw::new();
    let client = raw.node.connect(raw.now, "127.0.0.1:81".parse().unwrap());
    raw.turn();
    assert_eq!(raw.node.closed(client), Some(CloseReason::Refused));
    let (client, server) = establish(&mut raw, "127.0.0.1:80");
    raw.node.abort(client);
    raw.turn();
    assert_eq!(raw.node.closed(server), Some(CloseReason::Reset));
    assert_eq!(raw.node.stack.connection_count(), 0);
}

#[test]
fn a_full_device_does_not_stop_the_loopback() {
    let mut raw = Raw::new();
    let (_, outside) = raw.listen(79, 8);
    let (_, stuck) = raw.open(outside, 9, 79);
    raw.node.host.device_room = 0;
    raw.node.write(stuck, b"cannot go");
    let (client, server) = {
        let (_, listener) = raw.listen(80, 8);
        let client = raw.node.connect(raw.now, "127.0.0.1:80".parse().unwrap());
        for _ in 0..20 {
            raw.node.stack.transmit(raw.now, &mut raw.node.host, 64);
            let frames = raw.node.loopback_turn(raw.now);
            assert!(frames < 4);
        }
        (client, raw.node.accept(listener).unwrap())
    };
    assert!(raw.node.stack.has_work());
    assert_eq!(raw.node.tcp(client).unwrap().state(), State::Established);
    assert_eq!(raw.node.tcp(server).unwrap().state(), State::Established);
    raw.node.host.device_room = 8;
    let (_, payload) = one(raw.turn()).tcp();
    assert_eq!(payload, b"cannot go");
}

#[test]
fn nobody_outside_speaks_for_a_connection_within() {
    let mut raw = Raw::new();
    let (client, server) = establish(&mut raw, "10.0.0.1:80");
    let (from, _) = raw.node.addresses(client).unwrap();
    let info = raw.node.tcp(server).unwrap().info();
    // A station on the link sends with our own address, the right ports, and sequence numbers that might be right.
    let thief = Station {
        ip: NODE.ip,
        ..PEER
    };
    for _ in 0..3 {
        let mut reset = header(from.port(), 80, RST, 0, 0);
        for seq in [0u32, 1, 1 << 31] {
            reset.seq.0 = seq;
            assert_eq!(raw.send(&thief.tcp(&NODE, &reset, &[])), []);
        }
    }
    assert_eq!(raw.count("ip_bad_source"), 9);
    assert_eq!(
        raw.node.tcp(server).unwrap().info(),
        info,
        "it was not even looked at"
    );
}

#[test]
fn link_and_loopback_share_a_turn() {
    let mut raw = Raw::new();
    let (_, outside) = raw.listen(79, 8);
    let (_, far) = raw.open(outside, 9, 79);
    let (near, _) = establish(&mut raw, "127.0.0.1:80");
    // Small segments, so that both have much to send.
    for _ in 0..2 {
        raw.node.write(far, &pattern(1, 0, 20 * 536));
        raw.node.write(near, &pattern(2, 0, 200_000));
    }
    let before = raw.count("loopback_out");
    let sent = raw.node.stack.transmit(raw.now, &mut raw.node.host, 4);
    assert_eq!(sent, 4);
    let within = raw.count("loopback_out") - before;
    assert!(
        (1..=3).contains(&within),
        "{within} of 4 frames went over the loopback"
    );
}
