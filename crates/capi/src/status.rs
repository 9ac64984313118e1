//! What calls answer, and what events say of how it went.

use std::ffi::CStr;
use std::io;

use sidecore_client::{Disconnected, Exhausted, OpenError, OutOfRange, PostError, Status};

/// What a call answers, and what became of an operation. Numbers never change; new ones may be added. Values below 64 come from the engine,
/// in events; those from 64 on come from the library, as answers of calls.
#[repr(i32)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Dusi_Status {
    /// Done, or (of a call that posts an operation) posted.
    DUSI_OK = 0,
    /// The engine could make no sense of the operation: a value is out of range, or the operation is not for this kind of DTI.
    DUSI_INVALID = 1,
    /// The handle names nothing: it is none, of another kind, or of something that is closed.
    DUSI_BAD_HANDLE = 2,
    /// The bytes lie outside the memory that the handle names.
    DUSI_BAD_EXTENT = 3,
    /// The DTI exists already. Only a broken library causes this.
    DUSI_HANDLE_IN_USE = 4,
    /// The DTI is in a state in which this cannot be done: not connected, not bound, already listening.
    DUSI_WRONG_STATE = 5,
    /// Address or port are in use.
    DUSI_ADDRESS_IN_USE = 6,
    /// Not an address of this engine.
    DUSI_ADDRESS_NOT_AVAILABLE = 7,
    /// The engine's policy forbids it.
    DUSI_NOT_PERMITTED = 8,
    /// A quota of the UAL or a table of the engine is full.
    DUSI_NO_RESOURCES = 9,
    /// A descriptor queue of the DTI is full: try again after a completion.
    DUSI_QUEUE_FULL = 10,
    /// The peer refused the connection.
    DUSI_CONNECTION_REFUSED = 11,
    /// The peer reset the connection.
    DUSI_CONNECTION_RESET = 12,
    /// The connection, or the attempt at one, timed out.
    DUSI_TIMED_OUT = 13,
    /// There is no way to the peer.
    DUSI_UNREACHABLE = 14,
    /// The connection was aborted on this side.
    DUSI_ABORTED = 15,
    /// The operation was cancelled, or its DTI closed, before it was done.
    DUSI_CANCELLED = 16,
    /// The engine does not do that.
    DUSI_NOT_SUPPORTED = 17,
    /// The datagram is larger than can be sent.
    DUSI_MESSAGE_TOO_LARGE = 18,
    /// The UAL broke the rules of shared memory and is being closed.
    DUSI_CONDEMNED = 19,
    /// An argument is out of range, a null pointer, or not aligned.
    DUSI_BAD_ARGUMENT = 64,
    /// No event is there.
    DUSI_EMPTY = 65,
    /// Events are there already, so nothing was armed.
    DUSI_NOT_EMPTY = 66,
    /// Time was up before an event came.
    DUSI_TIMEOUT = 67,
    /// Another thread sleeps on this event queue, or DTIs still use it.
    DUSI_BUSY = 68,
    /// The doorbell queue is full and nothing was done: take events, then try again.
    DUSI_DOORBELL_FULL = 69,
    /// As many of these exist as were granted.
    DUSI_EXHAUSTED = 70,
    /// The engine has gone away, or the UAL was closed. Nothing more will happen in it.
    DUSI_DISCONNECTED = 71,
    /// No engine answers at that path; errno says why.
    DUSI_NO_ENGINE = 72,
    /// The engine and this library speak different versions of the interface.
    DUSI_VERSION_MISMATCH = 73,
    /// The engine's answer makes no sense.
    DUSI_PROTOCOL = 74,
    /// The handle belongs to the parent of this process: a forked child opens its own UAL.
    DUSI_FORKED = 75,
    /// The system refused; errno says why.
    DUSI_SYSTEM = 76,
    /// The library failed within itself. Please report it.
    DUSI_INTERNAL = 77,
}

use Dusi_Status::*;

