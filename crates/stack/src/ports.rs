//! Which local ports are bound, and which a socket gets that names none.

use core::net::{Ipv4Addr, Ipv6Addr, SocketAddrV4, SocketAddrV6};
use core::ops::RangeInclusive;

use crate::hash::FlowHasher;

/// An address to be bound to.
pub(crate) trait Bindable: Copy + Eq {
    /// Whether it stands for all.
    fn is_any(self) -> bool;
}

impl Bindable for Ipv4Addr {
    #[inline]
    fn is_any(self) -> bool {
        self.is_unspecified()
    }
}

impl Bindable for Ipv6Addr {
    #[inline]
    fn is_any(self) -> bool {
        self.is_unspecified()
    }
}

/// Bound local addresses of one version of IP, sorted by port, of one port the last bound first. An address of 0.0.0.0 or ::
/// stands for all, and takes the port for all, unless it is shared.
#[derive(Debug)]
pub(crate) struct PortTable<A = Ipv4Addr> {
    entries: Vec<Entry<A>>,
}

#[derive(Clone, Copy, Debug)]
struct Entry<A> {
    port: u16,
    address: A,
    index: u32,
    /// Others that say so too may have the port.
    shared: bool,
}

impl<A> Default for PortTable<A> {
    fn default() -> Self {
        Self {
            entries: Vec::new(),
        }
    }
}

impl<A: Bindable> PortTable<A> {
    fn of_port(&self, port: u16) -> &[Entry<A>] {
        let start = self.entries.partition_point(|entry| entry.port < port);
        let behind = &self.entries[start..];
        let len = behind
            .iter()
            .position(|entry| entry.port != port)
            .unwrap_or(behind.len());
        &behind[..len]
    }

    /// Who is bound to this address and port; rather to this address than to all, rather the last than another.
    #[inline]
    pub(crate) fn find(&self, address: A, port: u16) -> Option<u32> {
        let entries = self.of_port(port);
        let exact = entries.iter().find(|entry| entry.address == address);
        let entry = exact.or_else(|| entries.iter().find(|entry| entry.address.is_any()))?;
        Some(entry.index)
    }

    /// The same of those that suit, for which `suits` gives a number; rather one with a higher.
    #[inline]
    pub(crate) fn find_by(
        &self,
        address: A,
        port: u16,
        suits: impl Fn(u32) -> Option<u32>,
    ) -> Option<u32> {
        let entries = self.of_port(port);
        let best = |matches: &dyn Fn(A) -> bool| {
            let all = entries.iter().filter(|entry| matches(entry.address));
            let scored = all.filter_map(|entry| Some((suits(entry.index)?, entry.index)));
            // Of equals the first.
            scored.reduce(|best, next| if next.0 > best.0 { next } else { best })
        };
        let exact = best(&|its| its == address);
        let found = exact.or_else(|| best(&|its| its.is_any()));
        found.map(|(_, index)| index)
    }

    /// All that are bound to this address and port.
    pub(crate) fn find_all(&self, address: A, port: u16) -> impl Iterator<Item = u32> + '_ {
        let matches = move |entry: &&Entry<A>| entry.address.is_any() || entry.address == address;
        self.of_port(port)
            .iter()
            .filter(matches)
            .map(|entry| entry.index)
    }

    /// Whether binding to this would meet another with which it does not share.
    pub(crate) fn conflicts(&self, address: A, port: u16, shared: bool) -> bool {
        let meets = |entry: &Entry<A>| {
            address.is_any() || entry.address.is_any() || entry.address == address
        };
        let mut others = self.of_port(port).iter();
        others.any(|entry| meets(entry) && !(shared && entry.shared))
    }

    /// Binds what does not conflict.
    pub(crate) fn insert(&mut self, address: A, port: u16, index: u32, shared: bool) {
        let at = self.entries.partition_point(|e| e.port < port);
        let entry = Entry {
            port,
            address,
            index,
            shared,
        };
        self.entries.insert(at, entry);
    }

    pub(crate) fn remove(&mut self, index: u32) {
        self.entries.retain(|entry| entry.index != index);
    }
}

/// Counters of [`EphemeralPorts`].
const COUNTERS: usize = 1024;

/// Port selection of RFC 6056 section 3.3.4 (algorithm 4, "double-hash"): to one peer ports go up one by one, so that none is used
/// again soon; to different peers from different starting points, which nobody can guess. A peer sees how many connections go to those who
/// share its counter, and not how many there are, as with one counter for all (algorithm 3).
#[derive(Debug)]
pub(crate) struct EphemeralPorts {
    range: RangeInclusive<u16>,
    hasher: FlowHasher,
    counters: Vec<u32>,
}

impl EphemeralPorts {
    pub(crate) fn new(range: RangeInclusive<u16>, hasher: FlowHasher) -> Self {
        // Port 0 is no port.
        let range = (*range.start()).max(1)..=*range.end();
        let random = |index: usize| hasher.hash(index as u64, 0x7ab1e) as u32;
        Self {
            range,
            hasher,
            counters: (0..COUNTERS).map(random).collect(),
        }
    }

    /// One that has no port: what stands in for another while that is in use.
    pub(crate) const fn none(hasher: FlowHasher) -> Self {
        Self {
            range: 1..=1,
            hasher,
            counters: Vec::new(),
        }
    }

