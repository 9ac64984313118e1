//! UDP over IPv6.

use core::net::{Ipv6Addr, SocketAddrV6};
use core::num::NonZeroU8;

use sidecore_tcp::Instant;
use sidecore_wire::{Icmpv6, Ipv6Header, MacAddress, UdpHeader, checksum, icmpv6, ipv6, udp};

use super::address::{Route6, is_all_nodes, is_unicast};
use super::frame::HeaderBuffer6;
use super::input::Packet6;
use super::neighbor::Resolution6;
use crate::config::MtuDiscovery;
use crate::control::Link;
use crate::error::StackError;
use crate::host::{Envelope, Host};
use crate::path_mtu::By;
use crate::sink::{FrameSink, TxPayload};
use crate::stack::Stack;
use crate::udp::Datagram;
use crate::{UdpId, User};

/// What the headers of a datagram say of its way.
fn envelope(packet: &Packet6<'_>, header: &UdpHeader) -> Envelope {
    Envelope {
        from: SocketAddrV6::new(packet.src(), header.src_port, 0, 0).into(),
        to: SocketAddrV6::new(packet.dst(), header.dst_port, 0, 0).into(),
        hops: packet.header.hop_limit,
        class: packet.header.traffic_class,
    }
}

/// A datagram's way out.
#[derive(Clone, Copy)]
struct Way6 {
    link: Link,
    src: Ipv6Addr,
    mtu: u16,
}

impl Stack {
    /// As [`udp_send`](Self::udp_send). The payload is at most the MTU less 48 bytes.
    pub(crate) fn udp_send6<S: FrameSink>(
        &mut self,
        now: Instant,
        id: UdpId,
        (local, dst): (SocketAddrV6, SocketAddrV6),
        payload: TxPayload<'_>,
        sink: &mut S,
    ) -> Result<(), StackError> {
        if dst.port() == 0 {
            return Err(StackError::InvalidAddress);
        }
        let way = self.way_for_datagram6(now, id, *local.ip(), *dst.ip())?;
        let len = udp::HEADER_LEN + payload.len();
        if len > usize::from(way.mtu).saturating_sub(ipv6::HEADER_LEN) {
            return Err(StackError::MessageTooLarge);
        }
        let marking = self.udp_marking(id);
        let mut ip = self.header6(way.src, *dst.ip(), ipv6::PROTOCOL_UDP);
        ip.traffic_class = marking.class;
        ip.hop_limit = marking.hop_limit.map_or(ip.hop_limit, NonZeroU8::get);
        let ports = (local.port(), dst.port());
        if !dst.ip().is_multicast() {
            if !sink.has_room(way.link == Link::Loopback) {
                return Err(StackError::WouldBlock);
            }
            self.emit_datagram6(way.link, &ip, ports, payload, sink);
            return Ok(());
        }
        // As over IPv4. What is of this interface only (RFC 4291 section 2.7: scope 1) never leaves it.
        let to_groups = self.udp_to_groups(id);
        let mut listeners = self.six.groups.listeners(*dst.ip(), way.src);
        let wanted = is_all_nodes(*dst.ip()) || listeners.next().is_some();
        drop(listeners);
        let loops = to_groups.loops && wanted;
        let leaves = to_groups.hops > 0 && dst.ip().octets()[1] & 0x0f > 1;
        if loops && !sink.has_room(true) || leaves && !sink.has_room(false) {
            return Err(StackError::WouldBlock);
        }
        ip.hop_limit = to_groups.hops;
        if leaves {
            self.emit_datagram6(way.link, &ip, ports, payload, sink);
        }
        if loops {
            self.emit_datagram6(Link::Loopback, &ip, ports, payload, sink);
        }
        Ok(())
    }

    fn emit_datagram6<S: FrameSink>(
        &mut self,
        link: Link,
        ip: &Ipv6Header,
        ports: (u16, u16),
        payload: TxPayload<'_>,
        sink: &mut S,
    ) {
        let len = udp::HEADER_LEN + payload.len();
        let mut buffer = HeaderBuffer6::new();
        buffer.ipv6(link, self.config.mac, ip, len);
        let pseudo = checksum::pseudo_v6(ip.src, ip.dst, ipv6::PROTOCOL_UDP, len as u32);
        self.emit_datagram(buffer, (link, pseudo), ports, payload, sink);
    }

