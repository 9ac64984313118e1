//! ICMPv6 (RFC 4443). Neighbour discovery is in [`ndp`](crate::ndp), multicast listeners in
//! [`mld`](crate::mld).

use core::net::Ipv6Addr;

use crate::ipv6::PROTOCOL_ICMPV6;
use crate::{ParseError, checksum};

/// Bytes of an ICMPv6 header.
pub const HEADER_LEN: usize = 8;
/// An error message is at most so long, IPv6 header included (RFC 4443 section 2.4 (c)).
pub const MAX_ERROR_LEN: usize = 1280;

/// Destination unreachable: no route.
pub const UNREACHABLE_NO_ROUTE: u8 = 0;
/// Destination unreachable: administratively prohibited.
pub const UNREACHABLE_PROHIBITED: u8 = 1;
/// Destination unreachable: beyond the scope of the source address.
pub const UNREACHABLE_SCOPE: u8 = 2;
/// Destination unreachable: address.
pub const UNREACHABLE_ADDRESS: u8 = 3;
/// Destination unreachable: port.
pub const UNREACHABLE_PORT: u8 = 4;
/// Destination unreachable: the source address failed ingress or egress policy.
pub const UNREACHABLE_POLICY: u8 = 5;
/// Destination unreachable: reject route.
pub const UNREACHABLE_REJECT: u8 = 6;

/// Parameter problem: erroneous header field.
pub const PROBLEM_FIELD: u8 = 0;
/// Parameter problem: unrecognized next header.
pub const PROBLEM_NEXT_HEADER: u8 = 1;
/// Parameter problem: unrecognized option.
pub const PROBLEM_OPTION: u8 = 2;
/// Parameter problem: first fragment with an incomplete header chain (RFC 7112).
pub const PROBLEM_FIRST_FRAGMENT: u8 = 3;

const DESTINATION_UNREACHABLE: u8 = 1;
const PACKET_TOO_BIG: u8 = 2;
const TIME_EXCEEDED: u8 = 3;
const PARAMETER_PROBLEM: u8 = 4;
const ECHO_REQUEST: u8 = 128;
const ECHO_REPLY: u8 = 129;

/// An ICMPv6 message's header. Of errors, the data that follows is the start of the packet that
/// caused them.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Icmpv6 {
    /// Echo request: whoever gets it answers with the same data.
    EchoRequest {
        /// Identifier, chosen by the asker.
        ident: u16,
        /// Sequence number, chosen by the asker.
        seq: u16,
    },
    /// Echo reply.
    EchoReply {
        /// Identifier of the request.
        ident: u16,
        /// Sequence number of the request.
        seq: u16,
    },
    /// A packet could not be delivered.
    DestinationUnreachable {
        /// Why: one of the `UNREACHABLE_*`, or another.
        code: u8,
    },
    /// A packet was larger than the next hop takes (RFC 8201).
    PacketTooBig {
        /// What it takes, in bytes.
        mtu: u32,
    },
    /// A packet's hop limit ran out (code 0) or the time of its fragments' reassembly (code 1).
    TimeExceeded {
        /// Which.
        code: u8,
    },
    /// A field of a packet was refused.
    ParameterProblem {
        /// One of the `PROBLEM_*`, or another.
        code: u8,
        /// Where in the packet.
        pointer: u32,
    },
    /// Any other message; the second word of its header is not kept, and emitted as 0.
    Other {
        /// The type field.
        type_: u8,
        /// The code field.
        code: u8,
    },
}

