//! A queue's way with the ECN field of frames that pass (RFC 3168 section 5).

use sidecore_wire::ethernet::{ETHERTYPE_IPV4, ETHERTYPE_IPV6, HEADER_LEN};
use sidecore_wire::{checksum, ecn, ipv4};

/// The ECN field of a frame; `None`: it is not IP.
pub fn codepoint(frame: &[u8]) -> Option<u8> {
    let octet = match ethertype(frame)? {
        ETHERTYPE_IPV4 => *frame.get(HEADER_LEN + 1)?,
        ETHERTYPE_IPV6 => *frame.get(HEADER_LEN + 1)? >> 4,
        _ => return None,
    };
    Some(octet & ecn::MASK)
}

/// Marks a frame: congestion experienced. False if it is not ECN-capable; then it is as before.
pub fn mark(frame: &mut [u8]) -> bool {
    if codepoint(frame).is_none_or(|codepoint| codepoint == ecn::NOT_ECT) {
        return false;
    }
    if ethertype(frame) == Some(ETHERTYPE_IPV6) {
        frame[HEADER_LEN + 1] |= ecn::CE << 4;
        return true;
    }
    frame[HEADER_LEN + 1] |= ecn::CE;
    let Some(header) = frame.get_mut(HEADER_LEN..HEADER_LEN + ipv4::MIN_HEADER_LEN) else {
        return false;
    };
    // Without options, as all that is sent here.
    header[10..12].fill(0);
    let sum = checksum::complement(checksum::sum(header, 0));
    header[10..12].copy_from_slice(&sum.to_be_bytes());
    true
}

fn ethertype(frame: &[u8]) -> Option<u16> {
    let bytes = frame.get(HEADER_LEN - 2..HEADER_LEN)?;
    Some(u16::from_be_bytes([bytes[0], bytes[1]]))
}
