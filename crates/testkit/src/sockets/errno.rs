//! Error numbers as Linux has them.

use std::fmt;

use sidecore_stack::StackError;
use sidecore_tcp::CloseReason;

/// An error number of Linux.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Errno(i32);

macro_rules! errno {
    ($($name:ident = $number:literal, $text:literal;)*) => {
        impl Errno {
            $(#[doc = $text] pub const $name: Self = Self($number);)*

            /// All that this layer knows: name, number, what `strerror` says.
            pub const ALL: &[(&str, Self, &str)] = &[$((stringify!($name), Self::$name, $text),)*];
        }
    };
}

errno! {
    EINTR = 4, "Interrupted system call";
    EBADF = 9, "Bad file descriptor";
    EAGAIN = 11, "Resource temporarily unavailable";
    EFAULT = 14, "Bad address";
    EINVAL = 22, "Invalid argument";
    EMFILE = 24, "Too many open files";
    EPIPE = 32, "Broken pipe";
    ENOTSOCK = 88, "Socket operation on non-socket";
    EDESTADDRREQ = 89, "Destination address required";
    EMSGSIZE = 90, "Message too long";
    ENOPROTOOPT = 92, "Protocol not available";
    EPROTONOSUPPORT = 93, "Protocol not supported";
    ESOCKTNOSUPPORT = 94, "Socket type not supported";
    EOPNOTSUPP = 95, "Operation not supported";
    EAFNOSUPPORT = 97, "Address family not supported by protocol";
    EADDRINUSE = 98, "Address already in use";
    EADDRNOTAVAIL = 99, "Cannot assign requested address";
    ENETUNREACH = 101, "Network is unreachable";
    ECONNABORTED = 103, "Software caused connection abort";
    ECONNRESET = 104, "Connection reset by peer";
    ENOBUFS = 105, "No buffer space available";
    EISCONN = 106, "Transport endpoint is already connected";
    ENOTCONN = 107, "Transport endpoint is not connected";
    ETIMEDOUT = 110, "Connection timed out";
    ECONNREFUSED = 111, "Connection refused";
    EHOSTUNREACH = 113, "No route to host";
    EALREADY = 114, "Operation already in progress";
    EINPROGRESS = 115, "Operation now in progress";
    ENOENT = 2, "No such file or directory";
    EPROTO = 71, "Protocol error";
    EDOM = 33, "Numerical argument out of domain";
}

impl Errno {
    /// The number.
    pub const fn raw(self) -> i32 {
        self.0
    }

    /// The name, as in `errno.h`.
    pub fn name(self) -> &'static str {
        let found = Self::ALL.iter().find(|(_, errno, _)| *errno == self);
        found.map_or("an error without a name", |(name, ..)| name)
    }

    /// What a call fails with that the stack has refused.
    pub(super) const fn of(error: StackError) -> Self {
        match error {
            StackError::AddressInUse => Self::EADDRINUSE,
            StackError::AddressNotAvailable => Self::EADDRNOTAVAIL,
            StackError::Unreachable => Self::ENETUNREACH,
            StackError::Full => Self::ENOBUFS,
            StackError::MessageTooLarge => Self::EMSGSIZE,
            StackError::Resolving | StackError::WouldBlock => Self::EAGAIN,
            StackError::NoSuchSocket => Self::EBADF,
            _ => Self::EINVAL,
        }
    }

    /// What is pending on a socket whose connection ended so. `at_end`: the peer had ended its stream, and we had not
    /// (CLOSE-WAIT), where Linux says EPIPE of a reset.
    pub(super) const fn of_close(reason: CloseReason, at_end: bool) -> Option<Self> {
        match reason {
            CloseReason::Reset if at_end => Some(Self::EPIPE),
            CloseReason::Reset => Some(Self::ECONNRESET),
            CloseReason::Refused => Some(Self::ECONNREFUSED),
            CloseReason::TimedOut => Some(Self::ETIMEDOUT),
            CloseReason::Unreachable => Some(Self::EHOSTUNREACH),
            CloseReason::Aborted => Some(Self::ECONNABORTED),
            CloseReason::Normal => None,
        }
    }
}

impl fmt::Debug for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.name(), self.0)
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl std::error::Error for Errno {}
