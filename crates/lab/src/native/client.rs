//! An echo client on the native API, in a closed or an open loop: one request outstanding on each connection.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Instant;

use anyhow::{Context, bail};
use sidecore_client::{COPY_MAX, Dti, Event, EventKind, Region, Status};

use super::{Application, COMMANDS, Client, Ends};
use crate::load::arrivals::{Arrivals, Schedule};
use crate::load::latency::Recorder;
use crate::load::worker::{Counts, MAX_PENDING, Window};

/// Cookie of everything whose answer does not matter.
const NONE: u64 = u64::MAX;

/// How long answers may trickle in after the end of an open loop's window, in nanoseconds.
const GRACE: u64 = 1_000_000_000;

/// A connection, by the index of its DTI.
#[derive(Clone, Default)]
struct Connection {
    /// When the outstanding request was due; none: idle.
    asked: Option<u64>,
    received: u32,
    /// Open loop: due times of requests that wait for this connection.
    pending: VecDeque<u64>,
}

/// The client.
pub struct EchoClient {
    ends: Ends,
    region: Region,
    message: Vec<u8>,
    answer: Vec<u8>,
    dtis: Vec<Dti>,
    connections: Vec<Connection>,
    connected: usize,
    start: Instant,
    begin: u64,
    end: u64,
    arrivals: Arrivals,
    schedule: Option<Schedule>,
    /// Whose turn it is in an open loop.
    turn: usize,
    /// Requests of the window that are due and unanswered.
    owed: u64,
    /// Requests that found too many waiting.
    dropped: u64,
    completed: u64,
    latency: Recorder,
}

impl EchoClient {
    /// Asks for `count` connections to `server` from `ends`, for messages of `bytes` bytes, which lie in `region`. They come up as the
    /// engine turns: see [`Self::is_connected`].
    pub fn new(
        mut ends: Ends,
        region: Region,
        server: SocketAddr,
        count: usize,
        bytes: usize,
    ) -> anyhow::Result<Self> {
        let message: Vec<u8> = (0..bytes.max(1)).map(|i| (i % 251) as u8).collect();
        region.write(0, &message)?;
        let mut dtis = Vec::with_capacity(count);
        for _ in 0..count {
            let dti = ends.lane.create_stream(&ends.queue, &ends.queue)?;
            ends.lane.connect(dti, server, NONE)?;
            dtis.push(dti);
        }
        ends.lane.flush();
        let indexes = ends.ual.granted().dtis as usize;
        Ok(Self {
            ends,
            region,
            answer: vec![0; message.len()],
            message,
            dtis,
            connections: vec![Connection::default(); indexes],
            connected: 0,
            start: Instant::now(),
            begin: u64::MAX,
            end: u64::MAX,
            arrivals: Arrivals::Closed,
            schedule: None,
            turn: 0,
            owed: 0,
            dropped: 0,
            completed: 0,
            latency: Recorder::new(),
        })
    }

    /// Asks as these arrivals say from now on, not in a closed loop.
    pub fn with(mut self, arrivals: Arrivals) -> Self {
        self.arrivals = arrivals;
        self
    }

    #[inline]
    fn now(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }

    /// Open loop: sends what is due, or lets it wait for its connection. Whether there was anything.
    fn send_due(&mut self) -> anyhow::Result<bool> {
        let mut any = false;
        while let Some(schedule) = &mut self.schedule {
            let due = schedule.due();
            let now = self.start.elapsed().as_nanos() as u64;
            if due >= self.end || due > now || !self.ends.lane.has_room(COMMANDS) {
                break;
            }
            schedule.advance();
            any = true;
            let dti = self.dtis[self.turn];
            self.turn = (self.turn + 1) % self.dtis.len();
            let Some(connection) = self.connections.get_mut(dti.index()) else {
                bail!("a DTI that was never made");
            };
            if connection.pending.len() >= MAX_PENDING {
                self.dropped += 1;
                continue;
            }
            self.owed += u64::from(due >= self.begin);
            match connection.asked {
                Some(_) => connection.pending.push_back(due),
                None => self.ask(dti, due)?,
            }
        }
        Ok(any)
    }

