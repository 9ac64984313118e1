//! Frames on their way out.

use sidecore_shm::MemRef;
use sidecore_wire::checksum;

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

/// Completes a transport checksum in a whole frame, as [`TxFrame::checksum`] describes it. A sum of 0 becomes 0xffff,
/// since in UDP over IPv4 0 means that there is none (RFC 768). `None`: the places are outside the frame.
pub fn complete_checksum(frame: &mut [u8], start: u16, offset: u16) -> Option<()> {
    let covered = frame.get_mut(usize::from(start)..)?;
    let sum = checksum::complement(checksum::sum(covered, 0));
    let field = covered.get_mut(usize::from(offset)..)?.first_chunk_mut()?;
    *field = if sum == 0 { 0xffff } else { sum }.to_be_bytes();
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_completed_checksum_verifies() {
        for len in [54, 55, 99] {
            let mut frame: Vec<u8> = (0..len).map(|i| i as u8).collect();
            let pseudo = u32::from(u16::from_be_bytes([frame[50], frame[51]]));
            complete_checksum(&mut frame, 34, 16).unwrap();
            let sum = checksum::sum(&frame[34..], pseudo);
            assert_eq!(checksum::fold(sum), 0xffff);
        }
    }

    #[test]
    fn a_sum_of_zero_is_not_sent() {
        let mut frame = [0; 40];
        frame[30..32].copy_from_slice(&[0xff, 0xff]);
        complete_checksum(&mut frame, 20, 2).unwrap();
        assert_eq!(frame[22..24], [0xff, 0xff]);
    }

    #[test]
    fn places_outside_are_refused() {
        assert_eq!(complete_checksum(&mut [0; 20], 21, 0), None);
        assert_eq!(complete_checksum(&mut [0; 20], 18, 1), None);
        assert_eq!(complete_checksum(&mut [0; 20], 18, u16::MAX), None);
        assert_eq!(complete_checksum(&mut [0; 20], 18, 0), Some(()));
    }
}
