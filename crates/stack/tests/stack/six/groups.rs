//! Groups of IPv6: RFC 3810, 2710 and 3590. The state machine is that of IPv4, whose tests go through it rule by rule; these are
//! what differs, and that it is connected.

use std::net::{Ipv6Addr, SocketAddr};

use sidecore_stack::{GroupChange, SocketOption, SocketOptions, StackError, UdpId};
use sidecore_wire::{ipv6, mld};

use super::*;

const GROUP: Ipv6Addr = Ipv6Addr::new(0xff15, 0, 0, 0, 0, 0, 0, 0x0123);
const OTHER: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 0xfb);
const ALL: Ipv6Addr = Ipv6Addr::UNSPECIFIED;

const IS_IN: u8 = 1;
const IS_EX: u8 = 2;
const TO_IN: u8 = 3;
const TO_EX: u8 = 4;
const ALLOW: u8 = 5;
const BLOCK: u8 = 6;

fn host(n: u16) -> Ipv6Addr {
    Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, n)
}

type Records = Vec<(u8, Ipv6Addr, Vec<Ipv6Addr>)>;

fn record(kind: u8, group: Ipv6Addr, sources: &[u16]) -> (u8, Ipv6Addr, Vec<Ipv6Addr>) {
    (kind, group, sources.iter().map(|n| host(*n)).collect())
}

/// The records of all these packets, which are reports, but for those about groups that the node itself is in.
fn told(packets: &[Packet6]) -> Records {
    let all = packets.iter().flat_map(Packet6::records);
    let own = [NODE.ip, NODE_LINK.ip].map(ipv6::solicited_node);
    all.filter(|(_, group, _)| !own.contains(group)).collect()
}

impl Raw6 {
    fn shared(&mut self, local: &str) -> (UdpId, User) {
        let options = SocketOptions {
            reuse_address: true,
            ..SocketOptions::default()
        };
        let bound = self.node.udp_bind_with(local.parse().unwrap(), &options);
        bound.expect("a port that may be shared")
    }

    fn change(
        &mut self,
        id: UdpId,
        group: Ipv6Addr,
        change: GroupChange,
    ) -> Result<(), StackError> {
        let now = self.now;
        self.node.stack.udp_group(now, id, group.into(), change)
    }

    fn settled() -> (Self, UdpId, User) {
        let mut raw = Self::new();
        let (id, user) = raw.shared("[::]:5000");
        raw.change(id, GROUP, GroupChange::Join).unwrap();
        raw.pass(Duration::from_secs(5));
        (raw, id, user)
    }

    fn ask(&mut self, query: &[u8]) -> Vec<Packet6> {
        self.send(&ROUTER.mld(&Station6::group(ipv6::ALL_NODES), 1, true, query))
    }
}

/// An MLDv2 query; `code` in milliseconds.
fn query(group: Ipv6Addr, code: u16, sources: &[Ipv6Addr]) -> Vec<u8> {
    let mut bytes = query_v1(group, code);
    bytes.extend([2, 125]);
    bytes.extend((sources.len() as u16).to_be_bytes());
    for source in sources {
        bytes.extend(source.octets());
    }
    bytes
}

fn query_v1(group: Ipv6Addr, code: u16) -> Vec<u8> {
    let mut bytes = vec![mld::QUERY, 0, 0, 0];
    bytes.extend(code.to_be_bytes());
    bytes.extend([0, 0]);
    bytes.extend(group.octets());
    bytes
}

/// Type, group and destination of MLDv1 messages about groups of sockets.
fn old(packets: &[Packet6]) -> Vec<(u8, Ipv6Addr, Ipv6Addr)> {
    let own = [NODE.ip, NODE_LINK.ip].map(ipv6::solicited_node);
    let all = packets.iter().map(|packet| {
        let Content6::Icmp(sidecore_wire::Icmpv6::Other { type_, .. }, data) = &packet.content
        else {
            panic!("not ICMPv6: {packet:?}");
        };
        assert!(packet.alert && packet.ip.hop_limit == 1 && data.len() == 16);
        let group: [u8; 16] = data[..].try_into().unwrap();
        (*type_, Ipv6Addr::from(group), packet.ip.dst)
    });
    all.filter(|(_, group, _)| !own.contains(group)).collect()
}

