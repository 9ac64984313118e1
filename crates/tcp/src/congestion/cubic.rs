//! CUBIC (RFC 9438).
//!
//! ```text
//!  cwnd                                        ·
//!    │                                        ·   convex: probing for more
//!    │ W_max ─ ─ ─ ─ ─ ─ ─ ─· · · · · · ─ ─ ·─
//!    │                ·                          W_cubic(t) = C (t - K)^3 + W_max
//!    │            ·   concave: back to where loss was
//!    │ cwnd_epoch
//!    └─────────────────────┼──────────────────► t since the epoch began
//!                          K = cbrt((W_max - cwnd_epoch) / C)
//! ```
//!
//! Runs only on acknowledgments that find the window to be the limit, so it may count in floating point.

use serde::{Deserialize, Serialize};

use super::hystart::HyStart;
use super::{Ack, CongestionControl, MAX_CWND, Window};
use crate::time::Instant;

/// C: aggressiveness, in segments per second cubed (RFC 9438 section 5.1).
const C: f64 = 0.4;
/// beta_cubic: the multiplicative decrease (RFC 9438 section 4.6).
const BETA: f64 = 0.7;
/// alpha_cubic, which makes the Reno-friendly estimate as aggressive as Reno (RFC 9438 section 4.3).
const ALPHA: f64 = 3.0 * (1.0 - BETA) / (1.0 + BETA);

/// The state of CUBIC. Windows are in bytes.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Cubic {
    /// W_max: the window just before the last reduction (after fast convergence); 0: there was none.
    w_max: f32,
    /// W_est: what Reno would have by now. It grows by a few bytes an ACK, so that its fraction needs a place of its own.
    w_est: u32,
    w_est_fraction: f32,
    /// What of cwnd's growth is less than a byte.
    fraction: f32,
    /// K, in seconds.
    k: f32,
    /// When the current congestion avoidance began, in milliseconds modulo 2^32; 0: it begins with the next ACK.
    epoch_start: u32,
    /// cwnd_prior: the window before the last reduction.
    cwnd_prior: u32,
    hystart: HyStart,
    /// What to go back to.
    saved: Saved,
}

/// What RFC 9438 section 4.9.1 has remembered before a reduction. Precise enough for going back.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
struct Saved {
    w_max: f32,
    w_est: u32,
    k: f32,
    cwnd_prior: u32,
    epoch_start: u32,
}

/// The time as epochs have it: milliseconds modulo 2^32, and never 0.
fn epoch(now: Instant) -> u32 {
    (now.as_millis() as u32).max(1)
}

impl Cubic {
    /// RFC 9438 sections 4.6 and 4.7. FlightSize stands for cwnd, as section 4.6 asks for, so that an application that
    /// does not fill its window gains nothing by it.
    fn reduce(&mut self, window: &mut Window, in_flight: u32, mss: u32) {
        let flight = f64::from(in_flight.min(window.cwnd).max(mss));
        self.saved = Saved {
            w_max: self.w_max,
            w_est: self.w_est,
            k: self.k,
            cwnd_prior: self.cwnd_prior,
            epoch_start: self.epoch_start,
        };
        // Fast convergence: below the last W_max it becomes cwnd * (1 + beta_cubic) / 2.
        self.w_max = if flight < f64::from(self.w_max) {
            (flight * (1.0 + BETA) / 2.0) as f32
        } else {
            flight as f32
        };
        self.cwnd_prior = flight as u32;
        window.ssthresh = ((flight * BETA) as u32).max(2 * mss);
        self.epoch_start = 0;
        self.fraction = 0.0;
    }

    /// RFC 9438 section 4.2: the epoch starts with congestion avoidance.
    fn start_epoch(&mut self, window: &Window, now: Instant, mss: f64) {
        let cwnd = f64::from(window.cwnd);
        let w_max = f64::from(self.w_max);
        self.epoch_start = epoch(now);
        self.w_est = window.cwnd;
        self.w_est_fraction = 0.0;
        if w_max <= cwnd {
            // Slow start went past W_max, or there was no loss yet (section 4.10: "K is set to 0", W_max to cwnd).
            self.w_max = cwnd as f32;
            self.k = 0.0;
        } else {
            self.k = ((w_max - cwnd) / mss / C).cbrt() as f32;
        }
    }

