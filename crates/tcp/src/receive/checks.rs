//! The steps that may end a segment's processing: PAWS, sequence number, RST, SYN, ACK.

use sidecore_wire::TcpFlags;

use super::{Arrival, Step};
use crate::Connection;
use crate::flags::Flags;
use crate::range_pool::RangePool;
use crate::types::{CloseReason, DropReason, State};

/// RFC 7323 section 5.5: TS.Recent is worth nothing once the connection was idle for more than 24 days.
const TIMESTAMP_VALID_MS: u64 = 24 * 24 * 3600 * 1000;

impl Connection {
    /// PAWS, RFC 7323 section 5.3 rules R1 and R2.
    pub(super) fn check_paws(&mut self, arrival: &mut Arrival<'_>) -> Step {
        // "Reset segments … MUST NOT be subjected to the PAWS check" (section 5.2); they need carry no timestamp. Nor is a SYN: it is
        // challenged wherever it is (RFC 5961 section 4.2), so that a peer that has forgotten the connection finds out.
        let exempt = arrival.has(TcpFlags::RST) || arrival.has(TcpFlags::SYN);
        if !self.flags.any(Flags::TIMESTAMPS) || exempt {
            return Step::Continue(());
        }
        let Some(timestamps) = arrival.header.options.timestamps else {
            // "If a non-<RST> segment is received without a TSopt, a TCP SHOULD silently drop the segment" (section 3.2): if so configured.
            if self.flags.any(Flags::REQUIRE_TIMESTAMPS) {
                return arrival.drop_because(DropReason::Paws);
            }
            return Step::Continue(());
        };
        let old = (timestamps.value.wrapping_sub(self.ts_recent) as i32) < 0;
        let valid = arrival.now.millis_since(self.last_received) < TIMESTAMP_VALID_MS;
        if old && valid {
            // R1: "Send an acknowledgment in reply … and drop the segment."
            self.acknowledge_unacceptable(arrival);
            return arrival.drop_because(DropReason::Paws);
        }
        Step::Continue(())
    }

    /// RFC 7323 section 4.3 (2): "SEG.TSval >= TS.Recent and SEG.SEQ <= Last.ACK.sent".
    ///
    /// Only once the ACK field was found good, as in Linux: a forged timestamp far ahead would have PAWS drop all that the peer sends, and
    /// who must guess should have to guess both numbers (RFC 5961 section 5).
    pub(super) fn take_timestamp(&mut self, arrival: &Arrival<'_>) {
        if let Some(timestamps) = arrival.header.options.timestamps
            && self.flags.any(Flags::TIMESTAMPS)
            && arrival.seq <= self.last_ack_sent as i64
        {
            // That it is not older, PAWS has seen to, or TS.Recent was no longer valid.
            self.ts_recent = timestamps.value;
        }
    }

    /// First, "check sequence number".
    ///
    /// What overlaps Last.ACK.sent to RCV.NXT + RCV.WND, edges included, is taken up; text is trimmed to the window
    /// later. This is wider than RFC 9293's four cases, as in all widely used stacks: an ACK that was overtaken by data,
    /// or that comes from a peer which has filled our window, still counts ("special allowance should be made to accept
    /// valid ACKs").
    pub(super) fn check_sequence(&mut self, arrival: &mut Arrival<'_>) -> Step {
        let acceptable =
            arrival.end() >= self.last_ack_sent as i64 && arrival.seq <= self.rcv_adv as i64;
        // RST and SYN have sharper rules of their own, in the next steps (RFC 5961).
        if acceptable || arrival.has(TcpFlags::RST) || arrival.has(TcpFlags::SYN) {
            return Step::Continue(());
        }
        // "If an incoming segment is not acceptable, an acknowledgment should be sent in reply."
        self.acknowledge_unacceptable(arrival);
        if arrival.payload_len > 0 && arrival.end() <= self.rcv_nxt as i64 {
            self.report_duplicate(arrival.seq, arrival.payload_end());
            return arrival.drop_because(DropReason::Duplicate);
        }
        arrival.drop_because(DropReason::OutOfWindow)
    }

