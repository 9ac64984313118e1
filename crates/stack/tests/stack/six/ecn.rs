//! ECN over IPv6: the traffic class has the field.

use sidecore_tcp::{Algorithm, Ecn};
use sidecore_testkit::packet::header;
use sidecore_testkit::packet6::Packet6;
use sidecore_testkit::{A, B, Link, Pair, pattern};
use sidecore_wire::ecn::{CE, ECT_0, MASK, NOT_ECT};
use sidecore_wire::{Ipv6Header, TcpFlags, ipv6};

use super::*;

const ECE: TcpFlags = TcpFlags::ECE;
const CWR: TcpFlags = TcpFlags::CWR;

fn marks(packets: Vec<Packet6>) -> Vec<(u8, TcpFlags)> {
    let mark = |packet: Packet6| (packet.ip.traffic_class & MASK, packet.tcp().0.flags);
    packets.into_iter().map(mark).collect()
}

#[test]
fn the_field_is_written_and_read() {
    let mut raw = Raw6::new();
    let listener = raw.listen(80);
    let answer = raw.tcp(&header(9, 80, SYN | ECE | CWR, 1000, 0), &[]);
    let iss = answer[0].clone().tcp().0.seq.0;
    assert_eq!(marks(answer), [(NOT_ECT, SYN | ACK | ECE)]);
    raw.tcp(&header(9, 80, ACK, 1001, iss + 1), &[]);
    let user = raw.node.accept(listener).expect("accepted");
    raw.node.write(user, b"data");
    assert_eq!(marks(raw.turn()), [(ECT_0, ACK | TcpFlags::PSH)]);
    let segment = PEER.segment(&NODE, &header(9, 80, ACK, 1001, iss + 5), b"marked");
    let ip = Ipv6Header {
        traffic_class: CE,
        ..Ipv6Header::new(PEER.ip, NODE.ip, ipv6::PROTOCOL_TCP)
    };
    let answer = raw.send(&PEER.ip(&NODE, ip, &segment));
    assert_eq!(marks(answer), [(NOT_ECT, ACK | ECE)]);
    assert_eq!(raw.node.tcp(user).expect("open").info().ce_received, 1);
}

#[test]
fn marks_instead_of_losses() {
    let configs = [1, 2].map(|host| {
        let mut config = node_config(host);
        config.stack.tcp.congestion = Algorithm::Dctcp;
        config.stack.tcp.ecn = Ecn::Accept;
        config.stack.ipv6.dad_transmits = 0;
        config.buffer = 1 << 20;
        config
    });
    let link = Link {
        delay: Duration::from_millis(1),
        rate: 12_500_000,
        mark_above: 30_000,
        ..Link::default()
    };
    let mut pair = Pair::new(configs, link, 1);
    pair.run_for(Duration::from_secs(3));
    let at = "[fd00::2]:80".parse().unwrap();
    let (_, listener) = pair.nodes[B].listen_at(at, false, 8).expect("a free port");
    let now = pair.now();
    let client = pair.nodes[A].connect(now, at);
    pair.run_until(|pair| {
        pair.nodes[A]
            .tcp(client)
            .is_some_and(|tcp| tcp.state().is_synchronized())
    });
    let content = pattern(1, 0, 3_000_000);
    pair.nodes[A].write(client, &content);
    pair.run_for(Duration::from_secs(1));
    let server = pair.nodes[B].accept(listener).expect("accepted");
    assert!(pair.nodes[B].received(server) == content, "bytes");
    let counters = pair.link_counters(A);
    assert!(counters.marked > 0 && counters.lost == 0, "{counters:?}");
}
