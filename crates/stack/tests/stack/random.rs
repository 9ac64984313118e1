//! Frames that no peer should send: nothing may panic, and all tables stay consistent.

use std::time::Duration;

use proptest::prelude::*;
use sidecore_testkit::packet::header;
use sidecore_testkit::{Rng, pattern, property_config};
use sidecore_wire::{ArpOperation, Icmpv4, Ipv4Header, SackBlock, SeqNumber, TcpFlags, Timestamps};

use crate::raw::*;

/// A node in the midst of everything: listeners, connections in several states, a UDP socket.
fn busy() -> (Raw, Vec<(u16, u32)>) {
    let mut raw = Raw::with(|config| {
        config.neighbors.push((PEER.ip, PEER.mac));
        config.max_connections = 24;
        config.ranges = 64;
        config.control_queue = 32;
        config.reassembly.datagrams = 2;
    });
    let (_, listener) = raw.listen(80, 6);
    raw.node.udp_bind("0.0.0.0:53".parse().unwrap());
    let mut open = Vec::new();
    for port in 1..=5 {
        let (iss, user) = raw.open(listener, port, 80);
        raw.node.write(user, &pattern(0, 0, 5000));
        match port {
            2 => raw.node.shutdown(user),
            3 => raw.node.close(user),
            _ => {}
        }
        raw.turn();
        open.push((port, iss));
    }
    raw.node.connect(raw.now, "10.0.0.2:90".parse().unwrap());
    raw.tcp(&header(6, 80, SYN, 1000, 0), &[]);
    raw.turn();
    (raw, open)
}

fn flags() -> impl Strategy<Value = TcpFlags> {
    prop_oneof![
        3 => Just(TcpFlags::ACK),
        1 => Just(TcpFlags::SYN),
        1 => Just(TcpFlags::RST),
        1 => Just(TcpFlags::FIN | TcpFlags::ACK),
        2 => (0..512u16).prop_map(TcpFlags::from_bits),
    ]
}

#[derive(Clone, Debug)]
struct Segment {
    connection: usize,
    flags: TcpFlags,
    seq: i32,
    ack: i32,
    window: u16,
    len: usize,
    options: u8,
    wait: u16,
}

fn segment() -> impl Strategy<Value = Segment> {
    let near = || prop_oneof![4 => -20..6000i32, 1 => any::<i32>()];
    let lens = prop_oneof![2 => Just(0usize), 3 => 1..1400usize];
    (
        0..8usize,
        flags(),
        near(),
        near(),
        any::<u16>(),
        lens,
        any::<u8>(),
        0..400u16,
    )
        .prop_map(
            |(connection, flags, seq, ack, window, len, options, wait)| Segment {
                connection,
                flags,
                seq,
                ack,
                window,
                len,
                options,
                wait,
            },
        )
}