    fn way_for_datagram6(
        &mut self,
        now: Instant,
        id: UdpId,
        local: Ipv6Addr,
        dst: Ipv6Addr,
    ) -> Result<Way6, StackError> {
        if !self.six.enabled() || !is_unicast(dst) && !dst.is_multicast() {
            return Err(StackError::Unreachable);
        }
        let route = self.route6(dst).ok_or(StackError::Unreachable)?;
        let src = match local {
            ip if ip.is_unspecified() || ip.is_multicast() => {
                self.six.addresses.source_for(now, dst)
            }
            ip => self.six.addresses.is_local(ip).then_some(ip),
        };
        let src = src.ok_or(StackError::AddressNotAvailable)?;
        if src.is_loopback() && route != Route6::Local {
            return Err(StackError::InvalidAddress);
        }
        let mtu = self.six.mtu;
        let station = |mac: MacAddress| Way6 {
            link: Link::Station(mac),
            src,
            mtu,
        };
        let next_hop = match route {
            Route6::Local => {
                return Ok(Way6 {
                    link: Link::Loopback,
                    src,
                    mtu: self.config.loopback_mtu,
                });
            }
            Route6::Group => return Ok(station(ipv6::multicast_mac(dst))),
            Route6::Link(next_hop) => next_hop,
        };
        match self.resolve_neighbor6(now, next_hop) {
            Resolution6::Known(_, mac) => {
                let path = self.paths.find(now, dst.into(), By::Datagram);
                let path = path.filter(|_| self.udp_mtu_discovery(id) != MtuDiscovery::Probe);
                let mtu = mtu.min(path.unwrap_or(u16::MAX));
                Ok(Way6 {
                    mtu,
                    ..station(mac)
                })
            }
            Resolution6::Pending(place) => {
                self.six.neighbors.entry_mut(place).datagrams_wait = true;
                self.udp.wait_for(id, next_hop.into());
                Err(StackError::Resolving)
            }
            Resolution6::Unreachable => Err(StackError::Unreachable),
        }
    }

    /// A UDP packet for one of our addresses or groups.
    pub(super) fn handle_udp6<H: Host>(
        &mut self,
        now: Instant,
        packet: &Packet6<'_>,
        host: &mut H,
    ) {
        let transport = &packet.transport;
        let header = match UdpHeader::parse_quoted(transport.bytes) {
            Ok(header)
                if usize::from(header.length) >= udp::HEADER_LEN
                    && usize::from(header.length) <= transport.len =>
            {
                header
            }
            _ => {
                self.counters.udp_malformed += 1;
                return;
            }
        };
        let (src, dst) = (packet.src(), packet.dst());
        // RFC 8200 section 8.1: "IPv6 receivers must discard UDP packets containing a zero checksum".
        if !transport.verified && !header.verify_v6(src, dst, transport.bytes) {
            self.counters.udp_bad_checksum += 1;
            return;
        }
        let datagram = Datagram {
            transport,
            len: usize::from(header.length) - udp::HEADER_LEN,
            envelope: envelope(packet, &header),
        };
        let port = header.dst_port;
        if dst.is_multicast() {
            // Not to nowhere: no errors about packets to groups (RFC 4443 section 2.4 (e.3)).
            let find = |stack: &Self, takers: &mut Vec<User>| {
                if is_all_nodes(dst) {
                    takers.extend(stack.udp.users_at6(dst, port));
                    return;
                }
                let listeners = stack.six.groups.listeners(dst, src);
                let user = |index| stack.udp.user_in_group(index, dst.into(), port);
                takers.extend(listeners.filter_map(user));
            };
            return self.deliver_to_all(&datagram, find, host);
        }
        let Some(user) = self.udp.user_at6(dst, port, datagram.envelope.from) else {
            self.counters.udp_to_nowhere += 1;
            // RFC 4443 section 3.1: code 4. Not about what was sent to a group of the link (section 2.4 (e.4)).
            if !packet.multicast {
                let code = icmpv6::UNREACHABLE_PORT;
                self.send_error6(now, packet, &Icmpv6::DestinationUnreachable { code });
            }
            return;
        };
        self.counters.udp_in += 1;
        datagram.deliver(user, host);
    }
}