    /// RFC 9438 sections 4.2 to 4.5.
    fn congestion_avoidance(&mut self, window: &mut Window, ack: &Ack, acked: u32) {
        let mss = f64::from(ack.mss);
        if self.epoch_start == 0 {
            self.start_epoch(window, ack.now, mss);
        }
        let cwnd = f64::from(window.cwnd);
        let acked = f64::from(acked);
        let t = f64::from(epoch(ack.now).wrapping_sub(self.epoch_start)) / 1e3;
        let rtt = f64::from(ack.srtt_us) / 1e6;

        // W_est = W_est + alpha_cubic * segments_acked / cwnd; alpha is 1 once that "has grown to reach the cwnd at the time of most
        // recently setting ssthresh".
        let alpha = if self.w_est < self.cwnd_prior {
            ALPHA
        } else {
            1.0
        };
        let w_est =
            f64::from(self.w_est) + f64::from(self.w_est_fraction) + alpha * mss * acked / cwnd;
        self.w_est = w_est as u32;
        self.w_est_fraction = (w_est - f64::from(self.w_est)) as f32;

        let grown = if self.w_cubic(t, mss) < w_est {
            // Section 4.3, the Reno-friendly region: "cwnd SHOULD be set to W_est at each reception of a new ACK".
            w_est.max(cwnd) - cwnd
        } else {
            // "target" of section 4.2: between cwnd and 1.5 cwnd.
            let target = self.w_cubic(t + rtt, mss).clamp(cwnd, 1.5 * cwnd);
            (target - cwnd) * acked / cwnd
        };
        let grown = grown + f64::from(self.fraction);
        let whole = grown.clamp(0.0, f64::from(MAX_CWND)) as u32;
        self.fraction = (grown - f64::from(whole)) as f32;
        window.grow(whole);
    }

    /// RFC 9438 equation 1, in bytes.
    fn w_cubic(&self, t: f64, mss: f64) -> f64 {
        let d = t - f64::from(self.k);
        C * mss * d * d * d + f64::from(self.w_max)
    }
}

impl CongestionControl for Cubic {
    fn on_ack(&mut self, window: &mut Window, ack: &Ack) {
        let rest = if window.in_slow_start() {
            self.hystart.on_ack(window, ack)
        } else {
            ack.acked
        };
        if rest > 0 {
            self.congestion_avoidance(window, ack, rest);
        }
    }

    fn on_loss(&mut self, window: &mut Window, _now: Instant, in_flight: u32, mss: u32) {
        self.reduce(window, in_flight, mss);
        window.cwnd = window.ssthresh;
    }

    fn on_rto(&mut self, window: &mut Window, _now: Instant, in_flight: u32, mss: u32) {
        self.reduce(window, in_flight, mss);
        window.cwnd = mss;
    }

    /// RFC 9438 section 4.9.
    fn on_undo(&mut self, _window: &mut Window, _now: Instant) {
        self.w_max = self.saved.w_max;
        self.w_est = self.saved.w_est;
        self.w_est_fraction = 0.0;
        self.k = self.saved.k;
        self.cwnd_prior = self.saved.cwnd_prior;
        self.epoch_start = self.saved.epoch_start;
    }

    fn on_recovery_exit(&mut self, _window: &mut Window, _now: Instant) {
        self.epoch_start = 0;
    }

    /// RFC 9438 section 4.2 and 5.8: time in which the application sent nothing does not count.
    fn on_restart(&mut self, _window: &mut Window, now: Instant, idle_us: u32) {
        if self.epoch_start != 0 {
            let elapsed = epoch(now).wrapping_sub(self.epoch_start);
            let idle = (idle_us / 1_000).min(elapsed);
            self.epoch_start = self.epoch_start.wrapping_add(idle).max(1);
        }
    }

    fn change_clock(&mut self, from: Instant, to: Instant) {
        let jump = epoch(to).wrapping_sub(epoch(from));
        for start in [&mut self.epoch_start, &mut self.saved.epoch_start] {
            if *start != 0 {
                *start = start.wrapping_add(jump).max(1);
            }
        }
    }
}
