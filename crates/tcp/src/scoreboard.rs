//! The scoreboard: what the peer says it holds out of order (RFC 2018, RFC 6675).

use sidecore_wire::TcpHeader;

use crate::Connection;
use crate::flags::Flags;
use crate::rack::Delivery;
use crate::range_pool::{Range, RangePool};
use crate::time::Instant;

/// DupThresh, in ranges and in segments (RFC 6675 section 4).
const DUP_THRESH: u16 = 3;

impl Connection {
    /// Update () of RFC 6675 section 4: takes the SACK blocks of a header, and tells `delivery` what is news.
    ///
    /// Blocks that do not lie in SND.UNA..SND.NXT are passed over: they are duplicates (RFC 2883) or nonsense.
    pub(crate) fn update_scoreboard(
        &mut self,
        now: Instant,
        header: &TcpHeader,
        ranges: &mut RangePool,
        delivery: &mut Delivery,
    ) {
        if !self.flags.any(Flags::SACK) || header.options.sack.is_empty() {
            return;
        }
        delivery.duplicate = self.reported_duplicate(header);
        // The cumulative ACK of the same header counts first: what lies before it is a duplicate.
        let cumulative = self.snd_offset(header.ack).max(self.snd_una as i64);
        for block in header.options.sack.iter() {
            let start = self.snd_offset(block.start);
            let end = self.snd_offset(block.end);
            if cumulative < start && start < end && end <= self.snd_nxt as i64 {
                let range = Range::new(start as u64, end as u64);
                self.take_sack_block(now, range, ranges, delivery);
            }
        }
        delivery.bytes += delivery.sacked;
        self.cold.sacked_bytes += delivery.sacked as u32;
        let any = !self.cold.sacked.is_empty();
        self.flags.assign(Flags::SACKED, any);
    }

    fn take_sack_block(
        &mut self,
        now: Instant,
        block: Range,
        ranges: &mut RangePool,
        delivery: &mut Delivery,
    ) {
        if self.rack_is_on() && !self.rack_has_room(ranges) {
            // As if it had been lost on the way.
            ranges.refuse();
            return;
        }
        let Ok(inserted) = self.cold.sacked.insert(ranges, block) else {
            return;
        };
        delivery.sacked += inserted.new_bytes;
        if inserted.new_bytes == 0 {
            return;
        }
        if self.rack_is_on() {
            self.rack_deliver(now, block, ranges, delivery);
        } else {
            delivery.original |= block.end > self.cold.high_rxt;
        }
    }

    /// A D-SACK block: the first one, if it lies before the cumulative ACK, or within the second (RFC 2883 section 4).
    fn reported_duplicate(&self, header: &TcpHeader) -> Option<Range> {
        let mut blocks = header.options.sack.iter();
        let mut next = || {
            let block = blocks.next()?;
            Some((self.snd_offset(block.start), self.snd_offset(block.end)))
        };
        let (start, end) = next()?;
        let below = end <= self.snd_offset(header.ack);
        let inside = next().is_some_and(|(outer_start, outer_end)| {
            outer_start <= start && end <= outer_end && end <= self.snd_nxt as i64
        });
        (0 <= start && start < end && (below || inside))
            .then(|| Range::new(start as u64, end as u64))
    }

    /// The cumulative ACK moves to `ack`: what that delivers. To be called before SND.UNA moves.
    pub(crate) fn deliver_cumulatively(
        &mut self,
        now: Instant,
        ack: u64,
        ranges: &mut RangePool,
        delivery: &mut Delivery,
    ) {
        let acked = Range::new(self.snd_una, ack);
        let known: u64 = self
            .cold
            .sacked
            .iter(ranges)
            .map(|sacked| sacked.overlap(acked.start, acked.end))
            .sum();
        delivery.advanced = true;
        delivery.bytes += acked.len() - known;
        if self.rack_is_on() {
            self.rack_deliver(now, acked, ranges, delivery);
            return;
        }
        let resent_end = self.cold.high_rxt.max(acked.start);
        delivery.resent |= resent_end > acked.start;
        // Without SACK, what lies behind a segment that was sent again may have arrived long ago.
        let known_beyond: u64 = self
            .cold
            .sacked
            .iter(ranges)
            .map(|sacked| sacked.overlap(resent_end, ack))
            .sum();
        delivery.original |= if self.flags.any(Flags::SACK) {
            ack.saturating_sub(resent_end) > known_beyond
        } else {
            resent_end == acked.start
        };
    }

    /// SND.UNA moved: what lies before it is of no more interest.
    pub(crate) fn trim_scoreboard(&mut self, ranges: &mut RangePool) {
        if !self.flags.any(Flags::SACKED) {
            return;
        }
        self.cold.sacked_bytes -= self.cold.sacked.remove_before(ranges, self.snd_una) as u32;
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
            // Their transmit times are gone.
            self.rest_rack(ranges);
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
        let mut above_bytes = u64::from(self.cold.sacked_bytes);
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
