//! Files into memory that is nobody's alone.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// Reads from byte `place` of a file on into memory that others may use at the same time: how many bytes there were, 0 at the end. Blocks as
/// the file does. The bare call: libc's is a place where threads are cancelled.
///
/// # Safety
///
/// `to` is valid for writing `len` bytes, and no reference into them exists.
pub unsafe fn read_at(file: impl AsFd, place: u64, to: *mut u8, len: usize) -> io::Result<usize> {
    let place = libc::off_t::try_from(place).map_err(|_| io::ErrorKind::InvalidInput)?;
    let file = file.as_fd().as_raw_fd();
    // SAFETY: the caller's promise.
    let n = unsafe { libc::syscall(libc::SYS_pread64, file, to, len, place) };
    usize::try_from(n).map_err(|_| io::Error::last_os_error())
}
