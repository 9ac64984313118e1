//! IPv6 frames made by hand, and frames taken apart.

use std::net::Ipv6Addr;

use sidecore_wire::ethernet::ETHERTYPE_IPV6;
use sidecore_wire::ipv6::extension::{
    FragmentHeader, HeaderChain, ROUTER_ALERT_LEN, emit_router_alert,
};
use sidecore_wire::ipv6::{PROTOCOL_ICMPV6, PROTOCOL_TCP, PROTOCOL_UDP};
use sidecore_wire::{
    EthernetHeader, Icmpv6, Ipv6Header, MacAddress, NdpMessage, TcpHeader, UdpHeader, checksum,
    icmpv6, ipv6, mld, ndp, tcp, udp,
};

use crate::packet::split_records;

/// A station that exists only in a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Station6 {
    /// Its link address.
    pub mac: MacAddress,
    /// Its address.
    pub ip: Ipv6Addr,
}

impl Station6 {
    /// The station at `fd00::host`, with the link address that [`Station`](crate::packet::Station) has.
    pub const fn new(host: u8) -> Self {
        Self {
            mac: MacAddress([2, 0, 0, 0, 0, host]),
            ip: Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, host as u16),
        }
    }

    /// The same station under its link-local address, made from the link address.
    pub const fn link_local(host: u8) -> Self {
        Self {
            mac: MacAddress([2, 0, 0, 0, 0, host]),
            ip: Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0xff, 0xfe00, host as u16),
        }
    }

    /// The same station, as all that listen to a group.
    pub const fn group(group: Ipv6Addr) -> Self {
        Self {
            mac: ipv6::multicast_mac(group),
            ip: group,
        }
    }

    /// A packet from here, as it lies in a frame; `bytes` stands behind the IPv6 header.
    pub fn ip(&self, to: &Station6, mut header: Ipv6Header, bytes: &[u8]) -> Vec<u8> {
        header.src = self.ip;
        header.dst = to.ip;
        let mut frame = vec![0; 54];
        EthernetHeader {
            dst: to.mac,
            src: self.mac,
            ethertype: ETHERTYPE_IPV6,
        }
        .emit(&mut frame);
        header.emit(&mut frame[14..], bytes.len());
        frame.extend_from_slice(bytes);
        frame
    }

    /// A packet from here with a next header, and nothing else of note.
    pub fn packet(&self, to: &Station6, next_header: u8, bytes: &[u8]) -> Vec<u8> {
        self.ip(to, Ipv6Header::new(self.ip, to.ip, next_header), bytes)
    }

    /// A TCP segment's bytes, checksum included.
    pub fn segment(&self, to: &Station6, header: &TcpHeader, payload: &[u8]) -> Vec<u8> {
        let mut segment = vec![0; header.len()];
        header.emit(&mut segment);
        segment.extend_from_slice(payload);
        let pseudo = checksum::pseudo_v6(self.ip, to.ip, PROTOCOL_TCP, segment.len() as u32);
        let sum = checksum::complement(checksum::sum(&segment, pseudo));
        segment[tcp::CHECKSUM_OFFSET..][..2].copy_from_slice(&sum.to_be_bytes());
        segment
    }

    /// A TCP segment.
    pub fn tcp(&self, to: &Station6, header: &TcpHeader, payload: &[u8]) -> Vec<u8> {
        self.packet(to, PROTOCOL_TCP, &self.segment(to, header, payload))
    }

    /// A UDP datagram's bytes, checksum included.
    pub fn datagram(&self, to: &Station6, ports: (u16, u16), payload: &[u8]) -> Vec<u8> {
        let mut datagram = vec![0; udp::HEADER_LEN];
        UdpHeader {
            src_port: ports.0,
            dst_port: ports.1,
            length: (udp::HEADER_LEN + payload.len()) as u16,
            checksum: 0,
        }
        .emit(&mut datagram);
        datagram.extend_from_slice(payload);
        let pseudo = checksum::pseudo_v6(self.ip, to.ip, PROTOCOL_UDP, datagram.len() as u32);
        let sum = udp::checksum_field(checksum::sum(&datagram, pseudo));
        datagram[6..8].copy_from_slice(&sum.to_be_bytes());
        datagram
    }

    /// A UDP datagram.
    pub fn udp(&self, to: &Station6, ports: (u16, u16), payload: &[u8]) -> Vec<u8> {
        self.packet(to, PROTOCOL_UDP, &self.datagram(to, ports, payload))
    }

    /// An ICMPv6 message's bytes.
    pub fn message(&self, to: &Station6, message: &Icmpv6, data: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0; message.len() + data.len()];
        message.emit(self.ip, to.ip, &mut bytes, data);
        bytes
    }

    /// An ICMPv6 message.
    pub fn icmp(&self, to: &Station6, message: &Icmpv6, data: &[u8]) -> Vec<u8> {
        self.packet(to, PROTOCOL_ICMPV6, &self.message(to, message, data))
    }

    /// A message of neighbour discovery.
    pub fn ndp(&self, to: &Station6, message: &NdpMessage) -> Vec<u8> {
        let mut bytes = vec![0; message.len()];
        message.emit(self.ip, to.ip, &mut bytes);
        let header = Ipv6Header {
            hop_limit: ndp::HOP_LIMIT,
            ..Ipv6Header::new(self.ip, to.ip, PROTOCOL_ICMPV6)
        };
        self.ip(to, header, &bytes)
    }

    /// A message of multicast listener discovery, whose checksum is written; with a router alert or without.
    pub fn mld(&self, to: &Station6, hop_limit: u8, alert: bool, message: &[u8]) -> Vec<u8> {
        let mut bytes = message.to_vec();
        icmpv6::put_checksum(self.ip, to.ip, &mut bytes);
        let next = if alert {
            ipv6::HOP_BY_HOP
        } else {
            PROTOCOL_ICMPV6
        };
        let header = Ipv6Header {
            hop_limit,
            ..Ipv6Header::new(self.ip, to.ip, next)
        };
        let mut front = vec![0; if alert { ROUTER_ALERT_LEN } else { 0 }];
        if alert {
            emit_router_alert(PROTOCOL_ICMPV6, &mut front);
        }
        front.extend(bytes);
        self.ip(to, header, &front)
    }

    /// A neighbour solicitation for a station, to its group.
    pub fn solicit(&self, target: &Station6) -> Vec<u8> {
        let question = NdpMessage::NeighborSolicitation {
            target: target.ip,
            source_link: (!self.ip.is_unspecified()).then_some(self.mac),
        };
        let group = Station6::group(ipv6::solicited_node(target.ip));
        self.ndp(&group, &question)
    }

    /// A neighbour advertisement, as an answer to a station.
    pub fn advertise(&self, to: &Station6) -> Vec<u8> {
        let answer = NdpMessage::NeighborAdvertisement {
            router: false,
            solicited: !to.ip.is_multicast(),
            override_: true,
            target: self.ip,
            target_link: Some(self.mac),
        };
        self.ndp(to, &answer)
    }
}

