//! What the path to the peer carries: what ICMP says of it (RFC 1191, RFC 8201), with care (RFC 5927 section 7.2), and what is found out
//! without ICMP (PLPMTUD, RFC 4821).
//!
//! ```text
//!   floor ≤ base ≤ low ≤ high ≤ most          all of them segment sizes, options included
//!                   │      │      └ what both MSS options allow
//!                   │      └ the largest that may work (search_high)
//!                   └ what is used; known to work, or taken to (search_low)
//! ```
//!
//! | something | and then |
//! |---|---|
//! | ICMP says less, and no segment of the size in use was ever acknowledged | it is believed: low = high = what it says |
//! | ICMP says less, and one was | it is remembered, and believed if the segment that it quotes is not acknowledged before the retransmission timer fires |
//! | a full segment was sent again by the timer three times (six, nine) | a black hole: low = base, then half of it, down to the floor |
//! | low < high, nothing is amiss, enough data | a probe: one segment of a size between them |
//! | the probe is acknowledged | low = its size |
//! | it alone is lost | high = below its size; that is no congestion (RFC 4821 section 7.5) |
//! | more is lost, or the timer fires | nothing was found out |
//! | ten minutes later | high = most |
//!
//! Header prediction knows nothing of it: success is seen when an ACK takes the slow way, or the window is used up, and until then
//! nothing but the search waits.

use serde::{Deserialize, Serialize};

use crate::Connection;
use crate::config::Config;
use crate::connection::MIN_MSS;
use crate::flags::Flags;
use crate::range_pool::RangePool;
use crate::recovery::Phase;
use crate::time::Instant;
use crate::types::{State, TxSegment};

/// Whether segments larger or smaller than the path MTU that is known are tried (RFC 4821); as Linux's tcp_mtu_probing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash, Serialize, Deserialize)]
pub enum MtuProbing {
    /// Never: only ICMP counts.
    Off,
    /// When large segments seem to vanish.
    #[default]
    OnBlackHole,
    /// From the start: beginning with [`Config::base_mss`].
    Always,
}

/// Bytes of an IPv4 header and a TCP header without options: TCP counts in them.
const HEADERS: u16 = 40;
/// What RFC 1191 section 7.1 makes of an MTU that a router does not tell: we go by one plateau.
const PLATEAUS: [u16; 6] = [8166, 4352, 2002, 1492, 1006, 508];
/// Timeouts in a row after which a full segment is too large: Linux's tcp_retries1.
const BLACK_HOLE_TIMEOUTS: u8 = 3;
/// No black hole makes segments smaller than this, options included.
const FLOOR: u16 = 256;
/// A search is over when it could gain no more than this (Linux: tcp_probe_threshold).
const WORTH_A_PROBE: u16 = 8;
/// After ten minutes the path may have become wider (RFC 1191 section 6.3, RFC 8201 section 4).
const AGAIN_MS: u32 = 600_000;
/// After a probe that told nothing.
const PAUSE_MS: u32 = 5_000;

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
enum Step {
    /// Nothing is under way. `at` is SND.NXT when the size in use was chosen.
    Rest,
    /// A probe of `size` is due.
    Due,
    /// It is out: from `at` on.
    Out,
    /// ICMP says `size`, and quotes a segment at `at`.
    Claimed,
}

/// The path's state, in the cold part. Offsets and times are modulo 2^32.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Path {
    /// When the search may go on, in milliseconds.
    next: u32,
    at: u32,
    pub(crate) low: u16,
    high: u16,
    size: u16,
    base: u16,
    probing: MtuProbing,
    step: Step,
    /// The largest size has failed since the search began.
    halving: bool,
}

impl Path {
    pub(crate) fn new(now: Instant, config: &Config, announced_mss: u16) -> Self {
        let known = config.path_mss.max(MIN_MSS).min(announced_mss);
        let base = config.base_mss.max(MIN_MSS).min(known);
        let always = config.mtu_probing == MtuProbing::Always;
        let mut path = Self {
            next: clock(now),
            at: 0,
            low: if always { base } else { known },
            high: known,
            size: 0,
            base,
            probing: config.mtu_probing,
            step: Step::Rest,
            halving: always,
        };
        if known < announced_mss {
            path.next = clock(now).wrapping_add(AGAIN_MS);
        }
        path
    }

