//! A client on the native API whose connections come and go: each exchange opens a connection, sends one message, gets it back, and
//! closes. So many are under way at a time.

use std::net::SocketAddr;
use std::time::Instant;

use anyhow::bail;
use sidecore_client::{Dti, Event, EventKind, Region, Status};

use super::{Application, Client, Ends};
use crate::load::latency::Recorder;
use crate::load::worker::{Counts, Window};

/// Cookie of everything whose answer does not matter.
const NONE: u64 = u64::MAX;

/// How often a refused or broken connection may be tried again, for each one that is under way at a time.
const TRIES: u64 = 100;

/// An exchange under way, by the index of its DTI.
#[derive(Clone, Copy, Default)]
struct Exchange {
    /// None: over, or not yet begun.
    dti: Option<Dti>,
    began: u64,
    received: usize,
}

/// The client.
pub struct ChurnClient {
    ends: Ends,
    region: Region,
    targets: Vec<SocketAddr>,
    /// Takes the targets in turn.
    next: usize,
    /// Exchanges at a time.
    count: usize,
    bytes: usize,
    exchanges: Vec<Exchange>,
    start: Instant,
    begin: u64,
    end: u64,
    counts: Counts,
}

impl ChurnClient {
    /// A client of servers at `targets`, for messages of `bytes` bytes, which lie in `region`. It connects when it begins.
    pub fn new(
        ends: Ends,
        region: Region,
        targets: Vec<SocketAddr>,
        count: usize,
        bytes: usize,
    ) -> anyhow::Result<Self> {
        if targets.is_empty() {
            bail!("no address to connect to");
        }
        let indexes = ends.ual.granted().dtis as usize;
        Ok(Self {
            ends,
            region,
            targets,
            next: 0,
            count,
            bytes: bytes.max(1),
            exchanges: vec![Exchange::default(); indexes],
            start: Instant::now(),
            begin: u64::MAX,
            end: u64::MAX,
            counts: Counts {
                latency: Recorder::new(),
                ..Counts::default()
            },
        })
    }

    fn now(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }

    fn open(&mut self) -> anyhow::Result<()> {
        let target = self.targets[self.next % self.targets.len()];
        self.next = self.next.wrapping_add(1);
        let began = self.now();
        let dti = self
            .ends
            .lane
            .create_stream(&self.ends.queue, &self.ends.queue)?;
        if let Some(exchange) = self.exchanges.get_mut(dti.index()) {
            *exchange = Exchange {
                dti: Some(dti),
                began,
                received: 0,
            };
        }
        Ok(self.ends.lane.connect(dti, target, NONE)?)
    }

    /// Ends the exchange of this DTI, if it is under way, and begins the next. Whether it was.
    fn finish(&mut self, dti: Dti) -> anyhow::Result<bool> {
        let exchange = self.exchanges.get_mut(dti.index());
        let Some(exchange) = exchange.filter(|exchange| exchange.dti == Some(dti)) else {
            return Ok(false);
        };
        exchange.dti = None;
        self.ends.lane.close(dti, NONE)?;
        self.open()?;
        Ok(true)
    }

    /// A connection was refused or broke: counted, and tried again.
    fn again(&mut self, dti: Dti, status: Status) -> anyhow::Result<()> {
        if self.finish(dti)? {
            self.counts.reconnects += 1;
            if self.counts.reconnects > TRIES * self.count as u64 {
                bail!("connections are refused or break again and again: {status:?}");
            }
        }
        Ok(())
    }

    fn handle(&mut self, event: &Event) -> anyhow::Result<()> {
        let dti = Dti::from(event.dti);
        match event.kind {
            EventKind::Received => self.received(dti, event),
            EventKind::Connected if event.status == Status::Ok => {
                let extent = self.region.extent(0, self.bytes as u32)?;
                Ok(self.ends.lane.send_copy(dti, extent, 0, NONE)?)
            }
            EventKind::Connected | EventKind::Closed => self.again(dti, event.status),
            _ => Ok(()),
        }
    }

    fn received(&mut self, dti: Dti, event: &Event) -> anyhow::Result<()> {
        let (len, over) = (event.len() as usize, event.end());
        self.ends.lane.return_chunk(event);
        let Some(exchange) = self.exchanges.get_mut(dti.index()) else {
            bail!("an event for a DTI that was never made");
        };
        if exchange.dti != Some(dti) {
            return Ok(());
        }
        exchange.received += len;
        let began = exchange.began;
        if exchange.received < self.bytes {
            return if over {
                self.again(dti, event.status)
            } else {
                Ok(())
            };
        }
        self.finish(dti)?;
        let now = self.now();
        if (self.begin..self.end).contains(&now) {
            self.counts.completed += 1;
        }
        if (self.begin..self.end).contains(&began) {
            self.counts.latency.record(now.saturating_sub(began));
        }
        Ok(())
    }
}

impl Client for ChurnClient {
    fn is_connected(&self) -> bool {
        true
    }

    fn begin(&mut self, window: Window) -> anyhow::Result<()> {
        self.start = window.start;
        self.begin = window.begin.duration_since(window.start).as_nanos() as u64;
        self.end = window.end.duration_since(window.start).as_nanos() as u64;
        for _ in 0..self.count {
            self.open()?;
        }
        self.ends.lane.flush();
        Ok(())
    }

    fn is_over(&self) -> bool {
        self.now() >= self.end
    }

    fn counted(self) -> Counts {
        self.counts
    }
}

impl Application for ChurnClient {
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
        if taken > 0 {
            self.ends.lane.flush();
        }
        Ok(taken)
    }
}