/// Every status, its words, and the errno value that a socket call would have given.
const ALL: [(Dusi_Status, &CStr, i32); 34] = [
    (DUSI_OK, c"done", 0),
    (
        DUSI_INVALID,
        c"the engine could make no sense of it",
        libc::EINVAL,
    ),
    (DUSI_BAD_HANDLE, c"the handle names nothing", libc::EBADF),
    (
        DUSI_BAD_EXTENT,
        c"the bytes lie outside registered memory",
        libc::EFAULT,
    ),
    (DUSI_HANDLE_IN_USE, c"the DTI exists already", libc::EEXIST),
    (
        DUSI_WRONG_STATE,
        c"the DTI is not in a state for this",
        libc::ENOTCONN,
    ),
    (DUSI_ADDRESS_IN_USE, c"address in use", libc::EADDRINUSE),
    (
        DUSI_ADDRESS_NOT_AVAILABLE,
        c"not an address of this engine",
        libc::EADDRNOTAVAIL,
    ),
    (
        DUSI_NOT_PERMITTED,
        c"forbidden by the engine's policy",
        libc::EACCES,
    ),
    (
        DUSI_NO_RESOURCES,
        c"a quota or table of the engine is full",
        libc::ENOBUFS,
    ),
    (DUSI_QUEUE_FULL, c"a queue of the DTI is full", libc::EAGAIN),
    (
        DUSI_CONNECTION_REFUSED,
        c"connection refused",
        libc::ECONNREFUSED,
    ),
    (
        DUSI_CONNECTION_RESET,
        c"connection reset by the peer",
        libc::ECONNRESET,
    ),
    (DUSI_TIMED_OUT, c"timed out", libc::ETIMEDOUT),
    (DUSI_UNREACHABLE, c"no way to the peer", libc::EHOSTUNREACH),
    (
        DUSI_ABORTED,
        c"the connection was aborted",
        libc::ECONNABORTED,
    ),
    (DUSI_CANCELLED, c"cancelled", libc::ECANCELED),
    (
        DUSI_NOT_SUPPORTED,
        c"this engine does not do that",
        libc::EOPNOTSUPP,
    ),
    (
        DUSI_MESSAGE_TOO_LARGE,
        c"the datagram is too large",
        libc::EMSGSIZE,
    ),
    (
        DUSI_CONDEMNED,
        c"the UAL broke the rules of shared memory",
        libc::ENOTCONN,
    ),
    (
        DUSI_BAD_ARGUMENT,
        c"an argument is null, not aligned, or out of range",
        libc::EINVAL,
    ),
    (DUSI_EMPTY, c"no event is there", libc::EAGAIN),
    (DUSI_NOT_EMPTY, c"events are there already", libc::EAGAIN),
    (
        DUSI_TIMEOUT,
        c"time was up before an event came",
        libc::ETIME,
    ),
    (
        DUSI_BUSY,
        c"in use: another thread sleeps on it, or DTIs name it",
        libc::EBUSY,
    ),
    (
        DUSI_DOORBELL_FULL,
        c"the doorbell queue is full",
        libc::EAGAIN,
    ),
    (
        DUSI_EXHAUSTED,
        c"as many exist as were granted",
        libc::EMFILE,
    ),
    (
        DUSI_DISCONNECTED,
        c"the engine has gone away",
        libc::ENOTCONN,
    ),
    (
        DUSI_NO_ENGINE,
        c"no engine answers at that path",
        libc::ECONNREFUSED,
    ),
    (
        DUSI_VERSION_MISMATCH,
        c"engine and library speak different versions",
        libc::EPROTONOSUPPORT,
    ),
    (
        DUSI_PROTOCOL,
        c"the engine's answer makes no sense",
        libc::EPROTO,
    ),
    (
        DUSI_FORKED,
        c"the handle belongs to the parent of this process",
        libc::EBADF,
    ),
    (DUSI_SYSTEM, c"the system refused (see errno)", libc::EIO),
    (DUSI_INTERNAL, c"internal error of the library", libc::EIO),
];

fn entry(status: i32) -> Option<&'static (Dusi_Status, &'static CStr, i32)> {
    ALL.iter().find(|(known, ..)| *known as i32 == status)
}

/// In words; unknown numbers have words too.
pub(crate) fn words(status: i32) -> &'static CStr {
    entry(status).map_or(c"unknown status", |(_, words, _)| words)
}

/// As errno; of unknown numbers EIO.
pub(crate) fn errno(status: i32) -> i32 {
    entry(status).map_or(libc::EIO, |(.., errno)| *errno)
}

/// Why a call failed. An errno beside the status is given to the caller in `errno`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Failure {
    pub(crate) status: Dusi_Status,
    pub(crate) errno: Option<i32>,
}

/// What a call does: `?` on whatever the client library answers.
pub(crate) type Outcome<T = ()> = Result<T, Failure>;

