//! UDP over IPv6.

use core::net::{Ipv6Addr, SocketAddrV6};
use core::num::NonZeroU8;

use sidecore_tcp::Instant;
use sidecore_wire::{Icmpv6, MacAddress, UdpHeader, checksum, icmpv6, ipv6, udp};

use super::address::{Route6, is_unicast};
use super::frame::HeaderBuffer6;
use super::input::Packet6;
use super::neighbor::Resolution6;
use crate::UdpId;
use crate::control::Link;
use crate::error::StackError;
use crate::host::Host;
use crate::input::Place;
use crate::path_mtu::By;
use crate::sink::{FrameSink, TxOffload, TxPayload};
use crate::stack::Stack;
use crate::udp::CHECKSUM_OFFSET;

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
        let loopback = way.link == Link::Loopback;
        if !sink.has_room(loopback) {
            return Err(StackError::WouldBlock);
        }
        let mut buffer = HeaderBuffer6::new();
        let marking = self.udp_marking(id);
        let mut ip = self.header6(way.src, *dst.ip(), ipv6::PROTOCOL_UDP);
        ip.traffic_class = marking.class;
        ip.hop_limit = marking.hop_limit.map_or(ip.hop_limit, NonZeroU8::get);
        buffer.ipv6(way.link, self.config.mac, &ip, len);
        let start = buffer.len();
        let header = UdpHeader {
            src_port: local.port(),
            dst_port: dst.port(),
            length: len as u16,
            checksum: 0,
        };
        buffer.append(|buf| header.emit(buf));
        let pseudo = checksum::pseudo_v6(way.src, *dst.ip(), ipv6::PROTOCOL_UDP, len as u32);
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
            ip if ip.is_unspecified() => self.six.addresses.source_for(now, dst),
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
        let Some(user) = self.udp.user_at6(dst, header.dst_port) else {
            self.counters.udp_to_nowhere += 1;
            // RFC 4443 section 3.1: code 4. Not about packets to groups (section 2.4 (e.3)).
            if !packet.multicast {
                let code = icmpv6::UNREACHABLE_PORT;
                self.send_error6(now, packet, &Icmpv6::DestinationUnreachable { code });
            }
            return;
        };
        let from = SocketAddrV6::new(src, header.src_port, 0, 0).into();
        let to = SocketAddrV6::new(dst, header.dst_port, 0, 0).into();
        let len = usize::from(header.length) - udp::HEADER_LEN;
        self.counters.udp_in += 1;
        match transport.place {
            Place::Frame(start) => {
                host.datagram(user, start + udp::HEADER_LEN as u32, len as u32, from, to);
            }
            Place::Buffer => {
                let bytes = transport.bytes.get(udp::HEADER_LEN..udp::HEADER_LEN + len);
                host.datagram_bytes(user, bytes.unwrap_or_default(), from, to);
            }
        }
    }
}
