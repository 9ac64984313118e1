//! Where the payload of the frame that is being handled lies, and where sends' bytes lie.

use sidecore_shm::MemRef;

use super::Tables;
use crate::dti::transmit::Source;

/// Bytes in the receive pool can be sent as they are, under this region id.
pub(crate) const POOL_REGION: u32 = sidecore_abi::handle::POOL_REGION.0;

/// Stream bytes of a DTI: what a loopback frame carries instead of a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StreamRange {
    /// The sender.
    pub(crate) slot: u32,
    /// Its slot's epoch: a later user of the slot is somebody else.
    pub(crate) epoch: u32,
    /// First byte.
    pub(crate) start: u64,
    /// Bytes.
    pub(crate) len: u32,
}

/// The frame that is being handled.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Frame<'a> {
    /// From the device: all of it is here.
    Device(&'a [u8]),
    /// From the internal loopback: headers of this length, then bytes that the sender still holds.
    Loopback {
        /// Length of the headers.
        header_len: u32,
        /// The payload.
        payload: StreamRange,
    },
}

impl Tables {
    /// Bytes of a source; `None` when they are gone.
    #[inline]
    pub(crate) fn source(
        &self,
        ual: u32,
        source: Source,
        offset: u32,
        len: u32,
    ) -> Option<MemRef<'_>> {
        match source {
            Source::Copy(slot) => self.copies.slice(slot, offset, len),
            Source::Moved(number) => self.moved.slice(number, offset, len),
            Source::Region(id, base) => {
                let ual = self.uals.get(ual as usize)?.as_ref()?;
                let at = base.checked_add(u64::from(offset))?;
                if id == POOL_REGION {
                    ual.chunks.slice(at, len)
                } else {
                    ual.regions.slice(id, at, len)
                }
            }
        }
    }

    /// Whether a range of a DTI's stream is still queued. If so, the next walk over it begins where it does.
    #[inline]
    pub(crate) fn seek(&mut self, range: StreamRange) -> bool {
        self.dtis
            .at_epoch_mut(range.slot, range.epoch)
            .is_some_and(|dti| dti.tx.seek(&self.tx, range.start, range.len))
    }

    /// A range of a DTI's stream that lies in one piece, and the descriptor that names it.
    #[inline]
    pub(crate) fn stream_piece(&self, range: StreamRange) -> Option<(MemRef<'_>, u32)> {
        let dti = self.dtis.at_epoch(range.slot, range.epoch)?;
        let (node, descriptor, skip) = dti.tx.find_one(&self.tx, range.start, range.len)?;
        let piece = self.source(dti.ual, descriptor.source, skip, range.len)?;
        Some((piece, node))
    }

    /// Calls `each` for the pieces of a range of a DTI's stream; false when part of it is gone.
    #[inline]
    pub(crate) fn stream_pieces<'a>(
        &'a self,
        range: StreamRange,
        mut each: impl FnMut(MemRef<'a>) -> bool,
    ) -> Option<u32> {
        let dti = self.dtis.at_epoch(range.slot, range.epoch)?;
        dti.tx
            .gather(&self.tx, range.start, range.len, |source, offset, len| {
                self.source(dti.ual, source, offset, len)
                    .is_some_and(&mut each)
            })
    }

    /// Calls `each` for the pieces of `len` bytes from byte `offset` of the frame.
    #[inline]
    pub(crate) fn frame_pieces<'a>(
        &'a self,
        frame: &Frame<'a>,
        offset: u32,
        len: u32,
        mut each: impl FnMut(MemRef<'a>) -> bool,
    ) -> bool {
        match *frame {
            Frame::Device(bytes) => bytes
                .get(offset as usize..offset as usize + len as usize)
                .is_some_and(|piece| each(MemRef::from_bytes(piece))),
            Frame::Loopback {
                header_len,
                payload,
            } => {
                let Some(skip) = offset.checked_sub(header_len) else {
                    return false;
                };
                let range = StreamRange {
                    start: payload.start + u64::from(skip),
                    len,
                    ..payload
                };
                self.stream_pieces(range, each).is_some()
            }
        }
    }
}
