//! ECN in frames (RFC 3168), and a queue that marks.

use std::time::Duration;

use sidecore_tcp::{Algorithm, Ecn};
use sidecore_testkit::packet::{Packet, header};
use sidecore_testkit::{A, B, Link, NodeConfig, Pair, pattern};
use sidecore_wire::ecn::{CE, ECT_0, ECT_1, MASK, NOT_ECT};
use sidecore_wire::ipv4::PROTOCOL_TCP;
use sidecore_wire::{Ipv4Header, TcpFlags, TcpHeader};

use crate::raw::*;

const ECE: TcpFlags = TcpFlags::ECE;
const CWR: TcpFlags = TcpFlags::CWR;

/// The ECN field, the flags and the length of each segment.
fn marks(packets: Vec<Packet>) -> Vec<(u8, TcpFlags, usize)> {
    let mark = |packet| match packet {
        Packet::Tcp(ip, header, payload) => (ip.dscp_ecn & MASK, header.flags, payload.len()),
        other => panic!("not TCP: {other:?}"),
    };
    packets.into_iter().map(mark).collect()
}

/// A segment whose IP header has this ECN field.
fn marked(header: &TcpHeader, payload: &[u8], codepoint: u8) -> Vec<u8> {
    let ip = Ipv4Header {
        dscp_ecn: codepoint,
        ..Ipv4Header::new(PEER.ip, NODE.ip, PROTOCOL_TCP)
    };
    PEER.ip(&NODE, ip, &PEER.segment(&NODE, header, payload))
}

#[test]
fn new_data_is_ecn_capable_and_nothing_else() {
    let mut raw = Raw::new();
    let (_, listener) = raw.listen(80, 4);
    let answer = raw.tcp(&header(9, 80, SYN | ECE | CWR, 1000, 0), &[]);
    let (syn_ack, _) = answer[0].clone().tcp();
    assert_eq!(marks(answer), [(NOT_ECT, SYN | ACK | ECE, 0)]);
    let iss = syn_ack.seq.0;
    assert_eq!(raw.tcp(&header(9, 80, ACK, 1001, iss + 1), &[]), []);
    let user = raw.node.accept(listener).expect("accepted");
    raw.node.write(user, b"data");
    assert_eq!(
        marks(raw.turn()),
        [(ECT_0, ACK | TcpFlags::PSH, 4)],
        "the usual header has the field"
    );
    // What is marked is echoed.
    let data = header(9, 80, ACK, 1001, iss + 5);
    let answer = raw.send(&marked(&data, b"marked", CE));
    assert_eq!(marks(answer), [(NOT_ECT, ACK | ECE, 0)]);
    // Until CWR; ECT says nothing.
    let cwr = header(9, 80, ACK | CWR, 1007, iss + 5);
    raw.send(&marked(&cwr, b"reduced", ECT_1));
    raw.node.write(user, b"more");
    let flags = marks(raw.turn());
    assert_eq!(flags, [(ECT_0, ACK | TcpFlags::PSH, 4)]);
    // A retransmission is not capable.
    let again = marks(raw.pass(Duration::from_secs(1)));
    assert!(!again.is_empty());
    assert!(
        again.iter().all(|(field, ..)| *field == NOT_ECT),
        "{again:?}"
    );
    let info = raw.node.tcp(user).expect("open").info();
    assert_eq!((info.ecn, info.ce_received), (true, 1));
}

#[test]
fn rfc_3168_5_3_a_packet_that_came_in_pieces_is_marked_if_one_of_them_was() {
    for (codepoints, arrives) in [
        ([ECT_0, CE], Some(true)),
        ([CE, ECT_1], Some(true)),
        ([ECT_0, ECT_0], Some(false)),
        // "this MUST NOT occur if any of the other fragments … carries the Not-ECT codepoint": dropped.
        ([CE, NOT_ECT], None),
        ([NOT_ECT, CE], None),
        ([NOT_ECT, ECT_0], Some(false)),
    ] {
        let mut raw = Raw::new();
        let (_, listener) = raw.listen(80, 4);
        let answer = raw.tcp(&header(9, 80, SYN | ECE | CWR, 1000, 0), &[]);
        let iss = answer[0].clone().tcp().0.seq.0;
        raw.tcp(&header(9, 80, ACK, 1001, iss + 1), &[]);
        let user = raw.node.accept(listener).expect("accepted");
        let segment = PEER.segment(&NODE, &header(9, 80, ACK, 1001, iss + 1), &[7; 44]);
        for (part, codepoint) in codepoints.into_iter().enumerate() {
            let ip = Ipv4Header {
                dscp_ecn: codepoint,
                ident: 5,
                dont_fragment: false,
                fragment_offset: part as u16 * 32,
                more_fragments: part == 0,
                ..Ipv4Header::new(PEER.ip, NODE.ip, PROTOCOL_TCP)
            };
            raw.send(&PEER.ip(&NODE, ip, &segment[part * 32..(part + 1) * 32]));
        }
        let received = raw.node.received(user).len();
        let ce = raw.node.tcp(user).expect("open").info().ce_received;
        let found = (received == 44).then_some(ce == 1);
        assert_eq!(found, arrives, "{codepoints:?}");
        assert_eq!(
            raw.count("reassembly_malformed"),
            u64::from(arrives.is_none())
        );
    }
}

