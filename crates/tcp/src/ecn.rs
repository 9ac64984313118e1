//! Explicit congestion notification (RFC 3168): what is agreed in the handshake, what is echoed, what an echo does.
//!
//! | rule | where |
//! |---|---|
//! | ECN-setup SYN and SYN-ACK (6.1.1) | `ecn_offer`, `agree_on_ecn`, `ecn_on_repeated_syn` |
//! | a SYN that is sent again goes without (6.1.1.1) | `ecn_offer` |
//! | ECT(0) on new data, on nothing else (6.1.2, 6.1.4 to 6.1.6) | [`EcnMarks`], `transmit` |
//! | CE is echoed until CWR (6.1.3), in the window only (6.1.5) | `ecn_on_data` |
//! | ECE reduces the window, once a window, and CWR follows (6.1.2) | `ecn_on_ack`, `ecn_note_reduction` |
//!
//! With DCTCP (RFC 8257) the echo says of each segment whether it was marked (section 3.2), and all segments are ECN-capable
//! (section 3.6).

use serde::{Deserialize, Serialize};
use sidecore_wire::{TcpFlags, TcpHeader, ecn};

use crate::Connection;
use crate::config::{Algorithm, Config, Ecn};
use crate::congestion::{CongestionControl, Controller, Observed};
use crate::flags::Flags;
use crate::recovery::Phase;
use crate::time::Instant;
use crate::types::{State, TxSegment};

/// What segments that go out carry, as one byte of the control block's hot part.
///
/// ```text
///   7   6   5   4   3   2   1   0
///     │ECE│       │ others│ data  │      the ECN field of new data, and that of all other segments
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct EcnMarks(u8);

impl EcnMarks {
    const ECE: u8 = 1 << 6;
    const DATA: u8 = ecn::ECT_0;
    const OTHERS: u8 = ecn::ECT_0 << 2;

    /// The ECN field of new data.
    #[inline]
    pub(crate) const fn data(self) -> u8 {
        self.0 & ecn::MASK
    }

    /// The ECN field of everything else.
    #[inline]
    pub(crate) const fn others(self) -> u8 {
        self.0 >> 2 & ecn::MASK
    }

    /// ECE, while congestion is echoed.
    #[inline]
    pub(crate) const fn echo(self) -> TcpFlags {
        TcpFlags::from_bits((self.0 & Self::ECE) as u16)
    }

    const fn is_echoing(self) -> bool {
        self.0 & Self::ECE != 0
    }

    fn assign(&mut self, bits: u8, on: bool) {
        if on {
            self.0 |= bits;
        } else {
            self.0 &= !bits;
        }
    }
}

/// The cold part.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct EcnState {
    /// SND.NXT when the window was reduced last, modulo 2^32: until more than that is acknowledged, an echo says nothing new.
    reduced_at: u32,
    willing: Ecn,
    /// An ECN-setup SYN was sent.
    offered: bool,
    /// A non-ECN-setup SYN was sent: "MUST NOT set ECT on data packets".
    plain_sent: bool,
}

impl EcnState {
    pub(crate) fn new(config: &Config) -> Self {
        let willing = match config.ecn {
            // Without marks DCTCP is NewReno.
            Ecn::Accept if config.congestion == Algorithm::Dctcp => Ecn::Request,
            willing => willing,
        };
        Self {
            reduced_at: 0,
            willing,
            offered: false,
            plain_sent: false,
        }
    }
}

const SETUP: TcpFlags = TcpFlags::ECE.union(TcpFlags::CWR);

impl Connection {
    fn is_dctcp(&self) -> bool {
        matches!(self.cold.controller, Controller::Dctcp(_))
    }

    /// A SYN or SYN-ACK goes out: its flags, and its ECN field. A SYN that is sent again goes without: "a host that receives no
    /// reply to an ECN-setup SYN within the normal SYN retransmission timeout interval MAY resend the SYN … with CWR and ECE
    /// cleared" (section 6.1.1.1).
    pub(crate) fn ecn_offer(&mut self) -> (TcpFlags, u8) {
        let dctcp = self.is_dctcp();
        let state = &mut self.cold.ecn;
        if self.state == State::SynReceived {
            let agreed = self.flags.any(Flags::ECN);
            let flags = if agreed {
                TcpFlags::ECE
            } else {
                TcpFlags::EMPTY
            };
            return (flags, self.ecn_marks.others());
        }
        if state.willing != Ecn::Request || self.cold.attempts > 0 {
            state.plain_sent = true;
            return (TcpFlags::EMPTY, ecn::NOT_ECT);
        }
        state.offered = true;
        // RFC 3168 section 6.1.1: "MUST NOT set ECT on SYN or SYN-ACK packets"; RFC 8257 section 3.6 has it otherwise.
        let field = if dctcp { ecn::ECT_0 } else { ecn::NOT_ECT };
        (SETUP, field)
    }

