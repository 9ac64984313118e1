//! What there is, for people to look at.

use core::net::{IpAddr, SocketAddr};
use core::num::NonZeroU8;

use sidecore_tcp::{Info, Instant};
use sidecore_wire::TcpInfo;

use crate::connections::{Owner, Slot, flag};
use crate::counters::Counters;
use crate::stack::Stack;
use crate::v6::HEADER_DIFFERENCE;
use crate::{ConnId, ListenerId, UdpId, User};

/// A connection, in any state.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConnectionInfo {
    /// Its present name.
    pub id: ConnId,
    /// To whom it belongs; [`DETACHED`](crate::DETACHED) if to the stack or (in SYN-RECEIVED) to a listener.
    pub user: User,
    /// Our address.
    pub local: SocketAddr,
    /// The peer's.
    pub remote: SocketAddr,
    /// What TCP says, its state included.
    pub tcp: Info,
    /// MTU of the way to the peer, in bytes, as far as it is known here.
    pub mtu: u16,
}

/// A listening socket.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ListenerInfo {
    /// Its name.
    pub id: ListenerId,
    /// To whom it belongs.
    pub user: User,
    /// Where it listens.
    pub local: SocketAddr,
    /// Connections in SYN-RECEIVED.
    pub syn_queue: u32,
    /// Connections that are open before their handshake is complete, and those that were and count for a while (RFC 7413).
    pub fast_open_queue: u32,
}

/// A UDP socket.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UdpInfo {
    /// Its name.
    pub id: UdpId,
    /// To whom it belongs.
    pub user: User,
    /// Where it is bound.
    pub local: SocketAddr,
}

impl Stack {
    /// The addresses of the link that are in use now, each with its network's prefix length; without loopback and link-local ones.
    pub fn networks(&self) -> Vec<(IpAddr, u8)> {
        let v4 = self.addresses.networks().iter();
        let v4 = v4.map(|cidr| (cidr.address().into(), cidr.prefix_len()));
        let v6 = self.six.addresses.own.iter().filter(|own| {
            self.six.addresses.is_assigned(own.ip) && !own.ip.is_unicast_link_local()
        });
        v4.chain(v6.map(|own| (own.ip.into(), own.prefix_len)))
            .collect()
    }

    /// What was counted since the start.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// All connections, in any state.
    pub fn connections(&self) -> impl Iterator<Item = ConnectionInfo> + '_ {
        self.connections
            .iter()
            .map(|(index, _)| self.describe(index))
    }

    /// One of them; `None` if the id is stale.
    pub fn connection_info(&self, id: ConnId) -> Option<ConnectionInfo> {
        Some(self.describe(self.connections.resolve(id)?))
    }

    fn describe(&self, index: u32) -> ConnectionInfo {
        let slot = &self.connections[index];
        let (local, remote) = self.connections.addresses(index);
        ConnectionInfo {
            id: self.connections.id(index),
            user: slot.user,
            local,
            remote,
            tcp: slot.tcp.full_info(&self.ranges),
            mtu: match (slot.has(flag::LOOPBACK), slot.has(flag::V6)) {
                (true, _) => self.config.loopback_mtu,
                (_, true) => self.six.mtu,
                (..) => self.config.mtu,
            },
        }
    }

    /// What Linux would say of a connection (`TCP_INFO`); `None` if the id is stale.
    pub fn tcp_info(&self, id: ConnId, now: Instant) -> Option<TcpInfo> {
        let index = self.connections.resolve(id)?;
        let slot = &self.connections[index];
        let mut info = slot.tcp.tcp_info(now, &self.ranges);
        if slot.has(flag::V6) {
            info.pmtu += u32::from(HEADER_DIFFERENCE);
        }
        Some(info)
    }

    /// A connection's traffic class (the bits of DSCP) and hop limit (`None`: the stack's); `None` if the id is stale.
    pub fn marking(&self, id: ConnId) -> Option<(u8, Option<NonZeroU8>)> {
        let index = self.connections.resolve(id)?;
        let marking = self.connections[index].marking;
        Some((marking.class, marking.hop_limit))
    }

    /// Time to live, or with `v6` the hop limit, of what sends without one of its own.
    pub fn hop_limit(&self, v6: bool) -> u8 {
        if v6 {
            self.six.hop_limit
        } else {
            sidecore_wire::ipv4::DEFAULT_TTL
        }
    }

    /// How many connections there are, in any state.
    pub fn connection_count(&self) -> usize {
        self.connections.len()
    }

    /// All listening sockets.
    pub fn listeners(&self) -> impl Iterator<Item = ListenerInfo> + '_ {
        self.listeners.iter().map(|(id, listener)| ListenerInfo {
            id,
            user: listener.user,
            local: listener.local,
            syn_queue: listener.embryonic(),
            fast_open_queue: listener.pending.len() as u32,
        })
    }

    /// All UDP sockets.
    pub fn udp_sockets(&self) -> impl Iterator<Item = UdpInfo> + '_ {
        self.udp.iter().map(|(id, socket)| UdpInfo {
            id,
            user: socket.user,
            local: socket.local,
        })
    }

    /// Whether all tables agree with each other. Slow; for tests.
    pub fn is_consistent(&self) -> bool {
        let queued = |loopback| {
            let is_queued =
                |slot: &Slot| slot.has(flag::QUEUED) && slot.has(flag::LOOPBACK) == loopback;
            self.connections
                .iter()
                .filter(|(_, slot)| is_queued(slot))
                .count()
        };
        let embryonic = self
            .connections
            .iter()
            .filter(|(_, slot)| slot.owner == Owner::Listener);
        self.connections.is_consistent()
            && self.link_queue.len() as usize == queued(false)
            && self.loopback_queue.len() as usize == queued(true)
            && self
                .listeners()
                .map(|l| l.syn_queue as usize)
                .sum::<usize>()
                == embryonic.count()
    }

    /// When [`handle_timers`](Self::handle_timers) should be called, at the latest; perhaps earlier than it has something to
    /// do. `None`: nothing is timed.
    pub fn next_timeout(&self) -> Option<Instant> {
        let others = [
            self.neighbors.next_timeout(),
            self.reassembly.next_timeout(),
            Some(self.six.next).filter(|next| *next < Instant::NEVER),
            self.dhcp.as_ref().map(|dhcp| dhcp.next),
            Some(self.groups.next).filter(|next| *next < Instant::NEVER),
        ];
        let others = others.into_iter().flatten();
        others.chain(self.connections.next_timer()).min()
    }
}
