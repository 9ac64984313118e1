//! A safe io_uring for sockets: multishot accept and receive into provided buffers, sends from buffers or shared bytes.
//!
//! What makes it safe: the ring owns its files (registered, named by [`FileSlot`]), owns the receive buffers (each has one
//! holder at a time: kernel, program or a send in flight), and keeps shared bytes alive until their send is complete. When a ring is
//! dropped while operations are in flight, their memory is leaked rather than freed under the kernel.
//!
//! One thread uses a ring. Order: operations are queued by [`Ring::accept`], [`Ring::receive`], [`Ring::send`] …, handed to the kernel by
//! [`Ring::submit`], and their results are taken with [`Ring::complete`] until it returns none.

mod buffers;

use std::collections::VecDeque;
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use io_uring::{IoUring, cqueue, opcode, squeue, types};

pub use buffers::Buffer;
use buffers::Buffers;

/// The one group of provided buffers.
const GROUP: u16 = 0;

/// Sizes of a ring.
#[derive(Clone, Copy, Debug)]
pub struct RingConfig {
    /// Operations that can be queued before they are submitted.
    pub entries: u32,
    /// Completions that can wait.
    pub completions: u32,
    /// Receive buffers: a power of two, at most 32768.
    pub buffers: u16,
    /// Bytes of each buffer.
    pub buffer_bytes: u32,
    /// Files (sockets) at a time.
    pub files: u32,
}

impl Default for RingConfig {
    fn default() -> Self {
        Self {
            entries: 1024,
            completions: 8192,
            buffers: 1024,
            buffer_bytes: 2048,
            files: 4096,
        }
    }
}

/// A file that the ring owns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileSlot(pub u32);

/// What an operation was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Operation {
    /// Result: the slot of the new connection.
    Accept = 1,
    /// Result: bytes received; 0: the peer has ended its direction.
    Receive = 2,
    /// Result: bytes sent. Brings the buffer back, if it was sent from one.
    Send = 3,
    /// Closed.
    Close = 4,
    /// Readable (or hung up).
    Poll = 5,
}

impl Operation {
    fn from_raw(raw: u8) -> Option<Self> {
        [
            Self::Accept,
            Self::Receive,
            Self::Send,
            Self::Close,
            Self::Poll,
        ]
        .into_iter()
        .find(|operation| *operation as u8 == raw)
    }
}

/// What came of an operation.
#[derive(Debug)]
pub struct Completion {
    /// What it was.
    pub operation: Operation,
    /// The token given with it.
    pub token: u32,
    /// How it went.
    pub result: io::Result<u32>,
    /// Receive: the bytes. Send: the buffer that was sent.
    pub buffer: Option<Buffer>,
    /// A multishot operation goes on; without it, it must be asked again.
    pub more: bool,
}

/// What a send in flight needs to stay alive.
enum Lent {
    /// A provided buffer.
    Buffer(u16),
    /// Shared bytes.
    Shared(#[allow(dead_code, reason = "held, not read")] Arc<[u8]>),
}

/// An io_uring with buffers and files of its own.
pub struct Ring {
    // Dropped by hand: first the ring, then what the kernel may refer to.
    ring: ManuallyDrop<IoUring>,
    buffers: Buffers,
    lent: Vec<Option<Lent>>,
    free: Vec<u32>,
    in_flight: u64,
    ready: VecDeque<cqueue::Entry>,
}

impl Ring {
    /// A new ring, for the calling thread alone.
    pub fn new(config: &RingConfig) -> io::Result<Self> {
        let ring: IoUring = IoUring::builder()
            .setup_cqsize(config.completions)
            .setup_submit_all()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .build(config.entries)?;
        let mut buffers = Buffers::map(config.buffers, config.buffer_bytes)?;
        ring.submitter().register_files_sparse(config.files)?;
        let (address, count) = buffers.ring();
        // SAFETY: the address is page-aligned, holds `count` entries, and stays mapped until after the ring is gone (see `drop`).
        unsafe {
            ring.submitter()
                .register_buf_ring_with_flags(address, count, GROUP, 0)?;
        }
        buffers.provide_all();
        Ok(Self {
            ring: ManuallyDrop::new(ring),
            buffers,
            lent: Vec::new(),
            free: Vec::new(),
            in_flight: 0,
            ready: VecDeque::new(),
        })
    }

