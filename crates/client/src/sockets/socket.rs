//! One socket of a group: what has come for it, what it has in flight, and who waits for it.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use sidecore_abi::command::Opt;
use sidecore_abi::{Command, Event, EventKind, Operation, Status};

use super::arrivals;
use super::group::{Group, lock};
use super::moving::{Moving, elsewhere};
use super::report::{DatagramReport, Reports};
use super::send::SendQueue;
use super::urgent::Urgent;
use super::wakers::Wakers;
use crate::error::{Disconnected, to_io};
use crate::{Address, Dti, PostError};

/// What a socket is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// A connection, or one to be.
    Stream,
    /// Takes connections.
    Listener,
    /// UDP.
    Datagram,
}

/// How far it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Phase {
    /// Made.
    New,
    /// Connect was posted.
    Connecting,
    /// Connected, listening, or bound.
    Open,
    /// Connecting failed.
    Failed(Status),
}

/// Bytes that came and were not read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Piece {
    pub(crate) event: Event,
    /// Bytes of it that were read.
    pub(crate) taken: usize,
}

/// A socket of a group.
#[derive(Debug)]
pub(crate) struct Socket {
    pub(crate) dti: Dti,
    pub(crate) kind: Kind,
    /// The engine is to be told that the program receives, once it does.
    pub(crate) interest_due: AtomicBool,
    /// … and at once what it received.
    pub(crate) settles: AtomicBool,
    /// Listener: who asks what it is ready for will accept. Else only who has accepted.
    pub(crate) eager: AtomicBool,
    /// Listener: others have copies, and what is given to this process is kept from them.
    pub(crate) has_copies: AtomicBool,
    pub(crate) state: Mutex<State>,
}

#[derive(Debug)]
pub(crate) struct State {
    pub(crate) phase: Phase,
    pub(crate) local: Option<SocketAddr>,
    pub(crate) peer: Option<SocketAddr>,
    /// Bytes that came before this process had the connection, to be read first.
    pub(crate) before: VecDeque<u8>,
    pub(crate) received: VecDeque<Piece>,
    /// Stream offset of the next byte to be read.
    pub(crate) consumed: u64,
    pub(crate) urgent: Urgent,
    /// It is being handed over, or was.
    pub(crate) moving: Option<Moving>,
    /// The peer has ended its direction.
    pub(crate) end: bool,
    /// Closed was seen.
    pub(crate) over: Option<Status>,
    pub(crate) read_shut: bool,
    pub(crate) write_shut: bool,
    pub(crate) sends: SendQueue,
    /// Listener: connections that were accepted and not yet taken.
    pub(crate) accepted: VecDeque<Arc<Socket>>,
    /// Listener: accepts that are to be posted.
    pub(crate) accepts_due: u32,
    /// Listener with copies: a connection waits at one of them.
    pub(crate) incoming: bool,
    /// Child that was not accepted yet: its listener.
    pub(super) parent: Option<Arc<Socket>>,
    /// Commands whose answer somebody awaits.
    pub(super) answers: Vec<(u64, Option<Event>)>,
    /// What went wrong with something sent, since it was last asked for.
    pub(crate) failed: Option<Status>,
    /// What became of datagrams.
    pub(super) reports: Reports,
    /// Why another command was refused, since it was last asked for.
    pub(crate) refused: Option<Status>,
    /// Nobody holds it any more, and Close was posted.
    pub(crate) closed: bool,
    pub(crate) readers: Wakers,
    pub(crate) writers: Wakers,
    /// Who is told of everything that may have made the socket ready, until it says otherwise; each with a number.
    pub(crate) watchers: Vec<(u64, Waker)>,
    /// Somebody found no room to write, and is to be told when there is.
    pub(crate) wants_room: bool,
    /// The error that ended the connection, or kept it from being made, was told.
    pub(crate) told: bool,
    pub(crate) read_timeout: Option<Duration>,
    pub(crate) write_timeout: Option<Duration>,
    pub(crate) nonblocking: bool,
    pub(crate) nodelay: bool,
    pub(crate) send_limit: usize, // Bytes in flight, if less than the group has.
    /// Bytes that may wait unsent; 0: any number (TCP_NOTSENT_LOWAT).
    pub(crate) lowat: u64,
    /// Bytes written, and of these those that were sent, as far as the engine told.
    pub(crate) written: u64,
    pub(crate) sent: u64,
}

