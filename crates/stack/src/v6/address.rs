//! Own IPv6 addresses, prefixes of the link, routers; the way to a destination, and the address to go there from.

use core::fmt;
use core::net::Ipv6Addr;
use core::str::FromStr;

use sidecore_tcp::Instant;
use sidecore_wire::ipv6;

use super::config::Ipv6Config;
use crate::address::CidrParseError;

/// An IPv6 address and the length of its network's prefix.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Ipv6Cidr {
    address: Ipv6Addr,
    prefix_len: u8,
}

impl Ipv6Cidr {
    /// `None` if `prefix_len` is above 128.
    pub const fn new(address: Ipv6Addr, prefix_len: u8) -> Option<Self> {
        if prefix_len > 128 {
            return None;
        }
        Some(Self {
            address,
            prefix_len,
        })
    }

    /// The address.
    pub const fn address(self) -> Ipv6Addr {
        self.address
    }

    /// The length of the prefix, 0..=128.
    pub const fn prefix_len(self) -> u8 {
        self.prefix_len
    }

    /// Whether `other` lies in the same network.
    #[inline]
    pub const fn contains(self, other: Ipv6Addr) -> bool {
        common_prefix(self.address, other) >= self.prefix_len as u32
    }
}

impl fmt::Display for Ipv6Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix_len)
    }
}

impl FromStr for Ipv6Cidr {
    type Err = CidrParseError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (address, prefix_len) = text.split_once('/').ok_or(CidrParseError)?;
        let address = address.parse().map_err(|_| CidrParseError)?;
        let prefix_len = prefix_len.parse().map_err(|_| CidrParseError)?;
        Self::new(address, prefix_len).ok_or(CidrParseError)
    }
}

/// How many leading bits two addresses have in common.
const fn common_prefix(a: Ipv6Addr, b: Ipv6Addr) -> u32 {
    (a.to_bits() ^ b.to_bits()).leading_zeros()
}

/// Whether a single station may have this address: no group, no placeholder, and none that stands for an IPv4 address
/// (RFC 4291 section 2.5.5.2; on the wire those would get around what is filtered by family).
pub(crate) fn is_unicast(ip: Ipv6Addr) -> bool {
    let embedded = ip.to_bits() >> 32 == 0xffff;
    !ip.is_multicast() && !ip.is_unspecified() && !embedded
}

/// Whether this is the group of all nodes, of the interface or of the link, in which everybody is (RFC 4291 section 2.8).
pub(crate) const fn is_all_nodes(group: Ipv6Addr) -> bool {
    matches!(group.segments(), [0xff01 | 0xff02, 0, 0, 0, 0, 0, 0, 1])
}

/// Where an own address comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Origin {
    LinkLocal,
    Configured,
    /// From a router's prefix.
    Autoconf,
}

/// Whether an own address may be used (RFC 4862 section 5.4).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Status {
    /// It is being asked whether another station has it: so often yet, and the next time then.
    Tentative {
        asked: u8,
        next: Instant,
    },
    Assigned,
    /// Another station has it.
    Duplicate,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct OwnAddress {
    pub(crate) ip: Ipv6Addr,
    pub(crate) prefix_len: u8,
    pub(crate) origin: Origin,
    pub(crate) status: Status,
    /// From then on nothing new goes out from it (RFC 4862 section 5.5.4).
    pub(crate) preferred_until: Instant,
    /// From then on it is no address of ours.
    pub(crate) valid_until: Instant,
}

/// A prefix whose addresses are neighbours.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OnLink {
    pub(crate) prefix: Ipv6Cidr,
    pub(crate) until: Instant,
}

/// A default router.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Router {
    pub(crate) ip: Ipv6Addr,
    pub(crate) until: Instant,
}

/// How a destination is reached.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Route6 {
    /// It is this stack.
    Local,
    /// Over the link, to the station with this address: the destination itself or a router.
    Link(Ipv6Addr),
    /// To a group of the link.
    Group,
}

/// What a destination address of an incoming packet is to us.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Destination6 {
    Own,
    /// Ours perhaps: only neighbour discovery may look at it.
    Tentative,
    Group,
    Other,
}

