//! Whom datagrams to groups reach, here and elsewhere.

use super::*;
use sidecore_stack::SocketOption;
use sidecore_wire::MacAddress;

fn users(raw: &mut Raw) -> Vec<User> {
    let mut users: Vec<User> = raw.node.take_datagrams().iter().map(|d| d.user).collect();
    users.sort_unstable();
    users
}

fn datagram(raw: &mut Raw, from: u8, group: Ipv4Addr, port: u16) {
    let from = Station::new(from);
    let packets = raw.send(&from.udp(&Station::group(group), 9, port, b"to all of you"));
    assert_eq!(packets, [], "nobody answers what was sent to a group");
}

#[test]
fn rfc_1112_section_7_1_a_copy_for_each_that_joined() {
    let mut raw = Raw::new();
    let (a, user_a) = raw.shared("0.0.0.0:5000");
    let (b, user_b) = raw.shared("0.0.0.0:5000");
    let (_, user_c) = raw.shared("0.0.0.0:5000");
    let (other_port, _) = raw.shared("0.0.0.0:5001");
    let (at_address, _) = raw.shared("10.0.0.1:5000");
    let (at_group, user_g) = raw.shared("239.1.2.3:5000");
    datagram(&mut raw, 2, GROUP, 5000);
    assert_eq!(users(&mut raw), [], "nobody has joined");
    assert_eq!(raw.count("ip_other_destination"), 1);
    for id in [a, b, other_port, at_address, at_group] {
        raw.join(id, GROUP);
    }
    raw.pass(Duration::from_secs(5));
    datagram(&mut raw, 2, GROUP, 5000);
    let got = raw.node.take_datagrams();
    let from: SocketAddr = "10.0.0.2:9".parse().unwrap();
    let to: SocketAddr = "239.1.2.3:5000".parse().unwrap();
    assert!(got.iter().all(|d| (d.from, d.to) == (from, to)));
    assert!(got.iter().all(|d| d.bytes == b"to all of you"));
    let mut reached: Vec<User> = got.iter().map(|d| d.user).collect();
    reached.sort_unstable();
    assert_eq!(reached, [user_a, user_b, user_g]);
    // In the group, but nobody is at that port; in no group.
    datagram(&mut raw, 2, GROUP, 5002);
    assert_eq!(raw.count("udp_to_nowhere"), 1);
    datagram(&mut raw, 2, OTHER, 5000);
    assert_eq!(users(&mut raw), []);
    // What is sent to the socket's own address reaches the last one at it, and no group.
    raw.send(&PEER.udp(&NODE, 9, 5000, b"to you"));
    let unicast = users(&mut raw);
    assert!(unicast.len() == 1 && ![user_a, user_b, user_c].contains(&unicast[0]));
    raw.leave(a, GROUP);
    raw.node.stack.udp_close(b);
    datagram(&mut raw, 2, GROUP, 5000);
    assert_eq!(users(&mut raw), [user_g]);
}

#[test]
fn rfc_3376_section_3_source_filters_are_obeyed() {
    let mut raw = Raw::new();
    let (all, user_all) = raw.shared("0.0.0.0:5000");
    let (only, user_only) = raw.shared("0.0.0.0:5000");
    let (but, user_but) = raw.shared("0.0.0.0:5000");
    raw.join(all, GROUP);
    raw.sources(only, GroupChange::JoinSource, &[2, 3]);
    raw.join(but, GROUP);
    raw.sources(but, GroupChange::Block, &[3]);
    raw.pass(Duration::from_secs(5));
    for (from, reached) in [
        (2, vec![user_all, user_only, user_but]),
        (3, vec![user_all, user_only]),
        (4, vec![user_all, user_but]),
    ] {
        datagram(&mut raw, from, GROUP, 5000);
        assert_eq!(users(&mut raw), reached, "from {from}");
    }
    raw.sources(only, GroupChange::LeaveSource, &[2]);
    raw.sources(but, GroupChange::Unblock, &[3]);
    datagram(&mut raw, 2, GROUP, 5000);
    assert_eq!(users(&mut raw), [user_all, user_but]);
    datagram(&mut raw, 3, GROUP, 5000);
    assert_eq!(users(&mut raw), [user_all, user_only, user_but]);
}

