//! Ethernet, ARP, IPv4, ICMP, TCP and UDP headers: parsing, emitting, checksums, sequence numbers.
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
//! Nothing here allocates, blocks, or keeps a reference to the bytes it was given.

#![forbid(unsafe_code)]

pub mod addr;
pub mod arp;
pub mod checksum;
mod error;
pub mod ethernet;
pub mod icmpv4;
pub mod ipv4;
pub mod seq;
pub mod tcp;
pub mod udp;

pub use addr::{IpAddr, Ipv4Addr, Ipv6Addr, MacAddress, SocketAddr, SocketAddrV4};
pub use arp::{ArpOperation, ArpPacket};
pub use error::ParseError;
pub use ethernet::EthernetHeader;
pub use icmpv4::Icmpv4;
pub use ipv4::Ipv4Header;
pub use seq::SeqNumber;
pub use tcp::{
    SackBlock, SackBlocks, TcpFlags, TcpHeader, TcpOptions, Timestamps, UnscaledWindow, WindowScale,
};
pub use udp::UdpHeader;
