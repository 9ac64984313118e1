//! Extension headers of IPv6 (RFC 8200 section 4): the chain from the IPv6 header to the transport.
//!
//! Of a chain nothing matters to a host but where it ends, whether the packet is a fragment, and
//! whether something in it forbids to go on. So a chain is walked once, within limits, and gives a
//! [`HeaderChain`].

use super::{
    DESTINATION_OPTIONS, FRAGMENT, HEADER_LEN, HOP_BY_HOP, Ipv6Header, NEXT_HEADER_OFFSET,
    NO_NEXT_HEADER, PAYLOAD_LEN_OFFSET, PROTOCOL_ICMPV6, PROTOCOL_TCP, PROTOCOL_UDP, ROUTING,
};
use crate::{ParseError, icmpv6};

/// Extension headers in a packet, at most. RFC 8200 section 4.1 recommends an order of six; a
/// longer chain is dropped without an answer.
pub const MAX_HEADERS: u8 = 8;
/// Bytes of all extension headers together, at most.
pub const MAX_LEN: usize = 512;
/// Options other than padding in one header, at most (RFC 8504 section 5.3: 8 by default).
pub const MAX_OPTIONS: usize = 8;
/// Consecutive bytes of padding, at most (RFC 8504 section 5.3).
pub const MAX_PADDING: usize = 7;

/// Bytes of a fragment header.
pub const FRAGMENT_HEADER_LEN: usize = 8;
/// Bytes of a hop-by-hop header with a router alert alone.
pub const ROUTER_ALERT_LEN: usize = 8;

const PAD1: u8 = 0;
const PADN: u8 = 1;
const ROUTER_ALERT: u8 = 5;

/// A fragment header (RFC 8200 section 4.5).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct FragmentHeader {
    /// What the fragmented part starts with; it counts in the first fragment only.
    pub next_header: u8,
    /// Where the payload lies in the fragmented part, in **bytes**: a multiple of 8, at most 65528.
    pub offset: u16,
    /// M: more fragments follow.
    pub more: bool,
    /// The same for all fragments of one packet.
    pub ident: u32,
}

impl FragmentHeader {
    /// Reads a fragment header from the start of `bytes`.
    ///
    /// # Errors
    /// [`ParseError::Truncated`] below 8 bytes.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<(Self, usize), ParseError> {
        let Some(&[next_header, _, o0, o1, i0, i1, i2, i3]) = bytes.first_chunk() else {
            return Err(ParseError::Truncated);
        };
        let field = u16::from_be_bytes([o0, o1]);
        let header = Self {
            next_header,
            offset: field & !7,
            more: field & 1 != 0,
            ident: u32::from_be_bytes([i0, i1, i2, i3]),
        };
        Ok((header, FRAGMENT_HEADER_LEN))
    }

    /// Whether this is a whole packet, for all its header (RFC 6946).
    #[inline]
    pub const fn is_atomic(&self) -> bool {
        self.offset == 0 && !self.more
    }

    /// Writes the header at the start of `buf` and returns its length, 8.
    ///
    /// # Panics
    /// If `buf` is shorter than 8 bytes.
    #[inline]
    pub fn emit(&self, buf: &mut [u8]) -> usize {
        let h = &mut buf[..FRAGMENT_HEADER_LEN];
        let field = self.offset & !7 | u16::from(self.more);
        h[0] = self.next_header;
        h[1] = 0;
        h[2..4].copy_from_slice(&field.to_be_bytes());
        h[4..8].copy_from_slice(&self.ident.to_be_bytes());
        FRAGMENT_HEADER_LEN
    }
}

/// Writes a hop-by-hop header with the router alert of MLD (RFC 2711, RFC 3810 section 5) at the
/// start of `buf` and returns its length, 8.
///
/// # Panics
/// If `buf` is shorter than 8 bytes.
pub fn emit_router_alert(next_header: u8, buf: &mut [u8]) -> usize {
    // Length 0: one unit of eight bytes. The alert's value 0 is MLD; PadN of no bytes ends it.
    let header = [next_header, 0, ROUTER_ALERT, 2, 0, 0, PADN, 0];
    buf[..ROUTER_ALERT_LEN].copy_from_slice(&header);
    ROUTER_ALERT_LEN
}

/// Why a chain of headers does not lead to a transport.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ChainError {
    /// The packet is to be dropped without an answer: cut short, beyond a limit, or with an option
    /// that asks for it.
    Discard(ParseError),
    /// The packet is to be dropped and answered with an ICMPv6 parameter problem (RFC 4443 section
    /// 3.4).
    Problem {
        /// One of [`icmpv6`]'s `PROBLEM_*`.
        code: u8,
        /// Offset of what is wrong from the start of the IPv6 header.
        pointer: u16,
        /// It is to be answered even if the packet was sent to a group.
        even_multicast: bool,
    },
}

