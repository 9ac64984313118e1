//! A socket with operations: two lists, one for each direction, of which the first of each is tried. All descriptors of one socket share them.

use std::collections::VecDeque;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};

use rustix::io::Errno;

use crate::operation::{Operation, Progress, Work};
use crate::poll::Poll;
use crate::process::Kept;
use crate::queue::lock;
use crate::service::Service;
use crate::sys::{self, Identity, Readiness, Wish};

/// A socket.
pub(crate) struct Socket {
    /// By which the service's epoll set names it.
    key: u64,
    service: Weak<Service>,
    returns: Arc<Returns>,
    state: Mutex<State>,
}

struct State {
    identity: Identity,
    /// A descriptor of our own while something waits: the program may close its own meanwhile.
    own: Option<Kept>,
    wish: Wish,
    /// Sends, connects and the end.
    out: VecDeque<Operation>,
    /// Receives and accepts.
    input: VecDeque<Operation>,
    polls: Vec<Watch>,
}

/// A poll that waits for this socket.
struct Watch {
    /// Its place in the poll's list.
    at: usize,
    wish: Wish,
    poll: Arc<Poll>,
}

/// Counts the operations of a socket that the engine has.
pub(crate) struct Returns {
    count: AtomicUsize,
    key: u64,
    service: Weak<Service>,
}

impl Returns {
    /// The engine is done with one.
    pub(crate) fn one_less(&self) {
        if self.count.fetch_sub(1, Ordering::AcqRel) == 1
            && let Some(service) = self.service.upgrade()
        {
            service.review(self.key);
        }
    }

    fn any(&self) -> bool {
        self.count.load(Ordering::Acquire) > 0
    }
}

/// Which operations to cancel.
#[derive(Clone, Copy)]
pub(crate) struct Which {
    pub(crate) ahandle: Option<usize>,
}

impl Which {
    fn takes(self, operation: &Operation) -> bool {
        self.ahandle
            .is_none_or(|wanted| wanted == operation.ahandle)
    }
}

impl Socket {
    pub(crate) fn new(key: u64, identity: Identity, service: &Weak<Service>) -> Self {
        Self {
            key,
            service: Weak::clone(service),
            returns: Arc::new(Returns {
                count: AtomicUsize::new(0),
                key,
                service: Weak::clone(service),
            }),
            state: Mutex::new(State {
                identity,
                own: None,
                wish: Wish::default(),
                out: VecDeque::new(),
                input: VecDeque::new(),
                polls: Vec::new(),
            }),
        }
    }

    /// Takes an operation, and tries it if it is the first. An error: it did not begin.
    pub(crate) fn post(self: &Arc<Self>, operation: Operation) -> Result<(), Errno> {
        let fd = operation.fd;
        let mut state = lock(&self.state);
        let incoming = matches!(operation.work, Work::Receive { .. } | Work::Accept { .. });
        let list = if incoming {
            &mut state.input
        } else {
            &mut state.out
        };
        list.push_back(operation);
        if list.len() == 1 {
            if incoming {
                self.pump_in(&mut state, fd);
            } else {
                self.pump_out(&mut state, fd);
            }
        }
        let arranged = self.arrange(&mut state, fd);
        if arranged.is_err() {
            let list = if incoming {
                &mut state.input
            } else {
                &mut state.out
            };
            match list.pop_back() {
                Some(operation) if operation.is_under_way() => operation.finish(arranged),
                // It was not told of: the queue's room is given back by the caller.
                Some(_) => return arranged,
                None => {}
            }
        }
        Ok(())
    }

    /// Tries what is first of the outgoing.
    fn pump_out(self: &Arc<Self>, state: &mut State, fd: RawFd) {
        while let Some(first) = state.out.front_mut() {
            let closes = matches!(first.work, Work::Close);
            if closes && self.returns.any() {
                // What the engine has is sent, and told of, before.
                return;
            }
            if closes && sys::identity(first.fd).map(|(identity, _)| identity) != Ok(state.identity)
            {
                // The program has closed it itself.
                Self::pop(&mut state.out, Err(Errno::BADF));
                continue;
            }
            let connects = matches!(first.work, Work::Connect { .. });
            // Counted before: it may be over before this returns.
            self.returns.count.fetch_add(1, Ordering::AcqRel);
            let progress = first.attempt(fd, &self.returns);
            let posted = matches!(progress, Progress::Posted(_));
            if !posted {
                self.returns.count.fetch_sub(1, Ordering::AcqRel);
            }
            if connects {
                self.identify(state, fd);
            }
            match progress {
                Progress::Again => return,
                Progress::Posted(tracker) => {
                    if let Some(operation) = state.out.pop_front() {
                        operation.hand_over(&tracker);
                    }
                }
                Progress::Done(result) => {
                    Self::pop(&mut state.out, result);
                    if closes {
                        Self::end(state);
                    }
                    if connects {
                        // Receives waited for it.
                        self.pump_in(state, fd);
                    }
                }
            }
        }
    }

    /// Tries what is first of the incoming.
    fn pump_in(&self, state: &mut State, fd: RawFd) {
        let connecting = |operation: &Operation| matches!(operation.work, Work::Connect { .. });
        if state.out.iter().any(connecting) {
            return;
        }
        while let Some(first) = state.input.front_mut() {
            match first.attempt(fd, &self.returns) {
                Progress::Again => return,
                Progress::Posted(_) => Self::pop(&mut state.input, Err(Errno::IO)),
                Progress::Done(result) => Self::pop(&mut state.input, result),
            }
        }
    }

