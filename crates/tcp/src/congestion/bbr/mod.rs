//! BBRv3 (draft-ietf-ccwg-bbr): a model of the path, its bandwidth and its round-trip time, says how fast to send and how much.
//!
//! ```text
//!   Startup ──► Drain ──► DOWN ──► CRUISE ──► REFILL ──► UP ──┐        ProbeRTT: from each of them, after
//!                          ▲                                  │        five seconds without a lower round
//!                          └──────────────────────────────────┘        trip; back to CRUISE, or Startup
//! ```
//!
//! Names are the draft's; its functions are methods here, each under its section. What differs is said where it does. Bytes and
//! microseconds throughout; gains in hundredths.
//!
//! | file | what |
//! |---|---|
//! | `model.rs` | bandwidth, aggregation, what loss says ("Updating Network Path Model Parameters") |
//! | `startup.rs` | Startup and Drain |
//! | `probe_bw.rs` | the ProbeBW cycle |
//! | `probe_rtt.rs` | the least round trip, ProbeRTT, restart from idle |
//! | `control.rs` | pacing rate and window ("Updating Control Parameters") |

mod control;
mod model;
mod probe_bw;
mod probe_rtt;
mod startup;
#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};

use super::filter::WindowedMax;
use super::rate::{RateSample, RateSampler, Transmission};
use super::{CongestionControl, Delivered, Window};
use crate::flight::Tick;
use crate::time::Instant;

/// "Infinity", of bytes in flight.
const INFINITY: u32 = u32::MAX;
/// BBR.LossThresh, in hundredths.
const LOSS_THRESH: u64 = 2;
/// BBR.MinPipeCwnd, in segments.
const MIN_PIPE_SEGMENTS: u32 = 4;

/// BBR.state.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, Serialize, Deserialize)]
pub enum BbrState {
    /// The rate doubles in each round trip.
    Startup,
    /// The queue that Startup made is emptied.
    Drain,
    /// A little slower than the path, so that queues go away.
    ProbeBwDown,
    /// As fast as the path.
    ProbeBwCruise,
    /// The pipe is filled before it is probed.
    ProbeBwRefill,
    /// Faster than the path: is there more?
    ProbeBwUp,
    /// Little in flight, to measure the round trip without a queue.
    ProbeRtt,
}

impl BbrState {
    /// BBR.pacing_gain, in hundredths ("Summary of Control Behavior in the State Machine").
    pub(super) const fn pacing_gain(self) -> u64 {
        match self {
            Self::Startup => 277,
            Self::Drain => 50,
            Self::ProbeBwDown => 90,
            Self::ProbeBwCruise | Self::ProbeBwRefill | Self::ProbeRtt => 100,
            Self::ProbeBwUp => 125,
        }
    }

    /// BBR.cwnd_gain, in hundredths.
    pub(super) const fn cwnd_gain(self) -> u64 {
        match self {
            Self::ProbeBwUp => 225,
            Self::ProbeRtt => 50,
            _ => 200,
        }
    }

    /// IsInAProbeBWState ().
    const fn is_probe_bw(self) -> bool {
        matches!(
            self,
            Self::ProbeBwDown | Self::ProbeBwCruise | Self::ProbeBwRefill | Self::ProbeBwUp
        )
    }

    /// IsProbingBW ().
    const fn is_probing(self) -> bool {
        matches!(self, Self::Startup | Self::ProbeBwRefill | Self::ProbeBwUp)
    }
}

/// BBR.ack_phase.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
enum AckPhase {
    Init,
    Refilling,
    ProbeStarting,
    ProbeFeedback,
    ProbeStopping,
}

