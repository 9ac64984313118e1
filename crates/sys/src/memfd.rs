//! Memory as a descriptor (memfd), and the seals that make it fit to be shared with a stranger.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{MemfdFlags, SealFlags};
use rustix::io::Errno;

/// An anonymous file in memory. Closed on exec.
#[derive(Debug)]
pub struct Memfd(OwnedFd);

impl Memfd {
    /// Makes one of `len` bytes (rounded up to whole huge pages when `huge`), all zero. The name is seen in `/proc/*/maps` only.
    ///
    /// Huge pages are reserved at first use, not here: mapping the file fails when there are none.
    pub fn create(name: &str, len: u64, huge: bool) -> io::Result<Self> {
        let mut flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let mut len = len;
        if huge {
            flags |= MemfdFlags::HUGETLB;
            len = len.next_multiple_of(HUGE_PAGE);
        }
        // Linux 6.3 and newer wish to be told that nothing here is a program; older ones refuse the flag.
        let fd = match rustix::fs::memfd_create(name, flags | MemfdFlags::NOEXEC_SEAL) {
            Err(Errno::INVAL) => rustix::fs::memfd_create(name, flags)?,
            other => other?,
        };
        rustix::fs::ftruncate(&fd, len)?;
        Ok(Self(fd))
    }

    /// Seals the size for ever: nobody can shrink or grow the file, nor undo that.
    ///
    /// Holes can still be punched by whoever may write, until [`Memfd::seal_holes`].
    ///
    /// To be called before the descriptor is passed on: adding a seal waits for writers, and a stranger can write for ever.
    pub fn seal_size(&self) -> io::Result<()> {
        let seals = SealFlags::SHRINK | SealFlags::GROW;
        Ok(rustix::fs::fcntl_add_seals(&self.0, seals)?)
    }

    /// Seals all future writing, but for mappings that exist: whoever has the memory mapped writable goes on, and nobody, these
    /// included, can punch a hole, write by descriptor or map it writable again. For memory that several write: all map it, then
    /// one of them seals.
    pub fn seal_holes(&self) -> io::Result<()> {
        let seals = SealFlags::FUTURE_WRITE | SealFlags::SEAL;
        Ok(rustix::fs::fcntl_add_seals(&self.0, seals)?)
    }

    /// Seals the size and all future writing: mappings that are writable now stay so; nobody can make another, write by descriptor,
    /// or punch a hole. For memory that one side writes and a stranger only reads: map it writable first, seal, then pass it on.
    pub fn seal_for_readers(&self) -> io::Result<()> {
        let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::FUTURE_WRITE | SealFlags::SEAL;
        Ok(rustix::fs::fcntl_add_seals(&self.0, seals)?)
    }

    /// Its size in bytes.
    pub fn len(&self) -> io::Result<u64> {
        len(&self.0)
    }

