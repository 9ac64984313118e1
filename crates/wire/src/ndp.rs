//! Neighbour discovery (RFC 4861): router and neighbour messages, redirects.
//!
//! [`NdpMessage::parse`] checks all that the RFC asks of a message before anything may be done for it
//! (sections 6.1, 7.1 and 8.1), so that a value of these types is a valid message. Checksums are
//! [`Icmpv6::parse`](crate::Icmpv6::parse)'s.

mod options;

use core::net::Ipv6Addr;

use crate::ipv6::{Ipv6Header, is_link_local};
use crate::{MacAddress, ParseError, icmpv6};

pub use options::{MAX_PREFIXES, PrefixInformation, Prefixes};
use options::{Options, emit_link_address};

/// ICMPv6 type of router solicitations.
pub const ROUTER_SOLICITATION: u8 = 133;
/// ICMPv6 type of router advertisements.
pub const ROUTER_ADVERTISEMENT: u8 = 134;
/// ICMPv6 type of neighbour solicitations.
pub const NEIGHBOR_SOLICITATION: u8 = 135;
/// ICMPv6 type of neighbour advertisements.
pub const NEIGHBOR_ADVERTISEMENT: u8 = 136;
/// ICMPv6 type of redirects.
pub const REDIRECT: u8 = 137;

/// The hop limit of all these messages: no router lets a packet through with it, so that they come
/// from the link.
pub const HOP_LIMIT: u8 = 255;

/// Bytes of the longest message that [`NdpMessage::emit`] writes: a router advertisement with a
/// link address, an MTU and all prefixes.
pub const MAX_LEN: usize = 16 + 8 + 8 + 32 * MAX_PREFIXES;

const FLAG_ROUTER: u8 = 0x80;
const FLAG_SOLICITED: u8 = 0x40;
const FLAG_OVERRIDE: u8 = 0x20;
const FLAG_MANAGED: u8 = 0x80;
const FLAG_OTHER: u8 = 0x40;

/// A router advertisement (RFC 4861 section 4.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RouterAdvertisement {
    /// The hop limit to send with; 0: not said.
    pub hop_limit: u8,
    /// M: addresses are to be had by DHCPv6.
    pub managed: bool,
    /// O: other configuration is to be had by DHCPv6.
    pub other: bool,
    /// How long this is a default router, in seconds; 0: it is none.
    pub router_lifetime: u16,
    /// How long a neighbour counts as reachable after it was heard, in milliseconds; 0: not said.
    pub reachable_ms: u32,
    /// Time between solicitations, in milliseconds; 0: not said.
    pub retransmit_ms: u32,
    /// The router's link address.
    pub source_link: Option<MacAddress>,
    /// The MTU of the link, in bytes.
    pub mtu: Option<u32>,
    /// Prefixes of the link.
    pub prefixes: Prefixes,
}

/// A message of neighbour discovery.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NdpMessage {
    /// Are there routers?
    RouterSolicitation {
        /// The asker's link address.
        source_link: Option<MacAddress>,
    },
    /// There is one.
    RouterAdvertisement(RouterAdvertisement),
    /// Who has the target?
    NeighborSolicitation {
        /// The address that is asked for.
        target: Ipv6Addr,
        /// The asker's link address.
        source_link: Option<MacAddress>,
    },
    /// The sender has the target.
    NeighborAdvertisement {
        /// R: the sender is a router.
        router: bool,
        /// S: this answers a solicitation.
        solicited: bool,
        /// O: what was known of the target is to be forgotten.
        override_: bool,
        /// The sender's address.
        target: Ipv6Addr,
        /// Its link address.
        target_link: Option<MacAddress>,
    },
    /// A better first hop for a destination.
    Redirect {
        /// The first hop; the destination itself if it is a neighbour.
        target: Ipv6Addr,
        /// For whom.
        destination: Ipv6Addr,
        /// The first hop's link address.
        target_link: Option<MacAddress>,
    },
}

impl NdpMessage {
    /// Whether a message of this ICMPv6 type is one of these.
    #[inline]
    pub const fn is_type(type_: u8) -> bool {
        matches!(type_, ROUTER_SOLICITATION..=REDIRECT)
    }