/// What the draft calls BBR, and of C what is BBR's alone.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct Bbr {
    pub(super) sampler: RateSampler,
    pub(super) state: BbrState,
    ack_phase: AckPhase,
    mss: u32,
    /// C.InitialCwnd.
    initial_window: u32,
    /// C.pacing_rate, in bytes a second.
    pub(super) pacing_rate: u64,
    /// A round trip was measured before the first rate was chosen.
    rate_by_rtt: bool,

    // Rounds.
    next_round_delivered: u64,
    round_count: u32,
    round_start: bool,
    rounds_since_probe_up: u32,

    // Bandwidth, in bytes a second.
    /// BBR.max_bw_filter: of the last ProbeBW cycle, and of this one.
    max_bw_filter: [u64; 2],
    pub(super) max_bw: u64,
    /// u64::MAX: "Infinity".
    bw_shortterm: u64,
    bw: u64,
    bw_latest: u64,

    // Bytes in flight.
    inflight_latest: u64,
    inflight_longterm: u32,
    inflight_shortterm: u32,
    extra_acked_filter: WindowedMax,
    extra_acked_start: Instant,
    extra_acked_delivered: u64,
    max_inflight: u32,
    prior_cwnd: u32,

    // Full pipe.
    full_bw: u64,
    full_bw_count: u8,
    full_bw_now: bool,
    full_bw_reached: bool,
    drain_start_round: u32,

    // Loss.
    loss_round_delivered: u64,
    loss_round_start: bool,
    is_loss_in_round: bool,
    loss_events_in_round: u8,
    /// The connection recovers from a loss.
    in_recovery: bool,

    // The cycle.
    is_bw_probe_sample: bool,
    prev_probe_too_high: bool,
    prev_probe_precautionary: bool,
    probe_up_acked_per_inc: u32,
    bw_probe_up_acked: u32,
    bw_probe_up_rounds: u8,
    cycle_stamp: Instant,
    bw_probe_wait_us: u32,
    /// C.is_cwnd_limited: in this round, and in the last.
    limited: [bool; 2],

    // Undo.
    undo_state: Option<BbrState>,
    undo_bw_shortterm: u64,
    undo_inflight_shortterm: u32,
    undo_inflight_longterm: u32,

    // Round-trip time; u32::MAX: not known.
    pub(super) min_rtt_us: u32,
    min_rtt_stamp: Instant,
    probe_rtt_min_delay_us: u32,
    probe_rtt_min_stamp: Instant,
    probe_rtt_expired: bool,
    probe_rtt_done: Option<Instant>,
    probe_rtt_round_done: bool,
    idle_restart: bool,
    /// How often ProbeRTT was entered.
    pub(super) probe_rtts: u32,

    random: u32,
}

impl Bbr {
    /// OnInit (). `seed`: what differs between connections.
    // tidy: long function because it names every field once.
    pub(crate) fn new(now: Instant, seed: u32) -> Self {
        Self {
            sampler: RateSampler::new(),
            state: BbrState::Startup,
            ack_phase: AckPhase::Init,
            mss: 0,
            initial_window: 0,
            pacing_rate: 0,
            rate_by_rtt: false,
            next_round_delivered: 0,
            round_count: 0,
            round_start: false,
            rounds_since_probe_up: 0,
            max_bw_filter: [0; 2],
            max_bw: 0,
            bw_shortterm: u64::MAX,
            bw: 0,
            bw_latest: 0,
            inflight_latest: 0,
            inflight_longterm: INFINITY,
            inflight_shortterm: INFINITY,
            extra_acked_filter: WindowedMax::default(),
            extra_acked_start: now,
            extra_acked_delivered: 0,
            max_inflight: 0,
            prior_cwnd: 0,
            full_bw: 0,
            full_bw_count: 0,
            full_bw_now: false,
            full_bw_reached: false,
            drain_start_round: 0,
            loss_round_delivered: 0,
            loss_round_start: false,
            is_loss_in_round: false,
            loss_events_in_round: 0,
            in_recovery: false,
            is_bw_probe_sample: false,
            prev_probe_too_high: false,
            prev_probe_precautionary: false,
            probe_up_acked_per_inc: INFINITY,
            bw_probe_up_acked: 0,
            bw_probe_up_rounds: 0,
            cycle_stamp: now,
            bw_probe_wait_us: 0,
            limited: [false; 2],
            undo_state: None,
            undo_bw_shortterm: 0,
            undo_inflight_shortterm: 0,
            undo_inflight_longterm: 0,
            min_rtt_us: u32::MAX,
            min_rtt_stamp: now,
            probe_rtt_min_delay_us: u32::MAX,
            probe_rtt_min_stamp: now,
            probe_rtt_expired: false,
            probe_rtt_done: None,
            probe_rtt_round_done: false,
            idle_restart: false,
            probe_rtts: 0,
            random: seed | 1,
        }
    }

    /// Segment size and initial window may change until the first data goes out.
    pub(super) fn on_transmit(&mut self, now: Instant, setting: &Setting, window: &mut Window) {
        self.mss = setting.mss.max(1);
        self.initial_window = setting.initial_window;
        if !self.rate_by_rtt && self.round_count == 0 {
            self.init_pacing_rate(setting.srtt_us);
        }
        if setting.in_flight == 0 && self.sampler.app_limited != 0 {
            self.restart_from_idle(now, window);
        }
    }