/// What a packet carries.
#[derive(Clone, Debug, PartialEq)]
pub enum Content6 {
    /// TCP, with its payload.
    Tcp(TcpHeader, Vec<u8>),
    /// UDP, with its payload.
    Udp(UdpHeader, Vec<u8>),
    /// ICMPv6 other than neighbour discovery, with its data.
    Icmp(Icmpv6, Vec<u8>),
    /// Neighbour discovery.
    Ndp(NdpMessage),
    /// A fragment, with its payload.
    Fragment(FragmentHeader, Vec<u8>),
}

/// A frame taken apart.
#[derive(Clone, Debug, PartialEq)]
pub struct Packet6 {
    /// To which station it was sent.
    pub to: MacAddress,
    /// The IPv6 header.
    pub ip: Ipv6Header,
    /// There is a router alert in front of it (RFC 2711).
    pub alert: bool,
    /// The second word of an ICMPv6 header; zeros of anything else.
    pub words: [u8; 4],
    /// What it carries.
    pub content: Content6,
}

impl Packet6 {
    /// Takes a frame from the wire apart; `None` if it is not of IPv6.
    ///
    /// # Panics
    /// If anything about the frame is wrong, its checksums included.
    pub fn parse(frame: &[u8]) -> Option<Self> {
        let (ethernet, offset) = EthernetHeader::parse(frame).expect("Ethernet");
        if ethernet.ethertype != ETHERTYPE_IPV6 {
            return None;
        }
        let packet = &frame[offset..];
        let (ip, range) = Ipv6Header::parse(packet).expect("IPv6");
        assert_eq!(range.end, packet.len(), "no padding");
        if ip.dst.is_multicast() {
            assert_eq!(ethernet.dst, ipv6::multicast_mac(ip.dst));
        }
        let chain = HeaderChain::parse(&ip, &packet[range.clone()]).expect("a chain");
        let bytes = &packet[range.start + chain.payload..];
        let content = match (chain.fragment, chain.protocol) {
            (Some(fragment), _) => Content6::Fragment(fragment, bytes.to_vec()),
            (None, PROTOCOL_TCP) => {
                assert!(tcp::verify_checksum_v6(ip.src, ip.dst, bytes), "checksum");
                let (header, offset) = TcpHeader::parse(bytes).expect("TCP");
                Content6::Tcp(header, bytes[offset..].to_vec())
            }
            (None, PROTOCOL_UDP) => {
                let (header, range) = UdpHeader::parse(bytes).expect("UDP");
                assert!(header.verify_v6(ip.src, ip.dst, bytes), "checksum");
                Content6::Udp(header, bytes[range].to_vec())
            }
            (None, PROTOCOL_ICMPV6) => icmp(&ip, bytes),
            (None, other) => panic!("next header {other}"),
        };
        let mut words = [0; 4];
        if chain.protocol == PROTOCOL_ICMPV6 && chain.fragment.is_none() {
            words.copy_from_slice(&bytes[4..8]);
        }
        Some(Self {
            to: ethernet.dst,
            ip,
            alert: chain.alert,
            words,
            content,
        })
    }