    fn pop(list: &mut VecDeque<Operation>, result: Result<(), Errno>) {
        if let Some(operation) = list.pop_front() {
            operation.finish(result);
        }
    }

    /// Closed: nothing more can come.
    fn end(state: &mut State) {
        for operation in state.out.drain(..) {
            operation.finish(Err(Errno::BADF));
        }
        for operation in state.input.drain(..) {
            operation.finish(Err(Errno::CANCELED));
        }
        for watch in state.polls.drain(..) {
            if watch.poll.cancel() {
                watch.poll.forget();
            }
        }
    }

    /// A preload library may have put another socket in the place of the first, when it learned whose it is.
    fn identify(self: &Arc<Self>, state: &mut State, fd: RawFd) {
        let Ok((identity, _)) = sys::identity(fd) else {
            return;
        };
        let before = std::mem::replace(&mut state.identity, identity);
        if before != identity
            && let Some(service) = self.service.upgrade()
        {
            service.rename(self, before, identity);
        }
    }

    /// Asks the service for what is waited for; `fd` is what the program calls it, if it has not been closed.
    fn arrange(self: &Arc<Self>, state: &mut State, fd: RawFd) -> Result<(), Errno> {
        let Some(service) = self.service.upgrade() else {
            return Err(Errno::BADF);
        };
        let connecting = state
            .out
            .iter()
            .any(|o| matches!(o.work, Work::Connect { .. }));
        let closing = matches!(state.out.front(), Some(first) if matches!(first.work, Work::Close));
        let polled = |of: fn(&Wish) -> bool| state.polls.iter().any(|watch| of(&watch.wish));
        let wish = Wish {
            read: !state.input.is_empty() && !connecting || polled(|wish| wish.read),
            write: !state.out.is_empty() && !closing || polled(|wish| wish.write),
        };
        let waits = !state.out.is_empty() || !state.input.is_empty() || !state.polls.is_empty();
        if !waits && !self.returns.any() {
            if let Some(own) = state.own.take() {
                service.leave(&own, self.key);
            }
            return Ok(());
        }
        match &state.own {
            Some(own) if state.wish != wish => {
                service.poller.set(own.number(), wish, self.key, false)?
            }
            Some(_) => {}
            None => {
                let own = Kept::new(|| sys::duplicate(fd))?;
                service.enter(&own, wish, self)?;
                if !waits && !self.returns.any() {
                    // The engine was done before the service knew of it.
                    service.leave(&own, self.key);
                    return Ok(());
                }
                state.own = Some(own);
            }
        }
        state.wish = wish;
        Ok(())
    }

    fn number(state: &State) -> RawFd {
        state.own.as_ref().map_or(-1, Kept::number)
    }

    /// Something came of what was asked for.
    pub(crate) fn ready(self: &Arc<Self>, readiness: &Readiness) {
        let mut state = lock(&self.state);
        let fd = Self::number(&state);
        if readiness.write {
            self.pump_out(&mut state, fd);
        }
        if readiness.read {
            self.pump_in(&mut state, fd);
        }
        for watch in &state.polls {
            if watch.poll.found(watch.at, readiness.bits) {
                watch.poll.forget();
            }
        }
        state.polls.retain(|watch| !watch.poll.is_over());
        // Its own descriptor is there: what could fail was done before.
        let _ = self.arrange(&mut state, fd);
    }

    /// The engine is done with something, or a poll is over.
    pub(crate) fn review(self: &Arc<Self>) {
        let mut state = lock(&self.state);
        state.polls.retain(|watch| !watch.poll.is_over());
        let fd = Self::number(&state);
        if state.own.is_none() {
            return;
        }
        self.pump_out(&mut state, fd);
        // As above.
        let _ = self.arrange(&mut state, fd);
    }

    /// A poll waits for this.
    pub(crate) fn watch(
        self: &Arc<Self>,
        fd: RawFd,
        at: usize,
        wish: Wish,
        poll: &Arc<Poll>,
    ) -> Result<(), Errno> {
        let mut state = lock(&self.state);
        state.polls.push(Watch {
            at,
            wish,
            poll: Arc::clone(poll),
        });
        let arranged = self.arrange(&mut state, fd);
        if arranged.is_err() {
            state.polls.pop();
        }
        arranged
    }

    /// Ends operations. One that the engine has goes on.
    pub(crate) fn cancel(self: &Arc<Self>, which: Which) {
        let mut state = lock(&self.state);
        let State { out, input, .. } = &mut *state;
        for list in [out, input] {
            for operation in std::mem::take(list) {
                if which.takes(&operation) && !operation.is_with_engine() {
                    operation.finish(Err(Errno::CANCELED));
                } else {
                    list.push_back(operation);
                }
            }
        }
        for watch in &state.polls {
            let ahandle = watch.poll.ahandle();
            if which.ahandle.is_none_or(|wanted| wanted == ahandle) && watch.poll.cancel() {
                watch.poll.forget();
            }
        }
        state.polls.retain(|watch| !watch.poll.is_over());
        let fd = Self::number(&state);
        if state.own.is_some() {
            // What was behind them is first now.
            self.pump_out(&mut state, fd);
            self.pump_in(&mut state, fd);
            // Its own descriptor is there.
            let _ = self.arrange(&mut state, fd);
        }
    }

    pub(crate) fn key(&self) -> u64 {
        self.key
    }

    /// Has the service look after it.
    pub(crate) fn look_later(&self) {
        if let Some(service) = self.service.upgrade() {
            service.review(self.key);
        }
    }
}
