use std::time::Duration;

use sidecore_testkit::{A, B, Link, NodeConfig, Pair, Rng, pattern};

use crate::raw::*;

/// `A` sends `up` bytes and `B` sends `down`, then both close; everything must arrive and nothing must be left.
fn exchange(pair: &mut Pair, up: usize, down: usize) {
    let (client, server) = pair.establish(80);
    let (request, response) = (pattern(1, 0, up), pattern(2, 0, down));
    pair.nodes[A].write(client, &request);
    pair.nodes[B].write(server, &response);
    pair.run_until(|pair| {
        pair.nodes[B].received(server).len() == up && pair.nodes[A].received(client).len() == down
    });
    assert_eq!(pair.nodes[B].received(server), request);
    assert_eq!(pair.nodes[A].received(client), response);
    pair.nodes[A].close(client);
    pair.nodes[B].close(server);
    pair.run_until(|pair| {
        pair.nodes[A].closed(client).is_some() && pair.nodes[B].closed(server).is_some()
    });
    assert_eq!(pair.nodes[A].acknowledged(client), up as u64);
    assert_eq!(pair.nodes[B].acknowledged(server), down as u64);
    pair.run_out();
    for node in &pair.nodes {
        assert_eq!(node.stack.connection_count(), 0);
        assert!(node.stack.is_consistent());
        assert_eq!(node.stack.next_timeout(), None);
    }
}

fn pair_with(link: Link, seed: u64, change: impl Fn(&mut NodeConfig)) -> Pair {
    let mut configs = [NodeConfig::new(1), NodeConfig::new(2)];
    configs.iter_mut().for_each(change);
    Pair::new(configs, link, seed)
}

#[test]
fn both_ways() {
    let mut pair = Pair::default();
    exchange(&mut pair, 1_000_000, 300_000);
    for n in [A, B] {
        assert_eq!(pair.nodes[n].count("tcp_retransmissions"), 0);
        assert_eq!(pair.nodes[n].count("tcp_bad_checksum"), 0);
    }
}

#[test]
fn super_segments_arrive_as_segments() {
    let mut pair = pair_with(Link::default(), 1, |config| {
        config.tso_max = 65536;
        config.buffer = 1 << 20;
    });
    exchange(&mut pair, 3_000_000, 10);
    let frames = pair.link_counters(A).sent;
    let segments = pair.nodes[A].count("tcp_segments_out");
    assert!(
        segments * 4 < frames,
        "{segments} segments, {frames} frames"
    );
    assert_eq!(pair.nodes[B].count("tcp_bad_checksum"), 0);
    assert_eq!(pair.nodes[B].count("ip_bad_checksum"), 0);
}

#[test]
fn loss_reordering_duplication_corruption() {
    for seed in 0..24 {
        let loss = [10, 30, 100, 200][seed as usize % 4];
        let link = Link {
            delay: Duration::from_millis(seed % 5 * 4),
            jitter: Duration::from_millis(seed % 3 * 5),
            loss,
            duplicate: loss / 2,
            corrupt: loss / 4,
            ..Link::default()
        };
        let mut pair = pair_with(link, seed, |config| {
            config.tso_max = if seed % 2 == 0 { 20_000 } else { 0 };
            config.stack.tcp.sack = seed % 3 != 0;
            config.stack.tcp.timestamps = seed % 4 != 0;
            config.stack.arp.tries = 20;
        });
        exchange(&mut pair, 60_000, 25_000);
        if loss >= 100 {
            assert!(pair.nodes[A].count("tcp_retransmissions") > 0);
        }
    }
}

#[test]
fn a_slow_reader_and_tight_sinks() {
    let mut pair = pair_with(Link::default(), 3, |config| config.buffer = 8000);
    pair.nodes[A].host.device_room = 3;
    pair.nodes[B].host.device_room = 1;
    pair.nodes[B].reads = false;
    let (client, server) = pair.establish(80);
    let data = pattern(1, 0, 100_000);
    pair.nodes[A].write(client, &data);
    let mut rng = Rng::new(5);
    pair.run_until(|pair| {
        let max = rng.below(3000) as usize;
        pair.nodes[B].read(server, max);
        pair.nodes[B].received(server).len() == data.len()
    });
    assert_eq!(pair.nodes[B].received(server), data);
}

