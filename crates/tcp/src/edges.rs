//! What is lost by count: RFC 6675 with SACK, RFC 6582 (NewReno) without.
//!
//! One model serves both: what is not selectively acknowledged before `lost_edge` is deemed lost; `high_rxt` is how far it was
//! sent again. It needs no memory but the scoreboard, and is what [`crate::rack`] falls back to.
//!
//! ```text
//!   snd_una          high_rxt        lost_edge                    snd_nxt
//!  ────┼────────────────┼────────────────┼───────────────────────────┼────
//!      │ sent again:    │ lost: not in   │ sent once:                │
//!      │ in flight      │ flight         │ in flight                 │      (selectively acknowledged bytes: never)
//! ```
//!
//! Without SACK, duplicate ACKs stand for the bytes that left the network, and only the first segment is deemed lost.

use crate::Connection;
use crate::range_pool::{Range, RangePool};

impl Connection {
    /// Three duplicates, or a partial ACK: the first segment at least is lost.
    pub(crate) fn deem_first_segment_lost(&mut self, ranges: &RangePool) {
        let mut edge = (self.snd_una + u64::from(self.mss)).min(self.snd_nxt);
        if let Some(first) = self.cold.sacked.first(ranges) {
            edge = edge.min(first.start);
        }
        self.cold.lost_edge = self.cold.lost_edge.max(edge);
    }

    /// When nothing is left that is deemed lost, and no new data can go out: what lies before something selectively
    /// acknowledged (NextSeg () rule 3 of RFC 6675).
    pub(crate) fn next_suspect(&self, ranges: &RangePool) -> Option<Range> {
        let highest = self.cold.sacked.last(ranges)?;
        self.next_hole(highest.start, ranges)
    }

    /// The "rescue" retransmission, once in each recovery: the last segment that is out, if it is not selectively
    /// acknowledged (rule 4).
    pub(crate) fn rescue(&self, ranges: &RangePool) -> Option<Range> {
        let sacked_end = self.cold.sacked.last(ranges)?.end;
        let start = self
            .snd_nxt
            .saturating_sub(u64::from(self.mss))
            .max(sacked_end)
            .max(self.cold.high_rxt);
        (!self.cold.rescued && start < self.snd_nxt).then_some(Range::new(start, self.snd_nxt))
    }

    /// The first range from HighRxt to `end` that is not selectively acknowledged.
    pub(crate) fn next_hole(&self, mut end: u64, ranges: &RangePool) -> Option<Range> {
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

    /// SetPipe (RFC 6675 section 4).
    pub(crate) fn edges_pipe(&self, ranges: &RangePool) -> u64 {
        let una = self.snd_una;
        let lost_edge = self.cold.lost_edge.max(una);
        let resent_end = self.cold.high_rxt.clamp(una, lost_edge);
        let mut pipe = (resent_end - una) + self.snd_nxt.saturating_sub(lost_edge);
        for sacked in self.cold.sacked.iter(ranges) {
            pipe -= sacked.overlap(una, resent_end) + sacked.overlap(lost_edge, self.snd_nxt);
        }
        pipe.saturating_sub(self.cold.reno_sacked.into())
    }
}