    /// Reads and validates a message, that is the whole payload of an IPv6 packet with this header.
    /// Its checksum has been verified.
    ///
    /// # Errors
    /// [`ParseError::Truncated`], [`ParseError::Unsupported`] for other types, and
    /// [`ParseError::Malformed`] for what RFC 4861 tells a node to discard silently.
    pub fn parse(ip: &Ipv6Header, message: &[u8]) -> Result<Self, ParseError> {
        let Some(&[type_, code, _, _, a, b, c, d]) = message.first_chunk() else {
            return Err(ParseError::Truncated);
        };
        if !Self::is_type(type_) {
            return Err(ParseError::Unsupported);
        }
        // Of all of them: "The IP Hop Limit field has a value of 255"; "ICMP Code is 0".
        valid(ip.hop_limit == HOP_LIMIT && code == 0)?;
        let rest = &message[icmpv6::HEADER_LEN..];
        match type_ {
            ROUTER_SOLICITATION => router_solicitation(ip, rest),
            ROUTER_ADVERTISEMENT => router_advertisement(ip, [a, b, c, d], rest),
            NEIGHBOR_SOLICITATION => neighbor_solicitation(ip, rest),
            NEIGHBOR_ADVERTISEMENT => neighbor_advertisement(ip, a, rest),
            _ => redirect(ip, rest),
        }
    }

    /// Bytes that [`emit`](Self::emit) writes, at most [`MAX_LEN`].
    #[allow(clippy::len_without_is_empty, reason = "a message is never empty")]
    pub fn len(&self) -> usize {
        let link = |address: &Option<MacAddress>| if address.is_some() { 8 } else { 0 };
        match self {
            Self::RouterSolicitation { source_link } => 8 + link(source_link),
            Self::RouterAdvertisement(ra) => {
                let mtu = if ra.mtu.is_some() { 8 } else { 0 };
                16 + link(&ra.source_link) + mtu + 32 * ra.prefixes.iter().count()
            }
            Self::NeighborSolicitation { source_link, .. } => 24 + link(source_link),
            Self::NeighborAdvertisement { target_link, .. } => 24 + link(target_link),
            Self::Redirect { target_link, .. } => 40 + link(target_link),
        }
    }

    /// Writes the message with its checksum between these addresses at the start of `buf` and
    /// returns its length.
    ///
    /// # Panics
    /// If `buf` is shorter than [`len`](Self::len).
    pub fn emit(&self, src: Ipv6Addr, dst: Ipv6Addr, buf: &mut [u8]) -> usize {
        let message = &mut buf[..self.len()];
        message.fill(0);
        match self {
            Self::RouterSolicitation { source_link } => {
                message[0] = ROUTER_SOLICITATION;
                emit_link_address(options::SOURCE_LINK, *source_link, &mut message[8..]);
            }
            Self::RouterAdvertisement(ra) => {
                message[0] = ROUTER_ADVERTISEMENT;
                emit_router_advertisement(ra, message);
            }
            Self::NeighborSolicitation {
                target,
                source_link,
            } => {
                message[0] = NEIGHBOR_SOLICITATION;
                message[8..24].copy_from_slice(&target.octets());
                emit_link_address(options::SOURCE_LINK, *source_link, &mut message[24..]);
            }
            Self::NeighborAdvertisement {
                router,
                solicited,
                override_,
                target,
                target_link,
            } => {
                message[0] = NEIGHBOR_ADVERTISEMENT;
                message[4] = flag(*router, FLAG_ROUTER)
                    | flag(*solicited, FLAG_SOLICITED)
                    | flag(*override_, FLAG_OVERRIDE);
                message[8..24].copy_from_slice(&target.octets());
                emit_link_address(options::TARGET_LINK, *target_link, &mut message[24..]);
            }
            Self::Redirect {
                target,
                destination,
                target_link,
            } => {
                message[0] = REDIRECT;
                message[8..24].copy_from_slice(&target.octets());
                message[24..40].copy_from_slice(&destination.octets());
                emit_link_address(options::TARGET_LINK, *target_link, &mut message[40..]);
            }
        }
        icmpv6::put_checksum(src, dst, message);
        message.len()
    }
}

const fn flag(set: bool, bit: u8) -> u8 {
    if set { bit } else { 0 }
}

const fn valid(condition: bool) -> Result<(), ParseError> {
    if condition {
        Ok(())
    } else {
        Err(ParseError::Malformed)
    }
}

/// The address at the start of `bytes`, and what follows it.
fn address(bytes: &[u8]) -> Result<(Ipv6Addr, &[u8]), ParseError> {
    let Some((octets, rest)) = bytes.split_first_chunk::<16>() else {
        return Err(ParseError::Truncated);
    };
    Ok((Ipv6Addr::from(*octets), rest))
}

