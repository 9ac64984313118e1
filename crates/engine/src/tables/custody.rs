//! A connection changes its UAL: given away by its owner, or left behind by one that died.
//!
//! The DTI keeps its slot, so that the stack, and frames that are on the loopback, know it as before. What refers to memory of the old UAL
//! is copied: sends that are not acknowledged, and bytes that wait to be delivered.

use sidecore_abi::command::DETACH_MAX;
use sidecore_abi::{DtiHandle, Status};

use super::Tables;
use super::frame::StreamRange;
use crate::dti::receive::{Fill, Piece};
use crate::dti::transmit::Source;
use crate::dti::{ANONYMOUS, Role, flag};
use crate::slab_list::List;

/// What a connection takes along.
struct Luggage {
    /// Bytes sent and not acknowledged.
    unacknowledged: Box<[u8]>,
    /// Pieces in the new pool: in order, and not.
    ready: List,
    out_of_order: List,
}

impl Tables {
    /// Whether a DTI is something that can be given away.
    pub(crate) fn is_movable(&self, slot: u32) -> Result<(), Status> {
        let dti = self.dtis.get(slot).ok_or(Status::BadHandle)?;
        match dti.role {
            _ if dti.has(flag::CLOSE) => Err(Status::WrongState),
            Role::Connected(_) => Ok(()),
            // It is over, and there is something to be delivered first.
            Role::Ended if dti.has(flag::OVER) => Ok(()),
            _ => Err(Status::WrongState),
        }
    }

    /// Gives a connection to the UAL in slot `to`, where it waits to be attached, under `key`: who gave it, and the number of its descriptor.
    /// When this fails nothing has changed.
    pub(crate) fn move_dti(&mut self, slot: u32, to: u32, key: (u64, u64)) -> Result<(), Status> {
        self.is_movable(slot)?;
        {
            let ual = self.ual(to).ok_or(Status::BadHandle)?;
            if ual.gone || ual.condemned {
                return Err(Status::BadHandle);
            }
            if ual.arrived.contains_key(&key) {
                return Err(Status::HandleInUse);
            }
            if ual.waiting >= ual.dti_limit {
                return Err(Status::NoResources);
            }
        }
        let luggage = self.pack(slot, to)?;
        let reason = self.reason_of(slot, to);
        self.leave(slot);
        self.arrive(slot, to, (key, reason), luggage);
        self.counters.moved += 1;
        Ok(())
    }

    /// The UAL against which a copy counts: who gives; of what the custodian gives back, who gets it.
    fn reason_of(&self, slot: u32, to: u32) -> u64 {
        let from = self.dtis.get(slot).map_or(to, |dti| dti.ual);
        let reason = if self.custodian == Some(from) {
            to
        } else {
            from
        };
        let ual = self.uals.get(reason as usize).and_then(Option::as_ref);
        ual.map_or(0, |ual| ual.id)
    }

    /// Copies what lies in the old UAL's memory.
    fn pack(&mut self, slot: u32, to: u32) -> Result<Luggage, Status> {
        let dti = self.dtis.get(slot).ok_or(Status::BadHandle)?;
        let (start, end, epoch) = (dti.tx.una, dti.tx.end, dti.epoch);
        let (ready, out_of_order) = (dti.rx.ready, dti.rx.out_of_order);
        let len = if dti.conn().is_some() { end - start } else { 0 };
        if len > DETACH_MAX || !self.moved.has_room(self.reason_of(slot, to), len as usize) {
            return Err(Status::NoResources);
        }
        let mut unacknowledged = vec![0; len as usize];
        let range = StreamRange {
            slot,
            epoch,
            start,
            len: len as u32,
        };
        let mut at = 0;
        let gathered = len == 0
            || self
                .stream_pieces(range, |piece| {
                    piece.copy_to(&mut unacknowledged[at..at + piece.len()]);
                    at += piece.len();
                    true
                })
                .is_some();
        if !gathered {
            return Err(Status::BadExtent);
        }
        let (mut in_order, mut gaps) = (List::default(), List::default());
        self.copy_pieces(slot, to, ready, &mut in_order)?;
        match self.copy_pieces(slot, to, out_of_order, &mut gaps) {
            Ok(()) => Ok(Luggage {
                unacknowledged: unacknowledged.into(),
                ready: in_order,
                out_of_order: gaps,
            }),
            Err(status) => {
                self.drop_copies(to, in_order);
                Err(status)
            }
        }
    }

    /// The same bytes in chunks of another pool, at the end of `copies`. When this fails there are no copies any more.
    pub(super) fn copy_pieces(
        &mut self,
        slot: u32,
        to: u32,
        list: List,
        copies: &mut List,
    ) -> Result<(), Status> {
        let Some(dti) = self.dtis.get(slot) else {
            return Err(Status::BadHandle);
        };
        let (from, epoch) = (dti.ual, dti.epoch);
        let mut at = list.head();
        while let Some(node) = at {
            let piece = *self.pieces.get(node);
            at = self.pieces.next(node);
            if !self.copy_piece((slot, epoch), from, to, piece, copies) {
                self.drop_copies(to, std::mem::take(copies));
                return Err(Status::NoResources);
            }
        }
        Ok(())
    }

