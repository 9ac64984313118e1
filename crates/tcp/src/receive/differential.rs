//! What header prediction and the shortcut for plain ACKs make of a segment, beside what the general steps make of it: the same.
//!
//! Two ends talk over a bad link in virtual time. Each segment that arrives, and variants of it that a forger or an old path might bring, goes to
//! copies of the control block; what comes of it is compared, and what goes out next. And whole talks are compared, segment by segment.

use core::cell::Cell;
use core::time::Duration;
use std::collections::BTreeSet;

use serde_json::Value;
use sidecore_wire::{SackBlock, SeqNumber, TcpFlags, TcpHeader, Timestamps, UnscaledWindow};

use crate::{
    Algorithm, Config, Connection, Ecn, Instant, LossDetection, MtuProbing, Outcome, RangePool,
    State, TxLimits, TxSegment,
};

std::thread_local! {
    /// The general steps are taken for everything.
    pub(super) static GENERAL: Cell<bool> = const { Cell::new(false) };
}

/// How a segment is taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Way {
    /// As always.
    Short,
    /// Without header prediction.
    Unpredicted,
    /// Nor the shortcut for plain ACKs.
    General,
}

/// Where the shortcut for plain ACKs may differ: what is found out anew before it is looked at next, and DCTCP's windows, which are caught up with.
const OF_PLAIN_ACKS: [&str; 10] = [
    ".cold.controller.Dctcp.alpha",
    ".cold.controller.Dctcp.began",
    ".cold.controller.Dctcp.end",
    ".cold.controller.Dctcp.start",
    ".cold.rack.any",
    ".cold.rack.end",
    ".cold.rack.fack",
    ".cold.rack.rtt_us",
    ".cold.rack.run_start",
    ".cold.rack.sent_at",
];

/// Where header prediction may differ besides: it keeps no transmit times and takes no round trips of single segments, and what says that
/// something was amiss before is looked at only when something is again.
const OF_PREDICTION: [&str; 10] = [
    ".cold.challenges.fresh",
    ".cold.controller.Bbr.limited",
    ".cold.controller.Cubic.hystart.current_round_min",
    ".cold.controller.Cubic.hystart.samples",
    ".cold.controller.Dctcp.marked",
    ".cold.keepalive_probes",
    ".cold.lost_edge",
    ".cold.unanswered_since",
    ".cold.undo.active",
    ".flight",
];

/// SplitMix64.
struct Rng(u64);

impl Rng {
    fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.bits() % limit.max(1)
    }

    fn chance(&mut self, per_mille: u64) -> bool {
        self.below(1000) < per_mille
    }
}

struct End {
    tcp: Connection,
    ranges: RangePool,
    written: u64,
    buffer: u64,
}

/// A segment under way: when it arrives, where, and whether it was marked.
struct Flying {
    at: Instant,
    to: usize,
    header: TcpHeader,
    len: u32,
    ce: bool,
}

fn pool() -> RangePool {
    RangePool::new(512)
}

fn config(rng: &mut Rng) -> Config {
    let any = |rng: &mut Rng| rng.chance(500);
    Config {
        mss: [1460, 536, 9000][rng.below(3) as usize],
        congestion: [
            Algorithm::Cubic,
            Algorithm::NewReno,
            Algorithm::Dctcp,
            Algorithm::Bbr,
        ][rng.below(4) as usize],
        ecn: [Ecn::Off, Ecn::Accept, Ecn::Request][rng.below(3) as usize],
        loss_detection: if rng.chance(150) {
            LossDetection::DupThresh
        } else {
            LossDetection::Rack
        },
        timestamps: !rng.chance(250),
        require_timestamps: any(rng),
        sack: !rng.chance(150),
        delayed_ack: Duration::from_millis([40, 0][rng.below(2) as usize]),
        quick_ack: any(rng),
        delay_fin_ack: any(rng),
        no_delay: any(rng),
        mtu_probing: [MtuProbing::OnBlackHole, MtuProbing::Always, MtuProbing::Off]
            [rng.below(3) as usize],
        path_mss: if rng.chance(200) { 1200 } else { u16::MAX },
        pacing: rng.chance(200),
        keepalive: any(rng).then(Default::default),
        ..Config::default()
    }
}

