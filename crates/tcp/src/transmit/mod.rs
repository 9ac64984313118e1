//! Segments out: what is due, in which order, and how much of it (RFC 9293 sections 3.8.6 and 3.7.4).

mod rare;
mod retransmission;
mod sendable;

use core::ops::Range;

use sidecore_wire::{SackBlocks, TcpFlags, TcpHeader, TcpOptions, Timestamps};

use crate::Connection;
use crate::congestion::{CongestionControl, NO_SSTHRESH, Window, initial_window};
use crate::flags::Flags;
use crate::range_pool::RangePool;
use crate::time::Instant;
use crate::types::{TxLimits, TxSegment};
use sendable::{Hold, Plan};

/// The unit of [`Connection::room_due`].
const ROOM_SHIFT: u32 = 10;

/// What lets [`Connection::room_due`] be found out anew.
pub(crate) const ROOM_UNKNOWN: u16 = u16::MAX;

impl Connection {
    /// The next segment to send, or `None`. To be called until it gives `None`, at the end of the caller's turn, so that
    /// acknowledgments ride on the data of that turn.
    ///
    /// In this order: RST, SYN, probes (`rare.rs`); retransmissions (`retransmission.rs`); new data; FIN (with the last data if possible); a pure ACK.
    #[inline]
    pub fn poll_transmit(
        &mut self,
        now: Instant,
        tx: &TxLimits,
        ranges: &mut RangePool,
    ) -> Option<TxSegment> {
        if self.flags.any(Flags::SPECIAL) {
            self.poll_special(now, tx, ranges)
        } else {
            self.poll_ordinary::<false>(now, tx, ranges)
        }
    }

    /// New data, FIN, ACK. `LOSSY`: one of [`Flags::LOSSY`] may be set (then `pipe` counts, in the cold part).
    #[inline(always)]
    fn poll_ordinary<const LOSSY: bool>(
        &mut self,
        now: Instant,
        tx: &TxLimits,
        ranges: &mut RangePool,
    ) -> Option<TxSegment> {
        let unsent = self.send_limit.saturating_sub(self.snd_nxt);
        if unsent > 0 {
            if self.snd_nxt == self.snd_una {
                self.restart_after_idle(now);
                self.run_at = now;
            }
            match self.sendable_of::<LOSSY>(unsent, tx.max_segments_bytes) {
                Ok(plan) => return Some(self.new_data::<LOSSY>(now, plan, ranges)),
                Err(hold) => self.note_hold(now, hold),
            }
        }
        if self.flags.any(Flags::ACK_NOW.or(Flags::FIN_QUEUED)) {
            return self.poll_fin_or_ack(now, ranges);
        }
        None
    }

    #[inline(never)]
    fn poll_fin_or_ack(&mut self, now: Instant, ranges: &mut RangePool) -> Option<TxSegment> {
        if self.fin_is_next() {
            let room = self.window.cwnd;
            let fin = self.plan(0, room);
            return Some(self.new_data::<true>(now, fin, ranges));
        }
        self.flags.any(Flags::ACK_NOW).then(|| self.pure_ack(now))
    }

    /// One of [`Flags::SPECIAL`] is set.
    #[cold]
    #[inline(never)]
    fn poll_special(
        &mut self,
        now: Instant,
        tx: &TxLimits,
        ranges: &mut RangePool,
    ) -> Option<TxSegment> {
        if self.flags.any(Flags::URGENT) {
            return self.poll_urgent(now, tx, ranges);
        }
        self.poll_not_urgent(now, tx, ranges)
    }

    /// As ordinary, after what goes before it, and with SACK blocks.
    pub(crate) fn poll_not_urgent(
        &mut self,
        now: Instant,
        tx: &TxLimits,
        ranges: &mut RangePool,
    ) -> Option<TxSegment> {
        if let Some(segment) = self.poll_rare(now, ranges) {
            return Some(segment);
        }
        if self.flags.any(Flags::UNSYNCHRONIZED) && !self.may_send_early() {
            return None;
        }
        let mut segment = if self.flags.any(Flags::PACED) {
            self.poll_paced(now, tx, ranges)?
        } else {
            self.poll_data(now, tx, ranges)?
        };
        if self.flags.any(Flags::SACK_DUE) {
            // The blocks share the room with the payload.
            segment.segment_size -= self.add_sack_blocks(&mut segment.header.options);
        }
        Some(segment)
    }

