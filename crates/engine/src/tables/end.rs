//! Connections end: by both sides, by a reset, by their application's death.

use sidecore_abi::event::Event;
use sidecore_abi::{EventKind, Status};
use sidecore_tcp::CloseReason;

use super::Tables;
use crate::dti::{Role, flag};
use crate::slab_list::List;

/// What an application is told of why a connection ended.
pub(crate) fn status_of(reason: CloseReason) -> Status {
    match reason {
        CloseReason::Normal => Status::Ok,
        CloseReason::Reset => Status::ConnectionReset,
        CloseReason::Refused => Status::ConnectionRefused,
        CloseReason::TimedOut => Status::TimedOut,
        CloseReason::Aborted => Status::Aborted,
        CloseReason::Unreachable => Status::Unreachable,
    }
}

impl Tables {
    /// The stack says that a connection is over.
    pub(crate) fn connection_over(&mut self, slot: u32, reason: CloseReason) {
        let status = status_of(reason);
        let Some(dti) = self.dtis.get_mut(slot) else {
            return;
        };
        let role = std::mem::replace(&mut dti.role, Role::Ended);
        dti.end_status = status;
        dti.flags |= flag::OVER;
        let (ual, handle, tx_evq) = (dti.ual, dti.handle, dti.tx_evq);
        if let Role::Connecting { cookie, .. } = role {
            let status = if status == Status::Ok {
                Status::Aborted
            } else {
                status
            };
            self.emit(
                ual,
                tx_evq,
                &Event::new(EventKind::Connected, handle, cookie, status),
            );
        }
        self.complete_shutdown(slot, status);
        self.reap(slot);
        self.cancel_sends(
            slot,
            if status == Status::Ok {
                Status::ConnectionReset
            } else {
                status
            },
        );
        if status != Status::Ok {
            // Data that lies behind a gap will never be delivered.
            self.drop_out_of_order(slot);
        }
        self.deliver(slot);
    }

    /// Answers the Shutdown that asked when its FIN was acknowledged, if one did.
    pub(crate) fn complete_shutdown(&mut self, slot: u32, status: Status) {
        let Some(dti) = self.dtis.get_mut(slot) else {
            return;
        };
        let Some((cookie, evq)) = dti.end_cookie.take() else {
            return;
        };
        let (ual, handle) = (dti.ual, dti.handle);
        let event = Event::new(EventKind::Completion, handle, cookie, status);
        self.emit(
            ual,
            evq,
            &super::completion_of(event, sidecore_abi::Operation::Shutdown),
        );
    }

    /// Everything received was delivered: the last word.
    pub(crate) fn tell_over(&mut self, slot: u32) {
        while self
            .dtis
            .get(slot)
            .is_some_and(|dti| !dti.rx.posted.is_empty())
        {
            let status = self.dtis.get(slot).map_or(Status::Ok, |dti| dti.end_status);
            self.complete_posted(
                slot,
                if status == Status::Ok {
                    Status::Cancelled
                } else {
                    status
                },
                true,
            );
        }
        self.complete_shutdown(slot, Status::Cancelled);
        let Some(dti) = self.dtis.get_mut(slot) else {
            return;
        };
        dti.flags &= !flag::OVER;
        dti.role = Role::Ended;
        let event = Event::new(EventKind::Closed, dti.handle, 0, dti.end_status);
        let (ual, evq, closed) = (dti.ual, dti.rx_evq, dti.has(flag::CLOSE));
        self.emit(ual, evq, &event);
        if closed {
            self.remove_dti(slot);
        }
    }

    fn drop_out_of_order(&mut self, slot: u32) {
        let Some(dti) = self.dtis.get_mut(slot) else {
            return;
        };
        let mut list = std::mem::take(&mut dti.rx.out_of_order);
        self.release_pieces(slot, &mut list);
    }

    /// Gives back all that a DTI holds of the pool and its posted buffers, without a word.
    pub(crate) fn drop_receive_side(&mut self, slot: u32) {
        self.drop_out_of_order(slot);
        self.taken(slot);
        let Some(dti) = self.dtis.get_mut(slot) else {
            return;
        };
        let mut list: List = std::mem::take(&mut dti.rx.ready);
        self.release_pieces(slot, &mut list);
        loop {
            let Some(dti) = self.dtis.get_mut(slot) else {
                return;
            };
            let ual = dti.ual;
            let Some(buffer) = self.posted.pop_front(&mut dti.rx.posted) else {
                return;
            };
            self.end_descriptor(slot);
            self.end_region_use(ual, buffer.region);
        }
    }

    /// The application does not receive any more: what it has not seen is dropped, what comes is acknowledged and dropped.
    pub(crate) fn shut_read(&mut self, slot: u32) {
        while self
            .dtis
            .get(slot)
            .is_some_and(|dti| !dti.rx.posted.is_empty())
        {
            self.complete_posted(slot, Status::Cancelled, true);
        }
        self.drop_receive_side(slot);
        if let Some(dti) = self.dtis.get_mut(slot) {
            dti.flags |= flag::READ_SHUT;
            dti.rx.delivered = dti.rx.in_order;
            // Nothing will be given back, so the window must not wait for it.
            dti.rx.returned = dti.rx.returned.max(dti.rx.in_order);
        }
        self.mark_dirty(slot);
    }
}
