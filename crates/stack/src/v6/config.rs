//! What IPv6 is set up with.

use core::net::Ipv6Addr;
use core::time::Duration;

use sidecore_wire::MacAddress;

use super::address::Ipv6Cidr;
use crate::config::ReassemblyConfig;

/// How the lower 64 bits of addresses that the stack makes for itself come about.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum InterfaceId {
    /// From the link address (RFC 4291 appendix A): the same as long as that is the same, on every network.
    #[default]
    Eui64,
    /// From a secret and the prefix (RFC 7217): the same on one network as long as the secret is the same, and different
    /// on each.
    Stable([u8; 16]),
}

/// What IPv6 is set up with. A link-local address is always made.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ipv6Config {
    /// Whether IPv6 is spoken at all.
    pub enabled: bool,
    /// Addresses and their networks, besides those that the stack makes for itself.
    pub addresses: Vec<Ipv6Cidr>,
    /// The router for everything outside the link's networks, if it is not to be learnt from router advertisements.
    pub gateway: Option<Ipv6Addr>,
    /// Link addresses that are known and not asked for.
    pub neighbors: Vec<(Ipv6Addr, MacAddress)>,
    /// How interface identifiers are made.
    pub interface_id: InterfaceId,
    /// How often is asked whether another station has an address before it is used (RFC 4862: DupAddrDetectTransmits); 0:
    /// addresses are used at once.
    pub dad_transmits: u8,
    /// Whether routers are looked for and listened to.
    pub accept_routers: bool,
    /// Whether addresses are made from the prefixes that routers announce (RFC 4862 section 5.5).
    pub autoconf: bool,
    /// Own addresses at a time, the configured ones included.
    pub max_addresses: usize,
    /// Prefixes of the link at a time (RFC 4861 section 5.1).
    pub max_prefixes: usize,
    /// Default routers at a time; those that come on top are ignored.
    pub max_routers: usize,
    /// Destinations whose first hop a redirect named; the oldest gives way.
    pub max_redirects: usize,
    /// The neighbour cache.
    pub neighbor: NeighborConfig,
    /// Reassembly of fragments.
    pub reassembly: ReassemblyConfig,
}

impl Default for Ipv6Config {
    fn default() -> Self {
        Self {
            enabled: false,
            addresses: Vec::new(),
            gateway: None,
            neighbors: Vec::new(),
            interface_id: InterfaceId::default(),
            dad_transmits: 1,
            accept_routers: true,
            autoconf: true,
            max_addresses: 16,
            max_prefixes: 16,
            max_routers: 8,
            max_redirects: 64,
            neighbor: NeighborConfig::default(),
            reassembly: ReassemblyConfig {
                datagrams: 32,
                // RFC 8200 section 4.5.
                timeout: Duration::from_secs(60),
            },
        }
    }
}

/// The neighbour cache (RFC 4861 section 10 names the values).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NeighborConfig {
    /// Neighbours that are remembered, at most; rounded up to a power of two, at most 32768.
    pub capacity: usize,
    /// Neighbours that were never heard of and are being asked for at a time (RFC 6583): who scans our networks from
    /// outside fills this, and no more.
    pub max_pending: usize,
    /// How long a neighbour counts as reachable after it was heard: between half and one and a half of this. Routers may
    /// say another.
    pub reachable: Duration,
    /// Time between solicitations. Routers may say another.
    pub retransmit: Duration,
    /// Solicitations to the group before a neighbour is given up: MAX_MULTICAST_SOLICIT.
    pub multicast_tries: u8,
    /// Solicitations to where a neighbour was: MAX_UNICAST_SOLICIT.
    pub unicast_tries: u8,
    /// How long is waited for word from above before a neighbour that is used is asked: DELAY_FIRST_PROBE_TIME.
    pub delay: Duration,
    /// How long a neighbour that was given up counts as unreachable before it is asked for again.
    pub unreachable: Duration,
}

impl Default for NeighborConfig {
    fn default() -> Self {
        Self {
            capacity: 1024,
            max_pending: 256,
            reachable: Duration::from_secs(30),
            retransmit: Duration::from_secs(1),
            multicast_tries: 3,
            unicast_tries: 3,
            delay: Duration::from_secs(5),
            unreachable: Duration::from_secs(1),
        }
    }
}