    /// One piece, which may need more than one chunk.
    fn copy_piece(
        &mut self,
        (slot, epoch): (u32, u32),
        from: u32,
        to: u32,
        piece: Piece,
        copies: &mut List,
    ) -> bool {
        let mut done = 0;
        while done < piece.len {
            let left = piece.len - done;
            let Some((chunk, offset, room)) = self
                .ual(to)
                .and_then(|ual| ual.chunks.allocate(left, slot, epoch))
            else {
                return false;
            };
            let len = left.min(room);
            let bytes = self
                .uals
                .get(from as usize)
                .and_then(Option::as_ref)
                .and_then(|ual| ual.chunks.slice(piece.offset + u64::from(done), len));
            let into = self.uals.get(to as usize).and_then(Option::as_ref);
            if let (Some(bytes), Some(into)) = (bytes, into) {
                into.chunks.write(offset, bytes);
            }
            let copy = Piece {
                start: piece.start + u64::from(done),
                len,
                chunk,
                offset,
            };
            if !self.pieces.push_back(copies, copy) {
                if let Some(ual) = self.ual(to) {
                    let _ = ual.chunks.release(chunk);
                }
                return false;
            }
            done += len;
        }
        true
    }

    /// Copies that are not needed after all.
    pub(super) fn drop_copies(&mut self, to: u32, mut copies: List) {
        while let Some(piece) = self.pieces.pop_front(&mut copies) {
            if let Some(ual) = self.ual(to) {
                // The reference was ours: nobody was lent one.
                let _ = ual.chunks.release(piece.chunk);
            }
        }
    }

    /// Takes the DTI out of its old UAL, which is told of everything that it waits for.
    pub(super) fn leave(&mut self, slot: u32) {
        // Their memory is free; how much the peer has is said with each.
        self.cancel_sends(slot, Status::Ok);
        while self
            .dtis
            .get(slot)
            .is_some_and(|dti| !dti.rx.posted.is_empty())
        {
            self.complete_posted(slot, Status::Cancelled, false);
        }
        self.complete_shutdown(slot, Status::Cancelled);
        self.drop_receive_side(slot);
        let Some(dti) = self.dtis.get_mut(slot) else {
            return;
        };
        let (handle, descriptors) = (dti.handle, dti.descriptors);
        let named = dti.is_named();
        dti.descriptors = 0;
        dti.flags &= !(flag::STALLED | flag::END_TOLD | flag::POSTED_ONLY | flag::MORE);
        dti.set_notsent_lowat(0);
        dti.rx.fill = Fill::default();
        // What was delivered is not in our memory any more: the window need not wait for it.
        dti.rx.returned = dti.rx.returned.max(dti.rx.delivered);
        let ual = dti.ual;
        if let Some(ual) = self.ual(ual) {
            if named {
                ual.unname(handle);
            } else {
                ual.waiting = ual.waiting.saturating_sub(1);
            }
            ual.dtis = ual.dtis.saturating_sub(1);
            ual.descriptors = ual.descriptors.saturating_sub(descriptors);
        }
    }

    /// Puts it into the new one, without a name.
    fn arrive(&mut self, slot: u32, to: u32, (key, reason): ((u64, u64), u64), luggage: Luggage) {
        let Self {
            uals,
            dtis,
            tx,
            moved,
            ..
        } = self;
        let (Some(dti), Some(Some(ual))) = (dtis.get_mut(slot), uals.get_mut(to as usize)) else {
            return;
        };
        dti.ual = to;
        dti.handle = ANONYMOUS;
        dti.number = key.1;
        (dti.rx_evq, dti.tx_evq) = (0, 0);
        if dti.rx.urgent > dti.rx.delivered {
            // The new one was not told of it.
            dti.flags |= flag::URGENT_DUE;
        }
        dti.rx.ready = luggage.ready;
        dti.rx.out_of_order = luggage.out_of_order;
        let len = luggage.unacknowledged.len() as u32;
        if len > 0 {
            let source = Source::Moved(moved.keep(reason, luggage.unacknowledged));
            dti.tx.replace_by_copy(tx, source, len);
            dti.descriptors += 1;
            ual.descriptors += 1;
        }
        ual.dtis += 1;
        ual.waiting += 1;
        ual.arrived.insert(key, (slot, dti.epoch));
        self.mark_dirty(slot);
    }

    /// Takes what was given to a UAL under a key out of the list of those that wait.
    pub(crate) fn take_arrived(&mut self, ual: u32, key: (u64, u64)) -> Option<u32> {
        let (slot, epoch) = self.ual(ual)?.arrived.remove(&key)?;
        self.dtis.at_epoch(slot, epoch).is_some().then_some(slot)
    }

    /// Gives one that waited a name.
    pub(crate) fn name_arrived(
        &mut self,
        slot: u32,
        handle: DtiHandle,
        (rx_evq, tx_evq): (u16, u16),
    ) {
        let Some(dti) = self.dtis.get_mut(slot) else {
            return;
        };
        dti.handle = handle;
        (dti.rx_evq, dti.tx_evq) = (rx_evq, tx_evq);
        let ual = dti.ual;
        if let Some(ual) = self.ual(ual) {
            ual.name(handle, slot);
            ual.waiting = ual.waiting.saturating_sub(1);
        }
    }
}
