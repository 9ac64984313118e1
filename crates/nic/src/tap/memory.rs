//! Receive buffers: who has which.

use super::{sys, vnet};
use crate::{NicCounters, RxFrame};

/// Receive buffers of one device, each large enough for any frame the kernel may give: a 64 KiB super-frame.
pub(super) const SLOTS: usize = 64;

/// Bytes from one buffer's start to the next one's.
///
/// A frame is at most 10 + 14 + 4 + 65 535 bytes (virtio header, Ethernet, one VLAN tag, IP), for which 16 pages and
/// one more are enough. Three cache lines beyond a whole number of pages put the first three lines of the 64 buffers
/// (headers and small frames) into all sets of a first-level cache in turn, not into the same three.
pub(super) const STRIDE: usize = 17 * 4096 + 3 * 64;

const ETHERNET_LEN: usize = 14;

/// Why what the kernel wrote is not a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Flaw {
    /// It filled the buffer, so that some of it may be lost.
    Oversized,
    /// It is shorter than its headers.
    Malformed,
}

impl Flaw {
    pub(super) fn count(self, counters: &mut NicCounters) {
        match self {
            Self::Oversized => counters.rx_dropped_oversized += 1,
            Self::Malformed => counters.rx_dropped_malformed += 1,
        }
    }
}

/// The buffers and, for each, whether the engine has it.
pub(super) struct RxMemory {
    bytes: sys::Pages,
    held: [bool; SLOTS],
}

impl RxMemory {
    pub(super) fn new() -> std::io::Result<Self> {
        Ok(Self {
            bytes: sys::Pages::new(SLOTS * STRIDE)?,
            held: [false; SLOTS],
        })
    }

    /// The buffer of `slot`, to receive into. Empty if there is no such slot.
    #[inline]
    pub(super) fn buffer_mut(&mut self, slot: u32) -> &mut [u8] {
        let start = slot as usize * STRIDE;
        self.bytes
            .as_mut_slice()
            .get_mut(start..start + STRIDE)
            .unwrap_or_default()
    }

    /// The frame in `slot`, of which the kernel wrote `len` bytes with the virtio-net header.
    #[inline]
    pub(super) fn describe(&self, slot: u32, len: usize) -> Result<RxFrame, Flaw> {
        let start = slot as usize * STRIDE;
        let header = self.bytes.as_slice().get(start..).unwrap_or_default();
        let header = header.first_chunk().ok_or(Flaw::Malformed)?;
        if len >= STRIDE {
            return Err(Flaw::Oversized);
        }
        if len < vnet::LEN + ETHERNET_LEN {
            return Err(Flaw::Malformed);
        }
        let info = vnet::decode(header);
        Ok(RxFrame {
            token: slot,
            len: (len - vnet::LEN) as u32,
            checksum_valid: info.checksum_valid,
            gso_size: info.gso_size,
        })
    }

    /// Marks `slot` as the engine's.
    #[inline]
    pub(super) fn hold(&mut self, slot: u32) {
        if let Some(held) = self.held.get_mut(slot as usize) {
            *held = true;
        }
    }

    /// Takes `slot` back; false if the engine did not have it.
    #[inline]
    pub(super) fn unhold(&mut self, slot: u32) -> bool {
        match self.held.get_mut(slot as usize) {
            Some(held) => core::mem::take(held),
            None => false,
        }
    }

    /// The bytes of a frame that the engine has; empty if it has not.
    #[inline]
    pub(super) fn frame(&self, frame: &RxFrame) -> &[u8] {
        let slot = frame.token as usize;
        let len = frame.len as usize;
        if self.held.get(slot) != Some(&true) || len > STRIDE - vnet::LEN {
            return &[];
        }
        let start = slot * STRIDE + vnet::LEN;
        self.bytes
            .as_slice()
            .get(start..start + len)
            .unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn starts_are_spread_over_the_sets_of_a_cache() {
        // 64 sets of 64-byte lines, as in a 32 KiB 8-way or 48 KiB 12-way first-level cache.
        let mut sets = [0; 64];
        for slot in 0..SLOTS {
            sets[slot * STRIDE / 64 % 64] += 1;
        }
        assert!(sets.iter().all(|&n| n == 1), "{sets:?}");
    }

    #[test]
    fn only_held_buffers_are_lent() {
        let mut memory = RxMemory::new().unwrap();
        let frame = RxFrame {
            token: 5,
            len: 3,
            ..RxFrame::default()
        };
        memory.buffer_mut(5)[10..13].copy_from_slice(b"abc");
        assert_eq!(memory.frame(&frame), b"");
        memory.hold(5);
        assert_eq!(memory.frame(&frame), b"abc");
        assert_eq!(
            memory.frame(&RxFrame {
                len: u32::MAX,
                ..frame
            }),
            b""
        );
        assert_eq!(memory.frame(&RxFrame { token: 64, ..frame }), b"");
        assert!(memory.unhold(5) && !memory.unhold(5) && !memory.unhold(64));
        assert!(memory.buffer_mut(64).is_empty());
        assert_eq!(memory.buffer_mut(63).len(), STRIDE);
    }
}
