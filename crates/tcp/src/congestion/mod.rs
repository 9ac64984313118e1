//! Congestion control: siblings of one shape.
//!
//! A controller owns what it alone needs; the window and the threshold are the connection's ([`Window`]), as every
//! controller has them and the transmit path reads them. Which controller runs is an enum ([`Controller`]): calls are
//! dispatched statically. A new controller implements [`CongestionControl`] and becomes a variant.
//!
//! All windows are in bytes.

mod cubic;
mod dctcp;
mod hystart;
mod newreno;
#[cfg(test)]
mod tests;

pub(crate) use cubic::Cubic;
pub(crate) use dctcp::{Dctcp, Observed};
pub(crate) use newreno::NewReno;

use serde::{Deserialize, Serialize};

use crate::config::Algorithm;
use crate::time::Instant;

/// No threshold: slow start goes on until something is lost (RFC 5681 section 3.1: "arbitrarily high").
pub(crate) const NO_SSTHRESH: u32 = u32::MAX;

/// The largest congestion window: that of the largest window that TCP can advertise (RFC 7323 section 2.3).
pub(crate) const MAX_CWND: u32 = 1 << 30;

/// cwnd and ssthresh (RFC 5681 section 2), in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Window {
    pub(crate) cwnd: u32,
    pub(crate) ssthresh: u32,
}

impl Window {
    /// The initial window of RFC 6928 section 2, for `segments` segments.
    pub(crate) fn initial(segments: u8, mss: u32) -> Self {
        Self {
            cwnd: initial_window(segments, mss),
            ssthresh: NO_SSTHRESH,
        }
    }

    pub(crate) fn in_slow_start(&self) -> bool {
        self.cwnd < self.ssthresh
    }

    pub(crate) fn grow(&mut self, bytes: u32) {
        self.cwnd = self.cwnd.saturating_add(bytes).min(MAX_CWND);
    }

    /// Slow start up to the threshold, by the bytes acknowledged, but no more than `limit` for one ACK (RFC 3465 section 2.2).
    /// Returns the bytes that were not needed for it.
    pub(crate) fn slow_start(&mut self, acked: u32, limit: u32) -> u32 {
        let room = self.ssthresh.saturating_sub(self.cwnd);
        let used = acked.min(room);
        self.grow(used.min(limit));
        if used > limit {
            // Still in slow start.
            return 0;
        }
        acked - used
    }
}

/// New data was acknowledged.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ack {
    pub(crate) now: Instant,
    /// Bytes newly acknowledged.
    pub(crate) acked: u32,
    /// Bytes of a full segment.
    pub(crate) mss: u32,
    /// Smoothed round-trip time, in microseconds.
    pub(crate) srtt_us: u32,
    /// The round-trip time of what this ACK has acknowledged last, in microseconds; 0: not known.
    pub(crate) rtt_us: u32,
    /// By how much slow start may grow for one ACK, in bytes: L of RFC 3465.
    pub(crate) limit: u32,
    /// SND.UNA and SND.NXT, modulo 2^32.
    pub(crate) una: u32,
    pub(crate) nxt: u32,
}

/// What a congestion controller does.
pub(crate) trait CongestionControl {
    /// New data was acknowledged outside of fast recovery, while the window was what held sending back.
    fn on_ack(&mut self, window: &mut Window, ack: &Ack);
    /// Loss was found by duplicate or selective acknowledgments: sets ssthresh, and cwnd to it.
    fn on_loss(&mut self, window: &mut Window, now: Instant, in_flight: u32, mss: u32);
    /// The peer echoes that congestion was experienced (RFC 3168 section 6.1.2: "treated just as a congestion loss"), once a window:
    /// sets ssthresh and cwnd, "bounded below by a value of one MSS".
    fn on_ecn(&mut self, window: &mut Window, now: Instant, in_flight: u32, mss: u32) {
        let before = window.cwnd;
        self.on_loss(window, now, in_flight, mss);
        self.on_recovery_exit(window, now);
        if window.cwnd >= before {
            // ssthresh is two segments at least.
            window.cwnd = (before / 2).max(mss);
        }
    }
    /// The retransmission timer fired for the first time for this data: sets ssthresh; cwnd becomes one segment.
    fn on_rto(&mut self, window: &mut Window, now: Instant, in_flight: u32, mss: u32);
    /// The last reduction answered a loss that there was not: the controller's own state is as it was before. The caller sees to
    /// the window.
    fn on_undo(&mut self, window: &mut Window, now: Instant);
    /// Fast recovery is over.
    fn on_recovery_exit(&mut self, window: &mut Window, now: Instant);
    /// Nothing was in flight for `idle_us`, and sending starts again.
    fn on_restart(&mut self, window: &mut Window, now: Instant, idle_us: u32);
    /// The connection goes on with another clock, on which `from` is called `to`.
    fn change_clock(&mut self, from: Instant, to: Instant);
}

/// The controller of a connection.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) enum Controller {
    NewReno(NewReno),
    Cubic(Cubic),
    Dctcp(Dctcp),
}

impl Controller {
    pub(crate) fn new(algorithm: Algorithm) -> Self {
        match algorithm {
            Algorithm::NewReno => Self::NewReno(NewReno::default()),
            Algorithm::Cubic => Self::Cubic(Cubic::default()),
            Algorithm::Dctcp => Self::Dctcp(Dctcp::default()),
        }
    }

    pub(crate) fn algorithm(&self) -> Algorithm {
        match self {
            Self::NewReno(_) => Algorithm::NewReno,
            Self::Cubic(_) => Algorithm::Cubic,
            Self::Dctcp(_) => Algorithm::Dctcp,
        }
    }
}

macro_rules! dispatch {
    ($self:ident, $controller:ident => $call:expr) => {
        match $self {
            Controller::NewReno($controller) => $call,
            Controller::Cubic($controller) => $call,
            Controller::Dctcp($controller) => $call,
        }
    };
}

impl CongestionControl for Controller {
    fn on_ack(&mut self, window: &mut Window, ack: &Ack) {
        dispatch!(self, c => c.on_ack(window, ack));
    }

    fn on_loss(&mut self, window: &mut Window, now: Instant, in_flight: u32, mss: u32) {
        dispatch!(self, c => c.on_loss(window, now, in_flight, mss));
    }

    fn on_ecn(&mut self, window: &mut Window, now: Instant, in_flight: u32, mss: u32) {
        dispatch!(self, c => c.on_ecn(window, now, in_flight, mss));
    }

    fn on_rto(&mut self, window: &mut Window, now: Instant, in_flight: u32, mss: u32) {
        dispatch!(self, c => c.on_rto(window, now, in_flight, mss));
    }

    fn on_undo(&mut self, window: &mut Window, now: Instant) {
        dispatch!(self, c => c.on_undo(window, now));
    }

    fn on_recovery_exit(&mut self, window: &mut Window, now: Instant) {
        dispatch!(self, c => c.on_recovery_exit(window, now));
    }

    fn on_restart(&mut self, window: &mut Window, now: Instant, idle_us: u32) {
        dispatch!(self, c => c.on_restart(window, now, idle_us));
    }

    fn change_clock(&mut self, from: Instant, to: Instant) {
        dispatch!(self, c => c.change_clock(from, to));
    }
}

/// IW of RFC 6928: "min (10*MSS, max (2*MSS, 14600))", for any number of segments.
pub(crate) fn initial_window(segments: u8, mss: u32) -> u32 {
    let segments = u32::from(segments);
    (segments * mss).min((2 * mss).max(segments * 1460))
}