    pub(super) fn on_sent(&mut self, sent: &Transmission) {
        self.sampler.on_sent(sent);
    }

    /// UpdateOnACK ().
    pub(super) fn on_delivered(&mut self, window: &mut Window, ack: &Delivered) {
        self.mss = ack.mss.max(1);
        self.limited[0] |= ack.cwnd_limited;
        if ack.bytes > 0 {
            let tick = Tick::at(ack.now);
            let newest = ack.newest.or_else(|| self.sampler.sent_before(ack.una));
            let sampler = &mut self.sampler;
            let mut sample = sampler.on_delivered(tick, ack.bytes, newest, ack.min_rtt_us);
            sample.rtt_us = match newest {
                // No transmit times are kept.
                Some(newest) if ack.newest.is_none() && !ack.recovering => {
                    tick.since(newest).max(1) as u32
                }
                _ => ack.rtt_us,
            };
            self.update_model_and_state(window, ack, &sample);
        }
        if self.in_recovery && !ack.recovering {
            self.restore_cwnd(window);
        }
        self.in_recovery = ack.recovering;
        if ack.bytes > 0 {
            self.set_pacing_rate();
            self.set_cwnd(window, ack.bytes);
        }
    }

    /// UpdateModelAndState ().
    fn update_model_and_state(&mut self, window: &mut Window, ack: &Delivered, rs: &RateSample) {
        self.update_latest_delivery_signals(rs);
        self.update_congestion_signals(window, rs);
        self.update_ack_aggregation(window, ack.now, rs);
        self.check_full_bw_reached(rs);
        self.check_startup_done(ack, rs);
        self.check_drain_done(ack);
        self.update_probe_bw_cycle_phase(window, ack, rs);
        self.update_min_rtt(ack.now, rs);
        self.check_probe_rtt(window, ack, rs);
        self.advance_latest_delivery_signals(rs);
        self.bw = self.max_bw.min(self.bw_shortterm);
    }

    /// Loss was found: OnEnterFastRecovery ().
    pub(super) fn enter_recovery(&mut self, window: &Window) {
        self.note_loss(window);
        self.in_recovery = true;
    }

    /// A number below `n`, from a generator of Marsaglia's.
    fn random_below(&mut self, n: u32) -> u32 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 17;
        self.random ^= self.random << 5;
        self.random % n
    }

    fn min_pipe_cwnd(&self) -> u32 {
        MIN_PIPE_SEGMENTS * self.mss
    }

    /// HasElapsedInPhase () and the like.
    fn has_elapsed(now: Instant, since: Instant, micros: u32) -> bool {
        now > since.after_micros(micros)
    }
}

/// What [`Bbr::on_transmit`] looks at.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setting {
    pub(crate) mss: u32,
    pub(crate) initial_window: u32,
    /// 0: none was measured.
    pub(crate) srtt_us: u32,
    pub(crate) in_flight: u32,
}

impl CongestionControl for Box<Bbr> {
    fn on_ack(&mut self, _window: &mut Window, _ack: &super::Ack) {}

    fn on_loss(&mut self, window: &mut Window, _now: Instant, _in_flight: u32, _mss: u32) {
        self.enter_recovery(window);
    }

    /// The draft leaves the answer to ECN open: an echo counts as a loss in its round, which lowers the short-term model.
    fn on_ecn(&mut self, window: &mut Window, _now: Instant, _in_flight: u32, _mss: u32) {
        self.note_loss(window);
    }

    /// OnEnterRTO (): "C.cwnd = C.inflight + 1", where what is in flight is known only after losses are marked: the caller sees to that.
    fn on_rto(&mut self, window: &mut Window, _now: Instant, _in_flight: u32, mss: u32) {
        self.enter_recovery(window);
        window.cwnd = mss;
    }

    fn on_undo(&mut self, window: &mut Window, _now: Instant) {
        self.handle_spurious_loss_detection(window);
    }

    fn on_recovery_exit(&mut self, _window: &mut Window, _now: Instant) {}

    fn on_restart(&mut self, _window: &mut Window, _now: Instant, _idle_us: u32) {}

    fn change_clock(&mut self, from: Instant, to: Instant) {
        self.sampler.shift(Tick::jump(from, to));
        for time in [
            &mut self.extra_acked_start,
            &mut self.cycle_stamp,
            &mut self.min_rtt_stamp,
            &mut self.probe_rtt_min_stamp,
        ] {
            *time = time.on_other_clock(from, to);
        }
        if let Some(done) = &mut self.probe_rtt_done {
            *done = done.on_other_clock(from, to);
        }
    }
}
