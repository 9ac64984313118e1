//! io_uring: one system call for each batch of events, whatever they are.
//!
//! Receives are multishot into a ring of provided buffers, so an idle connection owns none; sockets and listener are registered files; a
//! plain answer is one send of the cached bytes, which the kernel finishes itself when the socket is full (`MSG_WAITALL`). Task work
//! runs when the worker asks for it (`DEFER_TASKRUN`), on its own core.
//!
//! A connection has at most one send at a time: sends of one socket that wait may overtake each other. Requests that come meanwhile are
//! kept, up to a limit, because a multishot receive cannot be held back.

mod connection;
mod store;

use std::io;
use std::mem::take;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{Shutdown, SocketFlags};
use sidecore_sys::uring::{Completion, FileSlot, Operation, Ring, RingConfig};

use self::connection::{Connection, Core};
use self::store::RingStore;
use super::idle::{self, IdleWheel};
use super::slab::{Slab, Token};
use crate::error::Error;
use crate::server::{Birth, Stop, descriptor_limit};
use crate::site::{Next, Site};

const LISTENER: FileSlot = FileSlot(0);
const STOP: FileSlot = FileSlot(1);
/// Slots before those of connections.
const RESERVED: u32 = 2;

/// Connections accepted before others get their turn.
const ACCEPTS: usize = 64;
/// Seconds for which a connection is read away after its last answer.
const LINGER: u32 = 2;
/// Seconds in which answers under way may go out when the server stops.
const GRACE: u32 = 2;

struct Worker {
    core: Core,
    listener: OwnedFd,
    /// A poll for connections is under way.
    polling: bool,
    resume_accepting: bool,
    connections: Slab<Connection>,
    /// Tokens by place: completions name the place alone, which is not used again before its last one.
    tokens: Vec<Token>,
    max_connections: usize,
    /// Connections whose receive ran out of buffers.
    starved: Vec<Token>,
    idle: IdleWheel,
    idle_seconds: u32,
    due: Vec<Token>,
    stop: Arc<Stop>,
    stopping: bool,
    stop_by: u32,
}

/// A worker: runs until it is told to stop.
pub(crate) fn run(birth: Birth, listener: OwnedFd) -> Result<(), Error> {
    // Each connection is a descriptor; files too large for memory stay open.
    let descriptors = descriptor_limit() / birth.config.workers as u64;
    let max_connections = birth
        .max_connections()
        .min((descriptors / 4 * 3).max(16) as usize);
    let files = (descriptors / 8).max(16) as usize;
    let site = birth.site(RingStore::new(birth.config.cache_bytes), files)?;
    let mut worker = Worker::new(&birth, listener, site, max_connections).map_err(|source| {
        Error::Unsupported {
            what: "io_uring",
            source,
        }
    })?;
    let address =
        super::listen::local_address(&worker.listener).map_err(|errno| Error::Defect {
            what: "getsockname",
            message: errno.to_string(),
        })?;
    birth.started(address);
    worker.serve().map_err(|error| Error::Defect {
        what: "io_uring_enter",
        message: error.to_string(),
    })
}

impl Worker {
    fn new(
        birth: &Birth,
        listener: OwnedFd,
        site: Site<RingStore>,
        max_connections: usize,
    ) -> io::Result<Self> {
        let mut ring = Ring::new(&RingConfig {
            entries: 2048,
            completions: 16_384,
            buffers: 1024,
            buffer_bytes: 4096,
            files: max_connections as u32 + RESERVED,
        })?;
        ring.register(LISTENER, listener.as_fd())?;
        ring.register(STOP, birth.stop.event.as_fd())?;
        ring.poll(STOP, STOP.0)?;
        ring.poll(LISTENER, LISTENER.0)?;
        let now = site.clock.monotonic;
        Ok(Self {
            core: Core::new(ring, site),
            listener,
            polling: true,
            resume_accepting: false,
            connections: Slab::new(),
            tokens: Vec::new(),
            max_connections,
            starved: Vec::new(),
            idle: IdleWheel::new(now),
            idle_seconds: idle::seconds(birth.config.idle_timeout),
            due: Vec::new(),
            stop: Arc::clone(&birth.stop),
            stopping: false,
            stop_by: 0,
        })
    }

    fn serve(&mut self) -> io::Result<()> {
        loop {
            let ticking =
                !self.connections.is_empty() || self.core.site.log_is_dirty() || !self.polling;
            self.core
                .ring
                .submit(1, ticking.then_some(Duration::from_secs(1)))?;
            if self.core.site.tick() {
                self.each_second()?;
            }
            while let Some(completion) = self.core.ring.complete() {
                match FileSlot(completion.token) {
                    LISTENER => self.accept()?,
                    STOP => self.begin_to_stop()?,
                    FileSlot(place) => self.completed(place - RESERVED, completion)?,
                }
            }
            for token in take(&mut self.starved) {
                if let Some(connection) = self.connections.get_mut(token) {
                    self.core.receive(connection)?;
                }
            }
            if take(&mut self.resume_accepting) && !self.polling && !self.stopping {
                self.core.ring.poll(LISTENER, LISTENER.0)?;
                self.polling = true;
            }
            if self.stopping && self.has_stopped()? {
                self.core.site.publish_counters();
                return Ok(());
            }
        }
    }