#[test]
fn rfc_1112_section_6_datagrams_to_groups_go_out() {
    let mut raw = Raw::new();
    let (id, _) = raw.node.udp_bind("0.0.0.0:6000".parse().unwrap());
    let send = |raw: &mut Raw, to: &str| {
        let to = to.parse().unwrap();
        raw.node.udp_send(raw.now, id, to, b"hello").unwrap();
        raw.node.turn(raw.now)
    };
    // Section 6.4: the last 23 bits; nobody is asked for.
    let frame = one_frame(send(&mut raw, "239.129.2.3:7000"));
    assert_eq!(frame[..6], [0x01, 0x00, 0x5e, 0x01, 0x02, 0x03]);
    let Packet::Udp(ip, header, payload) = Packet::parse(&frame) else {
        panic!("not a datagram");
    };
    // Section 6.1: a TTL of 1 if no other is named.
    assert_eq!((ip.src, ip.ttl), (host(1), 1));
    assert_eq!((header.dst_port, payload), (7000, b"hello".to_vec()));
    let set = |raw: &mut Raw, option| assert!(raw.node.stack.udp_set_option(id, option));
    set(&mut raw, SocketOption::MulticastHops(32));
    let frame = one_frame(send(&mut raw, "224.0.0.251:5353"));
    assert!(matches!(Packet::parse(&frame), Packet::Udp(ip, ..) if ip.ttl == 32));
    set(&mut raw, SocketOption::MulticastHops(0));
    assert_eq!(send(&mut raw, "239.1.2.3:7000"), Vec::<Vec<u8>>::new());
    // An address of ours, or none.
    let foreign = SocketOption::MulticastSource(Some(host(7)));
    assert!(!raw.node.stack.udp_set_option(id, foreign));
    set(&mut raw, SocketOption::MulticastSource(Some(host(1))));
}

fn one_frame(mut frames: Vec<Vec<u8>>) -> Vec<u8> {
    assert_eq!(frames.len(), 1);
    let frame = frames.remove(0);
    assert!(
        MacAddress([frame[0], frame[1], frame[2], frame[3], frame[4], frame[5]]).is_multicast()
    );
    frame
}

#[test]
fn rfc_1112_section_6_1_own_datagrams_come_back_if_wanted() {
    let (mut raw, id, user) = Raw::settled();
    let (listener, listening) = raw.shared("0.0.0.0:5000");
    raw.sources(listener, GroupChange::JoinSource, &[7]);
    raw.pass(Duration::from_secs(5));
    let to: SocketAddr = "239.1.2.3:5000".parse().unwrap();
    let send = |raw: &mut Raw| {
        raw.node.udp_send(raw.now, id, to, b"echo").unwrap();
        raw.turn().len()
    };
    assert_eq!(send(&mut raw), 1);
    let got = raw.node.take_datagrams();
    assert_eq!((got.len(), got[0].user), (1, user), "not from this source");
    assert_eq!(got[0].from, "10.0.0.1:5000".parse().unwrap());
    assert_eq!((got[0].to, &got[0].bytes[..]), (to, &b"echo"[..]));
    // With TTL 0 nowhere else.
    raw.node
        .stack
        .udp_set_option(id, SocketOption::MulticastHops(0));
    assert_eq!(send(&mut raw), 0);
    assert_eq!(raw.node.take_datagrams().len(), 1);
    raw.node
        .stack
        .udp_set_option(id, SocketOption::MulticastLoop(false));
    assert_eq!(send(&mut raw), 0);
    assert_eq!(raw.node.take_datagrams(), []);
    // Both ways at once, or not yet.
    raw.node
        .stack
        .udp_set_option(id, SocketOption::MulticastLoop(true));
    raw.node
        .stack
        .udp_set_option(id, SocketOption::MulticastHops(1));
    for (device, loopback) in [(0, 9), (9, 0)] {
        raw.node.host.device_room = device;
        raw.node.host.loopback_room = loopback;
        let sent = raw.node.udp_send(raw.now, id, to, b"echo");
        assert_eq!(sent, Err(StackError::WouldBlock));
    }
    let _ = listening;
}

