//! Received payload goes into the pool or into posted buffers: the one copy of the receive path.

use sidecore_shm::MemRef;
use sidecore_stack::User;

use super::Tables;
use super::frame::Frame;
use crate::dti::flag;
use crate::dti::receive::{Fill, Piece};

/// Out-of-order data and datagrams are kept only while this part of the pool is free, so that they never starve in-order data.
pub(super) const RESERVE: u64 = 4;

/// Bytes of a small chunk.
const SMALL: u32 = sidecore_abi::pool::SMALL as u32;

/// With one of these, in-order bytes are not simply an event.
pub(super) const UNUSUAL: u32 =
    flag::READ_SHUT | flag::POSTED_ONLY | flag::END | flag::OVER | flag::URGENT_DUE;

/// Pieces that one DTI may hold out of order.
const OUT_OF_ORDER_PIECES: u32 = 1024;

impl Tables {
    /// Whether a segment with `len` bytes for this DTI can be stored now. Asked before TCP sees it.
    #[inline]
    pub(crate) fn room(&mut self, slot: User, len: u32, in_order: bool) -> bool {
        let Some(dti) = self.dtis.get(slot) else {
            return true;
        };
        let pieces_left = self.pieces.has_room(4);
        if dti.has(flag::READ_SHUT) || (in_order && pieces_left && dti.rx.fill.room >= len) {
            // Dropped after it was acknowledged, or appended to a chunk that the DTI has.
            return true;
        }
        if in_order
            && dti.rx.ready.is_empty()
            && let Some(buffer) = self.posted.front(&dti.rx.posted)
            && buffer.len - buffer.filled >= len
        {
            // All of it goes into the application's own buffer.
            return true;
        }
        let (held, ual_slot) = (dti.rx.out_of_order.len(), dti.ual);
        let Some(Some(ual)) = self.uals.get_mut(ual_slot as usize) else {
            return true;
        };
        let chunks = &ual.chunks;
        let ok = pieces_left
            && chunks.has_room(len)
            && (in_order
                || (held < OUT_OF_ORDER_PIECES && chunks.free_bytes() > chunks.size() / RESERVE));
        if !ok {
            ual.counters.pool_exhausted += 1;
        }
        ok
    }

    /// Stores `len` bytes from byte `frame_offset` of the frame; they belong at `stream_offset`.
    #[inline]
    pub(crate) fn store(
        &mut self,
        frame: &Frame<'_>,
        slot: User,
        frame_offset: u32,
        len: u32,
        stream_offset: u64,
        in_order: bool,
    ) {
        if let Frame::Device(bytes) = *frame
            && in_order
            && let Some(bytes) =
                bytes.get(frame_offset as usize..frame_offset as usize + len as usize)
            && self.store_usual(bytes, slot, stream_offset)
        {
            return;
        }
        self.store_any(frame, slot, frame_offset, len, stream_offset, in_order);
    }

    /// The usual store: the next bytes, all of them into one chunk, when nothing waits. It takes one look at each table, and leaves the
    /// piece where [`Tables::readable`], which follows at once, makes an event of it. False: it is not that, and nothing was done.
    #[inline]
    fn store_usual(&mut self, bytes: &[u8], slot: u32, start: u64) -> bool {
        let Some(dti) = self.dtis.get_mut(slot) else {
            return false;
        };
        let Some(Some(ual)) = self.uals.get_mut(dti.ual as usize) else {
            return false;
        };
        let rx = &mut dti.rx;
        let waits = !rx.ready.is_empty() || !rx.out_of_order.is_empty() || !rx.posted.is_empty();
        let len = bytes.len() as u32;
        if waits || dti.flags & UNUSUAL != 0 || self.fresh.is_some() {
            return false;
        }
        let fill = if rx.fill.room >= len && ual.chunks.extend(rx.fill.chunk, slot, dti.epoch) {
            rx.fill
        } else if rx.fill.room >= SMALL || len > SMALL {
            return false;
        } else {
            let Some((chunk, offset, room)) = ual.chunks.allocate(len, slot, dti.epoch) else {
                return false;
            };
            Fill {
                chunk,
                offset,
                room,
            }
        };
        ual.chunks.write(fill.offset, MemRef::from_bytes(bytes));
        rx.fill = Fill {
            chunk: fill.chunk,
            offset: fill.offset + u64::from(len),
            room: fill.room - len,
        };
        rx.in_order = start + u64::from(len);
        self.fresh = Some(Piece {
            start,
            len,
            chunk: fill.chunk,
            offset: fill.offset,
        });
        true
    }

