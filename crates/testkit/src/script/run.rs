//! Runs a script's events.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use sidecore_tcp::Instant;

use super::calls::Pending;
use super::flow::{Flows, matches};
use super::settings::Settings;
use super::syntax::{Action, Event, Packet, Place, When};
use super::{Failure, assert};
use crate::sockets::number::{IPPROTO_TCP, tcp};
use crate::sockets::{Fd, SentPacket, Sockets};

/// When scripts begin.
const START: Instant = Instant::from_secs(1000);
/// How long is waited for a packet that may come at any time.
const LONG: u64 = 24 * 3600 * 1_000_000;

pub(super) struct Runner {
    pub(super) sockets: Sockets,
    pub(super) flows: Flows,
    /// Descriptors: the script's and ours.
    pub(super) fds: BTreeMap<i64, Fd>,
    /// Bytes that were read and written.
    pub(super) read: BTreeMap<Fd, u64>,
    pub(super) written: BTreeMap<Fd, u64>,
    /// The descriptor whose TCP_INFO is asserted about.
    pub(super) under_test: Option<Fd>,
    /// A call that blocks.
    pub(super) pending: Option<Pending>,
    /// What left and was not expected yet.
    sent: VecDeque<SentPacket>,
    /// When the event before was due.
    before: u64,
    tolerance: u64,
}

/// Microseconds as a script writes them.
pub(super) fn seconds(micros: u64) -> String {
    format!("{}.{:06}", micros / 1_000_000, micros % 1_000_000)
}

impl Runner {
    pub(super) fn new(settings: &Settings, six: bool) -> Self {
        Self {
            sockets: Sockets::new(&settings.sockets, START),
            flows: Flows::new(Settings::hosts(six), settings.remote_isn),
            fds: BTreeMap::new(),
            read: BTreeMap::new(),
            written: BTreeMap::new(),
            under_test: None,
            pending: None,
            sent: VecDeque::new(),
            before: 0,
            tolerance: settings.tolerance_us,
        }
    }

    /// Microseconds since the script's start.
    pub(super) fn now(&self) -> u64 {
        self.sockets.now().duration_since(START).as_micros() as u64
    }

    fn at(micros: u64) -> Instant {
        START + Duration::from_micros(micros)
    }

    pub(super) fn collect(&mut self) {
        self.sent.extend(self.sockets.take_packets());
    }

    /// Lets time pass, at most until then, and stops after the first thing that happens.
    fn step(&mut self, until: u64) -> Result<(), Failure> {
        let limit = Self::at(until);
        let next = self.sockets.next_timeout().unwrap_or(limit);
        self.sockets
            .advance(next.min(limit).max(self.sockets.now()));
        self.collect();
        self.retry()
    }

    fn advance(&mut self, until: u64) -> Result<(), Failure> {
        while self.now() < until {
            self.step(until)?;
        }
        Ok(())
    }

    pub(super) fn run(&mut self, events: &[Event]) -> Result<(), Failure> {
        for event in events {
            self.event(event)?;
        }
        let Some(last) = events.last() else {
            return Ok(());
        };
        if let Some(pending) = &self.pending {
            self.advance(pending.until + self.tolerance)?;
        }
        if let Some(pending) = self.pending.take() {
            return pending.overdue();
        }
        self.nothing_else(&last.place, u64::MAX)
    }

    /// Fails if something left before then that nobody expected.
    fn nothing_else(&mut self, place: &Place, before: u64) -> Result<(), Failure> {
        let early = |packet: &&SentPacket| packet.at < Self::at(before);
        let Some(packet) = self.sent.front().filter(early).cloned() else {
            return Ok(());
        };
        let text = self.describe(&packet);
        Err(Failure::new(place, format!("not expected: {text}")))
    }