#[test]
fn rfc_1112_section_4_all_systems_is_everybodys_group() {
    let mut raw = Raw::new();
    let (id, user) = raw.shared("0.0.0.0:5000");
    datagram(&mut raw, 2, igmp::ALL_SYSTEMS, 5000);
    assert_eq!(users(&mut raw), [user]);
    // RFC 3376 section 6: joined or not, nobody is told.
    raw.join(id, igmp::ALL_SYSTEMS);
    assert_eq!(raw.pass(Duration::from_secs(5)), []);
    raw.ask(&query(Ipv4Addr::UNSPECIFIED, 10, &[]));
    assert_eq!(raw.pass(Duration::from_secs(5)), []);
    raw.leave(id, igmp::ALL_SYSTEMS);
    assert_eq!(raw.pass(Duration::from_secs(5)), []);
}

#[test]
fn broadcasts_reach_all_that_share_the_port() {
    let mut raw = Raw::new();
    let (_, a) = raw.shared("0.0.0.0:5000");
    let (_, b) = raw.shared("0.0.0.0:5000");
    let all = Station {
        ip: Ipv4Addr::BROADCAST,
        mac: MacAddress::BROADCAST,
    };
    raw.send(&PEER.udp(&all, 9, 5000, b"everybody"));
    assert_eq!(users(&mut raw), [a, b]);
    let alone = raw
        .node
        .stack
        .udp_bind("0.0.0.0:5000".parse::<SocketAddr>().unwrap(), 77);
    assert_eq!(
        alone,
        Err(StackError::AddressInUse),
        "who does not share has none"
    );
}

#[test]
fn tcp_and_echo_to_a_group_are_nobodys() {
    let (mut raw, ..) = Raw::settled();
    let (_, user) = raw.listen(80, 8);
    let group = Station::group(GROUP);
    let syn = sidecore_testkit::packet::header(9, 80, SYN, 1, 0);
    assert_eq!(raw.send(&PEER.tcp(&group, &syn, &[])), []);
    assert!(raw.node.accept(user).is_none());
    let echo = sidecore_wire::Icmpv4::EchoRequest { ident: 1, seq: 1 };
    assert_eq!(raw.send(&PEER.icmp(&group, &echo, b"who is there?")), []);
    let now = raw.now;
    let remote = SocketAddr::from((GROUP, 80));
    assert_eq!(
        raw.node.try_connect(now, None, remote),
        Err(StackError::InvalidAddress)
    );
}

#[test]
fn fragments_to_a_group_reach_all_that_joined() {
    let (mut raw, _, user) = Raw::settled();
    let group = Station::group(GROUP);
    let whole = PEER.datagram(&group, 9, 5000, &[7; 1000]);
    let (first, second) = whole.split_at(504);
    for (offset, more, bytes) in [(0, true, first), (504, false, second)] {
        let ip = sidecore_wire::Ipv4Header {
            ident: 5,
            dont_fragment: false,
            more_fragments: more,
            fragment_offset: offset,
            ..sidecore_wire::Ipv4Header::new(PEER.ip, GROUP, 17)
        };
        raw.send(&PEER.ip(&group, ip, bytes));
    }
    let got = raw.node.take_datagrams();
    assert_eq!((got.len(), got[0].user), (1, user));
    assert_eq!(got[0].bytes, [7; 1000]);
}
