//! Paths that carry less than the link: with ICMP, without, and with lies (RFC 1191, 8201, 4821, 5927). Both versions of IP.

use std::net::SocketAddr;
use std::time::Duration;

use sidecore_stack::{StackError, User};
use sidecore_tcp::{Info, MtuProbing};
use sidecore_testkit::packet::{Station, header};
use sidecore_testkit::{A, B, Link, Narrow, NodeConfig, Pair, pattern};
use sidecore_wire::{Icmpv4, icmpv4};

use crate::raw::*;
use crate::six;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Version {
    V4,
    V6,
}

use Version::{V4, V6};

impl Version {
    /// What TCP, which counts in IPv4's headers, makes of an MTU.
    fn counted(self, mtu: u16) -> u16 {
        if self == V6 { mtu - 20 } else { mtu }
    }

    fn address(self, port: u16) -> SocketAddr {
        let text = match self {
            V4 => format!("10.0.0.2:{port}"),
            V6 => format!("[fd00::2]:{port}"),
        };
        text.parse().unwrap()
    }
}

/// Two nodes that speak both versions, `A`'s way to `B` as given, and a listener of `B`.
fn pair_over(narrow: Option<Narrow>, change: impl Fn(&mut NodeConfig)) -> (Pair, User) {
    let configs = [1, 2].map(|host| {
        let mut config = six::node_config(host);
        config.stack.ipv6.dad_transmits = 0;
        config.stack.ipv6.accept_routers = false;
        change(&mut config);
        config
    });
    let mut pair = Pair::new(configs, Link::default(), 7);
    set_path(&mut pair, narrow);
    let all = "[::]:80".parse().unwrap();
    let (_, listener) = pair.nodes[B].listen_at(all, false, 16).unwrap();
    (pair, listener)
}

fn set_path(pair: &mut Pair, narrow: Option<Narrow>) {
    let delay = Duration::from_millis(2);
    let link = Link {
        delay,
        narrow,
        ..Link::default()
    };
    pair.set_link(A, link);
}

fn connect(pair: &mut Pair, listener: User, version: Version) -> (User, User) {
    let now = pair.now();
    let client = pair.nodes[A].connect(now, version.address(80));
    let mut server = None;
    pair.run_until(|pair| {
        server = server.or_else(|| pair.nodes[B].accept(listener));
        server.is_some()
    });
    (client, server.unwrap())
}

/// `A` sends so much more, which arrives.
fn send(pair: &mut Pair, (client, server): (User, User), len: usize) -> Info {
    let before = pair.nodes[B].received(server).len();
    let bytes = pattern(3, before as u64, len);
    pair.nodes[A].write(client, &bytes);
    pair.run_until(|pair| pair.nodes[B].received(server).len() == before + len);
    assert_eq!(pair.nodes[B].received(server)[before..], bytes);
    pair.run_for(Duration::from_millis(500));
    pair.nodes[A].tcp(client).unwrap().info()
}

fn too_long(pair: &Pair) -> u64 {
    pair.link_counters(A).too_long
}

#[test]
fn icmp_is_believed_at_once_and_by_later_connections() {
    for (version, mtu) in [(V4, 1300), (V6, 1400)] {
        let (mut pair, listener) = pair_over(Some(Narrow::honest(mtu)), |_| {});
        let users = connect(&mut pair, listener, version);
        let info = send(&mut pair, users, 200_000);
        assert_eq!(info.path_mtu, version.counted(mtu));
        assert_eq!(info.timeouts, 0, "{version:?}");
        let lost = too_long(&pair);
        assert!((1..=10).contains(&lost), "the first flight: {lost}");
        assert!(pair.nodes[A].count("path_mtu_lowered") >= 1);
        // The next one knows.
        let users = connect(&mut pair, listener, version);
        let info = send(&mut pair, users, 200_000);
        assert_eq!(info.path_mtu, version.counted(mtu));
        assert_eq!(too_long(&pair), lost);
        // Ten minutes later nobody knows any more.
        pair.run_for(Duration::from_secs(601));
        set_path(&mut pair, None);
        let users = connect(&mut pair, listener, version);
        assert_eq!(
            send(&mut pair, users, 10_000).path_mtu,
            version.counted(1500)
        );
    }
}

#[test]
fn a_connection_finds_out_that_its_path_has_become_wider() {
    for probing in [MtuProbing::OnBlackHole, MtuProbing::Off] {
        let (mut pair, listener) = pair_over(Some(Narrow::honest(1300)), |config| {
            config.stack.tcp.mtu_probing = probing;
        });
        let users = connect(&mut pair, listener, V4);
        assert_eq!(send(&mut pair, users, 100_000).path_mtu, 1300);
        set_path(&mut pair, None);
        assert_eq!(send(&mut pair, users, 300_000).path_mtu, 1300);
        pair.run_for(Duration::from_secs(600));
        let info = send(&mut pair, users, 300_000);
        assert_eq!((info.path_mtu, info.timeouts), (1500, 0), "{probing:?}");
    }
}