/// The control block once more, with ranges of its own.
fn copy(end: &End, now: Instant) -> (Connection, RangePool) {
    let mut ranges = pool();
    let snapshot = end.tcp.snapshot(&end.ranges);
    let tcp = Connection::restore(&snapshot, now, now, &mut ranges).expect("a copy");
    (tcp, ranges)
}

/// Where two values differ.
fn differences(a: &Value, b: &Value, place: &str, found: &mut BTreeSet<String>) {
    match (a, b) {
        (Value::Object(a), Value::Object(b)) if a.len() == b.len() => {
            for (name, value) in a {
                match b.get(name) {
                    Some(other) => differences(value, other, &format!("{place}.{name}"), found),
                    None => {
                        found.insert(format!("{place}.{name}"));
                    }
                }
            }
        }
        _ if a == b => {}
        _ => {
            found.insert(place.to_owned());
        }
    }
}

/// What goes out now.
fn drain(tcp: &mut Connection, ranges: &mut RangePool, now: Instant) -> Vec<TxSegment> {
    let tx = TxLimits::default();
    core::iter::from_fn(|| tcp.poll_transmit(now, &tx, ranges))
        .take(64)
        .collect()
}

/// Takes a segment.
fn take(
    (tcp, ranges): (&mut Connection, &mut RangePool),
    now: Instant,
    flying: &Flying,
    room: bool,
    way: Way,
) -> Outcome {
    let (header, len) = (&flying.header, flying.len);
    GENERAL.set(way == Way::General);
    let outcome = match way {
        _ if flying.ce => tcp.handle_marked_segment(now, header, len, room, ranges),
        Way::Short => tcp.handle_segment(now, header, len, room, ranges),
        Way::Unpredicted | Way::General => tcp.handle_unpredicted(now, header, len, room, ranges),
    };
    GENERAL.set(false);
    outcome
}

/// Gives a segment to copies of an end, which take it this way and in general. Where they then differ.
fn compare(
    (end, now): (&End, Instant),
    flying: &Flying,
    room: bool,
    way: Way,
    found: &mut BTreeSet<String>,
) {
    let taken = |way| {
        let (mut tcp, mut ranges) = copy(end, now);
        let outcome = take((&mut tcp, &mut ranges), now, flying, room, way);
        let state = serde_json::to_string(&tcp.snapshot(&ranges)).expect("a text");
        let wants = (tcp.wants_transmit(), tcp.has_nothing_to_send());
        let sent = drain(&mut tcp, &mut ranges, now);
        (state, (outcome, wants, sent, tcp.next_timeout()))
    };
    let (short, general) = (taken(way), taken(Way::General));
    if short.1 != general.1 {
        println!("{:?} {:?}: {:?}", flying.header, flying.len, end.tcp);
    }
    assert_eq!(short.1, general.1, "{way:?}");
    if short.0 == general.0 {
        return;
    }
    let [short, general] = [short.0, general.0].map(|state| {
        let mut state: Value = serde_json::from_str(&state).expect("a value");
        // RUNS says that the list of transmit times holds something.
        let flags = &mut state["connection"]["flags"];
        *flags = (flags.as_u64().expect("a number") & !(1 << 7)).into();
        state
    });
    differences(&short["connection"], &general["connection"], "", found);
    for list in ["sacked", "out_of_order", "flight"] {
        differences(&short[list], &general[list], &format!(".{list}"), found);
    }
}

