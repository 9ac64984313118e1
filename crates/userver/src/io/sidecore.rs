//! The engine, by its own queues: nothing here makes a system call while there is work.
//!
//! The policy is the paper's (EuroSys'06, section 6.4). Three event queues: for accepts, for receives and closings, for sends. Receives come
//! first, since they drive everything: the first one on a connection is its accept, and the sends' completions are only looked at to
//! let memory go, so they never wake a sleeping worker. Children are made, and their accepts posted, in advance, and made anew as
//! they are used up.
//!
//! A plain answer is one command: head and file lie together in registered memory. Short answers that lie nowhere are copied by the
//! engine when it reads the command.

mod connection;
pub(crate) mod setup;
mod store;

use std::mem::take;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use sidecore_client::{
    Command, Dti, DtiHandle, Event, EventKind, EventQueue, Operation, Status, Ual,
};

use self::connection::{ALL_SENT, Connection, Core, PLACES_BYTES, State};
use self::setup::Engine;
use self::store::RegionStore;
use super::idle::{self, IdleWheel};
use super::slab::Token;
use crate::cache::arena::Arena;
use crate::config::{Config, Io};
use crate::counters::Counters;
use crate::error::Error;
use crate::server::{Birth, Stop, descriptor_limit};

/// Bytes for what is made or read for one answer: heads over 256 bytes, encrypted files, files without room in memory.
const ROOM: u64 = 16 << 20;

/// Events taken from one queue before the others get their turn.
const BATCH: usize = 256;

/// Seconds for which a connection is read away after its last answer.
const LINGER: u32 = 2;
/// Seconds in which answers under way may go out when the server stops.
const GRACE: u32 = 2;

/// How long a worker sleeps at most: how soon it hears of its end.
const NAP: Duration = Duration::from_millis(200);

/// One worker on the engine. [`crate::Server`] runs it on a thread; who drives the engine's turns can drive this in the same thread.
pub struct EngineWorker {
    core: Core,
    accepts: EventQueue,
    receives: EventQueue,
    sends: EventQueue,
    listener: Dti,
    /// Whether the listener is this worker's to close.
    owns_listener: bool,
    /// Whether there still is one to accept from.
    has_listener: bool,
    address: SocketAddr,
    /// By the handle's index.
    connections: Vec<Option<Connection>>,
    /// Children that wait to be accepted.
    waiting: usize,
    /// One of them whose accept did not fit on the lane.
    unposted: Option<Dti>,
    waiting_wanted: usize,
    /// There are as many connections as may be.
    paused: bool,
    open: usize,
    closing: usize,
    max_connections: usize,
    starved: Vec<Dti>,
    idle: IdleWheel,
    idle_seconds: u32,
    due: Vec<Token>,
    stop: Arc<Stop>,
    stopping: bool,
    stop_by: u32,
}

/// A worker's life.
pub(crate) fn run(birth: Birth, engine: Engine) -> Result<(), Error> {
    let mut worker = EngineWorker::new(&birth, engine)?;
    birth.started(worker.address);
    while !worker.has_stopped() {
        if worker.turn() == 0 {
            worker.sleep()?;
        }
    }
    worker.core.site.publish_counters();
    Ok(())
}

fn refused(what: &'static str) -> impl Fn(std::io::Error) -> Error {
    move |error| Error::Engine {
        message: format!("{what}: {error}"),
    }
}

impl EngineWorker {
    /// A worker on a UAL that is open already. `pause` is called while the engine's first answers are waited for; who drives the engine in
    /// this thread turns it there.
    pub fn start(
        config: Config,
        ual: &Ual,
        pause: impl FnMut(&mut EventQueue) -> Result<(), Error>,
    ) -> Result<Self, Error> {
        config.check()?;
        let config = Config {
            io: Io::Sidecore,
            workers: 1,
            ..config
        };
        let listening = setup::listen(ual, &config, pause)?;
        let engine = Engine {
            ual: ual.clone(),
            listener: listening.dti,
            address: listening.address,
            listening: Some(listening),
        };
        Self::new(&Birth::alone(config)?, engine)
    }

    /// Tells it to stop; it has when [`Self::has_stopped`] says so, after some more turns.
    pub fn stop(&self) {
        self.stop.request();
    }

    /// What was counted so far.
    pub fn counters(&self) -> Counters {
        self.core.site.publish_counters();
        let mut sum = Counters::default();
        self.core.site.counters.add_to(&mut sum);
        sum
    }

