//! ARP for IPv4 on Ethernet (RFC 826).

use core::net::Ipv4Addr;

use crate::{MacAddress, ParseError};

/// Bytes of an ARP packet for IPv4 on Ethernet, without padding.
pub const PACKET_LEN: usize = 28;

/// Hardware type Ethernet, protocol type IPv4, and their address lengths 6 and 4.
const ETHERNET_IPV4: [u8; 6] = [0x00, 0x01, 0x08, 0x00, 6, 4];

/// What an ARP packet asks or says (`ar$op`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ArpOperation {
    /// Who has the target's protocol address?
    Request,
    /// The sender has the sender's protocol address.
    Reply,
}

/// An ARP packet for IPv4 on Ethernet.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ArpPacket {
    /// Request or reply.
    pub operation: ArpOperation,
    /// `ar$sha`.
    pub sender_mac: MacAddress,
    /// `ar$spa`; 0.0.0.0 in a probe (RFC 5227).
    pub sender_ip: Ipv4Addr,
    /// `ar$tha`; meaningless in a request.
    pub target_mac: MacAddress,
    /// `ar$tpa`.
    pub target_ip: Ipv4Addr,
}

impl ArpPacket {
    /// Reads an ARP packet: an Ethernet frame's payload, with or without padding behind it. The
    /// returned offset is that of the padding.
    ///
    /// # Errors
    /// [`ParseError::Truncated`] below 28 bytes; [`ParseError::Unsupported`] for other hardware,
    /// other protocols and operations other than request and reply.
    #[inline]
    pub fn parse(packet: &[u8]) -> Result<(Self, usize), ParseError> {
        let Some(p) = packet.first_chunk::<PACKET_LEN>() else {
            return Err(ParseError::Truncated);
        };
        if p[..6] != ETHERNET_IPV4 {
            return Err(ParseError::Unsupported);
        }
        let operation = match u16::from_be_bytes([p[6], p[7]]) {
            1 => ArpOperation::Request,
            2 => ArpOperation::Reply,
            _ => return Err(ParseError::Unsupported),
        };
        let parsed = Self {
            operation,
            sender_mac: MacAddress([p[8], p[9], p[10], p[11], p[12], p[13]]),
            sender_ip: Ipv4Addr::new(p[14], p[15], p[16], p[17]),
            target_mac: MacAddress([p[18], p[19], p[20], p[21], p[22], p[23]]),
            target_ip: Ipv4Addr::new(p[24], p[25], p[26], p[27]),
        };
        Ok((parsed, PACKET_LEN))
    }

    /// Bytes that [`emit`](Self::emit) writes.
    #[inline]
    #[allow(clippy::len_without_is_empty, reason = "a packet is never empty")]
    pub const fn len(&self) -> usize {
        PACKET_LEN
    }

    /// Writes the packet at the start of `buf` and returns its length. Padding the frame to 60
    /// bytes is the driver's.
    ///
    /// # Panics
    /// If `buf` is shorter than 28 bytes.
    #[inline]
    pub fn emit(&self, buf: &mut [u8]) -> usize {
        let p = &mut buf[..PACKET_LEN];
        let operation: u16 = match self.operation {
            ArpOperation::Request => 1,
            ArpOperation::Reply => 2,
        };
        p[..6].copy_from_slice(&ETHERNET_IPV4);
        p[6..8].copy_from_slice(&operation.to_be_bytes());
        p[8..14].copy_from_slice(&self.sender_mac.0);
        p[14..18].copy_from_slice(&self.sender_ip.octets());
        p[18..24].copy_from_slice(&self.target_mac.0);
        p[24..28].copy_from_slice(&self.target_ip.octets());
        PACKET_LEN
    }
}
