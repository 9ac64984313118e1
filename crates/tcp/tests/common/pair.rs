//! Two connections in virtual time, joined by a link that loses, delays, reorders and duplicates, repeatable from a seed.
//!
//! Payload is real bytes here: each side's stream is a function of the offset, and what arrives is compared with it.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use sidecore_tcp::{
    CloseReason, Config, Connection, Instant, RangePool, State, TxLimits, TxSegment,
};
use sidecore_wire::{SeqNumber, TcpFlags, TcpHeader};

/// SplitMix64: small, seeded, good enough to pick losses.
#[derive(Clone, Debug)]
pub struct Rng(pub u64);

impl Rng {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `n`.
    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n.max(1)
    }

    pub fn chance(&mut self, per_mille: u32) -> bool {
        self.below(1000) < u64::from(per_mille)
    }
}

/// The byte at `offset` of the stream that `side` sends.
pub fn stream_byte(side: usize, offset: u64) -> u8 {
    let x = (offset ^ (side as u64) << 40).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (x >> 56) as u8
}

/// The link in one direction.
#[derive(Clone, Debug)]
pub struct Link {
    pub delay: Duration,
    /// Extra delay up to this, at random for each packet: reorders.
    pub jitter: Duration,
    /// Lost, duplicated: per mille.
    pub loss: u32,
    pub duplicate: u32,
    /// Bytes per second; 0: no limit.
    pub rate: u64,
    /// Packets that may wait for the rate; beyond it they are dropped.
    pub queue: usize,
}

impl Default for Link {
    fn default() -> Self {
        Self {
            delay: Duration::from_millis(5),
            jitter: Duration::ZERO,
            loss: 0,
            duplicate: 0,
            rate: 0,
            queue: 1000,
        }
    }
}

/// What the application at one end does.
#[derive(Clone, Debug)]
pub struct App {
    /// Bytes to send.
    pub total: u64,
    /// Bytes that are written and not acknowledged, at most.
    pub send_buffer: u64,
    /// The largest single write; writes are of random length up to it.
    pub write: u64,
    pub receive_buffer: u64,
    /// Per mille of the turns in which the application reads.
    pub reads: u32,
    /// Close the stream when all is written.
    pub shutdown: bool,
    /// Super-segments.
    pub tso: u32,
}

impl Default for App {
    fn default() -> Self {
        Self {
            total: 0,
            send_buffer: 256 * 1024,
            write: 64 * 1024,
            receive_buffer: 256 * 1024,
            reads: 1000,
            shutdown: true,
            tso: 64 * 1024,
        }
    }
}

pub struct End {
    pub side: usize,
    pub connection: Connection,
    pub ranges: RangePool,
    pub app: App,
    pub written: u64,
    pub consumed: u64,
    received: Vec<u8>,
    /// What of `received` was stored.
    stored: Vec<bool>,
    /// Everything before is checked.
    checked: u64,
    pub fin: bool,
    pub established: bool,
    pub closed: Option<CloseReason>,
    pub retransmissions: u64,
    pub segments_sent: u64,
    rng: Rng,
}

impl End {
    pub fn new(side: usize, connection: Connection, app: App, seed: u64) -> Self {
        Self {
            side,
            connection,
            ranges: RangePool::new(512),
            app,
            written: 0,
            consumed: 0,
            received: Vec::new(),
            stored: Vec::new(),
            checked: 0,
            fin: false,
            established: false,
            closed: None,
            retransmissions: 0,
            segments_sent: 0,
            rng: Rng(seed),
        }
    }

    fn segment(&mut self, now: Instant, header: &TcpHeader, payload: &[u8]) {
        let room = true;
        let outcome = self.connection.handle_segment(
            now,
            header,
            payload.len() as u32,
            room,
            &mut self.ranges,
        );
        self.connection.check_invariants(&self.ranges);
        if let Some(range) = outcome.accept {
            assert!(range.len > 0);
            let from = range.payload_offset as usize;
            let bytes = &payload[from..from + range.len as usize];
            self.store(range.stream_offset, bytes);
        }
        self.established |= outcome.established;
        if outcome.fin {
            assert!(!self.fin, "one FIN");
            self.fin = true;
        }
        assert_eq!(self.fin, self.connection.fin_received());
        if let Some(reason) = outcome.closed {
            self.note_closed(reason);
        }
        self.check_received();
    }