    /// An ACK in reply to a segment that is not acceptable. For segments without payload the rate is limited, so that
    /// two ends that disagree do not answer each other for ever.
    fn acknowledge_unacceptable(&mut self, arrival: &Arrival<'_>) {
        if arrival.payload_len > 0 || self.may_answer(arrival.now, arrival.seq) {
            self.flags.set(Flags::ACK_NOW);
        }
    }

    /// Second, "check the RST bit", as RFC 5961 section 3.2 has it.
    pub(super) fn check_rst(&mut self, arrival: &mut Arrival<'_>) -> Step {
        if !arrival.has(TcpFlags::RST) {
            return Step::Continue(());
        }
        if self.state == State::TimeWait {
            // RFC 1337 section 3, fix F1: "Ignore RST segments in TIME-WAIT state"; an old one would end it too early.
            return arrival.drop_because(DropReason::BadReset);
        }
        let rcv_nxt = self.rcv_nxt as i64;
        if arrival.seq == rcv_nxt {
            // "If the RST bit is set and the sequence number exactly matches the next expected sequence number
            // (RCV.NXT), then TCP endpoints MUST reset the connection."
            let reason = match self.state {
                State::SynReceived if !self.cold.passive => CloseReason::Refused,
                State::Closing | State::LastAck => CloseReason::Normal,
                _ => CloseReason::Reset,
            };
            arrival.outcome.closed = Some(self.enter_closed(reason));
            return Step::Break(());
        }
        if rcv_nxt < arrival.seq && arrival.seq < self.rcv_adv as i64 {
            // "… does not exactly match … yet is within the current receive window, TCP endpoints MUST send an
            // acknowledgment (challenge ACK)"
            self.challenge(arrival.now);
        }
        // RFC 5961 section 3.2: "outside the current receive window, silently drop the segment".
        arrival.drop_because(DropReason::BadReset)
    }

    /// Fourth, "check the SYN bit", as RFC 5961 section 4.2 has it.
    pub(super) fn check_syn(&mut self, arrival: &mut Arrival<'_>) -> Step {
        if !arrival.has(TcpFlags::SYN) {
            return Step::Continue(());
        }
        if self.state == State::SynReceived && arrival.seq == -1 {
            return self.repeated_syn(arrival);
        }
        // "if the SYN bit is set, irrespective of the sequence number, TCP endpoints MUST send a "challenge ACK" to the remote
        // peer", and "MUST drop the unacceptable segment" (RFC 9293 section 3.10.7.4).
        self.challenge(arrival.now);
        arrival.drop_because(DropReason::UnexpectedSyn)
    }

    /// Fifth, "check the ACK field".
    pub(super) fn check_ack(&mut self, arrival: &mut Arrival<'_>, ranges: &mut RangePool) -> Step {
        if !arrival.has(TcpFlags::ACK) {
            // "if the ACK bit is off, drop the segment and return"
            return arrival.drop_because(DropReason::NoAck);
        }
        if self.state == State::SynReceived {
            self.ack_in_syn_received(arrival)?;
        }
        self.process_ack(arrival, ranges)?;
        self.fin_acknowledged(arrival)
    }

    /// What RFC 9293 adds to the ACK's processing in the states after CLOSE.
    fn fin_acknowledged(&mut self, arrival: &mut Arrival<'_>) -> Step {
        let acked = self.fin_acked();
        match self.state {
            // "if the FIN segment is now acknowledged, then enter FIN-WAIT-2"
            State::FinWait1 if acked => {
                self.state = State::FinWait2;
                if self.flags.any(Flags::ORPHAN) {
                    self.arm_fin_wait_2(arrival.now);
                }
            }
            // "if the ACK acknowledges our FIN, then enter the TIME-WAIT state"
            State::Closing if acked => self.enter_time_wait(arrival.now),
            // "If our FIN is now acknowledged, delete the TCB, enter the CLOSED state"
            State::LastAck if acked => {
                arrival.outcome.closed = Some(self.enter_closed(CloseReason::Normal));
                return Step::Break(());
            }
            _ => {}
        }
        Step::Continue(())
    }
}
