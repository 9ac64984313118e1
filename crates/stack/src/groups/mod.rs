//! Groups that sockets, and the stack itself, are in: whom their datagrams reach, and what routers are told of them (RFC 1112,
//! 2236, 3376; 2710, 3810). One state machine for both versions of IP, as MLDv2 is IGMPv3 with other addresses:
//!
//! | file | what |
//! |---|---|
//! | `filter` | source filters, of sockets and merged for the interface |
//! | `state` | what changed and is to be said again; queries and their delayed answers; older routers |
//! | `report` | records packed into messages |
//! | `igmp` | IPv4's messages in and out; those of IPv6 are in `v6::mld` |
//!
//! There is one interface. Nothing here is touched by a packet that is not sent to a group.

mod filter;
mod igmp;
mod report;
mod state;

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use sidecore_tcp::Instant;
use sidecore_wire::groups::GroupAddress;
use sidecore_wire::{igmp as wire_igmp, ipv6};

use crate::UdpId;
use crate::error::StackError;
use crate::hash::FlowHasher;
use crate::stack::Stack;
use filter::{Filter, Mode};
use state::Timing;

pub(crate) use report::pack;
pub(crate) use state::Said;

/// Limits of what is kept about groups.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GroupConfig {
    /// Groups of each version of IP that all sockets together are in.
    pub groups: usize,
    /// Groups that one socket is in.
    pub per_socket: usize,
    /// Sources on one socket's list for one group; and those that are kept of a query.
    pub sources: usize,
}

impl Default for GroupConfig {
    fn default() -> Self {
        Self {
            groups: 256,
            per_socket: 64,
            sources: 64,
        }
    }
}

/// What a socket does about a group (RFC 3678 section 4.1: the options of that name).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GroupChange {
    /// Listens to it, whoever sends (MCAST_JOIN_GROUP).
    Join,
    /// Does not listen any more, however it did (MCAST_LEAVE_GROUP).
    Leave,
    /// Listens to this source of it (MCAST_JOIN_SOURCE_GROUP).
    JoinSource(IpAddr),
    /// … and does not any more (MCAST_LEAVE_SOURCE_GROUP).
    LeaveSource(IpAddr),
    /// Having joined, does not listen to this source (MCAST_BLOCK_SOURCE).
    Block(IpAddr),
    /// … and listens again (MCAST_UNBLOCK_SOURCE).
    Unblock(IpAddr),
}

/// The same with addresses of one version.
#[derive(Clone, Copy, Debug)]
enum Change<A> {
    Join,
    Leave,
    JoinSource(A),
    LeaveSource(A),
    Block(A),
    Unblock(A),
}

impl GroupChange {
    /// With its source as an address of the wanted version; `None` if that is another's.
    fn of<A>(self, source: impl Fn(IpAddr) -> Option<A>) -> Option<Change<A>> {
        Some(match self {
            Self::Join => Change::Join,
            Self::Leave => Change::Leave,
            Self::JoinSource(from) => Change::JoinSource(source(from)?),
            Self::LeaveSource(from) => Change::LeaveSource(source(from)?),
            Self::Block(from) => Change::Block(source(from)?),
            Self::Unblock(from) => Change::Unblock(source(from)?),
        })
    }
}

/// Whether routers are told of a group at all.
pub(crate) trait Reported: GroupAddress {
    const ANY: Self;
    fn is_reported(self) -> bool;
}

impl Reported for Ipv4Addr {
    const ANY: Self = Self::UNSPECIFIED;

    /// RFC 3376 section 6: "The all-systems multicast address, 224.0.0.1, is handled as a special case."
    fn is_reported(self) -> bool {
        self != wire_igmp::ALL_SYSTEMS
    }
}

impl Reported for Ipv6Addr {
    const ANY: Self = Self::UNSPECIFIED;

    /// RFC 3810 section 6: neither "the link-scope all-nodes multicast address (FF02::1)" nor addresses "of scope 0 (reserved)
    /// or 1 (node-local)".
    fn is_reported(self) -> bool {
        let scope = self.octets()[1] & 0x0f;
        self != ipv6::ALL_NODES && scope > 1
    }
}

/// One socket in a group.
#[derive(Debug)]
struct Member<A> {
    socket: u32,
    filter: Filter<A>,
}