    /// Makes a file the ring's, in this slot. The descriptor may be closed afterwards. A slot in use is replaced.
    pub fn register(&mut self, slot: FileSlot, file: BorrowedFd<'_>) -> io::Result<()> {
        let files = [file.as_raw_fd()];
        self.ring
            .submitter()
            .register_files_update(slot.0, &files)
            .map(drop)
    }

    /// Accepts connections of a listener, again and again, into free slots.
    pub fn accept(&mut self, listener: FileSlot, token: u32) -> io::Result<()> {
        let entry = opcode::AcceptMulti::new(types::Fixed(listener.0)).allocate_file_index(true);
        self.push(entry.build(), Operation::Accept, 0, token)
    }

    /// Receives into provided buffers, again and again.
    pub fn receive(&mut self, file: FileSlot, token: u32) -> io::Result<()> {
        let entry = opcode::RecvMulti::new(types::Fixed(file.0), GROUP);
        self.push(entry.build(), Operation::Receive, 0, token)
    }

    /// Sends all bytes in use of a buffer.
    pub fn send(&mut self, file: FileSlot, token: u32, buffer: Buffer) -> io::Result<()> {
        let id = buffer.id;
        let (address, len) = self.buffers.lend(buffer);
        let lent = self.keep(Lent::Buffer(id));
        self.push_send(file, token, lent, address, len)
    }

