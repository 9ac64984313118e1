//! What we tell the peer about data received out of order (RFC 2018 section 4, RFC 2883).

use serde::{Deserialize, Serialize};
use sidecore_wire::{SackBlock, TcpOptions};

use crate::Connection;
use crate::flags::Flags;
use crate::range_pool::Range;

/// Stream offsets modulo 2^32: what is reported lies within a window of RCV.NXT.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct Block {
    start: u32,
    end: u32,
}

const EMPTY: Block = Block { start: 0, end: 0 };

impl Block {
    const fn new(range: Range) -> Self {
        Self {
            start: range.start as u32,
            end: range.end as u32,
        }
    }

    const fn is_empty(self) -> bool {
        self.start == self.end
    }

    const fn overlaps(self, other: Self) -> bool {
        let starts_before_end = (self.start.wrapping_sub(other.end) as i32) < 0;
        let ends_after_start = self.end.wrapping_sub(other.start) as i32 > 0;
        starts_before_end && ends_after_start
    }
}

/// The blocks of the next SACK option, the most recent first, and perhaps a duplicate to report.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct RecentBlocks {
    blocks: [Block; 4],
    /// What arrived twice; reported once, as the first block (RFC 2883).
    duplicate: Block,
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
        let merged = Block::new(merged);
        blocks[0] = merged;
        let others = self
            .blocks
            .iter()
            .filter(|block| !block.is_empty() && !block.overlaps(merged));
        for (slot, block) in blocks[1..].iter_mut().zip(others) {
            *slot = *block;
        }
        self.blocks = blocks;
    }

    /// These bytes arrived again.
    pub(crate) fn report_duplicate(&mut self, duplicate: Range) {
        self.duplicate = Block::new(duplicate);
    }

    /// RCV.NXT has reached `offset`: blocks before it are acknowledged by it.
    pub(crate) fn advance(&mut self, offset: u64) {
        let old = core::mem::replace(&mut self.blocks, [EMPTY; 4]);
        let after = |block: &&Block| block.start.wrapping_sub(offset as u32) as i32 > 0;
        let left = old.iter().filter(|block| !block.is_empty()).filter(after);
        for (slot, block) in self.blocks.iter_mut().zip(left) {
            *slot = *block;
        }
    }

    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }

    /// How many blocks the next option has.
    fn count(&self) -> usize {
        let blocks = self.blocks.iter().filter(|block| !block.is_empty());
        blocks.count() + usize::from(!self.duplicate.is_empty())
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
            .filter(|block| !block.is_empty())
            .take(count)
            .map(|block| SackBlock {
                start: self.rcv_base.add(block.start),
                end: self.rcv_base.add(block.end),
            })
            .collect();
        4 + 8 * count as u16
    }
}
