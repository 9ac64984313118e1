//! A connection changes hands: from this process to others, or to it.

use std::fmt;
use std::future::poll_fn;
use std::io;
use std::time::Duration;

use sidecore_abi::Status;

use super::Sockets;
use super::group::{Group, lock};
use super::held::{Held, post, run};
use super::raw::RawSocket;
use super::socket::{Kind, Phase, Socket};
use super::wakers::wake_all;
use crate::PostError;

/// How far handing over is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Moving {
    /// The engine was asked.
    Asked,
    /// It is not here any more.
    Gone,
}

/// What is left of a socket that was handed over.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HandedOver {
    /// Bytes that came and were not read.
    pub bytes: Vec<u8>,
    /// There was nothing to hand over but these: the connection is over, and this is how it ended.
    pub over: Option<Status>,
    /// Writing was ended here.
    pub write_shut: bool,
    /// Reading was ended here.
    pub read_shut: bool,
}

/// The error of sockets that were handed over.
#[derive(Debug)]
struct Elsewhere;

impl fmt::Display for Elsewhere {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the socket was handed over")
    }
}

impl std::error::Error for Elsewhere {}

pub(super) fn elsewhere() -> io::Error {
    io::Error::other(Elsewhere)
}

/// Whether this error says that the socket was handed over ([`RawSocket::hand_over`]).
pub fn is_elsewhere(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|error| error.is::<Elsewhere>())
}

/// What came of asking the engine.
enum Begun {
    /// The answer has this cookie.
    Asked(u64),
    /// The connection is over.
    Over,
}

impl Socket {
    /// Posts Detach. From here on nothing else is posted for this socket.
    fn begin_move(
        &self,
        group: &Group,
        number: u64,
        to: u64,
    ) -> io::Result<Result<Begun, PostError>> {
        let mut state = lock(&self.state);
        if state.moving.is_some() || state.closed {
            return Err(elsewhere());
        }
        if state.over.is_some() || matches!(state.phase, Phase::Failed(_)) {
            state.moving = Some(Moving::Asked);
            return Ok(Ok(Begun::Over));
        }
        match state.phase {
            Phase::Open => {}
            Phase::Connecting => return Err(io::ErrorKind::WouldBlock.into()),
            _ => return Err(io::ErrorKind::NotConnected.into()),
        }
        let cookie = group.cookie();
        let posted = {
            let mut lane = lock(&group.lane);
            let posted = lane.detach(self.dti, number, to, cookie);
            lane.flush();
            posted
        };
        Ok(posted.map(|()| {
            state.moving = Some(Moving::Asked);
            state.answers.push((cookie, None));
            Begun::Asked(cookie)
        }))
    }

    /// It is not here any more: takes what was not read, and tells everybody.
    fn end_move(&self, group: &Group, detached: bool) -> HandedOver {
        let pool = group.ual.pool();
        let mut wake = Vec::new();
        let left = {
            let mut state = lock(&self.state);
            let mut bytes = Vec::from(std::mem::take(&mut state.before));
            let mut lane = lock(&group.lane);
            while let Some(piece) = state.received.pop_front() {
                let from = bytes.len();
                bytes.resize(from + piece.event.len() as usize - piece.taken, 0);
                let n = pool.read_at(&piece.event, piece.taken, &mut bytes[from..]);
                bytes.truncate(from + n);
                lane.return_chunk(&piece.event);
            }
            lane.flush();
            drop(lane);
            // What was sent is the custodian's to deliver; of a connection that is over nothing more is.
            let sent = match state.phase {
                _ if detached => Status::Ok,
                Phase::Failed(status) => status,
                _ => state.over.unwrap_or(Status::Ok),
            };
            state.sends.clear(sent, &group.memory, &mut wake);
            state.moving = Some(Moving::Gone);
            state.closed |= detached;
            state.wake_into(&mut wake);
            let failed = match state.phase {
                Phase::Failed(status) => Some(status),
                _ => None,
            };
            HandedOver {
                bytes,
                over: (!detached).then(|| state.over.or(failed).unwrap_or(Status::Ok)),
                write_shut: state.write_shut,
                read_shut: state.read_shut,
            }
        };
        if detached {
            group.forget(self);
        } else {
            // The handle is to be used again.
            self.close(group, true);
        }
        wake_all(&mut wake);
        left
    }

