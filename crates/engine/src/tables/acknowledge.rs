//! What the peer has acknowledged is released and, where it was asked for, completed.

use sidecore_abi::EventKind;
use sidecore_abi::Status;
use sidecore_abi::event::Event;

use super::frame::POOL_REGION;
use super::{Tables, region_gone};
use crate::dti::transmit::{Source, TxDescriptor};

impl Tables {
    /// The peer has acknowledged everything before `una`.
    #[inline]
    pub(crate) fn acknowledged(&mut self, slot: u32, una: u64) {
        let Some(dti) = self.dtis.get_mut(slot) else {
            return;
        };
        dti.tx.una = una;
        if dti.end_cookie.is_some() && una == dti.tx.end {
            // Perhaps the FIN as well: the stack is asked at the end of the turn.
            self.mark_dirty(slot);
        }
        self.reap(slot);
    }

    /// Completes acknowledged sends as far as the event queue has room.
    pub(crate) fn reap(&mut self, slot: u32) {
        let Self {
            uals,
            dtis,
            tx,
            copies,
            moved,
            regions_gone,
            ..
        } = self;
        let Some(dti) = dtis.get_mut(slot) else {
            return;
        };
        let Some(Some(ual)) = uals.get_mut(dti.ual as usize) else {
            return;
        };
        while let Some(first) = dti.tx.first_acknowledged(tx) {
            if first.notify {
                let mut event = Event::new(EventKind::Sent, dti.handle, first.cookie, Status::Ok);
                event.body[0] = dti.tx.una;
                if !ual.offer(first.evq, &event) {
                    return self.mark_stalled(slot);
                }
            }
            match first.source {
                Source::Copy(place) => copies.give(place),
                Source::Moved(place) => moved.give(place),
                Source::Region(POOL_REGION, _) => {}
                Source::Region(id, _) => {
                    if let Some(gone) = ual.regions.end_use(id) {
                        region_gone(ual, gone, regions_gone);
                    }
                }
            }
            dti.tx.drop_first(tx);
            dti.descriptors = dti.descriptors.saturating_sub(1);
            ual.descriptors = ual.descriptors.saturating_sub(1);
        }
    }

    /// Lets go of what a send referred to.
    #[inline]
    fn release_descriptor(&mut self, slot: u32, ual: u32, descriptor: &TxDescriptor) {
        match descriptor.source {
            Source::Copy(place) => self.copies.give(place),
            Source::Moved(place) => self.moved.give(place),
            Source::Region(POOL_REGION, _) => {}
            Source::Region(id, _) => self.end_region_use(ual, id),
        }
        self.end_descriptor(slot);
    }

    /// Drops all sends, telling those that asked.
    pub(crate) fn cancel_sends(&mut self, slot: u32, status: Status) {
        loop {
            let Some(dti) = self.dtis.get_mut(slot) else {
                return;
            };
            let (ual, handle, una) = (dti.ual, dti.handle, dti.tx.una);
            let Some(descriptor) = dti.tx.pop(&mut self.tx) else {
                return;
            };
            if descriptor.notify {
                // What was acknowledged, and only found its event queue full, was sent all the same.
                let done = descriptor.start + u64::from(descriptor.len) <= una;
                let status = if done { Status::Ok } else { status };
                let mut event = Event::new(EventKind::Sent, handle, descriptor.cookie, status);
                event.body[0] = una;
                self.emit(ual, descriptor.evq, &event);
            }
            self.release_descriptor(slot, ual, &descriptor);
        }
    }

    /// Drops all sends without a word.
    pub(crate) fn drop_transmit_side(&mut self, slot: u32) {
        loop {
            let Some(dti) = self.dtis.get_mut(slot) else {
                return;
            };
            let ual = dti.ual;
            let Some(descriptor) = dti.tx.pop(&mut self.tx) else {
                return;
            };
            self.release_descriptor(slot, ual, &descriptor);
        }
    }
}
