//! Errors of the sockets layer as errno.

use std::io;

use rustix::io::Errno;

/// Tells, within the library, that a socket was handed over while a call was in it: the call is to be made again.
pub(crate) const ELSEWHERE: Errno = Errno::from_raw_os_error(4000);

/// The errno of an error.
pub(crate) fn errno(error: &io::Error) -> Errno {
    use io::ErrorKind as K;
    if let Some(raw) = error.raw_os_error() {
        return Errno::from_raw_os_error(raw);
    }
    if sidecore_client::is_elsewhere(error) {
        return ELSEWHERE;
    }
    match error.kind() {
        K::WouldBlock => Errno::AGAIN,
        K::Interrupted => Errno::INTR,
        K::TimedOut => Errno::TIMEDOUT,
        K::ConnectionRefused => Errno::CONNREFUSED,
        // The engine has ended it: for the program, the connection was reset.
        K::ConnectionReset | K::ConnectionAborted => Errno::CONNRESET,
        K::NotConnected => Errno::NOTCONN,
        K::BrokenPipe => Errno::PIPE,
        K::AddrInUse => Errno::ADDRINUSE,
        K::AddrNotAvailable => Errno::ADDRNOTAVAIL,
        K::PermissionDenied => Errno::ACCESS,
        K::HostUnreachable => Errno::HOSTUNREACH,
        K::NetworkDown => Errno::NETDOWN,
        K::NetworkUnreachable => Errno::NETUNREACH,
        K::QuotaExceeded => Errno::NOBUFS,
        K::Unsupported => Errno::OPNOTSUPP,
        K::InvalidInput => Errno::INVAL,
        _ => Errno::IO,
    }
}

/// The same for a result.
pub(crate) fn told<T>(result: io::Result<T>) -> Result<T, Errno> {
    result.map_err(|error| errno(&error))
}
