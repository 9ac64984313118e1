//! The scoreboard: what the peer says it holds out of order (RFC 2018, RFC 6675).

use sidecore_wire::TcpHeader;

use crate::Connection;
use crate::flags::Flags;
use crate::range_pool::{Range, RangePool};

/// DupThresh, in ranges and in segments (RFC 6675 section 4).
const DUP_THRESH: u16 = 3;

impl Connection {
    /// Update () of RFC 6675 section 4: takes the SACK blocks of a header. Returns how many bytes are news.
    ///
    /// Blocks that do not lie in SND.UNA..SND.NXT are passed over: they are duplicates (RFC 2883) or nonsense.
    pub(crate) fn update_scoreboard(&mut self, header: &TcpHeader, ranges: &mut RangePool) -> u64 {
        if !self.flags.any(Flags::SACK) || header.options.sack.is_empty() {
            return 0;
        }
        // The cumulative ACK of the same header counts first: what lies before it is a duplicate.
        let cumulative = self.snd_offset(header.ack).max(self.snd_una as i64);
        let mut news = 0;
        for block in header.options.sack.iter() {
            let start = self.snd_offset(block.start);
            let end = self.snd_offset(block.end);
            if cumulative < start && start < end && end <= self.snd_nxt as i64 {
                let range = Range::new(start as u64, end as u64);
                if let Ok(inserted) = self.cold.sacked.insert(ranges, range) {
                    news += inserted.new_bytes;
                }
            }
        }
        self.cold.sacked_bytes += news;
        let any = !self.cold.sacked.is_empty();
        self.flags.assign(Flags::SACKED, any);
        news
    }

    /// SND.UNA moved: what lies before it is of no more interest.
    pub(crate) fn trim_scoreboard(&mut self, ranges: &mut RangePool) {
        if !self.flags.any(Flags::SACKED) {
            return;
        }
        self.cold.sacked_bytes -= self.cold.sacked.remove_before(ranges, self.snd_una);
        self.drop_reneged(ranges);
        let any = !self.cold.sacked.is_empty();
        self.flags.assign(Flags::SACKED, any);
    }

    /// A peer that holds what follows SND.UNA would have acknowledged it: it has discarded data after reporting it, as it
    /// may (RFC 2018 section 8). Then nothing it reported counts.
    pub(crate) fn drop_reneged(&mut self, ranges: &mut RangePool) {
        let reneged = self
            .cold
            .sacked
            .first(ranges)
            .is_some_and(|first| first.start <= self.snd_una);
        if reneged {
            self.cold.sacked.clear(ranges);
            self.cold.sacked_bytes = 0;
            self.cold.high_rxt = self.snd_una;
            self.flags.clear(Flags::SACKED);
        }
    }

    /// IsLost () of RFC 6675 section 4, for all bytes at once: a byte is lost if "DupThresh discontiguous SACKed sequences have
    /// arrived above" it "or more than (DupThresh - 1) * SMSS bytes". Moves the edge before which that is so.
    pub(crate) fn update_lost_edge(&mut self, ranges: &RangePool) {
        let mut above_ranges = self.cold.sacked.len();
        let mut above_bytes = self.cold.sacked_bytes;
        let enough_bytes = u64::from(DUP_THRESH - 1) * u64::from(self.mss);
        let mut edge = self.cold.lost_edge.max(self.snd_una);
        for sacked in self.cold.sacked.iter(ranges) {
            if above_ranges < DUP_THRESH && above_bytes <= enough_bytes {
                break;
            }
            edge = edge.max(sacked.start);
            above_ranges -= 1;
            above_bytes -= sacked.len();
        }
        self.cold.lost_edge = edge;
    }
}