#[test]
fn rfc_3810_section_6_1_changes_are_said_twice() {
    let mut raw = Raw6::new();
    let (a, _) = raw.shared("[::]:5000");
    let mut twice = |id, group, change, expected: Records| {
        raw.change(id, group, change).unwrap();
        let packets = raw.turn();
        assert!(packets.iter().all(|packet| packet.ip.src == NODE_LINK.ip));
        assert_eq!(told(&packets), expected, "at once");
        assert_eq!(told(&raw.pass(Duration::from_secs(1))), expected, "again");
        assert_eq!(raw.pass(Duration::from_secs(60)), []);
    };
    let source = |n| std::net::IpAddr::from(host(n));
    twice(a, GROUP, GroupChange::Join, vec![record(TO_EX, GROUP, &[])]);
    twice(
        a,
        GROUP,
        GroupChange::Block(source(3)),
        vec![record(BLOCK, GROUP, &[3])],
    );
    twice(
        a,
        GROUP,
        GroupChange::Unblock(source(3)),
        vec![record(ALLOW, GROUP, &[3])],
    );
    twice(
        a,
        GROUP,
        GroupChange::Leave,
        vec![record(TO_IN, GROUP, &[])],
    );
    twice(
        a,
        OTHER,
        GroupChange::JoinSource(source(4)),
        vec![record(ALLOW, OTHER, &[4])],
    );
    twice(
        a,
        OTHER,
        GroupChange::LeaveSource(source(4)),
        vec![record(BLOCK, OTHER, &[4])],
    );
}

#[test]
fn rfc_3810_section_6_2_who_asks_is_told() {
    let (mut raw, id, _) = Raw6::settled();
    let join = GroupChange::JoinSource(host(4).into());
    raw.change(id, OTHER, join).unwrap();
    raw.pass(Duration::from_secs(5));
    assert_eq!(raw.ask(&query(ALL, 2000, &[])), [], "not at once");
    let said = told(&raw.pass(Duration::from_secs(2)));
    assert_eq!(
        said,
        [record(IS_IN, OTHER, &[4]), record(IS_EX, GROUP, &[])]
    );
    raw.ask(&query(GROUP, 2000, &[]));
    assert_eq!(
        told(&raw.pass(Duration::from_secs(2))),
        [record(IS_EX, GROUP, &[])]
    );
    raw.ask(&query(OTHER, 2000, &[host(4), host(5)]));
    assert_eq!(
        told(&raw.pass(Duration::from_secs(2))),
        [record(IS_IN, OTHER, &[4])]
    );
    raw.ask(&query(OTHER, 2000, &[host(5)]));
    assert_eq!(raw.pass(Duration::from_secs(2)), []);
    // The node's own groups are among all.
    raw.ask(&query(ALL, 2000, &[]));
    let packets = raw.pass(Duration::from_secs(2));
    let groups: Vec<_> = packets.iter().flat_map(Packet6::records).collect();
    assert!(groups.contains(&record(IS_EX, ipv6::solicited_node(NODE.ip), &[])));
}

