//! DCTCP (RFC 8257): the window is reduced in proportion to how much of it was marked.
//!
//! Everything else is NewReno's: growth, and what loss does (section 3.5). Where no mark ever comes it is NewReno.

use serde::{Deserialize, Serialize};

use super::newreno::NewReno;
use super::{Ack, CongestionControl, Window};
use crate::time::Instant;

/// DCTCP.Alpha in fixed point: this is 1.
const ONE: u32 = 1 << 20;
/// g, the estimation gain: 2^-4 (section 4.2: "A fixed estimation gain of 1/16 is used in some implementations", Linux among them).
const GAIN_SHIFT: u32 = 4;
/// Windows that went by unseen are counted up to here: alpha is 0 by then.
const MOST_UNSEEN: u32 = 256;
/// Acknowledgments that a receiver can owe. When there are more, the oldest is left out, and the next speaks for it.
const OWED: usize = 4;

/// What an ACK says about marks. Positions are stream offsets modulo 2^32.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Observed {
    /// SND.UNA, after the ACK.
    pub(crate) una: u32,
    pub(crate) nxt: u32,
    /// Bytes that it acknowledges.
    pub(crate) acked: u32,
    /// Of them, with ECE.
    pub(crate) marked: u32,
    pub(crate) mss: u32,
    pub(crate) now: Instant,
    pub(crate) srtt_us: u32,
}

/// The state of DCTCP, of sender and receiver.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct Dctcp {
    /// DCTCP.Alpha, "initialized to 1".
    alpha: u32,
    /// Where the observation window begins, and DCTCP.WindowEnd.
    start: u32,
    end: u32,
    /// DCTCP.BytesMarked.
    marked: u32,
    /// When it began, in milliseconds modulo 2^32.
    began: u32,
    reno: NewReno,
    /// RCV.NXT of the ACKs that are owed, oldest first.
    owed: [u32; OWED],
    /// Bit n: the nth of them says ECE.
    echoes: u8,
    owing: u8,
}

impl Default for Dctcp {
    fn default() -> Self {
        Self {
            alpha: ONE,
            start: 0,
            end: 0,
            marked: 0,
            began: 0,
            reno: NewReno::default(),
            owed: [0; OWED],
            echoes: 0,
            owing: 0,
        }
    }
}

fn millis(now: Instant) -> u32 {
    now.as_millis() as u32
}

impl Dctcp {
    /// The connection is opened.
    pub(crate) fn open(&mut self, now: Instant) {
        self.began = millis(now);
    }

    /// DCTCP.Alpha, in 2^-20.
    pub(crate) fn alpha(&self) -> u32 {
        self.alpha
    }

    /// Section 3.3, for one ACK.
    ///
    /// Header prediction hands over no ACKs (they carry no ECE) but those of a connection that fills its window: windows that
    /// ended unseen are caught up with.
    pub(crate) fn observe(&mut self, seen: &Observed) {
        let before = seen.una.wrapping_sub(seen.acked);
        // It ends before SND.NXT; if it seems not to, it ended long ago.
        if self.end.wrapping_sub(before) > seen.nxt.wrapping_sub(before) {
            self.catch_up(before, seen);
            self.begin(before, seen);
        }
        self.marked = self.marked.saturating_add(seen.marked);
        let ended = self.end.wrapping_sub(before) <= seen.acked;
        if seen.acked > 0 && ended {
            self.estimate(self.marked, seen.una.wrapping_sub(self.start));
            self.begin(seen.una, seen);
        }
    }

    /// The window ended, and perhaps others after it that had no mark: one in a round trip, and none without data.
    fn catch_up(&mut self, una: u32, seen: &Observed) {
        let len = self.end.wrapping_sub(self.start);
        let past = una.wrapping_sub(self.end).div_ceil(seen.mss);
        let elapsed_ms = millis(seen.now).wrapping_sub(self.began);
        let round_trips = u64::from(elapsed_ms) * 1_000 / u64::from(seen.srtt_us.max(1));
        if len > 0 {
            self.estimate(self.marked, len);
        }
        let unseen = round_trips.saturating_sub(u64::from(len > 0));
        for _ in 0..unseen.min(past.min(MOST_UNSEEN).into()) {
            self.estimate(0, seen.mss);
        }
    }

    fn begin(&mut self, una: u32, seen: &Observed) {
        self.start = una;
        self.end = seen.nxt;
        self.marked = 0;
        self.began = millis(seen.now);
    }

    /// "DCTCP.Alpha = DCTCP.Alpha * (1 - g) + g * M", with M = marked / total.
    fn estimate(&mut self, marked: u32, total: u32) {
        // At least 1, so that it reaches 0.
        self.alpha -= (self.alpha >> GAIN_SHIFT).max(1).min(self.alpha);
        let marked = u64::from(marked.min(total)) * u64::from(ONE >> GAIN_SHIFT);
        let share = marked / u64::from(total.max(1));
        self.alpha = self.alpha.saturating_add(share as u32).min(ONE);
    }

    /// What was received up to `position` is to be acknowledged with this echo.
    pub(crate) fn owe(&mut self, position: u32, echo: bool) {
        if usize::from(self.owing) == OWED {
            let _ = self.pay();
        }
        self.owed[usize::from(self.owing)] = position;
        self.echoes &= !(1 << self.owing);
        self.echoes |= u8::from(echo) << self.owing;
        self.owing += 1;
    }

    /// The oldest ACK that is owed.
    pub(crate) fn pay(&mut self) -> Option<(u32, bool)> {
        let left = self.owing.checked_sub(1)?;
        let oldest = (self.owed[0], self.echoes & 1 != 0);
        self.owed.rotate_left(1);
        self.echoes >>= 1;
        self.owing = left;
        Some(oldest)
    }

    pub(crate) fn owes(&self) -> bool {
        self.owing > 0
    }
}

impl CongestionControl for Dctcp {
    fn on_ack(&mut self, window: &mut Window, ack: &Ack) {
        self.reno.on_ack(window, ack);
    }

    fn on_loss(&mut self, window: &mut Window, now: Instant, in_flight: u32, mss: u32) {
        self.reno.on_loss(window, now, in_flight, mss);
    }

    /// Section 3.3: "cwnd = cwnd * (1 - DCTCP.Alpha / 2)", not below two segments, as in Linux: the retransmission timer of the rule
    /// for one segment is no clock for a data centre.
    fn on_ecn(&mut self, window: &mut Window, now: Instant, _in_flight: u32, mss: u32) {
        let cwnd = u64::from(window.cwnd);
        let less = (cwnd * u64::from(self.alpha)).div_ceil(2 * u64::from(ONE));
        window.cwnd = ((cwnd - less) as u32).max(2 * mss);
        window.ssthresh = window.cwnd;
        self.reno.on_recovery_exit(window, now);
    }

    fn on_rto(&mut self, window: &mut Window, now: Instant, in_flight: u32, mss: u32) {
        self.reno.on_rto(window, now, in_flight, mss);
    }

    fn on_undo(&mut self, window: &mut Window, now: Instant) {
        self.reno.on_undo(window, now);
    }

    fn on_recovery_exit(&mut self, window: &mut Window, now: Instant) {
        self.reno.on_recovery_exit(window, now);
    }

    fn on_restart(&mut self, window: &mut Window, now: Instant, idle_us: u32) {
        self.reno.on_restart(window, now, idle_us);
    }

    fn change_clock(&mut self, from: Instant, to: Instant) {
        let jump = millis(to).wrapping_sub(millis(from));
        self.began = self.began.wrapping_add(jump);
    }
}