    /// Retransmissions, then new data, FIN, ACK.
    #[inline]
    pub(crate) fn poll_data(
        &mut self,
        now: Instant,
        tx: &TxLimits,
        ranges: &mut RangePool,
    ) -> Option<TxSegment> {
        if self.flags.any(Flags::LOST_LEFT) {
            let retransmission = self.poll_retransmission(now, tx, ranges);
            if retransmission.is_some() {
                return retransmission;
            }
        }
        if self.flags.any(Flags::CWR_DUE) {
            // CWR is to be on one segment only.
            return self.poll_ordinary::<true>(now, &TxLimits::default(), ranges);
        }
        self.poll_ordinary::<true>(now, tx, ranges)
    }

    /// An ACK that is due, and nothing else.
    pub(crate) fn poll_ack(&mut self, now: Instant) -> Option<TxSegment> {
        self.flags.any(Flags::ACK_NOW).then(|| self.pure_ack(now))
    }

    /// Whether [`Connection::poll_transmit`] has something to do right now. Cheap; touches only the hot part.
    #[inline]
    pub fn wants_transmit(&self) -> bool {
        if self.flags.any(Flags::DUE) {
            return true;
        }
        let nothing_new = self.snd_nxt >= self.send_limit;
        if nothing_new && !self.flags.any(Flags::FIN_QUEUED.or(Flags::LOST_LEFT)) {
            return false;
        }
        if self.flags.any(Flags::PACED) && self.pacing_waits() {
            return false;
        }
        self.wants_transmit_data()
    }

    /// Whether [`Connection::poll_transmit`] would find nothing to look at: no new data, nothing due. Cheaper than
    /// [`Connection::wants_transmit`], and perhaps false where that is false too. A connection for which it is true needs no
    /// call of `poll_transmit`, only its timer.
    #[inline]
    pub fn has_nothing_to_send(&self) -> bool {
        const LOOKED_AT: Flags = Flags::DUE
            .or(Flags::UNSYNCHRONIZED)
            .or(Flags::FIN_QUEUED)
            .or(Flags::LOST_LEFT);
        self.snd_nxt >= self.send_limit && !self.flags.any(LOOKED_AT)
    }

    #[inline(never)]
    pub(crate) fn wants_transmit_data(&self) -> bool {
        if self.flags.any(Flags::UNSYNCHRONIZED) && !self.may_send_early() {
            return false;
        }
        if self.flags.any(Flags::LOST_LEFT)
            && self.in_flight() + u32::from(self.mss) <= self.window.cwnd
            && !self.frto_prefers_new_data()
        {
            return true;
        }
        match self.sendable::<true>(0) {
            Ok(_) => true,
            // Its timer has yet to be set.
            Err(Hold::Window) => self.retransmit_at == Instant::NEVER,
            Err(Hold::Congestion) => self.stands_still(),
            Err(Hold::Cork) => !self.flags.any(Flags::CORKED),
            Err(_) => self.fin_is_next(),
        }
    }

    /// Whether a FIN, without data, is what must go out next.
    #[inline]
    fn fin_is_next(&self) -> bool {
        self.flags.any(Flags::FIN_QUEUED)
            && !self.flags.any(Flags::FIN_SENT)
            && self.snd_nxt == self.send_limit
    }