    /// Writes all of `data` at an offset, by descriptor.
    pub fn write_all_at(&self, mut data: &[u8], mut offset: u64) -> io::Result<()> {
        while !data.is_empty() {
            match rustix::io::pwrite(&self.0, data, offset) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(n) => {
                    data = &data[n..];
                    offset += n as u64;
                }
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Whether it holds nothing.
    pub fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }

    /// The descriptor, to be passed on.
    pub fn into_fd(self) -> OwnedFd {
        self.0
    }
}

impl AsFd for Memfd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl From<OwnedFd> for Memfd {
    /// Takes a descriptor as it is; [`check_sealed`] tells whether it is a memfd at all.
    fn from(fd: OwnedFd) -> Self {
        Self(fd)
    }
}

impl From<Memfd> for OwnedFd {
    fn from(memfd: Memfd) -> Self {
        memfd.0
    }
}

/// Bytes of a file of any kind.
pub fn len(fd: impl AsFd) -> io::Result<u64> {
    Ok(rustix::fs::fstat(fd)?.st_size.max(0) as u64)
}

/// Size of the default huge page here, x86-64 and most others.
const HUGE_PAGE: u64 = 2 << 20;

/// The length in bytes of a stranger's memory, if it is a memfd whose size is sealed both ways.
///
/// Ordinary files, devices and sockets have no seals, and files on a tmpfs cannot get these; so what passes here is memory, and
/// no page of it can be cut off later. `InvalidInput` says which condition failed.
pub fn check_sealed(fd: impl AsFd) -> io::Result<u64> {
    let fd = fd.as_fd();
    let refuse = |why: &str| Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    let Ok(seals) = rustix::fs::fcntl_get_seals(fd) else {
        return refuse("the memory is not a memfd");
    };
    if !seals.contains(SealFlags::SHRINK | SealFlags::GROW) {
        return refuse("the memfd is not sealed against shrinking and growing");
    }
    // Only now: before the seals are seen the length could change after being read.
    let len = rustix::fs::fstat(fd)?.st_size;
    if len <= 0 {
        return refuse("the memfd is empty");
    }
    Ok(len as u64)
}

/// Whether the descriptor could be mapped writable now: it was opened for writing and no seal forbids it.
pub fn is_writable(fd: impl AsFd) -> bool {
    let fd = fd.as_fd();
    let open_for_writing =
        rustix::fs::fcntl_getfl(fd).is_ok_and(|flags| flags.contains(rustix::fs::OFlags::RDWR));
    let sealed = rustix::fs::fcntl_get_seals(fd)
        .is_ok_and(|seals| seals.intersects(SealFlags::WRITE | SealFlags::FUTURE_WRITE));
    open_for_writing && !sealed
}

/// Whether somebody could still punch holes into the memory: each makes whoever touches it wait for as long as punching takes.
pub fn is_punchable(fd: impl AsFd) -> bool {
    !rustix::fs::fcntl_get_seals(fd)
        .is_ok_and(|seals| seals.intersects(SealFlags::WRITE | SealFlags::FUTURE_WRITE))
}

/// Size of the pages of a memfd of huge pages; `None` for others.
pub fn huge_page_size(fd: impl AsFd) -> Option<u64> {
    const HUGETLBFS: u64 = 0x9584_58f6;
    let fd = fd.as_fd();
    let kind = rustix::fs::fstatfs(fd).ok()?;
    (kind.f_type as u64 == HUGETLBFS).then_some(kind.f_bsize as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_sealed_memory_passes() {
        let memory = Memfd::create("test", 8192, false).unwrap();
        assert!(check_sealed(&memory).is_err(), "unsealed");
        rustix::fs::fcntl_add_seals(&memory, SealFlags::SHRINK).unwrap();
        assert!(check_sealed(&memory).is_err(), "can grow");
        memory.seal_size().unwrap();
        assert_eq!(check_sealed(&memory).unwrap(), 8192);
        assert!(
            rustix::fs::ftruncate(&memory, 4096).is_err(),
            "the seal holds"
        );
        assert!(rustix::fs::ftruncate(&memory, 16384).is_err());
        assert!(is_writable(&memory));

        let empty = Memfd::create("empty", 0, false).unwrap();
        empty.seal_size().unwrap();
        assert!(check_sealed(&empty).is_err());

        let file = tempfile::tempfile().unwrap();
        assert!(check_sealed(&file).is_err(), "an ordinary file");
        let in_memory = tempfile::tempfile_in("/dev/shm");
        if let Ok(file) = in_memory {
            file.set_len(4096).unwrap();
            assert!(check_sealed(&file).is_err(), "a file of a tmpfs");
        }
        let (socket, _) = std::os::unix::net::UnixStream::pair().unwrap();
        assert!(check_sealed(&socket).is_err());
    }

    #[test]
    fn memory_sealed_for_readers_can_neither_be_written_nor_punched() {
        let memory = Memfd::create("pool", 8192, false).unwrap();
        let writer = crate::Mmap::shared(&memory, 8192, true, false).unwrap();
        assert!(is_punchable(&memory) && huge_page_size(&memory).is_none());
        memory.seal_for_readers().unwrap();
        assert!(!is_writable(&memory) && !is_punchable(&memory));
        // Nor through the mapping that may still write.
        // SAFETY: the range is the mapping's own; nobody else has this memory.
        let removed = unsafe { libc::madvise(writer.as_ptr().cast(), 4096, libc::MADV_REMOVE) };
        assert_eq!(removed, -1);
        assert!(crate::Mmap::shared(&memory, 8192, true, false).is_err());
        let punch = rustix::fs::fallocate(
            &memory,
            rustix::fs::FallocateFlags::PUNCH_HOLE | rustix::fs::FallocateFlags::KEEP_SIZE,
            0,
            4096,
        );
        assert!(punch.is_err(), "no hole can be punched");
        let reader = crate::Mmap::shared(&memory, 8192, false, false).unwrap();
        // SAFETY: both mappings are alive and 8192 bytes long; nobody else has this memory.
        unsafe {
            writer.as_ptr().write_volatile(7);
            assert_eq!(reader.as_ptr().read_volatile(), 7);
        }
    }
}