impl State {
    /// The error to tell once the data that came before it has been read; `None` for an orderly end.
    pub(super) fn end_error(&self) -> Option<io::Error> {
        match self.over {
            Some(Status::Ok) | None => None,
            Some(status) => Some(to_io(status)),
        }
    }

    pub(crate) fn take_failure(&mut self) -> Option<io::Error> {
        self.failed.take().map(to_io)
    }

    /// Bytes that may be in flight with the next write, of `window` at most; `None`: too many wait unsent.
    pub(crate) fn send_window(&self, window: usize) -> Option<usize> {
        let window = window.min(self.send_limit);
        let unsent = self.written.saturating_sub(self.sent);
        match self.lowat {
            0 => Some(window),
            lowat if unsent >= lowat => None,
            lowat => {
                let more = usize::try_from(lowat - unsent).unwrap_or(usize::MAX);
                Some(window.min(self.sends.in_flight().saturating_add(more)))
            }
        }
    }

    pub(super) fn wake_into(&mut self, wake: &mut Vec<Waker>) {
        self.wake_readers(wake);
        self.writers.take_into(wake);
    }

    /// Connections wait at a copy of the listener, or none does any more.
    fn hear_incoming(&mut self, waits: bool, wake: &mut Vec<Waker>) {
        self.incoming = waits;
        self.wake_readers(wake);
    }

    fn wake_readers(&mut self, wake: &mut Vec<Waker>) {
        self.readers.take_into(wake);
        self.wake_watchers(wake);
    }

    /// There may be room to write. Those who watch are told only if somebody found none before.
    fn wake_writers(&mut self, wake: &mut Vec<Waker>) {
        self.writers.take_into(wake);
        if std::mem::take(&mut self.wants_room) {
            self.wake_watchers(wake);
        }
    }

    pub(crate) fn wake_watchers(&self, wake: &mut Vec<Waker>) {
        wake.extend(self.watchers.iter().map(|(_, waker)| waker.clone()));
    }
}

impl Socket {
    pub(crate) fn new(dti: Dti, kind: Kind, parent: Option<Arc<Socket>>) -> Self {
        Self {
            dti,
            kind,
            interest_due: AtomicBool::new(false),
            settles: AtomicBool::new(false),
            eager: AtomicBool::new(true),
            has_copies: AtomicBool::new(false),
            state: Mutex::new(State {
                phase: Phase::New,
                local: None,
                peer: None,
                before: VecDeque::new(),
                received: VecDeque::new(),
                moving: None,
                consumed: 0,
                urgent: Urgent::default(),
                end: false,
                over: None,
                read_shut: false,
                write_shut: false,
                sends: SendQueue::default(),
                accepted: VecDeque::new(),
                accepts_due: 0,
                incoming: false,
                parent,
                answers: Vec::new(),
                failed: None,
                reports: Reports::default(),
                refused: None,
                closed: false,
                readers: Wakers::default(),
                writers: Wakers::default(),
                watchers: Vec::new(),
                wants_room: false,
                told: false,
                read_timeout: None,
                write_timeout: None,
                nonblocking: false,
                nodelay: false,
                send_limit: usize::MAX,
                lowat: 0,
                written: 0,
                sent: 0,
            }),
        }
    }

    /// Closed by its holder, and not yet over.
    pub(crate) fn is_closing(&self) -> bool {
        let state = lock(&self.state);
        state.closed && state.over.is_none() && self.kind == Kind::Stream
    }

    /// The engine has gone: what it had is lost.
    pub(crate) fn give_up(&self, wake: &mut Vec<Waker>) {
        lock(&self.state).sends.give_up(Status::Aborted, wake);
    }

    pub(crate) fn wake_everybody(&self, wake: &mut Vec<Waker>) {
        lock(&self.state).wake_into(wake);
    }

