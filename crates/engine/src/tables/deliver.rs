//! In-order data, the peer's FIN and the end of a connection become events, in that order, as far as event queues
//! have room. What does not fit stays with its DTI and is tried again each turn.

use sidecore_abi::event::{self, Event, NO_CHUNK};
use sidecore_abi::{EventKind, Status};

use super::Tables;
use crate::dti::receive::Piece;
use crate::dti::{Role, flag};
use crate::slab_list::List;
use crate::ual::chunks::Freed;

impl Tables {
    /// After a segment: in-order data ends at `in_order`, and perhaps with the peer's FIN.
    #[inline]
    pub(crate) fn readable(&mut self, slot: u32, in_order: u64, fin: bool) {
        if let Some(piece) = self.fresh.take()
            && self.deliver_fresh(slot, piece, fin)
        {
            return;
        }
        self.readable_any(slot, in_order, fin);
    }

    /// What [`Tables::store`] has left: an event, if the queue takes it and nothing has to be told with it. Else it waits like all others, and
    /// the answer is false.
    #[inline]
    fn deliver_fresh(&mut self, slot: u32, piece: Piece, fin: bool) -> bool {
        let Some(dti) = self.dtis.get_mut(slot) else {
            return true;
        };
        let Some(Some(ual)) = self.uals.get_mut(dti.ual as usize) else {
            return true;
        };
        if !fin && dti.is_named() {
            let event = Event::received(
                dti.handle,
                piece.chunk,
                piece.offset,
                piece.len,
                piece.start,
                false,
            );
            if ual.offer(dti.rx_evq, &event) {
                if let Some(untaken) = &mut dti.untaken {
                    untaken.keep(&mut self.pieces, ual, piece, (slot, dti.epoch));
                }
                ual.chunks.hand_over(piece.chunk, piece.len);
                dti.rx.delivered += u64::from(piece.len);
                return true;
            }
        }
        // There is room for it: it was asked for before TCP took the segment.
        if !self.pieces.push_back(&mut dti.rx.ready, piece) {
            self.counters.pieces_refused += 1;
        }
        false
    }

    #[inline(never)]
    fn readable_any(&mut self, slot: u32, in_order: u64, fin: bool) {
        let Some(dti) = self.dtis.get_mut(slot) else {
            return;
        };
        dti.rx.in_order = in_order;
        if dti.has(flag::READ_SHUT) {
            // Dropped: the window must follow nevertheless.
            self.mark_dirty(slot);
            let Some(dti) = self.dtis.get_mut(slot) else {
                return;
            };
            dti.flags |= if fin { flag::END } else { 0 };
            return;
        }
        if fin {
            dti.flags |= flag::END;
        }
        if !dti.rx.out_of_order.is_empty() {
            self.collect_out_of_order(slot);
        }
        self.deliver(slot);
    }

    /// Moves pieces that became in order to the ready list, without what was delivered already.
    fn collect_out_of_order(&mut self, slot: u32) {
        let Some(dti) = self.dtis.get_mut(slot) else {
            return;
        };
        let end = dti.rx.in_order;
        // Where the ready list ends: everything before `in_order` that is not out of order.
        let mut next = self
            .pieces
            .back_mut(&dti.rx.ready)
            .map_or(dti.rx.delivered, |piece| piece.start + u64::from(piece.len));
        let mut unneeded = List::default();
        while let Some(piece) = self.pieces.front(&dti.rx.out_of_order).copied() {
            if piece.start >= end {
                break;
            }
            self.pieces.pop_front(&mut dti.rx.out_of_order);
            let stop = (piece.start + u64::from(piece.len)).min(end);
            if piece.start > next || stop <= next {
                // Wholly delivered already. (A gap cannot be: TCP counted these bytes as there.)
                self.pieces.push_back(&mut unneeded, piece);
                continue;
            }
            let skip = next - piece.start;
            let trimmed = Piece {
                start: next,
                len: (stop - next) as u32,
                chunk: piece.chunk,
                offset: piece.offset + skip,
            };
            next = stop;
            self.pieces.push_back(&mut dti.rx.ready, trimmed);
        }
        // The next in-order bytes do not follow these in their chunk.
        dti.rx.fill.room = 0;
        self.release_pieces(slot, &mut unneeded);
    }