#[test]
fn rfc_3810_section_6_2_what_is_ignored() {
    let (mut raw, ..) = Raw6::settled();
    let nodes = Station6::group(ipv6::ALL_NODES);
    let good = query(ALL, 1000, &[]);
    let mut truncated = query(GROUP, 1000, &[host(1), host(2)]);
    truncated.truncate(50);
    for (frame, why) in [
        (ROUTER.mld(&nodes, 2, true, &good), "not from the link"),
        (ROUTER.mld(&nodes, 1, false, &good), "no router alert"),
        (PEER.mld(&nodes, 1, true, &good), "not link-local"),
        (ROUTER.mld(&nodes, 1, true, &good[..26]), "of no version"),
        (
            ROUTER.mld(&nodes, 1, true, &truncated),
            "sources are missing",
        ),
        (
            ROUTER.mld(&Station6::group(GROUP), 1, true, &good),
            "for all, to a group",
        ),
    ] {
        let ignored = raw.count("mld_ignored");
        raw.send(&frame);
        assert_eq!(raw.count("mld_ignored"), ignored + 1, "{why}");
        assert_eq!(raw.pass(Duration::from_secs(20)), [], "{why}");
    }
    let mut wrong = ROUTER.mld(&nodes, 1, true, &good);
    let last = wrong.len() - 1;
    wrong[last] ^= 1;
    raw.send(&wrong);
    assert_eq!(raw.count("icmp_malformed"), 1);
    assert_eq!(raw.pass(Duration::from_secs(20)), []);
}

#[test]
fn rfc_3810_section_6_groups_that_are_never_reported() {
    let mut raw = Raw6::new();
    let (id, user) = raw.shared("[::]:5000");
    // All nodes; a group of the interface; the reserved scope.
    for group in ["ff02::1", "ff01::5", "ff00::5"] {
        raw.change(id, group.parse().unwrap(), GroupChange::Join)
            .unwrap();
    }
    assert_eq!(raw.pass(Duration::from_secs(5)), []);
    raw.ask(&query(ALL, 100, &[]));
    assert_eq!(told(&raw.pass(Duration::from_secs(5))), []);
    raw.ask(&query("ff01::5".parse().unwrap(), 100, &[]));
    assert_eq!(raw.pass(Duration::from_secs(5)), []);
    // What is of the interface only does not leave it.
    let to: SocketAddr = "[ff01::5]:5000".parse().unwrap();
    raw.node.udp_send(raw.now, id, to, b"here").unwrap();
    assert_eq!(raw.turn(), []);
    let got = raw.node.take_datagrams();
    assert_eq!((got.len(), got[0].user), (1, user));
}

#[test]
fn rfc_3810_section_8_2_1_mldv1_is_spoken_where_a_router_speaks_it() {
    let (mut raw, id, _) = Raw6::settled();
    raw.ask(&query_v1(ALL, 1000));
    let report = (mld::REPORT_V1, GROUP, GROUP);
    assert_eq!(old(&raw.pass(Duration::from_secs(1))), [report]);
    // RFC 2710 section 4: another host's report is answer enough.
    raw.ask(&query_v1(ALL, 1000));
    let mut others = query_v1(GROUP, 0);
    others[0] = mld::REPORT_V1;
    let other = Station6::link_local(2);
    raw.send(&other.mld(&Station6::group(GROUP), 1, true, &others));
    assert_eq!(old(&raw.pass(Duration::from_secs(1))), []);
    raw.change(id, OTHER, GroupChange::Join).unwrap();
    let joined = (mld::REPORT_V1, OTHER, OTHER);
    assert_eq!(old(&raw.pass(Duration::from_secs(10))), [joined, joined]);
    raw.change(id, OTHER, GroupChange::Leave).unwrap();
    assert_eq!(old(&raw.turn()), [(mld::DONE, OTHER, ipv6::ALL_ROUTERS)]);
    // Section 9.12: 2 · 125 s and the response time.
    raw.pass(Duration::from_secs(2 * 125 + 1));
    raw.ask(&query(GROUP, 100, &[]));
    assert_eq!(
        told(&raw.pass(Duration::from_secs(1))),
        [record(IS_EX, GROUP, &[])]
    );
}

#[test]
fn rfc_3590_section_4_from_nobody_and_then_from_an_address() {
    let mut raw = Raw6::fresh(|config| config.accept_routers = false);
    let packets = raw.pass(Duration::from_secs(5));
    let reports = packets.iter().filter(|packet| packet.ip.next_header == 0);
    let sources: Vec<_> = reports.map(|packet| packet.ip.src).collect();
    assert_eq!(sources[0], Ipv6Addr::UNSPECIFIED);
    assert_eq!(sources.last(), Some(&NODE_LINK.ip));
}