/// The segment as somebody else might have sent it.
fn vary(rng: &mut Rng, flying: &Flying, end: &End) -> Flying {
    let mut header = flying.header;
    let mut len = flying.len;
    for _ in 0..=rng.below(2) {
        let near = [0, 1, 2, u64::from(end.tcp.effective_mss()), 70_000, 1 << 31];
        let mut shift = near[rng.below(6) as usize] as u32;
        if rng.chance(500) {
            shift = shift.wrapping_neg();
        }
        let moved = |seq: SeqNumber| SeqNumber(seq.0.wrapping_add(shift));
        match rng.below(9) {
            0 => header.seq = moved(header.seq),
            1 => header.ack = moved(header.ack),
            2 => header.window = UnscaledWindow([0, 1, 60, u16::MAX][rng.below(4) as usize]),
            3 => {
                let flags = [
                    TcpFlags::FIN,
                    TcpFlags::SYN,
                    TcpFlags::RST,
                    TcpFlags::PSH,
                    TcpFlags::URG,
                    TcpFlags::ECE,
                    TcpFlags::CWR,
                ];
                header.flags |= flags[rng.below(7) as usize];
                header.urgent = rng.below(3) as u16;
            }
            4 => header.flags = header.flags.difference(TcpFlags::ACK),
            5 => {
                let stamps = header.options.timestamps;
                header.options.timestamps = stamps.map(|stamps| Timestamps {
                    value: stamps.value.wrapping_add(shift),
                    ..stamps
                });
            }
            6 => header.options.timestamps = None,
            7 => {
                let block = SackBlock {
                    start: moved(header.ack),
                    end: moved(header.ack).add(1460),
                };
                header.options.sack = [block].into_iter().collect();
            }
            _ => len = [0, 1, 1460][rng.below(3) as usize],
        }
    }
    Flying {
        header,
        len,
        at: flying.at,
        to: flying.to,
        ce: rng.chance(50),
    }
}

struct Talk {
    rng: Rng,
    now: Instant,
    ends: [End; 2],
    link: Vec<Flying>,
    loss: u64,
    way: Way,
    /// All that was sent, and when.
    sent: Vec<(Instant, TxSegment)>,
    /// Where the ways differed.
    found: BTreeSet<String>,
    compared: usize,
}

impl Talk {
    /// With `probes` larger segments may be searched for: about that header prediction knows nothing, and lets it wait.
    fn new(seed: u64, way: Way, probes: bool) -> Self {
        let mut rng = Rng(seed);
        let now = Instant::from_secs(1000);
        let mut configs = [config(&mut rng), config(&mut rng)];
        if !probes {
            configs.iter_mut().for_each(|config| {
                config.mtu_probing = MtuProbing::OnBlackHole;
                config.path_mss = u16::MAX;
            });
        }
        let near_wrap = SeqNumber((rng.below(100_000) as u32).wrapping_sub(50_000));
        let mut ranges = pool();
        let mut client = Connection::connect(now, &configs[0], near_wrap);
        client.set_receive_limit(65_536);
        let syn = client
            .poll_transmit(now, &TxLimits::default(), &mut ranges)
            .expect("a SYN");
        let mut server = Connection::accept(now, &configs[1], SeqNumber(77), &syn.header);
        server.set_receive_limit(65_536);
        let mut end = |tcp, ranges| End {
            tcp,
            ranges,
            written: 0,
            buffer: [3000, 65_536, 1 << 20][rng.below(3) as usize],
        };
        Self {
            ends: [end(client, ranges), end(server, pool())],
            loss: [0, 0, 10, 60][rng.below(4) as usize],
            rng,
            now,
            link: Vec::new(),
            way,
            sent: Vec::new(),
            found: BTreeSet::new(),
            compared: 0,
        }
    }

    fn send_all(&mut self) {
        for from in 0..2 {
            let End { tcp, ranges, .. } = &mut self.ends[from];
            for segment in drain(tcp, ranges, self.now) {
                self.sent.push((self.now, segment.clone()));
                let rng = &mut self.rng;
                if rng.chance(self.loss) {
                    continue;
                }
                let jitter = if rng.chance(30) { rng.below(20_000) } else { 0 };
                let delay = 5_000 + jitter;
                let ce = segment.ecn != 0 && rng.chance(30);
                for _ in 0..1 + u64::from(rng.chance(10)) {
                    self.link.push(Flying {
                        at: self.now.after_micros(delay as u32),
                        to: 1 - from,
                        header: segment.header,
                        len: (segment.payload.end - segment.payload.start) as u32,
                        ce,
                    });
                }
            }
        }
    }

