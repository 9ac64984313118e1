//! Own addresses and routes.

use core::fmt;
use core::net::Ipv4Addr;
use core::str::FromStr;

/// An IPv4 address and the length of its network's prefix.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Ipv4Cidr {
    address: Ipv4Addr,
    prefix_len: u8,
}

impl Ipv4Cidr {
    /// `None` if `prefix_len` is above 32.
    pub const fn new(address: Ipv4Addr, prefix_len: u8) -> Option<Self> {
        if prefix_len > 32 {
            return None;
        }
        Some(Self {
            address,
            prefix_len,
        })
    }

    /// The address.
    pub const fn address(self) -> Ipv4Addr {
        self.address
    }

    /// The length of the prefix, 0..=32.
    pub const fn prefix_len(self) -> u8 {
        self.prefix_len
    }

    /// The prefix as a mask.
    pub const fn mask(self) -> u32 {
        match u32::MAX.checked_shl(32 - self.prefix_len as u32) {
            Some(mask) => mask,
            None => 0,
        }
    }

    /// Whether `other` lies in the same network.
    #[inline]
    pub const fn contains(self, other: Ipv4Addr) -> bool {
        (self.address.to_bits() ^ other.to_bits()) & self.mask() == 0
    }

    /// The directed broadcast address; `None` for the prefixes 31 and 32, which have none (RFC 3021).
    pub const fn broadcast(self) -> Option<Ipv4Addr> {
        if self.prefix_len >= 31 {
            return None;
        }
        Some(Ipv4Addr::from_bits(self.address.to_bits() | !self.mask()))
    }

    /// The network's own address, which no station may have; `None` as for [`broadcast`](Self::broadcast).
    const fn network(self) -> Option<Ipv4Addr> {
        if self.prefix_len >= 31 {
            return None;
        }
        Some(Ipv4Addr::from_bits(self.address.to_bits() & self.mask()))
    }
}

impl fmt::Display for Ipv4Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix_len)
    }
}

/// The text is not `ADDRESS/PREFIX`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CidrParseError;

impl fmt::Display for CidrParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not an address and a prefix length: expected a form like 10.77.0.2/24")
    }
}

impl core::error::Error for CidrParseError {}

impl FromStr for Ipv4Cidr {
    type Err = CidrParseError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (address, prefix_len) = text.split_once('/').ok_or(CidrParseError)?;
        let address = address.parse().map_err(|_| CidrParseError)?;
        let prefix_len = prefix_len.parse().map_err(|_| CidrParseError)?;
        Self::new(address, prefix_len).ok_or(CidrParseError)
    }
}

/// How a destination is reached.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Route {
    /// It is this stack.
    Local,
    /// Over the link, to the station with this address: the destination itself or the gateway.
    Link(Ipv4Addr),
    /// To all stations of the link.
    Broadcast,
    /// To those that listen to a group.
    Group,
}

/// What a destination address of an incoming packet is to us.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Destination {
    Own,
    Broadcast,
    Other,
}

/// The stack's addresses and its gateway.
#[derive(Clone, Debug)]
pub(crate) struct Addresses {
    own: Vec<Ipv4Cidr>,
    gateway: Option<Ipv4Addr>,
    /// How many of `own` are configured; the one after them is leased.
    configured: usize,
    /// The router that came with the lease; the configured one comes first.
    leased_gateway: Option<Ipv4Addr>,
}

impl Addresses {
    pub(crate) fn new(own: Vec<Ipv4Cidr>, gateway: Option<Ipv4Addr>) -> Self {
        Self {
            configured: own.len(),
            own,
            gateway,
            leased_gateway: None,
        }
    }

    /// The address that is leased from now on, and the router that came with it.
    pub(crate) fn set_leased(&mut self, address: Option<Ipv4Cidr>, router: Option<Ipv4Addr>) {
        self.own.truncate(self.configured);
        self.own.extend(address);
        self.leased_gateway = router;
    }

    fn router(&self) -> Option<Ipv4Addr> {
        self.gateway.or(self.leased_gateway)
    }

