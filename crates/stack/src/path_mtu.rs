//! What paths carry, by destination (RFC 1191 section 3, RFC 8201 section 5.2): for new connections and datagrams.
//!
//! Two values for each destination. One was found out by a TCP connection, which believes an ICMP message only if it quotes a sequence
//! number that is in flight ([`sidecore_tcp`]); the other also by what quotes a datagram of ours, of which nothing but addresses and ports must be
//! guessed. Connections go by the first, so that nobody can make them slow by the second (RFC 5927 section 7).

use core::net::IpAddr;
use core::time::Duration;

use sidecore_tcp::Instant;

use crate::hash::FlowHasher;

/// An increase "MUST NOT be done less than 5 minutes after a Datagram Too Big message has been received"; twice that is recommended (RFC 1191
/// section 3; RFC 8201 section 4 has the same).
const LIFETIME: Duration = Duration::from_secs(600);
/// Places that an address may have.
const WAYS: usize = 4;
/// No datagram need be smaller over IPv4, whoever says so (Linux: min_pmtu).
const LEAST_V4: u16 = 552;
/// RFC 8200 section 5.
const LEAST_V6: u16 = 1280;

/// Who has found it out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum By {
    /// A TCP connection.
    Tcp,
    /// An ICMP message about a datagram.
    Datagram,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    /// `None`: the place is free.
    to: Option<IpAddr>,
    /// By TCP, and by anybody; `u16::MAX`: not known.
    tcp: u16,
    any: u16,
    expires: Instant,
}

const FREE: Entry = Entry {
    to: None,
    tcp: u16::MAX,
    any: u16::MAX,
    expires: Instant::ZERO,
};

/// The cache: a fixed number of places. One that is full forgets what would be forgotten first anyway.
#[derive(Debug)]
pub(crate) struct PathMtus {
    entries: Vec<Entry>,
    hasher: FlowHasher,
    in_use: bool,
}

impl PathMtus {
    /// `capacity` is rounded up to a multiple of four; 0: nothing is remembered.
    pub(crate) fn new(capacity: usize, hasher: FlowHasher) -> Self {
        Self {
            entries: vec![FREE; capacity.next_multiple_of(WAYS)],
            hasher,
            in_use: false,
        }
    }

    fn set_of(&self, to: IpAddr) -> core::ops::Range<usize> {
        let sets = self.entries.len() / WAYS;
        let hash = match to {
            IpAddr::V4(ip) => self.hasher.hash(u64::from(ip.to_bits()), 4),
            IpAddr::V6(ip) => self.hasher.hash6(ip.to_bits(), 0, 6),
        };
        let first = (hash as usize).checked_rem(sets).unwrap_or(0) * WAYS;
        first..(first + WAYS).min(self.entries.len())
    }

    /// IP MTU of the path to an address, if it is known; `by` says for whom.
    #[inline]
    pub(crate) fn find(&self, now: Instant, to: IpAddr, by: By) -> Option<u16> {
        if !self.in_use {
            return None;
        }
        let set = self.entries.get(self.set_of(to))?;
        let entry = set.iter().find(|e| e.to == Some(to) && now < e.expires)?;
        let mtu = match by {
            By::Tcp => entry.tcp,
            By::Datagram => entry.any,
        };
        (mtu < u16::MAX).then_some(mtu)
    }

    /// The path to an address carries no more than that.
    pub(crate) fn lower(&mut self, now: Instant, to: IpAddr, mtu: u16, by: By) {
        let least = if to.is_ipv6() { LEAST_V6 } else { LEAST_V4 };
        let mtu = mtu.max(least);
        let set = self.set_of(to);
        let Some(set) = self.entries.get_mut(set) else {
            return;
        };
        let known = |e: &Entry| e.to == Some(to) && now < e.expires;
        let place = match set.iter().position(known) {
            Some(place) => place,
            None => {
                let oldest = set.iter().enumerate().min_by_key(|(_, e)| e.expires);
                let Some((place, _)) = oldest else { return };
                set[place] = Entry {
                    to: Some(to),
                    ..FREE
                };
                place
            }
        };
        self.in_use = true;
        let entry = &mut set[place];
        if mtu < entry.any {
            entry.any = mtu;
            entry.expires = now + LIFETIME;
        }
        if by == By::Tcp && mtu < entry.tcp {
            entry.tcp = mtu;
            entry.expires = now + LIFETIME;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Instant = Instant::from_secs(1000);

    fn cache(capacity: usize) -> PathMtus {
        PathMtus::new(capacity, FlowHasher::new([5, 6]))
    }

    fn ip(n: u32) -> IpAddr {
        core::net::Ipv4Addr::from_bits(0x0a00_0000 | n).into()
    }

    #[test]
    fn what_is_known_is_forgotten_after_ten_minutes() {
        let mut cache = cache(8);
        assert_eq!(cache.find(NOW, ip(1), By::Tcp), None);
        cache.lower(NOW, ip(1), 1400, By::Tcp);
        // A larger one is no news.
        cache.lower(NOW + Duration::from_secs(300), ip(1), 1450, By::Tcp);
        let at = |secs| cache.find(NOW + Duration::from_secs(secs), ip(1), By::Tcp);
        assert_eq!((at(0), at(599), at(600)), (Some(1400), Some(1400), None));
        assert_eq!(cache.find(NOW, ip(2), By::Tcp), None);
    }

    #[test]
    fn connections_do_not_believe_what_datagrams_were_told() {
        let mut cache = cache(8);
        cache.lower(NOW, ip(1), 600, By::Datagram);
        assert_eq!(cache.find(NOW, ip(1), By::Tcp), None);
        assert_eq!(cache.find(NOW, ip(1), By::Datagram), Some(600));
        cache.lower(NOW, ip(1), 1400, By::Tcp);
        assert_eq!(cache.find(NOW, ip(1), By::Tcp), Some(1400));
        assert_eq!(cache.find(NOW, ip(1), By::Datagram), Some(600));
        cache.lower(NOW, ip(2), 1400, By::Tcp);
        assert_eq!(cache.find(NOW, ip(2), By::Datagram), Some(1400));
    }

    #[test]
    fn nobody_is_talked_into_tiny_packets() {
        let mut cache = cache(8);
        let six: IpAddr = "fd00::1".parse().unwrap();
        cache.lower(NOW, ip(1), 68, By::Datagram);
        cache.lower(NOW, six, 68, By::Tcp);
        assert_eq!(cache.find(NOW, ip(1), By::Datagram), Some(552));
        assert_eq!(cache.find(NOW, six, By::Tcp), Some(1280));
    }

    #[test]
    fn it_does_not_grow() {
        let mut full = cache(64);
        for n in 0..10_000 {
            full.lower(NOW + Duration::from_millis(n.into()), ip(n), 1000, By::Tcp);
        }
        assert_eq!(full.entries.len(), 64);
        let now = NOW + Duration::from_secs(10);
        let known = (0..10_000).filter(|n| full.find(now, ip(*n), By::Tcp).is_some());
        assert_eq!(known.count(), 64);
        // The newest is there, and with no place there is none.
        assert_eq!(full.find(now, ip(9_999), By::Tcp), Some(1000));
        let mut none = cache(0);
        none.lower(NOW, ip(1), 1000, By::Tcp);
        assert_eq!(none.find(NOW, ip(1), By::Tcp), None);
    }
}
