//! A mapping of shared memory.

use std::io;
use std::os::fd::AsFd;
use std::ptr::NonNull;

use rustix::mm::{MapFlags, ProtFlags};

/// A shared mapping, unmapped on drop.
///
/// It hands out a pointer and no reference: another process may write these bytes at any time.
#[derive(Debug)]
pub struct Mmap {
    ptr: NonNull<u8>,
    len: usize,
}

// SAFETY: the mapping belongs to the process, not to a thread; access goes through raw pointers and atomics.
unsafe impl Send for Mmap {}
// SAFETY: as above; `&Mmap` only gives its address and length away.
unsafe impl Sync for Mmap {}

impl Mmap {
    /// Maps the first `len` bytes, shared. With `populate` every page is made present now (slow, and memory is used) instead of at its
    /// first touch. Blocks for as long as that takes.
    pub fn shared(fd: impl AsFd, len: usize, writable: bool, populate: bool) -> io::Result<Self> {
        let mut protection = ProtFlags::READ;
        if writable {
            protection |= ProtFlags::WRITE;
        }
        let mut flags = MapFlags::SHARED;
        if populate {
            flags |= MapFlags::POPULATE;
        }
        if len == 0 {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "an empty mapping",
            ));
        }
        if let Some(page) = crate::memfd::huge_page_size(&fd)
            && !(len as u64).is_multiple_of(page)
        {
            // The kernel would round up here, and refuse to unmap what we think we have.
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "not a whole number of huge pages",
            ));
        }
        // SAFETY: the kernel chooses the address, so that no existing mapping is touched.
        let ptr = unsafe {
            rustix::mm::mmap(std::ptr::null_mut(), len, protection, flags, fd.as_fd(), 0)?
        };
        let ptr = NonNull::new(ptr.cast::<u8>())
            .ok_or_else(|| io::Error::other("the kernel mapped address 0"))?;
        Ok(Self { ptr, len })
    }

    /// Its first byte. Valid for reading (and, if asked for, writing) as long as `self` lives, but every access may race with the
    /// other process: atomics, or copies whose torn result is harmless.
    #[inline]
    pub fn as_ptr(&self) -> *mut u8 {
        self.ptr.as_ptr()
    }

    /// Bytes mapped.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Never: an empty mapping is refused.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Leaves it out of the memory of forked children, which could not use it: there its addresses are nothing's.
    pub fn leave_out_of_forks(&self) -> io::Result<()> {
        let advice = rustix::mm::Advice::LinuxDontFork;
        // SAFETY: the range is this mapping's own, and stays as it is in this process.
        unsafe { rustix::mm::madvise(self.ptr.as_ptr().cast(), self.len, advice)? };
        Ok(())
    }

    /// Keeps the pages in memory, as far as RLIMIT_MEMLOCK allows; pages come in at their first touch. Then nobody can have them
    /// swapped out, so that no access waits for a disk.
    pub fn lock(&self) -> io::Result<()> {
        // SAFETY: the range is this mapping's own.
        unsafe {
            rustix::mm::mlock_with(
                self.ptr.as_ptr().cast(),
                self.len,
                rustix::mm::MlockFlags::ONFAULT,
            )?;
        }
        Ok(())
    }
}

impl Drop for Mmap {
    fn drop(&mut self) {
        // SAFETY: the range was mapped by `shared`, and no reference into it outlives `self` (there are none).
        let result = unsafe { rustix::mm::munmap(self.ptr.as_ptr().cast(), self.len) };
        debug_assert!(result.is_ok(), "munmap: {result:?}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Memfd;

    #[test]
    fn two_mappings_are_one_memory() {
        let memory = Memfd::create("test", 4096, false).unwrap();
        let a = Mmap::shared(&memory, 4096, true, true).unwrap();
        let b = Mmap::shared(&memory, 4096, false, false).unwrap();
        assert_eq!((a.len(), b.is_empty()), (4096, false));
        // SAFETY: both mappings live, offset 100 lies inside, nobody else has this memory.
        unsafe {
            a.as_ptr().add(100).write_volatile(42);
            assert_eq!(b.as_ptr().add(100).read_volatile(), 42);
        }
        assert!(Mmap::shared(&memory, 0, true, false).is_err());
    }
}
