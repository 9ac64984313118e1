//! The address by DHCP (RFC 2131), with a server that a test plays by hand.

use std::net::Ipv4Addr;
use std::time::Duration;

use sidecore_stack::StackError;
use sidecore_testkit::packet::{Packet, Station};
use sidecore_wire::dhcpv4::{CLIENT_PORT, EMITTED_LEN, SERVER_PORT};
use sidecore_wire::{ArpOperation, ArpPacket, DhcpKind, DhcpMessage, MacAddress};

use crate::raw::*;

const SERVER: Station = Station::new(9);
const OFFERED: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 77);
const ALL: Station = Station {
    mac: MacAddress::BROADCAST,
    ip: Ipv4Addr::BROADCAST,
};

fn raw() -> Raw {
    Raw::with(|config| {
        config.addresses.clear();
        config.dhcp = true;
    })
}

/// A DHCP message among packets, and where it went: link address, source, destination.
fn dhcp(packets: &[Packet]) -> (DhcpMessage, Ipv4Addr, Ipv4Addr) {
    let found: Vec<_> = packets
        .iter()
        .filter_map(|packet| match packet {
            Packet::Udp(ip, udp, bytes) => {
                assert_eq!((udp.src_port, udp.dst_port), (CLIENT_PORT, SERVER_PORT));
                Some((DhcpMessage::parse(bytes).unwrap(), ip.src, ip.dst))
            }
            _ => None,
        })
        .collect();
    assert_eq!(found.len(), 1, "{packets:?}");
    found[0]
}

/// The last of several.
fn last_dhcp(packets: &[Packet]) -> (DhcpMessage, Ipv4Addr, Ipv4Addr) {
    dhcp(&packets[packets.len() - 1..])
}

fn probes(packets: &[Packet]) -> usize {
    let probe = |packet: &&Packet| matches!(packet, Packet::Arp(_, arp) if arp.sender_ip.is_unspecified() && arp.target_ip == OFFERED);
    packets.iter().filter(probe).count()
}

/// What the server answers.
fn answer(kind: DhcpKind, to: &DhcpMessage) -> DhcpMessage {
    DhcpMessage {
        reply: true,
        your_ip: OFFERED,
        server_id: Some(SERVER.ip),
        prefix_len: Some(24),
        router: Some(PEER.ip),
        lease_secs: Some(1000),
        ..DhcpMessage::new(kind, to.xid, to.client_mac)
    }
}

fn frame(message: &DhcpMessage, to: &Station) -> Vec<u8> {
    let mut bytes = [0; EMITTED_LEN];
    message.emit(&mut bytes);
    SERVER.udp(to, SERVER_PORT, CLIENT_PORT, &bytes)
}

fn say(raw: &mut Raw, message: &DhcpMessage) -> Vec<Packet> {
    raw.send(&frame(message, &ALL))
}

/// Up to the address, which is leased for a thousand seconds.
fn bound() -> Raw {
    let mut raw = raw();
    let (discover, ..) = dhcp(&raw.turn());
    let (request, ..) = dhcp(&say(&mut raw, &answer(DhcpKind::Offer, &discover)));
    say(&mut raw, &answer(DhcpKind::Ack, &request));
    raw.pass(Duration::from_secs(1));
    assert_eq!(
        raw.node.stack.dhcp_lease().unwrap().address.address(),
        OFFERED
    );
    raw
}