    fn rest(&mut self, at: u64) {
        self.step = Step::Rest;
        self.at = at as u32;
    }
}

const fn clock(now: Instant) -> u32 {
    now.as_millis() as u32
}

impl Connection {
    /// Bytes of options that every segment carries.
    fn usual_options(&self) -> u16 {
        if self.flags.any(Flags::TIMESTAMPS) {
            crate::connection::TIMESTAMPS_LEN
        } else {
            0
        }
    }

    /// What both MSS options allow.
    fn most(&self) -> u16 {
        self.cold.peer_mss.min(self.cold.announced_mss)
    }

    /// The path MTU that this connection goes by, as IPv4 would count it: 40 bytes more than its segments' payload and options; over IPv6
    /// it is 20 more.
    pub fn path_mtu(&self) -> u16 {
        let most = if self.state == State::SynSent {
            // What the peer takes is not known yet.
            self.cold.announced_mss
        } else {
            self.most()
        };
        most.min(self.cold.path.low).saturating_add(HEADERS)
    }

    /// Whether a search could gain anything.
    fn path_has_gap(&self) -> bool {
        let high = self.cold.path.high.min(self.most());
        high > self.cold.path.low.saturating_add(WORTH_A_PROBE)
    }

    /// Distance of an offset that is known modulo 2^32 from SND.UNA.
    fn beyond_una(&self, at: u32) -> i32 {
        at.wrapping_sub(self.snd_una as u32) as i32
    }

    /// ICMP says that a packet with the segment at offset `quoted` was larger than `mtu` (0: it does not say what).
    pub(crate) fn path_claim(&mut self, now: Instant, quoted: u64, mtu: u16) {
        let packet = self.path_mtu();
        let mtu = if mtu == 0 {
            let below = |plateau: &u16| *plateau < packet;
            PLATEAUS.into_iter().find(below).unwrap_or(0)
        } else {
            mtu
        };
        let size = mtu.saturating_sub(HEADERS).max(MIN_MSS);
        if self.cold.path.step == Step::Out && self.beyond_una(self.cold.path.at) <= 0 {
            self.path_settle(now);
        }
        if self.cold.path.step == Step::Out && quoted as u32 == self.cold.path.at {
            // About the probe: its loss is found as any other, and then this is what is known.
            let path = &mut self.cold.path;
            path.high = path.high.min(size.max(path.low));
            return;
        }
        if size >= packet - HEADERS {
            return;
        }
        if self.path_probe_is_due() {
            self.flags.clear(Flags::PROBE_DUE);
        }
        if !self.size_is_proven() {
            return self.path_believe(now, size);
        }
        // RFC 5927 section 7.2: such messages are disregarded "when a connection makes progress", and honoured "only after the
        // corresponding data have been retransmitted a specified number of times".
        let path = &mut self.cold.path;
        path.step = Step::Claimed;
        path.size = size;
        path.at = quoted as u32;
    }

    /// Whether a segment of the size in use was certainly acknowledged: more than that was, since the size was chosen and since the last
    /// small segment.
    fn size_is_proven(&self) -> bool {
        if self.cold.path.step == Step::Claimed {
            // It was, when that began.
            return true;
        }
        let chosen = self.beyond_una(self.cold.path.at);
        let small = self.beyond_una(self.snd_sml);
        // Nothing lies before the connection's first byte.
        let acked = u64::from(chosen.max(small).unsigned_abs()).min(self.snd_una);
        chosen <= 0 && small <= 0 && acked >= u64::from(self.mss)
    }