    /// Sends shared bytes, all of them.
    pub fn send_shared(&mut self, file: FileSlot, token: u32, bytes: &Arc<[u8]>) -> io::Result<()> {
        let len = u32::try_from(bytes.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
        let lent = self.keep(Lent::Shared(Arc::clone(bytes)));
        self.push_send(file, token, lent, bytes.as_ptr(), len)
    }

    fn push_send(
        &mut self,
        file: FileSlot,
        token: u32,
        lent: u32,
        address: *const u8,
        len: u32,
    ) -> io::Result<()> {
        // WAITALL: the kernel sends the rest itself when the socket's buffer was full.
        let flags = libc::MSG_NOSIGNAL | libc::MSG_WAITALL;
        let entry = opcode::Send::new(types::Fixed(file.0), address, len).flags(flags);
        self.push(entry.build(), Operation::Send, lent, token)
    }

    /// Frees a slot and closes its file once its operations have ended.
    pub fn close(&mut self, file: FileSlot, token: u32) -> io::Result<()> {
        let entry = opcode::Close::new(types::Fixed(file.0));
        self.push(entry.build(), Operation::Close, 0, token)
    }

    /// Waits once until a file is readable or hung up.
    pub fn poll(&mut self, file: FileSlot, token: u32) -> io::Result<()> {
        let entry = opcode::PollAdd::new(types::Fixed(file.0), libc::POLLIN as u32);
        self.push(entry.build(), Operation::Poll, 0, token)
    }

    fn keep(&mut self, lent: Lent) -> u32 {
        match self.free.pop() {
            Some(index) => {
                self.lent[index as usize] = Some(lent);
                index
            }
            None => {
                self.lent.push(Some(lent));
                (self.lent.len() - 1) as u32
            }
        }
    }

    fn push(
        &mut self,
        entry: squeue::Entry,
        operation: Operation,
        lent: u32,
        token: u32,
    ) -> io::Result<()> {
        let data = u64::from(token) | u64::from(lent & 0xff_ffff) << 32 | (operation as u64) << 56;
        let entry = entry.user_data(data);
        self.in_flight += 1;
        // SAFETY: whatever the entry refers to (a buffer of this ring, shared bytes) stays alive and unaliased until its completion was
        // taken: `lent` holds it, and `drop` leaks both while anything is in flight. Files are registered ones.
        while unsafe { self.ring.submission().push(&entry) }.is_err() {
            self.enter(0, None)?;
        }
        Ok(())
    }

    /// Hands over what is queued and waits for `want` completions (0: does not wait), at most for `timeout`.
    pub fn submit(&mut self, want: usize, timeout: Option<Duration>) -> io::Result<()> {
        if want > 0 && !self.ring.completion().is_empty() {
            return self.enter(0, None);
        }
        self.enter(want, timeout)
    }

    fn enter(&mut self, want: usize, timeout: Option<Duration>) -> io::Result<()> {
        let timespec = timeout.map(types::Timespec::from);
        let mut arguments = types::SubmitArgs::new();
        // Deferred work of the kernel runs only when events are asked for; asking for one with no time to wait does so without sleeping.
        let none = types::Timespec::new();
        arguments = match (&timespec, want) {
            (_, 0) => arguments.timespec(&none),
            (Some(timespec), _) => arguments.timespec(timespec),
            (None, _) => arguments,
        };
        match self
            .ring
            .submitter()
            .submit_with_args(want.max(1), &arguments)
        {
            Ok(_) => Ok(()),
            Err(error) => match error.raw_os_error() {
                // Time is over; a signal came; completions must be taken first.
                Some(libc::ETIME | libc::EINTR | libc::EBUSY) => Ok(()),
                _ => Err(error),
            },
        }
    }

    /// Takes the next result, if there is one. Makes no system call.
    #[inline]
    pub fn complete(&mut self) -> Option<Completion> {
        if self.ready.is_empty() {
            self.ready.extend(self.ring.completion());
        }
        loop {
            let entry = self.ready.pop_front()?;
            if let Some(completion) = self.decode(&entry) {
                return Some(completion);
            }
        }
    }

    fn decode(&mut self, entry: &cqueue::Entry) -> Option<Completion> {
        let data = entry.user_data();
        let operation = Operation::from_raw((data >> 56) as u8)?;
        let more = cqueue::more(entry.flags());
        if !more {
            self.in_flight = self.in_flight.saturating_sub(1);
        }
        let result = match u32::try_from(entry.result()) {
            Ok(value) => Ok(value),
            Err(_) => Err(io::Error::from_raw_os_error(-entry.result())),
        };
        let buffer = match operation {
            Operation::Send => self.returned((data >> 32) as u32 & 0xff_ffff),
            _ => cqueue::buffer_select(entry.flags())
                .and_then(|id| self.buffers.filled(id, *result.as_ref().unwrap_or(&0))),
        };
        Some(Completion {
            operation,
            token: data as u32,
            result,
            buffer,
            more,
        })
    }

    fn returned(&mut self, index: u32) -> Option<Buffer> {
        let lent = self.lent.get_mut(index as usize)?.take()?;
        self.free.push(index);
        match lent {
            Lent::Buffer(id) => Some(self.buffers.sent(id)),
            Lent::Shared(_) => None,
        }
    }

    /// The bytes in use of a buffer.
    ///
    /// # Panics
    /// If the buffer is another ring's.
    #[inline]
    pub fn bytes(&self, buffer: &Buffer) -> &[u8] {
        self.buffers.bytes(buffer)
    }

    /// Writes a buffer: `fill` gets all of it and says how many bytes are in use then.
    ///
    /// # Panics
    /// If the buffer is another ring's.
    pub fn fill(&mut self, buffer: &mut Buffer, fill: impl FnOnce(&mut [u8]) -> usize) {
        let space = self.buffers.space(buffer);
        let most = space.len();
        buffer.len = fill(space).min(most) as u32;
    }

    /// Gives a buffer back, to be filled by the kernel.
    ///
    /// # Panics
    /// If the buffer is another ring's.
    #[inline]
    pub fn provide(&mut self, buffer: Buffer) {
        self.buffers.provide(buffer);
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: `ring` is never used again.
        unsafe { ManuallyDrop::drop(&mut self.ring) };
        // Closing a ring cancels its operations some time later: memory they may touch must outlive them.
        if self.in_flight > 0 {
            self.buffers.leak();
            std::mem::forget(std::mem::take(&mut self.lent));
        }
    }
}

#[cfg(test)]
mod tests;
