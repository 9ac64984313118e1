//! Taking connections from a listener.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Waker};

use super::group::{Group, lock};
use super::held::Held;
use super::raw::RawSocket;
use super::socket::{Kind, Socket, State};
use crate::PostError;
use crate::error::Disconnected;

impl Socket {
    /// Whether one more accept may be posted now. Where others have copies of the listener, one is, while nothing is here to be taken: what comes
    /// meanwhile is for those who accept.
    fn may_post(&self, state: &State, configured: u32) -> bool {
        let open = state.over.is_none() && !state.closed;
        let wanted = match self.has_copies.load(Ordering::Relaxed) {
            true => state.accepted.is_empty() && state.accepts_due >= configured,
            false => state.accepts_due > 0,
        };
        open && wanted
    }

    /// Posts accepts until as many wait as may. What keeps it from that, if anything, is tried again with the next accept.
    pub(crate) fn post_accepts(self: &Arc<Self>, group: &Group) -> Result<(), PostError> {
        loop {
            {
                let mut state = lock(&self.state);
                if !self.may_post(&state, group.config.accepts) {
                    return Ok(());
                }
                state.accepts_due -= 1;
            }
            let posted = group
                .create(Kind::Stream, Some(Arc::clone(self)))
                .and_then(|child| {
                    let cookie = child.dti.handle().to_word();
                    let mut lane = lock(&group.lane);
                    let posted = lane.accept(self.dti, child.dti, cookie);
                    lane.flush();
                    drop(lane);
                    if posted.is_err() {
                        lock(&child.state).parent = None;
                        child.close(group, false);
                    }
                    posted
                });
            if let Err(error) = posted {
                lock(&self.state).accepts_due += 1;
                return Err(error);
            }
        }
    }

    /// The next connection.
    pub(crate) fn poll_accept(
        self: &Arc<Self>,
        group: &Group,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<(Arc<Socket>, Option<SocketAddr>)>> {
        let taken = self.poll_incoming(group, cx, |accepted| accepted.pop_front());
        taken.map_ok(|child| {
            let peer = lock(&child.state).peer;
            (child, peer)
        })
    }

    /// What `take` gives of the connections that wait; if nothing, whoever waits is told of the next.
    fn poll_incoming<T>(
        self: &Arc<Self>,
        group: &Group,
        cx: &mut Context<'_>,
        take: impl FnOnce(&mut VecDeque<Arc<Socket>>) -> Option<T>,
    ) -> Poll<io::Result<T>> {
        self.eager.store(true, Ordering::Relaxed);
        let posted = self.post_accepts(group);
        let mut state = lock(&self.state);
        if let Some(taken) = take(&mut state.accepted) {
            return Poll::Ready(Ok(taken));
        }
        if let Some(error) = state.take_failure().or_else(|| state.end_error()) {
            return Poll::Ready(Err(error));
        }
        if group.is_dead() {
            return Poll::Ready(Err(Disconnected.into()));
        }
        match posted {
            // Others wait already, and will tell.
            _ if state.accepts_due < group.config.accepts => {}
            // Nothing tells when the engine has read: try again, after others had their turn.
            Err(PostError::LaneFull) => cx.waker().wake_by_ref(),
            Err(error) => return Poll::Ready(Err(error.into())),
            Ok(()) => {}
        }
        state.readers.add(cx.waker());
        Poll::Pending
    }
}

impl RawSocket {
    /// Takes a connection: the socket and the peer's address. `WouldBlock`. That the engine has gone is told once, by `NetworkDown`.
    pub fn accept(&self) -> io::Result<(Self, Option<SocketAddr>)> {
        let taken = self.incoming_with(|accepted| accepted.pop_front());
        taken.map(|child| {
            let peer = lock(&child.state).peer;
            (Self(Held::new(self.0.group(), child)), peer)
        })
    }

    /// Whether [`Self::accept`] would give a connection, for those who must have a place for it first. Errors as of that.
    pub fn has_incoming(&self) -> io::Result<()> {
        self.incoming_with(|accepted| (!accepted.is_empty()).then_some(()))
    }

    fn incoming_with<T>(
        &self,
        take: impl FnOnce(&mut VecDeque<Arc<Socket>>) -> Option<T>,
    ) -> io::Result<T> {
        let socket = self.0.socket();
        if lock(&socket.state).closed {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let mut cx = Context::from_waker(Waker::noop());
        match socket.poll_incoming(self.0.group(), &mut cx, take) {
            Poll::Ready(Err(_)) if self.is_over() => {
                let told = &mut lock(&socket.state).told;
                Err(match std::mem::replace(told, true) {
                    true => io::ErrorKind::WouldBlock.into(),
                    false => io::ErrorKind::NetworkDown.into(),
                })
            }
            Poll::Ready(done) => done,
            Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
        }
    }
}
