//! The flow table: from a 4-tuple to a connection.

use core::net::{Ipv4Addr, SocketAddrV4};

use crate::hash::FlowHasher;

/// A connection's addresses, seen from here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub(crate) struct FlowKey {
    pub(crate) local_ip: Ipv4Addr,
    pub(crate) remote_ip: Ipv4Addr,
    pub(crate) local_port: u16,
    pub(crate) remote_port: u16,
}

impl FlowKey {
    pub(crate) const fn new(local: SocketAddrV4, remote: SocketAddrV4) -> Self {
        Self {
            local_ip: *local.ip(),
            remote_ip: *remote.ip(),
            local_port: local.port(),
            remote_port: remote.port(),
        }
    }

    pub(crate) const fn local(&self) -> SocketAddrV4 {
        SocketAddrV4::new(self.local_ip, self.local_port)
    }

    pub(crate) const fn remote(&self) -> SocketAddrV4 {
        SocketAddrV4::new(self.remote_ip, self.remote_port)
    }

    /// The tag under which the table keeps it.
    #[inline]
    pub(crate) const fn tag(&self, hasher: &FlowHasher) -> u32 {
        let addresses = (self.local_ip.to_bits() as u64) << 32 | self.remote_ip.to_bits() as u64;
        let ports = (self.local_port as u32) << 16 | self.remote_port as u32;
        hasher.hash(addresses, ports) as u32
    }
}

/// An open-addressing hash table of indices by tag, with linear probing, never more than half full.
///
/// An entry is `tag << 32 | index + 1`; 0 is an empty one. The lower bits of a tag are the entry's place, so that
/// entries can be moved without a look at the keys; all bits of it are compared before a caller looks at a key. The hash
/// is keyed: peers that choose their ports cannot make the probes long.
#[derive(Debug)]
pub(crate) struct FlowTable {
    entries: Box<[u64]>,
    mask: u32,
    len: usize,
}

impl FlowTable {
    /// A table for `capacity` flows. It never grows; memory that is not used yet is not touched.
    pub(crate) fn new(capacity: usize) -> Self {
        let size = capacity
            .saturating_mul(2)
            .max(16)
            .next_power_of_two()
            .min(1 << 31);
        Self {
            entries: vec![0; size].into_boxed_slice(),
            mask: (size - 1) as u32,
            len: 0,
        }
    }

    /// How many flows there are.
    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    #[inline]
    fn entry(&self, place: u32) -> u64 {
        self.entries[(place & self.mask) as usize]
    }

    /// The entry at which a look-up of this tag begins; mostly the one that it finds.
    #[inline]
    pub(crate) fn peek(&self, tag: u32) -> u64 {
        self.entry(tag)
    }

    /// The index with this tag for which `is_it` says so.
    #[inline]
    pub(crate) fn find(&self, tag: u32, mut is_it: impl FnMut(u32) -> bool) -> Option<u32> {
        let mut place = tag;
        loop {
            let entry = self.entry(place);
            if entry == 0 {
                return None;
            }
            let index = (entry as u32).wrapping_sub(1);
            if (entry >> 32) as u32 == tag && is_it(index) {
                return Some(index);
            }
            place = place.wrapping_add(1);
        }
    }

    /// Adds an index that is not in the table; false if the table is full.
    pub(crate) fn insert(&mut self, tag: u32, index: u32) -> bool {
        if self.len >= self.entries.len() / 2 {
            return false;
        }
        let mut place = tag & self.mask;
        while self.entry(place) != 0 {
            place = place.wrapping_add(1) & self.mask;
        }
        self.entries[place as usize] = u64::from(tag) << 32 | u64::from(index + 1);
        self.len += 1;
        true
    }

    /// Takes an index out; false if it was not there.
    pub(crate) fn remove(&mut self, tag: u32, index: u32) -> bool {
        let wanted = u64::from(tag) << 32 | u64::from(index + 1);
        let mut hole = tag & self.mask;
        loop {
            match self.entry(hole) {
                0 => return false,
                entry if entry == wanted => break,
                _ => hole = hole.wrapping_add(1) & self.mask,
            }
        }
        self.len -= 1;
        // Entries behind the hole move up to where a probe from their own place still finds them.
        let mut place = hole;
        loop {
            place = place.wrapping_add(1) & self.mask;
            let entry = self.entry(place);
            if entry == 0 {
                break;
            }
            let own = (entry >> 32) as u32 & self.mask;
            let displaced_by = place.wrapping_sub(own) & self.mask;
            let hole_is_back_by = place.wrapping_sub(hole) & self.mask;
            if displaced_by >= hole_is_back_by {
                self.entries[hole as usize] = entry;
                hole = place;
            }
        }
        self.entries[hole as usize] = 0;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        #![proptest_config(sidecore_testkit::property_config(256))]

        /// Few distinct tags in a small table: long clusters, around the end too.
        #[test]
        fn behaves_like_a_map(operations in prop::collection::vec((any::<bool>(), 0..12u32, any::<bool>()), 0..300)) {
            let mut table = FlowTable::new(8);
            let mut model = BTreeMap::new();
            for (insert, index, high) in operations {
                // Places 12..=15 and 0..=1; equal tags too.
                let tag = (12 + index / 2) | if high { 1 << 31 } else { 0 };
                if insert && !model.contains_key(&index) {
                    let fits = model.len() < 8;
                    prop_assert_eq!(table.insert(tag, index), fits);
                    if fits {
                        model.insert(index, tag);
                    }
                } else if !insert {
                    let tag_of = model.remove(&index);
                    prop_assert_eq!(table.remove(tag_of.unwrap_or(tag), index), tag_of.is_some());
                }
                prop_assert_eq!(table.len(), model.len());
                for index in 0..12 {
                    let found = model.get(&index).and_then(|tag| table.find(*tag, |i| i == index));
                    prop_assert_eq!(found.is_some(), model.contains_key(&index));
                }
            }
        }
    }

    #[test]
    fn keys_that_differ_anywhere_have_other_tags() {
        let hasher = FlowHasher::new([1, 2]);
        let key = |l: [u8; 4], r: [u8; 4], lp, rp| FlowKey {
            local_ip: l.into(),
            remote_ip: r.into(),
            local_port: lp,
            remote_port: rp,
        };
        let keys = [
            key([10, 0, 0, 1], [10, 0, 0, 2], 80, 1024),
            key([10, 0, 0, 2], [10, 0, 0, 1], 80, 1024),
            key([10, 0, 0, 1], [10, 0, 0, 2], 1024, 80),
            key([10, 0, 0, 1], [10, 0, 0, 3], 80, 1024),
            key([10, 0, 0, 1], [10, 0, 0, 2], 81, 1024),
        ];
        for (i, a) in keys.iter().enumerate() {
            assert!(
                keys[i + 1..]
                    .iter()
                    .all(|b| a.tag(&hasher) != b.tag(&hasher))
            );
        }
    }
}
