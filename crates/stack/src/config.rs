//! What a stack, and a socket of it, is set up with.

use core::net::Ipv4Addr;
use core::num::NonZeroU8;
use core::ops::RangeInclusive;
use core::time::Duration;

use sidecore_tcp::{Algorithm, Ecn, Keepalive};
use sidecore_wire::MacAddress;

use crate::address::Ipv4Cidr;
use crate::groups::GroupConfig;
use crate::limiter::Rate;
use crate::v6::Ipv6Config;

/// What a stack is set up with. Every table has its limit here; memory for it is reserved at the start and touched when
/// it is used.
#[derive(Clone, Debug)]
pub struct StackConfig {
    /// The link address.
    pub mac: MacAddress,
    /// The IPv4 addresses and their networks. 127/8 is always ours too, within the stack.
    pub addresses: Vec<Ipv4Cidr>,
    /// The router for everything outside these networks.
    pub gateway: Option<Ipv4Addr>,
    /// Whether another address, and a router if none is configured, are asked for by DHCP (RFC 2131).
    pub dhcp: bool,
    /// Link addresses that are known and not asked for (of the gateway, say).
    pub neighbors: Vec<(Ipv4Addr, MacAddress)>,
    /// IP MTU of the link, in bytes; IPv6 asks for 1280 at least.
    pub mtu: u16,
    /// MTU of the loopback, in bytes.
    pub loopback_mtu: u16,
    /// Connections at a time, in any state. If a new one finds no place, the oldest in TIME-WAIT gives way; if there
    /// is none, a SYN is dropped and a `connect` is refused.
    pub max_connections: usize,
    /// Listening sockets at a time.
    pub max_listeners: usize,
    /// UDP sockets at a time.
    pub max_udp_sockets: usize,
    /// Connections in SYN-RECEIVED at a time, all listeners together. Beyond it, and beyond a listener's backlog, there are
    /// cookies; without them, the listener's oldest such connection gives way to a new SYN.
    pub syn_backlog_total: u32,
    /// When SYNs are answered with cookies.
    pub syn_cookies: SynCookies,
    /// Servers of which clients remember a Fast Open cookie, or that there is no use in trying (RFC 7413 section 4.1.3). Beyond it the one
    /// used longest ago is forgotten.
    pub fast_open_servers: usize,
    /// After this time the key of the Fast Open cookies is replaced; a cookie is good for once to twice that.
    pub fast_open_key_lifetime: Duration,
    /// Link address resolution.
    pub arp: ArpConfig,
    /// Reassembly of IP fragments.
    pub reassembly: ReassemblyConfig,
    /// How many echo requests are answered.
    pub echo_rate: Rate,
    /// How many ICMP errors are sent (RFC 1812 section 4.3.2.8).
    pub icmp_error_rate: Rate,
    /// Destinations whose path MTU is remembered (RFC 1191, RFC 8201), for ten minutes; 0: none.
    pub path_mtus: usize,
    /// Challenge ACKs a second that all connections send together, on average (RFC 5961 section 7; each has a limit of its own, too). It
    /// should be far more than one connection sends.
    pub challenge_acks: u32,
    /// Resets, ARP packets and ICMP messages that may wait for the end of a turn; what comes on top is dropped and
    /// counted.
    pub control_queue: usize,
    /// Defaults of connections. The MSS is derived from the MTU, the timestamp offset from the seed: what this says of
    /// them does not matter.
    pub tcp: sidecore_tcp::Config,
    /// Local ports of active opens that name none (RFC 6335: 49152 to 65535; Linux: 32768 to 60999).
    pub ephemeral_ports: RangeInclusive<u16>,
    /// Where all keys come from: flow hash, initial sequence numbers, port choice. Must be secret and random, but in tests.
    pub seed: [u8; 32],
    /// Sequence ranges (out of order, and selectively acknowledged) of all connections together.
    pub ranges: usize,
    /// Multicast groups of applications.
    pub groups: GroupConfig,
    /// IPv6; off unless it says otherwise.
    pub ipv6: Ipv6Config,
}