    fn event(&mut self, event: &Event) -> Result<(), Failure> {
        let (from, to) = match event.when {
            When::Relative(after) => (self.before + after, self.before + after),
            When::Absolute(at) => (at, at),
            When::Any => (self.now(), self.now() + LONG),
            When::RelativeRange(a, b) => (self.before + a, self.before + b),
            When::AbsoluteRange(a, b) => (a, b),
        };
        if let Action::Outbound(expected) = &event.action {
            let at = self.outbound(&event.place, expected, (from, to), event.when)?;
            let exact = matches!(event.when, When::Relative(_) | When::Absolute(_));
            self.before = if exact { from } else { at };
            return Ok(());
        }
        self.advance(from)?;
        self.nothing_else(&event.place, from.saturating_sub(self.tolerance))?;
        let now = self.sockets.now();
        let done = match &event.action {
            Action::Inbound(packet) => match self.flows.inbound(packet) {
                Ok(bytes) => {
                    self.sockets.receive(now, &bytes);
                    Ok(())
                }
                Err(message) => Err(message),
            },
            Action::Call(call) => self.call(&event.place, call, from),
            Action::Code(block) => self.code(block),
            Action::Outbound(_) => Ok(()),
        };
        done.map_err(|message| Failure::new(&event.place, message))?;
        self.collect();
        self.retry()?;
        self.before = from;
        Ok(())
    }

    /// Waits for a packet; returns when it left.
    fn outbound(
        &mut self,
        place: &Place,
        expected: &Packet,
        (from, to): (u64, u64),
        when: When,
    ) -> Result<u64, Failure> {
        let last = to + self.tolerance;
        while self.sent.is_empty() && self.now() < last {
            if when == When::Any && self.sockets.next_timeout().is_none() {
                break;
            }
            self.step(last)?;
        }
        let Some(sent) = self.sent.pop_front() else {
            let waited = seconds(self.now());
            let message = format!("no packet until {waited}\n  expected: > {expected}");
            return Err(Failure::new(place, message));
        };
        let at = sent.at.duration_since(START).as_micros() as u64;
        let actual = self.flows.outbound(&sent.bytes, expected);
        let ticks = (self.tolerance / 1000) as u32 + 1;
        let wrong = match &actual {
            Ok(actual) => !matches(actual, expected, ticks),
            Err(_) => true,
        };
        let early = when != When::Any && at + self.tolerance < from;
        if !(wrong || early || at > last) {
            return Ok(at);
        }
        let actual = actual.map_or_else(
            |message| format!("{message}: {}", self.describe(&sent)),
            |actual| format!("{} > {actual}", seconds(at)),
        );
        let due = match when {
            When::Any => "*".to_string(),
            _ if from == to => seconds(from),
            _ => format!("{}~{}", seconds(from), seconds(to)),
        };
        let what = if wrong {
            "another packet"
        } else {
            "at another time"
        };
        let message = format!("{what}\n  expected: {due} > {expected}\n    actual: {actual}");
        Err(Failure::new(place, message))
    }

    /// A packet that nobody expected, as a script would write it.
    fn describe(&mut self, packet: &SentPacket) -> String {
        let at = packet.at.duration_since(START).as_micros() as u64;
        let anything = super::anything();
        match self.flows.outbound(&packet.bytes, &anything) {
            Ok(actual) => format!("{} > {actual}", seconds(at)),
            Err(message) => format!("{} > {} bytes: {message}", seconds(at), packet.bytes.len()),
        }
    }

    fn code(&mut self, block: &str) -> Result<(), String> {
        let info = match self.under_test {
            Some(fd) => self.sockets.option(fd, IPPROTO_TCP, tcp::INFO, 1024),
            None => Ok(Vec::new()),
        };
        let counters = self.sockets.stack().counters();
        let counter = |name: &str| {
            let mut all = counters.iter();
            all.find_map(|(known, value)| (known == name).then_some(value as i64))
        };
        assert::run(block, &info.unwrap_or_default(), counter)
    }

    fn retry(&mut self) -> Result<(), Failure> {
        let Some(pending) = self.pending.take() else {
            return Ok(());
        };
        let (place, until) = (pending.place.clone(), pending.until);
        let outcome = self.attempt(pending);
        self.collect();
        let failed = |message| Failure::new(&place, message);
        let now = self.now();
        match outcome.map_err(failed)? {
            Some(pending) if now > until + self.tolerance => pending.overdue(),
            Some(pending) => {
                self.pending = Some(pending);
                Ok(())
            }
            None if now + self.tolerance < until => Err(failed(format!(
                "returned at {}, expected at {}",
                seconds(now),
                seconds(until)
            ))),
            None => Ok(()),
        }
    }
}
