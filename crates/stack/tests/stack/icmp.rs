use std::time::Duration;

use sidecore_stack::{MtuDiscovery, Rate, SocketOption, StackError};
use sidecore_tcp::{CloseReason, IcmpKind};
use sidecore_testkit::packet::{Packet, Station, header};
use sidecore_testkit::{Event, pattern};
use sidecore_wire::{Icmpv4, icmpv4};

use crate::raw::*;

const ROUTER: Station = Station::new(9);

fn unreachable(code: u8) -> Icmpv4 {
    Icmpv4::DestinationUnreachable {
        code,
        next_hop_mtu: 0,
    }
}

#[test]
fn echo_is_answered_within_the_rate() {
    let mut raw = Raw::with(|config| {
        config.echo_rate = Rate {
            per_second: 10,
            burst: 2,
        };
    });
    let ping = PEER.icmp(&NODE, &Icmpv4::EchoRequest { ident: 1, seq: 2 }, b"payload");
    // No ARP is needed: the answer goes where the question came from.
    let answer = one(raw.send(&ping));
    let Packet::Icmp(ip, message, data) = answer else {
        panic!("{answer:?}")
    };
    assert_eq!((ip.src, ip.dst), (NODE.ip, PEER.ip));
    assert_eq!(message, Icmpv4::EchoReply { ident: 1, seq: 2 });
    assert_eq!(data, b"payload");
    assert_eq!(raw.send(&ping).len(), 1);
    assert_eq!(raw.send(&ping), []);
    assert_eq!(raw.count("icmp_rate_limited"), 1);
    raw.pass(Duration::from_millis(100));
    assert_eq!(raw.send(&ping).len(), 1);
}

#[test]
fn echo_to_all_is_not_answered() {
    let mut raw = Raw::new();
    let all = Station {
        ip: [10, 0, 0, 255].into(),
        ..NODE
    };
    let ping = PEER.icmp(&all, &Icmpv4::EchoRequest { ident: 1, seq: 2 }, b"payload");
    assert_eq!(raw.send(&ping), []);
}

#[test]
fn damaged_messages_are_counted() {
    let mut raw = Raw::new();
    let mut ping = PEER.icmp(&NODE, &Icmpv4::EchoRequest { ident: 1, seq: 2 }, b"payload");
    *ping.last_mut().unwrap() ^= 1;
    assert_eq!(raw.send(&ping), []);
    assert_eq!(raw.count("icmp_malformed"), 1);
}

/// The frame without its Ethernet header: what an error quotes.
fn quote(frame: &[u8]) -> &[u8] {
    &frame[14..14 + 28]
}

#[test]
fn a_hard_error_ends_an_open_and_not_a_connection() {
    let mut raw = Raw::new();
    let user = raw.node.connect(raw.now, "10.0.0.2:80".parse().unwrap());
    let syn = raw.node.turn(raw.now).remove(0);
    // Another sequence number is not ours (RFC 5927 4.1).
    let mut forged = quote(&syn).to_vec();
    forged[24] ^= 1;
    let port = unreachable(icmpv4::UNREACHABLE_PORT);
    raw.send(&ROUTER.icmp(&NODE, &port, &forged));
    assert_eq!(raw.node.closed(user), None);
    raw.send(&ROUTER.icmp(&NODE, &port, quote(&syn)));
    assert_eq!(raw.node.closed(user), Some(CloseReason::Refused));
    assert_eq!(raw.node.stack.connection_count(), 0);

    let (_, listener) = raw.listen(80, 4);
    let (_, user) = raw.open(listener, 9, 80);
    raw.node.write(user, b"data");
    let data = raw.node.turn(raw.now).remove(0);
    raw.send(&ROUTER.icmp(&NODE, &port, quote(&data)));
    assert_eq!(raw.node.closed(user), None);
    assert_eq!(raw.count("icmp_unmatched"), 0);
}

