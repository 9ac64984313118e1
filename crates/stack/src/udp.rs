//! UDP (RFC 768).

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use core::num::NonZeroU8;

use sidecore_tcp::Instant;
use sidecore_wire::dhcpv4::CLIENT_PORT;
use sidecore_wire::ipv4::PROTOCOL_UDP;
use sidecore_wire::{Ipv4Header, MacAddress, UdpHeader, checksum, icmpv4, ipv4, udp};

use crate::address::Route;
use crate::arp::cache::Resolution;
use crate::arp::request_packet;
use crate::config::{SocketOption, SocketOptions};
use crate::control::Link;
use crate::error::StackError;
use crate::frame::HeaderBuffer;
use crate::host::Host;
use crate::input::{Packet, Place};
use crate::list::NIL;
use crate::listen::{Reach, choose_port, reach};
use crate::marking::Marking;
use crate::path_mtu::By;
use crate::ports::PortTable;
use crate::sink::{FrameSink, TxOffload, TxPayload};
use crate::stack::Stack;
use crate::{UdpId, User};

/// Where in the header the checksum lies.
pub(crate) const CHECKSUM_OFFSET: usize = 6;

#[derive(Debug)]
pub(crate) struct UdpSocket {
    generation: u32,
    pub(crate) local: SocketAddr,
    pub(crate) user: User,
    /// The next hop that it waits for.
    waits_for: Option<IpAddr>,
    marking: Marking,
    live: bool,
}

#[derive(Debug)]
pub(crate) struct UdpSockets {
    slots: Vec<UdpSocket>,
    ports: PortTable,
    ports6: PortTable<Ipv6Addr>,
    limit: usize,
    live: usize,
}

impl UdpSockets {
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            slots: Vec::new(),
            ports: PortTable::default(),
            ports6: PortTable::default(),
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

    /// The user of the socket that gets what is sent there.
    pub(crate) fn user_at(&self, address: Ipv4Addr, port: u16) -> Option<User> {
        let index = self.ports.find(address, port)?;
        self.slots.get(index as usize).map(|socket| socket.user)
    }

    /// The same for IPv6.
    pub(crate) fn user_at6(&self, address: Ipv6Addr, port: u16) -> Option<User> {
        let index = self.ports6.find(address, port)?;
        self.slots.get(index as usize).map(|socket| socket.user)
    }

    /// A socket waits for a next hop.
    pub(crate) fn wait_for(&mut self, id: UdpId, next_hop: IpAddr) {
        if let Some(socket) = self.get_mut(id) {
            socket.waits_for = Some(next_hop);
        }
    }

    fn insert(&mut self, local: SocketAddr, reach: Reach, user: User) -> Result<UdpId, StackError> {
        if self.live >= self.limit {
            return Err(StackError::Full);
        }
        let mut socket = UdpSocket {
            generation: 0,
            local,
            user,
            waits_for: None,
            marking: Marking::default(),
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
        let port = local.port();
        match reach {
            Reach::V4(ip) => self.ports.insert(ip, port, index as u32),
            Reach::V6(ip) => self.ports6.insert(ip, port, index as u32),
            Reach::Both => {
                self.ports.insert(Ipv4Addr::UNSPECIFIED, port, index as u32);
                self.ports6
                    .insert(Ipv6Addr::UNSPECIFIED, port, index as u32);
            }
        }
        Ok(UdpId::new(index as u32, self.slots[index].generation))
    }
}

/// A datagram's way out.
#[derive(Clone, Copy)]
struct Way {
    link: Link,
    src: Ipv4Addr,
    mtu: u16,
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

    /// As [`udp_bind`](Self::udp_bind), with options, of which [`SocketOptions::v6_only`], `traffic_class` and `hop_limit` count.
    ///
    /// # Errors
    /// Those of [`udp_bind`](Self::udp_bind).
    pub fn udp_bind_with(
        &mut self,
        local: impl Into<SocketAddr>,
        options: &SocketOptions,
        user: User,
    ) -> Result<UdpId, StackError> {
        let local = self.bindable(local.into())?;
        let reach = reach(local.ip(), options.v6_only);
        let ports = (&self.udp.ports, &self.udp.ports6);
        let port = choose_port(ports, &mut self.ephemeral, reach, local.port())?;
        let id = self
            .udp
            .insert(SocketAddr::new(local.ip(), port), reach, user)?;
        if let Some(socket) = self.udp.get_mut(id) {
            socket.marking = Marking {
                class: options.traffic_class,
                hop_limit: options.hop_limit,
            };
        }
        Ok(id)
    }