    /// The TCP header and payload.
    ///
    /// # Panics
    /// If it is something else.
    pub fn tcp(self) -> (TcpHeader, Vec<u8>) {
        match self.content {
            Content6::Tcp(header, payload) => (header, payload),
            other => panic!("not TCP: {other:?}"),
        }
    }

    /// The records of an MLDv2 report: kind, group, sources.
    ///
    /// # Panics
    /// If it is something else, or says something that a report to routers must not.
    pub fn records(&self) -> Vec<(u8, Ipv6Addr, Vec<Ipv6Addr>)> {
        let Content6::Icmp(Icmpv6::Other { type_, .. }, data) = &self.content else {
            panic!("not ICMPv6: {self:?}");
        };
        assert_eq!(*type_, mld::REPORT_V2, "{self:?}");
        assert_eq!(self.ip.dst, ipv6::ALL_MLDV2_ROUTERS);
        assert_eq!(self.ip.hop_limit, mld::HOP_LIMIT);
        assert!(self.alert, "a router alert");
        // Four bytes of the header were taken for the message's own.
        let report = [&[0; 4][..], &self.words, data].concat();
        let ip = |bytes: &[u8]| Ipv6Addr::from(<[u8; 16]>::try_from(bytes).expect("an address"));
        let all = split_records(&report, 16).into_iter();
        all.map(|(kind, group, sources)| (kind, ip(group), sources.chunks(16).map(ip).collect()))
            .collect()
    }

    /// The message of neighbour discovery, if it is one.
    pub fn ndp(&self) -> Option<NdpMessage> {
        match self.content {
            Content6::Ndp(message) => Some(message),
            _ => None,
        }
    }
}

fn icmp(ip: &Ipv6Header, bytes: &[u8]) -> Content6 {
    let (message, _) = Icmpv6::parse(ip.src, ip.dst, bytes).expect("ICMPv6");
    match message {
        Icmpv6::Other { type_, .. } if NdpMessage::is_type(type_) => {
            Content6::Ndp(NdpMessage::parse(ip, bytes).expect("neighbour discovery"))
        }
        message => Content6::Icmp(message, bytes[icmpv6::HEADER_LEN..].to_vec()),
    }
}
