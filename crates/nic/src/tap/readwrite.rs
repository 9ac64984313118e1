//! One system call a frame: `read` and `writev`.

use std::os::fd::BorrowedFd;

use super::memory::{RxMemory, SLOTS};
use super::sys::{self, Arrivals};
use super::vnet;
use crate::burst::BURST;
use crate::frame::HEADER_MAX;
use crate::{NicCounters, RxBurst, RxFrame, TxFrame};

/// A payload up to this many bytes, two full segments, is copied behind its header, so that the write has one piece:
/// copying is cheaper than the kernel's handling of a vector (measured, see `docs/tap-io.md`).
const COPY_MAX: usize = 3072;

/// Bytes that [`assemble`] needs.
pub(super) const SCRATCH_LEN: usize = vnet::LEN + HEADER_MAX + COPY_MAX;

/// Frames are read and written by a call each. The calls made for nothing are kept few: see [`Queue`].
pub(super) struct ReadWrite {
    memory: RxMemory,
    /// Slots that the engine has not, the most recently used on top: the caches still have it.
    free: [u32; SLOTS],
    free_len: usize,
    queue: Queue,
    /// The virtio-net header, the frame's header and a small payload.
    scratch: [u8; SCRATCH_LEN],
}

impl ReadWrite {
    /// With `count_arrivals`, frames are counted where the system allows it.
    pub(super) fn new(fd: BorrowedFd<'_>, count_arrivals: bool) -> std::io::Result<Self> {
        let arrivals = count_arrivals.then(|| Arrivals::attach(fd).ok()).flatten();
        Ok(Self {
            memory: RxMemory::new()?,
            free: core::array::from_fn(|slot| (SLOTS - 1 - slot) as u32),
            free_len: SLOTS,
            queue: Queue::new(arrivals),
            scratch: [0; _],
        })
    }

    pub(super) fn counts_arrivals(&self) -> bool {
        matches!(self.queue, Queue::Counted { .. })
    }

    /// Reads until the burst is full or nothing is expected any more.
    #[inline]
    pub(super) fn receive(
        &mut self,
        fd: BorrowedFd<'_>,
        burst: &mut RxBurst,
        counters: &mut NicCounters,
    ) -> usize {
        let expected = self.queue.expected();
        if expected == 0 {
            return 0;
        }
        self.read(fd, expected.min(burst.room()), burst, counters)
    }

    fn read(
        &mut self,
        fd: BorrowedFd<'_>,
        want: usize,
        burst: &mut RxBurst,
        counters: &mut NicCounters,
    ) -> usize {
        let before = burst.len();
        let mut read = 0;
        let mut empty = false;
        while read < want {
            let Some(&slot) = self.free_len.checked_sub(1).and_then(|i| self.free.get(i)) else {
                counters.rx_no_buffer += 1;
                break;
            };
            counters.syscalls += 1;
            match rustix::io::read(fd, self.memory.buffer_mut(slot)) {
                Ok(len) => {
                    read += 1;
                    self.take(slot, len, burst, counters);
                }
                Err(rustix::io::Errno::AGAIN) => {
                    counters.rx_empty_calls += 1;
                    empty = true;
                    break;
                }
                Err(rustix::io::Errno::INTR) => {}
                Err(_) => {
                    counters.rx_errors += 1;
                    break;
                }
            }
        }
        self.queue.was_read(read, empty);
        burst.len() - before
    }

    /// Gives the frame of `len` bytes in `slot`, the topmost free one, to the engine.
    #[inline]
    fn take(&mut self, slot: u32, len: usize, burst: &mut RxBurst, counters: &mut NicCounters) {
        match self.memory.describe(slot, len) {
            Ok(frame) => {
                if burst.push(frame) {
                    self.memory.hold(slot);
                    self.free_len -= 1;
                    counters.count_received(&frame);
                }
            }
            Err(flaw) => flaw.count(counters),
        }
    }

    #[inline]
    pub(super) fn frame(&self, frame: &RxFrame) -> &[u8] {
        self.memory.frame(frame)
    }

    #[inline]
    pub(super) fn release(&mut self, burst: &mut RxBurst) {
        // Backwards, so that the first frame's buffer is again the first to be used.
        for frame in burst.frames().iter().rev() {
            if self.memory.unhold(frame.token)
                && let Some(top) = self.free.get_mut(self.free_len)
            {
                *top = frame.token;
                self.free_len += 1;
            }
        }
        burst.clear();
    }

    /// False: frames are expected.
    pub(super) fn prepare_sleep(&mut self) -> bool {
        self.queue.may_sleep()
    }

    /// The sleep may have ended because of a frame.
    pub(super) fn awake(&mut self) {
        self.queue.look_again();
    }

