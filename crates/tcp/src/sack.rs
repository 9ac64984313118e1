//! What we tell the peer about data received out of order (RFC 2018 section 4, RFC 2883).

use serde::{Deserialize, Serialize};
use sidecore_wire::{SackBlock, TcpOptions};

use crate::Connection;
use crate::flags::Flags;
use crate::range_pool::Range;

const EMPTY: Range = Range::new(0, 0);

/// The blocks of the next SACK option, the most recent first, and perhaps a duplicate to report.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct RecentBlocks {
    blocks: [Range; 4],
    /// What arrived twice; reported once, as the first block (RFC 2883).
    duplicate: Range,
}

impl Default for RecentBlocks {
    fn default() -> Self {
        Self {
            blocks: [EMPTY; 4],
            duplicate: EMPTY,
        }
    }
}

impl RecentBlocks {
    /// "The first SACK block … MUST specify the contiguous block of data containing the segment which triggered this
    /// ACK"; the others repeat "the most recently reported SACK blocks … that are not subsets" (RFC 2018 section 4).
    pub(crate) fn report(&mut self, merged: Range) {
        let mut blocks = [EMPTY; 4];
        blocks[0] = merged;
        let others = self
            .blocks
            .iter()
            .filter(|block| block.len() > 0 && block.overlap(merged.start, merged.end) == 0);
        for (slot, block) in blocks[1..].iter_mut().zip(others) {
            *slot = *block;
        }
        self.blocks = blocks;
    }

    /// These bytes arrived again.
    pub(crate) fn report_duplicate(&mut self, duplicate: Range) {
        self.duplicate = duplicate;
    }

    /// RCV.NXT has reached `offset`: blocks before it are acknowledged by it.
    pub(crate) fn advance(&mut self, offset: u64) {
        let old = core::mem::replace(&mut self.blocks, [EMPTY; 4]);
        let left = old.iter().filter(|block| block.start > offset);
        for (slot, block) in self.blocks.iter_mut().zip(left) {
            *slot = *block;
        }
    }

    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }

    /// How many blocks the next option has.
    fn count(&self) -> usize {
        let blocks = self.blocks.iter().filter(|block| block.len() > 0).count();
        blocks + usize::from(self.duplicate.len() > 0)
    }
}

impl Connection {
    /// How many SACK blocks the next header carries.
    fn sack_count(&self) -> usize {
        // 40 bytes of options; timestamps take 12, NOP NOP kind length take 4, a block 8.
        let fit = if self.flags.any(Flags::TIMESTAMPS) {
            3
        } else {
            4
        };
        self.cold.recent.count().min(fit)
    }

    /// SACK_DUE says whether there is anything to report.
    pub(crate) fn update_sack_due(&mut self) {
        let due = self.flags.any(Flags::SACK) && self.cold.recent.count() > 0;
        self.flags.assign(Flags::SACK_DUE, due);
    }

    /// Puts the blocks into a header's options and returns the bytes that they take there. A duplicate is reported once only
    /// (RFC 2883 section 4).
    #[cold]
    #[inline(never)]
    pub(crate) fn add_sack_blocks(&mut self, options: &mut TcpOptions) -> u16 {
        let count = self.sack_count();
        let recent = self.cold.recent;
        self.cold.recent.duplicate = EMPTY;
        self.update_sack_due();
        options.sack = core::iter::once(recent.duplicate)
            .chain(recent.blocks)
            .filter(|range| range.len() > 0)
            .take(count)
            .map(|range| SackBlock {
                start: self.rcv_seq(range.start),
                end: self.rcv_seq(range.end),
            })
            .collect();
        4 + 8 * count as u16
    }
}
