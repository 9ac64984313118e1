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

/// Bound local addresses of one version of IP, sorted by port. An address of 0.0.0.0 or :: stands for all, and takes the
/// port for all.
#[derive(Debug)]
pub(crate) struct PortTable<A = Ipv4Addr> {
    entries: Vec<Entry<A>>,
}

#[derive(Clone, Copy, Debug)]
struct Entry<A> {
    port: u16,
    address: A,
    index: u32,
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

    /// Who is bound to this address and port.
    pub(crate) fn find(&self, address: A, port: u16) -> Option<u32> {
        let matches = |entry: &&Entry<A>| entry.address.is_any() || entry.address == address;
        let entry = self.of_port(port).iter().find(matches)?;
        Some(entry.index)
    }

    /// Whether binding to this would meet another.
    pub(crate) fn conflicts(&self, address: A, port: u16) -> bool {
        let any = address.is_any();
        any && !self.of_port(port).is_empty() || self.find(address, port).is_some()
    }

    /// Binds what does not conflict.
    pub(crate) fn insert(&mut self, address: A, port: u16, index: u32) {
        let at = self.entries.partition_point(|e| e.port < port);
        let entry = Entry {
            port,
            address,
            index,
        };
        self.entries.insert(at, entry);
    }

    pub(crate) fn remove(&mut self, index: u32) {
        self.entries.retain(|entry| entry.index != index);
    }
}

/// Port selection of RFC 6056 section 3.3.3 (algorithm 3, "simple hash-based"): to one peer ports go up one by one, to
/// different peers from different starting points, which nobody can guess.
#[derive(Debug)]
pub(crate) struct EphemeralPorts {
    range: RangeInclusive<u16>,
    hasher: FlowHasher,
    next: u32,
}

impl EphemeralPorts {
    pub(crate) fn new(range: RangeInclusive<u16>, hasher: FlowHasher) -> Self {
        // Port 0 is no port.
        let range = (*range.start()).max(1)..=*range.end();
        Self {
            range,
            hasher,
            next: 0,
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
        let offset = self.hasher.hash(addresses, u32::from(remote.port())) as u32;
        self.first_from(offset, is_free)
    }

    /// The same for IPv6.
    pub(crate) fn choose6(
        &mut self,
        local: Ipv6Addr,
        remote: SocketAddrV6,
        is_free: impl FnMut(u16) -> bool,
    ) -> Option<u16> {
        let (from, to) = (local.to_bits(), remote.ip().to_bits());
        let offset = self.hasher.hash6(from, to, u32::from(remote.port())) as u32;
        self.first_from(offset, is_free)
    }

    fn first_from(&mut self, offset: u32, mut is_free: impl FnMut(u16) -> bool) -> Option<u16> {
        let count = u32::from(*self.range.end()) + 1;
        let count = count.checked_sub(u32::from(*self.range.start()))?;
        if count == 0 {
            return None;
        }
        for _ in 0..count {
            let at = offset.wrapping_add(self.next) % count;
            self.next = self.next.wrapping_add(1);
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
        table.insert(Ipv4Addr::UNSPECIFIED, 80, 0);
        table.insert(A, 443, 1);
        table.insert(B, 443, 2);
        assert_eq!(table.find(A, 80), Some(0));
        assert_eq!(table.find(A, 443), Some(1));
        assert_eq!(table.find(B, 443), Some(2));
        assert_eq!(table.find(A, 81), None);
        assert!(table.conflicts(A, 80) && table.conflicts(Ipv4Addr::UNSPECIFIED, 443));
        assert!(!table.conflicts(A, 8080));
        table.remove(1);
        assert_eq!(table.find(A, 443), None);
        assert!(!table.conflicts(A, 443) && table.conflicts(B, 443));
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
