//! The segment's text and FIN: what is in order, what is held out of order, when it is acknowledged.

use sidecore_wire::{TcpFlags, TcpHeader};

use super::{Arrival, Step};
use crate::Connection;
use crate::connection::NO_OFFSET;
use crate::flags::Flags;
use crate::range_pool::{Range, RangePool};
use crate::time::Instant;
use crate::types::{CloseReason, DropReason, Notice, RxRange, State};

/// How long a quick ACK waits: for an application that answers at once, its data carries the ACK; any other peer that
/// waits for the ACK (Nagle's algorithm, slow start) does not wait long.
const QUICK_ACK_MS: u16 = 1;

impl Connection {
    /// In-order payload arrived and RCV.NXT has moved past it: an ACK now, or later (RFC 9293 section 3.8.6.3).
    #[inline]
    pub(super) fn in_order_data_arrived(
        &mut self,
        now: Instant,
        header: &TcpHeader,
        payload_len: u32,
    ) {
        if payload_len > u32::from(self.rcv_mss) {
            self.learn_receive_mss(payload_len);
        }
        let unacked = self.rcv_nxt - self.last_ack_sent;
        // "in a stream of full-sized segments there SHOULD be an ACK for at least every second segment"; and the peer must not
        // run out of a window that is smaller than that.
        let limit = (2 * u64::from(self.rcv_mss)).min(self.rcv_adv - self.rcv_nxt);
        if unacked >= limit {
            self.flags.set(Flags::ACK_NOW);
            self.autotune(now, header);
        } else if self.ack_at == Instant::NEVER {
            self.delay_ack(now);
        }
    }

    #[inline]
    fn delay_ack(&mut self, now: Instant) {
        let mut delay = self.delayed_ack_ms;
        if self.quick_acks > 0 {
            self.quick_acks -= 1;
            delay = if self.flags.any(Flags::QUICK_ACK) {
                0
            } else {
                delay.min(QUICK_ACK_MS)
            };
        }
        self.ack_at = now.after_millis(u32::from(delay));
        if delay == 0 {
            self.flags.set(Flags::ACK_NOW);
        }
    }

    /// The peer's full segments are at least that long; coalesced ones say no more than that they are full.
    #[cold]
    fn learn_receive_mss(&mut self, payload_len: u32) {
        let options = if self.flags.any(Flags::TIMESTAMPS) {
            crate::connection::TIMESTAMPS_LEN
        } else {
            0
        };
        let largest = self.cold.announced_mss - options;
        self.rcv_mss = u16::try_from(payload_len).unwrap_or(largest).min(largest);
    }

    /// `start..end` arrived before: an ACK at once, with a D-SACK block (RFC 2883).
    pub(super) fn report_duplicate(&mut self, start: i64, end: i64) {
        self.flags.set(Flags::ACK_NOW);
        if start >= 0 && start < end && self.flags.any(Flags::SACK) {
            self.cold
                .recent
                .report_duplicate(Range::new(start as u64, end as u64));
            self.update_sack_due();
        }
    }

    /// Sixth, "check the URG bit", whatever becomes of the segment's text: also where the window is closed (MUST-66).
    pub(super) fn process_urgent(&mut self, arrival: &mut Arrival<'_>) {
        // In later states "This should not occur since a FIN has been received from the remote side. Ignore the URG."
        let takes = matches!(
            self.state,
            State::Established | State::FinWait1 | State::FinWait2
        );
        if arrival.has(TcpFlags::URG)
            && takes
            && self.take_urgent_pointer(arrival.seq, arrival.header.urgent)
        {
            arrival.outcome.notice = Some(Notice::Urgent);
        }
    }