    fn application(&mut self) {
        let rng = &mut self.rng;
        for end in &mut self.ends {
            if rng.chance(200) {
                let more = [1, 100, 2000, 50_000][rng.below(4) as usize];
                end.written += rng.below(more) + 1;
                end.tcp.set_send_limit(end.written);
            }
            if rng.chance(400) {
                let limit = end.tcp.receive_next() + end.buffer;
                end.tcp.set_receive_limit(limit);
            }
            match rng.below(800) {
                0 => end.tcp.shutdown_send(),
                1 => end.tcp.close(),
                2 => end.tcp.set_cork(true),
                3 => end.tcp.set_cork(false),
                4 => end.tcp.set_no_delay(true),
                _ => {}
            }
        }
    }

    /// What happens next: a segment, a timer, or something that the application does. False: nothing any more.
    fn step(&mut self, compares: &[Way]) -> bool {
        self.send_all();
        let arrives = self.link.iter().map(|flying| flying.at).min();
        let timers = self.ends.iter().filter_map(|end| end.tcp.next_timeout());
        let Some(next) = timers.chain(arrives).min() else {
            return false;
        };
        let soon = self.now.after_micros(self.rng.below(3000) as u32);
        self.now = self.now.max(match self.rng.chance(300) {
            true => next.min(soon),
            false => next,
        });
        for end in &mut self.ends {
            end.tcp.handle_timeout(self.now, &mut end.ranges);
        }
        while let Some(place) = self.link.iter().position(|flying| flying.at <= self.now) {
            let flying = self.link.remove(place);
            let room = !self.rng.chance(20);
            let end = &mut self.ends[flying.to];
            let varied = vary(&mut self.rng, &flying, end);
            for way in compares {
                for flying in [&flying, &varied] {
                    compare((end, self.now), flying, room, *way, &mut self.found);
                    self.compared += 1;
                }
            }
            let of = (&mut end.tcp, &mut end.ranges);
            take(of, self.now, &flying, room, self.way);
        }
        self.application();
        self.ends.iter().any(|end| end.tcp.state() != State::Closed)
    }

    fn go_on(&mut self, steps: usize, compares: &[Way]) {
        for _ in 0..steps {
            if !self.step(compares) {
                break;
            }
        }
    }
}

#[test]
fn the_short_ways_end_where_the_long_one_does() {
    let known = |places: &[&[&str]]| -> BTreeSet<String> {
        places.concat().into_iter().map(str::to_owned).collect()
    };
    let all = [
        (Way::Unpredicted, true, known(&[&OF_PLAIN_ACKS])),
        (Way::Short, false, known(&[&OF_PLAIN_ACKS, &OF_PREDICTION])),
    ];
    for (way, probes, known) in all {
        let (mut found, mut compared) = (BTreeSet::new(), 0);
        for seed in 0..40 {
            let mut talk = Talk::new(seed, Way::Short, probes);
            talk.go_on(120, &[way]);
            found.append(&mut talk.found);
            compared += talk.compared;
        }
        assert!(compared > 5_000, "{compared}");
        let new: Vec<_> = found.difference(&known).collect();
        assert!(new.is_empty(), "{way:?}: {new:?}");
    }
}

/// What may differ for a while after a plain ACK makes no difference in the end.
#[test]
fn talks_are_the_same_whichever_way_plain_acks_are_taken() {
    for seed in 0..400 {
        let [short, general] = [Way::Unpredicted, Way::General].map(|way| {
            let mut talk = Talk::new(seed, way, true);
            talk.go_on(400, &[]);
            let dctcp = talk
                .ends
                .iter()
                .any(|end| end.tcp.algorithm() == Algorithm::Dctcp);
            if dctcp { Vec::new() } else { talk.sent }
        });
        for (n, (short, general)) in short.iter().zip(&general).enumerate() {
            assert_eq!(short, general, "segment {n} of talk {seed}");
        }
        assert_eq!(short.len(), general.len(), "talk {seed}");
    }
}
