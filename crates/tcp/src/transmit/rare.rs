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
            let own = self.flags.any(Flags::RESET_OWN);
            self.flags.assign(Flags::RESET_DUE, own);
            let header = TcpHeader {
                seq: self.cold.reset_reply_seq,
                flags: TcpFlags::RST,
                ..TcpHeader::default()
            };
            return Some(self.bare(header));
        }
        if self.flags.any(Flags::RESET_DUE) {
            self.flags.clear(Flags::RESET_DUE.or(Flags::RESET_OWN));
            return Some(self.reset(now));
        }
        if self.flags.any(Flags::FIN_WAIT_2_DUE) {
            self.arm_fin_wait_2(now);
        }
        if self.flags.any(Flags::SYN_DUE) && !self.syn_is_held() {
            self.flags.clear(Flags::SYN_DUE);
            return Some(self.syn(now));
        }
        if self.flags.any(Flags::PROBE_DUE) {
            self.flags.clear(Flags::PROBE_DUE);
            let probe = if self.cold.tlp.due {
                self.tail_probe(now, ranges)
            } else if self.path_probe_is_due() {
                self.path_probe(now, ranges)
            } else {
                Some(self.probe(now))
            };
            if probe.is_some() {
                return probe;
            }
        }
        if self.flags.any(Flags::ACKS_OWED)
            && let Some(segment) = self.owed_ack(now)
        {
            return Some(segment);
        }
        if self.state == State::SynReceived && self.flags.any(Flags::ACK_NOW) {
            return Some(self.pure_ack(now));
        }
        None
    }

    /// `<SEQ=SND.NXT><ACK=RCV.NXT><CTL=RST,ACK>`; in SYN-RECEIVED SND.NXT is ISS + 1. With timestamps, if those are in use (RFC 7323
    /// section 3.2: they "SHOULD be sent in an <RST> segment"). Where the window has shrunk, the peer answers what lies in it with a challenge ACK
    /// (RFC 5961 section 3.2), which brings it a reset where it wants it; beyond it, it would hear nothing.
    fn reset(&mut self, now: Instant) -> TxSegment {
        let header = TcpHeader {
            seq: self.snd_seq(self.acceptable_nxt()),
            ack: self.rcv_seq(self.rcv_nxt),
            flags: TcpFlags::RST | TcpFlags::ACK,
            window: UnscaledWindow(0),
            options: TcpOptions {
                timestamps: self.timestamps(now),
                ..TcpOptions::NONE
            },
            ..TcpHeader::default()
        };
        self.bare(header)
    }

    fn bare(&self, header: TcpHeader) -> TxSegment {
        TxSegment {
            header,
            ecn: self.ecn_marks.others(),
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
        let (ecn_flags, ecn) = self.ecn_offer();
        flags |= ecn_flags;
        let mut header = TcpHeader {
            seq: self.snd_base.sub(1),
            ack: if answers {
                self.rcv_seq(self.rcv_nxt)
            } else {
                SeqNumber(0)
            },
            flags,
            window: self.select_syn_window(),
            options: TcpOptions {
                mss: Some(self.syn_mss()),
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
        let len = self.fast_open_on_syn(&mut header.options);
        self.retransmit_at = now.after_micros(self.rto_us);
        self.flags.clear(Flags::ACK_NOW);
        self.last_ack_sent = self.rcv_nxt;
        TxSegment {
            header,
            ecn,
            payload: 0..len,
            segment_size: self.mss,
            retransmission: self.cold.attempts > 0,
        }
    }

    /// An ACK of less than was received: up to the offset `ack`, which lies between Last.ACK.sent and RCV.NXT. The right edge of the
    /// window is where it was.
    pub(crate) fn ack_of(&mut self, now: Instant, ack: u64) -> TxSegment {
        let shift = self.rcv_scale.shift();
        let left = self.rcv_adv.saturating_sub(ack);
        let rounded_up = (left + (1 << shift) - 1) >> shift;
        let edge = ack + (rounded_up << shift);
        let units = if edge <= self.rcv_limit {
            self.rcv_adv = self.rcv_adv.max(edge);
            rounded_up
        } else {
            left >> shift
        };
        let header = TcpHeader {
            seq: self.snd_seq(self.snd_nxt),
            ack: self.rcv_seq(ack),
            flags: TcpFlags::ACK,
            window: UnscaledWindow(units.min(0xffff) as u16),
            options: TcpOptions {
                timestamps: self.timestamps(now),
                ..TcpOptions::NONE
            },
            ..TcpHeader::default()
        };
        self.last_ack_sent = ack;
        self.bare(header)
    }

    /// A segment without payload from before SND.UNA, which every TCP must answer with an ACK: the zero-window and keepalive
    /// probe of BSD and Linux (RFC 9293 section 3.8.4: "SEG.SEQ = SND.NXT-1"). It takes no sequence number, so that a probe
    /// that the peer's window refuses leaves nothing to undo; where the window has room for a byte, data is sent instead.
    fn probe(&mut self, now: Instant) -> TxSegment {
        let header = TcpHeader {
            seq: self.snd_seq(self.snd_una).sub(1),
            ack: self.rcv_seq(self.rcv_nxt),
            flags: TcpFlags::ACK | self.ecn_marks.echo(),
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