    /// Delivers what can be delivered.
    #[inline]
    pub(crate) fn deliver(&mut self, slot: u32) {
        let Some(dti) = self.dtis.get_mut(slot) else {
            return;
        };
        if !dti.is_named() {
            return;
        }
        if dti.has(flag::URGENT_DUE) {
            return self.deliver_urgent(slot);
        }
        let Some(Some(ual)) = self.uals.get_mut(dti.ual as usize) else {
            return;
        };
        while let Some(piece) = self.pieces.front(&dti.rx.ready).copied() {
            if !dti.rx.posted.is_empty() {
                return self.deliver_slowly(slot);
            }
            if dti.has(flag::POSTED_ONLY) {
                return;
            }
            let last =
                dti.rx.ready.len() == 1 && dti.has(flag::END) && dti.rx.out_of_order.is_empty();
            let event = Event::received(
                dti.handle,
                piece.chunk,
                piece.offset,
                piece.len,
                piece.start,
                last,
            );
            if !ual.offer(dti.rx_evq, &event) {
                return self.mark_stalled(slot);
            }
            if let Some(untaken) = &mut dti.untaken {
                untaken.keep(&mut self.pieces, ual, piece, (slot, dti.epoch));
            }
            ual.chunks.hand_over(piece.chunk, piece.len);
            self.pieces.pop_front(&mut dti.rx.ready);
            dti.rx.delivered += u64::from(piece.len);
            if last {
                dti.flags |= flag::END_TOLD;
            }
        }
        if dti.flags & (flag::END | flag::OVER) != 0 {
            self.deliver_end(slot);
        }
    }

    /// The peer has urgent data that ends at `end`.
    #[cold]
    pub(crate) fn urgent(&mut self, slot: u32, end: u64) {
        let Some(dti) = self.dtis.get_mut(slot) else {
            return;
        };
        dti.rx.urgent = end;
        if !dti.has(flag::READ_SHUT) {
            dti.flags |= flag::URGENT_DUE;
            self.deliver(slot);
        }
    }

    /// Tells of urgent data, if the queue takes it; then all else. However often the mark moves until then, the application is told once.
    #[cold]
    fn deliver_urgent(&mut self, slot: u32) {
        let Some(dti) = self.dtis.get_mut(slot) else {
            return;
        };
        let mut event = Event::new(EventKind::Urgent, dti.handle, 0, Status::Ok);
        event.body[0] = dti.rx.urgent;
        let (ual, evq) = (dti.ual, dti.rx_evq);
        if self.ual(ual).is_some_and(|ual| !ual.offer(evq, &event)) {
            return self.mark_stalled(slot);
        }
        if let Some(dti) = self.dtis.get_mut(slot) {
            dti.flags &= !flag::URGENT_DUE;
        }
        self.deliver(slot);
    }

    /// Data waits in the pool and there are posted buffers: copy, complete, go on.
    fn deliver_slowly(&mut self, slot: u32) {
        // What is in a program's own memory cannot be delivered again.
        self.taken(slot);
        loop {
            let Some(dti) = self.dtis.get(slot) else {
                return;
            };
            let (Some(piece), Some(buffer)) = (
                self.pieces.front(&dti.rx.ready).copied(),
                self.posted.front(&dti.rx.posted).copied(),
            ) else {
                break;
            };
            let take = piece.len.min(buffer.len - buffer.filled);
            if let Some(ual) = self.uals.get(dti.ual as usize).and_then(Option::as_ref)
                && let Some(bytes) = ual.chunks.slice(piece.offset, take)
                && let Some(to) = ual.regions.slice_mut(
                    buffer.region,
                    buffer.offset + u64::from(buffer.filled),
                    take,
                )
            {
                to.write(0, bytes);
            }
            self.filled(slot, take, piece.start);
            let Some(dti) = self.dtis.get_mut(slot) else {
                return;
            };
            dti.rx.delivered += u64::from(take);
            dti.rx.returned += u64::from(take);
            if take == piece.len {
                self.pieces.pop_front(&mut dti.rx.ready);
                self.release_chunk_of(slot, piece.chunk);
            } else if let Some(front) = self.pieces.front_mut(&dti.rx.ready) {
                front.start += u64::from(take);
                front.offset += u64::from(take);
                front.len -= take;
            }
        }
        self.mark_dirty(slot);
        self.deliver(slot);
    }

    /// Bytes came into the first posted buffer; completes it when it is done.
    pub(crate) fn filled(&mut self, slot: u32, bytes: u32, start: u64) {
        let Some(dti) = self.dtis.get_mut(slot) else {
            return;
        };
        let Some(buffer) = self.posted.front_mut(&dti.rx.posted) else {
            return;
        };
        if buffer.filled == 0 {
            buffer.start = start;
        }
        buffer.filled += bytes;
        if buffer.filled == buffer.len || !buffer.wait_all {
            self.complete_posted(slot, Status::Ok, false);
        }
    }