#[test]
fn a_reader_that_stops_is_probed_until_it_goes_on() {
    let mut pair = pair_with(Link::default(), 3, |config| config.buffer = 5000);
    pair.nodes[B].reads = false;
    let (client, server) = pair.establish(80);
    let data = pattern(1, 0, 20_000);
    pair.nodes[A].write(client, &data);
    // Probes of the closed window are answered though the host has no room at all.
    pair.run_for(Duration::from_secs(5));
    pair.nodes[B].host.no_room = 1000;
    pair.run_for(Duration::from_secs(600));
    // Scaled windows count in steps of 128 bytes.
    assert!((4872..=5000).contains(&pair.nodes[B].received(server).len()));
    assert_eq!(pair.nodes[A].closed(client), None);
    pair.nodes[B].host.no_room = 0;
    pair.nodes[B].reads = true;
    pair.run_until(|pair| pair.nodes[B].received(server).len() == data.len());
    assert_eq!(pair.nodes[B].received(server), data);
}

#[test]
fn a_host_without_room_loses_nothing() {
    let mut refused = 0;
    for seed in 0..6 {
        let link = Link {
            loss: 20,
            jitter: Duration::from_millis(2),
            ..Link::default()
        };
        let mut pair = pair_with(link, seed, |_| {});
        pair.nodes[A].host.no_room = 150;
        pair.nodes[B].host.no_room = 150;
        exchange(&mut pair, 40_000, 40_000);
        refused += pair.nodes[A].count("tcp_no_room") + pair.nodes[B].count("tcp_no_room");
    }
    assert!(refused > 10, "{refused}");
}

#[test]
fn five_hundred_connections() {
    const COUNT: usize = 500;
    let link = Link {
        loss: 10,
        jitter: Duration::from_micros(500),
        ..Link::default()
    };
    let mut pair = pair_with(link, 9, |config| config.stack.arp.tries = 20);
    let (_, listener) = pair.nodes[B].listen(80, COUNT as u32);
    let clients: Vec<_> = (0..COUNT).map(|_| pair.connect_to(80)).collect();
    for (n, client) in clients.iter().enumerate() {
        let data = pattern(n as u64, 0, 1000 + n * 10);
        pair.nodes[A].write(*client, &data);
        pair.nodes[A].shutdown(*client);
    }
    // Every server echoes when it has all.
    let mut servers = Vec::new();
    let mut done = 0;
    pair.run_until(|pair| {
        while let Some(server) = pair.nodes[B].accept(listener) {
            servers.push(server);
        }
        servers.retain(|server| {
            let finished = pair.nodes[B].has_fin(*server);
            if finished {
                let echo = pair.nodes[B].received(*server).to_vec();
                pair.nodes[B].write(*server, &echo);
                pair.nodes[B].close(*server);
                done += 1;
            }
            !finished
        });
        done == COUNT && clients.iter().all(|client| pair.nodes[A].has_fin(*client))
    });
    for (n, client) in clients.iter().enumerate() {
        assert_eq!(
            pair.nodes[A].received(*client),
            pattern(n as u64, 0, 1000 + n * 10)
        );
        pair.nodes[A].close(*client);
    }
    pair.run_out();
    assert!(
        clients
            .iter()
            .all(|client| pair.nodes[A].closed(*client).is_some())
    );
    assert_eq!(pair.nodes[A].stack.connection_count(), 0);
    assert_eq!(pair.nodes[B].stack.connection_count(), 0);
}

#[test]
fn a_turn_shares_its_budget_between_connections() {
    let mut raw = Raw::new();
    let (_, listener) = raw.listen(80, 8);
    let opened: Vec<_> = (1..=4).map(|port| raw.open(listener, port, 80)).collect();
    for (_, user) in &opened {
        raw.node.write(*user, &pattern(0, 0, 10 * 1460));
    }
    let sent = raw.node.stack.transmit(raw.now, &mut raw.node.host, 16);
    assert_eq!(sent, 16);
    assert!(raw.node.stack.has_work());
    let sent: Vec<_> = opened
        .iter()
        .map(|(_, user)| raw.node.tcp(*user).unwrap().send_nxt() / 536)
        .collect();
    assert_eq!(sent, [4, 4, 4, 4]);
}

