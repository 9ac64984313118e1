//! The ring's memory, and all that is `unsafe` about it.
//!
//! One writer ([`Sender`]), one reader ([`Receiver`]). The ring is an array of cache lines; a record begins at a line's
//! start:
//!
//! ```text
//!   line p                                        line p + n
//!   +----------+---------+----------------- - -+  +----------+
//!   | mark (8) | gap (2) | frame             … |  | 0        |
//!   +----------+---------+----------------- - -+  +----------+
//! ```
//!
//! The mark publishes the record: it is stored last, with release, and the reader polls it, so that a small frame costs
//! the transfer of its own lines and of no shared index. A mark of 0 ends the records: before a record is published,
//! the writer puts a 0 where the next one will begin. A record is contiguous; where it does not fit before the ring's
//! end, a mark [`SKIP`] sends the reader on to the ring's start. The gap makes the IP header fall on a multiple of 4.
//!
//! `head` (how far the reader is done) is the only other shared word, and read only when the writer's credit runs out.
//!
//! # Ownership
//!
//! With positions that count bytes since the beginning and never wrap, `head <= read <= tail`:
//!
//! * `[head, read)` has been taken by the reader and not released: readers may look, nobody writes;
//! * `[read, tail)` is published and not taken: nobody writes;
//! * the line at `tail` has only its mark looked at, as an atomic;
//! * the rest, up to `head + ring`, belongs to the writer, the line at `tail` too but for its mark.

//! # Checks
//!
//! Miri runs the tests of this file (with `-Zmiri-disable-weak-memory-emulation`, which it cannot do for memory that is
//! used both as atomics and as bytes). Under `--cfg loom` marks and head are loom's atomics, and each line has a cell
//! that notices if both ends may touch it at once.

use core::cell::{Cell, UnsafeCell};
#[cfg(not(loom))]
use core::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

#[cfg(loom)]
use loom::sync::atomic::{AtomicU64, Ordering};

/// Bytes of a cache line.
pub(super) const LINE: u64 = 64;
/// From a record's start to its frame.
const FRAME_AT: u64 = 10;
/// The mark of a record that is none: the next one is at the ring's start. No frame is that long.
const SKIP: u64 = u64::MAX;

#[repr(C, align(64))]
struct Line(UnsafeCell<[u8; LINE as usize]>);

#[repr(align(128))]
struct Apart<T>(T);

struct Ring {
    lines: Box<[Line]>,
    /// Bytes less 1; the number of bytes is a power of two.
    mask: u64,
    head: Apart<AtomicU64>,
    #[cfg(loom)]
    shadow: Vec<Shadow>,
}

/// What loom watches of a line: its mark, and who touches the rest.
#[cfg(loom)]
#[derive(Default)]
struct Shadow {
    mark: AtomicU64,
    rest: loom::cell::UnsafeCell<()>,
}

// SAFETY: the lines are the only part without a synchronisation of its own. Which end may touch which of them is
// settled by `head` and the marks, as the module's page says; `Sender` and `Receiver` keep to it, and there is one each.
unsafe impl Sync for Ring {}
// SAFETY: plain memory; it belongs to no thread.
unsafe impl Send for Ring {}

impl Ring {
    #[inline]
    const fn len(&self) -> u64 {
        self.mask + 1
    }

    /// The byte at `position`, which stays inside its line's allocation: it is the ring's `position & mask`th.
    #[inline]
    fn byte(&self, position: u64) -> *mut u8 {
        let offset = (position & self.mask) as usize;
        // From the whole slice's pointer, so that the result may be used for all bytes up to the ring's end.
        self.lines
            .as_ptr()
            .cast::<u8>()
            .cast_mut()
            .wrapping_add(offset)
    }

