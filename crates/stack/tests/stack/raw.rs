//! One node, and a peer that a test plays by hand.

use sidecore_stack::{ListenerId, StackConfig, User};
use sidecore_tcp::Instant;
use sidecore_testkit::packet::{Packet, Station, header};
use sidecore_testkit::{Node, NodeConfig};
use sidecore_wire::{ArpOperation, TcpFlags, TcpHeader};

/// The node's side of the table.
pub(crate) const NODE: Station = Station::new(1);
/// The peer that the test plays.
pub(crate) const PEER: Station = Station::new(2);

pub(crate) const SYN: TcpFlags = TcpFlags::SYN;
pub(crate) const ACK: TcpFlags = TcpFlags::ACK;
pub(crate) const RST: TcpFlags = TcpFlags::RST;
pub(crate) const FIN: TcpFlags = TcpFlags::FIN;

/// A node and the time.
pub(crate) struct Raw {
    pub(crate) node: Node,
    pub(crate) now: Instant,
}

impl Raw {
    /// A node that knows the peer's link address.
    pub(crate) fn new() -> Self {
        Self::with(|config| config.neighbors.push((PEER.ip, PEER.mac)))
    }

    pub(crate) fn with(change: impl FnOnce(&mut StackConfig)) -> Self {
        let now = Instant::from_secs(1000);
        let mut config = NodeConfig::new(1);
        config.stack.arp.announce = false;
        change(&mut config.stack);
        Self {
            node: Node::new(&config, now),
            now,
        }
    }

    /// The peer sends a frame; what comes back in this turn.
    pub(crate) fn send(&mut self, frame: &[u8]) -> Vec<Packet> {
        self.node.receive(self.now, frame);
        self.turn()
    }

    /// The peer sends a segment.
    pub(crate) fn tcp(&mut self, header: &TcpHeader, payload: &[u8]) -> Vec<Packet> {
        self.send(&PEER.tcp(&NODE, header, payload))
    }

    pub(crate) fn turn(&mut self) -> Vec<Packet> {
        let frames = self.node.turn(self.now);
        frames.iter().map(|frame| Packet::parse(frame)).collect()
    }

    /// So much time passes; everything that is sent meanwhile.
    pub(crate) fn pass(&mut self, duration: std::time::Duration) -> Vec<Packet> {
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

    pub(crate) fn listen(&mut self, port: u16, backlog: u32) -> (ListenerId, User) {
        self.node.listen(port, backlog)
    }

    /// The peer answers for its link address.
    pub(crate) fn answer_arp(&mut self) -> Vec<Packet> {
        self.send(&PEER.arp(ArpOperation::Reply, &NODE))
    }

    /// The peer opens a connection from `port` to `to`: the sequence number of the node's SYN, and the user.
    pub(crate) fn open(&mut self, listener: User, port: u16, to: u16) -> (u32, User) {
        let syn = self.tcp(&header(port, to, SYN, 1000, 0), &[]);
        let (answer, _) = one(syn).tcp();
        assert_eq!(answer.flags, SYN | ACK);
        assert_eq!(answer.ack.0, 1001);
        let iss = answer.seq.0;
        assert_eq!(self.tcp(&header(port, to, ACK, 1001, iss + 1), &[]), []);
        let user = self.node.accept(listener).expect("accepted");
        (iss, user)
    }

    pub(crate) fn count(&self, name: &str) -> u64 {
        self.node.count(name)
    }
}

/// The only packet.
pub(crate) fn one(mut packets: Vec<Packet>) -> Packet {
    assert_eq!(packets.len(), 1, "{packets:?}");
    packets.remove(0)
}

/// Flags, sequence and acknowledgment number of the only packet.
pub(crate) fn one_tcp(packets: Vec<Packet>) -> (TcpFlags, u32, u32) {
    let (header, _) = one(packets).tcp();
    (header.flags, header.seq.0, header.ack.0)
}
