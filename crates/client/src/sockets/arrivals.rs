//! What events leave in a socket: bytes, and answers to commands.

use std::task::Waker;

use sidecore_abi::{Event, EventKind, Operation, Status, event};

use super::group::{Group, lock};
use super::socket::{Phase, Piece, State};

/// Bytes came.
pub(super) fn receive(state: &mut State, group: &Group, event: &Event) {
    state.end |= event.flags & event::flags::END != 0;
    let datagram = event.kind == EventKind::Datagram;
    if state.closed || state.read_shut {
        let mut lane = lock(&group.lane);
        lane.return_chunk(event);
    } else if datagram || !event.is_empty() {
        state.received.push_back(Piece {
            event: *event,
            taken: 0,
        });
    }
}

/// A command was answered.
pub(super) fn complete(state: &mut State, event: &Event, wake: &mut Vec<Waker>) {
    let waiting = state
        .answers
        .iter_mut()
        .find(|(cookie, answer)| *cookie == event.cookie && answer.is_none());
    let ours = waiting.is_some();
    if let Some((_, answer)) = waiting {
        *answer = Some(*event);
    } else if event.status != Status::Ok {
        let operation = Operation::from_raw(event.body[4] as u8);
        match operation {
            // The DTI does not exist, so nothing else will be said of it.
            Some(Operation::CreateStream | Operation::CreateDatagram) => {
                state.over = Some(event.status);
            }
            Some(Operation::Connect) => state.phase = Phase::Failed(event.status),
            Some(Operation::Send) => {
                state.sends.refused(event.cookie, event.status, wake);
                state.failed.get_or_insert(event.status);
            }
            _ => {
                state.refused.get_or_insert(event.status);
            }
        }
    }
    if ours || event.status != Status::Ok {
        state.wake_into(wake);
    }
}