    /// The peer's SYN or SYN-ACK: whether this connection uses ECN (section 6.1.1).
    pub(crate) fn agree_on_ecn(&mut self, now: Instant, flags: TcpFlags) {
        if let Controller::Dctcp(dctcp) = &mut self.cold.controller {
            dctcp.open(now);
        }
        let bits = flags & SETUP;
        let state = &self.cold.ecn;
        let agreed = if flags.contains(TcpFlags::ACK) {
            // Both flags set is what a host makes of it that reflects reserved bits (section 6.1.1.2).
            state.offered && bits == TcpFlags::ECE
        } else if self.state == State::SynSent {
            // Both have sent a SYN.
            state.offered && !state.plain_sent && bits == SETUP
        } else {
            state.willing != Ecn::Off && bits == SETUP
        };
        // "has sent no non-ECN-setup SYN": what the peer marks is echoed even so.
        let capable = agreed && !state.plain_sent;
        let all = capable && self.is_dctcp();
        self.flags.assign(Flags::ECN, agreed);
        self.ecn_marks.assign(EcnMarks::DATA, capable);
        self.ecn_marks.assign(EcnMarks::OTHERS, all);
    }

    /// A SYN or SYN-ACK in SYN-RECEIVED: "If a host has received at least one non-ECN-setup SYN or non-ECN-setup SYN-ACK packet,
    /// then it SHOULD NOT set ECT on data packets."
    pub(crate) fn ecn_on_repeated_syn(&mut self, flags: TcpFlags) {
        let setup = if flags.contains(TcpFlags::ACK) {
            TcpFlags::ECE
        } else {
            SETUP
        };
        if flags & SETUP != setup {
            self.flags.clear(Flags::ECN);
            self.ecn_marks = EcnMarks::default();
        }
    }

    /// Whether this end is willing to use ECN.
    pub fn ecn(&self) -> Ecn {
        self.cold.ecn.willing
    }

    /// Whether the peer and we use ECN.
    pub(crate) fn ecn_is_agreed(&self) -> bool {
        self.flags.any(Flags::ECN)
    }

    /// Data within the window arrived, new in part at least; `ce`: marked on its way. RCV.NXT has not moved.
    pub(crate) fn ecn_on_data(&mut self, flags: TcpFlags, ce: bool) {
        if !self.flags.any(Flags::ECN) {
            return;
        }
        let counter = &mut self.cold.counters.ce_received;
        *counter = counter.wrapping_add(u32::from(ce));
        if self.is_dctcp() {
            return self.dctcp_on_data(ce);
        }
        if flags.contains(TcpFlags::CWR) {
            // "continues to set the ECN-Echo flag in all the ACK packets it sends … until it receives a CWR packet"
            self.ecn_marks.assign(EcnMarks::ECE, false);
        }
        if ce {
            if !self.ecn_marks.is_echoing() {
                // The sooner the sender hears it, the shorter the queue.
                self.flags.set(Flags::ACK_NOW);
            }
            self.ecn_marks.assign(EcnMarks::ECE, true);
        }
    }

    /// RFC 8257 section 3.2: ECE is the mark of what is acknowledged; an ACK goes out whenever it changes, and what was received
    /// before the change, and not acknowledged, is acknowledged apart.
    fn dctcp_on_data(&mut self, ce: bool) {
        let echoed = self.ecn_marks.is_echoing();
        if ce == echoed {
            return;
        }
        if let Controller::Dctcp(dctcp) = &mut self.cold.controller
            && self.rcv_nxt > self.last_ack_sent
        {
            dctcp.owe(self.rcv_nxt as u32, echoed);
            self.flags.set(Flags::ACKS_OWED);
        }
        self.ecn_marks.assign(EcnMarks::ECE, ce);
        self.flags.assign(Flags::CE_STATE, ce);
        self.flags.set(Flags::ACK_NOW);
    }