/// The tables of RFC 4861 section 5.1, but for the neighbour cache.
#[derive(Debug)]
pub(crate) struct Addresses6 {
    pub(crate) own: Vec<OwnAddress>,
    pub(crate) on_link: Vec<OnLink>,
    pub(crate) routers: Vec<Router>,
    /// Destination and first hop, oldest first.
    pub(crate) redirects: Vec<(Ipv6Addr, Ipv6Addr)>,
}

impl Addresses6 {
    pub(crate) fn new(config: &Ipv6Config) -> Self {
        let forever = |prefix| OnLink {
            prefix,
            until: Instant::NEVER,
        };
        let gateway = config.gateway.map(|ip| Router {
            ip,
            until: Instant::NEVER,
        });
        Self {
            own: Vec::with_capacity(config.max_addresses),
            on_link: config.addresses.iter().copied().map(forever).collect(),
            routers: gateway.into_iter().collect(),
            redirects: Vec::with_capacity(config.max_redirects),
        }
    }

    /// RFC 4861 section 5.1: "the link-local prefix is considered to be on the prefix list with an infinite invalidation
    /// timer".
    pub(crate) fn add_prefix_of_link(&mut self) {
        let link_local = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0);
        self.on_link
            .extend(Ipv6Cidr::new(link_local, 10).map(|prefix| OnLink {
                prefix,
                until: Instant::NEVER,
            }));
    }

    pub(crate) fn find(&self, ip: Ipv6Addr) -> Option<&OwnAddress> {
        self.own.iter().find(|own| own.ip == ip)
    }

    pub(crate) fn find_mut(&mut self, ip: Ipv6Addr) -> Option<&mut OwnAddress> {
        self.own.iter_mut().find(|own| own.ip == ip)
    }

    /// Whether this is an address of ours on the link, in use.
    #[inline]
    pub(crate) fn is_assigned(&self, ip: Ipv6Addr) -> bool {
        self.find(ip)
            .is_some_and(|own| own.status == Status::Assigned)
    }

    /// Whether this stack answers to the address: one in use, or `::1`.
    #[inline]
    pub(crate) fn is_local(&self, ip: Ipv6Addr) -> bool {
        ip.is_loopback() || self.is_assigned(ip)
    }

    /// Whether a socket may be bound to the address. One that is being checked will do: nothing reaches it before it is
    /// ours, and programs need not wait.
    pub(crate) fn may_bind(&self, ip: Ipv6Addr) -> bool {
        let usable = |own: &OwnAddress| own.status != Status::Duplicate;
        ip.is_loopback() || self.find(ip).is_some_and(usable)
    }

    /// Whether packets to the group are for us: all nodes, and the solicited-node groups of all own addresses.
    pub(crate) fn is_member(&self, group: Ipv6Addr) -> bool {
        // RFC 4291 section 2.8: all nodes of the interface and of the link.
        let live = |own: &OwnAddress| own.status != Status::Duplicate;
        is_all_nodes(group)
            || self
                .own
                .iter()
                .any(|own| live(own) && ipv6::solicited_node(own.ip) == group)
    }

    /// What an address in the destination field of a packet from the link is.
    pub(crate) fn classify(&self, dst: Ipv6Addr) -> Destination6 {
        if dst.is_multicast() {
            return if self.is_member(dst) {
                Destination6::Group
            } else {
                Destination6::Other
            };
        }
        match self.find(dst).map(|own| own.status) {
            Some(Status::Assigned) => Destination6::Own,
            Some(Status::Tentative { .. }) => Destination6::Tentative,
            Some(Status::Duplicate) | None => Destination6::Other,
        }
    }

    /// Whether a station on the link may have this address.
    pub(crate) fn is_neighbor(&self, ip: Ipv6Addr) -> bool {
        is_unicast(ip) && self.on_link.iter().any(|on| on.prefix.contains(ip))
    }

    /// The way to a destination (RFC 4861 section 5.2); `None` if there is none. `is_alive` says whether a router is not
    /// known to be dead.
    pub(crate) fn route(
        &self,
        dst: Ipv6Addr,
        is_alive: impl Fn(Ipv6Addr) -> bool,
    ) -> Option<Route6> {
        if self.is_local(dst) {
            return Some(Route6::Local);
        }
        if dst.is_multicast() {
            return Some(Route6::Group);
        }
        if !is_unicast(dst) || dst.is_loopback() {
            return None;
        }
        if let Some((_, hop)) = self.redirects.iter().find(|(to, _)| *to == dst) {
            return Some(Route6::Link(*hop));
        }
        if self.is_neighbor(dst) {
            return Some(Route6::Link(dst));
        }
        // RFC 4861 section 6.3.6: routers that are reachable, or may be, "should be preferred over routers whose reachability
        // is … suspect".
        let alive = self.routers.iter().find(|router| is_alive(router.ip));
        let router = alive.or(self.routers.first())?;
        Some(Route6::Link(router.ip))
    }

    /// The address that packets to `dst` come from when the caller has named none: RFC 6724 section 5, rules 1 to 3 and 8.
    pub(crate) fn source_for(&self, now: Instant, dst: Ipv6Addr) -> Option<Ipv6Addr> {
        if dst.is_loopback() {
            return Some(Ipv6Addr::LOCALHOST);
        }
        let candidates = self
            .own
            .iter()
            .filter(|own| own.status == Status::Assigned && own.valid_until > now);
        let merit = |own: &&OwnAddress| {
            let (scope, wanted) = (scope(own.ip), scope(dst));
            // Rule 2: the smallest scope that is large enough, else the largest.
            let fits = scope >= wanted;
            let near = if fits { u8::MAX - scope } else { scope };
            let preferred = own.preferred_until > now;
            let common = common_prefix(own.ip, dst).min(u32::from(own.prefix_len));
            (own.ip == dst, fits, near, preferred, common)
        };
        // Of equals the first one.
        candidates.rev().max_by_key(merit).map(|own| own.ip)
    }

    /// When an address, a prefix or a router runs out, or is to be asked about.
    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        let own = self.own.iter().map(|own| match own.status {
            Status::Tentative { next, .. } => next.min(own.valid_until),
            _ => own.valid_until,
        });
        let on_link = self.on_link.iter().map(|on| on.until);
        let routers = self.routers.iter().map(|router| router.until);
        own.chain(on_link)
            .chain(routers)
            .min()
            .filter(|next| *next < Instant::NEVER)
    }
}