impl Default for StackConfig {
    fn default() -> Self {
        Self {
            mac: MacAddress([0x02, 0, 0, 0, 0, 1]),
            addresses: Vec::new(),
            gateway: None,
            dhcp: false,
            neighbors: Vec::new(),
            mtu: 1500,
            loopback_mtu: u16::MAX,
            max_connections: 65536,
            max_listeners: 1024,
            max_udp_sockets: 1024,
            syn_backlog_total: 16384,
            syn_cookies: SynCookies::default(),
            fast_open_servers: 256,
            fast_open_key_lifetime: Duration::from_secs(24 * 3600),
            arp: ArpConfig::default(),
            reassembly: ReassemblyConfig::default(),
            echo_rate: Rate {
                per_second: 10_000,
                burst: 200,
            },
            icmp_error_rate: Rate {
                per_second: 1000,
                burst: 50,
            },
            path_mtus: 1024,
            challenge_acks: 10_000,
            control_queue: 512,
            tcp: sidecore_tcp::Config::default(),
            ephemeral_ports: 32768..=60999,
            seed: [0; 32],
            ranges: 65536,
            groups: GroupConfig::default(),
            ipv6: Ipv6Config::default(),
        }
    }
}

/// When SYNs are answered with cookies (RFC 4987 section 3.6).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
pub enum SynCookies {
    /// Never.
    Off,
    /// When the SYN queue is full.
    #[default]
    OnOverflow,
    /// Always: nothing is ever kept of a SYN. A SYN-ACK that is lost is sent again only when the SYN is.
    Always,
}

/// Link address resolution (RFC 826, RFC 1122 section 2.3.2).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ArpConfig {
    /// Neighbours that are remembered, at most; rounded up to a power of two, at most 32768.
    pub capacity: usize,
    /// Neighbours that are being asked for at a time.
    pub max_pending: usize,
    /// How long an answer holds. After that a neighbour that is used is asked again, at its known address first.
    pub reachable: Duration,
    /// Time between requests.
    pub retry: Duration,
    /// Requests without an answer after which a neighbour is given up.
    pub tries: u8,
    /// How long a neighbour that was given up counts as unreachable before it is asked for again.
    pub unreachable: Duration,
    /// Whether the stack announces its own addresses at the start (gratuitous ARP, RFC 5227 section 2.3).
    pub announce: bool,
}

impl Default for ArpConfig {
    fn default() -> Self {
        Self {
            capacity: 1024,
            max_pending: 256,
            reachable: Duration::from_secs(60),
            retry: Duration::from_secs(1),
            tries: 3,
            unreachable: Duration::from_secs(1),
            announce: true,
        }
    }
}

/// Reassembly of IP fragments (RFC 791, RFC 1122 section 3.3.2).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReassemblyConfig {
    /// Datagrams that may be incomplete at a time, 64 KiB each; 0: fragments are dropped. When all are in use, the oldest
    /// gives way.
    pub datagrams: usize,
    /// How long a datagram may stay incomplete.
    pub timeout: Duration,
}

impl Default for ReassemblyConfig {
    fn default() -> Self {
        Self {
            datagrams: 32,
            timeout: Duration::from_secs(30),
        }
    }
}

/// What a UDP socket does about the MTU of a path (IP_MTU_DISCOVER). Datagrams are never cut here.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
pub enum MtuDiscovery {
    /// Routers may cut its datagrams (no DF), and what is known of the path does not count. Over IPv6 nobody cuts, and this is
    /// [`Path`](Self::Path).
    Off,
    /// Nobody may cut them, and what is larger than what is known to pass is refused.
    #[default]
    Path,
    /// Nobody may cut them, and what is known of the path does not count: the sender probes it itself (RFC 4821).
    Probe,
}