    /// An ACK of what arrived before the mark changed.
    pub(crate) fn owed_ack(&mut self, now: Instant) -> Option<TxSegment> {
        let Controller::Dctcp(dctcp) = &mut self.cold.controller else {
            self.flags.clear(Flags::ACKS_OWED);
            return None;
        };
        let owed = dctcp.pay();
        self.flags.assign(Flags::ACKS_OWED, dctcp.owes());
        let (position, echo) = owed?;
        let behind = (self.rcv_nxt as u32).wrapping_sub(position);
        let ack = self.rcv_nxt.checked_sub(behind.into())?;
        if ack <= self.last_ack_sent {
            return None;
        }
        let mut segment = self.ack_of(now, ack);
        let flags = &mut segment.header.flags;
        *flags = flags.difference(TcpFlags::ECE);
        if echo {
            *flags |= TcpFlags::ECE;
        }
        Some(segment)
    }

    /// An ACK in the range SND.UNA..SND.NXT, SND.UNA moved. Returns whether it echoes congestion: then the window does not grow.
    pub(crate) fn ecn_on_ack(&mut self, now: Instant, header: &TcpHeader, acked: u32) -> bool {
        let bits = TcpFlags::ECE | TcpFlags::SYN;
        let echo = header.flags & bits == TcpFlags::ECE && self.ecn_marks.data() != ecn::NOT_ECT;
        if let Controller::Dctcp(dctcp) = &mut self.cold.controller {
            dctcp.observe(&Observed {
                una: self.snd_una as u32,
                nxt: self.snd_nxt as u32,
                acked,
                marked: if echo { acked } else { 0 },
                mss: self.mss.into(),
                now,
                srtt_us: self.rtt.srtt_us(),
            });
        }
        if !echo {
            return false;
        }
        let counter = &mut self.cold.counters.ece_received;
        *counter = counter.wrapping_add(1);
        // "TCP should not react to congestion indications more than once every window of data". What says that the peer knows is
        // the ACK of what was sent after the reduction, as that carries CWR.
        let left = self.cold.ecn.reduced_at.wrapping_sub(self.snd_una as u32);
        if self.phase == Phase::Open && left > self.outstanding() {
            self.reduce_for_echo(now, acked);
        }
        true
    }

    fn reduce_for_echo(&mut self, now: Instant, acked: u32) {
        let mss = u32::from(self.mss);
        let counter = &mut self.cold.counters.ecn_reductions;
        *counter = counter.wrapping_add(1);
        // What an earlier reduction could be undone to is no more.
        self.undo_forget();
        if self.window.cwnd <= mss {
            // "the sending TCP MUST reset the retransmit timer on receiving the ECN-Echo packet when the congestion window is one.
            // The sending TCP will then be able to send a new packet only when the retransmit timer expires."
            self.window.cwnd = HELD;
            self.retransmit_at = now.after_micros(self.rto_us);
            self.rto_after_us = 0;
        } else {
            // FlightSize, before this ACK.
            let in_flight = (self.outstanding() + acked).min(self.window.cwnd);
            self.cold
                .controller
                .on_ecn(&mut self.window, now, in_flight, mss);
        }
        self.ecn_note_reduction();
    }

    /// The retransmission timer fires, and nothing is out: a segment may go again.
    pub(crate) fn ecn_release(&mut self) {
        self.window.cwnd = self.window.cwnd.max(self.mss.into());
    }

    /// "When an ECN-Capable TCP sender reduces its congestion window for any reason (because of a retransmit timeout, a Fast
    /// Retransmit, or in response to an ECN Notification), the TCP sender sets the CWR flag in the TCP header of the first new data
    /// packet sent after the window reduction."
    pub(crate) fn ecn_note_reduction(&mut self) {
        if self.ecn_marks.data() != ecn::NOT_ECT {
            self.flags.set(Flags::CWR_DUE);
            self.cold.ecn.reduced_at = self.snd_nxt as u32;
        }
    }

    /// The reduction is undone: nothing is to be told, and an echo counts again.
    pub(crate) fn ecn_withdraw_reduction(&mut self) {
        self.flags.clear(Flags::CWR_DUE);
        self.cold.ecn.reduced_at = (self.snd_una as u32).wrapping_sub(1);
    }

    /// DCTCP.Alpha in 2^-20, if that is the controller.
    pub(crate) fn dctcp_alpha(&self) -> Option<u32> {
        match &self.cold.controller {
            Controller::Dctcp(dctcp) => Some(dctcp.alpha()),
            _ => None,
        }
    }
}

/// cwnd while nothing may go out until the retransmission timer fires.
pub(crate) const HELD: u32 = 1;