    /// Sets the traffic class or the hop limit. False if the id is stale, or the option another.
    pub fn udp_set_option(&mut self, id: UdpId, option: SocketOption) -> bool {
        let Some(socket) = self.udp.get_mut(id) else {
            return false;
        };
        match option {
            SocketOption::TrafficClass(class) => socket.marking.class = class,
            SocketOption::HopLimit(limit) => socket.marking.hop_limit = limit,
            _ => return false,
        }
        true
    }

    /// What a UDP socket says in its IP headers.
    pub(crate) fn udp_marking(&self, id: UdpId) -> Marking {
        let socket = self.udp.slots.get(id.index() as usize);
        socket.map_or(Marking::default(), |socket| socket.marking)
    }

    /// Where a UDP socket is bound; `None` if the id is stale.
    pub fn udp_local(&self, id: UdpId) -> Option<SocketAddr> {
        let socket = self.udp.slots.get(id.index() as usize)?;
        (socket.live && socket.generation == id.generation()).then_some(socket.local)
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
        true
    }

    /// Sends one datagram to `dst`, at once. Datagrams are not fragmented: the payload is at most the MTU less 28 bytes, over IPv6 less
    /// 48.
    ///
    /// # Errors
    /// [`StackError::NoSuchSocket`], [`StackError::InvalidAddress`] (port 0), [`StackError::Unreachable`],
    /// [`StackError::MessageTooLarge`]; and [`StackError::Resolving`], [`StackError::WouldBlock`], after which it can be tried
    /// again.
    pub fn udp_send<S: FrameSink>(
        &mut self,
        now: Instant,
        id: UdpId,
        dst: impl Into<SocketAddr>,
        payload: TxPayload<'_>,
        sink: &mut S,
    ) -> Result<(), StackError> {
        let local = self.udp_local(id).ok_or(StackError::NoSuchSocket)?;
        let dst = dst.into();
        let (from, port) = (local.ip(), local.port());
        match (dst.ip().to_canonical(), from) {
            (IpAddr::V4(ip), from) => {
                let from = match from {
                    IpAddr::V4(from) => from,
                    IpAddr::V6(from) if from.is_unspecified() => Ipv4Addr::UNSPECIFIED,
                    IpAddr::V6(_) => return Err(StackError::InvalidAddress),
                };
                let local = SocketAddrV4::new(from, port);
                let dst = SocketAddrV4::new(ip, dst.port());
                self.udp_send4(now, id, (local, dst), payload, sink)
            }
            (IpAddr::V6(ip), IpAddr::V6(from)) => {
                let local = SocketAddrV6::new(from, port, 0, 0);
                let dst = SocketAddrV6::new(ip, dst.port(), 0, 0);
                self.udp_send6(now, id, (local, dst), payload, sink)
            }
            (IpAddr::V6(_), IpAddr::V4(_)) => Err(StackError::InvalidAddress),
        }
    }

    fn udp_send4<S: FrameSink>(
        &mut self,
        now: Instant,
        id: UdpId,
        (local, dst): (SocketAddrV4, SocketAddrV4),
        payload: TxPayload<'_>,
        sink: &mut S,
    ) -> Result<(), StackError> {
        if dst.port() == 0 {
            return Err(StackError::InvalidAddress);
        }
        let way = self.way_for_datagram(now, id, local, *dst.ip())?;
        let len = udp::HEADER_LEN + payload.len();
        if len > usize::from(way.mtu).saturating_sub(ipv4::MIN_HEADER_LEN) {
            return Err(StackError::MessageTooLarge);
        }
        let loopback = way.link == Link::Loopback;
        if !sink.has_room(loopback) {
            return Err(StackError::WouldBlock);
        }
        let mut buffer = HeaderBuffer::new();
        let marking = self.udp_marking(id);
        let mut ip = Ipv4Header::new(way.src, *dst.ip(), PROTOCOL_UDP);
        ip.dscp_ecn = marking.class;
        ip.ttl = marking.hop_limit.map_or(ip.ttl, NonZeroU8::get);
        buffer.ipv4(way.link, self.config.mac, &ip, len);
        let start = buffer.len();
        let header = UdpHeader {
            src_port: local.port(),
            dst_port: dst.port(),
            length: len as u16,
            checksum: 0,
        };
        buffer.append(|buf| header.emit(buf));
        let pseudo = checksum::pseudo_v4(way.src, *dst.ip(), PROTOCOL_UDP, len as u32);
        buffer.put_checksum(start + CHECKSUM_OFFSET, pseudo);
        let offload = TxOffload {
            checksum: Some((start as u16, CHECKSUM_OFFSET as u16)),
            segment_size: 0,
            loopback,
            header_len: buffer.len() as u16,
        };
        sink.send(buffer.bytes(), payload, &offload);
        self.counters.udp_out += 1;
        self.counters.frames_out += 1;
        self.counters.loopback_out += u64::from(loopback);
        Ok(())
    }