    /// Takes an event of this socket in.
    pub(crate) fn handle(&self, group: &Group, event: &Event, wake: &mut Vec<Waker>) {
        let mut state = lock(&self.state);
        match event.kind {
            EventKind::Received | EventKind::Datagram => {
                arrivals::receive(&mut state, group, event);
                state.wake_readers(wake);
            }
            EventKind::Sent => {
                if event.status != Status::Ok {
                    state.sends.refused(event.cookie, event.status, wake);
                    state.failed.get_or_insert(event.status);
                    state.wake_readers(wake);
                }
                state.sends.acknowledged(event.cookie, &group.memory, wake);
                state.wake_writers(wake);
            }
            EventKind::Connected => {
                state.phase = match event.status {
                    Status::Ok => Phase::Open,
                    status => Phase::Failed(status),
                };
                state.local = state.local.or(event.address(0).get());
                state.wake_into(wake);
            }
            EventKind::Completion | EventKind::Detached | EventKind::Attached => {
                arrivals::complete(&mut state, event, wake);
            }
            EventKind::Error => {
                state.failed = Some(event.status);
                state.wake_into(wake);
            }
            EventKind::ErrorReport => {
                let closed = state.closed;
                state.reports.receive(group, event, closed);
                // As with Linux, the next call fails, too.
                state.failed = Some(event.status);
                state.wake_into(wake);
            }
            EventKind::Closed => {
                state.over = Some(event.status);
                state.sends.clear(event.status, &group.memory, wake);
                state.wake_into(wake);
                if state.closed {
                    drop(state);
                    group.forget(self);
                }
            }
            EventKind::Writable => {
                state.sent = state.sent.max(event.body[0]);
                state.wake_writers(wake);
            }
            EventKind::Urgent => {
                state.urgent.told(event.body[0]);
                state.wake_readers(wake);
            }
            EventKind::Incoming => state.hear_incoming(event.body[0] != 0, wake),
            // Accepted is not handled here; posted receives and registrations are not used.
            _ => {}
        }
    }

    /// A child: its accept was answered.
    pub(crate) fn accepted(self: Arc<Self>, group: &Group, event: &Event, wake: &mut Vec<Waker>) {
        let parent = {
            let mut state = lock(&self.state);
            if event.status == Status::Ok {
                state.phase = Phase::Open;
                state.peer = event.address(0).get();
            }
            state.parent.take()
        };
        let Some(parent) = parent else { return };
        let mut listener = lock(&parent.state);
        listener.accepts_due += 1;
        if event.status != Status::Ok || listener.closed {
            if event.kind == EventKind::Completion {
                listener.failed.get_or_insert(event.status);
                listener.wake_readers(wake);
            }
            drop(listener);
            // This thread serves the queue: waiting for room would be waiting for itself.
            self.close_untaken(group, false);
            return;
        }
        listener.accepted.push_back(self);
        listener.wake_readers(wake);
    }

    /// Posts a command that is answered with a Completion. The cookie is for [`Self::poll_answer`].
    pub(crate) fn ask(
        &self,
        group: &Group,
        command: impl FnOnce(u64) -> Command,
    ) -> Result<u64, PostError> {
        let cookie = group.cookie();
        let mut state = lock(&self.state);
        if state.moving == Some(Moving::Gone) {
            // Nobody would answer; the handle may be another's.
            return Ok(cookie);
        }
        let mut lane = lock(&group.lane);
        lane.post(command(cookie))?;
        lane.flush();
        state.answers.push((cookie, None));
        Ok(cookie)
    }

    /// The answer to a command, once.
    pub(crate) fn poll_answer(
        &self,
        group: &Group,
        cx: &mut Context<'_>,
        cookie: u64,
    ) -> Poll<io::Result<Event>> {
        let mut state = lock(&self.state);
        let place = state.answers.iter().position(|(other, _)| *other == cookie);
        let answer = place.and_then(|at| state.answers[at].1);
        if let (Some(at), Some(event)) = (place, answer) {
            state.answers.swap_remove(at);
            return Poll::Ready(match event.status {
                Status::Ok => Ok(event),
                status => Err(to_io(status)),
            });
        }
        if group.is_dead() {
            return Poll::Ready(Err(Disconnected.into()));
        }
        if state.moving == Some(Moving::Gone) {
            // It was asked too late: the answer was about a socket that is not here any more.
            return Poll::Ready(Err(elsewhere()));
        }
        state.readers.add(cx.waker());
        Poll::Pending
    }

    /// Posts Connect.
    pub(crate) fn connect(&self, group: &Group, peer: SocketAddr) -> Result<(), PostError> {
        let mut state = lock(&self.state);
        let mut lane = lock(&group.lane);
        lane.connect(self.dti, peer, 0)?;
        lane.flush();
        state.peer = Some(peer);
        state.phase = Phase::Connecting;
        Ok(())
    }

