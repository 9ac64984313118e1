//! Frames of any bytes into a stack that listens, has connections in several states and a UDP socket, with time passing
//! between them: no panic, and all tables agree at the end.
//!
//! The input is a list of entries: one byte that says what follows, and what follows. Entries that carry frames put a
//! good Ethernet and IP header before the bytes, or not; the device vouches for checksums, else little would get through.
#![no_main]

#[path = "../shared/entries.rs"]
mod entries;

use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use sidecore_stack::RxChecksum;
use sidecore_tcp::Instant;
use sidecore_testkit::packet::{Packet, Station, header};
use sidecore_testkit::{Node, NodeConfig, pattern};
use sidecore_wire::{Ipv4Header, TcpFlags};

const NODE: Station = Station::new(1);
const PEER: Station = Station::new(2);
const PROTOCOLS: [u8; 4] = [1, 6, 17, 89];

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
        config.stack.neighbors.push((PEER.ip, PEER.mac));
        config.stack.max_connections = 16;
        config.stack.ranges = 32;
        config.stack.arp.capacity = 16;
        config.stack.control_queue = 16;
        config.stack.reassembly.datagrams = 2;
        let mut world = Self {
            node: Node::new(&config, Instant::from_secs(1000)),
            now: Instant::from_secs(1000),
            iss: 0,
        };
        let (_, listener) = world.node.listen(80, 4);
        let dns = "0.0.0.0:53".parse().expect("an address");
        world.node.udp_bind(dns);
        world.node.turn(world.now);
        for port in 1..=3 {
            let syn = PEER.tcp(&NODE, &header(port, 80, TcpFlags::SYN, 1000, 0), &[]);
            world.node.receive(world.now, &syn);
            let answer = world.node.turn(world.now).remove(0);
            world.iss = Packet::parse(&answer).tcp().0.seq.0;
            let ack = header(port, 80, TcpFlags::ACK, 1001, world.iss.wrapping_add(1));
            world.node.receive(world.now, &PEER.tcp(&NODE, &ack, &[]));
            let user = world.node.accept(listener).expect("accepted");
            world.node.write(user, &pattern(0, 0, 3000));
            if port == 2 {
                world.node.close(user);
            }
            world.node.turn(world.now);
        }
        world.node.forgive();
        world.node.checksum = RxChecksum::Valid;
        world
    }

    fn apply(&mut self, kind: u8, entry: &[u8]) {
        match kind % 8 {
            0 => self.node.receive(self.now, entry),
            1 => {
                let protocol = PROTOCOLS[usize::from(kind >> 3) % PROTOCOLS.len()];
                let ip = Ipv4Header::new(PEER.ip, NODE.ip, protocol);
                self.node.receive(self.now, &PEER.ip(&NODE, ip, entry));
            }
            2 => self
                .node
                .receive(self.now, &PEER.ethernet(NODE.mac, 0x0806, entry)),
            3 => {
                let ip = Ipv4Header {
                    ident: u16::from(kind >> 6),
                    dont_fragment: false,
                    more_fragments: kind & 32 != 0,
                    fragment_offset: u16::from(kind >> 3 & 3) * 64,
                    ..Ipv4Header::new(PEER.ip, NODE.ip, 17)
                };
                self.node.receive(self.now, &PEER.ip(&NODE, ip, entry));
            }
            4 | 5 => self.segment(kind, entry),
            6 => self.pass(Duration::from_millis(u64::from(kind >> 3) * 100)),
            _ => self.node.host.no_room = u32::from(kind >> 3) * 30,
        }
        for frame in self.node.turn(self.now) {
            // What goes out is well-formed whatever came in.
            Packet::parse(&frame);
        }
        self.node.forgive();
    }

    /// A segment near a connection's windows.
    fn segment(&mut self, kind: u8, entry: &[u8]) {
        let Some((h, payload)) = entries::segment(entry, 6, self.iss) else {
            return;
        };
        let payload = if kind & 8 != 0 { payload } else { &[] };
        self.node.receive(self.now, &PEER.tcp(&NODE, &h, payload));
    }

    fn pass(&mut self, duration: Duration) {
        entries::pass(&mut self.node, &mut self.now, duration);
    }
}
