//! The sending side of sockets: registered memory in blocks, and what of it a socket has in flight.
//!
//! A write copies into a block and posts a send for it; the block is free again when the peer has acknowledged all that was
//! written into it. Small writes share a block. A socket with nothing in flight holds none.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Waker;

use sidecore_abi::command::flags;
use sidecore_abi::{Extent, Operation, Status};

use super::receipt::Receipt;
use super::wakers::Wakers;
use crate::region::Region;
use crate::{Command, Dti, INLINE_MAX, Lane, Ual};

/// Bytes of a block: the largest datagram fits.
pub(crate) const BLOCK: u32 = 65536;

/// Sends of one socket that may be in flight.
const SENDS: usize = 256;

/// … and so many more if they are urgent.
const URGENT_SENDS: usize = 16;

/// Sends that need no memory are not answered; every so many, one is made that is, so that their number is known.
const UNANSWERED: u64 = 16;

/// The memory that all sockets of a group send from.
#[derive(Debug)]
pub(crate) struct SendPool {
    region: Region,
    blocks: Mutex<Blocks>,
}

#[derive(Debug)]
struct Blocks {
    free: Vec<u32>,
    /// The lowest block that was never used: memory is touched only as it is needed.
    fresh: u32,
    limit: u32,
    waiting: Wakers,
}

impl SendPool {
    /// Registers `bytes` (at least one block).
    pub(crate) fn new(ual: &Ual, bytes: u64) -> io::Result<Self> {
        let blocks = (bytes / u64::from(BLOCK)).clamp(1, u64::from(u32::MAX));
        let region = ual.allocate_region(blocks * u64::from(BLOCK), false)?;
        Ok(Self {
            region,
            blocks: Mutex::new(Blocks {
                free: Vec::new(),
                fresh: 0,
                limit: blocks as u32,
                waiting: Wakers::default(),
            }),
        })
    }

    /// A block; when there is none, who waits is woken as soon as one is given back.
    fn take(&self, waker: impl FnOnce() -> Waker) -> Option<u32> {
        let mut blocks = self.blocks.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(block) = blocks.free.pop() {
            return Some(block);
        }
        if blocks.fresh < blocks.limit {
            blocks.fresh += 1;
            return Some(blocks.fresh - 1);
        }
        blocks.waiting.add(&waker());
        None
    }

    fn give(&self, block: u32, wake: &mut Vec<Waker>) {
        let mut blocks = self.blocks.lock().unwrap_or_else(PoisonError::into_inner);
        blocks.free.push(block);
        blocks.waiting.take_into(wake);
    }

    /// A block for an answer of the engine.
    pub(crate) fn take_for_answer(&self, waker: &Waker) -> Option<(u32, Extent)> {
        let block = self.take(|| waker.clone())?;
        let place = u64::from(block) * u64::from(BLOCK);
        match self.region.extent(place, BLOCK) {
            Ok(extent) => Some((block, extent)),
            Err(_) => {
                self.give(block, &mut Vec::new());
                None
            }
        }
    }

    /// Reads such an answer, and gives the block back.
    pub(crate) fn read_answer(&self, block: u32, out: &mut [u8]) {
        let place = u64::from(block) * u64::from(BLOCK);
        // The place is the block's, and so in the region.
        let _ = self.region.read(place, out);
        let mut wake = Vec::new();
        self.give(block, &mut wake);
        super::wakers::wake_all(&mut wake);
    }

    /// Fills what was reserved from a file, from its byte `at` on: how many bytes.
    pub(super) fn read_file(
        &self,
        (reserved, most): (&Reserved, u32),
        file: BorrowedFd<'_>,
        at: u64,
    ) -> io::Result<usize> {
        let len = most.min(reserved.room());
        self.region.read_file((reserved.place(), len), file, at)
    }

    /// Blocks that are in use.
    pub(crate) fn used(&self) -> u32 {
        let blocks = self.blocks.lock().unwrap_or_else(PoisonError::into_inner);
        blocks.fresh - blocks.free.len() as u32
    }
}

/// What kept a write from taking everything.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stop {
    /// Nothing did.
    Done,
    /// As much is in flight as may be; an acknowledgement makes room.
    Window,
    /// No memory is free; the caller's waker is woken when some is.
    Memory,
    /// The doorbell lane is full.
    Lane,
}

