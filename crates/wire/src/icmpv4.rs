//! ICMP for IPv4 (RFC 792).

use crate::{ParseError, checksum};

/// Bytes of an ICMP header; all messages here have the same.
pub const HEADER_LEN: usize = 8;

/// Destination unreachable: network (RFC 792).
pub const UNREACHABLE_NET: u8 = 0;
/// Destination unreachable: host.
pub const UNREACHABLE_HOST: u8 = 1;
/// Destination unreachable: protocol.
pub const UNREACHABLE_PROTOCOL: u8 = 2;
/// Destination unreachable: port.
pub const UNREACHABLE_PORT: u8 = 3;
/// Destination unreachable: fragmentation needed and DF set (RFC 1191).
pub const UNREACHABLE_FRAGMENTATION_NEEDED: u8 = 4;

const ECHO_REPLY: u8 = 0;
const DESTINATION_UNREACHABLE: u8 = 3;
const ECHO_REQUEST: u8 = 8;
const TIME_EXCEEDED: u8 = 11;
const PARAMETER_PROBLEM: u8 = 12;

/// An ICMP message's header. Of errors, the data that follows is the start of the packet that
/// caused them.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Icmpv4 {
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
        /// With code 4, the largest packet in bytes that the next hop takes (RFC 1191); 0 if the
        /// router does not say.
        next_hop_mtu: u16,
    },
    /// A packet's time to live ran out (code 0) or that of its fragments' reassembly (code 1).
    TimeExceeded {
        /// Where it ran out.
        code: u8,
    },
    /// A header field of a packet was refused. Code and pointer are not kept, and emitted as 0.
    ParameterProblem,
    /// Any other message; the second word of its header is not kept, and emitted as 0.
    Other {
        /// The type field.
        type_: u8,
        /// The code field.
        code: u8,
    },
}

impl Icmpv4 {
    /// Reads a message, that is the whole payload of an IPv4 packet, and verifies its checksum; the
    /// data starts at the returned offset.
    ///
    /// # Errors
    /// [`ParseError::Truncated`] below 8 bytes, [`ParseError::BadChecksum`].
    #[inline]
    pub fn parse(message: &[u8]) -> Result<(Self, usize), ParseError> {
        let Some(&[type_, code, _, _, a0, a1, b0, b1]) = message.first_chunk::<HEADER_LEN>() else {
            return Err(ParseError::Truncated);
        };
        if checksum::fold(checksum::sum(message, 0)) != 0xffff {
            return Err(ParseError::BadChecksum);
        }
        let first = u16::from_be_bytes([a0, a1]);
        let second = u16::from_be_bytes([b0, b1]);
        let parsed = match (type_, code) {
            (ECHO_REQUEST, 0) => Self::EchoRequest {
                ident: first,
                seq: second,
            },
            (ECHO_REPLY, 0) => Self::EchoReply {
                ident: first,
                seq: second,
            },
            (DESTINATION_UNREACHABLE, _) => Self::DestinationUnreachable {
                code,
                next_hop_mtu: second,
            },
            (TIME_EXCEEDED, _) => Self::TimeExceeded { code },
            (PARAMETER_PROBLEM, _) => Self::ParameterProblem,
            _ => Self::Other { type_, code },
        };
        Ok((parsed, HEADER_LEN))
    }

    /// Whether this message reports an error: such a message is never answered by another (RFC 1122
    /// section 3.2.2).
    #[inline]
    pub const fn is_error(&self) -> bool {
        match self {
            Self::DestinationUnreachable { .. }
            | Self::TimeExceeded { .. }
            | Self::ParameterProblem => true,
            // Source quench and redirect.
            Self::Other { type_, .. } => matches!(type_, 4 | 5),
            Self::EchoRequest { .. } | Self::EchoReply { .. } => false,
        }
    }

    /// Bytes of the header that [`emit`](Self::emit) writes before the data.
    #[inline]
    #[allow(clippy::len_without_is_empty, reason = "a header is never empty")]
    pub const fn len(&self) -> usize {
        HEADER_LEN
    }

    /// Writes the message with its data and checksum at the start of `buf` and returns its length,
    /// `8 + data.len()`.
    ///
    /// # Panics
    /// If `buf` is shorter than that.
    #[inline]
    pub fn emit(&self, buf: &mut [u8], data: &[u8]) -> usize {
        let (type_, code, first, second) = match *self {
            Self::EchoRequest { ident, seq } => (ECHO_REQUEST, 0, ident, seq),
            Self::EchoReply { ident, seq } => (ECHO_REPLY, 0, ident, seq),
            Self::DestinationUnreachable { code, next_hop_mtu } => {
                (DESTINATION_UNREACHABLE, code, 0, next_hop_mtu)
            }
            Self::TimeExceeded { code } => (TIME_EXCEEDED, code, 0, 0),
            Self::ParameterProblem => (PARAMETER_PROBLEM, 0, 0, 0),
            Self::Other { type_, code } => (type_, code, 0, 0),
        };
        let message = &mut buf[..HEADER_LEN + data.len()];
        message[0] = type_;
        message[1] = code;
        message[2..4].fill(0);
        message[4..6].copy_from_slice(&first.to_be_bytes());
        message[6..8].copy_from_slice(&second.to_be_bytes());
        message[HEADER_LEN..].copy_from_slice(data);
        let checksum = checksum::complement(checksum::sum(message, 0));
        message[2..4].copy_from_slice(&checksum.to_be_bytes());
        message.len()
    }
}
