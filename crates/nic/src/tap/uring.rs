//! One system call a turn: io_uring.

use std::io;
use std::os::fd::BorrowedFd;

use super::memory::SLOTS;
use super::sys::{Done, Ring, TX_SLOTS};
use crate::{NicCounters, RxBurst, RxFrame, TxFrame};

/// The highest bit of a transmit slot's note: the frame is a super-segment. The rest is its length.
const SUPER_SEGMENT: u32 = 1 << 31;

/// Frames arrive by an armed read and leave in batches.
pub(super) struct Uring {
    ring: Ring,
    /// Whether a read is armed, or queued to be.
    armed: bool,
    /// Whether the engine holds so many buffers that the armed read has run out of them.
    starved: bool,
    /// Frames that the kernel has delivered and the engine has not asked for: slot and bytes.
    ready: [(u32, u32); SLOTS],
    ready_first: usize,
    ready_len: usize,
    /// Transmit slots that no frame uses, the most recently used on top.
    free: [u8; TX_SLOTS],
    free_len: usize,
    /// Of each frame that is being written, what to count when it is.
    notes: [u32; TX_SLOTS],
    /// Frames queued and not handed over.
    queued: bool,
}

impl Uring {
    /// `fd` is put into blocking mode: otherwise the kernel would not arm reads.
    pub(super) fn new(fd: BorrowedFd<'_>) -> io::Result<Self> {
        rustix::io::ioctl_fionbio(fd, false)?;
        Ok(Self {
            ring: Ring::new(fd)?,
            armed: false,
            starved: false,
            ready: [(0, 0); SLOTS],
            ready_first: 0,
            ready_len: 0,
            free: core::array::from_fn(|slot| (TX_SLOTS - 1 - slot) as u8),
            free_len: TX_SLOTS,
            notes: [0; TX_SLOTS],
            queued: false,
        })
    }

    /// Takes what the kernel has delivered. With nothing new that is a look at memory.
    #[inline]
    pub(super) fn receive(&mut self, burst: &mut RxBurst, counters: &mut NicCounters) -> usize {
        if !self.armed {
            self.arm(counters);
        } else if self.ring.wants_to_run() {
            self.enter(counters);
        }
        self.drain(counters);
        let before = burst.len();
        while self.ready_len > 0 && burst.room() > 0 {
            self.deliver(burst, counters);
        }
        burst.len() - before
    }

    #[cold]
    fn arm(&mut self, counters: &mut NicCounters) {
        if self.starved {
            return;
        }
        self.ring.arm();
        self.armed = true;
        self.enter(counters);
    }

    fn enter(&mut self, counters: &mut NicCounters) {
        counters.syscalls += 1;
        if self.ring.enter().is_err() {
            counters.rx_errors += 1;
        }
        self.queued = false;
    }

    /// Sorts the kernel's news.
    #[inline]
    fn drain(&mut self, counters: &mut NicCounters) {
        while let Some(done) = self.ring.next() {
            match done {
                Done::Read { slot, len, armed } => {
                    let end = (self.ready_first + self.ready_len) % SLOTS;
                    self.ready[end] = (slot, len as u32);
                    // There are no more buffers than places.
                    self.ready_len += 1;
                    self.armed = armed;
                }
                Done::Disarmed { errno } => self.disarmed(errno, counters),
                Done::Written { slot, errno } => self.written(slot, errno, counters),
            }
        }
    }

    #[cold]
    fn disarmed(&mut self, errno: i32, counters: &mut NicCounters) {
        self.armed = false;
        match errno {
            libc::ENOBUFS => {
                counters.rx_no_buffer += 1;
                self.starved = true;
            }
            _ => counters.rx_errors += 1,
        }
    }

    #[inline]
    fn written(&mut self, slot: usize, errno: i32, counters: &mut NicCounters) {
        let (Some(&note), Some(place)) = (self.notes.get(slot), self.free.get_mut(self.free_len))
        else {
            return;
        };
        *place = slot as u8;
        self.free_len += 1;
        if errno == 0 {
            counters.count_sent((note & !SUPER_SEGMENT) as usize, note & SUPER_SEGMENT != 0);
        } else {
            counters.count_refused(errno);
        }
    }

    /// Moves the first ready frame to the burst, which has room.
    #[inline]
    fn deliver(&mut self, burst: &mut RxBurst, counters: &mut NicCounters) {
        let (slot, len) = self.ready[self.ready_first];
        self.ready_first = (self.ready_first + 1) % SLOTS;
        self.ready_len -= 1;
        match self.ring.rx().describe(slot, len as usize) {
            Ok(frame) => {
                self.ring.rx_mut().hold(slot);
                burst.push(frame);
                counters.count_received(&frame);
            }
            Err(flaw) => {
                flaw.count(counters);
                self.ring.provide(slot);
                self.ring.publish_provided();
            }
        }
    }

    #[inline]
    pub(super) fn frame(&self, frame: &RxFrame) -> &[u8] {
        self.ring.rx().frame(frame)
    }

    #[inline]
    pub(super) fn release(&mut self, burst: &mut RxBurst) {
        if burst.is_empty() {
            return;
        }
        for frame in burst.frames() {
            if self.ring.rx_mut().unhold(frame.token) {
                self.ring.provide(frame.token);
            }
        }
        self.ring.publish_provided();
        self.starved = false;
        burst.clear();
    }

    /// Also without a free slot, as long as queued frames can be written first.
    #[inline]
    pub(super) fn has_room(&self) -> bool {
        self.free_len > 0 || self.queued
    }

    pub(super) fn submit(&mut self, frame: &TxFrame<'_>, counters: &mut NicCounters) {
        if self.free_len == 0 {
            self.flush(counters);
        }
        let Some(&slot) = self.free_len.checked_sub(1).and_then(|i| self.free.get(i)) else {
            counters.tx_dropped_full += 1;
            return;
        };
        let slot = usize::from(slot);
        if !self.ring.write(slot, frame) {
            counters.tx_dropped_invalid += 1;
            return;
        }
        self.free_len -= 1;
        self.queued = true;
        if let Some(note) = self.notes.get_mut(slot) {
            *note = frame.len() as u32
                | if frame.segment_size != 0 {
                    SUPER_SEGMENT
                } else {
                    0
                };
        }
    }

    /// Writes what is queued, and reads what has come meanwhile.
    #[inline]
    pub(super) fn flush(&mut self, counters: &mut NicCounters) {
        if self.queued {
            self.enter(counters);
            self.drain(counters);
        } else if self.in_flight() {
            self.drain(counters);
        }
    }

    #[inline]
    pub(super) fn in_flight(&self) -> bool {
        self.free_len < TX_SLOTS
    }

    pub(super) fn prepare_sleep(&mut self) -> bool {
        self.armed && self.ready_len == 0 && !self.ring.has_news()
    }
}
