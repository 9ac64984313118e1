//! Headers of IPv6 frames that go out.

use core::net::Ipv6Addr;

use sidecore_wire::ethernet::{ETHERTYPE_IPV6, HEADER_LEN as ETHERNET_LEN};
use sidecore_wire::{Ipv6Header, MacAddress, TcpHeader, checksum, ipv6, tcp};

use super::flow::Flow6;
use crate::connections::{Slot, flag};
use crate::control::Link;
use crate::frame::{Headers, MAX_HEADER_LEN};

/// Headers of frames of IPv6 that are being written.
pub(super) type HeaderBuffer6 = Headers<MAX_HEADER_LEN>;

impl HeaderBuffer6 {
    /// Ethernet (not for the loopback) and IPv6, for `len` bytes behind it.
    #[inline]
    pub(super) fn ipv6(&mut self, link: Link, mac: MacAddress, header: &Ipv6Header, len: usize) {
        if let Link::Station(station) = link {
            self.ethernet(mac, station, ETHERTYPE_IPV6);
        }
        self.len += header.emit(self.rest(), len);
    }

    /// TCP, for `payload_len` bytes; `addresses` is the sum of both addresses, the checksum field gets the folded
    /// pseudo-header's. Returns where the header starts.
    #[inline]
    pub(super) fn tcp(&mut self, addresses: u32, header: &TcpHeader, payload_len: u32) -> u16 {
        let start = self.len;
        let len = header.emit(&mut self.bytes[start..]);
        self.len += len;
        let rest = checksum::pseudo_v6(
            Ipv6Addr::UNSPECIFIED,
            Ipv6Addr::UNSPECIFIED,
            ipv6::PROTOCOL_TCP,
            len as u32 + payload_len,
        );
        self.put_checksum(start + tcp::CHECKSUM_OFFSET, addresses + rest);
        start as u16
    }

    /// All headers of a segment of a connection. Returns where the TCP header starts.
    #[inline]
    pub(super) fn segment(
        &mut self,
        link: Link,
        mac: MacAddress,
        (flow, hop_limit): (&Flow6, u8),
        header: &TcpHeader,
        payload_len: u32,
        ecn: u8,
    ) -> u16 {
        let header = TcpHeader {
            src_port: flow.key.local_port,
            dst_port: flow.key.remote_port,
            ..*header
        };
        let ip = Ipv6Header {
            flow_label: flow.label,
            traffic_class: ecn,
            hop_limit,
            ..Ipv6Header::new(flow.key.local_ip, flow.key.remote_ip, ipv6::PROTOCOL_TCP)
        };
        self.ipv6(link, mac, &ip, header.len() + payload_len as usize);
        self.tcp(flow.sum, &header, payload_len)
    }

    /// Marks the IP header in front of the TCP header that starts there, if the connection's packets are marked.
    #[inline]
    pub(super) fn mark(&mut self, tcp_start: u16, slot: &Slot) {
        if slot.has(flag::MARKED) {
            let ip = usize::from(tcp_start).saturating_sub(ipv6::HEADER_LEN);
            slot.marking.write6(&mut self.bytes[ip..]);
        }
    }
}

const _: () = assert!(MAX_HEADER_LEN >= ETHERNET_LEN + ipv6::HEADER_LEN + tcp::MAX_HEADER_LEN);
