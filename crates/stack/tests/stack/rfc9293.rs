//! Requirements of RFC 9293 that are the stack's and that no other test is about, named by their labels. The whole list:
//! `docs/conformance/rfc9293.md`.

use std::net::SocketAddr;
use std::time::Duration;

use sidecore_stack::{SocketOptions, StackError};
use sidecore_tcp::{CloseReason, State};
use sidecore_testkit::packet::{Packet, Station, header};
use sidecore_testkit::packet6::Content6;
use sidecore_testkit::{A, B, Event, Pair};
use sidecore_wire::{ArpOperation, Icmpv4, Ipv4Header, NdpMessage, TcpHeader, icmpv4};

use crate::raw::*;
use crate::six::{self, Raw6};

fn addr(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

/// Whole payloads of the segments among these packets.
fn payloads(packets: Vec<Packet>) -> Vec<usize> {
    packets
        .into_iter()
        .map(|packet| packet.tcp().1.len())
        .collect()
}

#[test]
fn must_15_without_an_mss_option_segments_are_of_536_bytes_and_of_1220_over_ipv6() {
    let mut raw = Raw::new();
    let (_, listener) = raw.listen(80, 4);
    let (_, user) = raw.open(listener, 9, 80);
    raw.node.write(user, &[1; 2000]);
    assert_eq!(payloads(raw.turn()), [536, 536, 536, 392]);

    let mut raw = Raw6::new();
    let listener = raw.listen(80);
    let (_, user) = raw.open(listener, 80);
    raw.node.write(user, &[1; 2000]);
    let sizes: Vec<_> = raw.turn().into_iter().map(|p| p.tcp().1.len()).collect();
    assert_eq!(sizes, [1220, 780]);
}

#[test]
fn may_2_a_new_incarnation_begins_beyond_the_sequence_numbers_of_the_old_one() {
    let mut raw = Raw::new();
    let (_, listener) = raw.listen(80, 8);
    let (iss, user) = raw.open(listener, 9, 80);
    // Ten megabytes in no time: the clock of initial sequence numbers, at 250 kB/s, is left behind.
    let mut acked = iss + 1;
    let window = |seq, ack| TcpHeader {
        window: sidecore_wire::UnscaledWindow(u16::MAX),
        ..header(9, 80, ACK, seq, ack)
    };
    for _ in 0..400 {
        raw.node.write(user, &[7; 25_000]);
        while let mut packets = raw.turn()
            && let Some(packet) = packets.pop()
        {
            let (last, payload) = packet.tcp();
            acked = last.seq.0.wrapping_add(payload.len() as u32);
            raw.node
                .receive(raw.now, &PEER.tcp(&NODE, &window(1001, acked), &[]));
        }
    }
    assert_eq!(acked.wrapping_sub(iss + 1), 10_000_000);
    raw.node.close(user);
    let (flags, fin, _) = one_tcp(raw.turn());
    assert_eq!((flags & FIN, fin), (FIN, acked));
    raw.tcp(&header(9, 80, ACK | FIN, 1001, acked + 1), &[]);
    let states: Vec<_> = raw.node.stack.connections().map(|c| c.tcp.state).collect();
    assert_eq!(states, [State::TimeWait]);
    let (flags, new_iss, _) = one_tcp(raw.tcp(&header(9, 80, SYN, 500_000, 0), &[]));
    assert_eq!(flags, SYN | ACK);
    // "larger than the largest sequence number it used on the previous connection incarnation"
    let ahead = new_iss.wrapping_sub(fin) as i32;
    assert!(ahead > 65_535, "{ahead}");
    // Nobody else's numbers are shifted by it.
    let (_, other, _) = one_tcp(raw.tcp(&header(10, 80, SYN, 500_000, 0), &[]));
    let (_, again, _) = one_tcp(raw.tcp(&header(10, 80, SYN, 500_000, 0), &[]));
    assert_eq!(other, again);
}

#[test]
fn must_20_the_third_retransmission_casts_doubt_on_the_neighbour() {
    let mut raw = Raw::with(|_| {});
    let (_, listener) = raw.listen(80, 4);
    raw.send(&PEER.arp(ArpOperation::Request, &NODE));
    let (_, user) = raw.open(listener, 9, 80);
    raw.node.write(user, b"x");
    assert_eq!(payloads(raw.turn()), [1]);
    let mut sent = 0;
    let asked = loop {
        let packets = raw.pass(Duration::from_millis(10));
        let is_arp = |packet: &&Packet| matches!(packet, Packet::Arp(..));
        sent += packets.iter().filter(|packet| !is_arp(packet)).count();
        if let Some(Packet::Arp(_, request)) = packets.iter().find(is_arp) {
            break *request;
        }
        assert!(sent < 6, "nobody asks");
    };
    // Long before what was learnt is out of date, after 60 s.
    assert_eq!((sent, asked.target_ip), (3, PEER.ip));
    assert_eq!(asked.operation, ArpOperation::Request);
    // Nothing was lost by it.
    raw.answer_arp();
    assert_eq!(raw.node.closed(user), None);
}

#[test]
fn must_20_and_over_ipv6() {
    let mut raw = Raw6::with(|_| {});
    let listener = raw.listen(80);
    // The peer is asked for, and answers.
    let syn = raw.tcp(&header(9, 80, SYN, 1000, 0), &[]);
    assert!(matches!(syn[0].content, Content6::Ndp(_)));
    let answer = raw.send(&six::PEER.advertise(&six::NODE));
    let (answer, _) = six::one(answer).tcp();
    raw.tcp(&header(9, 80, ACK, 1001, answer.seq.0 + 1), &[]);
    let user = raw.node.accept(listener).unwrap();
    raw.node.write(user, b"x");
    let mut segments = raw.turn().len();
    let mut asked = false;
    for _ in 0..1000 {
        for packet in raw.pass(Duration::from_millis(10)) {
            let solicitation = matches!(
                packet.content,
                Content6::Ndp(NdpMessage::NeighborSolicitation { .. })
            );
            asked |= solicitation;
            segments += usize::from(!solicitation);
        }
        if asked {
            break;
        }
    }
    // DELAY_FIRST_PROBE_TIME lies between doubt and question; REACHABLE alone would have lasted for half a minute.
    assert!(asked);
    assert!(segments >= 4, "{segments}");
}

#[test]
fn must_41_a_passive_open_changes_no_connection() {
    let mut raw = Raw::new();
    let (_, listener) = raw.listen(80, 4);
    let (iss, user) = raw.open(listener, 9, 80);
    let options = SocketOptions::default();
    let again = raw.node.stack.listen(addr("0.0.0.0:80"), &options, 1, 5);
    assert_eq!(again, Err(StackError::AddressInUse));
    raw.tcp(&header(9, 80, ACK, 1001, iss + 1), b"still here");
    assert_eq!(raw.node.received(user), b"still here");
    assert_eq!(raw.node.tcp(user).unwrap().state(), State::Established);
}

#[test]
fn must_42_listening_at_a_port_that_has_a_connection_on_its_way() {
    let mut raw = Raw::new();
    let (local, remote) = (addr("10.0.0.1:4000"), addr("10.0.0.2:5000"));
    let user = raw.node.try_connect(raw.now, Some(local), remote).unwrap();
    let (_, iss, _) = one_tcp(raw.turn());
    assert_eq!(raw.node.tcp(user).unwrap().state(), State::SynSent);
    assert!(raw.node.listen_at(local, false, 4).is_ok());
    // A SYN from elsewhere is the listener's, the answer from there the connection's.
    let (flags, _, ack) = one_tcp(raw.tcp(&header(6, 4000, SYN, 70, 0), &[]));
    assert_eq!((flags, ack), (SYN | ACK, 71));
    raw.tcp(&header(5000, 4000, SYN | ACK, 9000, iss + 1), &[]);
    assert_eq!(raw.node.events(user), [Event::Connected]);
}

#[test]
fn must_43_must_44_must_45_which_of_our_addresses() {
    let mut raw = Raw::with(|config| {
        config.addresses = vec![
            "10.0.0.1/24".parse().unwrap(),
            "10.9.0.1/16".parse().unwrap(),
        ];
        config.neighbors.push((PEER.ip, PEER.mac));
        config.neighbors.push(([10, 9, 0, 7].into(), PEER.mac));
    });
    let source = |packets: Vec<Packet>| match one(packets) {
        Packet::Tcp(ip, ..) => ip.src.to_string(),
        other => panic!("{other:?}"),
    };
    // MUST-44: IP chooses.
    raw.node.connect(raw.now, addr("10.0.0.2:80"));
    assert_eq!(source(raw.turn()), "10.0.0.1");
    raw.node.connect(raw.now, addr("10.9.0.7:80"));
    assert_eq!(source(raw.turn()), "10.9.0.1");
    // MUST-43: the application does.
    let local = Some(addr("10.9.0.1:0"));
    let connected = raw.node.try_connect(raw.now, local, addr("10.0.0.2:81"));
    assert!(connected.is_ok());
    assert_eq!(source(raw.turn()), "10.9.0.1");
    // MUST-45: the answer to a SYN comes from where that went, though 10.0.0.1 is nearer to the peer.
    raw.listen(80, 4);
    let there = Station {
        ip: [10, 9, 0, 1].into(),
        ..NODE
    };
    let syn = PEER.tcp(&there, &header(9, 80, SYN, 1, 0), &[]);
    assert_eq!(source(raw.send(&syn)), "10.9.0.1");
}

#[test]
fn must_46_no_connection_to_many() {
    let mut raw = Raw6::new();
    let mut connect = |remote| raw.node.try_connect(raw.now, None, addr(remote)).err();
    for remote in [
        "224.0.0.1:80",
        "239.255.255.250:80",
        "255.255.255.255:80",
        "10.0.0.255:80",
        "[ff02::1]:80",
        "[ff05::2]:80",
    ] {
        assert_eq!(
            connect(remote),
            Some(StackError::InvalidAddress),
            "{remote}"
        );
    }
    assert_eq!(raw.node.stack.connection_count(), 0);
}

#[test]
fn must_55_a_source_quench_is_dropped() {
    let mut raw = Raw::new();
    let user = raw.node.connect(raw.now, addr("10.0.0.2:80"));
    let syn = raw.node.turn(raw.now).remove(0);
    let quench = Icmpv4::Other { type_: 4, code: 0 };
    assert_eq!(raw.send(&PEER.icmp(&NODE, &quench, &syn[14..42])), []);
    assert_eq!(raw.node.closed(user), None);
    let info = raw.node.stack.connections().next().unwrap().tcp;
    assert_eq!((info.state, info.soft_error), (State::SynSent, false));
}

#[test]
fn must_54_must_56_soft_errors_find_their_connection_and_leave_it() {
    for message in [
        Icmpv4::DestinationUnreachable {
            code: icmpv4::UNREACHABLE_NET,
            next_hop_mtu: 0,
        },
        Icmpv4::DestinationUnreachable {
            code: icmpv4::UNREACHABLE_HOST,
            next_hop_mtu: 0,
        },
        // 5: source route failed.
        Icmpv4::DestinationUnreachable {
            code: 5,
            next_hop_mtu: 0,
        },
        Icmpv4::TimeExceeded { code: 0 },
        Icmpv4::TimeExceeded { code: 1 },
        Icmpv4::ParameterProblem,
    ] {
        let mut raw = Raw::new();
        let hit = raw.node.connect(raw.now, addr("10.0.0.2:80"));
        let missed = raw.node.connect(raw.now, addr("10.0.0.2:81"));
        let syn = raw.node.turn(raw.now).remove(0);
        raw.send(&PEER.icmp(&NODE, &message, &syn[14..42]));
        let soft = |user| raw.node.tcp(user).unwrap().info().soft_error;
        assert_eq!((soft(hit), soft(missed)), (true, false), "{message:?}");
        assert_eq!(raw.node.closed(hit), None);
    }
}

#[test]
fn must_58_must_59_segments_of_one_turn_are_acknowledged_once() {
    let mut raw = Raw::new();
    let (_, listener) = raw.listen(80, 4);
    let (iss, user) = raw.open(listener, 9, 80);
    for number in 0..8u32 {
        let segment = header(9, 80, ACK, 1001 + number * 1000, iss + 1);
        let frame = PEER.tcp(&NODE, &segment, &[3; 1000]);
        raw.node.receive(raw.now, &frame);
    }
    assert_eq!(one_tcp(raw.turn()), (ACK, iss + 1, 9001));
    // And with data to send, none goes out for itself.
    raw.node.write(user, b"answer");
    let frame = PEER.tcp(&NODE, &header(9, 80, ACK, 9001, iss + 1), &[3; 3000]);
    raw.node.receive(raw.now, &frame);
    let (answer, payload) = one(raw.turn()).tcp();
    assert_eq!((answer.ack.0, payload), (12_001, b"answer".to_vec()));
}

#[test]
fn must_57_a_syn_to_many_is_nobodys() {
    let mut raw = Raw::new();
    raw.listen(80, 4);
    for ip in [[10, 0, 0, 255], [255, 255, 255, 255], [224, 0, 0, 1]] {
        let all = Station {
            ip: ip.into(),
            ..NODE
        };
        assert_eq!(
            raw.send(&PEER.tcp(&all, &header(9, 80, SYN, 1, 0), &[])),
            []
        );
    }
    // To our address, in a frame to all (RFC 1122 section 3.3.6).
    let mut frame = PEER.tcp(&NODE, &header(9, 80, SYN, 1, 0), &[]);
    frame[..6].fill(0xff);
    assert_eq!(raw.send(&frame), []);
    assert_eq!(raw.node.stack.connection_count(), 0);
}

#[test]
fn must_50_ip_options_are_ignored() {
    let mut raw = Raw::new();
    let (_, listener) = raw.listen(80, 4);
    let (iss, user) = raw.open(listener, 9, 80);
    // A record route of four bytes, a timestamp, one that nobody knows, and a source route.
    for (number, options) in [[7, 4, 4, 0], [68, 4, 5, 0], [30, 4, 1, 2], [131, 3, 4, 0]]
        .into_iter()
        .enumerate()
    {
        let segment = header(9, 80, ACK, 1001 + number as u32, iss + 1);
        let bytes = PEER.segment(&NODE, &segment, b"x");
        let ip = Ipv4Header::new(PEER.ip, NODE.ip, sidecore_wire::ipv4::PROTOCOL_TCP);
        let mut frame = PEER.ip(&NODE, ip, &bytes);
        frame.splice(34..34, options);
        frame[14] = 0x46;
        let total = (frame.len() - 14) as u16;
        frame[16..18].copy_from_slice(&total.to_be_bytes());
        frame[24..26].fill(0);
        let sum = sidecore_wire::checksum::sum(&frame[14..38], 0);
        let sum = sidecore_wire::checksum::complement(sum);
        frame[24..26].copy_from_slice(&sum.to_be_bytes());
        raw.send(&frame);
    }
    assert_eq!(raw.node.received(user), b"xxxx");
}

#[test]
fn must_12_the_host_is_told_how_a_connection_ended() {
    let mut pair = Pair::default();
    let (client, server) = pair.establish(80);
    pair.nodes[A].close(client);
    pair.run_until(|pair| pair.nodes[B].has_fin(server));
    pair.nodes[B].close(server);
    pair.run_until(|pair| pair.nodes[B].closed(server).is_some());
    assert_eq!(pair.nodes[B].closed(server), Some(CloseReason::Normal));
    let (client, server) = pair.establish(81);
    pair.nodes[A].abort(client);
    pair.run_until(|pair| pair.nodes[B].closed(server).is_some());
    assert_eq!(pair.nodes[B].closed(server), Some(CloseReason::Reset));
    assert!(!pair.nodes[B].has_fin(server));
}

#[test]
fn must_2_every_segment_has_its_checksum() {
    let mut raw = Raw::new();
    let (_, listener) = raw.listen(80, 4);
    let (_, user) = raw.open(listener, 9, 80);
    raw.node.write(user, &[0x5a; 1999]);
    raw.node.connect(raw.now, addr("10.0.0.2:81"));
    let mut segments = 0;
    for frame in raw.node.turn(raw.now) {
        // By hand: the sum over pseudo-header and segment is all ones (RFC 9293 section 3.1).
        let segment = &frame[34..];
        let mut pseudo = frame[26..34].to_vec();
        pseudo.extend([0, 6]);
        pseudo.extend((segment.len() as u16).to_be_bytes());
        pseudo.extend(segment);
        let words = pseudo.chunks(2);
        let word = |pair: &[u8]| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0));
        let sum: u32 = words.map(word).sum();
        assert_eq!((sum & 0xffff) + (sum >> 16), 0xffff);
        assert_ne!(segment[16..18], [0, 0]);
        segments += 1;
    }
    assert_eq!(segments, 5, "a SYN and four segments of 536 bytes at most");
}

#[test]
fn must_16_a_peer_that_could_take_more_gets_what_ip_permits() {
    let mut raw = Raw::with(|config| {
        config.neighbors.push((PEER.ip, PEER.mac));
        config.mtu = 1000;
    });
    let (_, listener) = raw.listen(80, 4);
    let mut syn = header(9, 80, SYN, 1000, 0);
    syn.options.mss = Some(8960);
    let (answer, _) = one(raw.tcp(&syn, &[])).tcp();
    assert_eq!(answer.options.mss, Some(960));
    raw.tcp(&header(9, 80, ACK, 1001, answer.seq.0 + 1), &[]);
    let user = raw.node.accept(listener).unwrap();
    raw.node.write(user, &[1; 2000]);
    assert_eq!(payloads(raw.turn()), [960, 960, 80]);
}
