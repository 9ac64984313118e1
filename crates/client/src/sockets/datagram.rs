//! A datagram that was received, and what its headers said.

use std::net::{IpAddr, SocketAddr};

use sidecore_abi::Event;
use sidecore_abi::event::{DESTINATION_LEN, Destination, NO_CHUNK};

use super::group::Group;

/// A datagram that was received.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Datagram {
    /// Bytes of it that found room.
    pub len: usize,
    /// Bytes that it has.
    pub whole: usize,
    /// Who sent it.
    pub from: SocketAddr,
    /// Where it was sent: an address of the engine, a group, or all (IP_PKTINFO, IPV6_RECVPKTINFO); `None` if that is not told.
    pub to: Option<IpAddr>,
    /// Time to live or hop limit that was left (IP_RECVTTL, IPV6_RECVHOPLIMIT).
    pub hops: u8,
    /// DSCP and ECN (IP_RECVTOS, IPV6_RECVTCLASS).
    pub class: u8,
}

impl Datagram {
    /// What an event says of a datagram of which `len` bytes were copied; `None` if it names no sender.
    pub(super) fn of(group: &Group, event: &Event, len: usize) -> Option<Self> {
        let from = event.address(2).get()?;
        let arrival = event.arrival();
        let to = match arrival.to {
            Destination::V4(to) => Some(to.into()),
            Destination::Behind => behind(group, event),
            Destination::Unknown => None,
        };
        Some(Self {
            len,
            whole: event.len() as usize,
            from,
            to,
            hops: arrival.hops,
            class: arrival.class,
        })
    }
}

/// The address behind a datagram of IPv6.
fn behind(group: &Group, event: &Event) -> Option<IpAddr> {
    if event.chunk() == NO_CHUNK {
        return None;
    }
    let mut with_it = *event;
    let len = event.len().checked_add(DESTINATION_LEN as u32)?;
    with_it.body[0] = u64::from(event.chunk()) | u64::from(len) << 32;
    let mut octets = [0; DESTINATION_LEN];
    let pool = group.ual.pool();
    let n = pool.read_at(&with_it, event.len() as usize, &mut octets);
    (n == octets.len()).then(|| octets.into())
}
