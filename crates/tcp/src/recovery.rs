//! Loss recovery: RFC 6675 with SACK, RFC 6582 (NewReno) without; after a timeout, RFC 5681.
//!
//! One model serves all: what is not selectively acknowledged before `lost_edge` is deemed lost; `high_rxt` is how far it
//! was sent again; `pipe` is what is thought to be in flight.
//!
//! ```text
//!   snd_una          high_rxt        lost_edge                    snd_nxt
//!  ────┼────────────────┼────────────────┼───────────────────────────┼────
//!      │ sent again:    │ lost: not in   │ sent once:                │
//!      │ in flight      │ flight         │ in flight                 │      (selectively acknowledged bytes: never)
//! ```
//!
//! Without SACK, duplicate ACKs stand for the bytes that left the network, and only the first segment is deemed lost.

use serde::{Deserialize, Serialize};

use crate::Connection;
use crate::congestion::CongestionControl;
use crate::flags::Flags;
use crate::range_pool::{Range, RangePool};
use crate::time::Instant;

/// DupThresh (RFC 6675 section 2).
const DUP_THRESH: u8 = 3;

/// What the sender is recovering from.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[repr(u8)]
pub(crate) enum Phase {
    /// Nothing is deemed lost.
    #[default]
    Open,
    /// Fast recovery, until SND.UNA reaches `recover`.
    Recovery,
    /// After a retransmission timeout, until SND.UNA reaches `recover`.
    Loss,
}

impl Connection {
    /// What is in flight: by RFC 6675's estimate while something is amiss, else SND.NXT - SND.UNA.
    #[inline]
    pub(crate) fn in_flight(&self) -> u32 {
        if self.flags.any(Flags::LOSSY) {
            self.pipe()
        } else {
            self.outstanding()
        }
    }

    /// Out of line, so that the cold part is not read speculatively.
    #[cold]
    #[inline(never)]
    fn pipe(&self) -> u32 {
        self.cold.pipe
    }

    /// An acceptable ACK was processed: what it means for recovery.
    pub(crate) fn recovery_on_ack(
        &mut self,
        now: Instant,
        acked: u32,
        duplicate: bool,
        ranges: &RangePool,
    ) {
        if duplicate {
            self.count_duplicate();
        }
        match self.phase {
            Phase::Open => self.open_on_ack(now, acked, ranges),
            Phase::Recovery => self.recovery_phase_on_ack(now, acked, ranges),
            Phase::Loss => self.loss_phase_on_ack(now, acked, ranges),
        }
        let duplicates = self.cold.duplicate_acks > 0;
        self.flags.assign(Flags::DUPLICATES, duplicates);
        self.flags
            .assign(Flags::LOST_LEFT, self.phase != Phase::Open);
        self.update_pipe(ranges);
    }

    fn count_duplicate(&mut self) {
        let cold = &mut self.cold;
        cold.counters.duplicate_acks = cold.counters.duplicate_acks.wrapping_add(1);
        cold.duplicate_acks = cold.duplicate_acks.saturating_add(1);
        if !self.flags.any(Flags::SACK) {
            // Each stands for one segment that has left the network (RFC 5681 section 3.2 step 4).
            let limit = (self.snd_nxt - self.snd_una) as u32;
            cold.reno_sacked = (cold.reno_sacked + u32::from(self.mss)).min(limit);
        }
    }

    fn open_on_ack(&mut self, now: Instant, acked: u32, ranges: &RangePool) {
        if acked > 0 {
            self.cold.duplicate_acks = 0;
            self.cold.reno_sacked = 0;
            if self.flags.any(Flags::CWND_LIMITED) {
                self.grow_window(now, acked);
            }
        }
        self.update_lost_edge(ranges);
        // RFC 6675 section 5: "if DupAcks >= DupThresh … or IsLost (HighACK + 1) returns true".
        let lost = self.cold.duplicate_acks >= DUP_THRESH || self.cold.lost_edge > self.snd_una;
        // RFC 6582 section 3.2 step 2: without SACK, duplicates of what recovery itself sent again prove nothing.
        let careful = !self.flags.any(Flags::SACK)
            && self.cold.recover != 0
            && self.snd_una <= self.cold.recover;
        if lost && !careful && self.outstanding() > 0 {
            self.enter_recovery(now, ranges);
        }
    }

