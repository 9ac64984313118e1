//! What a network device does to a frame on its way out.

use sidecore_stack::TxOffload;
use sidecore_wire::{TcpFlags, checksum};

/// Completes checksums and cuts super-segments: the frames that appear on the wire.
pub(crate) fn emit(header: &[u8], payload: &[u8], offload: &TxOffload) -> Vec<Vec<u8>> {
    assert_eq!(usize::from(offload.header_len), header.len());
    let size = usize::from(offload.segment_size);
    if size == 0 || payload.len() <= size {
        return vec![complete([header, payload].concat(), offload)];
    }
    let (transport, _) = offload.checksum.expect("a super-segment has a checksum");
    let transport = usize::from(transport);
    let ip = network(offload);
    let whole_len = (header.len() - transport + payload.len()) as u32;
    let pieces = payload.chunks(size).enumerate();
    let count = payload.len().div_ceil(size);
    pieces
        .map(|(number, piece)| {
            let mut frame = [header, piece].concat();
            let len = (frame.len() - transport) as u32;
            set_length(&mut frame[ip..], number as u16);
            let tcp = &mut frame[transport..];
            let seq = u32::from_be_bytes([tcp[4], tcp[5], tcp[6], tcp[7]]);
            let seq = seq.wrapping_add((number * size) as u32);
            tcp[4..8].copy_from_slice(&seq.to_be_bytes());
            if number + 1 < count {
                // FIN and PSH belong to the last segment.
                let last_only = (TcpFlags::FIN | TcpFlags::PSH).bits() as u8;
                tcp[13] &= !last_only;
            }
            // The pseudo-header's sum was that of the whole.
            let pseudo = u16::from_be_bytes([tcp[16], tcp[17]]);
            let adjusted = u32::from(pseudo)
                + u32::from(!checksum::fold(whole_len))
                + u32::from(checksum::fold(len));
            tcp[16..18].copy_from_slice(&checksum::fold(adjusted).to_be_bytes());
            complete(frame, offload)
        })
        .collect()
}

/// Where the IP header starts.
fn network(offload: &TxOffload) -> usize {
    if offload.loopback { 0 } else { 14 }
}

/// New length and, of IPv4, identification in an IP header, and its checksum.
fn set_length(packet: &mut [u8], ident: u16) {
    let total = packet.len() as u16;
    if packet[0] >> 4 == 6 {
        packet[4..6].copy_from_slice(&(total - 40).to_be_bytes());
        return;
    }
    packet[2..4].copy_from_slice(&total.to_be_bytes());
    packet[4..6].copy_from_slice(&ident.to_be_bytes());
    packet[10..12].fill(0);
    let sum = checksum::complement(checksum::sum(&packet[..20], 0));
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
}

fn complete(mut frame: Vec<u8>, offload: &TxOffload) -> Vec<u8> {
    if let Some((start, offset)) = offload.checksum {
        let (start, at) = (usize::from(start), usize::from(start + offset));
        if !offload.loopback {
            let sum = checksum::complement(checksum::sum(&frame[start..], 0));
            frame[at..at + 2].copy_from_slice(&sum.to_be_bytes());
        }
    }
    frame
}
