//! Memory that an io_uring may use, and who has each buffer of it now.

use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU16, Ordering};

use io_uring::types::BufRingEntry;
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

/// A buffer that the program has. Not to be copied: giving it away (to be filled again, or to be sent) ends the program's right to it.
#[derive(Debug, PartialEq, Eq)]
pub struct Buffer {
    pub(super) id: u16,
    pub(super) len: u32,
}

impl Buffer {
    /// Bytes in use.
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// Whether no byte is in use.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

/// Who may touch a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Holder {
    /// The kernel may write it at any time.
    Provided,
    /// The program has it.
    Program,
    /// The kernel reads it until the send is complete.
    Sending,
}

/// `count` buffers of `bytes` each, behind the ring that offers them to the kernel.
pub(super) struct Buffers {
    memory: NonNull<u8>,
    mapped: usize,
    /// Where the buffers begin in `memory`; the ring of entries lies before them.
    data_at: usize,
    count: u16,
    bytes: u32,
    tail: u16,
    holders: Vec<Holder>,
}

// SAFETY: the memory belongs to this value alone; the pointer is not tied to a thread.
unsafe impl Send for Buffers {}

impl Buffers {
    /// Maps memory for `count` (a power of two, at most 32768) buffers. All belong to the program at first, none is reachable by it yet.
    pub(super) fn map(count: u16, bytes: u32) -> io::Result<Self> {
        if !count.is_power_of_two() || count > 1 << 15 || bytes == 0 {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "the number of buffers must be a power of two up to 32768, their size positive",
            ));
        }
        let ring_bytes = usize::from(count) * size_of::<BufRingEntry>();
        let data_at = ring_bytes.next_multiple_of(4096);
        let mapped = data_at + usize::from(count) * bytes as usize;
        // SAFETY: a new private anonymous mapping touches no existing memory.
        let memory = unsafe {
            mmap_anonymous(
                std::ptr::null_mut(),
                mapped,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE,
            )?
        };
        let memory = NonNull::new(memory.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self {
            memory,
            mapped,
            data_at,
            count,
            bytes,
            tail: 0,
            holders: vec![Holder::Program; usize::from(count)],
        })
    }

    /// Address of the ring of entries, page-aligned, and the number of entries.
    pub(super) fn ring(&self) -> (u64, u16) {
        (self.memory.as_ptr() as u64, self.count)
    }

    /// Offers every buffer to the kernel: once, at the beginning.
    pub(super) fn provide_all(&mut self) {
        for id in 0..self.count {
            self.provide(Buffer { id, len: 0 });
        }
    }

    /// Offers a buffer to the kernel, to be filled.
    pub(super) fn provide(&mut self, buffer: Buffer) {
        self.change(buffer.id, Holder::Program, Holder::Provided);
        let slot = usize::from(self.tail & (self.count - 1));
        let base = self.memory.as_ptr().cast::<BufRingEntry>();
        // SAFETY: slot < count, and the mapping begins with `count` entries; the kernel reads an entry only once the tail has passed it,
        // and it has passed at most `count` minus the free ones, so this entry is not being read. The entry's `resv` field of slot 0 is the
        // tail and is not written by the setters.
        let entry = unsafe { &mut *base.add(slot) };
        entry.set_addr(self.address(buffer.id) as u64);
        entry.set_len(self.bytes);
        entry.set_bid(buffer.id);
        self.tail = self.tail.wrapping_add(1);
        // SAFETY: `base` is the first entry of the mapped ring; the tail is a properly aligned u16 inside it that only this value writes.
        let tail = unsafe { AtomicU16::from_ptr(BufRingEntry::tail(base).cast_mut()) };
        tail.store(self.tail, Ordering::Release);
    }

    /// The kernel has filled a buffer. `None`: it names one that it does not have.
    pub(super) fn filled(&mut self, id: u16, len: u32) -> Option<Buffer> {
        if self.holders.get(usize::from(id)) != Some(&Holder::Provided) {
            return None;
        }
        self.change(id, Holder::Provided, Holder::Program);
        let len = len.min(self.bytes);
        Some(Buffer { id, len })
    }

    /// Lends a buffer to a send: address and length.
    pub(super) fn lend(&mut self, buffer: Buffer) -> (*const u8, u32) {
        self.change(buffer.id, Holder::Program, Holder::Sending);
        (self.address(buffer.id), buffer.len.min(self.bytes))
    }

    /// A send is complete: the buffer is the program's again.
    pub(super) fn sent(&mut self, id: u16) -> Buffer {
        self.change(id, Holder::Sending, Holder::Program);
        Buffer { id, len: 0 }
    }

    /// The bytes in use of a buffer that the program has.
    pub(super) fn bytes(&self, buffer: &Buffer) -> &[u8] {
        self.assert_held(buffer);
        // SAFETY: the buffer lies in the mapping (its number was checked by `assert_held`), its length is at most the buffer's size, the memory
        // is initialised (anonymous), and the kernel does not touch buffers that the program has.
        unsafe {
            std::slice::from_raw_parts(self.address(buffer.id), buffer.len.min(self.bytes) as usize)
        }
    }

    /// All of a buffer that the program has, to be written.
    pub(super) fn space(&mut self, buffer: &Buffer) -> &mut [u8] {
        self.assert_held(buffer);
        // SAFETY: as in `bytes`; `&mut self` makes this the only reference.
        unsafe { std::slice::from_raw_parts_mut(self.address(buffer.id), self.bytes as usize) }
    }

    fn address(&self, id: u16) -> *mut u8 {
        let offset = self.data_at + usize::from(id) * self.bytes as usize;
        // SAFETY: every id that gets here is below `count`, so the offset lies inside the mapping.
        unsafe { self.memory.as_ptr().add(offset) }
    }

    fn assert_held(&self, buffer: &Buffer) {
        let held = self.holders.get(usize::from(buffer.id)) == Some(&Holder::Program);
        assert!(held, "a buffer of another ring");
    }

    fn change(&mut self, id: u16, from: Holder, to: Holder) {
        match self.holders.get_mut(usize::from(id)) {
            Some(holder) if *holder == from => *holder = to,
            _ => panic!("a buffer of another ring"),
        }
    }

    /// Leaves the memory mapped for ever: the kernel may still be using it.
    pub(super) fn leak(&mut self) {
        self.mapped = 0;
    }
}

impl Drop for Buffers {
    fn drop(&mut self) {
        if self.mapped > 0 {
            // SAFETY: mapped by `map` with this length, and no operation of the ring refers to it any more (the ring leaks it otherwise).
            let _ = unsafe { munmap(self.memory.as_ptr().cast(), self.mapped) };
        }
    }
}
