//! The model of the path: "Updating Network Path Model Parameters".

use super::super::rate::{LostSample, RateSample};
use super::super::{Lost, Window};
use super::{Bbr, BbrState, INFINITY, LOSS_THRESH};
use crate::time::Instant;

/// BBR.Beta, in hundredths.
const BETA: u64 = 70;
/// BBR.ExtraAckedFilterLen, in round trips.
const EXTRA_ACKED_FILTER_LEN: u32 = 10;

impl Bbr {
    /// StartRound ().
    pub(super) fn start_round(&mut self) {
        self.next_round_delivered = self.sampler.delivered;
    }

    /// UpdateRound ().
    fn update_round(&mut self, rs: &RateSample) {
        self.round_start = rs.has_data && rs.prior_delivered >= self.next_round_delivered;
        if self.round_start {
            self.start_round();
            self.round_count = self.round_count.wrapping_add(1);
            self.rounds_since_probe_up = self.rounds_since_probe_up.saturating_add(1);
            self.limited = [false, self.limited[0]];
        }
    }

    /// C.is_cwnd_limited: "at any point in the last packet-timed round trip".
    pub(super) fn is_cwnd_limited(&self) -> bool {
        self.limited[0] || self.limited[1]
    }

    /// UpdateMaxBw ().
    fn update_max_bw(&mut self, rs: &RateSample) {
        self.update_round(rs);
        if rs.rate > 0 && (rs.rate >= self.max_bw || !rs.app_limited) {
            self.max_bw_filter[1] = self.max_bw_filter[1].max(rs.rate);
            self.max_bw = self.max_bw_filter[0].max(self.max_bw_filter[1]);
        }
    }

    /// AdvanceMaxBwFilter (): "up to 2 ProbeBW cycles, the current cycle and the previous full cycle". As in Linux, a cycle without a
    /// sample does not count: what is known stays known.
    pub(super) fn advance_max_bw_filter(&mut self) {
        if self.max_bw_filter[1] > 0 {
            self.max_bw_filter = [self.max_bw_filter[1], 0];
            self.max_bw = self.max_bw_filter[0];
        }
    }

    /// UpdateLatestDeliverySignals ().
    pub(super) fn update_latest_delivery_signals(&mut self, rs: &RateSample) {
        self.loss_round_start = false;
        self.bw_latest = self.bw_latest.max(rs.rate);
        self.inflight_latest = self.inflight_latest.max(rs.delivered);
        if rs.has_data && rs.prior_delivered >= self.loss_round_delivered {
            self.loss_round_delivered = self.sampler.delivered;
            self.loss_round_start = true;
        }
    }

    /// AdvanceLatestDeliverySignals ().
    pub(super) fn advance_latest_delivery_signals(&mut self, rs: &RateSample) {
        if self.loss_round_start {
            self.bw_latest = rs.rate;
            self.inflight_latest = rs.delivered;
        }
    }

    /// UpdateCongestionSignals ().
    pub(super) fn update_congestion_signals(&mut self, window: &Window, rs: &RateSample) {
        self.update_max_bw(rs);
        if !self.loss_round_start {
            return;
        }
        if !self.state.is_probing() && self.is_loss_in_round {
            self.lower_bounds(window);
        }
        self.is_loss_in_round = false;
    }

    /// AdaptLowerBoundsFromCongestion ().
    fn lower_bounds(&mut self, window: &Window) {
        // InitLowerBounds ()
        if self.bw_shortterm == u64::MAX {
            self.bw_shortterm = self.max_bw;
        }
        if self.inflight_shortterm == INFINITY {
            self.inflight_shortterm = window.cwnd;
        }
        // LossLowerBounds ()
        self.bw_shortterm = self.bw_latest.max(self.bw_shortterm / 100 * BETA);
        let reduced = u64::from(self.inflight_shortterm) * BETA / 100;
        self.inflight_shortterm = self.inflight_latest.max(reduced).min(INFINITY.into()) as u32;
    }

    pub(super) fn reset_congestion_signals(&mut self) {
        self.is_loss_in_round = false;
        self.bw_latest = 0;
        self.inflight_latest = 0;
    }

    pub(super) fn reset_short_term_model(&mut self) {
        self.bw_shortterm = u64::MAX;
        self.inflight_shortterm = INFINITY;
    }