#[test]
fn datagrams_reach_those_who_joined_and_want_the_source() {
    let (mut raw, _, user) = Raw6::settled();
    let (only, user_only) = raw.shared("[::]:5000");
    raw.change(only, GROUP, GroupChange::JoinSource(host(3).into()))
        .unwrap();
    let (at_group, user_at_group) = raw.shared("[ff15::123]:5000");
    raw.change(at_group, GROUP, GroupChange::Join).unwrap();
    let (_, not_joined) = raw.shared("[::]:5000");
    raw.pass(Duration::from_secs(5));
    for (from, reached) in [
        (2, vec![user, user_at_group]),
        (3, vec![user, user_only, user_at_group]),
    ] {
        let frame = Station6::new(from).udp(&Station6::group(GROUP), (9, 5000), b"to you");
        assert_eq!(raw.send(&frame), []);
        let mut users: Vec<_> = raw.node.take_datagrams().iter().map(|d| d.user).collect();
        users.sort_unstable();
        assert_eq!(users, reached, "from {from}");
    }
    // To nobody: no error.
    let frame = PEER.udp(&Station6::group(GROUP), (9, 5001), b"to you");
    assert_eq!(raw.send(&frame), []);
    // All nodes need not join.
    let frame = PEER.udp(&Station6::group(ipv6::ALL_NODES), (9, 5000), b"to all");
    raw.send(&frame);
    let users: Vec<_> = raw.node.take_datagrams().iter().map(|d| d.user).collect();
    assert!(users.contains(&not_joined) && !users.contains(&user_at_group));
}

#[test]
fn datagrams_to_groups_go_out_and_come_back() {
    let (mut raw, id, user) = Raw6::settled();
    let to: SocketAddr = "[ff15::123]:5000".parse().unwrap();
    let send = |raw: &mut Raw6| {
        raw.node.udp_send(raw.now, id, to, b"hello").unwrap();
        raw.turn()
    };
    let packet = one(send(&mut raw));
    assert_eq!((packet.ip.src, packet.ip.hop_limit), (NODE.ip, 1));
    assert_eq!(packet.to.0, [0x33, 0x33, 0, 0, 0x01, 0x23]);
    let got = raw.node.take_datagrams();
    assert_eq!((got.len(), got[0].user, got[0].to), (1, user, to));
    let mut set = |option| assert!(raw.node.stack.udp_set_option(id, option));
    set(SocketOption::MulticastHops(9));
    set(SocketOption::MulticastLoop(false));
    assert_eq!(one(send(&mut raw)).ip.hop_limit, 9);
    assert_eq!(raw.node.take_datagrams(), []);
    raw.node
        .stack
        .udp_set_option(id, SocketOption::MulticastHops(0));
    assert_eq!(send(&mut raw), []);
}

/// A socket of both versions is in groups of both.
#[test]
fn a_socket_of_both_versions() {
    let mut raw = Raw6::new();
    let (id, user) = raw.shared("[::]:5000");
    let v4 = std::net::Ipv4Addr::new(239, 1, 2, 3);
    let now = raw.now;
    let join = raw
        .node
        .stack
        .udp_group(now, id, v4.into(), GroupChange::Join);
    assert_eq!(join, Ok(()));
    let frames = raw.node.turn(now);
    assert_eq!(frames.len(), 1);
    let peer = sidecore_testkit::packet::Station::new(2);
    let group = sidecore_testkit::packet::Station::group(v4);
    raw.node
        .receive(now, &peer.udp(&group, 9, 5000, b"over IPv4"));
    let got = raw.node.take_datagrams();
    assert_eq!((got.len(), got[0].user), (1, user));
    let options = SocketOptions {
        v6_only: true,
        ..SocketOptions::default()
    };
    let (only, _) = raw
        .node
        .udp_bind_with("[::]:6000".parse().unwrap(), &options)
        .unwrap();
    let refused = raw
        .node
        .stack
        .udp_group(now, only, v4.into(), GroupChange::Join);
    assert_eq!(refused, Err(StackError::InvalidAddress));
}