/// Where a chain of headers leads.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct HeaderChain {
    /// The first header that is none of RFC 8200's extension headers: the transport's number, or an
    /// unknown one. In a fragment: what the fragmented part starts with.
    pub protocol: u8,
    /// Where in the packet `protocol` is said, for errors about it.
    pub protocol_at: u16,
    /// Where in the bytes after the IPv6 header the payload starts.
    pub payload: usize,
    /// The packet is a part of a larger one.
    pub fragment: Option<FragmentHeader>,
    /// There are hop-by-hop options with the router alert of MLD (RFC 2711).
    pub alert: bool,
}

impl HeaderChain {
    /// Walks from `header` on through `bytes`, all that follows it.
    ///
    /// A fragment's walk ends at its fragment header; the rest is walked when it is whole, with
    /// [`parse_rest`](Self::parse_rest). A first fragment must have all headers (RFC 7112). An
    /// atomic fragment is no fragment (RFC 6946).
    ///
    /// # Errors
    /// [`ChainError`].
    #[inline]
    pub fn parse(header: &Ipv6Header, bytes: &[u8]) -> Result<Self, ChainError> {
        let direct = Self {
            protocol: header.next_header,
            protocol_at: NEXT_HEADER_OFFSET,
            payload: 0,
            fragment: None,
            alert: false,
        };
        if is_transport(header.next_header) {
            return Ok(direct);
        }
        walk(direct, bytes, Part::Packet)
    }

    /// Walks through the fragmented part of a packet that was put together; `next_header` is its
    /// first fragment's.
    ///
    /// # Errors
    /// [`ChainError`]; the offsets in it mean nothing.
    pub fn parse_rest(next_header: u8, bytes: &[u8]) -> Result<Self, ChainError> {
        let start = Self {
            protocol: next_header,
            protocol_at: 0,
            payload: 0,
            fragment: None,
            alert: false,
        };
        walk(start, bytes, Part::Rest)
    }
}

/// Which part of a packet is walked through.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Packet,
    /// What follows a fragment header: neither hop-by-hop options nor fragments again.
    Rest,
}

const TRUNCATED: ChainError = ChainError::Discard(ParseError::Truncated);
const BEYOND_LIMIT: ChainError = ChainError::Discard(ParseError::Unsupported);

const fn is_transport(protocol: u8) -> bool {
    matches!(protocol, PROTOCOL_TCP | PROTOCOL_UDP | PROTOCOL_ICMPV6)
}

fn walk(start: HeaderChain, bytes: &[u8], part: Part) -> Result<HeaderChain, ChainError> {
    let mut chain = start;
    for number in 0..=MAX_HEADERS {
        let rest = bytes.get(chain.payload..).unwrap_or_default();
        let at = HEADER_LEN + chain.payload;
        let len = match chain.protocol {
            HOP_BY_HOP if number > 0 || part == Part::Rest => {
                // RFC 8200 section 4: Next Header 0 "in any header other than an IPv6 header" is unrecognized.
                return Err(problem(icmpv6::PROBLEM_NEXT_HEADER, chain.protocol_at));
            }
            HOP_BY_HOP | DESTINATION_OPTIONS => {
                let len = options(rest, at)?;
                chain.alert |= chain.protocol == HOP_BY_HOP && has_alert(&rest[..len]);
                len
            }
            ROUTING => routing(rest, at)?,
            FRAGMENT if part == Part::Rest => {
                return Err(ChainError::Discard(ParseError::Malformed));
            }
            FRAGMENT => {
                let (fragment, len) = FragmentHeader::parse(rest).map_err(|_| TRUNCATED)?;
                if !fragment.is_atomic() {
                    return fragmented(chain, fragment, bytes);
                }
                len
            }
            _ => return Ok(chain),
        };
        if number == MAX_HEADERS || chain.payload + len > MAX_LEN {
            return Err(BEYOND_LIMIT);
        }
        chain.protocol = rest.first().copied().unwrap_or(NO_NEXT_HEADER);
        chain.protocol_at = at as u16;
        chain.payload += len;
    }
    Err(BEYOND_LIMIT)
}

/// The length of a header that says it in units of eight bytes, and its bytes.
fn sized(rest: &[u8]) -> Result<&[u8], ChainError> {
    let len = rest.get(1).map(|units| (usize::from(*units) + 1) * 8);
    len.and_then(|len| rest.get(..len)).ok_or(TRUNCATED)
}

