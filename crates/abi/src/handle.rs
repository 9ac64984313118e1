//! Names of things: handles, regions, extents.

/// A DTI, as its application names it: a slot of the UAL's own table and the generation of its use.
///
/// The *application* chooses both when it creates the DTI (so that creating needs no answer): the index is below the
/// limit that the agent granted, the generation is one that the slot's last user did not have. The engine keeps its
/// own record and answers a stale handle with [`crate::Status::BadHandle`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[repr(C)]
pub struct DtiHandle {
    /// Slot in the UAL's table.
    pub index: u32,
    /// Use of that slot.
    pub generation: u32,
}

impl DtiHandle {
    /// As one word of an entry.
    #[inline]
    pub const fn to_word(self) -> u64 {
        self.index as u64 | (self.generation as u64) << 32
    }

    /// From one word of an entry; any value is a handle, though perhaps of nothing.
    #[inline]
    pub const fn from_word(word: u64) -> Self {
        Self {
            index: word as u32,
            generation: (word >> 32) as u32,
        }
    }
}

/// A registered region of one UAL: slot and generation in one word, given by the agent.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[repr(transparent)]
pub struct RegionId(pub u32);

/// The receive pool itself, as a region for sends: bytes that were received can be sent on without a copy. The application must keep
/// its reference to the chunk until the send is complete (or copied).
pub const POOL_REGION: RegionId = RegionId(u32::MAX);

/// A piece of a registered region.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(C)]
pub struct Extent {
    /// The region.
    pub region: RegionId,
    /// Length in bytes.
    pub len: u32,
    /// First byte, counted from the start of the region.
    pub offset: u64,
}

impl Extent {
    /// As two words of an entry.
    #[inline]
    pub const fn to_words(self) -> [u64; 2] {
        [self.region.0 as u64 | (self.len as u64) << 32, self.offset]
    }

    /// From two words of an entry. Nothing is checked: the region may not exist, the piece may lie outside it.
    #[inline]
    pub const fn from_words(words: [u64; 2]) -> Self {
        Self {
            region: RegionId(words[0] as u32),
            len: (words[0] >> 32) as u32,
            offset: words[1],
        }
    }
}

/// How many bytes of an extent list one [`Extent`] takes in region memory: region u32, length u32, offset u64,
/// little-endian.
pub const EXTENT_BYTES: usize = 16;