    /// Completes the first posted receive as it is.
    pub(crate) fn complete_posted(&mut self, slot: u32, status: Status, end: bool) {
        let Some(dti) = self.dtis.get_mut(slot) else {
            return;
        };
        let Some(buffer) = self.posted.pop_front(&mut dti.rx.posted) else {
            return;
        };
        let (ual, handle) = (dti.ual, dti.handle);
        let mut event = Event::new(EventKind::ReceivedInto, handle, buffer.cookie, status);
        event.body[0] = u64::from(buffer.filled);
        event.body[2] = buffer.start;
        event.flags |= if end { event::flags::END } else { 0 };
        self.emit(ual, buffer.evq, &event);
        self.end_descriptor(slot);
        self.end_region_use(ual, buffer.region);
    }

    /// All data was delivered: the peer's FIN, then the end of the connection.
    fn deliver_end(&mut self, slot: u32) {
        let Some(dti) = self.dtis.get_mut(slot) else {
            return;
        };
        if dti.has(flag::END) && !dti.has(flag::END_TOLD) && !dti.has(flag::READ_SHUT) {
            if !dti.rx.posted.is_empty() {
                while self
                    .dtis
                    .get(slot)
                    .is_some_and(|dti| !dti.rx.posted.is_empty())
                {
                    self.complete_posted(slot, Status::Ok, true);
                }
            } else if !dti.has(flag::POSTED_ONLY) {
                let event = Event::received(dti.handle, NO_CHUNK, 0, 0, dti.rx.in_order, true);
                let (ual, evq) = (dti.ual, dti.rx_evq);
                if !self.ual(ual).is_none_or(|ual| ual.offer(evq, &event)) {
                    return self.mark_stalled(slot);
                }
            } else if !dti.has(flag::OVER) {
                // The next receive is told. (Once the connection is over none can be posted: Closed tells all.)
                return;
            }
            if let Some(dti) = self.dtis.get_mut(slot) {
                dti.flags |= flag::END_TOLD;
            }
        }
        if self.dtis.get(slot).is_some_and(|dti| dti.has(flag::OVER)) {
            self.tell_over(slot);
        }
    }

    /// Gives back the references of pieces that nobody will see.
    pub(crate) fn release_pieces(&mut self, slot: u32, list: &mut List) {
        while let Some(piece) = self.pieces.pop_front(list) {
            self.release_chunk_of(slot, piece.chunk);
        }
    }

    /// Gives back a chunk's reference that the engine held for this DTI.
    pub(crate) fn release_chunk_of(&mut self, slot: u32, chunk: u32) {
        let Some(ual_slot) = self.dtis.get(slot).map(|dti| dti.ual) else {
            return;
        };
        let Some(ual) = self.ual(ual_slot) else {
            return;
        };
        if let Ok(Some(freed)) = ual.chunks.release(chunk) {
            self.chunk_freed(ual_slot, chunk, freed);
        }
    }

    /// The application gives back a chunk, by a number that may be anything.
    #[inline]
    pub(crate) fn take_back_chunk(&mut self, ual_slot: u32, chunk: u32) {
        let Some(ual) = self.ual(ual_slot) else {
            return;
        };
        match ual.chunks.take_back(chunk) {
            Ok(Some(freed)) => self.chunk_freed(ual_slot, chunk, freed),
            Ok(None) => {}
            Err(_) => ual.counters.false_returns += 1,
        }
    }

    #[inline]
    fn chunk_freed(&mut self, ual_slot: u32, chunk: u32, freed: Freed) {
        let Some(dti) = self.dtis.at_epoch_mut(freed.slot, freed.epoch) else {
            return;
        };
        if dti.ual != ual_slot {
            // The connection has left this UAL since.
            return;
        }
        if dti.rx.fill.chunk == chunk {
            // It may soon hold somebody else's bytes.
            dti.rx.fill.room = 0;
        }
        if let Role::Datagram {
            shared: Some(_), ..
        } = dti.role
        {
            return self.datagram_taken(freed.slot, chunk);
        }
        if freed.bytes > 0 {
            // Bytes that were delivered before it left, and came back, were counted then.
            let most = dti.rx.delivered.max(dti.rx.returned);
            dti.rx.returned = (dti.rx.returned + u64::from(freed.bytes)).min(most);
            if !dti.has(flag::DIRTY) {
                dti.flags |= flag::DIRTY;
                self.dirty.push(freed.slot);
            }
        }
    }
}