/// One group.
#[derive(Debug)]
struct Group<A> {
    address: A,
    members: Vec<Member<A>>,
    /// The stack itself listens: to questions for its addresses.
    own: bool,
    /// What the interface listens to.
    state: Filter<A>,
    /// Reports that are to tell the mode and all sources.
    mode_reports: u8,
    /// Sources that came or went, and in how many reports they are to be.
    changed: Vec<(A, u8)>,
    /// When the next of these reports is due.
    next_change: Instant,
    /// When a query for this group is answered.
    answer: Option<Instant>,
    /// Of which sources it asked; none: of all.
    asked: Vec<A>,
}

impl<A: Reported> Group<A> {
    const fn new(address: A) -> Self {
        Self {
            address,
            members: Vec::new(),
            own: false,
            state: Filter::NOBODY,
            mode_reports: 0,
            changed: Vec::new(),
            next_change: Instant::NEVER,
            answer: None,
            asked: Vec::new(),
        }
    }

    fn has_changes(&self) -> bool {
        self.mode_reports > 0 || !self.changed.is_empty()
    }

    /// Nobody is in it, and nothing is to be said of it.
    fn is_over(&self) -> bool {
        self.members.is_empty() && !self.own && !self.has_changes()
    }

    fn merged(&self) -> Filter<A> {
        if self.own {
            return Filter::EVERYBODY;
        }
        Filter::merged(self.members.iter().map(|member| &member.filter))
    }
}

/// All groups of one version of IP, sorted by address.
#[derive(Debug)]
pub(crate) struct Groups<A> {
    groups: Vec<Group<A>>,
    config: GroupConfig,
    timing: Timing,
    /// When all groups are to be named to who asked for all.
    answer: Option<Instant>,
    /// When something is due; [`Instant::NEVER`]: nothing is.
    pub(crate) next: Instant,
    hasher: FlowHasher,
    drawn: u32,
}

impl<A: Reported> Groups<A> {
    pub(crate) fn new(config: &GroupConfig, hasher: FlowHasher) -> Self {
        Self {
            groups: Vec::new(),
            config: config.clone(),
            timing: Timing::new(),
            answer: None,
            next: Instant::NEVER,
            hasher,
            drawn: 0,
        }
    }

    fn place(&self, group: A) -> Result<usize, usize> {
        self.groups.binary_search_by_key(&group, |g| g.address)
    }

    fn get(&self, group: A) -> Option<&Group<A>> {
        self.place(group).ok().and_then(|at| self.groups.get(at))
    }

    /// Whether datagrams to this group are for somebody here.
    pub(crate) fn is_member(&self, group: A) -> bool {
        self.get(group).is_some_and(|g| !g.state.is_nobody())
    }

    /// The sockets that listen to this source of this group.
    pub(crate) fn listeners(&self, group: A, source: A) -> impl Iterator<Item = u32> + '_ {
        let members = self.get(group).map_or(&[][..], |g| &g.members);
        let admitted = members.iter().filter(move |m| m.filter.admits(source));
        admitted.map(|member| member.socket)
    }

    fn change(
        &mut self,
        now: Instant,
        socket: u32,
        address: A,
        change: Change<A>,
    ) -> Result<(), StackError> {
        self.refresh(now);
        let at = match self.place(address) {
            Ok(at) => at,
            Err(_) if !matches!(change, Change::Join | Change::JoinSource(_)) => {
                return Err(StackError::AddressNotAvailable);
            }
            Err(at) => at,
        };
        let known = self.groups.get(at).filter(|g| g.address == address);
        let member = known.and_then(|g| g.members.iter().find(|m| m.socket == socket));
        let filter = self.changed_filter(member.map(|m| &m.filter), change)?;
        if member.is_none() {
            self.may_join(known.is_none(), socket)?;
        }
        if known.is_none() {
            self.groups.insert(at, Group::new(address));
        }
        let members = &mut self.groups[at].members;
        members.retain(|member| member.socket != socket);
        if !filter.is_nobody() {
            members.push(Member { socket, filter });
        }
        self.settle(now, at);
        self.reschedule();
        Ok(())
    }

    /// Whether the limits allow that a socket joins one more group.
    fn may_join(&self, new: bool, socket: u32) -> Result<(), StackError> {
        let with = |g: &&Group<A>| g.members.iter().any(|m| m.socket == socket);
        let mine = self.groups.iter().filter(with).count();
        let joined = self.groups.iter().filter(|g| !g.own).count();
        if mine >= self.config.per_socket || new && joined >= self.config.groups {
            return Err(StackError::Full);
        }
        Ok(())
    }

    /// A socket's filter after a change; what makes no sense is refused as Linux refuses it.
    fn changed_filter(
        &self,
        old: Option<&Filter<A>>,
        change: Change<A>,
    ) -> Result<Filter<A>, StackError> {
        let absent = StackError::AddressNotAvailable;
        let mut new = old.cloned().unwrap_or(Filter::NOBODY);
        let joined_all = old.is_some_and(|filter| filter.mode == Mode::Exclude);
        match change {
            Change::Join if old.is_some() => return Err(StackError::AddressInUse),
            Change::Join => return Ok(Filter::EVERYBODY),
            Change::Leave if old.is_none() => return Err(absent),
            Change::Leave => return Ok(Filter::NOBODY),
            // RFC 3678 section 3: joining sources and blocking sources do not mix.
            Change::JoinSource(_) | Change::LeaveSource(_) if joined_all => {
                return Err(StackError::InvalidAddress);
            }
            Change::Block(_) | Change::Unblock(_) if !joined_all => {
                return Err(StackError::InvalidAddress);
            }
            Change::JoinSource(source) | Change::Block(source) => {
                if new.sources.len() >= self.config.sources {
                    return Err(StackError::Full);
                }
                new.add(source).then_some(()).ok_or(absent)?;
            }
            Change::LeaveSource(source) | Change::Unblock(source) => {
                new.remove(source).then_some(()).ok_or(absent)?;
            }
        }
        Ok(new)
    }

    /// A socket is closed.
    pub(crate) fn leave_all(&mut self, now: Instant, socket: u32) {
        self.refresh(now);
        let mut at = 0;
        while let Some(group) = self.groups.get_mut(at) {
            let before = group.members.len();
            group.members.retain(|member| member.socket != socket);
            // A group of which nothing is left to be said goes at once, and another takes its place.
            let gone = group.members.len() < before && self.settle(now, at);
            at += usize::from(!gone);
        }
        self.reschedule();
    }

    /// The stack itself begins or ends to listen to a group.
    pub(crate) fn set_own(&mut self, now: Instant, address: A, own: bool) {
        self.refresh(now);
        let at = match self.place(address) {
            Ok(at) => at,
            Err(_) if !own => return,
            Err(at) => {
                self.groups.insert(at, Group::new(address));
                at
            }
        };
        self.groups[at].own = own;
        self.settle(now, at);
        self.reschedule();
    }
}

