//! SYN cookies: what is kept, what is not, and a flood.

use std::net::Ipv4Addr;
use std::time::Duration;

use sidecore_stack::{StackConfig, SynCookies};
use sidecore_tcp::State;
use sidecore_testkit::packet::{Station, header};
use sidecore_testkit::{A, B, Link, NodeConfig, Pair, pattern};
use sidecore_wire::{MacAddress, TcpHeader, Timestamps, WindowScale};

use crate::raw::*;
use crate::six;

fn always(config: &mut StackConfig) {
    config.syn_cookies = SynCookies::Always;
    config.neighbors.push((PEER.ip, PEER.mac));
}

/// A SYN of the peer's, as today's hosts send them.
fn syn(port: u16) -> TcpHeader {
    let mut syn = header(port, 80, SYN, 1000, 0);
    syn.options.mss = Some(1400);
    syn.options.window_scale = Some(WindowScale::new(5));
    syn.options.sack_permitted = true;
    syn.options.timestamps = Some(Timestamps { value: 50, echo: 0 });
    syn
}

/// The peer's answer to a SYN-ACK.
fn answer(syn_ack: &TcpHeader) -> TcpHeader {
    let mut ack = header(syn_ack.dst_port, 80, ACK, 1001, syn_ack.seq.0 + 1);
    ack.options.timestamps = syn_ack.options.timestamps.map(|ts| Timestamps {
        value: 60,
        echo: ts.value,
    });
    ack
}

#[test]
fn nothing_is_kept_and_all_comes_back() {
    let mut raw = Raw::with(always);
    let (_, listener) = raw.listen(80, 4);
    let (syn_ack, _) = one(raw.tcp(&syn(9), &[])).tcp();
    assert_eq!(raw.node.stack.connection_count(), 0);
    assert_eq!(raw.node.stack.next_timeout(), None, "no timer either");
    assert_eq!((syn_ack.flags, syn_ack.ack.0), (SYN | ACK, 1001));
    assert_eq!(syn_ack.window.0, 65535);
    let options = syn_ack.options;
    assert_eq!((options.mss, options.sack_permitted), (Some(1460), true));
    assert_eq!(options.window_scale, Some(WindowScale::new(7)));
    assert_eq!(options.timestamps.map(|ts| ts.echo), Some(50));

    assert_eq!(raw.tcp(&answer(&syn_ack), &[]), []);
    let user = raw.node.accept(listener).expect("accepted");
    let info = raw.node.tcp(user).unwrap().info();
    assert_eq!(info.state, State::Established);
    // 1400 is not among the sizes that are kept: 1360 is, less the timestamps.
    assert_eq!(info.effective_mss, 1348);
    assert!(info.timestamps && info.sack);
    assert_eq!((info.send_scale, info.receive_scale), (5, 7));
    assert_eq!(info.srtt_us, 0, "nobody knows when the SYN-ACK was sent");
    assert_eq!(info.send_window, 60000 << 5);

    // Sequence numbers and the clock of the timestamps go on from the SYN-ACK.
    raw.node.write(user, b"hello");
    let (data, payload) = one(raw.turn()).tcp();
    assert_eq!((data.seq.0, data.ack.0), (syn_ack.seq.0 + 1, 1001));
    assert_eq!(payload, b"hello");
    let (before, now) = (options.timestamps.unwrap(), data.options.timestamps);
    let passed = now.unwrap().value.wrapping_sub(before.value);
    assert!(passed < 64 && now.unwrap().echo == 60, "{passed}");
    let counts = ["sent", "accepted", "failed"].map(|n| raw.count(&format!("syn_cookies_{n}")));
    assert_eq!(counts, [1, 1, 0]);
    assert!(raw.node.stack.is_consistent());
}

