//! SYN-SENT, SYN-RECEIVED, and a new connection that meets TIME-WAIT.

use sidecore_wire::{TcpFlags, TcpHeader};

use super::{Arrival, Step};
use crate::Connection;
use crate::flags::Flags;
use crate::range_pool::{Range, RangePool};
use crate::time::Instant;
use crate::types::{CloseReason, DropReason, Notice, State};

impl Connection {
    /// RFC 9293 section 3.10.7.3, SYN-SENT STATE.
    pub(super) fn in_syn_sent(
        &mut self,
        arrival: &mut Arrival<'_>,
        ranges: &mut RangePool,
    ) -> Step {
        let ack = arrival.has(TcpFlags::ACK);
        // First, check the ACK bit: "If SEG.ACK =< ISS or SEG.ACK > SND.NXT, send a reset (unless the RST bit is set …)
        // <SEQ=SEG.ACK><CTL=RST>". Nothing but the SYN was sent.
        if ack && !self.acknowledges_syn(arrival.header.ack) {
            if !arrival.has(TcpFlags::RST) {
                self.reset_reply(arrival);
            }
            return arrival.drop_because(DropReason::BadAck);
        }
        // Second, check the RST bit: "If the ACK was acceptable, then signal to the user "error: connection reset",
        // drop the segment, enter CLOSED state … Otherwise (no ACK), drop the segment and return." (RFC 5961 section 3.2 agrees.)
        if arrival.has(TcpFlags::RST) {
            if ack {
                arrival.outcome.closed = Some(self.enter_closed(CloseReason::Refused));
                return Step::Break(());
            }
            return arrival.drop_because(DropReason::BadReset);
        }
        // Fourth, check the SYN bit.
        if !arrival.has(TcpFlags::SYN) {
            // Fifth, "if neither of the SYN or RST bits is set, then drop the segment and return."
            return arrival.drop_because(DropReason::NoAck);
        }
        if ack && !self.echo_is_of_the_syn(arrival) {
            self.reset_reply(arrival);
            return arrival.drop_because(DropReason::Paws);
        }
        self.take_syn(arrival.now, arrival.header);
        arrival.seq = -1;
        if ack {
            // "If SND.UNA > ISS (our SYN has been ACKed), change the connection state to ESTABLISHED, form an ACK segment".
            self.fast_open_answered(arrival);
            self.enter_established(arrival);
            self.flags.set(Flags::ACK_NOW);
            // "If there are other controls or text in the segment, then continue processing at the sixth step". They follow the SYN.
            arrival.seq = 0;
            self.process_text(arrival, ranges)?;
            return self.process_fin(arrival, ranges);
        }
        // Simultaneous open: "Otherwise, enter SYN-RECEIVED, form a SYN,ACK segment … and send it." Data on such a SYN is not taken (RFC
        // 9293 asks to "queue" it), as whose it is nobody knows yet; the peer sends it again, and no connection holds bytes for a forged address.
        self.state = State::SynReceived;
        self.flags.set(Flags::SYN_DUE);
        Step::Continue(())
    }

    /// Whether a SYN-ACK echoes a timestamp of a SYN that was sent, if it echoes any. Linux, too, takes another for an answer to
    /// somebody else's SYN.
    fn echo_is_of_the_syn(&self, arrival: &Arrival<'_>) -> bool {
        let Some(timestamps) = arrival.header.options.timestamps else {
            return true;
        };
        let first = self.timestamp(self.cold.unanswered_since);
        let age = self.timestamp(arrival.now).wrapping_sub(first);
        !self.flags.any(Flags::TIMESTAMPS)
            || timestamps.echo == 0
            || timestamps.echo.wrapping_sub(first) <= age
    }

    /// `<SEQ=SEG.ACK><CTL=RST>`, and the connection stays.
    pub(super) fn reset_reply(&mut self, arrival: &Arrival<'_>) {
        self.cold.reset_reply_seq = arrival.header.ack;
        self.flags.set(Flags::RESET_DUE.or(Flags::RESET_REPLY));
    }

    /// A SYN again in SYN-RECEIVED: our SYN-ACK was lost, so it goes out again (the ACK that RFC 5961 section 4.2 asks
    /// for, with the SYN that the peer lacks).
    pub(super) fn repeated_syn(&mut self, arrival: &mut Arrival<'_>) -> Step {
        self.ecn_on_repeated_syn(arrival.header.flags);
        if arrival.has(TcpFlags::ACK) && self.acknowledges_syn(arrival.header.ack) {
            // The second half of a simultaneous open: our SYN is acknowledged; the ACK steps do the rest. "Otherwise, handle per the
            // directions for synchronized states": our own SYN-ACK may have been lost, and this ACK completes the peer's handshake,
            // too. That its SYN came twice the ACK says as Linux has it, by a D-SACK block of the SYN's number, which lies before offset 0.
            self.flags.set(Flags::ACK_NOW);
            self.cold.recent.report_duplicate(Range::new(u64::MAX, 0));
            self.update_sack_due();
            return Step::Continue(());
        }
        if self.may_answer(arrival.now, arrival.seq) {
            self.flags.set(Flags::SYN_DUE);
        }
        arrival.drop_because(DropReason::Duplicate)
    }

