//! The loop that [`epoll`](super::epoll) and [`sendfile`](super::sendfile) share.
//!
//! Each socket is registered once, edge-triggered for everything, and never again: no `epoll_ctl` per request. A receive that does not fill
//! the buffer has emptied the socket, so it is not repeated until the next edge; only when the peer has ended its direction is
//! it read to its end. An answer is sent right away; only what the socket does not take is put aside. So a request costs a
//! `recv`, a send, and its share of one `epoll_wait` for all connections that had something.
//!
//! A connection owns no buffer unless part of a request, or of an answer, waits.

use std::io;
use std::mem::{replace, take};
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::{RecvFlags, Shutdown, SocketFlags};
use rustix::time::Timespec;

use super::idle::{self, IdleWheel};
use super::slab::{Slab, Token};
use crate::cache::Store;
use crate::error::Error;
use crate::http::plan::Plan;
use crate::http::request::may_be_complete;
use crate::server::{Birth, Stop};
use crate::site::{Next, Site};

pub(crate) use super::transmit::{Sent, Transmit};

type Edition<T> = <<T as Transmit>::Store as Store>::Edition;

const LISTENER: Token = Token(u64::MAX);
const STOP: Token = Token(u64::MAX - 1);

/// Events taken at once.
const EVENTS: usize = 512;
/// Bytes received at once.
const RECEIVE: usize = 16 * 1024;
/// Receives, or sends, on one connection before others get their turn.
const TURN: usize = 16;
/// Connections accepted before others get their turn.
const ACCEPTS: usize = 64;
/// Seconds for which a connection is read away after its last answer.
const LINGER: u32 = 2;
/// Seconds in which answers under way may go out when the server stops.
const GRACE: u32 = 2;

struct Connection<E> {
    socket: OwnedFd,
    peer: SocketAddr,
    /// Received bytes that are not answered yet: part of a request, or requests behind answers that wait.
    partial: Vec<u8>,
    /// Answers that the socket did not take.
    pending: Option<Box<Plan<E>>>,
    /// What is done when they went.
    next: Next,
    /// When a request was answered, or an answer moved on.
    active: u32,
    /// An edge said that there is something to receive.
    readable: bool,
    /// The peer has ended its direction.
    ended: bool,
    /// The last answer went out; what comes is dropped until the peer closes.
    lingering: bool,
}

/// What a connection is to the loop after it had its turn.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Turn {
    /// An edge will tell when there is more to do.
    Wait,
    /// It used up its turn; there is more.
    Again,
    /// It is over.
    Over,
}

/// The worker but for its connections, so that both can be borrowed at once.
struct Core<T: Transmit> {
    site: Site<T::Store>,
    transmitter: T,
    received: Box<[u8]>,
    plan: Box<Plan<Edition<T>>>,
    #[expect(
        clippy::vec_box,
        reason = "plans move between here and connections by their box"
    )]
    spare_plans: Vec<Box<Plan<Edition<T>>>>,
    spare_buffers: Vec<Vec<u8>>,
    stopping: bool,
}

struct Worker<T: Transmit> {
    core: Core<T>,
    epoll: OwnedFd,
    listener: OwnedFd,
    listening: bool,
    /// Accepting paused, and there is reason to try again.
    resume_accepting: bool,
    connections: Slab<Connection<Edition<T>>>,
    max_connections: usize,
    again: Vec<Token>,
    idle: IdleWheel,
    idle_seconds: u32,
    due: Vec<Token>,
    stop: Arc<Stop>,
    stop_by: u32,
}

/// A worker's life.
pub(crate) fn run<T: Transmit>(
    birth: Birth,
    listener: OwnedFd,
    site: Site<T::Store>,
    transmitter: T,
) -> Result<(), Error> {
    let mut worker =
        Worker::new(&birth, listener, site, transmitter).map_err(|source| Error::Unsupported {
            what: "epoll",
            source,
        })?;
    let address =
        super::listen::local_address(&worker.listener).map_err(|errno| Error::Defect {
            what: "getsockname",
            message: errno.to_string(),
        })?;
    birth.started(address);
    worker.serve().map_err(|error| Error::Defect {
        what: "epoll_wait",
        message: error.to_string(),
    })
}

