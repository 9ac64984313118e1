//! RFC 5681: slow start and congestion avoidance, counted in bytes (its section 3.1 recommends RFC 3465's way).

use serde::{Deserialize, Serialize};

use super::{Ack, CongestionControl, Window};
use crate::time::Instant;

/// The state of NewReno.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct NewReno {
    /// Bytes acknowledged in congestion avoidance since cwnd last grew.
    bytes_acked: u32,
}

impl NewReno {
    /// RFC 5681 equation 4: "ssthresh = max (FlightSize / 2, 2*SMSS)".
    fn reduce(&mut self, window: &mut Window, in_flight: u32, mss: u32) {
        window.ssthresh = (in_flight / 2).max(2 * mss);
        self.bytes_acked = 0;
    }
}

impl CongestionControl for NewReno {
    fn on_ack(&mut self, window: &mut Window, ack: &Ack) {
        let rest = if window.in_slow_start() {
            window.slow_start(ack.acked, ack.limit)
        } else {
            ack.acked
        };
        // One segment for each window's worth of bytes acknowledged.
        self.bytes_acked = self.bytes_acked.saturating_add(rest);
        if self.bytes_acked >= window.cwnd {
            self.bytes_acked -= window.cwnd;
            window.grow(ack.mss);
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

    fn on_undo(&mut self, _window: &mut Window, _now: Instant) {}

    fn on_recovery_exit(&mut self, _window: &mut Window, _now: Instant) {
        self.bytes_acked = 0;
    }

    fn on_restart(&mut self, _window: &mut Window, _now: Instant, _idle_us: u32) {
        self.bytes_acked = 0;
    }

    fn change_clock(&mut self, _from: Instant, _to: Instant) {}
}
