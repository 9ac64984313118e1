//! IPv6 beside IPv4: what is different from it, and nothing else.
//!
//! Connections live in the same slab, with the same timers and lists, as those of IPv4; only their addresses do not fit
//! into its first cache line and are kept in [`flow`]. So IPv4's path does not grow, and TCP knows nothing of either.
//!
//! | file | what |
//! |---|---|
//! | `config`, `address` | what the stack is set up with; own addresses, prefixes, routers, routes, source selection |
//! | `input`, `chain` | packets, extension headers, fragments |
//! | `tcp`, `udp`, `icmp` | the transports' way in |
//! | `output`, `frame` | the way out |
//! | `flow` | addresses of connections |
//! | `neighbor`, `nd`, `router`, `autoconf`, `mld` | neighbour discovery: cache, messages, routers, own addresses, groups |

pub(crate) mod address;
mod autoconf;
mod chain;
mod config;
pub(crate) mod flow;
mod frame;
mod icmp;
mod input;
mod mld;
mod nd;
pub(crate) mod neighbor;
mod output;
mod router;
mod tcp;
mod udp;

use core::net::Ipv6Addr;
use core::time::Duration;

use sidecore_tcp::Instant;
use sidecore_wire::{MacAddress, ipv6, mld as wire_mld, ndp};

use crate::control::{Control, ControlQueue, Link};
use crate::groups::{GroupConfig, Groups};
use crate::hash::{FlowHasher, Keys};
use crate::reassembly::Reassembly;
use crate::stack::Stack;
use address::{Addresses6, Origin};
use neighbor::NeighborCache6;
use router::Solicitation;

pub use address::Ipv6Cidr;
pub use config::{InterfaceId, Ipv6Config, NeighborConfig};
pub(crate) use icmp::HEADER_DIFFERENCE;
pub(crate) use input::Arrival6;
pub(crate) use output::Control6;

/// Which packet a fragment belongs to (RFC 8200 section 4.5: source, destination, identification).
pub(crate) type FragmentKey = (Ipv6Addr, Ipv6Addr, u32);

/// A message of ours to a group or a neighbour, ready to be queued.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Envelope {
    pub(crate) link: Link,
    pub(crate) src: Ipv6Addr,
    pub(crate) dst: Ipv6Addr,
    pub(crate) hop_limit: u8,
    /// With a hop-by-hop header that holds a router alert.
    pub(crate) alert: bool,
}

/// All that the stack holds for IPv6 alone.
#[derive(Debug)]
pub(crate) struct Six {
    pub(crate) config: Ipv6Config,
    pub(crate) addresses: Addresses6,
    pub(crate) neighbors: NeighborCache6,
    pub(crate) reassembly: Reassembly<FragmentKey>,
    pub(crate) groups: Groups<Ipv6Addr>,
    solicitation: Solicitation,
    /// Hop limit of packets: the default, or a router's.
    pub(crate) hop_limit: u8,
    /// IP MTU of the link: the configured one, or a router's if that is less.
    pub(crate) mtu: u16,
    /// Identification of packets that are sent in fragments.
    ident: u32,
    /// How often an address that was made of the secret was taken (RFC 7217: DAD_Counter).
    dad_counter: u8,
    /// When [`Stack::handle_timers6`] has something to do; `NEVER` if IPv6 is off.
    pub(crate) next: Instant,
    hasher: FlowHasher,
    drawn: u32,
}

