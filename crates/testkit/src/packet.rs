//! Frames made by hand, and frames taken apart.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddrV4};

use sidecore_wire::ethernet::{ETHERTYPE_ARP, ETHERTYPE_IPV4};
use sidecore_wire::ipv4::{PROTOCOL_ICMP, PROTOCOL_TCP, PROTOCOL_UDP};
use sidecore_wire::{
    ArpOperation, ArpPacket, EthernetHeader, Icmpv4, Igmp, Ipv4Header, MacAddress, SeqNumber,
    TcpFlags, TcpHeader, UdpHeader, UnscaledWindow, checksum, igmp, ipv4, tcp, udp,
};

/// A station that exists only in a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Station {
    /// Its link address.
    pub mac: MacAddress,
    /// Its address.
    pub ip: Ipv4Addr,
}

impl Station {
    /// The station at `10.0.0.host`.
    pub const fn new(host: u8) -> Self {
        Self {
            mac: MacAddress([2, 0, 0, 0, 0, host]),
            ip: Ipv4Addr::new(10, 0, 0, host),
        }
    }

    /// All that listen to a group.
    pub const fn group(group: Ipv4Addr) -> Self {
        Self {
            mac: igmp::multicast_mac(group),
            ip: group,
        }
    }

    /// An Ethernet frame from here.
    pub fn ethernet(&self, to: MacAddress, ethertype: u16, payload: &[u8]) -> Vec<u8> {
        let mut frame = vec![0; 14];
        EthernetHeader {
            dst: to,
            src: self.mac,
            ethertype,
        }
        .emit(&mut frame);
        frame.extend_from_slice(payload);
        frame
    }

    /// An IP packet from here; the header's source and destination are set.
    pub fn ip(&self, to: &Station, mut header: Ipv4Header, payload: &[u8]) -> Vec<u8> {
        header.src = self.ip;
        header.dst = to.ip;
        let mut packet = vec![0; 20];
        header.emit(&mut packet, payload.len());
        packet.extend_from_slice(payload);
        self.ethernet(to.mac, ETHERTYPE_IPV4, &packet)
    }

    /// A TCP segment's bytes, checksum included.
    pub fn segment(&self, to: &Station, header: &TcpHeader, payload: &[u8]) -> Vec<u8> {
        let mut segment = vec![0; header.len()];
        header.emit(&mut segment);
        segment.extend_from_slice(payload);
        let pseudo = checksum::pseudo_v4(self.ip, to.ip, PROTOCOL_TCP, segment.len() as u32);
        let sum = checksum::complement(checksum::sum(&segment, pseudo));
        segment[tcp::CHECKSUM_OFFSET..][..2].copy_from_slice(&sum.to_be_bytes());
        segment
    }

    /// A TCP segment.
    pub fn tcp(&self, to: &Station, header: &TcpHeader, payload: &[u8]) -> Vec<u8> {
        let ip = Ipv4Header::new(self.ip, to.ip, PROTOCOL_TCP);
        self.ip(to, ip, &self.segment(to, header, payload))
    }

    /// A UDP datagram's bytes, checksum included.
    pub fn datagram(&self, to: &Station, src_port: u16, dst_port: u16, payload: &[u8]) -> Vec<u8> {
        let mut datagram = vec![0; udp::HEADER_LEN];
        UdpHeader {
            src_port,
            dst_port,
            length: (udp::HEADER_LEN + payload.len()) as u16,
            checksum: 0,
        }
        .emit(&mut datagram);
        datagram.extend_from_slice(payload);
        let pseudo = checksum::pseudo_v4(self.ip, to.ip, PROTOCOL_UDP, datagram.len() as u32);
        let sum = udp::checksum_field(checksum::sum(&datagram, pseudo));
        datagram[6..8].copy_from_slice(&sum.to_be_bytes());
        datagram
    }

    /// A UDP datagram.
    pub fn udp(&self, to: &Station, src_port: u16, dst_port: u16, payload: &[u8]) -> Vec<u8> {
        let ip = Ipv4Header::new(self.ip, to.ip, PROTOCOL_UDP);
        self.ip(to, ip, &self.datagram(to, src_port, dst_port, payload))
    }

