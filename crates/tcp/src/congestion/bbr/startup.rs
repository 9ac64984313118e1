//! Startup and Drain.

use super::super::Delivered;
use super::super::rate::RateSample;
use super::{Bbr, BbrState};

/// BBRStartupFullLossCnt: ranges lost in a round, from which on it counts.
const STARTUP_FULL_LOSS_COUNT: u8 = 6;
/// Rounds without much growth after which the pipe is full.
const FULL_BW_ROUNDS: u8 = 3;

impl Bbr {
    pub(super) fn reset_full_bw(&mut self) {
        self.full_bw = 0;
        self.full_bw_count = 0;
        self.full_bw_now = false;
    }

    /// CheckFullBWReached ().
    pub(super) fn check_full_bw_reached(&mut self, rs: &RateSample) {
        if self.full_bw_now || !self.round_start || rs.app_limited {
            return;
        }
        if rs.rate >= self.full_bw / 4 * 5 {
            // "bw is still growing, so reset"
            self.reset_full_bw();
            self.full_bw = rs.rate;
            return;
        }
        self.full_bw_count += 1;
        self.full_bw_now = self.full_bw_count >= FULL_BW_ROUNDS;
        self.full_bw_reached |= self.full_bw_now;
    }

    /// CheckStartupDone ().
    pub(super) fn check_startup_done(&mut self, ack: &Delivered, rs: &RateSample) {
        self.check_startup_high_loss(ack, rs);
        if self.state == BbrState::Startup && self.full_bw_reached {
            self.state = BbrState::Drain;
            self.drain_start_round = self.round_count;
        }
    }

    /// CheckStartupHighLoss (): "in fast recovery for at least one full packet-timed round trip", the loss rate over a round above
    /// LossThresh, in six ranges or more; without SACK, any loss.
    fn check_startup_high_loss(&mut self, ack: &Delivered, rs: &RateSample) {
        if self.full_bw_reached || !self.loss_round_start {
            return;
        }
        let enough = self.loss_events_in_round >= STARTUP_FULL_LOSS_COUNT || !ack.sack;
        if self.in_recovery && enough && Self::is_inflight_too_high(rs.lost, rs.in_flight, ack.sack)
        {
            self.undo_state = Some(BbrState::Startup);
            self.full_bw_reached = true;
            let latest = self.inflight_latest.min(u64::from(u32::MAX - 1)) as u32;
            self.inflight_longterm = self.bdp().max(latest);
        }
        self.loss_events_in_round = 0;
    }

    /// CheckDrainDone ().
    pub(super) fn check_drain_done(&mut self, ack: &Delivered) {
        if self.state != BbrState::Drain {
            return;
        }
        let rounds = self.round_count.wrapping_sub(self.drain_start_round);
        if ack.in_flight <= self.inflight(self.bw, 100) || rounds > 3 {
            self.start_probe_bw_down(ack.now);
        }
    }
}