    #[inline(never)]
    fn store_any(
        &mut self,
        frame: &Frame<'_>,
        slot: User,
        frame_offset: u32,
        len: u32,
        stream_offset: u64,
        in_order: bool,
    ) {
        let Some(dti) = self.dtis.get_mut(slot) else {
            return;
        };
        if dti.has(flag::READ_SHUT) {
            return;
        }
        let (mut frame_offset, mut start, mut left) = (frame_offset, stream_offset, len);
        if in_order && !dti.rx.posted.is_empty() && dti.rx.ready.is_empty() {
            let taken = self.store_posted(frame, slot, frame_offset, start, left);
            (frame_offset, start, left) =
                (frame_offset + taken, start + u64::from(taken), left - taken);
        }
        while left > 0 {
            let Some(piece) = self.place(slot, start, left, in_order) else {
                self.counters.pieces_refused += 1;
                return;
            };
            self.copy_to_pool(frame, slot, frame_offset, piece);
            self.keep(slot, piece, in_order);
            frame_offset += piece.len;
            start += u64::from(piece.len);
            left -= piece.len;
        }
    }

    /// Finds a place for up to `len` bytes: behind the last ones in their chunk, or in a new chunk.
    #[inline]
    fn place(&mut self, slot: u32, start: u64, len: u32, in_order: bool) -> Option<Piece> {
        let dti = self.dtis.get_mut(slot)?;
        let ual = self.uals.get_mut(dti.ual as usize)?.as_mut()?;
        let fill = dti.rx.fill;
        // A large segment is not split over the rest of a small chunk: one event rather than two.
        let fits = fill.room >= len || fill.room >= SMALL;
        if in_order && fits && ual.chunks.extend(fill.chunk, slot, dti.epoch) {
            let take = len.min(fill.room);
            dti.rx.fill = Fill {
                chunk: fill.chunk,
                offset: fill.offset + u64::from(take),
                room: fill.room - take,
            };
            return Some(Piece {
                start,
                len: take,
                chunk: fill.chunk,
                offset: fill.offset,
            });
        }
        let (chunk, offset, size) = ual.chunks.allocate(len, slot, dti.epoch)?;
        let take = len.min(size);
        if in_order {
            dti.rx.fill = Fill {
                chunk,
                offset: offset + u64::from(take),
                room: size - take,
            };
        }
        Some(Piece {
            start,
            len: take,
            chunk,
            offset,
        })
    }

    #[inline]
    fn copy_to_pool(&self, frame: &Frame<'_>, slot: u32, frame_offset: u32, piece: Piece) {
        let Some(ual) = self
            .dtis
            .get(slot)
            .and_then(|dti| self.uals.get(dti.ual as usize)?.as_ref())
        else {
            return;
        };
        let mut at = piece.offset;
        self.frame_pieces(frame, frame_offset, piece.len, |bytes| {
            ual.chunks.write(at, bytes);
            at += bytes.len() as u64;
            true
        });
    }

    /// Puts a stored piece onto its list.
    #[inline]
    fn keep(&mut self, slot: u32, piece: Piece, in_order: bool) {
        let Some(dti) = self.dtis.get_mut(slot) else {
            return;
        };
        let kept = if in_order {
            dti.rx.in_order = piece.start + u64::from(piece.len);
            self.pieces.push_back(&mut dti.rx.ready, piece)
        } else {
            self.pieces
                .insert_sorted(&mut dti.rx.out_of_order, piece, |a, b| a.start < b.start)
        };
        if !kept {
            self.counters.pieces_refused += 1;
        }
    }

    /// Copies as much as fits into posted buffers and completes those that are done; returns how much.
    fn store_posted(
        &mut self,
        frame: &Frame<'_>,
        slot: u32,
        frame_offset: u32,
        start: u64,
        len: u32,
    ) -> u32 {
        let mut taken = 0;
        while taken < len {
            let Some(dti) = self.dtis.get(slot) else {
                break;
            };
            let Some(buffer) = self.posted.front(&dti.rx.posted).copied() else {
                break;
            };
            let take = (buffer.len - buffer.filled).min(len - taken);
            if let Some(ual) = self.uals.get(dti.ual as usize).and_then(Option::as_ref) {
                let mut at = buffer.offset + u64::from(buffer.filled);
                self.frame_pieces(frame, frame_offset + taken, take, |bytes| {
                    let to = ual.regions.slice_mut(buffer.region, at, bytes.len() as u32);
                    at += bytes.len() as u64;
                    to.map(|to| to.write(0, bytes)).is_some()
                });
            }
            self.filled(slot, take, start + u64::from(taken));
            taken += take;
            if let Some(dti) = self.dtis.get_mut(slot) {
                dti.rx.in_order = start + u64::from(taken);
                dti.rx.delivered = dti.rx.in_order;
                // The bytes are the application's: the window does not wait for them.
                dti.rx.returned += u64::from(take);
            }
        }
        if taken > 0 {
            self.mark_dirty(slot);
        }
        taken
    }
}
