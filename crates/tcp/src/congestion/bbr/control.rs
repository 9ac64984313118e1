//! Pacing rate and window: "Updating Control Parameters".

use super::super::{MAX_CWND, Window};
use super::model::volume;
use super::{Bbr, BbrState, INFINITY};
use crate::pacing::quantum;

/// BBR.PacingMarginPercent.
const PACING_MARGIN_PERCENT: u64 = 1;

impl Bbr {
    /// InitPacingRate ().
    pub(super) fn init_pacing_rate(&mut self, srtt_us: u32) {
        self.rate_by_rtt = srtt_us > 0;
        let round_trip_us = if srtt_us > 0 { srtt_us } else { 1_000 };
        let nominal = u64::from(self.initial_window) * 1_000_000 / u64::from(round_trip_us);
        self.pacing_rate = nominal * BbrState::Startup.pacing_gain() / 100;
    }

    /// SetPacingRateWithGain ().
    pub(super) fn set_pacing_rate_with_gain(&mut self, gain: u64) {
        let rate = self.bw / 100 * gain / 100 * (100 - PACING_MARGIN_PERCENT);
        if self.full_bw_reached || rate > self.pacing_rate {
            // Never so little that a timer would be years away.
            self.pacing_rate = rate.max(self.mss.into());
        }
    }

    pub(super) fn set_pacing_rate(&mut self) {
        self.set_pacing_rate_with_gain(self.state.pacing_gain());
    }

    /// BBR.bdp; C.InitialCwnd where no round trip was measured.
    pub(super) fn bdp(&self) -> u32 {
        self.bdp_multiple(self.bw, 100)
    }

    /// BDPMultiple ().
    fn bdp_multiple(&self, bw: u64, gain: u64) -> u32 {
        if self.min_rtt_us == u32::MAX {
            return self.initial_window;
        }
        let bytes = volume(bw, self.min_rtt_us).min(MAX_CWND.into()) * gain / 100;
        bytes.min(MAX_CWND.into()) as u32
    }

    /// QuantizationBudget (). BBR.offload_budget is three quanta.
    fn quantization_budget(&self, inflight: u32) -> u32 {
        let mut inflight = inflight
            .max(3 * quantum(self.pacing_rate, self.mss))
            .max(self.min_pipe_cwnd());
        if self.state == BbrState::ProbeBwUp {
            inflight += 2 * self.mss;
        }
        inflight
    }

    /// Inflight ().
    pub(super) fn inflight(&self, bw: u64, gain: u64) -> u32 {
        self.quantization_budget(self.bdp_multiple(bw, gain))
    }

    /// UpdateMaxInflight ().
    fn update_max_inflight(&mut self) {
        let inflight = self.bdp_multiple(self.bw, self.state.cwnd_gain());
        let inflight = inflight.saturating_add(self.extra_acked_filter.get());
        self.max_inflight = self.quantization_budget(inflight.min(MAX_CWND));
    }

    /// SetCwnd ().
    pub(super) fn set_cwnd(&mut self, window: &mut Window, newly_acked: u32) {
        self.update_max_inflight();
        let grown = window.cwnd.saturating_add(newly_acked).min(MAX_CWND);
        if self.full_bw_reached {
            window.cwnd = grown.min(self.max_inflight);
        } else if window.cwnd < self.max_inflight
            || self.sampler.delivered < u64::from(self.initial_window)
        {
            window.cwnd = grown;
        }
        window.cwnd = window.cwnd.max(self.min_pipe_cwnd());
        if self.state == BbrState::ProbeRtt {
            // BoundCwndForProbeRTT ()
            window.cwnd = window.cwnd.min(self.probe_rtt_cwnd());
        }
        self.bound_cwnd_for_model(window);
    }

    /// ProbeRTTCwnd ().
    pub(super) fn probe_rtt_cwnd(&self) -> u32 {
        self.bdp_multiple(self.bw, BbrState::ProbeRtt.cwnd_gain())
            .max(self.min_pipe_cwnd())
    }

    /// BoundCwndForModel ().
    fn bound_cwnd_for_model(&self, window: &mut Window) {
        let cap = match self.state {
            BbrState::ProbeRtt | BbrState::ProbeBwCruise => self.inflight_with_headroom(),
            state if state.is_probe_bw() => self.inflight_longterm,
            _ => INFINITY,
        };
        let cap = cap.min(self.inflight_shortterm).max(self.min_pipe_cwnd());
        window.cwnd = window.cwnd.min(cap);
    }

    /// SaveCwnd ().
    pub(super) fn save_cwnd(&mut self, window: &Window) {
        self.prior_cwnd = if !self.in_recovery && self.state != BbrState::ProbeRtt {
            window.cwnd
        } else {
            self.prior_cwnd.max(window.cwnd)
        };
    }

    /// RestoreCwnd ().
    pub(super) fn restore_cwnd(&self, window: &mut Window) {
        window.cwnd = window.cwnd.max(self.prior_cwnd);
    }
}