    fn way_for_datagram(
        &mut self,
        now: Instant,
        id: UdpId,
        local: SocketAddrV4,
        dst: Ipv4Addr,
    ) -> Result<Way, StackError> {
        let route = self.addresses.route(dst).ok_or(StackError::Unreachable)?;
        let src = match *local.ip() {
            ip if ip.is_unspecified() => self.addresses.source_for(dst),
            ip => Some(ip),
        };
        let src = src.ok_or(StackError::AddressNotAvailable)?;
        if src.is_loopback() && route != Route::Local {
            return Err(StackError::InvalidAddress);
        }
        let next_hop = match route {
            Route::Local => {
                let mtu = self.config.loopback_mtu;
                let link = Link::Loopback;
                return Ok(Way { link, src, mtu });
            }
            Route::Broadcast => {
                let link = Link::Station(MacAddress::BROADCAST);
                let mtu = self.config.mtu;
                return Ok(Way { link, src, mtu });
            }
            Route::Link(next_hop) => next_hop,
        };
        let (control, addresses, mac) = (&mut self.control, &self.addresses, self.config.mac);
        let resolution = self.neighbors.resolve(now, next_hop, |request| {
            control.push(request_packet(request, mac, addresses));
        });
        match resolution {
            Resolution::Known(_, station) => {
                let path = self.paths.find(now, dst.into(), By::Datagram);
                Ok(Way {
                    link: Link::Station(station),
                    src,
                    mtu: self.config.mtu.min(path.unwrap_or(u16::MAX)),
                })
            }
            Resolution::Pending(place) => {
                self.neighbors.entry_mut(place).datagrams_wait = true;
                self.udp.wait_for(id, next_hop.into());
                Err(StackError::Resolving)
            }
            Resolution::Unreachable => Err(StackError::Unreachable),
        }
    }

    /// Those that waited for this next hop may try again.
    pub(crate) fn wake_datagrams<H: Host>(&mut self, next_hop: IpAddr, host: &mut H) {
        for socket in &mut self.udp.slots {
            if socket.waits_for == Some(next_hop) {
                socket.waits_for = None;
                if socket.live {
                    host.datagram_ready(socket.user);
                }
            }
        }
    }

    /// A UDP packet for one of our addresses, or for all stations.
    pub(crate) fn handle_udp<H: Host>(&mut self, now: Instant, packet: &Packet<'_>, host: &mut H) {
        // Of a loopback frame only the headers need be there.
        let header = match UdpHeader::parse_quoted(packet.transport.bytes) {
            Ok(header)
                if usize::from(header.length) >= udp::HEADER_LEN
                    && usize::from(header.length) <= packet.transport.len =>
            {
                header
            }
            _ => {
                self.counters.udp_malformed += 1;
                return;
            }
        };
        if !packet.transport.verified
            && !header.verify_v4(packet.src, packet.dst, packet.transport.bytes)
        {
            self.counters.udp_bad_checksum += 1;
            return;
        }
        if header.dst_port == CLIENT_PORT && self.dhcp.is_some() {
            return self.handle_dhcp(now, packet, &header);
        }
        let Some(user) = self.udp.user_at(packet.dst, header.dst_port) else {
            self.counters.udp_to_nowhere += 1;
            // RFC 1122 section 4.1.3.1: "If a datagram arrives addressed to a UDP port for which there is no pending LISTEN
            // call, UDP SHOULD send an ICMP Port Unreachable message."
            return self.send_unreachable(now, packet, icmpv4::UNREACHABLE_PORT);
        };
        let from = SocketAddrV4::new(packet.src, header.src_port).into();
        let to = SocketAddrV4::new(packet.dst, header.dst_port).into();
        let len = usize::from(header.length) - udp::HEADER_LEN;
        self.counters.udp_in += 1;
        match packet.transport.place {
            Place::Frame(start) => {
                host.datagram(user, start + udp::HEADER_LEN as u32, len as u32, from, to);
            }
            Place::Buffer => {
                let bytes = packet
                    .transport
                    .bytes
                    .get(udp::HEADER_LEN..udp::HEADER_LEN + len);
                host.datagram_bytes(user, bytes.unwrap_or_default(), from, to);
            }
        }
    }
}