    /// The ACK step in SYN-RECEIVED: "If SND.UNA < SEG.ACK =< SND.NXT, then enter ESTABLISHED state"; otherwise "form a
    /// reset segment <SEQ=SEG.ACK><CTL=RST> and send it".
    pub(super) fn ack_in_syn_received(&mut self, arrival: &mut Arrival<'_>) -> Step {
        if !self.acknowledges_syn(arrival.header.ack) {
            self.reset_reply(arrival);
            return arrival.drop_because(DropReason::BadAck);
        }
        // Of a simultaneous open: data went with our SYN, which then was sent again without.
        let acked = arrival.header.ack.distance_from(self.snd_base);
        self.snd_nxt = self.snd_nxt.max(acked.into());
        self.enter_established(arrival);
        Step::Continue(())
    }

    /// Whether a segment acknowledges the SYN that this connection, in SYN-RECEIVED, has sent: whether it would complete the
    /// handshake, if nothing else is wrong with it.
    pub fn is_answered_by(&self, header: &TcpHeader) -> bool {
        let other = TcpFlags::SYN | TcpFlags::RST;
        self.state == State::SynReceived
            && header.flags.contains(TcpFlags::ACK)
            && !header.flags.intersects(other)
            && self.acknowledges_syn(header.ack)
    }

    /// Our SYN is acknowledged.
    fn enter_established(&mut self, arrival: &mut Arrival<'_>) {
        self.state = State::Established;
        self.bound_rto();
        arrival.outcome.established = true;
        self.flags.clear(Flags::SYN_DUE.or(Flags::UNSYNCHRONIZED));
        // A SYN-ACK with a cookie was sent by nobody who would know when.
        let timed = core::mem::replace(&mut self.retransmit_at, Instant::NEVER) != Instant::NEVER;
        if self.cold.attempts == 0 || self.cold.deferred {
            if timed && !self.cold.deferred {
                self.rtt_finish(arrival.now);
            }
        } else {
            // RFC 6298 section 5.7: "If the timer expires awaiting the ACK of a SYN segment and the TCP implementation is
            // using an RTO less than 3 seconds, the RTO MUST be re-initialized to 3 seconds when data transmission begins".
            self.rto_us = 3_000_000.max(self.min_rto_us).min(self.max_rto_us);
            // RFC 5681 section 3.1: "if the SYN or SYN/ACK is lost, the initial window … MUST be one segment".
            self.window.cwnd = u32::from(self.mss);
        }
        self.rtt_cancel();
        self.cold.attempts = 0;
        self.cold.unanswered_since = arrival.now;
        // The window of a SYN is not scaled; that of every later segment is.
        let scale = if arrival.has(TcpFlags::SYN) {
            Default::default()
        } else {
            self.snd_scale
        };
        self.snd_wnd = arrival.header.window.scaled_by(scale);
        self.max_snd_wnd = self.max_snd_wnd.max(self.snd_wnd);
        self.snd_wl1 = arrival.seq as u32;
        self.snd_wl2 = 0;
        self.cold.autotune.started = arrival.now;
        self.arm_keepalive();
        if self.outstanding() > 0 {
            // Sent before the handshake's end (RFC 7413).
            self.arm_retransmission(arrival.now);
        }
        // A CLOSE was queued until now.
        if self.flags.any(Flags::FIN_QUEUED) {
            self.enter_fin_states();
        }
    }

    /// TIME-WAIT and a SYN: a new incarnation if it is certainly newer than the old one, by its timestamp (RFC 6191) or
    /// by its sequence number (RFC 9293 section 3.10.7.4, MAY-2). The caller starts it; this connection stays as it is.
    pub(super) fn check_reincarnation(&mut self, arrival: &mut Arrival<'_>) -> Step {
        let others = TcpFlags::RST | TcpFlags::ACK | TcpFlags::FIN;
        if self.state != State::TimeWait
            || !arrival.has(TcpFlags::SYN)
            || arrival.header.flags.intersects(others)
        {
            return Step::Continue(());
        }
        let newer_sequence = arrival.seq >= self.rcv_nxt as i64;
        let newer = match arrival.header.options.timestamps {
            Some(ts) if self.flags.any(Flags::TIMESTAMPS) => {
                let distance = ts.value.wrapping_sub(self.ts_recent) as i32;
                distance > 0 || (distance == 0 && newer_sequence)
            }
            _ => newer_sequence,
        };
        if newer {
            arrival.outcome.notice = Some(Notice::Respawn);
            return Step::Break(());
        }
        self.challenge(arrival.now);
        arrival.drop_because(DropReason::UnexpectedSyn)
    }
}
