//! What is seldom due: resets, the handshake, probes.

use sidecore_wire::{SeqNumber, TcpFlags, TcpHeader, TcpOptions, UnscaledWindow};

use crate::Connection;
use crate::flags::Flags;
use crate::range_pool::RangePool;
use crate::time::Instant;
use crate::types::{State, TxSegment};

impl Connection {
    /// What is seldom due: resets, the handshake, probes.
    #[cold]
    pub(super) fn poll_rare(&mut self, now: Instant, ranges: &mut RangePool) -> Option<TxSegment> {
        if self.flags.any(Flags::RESET_REPLY) {
            self.flags.clear(Flags::RESET_REPLY);
            let header = TcpHeader {
                seq: self.cold.reset_reply_seq,
                flags: TcpFlags::RST,
                ..TcpHeader::default()
            };
            return Some(self.bare(header));
        }
        if self.flags.any(Flags::RESET_DUE) {
            self.flags.clear(Flags::RESET_DUE);
            return Some(self.reset());
        }
        if self.flags.any(Flags::FIN_WAIT_2_DUE) {
            self.arm_fin_wait_2(now);
        }
        if self.flags.any(Flags::SYN_DUE) {
            self.flags.clear(Flags::SYN_DUE);
            return Some(self.syn(now));
        }
        if self.flags.any(Flags::PROBE_DUE) {
            self.flags.clear(Flags::PROBE_DUE);
            if !self.cold.tlp.due {
                return Some(self.probe(now));
            }
            if let Some(segment) = self.tail_probe(now, ranges) {
                return Some(segment);
            }
        }
        if self.state == State::SynReceived && self.flags.any(Flags::ACK_NOW) {
            return Some(self.pure_ack(now));
        }
        None
    }

    /// `<SEQ=SND.NXT><ACK=RCV.NXT><CTL=RST,ACK>`; in SYN-RECEIVED SND.NXT is ISS + 1. Where the window has shrunk, the peer answers what lies in it
    /// with a challenge ACK (RFC 5961 section 3.2), which brings it a reset where it wants it; beyond it, it would hear nothing.
    fn reset(&mut self) -> TxSegment {
        let header = TcpHeader {
            seq: self.snd_seq(self.acceptable_nxt()),
            ack: self.rcv_seq(self.rcv_nxt),
            flags: TcpFlags::RST | TcpFlags::ACK,
            window: UnscaledWindow(0),
            ..TcpHeader::default()
        };
        self.bare(header)
    }

    fn bare(&self, header: TcpHeader) -> TxSegment {
        TxSegment {
            header,
            payload: self.send_nxt()..self.send_nxt(),
            segment_size: self.mss,
            retransmission: false,
        }
    }

    /// `<SEQ=ISS><CTL=SYN>`, with `<ACK=RCV.NXT>` in SYN-RECEIVED, and the options that are offered or agreed.
    fn syn(&mut self, now: Instant) -> TxSegment {
        let answers = self.state == State::SynReceived;
        let mut flags = TcpFlags::SYN;
        if answers {
            flags |= TcpFlags::ACK;
        }
        let header = TcpHeader {
            seq: self.snd_base.sub(1),
            ack: if answers { self.rcv_base } else { SeqNumber(0) },
            flags,
            window: self.select_syn_window(),
            options: TcpOptions {
                mss: Some(self.cold.announced_mss),
                window_scale: self.cold.scale_offered.then_some(self.rcv_scale),
                sack_permitted: self.flags.any(Flags::SACK),
                timestamps: self.timestamps(now),
                ..TcpOptions::NONE
            },
            ..TcpHeader::default()
        };
        if self.cold.attempts == 0 && self.retransmit_at == Instant::NEVER {
            self.rtt_started = now;
            self.cold.unanswered_since = now;
        }
        self.retransmit_at = now.after_micros(self.rto_us);
        self.flags.clear(Flags::ACK_NOW);
        TxSegment {
            header,
            payload: 0..0,
            segment_size: self.mss,
            retransmission: self.cold.attempts > 0,
        }
    }

    /// A segment without payload from before SND.UNA, which every TCP must answer with an ACK: the zero-window and keepalive
    /// probe of BSD and Linux (RFC 9293 section 3.8.4: "SEG.SEQ = SND.NXT-1"). It takes no sequence number, so that a probe
    /// that the peer's window refuses leaves nothing to undo; where the window has room for a byte, data is sent instead.
    fn probe(&mut self, now: Instant) -> TxSegment {
        let header = TcpHeader {
            seq: self.snd_seq(self.snd_una).sub(1),
            ack: self.rcv_seq(self.rcv_nxt),
            flags: TcpFlags::ACK,
            window: self.select_window(),
            options: TcpOptions {
                timestamps: self.timestamps(now),
                ..TcpOptions::NONE
            },
            ..TcpHeader::default()
        };
        let mut segment = self.bare(header);
        segment.retransmission = true;
        segment
    }
}