/// A bottleneck of 100 Mbit/s and 2 ms that marks above 30 KB.
fn bottleneck() -> Link {
    Link {
        delay: Duration::from_millis(1),
        rate: 12_500_000,
        mark_above: 30_000,
        ..Link::default()
    }
}

/// Sends 8 MB through it with this controller: the longest queue, and frames marked and lost.
fn through_bottleneck(algorithm: Algorithm, ecn: Ecn, tso: u32) -> (u64, u64, u64) {
    let mut configs = [NodeConfig::new(1), NodeConfig::new(2)];
    for config in &mut configs {
        config.stack.tcp.congestion = algorithm;
        config.stack.tcp.ecn = ecn;
        config.buffer = 1 << 20;
        config.tso_max = tso;
    }
    let mut pair = Pair::new(configs, bottleneck(), 1);
    let (client, server) = pair.establish(80);
    let content = pattern(1, 0, 8_000_000);
    pair.nodes[A].write(client, &content);
    let began = pair.now();
    pair.run_until(|pair| pair.nodes[B].received(server).len() == content.len());
    assert!(pair.nodes[B].received(server) == content, "bytes");
    // The line is used: 8 MB take 0.64 s on it.
    let took = pair.now().duration_since(began);
    assert!(took < Duration::from_millis(900), "{algorithm:?}: {took:?}");
    let counters = pair.link_counters(A);
    let info = pair.nodes[A].tcp(client).expect("open").info();
    assert_eq!(info.ecn, ecn != Ecn::Off);
    assert_eq!(info.ece_received > 0, counters.marked > 0, "{info:?}");
    (counters.longest_queue, counters.marked, counters.lost)
}

#[test]
fn marks_instead_of_losses() {
    for algorithm in [Algorithm::NewReno, Algorithm::Cubic, Algorithm::Dctcp] {
        let (_, marked, lost) = through_bottleneck(algorithm, Ecn::Request, 0);
        assert!(marked > 0, "{algorithm:?}");
        assert_eq!(lost, 0, "{algorithm:?}");
        let (_, marked, lost) = through_bottleneck(algorithm, Ecn::Off, 0);
        assert!(marked == 0 && lost > 0, "{algorithm:?}: {lost}");
    }
}

#[test]
fn super_segments_are_marked_piece_by_piece() {
    for algorithm in [Algorithm::Cubic, Algorithm::Dctcp] {
        let (_, marked, lost) = through_bottleneck(algorithm, Ecn::Request, 65_536);
        assert!(marked > 0, "{algorithm:?}");
        assert_eq!(lost, 0, "{algorithm:?}");
    }
}

/// The queue of a connection that has found its window, over a second.
fn standing_queue(algorithm: Algorithm) -> u64 {
    let mut configs = [NodeConfig::new(1), NodeConfig::new(2)];
    for config in &mut configs {
        config.stack.tcp.congestion = algorithm;
        config.stack.tcp.ecn = Ecn::Request;
        config.buffer = 1 << 20;
    }
    let mut pair = Pair::new(configs, bottleneck(), 1);
    let (client, server) = pair.establish(80);
    let content = pattern(1, 0, 30_000_000);
    pair.nodes[A].write(client, &content);
    pair.run_for(Duration::from_secs(1));
    let began = pair.nodes[B].received(server).len();
    pair.reset_link_counters(A);
    pair.run_for(Duration::from_secs(1));
    let counters = pair.link_counters(A);
    let arrived = pair.nodes[B].received(server).len() - began;
    // 12.5 MB is what the line takes.
    assert!(arrived > 11_000_000, "{algorithm:?}: {arrived}");
    assert!(counters.marked > 0 && counters.lost == 0, "{counters:?}");
    counters.longest_queue
}

#[test]
fn dctcp_keeps_the_queue_at_the_threshold_and_the_line_full() {
    let queue = standing_queue(Algorithm::Dctcp);
    assert!(queue < 60_000, "{queue}");
}
