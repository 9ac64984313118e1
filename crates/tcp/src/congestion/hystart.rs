//! HyStart++ (RFC 9406): slow start ends when the round-trip time begins to rise, not only when something is lost.

use serde::{Deserialize, Serialize};

use super::{Ack, NO_SSTHRESH, Window};

/// MIN_RTT_THRESH and MAX_RTT_THRESH, in microseconds (RFC 9406 section 4.3).
const MIN_RTT_THRESH_US: u32 = 4_000;
const MAX_RTT_THRESH_US: u32 = 16_000;
/// MIN_RTT_DIVISOR.
const MIN_RTT_DIVISOR: u32 = 8;
/// N_RTT_SAMPLE: round trips measured in a round before it says anything.
const N_RTT_SAMPLE: u8 = 8;
/// CSS_GROWTH_DIVISOR: conservative slow start grows by a fourth.
const CSS_GROWTH_DIVISOR: u32 = 4;
/// CSS_ROUNDS.
const CSS_ROUNDS: u8 = 5;
/// L, in segments; but what was sent as one super-segment, and is acknowledged as one, counts as a whole.
const L: u32 = 8;
const SUPER_SEGMENT: u32 = 65_536;

/// No round trip was measured yet.
const NONE: u32 = u32::MAX;

/// The state of HyStart++ (section 4.2). Round-trip times are in microseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct HyStart {
    /// windowEnd, modulo 2^32.
    window_end: u32,
    last_round_min: u32,
    current_round_min: u32,
    /// cssBaselineMinRtt; NONE: not in conservative slow start.
    css_baseline: u32,
    /// rttSampleCount, up to N_RTT_SAMPLE.
    samples: u8,
    css_rounds: u8,
    /// A round has begun.
    started: bool,
}

impl Default for HyStart {
    fn default() -> Self {
        Self {
            window_end: 0,
            last_round_min: NONE,
            current_round_min: NONE,
            css_baseline: NONE,
            samples: 0,
            css_rounds: 0,
            started: false,
        }
    }
}

impl HyStart {
    /// New data was acknowledged in slow start: moves cwnd, or ends slow start.
    pub(super) fn on_ack(&mut self, window: &mut Window, ack: &Ack) -> u32 {
        let limit = ack.limit.min((L * ack.mss).max(SUPER_SEGMENT));
        if window.ssthresh != NO_SSTHRESH {
            // Section 4.3 has it for the first slow start only: this one knows where it ends.
            return window.slow_start(ack.acked, limit);
        }
        self.look_at_round(window, ack);
        let growth = ack.acked.min(limit);
        if self.css_baseline == NONE {
            window.slow_start(growth, u32::MAX);
        } else {
            window.slow_start(growth / CSS_GROWTH_DIVISOR, u32::MAX);
        }
        0
    }

    fn look_at_round(&mut self, window: &mut Window, ack: &Ack) {
        if !self.started || (ack.una.wrapping_sub(self.window_end) as i32) >= 0 {
            self.begin_round(window, ack);
        }
        if ack.rtt_us == 0 {
            return;
        }
        self.current_round_min = self.current_round_min.min(ack.rtt_us);
        self.samples = (self.samples + 1).min(N_RTT_SAMPLE);
        if self.samples < N_RTT_SAMPLE || self.last_round_min == NONE {
            return;
        }
        if self.css_baseline != NONE {
            if self.current_round_min < self.css_baseline {
                // The exit was spurious: slow start goes on.
                self.css_baseline = NONE;
            }
            return;
        }
        let threshold =
            (self.last_round_min / MIN_RTT_DIVISOR).clamp(MIN_RTT_THRESH_US, MAX_RTT_THRESH_US);
        if self.current_round_min >= self.last_round_min.saturating_add(threshold) {
            self.css_baseline = self.current_round_min;
            self.css_rounds = 0;
        }
    }

    fn begin_round(&mut self, window: &mut Window, ack: &Ack) {
        self.started = true;
        self.window_end = ack.nxt;
        self.last_round_min = self.current_round_min;
        self.current_round_min = NONE;
        self.samples = 0;
        if self.css_baseline != NONE {
            self.css_rounds += 1;
            if self.css_rounds >= CSS_ROUNDS {
                // After CSS_ROUNDS rounds congestion avoidance begins, with ssthresh = cwnd.
                window.ssthresh = window.cwnd;
                self.css_baseline = NONE;
            }
        }
    }
}
