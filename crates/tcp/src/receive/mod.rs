//! Segments in (RFC 9293 section 3.10.7).
//!
//! [`Connection::handle_segment`] first tries header prediction; what does not fit goes through the steps of RFC 9293
//! section 3.10.7.4, each a function:
//!
//! | step | function | file |
//! |---|---|---|
//! | SYN-SENT (3.10.7.3) | `in_syn_sent` | `handshake.rs` |
//! | TIME-WAIT and a new SYN | `check_reincarnation` | `handshake.rs` |
//! | PAWS (RFC 7323) | `check_paws` | `checks.rs` |
//! | first, sequence number | `check_sequence` | `checks.rs` |
//! | second, RST | `check_rst` | `checks.rs` |
//! | fourth, SYN | `check_syn` | `checks.rs` |
//! | fifth, ACK | `check_ack`, `process_ack` | `checks.rs`, `ack.rs` |
//! | sixth, URG | `process_urgent` | `text.rs` |
//! | seventh, text | `process_text` | `text.rs` |
//! | eighth, FIN | `process_fin` | `text.rs` |
//!
//! (The third step, security, is empty.)

mod ack;
mod checks;
#[cfg(test)]
mod differential;
mod handshake;
mod text;

use core::ops::ControlFlow;

use sidecore_wire::{TcpFlags, TcpHeader};

use crate::Connection;
use crate::flags::Flags;
use crate::range_pool::RangePool;
use crate::time::Instant;
use crate::types::{DropReason, Outcome, RxRange, State};

/// Whether the next step is to be taken.
type Step = ControlFlow<()>;

/// A segment on its way through the steps.
#[derive(Debug)]
pub(crate) struct Arrival<'a> {
    now: Instant,
    pub(crate) header: &'a TcpHeader,
    /// SEG.SEQ as a stream offset; -1 for the SYN, less for what is older.
    seq: i64,
    payload_len: u32,
    out_of_order_room: bool,
    /// Congestion was experienced on its way (RFC 3168).
    ce: bool,
    pub(crate) outcome: Outcome,
}

impl Arrival<'_> {
    fn has(&self, flag: TcpFlags) -> bool {
        self.header.flags.contains(flag)
    }

    /// Where the payload ends, as a stream offset; a FIN has this offset.
    fn payload_end(&self) -> i64 {
        self.seq + i64::from(self.payload_len)
    }

    /// SEG.SEQ + SEG.LEN, as a stream offset.
    fn end(&self) -> i64 {
        let syn = i64::from(self.has(TcpFlags::SYN));
        let fin = i64::from(self.has(TcpFlags::FIN));
        self.payload_end() + syn + fin
    }

    /// Ends the processing.
    fn drop_because(&mut self, reason: DropReason) -> Step {
        self.outcome.dropped = Some(reason);
        Step::Break(())
    }
}

impl Connection {
    /// A segment for this connection, its checksum verified: RFC 9293 section 3.10.7.
    ///
    /// `payload_len` may be that of many segments that were coalesced on the way in. With `out_of_order_room` false,
    /// payload that does not start at RCV.NXT is not taken (a duplicate ACK still goes out). What the caller must do,
    /// the [`Outcome`] says; what is to be sent, [`Connection::poll_transmit`]. `ranges` must be the same pool in all
    /// calls for one connection.
    #[inline]
    pub fn handle_segment(
        &mut self,
        now: Instant,
        header: &TcpHeader,
        payload_len: u32,
        out_of_order_room: bool,
        ranges: &mut RangePool,
    ) -> Outcome {
        match self.handle_predicted(now, header, payload_len, ranges) {
            Some(outcome) => outcome,
            None => self.handle_unpredicted(now, header, payload_len, out_of_order_room, ranges),
        }
    }

    /// The first half of [`Connection::handle_segment`], for who keeps the two apart: the next data in order, or an ACK of something
    /// new. `None`: it is neither, and nothing was done. Of the outcome only `acked` and `accept` say anything, the rest is as by default.
    #[inline]
    pub fn handle_predicted(
        &mut self,
        now: Instant,
        header: &TcpHeader,
        payload_len: u32,
        ranges: &mut RangePool,
    ) -> Option<Outcome> {
        self.is_predicted(header, payload_len)
            .then(|| self.predicted_segment(now, header, payload_len, ranges))
    }

    /// The second half, for what the first has left.
    #[inline]
    pub fn handle_unpredicted(
        &mut self,
        now: Instant,
        header: &TcpHeader,
        payload_len: u32,
        out_of_order_room: bool,
        ranges: &mut RangePool,
    ) -> Outcome {
        self.segment_arrives::<false>(now, header, payload_len, out_of_order_room, ranges)
    }

    /// As [`Connection::handle_segment`], for a segment whose IP header has the codepoint CE (RFC 3168): congestion was experienced
    /// on its way, of which the peer is told.
    #[cold]
    pub fn handle_marked_segment(
        &mut self,
        now: Instant,
        header: &TcpHeader,
        payload_len: u32,
        out_of_order_room: bool,
        ranges: &mut RangePool,
    ) -> Outcome {
        self.segment_arrives::<true>(now, header, payload_len, out_of_order_room, ranges)
    }