impl Six {
    pub(crate) fn new(
        config: &Ipv6Config,
        groups: &GroupConfig,
        mtu: u16,
        keys: &Keys,
        now: Instant,
    ) -> Self {
        let mut neighbors = NeighborCache6::new(config.neighbor.clone(), keys.neighbors);
        for (ip, mac) in &config.neighbors {
            neighbors.add_permanent(*ip, *mac);
        }
        Self {
            addresses: Addresses6::new(config),
            neighbors,
            reassembly: Reassembly::new(config.reassembly.clone()),
            groups: Groups::new(groups, keys.neighbors),
            solicitation: Solicitation::default(),
            hop_limit: ipv6::DEFAULT_HOP_LIMIT,
            mtu: mtu.max(ipv6::MIN_MTU),
            ident: keys.neighbors.hash(now.as_nanos(), 0x1de7) as u32,
            dad_counter: 0,
            next: Instant::NEVER,
            hasher: keys.neighbors,
            drawn: 0,
            config: config.clone(),
        }
    }

    /// Whether IPv6 is spoken at all.
    #[inline]
    pub(crate) const fn enabled(&self) -> bool {
        self.config.enabled
    }

    /// Some time of at most `most`, different each time, and nobody's to guess.
    fn random(&mut self, most: Duration) -> Duration {
        self.drawn = self.drawn.wrapping_add(1);
        let nanos = u64::try_from(most.as_nanos()).unwrap_or(u64::MAX);
        let drawn = self.hasher.hash(u64::from(self.drawn), 0x7a4d);
        Duration::from_nanos(drawn.checked_rem(nanos).unwrap_or(0))
    }

    /// A message of neighbour discovery from `src`.
    fn ndp(link: Link, src: Ipv6Addr, dst: Ipv6Addr) -> Envelope {
        Envelope {
            link,
            src,
            dst,
            hop_limit: ndp::HOP_LIMIT,
            alert: false,
        }
    }

    /// A message about groups.
    fn mld(src: Ipv6Addr, dst: Ipv6Addr) -> Envelope {
        Envelope {
            link: Link::Station(ipv6::multicast_mac(dst)),
            src,
            dst,
            hop_limit: wire_mld::HOP_LIMIT,
            alert: true,
        }
    }

    /// Finds out anew when there is something to do.
    pub(crate) fn reschedule(&mut self) {
        let timers = [
            self.addresses.next_timeout(),
            self.neighbors.next_timeout(),
            self.reassembly.next_timeout(),
            Some(self.groups.next).filter(|next| *next < Instant::NEVER),
            self.solicitation.next_timeout(),
        ];
        self.next = timers.into_iter().flatten().min().unwrap_or(Instant::NEVER);
    }
}

/// Queues an ICMPv6 message of `len` bytes that `emit` writes; false if it was dropped for want of room.
pub(crate) fn push_message(
    control: &mut ControlQueue,
    envelope: &Envelope,
    len: usize,
    emit: impl FnOnce(&mut [u8]) -> usize,
) -> bool {
    let Envelope {
        link,
        src,
        dst,
        hop_limit,
        alert,
    } = *envelope;
    control.push_message(len, emit, |start, len| {
        Control::Six(output::Control6::Message {
            link,
            src,
            dst,
            hop_limit,
            alert,
            start,
            len,
        })
    })
}

impl Stack {
    /// Begins: own addresses are made and checked, groups joined, routers looked for. To be called once.
    pub(crate) fn start6(&mut self, now: Instant) {
        if !self.six.enabled() {
            return;
        }
        self.six.addresses.add_prefix_of_link();
        let link_local = self.link_local_address();
        self.add_address(now, link_local, 64, Origin::LinkLocal);
        for cidr in self.six.config.addresses.clone() {
            self.add_address(now, cidr.address(), cidr.prefix_len(), Origin::Configured);
        }
        self.six.reschedule();
    }

    /// The own link address.
    const fn mac(&self) -> MacAddress {
        self.config.mac
    }

    /// Time passes.
    #[cold]
    pub(crate) fn handle_timers6<H: crate::Host>(&mut self, now: Instant, host: &mut H) {
        self.autoconf_timers(now);
        self.router_timers(now);
        self.group_timers(now);
        self.neighbor_timers(now, host);
        self.counters.reassembly_timeouts += self.six.reassembly.expire(now);
        self.six.reschedule();
    }
}