/// Sends of one socket that are not acknowledged. Each has a number, which is its cookie.
#[derive(Debug, Default)]
pub(crate) struct SendQueue {
    /// Number and bytes of each, oldest first.
    flight: VecDeque<(u64, u32)>,
    bytes: usize,
    /// Number of the next send.
    next: u64,
    /// Sends since one that will be answered.
    unanswered: u64,
    /// The block that is being filled: its number, bytes used, number of the last send from it.
    filling: Option<(u32, u32, u64)>,
    /// Full blocks, each with the number of the last send from it.
    full: VecDeque<(u64, u32)>,
    /// Sends from the program's own memory, and who is told of their end.
    receipts: VecDeque<(u64, Arc<Receipt>)>,
}

/// A part of a block that is being filled.
#[derive(Debug)]
pub(super) struct Reserved {
    block: u32,
    used: u32,
    /// Number of the last send from the block.
    last: u64,
}

impl Reserved {
    /// Bytes that may be filled.
    pub(super) fn room(&self) -> u32 {
        BLOCK - self.used
    }

    fn place(&self) -> u64 {
        u64::from(self.block) * u64::from(BLOCK) + u64::from(self.used)
    }
}

/// Copies bytes out of a list of slices, one after the other.
struct Slices<'a, 'b> {
    slices: &'a [IoSlice<'b>],
    at: usize,
}

impl Slices<'_, '_> {
    /// Calls `take` with the next pieces, `len` bytes together.
    fn take(&mut self, mut len: usize, mut take: impl FnMut(&[u8])) {
        while len > 0 {
            let Some(slice) = self.slices.first() else {
                return;
            };
            let piece = &slice[self.at.min(slice.len())..];
            let n = piece.len().min(len);
            take(&piece[..n]);
            len -= n;
            self.at += n;
            if self.at >= slice.len() {
                self.slices = &self.slices[1..];
                self.at = 0;
            }
        }
    }
}

impl SendQueue {
    /// Bytes that may be sent now, where `window` may be in flight.
    pub(super) fn may_send(&self, window: usize) -> usize {
        match self.flight.len() >= SENDS {
            true => 0,
            false => window.saturating_sub(self.bytes),
        }
    }

    /// Whether as many sends are in flight as may be, or nearly.
    pub(crate) fn is_crowded(&self) -> bool {
        self.flight.len() > SENDS / 4 * 3
    }

    /// Bytes not acknowledged.
    pub(crate) fn in_flight(&self) -> usize {
        self.bytes
    }

