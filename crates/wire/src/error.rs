//! Why a header was refused.

use core::fmt;

/// Why bytes from the network are not the header they were taken for.
///
/// Small and `Copy`: callers count drops by reason and never format one on the packet path.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum ParseError {
    /// The bytes end before the header, or before what the header says follows it.
    Truncated,
    /// The version field is not the one of this protocol.
    BadVersion,
    /// A length field contradicts itself (a header length below the minimum, a total length below
    /// the header's).
    BadLength,
    /// The checksum does not match.
    BadChecksum,
    /// Well-formed, but a variant that this stack does not speak (VLAN tags, ARP for other link
    /// layers).
    Unsupported,
    /// A field has a value that its specification forbids.
    Malformed,
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Truncated => "truncated",
            Self::BadVersion => "wrong version",
            Self::BadLength => "contradictory length",
            Self::BadChecksum => "wrong checksum",
            Self::Unsupported => "unsupported variant",
            Self::Malformed => "malformed field",
        })
    }
}

impl core::error::Error for ParseError {}