    /// An ICMP message.
    pub fn icmp(&self, to: &Station, message: &Icmpv4, data: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0; message.len() + data.len()];
        message.emit(&mut bytes, data);
        let ip = Ipv4Header::new(self.ip, to.ip, PROTOCOL_ICMP);
        self.ip(to, ip, &bytes)
    }

    /// An IGMP message, whose checksum is written; with a router alert or without.
    pub fn igmp(&self, to: &Station, ttl: u8, alert: bool, message: &[u8]) -> Vec<u8> {
        let header = Ipv4Header {
            ttl,
            ..Ipv4Header::new(self.ip, to.ip, igmp::PROTOCOL)
        };
        let mut packet = vec![0; 24];
        let len = if alert {
            header.emit_with_alert(&mut packet, message.len())
        } else {
            header.emit(&mut packet, message.len())
        };
        packet.truncate(len);
        packet.extend_from_slice(message);
        packet[len + 2..len + 4].fill(0);
        let sum = checksum::complement(checksum::sum(&packet[len..], 0));
        packet[len + 2..len + 4].copy_from_slice(&sum.to_be_bytes());
        self.ethernet(to.mac, ETHERTYPE_IPV4, &packet)
    }

    /// An ARP request or reply for a station.
    pub fn arp(&self, operation: ArpOperation, to: &Station) -> Vec<u8> {
        let (link, target_mac) = match operation {
            ArpOperation::Request => (MacAddress::BROADCAST, MacAddress::UNSPECIFIED),
            ArpOperation::Reply => (to.mac, to.mac),
        };
        let packet = ArpPacket {
            operation,
            sender_mac: self.mac,
            sender_ip: self.ip,
            target_mac,
            target_ip: to.ip,
        };
        let mut bytes = [0; 28];
        packet.emit(&mut bytes);
        self.ethernet(link, ETHERTYPE_ARP, &bytes)
    }
}

/// A header with these flags, and nothing else of note.
pub fn header(src_port: u16, dst_port: u16, flags: TcpFlags, seq: u32, ack: u32) -> TcpHeader {
    TcpHeader {
        src_port,
        dst_port,
        seq: SeqNumber(seq),
        ack: SeqNumber(ack),
        flags,
        window: UnscaledWindow(60000),
        ..TcpHeader::default()
    }
}

/// A frame taken apart.
#[derive(Clone, PartialEq)]
pub enum Packet {
    /// ARP.
    Arp(EthernetHeader, ArpPacket),
    /// TCP, with its payload.
    Tcp(Ipv4Header, TcpHeader, Vec<u8>),
    /// UDP, with its payload.
    Udp(Ipv4Header, UdpHeader, Vec<u8>),
    /// ICMP, with its data.
    Icmp(Ipv4Header, Icmpv4, Vec<u8>),
    /// IGMP, whose IP header has a router alert.
    Igmp(Ipv4Header, Vec<u8>),
    /// A fragment, with its payload.
    Fragment(Ipv4Header, Vec<u8>),
}

impl Packet {
    /// Takes a frame from the wire apart.
    ///
    /// # Panics
    /// If anything about the frame is wrong, its checksums included.
    pub fn parse(frame: &[u8]) -> Self {
        let (ethernet, offset) = EthernetHeader::parse(frame).expect("Ethernet");
        let payload = &frame[offset..];
        match ethernet.ethertype {
            ETHERTYPE_ARP => Self::Arp(ethernet, ArpPacket::parse(payload).expect("ARP").0),
            ETHERTYPE_IPV4 => Self::parse_ip(payload),
            other => panic!("EtherType {other:#x}"),
        }
    }

