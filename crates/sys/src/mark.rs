//! Where a kernel's TCP socket stands in its peer's urgent data, for tests against the kernel.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Linux's number of the request.
const SIOCATMARK: libc::Ioctl = 0x8905;

/// Whether the next byte to be read of a stream socket is the mark of its urgent data (`sockatmark`). Does not block.
///
/// # Errors
/// What `ioctl` says: ENOTTY of what is no socket.
pub fn at_mark(socket: BorrowedFd<'_>) -> io::Result<bool> {
    let mut answer: libc::c_int = 0;
    // SAFETY: the request writes one int to where the pointer points, which lives until the call is over; the descriptor is open.
    let done = unsafe { libc::ioctl(socket.as_raw_fd(), SIOCATMARK, &raw mut answer) };
    crate::check(done)?;
    Ok(answer != 0)
}
