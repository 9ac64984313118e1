//! The ProbeBW cycle: DOWN, CRUISE, REFILL, UP.

use super::super::rate::RateSample;
use super::super::{Delivered, Window};
use super::{AckPhase, Bbr, BbrState, INFINITY};
use crate::time::Instant;

/// T_reno_bound, in round trips.
const RENO_ROUNDS: u32 = 63;
/// BBR.Headroom, in hundredths.
const HEADROOM: u64 = 15;

impl Bbr {
    /// StartProbeBW_DOWN ().
    pub(super) fn start_probe_bw_down(&mut self, now: Instant) {
        self.reset_congestion_signals();
        self.probe_up_acked_per_inc = INFINITY;
        // PickProbeWait ()
        self.rounds_since_probe_up = self.random_below(2);
        self.bw_probe_wait_us = 2_000_000 + self.random_below(1_000_000);
        self.cycle_stamp = now;
        self.ack_phase = AckPhase::ProbeStopping;
        self.start_round();
        self.state = BbrState::ProbeBwDown;
    }

    /// StartProbeBW_REFILL ().
    pub(super) fn start_probe_bw_refill(&mut self) {
        self.reset_short_term_model();
        self.bw_probe_up_rounds = 0;
        self.bw_probe_up_acked = 0;
        self.prev_probe_precautionary = false;
        self.ack_phase = AckPhase::Refilling;
        self.start_round();
        self.state = BbrState::ProbeBwRefill;
    }

    /// StartProbeBW_UP ().
    fn start_probe_bw_up(&mut self, window: &Window, rs: &RateSample) {
        self.ack_phase = AckPhase::ProbeStarting;
        self.start_round();
        self.reset_full_bw();
        self.full_bw = rs.rate;
        self.state = BbrState::ProbeBwUp;
        self.raise_inflight_longterm_slope(window);
    }

    /// UpdateProbeBWCyclePhase ().
    pub(super) fn update_probe_bw_cycle_phase(
        &mut self,
        window: &Window,
        ack: &Delivered,
        rs: &RateSample,
    ) {
        if !self.full_bw_reached || self.adapt_long_term_model(window, ack, rs) {
            return;
        }
        let state = self.state;
        match state {
            BbrState::ProbeBwDown if self.check_time_to_probe_bw(window, ack.now) => {}
            BbrState::ProbeBwDown if self.is_time_to_cruise(ack) => {
                self.state = BbrState::ProbeBwCruise;
            }
            BbrState::ProbeBwCruise => {
                self.check_time_to_probe_bw(window, ack.now);
            }
            BbrState::ProbeBwRefill if self.round_start => {
                self.is_bw_probe_sample = true;
                self.start_probe_bw_up(window, rs);
            }
            BbrState::ProbeBwUp if self.is_time_to_go_down(window, ack, rs) => {
                // "no high loss (yet)"
                self.prev_probe_too_high = false;
                self.start_probe_bw_down(ack.now);
            }
            _ => {}
        }
    }

    /// IsTimeToProbeBW ().
    fn check_time_to_probe_bw(&mut self, window: &Window, now: Instant) -> bool {
        let rounds = (self.target_inflight(window) / self.mss).min(RENO_ROUNDS);
        let due = Self::has_elapsed(now, self.cycle_stamp, self.bw_probe_wait_us)
            || self.rounds_since_probe_up >= rounds;
        if due {
            self.start_probe_bw_refill();
        }
        due
    }

    /// TargetInflight (): "Our estimated BDP, unless congestion cut C.cwnd."
    pub(super) fn target_inflight(&self, window: &Window) -> u32 {
        self.bdp().min(window.cwnd)
    }

    /// IsTimeToCruise ().
    fn is_time_to_cruise(&self, ack: &Delivered) -> bool {
        ack.in_flight <= self.inflight_with_headroom()
            && ack.in_flight <= self.inflight(self.max_bw, 100)
    }

    /// IsTimeToGoDown ().
    fn is_time_to_go_down(&mut self, window: &Window, ack: &Delivered, rs: &RateSample) -> bool {
        if self.prev_probe_too_high && ack.in_flight >= self.inflight_longterm {
            self.prev_probe_precautionary = true;
            return true;
        }
        if self.is_cwnd_limited() && window.cwnd >= self.inflight_longterm {
            // "bw is limited by BBR.inflight_longterm"
            self.reset_full_bw();
            self.full_bw = rs.rate;
            return false;
        }
        self.full_bw_now
    }

    /// InflightWithHeadroom ().
    pub(super) fn inflight_with_headroom(&self) -> u32 {
        if self.inflight_longterm == INFINITY {
            return INFINITY;
        }
        let share = (u64::from(self.inflight_longterm) * HEADROOM / 100) as u32;
        let headroom = share.max(self.mss);
        self.inflight_longterm
            .saturating_sub(headroom)
            .max(self.min_pipe_cwnd())
    }

    /// RaiseInflightLongtermSlope ().
    fn raise_inflight_longterm_slope(&mut self, window: &Window) {
        let growth_this_round = 1u32 << self.bw_probe_up_rounds;
        self.bw_probe_up_rounds = (self.bw_probe_up_rounds + 1).min(30);
        self.probe_up_acked_per_inc = (window.cwnd / growth_this_round).max(self.mss);
    }

    /// ProbeInflightLongtermUpward ().
    fn probe_inflight_longterm_upward(&mut self, window: &Window, rs: &RateSample) {
        if !self.is_cwnd_limited() || window.cwnd < self.inflight_longterm {
            return;
        }
        self.bw_probe_up_acked = self.bw_probe_up_acked.saturating_add(rs.newly_acked);
        let steps = self.bw_probe_up_acked / self.probe_up_acked_per_inc;
        self.bw_probe_up_acked -= steps * self.probe_up_acked_per_inc;
        let grown = steps.saturating_mul(self.mss);
        self.inflight_longterm = self.inflight_longterm.saturating_add(grown);
        if self.round_start {
            self.raise_inflight_longterm_slope(window);
        }
    }

    /// AdaptLongTermModel (): whether it has decided about the state.
    fn adapt_long_term_model(&mut self, window: &Window, ack: &Delivered, rs: &RateSample) -> bool {
        if self.ack_phase == AckPhase::ProbeStarting && self.round_start {
            self.ack_phase = AckPhase::ProbeFeedback;
        }
        if self.ack_phase == AckPhase::ProbeStopping && self.round_start {
            self.is_bw_probe_sample = false;
            self.ack_phase = AckPhase::Init;
            if self.state.is_probe_bw() && !rs.app_limited {
                self.advance_max_bw_filter();
            }
            // "Precautionary Bandwidth Probing: Acceleration"
            if self.state.is_probe_bw()
                && self.prev_probe_precautionary
                && !self.prev_probe_too_high
            {
                self.start_probe_bw_refill();
                return true;
            }
        }
        if self.inflight_longterm == INFINITY
            || Self::is_inflight_too_high(rs.lost, rs.in_flight, ack.sack)
        {
            return false;
        }
        self.inflight_longterm = self.inflight_longterm.max(rs.in_flight);
        if self.state == BbrState::ProbeBwUp {
            self.probe_inflight_longterm_upward(window, rs);
        }
        false
    }
}