    /// The first port in the order of this peer for which `is_free` says so.
    pub(crate) fn choose(
        &mut self,
        local: Ipv4Addr,
        remote: SocketAddrV4,
        is_free: impl FnMut(u16) -> bool,
    ) -> Option<u16> {
        let addresses = u64::from(local.to_bits()) << 32 | u64::from(remote.ip().to_bits());
        let hash = self.hasher.hash(addresses, u32::from(remote.port()));
        self.first_from(hash, is_free)
    }

    /// The same for IPv6.
    pub(crate) fn choose6(
        &mut self,
        local: Ipv6Addr,
        remote: SocketAddrV6,
        is_free: impl FnMut(u16) -> bool,
    ) -> Option<u16> {
        let (from, to) = (local.to_bits(), remote.ip().to_bits());
        let hash = self.hasher.hash6(from, to, u32::from(remote.port()));
        self.first_from(hash, is_free)
    }

    /// F is one half of the hash, and G the other.
    fn first_from(&mut self, hash: u64, mut is_free: impl FnMut(u16) -> bool) -> Option<u16> {
        let count = u32::from(*self.range.end()) + 1;
        let count = count.checked_sub(u32::from(*self.range.start()))?;
        let offset = hash as u32;
        let next = self.counters.get_mut((hash >> 32) as usize % COUNTERS)?;
        for _ in 0..count {
            let at = offset.wrapping_add(*next) % count;
            *next = next.wrapping_add(1);
            let port = (u32::from(*self.range.start()) + at) as u16;
            if is_free(port) {
                return Some(port);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    const A: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
    const B: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);

    #[test]
    fn all_and_one_address() {
        let mut table = PortTable::default();
        table.insert(Ipv4Addr::UNSPECIFIED, 80, 0, false);
        table.insert(A, 443, 1, false);
        table.insert(B, 443, 2, false);
        assert_eq!(table.find(A, 80), Some(0));
        assert_eq!(table.find(A, 443), Some(1));
        assert_eq!(table.find(B, 443), Some(2));
        assert_eq!(table.find(A, 81), None);
        let taken = |table: &PortTable, ip, port| table.conflicts(ip, port, true);
        assert!(taken(&table, A, 80) && taken(&table, Ipv4Addr::UNSPECIFIED, 443));
        assert!(!taken(&table, A, 8080));
        table.remove(1);
        assert_eq!(table.find(A, 443), None);
        assert!(!taken(&table, A, 443) && taken(&table, B, 443));
    }

    #[test]
    fn a_port_is_shared_by_those_who_all_say_so() {
        let mut table = PortTable::default();
        let any = Ipv4Addr::UNSPECIFIED;
        table.insert(any, 80, 0, true);
        assert!(table.conflicts(any, 80, false) && !table.conflicts(any, 80, true));
        table.insert(A, 80, 1, true);
        table.insert(any, 80, 2, true);
        assert_eq!(table.find(B, 80), Some(2), "the last");
        assert_eq!(table.find(A, 80), Some(1), "the one at this address");
        assert_eq!(table.find_all(A, 80).collect::<Vec<_>>(), [2, 1, 0]);
        table.remove(2);
        assert_eq!(table.find(B, 80), Some(0));
    }

    #[test]
    fn every_port_is_tried_once_and_peers_differ() {
        let mut ports = EphemeralPorts::new(100..=199, FlowHasher::new([3, 4]));
        let peer = SocketAddrV4::new(B, 80);
        let mut taken = BTreeSet::new();
        for _ in 0..100 {
            let port = ports
                .choose(A, peer, |port| !taken.contains(&port))
                .unwrap();
            assert!((100..=199).contains(&port) && taken.insert(port));
        }
        assert_eq!(ports.choose(A, peer, |port| !taken.contains(&port)), None);

        let first = |peer| {
            let mut ports = EphemeralPorts::new(1000..=60000, FlowHasher::new([3, 4]));
            ports.choose(A, SocketAddrV4::new(peer, 80), |_| true)
        };
        assert_ne!(first(A), first(B));
    }

    /// RFC 6056 section 3.3.4: what goes to others says nothing, and moves nothing.
    #[test]
    fn peers_have_counters_of_their_own() {
        let mut ports = EphemeralPorts::new(32768..=60999, FlowHasher::new([3, 4]));
        let peer =
            |host: u16| SocketAddrV4::new(Ipv4Addr::from_bits(0x0a00_0000 | u32::from(host)), 80);
        let mut first = |host| ports.choose(A, peer(host), |_| true).unwrap();
        let one = first(1);
        for other in 2..100 {
            first(other);
        }
        assert_eq!(first(1), one + 1, "the next one");
        // Where a peer starts is spread over all of the range.
        let mut starts: Vec<u16> = (1000..2000).map(first).collect();
        starts.sort_unstable();
        let quarters = starts.chunks(250).map(|quarter| quarter[125]);
        let expected = [36_000, 43_000, 50_000, 57_000];
        for (median, expected) in quarters.zip(expected) {
            assert!(median.abs_diff(expected) < 1500, "{median} for {expected}");
        }
    }

    #[test]
    fn odd_ranges() {
        let hasher = FlowHasher::new([3, 4]);
        let peer = SocketAddrV4::new(B, 80);
        let choose = |range| EphemeralPorts::new(range, hasher).choose(A, peer, |_| true);
        assert_eq!(choose(7..=7), Some(7));
        assert_eq!(choose(0..=1), Some(1));
        assert!(choose(0..=u16::MAX).is_some());
        #[allow(
            clippy::reversed_empty_ranges,
            reason = "what a wrong configuration may say"
        )]
        {
            assert_eq!(choose(9..=7), None);
        }
    }
}