#[test]
fn a_black_hole_is_found_and_the_best_size_too() {
    for (version, mtu) in [(V4, 1300), (V6, 1400), (V4, 900)] {
        let (mut pair, listener) = pair_over(Some(Narrow::silent(mtu)), |_| {});
        let users = connect(&mut pair, listener, version);
        let info = send(&mut pair, users, 400_000);
        let found = info.path_mtu;
        let best = version.counted(mtu);
        assert!((best - 8..=best).contains(&found), "{found} of {best}");
        assert!((3..=10).contains(&info.timeouts), "{}", info.timeouts);
        let probes = info.path_probes;
        assert!((3..=14).contains(&probes), "{probes}");
        // Nothing more is tried for ten minutes.
        assert_eq!(send(&mut pair, users, 200_000).path_probes, probes);
    }
}

#[test]
fn without_probing_a_black_hole_takes_everything() {
    let (mut pair, listener) = pair_over(Some(Narrow::silent(1300)), |config| {
        config.stack.tcp.mtu_probing = MtuProbing::Off;
    });
    let (client, server) = connect(&mut pair, listener, V4);
    pair.nodes[A].write(client, &pattern(3, 0, 5000));
    pair.run_for(Duration::from_secs(60));
    assert_eq!(pair.nodes[B].received(server).len(), 0);
}

/// RFC 4821 section 7.2: from a size that works everywhere, upwards; and no loss of a probe is taken for congestion.
#[test]
fn probing_from_the_start_loses_probes_only() {
    for (narrow, best) in [(None, 1500), (Some(Narrow::silent(1300)), 1300)] {
        for version in [V4, V6] {
            let (mut pair, listener) = pair_over(narrow, |config| {
                config.stack.tcp.mtu_probing = MtuProbing::Always;
                config.buffer = 400_000;
            });
            let users = connect(&mut pair, listener, version);
            let first = if version == V6 { 1260 } else { 1064 };
            let start = pair.nodes[A].tcp(users.0).unwrap().info();
            assert_eq!(start.path_mtu, first);
            let info = send(&mut pair, users, 1_000_000);
            let counted = version.counted(best);
            assert!((counted - 8..=counted).contains(&info.path_mtu), "{info:?}");
            assert_eq!(info.timeouts, 0);
            let lost = too_long(&pair);
            assert!(
                info.path_probes >= 3 && u64::from(info.recoveries) == lost,
                "{info:?}"
            );
            // What was congestion would have halved it again and again.
            assert!(info.cwnd > 14_600, "{}", info.cwnd);
        }
    }
}

#[test]
fn what_the_peer_announces_is_never_exceeded() {
    let (mut pair, listener) = pair_over(None, |config| {
        config.stack.tcp.mtu_probing = MtuProbing::Always;
        if config.seed == 2 {
            config.stack.mtu = 1400;
        }
    });
    let users = connect(&mut pair, listener, V4);
    pair.set_link(
        A,
        Link {
            narrow: Some(Narrow::silent(1400)),
            ..Link::default()
        },
    );
    let found = send(&mut pair, users, 300_000).path_mtu;
    assert!((1065..=1400).contains(&found), "{found}");
    assert_eq!(too_long(&pair), 0);
}

const ROUTER: Station = Station::new(9);

fn too_big(mtu: u16) -> Icmpv4 {
    Icmpv4::DestinationUnreachable {
        code: icmpv4::UNREACHABLE_FRAGMENTATION_NEEDED,
        next_hop_mtu: mtu,
    }
}

