//! UDP (RFC 768).

mod receive;
mod send;

pub(crate) use receive::Datagram;

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use sidecore_tcp::Instant;

use crate::address::Route;
use crate::config::{MtuDiscovery, SocketOption, SocketOptions};
use crate::error::StackError;
use crate::list::NIL;
use crate::listen::{Reach, choose_port, reach};
use crate::marking::Marking;
use crate::path_mtu::By;
use crate::ports::PortTable;
use crate::stack::Stack;
use crate::v6::address::Route6;
use crate::{UdpId, User};

/// Where in the header the checksum lies.
pub(crate) const CHECKSUM_OFFSET: usize = 6;

#[derive(Debug)]
pub(crate) struct UdpSocket {
    generation: u32,
    pub(crate) local: SocketAddr,
    /// Whose datagrams alone it gets.
    peer: Option<SocketAddr>,
    pub(crate) user: User,
    /// The next hop that it waits for.
    waits_for: Option<IpAddr>,
    marking: Marking,
    /// How it sends to groups.
    to_groups: ToGroups,
    mtu_discovery: MtuDiscovery,
    reach: Reach,
    live: bool,
}

/// How a socket sends to groups (RFC 1112 section 6.1).
#[derive(Clone, Copy, Debug)]
pub(crate) struct ToGroups {
    /// How far, in hops; 0: not onto the link.
    pub(crate) hops: u8,
    /// To sockets of this stack, too.
    pub(crate) loops: bool,
    /// From there, if the socket is bound to no single address.
    pub(crate) source: Option<Ipv4Addr>,
}

#[derive(Debug)]
pub(crate) struct UdpSockets {
    slots: Vec<UdpSocket>,
    ports: PortTable,
    ports6: PortTable<Ipv6Addr>,
    /// Memory for the list of those whom a datagram reaches; empty but while one is handed out.
    takers: Vec<User>,
    limit: usize,
    live: usize,
}