/// RFC 4861 section 6.1.1.
fn router_solicitation(ip: &Ipv6Header, rest: &[u8]) -> Result<NdpMessage, ParseError> {
    let options = Options::parse(rest)?;
    // "If the IP source address is the unspecified address, there is no source link-layer address option".
    valid(!ip.src.is_unspecified() || options.source_link.is_none())?;
    Ok(NdpMessage::RouterSolicitation {
        source_link: options.source_link,
    })
}

/// RFC 4861 section 6.1.2.
fn router_advertisement(
    ip: &Ipv6Header,
    [hop_limit, flags, l0, l1]: [u8; 4],
    rest: &[u8],
) -> Result<NdpMessage, ParseError> {
    valid(is_link_local(ip.src))?;
    let Some((&[r0, r1, r2, r3, t0, t1, t2, t3], rest)) = rest.split_first_chunk::<8>() else {
        return Err(ParseError::Truncated);
    };
    let options = Options::parse(rest)?;
    Ok(NdpMessage::RouterAdvertisement(RouterAdvertisement {
        hop_limit,
        managed: flags & FLAG_MANAGED != 0,
        other: flags & FLAG_OTHER != 0,
        router_lifetime: u16::from_be_bytes([l0, l1]),
        reachable_ms: u32::from_be_bytes([r0, r1, r2, r3]),
        retransmit_ms: u32::from_be_bytes([t0, t1, t2, t3]),
        source_link: options.source_link,
        mtu: options.mtu,
        prefixes: options.prefixes,
    }))
}

fn emit_router_advertisement(ra: &RouterAdvertisement, message: &mut [u8]) {
    message[4] = ra.hop_limit;
    message[5] = flag(ra.managed, FLAG_MANAGED) | flag(ra.other, FLAG_OTHER);
    message[6..8].copy_from_slice(&ra.router_lifetime.to_be_bytes());
    message[8..12].copy_from_slice(&ra.reachable_ms.to_be_bytes());
    message[12..16].copy_from_slice(&ra.retransmit_ms.to_be_bytes());
    let mut at = 16;
    at += emit_link_address(options::SOURCE_LINK, ra.source_link, &mut message[at..]);
    at += options::emit_mtu(ra.mtu, &mut message[at..]);
    for prefix in ra.prefixes.iter() {
        at += prefix.emit(&mut message[at..]);
    }
}

/// RFC 4861 section 7.1.1.
fn neighbor_solicitation(ip: &Ipv6Header, rest: &[u8]) -> Result<NdpMessage, ParseError> {
    let (target, rest) = address(rest)?;
    let options = Options::parse(rest)?;
    valid(!target.is_multicast())?;
    if ip.src.is_unspecified() {
        // "the IP destination address is a solicited-node multicast address" and "there is no source link-layer address
        // option in the message".
        let group = crate::ipv6::solicited_node(ip.dst);
        valid(ip.dst == group && options.source_link.is_none())?;
    }
    Ok(NdpMessage::NeighborSolicitation {
        target,
        source_link: options.source_link,
    })
}

/// RFC 4861 section 7.1.2.
fn neighbor_advertisement(
    ip: &Ipv6Header,
    flags: u8,
    rest: &[u8],
) -> Result<NdpMessage, ParseError> {
    let (target, rest) = address(rest)?;
    let options = Options::parse(rest)?;
    let solicited = flags & FLAG_SOLICITED != 0;
    // "If the IP Destination Address is a multicast address the Solicited flag is zero."
    valid(!(target.is_multicast() || solicited && ip.dst.is_multicast()))?;
    Ok(NdpMessage::NeighborAdvertisement {
        router: flags & FLAG_ROUTER != 0,
        solicited,
        override_: flags & FLAG_OVERRIDE != 0,
        target,
        target_link: options.target_link,
    })
}

/// RFC 4861 section 8.1, but for "the IP source address … is the same as the current first-hop
/// router for the specified ICMP Destination Address", which is the receiver's to know.
fn redirect(ip: &Ipv6Header, rest: &[u8]) -> Result<NdpMessage, ParseError> {
    let (target, rest) = address(rest)?;
    let (destination, rest) = address(rest)?;
    let options = Options::parse(rest)?;
    valid(is_link_local(ip.src) && !destination.is_multicast())?;
    // "either a link-local address (when redirected to a router) or the same as the ICMP Destination Address".
    valid(is_link_local(target) || target == destination)?;
    Ok(NdpMessage::Redirect {
        target,
        destination,
        target_link: options.target_link,
    })
}
