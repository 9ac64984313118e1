//! TCP Fast Open (RFC 7413): who may send data with a SYN, and to whom it is worth trying.
//!
//! A listener that allows it ([`SocketOptions::fast_open_queue`](crate::SocketOptions::fast_open_queue)) gives cookies to those who ask,
//! and a connection that comes with a good one is the host's at once, SYN-RECEIVED as it is. What is not as it should be (no cookie, a
//! wrong or old one, too many such connections) makes it a handshake as any other, with the data sent once more.

mod cache;
mod cookies;

use core::net::SocketAddr;
use core::time::Duration;

use sidecore_tcp::{CloseReason, Connection, Instant};
use sidecore_wire::{FastOpenCookie, TcpHeader};

use crate::connections::{NewConnection, Owner};
use crate::host::Host;
use crate::list::NIL;
use crate::segment::Payload;
use crate::stack::Stack;
use crate::{ConnId, DETACHED};
use cache::Advice;
pub(crate) use cache::Cache;
pub(crate) use cookies::Cookies;
use cookies::Judgement;

/// How long a connection that was reset before its handshake was complete counts (RFC 7413 section 5.1; Linux: the same).
const RESET_COUNTS: Duration = Duration::from_secs(60);

/// PendingFastOpenRequests of a listener, and their limit.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    limit: usize,
    /// Each until its handshake is complete; those that were reset, until some time after.
    connections: Vec<(ConnId, Option<Instant>)>,
}

impl Pending {
    pub(crate) fn new(limit: u32) -> Self {
        Self {
            limit: limit as usize,
            connections: Vec::new(),
        }
    }

    pub(crate) fn set_limit(&mut self, limit: u32) {
        self.limit = limit as usize;
    }

    pub(crate) fn is_on(&self) -> bool {
        self.limit > 0
    }

    pub(crate) fn len(&self) -> usize {
        self.connections.len()
    }

    /// Whether one more may come.
    fn has_room(&mut self, now: Instant) -> bool {
        if self.connections.len() >= self.limit {
            self.connections
                .retain(|(_, until)| until.is_none_or(|until| until > now));
        }
        self.connections.len() < self.limit
    }

    /// Its handshake is complete, or it is over; by a reset: it counts for some time yet, or else who has a cookie could have any number
    /// of connections by resetting each in another's name.
    fn leave(&mut self, id: ConnId, reset_at: Option<Instant>) {
        let mut places = self.connections.iter();
        let Some(place) = places.position(|(other, _)| *other == id) else {
            return;
        };
        match reset_at {
            Some(now) => self.connections[place].1 = Some(now + RESET_COUNTS),
            None => {
                self.connections.swap_remove(place);
            }
        }
    }
}

/// What a SYN asks for, and gets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Verdict {
    /// A handshake.
    Usual,
    /// A handshake, and a cookie.
    Cookie(FastOpenCookie),
    /// To be open at once; and perhaps a newer cookie.
    Open(Option<FastOpenCookie>),
}

impl Stack {
    /// What becomes of a SYN for the listener at `at`.
    pub(crate) fn judge_fast_open(
        &mut self,
        now: Instant,
        at: u32,
        syn: &TcpHeader,
        (local, remote): (SocketAddr, SocketAddr),
    ) -> Verdict {
        let Some(cookie) = syn.options.fast_open else {
            return Verdict::Usual;
        };
        let pending = self.listeners.pending(at);
        if !pending.is_on() {
            return Verdict::Usual;
        }
        let current = self.fast_open.current(now, remote.ip(), local.ip());
        if cookie.is_request() {
            self.counters.fast_open_cookies += 1;
            return Verdict::Cookie(current);
        }
        let judgement = self.fast_open.judge(now, &cookie, remote.ip(), local.ip());
        if judgement == Judgement::Bad {
            self.counters.fast_open_bad_cookies += 1;
            return Verdict::Cookie(current);
        }
        if !self.listeners.pending(at).has_room(now) {
            self.counters.fast_open_overflows += 1;
            return Verdict::Usual;
        }
        Verdict::Open((judgement == Judgement::Old).then_some(current))
    }

