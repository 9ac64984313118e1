//! Groups of IPv4: RFC 1112, 2236 and 3376.

mod delivery;
mod older;
mod queries;
mod reports;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use sidecore_stack::{GroupChange, SocketOptions, StackError, UdpId, User};
use sidecore_testkit::packet::{Packet, Station};
use sidecore_wire::igmp;

use crate::raw::*;

const GROUP: Ipv4Addr = Ipv4Addr::new(239, 1, 2, 3);
const OTHER: Ipv4Addr = Ipv4Addr::new(239, 1, 2, 4);
const ROUTER: Station = Station::new(9);

// Kinds of records (RFC 3376 section 4.2.12).
const IS_IN: u8 = 1;
const IS_EX: u8 = 2;
const TO_IN: u8 = 3;
const TO_EX: u8 = 4;
const ALLOW: u8 = 5;
const BLOCK: u8 = 6;

fn host(n: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 0, 0, n)
}

type Records = Vec<(u8, Ipv4Addr, Vec<Ipv4Addr>)>;

/// A record.
fn record(kind: u8, group: Ipv4Addr, sources: &[u8]) -> (u8, Ipv4Addr, Vec<Ipv4Addr>) {
    (kind, group, sources.iter().map(|n| host(*n)).collect())
}

/// The records of all these packets, which are reports.
fn told(packets: &[Packet]) -> Records {
    packets.iter().flat_map(Packet::records).collect()
}

impl Raw {
    /// A socket that shares its port.
    fn shared(&mut self, local: &str) -> (UdpId, User) {
        let options = SocketOptions {
            reuse_address: true,
            ..SocketOptions::default()
        };
        let local: SocketAddr = local.parse().unwrap();
        let bound = self.node.udp_bind_with(local, &options);
        bound.expect("a port that may be shared")
    }

    fn change(
        &mut self,
        id: UdpId,
        group: Ipv4Addr,
        change: GroupChange,
    ) -> Result<(), StackError> {
        let now = self.now;
        self.node.stack.udp_group(now, id, group.into(), change)
    }

    fn join(&mut self, id: UdpId, group: Ipv4Addr) {
        self.change(id, group, GroupChange::Join).expect("joined");
    }

    fn leave(&mut self, id: UdpId, group: Ipv4Addr) {
        self.change(id, group, GroupChange::Leave).expect("left");
    }

    fn sources(&mut self, id: UdpId, change: fn(IpAddr) -> GroupChange, hosts: &[u8]) {
        for n in hosts {
            let change = change(host(*n).into());
            self.change(id, GROUP, change).expect("changed");
        }
    }

    /// A member of [`GROUP`] that has said so as often as it does.
    fn settled() -> (Self, UdpId, User) {
        let mut raw = Self::new();
        let (id, user) = raw.shared("0.0.0.0:5000");
        raw.join(id, GROUP);
        raw.pass(Duration::from_secs(5));
        (raw, id, user)
    }

    /// A router asks; what is said in this turn.
    fn ask(&mut self, query: &[u8]) -> Vec<Packet> {
        self.send(&ROUTER.igmp(&Station::group(igmp::ALL_SYSTEMS), 1, true, query))
    }
}

/// An IGMPv3 query; `code` in tenths of a second.
fn query(group: Ipv4Addr, code: u8, sources: &[Ipv4Addr]) -> Vec<u8> {
    let mut bytes = vec![igmp::QUERY, code, 0, 0];
    bytes.extend(group.octets());
    // Robustness 2, an interval of 125 s.
    bytes.extend([2, 125]);
    bytes.extend((sources.len() as u16).to_be_bytes());
    for source in sources {
        bytes.extend(source.octets());
    }
    bytes
}

/// A query of version 1 (code 0) or 2.
fn short_query(group: Ipv4Addr, code: u8) -> Vec<u8> {
    let mut bytes = vec![igmp::QUERY, code, 0, 0];
    bytes.extend(group.octets());
    bytes
}