    fn note_closed(&mut self, reason: CloseReason) {
        assert_eq!(self.connection.state(), State::Closed);
        assert!(self.closed.replace(reason).is_none(), "closed once");
    }

    fn store(&mut self, offset: u64, bytes: &[u8]) {
        let limit = self.consumed + self.app.receive_buffer;
        let end = offset + bytes.len() as u64;
        assert!(end <= limit, "stored beyond the buffer: {end} > {limit}");
        if self.received.len() < end as usize {
            self.received.resize(end as usize, 0);
            self.stored.resize(end as usize, false);
        }
        let range = offset as usize..end as usize;
        self.received[range.clone()].copy_from_slice(bytes);
        self.stored[range].fill(true);
    }

    /// What is in order was stored, and is what the peer sent.
    fn check_received(&mut self) {
        let next = self.connection.receive_next();
        for offset in self.checked..next {
            assert!(self.stored[offset as usize], "a hole at {offset}");
            assert_eq!(
                self.received[offset as usize],
                stream_byte(1 - self.side, offset),
                "wrong byte at {offset}"
            );
        }
        self.checked = next;
    }

    /// The application's turn.
    fn application(&mut self) {
        let una = self.connection.send_una();
        while self.written < self.app.total && self.written - una < self.app.send_buffer {
            let room = self.app.send_buffer - (self.written - una);
            let len = 1 + self.rng.below(self.app.write);
            self.written += len.min(room).min(self.app.total - self.written);
        }
        self.connection.set_send_limit(self.written);
        if self.app.shutdown && self.written == self.app.total && self.established {
            self.connection.shutdown_send();
        }
        let available = self.connection.receive_next() - self.consumed;
        if available > 0 && self.rng.chance(self.app.reads) {
            self.consumed += 1 + self.rng.below(available);
        }
        self.connection
            .set_receive_limit(self.consumed + self.app.receive_buffer);
    }

    pub fn received(&self) -> u64 {
        self.connection.receive_next()
    }
}

struct Packet {
    at: Instant,
    number: u64,
    to: usize,
    bytes: Vec<u8>,
}

impl PartialEq for Packet {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}
impl Eq for Packet {}
impl PartialOrd for Packet {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Packet {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.key().cmp(&other.key())
    }
}
impl Packet {
    fn key(&self) -> (Instant, u64) {
        (self.at, self.number)
    }
}

pub struct Pair {
    pub now: Instant,
    pub ends: [End; 2],
    /// By sender.
    pub links: [Link; 2],
    /// Super-segments are cut into segments on the way (and not coalesced again).
    pub cut: bool,
    pub rng: Rng,
    free_at: [Instant; 2],
    flying: BinaryHeap<Reverse<Packet>>,
    number: u64,
    pub trace: bool,
    /// Timers fire at multiples of this, late.
    pub timer_granularity: Duration,
    /// Decides about each packet: sender, header, payload bytes, time.
    pub fate: Option<Box<FateOf>>,
}

/// See [`Pair::fate`].
pub type FateOf = dyn FnMut(usize, &TcpHeader, usize, Instant) -> Fate;

/// What becomes of a packet besides what the link does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    Arrives,
    Lost,
    /// So much later than others.
    Late(Duration),
}

/// The first tick that is not before a time.
fn tick_after(at: Instant, tick: Duration) -> Instant {
    match tick.as_nanos() as u64 {
        0 => at,
        nanos => Instant::from_nanos(at.as_nanos().next_multiple_of(nanos)),
    }
}

pub const START: Instant = Instant::from_secs(1000);

