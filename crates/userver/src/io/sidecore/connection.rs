//! One connection's receives and sends.

mod stream;

use std::collections::VecDeque;
use std::mem::{replace, take};
use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;

use sidecore_client::{
    COPY_MAX, Dti, Event, Extent, Lane, Opt, PostError, Region, Ual, flags, shutdown,
};

use super::store::{RegionEdition, RegionStore};
use crate::cache::arena::{Arena, Block};
use crate::http::plan::{Piece, Plan};
use crate::http::request::may_be_complete;
use crate::site::{Next, Site};

/// Bytes of one send at most, so that a slow reader is seen to make progress.
const SEND: u64 = 256 * 1024;

/// Bytes, and sends, that a connection may have under way. More wait.
const UNDER_WAY: u64 = 1 << 20;
const SENDS: usize = 48;

/// Every so many sends of a connection, at the latest, the engine is asked to tell when they are acknowledged. Until then the memory is
/// held, which for cached files costs nothing.
const NOTIFY: u64 = 4;

/// Above this, in bytes, the engine tells of every send: it is worth an event to have the memory back.
const NOTIFY_FROM: u32 = 32 * 1024;

/// Places for short answers, which the engine copies when it reads the command. As many as a lane holds commands: when a
/// command can be posted, the one that used its place before has been read.
pub(super) const PLACES: u64 = 1 << 12;
const PLACE_BYTES: u64 = COPY_MAX as u64;

/// Bytes of the region that hold them.
pub(super) const PLACES_BYTES: u64 = PLACES * PLACE_BYTES;

/// Cookie of the shutdown that tells, when the server stops, that the peer has everything.
pub(super) const ALL_SENT: u64 = u64::MAX;

/// Where a connection is in its life.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum State {
    /// Its accept was posted.
    Waiting,
    /// Connected.
    Open,
    /// The last answer is sent, with a FIN; what comes is dropped until the peer closes.
    Lingering,
    /// Closed by us; its memory and handle are the engine's until Closed.
    Closing,
}

/// What a send needs to stay as it is.
enum Held {
    Edition(#[expect(dead_code, reason = "held, not read")] Rc<RegionEdition>),
    /// Something made for one answer.
    Block(#[expect(dead_code, reason = "held, not read")] Block),
    /// Part of a file that is not in memory.
    Stream(#[expect(dead_code, reason = "held, not read")] Block),
}

struct UnderWay {
    cookie: u64,
    len: u32,
    held: Held,
}

/// A connection, or one to be.
pub(super) struct Connection {
    pub(super) dti: Dti,
    pub(super) state: State,
    pub(super) peer: SocketAddr,
    /// Received bytes that are not answered yet.
    partial: Vec<u8>,
    /// Received events that wait behind answers: what they hold of the pool holds the sender back.
    waiting: VecDeque<Event>,
    under_way: VecDeque<UnderWay>,
    bytes_under_way: u64,
    /// Of these: of files that are not in memory.
    streamed: u64,
    cookie: u64,
    /// Cookie of the last send of which the engine tells.
    notified: u64,
    pending: Option<Box<Plan<RegionEdition>>>,
    next: Next,
    pub(super) active: u32,
    /// The peer has ended its direction.
    ended: bool,
    /// The engine said that it is over.
    pub(super) over: bool,
    /// It is on the list of those that wait for room.
    pub(super) starved: bool,
    no_delay: bool,
    /// How it is to be left once the lane has room.
    leaving: Option<Leave>,
}

/// [`Lane::close`] or [`Lane::abort`].
type Leave = fn(&mut Lane, Dti, u64) -> Result<(), PostError>;

impl Connection {
    pub(super) fn new(dti: Dti, now: u32) -> Self {
        Self {
            dti,
            state: State::Waiting,
            peer: SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
            partial: Vec::new(),
            waiting: VecDeque::new(),
            under_way: VecDeque::new(),
            bytes_under_way: 0,
            streamed: 0,
            cookie: 0,
            notified: 0,
            pending: None,
            next: Next::Read,
            active: now,
            ended: false,
            over: false,
            starved: false,
            no_delay: false,
            leaving: None,
        }
    }

    /// Whether the engine is still to tell of a send.
    pub(super) fn awaits_peer(&self) -> bool {
        self.under_way
            .front()
            .is_some_and(|front| front.cookie <= self.notified)
    }

    /// Whether an answer is on its way to the engine. (What the engine has, it sends after a close as well.)
    pub(super) fn is_busy(&self) -> bool {
        self.pending.is_some() || !self.waiting.is_empty()
    }
}

/// The worker but for its connections and queues, so that all can be borrowed at once.
pub(super) struct Core {
    pub(super) ual: Ual,
    pub(super) lane: Lane,
    pub(super) region: Region,
    pub(super) site: Site<RegionStore>,
    /// Room for what is made or read for one answer.
    room: Arena,
    /// Connections with part of a file there, and bytes of these parts.
    streams: u64,
    streamed: u64,
    /// Connections that wait for room, in the order in which they get it.
    pub(super) queued: usize,
    /// It is their turn.
    pub(super) serving_queue: bool,
    place: u64,
    /// Connections whose answers wait for earlier ones: only for their sake are the sends' events worth waking for.
    pub(super) blocked: usize,
    /// The server stops: it is to be told when the peer has everything.
    pub(super) stopping: bool,
    received: Box<[u8]>,
    step: Vec<u8>,
    plan: Box<Plan<RegionEdition>>,
    #[expect(
        clippy::vec_box,
        reason = "plans move between here and connections by their box"
    )]
    spare_plans: Vec<Box<Plan<RegionEdition>>>,
    spare_buffers: Vec<Vec<u8>>,
}

/// Why a plan was not sent to its end.
enum Stopped {
    /// There is no room on the lane or in memory now.
    Starved,
    /// Enough is under way on this connection.
    Enough,
    /// A file was cut short.
    Broken,
}

impl From<PostError> for Stopped {
    fn from(_: PostError) -> Self {
        Self::Starved
    }
}

impl Core {
    pub(super) fn new(
        ual: Ual,
        lane: Lane,
        region: Region,
        site: Site<RegionStore>,
        room: Arena,
    ) -> Self {
        Self {
            ual,
            lane,
            region,
            site,
            room,
            streams: 0,
            streamed: 0,
            queued: 0,
            serving_queue: false,
            place: 0,
            blocked: 0,
            stopping: false,
            received: vec![0; sidecore_client::abi::pool::SLAB].into_boxed_slice(),
            step: Vec::new(),
            plan: Box::default(),
            spare_plans: Vec::new(),
            spare_buffers: Vec::new(),
        }
    }

