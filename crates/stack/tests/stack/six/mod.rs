//! IPv6: one node, and a peer that a test plays by hand.

mod discovery;
mod ecn;
mod groups;
mod packets;
mod routers;
mod transport;

use std::time::Duration;

use sidecore_stack::{Ipv6Config, User};
use sidecore_tcp::Instant;
use sidecore_testkit::packet::header;
use sidecore_testkit::packet6::{Content6, Packet6, Station6};
use sidecore_testkit::{Node, NodeConfig};
use sidecore_wire::{TcpFlags, TcpHeader};

use crate::raw::{ACK, SYN};

pub(crate) const NODE: Station6 = Station6::new(1);
pub(crate) const PEER: Station6 = Station6::new(2);
pub(crate) const NODE_LINK: Station6 = Station6::link_local(1);
pub(crate) const ROUTER: Station6 = Station6::link_local(9);

/// A node and the time.
pub(crate) struct Raw6 {
    pub(crate) node: Node,
    pub(crate) now: Instant,
}

/// Speaks IPv6 at `fd00::host`.
pub(crate) fn node_config(host: u8) -> NodeConfig {
    let mut config = NodeConfig::new(host);
    config.stack.arp.announce = false;
    config.stack.ipv6 = Ipv6Config {
        enabled: true,
        addresses: vec![format!("fd00::{host:x}/64").parse().unwrap()],
        ..Ipv6Config::default()
    };
    config
}

impl Raw6 {
    /// A node that has its addresses and knows the peer; what it says at its start has been said.
    pub(crate) fn new() -> Self {
        Self::with(|config| config.neighbors.push((PEER.ip, PEER.mac)))
    }

    /// The same, but for what is changed.
    pub(crate) fn with(change: impl FnOnce(&mut Ipv6Config)) -> Self {
        let mut raw = Self::fresh(|config| {
            config.dad_transmits = 0;
            config.accept_routers = false;
            change(config);
        });
        raw.pass(Duration::from_secs(2));
        raw
    }

    /// A node that has just been started.
    pub(crate) fn fresh(change: impl FnOnce(&mut Ipv6Config)) -> Self {
        let now = Instant::from_secs(1000);
        let mut config = node_config(1);
        change(&mut config.stack.ipv6);
        Self {
            node: Node::new(&config, now),
            now,
        }
    }

    /// A node of this configuration that has its addresses and knows the peer.
    pub(crate) fn of(mut config: NodeConfig) -> Self {
        let now = Instant::from_secs(1000);
        let six = &mut config.stack.ipv6;
        six.neighbors.push((PEER.ip, PEER.mac));
        six.dad_transmits = 0;
        six.accept_routers = false;
        let node = Node::new(&config, now);
        let mut raw = Self { node, now };
        raw.pass(Duration::from_secs(2));
        raw
    }

    /// A frame comes; what is sent in this turn.
    pub(crate) fn send(&mut self, frame: &[u8]) -> Vec<Packet6> {
        self.node.receive(self.now, frame);
        self.turn()
    }

    /// The peer sends a segment.
    pub(crate) fn tcp(&mut self, header: &TcpHeader, payload: &[u8]) -> Vec<Packet6> {
        self.send(&PEER.tcp(&NODE, header, payload))
    }

    pub(crate) fn turn(&mut self) -> Vec<Packet6> {
        let frames = self.node.turn(self.now);
        let parsed = frames.iter().map(|frame| Packet6::parse(frame));
        parsed.map(|packet| packet.expect("IPv6")).collect()
    }

    /// So much time passes; everything that is sent meanwhile.
    pub(crate) fn pass(&mut self, duration: Duration) -> Vec<Packet6> {
        let until = self.now + duration;
        let mut packets = self.turn();
        while let Some(next) = self.node.stack.next_timeout()
            && next <= until
        {
            self.now = self.now.max(next);
            packets.extend(self.turn());
        }
        self.now = until;
        packets.extend(self.turn());
        packets
    }

    pub(crate) fn listen(&mut self, port: u16) -> User {
        let all = format!("[::]:{port}").parse().unwrap();
        let (_, user) = self.node.listen_at(all, false, 8).expect("a free port");
        user
    }

    /// The peer opens a connection from port 9: the sequence number of the node's SYN, and the user.
    pub(crate) fn open(&mut self, listener: User, to: u16) -> (u32, User) {
        let syn = self.tcp(&header(9, to, SYN, 1000, 0), &[]);
        let (answer, _) = one(syn).tcp();
        assert_eq!((answer.flags, answer.ack.0), (SYN | ACK, 1001));
        let iss = answer.seq.0;
        assert_eq!(self.tcp(&header(9, to, ACK, 1001, iss + 1), &[]), []);
        let user = self.node.accept(listener).expect("accepted");
        (iss, user)
    }

    pub(crate) fn count(&self, name: &str) -> u64 {
        self.node.count(name)
    }
}

/// The only packet.
pub(crate) fn one(mut packets: Vec<Packet6>) -> Packet6 {
    assert_eq!(packets.len(), 1, "{packets:?}");
    packets.remove(0)
}

/// Flags of the only packet, a segment.
pub(crate) fn one_flags(packets: Vec<Packet6>) -> TcpFlags {
    one(packets).tcp().0.flags
}

/// The messages of neighbour discovery among packets.
pub(crate) fn only_ndp(packets: &[Packet6]) -> Vec<&Packet6> {
    let is_ndp = |packet: &&Packet6| matches!(packet.content, Content6::Ndp(_));
    packets.iter().filter(is_ndp).collect()
}