impl Pair {
    /// Side 0 opens; side 1 accepts when the SYN comes.
    pub fn new(seed: u64, configs: [Config; 2], apps: [App; 2], links: [Link; 2]) -> Self {
        let mut rng = Rng(seed);
        let iss = [SeqNumber(rng.next() as u32), SeqNumber(rng.next() as u32)];
        Self::with_iss(seed, configs, apps, links, iss)
    }

    pub fn with_iss(
        seed: u64,
        configs: [Config; 2],
        apps: [App; 2],
        links: [Link; 2],
        iss: [SeqNumber; 2],
    ) -> Self {
        let mut rng = Rng(seed ^ 0x5eed);
        let now = START;
        let [app0, app1] = apps;
        let mut client = Connection::connect(now, &configs[0], iss[0]);
        client.set_receive_limit(app0.receive_buffer);
        let ranges = &mut RangePool::new(0);
        let syn = client
            .poll_transmit(now, &TxLimits::default(), ranges)
            .expect("a SYN");
        let mut server = Connection::accept(now, &configs[1], iss[1], &syn.header);
        server.set_receive_limit(app1.receive_buffer);
        Self {
            now,
            ends: [
                End::new(0, client, app0, rng.next()),
                End::new(1, server, app1, rng.next()),
            ],
            links,
            cut: false,
            rng,
            free_at: [now; 2],
            flying: BinaryHeap::new(),
            number: 0,
            trace: false,
            timer_granularity: Duration::ZERO,
            fate: None,
        }
    }

    fn transmit(&mut self, side: usize) {
        let end = &mut self.ends[side];
        let tx = TxLimits {
            max_segments_bytes: end.app.tso,
        };
        let mut out = Vec::new();
        while let Some(segment) = end.connection.poll_transmit(self.now, &tx, &mut end.ranges) {
            end.connection.check_invariants(&end.ranges);
            end.segments_sent += 1;
            end.retransmissions += u64::from(segment.retransmission);
            assert!(segment.payload.end <= end.written);
            out.push(segment);
            assert!(out.len() < 10_000, "poll_transmit does not end");
        }
        assert!(
            !end.connection.wants_transmit() || end.connection.state() == State::Closed,
            "wants to transmit, but does not: {:?}",
            end.connection
        );
        for segment in out {
            self.submit(side, &segment);
        }
    }

    fn submit(&mut self, side: usize, segment: &TxSegment) {
        let len = segment.payload.end - segment.payload.start;
        let size = u64::from(segment.segment_size);
        let mut start = segment.payload.start;
        loop {
            let piece = if self.cut {
                size.min(segment.payload.end - start)
            } else {
                len
            };
            let end = start + piece;
            let mut header = segment.header;
            header.seq = header.seq.add((start - segment.payload.start) as u32);
            if end != segment.payload.end {
                header.flags.remove(TcpFlags::FIN | TcpFlags::PSH);
            }
            let mut bytes = vec![0; header.len()];
            header.emit(&mut bytes);
            assert!(
                !self.cut || bytes.len() as u64 + piece <= 1480,
                "larger than the MTU"
            );
            bytes.extend((start..end).map(|offset| stream_byte(side, offset)));
            self.fly(side, bytes);
            start = end;
            if start == segment.payload.end {
                break;
            }
        }
    }

