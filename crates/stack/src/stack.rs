//! The stack: what it holds, and its turn.

use core::net::Ipv4Addr;

use sidecore_tcp::{Instant, RangePool};

use crate::address::Addresses;
use crate::arp::cache::NeighborCache;
use crate::challenge::ChallengeBudget;
use crate::config::StackConfig;
use crate::connections::{Connections, Queue, flag};
use crate::control::{Control, ControlQueue};
use crate::counters::Counters;
use crate::dhcp;
use crate::fast_open;
use crate::groups::Groups;
use crate::hash::Keys;
use crate::incarnation::{Offset, Predecessor};
use crate::limiter::Limiter;
use crate::list::List;
use crate::listen::Listeners;
use crate::path_mtu::PathMtus;
use crate::ports::EphemeralPorts;
use crate::reassembly::{Key4, Reassembly};
use crate::syn_cookie::code::Codec;
use crate::udp::UdpSockets;
use crate::v6::Six;

/// The network stack of one engine thread. See the crate's documentation for the order of calls.
#[derive(Debug)]
pub struct Stack {
    pub(crate) connections: Connections,
    pub(crate) ranges: RangePool,
    /// Connections that may have something to send over the link, and over the loopback.
    pub(crate) link_queue: List<Queue>,
    pub(crate) loopback_queue: List<Queue>,
    pub(crate) counters: Counters,
    pub(crate) addresses: Addresses,
    pub(crate) neighbors: NeighborCache,
    pub(crate) control: ControlQueue,
    pub(crate) keys: Keys,
    pub(crate) listeners: Listeners,
    pub(crate) cookies: Codec,
    pub(crate) fast_open: fast_open::Cookies,
    pub(crate) fast_open_cache: fast_open::Cache,
    pub(crate) udp: UdpSockets,
    pub(crate) reassembly: Reassembly<Key4>,
    /// IPv4's groups.
    pub(crate) groups: Groups<Ipv4Addr>,
    pub(crate) six: Six,
    pub(crate) dhcp: Option<dhcp::Client>,
    pub(crate) ephemeral: EphemeralPorts,
    pub(crate) paths: PathMtus,
    /// The connection in TIME-WAIT that gave way last.
    pub(crate) predecessor: Option<Predecessor>,
    /// That of the last connection that began.
    pub(crate) last_offset: Option<Offset>,
    pub(crate) echo_limiter: Limiter,
    pub(crate) error_limiter: Limiter,
    pub(crate) challenges: ChallengeBudget,
    /// Identification of packets that are sent in fragments.
    pub(crate) ip_ident: u16,
    /// When the last turn ended.
    pub(crate) turn: Instant,
    pub(crate) config: StackConfig,
}

impl Stack {
    /// A stack with these addresses and limits. Its gratuitous ARP goes out with the first [`transmit`](Self::transmit).
    ///
    /// Memory for all tables is reserved here; the larger ones are touched only as they are used.
    pub fn new(config: StackConfig, now: Instant) -> Self {
        let keys = Keys::new(&config.seed);
        let mut neighbors = NeighborCache::new(config.arp.clone(), keys.neighbors);
        for (ip, mac) in &config.neighbors {
            neighbors.add_permanent(*ip, *mac);
        }
        let mut stack = Self {
            connections: Connections::new(config.max_connections, keys.flow, now),
            ranges: RangePool::new(config.ranges),
            link_queue: List::new(),
            loopback_queue: List::new(),
            counters: Counters::default(),
            addresses: Addresses::new(config.addresses.clone(), config.gateway),
            neighbors,
            control: ControlQueue::new(config.control_queue),
            listeners: Listeners::new(config.max_listeners),
            cookies: keys.cookies(),
            fast_open: fast_open::Cookies::new(keys.fast_open, config.fast_open_key_lifetime),
            fast_open_cache: fast_open::Cache::new(config.fast_open_servers),
            udp: UdpSockets::new(config.max_udp_sockets),
            reassembly: Reassembly::new(config.reassembly.clone()),
            groups: Groups::new(&config.groups, keys.neighbors),
            six: Six::new(&config.ipv6, &config.groups, config.mtu, &keys, now),
            dhcp: (config.dhcp).then(|| dhcp::Client::new(config.mac, keys.dhcp, now)),
            ephemeral: EphemeralPorts::new(config.ephemeral_ports.clone(), keys.ports),
            paths: PathMtus::new(config.path_mtus, keys.ports),
            predecessor: None,
            last_offset: None,
            echo_limiter: Limiter::new(config.echo_rate, now),
            error_limiter: Limiter::new(config.icmp_error_rate, now),
            challenges: ChallengeBudget::new(config.challenge_acks, keys.challenges),
            ip_ident: 0,
            turn: now,
            keys,
            config,
        };
        if stack.config.arp.announce {
            stack.announce();
        }
        stack.start6(now);
        stack
    }