#[test]
fn a_soft_error_is_the_reason_in_the_end() {
    let mut raw = Raw::new();
    let user = raw.node.connect(raw.now, "10.0.0.2:80".parse().unwrap());
    let syn = raw.node.turn(raw.now).remove(0);
    let host = unreachable(icmpv4::UNREACHABLE_HOST);
    raw.send(&ROUTER.icmp(&NODE, &host, quote(&syn)));
    assert_eq!(raw.node.closed(user), None);
    raw.pass(Duration::from_secs(400));
    assert_eq!(raw.node.closed(user), Some(CloseReason::Unreachable));
}

#[test]
fn path_mtu_discovery() {
    let mut raw = Raw::new();
    let (_, listener) = raw.listen(80, 4);
    let mut syn = header(9, 80, SYN, 1000, 0);
    syn.options.mss = Some(1460);
    let (_, iss, _) = one_tcp(raw.tcp(&syn, &[]));
    raw.tcp(&header(9, 80, ACK, 1001, iss + 1), &[]);
    let user = raw.node.accept(listener).unwrap();
    raw.node.write(user, &pattern(1, 0, 2920));
    let frames = raw.node.turn(raw.now);
    assert_eq!(frames[0].len(), 1514);
    let message = Icmpv4::DestinationUnreachable {
        code: icmpv4::UNREACHABLE_FRAGMENTATION_NEEDED,
        next_hop_mtu: 1000,
    };
    let again = raw.send(&ROUTER.icmp(&NODE, &message, quote(&frames[0])));
    assert!(!again.is_empty());
    for packet in again {
        let (_, payload) = packet.tcp();
        assert!(payload.len() <= 960);
    }
}

#[test]
fn errors_that_match_nothing() {
    let mut raw = Raw::new();
    let stranger = Station::new(1).tcp(&PEER, &header(4, 5, ACK, 1, 1), &[]);
    let port = unreachable(icmpv4::UNREACHABLE_PORT);
    raw.send(&ROUTER.icmp(&NODE, &port, quote(&stranger)));
    raw.send(&ROUTER.icmp(&NODE, &port, &[]));
    raw.send(&ROUTER.icmp(&NODE, &port, &quote(&stranger)[..27]));
    raw.send(&ROUTER.icmp(&NODE, &unreachable(99), quote(&stranger)));
    assert_eq!(raw.count("icmp_unmatched"), 4);
    // Echo replies and the unknown are no errors.
    raw.send(&PEER.icmp(&NODE, &Icmpv4::EchoReply { ident: 1, seq: 1 }, &[]));
    raw.send(&PEER.icmp(&NODE, &Icmpv4::Other { type_: 42, code: 0 }, &[]));
    assert_eq!((raw.count("icmp_unmatched"), raw.count("icmp_in")), (4, 6));
}

#[test]
fn udp_errors_reach_the_socket() {
    let mut raw = Raw::new();
    let (id, user) = raw.node.udp_bind("10.0.0.1:6000".parse().unwrap());
    let to = "10.0.0.2:53".parse().unwrap();
    raw.node.udp_send(raw.now, id, to, b"query").unwrap();
    let sent = raw.node.turn(raw.now).remove(0);
    let port = unreachable(icmpv4::UNREACHABLE_PORT);
    raw.send(&PEER.icmp(&NODE, &port, &sent[14..]));
    let expected = Event::IcmpError(to, IcmpKind::PortUnreachable);
    assert_eq!(raw.node.take_datagram_events(), [(user, expected)]);
    // All that the message says is passed up, and what it quotes of the payload.
    let report = raw.node.take_datagram_errors().remove(0);
    assert_eq!(
        (report.user, report.remote, report.message),
        (user, to, (3, 3))
    );
    assert_eq!((report.info, report.offender), (0, PEER.ip.into()));
    assert_eq!(report.payload, b"query");
    // RFC 792 asks for eight bytes behind the IP header only; a router far away says how much would pass.
    let too_big = Icmpv4::DestinationUnreachable {
        code: icmpv4::UNREACHABLE_FRAGMENTATION_NEEDED,
        next_hop_mtu: 1400,
    };
    raw.send(&ROUTER.icmp(&NODE, &too_big, &quote(&sent)[..28]));
    let report = raw.node.take_datagram_errors().remove(0);
    assert_eq!((report.message, report.info), ((3, 4), 1400));
    assert_eq!(
        (report.offender, report.payload),
        (ROUTER.ip.into(), vec![])
    );
}