    fn fly(&mut self, side: usize, bytes: Vec<u8>) {
        let link = &self.links[side];
        if self.trace {
            let (header, offset) = TcpHeader::parse(&bytes).unwrap();
            eprintln!(
                "{:9} us {side}> {:?} seq {} ack {} win {} len {} {:?}",
                self.now.as_micros() - START.as_micros(),
                header.flags,
                header.seq,
                header.ack,
                header.window.0,
                bytes.len() - offset,
                header.options.sack,
            );
        }
        let mut late = Duration::ZERO;
        if let Some(fate) = &mut self.fate {
            let (header, offset) = TcpHeader::parse(&bytes).expect("a header");
            match fate(side, &header, bytes.len() - offset, self.now) {
                Fate::Arrives => {}
                Fate::Lost => return,
                Fate::Late(by) => late = by,
            }
        }
        if self.rng.chance(link.loss) {
            return;
        }
        let copies = 1 + usize::from(self.rng.chance(link.duplicate));
        for _ in 0..copies {
            let mut at = self.now;
            let nanos = bytes.len() as u64 * 1_000_000_000;
            if let Some(nanos) = nanos.checked_div(link.rate) {
                let take = Duration::from_nanos(nanos);
                let start = self.free_at[side].max(at);
                if start.duration_since(at) > take * link.queue as u32 {
                    continue;
                }
                self.free_at[side] = start + take;
                at = self.free_at[side];
            }
            let jitter = self.rng.below(link.jitter.as_nanos() as u64 + 1);
            at += link.delay + late + Duration::from_nanos(jitter);
            self.number += 1;
            self.flying.push(Reverse(Packet {
                at,
                number: self.number,
                to: 1 - side,
                bytes: bytes.clone(),
            }));
        }
    }

    fn timer_tick(&self, at: Instant) -> Instant {
        tick_after(at, self.timer_granularity)
    }

    /// One event: a packet arrives or a timer fires. False when nothing is left to happen.
    pub fn step(&mut self) -> bool {
        for side in 0..2 {
            self.ends[side].application();
            self.transmit(side);
        }
        let packet = self.flying.peek().map(|packet| packet.0.at);
        let timers = self
            .ends
            .iter()
            .filter_map(|end| end.connection.next_timeout())
            .min()
            .map(|at| self.timer_tick(at));
        let Some(next) = packet.into_iter().chain(timers).min() else {
            return false;
        };
        self.now = self.now.max(next);
        while let Some(Reverse(packet)) = self.flying.peek()
            && packet.at <= self.now
        {
            let Some(Reverse(packet)) = self.flying.pop() else {
                break;
            };
            let (header, offset) = TcpHeader::parse(&packet.bytes).expect("a header");
            self.ends[packet.to].segment(self.now, &header, &packet.bytes[offset..]);
        }
        for end in &mut self.ends {
            let due = end.connection.next_timeout();
            if due.is_some_and(|at| tick_after(at, self.timer_granularity) <= self.now) {
                let outcome = end.connection.handle_timeout(self.now, &mut end.ranges);
                end.connection.check_invariants(&end.ranges);
                if let Some(reason) = outcome.closed {
                    end.note_closed(reason);
                }
            }
        }
        true
    }

    /// Runs until both connections are closed (or nothing happens any more), at most `steps` events.
    pub fn run(&mut self, steps: usize) {
        for _ in 0..steps {
            if !self.step() {
                return;
            }
        }
        panic!(
            "not over after {steps} steps at {:?}:\n{:?}\n{:?}",
            self.now - START,
            self.ends[0].connection,
            self.ends[1].connection
        );
    }

    /// Until the predicate holds.
    pub fn run_until(&mut self, steps: usize, mut done: impl FnMut(&Self) -> bool) {
        for _ in 0..steps {
            if done(self) {
                return;
            }
            assert!(self.step(), "nothing left to happen");
        }
        panic!("not after {steps} steps");
    }

    pub fn elapsed(&self) -> Duration {
        self.now - START
    }

    /// Both streams arrived whole, both sides saw the end, nothing is held.
    pub fn assert_delivered(&mut self) {
        for side in 0..2 {
            let (end, other) = (&self.ends[side], &self.ends[1 - side]);
            assert_eq!(end.received(), other.app.total, "side {side} received");
            assert!(end.fin, "side {side} saw the end");
            assert_eq!(end.closed, Some(CloseReason::Normal), "side {side}");
            assert_eq!(other.connection.send_una(), other.app.total);
        }
        for end in &mut self.ends {
            end.connection.release(&mut end.ranges);
            assert_eq!(end.ranges.available(), end.ranges.capacity());
        }
    }
}
