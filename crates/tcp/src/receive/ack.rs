//! The ACK field: SND.UNA, the send window, the scoreboard, and what they mean for congestion and loss.

use sidecore_wire::{TcpFlags, TcpHeader};

use super::{Arrival, Step};
use crate::Connection;
use crate::congestion::{Ack, CongestionControl, Controller, Window};
use crate::connection::NO_OFFSET;
use crate::ecn;
use crate::flags::Flags;
use crate::flight::Tick;
use crate::rack::Delivery;
use crate::range_pool::RangePool;
use crate::recovery::{Phase, RecoveryAck};
use crate::time::Instant;
use crate::types::DropReason;

impl Connection {
    /// SND.WND <- SEG.WND, SND.WL1 <- SEG.SEQ, SND.WL2 <- SEG.ACK.
    #[inline]
    pub(super) fn take_send_window(&mut self, header: &TcpHeader, seq: u64, ack: u64) {
        self.snd_wnd = header.window.scaled_by(self.snd_scale);
        self.max_snd_wnd = self.max_snd_wnd.max(self.snd_wnd);
        self.snd_wl1 = seq as u32;
        self.snd_wl2 = ack as u32;
    }

    /// SND.UNA <- SEG.ACK, with the round-trip time and the retransmission timer.
    #[inline]
    pub(super) fn advance_snd_una(&mut self, now: Instant, acked: u32) {
        self.snd_una += u64::from(acked);
        if self.snd_una >= self.rtt_end {
            self.rtt_finish(now);
        }
        // RFC 6298 rules 5.2 and 5.3: off when all is acknowledged, else restarted.
        if self.snd_una == self.snd_nxt {
            self.retransmit_at = Instant::NEVER;
        } else {
            self.arm_retransmission(now);
        }
    }

    /// An ACK on the fast path, where there is more to it: the window was used up, or transmit times are kept.
    #[inline(never)]
    pub(super) fn acked_more(&mut self, now: Instant, acked: u32, ranges: &mut RangePool) {
        let sent = self.drop_acknowledged_runs(ranges);
        if self.flags.any(Flags::PACED) && self.cold.controller.is_model() {
            return self.model_on_plain_ack(now, acked, sent);
        }
        if self.flags.any(Flags::CWND_LIMITED) {
            let rtt = sent.map_or(0, |sent| Tick::at(now).since(sent).max(1));
            self.grow_window(now, acked, rtt as u32);
        }
        self.path_on_ack(now);
    }

    /// The congestion window was used up, and is acknowledged.
    pub(crate) fn grow_window(&mut self, now: Instant, acked: u32, rtt_us: u32) {
        let Window { cwnd, ssthresh } = self.window;
        if cwnd < ssthresh && (cwnd / 2 >= self.cold.window_used || cwnd == ecn::HELD) {
            return;
        }
        let mss = u32::from(self.mss);
        let ack = Ack {
            now,
            acked,
            mss,
            srtt_us: self.rtt.srtt_us(),
            rtt_us,
            limit: self.slow_start_limit(),
            una: self.snd_una as u32,
            nxt: self.snd_nxt as u32,
        };
        self.cold.controller.on_ack(&mut self.window, &ack);
    }

    /// L of RFC 3465, in bytes: one segment after a timeout (section 2.3), else what is configured; HyStart++ has a limit of its
    /// own (RFC 9406 section 4.2).
    fn slow_start_limit(&self) -> u32 {
        let mss = u32::from(self.mss);
        match self.cold.controller {
            _ if self.phase == Phase::Loss => mss,
            Controller::NewReno(_) | Controller::Dctcp(_) => {
                mss * u32::from(self.cold.settings.abc_segments)
            }
            Controller::Cubic(_) | Controller::Bbr(_) => u32::MAX,
        }
    }

    /// Fifth step, in ESTABLISHED and all later states.
    pub(super) fn process_ack(
        &mut self,
        arrival: &mut Arrival<'_>,
        ranges: &mut RangePool,
    ) -> Step {
        let ack = self.snd_offset(arrival.header.ack);
        // RFC 5961 section 5.2: "The ACK value is considered acceptable only if it is in the range of
        // ((SND.UNA - MAX.SND.WND) <= SEG.ACK <= SND.NXT)." All others "MUST be discarded and an ACK sent back".
        let oldest = self.snd_una as i64 - i64::from(self.max_snd_wnd);
        if ack < oldest || ack > self.snd_nxt as i64 {
            self.challenge(arrival.now);
            return arrival.drop_because(DropReason::BadAck);
        }
        self.answered();
        self.forget_stale_rack();
        if self.is_plain_ack(arrival.header, ack) {
            self.take_plain_ack(arrival, ack as u64);
            return Step::Continue(());
        }
        let echo = arrival.header.options.timestamps.map(|ts| ts.echo);
        let mut delivery = Delivery::begin(echo, self.cold.rack.fack);
        self.update_scoreboard(arrival.now, arrival.header, ranges, &mut delivery);
        if ack < self.snd_una as i64 {
            // "If the ACK is a duplicate (SEG.ACK =< SND.UNA), it can be ignored"; its text cannot, nor its SACK blocks.
            self.update_pipe(ranges);
            return Step::Continue(());
        }
        let window_changed = self.update_send_window(arrival, ack as u64);
        let acked = (ack as u64 - self.snd_una) as u32;
        if acked > 0 {
            self.take_acked(arrival, acked, ranges, &mut delivery);
        }
        let bare = arrival.header.segment_len(arrival.payload_len) == 0 && !window_changed;
        // RFC 5681 section 2, "DUPLICATE ACKNOWLEDGMENT"; with SACK, RFC 6675 section 2: one that reports something new.
        let duplicate = acked == 0
            && self.outstanding() > 0
            && if self.flags.any(Flags::SACK) {
                delivery.sacked > 0
            } else {
                bare
            };
        let bare_duplicate = acked == 0 && bare && arrival.header.options.sack.is_empty();
        self.tail_probe_on_ack(arrival.now, ack as u64, &delivery, bare_duplicate);
        let echo = self.ecn_on_ack(arrival.now, arrival.header, acked);
        let recovery_ack = RecoveryAck {
            now: arrival.now,
            acked,
            duplicate,
            echo,
            delivery,
        };
        self.recovery_on_ack(&recovery_ack, ranges);
        self.leave_persist(arrival.now);
        Step::Continue(())
    }

