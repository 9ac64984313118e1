//! Handles: 64-bit values that C programs hold, and what is in them.
//!
//! ```text
//!   bits 61..64  kind, never 0
//!   bits 52..61  place of the UAL in the process's table
//!   bits 44..52  how often that place was used
//!   bits  0..44  UAL: 0
//!                EvQ: index (12), use of that index (32)
//!                DTI, region: index (22), use of that index (22)
//!                chunk: its number (32), 0
//! ```
//!
//! A value that a program made up, kept too long, or mixed up with another kind meets a table that does not know it.

/// UALs that a process can have open at a time.
pub(crate) const UALS: usize = 1 << 9;

/// Bits of the index of a DTI or region, and of its use.
const INDEX_BITS: u32 = 22;
const INDEX_MASK: u64 = (1 << INDEX_BITS) - 1;

/// DTIs of a UAL that handles can name.
pub(crate) const DTIS: u32 = 1 << INDEX_BITS;

/// What a handle names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum Kind {
    Ual = 1,
    Evq = 2,
    Dti = 3,
    Region = 4,
    Chunk = 5,
}

/// A UAL: its place in the table, and the use of that place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct UalName {
    pub(crate) place: u16,
    pub(crate) generation: u8,
}

impl UalName {
    const fn handle(self, kind: Kind, rest: u64) -> u64 {
        (kind as u64) << 61 | (self.place as u64) << 52 | (self.generation as u64) << 44 | rest
    }

    pub(crate) const fn ual(self) -> u64 {
        self.handle(Kind::Ual, 0)
    }

    pub(crate) const fn evq(self, index: u16, generation: u32) -> u64 {
        self.handle(Kind::Evq, generation as u64 | (index as u64 & 0xfff) << 32)
    }

    pub(crate) const fn dti(self, index: u32, generation: u32) -> u64 {
        self.handle(Kind::Dti, pair(index, generation))
    }

    pub(crate) const fn region(self, index: u32, generation: u32) -> u64 {
        self.handle(Kind::Region, pair(index, generation))
    }

    pub(crate) const fn chunk(self, number: u32) -> u64 {
        self.handle(Kind::Chunk, number as u64)
    }
}

const fn pair(index: u32, generation: u32) -> u64 {
    generation as u64 & INDEX_MASK | (index as u64 & INDEX_MASK) << INDEX_BITS
}

/// A handle, taken apart. Nothing is known yet of whether it names anything.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Name {
    pub(crate) ual: UalName,
    rest: u64,
}

impl Name {
    /// `None` when the value is of another kind.
    #[inline]
    pub(crate) const fn of(handle: u64, kind: Kind) -> Option<Self> {
        if handle >> 61 != kind as u64 {
            return None;
        }
        Some(Self {
            ual: UalName {
                place: (handle >> 52) as u16 & (UALS as u16 - 1),
                generation: (handle >> 44) as u8,
            },
            rest: handle & ((1 << 44) - 1),
        })
    }

    /// Of a UAL: whether the rest is as it must be.
    pub(crate) const fn is_whole(self) -> bool {
        self.rest == 0
    }

    /// Index and use of an event queue.
    pub(crate) const fn evq(self) -> (u16, u32) {
        ((self.rest >> 32) as u16, self.rest as u32)
    }

    /// Index of a DTI or region.
    #[inline]
    pub(crate) const fn index(self) -> u32 {
        (self.rest >> INDEX_BITS) as u32
    }

    /// Whether it names this use of its index (of which it knows the lower bits).
    #[inline]
    pub(crate) const fn is_use(self, generation: u32) -> bool {
        self.rest & INDEX_MASK == generation as u64 & INDEX_MASK
    }

    /// Number of a chunk.
    pub(crate) const fn chunk(self) -> Option<u32> {
        if self.rest >> 32 == 0 {
            Some(self.rest as u32)
        } else {
            None
        }
    }
}

/// The index in a DTI's handle, whether or not it still names anything; `None` for another kind.
pub(crate) const fn dti_index(handle: u64) -> Option<u32> {
    match Name::of(handle, Kind::Dti) {
        Some(name) => Some(name.index()),
        None => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UAL: UalName = UalName {
        place: 511,
        generation: 255,
    };

    #[test]
    fn handles_come_apart_as_they_were_put_together() {
        assert!(Name::of(UAL.ual(), Kind::Ual).unwrap().is_whole());
        let evq = Name::of(UAL.evq(511, u32::MAX), Kind::Evq).unwrap();
        assert_eq!((evq.ual, evq.evq()), (UAL, (511, u32::MAX)));
        let dti = Name::of(UAL.dti(DTIS - 1, u32::MAX), Kind::Dti).unwrap();
        assert_eq!((dti.ual, dti.index()), (UAL, DTIS - 1));
        assert!(dti.is_use(u32::MAX) && !dti.is_use(7));
        let region = Name::of(UAL.region(255, 9), Kind::Region).unwrap();
        assert_eq!((region.index(), region.is_use(9)), (255, true));
        let chunk = Name::of(UAL.chunk(u32::MAX), Kind::Chunk).unwrap();
        assert_eq!(chunk.chunk(), Some(u32::MAX));
        assert_eq!(dti_index(UAL.dti(12, 1)), Some(12));
    }

    #[test]
    fn kinds_do_not_pass_for_each_other() {
        let all = [
            (UAL.ual(), Kind::Ual),
            (UAL.evq(1, 1), Kind::Evq),
            (UAL.dti(1, 1), Kind::Dti),
            (UAL.region(1, 1), Kind::Region),
            (UAL.chunk(1), Kind::Chunk),
        ];
        for (handle, kind) in all {
            for (_, other) in all {
                assert_eq!(Name::of(handle, other).is_some(), kind == other);
            }
            for garbage in [0, 1, u64::MAX, u64::MAX >> 3, 0xdead_beef] {
                assert_eq!(Name::of(garbage, kind), None);
            }
        }
        let odd = Name::of(UAL.chunk(1) | 1 << 40, Kind::Chunk).unwrap();
        assert_eq!(odd.chunk(), None);
        assert_eq!(dti_index(UAL.ual()), None);
    }
}