#[test]
fn mtu_discovery_of_datagrams_is_the_sockets_choice() {
    let mut raw = Raw::new();
    let (id, _) = raw.node.udp_bind("10.0.0.1:6000".parse().unwrap());
    let to = "10.0.0.2:53".parse().unwrap();
    let send = |raw: &mut Raw, len: usize| {
        raw.node.udp_send(raw.now, id, to, &vec![0; len])?;
        match one(raw.turn()) {
            Packet::Udp(ip, ..) => Ok((ip.dont_fragment, ip.ident)),
            other => panic!("{other:?}"),
        }
    };
    let discovery = |raw: &mut Raw, how| {
        let set = raw
            .node
            .stack
            .udp_set_option(id, SocketOption::MtuDiscovery(how));
        assert!(set);
    };
    assert_eq!(send(&mut raw, 1472), Ok((true, 0)));
    // The path carries 1000 bytes.
    raw.node.udp_send(raw.now, id, to, &[0; 1472]).unwrap();
    let sent = raw.node.turn(raw.now).remove(0);
    let too_big = Icmpv4::DestinationUnreachable {
        code: icmpv4::UNREACHABLE_FRAGMENTATION_NEEDED,
        next_hop_mtu: 1000,
    };
    raw.send(&ROUTER.icmp(&NODE, &too_big, quote(&sent)));
    let now = raw.now;
    assert_eq!(raw.node.stack.path_mtu(now, PEER.ip.into()), Some(1000));
    let local = raw.node.stack.path_mtu(now, NODE.ip.into());
    assert_eq!(local, Some(raw.node.stack.config().loopback_mtu));
    let nowhere = raw.node.stack.path_mtu(now, "8.8.8.8".parse().unwrap());
    assert_eq!(nowhere, None);
    assert_eq!(send(&mut raw, 973), Err(StackError::MessageTooLarge));
    assert_eq!(send(&mut raw, 972), Ok((true, 0)));
    discovery(&mut raw, MtuDiscovery::Probe);
    assert_eq!(send(&mut raw, 1472), Ok((true, 0)));
    // What may be cut is told apart.
    discovery(&mut raw, MtuDiscovery::Off);
    let (cut, first) = send(&mut raw, 1472).unwrap();
    let (_, second) = send(&mut raw, 1472).unwrap();
    assert!(!cut && first != second);
    assert_eq!(
        send(&mut raw, 1473),
        Err(StackError::MessageTooLarge),
        "nothing is cut here"
    );
}

#[test]
fn port_unreachable_for_udp_to_nowhere() {
    let mut raw = Raw::with(|config| {
        config.icmp_error_rate = Rate {
            per_second: 1,
            burst: 2,
        };
    });
    let datagram = PEER.udp(&NODE, 1000, 7, &pattern(1, 0, 1400));
    let answer = one(raw.send(&datagram));
    let Packet::Icmp(_, message, quoted) = answer else {
        panic!("{answer:?}")
    };
    assert_eq!(message, unreachable(icmpv4::UNREACHABLE_PORT));
    assert!(datagram[14..].starts_with(&quoted));
    assert_eq!(quoted.len(), 548);
    raw.send(&datagram);
    assert_eq!(raw.send(&datagram), []);
    assert_eq!(raw.count("icmp_rate_limited"), 1);
    assert_eq!(raw.count("udp_to_nowhere"), 3);
    // Never about what was sent to all.
    raw.pass(Duration::from_secs(10));
    let all = Station {
        ip: [10, 0, 0, 255].into(),
        ..NODE
    };
    assert_eq!(raw.send(&PEER.udp(&all, 1000, 7, b"x")), []);
}
