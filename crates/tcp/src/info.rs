//! Facts about a connection.

use sidecore_wire::SeqNumber;

use crate::Connection;
use crate::config::Algorithm;
use crate::flags::Flags;
use crate::flight::Sent;
use crate::range_pool::RangePool;
use crate::recovery::Phase;
use crate::types::{Info, State};

impl Connection {
    /// The state (RFC 9293 section 3.3.2).
    #[inline]
    pub fn state(&self) -> State {
        self.state
    }

    /// The stream offset up to which the peer has acknowledged data; what lies before it may be released.
    #[inline]
    pub fn send_una(&self) -> u64 {
        self.snd_una.min(self.send_limit)
    }

    /// The stream offset up to which data was sent.
    #[inline]
    pub fn send_nxt(&self) -> u64 {
        self.snd_nxt.min(self.send_limit)
    }

    /// The stream offset up to which the application has written.
    #[inline]
    pub fn send_limit(&self) -> u64 {
        self.send_limit
    }

    /// The stream offset up to which data was received in order.
    #[inline]
    pub fn receive_next(&self) -> u64 {
        self.rcv_nxt - u64::from(self.flags.any(Flags::FIN_RECEIVED))
    }

    /// The stream offset of the right edge of the window that the peer was told.
    #[inline]
    pub fn receive_right_edge(&self) -> u64 {
        self.rcv_adv
    }

    /// Whether the peer has ended its stream, and all of it was received.
    #[inline]
    pub fn fin_received(&self) -> bool {
        self.flags.any(Flags::FIN_RECEIVED)
    }

    /// Whether our FIN was acknowledged.
    #[inline]
    pub fn fin_acked(&self) -> bool {
        self.flags.any(Flags::FIN_SENT) && self.snd_una > self.send_limit
    }

    /// SND.NXT. Once the connection has sent its FIN: one more than any sequence number that it used.
    pub fn next_sequence_number(&self) -> SeqNumber {
        self.snd_seq(self.snd_nxt)
    }

    /// How often in a row the retransmission timer has fired without an answer; the number that RFC 9293 section 3.8.3 holds
    /// against R1.
    pub fn unanswered_attempts(&self) -> u8 {
        self.cold.attempts
    }

    /// The payload of a full segment that we send, in bytes.
    #[inline]
    pub fn effective_mss(&self) -> u16 {
        self.mss
    }

    /// Everything that is worth showing.
    // tidy: long function because it lists every field
    pub fn info(&self) -> Info {
        let counters = &self.cold.counters;
        Info {
            state: self.state,
            effective_mss: self.mss,
            path_mtu: self.path_mtu(),
            path_probes: counters.path_probes,
            receive_mss: self.rcv_mss,
            timestamps: self.flags.any(Flags::TIMESTAMPS),
            sack: self.flags.any(Flags::SACK),
            send_scale: self.snd_scale.shift(),
            receive_scale: self.rcv_scale.shift(),
            srtt_us: self.rtt.srtt_us(),
            rttvar_us: self.rtt.rttvar_x4 / 4,
            min_rtt_us: if self.min_rtt_us == u32::MAX {
                0
            } else {
                self.min_rtt_us
            },
            rto_us: self.rto_us,
            cwnd: self.window.cwnd,
            ssthresh: self.window.ssthresh,
            send_window: self.snd_wnd,
            receive_window: (self.rcv_adv - self.rcv_nxt) as u32,
            in_flight: self.in_flight(),
            bytes_acked: self.send_una(),
            bytes_received: self.receive_next(),
            bytes_unsent: self.send_limit - self.send_nxt(),
            retransmissions: counters.retransmissions,
            timeouts: counters.timeouts,
            recoveries: counters.recoveries,
            tail_probes: counters.tail_probes,
            undos: counters.undos,
            reordering_seen: self.cold.rack.reordering_seen,
            duplicate_acks: counters.duplicate_acks,
            out_of_order: counters.out_of_order,
            out_of_order_ranges: self.cold.out_of_order.len(),
            challenge_acks: counters.challenge_acks,
            ecn: self.ecn_is_agreed(),
            ce_received: counters.ce_received,
            ece_received: counters.ece_received,
            ecn_reductions: counters.ecn_reductions,
            dctcp_alpha: self.dctcp_alpha(),
            unanswered_attempts: self.cold.attempts,
            soft_error: self.cold.soft_error,
            last_received: self.last_received,
            last_sent: self.run_at,
            congestion: match self.algorithm() {
                Algorithm::NewReno => "reno",
                Algorithm::Cubic => "cubic",
                Algorithm::Dctcp => "dctcp",
                Algorithm::Bbr => "bbr",
            },
            recovering: self.phase != Phase::Open,
            timed_out: self.phase == Phase::Loss,
            keepalive_probes: self.cold.keepalive_probes,
            delayed_ack_us: u32::from(self.delayed_ack_ms) * 1_000,
            announced_mss: self.cold.announced_mss,
            unacked: self.outstanding(),
            sacked: self.cold.sacked_bytes,
            lost: self
                .outstanding()
                .saturating_sub(self.cold.sacked_bytes)
                .saturating_sub(self.in_flight()),
            resent: 0,
            bytes_retransmitted: counters.bytes_retransmitted,
            syn_data: self.syn_data_acked(),
            receiver_rtt_us: self.cold.autotune.round_trip_us,
            window_hint: self.cold.autotune.hint,
        }
    }

    /// As [`Connection::info`], and what the list of transmit times says of what is lost and sent again.
    pub fn full_info(&self, ranges: &RangePool) -> Info {
        let mut info = self.info();
        if self.rack_is_on() {
            let bytes = |which: fn(Sent) -> bool| {
                let flight = self.cold.flight.iter(ranges);
                let chosen = flight.filter(|(_, sent)| which(*sent));
                chosen.map(|(range, _)| range.len() as u32).sum()
            };
            info.lost = bytes(Sent::is_lost);
            info.resent = bytes(|sent| sent.is_resent() && !sent.is_lost());
        }
        info
    }
}
