//! The least round-trip time, ProbeRTT, and what happens after idleness.

use super::super::rate::RateSample;
use super::super::{Delivered, Window};
use super::{AckPhase, Bbr, BbrState};
use crate::time::Instant;

/// BBR.MinRTTFilterLen, in microseconds.
const MIN_RTT_FILTER_LEN_US: u32 = 10_000_000;
/// BBR.ProbeRTTInterval.
const PROBE_RTT_INTERVAL_US: u32 = 5_000_000;
/// BBR.ProbeRTTDuration.
const PROBE_RTT_DURATION_US: u32 = 200_000;

impl Bbr {
    /// UpdateMinRTT ().
    pub(super) fn update_min_rtt(&mut self, now: Instant, rs: &RateSample) {
        self.probe_rtt_expired =
            Self::has_elapsed(now, self.probe_rtt_min_stamp, PROBE_RTT_INTERVAL_US);
        if rs.rtt_us > 0 && (rs.rtt_us < self.probe_rtt_min_delay_us || self.probe_rtt_expired) {
            self.probe_rtt_min_delay_us = rs.rtt_us;
            self.probe_rtt_min_stamp = now;
        }
        let expired = Self::has_elapsed(now, self.min_rtt_stamp, MIN_RTT_FILTER_LEN_US);
        if self.probe_rtt_min_delay_us < self.min_rtt_us || expired {
            self.min_rtt_us = self.probe_rtt_min_delay_us;
            self.min_rtt_stamp = self.probe_rtt_min_stamp;
        }
    }

    /// CheckProbeRTT ().
    pub(super) fn check_probe_rtt(
        &mut self,
        window: &mut Window,
        ack: &Delivered,
        rs: &RateSample,
    ) {
        if self.state != BbrState::ProbeRtt && self.probe_rtt_expired && !self.idle_restart {
            self.save_cwnd(window);
            self.state = BbrState::ProbeRtt;
            self.probe_rtts = self.probe_rtts.wrapping_add(1);
            self.probe_rtt_done = None;
            self.ack_phase = AckPhase::ProbeStopping;
            self.start_round();
        }
        if self.state == BbrState::ProbeRtt {
            self.handle_probe_rtt(window, ack);
        }
        if rs.delivered > 0 {
            self.idle_restart = false;
        }
    }

    /// HandleProbeRTT ().
    fn handle_probe_rtt(&mut self, window: &mut Window, ack: &Delivered) {
        // "Ignore low rate samples during ProbeRTT"
        self.sampler.mark_app_limited(ack.in_flight);
        if self.probe_rtt_done.is_some() {
            self.probe_rtt_round_done |= self.round_start;
            if self.probe_rtt_round_done {
                self.check_probe_rtt_done(window, ack.now);
            }
        } else if ack.in_flight <= self.probe_rtt_cwnd() {
            self.probe_rtt_done = Some(ack.now.after_micros(PROBE_RTT_DURATION_US));
            self.probe_rtt_round_done = false;
            self.start_round();
        }
    }

    /// CheckProbeRTTDone ().
    fn check_probe_rtt_done(&mut self, window: &mut Window, now: Instant) {
        if self.probe_rtt_done.is_none_or(|done| now <= done) {
            return;
        }
        // "schedule next ProbeRTT"
        self.probe_rtt_min_stamp = now;
        self.restore_cwnd(window);
        // ExitProbeRTT ()
        self.reset_short_term_model();
        if self.full_bw_reached {
            self.start_probe_bw_down(now);
            self.state = BbrState::ProbeBwCruise;
        } else {
            self.state = BbrState::Startup;
        }
    }

    /// HandleRestartFromIdle ().
    pub(super) fn restart_from_idle(&mut self, now: Instant, window: &mut Window) {
        self.idle_restart = true;
        self.extra_acked_start = now;
        if self.state.is_probe_bw() {
            self.set_pacing_rate_with_gain(100);
        } else if self.state == BbrState::ProbeRtt {
            self.check_probe_rtt_done(window, now);
        }
    }
}
