//! Ethernet, ARP, IPv4, IPv6, ICMP, neighbour discovery, IGMP, MLD, TCP and UDP headers: parsing, emitting, checksums, sequence numbers.
//!
//! # Shape of every module
//!
//! A header is parsed **once** into a small `Copy` value ([`tcp::TcpHeader`], [`ipv4::Ipv4Header`],
//! …) and everything above works on values: `parse(&[u8])` gives the value and where its payload
//! lies, `emit(&self, &mut [u8])` writes it and gives the number of bytes written.
//!
//! * `parse` takes bytes from the network. It never panics, whatever the bytes; what it refuses, it
//!   names ([`ParseError`]).
//! * `emit` takes a buffer of the caller. It panics if that buffer is shorter than the value's
//!   `len()`: that is a mistake of the program and cannot be caused by a peer.
//!
//! ```
//! use sidecore_wire::{EthernetHeader, Ipv4Header, ParseError, TcpHeader, ipv4};
//!
//! /// The TCP header of a frame, and where its payload lies in the frame.
//! fn tcp_of(frame: &[u8]) -> Result<(TcpHeader, core::ops::Range<usize>), ParseError> {
//!     let (_, packet_at) = EthernetHeader::parse(frame)?;
//!     let (ip, segment) = Ipv4Header::parse(&frame[packet_at..])?;
//!     if ip.protocol != ipv4::PROTOCOL_TCP || ip.is_fragment() {
//!         return Err(ParseError::Unsupported);
//!     }
//!     // In the frame, not in the packet; what follows the segment is the link's padding.
//!     let segment = packet_at + segment.start..packet_at + segment.end;
//!     let (tcp, data_offset) = TcpHeader::parse(&frame[segment.clone()])?;
//!     Ok((tcp, segment.start + data_offset..segment.end))
//! }
//! # use sidecore_wire::{Ipv4Addr, MacAddress, SeqNumber, TcpFlags};
//! # let mut frame = [0; 60];
//! # let (dst, src) = (MacAddress([2, 0, 0, 0, 0, 1]), MacAddress([2, 0, 0, 0, 0, 2]));
//! # EthernetHeader { dst, src, ethertype: 0x0800 }.emit(&mut frame);
//! # let ip = Ipv4Header::new(Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2), 6);
//! # ip.emit(&mut frame[14..], 25);
//! # let syn = TcpHeader { seq: SeqNumber(7), flags: TcpFlags::SYN, ..TcpHeader::default() };
//! # syn.emit(&mut frame[34..]);
//! # assert_eq!(tcp_of(&frame), Ok((syn, 54..59)));
//! # assert_eq!(tcp_of(&frame[..58]), Err(ParseError::Truncated));
//! ```
//!
//! Nothing here allocates, blocks, or keeps a reference to the bytes it was given.

#![forbid(unsafe_code)]

pub mod addr;
pub mod arp;
pub mod checksum;
pub mod dhcpv4;
pub mod ecn;
mod error;
pub mod ethernet;
pub mod groups;
pub mod icmpv4;
pub mod icmpv6;
pub mod igmp;
pub mod info;
pub mod ipv4;
pub mod ipv6;
pub mod mld;
pub mod ndp;
pub mod seq;
pub mod tcp;
pub mod udp;

pub use addr::{IpAddr, Ipv4Addr, Ipv6Addr, MacAddress, SocketAddr, SocketAddrV4, SocketAddrV6};
pub use arp::{ArpOperation, ArpPacket};
pub use dhcpv4::{DhcpKind, DhcpMessage};
pub use error::ParseError;
pub use ethernet::EthernetHeader;
pub use groups::{GroupQuery, GroupRecord, GroupVersion, RecordKind};
pub use icmpv4::Icmpv4;
pub use icmpv6::Icmpv6;
pub use igmp::Igmp;
pub use info::TcpInfo;
pub use ipv4::Ipv4Header;
pub use ipv6::Ipv6Header;
pub use mld::Mld;
pub use ndp::{NdpMessage, RouterAdvertisement};
pub use seq::SeqNumber;
pub use tcp::{
    FastOpenCookie, SackBlock, SackBlocks, TcpFlags, TcpHeader, TcpOptions, Timestamps,
    UnscaledWindow, WindowScale,
};
pub use udp::UdpHeader;