    fn parse_ip(packet: &[u8]) -> Self {
        let (ip, range) = Ipv4Header::parse(packet).expect("IPv4");
        let options = 20..range.start;
        let bytes = &packet[range];
        if ip.is_fragment() {
            return Self::Fragment(ip, bytes.to_vec());
        }
        match ip.protocol {
            PROTOCOL_TCP => {
                assert!(
                    tcp::verify_checksum_v4(ip.src, ip.dst, bytes),
                    "TCP checksum"
                );
                let (header, offset) = TcpHeader::parse(bytes).expect("TCP");
                Self::Tcp(ip, header, bytes[offset..].to_vec())
            }
            PROTOCOL_UDP => {
                let (header, range) = UdpHeader::parse(bytes).expect("UDP");
                assert!(header.checksum != 0 && header.verify_v4(ip.src, ip.dst, bytes));
                Self::Udp(ip, header, bytes[range].to_vec())
            }
            PROTOCOL_ICMP => {
                let (message, offset) = Icmpv4::parse(bytes).expect("ICMP");
                Self::Icmp(ip, message, bytes[offset..].to_vec())
            }
            igmp::PROTOCOL => {
                assert!(ipv4::has_router_alert(&packet[options]), "a router alert");
                Igmp::parse(bytes).expect("IGMP");
                Self::Igmp(ip, bytes.to_vec())
            }
            other => panic!("protocol {other}"),
        }
    }

    /// The records of an IGMPv3 report: kind, group, sources.
    ///
    /// # Panics
    /// If it is something else, or says something that a report to routers must not.
    pub fn records(&self) -> Vec<(u8, Ipv4Addr, Vec<Ipv4Addr>)> {
        let Self::Igmp(ip, bytes) = self else {
            panic!("not IGMP: {self:?}");
        };
        assert_eq!(bytes[0], igmp::REPORT_V3, "{self:?}");
        assert_eq!(ip.dst, igmp::ALL_IGMPV3_ROUTERS);
        assert_eq!((ip.ttl, ip.dscp_ecn), (igmp::TTL, igmp::TOS));
        let parsed = split_records(bytes, 4);
        let ip = |a: &[u8]| Ipv4Addr::new(a[0], a[1], a[2], a[3]);
        let all = parsed.into_iter();
        all.map(|(kind, group, sources)| (kind, ip(group), sources.chunks(4).map(ip).collect()))
            .collect()
    }

    /// The TCP header and payload.
    ///
    /// # Panics
    /// If it is something else.
    pub fn tcp(self) -> (TcpHeader, Vec<u8>) {
        match self {
            Self::Tcp(_, header, payload) => (header, payload),
            other => panic!("not TCP: {other:?}"),
        }
    }
}

/// The records of an IGMPv3 or MLDv2 report, with addresses of so many bytes: kind, group, sources.
pub(crate) fn split_records(report: &[u8], address: usize) -> Vec<(u8, &[u8], &[u8])> {
    let count = u16::from_be_bytes([report[6], report[7]]);
    let mut rest = &report[8..];
    let all = (0..count).map(|_| {
        let (head, behind) = rest.split_at(4 + address);
        let sources = usize::from(u16::from_be_bytes([head[2], head[3]]));
        let (sources, behind) = behind.split_at(sources * address);
        rest = behind;
        (head[0], &head[4..], sources)
    });
    let all = all.collect();
    assert!(rest.is_empty(), "bytes behind the records");
    all
}

/// One line for people.
impl fmt::Debug for Packet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Arp(ethernet, arp) => write!(f, "{ethernet:?} {arp:?}"),
            Self::Tcp(ip, h, payload) => write!(
                f,
                "{} > {} {:?} seq {} ack {} win {} len {}",
                SocketAddrV4::new(ip.src, h.src_port),
                SocketAddrV4::new(ip.dst, h.dst_port),
                h.flags,
                h.seq.0,
                h.ack.0,
                h.window.0,
                payload.len()
            ),
            Self::Udp(ip, h, payload) => write!(
                f,
                "{} > {} UDP len {}",
                SocketAddrV4::new(ip.src, h.src_port),
                SocketAddrV4::new(ip.dst, h.dst_port),
                payload.len()
            ),
            Self::Icmp(ip, message, data) => {
                write!(f, "{} > {} {message:?} len {}", ip.src, ip.dst, data.len())
            }
            Self::Igmp(ip, bytes) => write!(f, "{} > {} IGMP {bytes:02x?}", ip.src, ip.dst),
            Self::Fragment(ip, bytes) => write!(f, "fragment {ip:?} len {}", bytes.len()),
        }
    }
}
