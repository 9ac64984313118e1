//! Addresses of IPv6 connections, beside the slab: a slot's own key has room for IPv4 only.

use core::net::{Ipv6Addr, SocketAddrV6};

use sidecore_wire::checksum;

use crate::flow::FlowTable;
use crate::hash::FlowHasher;
use crate::list::NIL;

/// A connection's addresses, seen from here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct FlowKey6 {
    pub(crate) local_ip: Ipv6Addr,
    pub(crate) remote_ip: Ipv6Addr,
    pub(crate) local_port: u16,
    pub(crate) remote_port: u16,
}

impl FlowKey6 {
    pub(crate) const fn new(local: SocketAddrV6, remote: SocketAddrV6) -> Self {
        Self {
            local_ip: *local.ip(),
            remote_ip: *remote.ip(),
            local_port: local.port(),
            remote_port: remote.port(),
        }
    }

    pub(crate) const fn local(&self) -> SocketAddrV6 {
        SocketAddrV6::new(self.local_ip, self.local_port, 0, 0)
    }

    pub(crate) const fn remote(&self) -> SocketAddrV6 {
        SocketAddrV6::new(self.remote_ip, self.remote_port, 0, 0)
    }

    #[inline]
    pub(crate) const fn tag(&self, hasher: &FlowHasher) -> u32 {
        let ports = (self.local_port as u32) << 16 | self.remote_port as u32;
        hasher.hash6(self.local_ip.to_bits(), self.remote_ip.to_bits(), ports) as u32
    }
}

/// What the stack knows of an IPv6 connection, and not of one of IPv4.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Flow6 {
    pub(crate) key: FlowKey6,
    /// The link's station to send to; `None` for the loopback.
    pub(crate) next_hop: Option<Ipv6Addr>,
    /// The sum of both addresses, for checksums.
    pub(crate) sum: u32,
    /// RFC 6437: the same for all packets of the connection, and nobody's to guess.
    pub(crate) label: u32,
}

impl Flow6 {
    pub(crate) fn new(key: FlowKey6, next_hop: Option<Ipv6Addr>, hasher: &FlowHasher) -> Self {
        let sum = checksum::pseudo_v6(key.local_ip, key.remote_ip, 0, 0);
        // Other bits of the hash than those that place it.
        let label = key.tag(hasher) >> 12;
        Self {
            key,
            next_hop,
            sum,
            label,
        }
    }
}

const NOBODY: Flow6 = Flow6 {
    key: FlowKey6 {
        local_ip: Ipv6Addr::UNSPECIFIED,
        remote_ip: Ipv6Addr::UNSPECIFIED,
        local_port: 0,
        remote_port: 0,
    },
    next_hop: None,
    sum: 0,
    label: 0,
};

/// The flow table of IPv6, and the addresses by index of the connection. Without a connection of IPv6 it takes no memory.
#[derive(Debug)]
pub(crate) struct Flows6 {
    table: Option<FlowTable>,
    flows: Vec<Flow6>,
    capacity: usize,
    /// What was found last.
    last: u32,
}

impl Flows6 {
    pub(crate) const fn new(capacity: usize) -> Self {
        Self {
            table: None,
            flows: Vec::new(),
            capacity,
            last: NIL,
        }
    }

    /// How many are in the table.
    pub(crate) fn len(&self) -> usize {
        self.table.as_ref().map_or(0, FlowTable::len)
    }

    /// The addresses of a connection that is one of IPv6.
    #[inline]
    pub(crate) fn get(&self, index: u32) -> &Flow6 {
        self.flows.get(index as usize).unwrap_or(&NOBODY)
    }

    #[inline]
    pub(crate) fn set_next_hop(&mut self, index: u32, next_hop: Ipv6Addr) {
        if let Some(flow) = self.flows.get_mut(index as usize) {
            flow.next_hop = Some(next_hop);
        }
    }

    #[inline]
    pub(crate) fn find(&mut self, key: &FlowKey6, hasher: &FlowHasher) -> Option<u32> {
        // As with IPv4: segments come in trains.
        if self.last != NIL && self.get(self.last).key == *key {
            return Some(self.last);
        }
        let found = self.find_tagged(key, hasher)?;
        self.last = found;
        Some(found)
    }

    fn find_tagged(&self, key: &FlowKey6, hasher: &FlowHasher) -> Option<u32> {
        let table = self.table.as_ref()?;
        table.find(key.tag(hasher), |index| self.get(index).key == *key)
    }

    /// Whether the table leads from this connection's addresses to it.
    pub(crate) fn leads_to(&self, index: u32, hasher: &FlowHasher) -> bool {
        self.find_tagged(&self.get(index).key, hasher) == Some(index)
    }

    /// Adds a connection; false if the table is full.
    pub(crate) fn insert(&mut self, index: u32, flow: Flow6, hasher: &FlowHasher) -> bool {
        let at = index as usize;
        if self.flows.len() <= at {
            self.flows.resize(at + 1, NOBODY);
        }
        self.flows[at] = flow;
        let capacity = self.capacity;
        let table = self.table.get_or_insert_with(|| FlowTable::new(capacity));
        table.insert(flow.key.tag(hasher), index)
    }

    /// Takes a connection out of the table; false if it was not there. Its addresses can still be asked for.
    pub(crate) fn remove(&mut self, index: u32, hasher: &FlowHasher) -> bool {
        if self.last == index {
            self.last = NIL;
        }
        let tag = self.get(index).key.tag(hasher);
        let table = self.table.as_mut();
        table.is_some_and(|table| table.remove(tag, index))
    }
}
