//! One connection and a script: this comes in, exactly these segments go out, and then nothing.
//!
//! Positions are stream offsets: data starts at 0, the SYN is at -1. A segment says only what matters ([`Seg`]): coming in,
//! what it leaves open continues what came before; going out, it is not looked at.

use std::time::Duration;

use sidecore_tcp::{
    CloseReason, Config, Connection, Instant, Outcome, RangePool, State, TimeoutOutcome, TxLimits,
};
use sidecore_wire::{
    FastOpenCookie, SackBlock, SeqNumber, TcpFlags, TcpHeader, TcpOptions, Timestamps,
    UnscaledWindow, WindowScale,
};

pub const ISS: SeqNumber = SeqNumber(0xffff_ff00);
pub const IRS: SeqNumber = SeqNumber(0x7fff_ff80);
pub const MSS: u16 = 1000;

/// A segment, as far as the test cares.
#[derive(Clone, Debug, Default)]
pub struct Seg {
    flags: TcpFlags,
    seq: Option<i64>,
    ack: Option<i64>,
    len: u32,
    window: Option<u16>,
    timestamps: Option<(u32, u32)>,
    sack: Vec<(i64, i64)>,
    mss: Option<u16>,
    scale: Option<u8>,
    sack_permitted: bool,
    push: Option<bool>,
    any_options: bool,
    ecn: Option<u8>,
    urgent: Option<u16>,
    fast_open: Option<FastOpenCookie>,
}

/// A SYN.
pub fn syn() -> Seg {
    Seg {
        flags: TcpFlags::SYN,
        seq: Some(-1),
        mss: Some(MSS),
        ..Seg::default()
    }
}

/// A SYN that acknowledges the other's.
pub fn syn_ack() -> Seg {
    Seg {
        flags: TcpFlags::SYN | TcpFlags::ACK,
        ack: Some(0),
        ..syn()
    }
}

/// An ACK.
pub fn ack(ack: i64) -> Seg {
    Seg {
        flags: TcpFlags::ACK,
        ack: Some(ack),
        ..Seg::default()
    }
}

/// Data.
pub fn data(seq: i64, len: u32) -> Seg {
    Seg {
        flags: TcpFlags::ACK,
        seq: Some(seq),
        len,
        ..Seg::default()
    }
}

/// A FIN at this offset.
pub fn fin(seq: i64) -> Seg {
    Seg {
        flags: TcpFlags::ACK | TcpFlags::FIN,
        seq: Some(seq),
        ..Seg::default()
    }
}

/// A RST without ACK.
pub fn rst(seq: i64) -> Seg {
    Seg {
        flags: TcpFlags::RST,
        seq: Some(seq),
        ..Seg::default()
    }
}

/// A RST with ACK.
pub fn rst_ack(seq: i64, ack: i64) -> Seg {
    Seg {
        flags: TcpFlags::RST | TcpFlags::ACK,
        seq: Some(seq),
        ack: Some(ack),
        ..Seg::default()
    }
}

impl Seg {
    pub fn seq(mut self, seq: i64) -> Self {
        self.seq = Some(seq);
        self
    }
    pub fn ack(mut self, ack: i64) -> Self {
        self.flags |= TcpFlags::ACK;
        self.ack = Some(ack);
        self
    }
    pub fn window(mut self, window: u16) -> Self {
        self.window = Some(window);
        self
    }
    pub fn timestamps(mut self, value: u32, echo: u32) -> Self {
        self.timestamps = Some((value, echo));
        self
    }
    pub fn sack(mut self, blocks: &[(i64, i64)]) -> Self {
        self.sack = blocks.to_vec();
        self
    }
    pub fn mss(mut self, mss: Option<u16>) -> Self {
        self.mss = mss;
        self
    }
    pub fn scale(mut self, scale: u8) -> Self {
        self.scale = Some(scale);
        self
    }
    pub fn sack_permitted(mut self) -> Self {
        self.sack_permitted = true;
        self
    }
    pub fn push(mut self, push: bool) -> Self {
        self.push = Some(push);
        self
    }
    pub fn fin(mut self) -> Self {
        self.flags |= TcpFlags::FIN;
        self
    }
    pub fn flags(mut self, flags: TcpFlags) -> Self {
        self.flags = flags;
        self
    }
    pub fn with(mut self, flags: TcpFlags) -> Self {
        self.flags |= flags;
        self
    }
    pub fn any_options(mut self) -> Self {
        self.any_options = true;
        self
    }
    pub fn fast_open(mut self, cookie: &[u8]) -> Self {
        self.fast_open = FastOpenCookie::new(cookie);
        self
    }
    pub fn urgent(mut self, pointer: u16) -> Self {
        self.flags |= TcpFlags::URG;
        self.urgent = Some(pointer);
        self
    }
    pub fn len(mut self, len: u32) -> Self {
        self.len = len;
        self
    }
    /// The ECN field of its IP header.
    pub fn ecn(mut self, codepoint: u8) -> Self {
        self.ecn = Some(codepoint);
        self
    }
}