impl Stack {
    /// Changes what a UDP socket listens to. `group` and the source in `change` are of one version of IP, which the socket must
    /// speak; the source may be IPv4-mapped. Routers are told by the next [`handle_timers`](Self::handle_timers) and
    /// [`transmit`](Self::transmit).
    ///
    /// # Errors
    /// [`StackError::NoSuchSocket`]; [`StackError::InvalidAddress`]: no group, a source that is no single station, another version,
    /// or sources joined and blocked at once; [`StackError::AddressInUse`]: joined already; [`StackError::AddressNotAvailable`]: not
    /// joined, or a source that is there already or is not there; [`StackError::Full`]: one of [`GroupConfig`]'s limits.
    pub fn udp_group(
        &mut self,
        now: Instant,
        id: UdpId,
        group: IpAddr,
        change: GroupChange,
    ) -> Result<(), StackError> {
        let invalid = StackError::InvalidAddress;
        let (v4, v6) = self.udp_speaks(id).ok_or(StackError::NoSuchSocket)?;
        match group.to_canonical() {
            IpAddr::V4(group) if v4 && group.is_multicast() => {
                let source = |ip: IpAddr| match ip.to_canonical() {
                    IpAddr::V4(ip) if self.addresses.is_unicast(ip) => Some(ip),
                    _ => None,
                };
                let change = change.of(source).ok_or(invalid)?;
                self.groups.change(now, id.index(), group, change)
            }
            IpAddr::V6(group) if v6 && self.six.enabled() && group.is_multicast() => {
                let source = |ip: IpAddr| match ip {
                    IpAddr::V6(ip) if crate::v6::address::is_unicast(ip) => Some(ip),
                    _ => None,
                };
                let change = change.of(source).ok_or(invalid)?;
                let changed = self.six.groups.change(now, id.index(), group, change);
                self.six.reschedule();
                changed
            }
            _ => Err(invalid),
        }
    }

    /// Whether this is an address of the link that is configured or leased: one that may name the interface.
    pub fn has_address(&self, ip: Ipv4Addr) -> bool {
        self.addresses.is_configured(ip)
    }

    /// A UDP socket is closed: it is in no group any more.
    pub(crate) fn leave_groups(&mut self, socket: u32) {
        self.groups.leave_all(self.turn, socket);
        self.six.groups.leave_all(self.turn, socket);
        if self.six.enabled() {
            self.six.reschedule();
        }
    }
}
