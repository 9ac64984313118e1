//! The RST that answers a segment to nowhere (RFC 9293 section 3.10.7.1).

use sidecore_wire::{SeqNumber, TcpFlags, TcpHeader};

/// The reset for a segment that belongs to no connection, ports swapped; `None` if the segment is a reset itself.
///
/// "If the ACK bit is off, sequence number zero is used, `<SEQ=0><ACK=SEG.SEQ+SEG.LEN><CTL=RST,ACK>`. If the ACK bit is
/// on, `<SEQ=SEG.ACK><CTL=RST>`."
pub fn reset_for(header: &TcpHeader, payload_len: u32) -> Option<TcpHeader> {
    if header.flags.contains(TcpFlags::RST) {
        return None;
    }
    let mut reset = TcpHeader {
        src_port: header.dst_port,
        dst_port: header.src_port,
        flags: TcpFlags::RST,
        ..TcpHeader::default()
    };
    if header.flags.contains(TcpFlags::ACK) {
        reset.seq = header.ack;
    } else {
        reset.seq = SeqNumber(0);
        reset.ack = header.seq.add(header.segment_len(payload_len));
        reset.flags |= TcpFlags::ACK;
    }
    Some(reset)
}