impl From<Dusi_Status> for Failure {
    fn from(status: Dusi_Status) -> Self {
        Self {
            status,
            errno: None,
        }
    }
}

impl From<PostError> for Failure {
    fn from(error: PostError) -> Self {
        Self::from(match error {
            PostError::LaneFull => DUSI_DOORBELL_FULL,
            PostError::NoHandle => DUSI_EXHAUSTED,
            PostError::TooLong => DUSI_BAD_ARGUMENT,
            _ => DUSI_INTERNAL,
        })
    }
}

impl From<Exhausted> for Failure {
    fn from(_: Exhausted) -> Self {
        Self::from(DUSI_EXHAUSTED)
    }
}

impl From<Disconnected> for Failure {
    fn from(_: Disconnected) -> Self {
        Self::from(DUSI_DISCONNECTED)
    }
}

impl From<OutOfRange> for Failure {
    fn from(_: OutOfRange) -> Self {
        Self::from(DUSI_BAD_EXTENT)
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        use io::ErrorKind as K;
        let errno = error.raw_os_error();
        let status = match error.kind() {
            K::UnexpectedEof | K::BrokenPipe | K::ConnectionReset | K::NotConnected => {
                DUSI_DISCONNECTED
            }
            // What the agent said; the kernel's own refusals have a number.
            _ if errno.is_some() => DUSI_SYSTEM,
            K::QuotaExceeded => DUSI_NO_RESOURCES,
            K::PermissionDenied => DUSI_NOT_PERMITTED,
            K::InvalidInput => DUSI_BAD_ARGUMENT,
            K::Unsupported => DUSI_NOT_SUPPORTED,
            K::InvalidData => DUSI_PROTOCOL,
            _ => DUSI_SYSTEM,
        };
        let errno = (status == DUSI_SYSTEM).then(|| errno_of(&error)).or(errno);
        Self { status, errno }
    }
}

/// The number of an error that may have lost it on its way to words.
fn errno_of(error: &io::Error) -> i32 {
    use io::ErrorKind as K;
    error.raw_os_error().unwrap_or(match error.kind() {
        K::NotFound => libc::ENOENT,
        K::PermissionDenied => libc::EACCES,
        K::ConnectionRefused => libc::ECONNREFUSED,
        K::InvalidInput => libc::EINVAL,
        K::OutOfMemory => libc::ENOMEM,
        _ => libc::EIO,
    })
}

impl From<OpenError> for Failure {
    fn from(error: OpenError) -> Self {
        match error {
            OpenError::Connect(error) => Self {
                status: DUSI_NO_ENGINE,
                errno: Some(errno_of(&error)),
            },
            OpenError::Io(error) => Self::from(error),
            OpenError::Refused(status) => Self::from(of_engine(status)),
            OpenError::Version(_) => Self::from(DUSI_VERSION_MISMATCH),
            OpenError::Protocol(_) => Self::from(DUSI_PROTOCOL),
            _ => Self::from(DUSI_INTERNAL),
        }
    }
}

/// The engine's word for it; the numbers are the same.
pub(crate) fn of_engine(status: Status) -> Dusi_Status {
    entry(i32::from(status as u16)).map_or(DUSI_INVALID, |(status, ..)| *status)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_status_of_the_engine_has_its_number_here() {
        for raw in 0..=19u16 {
            let status = Status::from_raw(raw);
            assert_eq!(of_engine(status) as i32, i32::from(raw));
        }
    }

    #[test]
    fn words_and_errnos() {
        let mut seen: Vec<&CStr> = ALL.iter().map(|(_, words, _)| *words).collect();
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), ALL.len());
        assert_eq!(words(-1), c"unknown status");
        assert_eq!(words(20), c"unknown status");
        assert_eq!((errno(0), errno(2), errno(-7)), (0, libc::EBADF, libc::EIO));
        assert!(
            ALL.iter()
                .all(|(status, _, errno)| (*status == DUSI_OK) == (*errno == 0))
        );
    }

    #[test]
    fn errors_of_the_system_keep_their_number() {
        let failure = Failure::from(io::Error::from_raw_os_error(libc::ENOMEM));
        assert_eq!(
            (failure.status, failure.errno),
            (DUSI_SYSTEM, Some(libc::ENOMEM))
        );
        let said = io::Error::from(io::ErrorKind::QuotaExceeded);
        assert_eq!(Failure::from(said).status, DUSI_NO_RESOURCES);
    }
}