/// A connection under test, in virtual time.
pub struct Script {
    pub connection: Connection,
    pub ranges: RangePool,
    pub now: Instant,
    pub tx: TxLimits,
    pub room: bool,
    pub last: Outcome,
    iss: SeqNumber,
    irs: SeqNumber,
    /// The peer's next sequence number, last acknowledgment and window.
    peer_seq: i64,
    peer_ack: i64,
    peer_window: u16,
    peer_timestamp: Option<u32>,
}

/// No timestamps, no SACK, no scaling, no Nagle: tests switch on what they are about.
pub fn plain() -> Config {
    Config {
        mss: MSS,
        timestamps: false,
        sack: false,
        window_scale: None,
        no_delay: true,
        mtu_probing: sidecore_tcp::MtuProbing::Off,
        congestion: sidecore_tcp::Algorithm::NewReno,
        ..Config::default()
    }
}

pub const START: Instant = Instant::from_secs(100);
/// The receive buffer of scripts.
pub const BUFFER: u64 = 10_000;
/// The peer's window in scripts.
pub const WINDOW: u16 = 20_000;

impl Script {
    fn wrap(connection: Connection, iss: SeqNumber, irs: SeqNumber) -> Self {
        let mut script = Self {
            connection,
            ranges: RangePool::new(1024),
            now: START,
            tx: TxLimits::default(),
            room: true,
            last: Outcome::default(),
            iss,
            irs,
            peer_seq: 0,
            peer_ack: 0,
            peer_window: WINDOW,
            peer_timestamp: None,
        };
        script.connection.set_receive_limit(BUFFER);
        script
    }

    /// SYN-SENT, the SYN not yet sent.
    pub fn connect(config: &Config) -> Self {
        Self::wrap(Connection::connect(START, config, ISS), ISS, IRS)
    }

    /// SYN-RECEIVED, the SYN-ACK not yet sent.
    pub fn accept(config: &Config, syn: Seg) -> Self {
        Self::accept_at(config, syn, ISS, IRS)
    }

    pub fn accept_at(config: &Config, syn: Seg, iss: SeqNumber, irs: SeqNumber) -> Self {
        let mut header = TcpHeader {
            seq: irs,
            flags: syn.flags,
            window: UnscaledWindow(syn.window.unwrap_or(WINDOW)),
            ..TcpHeader::default()
        };
        header.options = options(&syn, irs, None);
        let mut script = Self::wrap(Connection::accept(START, config, iss, &header), iss, irs);
        script.peer_window = header.window.0;
        script.peer_timestamp = syn.timestamps.map(|(value, _)| value);
        script
    }

    /// ESTABLISHED, opened by the peer with this SYN.
    pub fn established_with(config: &Config, syn: Seg) -> Self {
        let mut script = Self::accept(config, syn);
        assert!(script.poll().is_some(), "a SYN-ACK");
        script.recv(ack(0));
        assert!(script.last.established);
        script.sends([]);
        script
    }

    /// ESTABLISHED, with a round trip of this length measured.
    pub fn established_over(config: &Config, syn: Seg, round_trip: Duration) -> Self {
        let mut script = Self::accept(config, syn);
        assert!(script.poll().is_some(), "a SYN-ACK");
        script.pass(round_trip);
        script.recv(ack(0));
        assert!(script.last.established);
        script
    }

    /// ESTABLISHED, without options.
    pub fn established() -> Self {
        Self::established_with(&plain(), syn())
    }

