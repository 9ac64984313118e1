//! Loss recovery: when it begins and ends, and what an ACK means in it (RFC 5681, 6675, 6582, 8985).
//!
//! What is lost is found in one of two ways: by time ([`crate::rack`], the default where there is SACK) or by count
//! ([`crate::edges`]). How much may be sent says [`crate::prr`]; that nothing was lost after all, [`crate::undo`].

use serde::{Deserialize, Serialize};

use crate::Connection;
use crate::congestion::CongestionControl;
use crate::flags::Flags;
use crate::prr::Prr;
use crate::rack::Delivery;
use crate::range_pool::{Range, RangePool};
use crate::time::Instant;
use crate::undo::Frto;

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

/// An ACK, for [`Connection::recovery_on_ack`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct RecoveryAck {
    pub(crate) now: Instant,
    /// Bytes by which SND.UNA moved.
    pub(crate) acked: u32,
    pub(crate) duplicate: bool,
    /// It echoes congestion: "The sending TCP SHOULD NOT increase the congestion window" (RFC 3168 section 6.1.2).
    pub(crate) echo: bool,
    pub(crate) delivery: Delivery,
}

impl Connection {
    /// What is in flight: by an estimate while something is amiss, else SND.NXT - SND.UNA.
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
    pub(crate) fn recovery_on_ack(&mut self, ack: &RecoveryAck, ranges: &mut RangePool) {
        let reno_sacked = self.cold.reno_sacked;
        if ack.duplicate {
            self.count_duplicate();
        }
        if ack.echo {
            // RFC 4015 section 3.4: where the ACK signals congestion "through the ECN-Echo flag …, the TCP sender MUST refrain from reversing
            // congestion control state".
            self.undo_forget();
        }
        let undone = self.undo_on_ack(ack.now, &ack.delivery, ranges);
        if let Some(duplicate) = ack.delivery.duplicate
            && !self.is_of_tail_probe(duplicate)
        {
            self.rack_note_dsack();
        }
        let marked = match self.phase {
            Phase::Open => self.open_on_ack(ack, undone, ranges),
            Phase::Recovery => self.recovery_phase_on_ack(ack, ranges),
            Phase::Loss => self.loss_phase_on_ack(ack, ranges),
        };
        self.assign_flags();
        self.update_pipe(ranges);
        // Without SACK, each duplicate is one segment delivered, and a partial ACK covers some of them.
        if self.frto_prefers_new_data() && ack.acked > 0 {
            // "transmit up to two new (previously unsent) segments" (RFC 5682 section 3.1 step 2b).
            let two = self.cold.pipe.saturating_add(2 * u32::from(self.mss));
            self.window.cwnd = self.window.cwnd.min(two);
        }
        let counted = i64::from(self.cold.reno_sacked) - i64::from(reno_sacked);
        let delivered = (ack.delivery.bytes as i64 + counted).max(0) as u32;
        if self.cold.controller.is_model() {
            self.model_on_ack(ack, delivered);
        } else {
            self.reduce_rate(delivered, ack.acked > 0 && !marked);
        }
        self.resume_rack(ack.now);
        self.rearm_after_ack(ack.now, ack.acked);
        self.path_on_ack(ack.now);
    }

