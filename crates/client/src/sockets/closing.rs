//! The end of a socket, as its holder wishes it.

use std::collections::VecDeque;

use sidecore_abi::{Command, Operation};

use super::group::{Group, lock};
use super::socket::{Kind, Piece, Socket};

impl Socket {
    /// Its last holder is gone: Close is posted, and what is unread goes back. Safe to call twice. For `patient` see
    /// [`Group::post_surely`].
    pub(crate) fn close(&self, group: &Group, patient: bool) {
        self.close_as(group, patient, false);
    }

    /// The same of a connection that was accepted and that nobody took: it is for whoever else has the listener.
    pub(super) fn close_untaken(&self, group: &Group, patient: bool) {
        self.close_as(group, patient, true);
    }

    fn close_as(&self, group: &Group, patient: bool, untaken: bool) {
        let mut close = Command::new(Operation::Close, self.dti.handle(), 0);
        close.body[1] = untaken.into();
        let mut unread = VecDeque::new();
        let (over, orphans) = {
            let mut state = lock(&self.state);
            if std::mem::replace(&mut state.closed, true) {
                return;
            }
            if self.kind == Kind::Stream && !state.read_shut {
                close.body[0] = u64::from(state.before.is_empty()) * state.consumed + 1;
            }
            match self.kind {
                // What goes back after the close is what was not read: others may have it.
                Kind::Datagram => unread = std::mem::take(&mut state.received),
                _ => group.give_back(&mut state.received),
            }
            (state.over.is_some(), std::mem::take(&mut state.accepted))
        };
        // First, so that those who take them have them in the order in which they came.
        for orphan in orphans {
            orphan.close_untaken(group, patient);
        }
        if over {
            group.forget(self);
        }
        group.post_surely(close, Some(self.dti), patient);
        group.give_back(&mut unread);
    }
}

impl Group {
    /// Gives back the chunks of what nobody reads any more.
    fn give_back(&self, received: &mut VecDeque<Piece>) {
        if received.is_empty() {
            return;
        }
        let mut lane = lock(&self.lane);
        for piece in received.drain(..) {
            lane.return_chunk(&piece.event);
        }
        lane.flush();
    }
}
