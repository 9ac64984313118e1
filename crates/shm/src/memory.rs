//! Memory that another process can write at any time.
//!
//! No `&[u8]` into it exists: such a reference promises that the bytes do not change. There are atomics, for words that both sides
//! agree on, and bounds-checked copies through raw pointers, whose result may be torn when the other side writes meanwhile, which
//! harms the data of whoever did that and nothing else.

use std::io;
use std::marker::PhantomData;
use std::os::fd::AsFd;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64};

use sidecore_abi::LINE;
use sidecore_sys::sigbus::Watched;
use sidecore_sys::{Mmap, check_sealed, memfd};

/// One line of memory on the heap, for tests and models.
#[repr(C, align(64))]
struct HeapLine([AtomicU64; LINE / 8]);

/// Lines that were a box; a raw pointer, as a box that moves would deny all other pointers to it.
struct Heap(NonNull<[HeapLine]>);

// SAFETY: owns its lines, which are atomics.
unsafe impl Send for Heap {}
// SAFETY: as above.
unsafe impl Sync for Heap {}

impl Drop for Heap {
    fn drop(&mut self) {
        // SAFETY: came out of a box in `Shared::heap`, and is dropped once.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}

/// What keeps the bytes alive.
enum Backing {
    Watched(Watched),
    Plain(Mmap),
    Heap(#[expect(dead_code, reason = "held for its drop")] Heap),
}

/// A piece of shared memory. Cheap to clone; unmapped when the last clone is gone.
#[derive(Clone)]
pub struct Shared {
    start: NonNull<u8>,
    len: usize,
    writable: bool,
    backing: Arc<Backing>,
}

// SAFETY: the memory belongs to the process and lives as long as `backing`; it is accessed by atomics and by copies through raw
// pointers only, and a racing copy gives arbitrary bytes, never a reference.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

impl Shared {
    /// Maps a memfd of our own making, all of it. The mapping is watched ([`sidecore_sys::sigbus`]): should its pages vanish, they read
    /// as zeros and [`Shared::condemned`] tells.
    pub fn map(fd: impl AsFd, writable: bool) -> io::Result<Self> {
        let fd = fd.as_fd();
        let len = fd_len(fd)?;
        let mapping = Mmap::shared(fd, len, writable, false)?;
        Self::watched(mapping, writable)
    }

    /// Maps memory that somebody trusted gave us (an application: what the agent sent), without touching the process's SIGBUS handler.
    pub fn map_trusted(fd: impl AsFd, writable: bool) -> io::Result<Self> {
        let fd = fd.as_fd();
        let len = fd_len(fd)?;
        let mapping = Mmap::shared(fd, len, writable, false)?;
        let start = pointer(&mapping)?;
        Ok(Self {
            start,
            len,
            writable,
            backing: Arc::new(Backing::Plain(mapping)),
        })
    }

    /// Maps the first `len` bytes of a stranger's memfd (0: all of it), writable if that is allowed, else read-only.
    ///
    /// `InvalidInput` unless it is a memfd sealed against shrinking and growing, and at least `len` bytes long.
    pub fn map_foreign(fd: impl AsFd, len: u64) -> io::Result<Self> {
        let fd = fd.as_fd();
        let sealed = check_sealed(fd)?;
        let len = if len == 0 { sealed } else { len };
        let len = usize::try_from(len).ok().filter(|_| len <= sealed);
        let Some(len) = len else {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "the memory is shorter than was said",
            ));
        };
        let writable = memfd::is_writable(fd);
        Self::watched(Mmap::shared(fd, len, writable, false)?, writable)
    }

    /// Leaves it out of the memory of forked children, where whoever touches it faults.
    pub fn leave_out_of_forks(&self) -> io::Result<()> {
        match &*self.backing {
            Backing::Watched(watched) => watched.mapping().leave_out_of_forks(),
            Backing::Plain(mapping) => mapping.leave_out_of_forks(),
            Backing::Heap(_) => Ok(()),
        }
    }

    fn watched(mapping: Mmap, writable: bool) -> io::Result<Self> {
        let start = pointer(&mapping)?;
        let len = mapping.len();
        let backing = Arc::new(Backing::Watched(Watched::new(mapping)?));
        Ok(Self {
            start,
            len,
            writable,
            backing,
        })
    }

    /// Zeroed memory of this process alone, whole lines of 64 bytes: for tests, and for an engine and an application in one process.
    pub fn heap(len: usize) -> Self {
        let lines: Box<[HeapLine]> = (0..len.div_ceil(LINE).max(1))
            .map(|_| HeapLine([const { AtomicU64::new(0) }; LINE / 8]))
            .collect();
        let len = lines.len() * LINE;
        let lines = NonNull::from(Box::leak(lines));
        Self {
            start: lines.cast(),
            len,
            writable: true,
            backing: Arc::new(Backing::Heap(Heap(lines))),
        }
    }

    /// Bytes.
    #[inline]
    pub fn len(&self) -> u64 {
        self.len as u64
    }

    /// Never: empty memory cannot be mapped.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether it can be written.
    #[inline]
    pub fn is_writable(&self) -> bool {
        self.writable
    }

    /// Whether its pages vanished under us: everything reads as zeros now, and whoever gave it is to be let go.
    #[inline]
    pub fn condemned(&self) -> bool {
        match &*self.backing {
            Backing::Watched(watched) => watched.condemned(),
            Backing::Plain(_) | Backing::Heap(_) => false,
        }
    }

    /// Keeps its pages in memory, as far as RLIMIT_MEMLOCK allows (see [`Mmap::lock`]): otherwise an application could have them swapped out,
    /// and the engine would wait for a disk.
    pub fn lock(&self) -> io::Result<()> {
        match &*self.backing {
            Backing::Watched(watched) => watched.mapping().lock(),
            Backing::Plain(mapping) => mapping.lock(),
            Backing::Heap(_) => Ok(()),
        }
    }

    /// The address of byte `offset`, if `len` bytes from there lie inside.
    #[inline]
    fn at(&self, offset: u64, len: usize) -> Option<*mut u8> {
        let end = offset.checked_add(len as u64)?;
        // SAFETY: offset <= end <= len: inside the mapping or one past its end.
        (end <= self.len as u64).then(|| unsafe { self.start.as_ptr().add(offset as usize) })
    }

    /// Copies bytes out; false, and nothing copied, when they do not lie inside.
    #[inline]
    pub fn copy_out(&self, offset: u64, dst: &mut [u8]) -> bool {
        let Some(from) = self.at(offset, dst.len()) else {
            return false;
        };
        // SAFETY: `from` is valid for reading that many bytes as `self` lives; `dst` is private memory and cannot overlap.
        unsafe { std::ptr::copy_nonoverlapping(from, dst.as_mut_ptr(), dst.len()) };
        true
    }

    /// Copies bytes in; false, and nothing copied, when they would not lie inside, or the memory is read-only.
    #[inline]
    pub fn copy_in(&self, offset: u64, src: &[u8]) -> bool {
        let Some(to) = self.at(offset, src.len()).filter(|_| self.writable) else {
            return false;
        };
        // SAFETY: `to` is valid for writing that many bytes as `self` lives; `src` is private memory and cannot overlap.
        unsafe { std::ptr::copy_nonoverlapping(src.as_ptr(), to, src.len()) };
        true
    }

    /// The 32-bit word at an offset; `None` when it does not lie inside, is not aligned, or the memory is read-only.
    #[inline]
    pub fn atomic_u32(&self, offset: u64) -> Option<&AtomicU32> {
        let at = self.at(offset, 4)?;
        let fits = self.writable && at.align_offset(align_of::<AtomicU32>()) == 0;
        // SAFETY: inside, aligned, writable, alive as long as `self`; an atomic may be written by others at any time.
        fits.then(|| unsafe { &*at.cast::<AtomicU32>() })
    }

    /// The 64-bit word at an offset; as [`Shared::atomic_u32`].
    #[inline]
    pub fn atomic_u64(&self, offset: u64) -> Option<&AtomicU64> {
        let at = self.at(offset, 8)?;
        let fits = self.writable && at.align_offset(align_of::<AtomicU64>()) == 0;
        // SAFETY: inside, aligned, writable, alive as long as `self`; an atomic may be written by others at any time.
        fits.then(|| unsafe { &*at.cast::<AtomicU64>() })
    }

    /// A piece for reading; `None` when it does not lie inside.
    #[inline]
    pub fn slice(&self, offset: u64, len: usize) -> Option<MemRef<'_>> {
        let ptr = self.at(offset, len)?.cast_const();
        Some(MemRef {
            ptr,
            len,
            life: PhantomData,
        })
    }