    /// What it was set up with.
    pub fn config(&self) -> &StackConfig {
        &self.config
    }

    /// Other defaults for connections that begin from now on; those that exist keep theirs.
    pub fn set_tcp_defaults(&mut self, config: sidecore_tcp::Config) {
        self.config.tcp = config;
    }

    /// Whether something waits for [`transmit`](Self::transmit): to be asked before the caller sleeps.
    #[inline]
    pub fn has_work(&self) -> bool {
        !self.link_queue.is_empty() || !self.loopback_queue.is_empty() || !self.control.is_empty()
    }

    /// The connection may have something to send, and its timer may have changed: [`transmit`](Self::transmit) looks at it.
    #[inline]
    pub(crate) fn touch(&mut self, index: u32) {
        let slot = &mut self.connections[index];
        if slot.has(flag::QUEUED) {
            return;
        }
        if slot.has(flag::WAITING) {
            // It cannot send; its timers run.
            self.connections.arm(index);
            return;
        }
        slot.flags |= flag::QUEUED;
        let loopback = slot.has(flag::LOOPBACK);
        let queue = if loopback {
            &mut self.loopback_queue
        } else {
            &mut self.link_queue
        };
        queue.push_back(self.connections.slots(), index);
    }

    /// As [`touch`](Self::touch), when the connection may well have nothing to send: then only its timer is seen to. Not after
    /// a change of its state.
    #[inline]
    pub(crate) fn touch_if_due(&mut self, index: u32) {
        if self.connections[index].tcp.has_nothing_to_send() {
            self.connections.arm(index);
        } else {
            self.touch(index);
        }
    }

    /// Takes a connection out of the lists that wait to send.
    fn untouch(&mut self, index: u32) {
        let slot = &mut self.connections[index];
        let (flags, place) = (slot.flags, slot.neighbor);
        slot.flags &= !(flag::QUEUED | flag::WAITING);
        let queue = if flags & (flag::WAITING | flag::V6) == flag::WAITING | flag::V6 {
            &mut self.six.neighbors.entry_mut(place).waiting
        } else if flags & flag::WAITING != 0 {
            &mut self.neighbors.entry_mut(place).waiting
        } else if flags & flag::QUEUED == 0 {
            return;
        } else if flags & flag::LOOPBACK != 0 {
            &mut self.loopback_queue
        } else {
            &mut self.link_queue
        };
        queue.remove(self.connections.slots(), index);
    }

    /// Forgets a connection.
    pub(crate) fn free(&mut self, index: u32) {
        self.untouch(index);
        self.connections.free(index, &mut self.ranges);
    }

    /// Makes a place for a new connection; false if there is none.
    pub(crate) fn make_room(&mut self) -> bool {
        if !self.connections.is_full() {
            return true;
        }
        let Some(oldest) = self.connections.oldest_time_wait() else {
            self.counters.connections_full += 1;
            return false;
        };
        self.counters.time_wait_recycled += 1;
        self.free(oldest);
        true
    }

    /// Queues a packet that belongs to no connection.
    pub(crate) fn push_control(&mut self, packet: Control) -> bool {
        self.control.push(packet)
    }
}