proptest! {
    #![proptest_config(property_config(150))]

    /// Well-formed segments with near and far sequence numbers, at all connections and at none.
    #[test]
    fn any_segment_at_any_time(segments in prop::collection::vec(segment(), 1..80), no_room in 0..400u32) {
        let (mut raw, open) = busy();
        raw.node.host.no_room = no_room;
        // Whoever answers at random may also acknowledge at random: the host's checks stay on.
        for s in segments {
            let (port, iss) = open.get(s.connection).copied().unwrap_or((s.connection as u16 + 1, 0));
            let seq = 1001u32.wrapping_add_signed(s.seq);
            let ack = (iss + 1).wrapping_add_signed(s.ack);
            let mut h = header(port, 80, s.flags, seq, ack);
            h.window.0 = s.window;
            if s.options & 1 != 0 {
                h.options.timestamps = Some(Timestamps { value: seq, echo: ack });
            }
            if s.options & 2 != 0 {
                h.options.mss = Some(u16::from(s.options) * 3);
            }
            if s.options & 4 != 0 {
                let start = SeqNumber(ack);
                h.options.sack.push(SackBlock { start, end: start.add(u32::from(s.window)) });
            }
            // The same bytes for the same places, else a host would rightly complain.
            let payload = sequence_pattern(seq.wrapping_sub(1001), s.len);
            raw.tcp(&h, &payload);
            if s.wait < 100 {
                raw.pass(Duration::from_millis(u64::from(s.wait) * 50));
            }
        }
        raw.pass(Duration::from_secs(4000));
        prop_assert!(raw.node.stack.is_consistent());
    }

    /// Good frames with bits flipped, cut, and pieced together anew.
    #[test]
    fn damaged_frames(seed in any::<u64>()) {
        let (mut raw, open) = busy();
        // Checksums would keep most of the damage out.
        raw.node.checksum = sidecore_stack::RxChecksum::Valid;
        let mut rng = Rng::new(seed);
        for _ in 0..60 {
            let mut frame = template(&mut rng, &open);
            for _ in 0..rng.below(4) {
                let bit = rng.below(frame.len() as u64 * 8) as usize;
                frame[bit / 8] ^= 1 << (bit % 8);
            }
            if rng.chance(200) {
                frame.truncate(rng.below(frame.len() as u64 + 1) as usize);
            }
            // Flipped payload bits make other bytes of the same place.
            raw.node.forgive();
            raw.node.receive(raw.now, &frame);
            raw.node.turn(raw.now);
            raw.now += rng.duration(Duration::from_millis(300));
        }
        prop_assert!(raw.node.stack.is_consistent());
    }

    #[test]
    fn arbitrary_bytes(frames in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..200), 0..40)) {
        let (mut raw, _) = busy();
        for frame in frames {
            raw.node.receive(raw.now, &frame);
            let mut addressed = NODE.mac.0.to_vec();
            addressed.extend_from_slice(&PEER.mac.0);
            addressed.extend_from_slice(&[8, 0]);
            addressed.extend_from_slice(&frame);
            raw.node.receive(raw.now, &addressed);
        }
        raw.turn();
        prop_assert!(raw.node.stack.is_consistent());
    }

    /// What a loopback frame's head may lack, and what lies in it, is our own affair; but it must not panic either.
    #[test]
    fn arbitrary_loopback_heads(bytes in prop::collection::vec(any::<u8>(), 0..100), len in 0..70000usize) {
        let (mut raw, open) = busy();
        let meta = sidecore_stack::FrameMeta { len, loopback: true, ..Default::default() };
        raw.node.stack.handle_frame(raw.now, &meta, &bytes, &mut raw.node.host);
        let frame = PEER.tcp(&NODE, &header(open[0].0, 80, ACK, 1001, open[0].1 + 1), &[]);
        raw.node.stack.handle_frame(raw.now, &meta, &frame[14..], &mut raw.node.host);
        prop_assert!(raw.node.stack.is_consistent());
    }
}

/// The bytes at a place in the sequence space, which is a circle.
fn sequence_pattern(at: u32, len: usize) -> Vec<u8> {
    let before_wrap = len.min((1usize << 32) - at as usize);
    let mut bytes = pattern(9, u64::from(at), before_wrap);
    bytes.extend(pattern(9, 0, len - before_wrap));
    bytes
}

/// A good frame of some kind.
fn template(rng: &mut Rng, open: &[(u16, u32)]) -> Vec<u8> {
    let (port, iss) = open[rng.below(open.len() as u64) as usize];
    let data = pattern(9, 0, rng.below(600) as usize);
    let ack = header(port, 80, ACK, 1001, iss + 1);
    match rng.below(8) {
        0 => PEER.arp(ArpOperation::Request, &NODE),
        1 => PEER.arp(ArpOperation::Reply, &NODE),
        2 => PEER.udp(&NODE, 1000, 53, &data),
        3 => PEER.icmp(&NODE, &Icmpv4::EchoRequest { ident: 1, seq: 1 }, &data),
        4 => {
            let quoted = NODE.tcp(&PEER, &header(80, port, ACK, iss + 1, 1001), &data);
            let message = Icmpv4::DestinationUnreachable {
                code: rng.below(16) as u8,
                next_hop_mtu: rng.bits() as u16,
            };
            PEER.icmp(&NODE, &message, &quoted[14..])
        }
        5 => {
            let ip = Ipv4Header {
                ident: rng.below(3) as u16,
                dont_fragment: false,
                more_fragments: rng.chance(700),
                fragment_offset: (rng.below(10) * 8) as u16,
                ..Ipv4Header::new(PEER.ip, NODE.ip, 17)
            };
            PEER.ip(&NODE, ip, &pattern(1, 0, (rng.below(10) * 8) as usize))
        }
        6 => PEER.tcp(
            &NODE,
            &header(rng.below(200) as u16, 80, SYN, rng.bits() as u32, 0),
            &[],
        ),
        _ => PEER.tcp(&NODE, &ack, &data),
    }
}
