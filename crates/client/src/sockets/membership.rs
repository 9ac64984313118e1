//! Changes of memberships, as the usual calls name them.

use std::net::{Ipv4Addr, Ipv6Addr};

use crate::{Membership, MembershipChange};

/// A change about a group of IPv4, on the interface with this address.
pub(crate) fn join_v4(
    change: MembershipChange,
    group: &Ipv4Addr,
    interface: &Ipv4Addr,
) -> Membership {
    Membership {
        local: *interface,
        ..Membership::new(change, (*group).into(), None)
    }
}

/// A change about a group of IPv6, on the interface with this index; one that does not fit is none of the engine's, and is refused by
/// it.
pub(crate) fn join_v6(change: MembershipChange, group: &Ipv6Addr, interface: u32) -> Membership {
    Membership {
        interface: u16::try_from(interface).unwrap_or(u16::MAX),
        ..Membership::new(change, (*group).into(), None)
    }
}