    /// ESTABLISHED, with SACK.
    pub fn with_sack() -> Self {
        let config = Config {
            sack: true,
            ..plain()
        };
        Self::established_with(&config, syn().sack_permitted())
    }

    pub fn state(&self) -> State {
        self.connection.state()
    }

    /// A segment from the peer.
    pub fn recv(&mut self, seg: Seg) -> Outcome {
        let seq = seg.seq.unwrap_or(self.peer_seq);
        if seg.flags.contains(TcpFlags::ACK) {
            self.peer_ack = seg.ack.unwrap_or(self.peer_ack);
        }
        self.peer_window = seg.window.unwrap_or(self.peer_window);
        let has_ack = seg.flags.contains(TcpFlags::ACK);
        let mut header = TcpHeader {
            seq: at(self.irs, seq),
            ack: if has_ack {
                at(self.iss, self.peer_ack)
            } else {
                SeqNumber(0)
            },
            flags: seg.flags,
            window: UnscaledWindow(self.peer_window),
            urgent: seg.urgent.unwrap_or(0),
            ..TcpHeader::default()
        };
        let timestamps = seg.timestamps.map(|(value, _)| value);
        self.peer_timestamp = self.peer_timestamp.and(timestamps.or(self.peer_timestamp));
        header.options = options(&seg, self.iss, self.peer_timestamp);
        let fin = i64::from(seg.flags.contains(TcpFlags::FIN));
        if !seg.flags.contains(TcpFlags::RST) {
            self.peer_seq = self.peer_seq.max(seq + i64::from(seg.len) + fin);
        }
        let handle = if seg.ecn == Some(sidecore_wire::ecn::CE) {
            Connection::handle_marked_segment
        } else {
            Connection::handle_segment
        };
        self.last = handle(
            &mut self.connection,
            self.now,
            &header,
            seg.len,
            self.room,
            &mut self.ranges,
        );
        self.connection.check_invariants(&self.ranges);
        self.last
    }

    fn poll(&mut self) -> Option<(TcpHeader, u32, u8)> {
        let segment = self
            .connection
            .poll_transmit(self.now, &self.tx, &mut self.ranges)?;
        self.connection.check_invariants(&self.ranges);
        let len = segment.payload.end - segment.payload.start;
        assert!(segment.header.len() <= 60);
        if len > 0 {
            // The payload's place agrees with the sequence number.
            let syn = i64::from(segment.header.flags.contains(TcpFlags::SYN));
            let seq = from(self.iss, segment.header.seq) + syn;
            assert_eq!(seq as u64, segment.payload.start);
        }
        Some((segment.header, len as u32, segment.ecn))
    }

    /// Whatever goes out, goes out.
    pub fn poll_any(&mut self) {
        while self.poll().is_some() {}
    }

    /// Exactly these segments go out, and then nothing.
    #[track_caller]
    pub fn sends<const N: usize>(&mut self, expected: [Seg; N]) {
        for (number, expected) in expected.into_iter().enumerate() {
            let wants = self.connection.wants_transmit();
            let Some((header, len, ecn)) = self.poll() else {
                panic!("segment {number}: nothing, expected {expected:?}");
            };
            assert!(
                wants,
                "segment {number} was not announced by wants_transmit"
            );
            self.compare(number, &expected, &header, len);
            if let Some(expected) = expected.ecn {
                assert_eq!(ecn, expected, "ECN field of segment {number}: {header:?}");
            }
        }
        let wants = self.connection.wants_transmit();
        if let Some((header, len, _)) = self.poll() {
            panic!("one more: {header:?} with {len} bytes");
        }
        assert!(
            !wants || !self.connection.wants_transmit(),
            "announced by wants_transmit, but nothing goes out"
        );
    }