#[test]
fn an_address_is_asked_for_checked_taken_and_announced() {
    let mut raw = raw();
    let (discover, src, dst) = dhcp(&raw.turn());
    assert_eq!(discover.kind, DhcpKind::Discover);
    assert!(discover.broadcast && !discover.reply && discover.client_mac == NODE.mac);
    assert_eq!((src, dst), (Ipv4Addr::UNSPECIFIED, Ipv4Addr::BROADCAST));

    let (request, src, _) = dhcp(&say(&mut raw, &answer(DhcpKind::Offer, &discover)));
    assert_eq!(
        (request.kind, src),
        (DhcpKind::Request, Ipv4Addr::UNSPECIFIED)
    );
    assert_eq!(request.requested, Some(OFFERED));
    assert_eq!(
        (request.server_id, request.xid),
        (Some(SERVER.ip), discover.xid)
    );

    let mut packets = say(&mut raw, &answer(DhcpKind::Ack, &request));
    assert_eq!(raw.node.stack.dhcp_lease(), None, "it is not checked yet");
    let listen = |raw: &mut Raw| raw.node.listen_at((OFFERED, 80).into(), false, 1);
    assert_eq!(
        listen(&mut raw).map(drop),
        Err(StackError::AddressNotAvailable)
    );
    packets.extend(raw.pass(Duration::from_secs(1)));
    assert_eq!(probes(&packets), 2);
    let announced = matches!(packets.last(), Some(Packet::Arp(_, arp)) if arp.sender_ip == OFFERED && arp.target_ip == OFFERED);
    assert!(announced, "{packets:?}");
    let lease = raw.node.stack.dhcp_lease().unwrap();
    assert_eq!(lease.address.to_string(), "10.0.0.77/24");
    assert_eq!((lease.router, lease.server), (Some(PEER.ip), SERVER.ip));
    listen(&mut raw).unwrap();

    // It answers for the address now, and what is far goes to the router.
    let node = Station {
        ip: OFFERED,
        ..NODE
    };
    let asked = raw.send(&PEER.arp(ArpOperation::Request, &node));
    assert!(matches!(one(asked), Packet::Arp(_, arp) if arp.sender_ip == OFFERED));
    raw.node.connect(raw.now, "8.8.8.8:53".parse().unwrap());
    let (syn, _) = one(raw.turn()).tcp();
    assert_eq!(syn.flags, SYN);
}

#[test]
fn silence_is_asked_again_later_and_later() {
    let mut raw = raw();
    dhcp(&raw.turn());
    let mut gaps = Vec::new();
    let mut last = raw.now;
    while gaps.len() < 7 {
        raw.now = raw.node.stack.next_timeout().unwrap();
        if !raw.turn().is_empty() {
            gaps.push(raw.now.duration_since(last).as_secs_f64());
            last = raw.now;
        }
    }
    for (gap, expected) in gaps.iter().zip([4.0, 8.0, 16.0, 32.0, 64.0, 64.0, 64.0]) {
        assert!((gap - expected).abs() <= 1.01, "{gaps:?}");
    }
    // A server that offers and then is silent: four requests, and all begins anew.
    let (discover, ..) = {
        raw.now = raw.node.stack.next_timeout().unwrap();
        dhcp(&raw.turn())
    };
    dhcp(&say(&mut raw, &answer(DhcpKind::Offer, &discover)));
    let packets = raw.pass(Duration::from_secs(64));
    let kinds: Vec<_> = packets
        .chunks(1)
        .map(|packet| dhcp(packet).0.kind)
        .collect();
    use DhcpKind::{Discover, Request};
    assert_eq!(kinds[..4], [Request, Request, Request, Discover]);
}

#[test]
fn an_address_that_somebody_has_is_declined() {
    let mut raw = raw();
    let (discover, ..) = dhcp(&raw.turn());
    let (request, ..) = dhcp(&say(&mut raw, &answer(DhcpKind::Offer, &discover)));
    say(&mut raw, &answer(DhcpKind::Ack, &request));
    let other = Station {
        ip: OFFERED,
        ..PEER
    };
    let (decline, ..) = dhcp(&raw.send(&other.arp(ArpOperation::Reply, &NODE)));
    assert_eq!(decline.kind, DhcpKind::Decline);
    assert_eq!(
        (decline.requested, decline.server_id),
        (Some(OFFERED), Some(SERVER.ip))
    );
    assert_eq!(raw.pass(Duration::from_secs(9)), []);
    let (again, ..) = dhcp(&raw.pass(Duration::from_secs(2)));
    assert_eq!(again.kind, DhcpKind::Discover);
    assert_ne!(again.xid, discover.xid);
    assert_eq!(raw.node.stack.dhcp_lease(), None);
    // Our own probe, come back over a bridge, is nobody's.
    let (request, ..) = dhcp(&say(&mut raw, &answer(DhcpKind::Offer, &again)));
    say(&mut raw, &answer(DhcpKind::Ack, &request));
    let probe = ArpPacket {
        operation: ArpOperation::Request,
        sender_mac: NODE.mac,
        sender_ip: Ipv4Addr::UNSPECIFIED,
        target_mac: MacAddress::UNSPECIFIED,
        target_ip: OFFERED,
    };
    let mut bytes = [0; 28];
    probe.emit(&mut bytes);
    raw.send(&PEER.ethernet(MacAddress::BROADCAST, 0x0806, &bytes));
    raw.pass(Duration::from_secs(1));
    assert!(raw.node.stack.dhcp_lease().is_some());
}