    #[inline]
    fn ask(&mut self, dti: Dti, now: u64) -> anyhow::Result<()> {
        if let Some(connection) = self.connections.get_mut(dti.index()) {
            connection.asked = Some(now);
            connection.received = 0;
        }
        let len = self.message.len() as u32;
        let extent = self.region.extent(0, len)?;
        if len <= COPY_MAX {
            self.ends.lane.send_copy(dti, extent, 0, NONE)?;
        } else {
            self.ends.lane.send(dti, extent, 0, NONE)?;
        }
        Ok(())
    }

    fn handle(&mut self, event: &Event) -> anyhow::Result<()> {
        match event.kind {
            EventKind::Received => self.received(event),
            EventKind::Connected if event.status == Status::Ok => {
                self.connected += 1;
                Ok(())
            }
            EventKind::Connected => bail!("connect: {:?}", event.status),
            EventKind::Closed => bail!("a connection ended: {:?}", event.status),
            _ if event.status != Status::Ok => bail!("{:?}: {:?}", event.kind, event.status),
            _ => Ok(()),
        }
    }

    #[inline]
    fn received(&mut self, event: &Event) -> anyhow::Result<()> {
        let dti = Dti::from(event.dti);
        let Some(connection) = self.connections.get_mut(dti.index()) else {
            bail!("an event for a DTI that was never made");
        };
        let from = connection.received as usize;
        let to = from + event.len() as usize;
        let Some(expected) = self.message.get(from..to) else {
            bail!("more came back than was sent");
        };
        let answer = &mut self.answer[..expected.len()];
        if self.ends.ual.pool().read(event, answer) != expected.len() || answer != expected {
            bail!("not what was sent came back");
        }
        self.ends.lane.return_chunk(event);
        connection.received = to as u32;
        if to < self.message.len() {
            return Ok(());
        }
        let (asked, waiting) = (connection.asked.take(), connection.pending.pop_front());
        let asked = asked.context("an answer without a request")?;
        let now = self.now();
        if (self.begin..self.end).contains(&now) {
            self.completed += 1;
        }
        if (self.begin..self.end).contains(&asked) {
            self.latency.record(now.saturating_sub(asked));
            self.owed = self.owed.saturating_sub(1);
        }
        match (waiting, &self.schedule) {
            (Some(due), _) => self.ask(dti, due),
            (None, Some(_)) => Ok(()),
            (None, None) => self.ask(dti, now),
        }
    }
}

impl Client for EchoClient {
    /// Whether all connections are up.
    fn is_connected(&self) -> bool {
        self.connected == self.dtis.len()
    }

    /// Begins: in a closed loop with a request on every connection. Answers inside the window are counted.
    fn begin(&mut self, window: Window) -> anyhow::Result<()> {
        self.start = window.start;
        self.begin = window.begin.duration_since(window.start).as_nanos() as u64;
        self.end = window.end.duration_since(window.start).as_nanos() as u64;
        self.schedule = Schedule::new(self.arrivals);
        if self.schedule.is_none() {
            for number in 0..self.dtis.len() {
                self.ask(self.dtis[number], 0)?;
            }
        }
        self.ends.lane.flush();
        Ok(())
    }

    /// Whether the window is over, and in an open loop all its requests are answered.
    fn is_over(&self) -> bool {
        let now = self.now();
        let all_sent = self.schedule.as_ref().is_none_or(|s| s.due() >= self.end);
        now >= self.end && (all_sent && self.owed == 0 || now >= self.end + GRACE)
    }

    /// What was counted.
    fn counted(self) -> Counts {
        let bytes = self.completed * self.message.len() as u64;
        Counts {
            completed: self.completed,
            bytes_in: bytes,
            bytes_out: bytes,
            latency: self.latency,
            unanswered: self.owed,
            dropped: self.dropped,
            ..Counts::default()
        }
    }
}

impl Application for EchoClient {
    #[inline]
    fn step(&mut self) -> anyhow::Result<usize> {
        let mut taken = 0;
        let limit = self.ends.limit() as usize;
        while taken < limit {
            let Some(event) = self.ends.take() else {
                break;
            };
            taken += 1;
            self.handle(&event)?;
        }
        let sent = self.schedule.is_some() && self.send_due()?;
        if taken > 0 || sent {
            self.ends.lane.flush();
        }
        Ok(taken)
    }
}