impl Icmpv6 {
    /// Reads a message, that is the whole payload of an IPv6 packet between these addresses, and
    /// verifies its checksum; the data starts at the returned offset.
    ///
    /// # Errors
    /// [`ParseError::Truncated`] below 8 bytes, [`ParseError::BadChecksum`].
    pub fn parse(
        src: Ipv6Addr,
        dst: Ipv6Addr,
        message: &[u8],
    ) -> Result<(Self, usize), ParseError> {
        let Some(&[type_, code, _, _, a0, a1, b0, b1]) = message.first_chunk::<HEADER_LEN>() else {
            return Err(ParseError::Truncated);
        };
        let pseudo = checksum::pseudo_v6(src, dst, PROTOCOL_ICMPV6, message.len() as u32);
        if checksum::fold(checksum::sum(message, pseudo)) != 0xffff {
            return Err(ParseError::BadChecksum);
        }
        let (ident, seq) = (u16::from_be_bytes([a0, a1]), u16::from_be_bytes([b0, b1]));
        let word = u32::from_be_bytes([a0, a1, b0, b1]);
        let parsed = match (type_, code) {
            (ECHO_REQUEST, 0) => Self::EchoRequest { ident, seq },
            (ECHO_REPLY, 0) => Self::EchoReply { ident, seq },
            (DESTINATION_UNREACHABLE, _) => Self::DestinationUnreachable { code },
            // RFC 4443 section 3.2: the originator sets the code to zero, the receiver ignores it.
            (PACKET_TOO_BIG, _) => Self::PacketTooBig { mtu: word },
            (TIME_EXCEEDED, _) => Self::TimeExceeded { code },
            (PARAMETER_PROBLEM, _) => Self::ParameterProblem {
                code,
                pointer: word,
            },
            _ => Self::Other { type_, code },
        };
        Ok((parsed, HEADER_LEN))
    }

    /// Whether this message reports an error: such a message is never answered by another (RFC 4443
    /// section 2.4 (e.1)). The high bit of the type says so.
    #[inline]
    pub const fn is_error(&self) -> bool {
        match self {
            Self::DestinationUnreachable { .. }
            | Self::PacketTooBig { .. }
            | Self::TimeExceeded { .. }
            | Self::ParameterProblem { .. } => true,
            Self::Other { type_, .. } => *type_ < 128,
            Self::EchoRequest { .. } | Self::EchoReply { .. } => false,
        }
    }

    /// Bytes of the header that [`emit`](Self::emit) writes before the data.
    #[inline]
    #[allow(clippy::len_without_is_empty, reason = "a header is never empty")]
    pub const fn len(&self) -> usize {
        HEADER_LEN
    }

    /// Writes the message with its data and its checksum between these addresses at the start of
    /// `buf` and returns its length, `8 + data.len()`.
    ///
    /// # Panics
    /// If `buf` is shorter than that.
    pub fn emit(&self, src: Ipv6Addr, dst: Ipv6Addr, buf: &mut [u8], data: &[u8]) -> usize {
        let echo = |ident: u16, seq: u16| u32::from(ident) << 16 | u32::from(seq);
        let (type_, code, word) = match *self {
            Self::EchoRequest { ident, seq } => (ECHO_REQUEST, 0, echo(ident, seq)),
            Self::EchoReply { ident, seq } => (ECHO_REPLY, 0, echo(ident, seq)),
            Self::DestinationUnreachable { code } => (DESTINATION_UNREACHABLE, code, 0),
            Self::PacketTooBig { mtu } => (PACKET_TOO_BIG, 0, mtu),
            Self::TimeExceeded { code } => (TIME_EXCEEDED, code, 0),
            Self::ParameterProblem { code, pointer } => (PARAMETER_PROBLEM, code, pointer),
            Self::Other { type_, code } => (type_, code, 0),
        };
        let message = &mut buf[..HEADER_LEN + data.len()];
        message[..2].copy_from_slice(&[type_, code]);
        message[4..8].copy_from_slice(&word.to_be_bytes());
        message[HEADER_LEN..].copy_from_slice(data);
        put_checksum(src, dst, message);
        message.len()
    }
}

/// Writes the checksum of a whole message between these addresses into it.
///
/// # Panics
/// If `message` is shorter than 4 bytes.
pub fn put_checksum(src: Ipv6Addr, dst: Ipv6Addr, message: &mut [u8]) {
    message[2..4].fill(0);
    let pseudo = checksum::pseudo_v6(src, dst, PROTOCOL_ICMPV6, message.len() as u32);
    let checksum = checksum::complement(checksum::sum(message, pseudo));
    message[2..4].copy_from_slice(&checksum.to_be_bytes());
}