/// The same clock for both: PAWS would drop what a connection of the same peer sent before, if they differed.
#[test]
fn timestamps_have_the_offset_of_every_connection() {
    let mut raw = Raw::with(always);
    raw.listen(80, 4);
    let (with_cookie, _) = one(raw.tcp(&syn(9), &[])).tcp();
    let mut raw = Raw::with(|config| config.neighbors.push((PEER.ip, PEER.mac)));
    raw.listen(80, 4);
    let (usual, _) = one(raw.tcp(&syn(9), &[])).tcp();
    let [cookies, usual] =
        [with_cookie, usual].map(|header| header.options.timestamps.unwrap().value);
    assert!(usual.wrapping_sub(cookies) < 64, "{usual} {cookies}");
}

#[test]
fn without_timestamps_only_the_size_is_kept() {
    let mut raw = Raw::with(always);
    let (_, listener) = raw.listen(80, 4);
    let mut syn = syn(9);
    syn.options.timestamps = None;
    let (syn_ack, _) = one(raw.tcp(&syn, &[])).tcp();
    let options = syn_ack.options;
    assert_eq!((options.window_scale, options.timestamps), (None, None));
    assert!(!options.sack_permitted);
    raw.tcp(&answer(&syn_ack), &[]);
    let user = raw.node.accept(listener).expect("accepted");
    let info = raw.node.tcp(user).unwrap().info();
    assert!(!info.timestamps && !info.sack);
    assert_eq!((info.send_scale, info.effective_mss), (0, 1360));
    assert_eq!(info.send_window, 60000);
}

#[test]
fn data_that_brings_the_cookie_is_delivered() {
    let mut raw = Raw::with(always);
    let (_, listener) = raw.listen(80, 4);
    let (syn_ack, _) = one(raw.tcp(&syn(9), &[])).tcp();
    // The bare ACK was lost; what the peer sends first brings the cookie too, and even its FIN.
    let mut ack = answer(&syn_ack);
    ack.flags |= FIN;
    raw.tcp(&ack, b"request");
    let user = raw.node.accept(listener).expect("accepted");
    assert_eq!(raw.node.received(user), b"request");
    assert!(raw.node.has_fin(user));
}

#[test]
fn others_acknowledgments_open_nothing() {
    let mut raw = Raw::with(always);
    let (_, listener) = raw.listen(80, 4);
    let (syn_ack, _) = one(raw.tcp(&syn(9), &[])).tcp();
    let good = answer(&syn_ack);
    let wrong = |change: fn(&mut TcpHeader)| {
        let mut header = good;
        change(&mut header);
        header
    };
    for forged in [
        wrong(|h| h.ack = h.ack.add(1)),
        wrong(|h| h.seq = h.seq.add(1)),
        wrong(|h| h.src_port = 10),
    ] {
        assert_eq!(
            raw.tcp(&forged, &[]),
            [],
            "who answers a doubled SYN-ACK is not reset"
        );
    }
    // Data may have overtaken the ACK with the cookie.
    let mut later = good;
    later.seq = later.seq.add(5);
    assert_eq!(raw.tcp(&later, b"later"), []);
    assert_eq!(raw.count("syn_cookies_failed"), 4);
    // Two minutes later nothing is looked at any more.
    raw.pass(Duration::from_secs(129));
    assert_eq!(one_tcp(raw.tcp(&good, &[])).0, RST);
    assert_eq!(one_tcp(raw.tcp(&later, b"later")).0, RST);
    assert_eq!(raw.count("syn_cookies_failed"), 4);
    assert_eq!(raw.node.accept(listener), None);
    assert_eq!(raw.node.stack.connection_count(), 0);
}

#[test]
fn a_reset_or_a_syn_brings_no_cookie_back() {
    let mut raw = Raw::with(always);
    let (_, listener) = raw.listen(80, 4);
    let (syn_ack, _) = one(raw.tcp(&syn(9), &[])).tcp();
    let mut reset = answer(&syn_ack);
    reset.flags |= RST;
    assert_eq!(raw.tcp(&reset, &[]), []);
    let mut syn_ack_back = answer(&syn_ack);
    syn_ack_back.flags |= SYN;
    assert_eq!(one_tcp(raw.tcp(&syn_ack_back, &[])).0, RST);
    assert_eq!(raw.node.accept(listener), None);
}