    /// Seventh, "process the segment text".
    pub(super) fn process_text(
        &mut self,
        arrival: &mut Arrival<'_>,
        ranges: &mut RangePool,
    ) -> Step {
        if arrival.payload_len == 0 {
            return Step::Continue(());
        }
        match self.state {
            State::Established | State::FinWait1 | State::FinWait2 => {}
            // CLOSE-WAIT and later: "This should not occur since a FIN has been received from the remote side. Ignore
            // the segment text." What the peer sent before the FIN it may send again.
            _ => return self.text_after_fin(arrival),
        }
        let arrived = arrival.seq..arrival.payload_end();
        let start = arrived.start.max(self.rcv_nxt as i64) as u64;
        // Nothing lies after the FIN, and what lies after the window is not taken.
        let end = (arrived.end.max(0) as u64)
            .min(self.rcv_adv)
            .min(self.cold.rcv_fin);
        if start >= end {
            return self.no_new_text(arrival);
        }
        if self.flags.any(Flags::ORPHAN) {
            // RFC 1122 section 4.2.2.13: "If such a host issues a CLOSE call while received data is still pending in TCP,
            // or if new data is received after CLOSE is called, its TCP SHOULD send a RST to show that data was lost."
            // Where the peer is: our FIN may not have arrived, and a reset beyond it would be challenged (RFC 5961 section 3.2).
            self.enter_closed(CloseReason::Reset);
            self.reset_reply(arrival);
            arrival.outcome.closed = Some(CloseReason::Reset);
            return arrival.drop_because(DropReason::AfterClose);
        }
        self.ecn_on_data(arrival.header.flags, arrival.ce);
        if start == self.rcv_nxt {
            self.text_in_order(arrival, Range::new(start, end), ranges);
            return Step::Continue(());
        }
        self.text_out_of_order(arrival, Range::new(start, end), ranges)
    }

    fn text_after_fin(&mut self, arrival: &mut Arrival<'_>) -> Step {
        self.report_duplicate(arrival.seq, arrival.payload_end().min(self.rcv_nxt as i64));
        arrival.outcome.dropped = Some(DropReason::AfterFin);
        // A FIN that comes with it may have to be acknowledged again.
        Step::Continue(())
    }

    /// All of it was received before, or none of it lies in the window.
    fn no_new_text(&mut self, arrival: &mut Arrival<'_>) -> Step {
        self.flags.set(Flags::ACK_NOW);
        if arrival.payload_end() <= self.rcv_nxt as i64 {
            self.report_duplicate(arrival.seq, arrival.payload_end());
            arrival.outcome.dropped = Some(DropReason::Duplicate);
            // It may bring a FIN that is new.
            return Step::Continue(());
        }
        arrival.drop_because(DropReason::OutOfWindow)
    }

    /// New bytes from RCV.NXT on.
    fn text_in_order(&mut self, arrival: &mut Arrival<'_>, taken: Range, ranges: &mut RangePool) {
        let mut stored = taken;
        self.rcv_nxt = taken.end;
        if self.flags.any(Flags::OUT_OF_ORDER) {
            // What overlaps data that is held need not be stored again.
            if let Some(trimmed) = self.cold.out_of_order.trim(ranges, taken) {
                stored = trimmed;
            }
            self.absorb_out_of_order(ranges);
            // "a TCP receiver SHOULD send an immediate ACK when the incoming segment fills in all or part of a gap"
            // (RFC 5681 section 4.2)
            self.flags.set(Flags::ACK_NOW);
        }
        if arrival.seq < taken.start as i64 {
            // Its start arrived before.
            self.report_duplicate(arrival.seq, taken.start as i64);
        }
        self.in_order_data_arrived(arrival.now, arrival.header, arrival.payload_len);
        arrival.outcome.accept = Some(RxRange {
            payload_offset: (stored.start as i64 - arrival.seq) as u32,
            len: stored.len() as u32,
            stream_offset: stored.start,
            in_order: true,
        });
    }

    /// RCV.NXT moves over the data that has become in-order.
    fn absorb_out_of_order(&mut self, ranges: &mut RangePool) {
        while let Some(first) = self.cold.out_of_order.first(ranges)
            && first.start <= self.rcv_nxt
        {
            self.rcv_nxt = self.rcv_nxt.max(first.end);
            self.cold.out_of_order.pop_front(ranges);
        }
        self.cold.recent.advance(self.rcv_nxt);
        let held = !self.cold.out_of_order.is_empty();
        self.flags.assign(Flags::OUT_OF_ORDER, held);
        self.update_sack_due();
    }

    /// New bytes after a gap: "a TCP receiver SHOULD send an immediate duplicate ACK" (RFC 5681 section 4.2).
    fn text_out_of_order(
        &mut self,
        arrival: &mut Arrival<'_>,
        taken: Range,
        ranges: &mut RangePool,
    ) -> Step {
        self.flags.set(Flags::ACK_NOW);
        self.cold.counters.out_of_order = self.cold.counters.out_of_order.wrapping_add(1);
        let Some(stored) = self.cold.out_of_order.trim(ranges, taken) else {
            // RFC 2883 section 4.2.1: a duplicate above the cumulative ACK.
            self.report_duplicate(taken.start as i64, taken.end as i64);
            arrival.outcome.dropped = Some(DropReason::Duplicate);
            // It may bring a FIN that is new.
            return Step::Continue(());
        };
        if !arrival.out_of_order_room {
            return arrival.drop_because(DropReason::NoRoom);
        }
        let Ok(inserted) = self.cold.out_of_order.insert(ranges, stored) else {
            return arrival.drop_because(DropReason::NoRanges);
        };
        self.flags.set(Flags::OUT_OF_ORDER);
        self.cold.recent.report(inserted.merged);
        self.update_sack_due();
        arrival.outcome.accept = Some(RxRange {
            payload_offset: (stored.start as i64 - arrival.seq) as u32,
            len: stored.len() as u32,
            stream_offset: stored.start,
            in_order: false,
        });
        Step::Continue(())
    }