/// An address's scope (RFC 6724 section 3.1): 2 link-local, 14 global; of groups their own.
fn scope(ip: Ipv6Addr) -> u8 {
    let [first, second, ..] = ip.octets();
    if first == 0xff {
        second & 0x0f
    } else if ipv6::is_link_local(ip) || ip.is_loopback() {
        2
    } else {
        14
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> Ipv6Addr {
        text.parse().unwrap()
    }

    fn own(text: &str, preferred: u64) -> OwnAddress {
        OwnAddress {
            ip: ip(text),
            prefix_len: 64,
            origin: Origin::Configured,
            status: Status::Assigned,
            preferred_until: Instant::from_secs(preferred),
            valid_until: Instant::NEVER,
        }
    }

    fn addresses() -> Addresses6 {
        let mut addresses = Addresses6::new(&Ipv6Config {
            addresses: vec!["2001:db8:1::2/64".parse().unwrap()],
            gateway: Some(ip("fe80::1")),
            ..Ipv6Config::default()
        });
        addresses.add_prefix_of_link();
        addresses.own.extend([
            own("fe80::2", 9999),
            own("2001:db8:1::2", 9999),
            own("fd00::2", 9999),
            own("2001:db8:2::2", 5),
        ]);
        addresses
    }

    #[test]
    fn text_round_trips_and_other_text_is_refused() {
        for text in ["fd00::1/64", "::/0", "2001:db8::5/128"] {
            assert_eq!(text.parse::<Ipv6Cidr>().unwrap().to_string(), text);
        }
        for text in ["fd00::1", "fd00::1/129", "10.0.0.1/24", "/", "::1/-1"] {
            assert_eq!(text.parse::<Ipv6Cidr>(), Err(CidrParseError), "{text}");
        }
        let all: Ipv6Cidr = "::/0".parse().unwrap();
        assert!(all.contains(ip("ffff::1")));
        let one: Ipv6Cidr = "fd00::1/128".parse().unwrap();
        assert!(one.contains(ip("fd00::1")) && !one.contains(ip("fd00::2")));
    }

    #[test]
    fn rfc_4861_section_5_2_routes() {
        let addresses = addresses();
        for (dst, route) in [
            ("::1", Some(Route6::Local)),
            ("2001:db8:1::2", Some(Route6::Local)),
            ("2001:db8:1::77", Some(Route6::Link(ip("2001:db8:1::77")))),
            ("fe80::77", Some(Route6::Link(ip("fe80::77")))),
            ("2001:db8:9::1", Some(Route6::Link(ip("fe80::1")))),
            ("ff02::1", Some(Route6::Group)),
            ("::", None),
            ("::ffff:10.0.0.1", None),
        ] {
            assert_eq!(addresses.route(ip(dst), |_| true), route, "{dst}");
        }
        let mut isolated = addresses;
        isolated.routers.clear();
        assert_eq!(isolated.route(ip("2001:db8:9::1"), |_| true), None);
    }

    #[test]
    fn rfc_4861_section_6_3_6_a_router_that_lives_is_preferred() {
        let mut addresses = addresses();
        addresses.routers.push(Router {
            ip: ip("fe80::9"),
            until: Instant::NEVER,
        });
        let via = |dead: &str| {
            let dead = ip(dead);
            addresses.route(ip("2001:db8:9::1"), |router| router != dead)
        };
        assert_eq!(via("fe80::9"), Some(Route6::Link(ip("fe80::1"))));
        assert_eq!(via("fe80::1"), Some(Route6::Link(ip("fe80::9"))));
        let none_alive = addresses.route(ip("2001:db8:9::1"), |_| false);
        assert_eq!(none_alive, Some(Route6::Link(ip("fe80::1"))));
    }

    #[test]
    fn rfc_6724_section_5_sources() {
        let addresses = addresses();
        let now = Instant::from_secs(10);
        for (dst, source) in [
            ("::1", "::1"),
            // Rule 1: the same address.
            ("fd00::2", "fd00::2"),
            // Rule 2: appropriate scope.
            ("fe80::9", "fe80::2"),
            ("ff02::1", "fe80::2"),
            // Rule 3: a deprecated address is avoided, though it has more in common.
            ("2001:db8:2::9", "2001:db8:1::2"),
            // Rule 8: the longest common prefix.
            ("fd00::9", "fd00::2"),
            ("2001:db8:1::9", "2001:db8:1::2"),
        ] {
            assert_eq!(
                addresses.source_for(now, ip(dst)),
                Some(ip(source)),
                "{dst}"
            );
        }
        let before = addresses.source_for(Instant::ZERO, ip("2001:db8:2::9"));
        assert_eq!(before, Some(ip("2001:db8:2::2")));
        let mut none = addresses;
        none.own.truncate(1);
        // Nothing larger: RFC 6724 still names one.
        assert_eq!(none.source_for(now, ip("2001:db8::9")), Some(ip("fe80::2")));
        none.own.clear();
        assert_eq!(none.source_for(now, ip("fe80::9")), None);
    }

    #[test]
    fn rfc_4291_section_2_8_groups_of_a_host() {
        let mut addresses = addresses();
        for group in ["ff02::1", "ff01::1", "ff02::1:ff00:2"] {
            assert_eq!(addresses.classify(ip(group)), Destination6::Group);
        }
        for other in ["ff02::2", "ff02::1:ff00:3", "ff05::1", "2001:db8:1::3"] {
            assert_eq!(
                addresses.classify(ip(other)),
                Destination6::Other,
                "{other}"
            );
        }
        addresses.own[1].status = Status::Duplicate;
        assert_eq!(addresses.classify(ip("2001:db8:1::2")), Destination6::Other);
        assert!(!addresses.may_bind(ip("2001:db8:1::2")));
    }
}