impl<T: Transmit> Worker<T> {
    fn new(
        birth: &Birth,
        listener: OwnedFd,
        site: Site<T::Store>,
        transmitter: T,
    ) -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(
            &epoll,
            &birth.stop.event,
            EventData::new_u64(STOP.0),
            EventFlags::IN,
        )?;
        let now = site.clock.monotonic;
        let mut worker = Self {
            core: Core {
                site,
                transmitter,
                received: vec![0; RECEIVE].into_boxed_slice(),
                plan: Box::default(),
                spare_plans: Vec::new(),
                spare_buffers: Vec::new(),
                stopping: false,
            },
            epoll,
            listener,
            listening: false,
            resume_accepting: false,
            connections: Slab::new(),
            max_connections: birth.max_connections(),
            again: Vec::new(),
            idle: IdleWheel::new(now),
            idle_seconds: idle::seconds(birth.config.idle_timeout),
            due: Vec::new(),
            stop: Arc::clone(&birth.stop),
            stop_by: 0,
        };
        worker.listen(true)?;
        Ok(worker)
    }

    fn serve(&mut self) -> io::Result<()> {
        let mut events: Vec<epoll::Event> = Vec::with_capacity(EVENTS);
        loop {
            self.wait(&mut events)?;
            if self.core.site.tick() {
                self.each_second();
            }
            for event in &events {
                match Token(event.data.u64()) {
                    LISTENER => self.accept()?,
                    STOP => self.begin_to_stop()?,
                    token => self.ready(token, event.flags),
                }
            }
            for token in take(&mut self.again) {
                self.turn(token);
            }
            if take(&mut self.resume_accepting) && !self.core.stopping {
                self.listen(true)?;
            }
            if self.core.stopping && self.has_stopped() {
                self.core.site.publish_counters();
                return Ok(());
            }
        }
    }

    fn wait(&mut self, events: &mut Vec<epoll::Event>) -> io::Result<()> {
        // Seconds matter only while something can grow too old.
        let ticking =
            !self.connections.is_empty() || self.core.site.log_is_dirty() || !self.listening;
        let timeout = Timespec {
            tv_sec: (self.again.is_empty()) as i64,
            tv_nsec: 0,
        };
        let timeout = (ticking || !self.again.is_empty()).then_some(&timeout);
        events.clear();
        match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(events), timeout) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }

    fn listen(&mut self, on: bool) -> io::Result<()> {
        if on && !self.listening {
            let data = EventData::new_u64(LISTENER.0);
            epoll::add(&self.epoll, &self.listener, data, EventFlags::IN)?;
        } else if !on && self.listening {
            epoll::delete(&self.epoll, &self.listener)?;
        }
        self.listening = on;
        Ok(())
    }

    fn accept(&mut self) -> io::Result<()> {
        for _ in 0..ACCEPTS {
            if self.connections.len() >= self.max_connections {
                self.core.site.counters.accept_pauses.add(1);
                return self.listen(false);
            }
            match self.accept_one() {
                Ok(()) | Err(Errno::INTR | Errno::CONNABORTED) => {}
                Err(Errno::AGAIN) => return Ok(()),
                // Out of descriptors or memory: connections wait in the kernel until the next second.
                Err(_) => {
                    self.core.site.counters.accept_pauses.add(1);
                    return self.listen(false);
                }
            }
        }
        Ok(())
    }

    fn accept_one(&mut self) -> rustix::io::Result<()> {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let wants_peer = self.core.site.wants_peer();
        let (socket, peer) = super::listen::accept(&self.listener, flags, wants_peer)?;
        let now = self.core.site.clock.monotonic;
        let token = self.connections.insert(Connection {
            socket,
            peer,
            partial: Vec::new(),
            pending: None,
            next: Next::Read,
            active: now,
            readable: false,
            ended: false,
            lingering: false,
        });
        self.core.site.counters.accepted.add(1);
        self.idle
            .schedule(token, now.wrapping_add(self.idle_seconds));
        let flags = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
        if let Some(connection) = self.connections.get_mut(token)
            && let Err(errno) = epoll::add(
                &self.epoll,
                &connection.socket,
                EventData::new_u64(token.0),
                flags,
            )
        {
            self.over(token);
            return Err(errno);
        }
        Ok(())
    }

    fn ready(&mut self, token: Token, flags: EventFlags) {
        let Some(connection) = self.connections.get_mut(token) else {
            return; // closed earlier in this turn
        };
        if flags.intersects(EventFlags::HUP | EventFlags::ERR) {
            // Nothing can be sent any more.
            if connection.pending.is_some() {
                self.core.site.counters.broken.add(1);
            }
            return self.over(token);
        }
        connection.ended |= flags.contains(EventFlags::RDHUP);
        connection.readable |= flags.intersects(EventFlags::IN | EventFlags::RDHUP);
        if connection.pending.is_some() && !flags.contains(EventFlags::OUT) {
            return;
        }
        self.turn(token);
    }

    fn turn(&mut self, token: Token) {
        let Some(connection) = self.connections.get_mut(token) else {
            return;
        };
        let was_lingering = connection.lingering;
        match self.core.turn(connection) {
            Turn::Wait => {
                if connection.lingering && !was_lingering {
                    let now = self.core.site.clock.monotonic;
                    self.idle.schedule(token, now.wrapping_add(LINGER));
                }
            }
            Turn::Again => self.again.push(token),
            Turn::Over => self.over(token),
        }
    }

    fn over(&mut self, token: Token) {
        // Closing the descriptor takes it out of epoll.
        let Some(connection) = self.connections.remove(token) else {
            return;
        };
        self.core.site.counters.closed.add(1);
        if let Some(plan) = connection.pending {
            self.core.give_back_plan(plan);
        }
        self.core.give_back_buffer(connection.partial);
        if !self.listening && !self.core.stopping {
            self.resume_accepting = true;
        }
    }

    fn each_second(&mut self) {
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
            if until.wrapping_sub(now) as i32 <= 0 {
                if !connection.lingering {
                    self.core.site.counters.timed_out.add(1);
                }
                self.over(token);
            } else {
                self.idle.schedule(token, until);
            }
        }
        self.due = due;
        self.resume_accepting |= !self.listening && self.connections.len() < self.max_connections;
    }

    fn begin_to_stop(&mut self) -> io::Result<()> {
        if !self.stop.is_wanted() || self.core.stopping {
            return Ok(());
        }
        self.core.stopping = true;
        self.stop_by = self.core.site.clock.monotonic.wrapping_add(GRACE);
        self.listen(false)?;
        epoll::delete(&self.epoll, &self.stop.event)?;
        let idle: Vec<Token> = self.connections.tokens().collect();
        for token in idle {
            let busy = self
                .connections
                .get_mut(token)
                .is_some_and(|connection| connection.pending.is_some());
            if !busy {
                self.over(token);
            }
        }
        Ok(())
    }

    fn has_stopped(&self) -> bool {
        let now = self.core.site.clock.monotonic;
        self.connections.is_empty() || self.stop_by.wrapping_sub(now) as i32 <= 0
    }
}