    /// Smaller segments from now on, and what is out is sent again in them. The loss is not congestion (RFC 1191 section 6.5 leaves
    /// the window alone).
    fn path_believe(&mut self, now: Instant, size: u16) {
        self.path_shrink(now, size);
        self.cold.path.high = size;
        self.fast_open_too_large();
        if !self.state.is_synchronized() || self.outstanding() == 0 {
            return;
        }
        if self.phase == Phase::Open {
            self.phase = Phase::Recovery;
            self.cold.recover = self.snd_nxt;
            self.window.ssthresh = self.window.cwnd;
        }
        self.flags.set(
            Flags::RECOVERING
                .or(Flags::RETRANSMIT_NOW)
                .or(Flags::LOST_LEFT),
        );
        self.cold.all_lost = true;
        self.cold.prr = crate::prr::Prr::begin(self.outstanding());
        self.undo_forget();
        self.cold.pipe = 0;
        self.rtt_cancel();
    }

    fn path_shrink(&mut self, now: Instant, size: u16) {
        let at = self.snd_nxt;
        let path = &mut self.cold.path;
        path.low = size;
        path.next = clock(now).wrapping_add(AGAIN_MS);
        path.halving = false;
        path.rest(at);
        self.set_effective_mss();
    }

    /// The retransmission timer has fired, `attempts` times in a row. To be called before what is lost is reckoned with.
    pub(crate) fn path_timeout(&mut self, now: Instant) {
        let una = self.snd_una;
        let path = &mut self.cold.path;
        match path.step {
            Step::Claimed => {
                let size = path.size;
                let quoted = path.at;
                path.rest(una);
                if self.beyond_una(quoted) >= 0 && size < self.cold.path.low {
                    // Nothing was acknowledged that ICMP said was too large.
                    self.path_shrink(now, size);
                    self.cold.path.high = size;
                    return;
                }
            }
            Step::Out => {
                path.rest(una);
                path.next = clock(now).wrapping_add(PAUSE_MS);
            }
            Step::Due | Step::Rest => {}
        }
        let full = self.outstanding() >= u32::from(self.mss);
        let often = self.cold.attempts.is_multiple_of(BLACK_HOLE_TIMEOUTS);
        if self.cold.path.probing != MtuProbing::Off && full && often {
            self.path_black_hole(now);
        }
    }

    /// Full segments vanish: to the base, then by halves. What they were is searched for again when something arrives.
    fn path_black_hole(&mut self, now: Instant) {
        let (path, most) = (self.cold.path, self.most());
        let used = path.low.min(most);
        let size = if used > path.base {
            path.base
        } else {
            (used / 2).max(FLOOR.min(path.base))
        };
        if size < used {
            self.path_shrink(now, size);
            let path = &mut self.cold.path;
            path.high = path.high.min(most);
            // It may have been all of the path that was gone for a while.
            path.next = clock(now);
        }
    }

    /// An ACK was taken up that did not take the shortest way: whether the probe has arrived, and whether one is to be sent.
    #[inline]
    pub(crate) fn path_on_ack(&mut self, now: Instant) {
        let path = &self.cold.path;
        if path.low < self.most() || path.step != Step::Rest {
            self.path_search(now);
        }
    }

    #[cold]
    #[inline(never)]
    fn path_search(&mut self, now: Instant) {
        self.path_settle(now);
        let waits = (clock(now).wrapping_sub(self.cold.path.next) as i32) < 0;
        if self.cold.path.step != Step::Rest || waits {
            return;
        }
        if !self.path_has_gap() {
            // All that was worth trying was tried, and ten minutes have passed.
            let most = self.most();
            let una = self.snd_una;
            let path = &mut self.cold.path;
            path.high = most;
            path.halving = false;
            path.next = clock(now).wrapping_add(AGAIN_MS);
            if path.probing == MtuProbing::Off {
                // ICMP will say so if it is still too much.
                path.low = most;
                path.rest(una);
                self.set_effective_mss();
                return;
            }
            if !self.path_has_gap() {
                return;
            }
            self.cold.path.next = clock(now);
        }
        let (low, high) = (self.cold.path.low, self.cold.path.high.min(self.most()));
        // All at once first: the path may well be what it was, and one probe tells.
        let size = if self.cold.path.halving {
            low + (high - low) / 2
        } else {
            high
        };
        if self.may_probe_path(size) {
            self.cold.path.step = Step::Due;
            self.cold.path.size = size;
            self.flags.set(Flags::PROBE_DUE);
        }
    }