    /// Bytes came; the first ones on a connection are its accept, whatever the accept's own event says later.
    pub(super) fn received(&mut self, connection: &mut Connection, event: &Event) {
        if connection.state == State::Waiting {
            self.accepted(connection);
        }
        connection.ended |= event.end();
        match connection.state {
            State::Lingering | State::Closing => {
                self.lane.return_chunk(event);
                if connection.ended && connection.state == State::Lingering {
                    self.close(connection);
                }
            }
            _ if connection.leaving.is_some() => self.lane.return_chunk(event),
            _ if connection.pending.is_some() => connection.waiting.push_back(*event),
            _ => self.take_in(connection, event),
        }
    }

    /// The connection is there.
    pub(super) fn accepted(&mut self, connection: &mut Connection) {
        connection.state = State::Open;
        connection.active = self.site.clock.monotonic;
        self.site.counters.accepted.add(1);
        // The last, short segment of an answer is not to wait for an acknowledgement.
        let set = self.lane.set_option(connection.dti, Opt::NoDelay, 1, 0, 0);
        connection.no_delay = set.is_ok();
    }

    /// Answers what an event's bytes complete.
    fn take_in(&mut self, connection: &mut Connection, event: &Event) {
        let mut received = take(&mut self.received);
        let len = self.ual.pool().read(event, &mut received);
        self.lane.return_chunk(event);
        let input = received.get(..len).unwrap_or_default();
        if connection.partial.is_empty() {
            let used = self.answer(connection, input);
            if let Some(rest) = input.get(used..).filter(|rest| !rest.is_empty())
                && connection.state == State::Open
            {
                connection.partial = self.spare_buffers.pop().unwrap_or_default();
                connection.partial.extend_from_slice(rest);
            }
        } else {
            let seen = connection.partial.len();
            connection.partial.extend_from_slice(input);
            let short = connection.partial.len() < self.site.max_head();
            if !short || may_be_complete(&connection.partial, seen) {
                self.answer_kept(connection);
            }
        }
        self.received = received;
        self.close_if_done(connection);
    }

    /// Answers requests that were kept.
    fn answer_kept(&mut self, connection: &mut Connection) {
        let mut input = take(&mut connection.partial);
        let used = self.answer(connection, &input);
        if used < input.len() && connection.state == State::Open {
            input.drain(..used);
            connection.partial = input;
        } else {
            self.give_back_buffer(input);
        }
    }