    /// Posts Connect with Fast Open; a write must follow.
    pub(crate) fn connect_fast(&self, group: &Group, peer: SocketAddr) -> Result<(), PostError> {
        let mut state = lock(&self.state);
        lock(&group.lane).connect_fast(self.dti, peer, 0)?;
        state.peer = Some(peer);
        state.phase = Phase::Connecting;
        Ok(())
    }

    /// Whether the connection is there.
    pub(crate) fn poll_connected(
        &self,
        group: &Group,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        let mut state = lock(&self.state);
        match (state.phase, state.over) {
            (Phase::Open, _) => Poll::Ready(Ok(())),
            (Phase::Failed(status), _) | (_, Some(status)) => Poll::Ready(Err(to_io(status))),
            _ if group.is_dead() => Poll::Ready(Err(Disconnected.into())),
            _ => {
                state.writers.add(cx.waker());
                Poll::Pending
            }
        }
    }

    /// Ends one direction or both.
    pub(crate) fn shutdown(&self, group: &Group, how: u64) -> io::Result<()> {
        let mut state = lock(&self.state);
        if state.phase != Phase::Open || state.over.is_some_and(|status| status != Status::Ok) {
            return Err(io::ErrorKind::NotConnected.into());
        }
        state.read_shut |= how & sidecore_abi::command::shutdown::READ != 0;
        let write = how & sidecore_abi::command::shutdown::WRITE != 0;
        let done = state.over.is_some() || write && std::mem::replace(&mut state.write_shut, true);
        let mut wake = Vec::new();
        state.wake_into(&mut wake);
        drop(state);
        super::wakers::wake_all(&mut wake);
        if !done || how & sidecore_abi::command::shutdown::READ != 0 {
            let mut command = Command::new(Operation::Shutdown, self.dti.handle(), 0);
            command.body[0] = how;
            group.post_surely(command, None, true);
        }
        Ok(())
    }

    /// Sets an option, without waiting. Where it makes no difference for now, its command waits for the group's next, or for the next look at
    /// the event queue.
    pub(crate) fn set_option_soon(&self, group: &Group, option: Opt, value: u64) {
        if !(self.may_wait(option) && group.gather_option(self.dti, option, value)) {
            self.set_option(group, option, value);
        }
    }

    /// Whether an option says nothing about what goes out now.
    fn may_wait(&self, option: Opt) -> bool {
        match option {
            Opt::Keepalive
            | Opt::KeepaliveIdle
            | Opt::KeepaliveInterval
            | Opt::KeepaliveProbes
            | Opt::Descriptor => true,
            // What was written may wait for it.
            Opt::NoDelay => lock(&self.state).written == 0,
            _ => false,
        }
    }

    /// Sets an option, without waiting.
    pub(crate) fn set_option(&self, group: &Group, option: Opt, value: u64) {
        let mut command = Command::new(Operation::SetOption, self.dti.handle(), 0);
        command.body[0] = option as u64;
        command.body[1] = value;
        if option == Opt::NotsentLowat {
            let mut state = lock(&self.state);
            // From here on the engine tells; what it did not tell before does not matter.
            state.sent = state.written;
            state.lowat = value;
        }
        group.post_surely(command, None, true);
    }

    /// The address of this side or of the peer, if it is known already.
    pub(crate) fn known_address(&self, option: Opt) -> Option<SocketAddr> {
        let state = lock(&self.state);
        match option {
            Opt::PeerAddress => state.peer,
            _ => state.local,
        }
    }

    /// Remembers an address that was asked for.
    pub(crate) fn learn_address(&self, option: Opt, address: Address) -> io::Result<SocketAddr> {
        let address = address.get().ok_or(io::ErrorKind::NotConnected)?;
        let mut state = lock(&self.state);
        match option {
            Opt::PeerAddress => state.peer = Some(address),
            _ => state.local = Some(address),
        }
        Ok(address)
    }

    /// The oldest report of what became of a datagram.
    pub(crate) fn take_report(&self) -> Option<DatagramReport> {
        lock(&self.state).reports.take()
    }

    /// Reports that found no room.
    pub(crate) fn lost_reports(&self) -> u64 {
        lock(&self.state).reports.lost()
    }

    /// What went wrong since this was last asked.
    pub(crate) fn take_error(&self) -> Option<io::Error> {
        let mut state = lock(&self.state);
        let refused = state.refused.take();
        state.take_failure().or(refused.map(to_io))
    }
}
