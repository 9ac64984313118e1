//! IPv6 packets of any bytes into a stack that listens, has a connection and a UDP socket, asks for routers and neighbours, with time passing
//! between them: no panic, what goes out is well-formed, all tables agree at the end.
//!
//! The input is a list of entries: one byte that says what follows, one of its length, and what follows. Checksums are put right, and the
//! hop limit is the one that neighbour discovery asks for, else little would get through.
#![no_main]

#[path = "../shared/entries.rs"]
mod entries;

use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use sidecore_stack::{Ipv6Config, RxChecksum};
use sidecore_tcp::Instant;
use sidecore_testkit::packet::header;
use sidecore_testkit::packet6::{Packet6, Station6};
use sidecore_testkit::{Node, NodeConfig, pattern};
use sidecore_wire::{Ipv6Header, TcpFlags, checksum};

const NODE: Station6 = Station6::new(1);
const NODE_LINK: Station6 = Station6::link_local(1);
const PEER: Station6 = Station6::new(2);
const ROUTER: Station6 = Station6::link_local(9);
const ICMPV6: u8 = 58;
/// Hop-by-hop options, routing, fragment, destination options, none, authentication, TCP, UDP.
const NEXT_HEADERS: [u8; 8] = [0, 43, 44, 60, 59, 51, 6, 17];

struct World {
    node: Node,
    now: Instant,
    iss: u32,
}

fuzz_target!(|input: &[u8]| {
    let mut world = World::new();
    entries::each(input, |kind, entry| world.apply(kind, entry));
    world.pass(Duration::from_secs(4000));
    assert!(world.node.stack.is_consistent());
});

impl World {
    fn new() -> Self {
        let mut config = NodeConfig::new(1);
        config.stack.arp.announce = false;
        config.stack.max_connections = 16;
        config.stack.ranges = 32;
        config.stack.control_queue = 16;
        config.stack.ipv6 = Ipv6Config {
            enabled: true,
            addresses: vec!["fd00::1/64".parse().expect("an address")],
            dad_transmits: 0,
            max_addresses: 6,
            max_prefixes: 3,
            max_routers: 2,
            max_redirects: 3,
            ..Ipv6Config::default()
        };
        config.stack.ipv6.neighbors.push((PEER.ip, PEER.mac));
        config.stack.ipv6.neighbor.capacity = 16;
        config.stack.ipv6.reassembly.datagrams = 2;
        let now = Instant::from_secs(1000);
        let mut world = Self {
            node: Node::new(&config, now),
            now,
            iss: 0,
        };
        let all = "[::]:80".parse().expect("an address");
        let listened = world.node.listen_at(all, false, 4);
        let (_, listener) = listened.expect("a free port");
        world.node.udp_bind("[::]:53".parse().expect("an address"));
        world.pass(Duration::from_secs(2));
        let syn = header(1, 80, TcpFlags::SYN, 1000, 0);
        world.node.receive(world.now, &PEER.tcp(&NODE, &syn, &[]));
        let answers = world.node.turn(world.now);
        let mut answers = answers.iter().filter_map(|frame| Packet6::parse(frame));
        world.iss = answers.next().expect("a SYN-ACK").tcp().0.seq.0;
        let ack = header(1, 80, TcpFlags::ACK, 1001, world.iss.wrapping_add(1));
        world.node.receive(world.now, &PEER.tcp(&NODE, &ack, &[]));
        let user = world.node.accept(listener).expect("accepted");
        world.node.write(user, &pattern(0, 0, 3000));
        world.node.turn(world.now);
        world.node.forgive();
        world.node.checksum = RxChecksum::Valid;
        world
    }

    fn apply(&mut self, kind: u8, entry: &[u8]) {
        let to = if kind & 128 == 0 { &NODE } else { &NODE_LINK };
        match kind % 7 {
            0 => {
                let next = NEXT_HEADERS[usize::from(kind >> 3) % NEXT_HEADERS.len()];
                self.node.receive(self.now, &PEER.packet(to, next, entry));
            }
            1 | 2 => self.message(&ROUTER, to, entry),
            3 => self.message(&PEER, to, entry),
            4 => self.segment(entry),
            5 => self.pass(Duration::from_millis(u64::from(kind >> 3) * 100)),
            _ => {
                // The packet whole, but for version and addresses.
                let mut frame = PEER.packet(to, ICMPV6, entry);
                let len = frame.len().min(14 + 8);
                let given = entry.len().min(len - 15);
                frame[15..15 + given].copy_from_slice(&entry[..given]);
                self.node.receive(self.now, &frame);
            }
        }
        for frame in self.node.turn(self.now) {
            // What goes out is well-formed whatever came in.
            Packet6::parse(&frame);
        }
        self.node.forgive();
    }

    /// An ICMPv6 message, with its checksum and the hop limit of neighbour discovery.
    fn message(&mut self, from: &Station6, to: &Station6, entry: &[u8]) {
        let mut message = entry.to_vec();
        message.resize(entry.len().max(8), 0);
        message[2..4].fill(0);
        let pseudo = checksum::pseudo_v6(from.ip, to.ip, ICMPV6, message.len() as u32);
        let sum = checksum::complement(checksum::sum(&message, pseudo));
        message[2..4].copy_from_slice(&sum.to_be_bytes());
        let ip = Ipv6Header {
            hop_limit: 255,
            ..Ipv6Header::new(from.ip, to.ip, ICMPV6)
        };
        self.node.receive(self.now, &from.ip(to, ip, &message));
    }

    /// A segment near the connection's windows.
    fn segment(&mut self, entry: &[u8]) {
        let Some((h, payload)) = entries::segment(entry, 4, self.iss) else {
            return;
        };
        self.node.receive(self.now, &PEER.tcp(&NODE, &h, payload));
    }

    fn pass(&mut self, duration: Duration) {
        entries::pass(&mut self.node, &mut self.now, duration);
    }
}
