//! The virtio-net header that stands before every frame of the TAP device (virtio 1.2, 5.1.6; `linux/virtio_net.h`).
//!
//! ```text
//!  0      1         2        4          6            8             10
//!  +------+---------+--------+----------+------------+-------------+
//!  | flags| gso_type| hdr_len| gso_size | csum_start | csum_offset |
//!  +------+---------+--------+----------+------------+-------------+
//! ```
//!
//! The 16-bit fields have this machine's byte order, as TUN has it unless told otherwise.

use crate::TxFrame;

/// Bytes of the header.
pub(super) const LEN: usize = 10;

const FLAG_NEEDS_CSUM: u8 = 1;
const FLAG_DATA_VALID: u8 = 2;
const GSO_NONE: u8 = 0;
const GSO_TCPV4: u8 = 1;
const GSO_TCPV6: u8 = 4;
const GSO_ECN: u8 = 0x80;

const ETHERTYPE_IPV6: [u8; 2] = [0x86, 0xdd];
/// Offset of TCP's flags byte, and its CWR bit (RFC 3168 section 6.1).
const TCP_FLAGS: usize = 13;
const TCP_CWR: u8 = 0x80;

/// What a received frame's header says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct RxInfo {
    pub(super) checksum_valid: bool,
    pub(super) gso_size: u16,
}

/// Reads the header of a received frame.
#[inline]
pub(super) fn decode(header: &[u8; LEN]) -> RxInfo {
    let [flags, gso_type, _, _, size_0, size_1, ..] = *header;
    RxInfo {
        checksum_valid: flags & (FLAG_NEEDS_CSUM | FLAG_DATA_VALID) != 0,
        gso_size: if gso_type & !GSO_ECN == GSO_NONE {
            0
        } else {
            u16::from_ne_bytes([size_0, size_1])
        },
    }
}

/// The header for a frame to send. The frame has been found sound.
#[inline]
pub(super) fn encode(frame: &TxFrame<'_>) -> [u8; LEN] {
    let Some((start, offset)) = frame.checksum else {
        return [0; LEN];
    };
    let [start_0, start_1] = start.to_ne_bytes();
    let [offset_0, offset_1] = offset.to_ne_bytes();
    let mut header = [
        FLAG_NEEDS_CSUM,
        GSO_NONE,
        0,
        0,
        0,
        0,
        start_0,
        start_1,
        offset_0,
        offset_1,
    ];
    if frame.segment_size != 0 {
        header[1] = segmentation(frame.header, usize::from(start));
        [header[2], header[3]] = (frame.header.len() as u16).to_ne_bytes();
        [header[4], header[5]] = frame.segment_size.to_ne_bytes();
    }
    header
}

/// The kind of segmentation that a TCP super-segment asks for. With CWR set, only the first segment may carry it
/// (RFC 3168 section 6.1.2), which the device must be told.
fn segmentation(header: &[u8], tcp: usize) -> u8 {
    let kind = if header.get(12..14) == Some(&ETHERTYPE_IPV6) {
        GSO_TCPV6
    } else {
        GSO_TCPV4
    };
    match header.get(tcp + TCP_FLAGS) {
        Some(flags) if flags & TCP_CWR != 0 => kind | GSO_ECN,
        _ => kind,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(header: &[u8], checksum: Option<(u16, u16)>, segment_size: u16) -> TxFrame<'_> {
        TxFrame {
            header,
            payload: &[],
            payload_len: 0,
            checksum,
            segment_size,
        }
    }

    #[test]
    fn a_complete_frame_has_an_empty_header() {
        assert_eq!(encode(&frame(&[0; 54], None, 0)), [0; LEN]);
    }

    #[test]
    fn a_checksum_is_asked_for() {
        let header = encode(&frame(&[0; 54], Some((34, 16)), 0));
        assert_eq!(header[..2], [1, 0]);
        assert_eq!(header[2..6], [0; 4]);
        assert_eq!(header[6..8], 34u16.to_ne_bytes());
        assert_eq!(header[8..], 16u16.to_ne_bytes());
        assert!(decode(&header).checksum_valid);
    }

    #[test]
    fn segmentation_follows_the_ethertype_and_cwr() {
        let mut bytes = [0; 74];
        bytes[12..14].copy_from_slice(&[8, 0]);
        let header = encode(&frame(&bytes[..54], Some((34, 16)), 1448));
        assert_eq!(header[..2], [1, 1]);
        assert_eq!(header[2..4], 54u16.to_ne_bytes());
        assert_eq!(header[4..6], 1448u16.to_ne_bytes());
        assert_eq!(
            decode(&header),
            RxInfo {
                checksum_valid: true,
                gso_size: 1448
            }
        );

        bytes[12..14].copy_from_slice(&ETHERTYPE_IPV6);
        bytes[54 + TCP_FLAGS] = TCP_CWR | 0x10;
        assert_eq!(
            encode(&frame(&bytes, Some((54, 16)), 1428))[..2],
            [1, 4 | 0x80]
        );
    }

    #[test]
    fn a_plain_received_frame_is_not_vouched_for() {
        let info = decode(&[0; LEN]);
        assert_eq!((info.checksum_valid, info.gso_size), (false, 0));
        assert!(decode(&[FLAG_DATA_VALID, 0, 0, 0, 9, 9, 0, 0, 0, 0]).checksum_valid);
        assert_eq!(
            decode(&[FLAG_DATA_VALID, 0, 0, 0, 9, 9, 0, 0, 0, 0]).gso_size,
            0
        );
    }
}