    /// Tells loom that the frame of `len` bytes of the record at `start` is written, or else read.
    #[inline]
    #[cfg_attr(
        not(loom),
        allow(unused_variables, clippy::unused_self, reason = "for loom")
    )]
    fn touch(&self, start: u64, len: u64, write: bool) {
        #[cfg(loom)]
        for position in (start..start + record_len(len)).step_by(LINE as usize) {
            let shadow = &self.shadow[((position & self.mask) / LINE) as usize];
            if write {
                shadow.rest.with_mut(|_| ());
            } else {
                shadow.rest.with(|_| ());
            }
        }
    }

    #[cfg(loom)]
    fn mark(&self, position: u64) -> &AtomicU64 {
        &self.shadow[((position & self.mask) / LINE) as usize].mark
    }

    /// The mark of the record at `position`, a multiple of a line.
    #[cfg(not(loom))]
    #[inline]
    fn mark(&self, position: u64) -> &AtomicU64 {
        debug_assert!(position.is_multiple_of(LINE));
        // SAFETY: the first 8 bytes of a line are inside the ring and aligned. While both ends may touch them, at
        // `tail`, they do so as atomics only.
        unsafe { AtomicU64::from_ptr(self.byte(position).cast()) }
    }
}

/// Makes a ring of at least `bytes` bytes in which records of up to `frame_max` bytes of frame fit.
pub(super) fn ring(bytes: u64, frame_max: u64) -> (Sender, Receiver) {
    let len = bytes
        .max(4 * record_len(frame_max))
        .max(if cfg!(loom) { 0 } else { 4096 })
        .next_power_of_two();
    let lines = (0..len / LINE)
        .map(|_| Line(UnsafeCell::new([0; LINE as usize])))
        .collect();
    let ring = Arc::new(Ring {
        lines,
        mask: len - 1,
        head: Apart(AtomicU64::new(0)),
        #[cfg(loom)]
        shadow: (0..len / LINE).map(|_| Shadow::default()).collect(),
    });
    let sender = Sender {
        ring: Arc::clone(&ring),
        tail: 0,
        head: Cell::new(0),
        frame_max,
        begun: None,
    };
    let receiver = Receiver {
        ring,
        read: 0,
        head: 0,
    };
    (sender, receiver)
}

/// Bytes of the record that holds a frame of `len` bytes.
#[inline]
const fn record_len(len: u64) -> u64 {
    (FRAME_AT + len).next_multiple_of(LINE)
}

/// The writing end.
pub(super) struct Sender {
    ring: Arc<Ring>,
    tail: u64,
    /// `head` as last read.
    head: Cell<u64>,
    frame_max: u64,
    /// Where the record begins that is being written, and where it ends.
    begun: Option<(u64, u64)>,
}

impl Sender {
    /// Whether a frame of the greatest length fits.
    #[inline]
    pub(super) fn has_room(&self) -> bool {
        self.fits(self.frame_max)
    }

    #[inline]
    fn fits(&self, len: u64) -> bool {
        self.is_ours(self.place(len).1)
    }

    /// Whether the lines up to a record's `end` are free, with a look at how far the reader is if need be.
    #[inline]
    fn is_ours(&self, end: u64) -> bool {
        if self.is_free(end) {
            return true;
        }
        // Acquire: what the reader read of the lines it gives back happened before we write to them.
        self.head.set(self.ring.head.0.load(Ordering::Acquire));
        self.is_free(end)
    }

    /// Where a record for `len` bytes would begin and end.
    #[inline]
    fn place(&self, len: u64) -> (u64, u64) {
        let need = record_len(len);
        let ahead = self.ring.len() - (self.tail & self.ring.mask);
        let start = if need <= ahead {
            self.tail
        } else {
            self.tail + ahead
        };
        (start, start + need)
    }

    /// Whether all lines up to the record's `end`, and the one behind it for the final mark, are ours.
    #[inline]
    fn is_free(&self, end: u64) -> bool {
        end + LINE - self.head.get() <= self.ring.len()
    }