impl<T: Transmit> Core<T> {
    /// Does for a connection what can be done now.
    fn turn(&mut self, connection: &mut Connection<Edition<T>>) -> Turn {
        if let Some(plan) = connection.pending.take() {
            let unused = replace(&mut self.plan, plan);
            self.give_back_plan(unused);
            match self.send(connection) {
                Some(turn) => return turn,
                None if self.stopping => return Turn::Over,
                None => {}
            }
        }
        if !connection.partial.is_empty() && !connection.lingering && connection.next != Next::Read
        {
            let input = take(&mut connection.partial);
            let (used, turn) = self.answer(connection, &input);
            self.keep_rest(connection, input, used);
            if let Some(turn) = turn {
                return turn;
            }
        }
        self.receive(connection)
    }

    fn receive(&mut self, connection: &mut Connection<Edition<T>>) -> Turn {
        for _ in 0..TURN {
            if !connection.readable {
                return Turn::Wait;
            }
            let result = rustix::net::recv(
                &connection.socket,
                &mut self.received[..],
                RecvFlags::empty(),
            );
            let len = match result {
                Ok((0, _)) => return Turn::Over,
                Ok((len, _)) => len,
                Err(Errno::AGAIN) => {
                    connection.readable = false;
                    return Turn::Wait;
                }
                Err(Errno::INTR) => continue,
                Err(_) => return Turn::Over,
            };
            if len < self.received.len() && !connection.ended {
                connection.readable = false; // emptied; the next bytes make the next edge
            }
            if connection.lingering {
                continue;
            }
            if let Some(turn) = self.take_in(connection, len) {
                return turn;
            }
        }
        if connection.readable {
            Turn::Again
        } else {
            Turn::Wait
        }
    }