#[test]
fn a_lease_is_prolonged_by_its_server() {
    let mut raw = bound();
    assert_eq!(raw.pass(Duration::from_secs(497)), []);
    let (request, src, dst) = dhcp(&raw.pass(Duration::from_secs(5)));
    assert_eq!((src, dst, request.client_ip), (OFFERED, SERVER.ip, OFFERED));
    assert_eq!((request.requested, request.server_id), (None, None));
    let before = raw.node.stack.dhcp_lease().unwrap().ends;
    let node = Station {
        ip: OFFERED,
        ..NODE
    };
    raw.send(&frame(&answer(DhcpKind::Ack, &request), &node));
    let ends = raw.node.stack.dhcp_lease().unwrap().ends;
    assert!(ends.duration_since(before) >= Duration::from_secs(490));
    raw.pass(Duration::from_secs(490));
    assert_eq!(raw.count("dhcp_leases"), 2);
}

#[test]
fn a_lease_that_nobody_prolongs_ends() {
    let mut raw = bound();
    let packets = raw.pass(Duration::from_secs(990));
    let messages: Vec<_> = packets.chunks(1).map(dhcp).collect();
    let to_server = messages
        .iter()
        .filter(|(.., dst)| *dst == SERVER.ip)
        .count();
    let to_all = messages.len() - to_server;
    // From half of it on after half of what is left, from seven eighths on to all, a minute apart at least.
    assert_eq!((to_server, to_all), (4, 2), "{messages:?}");
    assert!(raw.node.stack.dhcp_lease().is_some());
    let (discover, ..) = last_dhcp(&raw.pass(Duration::from_secs(11)));
    assert_eq!(discover.kind, DhcpKind::Discover);
    assert_eq!(raw.node.stack.dhcp_lease(), None);
    let node = Station {
        ip: OFFERED,
        ..NODE
    };
    assert_eq!(raw.send(&PEER.arp(ArpOperation::Request, &node)), []);
}

#[test]
fn what_no_server_may_say_changes_nothing() {
    let mut raw = raw();
    let (discover, ..) = dhcp(&raw.turn());
    let offer = answer(DhcpKind::Offer, &discover);
    let wrong = [
        DhcpMessage {
            xid: offer.xid ^ 1,
            ..offer
        },
        DhcpMessage {
            client_mac: PEER.mac,
            ..offer
        },
        DhcpMessage {
            reply: false,
            ..offer
        },
        DhcpMessage {
            server_id: None,
            ..offer
        },
        DhcpMessage {
            lease_secs: None,
            ..offer
        },
        DhcpMessage {
            your_ip: Ipv4Addr::BROADCAST,
            ..offer
        },
        DhcpMessage {
            your_ip: Ipv4Addr::new(10, 0, 0, 255),
            ..offer
        },
        DhcpMessage {
            your_ip: Ipv4Addr::new(127, 0, 0, 5),
            ..offer
        },
        DhcpMessage {
            kind: DhcpKind::Ack,
            ..offer
        },
    ];
    for message in wrong {
        assert_eq!(say(&mut raw, &message), [], "{message:?}");
    }
    let bytes = [0xff; 300];
    raw.send(&SERVER.udp(&ALL, SERVER_PORT, CLIENT_PORT, &bytes));
    raw.send(&SERVER.udp(&ALL, SERVER_PORT, CLIENT_PORT, &[]));
    assert_eq!(raw.count("dhcp_malformed"), 4);
    let (request, ..) = dhcp(&say(&mut raw, &offer));
    // An acknowledgment of something else, or by somebody else, is none; a refusal is one.
    let ack = answer(DhcpKind::Ack, &request);
    let other = Some(Ipv4Addr::new(10, 0, 0, 8));
    for message in [
        DhcpMessage {
            your_ip: PEER.ip,
            ..ack
        },
        DhcpMessage {
            server_id: other,
            ..ack
        },
        answer(DhcpKind::Nak, &request),
    ] {
        assert_eq!(say(&mut raw, &message), [], "{message:?}");
    }
    let (again, ..) = dhcp(&raw.pass(Duration::from_secs(2)));
    assert_eq!(again.kind, DhcpKind::Discover);
}
