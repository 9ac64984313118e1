//! What a datagram socket listens to: the body of [`crate::Operation::Membership`].
//!
//! ```text
//!   body 0: change (8) | family: 4, 6 (8) | interface (16) | local address of IPv4 (32)
//!   body 1, 2: the group, 16 bytes in network order; of IPv4 as an IPv4-mapped address
//!   body 3, 4: the source, likewise; zeros where the change names none
//! ```

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// What becomes of a group or of one of its sources (RFC 3678 section 4.1: the options of that name).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum MembershipChange {
    /// Listen to the group, whoever sends (MCAST_JOIN_GROUP, IP_ADD_MEMBERSHIP, IPV6_JOIN_GROUP).
    Join = 1,
    /// Do not listen to it any more (MCAST_LEAVE_GROUP, IP_DROP_MEMBERSHIP, IPV6_LEAVE_GROUP).
    Leave = 2,
    /// Listen to this source of it (MCAST_JOIN_SOURCE_GROUP).
    JoinSource = 3,
    /// … and not any more (MCAST_LEAVE_SOURCE_GROUP).
    LeaveSource = 4,
    /// Having joined, do not listen to this source (MCAST_BLOCK_SOURCE).
    BlockSource = 5,
    /// … and listen to it again (MCAST_UNBLOCK_SOURCE).
    UnblockSource = 6,
}

impl MembershipChange {
    /// From its number.
    pub const fn from_raw(raw: u8) -> Option<Self> {
        use MembershipChange::*;
        Some(match raw {
            1 => Join,
            2 => Leave,
            3 => JoinSource,
            4 => LeaveSource,
            5 => BlockSource,
            6 => UnblockSource,
            _ => return None,
        })
    }

    /// Whether it names a source.
    pub const fn has_source(self) -> bool {
        !matches!(self, Self::Join | Self::Leave)
    }
}

/// A change of what a socket listens to.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Membership {
    /// What is to be done.
    pub change: MembershipChange,
    /// Which group.
    pub group: IpAddr,
    /// Which source, of the group's version; counts only where the change names one.
    pub source: Option<IpAddr>,
    /// Index of the interface; 0: the engine's choice, 1: the engine's link, the only one there is.
    pub interface: u16,
    /// The interface by its address of IPv4; 0.0.0.0: it is not named so.
    pub local: Ipv4Addr,
}

/// Words of the body.
const WORDS: usize = 5;
const _: () = assert!(WORDS * size_of::<u64>() == 40);

impl Membership {
    /// A change that leaves the interface to the engine.
    pub const fn new(change: MembershipChange, group: IpAddr, source: Option<IpAddr>) -> Self {
        Self {
            change,
            group,
            source,
            interface: 0,
            local: Ipv4Addr::UNSPECIFIED,
        }
    }

    /// As a command's body.
    pub fn to_body(&self) -> [u64; WORDS] {
        let family = if self.group.is_ipv4() { 4u64 } else { 6 };
        let [g0, g1] = words(self.group);
        let [s0, s1] = self.source.map_or([0; 2], words);
        let head = self.change as u64
            | family << 8
            | u64::from(self.interface) << 16
            | u64::from(self.local.to_bits()) << 32;
        [head, g0, g1, s0, s1]
    }

    /// From a command's body; `None` if the change or the family is none, or an address is not of the family.
    pub fn from_body(body: [u64; WORDS]) -> Option<Self> {
        let [head, g0, g1, s0, s1] = body;
        let change = MembershipChange::from_raw(head as u8)?;
        let family = (head >> 8) as u8;
        let source = if change.has_source() {
            Some(address(family, [s0, s1])?)
        } else {
            None
        };
        Some(Self {
            change,
            group: address(family, [g0, g1])?,
            source,
            interface: (head >> 16) as u16,
            local: Ipv4Addr::from_bits((head >> 32) as u32),
        })
    }
}

fn words(ip: IpAddr) -> [u64; 2] {
    let octets = match ip {
        IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
        IpAddr::V6(ip) => ip.octets(),
    };
    let mut both = [0; 2];
    for (word, bytes) in both.iter_mut().zip(octets.chunks_exact(8)) {
        let mut eight = [0; 8];
        eight.copy_from_slice(bytes);
        *word = u64::from_ne_bytes(eight);
    }
    both
}

fn address(family: u8, words: [u64; 2]) -> Option<IpAddr> {
    let mut octets = [0; 16];
    for (bytes, word) in octets.chunks_exact_mut(8).zip(words) {
        bytes.copy_from_slice(&word.to_ne_bytes());
    }
    let ip = Ipv6Addr::from(octets);
    match family {
        4 => ip.to_ipv4_mapped().map(IpAddr::V4),
        6 => Some(IpAddr::V6(ip)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_and_back() {
        let all = (1..=6).map(|raw| MembershipChange::from_raw(raw).unwrap());
        for change in all {
            for (group, source) in [("239.1.2.3", "10.0.0.1"), ("ff15::1", "2001:db8::1")] {
                let source = change.has_source().then(|| source.parse().unwrap());
                let membership = Membership {
                    interface: 1,
                    local: [10, 0, 0, 2].into(),
                    ..Membership::new(change, group.parse().unwrap(), source)
                };
                let back = Membership::from_body(membership.to_body());
                assert_eq!(back, Some(membership));
            }
        }
    }

    #[test]
    fn nonsense_is_refused() {
        let join = Membership::new(MembershipChange::Join, "239.1.2.3".parse().unwrap(), None);
        let body = join.to_body();
        let with = |head: u64| Membership::from_body([head, body[1], body[2], 0, 0]);
        assert_eq!(with(4 << 8), None, "no change");
        assert_eq!(with(7 | 4 << 8), None, "an unknown change");
        assert_eq!(with(1 | 5 << 8), None, "an unknown family");
        assert_eq!(with(3 | 4 << 8), None, "no source where one is named");
        assert_eq!(
            Membership::from_body([1 | 4 << 8, 1, 2, 0, 0]),
            None,
            "family 4 over an address of IPv6"
        );
    }
}