/// What a socket is opened with; `None` is the stack's default.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SocketOptions {
    /// Nagle's algorithm is off.
    pub no_delay: Option<bool>,
    /// Keepalive probes.
    pub keepalive: Option<Keepalive>,
    /// How long sent data may stay unacknowledged (RFC 5482).
    pub user_timeout: Option<Duration>,
    /// The congestion controller.
    pub congestion: Option<Algorithm>,
    /// Whether ECN is used.
    pub ecn: Option<Ecn>,
    /// The largest rate of sending, in bytes a second, where the stack's is not less (SO_MAX_PACING_RATE).
    pub max_pacing_rate: Option<u64>,
    /// The largest segment to announce and send, in bytes; what the MTU allows is the upper bound in any case.
    pub mss: Option<u16>,
    /// Bytes of receive buffer with which a connection begins: what its SYN advertises.
    pub receive_window: u32,
    /// A listener at an IPv6 address takes nothing of IPv4 (IPV6_V6ONLY). Otherwise one at `::` takes both.
    pub v6_only: bool,
    /// How often a SYN or SYN-ACK is sent again (TCP_SYNCNT).
    pub syn_retries: Option<u8>,
    /// How long FIN-WAIT-2 lasts after a close (TCP_LINGER2).
    pub fin_wait_2: Option<Duration>,
    /// A listener's connections are [`incoming`](crate::Host::incoming) only when data came, or when the handshake has lasted for so long
    /// (TCP_DEFER_ACCEPT).
    pub defer_accept: Option<Duration>,
    /// DSCP in the upper six bits (IP_TOS, IPV6_TCLASS); the lower two are TCP's own (RFC 3168).
    pub traffic_class: u8,
    /// Time to live or hop limit of what is sent (IP_TTL, IPV6_UNICAST_HOPS).
    pub hop_limit: Option<NonZeroU8>,
    /// Of a UDP socket: others that say so too may be bound to the same port (SO_REUSEADDR). What is sent to a group or to all reaches
    /// each of them, what is sent to one address the one that was bound last.
    pub reuse_address: bool,
    /// Of a UDP socket: how far its datagrams to groups go, in hops; 0: not onto the link (IP_MULTICAST_TTL, IPV6_MULTICAST_HOPS).
    pub multicast_hops: u8,
    /// Of a UDP socket: its datagrams to groups reach sockets of this stack, too (IP_MULTICAST_LOOP, IPV6_MULTICAST_LOOP).
    pub multicast_loop: bool,
    /// Of a UDP socket that is bound to no single address: where its datagrams to groups come from (IP_MULTICAST_IF).
    pub multicast_source: Option<Ipv4Addr>,
    /// Of a UDP socket: what is done about the path's MTU (IP_MTU_DISCOVER).
    pub mtu_discovery: MtuDiscovery,
    /// Of a listener: connections that may be open before their handshake is complete (TCP_FASTOPEN); 0: none.
    pub fast_open_queue: u32,
    /// Of a connection to be opened: the SYN asks for a cookie or, if there is one for that server, waits for data and takes it along
    /// (TCP_FASTOPEN_CONNECT).
    pub fast_open: bool,
}

impl Default for SocketOptions {
    fn default() -> Self {
        Self {
            no_delay: None,
            keepalive: None,
            user_timeout: None,
            congestion: None,
            ecn: None,
            max_pacing_rate: None,
            mss: None,
            receive_window: 65535,
            v6_only: false,
            syn_retries: None,
            fin_wait_2: None,
            defer_accept: None,
            traffic_class: 0,
            hop_limit: None,
            reuse_address: false,
            multicast_hops: 1,
            multicast_loop: true,
            multicast_source: None,
            mtu_discovery: MtuDiscovery::default(),
            fast_open_queue: 0,
            fast_open: false,
        }
    }
}

