//! What can go wrong, sorted by what the caller can do about it.

use std::fmt;
use std::io;

use sidecore_abi::Status;

/// Why a UAL could not be opened.
#[derive(Debug)]
#[non_exhaustive]
pub enum OpenError {
    /// No engine listens at that path, or it may not be reached.
    Connect(io::Error),
    /// The conversation with the agent broke off, or memory could not be mapped.
    Io(io::Error),
    /// The agent said no: its policy, or its tables are full.
    Refused(Status),
    /// The engine speaks another version of the interface (given here).
    Version(u32),
    /// The agent's answer makes no sense; it is described here.
    Protocol(&'static str),
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connect(e) => write!(f, "cannot reach the engine: {e}"),
            Self::Io(e) => write!(f, "opening a UAL failed: {e}"),
            Self::Refused(status) => write!(f, "the engine refused the UAL: {}", describe(*status)),
            Self::Version(v) => write!(
                f,
                "the engine speaks version {v} of the interface, this program version {}",
                sidecore_abi::VERSION
            ),
            Self::Protocol(what) => write!(f, "the engine's agent answered nonsense: {what}"),
        }
    }
}

impl std::error::Error for OpenError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Connect(e) | Self::Io(e) => Some(e),
            _ => None,
        }
    }
}

impl From<OpenError> for io::Error {
    fn from(error: OpenError) -> Self {
        let kind = match &error {
            OpenError::Connect(e) | OpenError::Io(e) => e.kind(),
            OpenError::Refused(status) => kind(*status),
            OpenError::Version(_) => io::ErrorKind::Unsupported,
            OpenError::Protocol(_) => io::ErrorKind::InvalidData,
        };
        Self::new(kind, error)
    }
}

/// Every lane (or event queue, or wait cell) that was granted is claimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exhausted(
    /// Of what there was none left.
    pub &'static str,
);

impl fmt::Display for Exhausted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "every {} that the engine granted is in use", self.0)
    }
}

impl std::error::Error for Exhausted {}

impl From<Exhausted> for io::Error {
    fn from(error: Exhausted) -> Self {
        Self::new(io::ErrorKind::QuotaExceeded, error)
    }
}

/// Why a command was not posted. Nothing was done; the same call may be made again later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PostError {
    /// The engine has not yet read enough of what is on the lane: flush, and try again a little later.
    LaneFull,
    /// Every DTI handle that was granted is in use.
    NoHandle,
    /// More bytes than this kind of send carries.
    TooLong,
}

impl fmt::Display for PostError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::LaneFull => "the doorbell lane is full",
            Self::NoHandle => "every DTI that the engine granted is in use",
            Self::TooLong => "more bytes than this kind of send carries",
        })
    }
}

impl std::error::Error for PostError {}

impl From<PostError> for io::Error {
    fn from(error: PostError) -> Self {
        let kind = match error {
            PostError::LaneFull => io::ErrorKind::WouldBlock,
            PostError::NoHandle => io::ErrorKind::QuotaExceeded,
            PostError::TooLong => io::ErrorKind::InvalidInput,
        };
        Self::new(kind, error)
    }
}

/// The engine has gone away: it ended, crashed, or closed this UAL. Nothing more will happen here; open another UAL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Disconnected;

impl fmt::Display for Disconnected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the engine has gone away")
    }
}

impl std::error::Error for Disconnected {}

impl From<Disconnected> for io::Error {
    fn from(error: Disconnected) -> Self {
        Self::new(io::ErrorKind::NotConnected, error)
    }
}

/// A range that does not lie within its region or chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutOfRange;

impl fmt::Display for OutOfRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the range does not lie within the memory")
    }
}

impl std::error::Error for OutOfRange {}

impl From<OutOfRange> for io::Error {
    fn from(error: OutOfRange) -> Self {
        Self::new(io::ErrorKind::InvalidInput, error)
    }
}

/// A [`Status`] in words.
pub fn describe(status: Status) -> &'static str {
    match status {
        Status::Ok => "done",
        Status::Invalid => "the command made no sense",
        Status::BadHandle => "no such DTI",
        Status::BadExtent => "the extent lies outside registered memory",
        Status::HandleInUse => "the DTI handle is in use",
        Status::WrongState => "the DTI is not in a state for this",
        Status::AddressInUse => "address in use",
        Status::AddressNotAvailable => "not an address of this engine",
        Status::NotPermitted => "forbidden by the engine's policy",
        Status::NoResources => "a quota or table of the engine is full",
        Status::QueueFull => "a queue of the DTI is full",
        Status::ConnectionRefused => "connection refused",
        Status::ConnectionReset => "connection reset by the peer",
        Status::TimedOut => "timed out",
        Status::Unreachable => "no route to the peer",
        Status::Aborted => "the connection was aborted",
        Status::Cancelled => "cancelled",
        Status::NotSupported => "this engine does not do that",
        Status::MessageTooLarge => "the datagram is too large",
        Status::Condemned => "the UAL broke the rules of shared memory and is being closed",
    }
}

/// The nearest `std` kind of a [`Status`].
pub fn kind(status: Status) -> io::ErrorKind {
    use io::ErrorKind as K;
    match status {
        Status::Ok => K::Other,
        Status::Invalid | Status::BadExtent | Status::HandleInUse => K::InvalidInput,
        Status::BadHandle | Status::WrongState => K::NotConnected,
        Status::AddressInUse => K::AddrInUse,
        Status::AddressNotAvailable => K::AddrNotAvailable,
        Status::NotPermitted => K::PermissionDenied,
        Status::NoResources => K::QuotaExceeded,
        Status::QueueFull => K::WouldBlock,
        Status::ConnectionRefused => K::ConnectionRefused,
        Status::ConnectionReset => K::ConnectionReset,
        Status::TimedOut => K::TimedOut,
        Status::Unreachable => K::HostUnreachable,
        Status::Aborted => K::ConnectionAborted,
        Status::Cancelled => K::Interrupted,
        Status::NotSupported => K::Unsupported,
        Status::MessageTooLarge => K::InvalidInput,
        Status::Condemned => K::NotConnected,
    }
}

/// A [`Status`] as an error of `std`: the kind that a socket call would have given, with words of our own.
pub fn to_io(status: Status) -> io::Error {
    io::Error::new(kind(status), describe(status))
}