/// RFC 5927 section 7.2: a path that carries full segments is not believed to be narrow, unless they stop arriving.
#[test]
fn a_lie_about_a_path_that_works_changes_nothing() {
    let mut raw = Raw::new();
    let (_, listener) = raw.listen(80, 4);
    let (iss, user) = open_wide(&mut raw, listener);
    let mss = |raw: &Raw| raw.node.tcp(user).unwrap().effective_mss();
    raw.node.write(user, &pattern(1, 0, 200_000));
    let mut acked = 0;
    let mut frames = raw.node.turn(raw.now);
    for _ in 0..3 {
        acked += 4 * 1460;
        let ack = header(9, 80, ACK, 1001, iss + 1 + acked);
        raw.node.receive(raw.now, &PEER.tcp(&NODE, &ack, &[]));
        frames = raw.node.turn(raw.now);
    }
    let quoted = &frames[0][14..42];
    raw.send(&ROUTER.icmp(&NODE, &too_big(300), quoted));
    assert_eq!(mss(&raw), 1460);
    // It arrives after all: forgotten, also when the timer fires later.
    let all = raw.node.tcp(user).unwrap().send_nxt() as u32;
    raw.tcp(&header(9, 80, ACK, 1001, iss + 1 + all), &[]);
    raw.pass(Duration::from_millis(350));
    assert!(raw.node.tcp(user).unwrap().info().timeouts > 0);
    assert_eq!(mss(&raw), 1460);
    // Once more, and this time nothing of it is acknowledged.
    let frames = again(&mut raw, user, iss);
    raw.send(&ROUTER.icmp(&NODE, &too_big(1000), &frames[0][14..42]));
    assert_eq!(mss(&raw), 1460);
    raw.pass(Duration::from_millis(700));
    assert_eq!(mss(&raw), 960);
}

/// The peer's SYN with an MSS of 1460.
fn open_wide(raw: &mut Raw, listener: User) -> (u32, User) {
    let mut syn = header(9, 80, SYN, 1000, 0);
    syn.options.mss = Some(1460);
    let (_, iss, _) = one_tcp(raw.tcp(&syn, &[]));
    raw.tcp(&header(9, 80, ACK, 1001, iss + 1), &[]);
    (iss, raw.node.accept(listener).unwrap())
}

/// Everything out is acknowledged; what is sent next.
fn again(raw: &mut Raw, user: User, iss: u32) -> Vec<Vec<u8>> {
    let all = raw.node.tcp(user).unwrap().send_nxt() as u32;
    let ack = header(9, 80, ACK, 1001, iss + 1 + all);
    raw.node.receive(raw.now, &PEER.tcp(&NODE, &ack, &[]));
    raw.node.turn(raw.now)
}

#[test]
fn claims_that_cannot_be_true_are_nobodys() {
    let mut raw = Raw::new();
    let (_, listener) = raw.listen(80, 4);
    let (_, user) = open_wide(&mut raw, listener);
    raw.node.write(user, &pattern(1, 0, 460));
    let frame = raw.node.turn(raw.now).remove(0);
    // The packet had 500 bytes.
    raw.send(&ROUTER.icmp(&NODE, &too_big(500), &frame[14..42]));
    assert_eq!(raw.count("icmp_unmatched"), 1);
    assert_eq!(raw.node.tcp(user).unwrap().effective_mss(), 1460);
    // One that may be is believed, and for new connections and datagrams within reason.
    raw.send(&ROUTER.icmp(&NODE, &too_big(68), &frame[14..42]));
    assert_eq!(raw.node.tcp(user).unwrap().effective_mss(), 88);
    let next = raw.node.connect(raw.now, "10.0.0.2:5".parse().unwrap());
    assert_eq!(raw.node.tcp(next).unwrap().path_mtu(), 552);
}

#[test]
fn datagrams_learn_their_size_and_connections_do_not_believe_them() {
    for (version, mtu) in [(V4, 1300), (V6, 1400)] {
        let (mut pair, listener) = pair_over(Some(Narrow::honest(mtu)), |_| {});
        let any: SocketAddr = "[::]:6000".parse().unwrap();
        let (socket, _) = pair.nodes[A].udp_bind(any);
        let to = version.address(53);
        let send_datagram = |pair: &mut Pair, len: usize| {
            let now = pair.now();
            let sent = pair.nodes[A].udp_send(now, socket, to, &pattern(1, 0, len));
            pair.run_for(Duration::from_millis(20));
            sent
        };
        let headers = if version == V6 { 48 } else { 28 };
        let fits = usize::from(mtu) - headers;
        // The first may have to wait for the neighbour's address.
        let _ = send_datagram(&mut pair, 10);
        assert_eq!(send_datagram(&mut pair, fits + 1), Ok(()));
        assert_eq!(too_long(&pair), 1);
        let refused = Err(StackError::MessageTooLarge);
        assert_eq!(send_datagram(&mut pair, fits + 1), refused);
        assert_eq!(send_datagram(&mut pair, fits), Ok(()));
        // Whoever can guess a port must not make connections slow.
        let (client, _) = connect(&mut pair, listener, version);
        let path = pair.nodes[A].tcp(client).unwrap().path_mtu();
        assert_eq!(path, version.counted(1500));
        pair.run_for(Duration::from_secs(600));
        let _ = send_datagram(&mut pair, 10);
        assert_eq!(send_datagram(&mut pair, fits + 1), Ok(()));
    }
}