    pub(crate) fn new(birth: &Birth, engine: Engine) -> Result<Self, Error> {
        let config = &birth.config;
        let Engine {
            ual,
            listener,
            address,
            listening,
        } = engine;
        let queue = || {
            ual.event_queue()
                .map_err(|e| refused("event queues")(e.into()))
        };
        let owns_listener = listening.is_some();
        let (lane, accepts) = match listening {
            Some(listening) => (listening.lane, listening.accepts),
            None => {
                let lane = ual.lane().map_err(|e| refused("lanes")(e.into()))?;
                (lane, queue()?)
            }
        };
        let files_from = PLACES_BYTES + ROOM;
        let len = (files_from + config.cache_bytes).next_multiple_of(4096);
        let region = ual
            .allocate_region(len, false)
            .map_err(refused("registering memory"))?;
        let store = RegionStore::new(region.clone(), Arena::new(files_from, len));
        let files = (descriptor_limit() / 4).max(16) as usize;
        let site = birth.site(store, files)?;
        let now = site.clock.monotonic;
        let room = Arena::new(PLACES_BYTES, files_from);
        let (receives, sends) = (queue()?, queue()?);
        let mut worker = Self {
            core: Core::new(ual, lane, region, site, room),
            accepts,
            receives,
            sends,
            listener,
            owns_listener,
            has_listener: true,
            address,
            connections: Vec::new(),
            waiting: 0,
            unposted: None,
            waiting_wanted: setup::waiting(config.workers),
            paused: false,
            open: 0,
            closing: 0,
            max_connections: birth.max_connections(),
            starved: Vec::new(),
            idle: IdleWheel::new(now),
            idle_seconds: idle::seconds(config.idle_timeout),
            due: Vec::new(),
            stop: Arc::clone(&birth.stop),
            stopping: false,
            stop_by: 0,
        };
        worker.post_accepts();
        worker.core.lane.flush();
        Ok(worker)
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Takes what has happened and answers it; returns how many events that were. Does not block, but for reading files.
    pub fn turn(&mut self) -> usize {
        if self.core.site.tick() {
            self.each_second();
        }
        let mut count = self.take_receives();
        count += self.take_sends();
        count += self.take_accepts();
        self.serve_starved();
        if self.stop.is_wanted() && !self.stopping {
            self.begin_to_stop();
        }
        if count > 0 {
            self.post_accepts();
        }
        self.core.lane.flush();
        count
    }

    /// Goes on with connections that waited for room; who finds none waits again, in the same order.
    fn serve_starved(&mut self) {
        if self.starved.is_empty() {
            return;
        }
        self.core.serving_queue = true;
        for dti in take(&mut self.starved) {
            self.core.queued -= 1;
            if let Some(connection) = self.find(dti.handle()) {
                connection.starved = false; // it is off the list, and may come onto it again
                self.with(dti.handle(), Core::go_on);
            }
        }
        self.core.serving_queue = false;
    }

    /// Sleeps until there is something to receive or to accept, or to go on with.
    fn sleep(&mut self) -> Result<(), Error> {
        self.core.site.counters.sleeps.add(1);
        let (receives, accepts) = (&mut self.receives, &mut self.accepts);
        let woken = if self.core.blocked > 0 || self.stopping {
            EventQueue::wait_any(&mut [receives, accepts, &mut self.sends], Some(NAP / 20))
        } else {
            EventQueue::wait_any(&mut [receives, accepts], Some(NAP))
        };
        woken.map(drop).map_err(|gone| Error::Engine {
            message: gone.to_string(),
        })
    }

    fn take_receives(&mut self) -> usize {
        for count in 0..BATCH {
            // Also while the lane is full: the engine reads no commands of an application that does not take its events.
            let Some(event) = self.receives.poll() else {
                return count;
            };
            match event.kind {
                EventKind::Received => self.received(&event),
                EventKind::Closed => self.closed(&event),
                EventKind::Completion => self.completed(&event),
                _ => {}
            }
        }
        BATCH
    }

    fn received(&mut self, event: &Event) {
        let waits = |c: &mut Connection| c.state == State::Waiting;
        if self.core.site.wants_peer() && self.find(event.dti).is_some_and(waits) {
            // The log needs the peer's address, which the accept's own event brings. It is there: it was sent before.
            self.take_accepts();
        }
        let known = self.with(event.dti, |core, connection| {
            core.received(connection, event);
        });
        if !known {
            self.core.lane.return_chunk(event);
        }
    }

    fn take_sends(&mut self) -> usize {
        for count in 0..BATCH {
            let Some(event) = self.sends.poll() else {
                return count;
            };
            match event.kind {
                EventKind::Sent => {
                    self.with(event.dti, |core, connection| {
                        core.sent(connection, event.cookie);
                    });
                }
                EventKind::Completion => self.completed(&event),
                _ => {}
            }
        }
        BATCH
    }

    fn take_accepts(&mut self) -> usize {
        for count in 0..BATCH {
            let Some(event) = self.accepts.poll() else {
                return count;
            };
            match event.kind {
                EventKind::Accepted => self.accepted(&event),
                EventKind::Closed if event.dti == self.listener.handle() => {
                    self.owns_listener = false;
                    self.lose_listener();
                }
                EventKind::Completion => self.completed(&event),
                _ => {}
            }
        }
        BATCH
    }

    /// An accept's own event; by then the connection may have been used for long.
    fn accepted(&mut self, event: &Event) {
        let failed = event.status != Status::Ok;
        let peer = event.address(0).get();
        self.with(event.dti, |core, connection| {
            if failed {
                return core.close(connection);
            }
            if let Some(peer) = peer {
                connection.peer = peer;
            }
            if connection.state == State::Waiting {
                core.accepted(connection);
            }
        });
    }

    /// The peer has everything, or a command was refused; then the connection cannot go on as if it had not been.
    fn completed(&mut self, event: &Event) {
        if event.cookie == ALL_SENT {
            return self.forget(event.dti);
        }
        if event.status == Status::Ok {
            return;
        }
        match Operation::from_raw(event.body[4] as u8) {
            // The handle is free again: nothing was made.
            Some(Operation::CreateStream) => self.forget(event.dti),
            Some(Operation::Accept) if event.dti == self.listener.handle() => {
                let child = DtiHandle::from_word(event.cookie);
                self.with(child, |core, connection| core.close(connection));
                if event.status == Status::BadHandle {
                    self.lose_listener();
                }
            }
            // Refused because it ended: Closed tells.
            Some(
                Operation::Send
                | Operation::Shutdown
                | Operation::SetOption
                | Operation::SetOptions,
            ) if event.status != Status::BadExtent && event.status != Status::QueueFull => {}
            Some(Operation::Close | Operation::Abort) if event.status == Status::BadHandle => {
                self.forget(event.dti);
            }
            _ => {
                self.core.site.counters.broken.add(1);
                self.with(event.dti, |core, connection| core.abort(connection));
            }
        }
    }

    fn closed(&mut self, event: &Event) {
        self.with(event.dti, |core, connection| {
            if event.status != Status::Ok && connection.is_busy() {
                core.site.counters.broken.add(1);
            }
            connection.over = true;
            core.close(connection);
        });
        self.forget_if_over(event.dti);
    }

    fn forget_if_over(&mut self, handle: DtiHandle) {
        let over = self
            .find(handle)
            .is_some_and(|connection| connection.over && connection.state == State::Closing);
        if over {
            self.forget(handle);
        }
    }

    fn find(&mut self, handle: DtiHandle) -> Option<&mut Connection> {
        let place = self.connections.get_mut(handle.index as usize)?;
        place
            .as_mut()
            .filter(|connection| connection.dti.handle() == handle)
    }

    /// Works on a connection and keeps count of what it becomes; false when there is no such.
    #[inline]
    fn with(&mut self, handle: DtiHandle, work: impl FnOnce(&mut Core, &mut Connection)) -> bool {
        let Some(connection) = self
            .connections
            .get_mut(handle.index as usize)
            .and_then(Option::as_mut)
            .filter(|connection| connection.dti.handle() == handle)
        else {
            return false;
        };
        let (before, was_starved) = (connection.state, connection.starved);
        work(&mut self.core, connection);
        let (after, starved) = (connection.state, connection.starved);
        let dti = connection.dti;
        if before != after {
            self.moved(dti, before, after);
        }
        if starved && !was_starved {
            self.starved.push(dti);
            self.core.queued += 1;
        }
        true
    }

    #[cold]
    fn moved(&mut self, dti: Dti, before: State, after: State) {
        let now = self.core.site.clock.monotonic;
        match before {
            State::Waiting => self.waiting -= 1,
            State::Open | State::Lingering => self.open -= 1,
            State::Closing => self.closing -= 1,
        }
        match after {
            State::Waiting => self.waiting += 1,
            State::Open | State::Lingering => self.open += 1,
            State::Closing => self.closing += 1,
        }
        let token = Token(dti.handle().to_word());
        if before == State::Waiting && after != State::Closing {
            self.idle
                .schedule(token, now.wrapping_add(self.idle_seconds));
        }
        if after == State::Lingering {
            self.idle.schedule(token, now.wrapping_add(LINGER));
        }
    }

    /// A handle is free: nothing more will come for it.
    fn forget(&mut self, handle: DtiHandle) {
        let Some(mut connection) = self
            .connections
            .get_mut(handle.index as usize)
            .filter(|place| {
                place
                    .as_ref()
                    .is_some_and(|connection| connection.dti.handle() == handle)
            })
            .and_then(Option::take)
        else {
            return;
        };
        self.core.forget(&mut connection);
        match connection.state {
            State::Waiting => self.waiting -= 1,
            State::Open | State::Lingering => self.open -= 1,
            State::Closing => self.closing -= 1,
        }
    }

    /// Makes children and posts their accepts, as many as may be.
    fn post_accepts(&mut self) {
        let room = self.max_connections.saturating_sub(self.open);
        if room == 0 && !self.paused {
            self.core.site.counters.accept_pauses.add(1);
        }
        self.paused = room == 0;
        let wanted = self.waiting_wanted.min(room);
        while self.has_listener
            && !self.stopping
            && (self.waiting < wanted || self.unposted.is_some())
        {
            let Some(child) = self.unposted.take().or_else(|| self.make_child()) else {
                return; // handles are short, or the lane is full: later
            };
            let word = child.handle().to_word();
            let mut accept = Command::new(Operation::Accept, self.listener.handle(), word);
            accept.evq = self.accepts.id().index();
            accept.body[0] = word;
            if self.core.lane.post(accept).is_err() {
                self.unposted = Some(child);
                return;
            }
        }
    }

    fn make_child(&mut self) -> Option<Dti> {
        let lane = &mut self.core.lane;
        let child = lane.create_stream(&self.receives, &self.sends).ok()?;
        if self.connections.len() <= child.index() {
            self.connections.resize_with(child.index() + 1, || None);
        }
        let now = self.core.site.clock.monotonic;
        self.connections[child.index()] = Some(Connection::new(child, now));
        self.waiting += 1;
        Some(child)
    }

    fn each_second(&mut self) {
        let now = self.core.site.clock.monotonic;
        let mut due = take(&mut self.due);
        self.idle.advance(now, &mut due);
        let idle_seconds = self.idle_seconds;
        for token in due.drain(..) {
            let mut again = None;
            self.with(DtiHandle::from_word(token.0), |core, connection| {
                let allowed = match connection.state {
                    State::Lingering => LINGER,
                    State::Open => idle_seconds,
                    State::Waiting | State::Closing => return,
                };
                let until = connection.active.wrapping_add(allowed);
                if until.wrapping_sub(now) as i32 > 0 {
                    again = Some(until);
                } else if connection.state == State::Open {
                    core.site.counters.timed_out.add(1);
                    if connection.is_busy() || connection.awaits_peer() {
                        core.abort(connection);
                    } else {
                        core.close(connection);
                    }
                } else {
                    core.abort(connection);
                }
            });
            if let Some(until) = again {
                self.idle.schedule(token, until);
            }
        }
        self.due = due;
        self.post_accepts();
    }

    /// The listener was closed, and not by us: the engine is about to end. What was asked for is answered; nobody new comes.
    fn lose_listener(&mut self) {
        self.has_listener = false;
        self.core.stopping = true;
        self.leave_all(false);
    }

    fn begin_to_stop(&mut self) {
        self.stopping = true;
        self.core.stopping = true;
        self.stop_by = self.core.site.clock.monotonic.wrapping_add(GRACE);
        if self.owns_listener {
            // Cancels the accepts of all workers.
            let _ = self.core.lane.close(self.listener, 0);
        }
        self.leave_all(false);
    }

    fn leave_all(&mut self, even_busy: bool) {
        for index in 0..self.connections.len() {
            let Some(handle) = self.connections[index].as_ref().map(|c| c.dti.handle()) else {
                continue;
            };
            self.with(handle, |core, connection| match connection.state {
                State::Closing => {}
                _ if even_busy => core.abort(connection),
                _ if connection.is_busy() => {}
                _ => core.close(connection),
            });
        }
    }

    /// Whether it was told to stop and has: all connections are over, or their time is.
    pub fn has_stopped(&mut self) -> bool {
        if !self.stopping {
            return false;
        }
        let left = self.stop_by.wrapping_sub(self.core.site.clock.monotonic) as i32;
        if left <= 0 {
            self.leave_all(true);
            self.core.lane.flush();
        } else {
            self.leave_all(false);
        }
        let none = self.waiting + self.open + self.closing == 0;
        none || left < 0
    }
}
