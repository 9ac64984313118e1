//! Tail loss probes (RFC 8985 section 7): where no ACK follows what was sent last, something is sent that will bring one.

use serde::{Deserialize, Serialize};

use crate::Connection;
use crate::congestion::CongestionControl;
use crate::flags::Flags;
use crate::rack::Delivery;
use crate::range_pool::{Range, RangePool};
use crate::time::Instant;
use crate::types::TxSegment;

/// TLP.max_ack_delay: how long a peer may delay the ACK of a single segment (section 7.2: 200 ms).
pub(crate) const MAX_ACK_DELAY_US: u32 = 200_000;
/// Added to two round trips, as timers and peers are no finer.
pub(crate) const GRANULARITY_US: u32 = 2_000;

/// Section 7.1.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Tlp {
    /// TLP.end_seq, modulo 2^32; meaningful with [`Flags::TLP_OUT`].
    end: u32,
    /// TLP.is_retrans.
    is_retransmission: bool,
    /// The timer has fired, and the probe has yet to be sent. With [`Flags::PROBE_DUE`].
    pub(crate) due: bool,
}

impl Connection {
    /// The lowest-sequence segment that was not sent, if the peer's window takes it.
    fn probe_with_new_data(&mut self, now: Instant, ranges: &mut RangePool) -> Option<TxSegment> {
        let window = (self.snd_una + u64::from(self.snd_wnd)).saturating_sub(self.snd_nxt);
        let unsent = self.send_limit.saturating_sub(self.snd_nxt);
        let len = unsent.min(self.mss.into());
        (len > 0 && len <= window).then(|| self.send_probe(now, len as u32, ranges))
    }

    /// Section 7.2: a probe is of use while nothing is amiss, and one is out at most.
    #[inline]
    pub(crate) fn may_probe_tail(&self) -> bool {
        const AGAINST: Flags = Flags::LOSSY
            .or(Flags::TLP_OUT)
            .or(Flags::PROBING)
            .or(Flags::UNSYNCHRONIZED);
        self.flags.and(AGAINST.or(Flags::RACK)) == Flags::RACK
    }

    /// TLP_calc_PTO (), in microseconds, but for the bound by the retransmission timer.
    #[inline]
    pub(crate) fn probe_timeout_us(&self, more_than_one: bool) -> u32 {
        if self.rtt.srtt_x8 == 0 {
            return 1_000_000;
        }
        let more = if more_than_one {
            GRANULARITY_US
        } else {
            MAX_ACK_DELAY_US
        };
        self.rtt.srtt_x8 / 4 + more
    }

    /// TLP_send_probe (): new data if there is some, else the last segment again. The congestion window stays as it is (RFC 8985 section 7.3).
    pub(crate) fn tail_probe(&mut self, now: Instant, ranges: &mut RangePool) -> Option<TxSegment> {
        self.cold.tlp.due = false;
        if !self.may_probe_tail() || self.outstanding() == 0 {
            return None;
        }
        let new = self.probe_with_new_data(now, ranges);
        let is_new = new.is_some();
        let probe = new.or_else(|| self.probe_with_last_segment(now, ranges));
        let sent = probe.is_some();
        self.cold.tlp.is_retransmission = sent && !is_new;
        self.cold.tlp.end = self.snd_nxt as u32;
        self.cold.counters.tail_probes = self.cold.counters.tail_probes.wrapping_add(sent.into());
        // "After attempting to send a loss probe, regardless of whether a loss probe was sent, the sender MUST re-arm the RTO timer, not
        // the PTO timer": an attempt that came to nothing counts as a probe, or the timeout would never come.
        self.flags.set(Flags::TLP_OUT);
        self.arm_retransmission(now);
        probe
    }

    fn probe_with_last_segment(
        &mut self,
        now: Instant,
        ranges: &mut RangePool,
    ) -> Option<TxSegment> {
        let last = self.rack_last_range(ranges)?;
        let start = last.start.max(last.end.saturating_sub(self.mss.into()));
        let range = Range::new(start, last.end);
        if !self.may_retransmit(range) {
            return None;
        }
        Some(self.retransmit(now, range, ranges))
    }

    /// TLP_process_ack () (section 7.4): what an ACK says about the probe.
    pub(crate) fn tail_probe_on_ack(
        &mut self,
        now: Instant,
        ack: u64,
        delivery: &Delivery,
        bare_duplicate: bool,
    ) {
        let tlp = self.cold.tlp;
        let beyond = (ack as u32).wrapping_sub(tlp.end) as i32;
        if !self.flags.any(Flags::TLP_OUT) || beyond < 0 {
            return;
        }
        let duplicate = delivery.duplicate;
        let arrived_twice = duplicate.is_some_and(|twice| twice.end as u32 == tlp.end);
        if !tlp.is_retransmission || arrived_twice || (beyond == 0 && bare_duplicate) {
            // Both arrived, or the probe was new data.
            self.flags.clear(Flags::TLP_OUT);
        } else if beyond > 0 {
            // "Repaired the single loss": which is congestion nevertheless.
            self.flags.clear(Flags::TLP_OUT);
            let mss = u32::from(self.mss);
            let in_flight = self.flight_size();
            let controller = &mut self.cold.controller;
            controller.on_loss(&mut self.window, now, in_flight, mss);
            controller.on_recovery_exit(&mut self.window, now);
            self.ecn_note_reduction();
        }
    }

    /// Whether D-SACK tells of the probe: then it does not tell of reordering.
    pub(crate) fn is_of_tail_probe(&self, duplicate: Range) -> bool {
        self.flags.any(Flags::TLP_OUT)
            && self.cold.tlp.is_retransmission
            && duplicate.end as u32 == self.cold.tlp.end
    }
}