    /// Posts as much of a stream's bytes as may be in flight (`window` bytes at most); says how much, and what stopped it. With
    /// [`flags::URGENT`] the send that ends them says so, with [`flags::MORE`] each.
    #[expect(clippy::too_many_arguments, reason = "what a write needs of its group")]
    pub(crate) fn write(
        &mut self,
        pool: &SendPool,
        lane: &mut Lane,
        dti: Dti,
        data: &[IoSlice<'_>],
        window: usize,
        how: u8,
        waker: impl Fn() -> Waker,
    ) -> (usize, Stop) {
        let total: usize = data.iter().map(|slice| slice.len()).sum();
        let mut slices = Slices {
            slices: data,
            at: 0,
        };
        let mut written = 0;
        while written < total {
            let room = window.saturating_sub(self.bytes).min(total - written);
            let urgent = how & flags::URGENT;
            let sends = SENDS + if urgent != 0 { URGENT_SENDS } else { 0 };
            if room == 0 || self.flight.len() >= sends {
                return (written, Stop::Window);
            }
            if !lane.has_room(1) {
                return (written, Stop::Lane);
            }
            let bits = |len: usize| match written + len == total {
                true => how,
                false => how & !flags::URGENT,
            };
            if room <= INLINE_MAX && self.unanswered < UNANSWERED {
                self.write_inline(lane, dti, &mut slices, (room, bits(room)));
                written += room;
                continue;
            }
            let Some((block, used)) = self.block(pool, 1, &waker) else {
                return (written, Stop::Memory);
            };
            let len = (BLOCK - used).min(room as u32);
            let start = u64::from(block) * u64::from(BLOCK) + u64::from(used);
            let mut at = start;
            slices.take(len as usize, |piece| {
                // Inside by construction.
                let _ = pool.region.write(at, piece);
                at += piece.len() as u64;
            });
            let command = Command::new(Operation::Send, dti.handle(), self.next)
                .with_flags(bits(len as usize));
            self.post_block(pool, lane, command, start, len);
            written += len as usize;
        }
        (written, Stop::Done)
    }

    fn write_inline(
        &mut self,
        lane: &mut Lane,
        dti: Dti,
        slices: &mut Slices<'_, '_>,
        (len, bits): (usize, u8),
    ) {
        let mut small = [0u8; INLINE_MAX];
        let mut at = 0;
        slices.take(len, |piece| {
            small[at..at + piece.len()].copy_from_slice(piece);
            at += piece.len();
        });
        // There is room on the lane: it was asked.
        if lane.send_inline(dti, &small[..at], bits, self.next).is_ok() {
            self.sent(len as u32);
            self.unanswered += 1;
        }
    }

    /// Posts datagrams of `size` bytes each, the last of what is left of `data`: all of them, or nothing. `data` is no longer than a block, and
    /// not more datagrams than a lane is sure to take at once ([`Lane::has_room`]). One that finds room for any finds it for all, as
    /// with Linux: who was told that a socket takes bytes is not refused.
    pub(crate) fn datagrams(
        &mut self,
        pool: &SendPool,
        lane: &mut Lane,
        command: Command,
        (data, size): (&[u8], usize),
        waker: &Waker,
    ) -> Stop {
        if self.flight.len() >= SENDS {
            return Stop::Window;
        }
        // One of no bytes is one, too.
        let count = data.len().div_ceil(size.max(1)).max(1);
        if !lane.has_room(count as u32) {
            return Stop::Lane;
        }
        let Some((block, used)) = self.block(pool, data.len() as u32, || waker.clone()) else {
            return Stop::Memory;
        };
        let start = u64::from(block) * u64::from(BLOCK) + u64::from(used);
        let _ = pool.region.write(start, data);
        for at in (0..count).map(|i| i * size) {
            let len = size.min(data.len() - at) as u32;
            let command = Command {
                cookie: self.next,
                ..command
            };
            self.post_block(pool, lane, command, start + at as u64, len);
        }
        Stop::Done
    }

    /// Posts a send from memory of the program's own, which is told of its end; or nothing.
    pub(crate) fn region(
        &mut self,
        lane: &mut Lane,
        dti: Dti,
        (data, bits): (Extent, u8),
        receipt: &Arc<Receipt>,
    ) -> Stop {
        if self.flight.len() >= SENDS {
            return Stop::Window;
        }
        let bits = bits | flags::NOTIFY;
        if !lane.has_room(1) || lane.send(dti, data, bits, self.next).is_err() {
            return Stop::Lane;
        }
        self.receipts.push_back((self.next, Arc::clone(receipt)));
        self.unanswered = 0;
        self.sent(data.len);
        Stop::Done
    }

    /// The engine has refused the send with this number.
    pub(crate) fn refused(&mut self, number: u64, status: Status, wake: &mut Vec<Waker>) {
        let place = self.receipts.iter().position(|(n, _)| *n == number);
        if let Some((_, receipt)) = place.and_then(|at| self.receipts.remove(at)) {
            receipt.settle(status, wake);
        }
    }

    /// Nothing will be acknowledged any more: why.
    pub(crate) fn give_up(&mut self, status: Status, wake: &mut Vec<Waker>) {
        for (_, receipt) in self.receipts.drain(..) {
            receipt.settle(status, wake);
        }
    }

    fn settle_to(&mut self, number: u64, wake: &mut Vec<Waker>) {
        while let Some((first, _)) = self.receipts.front()
            && *first <= number
            && let Some((_, receipt)) = self.receipts.pop_front()
        {
            receipt.settle(Status::Ok, wake);
        }
    }

    fn post_block(
        &mut self,
        pool: &SendPool,
        lane: &mut Lane,
        command: Command,
        start: u64,
        len: u32,
    ) {
        let extent = Extent {
            region: pool.region.id(),
            len,
            offset: start,
        };
        let command = command.with_extent(extent).with_flags(flags::NOTIFY);
        // There is room on the lane: it was asked.
        if lane.post(command).is_ok() {
            if let Some((_, used, last)) = &mut self.filling {
                *used += len;
                *last = self.next;
            }
            self.unanswered = 0;
            self.sent(len);
        }
    }

    /// Takes memory to be filled outside of the lock, to the end of a block; it must come back, by [`Self::fill`] or [`Self::put_back`].
    pub(super) fn reserve(
        &mut self,
        pool: &SendPool,
        most: usize,
        waker: impl FnOnce() -> Waker,
    ) -> Option<Reserved> {
        // Not the last few bytes of a block.
        let least = most.min(BLOCK as usize / 4) as u32;
        let (block, used) = self.block(pool, least, waker)?;
        let (_, _, last) = self.filling.take()?;
        Some(Reserved { block, used, last })
    }

    /// Posts the first `len` bytes of what was reserved, which were filled. False, and nothing done, when the lane is full.
    pub(super) fn fill(
        &mut self,
        pool: &SendPool,
        lane: &mut Lane,
        dti: Dti,
        (reserved, len): (&Reserved, u32),
        how: u8,
    ) -> bool {
        if !lane.has_room(1) {
            return false;
        }
        let Reserved { block, used, .. } = *reserved;
        // Another thread may have begun a block meanwhile: that one is set aside, to be freed with this send.
        if let Some((other, _, _)) = self.filling.replace((block, used, self.next)) {
            self.full.push_back((self.next, other));
        }
        let command = Command::new(Operation::Send, dti.handle(), self.next).with_flags(how);
        self.post_block(pool, lane, command, reserved.place(), len);
        true
    }

    /// What was reserved is not used after all.
    pub(super) fn put_back(&mut self, pool: &SendPool, reserved: &Reserved, wake: &mut Vec<Waker>) {
        let first = self.flight.front().map_or(self.next, |(number, _)| *number);
        match self.filling {
            // All that was sent from it is acknowledged, or nothing was.
            _ if reserved.used == 0 || reserved.last < first => pool.give(reserved.block, wake),
            None => self.filling = Some((reserved.block, reserved.used, reserved.last)),
            // Freed with the newest send that there is: this one's own last is no newer.
            Some(_) => self.full.push_back((self.next - 1, reserved.block)),
        }
    }

    fn sent(&mut self, len: u32) {
        self.flight.push_back((self.next, len));
        self.bytes += len as usize;
        self.next += 1;
    }

    /// A block with at least `room` bytes, and how many are used.
    fn block(
        &mut self,
        pool: &SendPool,
        room: u32,
        waker: impl FnOnce() -> Waker,
    ) -> Option<(u32, u32)> {
        if let Some((block, used, last)) = self.filling {
            if BLOCK - used >= room {
                return Some((block, used));
            }
            self.full.push_back((last, block));
            self.filling = None;
        }
        let block = pool.take(waker)?;
        self.filling = Some((block, 0, self.next));
        Some((block, 0))
    }

    /// The peer has acknowledged the send with this number, and so all before it.
    pub(crate) fn acknowledged(&mut self, number: u64, pool: &SendPool, wake: &mut Vec<Waker>) {
        if number >= self.next {
            return;
        }
        self.settle_to(number, wake);
        while let Some((first, len)) = self.flight.front().copied() {
            if first > number {
                break;
            }
            self.flight.pop_front();
            self.bytes -= len as usize;
        }
        while let Some((last, block)) = self.full.front().copied() {
            if last > number {
                break;
            }
            self.full.pop_front();
            pool.give(block, wake);
        }
        if let Some((block, _, last)) = self.filling
            && last <= number
        {
            self.filling = None;
            pool.give(block, wake);
        }
    }

    /// The connection is over: nothing is in flight any more.
    pub(crate) fn clear(&mut self, status: Status, pool: &SendPool, wake: &mut Vec<Waker>) {
        self.give_up(status, wake);
        if let Some(last) = self.next.checked_sub(1) {
            self.acknowledged(last, pool, wake);
        }
        // A block that was taken and not used for a send.
        if let Some((block, _, _)) = self.filling.take() {
            pool.give(block, wake);
        }
    }
}
