//! A connection against a peer and an application that do anything: bytes are read as operations.
//!
//! Used with random bytes by `tests/chaos.rs`, and with the fuzzer's by the fuzz target `tcp_segments`.

use std::time::Duration;

use sidecore_tcp::{
    Algorithm, Config, Connection, IcmpKind, Instant, Keepalive, Outcome, RangePool, State,
    TxLimits,
};
use sidecore_wire::{
    SackBlock, SeqNumber, TcpFlags, TcpHeader, TcpOptions, Timestamps, UnscaledWindow, WindowScale,
};

/// How much of a stream is followed byte by byte.
const FOLLOWED: usize = 1 << 17;
/// Segments from one turn; far more than any window has.
const MANY: usize = 100_000;

struct Bytes<'a>(&'a [u8]);

impl Bytes<'_> {
    fn u8(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else {
            return 0;
        };
        self.0 = rest;
        *first
    }

    fn u16(&mut self) -> u16 {
        u16::from_le_bytes([self.u8(), self.u8()])
    }

    fn u32(&mut self) -> u32 {
        u32::from(self.u16()) << 16 | u32::from(self.u16())
    }

    /// Mostly near 0, sometimes anywhere.
    fn distance(&mut self) -> u32 {
        match self.u8() {
            0..=99 => 0,
            100..=139 => u32::from(self.u8()),
            140..=199 => u32::from(self.u16()),
            200..=219 => 0u32.wrapping_sub(u32::from(self.u16())),
            220..=239 => 0u32.wrapping_sub(u32::from(self.u8())),
            _ => self.u32(),
        }
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// The world of one connection.
struct Chaos {
    connection: Connection,
    ranges: RangePool,
    now: Instant,
    tx: TxLimits,
    iss: SeqNumber,
    irs: SeqNumber,
    written: u64,
    receive_limit: u64,
    stored: Vec<bool>,
    sent: u64,
    timestamp: u32,
    over: bool,
}

/// Runs the operations that `bytes` spell, and panics at the first contradiction.
pub fn run(bytes: &[u8]) {
    let mut bytes = Bytes(bytes);
    let mut chaos = Chaos::new(&mut bytes);
    let mut steps = 0;
    while !bytes.is_empty() && !chaos.over && steps < 4000 {
        chaos.step(&mut bytes);
        chaos.check();
        steps += 1;
    }
    chaos.connection.release(&mut chaos.ranges);
    assert_eq!(chaos.ranges.available(), chaos.ranges.capacity());
}

fn config(bytes: &mut Bytes<'_>) -> Config {
    let bits = bytes.u8();
    Config {
        mss: [1460, 536, 65_495, 100][usize::from(bits & 3)],
        congestion: match bits & (4 | 128) {
            4 => Algorithm::NewReno,
            132 => Algorithm::Bbr,
            _ => Algorithm::Cubic,
        },
        pacing: bits & 48 == 48,
        max_pacing_rate: (bits & 192 == 64).then_some(50_000),
        timestamps: bits & 8 != 0,
        sack: bits & 16 != 0,
        no_delay: bits & 32 != 0,
        window_scale: (bits & 64 != 0).then(|| WindowScale::new(bits >> 4)),
        keepalive: (bits & 128 != 0).then(Keepalive::default),
        ..Config::default()
    }
}

impl Chaos {
    fn new(bytes: &mut Bytes<'_>) -> Self {
        let config = config(bytes);
        let now = Instant::from_secs(1000);
        let iss = SeqNumber(bytes.u32());
        let irs = SeqNumber(bytes.u32());
        let connection = if bytes.u8() & 1 == 0 {
            Connection::connect(now, &config, iss)
        } else {
            let syn = TcpHeader {
                seq: irs,
                flags: TcpFlags::SYN,
                window: UnscaledWindow(bytes.u16()),
                options: syn_options(bytes),
                ..TcpHeader::default()
            };
            Connection::accept(now, &config, iss, &syn)
        };
        let mut chaos = Self {
            connection,
            ranges: RangePool::new(usize::from(bytes.u8()) * 2),
            now,
            tx: TxLimits {
                max_segments_bytes: u32::from(bytes.u16()),
            },
            iss,
            irs,
            written: 0,
            receive_limit: 0,
            stored: vec![false; FOLLOWED],
            sent: 0,
            timestamp: 1,
            over: false,
        };
        chaos.grant(bytes.u16().into());
        chaos.transmit();
        chaos
    }

    fn step(&mut self, bytes: &mut Bytes<'_>) {
        match bytes.u8() {
            0..=159 => self.segment(bytes),
            160..=179 => self.write(bytes),
            180..=189 => self.grant(bytes.u16().into()),
            190..=199 => self.transmit(),
            200..=205 => self.timeout(bytes),
            206..=219 => {
                self.write(bytes);
                self.transmit();
            }
            220..=229 => self.settings(bytes),
            230..=235 => self.end(bytes),
            236..=239 => self.take_over(),
            240..=245 => self.icmp(bytes),
            _ => self.now += Duration::from_micros(u64::from(bytes.u16())),
        }
    }

    fn end(&mut self, bytes: &mut Bytes<'_>) {
        match bytes.u8() {
            0..=9 => self.connection.shutdown_send(),
            10..=12 => self.connection.close(),
            13 => {
                self.connection.abort(self.now);
                self.transmit();
                assert_eq!(self.connection.state(), State::Closed);
                self.over = true;
            }
            _ => {}
        }
    }

    fn write(&mut self, bytes: &mut Bytes<'_>) {
        self.written += u64::from(bytes.u16());
        self.connection.set_send_limit(self.written);
    }

    fn grant(&mut self, more: u64) {
        let edge = self.connection.receive_next() + more;
        self.receive_limit = self.receive_limit.max(edge);
        self.connection.set_receive_limit(edge);
    }

    fn settings(&mut self, bytes: &mut Bytes<'_>) {
        let value = bytes.u8();
        let on = value & 1 == 0;
        match value >> 1 & 7 {
            0 => self.connection.set_push(on),
            1 => self.connection.set_cork(on),
            2 => self.connection.set_no_delay(on),
            3 => self.connection.set_keepalive(on.then(Keepalive::default)),
            4 => {
                let timeout = on.then(|| Duration::from_secs(value.into()));
                self.connection.set_user_timeout(timeout);
            }
            5 => {
                // Of what is written, or is to be written next.
                let end = self.written + u64::from(value >> 6);
                self.connection.set_urgent(end);
            }
            _ => self
                .connection
                .set_delayed_ack(Duration::from_millis(value.into())),
        }
    }

    fn icmp(&mut self, bytes: &mut Bytes<'_>) {
        let seq = self.iss.add(1 + self.connection.send_una() as u32);
        let seq = seq.add(bytes.distance());
        let kind = match bytes.u8() & 3 {
            0 => IcmpKind::HostUnreachable,
            1 => IcmpKind::PortUnreachable,
            _ => IcmpKind::FragmentationNeeded { mtu: bytes.u16() },
        };
        self.over |= self.connection.handle_icmp(self.now, seq, kind).is_some();
    }

    fn take_over(&mut self) {
        let snapshot = self.connection.snapshot(&self.ranges);
        self.connection.release(&mut self.ranges);
        self.connection =
            Connection::restore(&snapshot, self.now, self.now, &mut self.ranges).expect("restored");
    }

    fn timeout(&mut self, bytes: &mut Bytes<'_>) {
        let Some(next) = self.connection.next_timeout() else {
            return;
        };
        self.now = self.now.max(next) + Duration::from_micros(u64::from(bytes.u8()));
        let outcome = self.connection.handle_timeout(self.now, &mut self.ranges);
        self.over |= outcome.closed.is_some();
        self.transmit();
    }

    fn segment(&mut self, bytes: &mut Bytes<'_>) {
        let fin = u64::from(self.connection.fin_received());
        let expected = self
            .irs
            .add(1 + (self.connection.receive_next() + fin) as u32);
        let una = self.iss.add(1 + self.connection.send_una() as u32);
        let kind = bytes.u8();
        let mut header = TcpHeader {
            seq: expected.add(bytes.distance()),
            ack: una.add(bytes.distance()),
            flags: TcpFlags::ACK,
            window: UnscaledWindow(bytes.u16()),
            ..TcpHeader::default()
        };
        if kind & 1 != 0 {
            // What was sent last is acknowledged.
            header.ack = self.iss.add(1 + self.connection.send_nxt() as u32);
        }
        match kind >> 3 {
            0..=19 => {}
            20 if bytes.u8() < 20 => header.flags |= TcpFlags::FIN,
            24 => {
                header.flags = TcpFlags::from_bits(bytes.u16());
                if bytes.u8() > 10 {
                    header.flags.remove(TcpFlags::RST);
                }
            }
            21 | 22 => {
                header.flags |= TcpFlags::URG;
                header.urgent = bytes.u16();
            }
            25 => header.flags |= TcpFlags::SYN,
            26 => {
                header.flags |= TcpFlags::RST;
                header.seq = expected.add(bytes.u16().into());
            }
            27 => {
                header.flags = TcpFlags::SYN;
                header.seq = self.irs;
            }
            28 | 29 => {
                header.flags = TcpFlags::SYN | TcpFlags::ACK;
                header.seq = self.irs;
            }
            _ => {}
        }
        if header.flags.contains(TcpFlags::SYN) {
            header.options = syn_options(bytes);
        } else {
            header.options = self.options(bytes, kind, una);
        }
        let len = match bytes.u8() {
            0..=99 => 0,
            100..=199 => u32::from(bytes.u8()),
            200..=250 => u32::from(bytes.u16()),
            _ => bytes.u32(),
        };
        let room = kind & 4 == 0;
        let before = self.connection.receive_next();
        let outcome =
            self.connection
                .handle_segment(self.now, &header, len, room, &mut self.ranges);
        self.judge(&outcome, len, room, before);
        if kind & 2 != 0 {
            self.transmit();
        }
    }

    fn options(&mut self, bytes: &mut Bytes<'_>, kind: u8, una: SeqNumber) -> TcpOptions {
        let mut options = TcpOptions::default();
        if bytes.u8() > 10 {
            self.timestamp = self.timestamp.wrapping_add(bytes.distance());
            options.timestamps = Some(Timestamps {
                value: self.timestamp,
                echo: bytes.u32(),
            });
        }
        if kind & 64 != 0 {
            for _ in 0..bytes.u8() & 3 {
                // Mostly of segments that may have been sent.
                let unit = u32::from(self.connection.effective_mss());
                let start = una.add(u32::from(bytes.u8() & 15) * unit);
                let len = match bytes.u8() {
                    len @ 0..=199 => u32::from(len & 3) * unit,
                    _ => bytes.distance(),
                };
                let end = start.add(len);
                options.sack.push(SackBlock { start, end });
            }
        }
        options
    }

    /// What an outcome says must be possible.
    fn judge(&mut self, outcome: &Outcome, len: u32, room: bool, before: u64) {
        if let Some(range) = outcome.accept {
            assert!(range.len > 0);
            assert!(range.payload_offset.checked_add(range.len).unwrap() <= len);
            let end = range.stream_offset + u64::from(range.len);
            assert!(end <= self.receive_limit, "stored beyond the buffer");
            assert!(range.in_order || room, "no room");
            assert_eq!(range.in_order, range.stream_offset == before);
            for offset in range.stream_offset..end.min(FOLLOWED as u64) {
                self.stored[offset as usize] = true;
            }
        }
        for offset in before..self.connection.receive_next().min(FOLLOWED as u64) {
            assert!(self.stored[offset as usize], "never stored: {offset}");
        }
        if outcome.closed.is_some() {
            assert_eq!(self.connection.state(), State::Closed);
            self.over = true;
            self.transmit();
        }
    }

    /// Everything that is due goes out, and that is not endless.
    fn transmit(&mut self) {
        for _ in 0..MANY {
            let segment = self
                .connection
                .poll_transmit(self.now, &self.tx, &mut self.ranges);
            let Some(segment) = segment else {
                assert!(!self.connection.wants_transmit(), "{:?}", self.connection);
                return;
            };
            let range = segment.payload;
            assert!(range.start <= range.end && range.end <= self.written);
            assert!(range.start <= self.sent, "a gap in what is sent");
            assert!(segment.retransmission || range.start == range.end || range.start == self.sent);
            self.sent = self.sent.max(range.end);
            assert!(segment.header.len() <= 60);
            assert!(segment.segment_size > 0);
            let urgent = segment.header.flags.contains(TcpFlags::URG);
            assert_eq!(urgent, segment.header.urgent > 0);
            let size = u64::from(segment.segment_size);
            assert!(!urgent || range.end - range.start <= size, "to be cut");
            if range.start < range.end {
                let seq = self.iss.add(1 + range.start as u32);
                assert_eq!(segment.header.seq, seq);
            }
        }
        panic!("transmits without end: {:?}", self.connection);
    }

    fn check(&self) {
        self.connection.check_invariants(&self.ranges);
        assert!(self.connection.send_una() <= self.connection.send_nxt());
        assert!(self.connection.send_nxt() <= self.written);
        assert!(self.connection.receive_next() <= self.receive_limit);
        if self.over {
            assert_eq!(self.connection.state(), State::Closed);
            assert_eq!(self.connection.next_timeout(), None);
        }
    }
}

fn syn_options(bytes: &mut Bytes<'_>) -> TcpOptions {
    let bits = bytes.u8();
    TcpOptions {
        mss: (bits & 1 != 0).then(|| bytes.u16()),
        window_scale: (bits & 2 != 0).then(|| WindowScale::new(bits >> 4)),
        sack_permitted: bits & 4 != 0,
        timestamps: (bits & 8 != 0).then_some(Timestamps { value: 1, echo: 0 }),
        ..TcpOptions::default()
    }
}
