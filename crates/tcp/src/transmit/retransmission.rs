//! Lost segments out again.

use sidecore_wire::TcpFlags;

use crate::Connection;
use crate::flags::Flags;
use crate::range_pool::{Range, RangePool};
use crate::recovery::Phase;
use crate::time::Instant;
use crate::types::{TxLimits, TxSegment};

impl Connection {
    /// Sends again what is lost, as far as the window allows (NextSeg () of RFC 6675 section 4).
    #[cold]
    pub(super) fn poll_retransmission(
        &mut self,
        now: Instant,
        tx: &TxLimits,
        ranges: &mut RangePool,
    ) -> Option<TxSegment> {
        debug_assert!(self.phase != Phase::Open);
        if self.cold.all_lost {
            self.mark_all_lost(ranges);
        }
        if self.frto_prefers_new_data() {
            self.flags.clear(Flags::RETRANSMIT_NOW);
            return None;
        }
        let mss = u64::from(self.mss);
        let room = u64::from(self.window.cwnd.saturating_sub(self.in_flight()));
        let must = self.flags.any(Flags::RETRANSMIT_NOW);
        self.flags.clear(Flags::RETRANSMIT_NOW);
        if room < mss && !must {
            return None;
        }
        // Rule 1.
        if let Some(lost) = self.next_lost(ranges)
            && self.may_retransmit(lost)
        {
            let limit = room.min(u64::from(tx.max_segments_bytes)).max(mss);
            let mut len = lost.len().min(limit);
            if len > mss {
                len -= len % mss;
            }
            let range = Range::new(lost.start, lost.start + len);
            self.cold.high_rxt = range.end;
            return Some(self.retransmit(now, range, ranges));
        }
        // Rule 2: new data.
        if self.sendable::<true>(0).is_ok() {
            return None;
        }
        self.poll_last_resort(now, room, ranges)
    }

    /// Rules 3 and 4 of NextSeg (): there is nothing better to do with what the window allows.
    fn poll_last_resort(
        &mut self,
        now: Instant,
        room: u64,
        ranges: &mut RangePool,
    ) -> Option<TxSegment> {
        let mss = u64::from(self.mss);
        // By time, what is not lost yet has a timer.
        if self.phase == Phase::Recovery && room >= mss && !self.rack_is_on() {
            if let Some(suspect) = self.next_suspect(ranges)
                && self.may_retransmit(suspect)
            {
                let end = suspect.end.min(suspect.start + mss);
                self.cold.high_rxt = end;
                return Some(self.retransmit(now, Range::new(suspect.start, end), ranges));
            }
            if let Some(rescue) = self.rescue(ranges)
                && self.may_retransmit(rescue)
            {
                // "HighRxt MUST NOT be updated"
                self.cold.rescued = true;
                return Some(self.retransmit(now, rescue, ranges));
            }
        }
        self.flags.clear(Flags::LOST_LEFT);
        None
    }

    /// Whether the peer's window still covers it. A window that has shrunk: the first segment is sent again even so (RFC 9293
    /// section 3.8.6, SHLD-16).
    pub(crate) fn may_retransmit(&self, range: Range) -> bool {
        range.start == self.snd_una || range.start < self.snd_una + u64::from(self.snd_wnd)
    }

    pub(crate) fn retransmit(
        &mut self,
        now: Instant,
        range: Range,
        ranges: &mut RangePool,
    ) -> TxSegment {
        let mut flags = TcpFlags::ACK;
        let data_end = range.end.min(self.send_limit);
        if range.end > self.send_limit {
            flags |= TcpFlags::FIN;
        }
        if data_end == self.send_limit && data_end > range.start {
            flags |= TcpFlags::PSH;
        }
        if self.flags.any(Flags::PACED) {
            self.sample_transmission(now, range.end, range.len() as u32, true);
        }
        self.note_retransmission(now, range, ranges);
        self.cold.counters.bytes_retransmitted += data_end - range.start;
        if range.start == self.snd_una || self.retransmit_at == Instant::NEVER {
            self.arm_again(now);
        }
        self.segment(now, flags, range.start..data_end, true)
    }
}