#[test]
fn acknowledgments_ride_on_answers() {
    let mut raw = Raw::new();
    let (_, listener) = raw.listen(80, 8);
    let (iss, user) = raw.open(listener, 9, 80);
    let request = sidecore_testkit::packet::header(9, 80, ACK, 1001, iss + 1);
    raw.node
        .receive(raw.now, &PEER.tcp(&NODE, &request, b"ping"));
    raw.node.write(user, b"pong");
    let packets = raw.turn();
    let (header, payload) = one(packets).tcp();
    assert_eq!(
        (header.ack.0, payload.as_slice()),
        (1005, b"pong".as_slice())
    );
    // And nothing comes after it.
    let later = raw.pass(Duration::from_millis(150));
    assert_eq!(later, []);
}

#[test]
fn more_to_come_holds_back_and_cork_too() {
    use sidecore_stack::SocketOption;
    let mut raw = Raw::new();
    let (_, listener) = raw.listen(80, 8);
    let (_, user) = raw.open(listener, 9, 80);
    raw.node.write_more(user, b"head", true);
    assert_eq!(raw.turn(), []);
    raw.node.write(user, b"body");
    let (_, payload) = one(raw.turn()).tcp();
    assert_eq!(payload, b"headbody");
    let conn = raw.node.conn(user);
    assert!(raw.node.stack.set_option(conn, SocketOption::NoDelay(true)));
    assert!(raw.node.stack.set_option(conn, SocketOption::Cork(true)));
    raw.node.write(user, b"corked");
    assert_eq!(raw.turn(), []);
    assert!(raw.node.stack.set_option(conn, SocketOption::Cork(false)));
    let (_, payload) = one(raw.turn()).tcp();
    assert_eq!(payload, b"corked");
}

#[test]
fn a_device_that_vouches_is_believed_and_others_are_checked() {
    let mut raw = Raw::new();
    let (_, listener) = raw.listen(80, 8);
    let (iss, user) = raw.open(listener, 9, 80);
    let header = sidecore_testkit::packet::header(9, 80, ACK, 1001, iss + 1);
    let mut frame = PEER.tcp(&NODE, &header, b"wrong sum");
    *frame.last_mut().unwrap() ^= 1;
    raw.send(&frame);
    assert_eq!(
        (raw.count("tcp_bad_checksum"), raw.node.received(user).len()),
        (1, 0)
    );
    raw.node.checksum = sidecore_stack::RxChecksum::Valid;
    raw.send(&frame);
    assert_eq!(
        (raw.count("tcp_bad_checksum"), raw.node.received(user).len()),
        (1, 9)
    );
}

#[test]
fn timers_are_left_where_they_are_until_they_fire() {
    let mut pair = Pair::default();
    let (client, server) = pair.establish(80);
    for round in 0..2000 {
        pair.nodes[A].write(client, b"request");
        pair.run_until(|pair| pair.nodes[B].received(server).len() == (round + 1) * 7);
        pair.nodes[B].write(server, b"answer");
        pair.run_until(|pair| pair.nodes[A].received(client).len() == (round + 1) * 6);
    }
    for n in [A, B] {
        // 2000 requests take 0.4 s; each sets timers several times, but the wheel is turned to a few times a tick at most.
        let fired = pair.nodes[n].count("timers_fired") + pair.nodes[n].count("timers_rearmed");
        assert!(fired < 500, "{fired}");
        assert_eq!(pair.nodes[n].count("tcp_retransmissions"), 0);
    }
}

#[test]
fn the_mtu_and_the_socket_set_the_segment_size() {
    use sidecore_stack::SocketOptions;
    let mss_of = |packets: Vec<sidecore_testkit::packet::Packet>| {
        let (header, _) = one(packets).tcp();
        header.options.mss
    };
    let mut raw = Raw::with(|config| {
        config.neighbors.push((PEER.ip, PEER.mac));
        config.mtu = 9000;
    });
    let remote: std::net::SocketAddr = "10.0.0.2:80".parse().unwrap();
    for (wanted, announced) in [(None, 8960), (Some(1000), 1000), (Some(60_000), 8960)] {
        let options = SocketOptions {
            mss: wanted,
            ..SocketOptions::default()
        };
        let connected = raw.node.stack.connect(raw.now, None, remote, &options, 0);
        connected.unwrap();
        assert_eq!(mss_of(raw.turn()), Some(announced));
    }
}
