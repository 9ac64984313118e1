//! The 64-byte line that travels on every lane.
//!
//! A lane is a ring of lines with one writer and one reader (the paper's doorbell and event queues). A line
//! publishes itself: its first word holds a *mark*, the number of the lap in which it was written, and is stored last.
//! So the reader touches no index that the writer writes, and one cache line moves from core to core for each entry.
//!
//! ```text
//!   word 0: | mark (32 bits: lap, never 0) | code (8) | flags (8) | aux (16) |
//!   words 1..8: body, written before word 0
//! ```

/// One line: eight little-endian words. Word 0 carries mark, code, flags and aux.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(C, align(64))]
pub struct Entry(pub [u64; 8]);

const _: () = assert!(size_of::<Entry>() == crate::LINE && align_of::<Entry>() == crate::LINE);

impl Entry {
    /// An entry without a mark. `code` is an operation or event kind, `aux` what that code says it is.
    #[inline]
    pub const fn new(code: u8, flags: u8, aux: u16, body: [u64; 7]) -> Self {
        let head = ((code as u64) << 32) | ((flags as u64) << 40) | ((aux as u64) << 48);
        Self([
            head, body[0], body[1], body[2], body[3], body[4], body[5], body[6],
        ])
    }

    /// The lap in which this line was written; 0 means that it never was.
    #[inline]
    pub const fn mark(&self) -> u32 {
        self.0[0] as u32
    }

    /// The same line with its mark set: what the writer stores.
    #[inline]
    pub const fn with_mark(mut self, mark: u32) -> Self {
        self.0[0] = (self.0[0] & !0xffff_ffff) | mark as u64;
        self
    }

    /// Operation or event kind.
    #[inline]
    pub const fn code(&self) -> u8 {
        (self.0[0] >> 32) as u8
    }

    /// Flags of the operation or event.
    #[inline]
    pub const fn flags(&self) -> u8 {
        (self.0[0] >> 40) as u8
    }

    /// Sixteen bits whose meaning the code gives.
    #[inline]
    pub const fn aux(&self) -> u16 {
        (self.0[0] >> 48) as u16
    }
}

/// The mark that the entry with running number `position` carries on a lane of `1 << order` lines.
///
/// Marks start at 1, so that memory that was never written (all zeros) holds no valid entry, and skip 0 when the lap
/// counter wraps.
#[inline]
pub const fn mark_at(position: u64, order: u32) -> u32 {
    let lap = position >> order;
    // 2^32 - 1 different marks: 1..=u32::MAX.
    (lap % 0xffff_ffff) as u32 + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn head_fields_do_not_overlap() {
        let entry = Entry::new(0xab, 0xcd, 0x1234, [1, 2, 3, 4, 5, 6, 7]).with_mark(0xdead_beef);
        assert_eq!(entry.mark(), 0xdead_beef);
        assert_eq!(entry.code(), 0xab);
        assert_eq!(entry.flags(), 0xcd);
        assert_eq!(entry.aux(), 0x1234);
        assert_eq!(entry.0[1..], [1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(entry.with_mark(1).with_mark(0).code(), 0xab);
    }

    #[test]
    fn marks_are_never_zero_and_change_every_lap() {
        for order in [0, 3, 12] {
            let slots = 1u64 << order;
            for lap in [0, 1, 0xffff_fffd, 0xffff_fffe, 0xffff_ffff, 0x1_0000_0000] {
                let here = mark_at(lap * slots, order);
                assert_ne!(here, 0);
                assert_eq!(here, mark_at(lap * slots + slots - 1, order));
                assert_ne!(here, mark_at((lap + 1) * slots, order));
            }
        }
    }
}
