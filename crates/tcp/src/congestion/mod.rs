//! Congestion control: siblings of one shape.
//!
//! A controller owns what it alone needs; the window and the threshold are the connection's ([`Window`]), as every
//! controller has them and the transmit path reads them. Which controller runs is an enum ([`Controller`]): calls are
//! dispatched statically. A new controller implements [`CongestionControl`] and becomes a variant.
//!
//! All windows are in bytes.

mod bbr;
mod cubic;
mod dctcp;
mod filter;
mod hystart;
mod newreno;
mod rate;
#[cfg(test)]
mod tests;

pub use bbr::BbrState;
pub(crate) use bbr::{Bbr, Setting};
pub(crate) use cubic::Cubic;
pub(crate) use dctcp::{Dctcp, Observed};
pub(crate) use newreno::NewReno;
pub(crate) use rate::Transmission;

use serde::{Deserialize, Serialize};

use crate::config::Algorithm;
use crate::flight::Tick;
use crate::range_pool::Range;
use crate::time::Instant;
use crate::types::BbrInfo;

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

/// Something was delivered, cumulatively or not: for controllers that model the path.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Delivered {
    pub(crate) now: Instant,
    /// Bytes newly delivered; 0: nothing, but recovery may be over.
    pub(crate) bytes: u32,
    /// When that was sent which was sent last of it; `None`: no transmit times are kept.
    pub(crate) newest: Option<Tick>,
    /// SND.UNA, modulo 2^32.
    pub(crate) una: u32,
    /// Its round-trip time, in microseconds; 0: not known.
    pub(crate) rtt_us: u32,
    /// The least of the connection's life.
    pub(crate) min_rtt_us: u32,
    /// What is in flight after it, in bytes.
    pub(crate) in_flight: u32,
    pub(crate) mss: u32,
    /// The congestion window is what held sending back last.
    pub(crate) cwnd_limited: bool,
    /// Something is being recovered from.
    pub(crate) recovering: bool,
    /// C.has_selective_acks.
    pub(crate) sack: bool,
}

/// A range is deemed lost.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lost {
    pub(crate) now: Instant,
    pub(crate) bytes: u32,
    /// When it was sent, if that is known.
    pub(crate) sent: Option<Tick>,
    pub(crate) sack: bool,
}

impl Lost {
    pub(crate) fn range(now: Instant, range: Range, sent: Tick, sack: bool) -> Self {
        Self {
            now,
            bytes: range.len() as u32,
            sent: Some(sent),
            sack,
        }
    }
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
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) enum Controller {
    NewReno(NewReno),
    Cubic(Cubic),
    Dctcp(Dctcp),
    /// Allocated once, when the connection is opened.
    Bbr(Box<Bbr>),
}

impl Controller {
    /// `seed`: what differs between connections.
    pub(crate) fn new(algorithm: Algorithm, now: Instant, seed: u32) -> Self {
        match algorithm {
            Algorithm::Bbr => Self::Bbr(Box::new(Bbr::new(now, seed))),
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
            Self::Bbr(_) => Algorithm::Bbr,
        }
    }

    /// Whether the controller models the path: then the window is its own affair in recovery too, and it hears of every transmission,
    /// delivery and loss. Such a connection is paced.
    #[inline]
    pub(crate) fn is_model(&self) -> bool {
        matches!(self, Self::Bbr(_))
    }

    /// C.pacing_rate, in bytes a second, if the controller has one.
    pub(crate) fn pacing_rate(&self) -> Option<u64> {
        match self {
            Self::Bbr(bbr) => Some(bbr.pacing_rate),
            _ => None,
        }
    }

    /// Data is about to be sent.
    pub(crate) fn on_transmit(&mut self, now: Instant, setting: &Setting, window: &mut Window) {
        if let Self::Bbr(bbr) = self {
            bbr.on_transmit(now, setting, window);
        }
    }

    /// Data is sent.
    pub(crate) fn on_sent(&mut self, sent: &Transmission) {
        if let Self::Bbr(bbr) = self {
            bbr.on_sent(sent);
        }
    }

    /// An ACK was processed.
    pub(crate) fn on_delivered(&mut self, window: &mut Window, delivered: &Delivered) {
        if let Self::Bbr(bbr) = self {
            bbr.on_delivered(window, delivered);
        }
    }

    /// Something is deemed lost.
    pub(crate) fn on_lost(&mut self, window: &Window, lost: &Lost) {
        if let Self::Bbr(bbr) = self {
            bbr.on_lost(window, lost);
        }
    }

    /// There is nothing to send, although the window would allow it.
    pub(crate) fn mark_app_limited(&mut self, in_flight: u32) {
        if let Self::Bbr(bbr) = self {
            bbr.sampler.mark_app_limited(in_flight);
        }
    }

    /// What BBR knows.
    pub(crate) fn bbr_info(&self) -> Option<BbrInfo> {
        let Self::Bbr(bbr) = self else { return None };
        Some(BbrInfo {
            state: bbr.state,
            bandwidth: bbr.max_bw,
            min_rtt_us: if bbr.min_rtt_us == u32::MAX {
                0
            } else {
                bbr.min_rtt_us
            },
            pacing_gain: bbr.state.pacing_gain() as u32,
            cwnd_gain: bbr.state.cwnd_gain() as u32,
            probe_rtts: bbr.probe_rtts,
            app_limited: bbr.sampler.app_limited != 0,
        })
    }
}

macro_rules! dispatch {
    ($self:ident, $controller:ident => $call:expr) => {
        match $self {
            Controller::NewReno($controller) => $call,
            Controller::Cubic($controller) => $call,
            Controller::Dctcp($controller) => $call,
            Controller::Bbr($controller) => $call,
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
