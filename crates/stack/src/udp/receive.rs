//! Datagrams in, over IPv4; what both versions share.

use core::net::{IpAddr, Ipv4Addr, SocketAddrV4};

use sidecore_tcp::Instant;
use sidecore_wire::dhcpv4::CLIENT_PORT;
use sidecore_wire::{UdpHeader, icmpv4, igmp, udp};

use super::UdpSockets;
use crate::User;
use crate::host::{Envelope, Host};
use crate::input::{Packet, Place, Transport};
use crate::stack::Stack;

impl UdpSockets {
    /// The user of a socket that is bound to this port and to the group or to no address.
    pub(crate) fn user_in_group(&self, index: u32, group: IpAddr, port: u16) -> Option<User> {
        let socket = self.slots.get(index as usize)?;
        let ip = socket.local.ip();
        let bound = socket.local.port() == port && (ip.is_unspecified() || ip == group);
        (socket.live && bound).then_some(socket.user)
    }

    pub(super) fn user(&self, index: u32) -> Option<User> {
        self.slots.get(index as usize).map(|socket| socket.user)
    }

    /// The users of all sockets that are bound to this address of IPv4 and port.
    fn users_at(&self, address: Ipv4Addr, port: u16) -> impl Iterator<Item = User> + '_ {
        let all = self.ports.find_all(address, port);
        all.filter_map(|index| self.user(index))
    }

    /// The same for IPv6.
    pub(crate) fn users_at6(
        &self,
        address: core::net::Ipv6Addr,
        port: u16,
    ) -> impl Iterator<Item = User> + '_ {
        let all = self.ports6.find_all(address, port);
        all.filter_map(|index| self.user(index))
    }
}

/// Where a datagram's payload is, and between whom it goes.
#[derive(Clone, Copy)]
pub(crate) struct Datagram<'a> {
    pub(crate) transport: &'a Transport<'a>,
    /// Bytes of payload.
    pub(crate) len: usize,
    pub(crate) envelope: Envelope,
}

impl Datagram<'_> {
    pub(crate) fn deliver<H: Host>(&self, user: User, host: &mut H) {
        match self.transport.place {
            Place::Frame(start) => {
                let start = start + udp::HEADER_LEN as u32;
                host.datagram(user, start, self.len as u32, &self.envelope);
            }
            Place::Buffer => {
                let range = udp::HEADER_LEN..udp::HEADER_LEN + self.len;
                let bytes = self.transport.bytes.get(range).unwrap_or_default();
                host.datagram_bytes(user, bytes, &self.envelope);
            }
        }
    }
}

impl Stack {
    /// Hands a datagram to each of those whom `find` puts on the list: a copy for each (RFC 1112 section 7.1).
    pub(crate) fn deliver_to_all<H: Host>(
        &mut self,
        datagram: &Datagram<'_>,
        find: impl FnOnce(&Self, &mut Vec<User>),
        host: &mut H,
    ) {
        let mut takers = core::mem::take(&mut self.udp.takers);
        find(self, &mut takers);
        let count = match takers.is_empty() {
            true => &mut self.counters.udp_to_nowhere,
            false => &mut self.counters.udp_in,
        };
        *count += 1;
        for user in takers.drain(..) {
            datagram.deliver(user, host);
        }
        self.udp.takers = takers;
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
        let datagram = Datagram {
            transport: &packet.transport,
            len: usize::from(header.length) - udp::HEADER_LEN,
            envelope: Envelope {
                from: SocketAddrV4::new(packet.src, header.src_port).into(),
                to: SocketAddrV4::new(packet.dst, header.dst_port).into(),
                hops: packet.hops,
                class: packet.class,
            },
        };
        if packet.broadcast && !self.addresses.is_local(packet.dst) {
            return self.handle_udp_to_many(packet, &datagram, host);
        }
        let Some(user) = self
            .udp
            .user_at(packet.dst, header.dst_port, datagram.envelope.from)
        else {
            self.counters.udp_to_nowhere += 1;
            // RFC 1122 section 4.1.3.1: "If a datagram arrives addressed to a UDP port for which there is no pending LISTEN
            // call, UDP SHOULD send an ICMP Port Unreachable message."
            return self.send_unreachable(now, packet, icmpv4::UNREACHABLE_PORT);
        };
        self.counters.udp_in += 1;
        datagram.deliver(user, host);
    }

    /// To a group: for those that are in it and want this source. To all systems or to all stations: for all at the port.
    fn handle_udp_to_many<H: Host>(
        &mut self,
        packet: &Packet<'_>,
        datagram: &Datagram<'_>,
        host: &mut H,
    ) {
        let (src, dst, port) = (packet.src, packet.dst, datagram.envelope.to.port());
        let find = |stack: &Self, takers: &mut Vec<User>| {
            if dst.is_multicast() && dst != igmp::ALL_SYSTEMS {
                let listeners = stack.groups.listeners(dst, src);
                takers.extend(
                    listeners.filter_map(|index| stack.udp.user_in_group(index, dst.into(), port)),
                );
            } else {
                takers.extend(stack.udp.users_at(dst, port));
            }
        };
        self.deliver_to_all(datagram, find, host);
    }
}