    /// RFC 6675 section 5 step 4, RFC 6582 section 3.2 step 2.
    fn enter_recovery(&mut self, now: Instant, ranges: &RangePool) {
        let mss = u32::from(self.mss);
        self.phase = Phase::Recovery;
        self.flags.set(Flags::RECOVERING.or(Flags::RETRANSMIT_NOW));
        self.cold.counters.recoveries = self.cold.counters.recoveries.wrapping_add(1);
        self.cold.recover = self.snd_nxt;
        self.cold.high_rxt = self.snd_una;
        let in_flight = self.flight_size();
        self.cold
            .controller
            .on_loss(&mut self.window, now, in_flight, mss);
        self.deem_first_segment_lost(ranges);
        // The ACK of what is being timed has to wait for what is lost; that is not a round trip.
        self.rtt_cancel();
    }

    /// FlightSize of RFC 5681 section 3.1, from which the new threshold is reckoned: no more than the window allows. While holes
    /// wait to be filled, much new data may be out that is selectively acknowledged.
    fn flight_size(&self) -> u32 {
        self.outstanding().min(self.window.cwnd)
    }

    /// Three duplicates, or a partial ACK: the first segment at least is lost.
    fn deem_first_segment_lost(&mut self, ranges: &RangePool) {
        let mut edge = (self.snd_una + u64::from(self.mss)).min(self.snd_nxt);
        if let Some(first) = self.cold.sacked.first(ranges) {
            edge = edge.min(first.start);
        }
        self.cold.lost_edge = self.cold.lost_edge.max(edge);
    }

    fn recovery_phase_on_ack(&mut self, now: Instant, acked: u32, ranges: &RangePool) {
        if self.snd_una >= self.cold.recover {
            self.exit_recovery(now);
            return;
        }
        if acked > 0 {
            // A partial ACK: what follows it is lost too (RFC 6582 section 3.2 step 3).
            self.cold.high_rxt = self.cold.high_rxt.max(self.snd_una);
            if !self.flags.any(Flags::SACK) {
                // Of what it acknowledges, one segment filled the hole; the others had given duplicate ACKs.
                let had_arrived = acked.saturating_sub(u32::from(self.mss));
                self.cold.reno_sacked = self.cold.reno_sacked.saturating_sub(had_arrived);
                self.deem_first_segment_lost(ranges);
                self.flags.set(Flags::RETRANSMIT_NOW);
            }
        }
        self.update_lost_edge(ranges);
    }

    /// RFC 6582 section 3.2 step 3, full acknowledgments: "Set cwnd to … min (ssthresh, max(FlightSize, SMSS) + SMSS)", with a
    /// configured burst for the last term.
    fn exit_recovery(&mut self, now: Instant) {
        self.cold.controller.on_recovery_exit(&mut self.window, now);
        let mss = u32::from(self.mss);
        let burst = self.cold.settings.max_burst.saturating_mul(mss);
        let calm = self.outstanding().max(mss).saturating_add(burst);
        self.window.cwnd = self.window.ssthresh.min(calm).max(mss);
        self.reopen();
    }

    fn loss_phase_on_ack(&mut self, now: Instant, acked: u32, ranges: &RangePool) {
        if acked > 0 {
            self.cold.duplicate_acks = 0;
            self.cold.reno_sacked = 0;
            self.cold.high_rxt = self.cold.high_rxt.max(self.snd_una);
            // Slow start up to ssthresh (RFC 5681 section 3.1).
            self.grow_window(now, acked);
        }
        if self.snd_una >= self.cold.recover {
            self.reopen();
            return;
        }
        self.update_lost_edge(ranges);
    }

    fn reopen(&mut self) {
        self.phase = Phase::Open;
        self.flags
            .clear(Flags::RECOVERING.or(Flags::RETRANSMIT_NOW));
        self.cold.duplicate_acks = 0;
        self.cold.reno_sacked = 0;
        self.cold.lost_edge = self.snd_una;
        self.cold.high_rxt = self.snd_una;
        self.cold.rescue_rxt = 0;
    }