    /// Header prediction (V. Jacobson, "4BSD TCP header prediction"): the next in-order data, or an ACK of something
    /// new, on an established connection on which nothing is lost, held, or being probed.
    #[inline]
    fn is_predicted(&self, header: &TcpHeader, payload_len: u32) -> bool {
        const LOOKED_AT: TcpFlags = TcpFlags::FIN
            .union(TcpFlags::SYN)
            .union(TcpFlags::RST)
            .union(TcpFlags::ACK)
            .union(TcpFlags::URG)
            .union(TcpFlags::ECE)
            .union(TcpFlags::CWR);
        let acked = header.ack.distance_from(self.snd_seq(self.snd_una));
        let outstanding = self.outstanding();
        debug_assert!(self.state == State::Established || self.flags.any(Flags::UNPREDICTED));
        !self.flags.any(Flags::UNPREDICTED)
            && header.flags & LOOKED_AT == TcpFlags::ACK
            && header.seq == self.rcv_seq(self.rcv_nxt)
            && acked <= outstanding
            && self.rcv_nxt + u64::from(payload_len) <= self.rcv_adv
            && header.options.sack.is_empty()
            // Else it may be a duplicate ACK.
            && (acked != 0 || payload_len != 0 || outstanding == 0)
            && self.timestamp_is_fresh(header)
    }

    /// RFC 7323 section 5.3 rule R1, for connections that are not idle for weeks.
    #[inline]
    fn timestamp_is_fresh(&self, header: &TcpHeader) -> bool {
        if !self.flags.any(Flags::TIMESTAMPS) {
            return true;
        }
        header
            .options
            .timestamps
            .is_some_and(|ts| ts.value.wrapping_sub(self.ts_recent) as i32 >= 0)
    }

    /// What [`Self::is_predicted`] found: SEG.SEQ = RCV.NXT, SND.UNA <= SEG.ACK <= SND.NXT, all payload in the window.
    #[inline]
    fn predicted_segment(
        &mut self,
        now: Instant,
        header: &TcpHeader,
        payload_len: u32,
        ranges: &mut RangePool,
    ) -> Outcome {
        const MORE: Flags = Flags::CWND_LIMITED.or(Flags::RUNS).or(Flags::PACED);
        let mut outcome = Outcome::default();
        self.last_received = now;
        if let Some(timestamps) = header.options.timestamps
            && self.rcv_nxt == self.last_ack_sent
        {
            // RFC 7323 section 4.3 (2): "SEG.SEQ <= Last.ACK.sent". Unused if timestamps are not agreed.
            self.ts_recent = timestamps.value;
        }
        let acked = header.ack.distance_from(self.snd_seq(self.snd_una));
        // SEG.ACK >= SND.UNA >= SND.WL2: the window is news, unless a later segment has overtaken this one (SND.WL1 > SEG.SEQ).
        let overtaken = self.snd_wl1.wrapping_sub(self.rcv_nxt as u32) as i32 > 0;
        if !overtaken || acked > 0 {
            self.take_send_window(header, self.rcv_nxt, self.snd_una + u64::from(acked));
        }
        if acked > 0 {
            outcome.acked = true;
            self.advance_snd_una(now, acked);
            if self.flags.any(MORE) {
                self.acked_more(now, acked, ranges);
            }
        }
        if payload_len > 0 {
            outcome.accept = Some(RxRange {
                payload_offset: 0,
                len: payload_len,
                stream_offset: self.rcv_nxt,
                in_order: true,
            });
            self.rcv_nxt += u64::from(payload_len);
            self.in_order_data_arrived(now, header, payload_len);
        }
        outcome
    }

    /// The steps of RFC 9293 section 3.10.7, for segments that header prediction leaves.
    #[cold]
    #[inline(never)]
    fn segment_arrives<const CE: bool>(
        &mut self,
        now: Instant,
        header: &TcpHeader,
        payload_len: u32,
        out_of_order_room: bool,
        ranges: &mut RangePool,
    ) -> Outcome {
        let mut arrival = Arrival {
            now,
            header,
            seq: self.rcv_offset(header.seq),
            payload_len,
            out_of_order_room,
            ce: CE,
            outcome: Outcome::default(),
        };
        self.cold.challenges.fresh = false;
        let _ = match self.state {
            // Unsynchronized without a connection: the caller answers (see `reset_for`).
            State::Closed | State::Listen => arrival.drop_because(DropReason::Closed),
            State::SynSent => self.in_syn_sent(&mut arrival, ranges),
            _ => self.in_other_states(&mut arrival, ranges),
        };
        #[cfg(debug_assertions)]
        self.check_invariants(ranges);
        arrival.outcome.challenge = self.cold.challenges.fresh;
        arrival.outcome
    }

    /// RFC 9293 section 3.10.7.4.
    fn in_other_states(&mut self, arrival: &mut Arrival<'_>, ranges: &mut RangePool) -> Step {
        self.check_reincarnation(arrival)?;
        self.check_paws(arrival)?;
        self.check_sequence(arrival)?;
        self.check_rst(arrival)?;
        self.check_syn(arrival)?;
        self.check_ack(arrival, ranges)?;
        self.take_timestamp(arrival);
        self.last_received = arrival.now;
        self.cold.keepalive_probes = 0;
        self.process_urgent(arrival);
        self.process_text(arrival, ranges)?;
        self.process_fin(arrival, ranges)
    }
}