    /// A piece for writing; `None` when it does not lie inside, or the memory is read-only.
    #[inline]
    pub fn slice_mut(&self, offset: u64, len: usize) -> Option<MemMut<'_>> {
        let ptr = self.at(offset, len).filter(|_| self.writable)?;
        Some(MemMut {
            ptr,
            len,
            life: PhantomData,
        })
    }
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared")
            .field("len", &self.len)
            .field("writable", &self.writable)
            .field("condemned", &self.condemned())
            .finish()
    }
}

fn fd_len(fd: std::os::fd::BorrowedFd<'_>) -> io::Result<usize> {
    let len = memfd::len(fd)?;
    usize::try_from(len).map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, "too long to map"))
}

fn pointer(mapping: &Mmap) -> io::Result<NonNull<u8>> {
    NonNull::new(mapping.as_ptr()).ok_or_else(|| io::Error::other("a mapping at address 0"))
}

/// Bytes to be read, of shared or of private memory. Its length is fixed and lies inside that memory; its content may change at any
/// time, unless the memory is private.
#[derive(Clone, Copy)]
pub struct MemRef<'a> {
    ptr: *const u8,
    len: usize,
    life: PhantomData<&'a ()>,
}

impl<'a> MemRef<'a> {
    /// No bytes.
    pub const EMPTY: MemRef<'static> = MemRef {
        ptr: NonNull::<u8>::dangling().as_ptr(),
        len: 0,
        life: PhantomData,
    };

    /// Private bytes.
    #[inline]
    pub const fn from_bytes(bytes: &'a [u8]) -> Self {
        Self {
            ptr: bytes.as_ptr(),
            len: bytes.len(),
            life: PhantomData,
        }
    }

    /// Bytes.
    #[inline]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Where they lie, for system calls that gather. Reading through it is the caller's `unsafe`.
    #[inline]
    pub const fn as_ptr(&self) -> *const u8 {
        self.ptr
    }

    /// Copies the first bytes, as many as both hold, and says how many.
    #[inline]
    pub fn copy_to(&self, dst: &mut [u8]) -> usize {
        let n = self.len.min(dst.len());
        // SAFETY: `ptr` is valid for reading `len` bytes over 'a; `dst` is private memory borrowed exclusively: no overlap.
        unsafe { std::ptr::copy_nonoverlapping(self.ptr, dst.as_mut_ptr(), n) };
        n
    }

    /// The first `at` bytes and the rest; beyond the end, everything and nothing.
    #[inline]
    pub fn split_at(self, at: usize) -> (Self, Self) {
        let at = at.min(self.len);
        let head = Self { len: at, ..self };
        // SAFETY: at <= len: inside or one past the end.
        let ptr = unsafe { self.ptr.add(at) };
        let tail = Self {
            ptr,
            len: self.len - at,
            life: PhantomData,
        };
        (head, tail)
    }

    /// `len` bytes from `offset` on; `None` when they do not lie inside.
    #[inline]
    pub fn get(self, offset: usize, len: usize) -> Option<Self> {
        let inside = offset.checked_add(len)? <= self.len;
        inside.then(|| self.split_at(offset).1.split_at(len).0)
    }
}