impl SocketOptions {
    /// Takes an option over, for what will be opened with these.
    pub fn apply(&mut self, option: SocketOption) {
        match option {
            SocketOption::NoDelay(on) => self.no_delay = Some(on),
            SocketOption::Keepalive(keepalive) => self.keepalive = keepalive,
            SocketOption::UserTimeout(timeout) => self.user_timeout = timeout,
            SocketOption::Congestion(algorithm) => self.congestion = Some(algorithm),
            SocketOption::Ecn(ecn) => self.ecn = Some(ecn),
            SocketOption::MaxPacingRate(rate) => self.max_pacing_rate = rate,
            SocketOption::MaxSegment(mss) => self.mss = Some(mss),
            SocketOption::V6Only(on) => self.v6_only = on,
            SocketOption::SynRetries(retries) => self.syn_retries = retries,
            SocketOption::FinWait2(timeout) => self.fin_wait_2 = timeout,
            SocketOption::DeferAccept(timeout) => self.defer_accept = timeout,
            SocketOption::TrafficClass(class) => self.traffic_class = class,
            SocketOption::HopLimit(limit) => self.hop_limit = limit,
            SocketOption::FastOpenQueue(limit) => self.fast_open_queue = limit,
            SocketOption::ReuseAddress(on) => self.reuse_address = on,
            SocketOption::MulticastHops(hops) => self.multicast_hops = hops,
            SocketOption::MulticastLoop(on) => self.multicast_loop = on,
            SocketOption::MulticastSource(source) => self.multicast_source = source,
            SocketOption::MtuDiscovery(how) => self.mtu_discovery = how,
            // A connection is told these once it is there.
            SocketOption::Cork(_) | SocketOption::QuickAck(_) => {}
        }
    }
}

/// An option of a connection that exists.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum SocketOption {
    /// Nagle's algorithm is off (true) or on.
    NoDelay(bool),
    /// Partial segments are held back (TCP_CORK).
    Cork(bool),
    /// Every segment is acknowledged at once (true), or after the configured delay.
    QuickAck(bool),
    /// Keepalive probes; `None`: off.
    Keepalive(Option<Keepalive>),
    /// How long sent data may stay unacknowledged; `None`: the default.
    UserTimeout(Option<Duration>),
    /// The congestion controller. It can be chosen in [`SocketOptions`] only.
    Congestion(Algorithm),
    /// Whether ECN is used. It can be chosen in [`SocketOptions`] only.
    Ecn(Ecn),
    /// The largest rate of sending, in bytes a second; `None`: the default (SO_MAX_PACING_RATE). No larger than that in any case.
    MaxPacingRate(Option<u64>),
    /// The largest segment to announce and send, in bytes; of a connection that exists, to send only, and never larger than before.
    MaxSegment(u16),
    /// How often a SYN or SYN-ACK is sent again; `None`: the default.
    SynRetries(Option<u8>),
    /// How long FIN-WAIT-2 lasts after a close; `None`: the default.
    FinWait2(Option<Duration>),
    /// DSCP in the upper six bits; the lower two are TCP's own.
    TrafficClass(u8),
    /// Time to live or hop limit; `None`: the default.
    HopLimit(Option<NonZeroU8>),
    /// [`SocketOptions::fast_open_queue`]; of listeners only.
    FastOpenQueue(u32),
    /// [`SocketOptions::defer_accept`]; of listeners only.
    DeferAccept(Option<Duration>),
    /// [`SocketOptions::v6_only`]; before the socket listens.
    V6Only(bool),
    /// [`SocketOptions::reuse_address`]; of UDP sockets, before they are bound.
    ReuseAddress(bool),
    /// [`SocketOptions::multicast_hops`]; of UDP sockets only.
    MulticastHops(u8),
    /// [`SocketOptions::multicast_loop`]; of UDP sockets only.
    MulticastLoop(bool),
    /// [`SocketOptions::multicast_source`]; of UDP sockets only.
    MulticastSource(Option<Ipv4Addr>),
    /// [`SocketOptions::mtu_discovery`]; of UDP sockets only.
    MtuDiscovery(MtuDiscovery),
}