    /// Writes the frame at once.
    pub(super) fn submit(
        &mut self,
        fd: BorrowedFd<'_>,
        frame: &TxFrame<'_>,
        counters: &mut NicCounters,
    ) {
        let Some(head) = assemble(&mut self.scratch, frame) else {
            counters.tx_dropped_invalid += 1;
            return;
        };
        counters.syscalls += 1;
        let result = match head {
            Head::Whole(bytes) => rustix::io::write(fd, bytes).map_err(Into::into),
            Head::Gather(bytes) => sys::write_frame(fd, bytes, frame.payload),
        };
        match result {
            Ok(_) => counters.count_sent(frame.len(), frame.segment_size != 0),
            Err(error) => counters.count_refused(error.raw_os_error().unwrap_or(0)),
        }
    }
}

/// What is known of the device's queue without asking, so that few reads find nothing: such a read costs 0.3 µs, which a
/// turn that finds nothing should not.
enum Queue {
    /// The frames that come are counted in memory.
    Counted {
        arrivals: Arrivals,
        /// How many of them were read, or given up.
        taken: u64,
        /// Reads that found nothing although a frame was expected, in a row.
        misses: u32,
        /// Turns without an expected frame, in a row.
        quiet: u32,
    },
    /// Nothing is known. A turn reads at most twice as many frames as the one before and does not look for more: the next
    /// turn's first read tells. So a device with one frame at a time costs one read a frame and answers earlier, and a
    /// busy one reaches full bursts within six turns.
    Guessed { next: usize },
}

/// Reads that find nothing before an expected frame is given up: it was counted, but dropped as the queue was full. A frame
/// just being queued appears much sooner.
const MISSES_MAX: u32 = 256;
/// Turns without an expected frame after which one is looked for all the same: should one have been given up wrongly.
const QUIET_MAX: u32 = 4096;

impl Queue {
    fn new(arrivals: Option<Arrivals>) -> Self {
        match arrivals {
            Some(arrivals) => Self::Counted {
                arrivals,
                taken: 0,
                misses: 0,
                quiet: QUIET_MAX,
            },
            None => Self::Guessed { next: 1 },
        }
    }

    /// How many frames to try to read.
    #[inline]
    fn expected(&mut self) -> usize {
        match self {
            Self::Counted {
                arrivals,
                taken,
                quiet,
                ..
            } => {
                let waiting = arrivals.count().wrapping_sub(*taken);
                if waiting > 0 {
                    return waiting as usize;
                }
                *quiet = quiet.saturating_add(1);
                usize::from(*quiet >= QUIET_MAX)
            }
            Self::Guessed { next } => *next,
        }
    }

    /// Notes that `read` frames were read, and whether there was none left.
    #[inline]
    fn was_read(&mut self, read: usize, empty: bool) {
        match self {
            Self::Counted {
                arrivals,
                taken,
                misses,
                quiet,
            } => {
                let count = arrivals.count();
                let counted = (read as u64).min(count.wrapping_sub(*taken));
                *taken += counted;
                // More than was counted are frames that had been given up, or were there before the counting began;
                // there may be others.
                let surplus = read as u64 > counted;
                *quiet = if surplus { QUIET_MAX } else { 0 };
                *misses = if read > 0 || !empty { 0 } else { *misses + 1 };
                if *misses >= MISSES_MAX {
                    *misses = 0;
                    *taken = count;
                }
            }
            Self::Guessed { next } => {
                *next = if empty { read } else { read * 2 }.clamp(1, BURST);
            }
        }
    }

    fn may_sleep(&self) -> bool {
        match self {
            Self::Counted {
                arrivals, taken, ..
            } => arrivals.count() == *taken,
            Self::Guessed { .. } => true,
        }
    }

    fn look_again(&mut self) {
        if let Self::Counted { quiet, .. } = self {
            *quiet = QUIET_MAX;
        }
    }
}

/// What was assembled in the scratch memory.
pub(super) enum Head<'a> {
    /// The whole frame.
    Whole(&'a [u8]),
    /// The headers; the payload is to be gathered.
    Gather(&'a [u8]),
}

/// Puts the virtio-net header, the frame's header and a small payload together. `None` if the pieces do not add up
/// to `payload_len`, or do not fit.
#[inline]
pub(super) fn assemble<'a>(scratch: &'a mut [u8], frame: &TxFrame<'_>) -> Option<Head<'a>> {
    let head_len = vnet::LEN + frame.header.len();
    let payload_len: usize = frame.payload.iter().map(|piece| piece.len()).sum();
    if payload_len != frame.payload_len as usize {
        return None;
    }
    let (virtio, rest) = scratch.split_first_chunk_mut::<{ vnet::LEN }>()?;
    *virtio = vnet::encode(frame);
    let (header, mut rest) = rest.split_at_mut_checked(frame.header.len())?;
    header.copy_from_slice(frame.header);
    if payload_len > COPY_MAX {
        return Some(Head::Gather(scratch.get(..head_len)?));
    }
    for piece in frame.payload {
        let (place, after) = rest.split_at_mut_checked(piece.len())?;
        piece.copy_to(place);
        rest = after;
    }
    Some(Head::Whole(scratch.get(..head_len + payload_len)?))
}