    /// Memory for the next frame, of `len` bytes, which are arbitrary to start with. `None`: no room, or too long.
    /// [`commit`](Self::commit) sends it.
    #[inline]
    pub(super) fn begin(&mut self, len: u64) -> Option<&mut [u8]> {
        let (start, end) = self.place(len);
        if len == 0 || len > self.frame_max || !self.is_ours(end) {
            return None;
        }
        self.begun = Some((start, end));
        self.ring.touch(start, len, true);
        // SAFETY: `[start + FRAME_AT, start + FRAME_AT + len)` lies in `[tail, head + ring)`, which is the writer's
        // (`is_ours`), behind the mark that the reader may be polling, and does not wrap (`place`). It is initialised:
        // the ring was made zeroed. `&mut self` is borrowed for as long as the slice is.
        Some(unsafe {
            core::slice::from_raw_parts_mut(self.ring.byte(start + FRAME_AT), len as usize)
        })
    }

    /// Publishes the frame begun last. `mark` is what the reader gets with it: neither 0 nor all ones.
    #[inline]
    pub(super) fn commit(&mut self, mark: u64) {
        let Some((start, end)) = self.begun.take() else {
            return;
        };
        debug_assert!(mark != 0 && mark != SKIP);
        // The reader comes here only after it has seen the marks stored below.
        self.ring.mark(end).store(0, Ordering::Relaxed);
        self.ring.mark(start).store(mark, Ordering::Release);
        if start != self.tail {
            self.ring.mark(self.tail).store(SKIP, Ordering::Release);
        }
        self.tail = end;
    }
}

/// The reading end.
pub(super) struct Receiver {
    ring: Arc<Ring>,
    read: u64,
    head: u64,
}

impl Receiver {
    /// Whether nothing is there to be taken.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.ring.mark(self.read).load(Ordering::Acquire) == 0
    }

    /// The next record's mark. It is taken by [`take`](Self::take).
    #[inline]
    pub(super) fn peek(&mut self) -> Option<u64> {
        loop {
            // Acquire: pairs with `commit`, so that the frame and the next mark are there.
            match self.ring.mark(self.read).load(Ordering::Acquire) {
                0 => return None,
                SKIP => self.read += self.ring.len() - (self.read & self.ring.mask),
                mark => return Some(mark),
            }
        }
    }

    /// Takes the record that [`peek`](Self::peek) found, whose frame has `len` bytes, and says where it is.
    #[inline]
    pub(super) fn take(&mut self, len: u64) -> u32 {
        let token = (self.read & self.ring.mask) / LINE;
        self.read += record_len(len);
        token as u32
    }

    /// The frame of `len` bytes that [`take`](Self::take) placed at `token`; empty if that is not among the records
    /// taken and not released.
    #[inline]
    pub(super) fn frame(&self, token: u32, len: u32) -> &[u8] {
        let offset = u64::from(token) * LINE;
        let past_head = offset.wrapping_sub(self.head) & self.ring.mask;
        let bytes = record_len(u64::from(len));
        if past_head + bytes > self.read - self.head || offset + bytes > self.ring.len() {
            return &[];
        }
        self.ring.touch(offset, len.into(), false);
        // SAFETY: the bytes lie in `[head, read)` and do not wrap, as was just checked for whatever token and length;
        // nobody writes there until `release`, which needs `&mut self`. They are initialised: the ring was made zeroed.
        unsafe { core::slice::from_raw_parts(self.ring.byte(offset + FRAME_AT), len as usize) }
    }

    /// Gives everything that was taken back to the writer.
    #[inline]
    pub(super) fn release(&mut self) {
        if self.head != self.read {
            self.head = self.read;
            // Release: we have read what we give back.
            self.ring.head.0.store(self.head, Ordering::Release);
        }
    }
}

#[cfg(all(test, not(loom)))]
#[path = "sys_tests.rs"]
mod tests;

#[cfg(all(test, loom))]
#[path = "sys_loom.rs"]
mod tests;
