//! What a socket is ready for, as poll(2) tells it, and who is told when that changes.

use std::sync::{Arc, Weak};
use std::task::{Wake, Waker};

use super::group::{Group, lock};
use super::raw::Ready;
use super::socket::{Kind, Phase, Socket, State};
use super::wakers::wake_all;
use sidecore_abi::Status;

impl State {
    /// Whether a write would take bytes, with some room to spare, so that writers are not woken for each acknowledgement.
    fn has_room(&self, stream_bytes: usize) -> bool {
        let window = self.send_window(stream_bytes.max(1));
        window.is_some_and(|window| self.sends.in_flight() <= window / 3 * 2)
            && !self.sends.is_crowded()
    }
}

impl Socket {
    /// What the socket is ready for now.
    pub(crate) fn ready(&self, group: &Group) -> Ready {
        let mut state = lock(&self.state);
        let dead = group.is_dead();
        if state.moving.is_some() {
            // Soon it is elsewhere, and those who watch are told.
            return Ready::default();
        }
        if dead && state.told && self.kind != Kind::Stream {
            // It was told, and nobody will come: whoever asks for ever must not find something for ever.
            return Ready::default();
        }
        let failed = matches!(state.phase, Phase::Failed(_));
        let broken = matches!(state.over, Some(status) if status != Status::Ok);
        let error = !state.told && (failed || broken || dead) || state.failed.is_some();
        let mut ready = Ready {
            error,
            ..Ready::default()
        };
        if failed || dead || broken {
            (ready.read, ready.write) = (true, true);
            (ready.read_ended, ready.hung_up) = (true, true);
            return ready;
        }
        let ended = state.end || state.read_shut || state.over.is_some();
        match (self.kind, state.phase) {
            (Kind::Listener, _) => {
                ready.read = !state.accepted.is_empty() || state.incoming || error;
            }
            (Kind::Datagram, _) => {
                ready.read = !state.received.is_empty() || state.read_shut || error;
                // A report waits: as with Linux, no more than that is told.
                ready.error |= !state.reports.is_empty();
                ready.write = state.has_room(group.config.stream_bytes) || error;
            }
            (Kind::Stream, Phase::Connecting) => {}
            // As Linux has it for a socket that was never connected.
            (Kind::Stream, Phase::New) => (ready.write, ready.hung_up) = (true, true),
            (Kind::Stream, _) => {
                let unwritable = state.write_shut || state.over.is_some();
                ready.read = Self::has_bytes(&state) || !state.before.is_empty() || ended || error;
                ready.urgent = Self::has_urgent(&state);
                ready.write = unwritable || state.has_room(group.config.stream_bytes) || error;
                ready.read_ended = ended;
                ready.hung_up = ended && unwritable;
            }
        }
        // Whoever asked and heard no wants to be told.
        state.wants_room |= !ready.write;
        ready
    }

    /// From now on `waker` is woken when the socket may have become ready for something, until [`Self::unwatch`] with this number.
    pub(crate) fn watch(&self, number: u64, waker: Waker) {
        lock(&self.state).watchers.push((number, waker));
    }

    pub(crate) fn unwatch(&self, number: u64) {
        lock(&self.state)
            .watchers
            .retain(|(other, _)| *other != number);
    }

    /// Wakes those who wait for room, when memory is free again.
    pub(crate) fn room_waker(self: &Arc<Self>) -> Waker {
        Waker::from(Arc::new(Room(Arc::downgrade(self))))
    }
}

struct Room(Weak<Socket>);

impl Wake for Room {
    fn wake(self: Arc<Self>) {
        let Some(socket) = self.0.upgrade() else {
            return;
        };
        let mut wake = Vec::new();
        {
            let mut state = lock(&socket.state);
            state.wants_room = false;
            state.writers.take_into(&mut wake);
            state.wake_watchers(&mut wake);
        }
        wake_all(&mut wake);
    }
}