    fn assign_flags(&mut self) {
        let duplicates = self.cold.duplicate_acks > 0;
        self.flags.assign(Flags::DUPLICATES, duplicates);
        self.flags
            .assign(Flags::LOST_LEFT, self.phase != Phase::Open);
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

    /// Marks what is lost by now. Returns whether that is more than before.
    fn detect_loss(&mut self, now: Instant, ranges: &mut RangePool) -> bool {
        if self.rack_is_on() {
            return self.rack_detect_loss(now, ranges);
        }
        let before = self.cold.lost_edge.max(self.snd_una);
        self.update_lost_edge(ranges);
        self.model_on_lost_edge(now, before);
        self.cold.lost_edge > before
    }

    fn open_on_ack(&mut self, ack: &RecoveryAck, undone: bool, ranges: &mut RangePool) -> bool {
        if ack.acked > 0 {
            // What was delivered before has let new data go already (RFC 3042): that again would be a burst.
            let known = self.cold.reno_sacked.min(ack.acked);
            let fresh = (ack.delivery.bytes as u32).min(ack.acked - known);
            self.cold.duplicate_acks = 0;
            self.cold.reno_sacked = 0;
            if self.flags.any(Flags::CWND_LIMITED) && !undone && !ack.echo {
                self.grow_window(ack.now, fresh, ack.delivery.rtt_us);
            }
        }
        self.begin_if_lost(ack.now, &ack.delivery, ranges)
    }

    fn begin_if_lost(&mut self, now: Instant, delivery: &Delivery, ranges: &mut RangePool) -> bool {
        let marked = self.detect_loss(now, ranges);
        let lost = if self.rack_is_on() {
            self.cold.flight.first_lost(ranges).is_some()
        } else {
            // RFC 6675 section 5: "If DupAcks >= DupThresh", or "IsLost (HighACK + 1) returns true".
            let lost = self.cold.duplicate_acks >= DUP_THRESH || self.cold.lost_edge > self.snd_una;
            // RFC 6582 section 3.2 step 2: without SACK, duplicates of what recovery itself sent again prove nothing.
            let careful = !self.flags.any(Flags::SACK)
                && self.cold.recover != 0
                && self.snd_una <= self.cold.recover;
            lost && !careful
        };
        if lost && self.outstanding() > 0 {
            self.enter_recovery(now, delivery, ranges);
        }
        marked
    }

    /// RFC 6675 section 5 step 4, RFC 6582 section 3.2 step 2.
    fn enter_recovery(&mut self, now: Instant, delivery: &Delivery, ranges: &RangePool) {
        let mss = u32::from(self.mss);
        self.undo_save();
        self.phase = Phase::Recovery;
        self.flags.set(Flags::RECOVERING.or(Flags::RETRANSMIT_NOW));
        self.flags.clear(Flags::TLP_OUT);
        self.cold.counters.recoveries = self.cold.counters.recoveries.wrapping_add(1);
        self.cold.recover = self.snd_nxt;
        self.cold.high_rxt = self.snd_una;
        if self.path_probe_lost(now, ranges) {
            // It was too large, and that is all.
            self.window.ssthresh = self.window.cwnd;
            self.undo_forget();
        } else {
            let in_flight = self.flight_size();
            self.cold
                .controller
                .on_loss(&mut self.window, now, in_flight, mss);
            self.ecn_note_reduction();
        }
        let known = self.cold.sacked_bytes + self.cold.reno_sacked;
        let unknown = self.outstanding().saturating_sub(known);
        // Without SACK, it was a duplicate that told.
        let just_delivered = if self.flags.any(Flags::SACK) {
            delivery.bytes as u32
        } else {
            mss
        };
        self.cold.prr = Prr::begin(unknown.saturating_add(just_delivered));
        if !self.rack_is_on() {
            self.deem_first_segment_lost(ranges);
        }
        // The ACK of what is being timed has to wait for what is lost; that is not a round trip.
        self.rtt_cancel();
    }

    /// FlightSize of RFC 5681 section 3.1, from which the new threshold is reckoned: no more than the window allows. While holes
    /// wait to be filled, much new data may be out that is selectively acknowledged.
    pub(crate) fn flight_size(&self) -> u32 {
        self.outstanding().min(self.window.cwnd)
    }

    fn recovery_phase_on_ack(&mut self, ack: &RecoveryAck, ranges: &mut RangePool) -> bool {
        if self.snd_una >= self.cold.recover {
            self.exit_recovery(ack.now);
            // What was sent during the recovery may be lost, too.
            return self.begin_if_lost(ack.now, &ack.delivery, ranges);
        }
        if ack.acked > 0 {
            // A partial ACK: what follows it is lost too (RFC 6582 section 3.2 step 3).
            self.cold.high_rxt = self.cold.high_rxt.max(self.snd_una);
            if !self.flags.any(Flags::SACK) {
                // Of what it acknowledges, one segment filled the hole; the others had given duplicate ACKs.
                let had_arrived = ack.acked.saturating_sub(u32::from(self.mss));
                self.cold.reno_sacked = self.cold.reno_sacked.saturating_sub(had_arrived);
                self.deem_first_segment_lost(ranges);
                self.flags.set(Flags::RETRANSMIT_NOW);
                return true;
            }
        }
        self.detect_loss(ack.now, ranges)
    }

    /// RFC 6582 section 3.2 step 3, full acknowledgments: "Set cwnd to … min (ssthresh, max(FlightSize, SMSS) + SMSS)", with a
    /// configured burst for the last term; RFC 9937 ends at ssthresh.
    fn exit_recovery(&mut self, now: Instant) {
        self.cold.controller.on_recovery_exit(&mut self.window, now);
        if !self.cold.controller.is_model() {
            let mss = u32::from(self.mss);
            let calm = self.outstanding().max(mss).saturating_add(self.burst());
            self.window.cwnd = self.window.ssthresh.min(calm).max(mss);
        }
        self.undo_wait();
        self.reopen();
    }

    /// How far the window may lie above what is in flight when recovery ends.
    pub(crate) fn burst(&self) -> u32 {
        let mss = u32::from(self.mss);
        self.cold.settings.max_burst.saturating_mul(mss)
    }

    fn loss_phase_on_ack(&mut self, ack: &RecoveryAck, ranges: &mut RangePool) -> bool {
        self.frto_on_ack(ack.acked, &ack.delivery, ack.duplicate);
        if ack.acked > 0 {
            self.cold.duplicate_acks = 0;
            self.cold.reno_sacked = 0;
            self.cold.high_rxt = self.cold.high_rxt.max(self.snd_una);
            if !ack.echo {
                // Slow start up to ssthresh (RFC 5681 section 3.1).
                self.grow_window(ack.now, ack.acked, ack.delivery.rtt_us);
            }
        }
        if self.snd_una >= self.cold.recover {
            self.undo_wait();
            self.reopen();
            return self.begin_if_lost(ack.now, &ack.delivery, ranges);
        }
        self.detect_loss(ack.now, ranges)
    }

    pub(crate) fn reopen(&mut self) {
        self.phase = Phase::Open;
        self.flags
            .clear(Flags::RECOVERING.or(Flags::RETRANSMIT_NOW));
        self.cold.duplicate_acks = 0;
        self.cold.reno_sacked = 0;
        self.cold.lost_edge = self.snd_una;
        self.cold.high_rxt = self.snd_una;
        self.cold.rescued = false;
        self.rack_recovery_over();
    }

    /// The reordering timer fired (RFC 8985 section 6.2 step 5).
    pub(crate) fn reordering_timeout(&mut self, now: Instant, ranges: &mut RangePool) {
        if self.phase == Phase::Open {
            self.begin_if_lost(now, &Delivery::default(), ranges);
        } else if self.detect_loss(now, ranges) {
            self.flags.set(Flags::LOST_LEFT);
        }
        self.assign_flags();
        self.update_pipe(ranges);
        if !self.cold.controller.is_model() {
            self.reduce_rate(0, false);
        }
    }

    /// The retransmission timer fired: everything that is not selectively acknowledged is deemed lost (RFC 6298 section 5, RFC 5681
    /// section 3.1, RFC 6675 section 5.1), or what was sent long enough ago (RFC 8985 section 6.3).
    pub(crate) fn enter_loss(&mut self, now: Instant, ranges: &mut RangePool) {
        let mss = u32::from(self.mss);
        self.drop_reneged(ranges);
        self.forget_stale_rack();
        // RFC 5682 section 3.1 step 1: not where a recovery was going on, unless that was by timer and got nowhere.
        let frto = self.phase == Phase::Open
            || (self.phase == Phase::Loss && self.cold.undo.frto == Frto::Resent);
        // RFC 5681 section 3.1: ssthresh is reduced when "the given segment has not yet been resent by way of the
        // retransmission timer". As in Linux: also when there was progress since the last timeout.
        if self.phase != Phase::Loss || self.cold.attempts <= 1 {
            if self.phase == Phase::Open {
                self.undo_save();
            }
            let in_flight = self.flight_size();
            self.cold
                .controller
                .on_rto(&mut self.window, now, in_flight, mss);
            self.ecn_note_reduction();
        }
        self.cold.undo.frto = if frto { Frto::Resent } else { Frto::Off };
        self.phase = Phase::Loss;
        self.flags.set(
            Flags::RECOVERING
                .or(Flags::RETRANSMIT_NOW)
                .or(Flags::LOST_LEFT),
        );
        self.flags.clear(Flags::DUPLICATES.or(Flags::TLP_OUT));
        self.cold.duplicate_acks = 0;
        self.cold.reno_sacked = 0;
        self.cold.recover = self.snd_nxt;
        if !self.rack_is_on() || !self.rack_mark_on_timeout(now, ranges) {
            self.rest_rack(ranges);
            self.cold.lost_edge = self.snd_nxt;
            self.cold.high_rxt = self.snd_una;
        }
        self.rtt_cancel();
        self.update_pipe(ranges);
        if self.cold.controller.is_model() {
            // "C.cwnd = C.inflight + 1"
            self.window.cwnd = self.cold.pipe.saturating_add(mss);
        }
    }

    /// What is out was too large for the path.
    pub(crate) fn mark_all_lost(&mut self, ranges: &mut RangePool) {
        self.cold.all_lost = false;
        self.cold.undo.frto = Frto::Off;
        if !self.rack_is_on() || !self.rack_mark_all(ranges) {
            self.rest_rack(ranges);
            self.cold.lost_edge = self.snd_nxt;
            self.cold.high_rxt = self.snd_una;
        }
        self.update_pipe(ranges);
    }

    /// The next lost range to send again, if there is one (NextSeg () rule 1 of RFC 6675).
    pub(crate) fn next_lost(&self, ranges: &RangePool) -> Option<Range> {
        if self.rack_is_on() {
            self.cold.flight.first_lost(ranges)
        } else {
            self.next_hole(self.cold.lost_edge.min(self.snd_nxt), ranges)
        }
    }

    /// `range` is sent again.
    pub(crate) fn note_retransmission(
        &mut self,
        now: Instant,
        range: Range,
        ranges: &mut RangePool,
    ) {
        self.note_sent_while_lossy(range.len() as u32);
        self.undo_note_resent(now, range.len() as u32);
        self.cold.counters.retransmissions = self.cold.counters.retransmissions.wrapping_add(1);
        if self.rack_is_on() {
            self.rack_note_resent(now, range, ranges);
        }
        if self.rtt_end > range.start {
            self.rtt_cancel();
        }
    }

    /// While something is amiss, what is in flight is counted, and what recovery has sent.
    pub(crate) fn note_sent_while_lossy(&mut self, bytes: u32) {
        self.cold.pipe = self.cold.pipe.saturating_add(bytes);
        self.cold.prr.note_sent(bytes);
    }

    pub(crate) fn update_pipe(&mut self, ranges: &RangePool) {
        if !self.flags.any(Flags::LOSSY) {
            return;
        }
        let pipe = if self.rack_is_on() {
            self.rack_pipe(ranges)
        } else {
            self.edges_pipe(ranges)
        };
        self.cold.pipe = pipe as u32;
    }
}
