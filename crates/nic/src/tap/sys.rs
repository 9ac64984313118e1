//! The driver's `unsafe` code: its pages, and the gathering write.

use core::mem::MaybeUninit;
use core::ptr::NonNull;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use crate::frame::MemRef;

/// The most pieces of payload in one write.
pub(super) const FRAGMENTS_MAX: usize = 64;

/// Anonymous zeroed memory, on huge pages where the kernel has them.
pub(super) struct Pages {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: the mapping belongs to this value alone, like a `Box<[u8]>`.
unsafe impl Send for Pages {}

impl Pages {
    pub(super) fn new(len: usize) -> io::Result<Self> {
        // SAFETY: a new private mapping at a place that the kernel chooses touches nothing that exists.
        let start = unsafe {
            libc::mmap(
                core::ptr::null_mut(),
                len,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: advice about our own mapping; it does not change what the memory holds. Refusal does no harm.
        unsafe { libc::madvise(start, len, libc::MADV_HUGEPAGE) };
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { start, len })
    }

    #[inline]
    pub(super) fn as_slice(&self) -> &[u8] {
        // SAFETY: `len` initialised (zeroed) bytes from `start` are ours for as long as `self` lives; writers need
        // `&mut self`.
        unsafe { core::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }

    #[inline]
    pub(super) fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: as in `as_slice`, and `&mut self` excludes any other reference.
        unsafe { core::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours and no reference into it outlives `self`.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.len) };
    }
}

/// Writes one frame: `head` (the virtio-net header and the frame's own headers), then the payload's pieces. At most
/// [`FRAGMENTS_MAX`] pieces; more are an error. Gives the number of bytes written.
pub(super) fn write_frame(
    fd: BorrowedFd<'_>,
    head: &[u8],
    payload: &[MemRef<'_>],
) -> io::Result<usize> {
    let mut pieces = [const { MaybeUninit::<libc::iovec>::uninit() }; FRAGMENTS_MAX + 1];
    if payload.len() > FRAGMENTS_MAX {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let all = core::iter::once((head.as_ptr(), head.len()))
        .chain(payload.iter().map(|piece| (piece.as_ptr(), piece.len())));
    for (slot, (start, len)) in pieces.iter_mut().zip(all) {
        slot.write(libc::iovec {
            iov_base: start.cast_mut().cast(),
            iov_len: len,
        });
    }
    // SAFETY: the first `1 + payload.len()` entries were written above. Each names memory that its borrow keeps
    // mapped for the call; the kernel only reads it, and copes with its changing meanwhile.
    let written = unsafe {
        libc::writev(
            fd.as_raw_fd(),
            pieces.as_ptr().cast(),
            (1 + payload.len()) as libc::c_int,
        )
    };
    usize::try_from(written).map_err(|_| io::Error::last_os_error())
}