    /// Answers the requests in `input` until the connection has enough under way; returns the bytes used.
    fn answer(&mut self, connection: &mut Connection, input: &[u8]) -> usize {
        let mut used = 0;
        loop {
            self.plan.clear();
            let rest = input.get(used..).unwrap_or_default();
            let served = self.site.serve(&connection.peer, rest, &mut self.plan);
            used += served.consumed;
            connection.next = served.next;
            if served.requests == 0 {
                return used;
            }
            connection.active = self.site.clock.monotonic;
            self.send(connection);
            let goes_on = connection.pending.is_none() && connection.state == State::Open;
            if !goes_on || served.next != Next::Again {
                return used;
            }
        }
    }

    /// Sends the plan, and puts aside what cannot be sent now.
    fn send(&mut self, connection: &mut Connection) {
        let mut plan = take(&mut self.plan);
        match self.send_pieces(connection, &mut plan) {
            Ok(()) => {
                plan.clear();
                self.plan = plan;
                match connection.next {
                    Next::Read | Next::Again => {}
                    Next::Close => self.close(connection),
                    Next::Linger => self.linger(connection),
                }
            }
            Err(Stopped::Broken) => {
                plan.clear();
                self.plan = plan;
                self.site.counters.broken.add(1);
                self.abort(connection);
            }
            Err(stopped) => {
                // Where nothing is under way, no event will come to go on with.
                connection.starved |=
                    matches!(stopped, Stopped::Starved) || connection.under_way.is_empty();
                self.plan = self.spare_plans.pop().unwrap_or_default();
                connection.pending = Some(plan);
                self.blocked += 1;
            }
        }
    }

    fn send_pieces(
        &mut self,
        connection: &mut Connection,
        plan: &mut Plan<RegionEdition>,
    ) -> Result<(), Stopped> {
        if !connection.no_delay {
            // The last, short segment of an answer is not to wait for an acknowledgement.
            self.lane
                .set_option(connection.dti, Opt::NoDelay, 1, 0, 0)?;
            connection.no_delay = true;
        }
        while let Some(piece) = plan.pieces().first() {
            if connection.bytes_under_way >= UNDER_WAY || connection.under_way.len() >= SENDS {
                return Err(Stopped::Enough);
            }
            let more = plan.pieces().len() > 1;
            let sent = match piece {
                Piece::Made { start, len } => {
                    let bytes = plan.made_bytes(*start, *len);
                    self.send_made(connection, bytes, more)?
                }
                Piece::File {
                    edition,
                    start,
                    len,
                } => self.send_file(connection, edition, *start, *len, more)?,
            };
            plan.advance(sent);
        }
        Ok(())
    }

    /// Sends bytes that are nowhere but in the plan.
    fn send_made(
        &mut self,
        connection: &mut Connection,
        bytes: &[u8],
        more: bool,
    ) -> Result<u64, Stopped> {
        if bytes.len() as u64 <= PLACE_BYTES {
            if self.lane.free() == 0 {
                return Err(Stopped::Starved);
            }
            let at = self.place % PLACES * PLACE_BYTES;
            let extent = self.put(at, bytes)?;
            let flags = flags::COPY | if more { flags::MORE } else { 0 };
            self.lane.send(connection.dti, extent, flags, 0)?;
            self.place += 1;
            self.site.counters.bytes_sent.add(bytes.len() as u64);
            return Ok(bytes.len() as u64);
        }
        let part = bytes
            .get(..bytes.len().min(SEND as usize))
            .unwrap_or_default();
        let more = more || part.len() < bytes.len();
        let block = self
            .room
            .allocate(part.len() as u64)
            .ok_or(Stopped::Starved)?;
        let extent = self.put(block.offset(), part)?;
        self.post(connection, extent, more, Held::Block(block))
    }

    fn put(&self, at: u64, bytes: &[u8]) -> Result<Extent, Stopped> {
        self.region
            .write(at, bytes)
            .and_then(|()| self.region.extent(at, bytes.len() as u32))
            .map_err(|_| Stopped::Broken)
    }

    fn send_file(
        &mut self,
        connection: &mut Connection,
        edition: &Rc<RegionEdition>,
        start: u64,
        len: u64,
        more: bool,
    ) -> Result<u64, Stopped> {
        if let RegionEdition::Open(file) = &**edition {
            return self.send_part(connection, file, start, len, more);
        }
        let count = len.min(SEND);
        let extent = edition
            .extent(&self.region, start, count)
            .ok_or(Stopped::Broken)?;
        let held = Held::Edition(Rc::clone(edition));
        self.post(connection, extent, more || count < len, held)
    }

