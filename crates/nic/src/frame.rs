//! Frames on their way out.

pub use crate::memref::MemRef;

/// The most bytes of [`TxFrame::header`]: Ethernet (14), IPv6 (40) or IPv4 with options (60), TCP with options (60)
/// do not exceed it in any mix that the stack builds.
pub const HEADER_MAX: usize = 128;

/// A frame to send: a header in engine memory, and the payload gathered from where it lies.
#[derive(Clone, Copy)]
pub struct TxFrame<'a> {
    /// Ethernet, network and transport header: 14 to [`HEADER_MAX`] bytes. A frame without payload may be all here.
    pub header: &'a [u8],
    /// The payload's pieces, at most [`Caps::max_fragments`](crate::Caps::max_fragments), in order.
    pub payload: &'a [MemRef<'a>],
    /// The sum of the pieces' lengths.
    pub payload_len: u32,
    /// `(start, offset)`: sum the bytes from `start` to the frame's end and put the complement at `start + offset`.
    /// The field there holds the folded sum of the pseudo-header (with the length of the whole segment, a
    /// super-segment's too), not complemented. `None`: the frame is complete as it is.
    pub checksum: Option<(u16, u16)>,
    /// Payload bytes of each segment that the device shall make of this super-segment; 0: it is one frame. Needs
    /// `checksum`.
    pub segment_size: u16,
}

impl TxFrame<'_> {
    /// Bytes of header and payload.
    #[inline]
    pub const fn len(&self) -> usize {
        self.header.len().saturating_add(self.payload_len as usize)
    }

    /// Whether there is not even a header.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether the frame keeps the rules that all drivers share. The pieces' lengths are not added up here.
    #[inline]
    pub(crate) fn is_sound(&self, max_fragments: usize) -> bool {
        let header = self.header.len();
        (14..=HEADER_MAX).contains(&header)
            && self.payload.len() <= max_fragments
            && self.checksum.is_none_or(|(start, offset)| {
                usize::from(start) + usize::from(offset) + 2 <= header
            })
            && (self.segment_size == 0 || self.checksum.is_some())
    }
}
