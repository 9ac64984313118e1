//! Datagrams out, over IPv4; what both versions share.

use core::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use core::num::NonZeroU8;

use sidecore_tcp::Instant;
use sidecore_wire::ipv4::PROTOCOL_UDP;
use sidecore_wire::{Ipv4Header, MacAddress, UdpHeader, checksum, igmp, ipv4, udp};

use super::CHECKSUM_OFFSET;
use crate::UdpId;
use crate::address::Route;
use crate::arp::cache::Resolution;
use crate::arp::request_packet;
use crate::config::MtuDiscovery;
use crate::control::Link;
use crate::error::StackError;
use crate::frame::{HeaderBuffer, Headers};
use crate::host::Host;
use crate::path_mtu::By;
use crate::sink::{FrameSink, TxOffload, TxPayload};
use crate::stack::Stack;

/// A datagram's way out.
#[derive(Clone, Copy)]
struct Way {
    link: Link,
    src: Ipv4Addr,
    mtu: u16,
}

impl Stack {
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
        let marking = self.udp_marking(id);
        let mut ip = Ipv4Header::new(way.src, *dst.ip(), PROTOCOL_UDP);
        ip.dscp_ecn = marking.class;
        ip.ttl = marking.hop_limit.map_or(ip.ttl, NonZeroU8::get);
        if self.udp_mtu_discovery(id) == MtuDiscovery::Off {
            // RFC 6864 section 4.1: what may be cut is told apart by its identification.
            self.ip_ident = self.ip_ident.wrapping_add(1);
            (ip.dont_fragment, ip.ident) = (false, self.ip_ident);
        }
        let ports = (local.port(), dst.port());
        if !dst.ip().is_multicast() {
            if !sink.has_room(way.link == Link::Loopback) {
                return Err(StackError::WouldBlock);
            }
            self.emit_datagram4(way.link, &ip, ports, payload, sink);
            return Ok(());
        }
        // RFC 1112 section 6.1: both ways at once, or not yet.
        let to_groups = self.udp_to_groups(id);
        let wanted = *dst.ip() == igmp::ALL_SYSTEMS
            || self.groups.listeners(*dst.ip(), way.src).next().is_some();
        let loops = to_groups.loops && wanted;
        let leaves = to_groups.hops > 0;
        if loops && !sink.has_room(true) || leaves && !sink.has_room(false) {
            return Err(StackError::WouldBlock);
        }
        ip.ttl = to_groups.hops;
        if leaves {
            self.emit_datagram4(way.link, &ip, ports, payload, sink);
        }
        if loops {
            self.emit_datagram4(Link::Loopback, &ip, ports, payload, sink);
        }
        Ok(())
    }

    fn emit_datagram4<S: FrameSink>(
        &mut self,
        link: Link,
        ip: &Ipv4Header,
        ports: (u16, u16),
        payload: TxPayload<'_>,
        sink: &mut S,
    ) {
        let len = udp::HEADER_LEN + payload.len();
        let mut buffer = HeaderBuffer::new();
        buffer.ipv4(link, self.config.mac, ip, len);
        let pseudo = checksum::pseudo_v4(ip.src, ip.dst, PROTOCOL_UDP, len as u32);
        self.emit_datagram(buffer, (link, pseudo), ports, payload, sink);
    }

    /// A datagram with its UDP header, behind the headers in the buffer; `pseudo` is the pseudo-header's sum.
    pub(crate) fn emit_datagram<const N: usize, S: FrameSink>(
        &mut self,
        mut buffer: Headers<N>,
        (link, pseudo): (Link, u32),
        (src_port, dst_port): (u16, u16),
        payload: TxPayload<'_>,
        sink: &mut S,
    ) {
        let loopback = link == Link::Loopback;
        let start = buffer.len();
        let header = UdpHeader {
            src_port,
            dst_port,
            length: (udp::HEADER_LEN + payload.len()) as u16,
            checksum: 0,
        };
        buffer.append(|buf| header.emit(buf));
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
    }

    fn way_for_datagram(
        &mut self,
        now: Instant,
        id: UdpId,
        local: SocketAddrV4,
        dst: Ipv4Addr,
    ) -> Result<Way, StackError> {
        let route = self.addresses.route(dst).ok_or(StackError::Unreachable)?;
        let src = self.source_of_datagram(id, *local.ip(), dst);
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
            Route::Group => {
                let link = Link::Station(igmp::multicast_mac(dst));
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
                let path = path.filter(|_| self.udp_mtu_discovery(id) == MtuDiscovery::Path);
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

    /// Where a datagram comes from: where the socket is bound; of one to a group where the socket said; else as the way goes.
    fn source_of_datagram(&self, id: UdpId, local: Ipv4Addr, dst: Ipv4Addr) -> Option<Ipv4Addr> {
        // Bound to a group is bound to no address of ours.
        if !local.is_unspecified() && !local.is_multicast() {
            return Some(local);
        }
        let named = self.udp_to_groups(id).source;
        let named = named.filter(|ip| dst.is_multicast() && self.addresses.is_configured(*ip));
        named.or_else(|| self.addresses.source_for(dst))
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
}