    /// The retransmission timer fired: everything that is not selectively acknowledged is deemed lost
    /// (RFC 6298 section 5, RFC 5681 section 3.1, RFC 6675 section 5.1).
    pub(crate) fn enter_loss(&mut self, now: Instant, ranges: &mut RangePool) {
        let mss = u32::from(self.mss);
        self.drop_reneged(ranges);
        // RFC 5681 section 3.1: ssthresh is reduced when "the given segment has not yet been resent by way of the
        // retransmission timer". As in Linux: also when there was progress since the last timeout.
        if self.phase != Phase::Loss || self.cold.attempts <= 1 {
            let in_flight = self.flight_size();
            self.cold
                .controller
                .on_rto(&mut self.window, now, in_flight, mss);
        }
        self.phase = Phase::Loss;
        self.flags.set(
            Flags::RECOVERING
                .or(Flags::RETRANSMIT_NOW)
                .or(Flags::LOST_LEFT),
        );
        self.flags.clear(Flags::DUPLICATES);
        self.cold.duplicate_acks = 0;
        self.cold.reno_sacked = 0;
        self.cold.recover = self.snd_nxt;
        self.cold.lost_edge = self.snd_nxt;
        self.cold.high_rxt = self.snd_una;
        self.rtt_cancel();
        self.update_pipe(ranges);
    }

    /// The next lost range to send again, if there is one (NextSeg () rule 1 of RFC 6675).
    pub(crate) fn next_lost(&self, ranges: &RangePool) -> Option<Range> {
        self.next_hole(self.cold.lost_edge.min(self.snd_nxt), ranges)
    }

    /// When nothing is left that is deemed lost, and no new data can go out: what lies before something selectively
    /// acknowledged (rule 3).
    pub(crate) fn next_suspect(&self, ranges: &RangePool) -> Option<Range> {
        let highest = self.cold.sacked.last(ranges)?;
        self.next_hole(highest.start, ranges)
    }

    /// The "rescue" retransmission, once in each recovery: the last segment that is out, if it is not selectively
    /// acknowledged (rule 4).
    pub(crate) fn rescue(&self, ranges: &RangePool) -> Option<Range> {
        let sacked_end = self.cold.sacked.last(ranges)?.end;
        let used = self.cold.rescue_rxt > self.snd_una;
        let start = self
            .snd_nxt
            .saturating_sub(u64::from(self.mss))
            .max(sacked_end)
            .max(self.cold.high_rxt);
        (!used && start < self.snd_nxt).then_some(Range::new(start, self.snd_nxt))
    }

    /// The first range from HighRxt to `end` that is not selectively acknowledged.
    fn next_hole(&self, mut end: u64, ranges: &RangePool) -> Option<Range> {
        let mut start = self.cold.high_rxt.max(self.snd_una);
        for sacked in self.cold.sacked.iter(ranges) {
            if sacked.end <= start {
                continue;
            }
            if sacked.start > start {
                end = end.min(sacked.start);
                break;
            }
            start = sacked.end;
        }
        (start < end).then_some(Range::new(start, end))
    }

    /// `range` was sent again.
    pub(crate) fn note_retransmission(&mut self, range: Range) {
        self.cold.pipe = self.cold.pipe.saturating_add(range.len() as u32);
        self.cold.counters.retransmissions = self.cold.counters.retransmissions.wrapping_add(1);
        if self.rtt_end > range.start {
            self.rtt_cancel();
        }
    }

    /// SetPipe (RFC 6675 section 4).
    pub(crate) fn update_pipe(&mut self, ranges: &RangePool) {
        if !self.flags.any(Flags::LOSSY) {
            return;
        }
        let una = self.snd_una;
        let lost_edge = self.cold.lost_edge.max(una);
        let resent_end = self.cold.high_rxt.clamp(una, lost_edge);
        let mut pipe = (resent_end - una) + self.snd_nxt.saturating_sub(lost_edge);
        for sacked in self.cold.sacked.iter(ranges) {
            pipe -= sacked.overlap(una, resent_end) + sacked.overlap(lost_edge, self.snd_nxt);
        }
        self.cold.pipe = (pipe as u32).saturating_sub(self.cold.reno_sacked);
    }
}
