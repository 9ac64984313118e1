//! One system call a frame: `read` and `writev`.

use std::os::fd::BorrowedFd;

use super::memory::{RxMemory, SLOTS};
use super::{sys, vnet};
use crate::burst::BURST;
use crate::frame::HEADER_MAX;
use crate::{NicCounters, RxBurst, RxFrame, TxFrame};

/// A payload up to this many bytes is copied behind its header, so that the write has one piece: copying is cheaper
/// than the kernel's handling of a vector (measured, see `docs/tap-io.md`).
const COPY_MAX: usize = 1024;

/// Bytes that [`assemble`] needs.
pub(super) const SCRATCH_LEN: usize = vnet::LEN + HEADER_MAX + COPY_MAX;

/// Frames are read and written by a call each. The calls made for nothing are kept few: see [`ReadWrite::receive`].
pub(super) struct ReadWrite {
    memory: RxMemory,
    /// Slots that the engine has not, the most recently used on top: the caches still have it.
    free: [u32; SLOTS],
    free_len: usize,
    /// How many frames the next [`receive`](Self::receive) takes before it asks whether there are more.
    expected: usize,
    /// The virtio-net header, the frame's header and a small payload.
    scratch: [u8; SCRATCH_LEN],
}

impl ReadWrite {
    pub(super) fn new() -> std::io::Result<Self> {
        Ok(Self {
            memory: RxMemory::new()?,
            free: core::array::from_fn(|slot| (SLOTS - 1 - slot) as u32),
            free_len: SLOTS,
            expected: 1,
            scratch: [0; _],
        })
    }

    /// Reads until the device has nothing, the burst is full, or twice as many frames as last time were there.
    ///
    /// The read that finds nothing costs a system call (about 0.3 µs). A turn that took all it expected does not make
    /// it: the next turn's first read tells. So a device with one frame at a time costs one read a frame and answers
    /// earlier, and a busy one reaches full bursts within six turns.
    pub(super) fn receive(
        &mut self,
        fd: BorrowedFd<'_>,
        burst: &mut RxBurst,
        counters: &mut NicCounters,
    ) -> usize {
        let want = self.expected.min(burst.room());
        let mut taken = 0;
        while taken < want {
            let Some(&slot) = self.free_len.checked_sub(1).and_then(|i| self.free.get(i)) else {
                counters.rx_no_buffer += 1;
                break;
            };
            counters.syscalls += 1;
            match rustix::io::read(fd, self.memory.buffer_mut(slot)) {
                Ok(len) => {
                    if self.take(slot, len, burst, counters) {
                        taken += 1;
                    }
                }
                Err(rustix::io::Errno::AGAIN) => {
                    counters.rx_empty_calls += 1;
                    break;
                }
                Err(rustix::io::Errno::INTR) => {}
                Err(_) => {
                    counters.rx_errors += 1;
                    break;
                }
            }
        }
        self.expected = (taken * 2).clamp(1, BURST);
        taken
    }

    /// Gives the frame of `len` bytes in `slot`, the topmost free one, to the engine.
    #[inline]
    fn take(
        &mut self,
        slot: u32,
        len: usize,
        burst: &mut RxBurst,
        counters: &mut NicCounters,
    ) -> bool {
        let frame = match self.memory.describe(slot, len) {
            Ok(frame) => frame,
            Err(reason) => {
                reason.count(counters);
                return false;
            }
        };
        if !burst.push(frame) {
            return false;
        }
        self.memory.hold(slot);
        self.free_len -= 1;
        counters.count_received(&frame);
        true
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
