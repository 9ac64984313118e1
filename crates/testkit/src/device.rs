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
    let ip = transport - 20;
    let whole_len = (header.len() - transport + payload.len()) as u32;
    let pieces = payload.chunks(size).enumerate();
    let count = payload.len().div_ceil(size);
    pieces
        .map(|(number, piece)| {
            let mut frame = [header, piece].concat();
            let len = (frame.len() - transport) as u32;
            set_total_len(&mut frame[ip..transport], number as u16);
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

/// New length and identification in an IP header, and its checksum.
fn set_total_len(ip_and_rest: &mut [u8], ident: u16) {
    let ip = ip_and_rest;
    ip[4..6].copy_from_slice(&ident.to_be_bytes());
    ip[10..12].fill(0);
}

fn complete(mut frame: Vec<u8>, offload: &TxOffload) -> Vec<u8> {
    if let Some((start, offset)) = offload.checksum {
        let (start, at) = (usize::from(start), usize::from(start + offset));
        let ip = start - 20;
        if frame[ip + 10..ip + 12] == [0, 0] {
            // A piece of a super-segment.
            let total = (frame.len() - ip) as u16;
            frame[ip + 2..ip + 4].copy_from_slice(&total.to_be_bytes());
            let sum = checksum::complement(checksum::sum(&frame[ip..start], 0));
            frame[ip + 10..ip + 12].copy_from_slice(&sum.to_be_bytes());
        }
        if !offload.loopback {
            let sum = checksum::complement(checksum::sum(&frame[start..], 0));
            frame[at..at + 2].copy_from_slice(&sum.to_be_bytes());
        }
    }
    frame
}