    /// UpdateACKAggregation ().
    pub(super) fn update_ack_aggregation(
        &mut self,
        window: &Window,
        now: Instant,
        rs: &RateSample,
    ) {
        let interval_us = now.micros_since(self.extra_acked_start, u32::MAX);
        let mut expected = volume(self.bw, interval_us);
        if self.extra_acked_delivered <= expected {
            self.extra_acked_delivered = 0;
            self.extra_acked_start = now;
            expected = 0;
        }
        self.extra_acked_delivered += u64::from(rs.newly_acked);
        let extra = (self.extra_acked_delivered - expected).min(window.cwnd.into()) as u32;
        // "in Startup, just remember 1 round"
        let rounds = if self.full_bw_reached {
            EXTRA_ACKED_FILTER_LEN
        } else {
            1
        };
        self.extra_acked_filter
            .update(rounds, self.round_count, extra);
    }

    /// IsInflightTooHigh ().
    pub(super) fn is_inflight_too_high(lost: u32, in_flight: u32, sack: bool) -> bool {
        u64::from(lost) * 100 > u64::from(in_flight) * LOSS_THRESH || (lost > 0 && !sack)
    }

    /// NoteLoss (), of which SaveStateUponLoss () is a part.
    pub(super) fn note_loss(&mut self, window: &Window) {
        if !self.is_loss_in_round {
            self.loss_round_delivered = self.sampler.delivered;
            self.save_cwnd(window);
            self.undo_state = None;
            self.undo_bw_shortterm = self.bw_shortterm;
            self.undo_inflight_shortterm = self.inflight_shortterm;
            self.undo_inflight_longterm = self.inflight_longterm;
        }
        self.is_loss_in_round = true;
    }

    /// HandleLostPacket (), for a range that was sent at one time.
    pub(in crate::congestion) fn on_lost(&mut self, window: &Window, lost: &Lost) {
        let sample = self.sampler.on_lost(lost.bytes, lost.sent);
        self.note_loss(window);
        self.loss_events_in_round = self.loss_events_in_round.saturating_add(1);
        let Some(sample) = sample else { return };
        if self.is_bw_probe_sample
            && Self::is_inflight_too_high(sample.lost, sample.in_flight, lost.sack)
        {
            let in_flight = inflight_at_loss(&sample, lost.bytes);
            self.handle_inflight_too_high(window, lost.now, in_flight, sample.app_limited);
        }
    }

    /// HandleInflightTooHigh ().
    fn handle_inflight_too_high(
        &mut self,
        window: &Window,
        now: Instant,
        in_flight: u32,
        app_limited: bool,
    ) {
        self.prev_probe_too_high = true;
        // "only react once per bw probe"
        self.is_bw_probe_sample = false;
        if !app_limited {
            let floor = u64::from(self.target_inflight(window)) * BETA / 100;
            self.inflight_longterm = in_flight.max(floor as u32);
        }
        if self.state == BbrState::ProbeBwUp {
            self.undo_state = Some(BbrState::ProbeBwUp);
            self.start_probe_bw_down(now);
        }
    }

    /// HandleSpuriousLossDetection ().
    pub(super) fn handle_spurious_loss_detection(&mut self, window: &mut Window) {
        self.restore_cwnd(window);
        self.in_recovery = false;
        self.is_loss_in_round = false;
        self.reset_full_bw();
        self.bw_shortterm = self.bw_shortterm.max(self.undo_bw_shortterm);
        self.inflight_shortterm = self.inflight_shortterm.max(self.undo_inflight_shortterm);
        self.inflight_longterm = self.inflight_longterm.max(self.undo_inflight_longterm);
        match self.undo_state.take() {
            Some(BbrState::Startup) if self.state != BbrState::Startup => {
                self.full_bw_reached = false;
                if self.state != BbrState::ProbeRtt {
                    self.state = BbrState::Startup;
                }
            }
            Some(BbrState::ProbeBwUp)
                if !matches!(self.state, BbrState::ProbeBwUp | BbrState::ProbeRtt) =>
            {
                self.start_probe_bw_refill();
            }
            _ => {}
        }
    }
}

/// What a rate delivers in a time, in bytes.
pub(super) fn volume(rate: u64, micros: u32) -> u64 {
    (u128::from(rate) * u128::from(micros) / 1_000_000) as u64
}

/// InflightAtLoss (): "At what prefix of 'packet' P did losses exceed BBR.LossThresh?"
fn inflight_at_loss(sample: &LostSample, size: u32) -> u32 {
    let before = i64::from(sample.in_flight) - i64::from(size);
    let lost_before = i64::from(sample.lost) - i64::from(size);
    let thresh = LOSS_THRESH as i64;
    let prefix = (thresh * before - 100 * lost_before) / (100 - thresh);
    (before + prefix.max(0)).clamp(0, sample.in_flight.into()) as u32
}