/// An address and port, and nothing else that may be said beside them.
fn plain(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

impl UdpSockets {
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            slots: Vec::new(),
            ports: PortTable::default(),
            ports6: PortTable::default(),
            takers: Vec::new(),
            limit: limit.min(NIL as usize),
            live: 0,
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (UdpId, &UdpSocket)> {
        let slots = self.slots.iter().enumerate();
        slots
            .filter(|(_, socket)| socket.live)
            .map(|(index, s)| (UdpId::new(index as u32, s.generation), s))
    }

    fn get_mut(&mut self, id: UdpId) -> Option<&mut UdpSocket> {
        let socket = self.slots.get_mut(id.index() as usize)?;
        (socket.live && socket.generation == id.generation()).then_some(socket)
    }

    /// The user of the socket that gets what `from` sends there: rather one with that peer than one with none.
    pub(crate) fn user_at(&self, address: Ipv4Addr, port: u16, from: SocketAddr) -> Option<User> {
        let index = self
            .ports
            .find_by(address, port, |index| self.suits(index, from))?;
        self.user(index)
    }

    /// The same for IPv6.
    pub(crate) fn user_at6(&self, address: Ipv6Addr, port: u16, from: SocketAddr) -> Option<User> {
        let index = self
            .ports6
            .find_by(address, port, |index| self.suits(index, from))?;
        self.user(index)
    }

    /// How well what `from` sends suits a socket; `None`: not at all, as it has another peer.
    fn suits(&self, index: u32, from: SocketAddr) -> Option<u32> {
        match self.slots.get(index as usize)?.peer {
            None => Some(0),
            Some(peer) => (peer == plain(from)).then_some(1),
        }
    }

    /// A socket waits for a next hop.
    pub(crate) fn wait_for(&mut self, id: UdpId, next_hop: IpAddr) {
        if let Some(socket) = self.get_mut(id) {
            socket.waits_for = Some(next_hop);
        }
    }

    fn get(&self, id: UdpId) -> Option<&UdpSocket> {
        let socket = self.slots.get(id.index() as usize)?;
        (socket.live && socket.generation == id.generation()).then_some(socket)
    }

    fn insert(
        &mut self,
        local: SocketAddr,
        reach: Reach,
        options: &SocketOptions,
        user: User,
    ) -> Result<UdpId, StackError> {
        if self.live >= self.limit {
            return Err(StackError::Full);
        }
        let mut socket = UdpSocket {
            generation: 0,
            local,
            peer: None,
            user,
            waits_for: None,
            marking: Marking {
                class: options.traffic_class,
                hop_limit: options.hop_limit,
            },
            to_groups: ToGroups {
                hops: options.multicast_hops,
                loops: options.multicast_loop,
                source: options.multicast_source,
            },
            mtu_discovery: options.mtu_discovery,
            reach,
            live: true,
        };
        let index = match self.slots.iter().position(|slot| !slot.live) {
            Some(index) => {
                socket.generation = self.slots[index].generation.wrapping_add(1);
                self.slots[index] = socket;
                index
            }
            None => {
                self.slots.push(socket);
                self.slots.len() - 1
            }
        };
        self.live += 1;
        let (place, port) = (index as u32, local.port());
        let shared = options.reuse_address;
        match reach {
            Reach::V4(ip) => self.ports.insert(ip, port, place, shared),
            Reach::V6(ip) => self.ports6.insert(ip, port, place, shared),
            Reach::Both => {
                self.ports
                    .insert(Ipv4Addr::UNSPECIFIED, port, place, shared);
                self.ports6
                    .insert(Ipv6Addr::UNSPECIFIED, port, place, shared);
            }
        }
        Ok(UdpId::new(index as u32, self.slots[index].generation))
    }
}

impl Stack {
    /// Binds a UDP socket to `local`; 0.0.0.0 stands for all addresses of IPv4, `::` for all of both, port 0 for one that the stack chooses (see
    /// [`udp_local`](Self::udp_local)).
    ///
    /// # Errors
    /// [`StackError::AddressInUse`], [`StackError::AddressNotAvailable`], [`StackError::Full`].
    pub fn udp_bind(
        &mut self,
        local: impl Into<SocketAddr>,
        user: User,
    ) -> Result<UdpId, StackError> {
        self.udp_bind_with(local, &SocketOptions::default(), user)
    }

    /// As [`udp_bind`](Self::udp_bind), with options, of which [`SocketOptions::v6_only`], `traffic_class`, `hop_limit`,
    /// `reuse_address` and those about groups count. A socket may be bound to a group's address, too: it then gets nothing else.
    ///
    /// # Errors
    /// Those of [`udp_bind`](Self::udp_bind).
    pub fn udp_bind_with(
        &mut self,
        local: impl Into<SocketAddr>,
        options: &SocketOptions,
        user: User,
    ) -> Result<UdpId, StackError> {
        let local: SocketAddr = local.into();
        let ip = local.ip().to_canonical();
        let group = ip.is_multicast() && (ip.is_ipv4() || self.six.enabled());
        let local = if group {
            SocketAddr::new(ip, local.port())
        } else {
            self.bindable(local)?
        };
        let reach = reach(local.ip(), options.v6_only);
        let ports = (&self.udp.ports, &self.udp.ports6);
        let shared = options.reuse_address;
        let port = choose_port(ports, &mut self.ephemeral, reach, local.port(), shared)?;
        let local = SocketAddr::new(local.ip(), port);
        self.udp.insert(local, reach, options, user)
    }

    /// Which versions of IP a socket speaks: 4, 6; `None` if the id is stale.
    pub(crate) fn udp_speaks(&self, id: UdpId) -> Option<(bool, bool)> {
        Some(match self.udp.get(id)?.reach {
            Reach::V4(_) => (true, false),
            Reach::V6(_) => (false, true),
            Reach::Both => (true, true),
        })
    }

    /// Sets the traffic class, the hop limit, how is sent to groups, or what is done about the path's MTU. False if the id is stale, or the option another, or a
    /// source that is no address of ours.
    pub fn udp_set_option(&mut self, id: UdpId, option: SocketOption) -> bool {
        if let SocketOption::MulticastSource(Some(ip)) = option
            && !self.addresses.is_configured(ip)
        {
            return false;
        }
        let Some(socket) = self.udp.get_mut(id) else {
            return false;
        };
        match option {
            SocketOption::TrafficClass(class) => socket.marking.class = class,
            SocketOption::HopLimit(limit) => socket.marking.hop_limit = limit,
            SocketOption::MulticastHops(hops) => socket.to_groups.hops = hops,
            SocketOption::MulticastLoop(on) => socket.to_groups.loops = on,
            SocketOption::MulticastSource(source) => socket.to_groups.source = source,
            SocketOption::MtuDiscovery(how) => socket.mtu_discovery = how,
            _ => return false,
        }
        true
    }

    /// What a UDP socket says in its IP headers.
    pub(crate) fn udp_marking(&self, id: UdpId) -> Marking {
        let socket = self.udp.get(id);
        socket.map_or(Marking::default(), |socket| socket.marking)
    }

    /// What a UDP socket does about the MTU of a path.
    pub(crate) fn udp_mtu_discovery(&self, id: UdpId) -> MtuDiscovery {
        let socket = self.udp.get(id);
        socket.map_or(MtuDiscovery::default(), |socket| socket.mtu_discovery)
    }

    /// Bytes of the largest packet that is known to pass to `dst`, IP header included (IP_MTU); `None`: no way leads there.
    pub fn path_mtu(&mut self, now: Instant, dst: IpAddr) -> Option<u16> {
        let dst = dst.to_canonical();
        let link = match dst {
            IpAddr::V4(ip) => match self.addresses.route(ip)? {
                Route::Local => return Some(self.config.loopback_mtu),
                _ => self.config.mtu,
            },
            IpAddr::V6(ip) => match self.route6(ip)? {
                Route6::Local => return Some(self.config.loopback_mtu),
                _ => self.six.mtu,
            },
        };
        let path = self.paths.find(now, dst, By::Datagram);
        Some(link.min(path.unwrap_or(u16::MAX)))
    }

    /// How a UDP socket sends to groups.
    pub(crate) fn udp_to_groups(&self, id: UdpId) -> ToGroups {
        let nowhere = ToGroups {
            hops: 0,
            loops: false,
            source: None,
        };
        self.udp.get(id).map_or(nowhere, |socket| socket.to_groups)
    }

    /// A UDP socket gets what this peer sends, and nothing else; `None`: what all send. Of sockets that share an address that with the sender for
    /// its peer gets a datagram, else one without a peer. False if the id is stale.
    pub fn udp_set_peer(&mut self, id: UdpId, peer: Option<SocketAddr>) -> bool {
        let socket = self.udp.get_mut(id);
        socket.is_some_and(|socket| {
            socket.peer = peer.map(plain);
            true
        })
    }

    /// Where a UDP socket is bound; `None` if the id is stale.
    pub fn udp_local(&self, id: UdpId) -> Option<SocketAddr> {
        self.udp.get(id).map(|socket| socket.local)
    }

    /// Closes a UDP socket. False if the id is stale.
    pub fn udp_close(&mut self, id: UdpId) -> bool {
        let Some(socket) = self.udp.get_mut(id) else {
            return false;
        };
        socket.live = false;
        self.udp.live -= 1;
        self.udp.ports.remove(id.index());
        self.udp.ports6.remove(id.index());
        self.leave_groups(id.index());
        true
    }
}