#[test]
fn a_full_accept_queue_makes_it_wait() {
    let mut raw = Raw::with(always);
    let (_, listener) = raw.listen(80, 4);
    let (syn_ack, _) = one(raw.tcp(&syn(9), &[])).tcp();
    raw.node.host.accept_queue = 0;
    // Dropped as if it had been lost, and not reset.
    assert_eq!(raw.tcp(&answer(&syn_ack), b"again"), []);
    assert_eq!(raw.count("accept_queue_full"), 1);
    assert_eq!(raw.node.stack.connection_count(), 0);
    // Nor is a SYN answered.
    assert_eq!(raw.tcp(&syn(10), &[]), []);
    raw.node.host.accept_queue = 1;
    raw.tcp(&answer(&syn_ack), b"again");
    let user = raw.node.accept(listener).expect("accepted");
    assert_eq!(raw.node.received(user), b"again");
}

#[test]
fn a_full_table_makes_it_wait() {
    let mut raw = Raw::with(|config| {
        always(config);
        config.max_connections = 1;
    });
    let (_, listener) = raw.listen(80, 4);
    let (syn_ack, _) = one(raw.tcp(&syn(9), &[])).tcp();
    raw.node.connect(raw.now, "10.0.0.2:5".parse().unwrap());
    raw.turn();
    assert_eq!(raw.tcp(&answer(&syn_ack), &[]), []);
    assert_eq!(raw.node.accept(listener), None);
    assert_eq!(raw.count("syn_dropped"), 1);
}

#[test]
fn only_what_the_queue_has_no_room_for_gets_a_cookie() {
    let mut raw = Raw::new();
    let (_, listener) = raw.listen(80, 2);
    let answers: Vec<TcpHeader> = (1..=4)
        .map(|port| one(raw.tcp(&syn(port), &[])).tcp().0)
        .collect();
    assert_eq!(raw.count("syn_cookies_sent"), 2);
    assert_eq!(
        (raw.count("syn_evicted"), raw.count("passive_opens")),
        (0, 2)
    );
    assert_eq!(raw.node.stack.connection_count(), 2);
    for syn_ack in &answers {
        assert_eq!(raw.tcp(&answer(syn_ack), &[]), []);
        assert!(raw.node.accept(listener).is_some());
    }
    assert_eq!(raw.count("syn_cookies_accepted"), 2);
    assert_eq!(raw.count("passive_established"), 4);
    // With room in the queue, things are as usual again.
    raw.tcp(&syn(5), &[]);
    assert_eq!(raw.count("syn_cookies_sent"), 2);
}

#[test]
fn ipv6() {
    let mut config = six::node_config(1);
    config.stack.syn_cookies = SynCookies::Always;
    let mut raw = six::Raw6::of(config);
    let listener = raw.listen(80);
    let (syn_ack, _) = six::one(raw.tcp(&syn(9), &[])).tcp();
    assert_eq!(raw.node.stack.connection_count(), 0);
    assert_eq!(syn_ack.options.mss, Some(1440));
    let mut forged = answer(&syn_ack);
    forged.seq = forged.seq.sub(1);
    assert_eq!(raw.tcp(&forged, &[]), []);
    raw.tcp(&answer(&syn_ack), b"six");
    let user = raw.node.accept(listener).expect("accepted");
    assert_eq!(raw.node.received(user), b"six");
    let info = raw.node.tcp(user).unwrap().info();
    assert_eq!((info.send_scale, info.sack), (5, true));
    raw.node.write(user, &pattern(1, 0, 100));
    let (data, _) = six::one(raw.turn()).tcp();
    assert_eq!(data.seq.0, syn_ack.seq.0 + 1);
}

/// Over a bad link, with nothing ever kept of a SYN: all get in, and all bytes are right.
#[test]
fn transfers_over_a_bad_link_without_any_syn_queue() {
    for seed in 1..=24 {
        transfer_by_cookies(seed);
    }
}