    /// Answers what the first `len` received bytes complete. `None`: go on receiving.
    fn take_in(&mut self, connection: &mut Connection<Edition<T>>, len: usize) -> Option<Turn> {
        if connection.partial.is_empty() {
            let received = take(&mut self.received);
            let input = received.get(..len).unwrap_or_default();
            let (used, turn) = self.answer(connection, input);
            if let Some(rest) = input.get(used..).filter(|rest| !rest.is_empty())
                && turn != Some(Turn::Over)
                && !connection.lingering
            {
                let mut buffer = self.spare_buffers.pop().unwrap_or_default();
                buffer.extend_from_slice(rest);
                connection.partial = buffer;
            }
            self.received = received;
            return turn;
        }
        let seen = connection.partial.len();
        let mut input = take(&mut connection.partial);
        input.extend_from_slice(self.received.get(..len).unwrap_or_default());
        if input.len() < self.site.max_head() && !may_be_complete(&input, seen) {
            connection.partial = input;
            return None;
        }
        let (used, turn) = self.answer(connection, &input);
        self.keep_rest(connection, input, used);
        turn
    }

    fn keep_rest(
        &mut self,
        connection: &mut Connection<Edition<T>>,
        mut input: Vec<u8>,
        used: usize,
    ) {
        if used < input.len() && !connection.lingering {
            input.drain(..used);
            connection.partial = input;
        } else {
            self.give_back_buffer(input);
        }
    }

    /// Answers the requests in `input`; returns the bytes used and, unless more may be received now, how the turn ended.
    fn answer(
        &mut self,
        connection: &mut Connection<Edition<T>>,
        input: &[u8],
    ) -> (usize, Option<Turn>) {
        let mut used = 0;
        loop {
            let rest = input.get(used..).unwrap_or_default();
            self.plan.clear();
            let served = self.site.serve(&connection.peer, rest, &mut self.plan);
            used += served.consumed;
            connection.next = served.next;
            if served.requests == 0 {
                return (used, None);
            }
            connection.active = self.site.clock.monotonic;
            if let Some(turn) = self.send(connection) {
                return (used, Some(turn));
            }
            if connection.lingering || served.next != Next::Again {
                return (used, None);
            }
        }
    }

    /// Sends the plan. `None`: all went and the connection goes on.
    fn send(&mut self, connection: &mut Connection<Edition<T>>) -> Option<Turn> {
        let mut sends = 0;
        while !self.plan.is_empty() {
            if sends == TURN {
                self.put_aside(connection);
                return Some(Turn::Again);
            }
            sends += 1;
            match self
                .transmitter
                .transmit(connection.socket.as_fd(), &self.plan)
            {
                Ok(sent) => {
                    self.site.counters.bytes_sent.add(sent.bytes);
                    self.plan.advance(sent.bytes);
                    connection.active = self.site.clock.monotonic;
                    if sent.full {
                        self.put_aside(connection);
                        return Some(Turn::Wait);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.put_aside(connection);
                    return Some(Turn::Wait);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => {
                    self.site.counters.broken.add(1);
                    return Some(Turn::Over);
                }
            }
        }
        match connection.next {
            Next::Read | Next::Again => None,
            Next::Close if !connection.readable || connection.ended => Some(Turn::Over),
            // Closing over unread bytes would reset the connection under the answer.
            Next::Close | Next::Linger => {
                connection.lingering = true;
                connection.readable = true;
                match rustix::net::shutdown(&connection.socket, Shutdown::Write) {
                    Ok(()) => None,
                    Err(_) => Some(Turn::Over),
                }
            }
        }
    }

    /// Keeps the plan with its connection until the socket takes more.
    fn put_aside(&mut self, connection: &mut Connection<Edition<T>>) {
        let spare = self.spare_plans.pop().unwrap_or_default();
        connection.pending = Some(replace(&mut self.plan, spare));
    }

    fn give_back_plan(&mut self, mut plan: Box<Plan<Edition<T>>>) {
        if self.spare_plans.len() < 64 {
            plan.clear();
            self.spare_plans.push(plan);
        }
    }

    fn give_back_buffer(&mut self, mut buffer: Vec<u8>) {
        if buffer.capacity() > 0 && self.spare_buffers.len() < 64 {
            buffer.clear();
            self.spare_buffers.push(buffer);
        }
    }
}