    /// The engine refused: it stays as it was.
    fn refuse_move(&self) {
        let mut wake = Vec::new();
        {
            let mut state = lock(&self.state);
            state.moving = None;
            state.wake_into(&mut wake);
        }
        wake_all(&mut wake);
    }
}

impl RawSocket {
    /// Hands a connection over, under the number of the descriptor that stands for it: to the custodian (`to` is 0), or, by the
    /// custodian, to another UAL. What was written goes out all the same, and what comes is for the one who takes it. Blocks for the engine's
    /// answer. Other threads may be blocked in calls: these, and all to come, fail with an error for which [`is_elsewhere`] holds.
    ///
    /// `WouldBlock`: it is being connected. `Unsupported`: the engine has no custodian. `QuotaExceeded`: too much is on its way for the
    /// moment. After an error the socket is as it was.
    pub fn hand_over(&self, number: u64, to: u64) -> io::Result<HandedOver> {
        let (group, socket) = (self.0.group(), self.0.socket());
        if socket.kind != Kind::Stream {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let begun = loop {
            // What was to be posted before it must be.
            if !group.retry_deferred()
                && let Ok(begun) = socket.begin_move(group, number, to)?
            {
                break begun;
            }
            if group.is_dead() {
                return Err(crate::Disconnected.into());
            }
            let _ = group.try_turn(Duration::ZERO);
            std::thread::yield_now();
        };
        let Begun::Asked(cookie) = begun else {
            return Ok(socket.end_move(group, false));
        };
        match run(group, poll_fn(|cx| socket.poll_answer(group, cx, cookie))) {
            Ok(_) => Ok(socket.end_move(group, true)),
            Err(error) => {
                // It may have ended before the engine read what was asked.
                if lock(&socket.state).over.is_some() {
                    return Ok(socket.end_move(group, false));
                }
                socket.refuse_move();
                Err(error)
            }
        }
    }

    /// Waits until a hand-over that another thread has begun is done. An error if it is elsewhere.
    pub(super) fn settle_move(&self) -> io::Result<()> {
        let socket = self.0.socket();
        let moving = || match lock(&socket.state).moving {
            None => Ok(()),
            Some(Moving::Asked) => Err(io::ErrorKind::WouldBlock.into()),
            Some(Moving::Gone) => Err(elsewhere()),
        };
        match moving() {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.block(None, moving),
            done => done,
        }
    }

    /// Whether the connection is still being made, as far as the events that were taken from the queue tell.
    pub fn is_connecting(&self) -> bool {
        let state = lock(&self.0.socket().state);
        state.phase == Phase::Connecting && state.over.is_none()
    }

    /// Whether it was handed over.
    pub fn is_elsewhere(&self) -> bool {
        lock(&self.0.socket().state).moving == Some(Moving::Gone)
    }

    /// Says which descriptor stands for the connection, without waiting: whoever holds that may get it when this process dies.
    pub fn set_number(&self, number: u64) {
        let option = sidecore_abi::command::Opt::Descriptor;
        self.0
            .socket()
            .set_option_soon(self.0.group(), option, number);
    }
}

impl Sockets {
    /// Takes a connection that UAL `from` gave to this one, under the number of its descriptor; `before` is read first. Blocks for the engine's
    /// answer. `NotConnected`: nothing of the kind was given.
    pub fn take_over(&self, from: u64, number: u64, before: Vec<u8>) -> io::Result<RawSocket> {
        let group = &self.group;
        run(group, async {
            let (socket, cookie) = post(group, || group.attach(from, number)).await?;
            lock(&socket.state).before = before.into();
            let held = Held::new(group, socket);
            let socket = held.socket();
            let event = poll_fn(|cx| socket.poll_answer(group, cx, cookie)).await?;
            {
                let mut state = lock(&socket.state);
                state.phase = Phase::Open;
                state.peer = event.address(0).get();
                state.consumed = event.body[3];
                state.write_shut = event.body[4] == 1;
            }
            Ok(RawSocket(held.clone()))
        })
    }
}
