//! The stack's address by DHCP (RFC 2131): sends and takes the messages of [`client`], checks the address (RFC 5227), and puts it among the
//! stack's own.

mod client;

use core::net::Ipv4Addr;

use sidecore_tcp::Instant;
use sidecore_wire::dhcpv4::{CLIENT_PORT, EMITTED_LEN, SERVER_PORT};
use sidecore_wire::ipv4::PROTOCOL_UDP;
use sidecore_wire::{ArpOperation, ArpPacket, DhcpMessage, MacAddress, UdpHeader, checksum, udp};

pub(crate) use client::Client;
use client::{Deed, To};

use crate::address::Ipv4Cidr;
use crate::control::{Control, Link};
use crate::input::Packet;
use crate::stack::Stack;

/// A lease, for those who look.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DhcpLease {
    /// The address and its network.
    pub address: Ipv4Cidr,
    /// The router that came with it.
    pub router: Option<Ipv4Addr>,
    /// The server.
    pub server: Ipv4Addr,
    /// When it ends.
    pub ends: Instant,
}

impl Stack {
    /// The lease that the stack holds; `None` without DHCP, and as long as there is none.
    pub fn dhcp_lease(&self) -> Option<DhcpLease> {
        self.dhcp.as_ref()?.lease()
    }

    /// What is due of DHCP.
    #[cold]
    pub(crate) fn handle_dhcp_timer(&mut self, now: Instant) {
        while let Some(deed) = self.dhcp.as_mut().and_then(|dhcp| dhcp.timer(now)) {
            self.do_for_dhcp(deed);
        }
    }

    /// Takes a datagram for the client's port, if there is a client. The checksum of the datagram is right.
    #[cold]
    pub(crate) fn handle_dhcp(&mut self, now: Instant, packet: &Packet<'_>, header: &UdpHeader) {
        let range = udp::HEADER_LEN..usize::from(header.length);
        let message = packet.transport.bytes.get(range).unwrap_or_default();
        let (Ok(message), Link::Station(station)) = (DhcpMessage::parse(message), packet.link)
        else {
            self.counters.dhcp_malformed += 1;
            return;
        };
        let to_us = message.reply && message.client_mac == self.config.mac;
        if header.src_port != SERVER_PORT || !to_us {
            self.counters.dhcp_malformed += 1;
            return;
        }
        self.counters.dhcp_in += 1;
        let mut deed = self
            .dhcp
            .as_mut()
            .and_then(|dhcp| dhcp.receive(now, &message, station));
        while let Some(next) = deed {
            self.do_for_dhcp(next);
            deed = self.dhcp.as_mut().and_then(|dhcp| dhcp.timer(now));
        }
    }

    /// An ARP packet tells that somebody has, or wants, the address that is being checked (RFC 5227 section 2.1.1).
    #[cold]
    pub(crate) fn check_dhcp_conflict(&mut self, now: Instant, packet: &ArpPacket) {
        let Some(dhcp) = &mut self.dhcp else { return };
        let Some(candidate) = dhcp.candidate() else {
            return;
        };
        let wants = packet.sender_ip.is_unspecified() && packet.target_ip == candidate;
        let conflict = packet.sender_ip == candidate || wants;
        if conflict && packet.sender_mac != self.config.mac {
            self.counters.arp_conflicts += 1;
            if let Some(deed) = dhcp.decline(now) {
                self.do_for_dhcp(deed);
            }
        }
    }

    fn do_for_dhcp(&mut self, deed: Deed) {
        match deed {
            Deed::Send(message, to) => self.send_dhcp(&message, to),
            Deed::Probe(ip) => {
                self.push_control(Control::Arp {
                    to: MacAddress::BROADCAST,
                    packet: ArpPacket {
                        operation: ArpOperation::Request,
                        sender_mac: self.config.mac,
                        sender_ip: Ipv4Addr::UNSPECIFIED,
                        target_mac: MacAddress::UNSPECIFIED,
                        target_ip: ip,
                    },
                });
            }
            Deed::Take(lease) => {
                self.counters.dhcp_leases += 1;
                self.addresses.set_leased(Some(lease.address), lease.router);
                self.announce();
            }
            Deed::GiveUp => {
                self.counters.dhcp_lost += 1;
                self.addresses.set_leased(None, None);
            }
        }
    }

    fn send_dhcp(&mut self, message: &DhcpMessage, to: To) {
        let (station, dst) = match to {
            To::All => (MacAddress::BROADCAST, Ipv4Addr::BROADCAST),
            To::Server(station, ip) => (station, ip),
        };
        let src = message.client_ip;
        let len = udp::HEADER_LEN + EMITTED_LEN;
        let emit = |buf: &mut [u8]| {
            let header = UdpHeader {
                src_port: CLIENT_PORT,
                dst_port: SERVER_PORT,
                length: len as u16,
                checksum: 0,
            };
            header.emit(buf);
            message.emit(&mut buf[udp::HEADER_LEN..]);
            let pseudo = checksum::pseudo_v4(src, dst, PROTOCOL_UDP, len as u32);
            let sum = udp::checksum_field(checksum::sum(&buf[..len], pseudo));
            buf[6..8].copy_from_slice(&sum.to_be_bytes());
            len
        };
        let queued = self
            .control
            .push_message(len, emit, |start, len| Control::Datagram {
                to: station,
                src,
                dst,
                start,
                len,
            });
        self.counters.dhcp_out += u64::from(queued);
    }
}
