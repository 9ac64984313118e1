//! Options about groups, as RFC 3678 and Linux name them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use libc::c_int;
use rustix::io::Errno;
use sidecore_client::abi::{Membership, MembershipChange};

/// Bytes of a `struct sockaddr_storage`.
const STORAGE: usize = 128;

fn v4(bytes: &[u8], at: usize) -> Result<Ipv4Addr, Errno> {
    let octets: [u8; 4] = bytes
        .get(at..at + 4)
        .and_then(|four| four.try_into().ok())
        .ok_or(Errno::INVAL)?;
    Ok(octets.into())
}

fn index(bytes: &[u8], at: usize) -> Result<u16, Errno> {
    let octets: [u8; 4] = bytes
        .get(at..at + 4)
        .and_then(|four| four.try_into().ok())
        .ok_or(Errno::INVAL)?;
    u16::try_from(u32::from_ne_bytes(octets)).map_err(|_| Errno::NODEV)
}

/// The address in a `struct sockaddr_storage`.
fn storage(bytes: &[u8], at: usize) -> Result<IpAddr, Errno> {
    let bytes = bytes.get(at..at + STORAGE).ok_or(Errno::INVAL)?;
    let family = u16::from_ne_bytes([bytes[0], bytes[1]]);
    match c_int::from(family) {
        libc::AF_INET => v4(bytes, 4).map(IpAddr::V4),
        libc::AF_INET6 => {
            let octets: [u8; 16] = bytes[8..24].try_into().map_err(|_| Errno::INVAL)?;
            Ok(Ipv6Addr::from(octets).into())
        }
        _ => Err(Errno::AFNOSUPPORT),
    }
}

/// A `struct ip_mreqn`, or the `struct ip_mreq` that it begins with: group, the interface's address, the interface's index.
fn of_ipv4(change: MembershipChange, value: &[u8]) -> Result<Membership, Errno> {
    let (group, local) = (v4(value, 0)?, v4(value, 4)?);
    Ok(Membership {
        interface: index(value, 8).unwrap_or(0),
        local,
        ..Membership::new(change, group.into(), None)
    })
}

/// A `struct ip_mreq_source`: group, the interface's address, source.
fn of_ipv4_source(change: MembershipChange, value: &[u8]) -> Result<Membership, Errno> {
    let (group, local, source) = (v4(value, 0)?, v4(value, 4)?, v4(value, 8)?);
    Ok(Membership {
        local,
        ..Membership::new(change, group.into(), Some(source.into()))
    })
}

/// A `struct ipv6_mreq`: group, the interface's index.
fn of_ipv6(change: MembershipChange, value: &[u8]) -> Result<Membership, Errno> {
    let octets: [u8; 16] = value
        .get(..16)
        .and_then(|group| group.try_into().ok())
        .ok_or(Errno::INVAL)?;
    Ok(Membership {
        interface: index(value, 16)?,
        ..Membership::new(change, Ipv6Addr::from(octets).into(), None)
    })
}

/// A `struct group_req` or `struct group_source_req`: the interface's index, group, and source.
fn of_either(change: MembershipChange, value: &[u8]) -> Result<Membership, Errno> {
    let group = storage(value, 8)?;
    let source = match change.has_source() {
        true => Some(storage(value, 8 + STORAGE)?),
        false => None,
    };
    if source.is_some_and(|source| source.is_ipv4() != group.is_ipv4()) {
        return Err(Errno::INVAL);
    }
    Ok(Membership {
        interface: index(value, 0)?,
        ..Membership::new(change, group, source)
    })
}