    fn accept(&mut self) -> io::Result<()> {
        self.polling = false;
        if self.stopping {
            return Ok(());
        }
        for _ in 0..ACCEPTS {
            if self.connections.len() >= self.max_connections {
                self.core.site.counters.accept_pauses.add(1);
                return Ok(()); // until one goes
            }
            let wants_peer = self.core.site.wants_peer();
            match super::listen::accept(&self.listener, SocketFlags::CLOEXEC, wants_peer) {
                Ok((socket, peer)) => {
                    let now = self.core.site.clock.monotonic;
                    let connection = Connection::new(socket, peer, now);
                    self.add(connection)?;
                }
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                Err(Errno::AGAIN) => break,
                // Out of descriptors or memory: connections wait in the kernel until the next second.
                Err(_) => {
                    self.core.site.counters.accept_pauses.add(1);
                    return Ok(());
                }
            }
        }
        self.core.ring.poll(LISTENER, LISTENER.0)?;
        self.polling = true;
        Ok(())
    }

    fn add(&mut self, connection: Connection) -> io::Result<()> {
        let active = connection.active;
        let token = self.connections.insert(connection);
        let place = token.index();
        if self.tokens.len() <= place {
            self.tokens.resize(place + 1, token);
        }
        self.tokens[place] = token;
        self.core.site.counters.accepted.add(1);
        self.idle
            .schedule(token, active.wrapping_add(self.idle_seconds));
        if let Some(connection) = self.connections.get_mut(token) {
            connection.slot = FileSlot(place as u32 + RESERVED);
            self.core
                .ring
                .register(connection.slot, connection.socket.as_fd())?;
            self.core.receive(connection)?;
        }
        Ok(())
    }

    fn completed(&mut self, place: u32, completion: Completion) -> io::Result<()> {
        let token = self.tokens.get(place as usize).copied();
        let Some((token, connection)) =
            token.and_then(|token| Some((token, self.connections.get_mut(token)?)))
        else {
            if let Some(buffer) = completion.buffer {
                self.core.ring.provide(buffer);
            }
            return Ok(());
        };
        let was_lingering = connection.lingering;
        match completion.operation {
            Operation::Receive => {
                if self.core.received(connection, completion)? {
                    self.starved.push(token);
                }
            }
            Operation::Send => {
                self.core.sent(connection, completion)?;
                if self.stopping && !connection.is_busy() {
                    self.core.end(connection)?;
                }
            }
            Operation::Close => {
                self.connections.remove(token);
                self.core.site.counters.closed.add(1);
                self.resume_accepting = true;
                return Ok(());
            }
            Operation::Accept | Operation::Poll => {}
        }
        if connection.lingering && !was_lingering {
            let now = self.core.site.clock.monotonic;
            self.idle.schedule(token, now.wrapping_add(LINGER));
        }
        Ok(())
    }

    fn each_second(&mut self) -> io::Result<()> {
        let now = self.core.site.clock.monotonic;
        let mut due = take(&mut self.due);
        self.idle.advance(now, &mut due);
        for token in due.drain(..) {
            let Some(connection) = self.connections.get_mut(token) else {
                continue;
            };
            let allowed = if connection.lingering {
                LINGER
            } else {
                self.idle_seconds
            };
            let until = connection.active.wrapping_add(allowed);
            if until.wrapping_sub(now) as i32 > 0 {
                self.idle.schedule(token, until);
                continue;
            }
            if !connection.lingering && !connection.ending {
                self.core.site.counters.timed_out.add(1);
            }
            self.core.end(connection)?;
        }
        self.due = due;
        self.resume_accepting |= self.connections.len() < self.max_connections;
        Ok(())
    }

    fn begin_to_stop(&mut self) -> io::Result<()> {
        if !self.stop.is_wanted() || self.stopping {
            return Ok(());
        }
        self.stopping = true;
        self.stop_by = self.core.site.clock.monotonic.wrapping_add(GRACE);
        // Who connects now is refused.
        let _ = rustix::net::shutdown(&self.listener, Shutdown::Both);
        self.end_all(false)
    }

    fn end_all(&mut self, even_busy: bool) -> io::Result<()> {
        let all: Vec<Token> = self.connections.tokens().collect();
        for token in all {
            if let Some(connection) = self.connections.get_mut(token)
                && (even_busy || !connection.is_busy())
            {
                self.core.end(connection)?;
            }
        }
        Ok(())
    }

    /// Whether all is over. Connections that are not ended with the grace time; a second later they are left behind.
    fn has_stopped(&mut self) -> io::Result<bool> {
        let left = self.stop_by.wrapping_sub(self.core.site.clock.monotonic) as i32;
        if left <= 0 {
            self.end_all(true)?;
        }
        Ok(self.connections.is_empty() || left < -1)
    }
}

/// What `next` asks for once everything before it went out.
fn is_last(next: Next) -> bool {
    matches!(next, Next::Close | Next::Linger)
}