    /// Whether an ACK says only that all that was sent has arrived, on a connection on which nothing is amiss: then nothing can be lost, and
    /// recovery has nothing to learn. So it is with the last segment of a handshake, and with the ACK of a FIN.
    fn is_plain_ack(&self, header: &TcpHeader, ack: i64) -> bool {
        const MORE: Flags = Flags::LOSSY
            .or(Flags::PROBING)
            .or(Flags::BACKED_OFF)
            .or(Flags::TLP_OUT)
            .or(Flags::RUNS)
            .or(Flags::PACED)
            .or(Flags::CWND_LIMITED);
        #[cfg(test)]
        if super::differential::GENERAL.get() {
            return false;
        }
        ack == self.snd_nxt as i64
            && !self.flags.any(MORE)
            && self.rack_is_on()
            && header.options.sack.is_empty()
            && !header.flags.contains(TcpFlags::ECE)
            && !self.undo_is_possible()
    }

    /// What [`Self::is_plain_ack`] found.
    fn take_plain_ack(&mut self, arrival: &mut Arrival<'_>, ack: u64) {
        self.update_send_window(arrival, ack);
        let acked = (ack - self.snd_una) as u32;
        if acked > 0 {
            arrival.outcome.acked = true;
            self.cold.attempts = 0;
            self.cold.unanswered_since = arrival.now;
            self.advance_snd_una(arrival.now, acked);
        }
        self.path_on_ack(arrival.now);
    }

    /// New data is acknowledged, so many bytes.
    fn take_acked(
        &mut self,
        arrival: &mut Arrival<'_>,
        acked: u32,
        ranges: &mut RangePool,
        delivery: &mut Delivery,
    ) {
        arrival.outcome.acked = true;
        self.cold.attempts = 0;
        self.cold.unanswered_since = arrival.now;
        let up_to = self.snd_una + u64::from(acked);
        self.deliver_cumulatively(arrival.now, up_to, ranges, delivery);
        self.sample_by_timestamp(arrival);
        self.advance_snd_una(arrival.now, acked);
        self.flags.clear(Flags::BACKED_OFF);
        self.trim_scoreboard(ranges);
    }

    /// "If SND.WL1 < SEG.SEQ or (SND.WL1 = SEG.SEQ and SND.WL2 =< SEG.ACK), set SND.WND <- SEG.WND …". Returns whether the
    /// window is another than before.
    ///
    /// A segment whose ACK is beyond SND.UNA is newer than all before it, also if its own data was retransmitted, so that its
    /// sequence number is an old one. Its window must be taken: SND.WND counts from SND.UNA, and would else be moved right with it,
    /// beyond what the peer has offered.
    fn update_send_window(&mut self, arrival: &Arrival<'_>, ack: u64) -> bool {
        let newer_seq = (arrival.seq as u32).wrapping_sub(self.snd_wl1) as i32;
        let newer_ack = (ack as u32).wrapping_sub(self.snd_wl2) as i32;
        let older = newer_seq < 0 || (newer_seq == 0 && newer_ack < 0);
        if older && ack == self.snd_una {
            return false;
        }
        let before = self.snd_wnd;
        let header = arrival.header;
        self.take_send_window(header, arrival.seq as u64, ack);
        if header.flags.contains(TcpFlags::SYN) {
            // The window of a SYN is not scaled.
            self.snd_wnd = header.window.scaled_by(Default::default());
        }
        self.snd_wnd != before
    }

    /// A round-trip time from the echoed timestamp (RFC 7323 section 4), where the timed segment gives none: it was
    /// retransmitted (Karn's algorithm does not bind timestamps, RFC 6298 section 3). To the millisecond only.
    fn sample_by_timestamp(&mut self, arrival: &Arrival<'_>) {
        if self.rtt_end != NO_OFFSET || !self.flags.any(Flags::LOSSY.or(Flags::BACKED_OFF)) {
            return;
        }
        let Some(timestamps) = arrival.header.options.timestamps else {
            return;
        };
        let elapsed = self.timestamp(arrival.now).wrapping_sub(timestamps.echo);
        if self.flags.any(Flags::TIMESTAMPS) && timestamps.echo != 0 && elapsed < 1 << 17 {
            self.rtt_sample(elapsed.max(1) * 1_000);
        }
    }

    /// The peer is alive: probes are answered (RFC 9293 section 3.8.6.1: the connection stays open "as long as the
    /// receiving TCP continues to send acknowledgments").
    fn answered(&mut self) {
        if self.flags.any(Flags::PROBING) {
            self.cold.attempts = 0;
        }
        self.cold.soft_error = false;
    }
}