    /// A segment of new data, or a FIN.
    #[inline(always)]
    fn new_data<const LOSSY: bool>(
        &mut self,
        now: Instant,
        plan: Plan,
        ranges: &mut RangePool,
    ) -> TxSegment {
        let len = plan.len;
        let start = self.snd_nxt;
        let end = start + u64::from(len);
        if plan.small {
            self.snd_sml = end as u32;
        }
        let mut flags = plan.flags;
        let little_room = plan.room >> ROOM_SHIFT < u32::from(self.room_due);
        if LOSSY || little_room || self.flags.any(Flags::UNUSUAL) {
            flags = self.unusual_data(len, plan.room, end);
        }
        let sequence_end = end + u64::from(flags.contains(TcpFlags::FIN));
        self.note_sent(now, ranges);
        if LOSSY && self.flags.any(Flags::PACED) {
            self.sample_transmission(now, sequence_end, len, false);
        }
        self.snd_nxt = sequence_end;
        if LOSSY {
            self.note_sent_while_lossy((sequence_end - start) as u32);
        }
        // Before the handshake's end its own round trip is measured.
        if !LOSSY || !self.flags.any(Flags::LOSSY.or(Flags::UNSYNCHRONIZED)) {
            self.rtt_start(now, sequence_end);
        }
        // RFC 6298 rule 5.1.
        if self.retransmit_at == Instant::NEVER {
            self.arm_retransmission(now);
        } else {
            self.postpone_probe(now);
        }
        let mut segment = self.segment(now, flags, start..end, false);
        if !LOSSY || len > 0 {
            segment.ecn = self.ecn_marks.data();
        }
        segment
    }

    /// How much room a congestion window that is not used up leaves, at least. In slow start, a window that is half used counts as used
    /// ("pipeACK >= (1/2)*cwnd", RFC 7661 section 4.3; so does Linux). Otherwise no room for a segment may be left.
    fn room_unused(&self) -> u32 {
        let Window { cwnd, ssthresh } = self.window;
        let mss = u32::from(self.mss);
        if cwnd < ssthresh {
            mss.max(cwnd / 2)
        } else {
            mss
        }
    }

    /// `len` bytes of new data, whatever the congestion window says.
    pub(crate) fn send_probe(
        &mut self,
        now: Instant,
        len: u32,
        ranges: &mut RangePool,
    ) -> TxSegment {
        let room = u32::from(self.mss);
        let plan = self.plan(len, room);
        self.new_data::<true>(now, plan, ranges)
    }

    /// `len` bytes of new data, for which the congestion window has room.
    pub(crate) fn send_larger(
        &mut self,
        now: Instant,
        len: u32,
        ranges: &mut RangePool,
    ) -> TxSegment {
        let used = self.in_flight().saturating_add(len);
        let room = self.window.cwnd.saturating_sub(used);
        let plan = self.plan(len, room);
        self.new_data::<true>(now, plan, ranges)
    }

    /// What [`Flags::UNUSUAL`] asks for when data up to `end` goes out. Returns the segment's flags.
    #[inline(never)]
    fn unusual_data(&mut self, len: u32, room: u32, end: u64) -> TcpFlags {
        let mss = u32::from(self.mss);
        let room_unused = self.room_unused();
        // A segment is rounded up. Half a window is rounded down: growth stops where no more than that is used, and would else have every
        // segment come here.
        let due = (room_unused >> ROOM_SHIFT).max((mss >> ROOM_SHIFT) + 1);
        self.room_due = due.min(ROOM_UNKNOWN.into()) as u16;
        let limited = room < room_unused || self.is_paced_at_the_window(len);
        self.flags.assign(Flags::CWND_LIMITED, limited);
        self.cold.window_used = self.window.cwnd.saturating_sub(room);
        if self.flags.any(Flags::PROBING) {
            // The persist timer has done its work; the retransmission timer starts.
            self.flags.clear(Flags::PROBING);
            self.retransmit_at = Instant::NEVER;
        }
        if len < mss || !len.is_multiple_of(mss) {
            self.flags.clear(Flags::FLUSH);
        }
        let mut flags = TcpFlags::ACK;
        if len > mss {
            flags |= TcpFlags::PSH;
        }
        if self.flags.any(Flags::CWR_DUE) && len > 0 {
            self.flags.clear(Flags::CWR_DUE);
            flags |= TcpFlags::CWR;
        }
        if end == self.send_limit {
            self.flags.clear(Flags::CORKED.or(Flags::FLUSH));
            // A FIN alone pushes nothing that was not pushed before.
            if len > 0 && !self.flags.any(Flags::MORE) {
                flags |= TcpFlags::PSH;
            }
            if self.flags.any(Flags::FIN_QUEUED) {
                flags |= TcpFlags::FIN;
                self.flags.set(Flags::FIN_SENT);
            }
        }
        flags
    }