    /// Posts a send of memory that is held until the engine says that the peer has it.
    #[inline]
    fn post(
        &mut self,
        connection: &mut Connection,
        extent: Extent,
        more: bool,
        held: Held,
    ) -> Result<u64, Stopped> {
        let cookie = connection.cookie + 1;
        let notify = cookie - connection.notified >= NOTIFY
            || extent.len >= NOTIFY_FROM
            || matches!(held, Held::Block(_) | Held::Stream(_));
        let mut flags = if more { flags::MORE } else { 0 };
        if notify {
            flags |= flags::NOTIFY;
        }
        self.lane.send(connection.dti, extent, flags, cookie)?;
        connection.cookie = cookie;
        if notify {
            connection.notified = cookie;
        }
        connection.under_way.push_back(UnderWay {
            cookie,
            len: extent.len,
            held,
        });
        connection.bytes_under_way += u64::from(extent.len);
        self.site.counters.bytes_sent.add(u64::from(extent.len));
        Ok(u64::from(extent.len))
    }

    /// The peer has everything up to a send: lets its memory go, and goes on.
    pub(super) fn sent(&mut self, connection: &mut Connection, cookie: u64) {
        while let Some(front) = connection.under_way.front()
            && front.cookie <= cookie
            && let Some(done) = connection.under_way.pop_front()
        {
            connection.bytes_under_way -= u64::from(done.len);
            if matches!(done.held, Held::Stream(_)) {
                self.unstream(connection, u64::from(done.len));
            }
        }
        connection.active = self.site.clock.monotonic;
        if connection.state == State::Open {
            self.go_on(connection);
        }
    }

    /// Does what waited: answers that were put aside, then requests behind them.
    pub(super) fn go_on(&mut self, connection: &mut Connection) {
        if let Some(how) = connection.leaving {
            return self.leave(connection, how);
        }
        if let Some(plan) = self.unblock(connection) {
            let unused = replace(&mut self.plan, plan);
            self.give_back_plan(unused);
            self.send(connection);
        }
        while connection.pending.is_none() && connection.state == State::Open {
            if connection.next == Next::Again && !connection.partial.is_empty() {
                self.answer_kept(connection);
            } else if let Some(event) = connection.waiting.pop_front() {
                self.take_in(connection, &event);
            } else {
                break;
            }
        }
        self.close_if_done(connection);
    }

    /// Takes what waits on a connection.
    fn unblock(&mut self, connection: &mut Connection) -> Option<Box<Plan<RegionEdition>>> {
        let plan = connection.pending.take();
        self.blocked -= usize::from(plan.is_some());
        plan
    }

    fn close_if_done(&mut self, connection: &mut Connection) {
        if connection.ended && !connection.is_busy() && connection.state == State::Open {
            self.close(connection);
        }
    }

    /// FIN behind what is queued, and what comes is dropped until the peer closes too: closing over unread bytes would reset the connection
    /// under the answer.
    fn linger(&mut self, connection: &mut Connection) {
        if connection.ended {
            return self.close(connection);
        }
        match self.lane.shutdown(connection.dti, shutdown::WRITE, 0, 0) {
            Ok(()) => {
                self.drop_input(connection);
                connection.state = State::Lingering;
            }
            // The lane is full: the answer may be lost to a reset, which is better than to wait for ever.
            Err(_) => self.close(connection),
        }
    }

    fn drop_input(&mut self, connection: &mut Connection) {
        let partial = take(&mut connection.partial);
        self.give_back_buffer(partial);
        for event in connection.waiting.drain(..) {
            self.lane.return_chunk(&event);
        }
        connection.waiting = VecDeque::new();
    }

    /// Closes: what the engine has still goes out.
    pub(super) fn close(&mut self, connection: &mut Connection) {
        if self.stopping && connection.state == State::Open && connection.leaving.is_none() {
            // If it is not posted, or refused, the end comes with Closed or with the grace time.
            let _ = self
                .lane
                .shutdown(connection.dti, shutdown::WRITE, flags::NOTIFY, ALL_SENT);
        }
        self.leave(connection, Lane::close);
    }

    /// Resets.
    pub(super) fn abort(&mut self, connection: &mut Connection) {
        self.leave(connection, Lane::abort);
    }

    fn leave(&mut self, connection: &mut Connection, how: Leave) {
        if connection.state == State::Closing {
            return;
        }
        self.drop_input(connection);
        if let Some(plan) = self.unblock(connection) {
            self.give_back_plan(plan);
        }
        match how(&mut self.lane, connection.dti, 0) {
            Ok(()) => {
                if connection.state != State::Waiting {
                    self.site.counters.closed.add(1);
                }
                connection.state = State::Closing;
            }
            Err(_) => {
                connection.leaving = Some(how);
                connection.starved = true;
            }
        }
    }

    fn give_back_plan(&mut self, mut plan: Box<Plan<RegionEdition>>) {
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