    #[track_caller]
    fn compare(&self, number: usize, expected: &Seg, header: &TcpHeader, len: u32) {
        let seq = from(self.iss, header.seq);
        let ack = from(self.irs, header.ack);
        let shown = format!("segment {number}: {expected:?}, was seq {seq} ack {ack} {header:?}");
        let push = TcpFlags::PSH;
        assert_eq!(
            header.flags.difference(push),
            expected.flags.difference(push),
            "flags of {shown}"
        );
        if let Some(push_expected) = expected.push {
            assert_eq!(header.flags.contains(push), push_expected, "PSH of {shown}");
        }
        assert_eq!(len, expected.len, "length of {shown}");
        if let Some(expected) = expected.seq {
            assert_eq!(seq, expected, "SEQ of {shown}");
        }
        if let Some(expected) = expected.ack {
            assert_eq!(ack, expected, "ACK of {shown}");
        }
        if let Some(window) = expected.window {
            assert_eq!(header.window.0, window, "window of {shown}");
        }
        if let Some((value, echo)) = expected.timestamps {
            let timestamps = Some(Timestamps { value, echo });
            assert_eq!(header.options.timestamps, timestamps, "{shown}");
        }
        let sack: Vec<_> = header
            .options
            .sack
            .iter()
            .map(|block| (from(self.irs, block.start), from(self.irs, block.end)))
            .collect();
        assert_eq!(sack, expected.sack, "SACK of {shown}");
        assert_eq!(
            header.urgent,
            expected.urgent.unwrap_or(0),
            "urgent pointer of {shown}"
        );
        if expected.flags.contains(TcpFlags::SYN) && !expected.any_options {
            assert_eq!(header.options.fast_open, expected.fast_open, "{shown}");
            assert_eq!(header.options.mss, expected.mss, "{shown}");
            let scale = header.options.window_scale.map(WindowScale::shift);
            assert_eq!(scale, expected.scale, "{shown}");
            assert_eq!(
                header.options.sack_permitted, expected.sack_permitted,
                "{shown}"
            );
            let timestamps = header.options.timestamps.is_some();
            assert_eq!(timestamps, expected.timestamps.is_some(), "{shown}");
        }
    }

    /// The application has written up to `end`.
    pub fn write(&mut self, end: u64) {
        self.connection.set_send_limit(end);
    }

    /// Time passes, and no timer is due within it.
    #[track_caller]
    pub fn quiet(&mut self, duration: Duration) {
        let until = self.now + duration;
        if let Some(next) = self.connection.next_timeout() {
            assert!(
                next > until,
                "a timer after {:?}",
                next.duration_since(self.now)
            );
        }
        self.now = until;
    }

    /// Time passes without regard to timers.
    pub fn pass(&mut self, duration: Duration) {
        self.now += duration;
    }

    /// The next timer fires. Returns how long that took.
    #[track_caller]
    pub fn fire(&mut self) -> Duration {
        self.fire_timer().0
    }

    #[track_caller]
    pub fn fire_timer(&mut self) -> (Duration, TimeoutOutcome) {
        let next = self.connection.next_timeout().expect("a timer");
        let took = next.duration_since(self.now);
        self.now = self.now.max(next);
        let outcome = self.connection.handle_timeout(self.now, &mut self.ranges);
        self.connection.check_invariants(&self.ranges);
        (took, outcome)
    }

    /// The next timer ends the connection.
    #[track_caller]
    pub fn fire_closes(&mut self, reason: CloseReason) {
        let (_, outcome) = self.fire_timer();
        assert_eq!(outcome.closed, Some(reason));
        assert_eq!(self.state(), State::Closed);
    }

    #[track_caller]
    pub fn no_timer(&self) {
        assert_eq!(self.connection.next_timeout(), None);
    }
}

fn at(base: SeqNumber, offset: i64) -> SeqNumber {
    base.add(1).add(offset as u32)
}

fn from(base: SeqNumber, seq: SeqNumber) -> i64 {
    i64::from(seq.distance_from(base.add(1)) as i32)
}

fn options(seg: &Seg, sack_base: SeqNumber, timestamp: Option<u32>) -> TcpOptions {
    let timestamps = seg
        .timestamps
        .map(|(value, echo)| Timestamps { value, echo })
        .or(timestamp.map(|value| Timestamps { value, echo: 0 }));
    TcpOptions {
        mss: seg.mss,
        window_scale: seg.scale.map(WindowScale::new),
        sack_permitted: seg.sack_permitted,
        timestamps,
        sack: seg
            .sack
            .iter()
            .map(|&(start, end)| SackBlock {
                start: at(sack_base, start),
                end: at(sack_base, end),
            })
            .collect(),
        fast_open: seg.fast_open,
    }
}

pub const MS: Duration = Duration::from_millis(1);

pub const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

pub const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}