/// The change that an option asks for; `None`: it is no such option.
pub(super) fn change(level: c_int, name: c_int, value: &[u8]) -> Option<Result<Membership, Errno>> {
    use MembershipChange::{BlockSource, Join, JoinSource, Leave, LeaveSource, UnblockSource};
    let either = match name {
        libc::MCAST_JOIN_GROUP => Some(Join),
        libc::MCAST_LEAVE_GROUP => Some(Leave),
        libc::MCAST_JOIN_SOURCE_GROUP => Some(JoinSource),
        libc::MCAST_LEAVE_SOURCE_GROUP => Some(LeaveSource),
        libc::MCAST_BLOCK_SOURCE => Some(BlockSource),
        libc::MCAST_UNBLOCK_SOURCE => Some(UnblockSource),
        _ => None,
    };
    Some(match (level, name, either) {
        (libc::IPPROTO_IP | libc::IPPROTO_IPV6, _, Some(change)) => of_either(change, value),
        (libc::IPPROTO_IP, libc::IP_ADD_MEMBERSHIP, _) => of_ipv4(Join, value),
        (libc::IPPROTO_IP, libc::IP_DROP_MEMBERSHIP, _) => of_ipv4(Leave, value),
        (libc::IPPROTO_IP, libc::IP_ADD_SOURCE_MEMBERSHIP, _) => of_ipv4_source(JoinSource, value),
        (libc::IPPROTO_IP, libc::IP_DROP_SOURCE_MEMBERSHIP, _) => {
            of_ipv4_source(LeaveSource, value)
        }
        (libc::IPPROTO_IP, libc::IP_BLOCK_SOURCE, _) => of_ipv4_source(BlockSource, value),
        (libc::IPPROTO_IP, libc::IP_UNBLOCK_SOURCE, _) => of_ipv4_source(UnblockSource, value),
        (libc::IPPROTO_IPV6, libc::IPV6_ADD_MEMBERSHIP, _) => of_ipv6(Join, value),
        (libc::IPPROTO_IPV6, libc::IPV6_DROP_MEMBERSHIP, _) => of_ipv6(Leave, value),
        _ => return None,
    })
}

/// The address that IP_MULTICAST_IF names: a `struct in_addr`, `ip_mreq` or `ip_mreqn`; as a number.
pub(super) fn interface(value: &[u8]) -> Option<u32> {
    let at = if value.len() >= 8 { 4 } else { 0 };
    v4(value, at).ok().map(Ipv4Addr::to_bits)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GROUP: [u8; 4] = [239, 1, 2, 3];
    const LOCAL: [u8; 4] = [10, 77, 0, 2];

    #[test]
    fn changes_of_ipv4() {
        let value = [GROUP, LOCAL].concat();
        let join = change(libc::IPPROTO_IP, libc::IP_ADD_MEMBERSHIP, &value)
            .unwrap()
            .unwrap();
        assert_eq!(join.change, MembershipChange::Join);
        assert_eq!(join.group, IpAddr::from(GROUP));
        assert_eq!((join.local, join.interface), (LOCAL.into(), 0));
        let value = [GROUP, LOCAL, 1u32.to_ne_bytes()].concat();
        let leave = change(libc::IPPROTO_IP, libc::IP_DROP_MEMBERSHIP, &value)
            .unwrap()
            .unwrap();
        assert_eq!(
            (leave.change, leave.interface),
            (MembershipChange::Leave, 1)
        );
        let value = [GROUP, LOCAL, [10, 77, 0, 9]].concat();
        let block = change(libc::IPPROTO_IP, libc::IP_BLOCK_SOURCE, &value)
            .unwrap()
            .unwrap();
        assert_eq!(block.source, Some([10, 77, 0, 9].into()));
        let short = change(libc::IPPROTO_IP, libc::IP_ADD_MEMBERSHIP, &GROUP);
        assert_eq!(short, Some(Err(Errno::INVAL)));
        assert_eq!(change(libc::IPPROTO_IP, libc::IP_TTL, &value), None);
    }

    #[test]
    fn changes_of_either_version() {
        let mut value = vec![0; 8 + 2 * STORAGE];
        value[0] = 1;
        for at in [8, 8 + STORAGE] {
            value[at..at + 2].copy_from_slice(&(libc::AF_INET6 as u16).to_ne_bytes());
            value[at + 8] = 0xff;
        }
        let join = change(libc::IPPROTO_IPV6, libc::MCAST_JOIN_SOURCE_GROUP, &value)
            .unwrap()
            .unwrap();
        assert_eq!(
            (join.interface, join.change),
            (1, MembershipChange::JoinSource)
        );
        assert!(join.group.is_ipv6() && join.source.is_some());
        value[8..10].copy_from_slice(&(libc::AF_INET as u16).to_ne_bytes());
        let mixed = change(libc::IPPROTO_IPV6, libc::MCAST_JOIN_SOURCE_GROUP, &value);
        assert_eq!(mixed, Some(Err(Errno::INVAL)));
        value[8] = 77;
        let odd = change(libc::IPPROTO_IPV6, libc::MCAST_JOIN_GROUP, &value);
        assert_eq!(odd, Some(Err(Errno::AFNOSUPPORT)));
    }

    #[test]
    fn the_interface_by_its_address() {
        let number = u32::from_be_bytes(LOCAL);
        assert_eq!(interface(&LOCAL), Some(number));
        assert_eq!(interface(&[GROUP, LOCAL].concat()), Some(number));
        assert_eq!(interface(&LOCAL[..3]), None);
    }
}