    /// RFC 5681 section 4.1: "a TCP SHOULD set cwnd to no more than RW before beginning transmission if the TCP has not sent data
    /// in an interval exceeding the retransmission timeout", where RW = min(IW, cwnd).
    #[inline]
    fn restart_after_idle(&mut self, now: Instant) {
        if self.rtt_started.after_micros(self.rto_us) < now {
            self.restart_window(now);
        }
    }

    /// Of what the window was, three quarters are remembered as the threshold (RFC 2861 section 3), and it is halved for every timeout
    /// that went by, down to RW.
    #[cold]
    #[inline(never)]
    fn restart_window(&mut self, now: Instant) {
        if self.snd_wnd == 0 {
            // "before beginning transmission": not while the peer's window is closed.
            return;
        }
        let idle_us = now.micros_since(self.rtt_started, u32::MAX);
        let initial = initial_window(
            self.cold.settings.initial_window_segments,
            u32::from(self.mss),
        );
        self.cold
            .controller
            .on_restart(&mut self.window, now, idle_us);
        if self.cold.controller.is_model() {
            // Its window stays, and it is paced (draft-ietf-ccwg-bbr, "Restarting From Idle").
            self.rtt_started = now;
            return;
        }
        let Window { cwnd, ssthresh } = self.window;
        if ssthresh != NO_SSTHRESH {
            self.window.ssthresh = ssthresh.max(cwnd / 4 * 3);
            self.room_due = ROOM_UNKNOWN;
        }
        let halvings = (idle_us / self.rto_us.max(1)).min(31);
        self.window.cwnd = (cwnd >> halvings).max(cwnd.min(initial));
        // The idle time counts once.
        self.rtt_started = now;
    }

    /// A segment that acknowledges, with or without payload.
    #[inline(always)]
    fn segment(
        &mut self,
        now: Instant,
        flags: TcpFlags,
        payload: Range<u64>,
        retransmission: bool,
    ) -> TxSegment {
        let timestamps = self.timestamps(now);
        let window = self.select_window();
        self.flags.clear(Flags::ACK_NOW);
        self.ack_at = Instant::NEVER;
        self.last_ack_sent = self.rcv_nxt;
        TxSegment {
            header: TcpHeader {
                src_port: 0,
                dst_port: 0,
                seq: self.snd_seq(payload.start),
                ack: self.rcv_seq(self.rcv_nxt),
                flags: flags | self.ecn_marks.echo(),
                window,
                urgent: 0,
                options: TcpOptions {
                    mss: None,
                    window_scale: None,
                    sack_permitted: false,
                    timestamps,
                    sack: SackBlocks::new(),
                    fast_open: None,
                },
            },
            payload,
            segment_size: self.mss,
            ecn: self.ecn_marks.others(),
            retransmission,
        }
    }

    /// The timestamps option, if it is agreed (or, before that, offered).
    #[inline]
    fn timestamps(&self, now: Instant) -> Option<Timestamps> {
        self.flags.any(Flags::TIMESTAMPS).then(|| Timestamps {
            value: self.timestamp(now),
            echo: self.ts_recent,
        })
    }

    /// `<SEQ=SND.NXT><ACK=RCV.NXT><CTL=ACK>`
    #[inline]
    fn pure_ack(&mut self, now: Instant) -> TxSegment {
        let at = self.send_nxt();
        let mut segment = self.segment(now, TcpFlags::ACK, at..at, false);
        // After a FIN, SND.NXT lies one after the data.
        segment.header.seq = self.snd_seq(self.acceptable_nxt());
        segment
    }

    /// SND.NXT, or where it lies beyond a window that has shrunk, that window's edge: what lies outside of its window the peer discards with its
    /// ACK (RFC 9293 section 3.10.7.4), and two ends that both have more out than the other takes would acknowledge nothing for ever. Less than a
    /// unit of the scaled window is no shrinking, but rounding. As Linux has it.
    #[inline]
    pub(super) fn acceptable_nxt(&self) -> u64 {
        let edge = self.snd_una + u64::from(self.snd_wnd);
        let unit = 1 << self.snd_scale.shift();
        if edge + unit <= self.snd_nxt {
            edge
        } else {
            self.snd_nxt
        }
    }
}