fn transfer_by_cookies(seed: u64) {
    let mut configs = [NodeConfig::new(1), NodeConfig::new(2)];
    configs[B].stack.syn_cookies = SynCookies::Always;
    let link = Link {
        loss: 50,
        duplicate: 20,
        jitter: Duration::from_millis(2),
        ..Link::default()
    };
    let mut pair = Pair::new(configs, link, seed);
    let (_, listener) = pair.nodes[B].listen(80, 4);
    let clients: Vec<_> = (0..20).map(|_| pair.connect_to(80)).collect();
    for client in &clients {
        let bytes = pattern(u64::from(*client), 0, 20_000);
        pair.nodes[A].write(*client, &bytes);
        pair.nodes[A].shutdown(*client);
    }
    let mut served = Vec::new();
    pair.run_until(|pair| {
        served.extend(pair.nodes[B].accept(listener));
        served.len() == 20 && served.iter().all(|user| pair.nodes[B].has_fin(*user))
    });
    let total: usize = served
        .iter()
        .map(|u| pair.nodes[B].received(*u).len())
        .sum();
    assert_eq!(total, 20 * 20_000);
    assert_eq!(pair.nodes[B].count("syn_cookies_accepted"), 20);
    assert_eq!(pair.nodes[B].count("incoming_refused"), 0);
}

/// A SYN from an address that nobody has.
fn spoofed(n: u32) -> Vec<u8> {
    let attacker = Station {
        mac: MacAddress([2, 0, 0, 0, 0, 66]),
        ip: Ipv4Addr::new(10, 0, 0, 10 + (n % 240) as u8),
    };
    let mut syn = syn(1 + (n / 240) as u16);
    syn.seq = sidecore_wire::SeqNumber(n.wrapping_mul(0x9e37_79b9));
    attacker.tcp(&Station::new(2), &syn, &[])
}

/// 100 000 SYNs at 500 000 a second, 64 between two turns: who means it gets in at once.
#[test]
fn a_flood_keeps_nobody_out() {
    let mut configs = [NodeConfig::new(1), NodeConfig::new(2)];
    configs[B].stack.max_connections = 512;
    let mut pair = Pair::new(configs, Link::default(), 1);
    let (_, listener) = pair.nodes[B].listen(80, 128);
    // A connection that was there before, and has work to do.
    let first = pair.connect_to(80);
    let bytes = pattern(7, 0, 400_000);
    pair.nodes[A].write(first, &bytes);
    let (mut clients, mut served) = (Vec::new(), Vec::new());
    for n in 0..100_000 {
        let now = pair.now();
        pair.nodes[B].receive(now, &spoofed(n));
        if n % 64 == 63 {
            pair.run_for(Duration::from_micros(128));
            served.extend(pair.nodes[B].accept(listener));
            assert!(pair.nodes[B].stack.connection_count() <= 128 + 1 + clients.len());
        }
        if n % 1000 == 999 {
            let client = pair.connect_to(80);
            pair.nodes[A].write(client, &pattern(u64::from(client), 0, 100));
            clients.push((client, pair.now()));
        }
    }
    pair.run_for(Duration::from_millis(10));
    while let Some(user) = pair.nodes[B].accept(listener) {
        served.push(user);
    }
    assert_eq!((clients.len(), served.len()), (100, 101));
    for (client, _) in &clients {
        let tcp = pair.nodes[A].tcp(*client).unwrap();
        // No SYN of theirs had to be sent again.
        assert_eq!((tcp.state(), tcp.info().timeouts), (State::Established, 0));
        assert_eq!(pair.nodes[A].acknowledged(*client), 100);
        assert!(tcp.info().sack && tcp.info().timestamps && tcp.info().send_scale == 7);
    }
    assert_eq!(pair.nodes[B].received(served[0]), bytes);
    let b = &pair.nodes[B];
    assert!(b.count("syn_cookies_accepted") >= 100);
    assert!(b.count("syn_cookies_sent") >= 99_000);
    let lost = [
        "control_dropped",
        "syn_evicted",
        "syn_dropped",
        "connections_full",
    ];
    assert_eq!(lost.map(|name| b.count(name)), [0; 4]);
    // When it is over, and the SYN queue's timers have run out, nothing is left of it.
    pair.run_for(Duration::from_secs(400));
    assert_eq!(pair.nodes[B].stack.connection_count(), 101);
    assert!(pair.nodes[B].stack.is_consistent());
}