    /// Whether one segment of this size may go out, with enough after it to see by that it is lost (RFC 4821 section 7.4), and
    /// nothing is amiss.
    fn may_probe_path(&self, size: u16) -> bool {
        let len = u64::from(size.saturating_sub(self.usual_options()));
        let enough = len + 4 * u64::from(self.mss);
        let window = (self.snd_una + u64::from(self.snd_wnd)).saturating_sub(self.snd_nxt);
        let unsent = self.send_limit.saturating_sub(self.snd_nxt);
        let room = self.window.cwnd.saturating_sub(self.in_flight());
        self.phase == Phase::Open
            && !self
                .flags
                .any(Flags::LOSSY.or(Flags::TLP_OUT).or(Flags::PROBING))
            && unsent >= enough
            && window >= enough
            && u64::from(room) >= len
            && len > u64::from(self.mss)
    }

    /// Whether a probe is due; it is not any more.
    pub(crate) fn path_probe_is_due(&mut self) -> bool {
        let due = self.cold.path.step == Step::Due;
        if due {
            let una = self.snd_una;
            self.cold.path.rest(una);
        }
        due
    }

    /// The probe: new data in one segment that is larger than the others.
    pub(crate) fn path_probe(&mut self, now: Instant, ranges: &mut RangePool) -> Option<TxSegment> {
        let size = self.cold.path.size;
        if !self.may_probe_path(size) {
            return None;
        }
        let len = size - self.usual_options();
        let at = self.snd_nxt;
        let mut segment = self.send_larger(now, u32::from(len), ranges);
        segment.segment_size = len;
        let path = &mut self.cold.path;
        path.step = Step::Out;
        path.at = at as u32;
        let probes = &mut self.cold.counters.path_probes;
        *probes = probes.wrapping_add(1);
        Some(segment)
    }

    /// Where the probe that is out ends, as a distance from SND.UNA.
    fn probe_end(&self) -> i32 {
        let len = self.cold.path.size - self.usual_options();
        self.beyond_una(self.cold.path.at.wrapping_add(u32::from(len)))
    }

    /// Sees whether the probe was acknowledged: then it is the size to use. And a claim is forgotten if what it quotes was.
    fn path_settle(&mut self, now: Instant) {
        let una = self.snd_una;
        match self.cold.path.step {
            Step::Out if self.probe_end() <= 0 => {
                let size = self.cold.path.size;
                let path = &mut self.cold.path;
                path.low = size;
                path.high = path.high.max(size);
                // It is proven by this.
                path.rest(una);
                path.at = path.at.wrapping_sub(u32::from(size));
                self.set_effective_mss();
                self.path_rest_if_found(now);
            }
            Step::Claimed if self.beyond_una(self.cold.path.at) < 0 => self.cold.path.rest(una),
            // What lies far back is not to be taken for what lies ahead.
            Step::Rest if self.beyond_una(self.cold.path.at) < -(1 << 30) => {
                self.cold.path.rest(una - (1 << 29));
            }
            _ => {}
        }
    }

    /// A search that can gain nothing more is over for ten minutes.
    fn path_rest_if_found(&mut self, now: Instant) {
        if !self.path_has_gap() {
            self.cold.path.next = clock(now).wrapping_add(AGAIN_MS);
        }
    }

    /// Something was found lost: whether it is the probe, and nothing else (RFC 4821 section 7.5).
    pub(crate) fn path_probe_lost(&mut self, now: Instant, ranges: &RangePool) -> bool {
        if self.cold.path.step != Step::Out {
            return false;
        }
        self.path_settle(now);
        if self.cold.path.step != Step::Out {
            return false;
        }
        let una = self.snd_una;
        let first = self.beyond_una(self.cold.path.at) == 0;
        let end = una + self.probe_end().max(0) as u64;
        let sacked = self.cold.sacked.first(ranges);
        let alone = first && sacked.is_none_or(|sacked| sacked.start == end);
        let path = &mut self.cold.path;
        path.rest(una);
        if first {
            path.high = path.high.min(path.size - 1).max(path.low);
            path.halving = true;
            self.path_rest_if_found(now);
        } else {
            path.next = clock(now).wrapping_add(PAUSE_MS);
        }
        alone
    }
}