    /// Eighth, "check the FIN bit".
    pub(super) fn process_fin(
        &mut self,
        arrival: &mut Arrival<'_>,
        ranges: &mut RangePool,
    ) -> Step {
        if arrival.has(TcpFlags::FIN) {
            self.note_fin(arrival, ranges);
        }
        // It may also be an earlier FIN that is in order now.
        if self.cold.rcv_fin == self.rcv_nxt && !self.flags.any(Flags::FIN_RECEIVED) {
            self.fin_in_order(arrival, ranges);
        }
        Step::Continue(())
    }

    /// Remembers where the peer's stream ends. The first FIN counts; one that contradicts data is not one.
    fn note_fin(&mut self, arrival: &Arrival<'_>, ranges: &RangePool) {
        let offset = arrival.payload_end();
        if self.flags.any(Flags::FIN_RECEIVED) {
            self.flags.set(Flags::ACK_NOW);
            if self.state == State::TimeWait && offset == self.rcv_nxt as i64 - 1 {
                // "Remain in the TIME-WAIT state. Restart the 2 MSL time-wait timeout."
                self.restart_time_wait(arrival.now);
            }
            return;
        }
        let held = self.cold.out_of_order.last(ranges);
        let earliest = held.map_or(self.rcv_nxt, |last| last.end);
        let in_window = offset >= earliest as i64 && offset <= self.rcv_adv as i64;
        if in_window && self.cold.rcv_fin == NO_OFFSET {
            self.cold.rcv_fin = offset as u64;
            self.flags.set(Flags::FIN_KNOWN);
        }
        if self.cold.rcv_fin != self.rcv_nxt {
            // Out of order, or none at all.
            self.flags.set(Flags::ACK_NOW);
        }
    }

    /// "If the FIN bit is set, signal the user 'connection closing' … advance RCV.NXT over the FIN, and send an
    /// acknowledgment for the FIN."
    fn fin_in_order(&mut self, arrival: &mut Arrival<'_>, ranges: &mut RangePool) {
        if self.flags.any(Flags::OUT_OF_ORDER) {
            // What a peer sent after its FIN is no data.
            self.flags.set(Flags::ACK_NOW);
        }
        self.cold.out_of_order.clear(ranges);
        self.cold.recent.clear();
        self.flags.clear(Flags::OUT_OF_ORDER.or(Flags::SACK_DUE));
        self.rcv_nxt += 1;
        // The FIN may lie just after the window.
        self.rcv_adv = self.rcv_adv.max(self.rcv_nxt);
        self.flags.set(Flags::FIN_RECEIVED);
        arrival.outcome.fin = true;
        if matches!(self.state, State::SynReceived | State::Established) {
            self.state = State::CloseWait;
            // One that came early has waited for the gap before it, whose end is acknowledged at once.
            if arrival.has(TcpFlags::FIN) {
                return self.delay_ack_of_fin(arrival.now);
            }
        }
        self.flags.set(Flags::ACK_NOW);
        match self.state {
            // "If our FIN has been ACKed (perhaps in this segment), then enter TIME-WAIT …; otherwise, enter the CLOSING
            // state." An acknowledged FIN has already led to FIN-WAIT-2.
            State::FinWait1 => self.state = State::Closing,
            State::FinWait2 => self.enter_time_wait(arrival.now),
            _ => {}
        }
    }

    /// Nearly always the application closes, too, and its FIN carries the ACK ([`Config::delay_fin_ack`](crate::Config)). The peer waits for
    /// nothing but that, so that it is not acknowledged as quickly as data at the start of a connection.
    fn delay_ack_of_fin(&mut self, now: Instant) {
        if self.delayed_ack_ms == 0 || !self.flags.any(Flags::DELAY_FIN_ACK) {
            self.flags.set(Flags::ACK_NOW);
        } else if self.ack_at == Instant::NEVER {
            self.ack_at = now.after_millis(u32::from(self.delayed_ack_ms));
        }
    }
}