impl std::fmt::Debug for MemRef<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "MemRef({} bytes)", self.len)
    }
}

/// Bytes of shared memory to be written. Others may write them at the same time.
#[derive(Clone, Copy)]
pub struct MemMut<'a> {
    ptr: *mut u8,
    len: usize,
    life: PhantomData<&'a ()>,
}

impl<'a> MemMut<'a> {
    /// Bytes.
    #[inline]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Where they lie, for system calls that scatter. Writing through it is the caller's `unsafe`.
    #[inline]
    pub const fn as_mut_ptr(&self) -> *mut u8 {
        self.ptr
    }

    /// The same bytes for reading.
    #[inline]
    pub const fn as_ref(&self) -> MemRef<'a> {
        MemRef {
            ptr: self.ptr.cast_const(),
            len: self.len,
            life: PhantomData,
        }
    }

    /// Copies memory to `offset`; false, and nothing written, when it does not fit. The two may overlap.
    #[inline]
    pub fn write(&self, offset: usize, src: MemRef<'_>) -> bool {
        let Some(end) = offset.checked_add(src.len) else {
            return false;
        };
        if end > self.len {
            return false;
        }
        // SAFETY: both ranges are valid (the target's was just checked); `copy` allows overlap: the source may be a piece of the same region.
        unsafe { std::ptr::copy(src.ptr, self.ptr.add(offset), src.len) };
        true
    }

    /// Fills it from a file, from byte `place` of that on: how many bytes there were, 0 at its end. Blocks as the file does.
    pub fn read_file(&self, file: impl AsFd, place: u64) -> io::Result<usize> {
        // SAFETY: the memory is valid for writing so many bytes while `self` lives; nothing in Rust takes it for its own.
        unsafe { sidecore_sys::file::read_at(file, place, self.ptr, self.len) }
    }

    /// Copies private bytes to `offset`; false, and nothing written, when they do not fit.
    #[inline]
    pub fn write_bytes(&self, offset: usize, src: &[u8]) -> bool {
        self.write(offset, MemRef::from_bytes(src))
    }

    /// The first `at` bytes and the rest; beyond the end, everything and nothing.
    #[inline]
    pub fn split_at(self, at: usize) -> (Self, Self) {
        let at = at.min(self.len);
        let head = Self { len: at, ..self };
        // SAFETY: at <= len: inside or one past the end.
        let ptr = unsafe { self.ptr.add(at) };
        let tail = Self {
            ptr,
            len: self.len - at,
            life: PhantomData,
        };
        (head, tail)
    }
}