/// Hop-by-hop or destination options (RFC 8200 sections 4.2, 4.3, 4.6); the header's length.
fn options(rest: &[u8], at: usize) -> Result<usize, ChainError> {
    let header = sized(rest)?;
    let (mut next, mut count, mut padding) = (2, 0, 0);
    while let Some(&kind) = header.get(next) {
        let len = match kind {
            PAD1 => 1,
            _ => 2 + usize::from(*header.get(next + 1).ok_or(TRUNCATED)?),
        };
        if next + len > header.len() {
            return Err(TRUNCATED);
        }
        if matches!(kind, PAD1 | PADN) {
            padding += len;
        } else {
            (padding, count) = (0, count + 1);
            unknown_option(kind, at + next)?;
        }
        if padding > MAX_PADDING || count > MAX_OPTIONS {
            return Err(BEYOND_LIMIT);
        }
        next += len;
    }
    Ok(header.len())
}

/// Whether hop-by-hop options that were walked through before hold a router alert with the value 0: MLD (RFC 2711 section 2.1).
fn has_alert(header: &[u8]) -> bool {
    let mut next = 2;
    while let Some(&kind) = header.get(next) {
        let len = match kind {
            PAD1 => 1,
            _ => 2 + usize::from(header.get(next + 1).copied().unwrap_or(0)),
        };
        if header.get(next..next + len) == Some(&[ROUTER_ALERT, 2, 0, 0]) {
            return true;
        }
        next += len;
    }
    false
}

/// What is to be done about an option that means nothing here is said by the two highest bits of
/// its type (RFC 8200 section 4.2). The router alert is for routers, and has them clear.
fn unknown_option(kind: u8, at: usize) -> Result<(), ChainError> {
    let even_multicast = match kind >> 6 {
        0 => return Ok(()),
        1 => return Err(ChainError::Discard(ParseError::Unsupported)),
        action => action == 2,
    };
    Err(ChainError::Problem {
        code: icmpv6::PROBLEM_OPTION,
        pointer: at as u16,
        even_multicast,
    })
}

/// A routing header (RFC 8200 section 4.4); its length. None of the types is spoken, type 0 least of
/// all (RFC 5095).
fn routing(rest: &[u8], at: usize) -> Result<usize, ChainError> {
    let header = sized(rest)?;
    let segments_left = header.get(3).copied().unwrap_or(0);
    if segments_left != 0 {
        return Err(problem(icmpv6::PROBLEM_FIELD, (at + 2) as u16));
    }
    Ok(header.len())
}

/// A fragment that is not the whole packet.
fn fragmented(
    chain: HeaderChain,
    fragment: FragmentHeader,
    bytes: &[u8],
) -> Result<HeaderChain, ChainError> {
    let at = HEADER_LEN + chain.payload;
    let payload = chain.payload + FRAGMENT_HEADER_LEN;
    let len = bytes.len().saturating_sub(payload);
    // RFC 8200 section 4.5: "If the length of a fragment … is not a multiple of 8 octets and the M flag of that
    // fragment is 1".
    if fragment.more && !len.is_multiple_of(8) {
        return Err(problem(icmpv6::PROBLEM_FIELD, PAYLOAD_LEN_OFFSET));
    }
    // "If … the Payload Length of the packet reassembled from that fragment would exceed 65,535 octets".
    if chain.payload + usize::from(fragment.offset) + len > usize::from(u16::MAX) {
        return Err(problem(icmpv6::PROBLEM_FIELD, (at + 2) as u16));
    }
    if fragment.offset == 0 && !is_complete(fragment.next_header, &bytes[payload..])? {
        // "If the first fragment does not include all headers through an Upper-Layer header, then that fragment should be
        // discarded and an ICMP Parameter Problem, Code 3, message should be sent …, with the Pointer field set to zero".
        return Err(problem(icmpv6::PROBLEM_FIRST_FRAGMENT, 0));
    }
    Ok(HeaderChain {
        protocol: fragment.next_header,
        protocol_at: at as u16,
        payload,
        fragment: Some(fragment),
        alert: chain.alert,
    })
}

/// Whether a first fragment has all headers, that of the transport included (RFC 7112).
fn is_complete(next_header: u8, bytes: &[u8]) -> Result<bool, ChainError> {
    let chain = match HeaderChain::parse_rest(next_header, bytes) {
        Ok(chain) => chain,
        Err(TRUNCATED) => return Ok(false),
        Err(ChainError::Problem { .. }) => return Ok(true),
        Err(discard) => return Err(discard),
    };
    let needed = match chain.protocol {
        PROTOCOL_TCP => 20,
        PROTOCOL_UDP | PROTOCOL_ICMPV6 => 8,
        _ => 0,
    };
    Ok(bytes.len() - chain.payload >= needed)
}

const fn problem(code: u8, pointer: u16) -> ChainError {
    ChainError::Problem {
        code,
        pointer,
        even_multicast: false,
    }
}