    /// All own addresses of the link.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Ipv4Addr> + '_ {
        self.own.iter().map(|cidr| cidr.address())
    }

    /// The same with their networks.
    pub(crate) fn networks(&self) -> &[Ipv4Cidr] {
        &self.own
    }

    /// Whether this is one of the addresses configured on the link.
    #[inline]
    pub(crate) fn is_configured(&self, ip: Ipv4Addr) -> bool {
        self.own.iter().any(|cidr| cidr.address() == ip)
    }

    /// Whether this stack answers to the address: a configured one, or 127/8.
    #[inline]
    pub(crate) fn is_local(&self, ip: Ipv4Addr) -> bool {
        self.is_configured(ip) || ip.is_loopback()
    }

    /// Whether every station of a link of ours takes packets to this address.
    pub(crate) fn is_broadcast(&self, ip: Ipv4Addr) -> bool {
        ip.is_broadcast() || self.own.iter().any(|cidr| cidr.broadcast() == Some(ip))
    }

    /// Whether a station on a link of ours may have this address.
    pub(crate) fn is_neighbor(&self, ip: Ipv4Addr) -> bool {
        self.own.iter().any(|cidr| cidr.contains(ip)) && self.is_unicast(ip)
    }

    /// Whether a single station may have this address.
    pub(crate) fn is_unicast(&self, ip: Ipv4Addr) -> bool {
        // RFC 1122 section 3.2.1.3: network 0 is "this host on this network", and class E is reserved.
        let [first, ..] = ip.octets();
        let reserved = first == 0 || first >= 224;
        !reserved
            && !self.own.iter().any(|cidr| {
                cidr.broadcast() == Some(ip) || (cidr.network() == Some(ip) && cidr.address() != ip)
            })
    }

    /// What an address in the destination field of a packet from the link is.
    #[inline]
    pub(crate) fn classify(&self, dst: Ipv4Addr) -> Destination {
        if self.is_configured(dst) {
            Destination::Own
        } else if self.is_broadcast(dst) {
            Destination::Broadcast
        } else {
            Destination::Other
        }
    }

    /// The way to a destination; `None` if there is none.
    pub(crate) fn route(&self, dst: Ipv4Addr) -> Option<Route> {
        if self.is_local(dst) {
            return Some(Route::Local);
        }
        if self.is_broadcast(dst) {
            return Some(Route::Broadcast);
        }
        if dst.is_multicast() {
            return Some(Route::Group);
        }
        if !self.is_unicast(dst) {
            return None;
        }
        if self.own.iter().any(|cidr| cidr.contains(dst)) {
            return Some(Route::Link(dst));
        }
        self.router().map(Route::Link)
    }

    /// The address that packets to `dst` come from when the caller has named none.
    pub(crate) fn source_for(&self, dst: Ipv4Addr) -> Option<Ipv4Addr> {
        if dst.is_loopback() {
            return Some(Ipv4Addr::LOCALHOST);
        }
        if self.is_configured(dst) {
            return Some(dst);
        }
        let towards = |ip: Ipv4Addr| self.own.iter().find(|cidr| cidr.contains(ip));
        towards(dst)
            .or_else(|| self.router().and_then(towards))
            .or(self.own.first())
            .map(|cidr| cidr.address())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses() -> Addresses {
        Addresses::new(
            vec![
                "10.77.0.2/24".parse().unwrap(),
                "192.168.5.9/30".parse().unwrap(),
            ],
            Some(Ipv4Addr::new(10, 77, 0, 1)),
        )
    }

    fn ip(text: &str) -> Ipv4Addr {
        text.parse().unwrap()
    }

    #[test]
    fn text_round_trips_and_other_text_is_refused() {
        for text in ["10.77.0.2/24", "0.0.0.0/0", "1.2.3.4/32"] {
            assert_eq!(text.parse::<Ipv4Cidr>().unwrap().to_string(), text);
        }
        for text in [
            "10.77.0.2",
            "10.77.0.2/33",
            "10.77.0/24",
            "/",
            "10.77.0.2/-1",
            "::1/64",
        ] {
            assert_eq!(text.parse::<Ipv4Cidr>(), Err(CidrParseError), "{text}");
        }
    }

    #[test]
    fn prefixes_at_the_ends() {
        let all: Ipv4Cidr = "1.2.3.4/0".parse().unwrap();
        assert!(all.contains(ip("200.0.0.1")));
        assert_eq!(all.broadcast(), Some(Ipv4Addr::BROADCAST));
        let one: Ipv4Cidr = "1.2.3.4/32".parse().unwrap();
        assert!(one.contains(ip("1.2.3.4")) && !one.contains(ip("1.2.3.5")));
        assert_eq!(one.broadcast(), None);
    }

    #[test]
    fn routes() {
        let addresses = addresses();
        for (dst, route) in [
            ("10.77.0.2", Some(Route::Local)),
            ("127.0.0.9", Some(Route::Local)),
            ("10.77.0.77", Some(Route::Link(ip("10.77.0.77")))),
            ("192.168.5.10", Some(Route::Link(ip("192.168.5.10")))),
            ("8.8.8.8", Some(Route::Link(ip("10.77.0.1")))),
            ("10.77.0.255", Some(Route::Broadcast)),
            ("255.255.255.255", Some(Route::Broadcast)),
            ("224.0.0.1", Some(Route::Group)),
            ("10.77.0.0", None),
            ("0.0.0.0", None),
        ] {
            assert_eq!(addresses.route(ip(dst)), route, "{dst}");
        }
        let isolated = Addresses::new(vec!["10.77.0.2/24".parse().unwrap()], None);
        assert_eq!(isolated.route(ip("8.8.8.8")), None);
    }

    #[test]
    fn sources() {
        let addresses = addresses();
        for (dst, source) in [
            ("127.0.0.5", "127.0.0.1"),
            ("192.168.5.9", "192.168.5.9"),
            ("192.168.5.10", "192.168.5.9"),
            ("10.77.0.9", "10.77.0.2"),
            ("8.8.8.8", "10.77.0.2"),
        ] {
            assert_eq!(addresses.source_for(ip(dst)), Some(ip(source)), "{dst}");
        }
    }
}