    /// Opens a connection of the listener at `at` at once: its host is told, and gets the SYN's data.
    pub(crate) fn open_early<H: Host>(
        &mut self,
        now: Instant,
        at: u32,
        new: NewConnection,
        payload: Payload<'_>,
        host: &mut H,
    ) {
        let (local, remote) = new.endpoints.addresses();
        let nobodys = NewConnection {
            owner: Owner::Stack,
            user: DETACHED,
            listener: NIL,
            ..new
        };
        let Some(index) = self.connections.insert(nobodys) else {
            return;
        };
        self.counters.passive_opens += 1;
        self.counters.fast_opens += 1;
        let id = self.connections.id(index);
        let listener = self.listeners.user_of(at);
        let Some((user, limit)) = host.incoming(listener, id, local, remote) else {
            self.counters.incoming_refused += 1;
            self.connections[index].tcp.abort(now);
            self.connections.detach(index);
            return self.touch(index);
        };
        // Without room the data is as good as lost: it comes again when the handshake is complete.
        let len = if host.room(user, payload.len, true) {
            payload.len
        } else {
            0
        };
        let slot = &mut self.connections[index];
        (slot.owner, slot.user, slot.listener) = (Owner::Host, user, at);
        let outcome = slot.tcp.take_syn_data(len);
        slot.tcp.set_receive_limit(limit);
        self.listeners.pending(at).connections.push((id, None));
        if outcome.accept.is_some() {
            self.common_outcome(index, &outcome, payload, host);
        }
        self.touch(index);
    }

    /// Whether a connection that is its host's was opened at once, and its handshake is not complete. If so, it is now.
    pub(crate) fn early_is_established(&mut self, index: u32) -> bool {
        if self.connections[index].listener == NIL {
            return false;
        }
        self.leave_pending(index, None);
        self.counters.passive_established += 1;
        true
    }

    /// A connection is over, or its handshake complete.
    fn leave_pending(&mut self, index: u32, reset_at: Option<Instant>) {
        let id = self.connections.id(index);
        let at = core::mem::replace(&mut self.connections[index].listener, NIL);
        if at != NIL {
            self.listeners.pending(at).leave(id, reset_at);
        }
    }

    /// A connection that is not a listener's is over.
    #[cold]
    pub(crate) fn fast_open_ended(&mut self, index: u32, reason: CloseReason) {
        let now = self.turn;
        let slot = &self.connections[index];
        if slot.listener != NIL && slot.owner != Owner::Listener {
            self.leave_pending(index, (reason == CloseReason::Reset).then_some(now));
        }
        let slot = &self.connections[index];
        let suspicious = matches!(reason, CloseReason::TimedOut | CloseReason::Reset)
            && slot.tcp.receive_next() == 0;
        if suspicious && slot.tcp.fast_open_result().is_some() {
            let (local, remote) = self.connections.addresses(index);
            self.fast_open_cache.failed(now, &(local.ip(), remote.ip()));
        }
    }

    /// An active open may be one with data on its SYN.
    pub(crate) fn begin_fast_open(
        &mut self,
        now: Instant,
        tcp: &mut Connection,
        local: SocketAddr,
        remote: SocketAddr,
    ) {
        match self.fast_open_cache.advise(now, &(local.ip(), remote.ip())) {
            Advice::Off => self.counters.fast_open_spared += 1,
            Advice::Ask => tcp.use_fast_open(None, 0),
            Advice::Cookie(cookie, mss) => tcp.use_fast_open(Some(cookie), mss),
        }
    }

    /// An active open is done: what it taught of the server.
    pub(crate) fn learn_fast_open(&mut self, now: Instant, index: u32) {
        if let Some(result) = self.connections[index].tcp.fast_open_result() {
            let (local, remote) = self.connections.addresses(index);
            let to = (local.ip(), remote.ip());
            self.fast_open_cache.learn(now, &to, &result);
        }
    }

    /// How many servers are remembered for Fast Open.
    pub fn fast_open_servers(&self) -> usize {
        self.fast_open_cache.len()
    }
}

/// What the SYN-ACK says, and whether the connection is open at once.
pub(crate) fn prepare(tcp: &mut Connection, verdict: Verdict) -> bool {
    match verdict {
        Verdict::Usual => false,
        Verdict::Cookie(cookie) => {
            tcp.grant_cookie(cookie);
            false
        }
        Verdict::Open(newer) => {
            if let Some(cookie) = newer {
                tcp.grant_cookie(cookie);
            }
            true
        }
    }
}
