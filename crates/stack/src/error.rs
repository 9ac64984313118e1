//! Why a call was refused.

use core::fmt;

/// Why the stack refused what its caller asked for. Nothing was done.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum StackError {
    /// The address and port are taken (or, for a connection, the whole 4-tuple).
    AddressInUse,
    /// The local address is none of this stack's.
    AddressNotAvailable,
    /// The remote address cannot be one of a peer: port 0, unspecified, multicast or broadcast.
    InvalidAddress,
    /// No route leads there.
    Unreachable,
    /// A table is at its limit.
    Full,
    /// A datagram is larger than the MTU allows.
    MessageTooLarge,
    /// The next hop's link address is being asked for: try again when [`crate::Host::datagram_ready`] is called.
    Resolving,
    /// The frame sink has no room: try again in a later turn.
    WouldBlock,
    /// The id is stale.
    NoSuchSocket,
}

impl fmt::Display for StackError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::AddressInUse => "address in use",
            Self::AddressNotAvailable => "address not available",
            Self::InvalidAddress => "invalid address",
            Self::Unreachable => "no route to host",
            Self::Full => "table full",
            Self::MessageTooLarge => "message too large",
            Self::Resolving => "link address is being resolved",
            Self::WouldBlock => "no room to send",
            Self::NoSuchSocket => "no such socket",
        })
    }
}

impl core::error::Error for StackError {}