impl std::fmt::Debug for MemMut<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "MemMut({} bytes)", self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sidecore_sys::Memfd;
    use std::sync::atomic::Ordering;

    #[test]
    fn nothing_reaches_outside() {
        let memory = Shared::heap(128);
        assert_eq!(memory.len(), 128);
        assert!(memory.copy_in(120, &[1; 8]) && !memory.copy_in(121, &[1; 8]));
        assert!(!memory.copy_in(u64::MAX, &[1; 2]) && memory.copy_in(128, &[]));
        let mut out = [0; 8];
        assert!(memory.copy_out(120, &mut out));
        assert_eq!(out, [1; 8]);
        assert!(!memory.copy_out(u64::MAX - 3, &mut out));
        assert!(memory.slice(0, 129).is_none() && memory.slice(129, 0).is_none());
        assert!(memory.slice(1, usize::MAX).is_none());
        assert!(memory.atomic_u32(126).is_none() && memory.atomic_u32(2).is_none());
        assert!(memory.atomic_u64(124).is_none() && memory.atomic_u64(4).is_none());
        memory
            .atomic_u64(0)
            .unwrap()
            .store(0x0102, Ordering::Relaxed);
        assert!(memory.copy_out(0, &mut out[..2]));
        assert_eq!(out[..2], [2, 1]);
    }

    #[test]
    fn pieces_split_and_copy() {
        let memory = Shared::heap(64);
        memory.copy_in(0, b"0123456789");
        let piece = memory.slice(2, 6).unwrap();
        let (head, tail) = piece.split_at(2);
        let mut out = [0; 16];
        assert_eq!(head.copy_to(&mut out), 2);
        assert_eq!(&out[..2], b"23");
        assert_eq!(tail.copy_to(&mut out[..3]), 3);
        assert_eq!(&out[..3], b"456");
        assert_eq!(piece.split_at(100).1.len(), 0);
        assert!(piece.get(1, 6).is_none() && piece.get(usize::MAX, 2).is_none());
        assert_eq!(piece.get(4, 2).unwrap().copy_to(&mut out), 2);
        assert_eq!(&out[..2], b"67");
        let target = memory.slice_mut(0, 10).unwrap();
        assert!(target.write(1, memory.slice(0, 9).unwrap()), "overlapping");
        assert!(!target.write(2, memory.slice(0, 9).unwrap()));
        assert!(!target.write_bytes(usize::MAX, b"xx"));
        assert_eq!(target.as_ref().copy_to(&mut out), 10);
        assert_eq!(&out[..10], b"0012345678");
        assert!(MemRef::EMPTY.is_empty() && target.split_at(3).1.len() == 7);
    }

    #[test]
    #[cfg_attr(miri, ignore = "maps files")]
    fn foreign_memory_is_checked_and_written_only_where_allowed() {
        let memory = Memfd::create("region", 8192, false).unwrap();
        assert!(Shared::map_foreign(&memory, 0).is_err(), "not sealed");
        memory.seal_size().unwrap();
        assert!(Shared::map_foreign(&memory, 8193).is_err(), "too short");
        let whole = Shared::map_foreign(&memory, 0).unwrap();
        assert!(whole.is_writable() && whole.len() == 8192 && !whole.condemned());
        let part = Shared::map_foreign(&memory, 100).unwrap();
        assert_eq!(part.len(), 100);
        assert!(whole.copy_in(50, b"seen"));
        let mut out = [0; 4];
        assert!(part.copy_out(50, &mut out) && &out == b"seen");

        let sealed = Memfd::create("pool", 8192, false).unwrap();
        sealed.seal_for_readers().unwrap();
        let reader = Shared::map_foreign(&sealed, 0).unwrap();
        assert!(!reader.is_writable() && !reader.copy_in(0, b"x"));
        assert!(reader.slice_mut(0, 1).is_none() && reader.atomic_u32(0).is_none());
        assert!(reader.copy_out(0, &mut out));
    }

    #[test]
    #[cfg_attr(miri, ignore = "maps files")]
    fn vanished_memory_condemns_its_owner_alone() {
        // Not sealed and cut short: the plainest way to pages that are not there.
        let memory = Memfd::create("cut", 8192, false).unwrap();
        let cut = Shared::map(&memory, true).unwrap();
        let other = Shared::map(Memfd::create("whole", 4096, false).unwrap(), true).unwrap();
        assert!(cut.copy_in(4096, b"data"));
        rustix_truncate(&memory, 4096);
        let mut out = [9; 4];
        assert!(cut.copy_out(4096, &mut out));
        assert_eq!(out, [0; 4]);
        assert!(cut.condemned() && !other.condemned());
        assert!(cut.copy_in(8000, b"more"), "writing goes on, into nothing");
    }

    fn rustix_truncate(memory: &Memfd, len: u64) {
        let file = std::fs::File::from(memory.as_fd().try_clone_to_owned().unwrap());
        file.set_len(len).unwrap();
    }
}
