//! Headers of frames that go out.

pub(crate) mod usual;

use core::net::Ipv4Addr;

use sidecore_wire::ethernet::{ETHERTYPE_IPV4, HEADER_LEN as ETHERNET_LEN};
use sidecore_wire::{EthernetHeader, Ipv4Header, MacAddress, TcpHeader, checksum, ipv4, ipv6, tcp};

use crate::connections::{Slot, flag};
use crate::control::Link;
use crate::flow::FlowKey;

/// The longest header that a sink is given: Ethernet, IPv6 without extension headers, TCP with all options.
pub const MAX_HEADER_LEN: usize = ETHERNET_LEN + ipv6::HEADER_LEN + tcp::MAX_HEADER_LEN;
/// The longest of IPv4.
const MAX_LEN: usize = ETHERNET_LEN + ipv4::MIN_HEADER_LEN + tcp::MAX_HEADER_LEN;

/// Headers that are being written, of at most `N` bytes.
#[derive(Debug)]
pub(crate) struct Headers<const N: usize> {
    pub(crate) bytes: [u8; N],
    pub(crate) len: usize,
}

/// Those of frames of IPv4.
pub(crate) type HeaderBuffer = Headers<MAX_LEN>;

impl<const N: usize> Headers<N> {
    #[inline]
    pub(crate) const fn new() -> Self {
        Self {
            bytes: [0; N],
            len: 0,
        }
    }

    #[inline]
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    #[inline]
    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    #[inline]
    pub(crate) fn rest(&mut self) -> &mut [u8] {
        &mut self.bytes[self.len..]
    }

    pub(crate) fn ethernet(&mut self, src: MacAddress, dst: MacAddress, ethertype: u16) {
        let header = EthernetHeader {
            dst,
            src,
            ethertype,
        };
        self.len += header.emit(self.rest());
    }

    /// Writes a folded sum.
    #[inline]
    pub(crate) fn put_checksum(&mut self, at: usize, sum: u32) {
        if let Some(field) = self.bytes.get_mut(at..at + 2) {
            field.copy_from_slice(&checksum::fold(sum).to_be_bytes());
        }
    }

    /// Appends bytes that the caller writes.
    pub(crate) fn append(&mut self, emit: impl FnOnce(&mut [u8]) -> usize) {
        self.len += emit(self.rest());
    }
}

impl HeaderBuffer {
    /// Ethernet (not for the loopback) and IPv4, for `len` bytes of payload.
    #[inline]
    pub(crate) fn ipv4(&mut self, link: Link, mac: MacAddress, header: &Ipv4Header, len: usize) {
        if let Link::Station(station) = link {
            self.ethernet(mac, station, ETHERTYPE_IPV4);
        }
        self.len += header.emit(self.rest(), len);
    }

    /// TCP, for `payload_len` bytes; the checksum field gets the folded pseudo-header sum. Returns where the header starts.
    #[inline]
    pub(crate) fn tcp(
        &mut self,
        src: Ipv4Addr,
        dst: Ipv4Addr,
        header: &TcpHeader,
        payload_len: u32,
    ) -> u16 {
        let start = self.len;
        let len = header.emit(self.rest());
        let pseudo = checksum::pseudo_v4(src, dst, ipv4::PROTOCOL_TCP, len as u32 + payload_len);
        self.put_checksum(start + tcp::CHECKSUM_OFFSET, pseudo);
        self.len += len;
        start as u16
    }

    /// All headers of a segment of a connection, ports from `key`, with an ECN field. Returns where the TCP header starts.
    pub(crate) fn segment(
        &mut self,
        link: Link,
        mac: MacAddress,
        key: &FlowKey,
        header: &TcpHeader,
        payload_len: u32,
        ecn: u8,
    ) -> u16 {
        let header = TcpHeader {
            src_port: key.local_port,
            dst_port: key.remote_port,
            ..*header
        };
        let ip = Ipv4Header {
            dscp_ecn: ecn,
            ..Ipv4Header::new(key.local_ip, key.remote_ip, ipv4::PROTOCOL_TCP)
        };
        self.ipv4(link, mac, &ip, header.len() + payload_len as usize);
        self.tcp(key.local_ip, key.remote_ip, &header, payload_len)
    }

    /// Marks the IP header in front of the TCP header that starts there, if the connection's packets are marked.
    #[inline]
    pub(crate) fn mark(&mut self, tcp_start: u16, slot: &Slot) {
        if slot.has(flag::MARKED) {
            let ip = usize::from(tcp_start).saturating_sub(ipv4::MIN_HEADER_LEN);
            slot.marking.write4(&mut self.bytes[ip..]);
        }
    }
}
