//! What Linux's `TCP_INFO` says of a connection: the only place where it is filled in.

use sidecore_wire::TcpInfo;
use sidecore_wire::info::options;

use crate::Connection;
use crate::flags::Flags;
use crate::rack::DUP_THRESH;
use crate::range_pool::RangePool;
use crate::recovery::Phase;
use crate::time::Instant;
use crate::types::{Info, State};

/// What Linux says while there is no slow start threshold.
const NO_THRESHOLD: u32 = 0x7fff_ffff;

impl State {
    /// Linux's number of the state, as in [`TcpInfo::state`].
    pub const fn linux_number(self) -> u8 {
        match self {
            Self::Established => 1,
            Self::SynSent => 2,
            Self::SynReceived => 3,
            Self::FinWait1 => 4,
            Self::FinWait2 => 5,
            Self::TimeWait => 6,
            Self::Closed => 7,
            Self::CloseWait => 8,
            Self::LastAck => 9,
            Self::Listen => 10,
            Self::Closing => 11,
        }
    }
}

/// What is out and amiss, in segments of the effective MSS.
struct Amiss {
    /// Deemed lost, sent again or not.
    lost: u32,
    /// Sent again, and not deemed lost a second time.
    resent: u32,
}

/// tcpi_options: what was agreed.
fn agreed(info: &Info) -> u8 {
    let scaled = info.send_scale > 0 || info.receive_scale > 0;
    let used = [
        (info.timestamps, options::TIMESTAMPS),
        (info.sack, options::SACK),
        (scaled, options::WSCALE),
        (info.syn_data, options::SYN_DATA),
        (info.ecn, options::ECN),
        (info.ecn && info.ce_received > 0, options::ECN_SEEN),
    ];
    let used = used.iter().filter(|(used, _)| *used);
    used.map(|(_, bit)| bit).sum()
}

impl Connection {
    /// What Linux would say of this connection. `ranges`: the pool that the connection was driven with. [`TcpInfo::pmtu`] is as IPv4
    /// counts it: over IPv6 it is 20 bytes more.
    ///
    /// What nothing but a look at every segment could count is 0: segments in and out, and how long what has held sending back.
    // tidy: long function because it lists every field
    pub fn tcp_info(&self, now: Instant, ranges: &RangePool) -> TcpInfo {
        let info = &self.info();
        let mss = u32::from(info.effective_mss).max(1);
        let segments = |bytes: u32| bytes.div_ceil(mss);
        let since = |then: Instant| {
            let passed = now.duration_since(then).as_millis();
            passed.try_into().unwrap_or(u32::MAX)
        };
        let probing = self.flags.any(Flags::PROBING);
        let backoff = if probing {
            self.cold.probe_backoff
        } else {
            self.cold.attempts
        };
        let Amiss { lost, resent } = self.amiss(ranges);
        TcpInfo {
            state: info.state.linux_number(),
            ca_state: self.ca_state(),
            retransmits: backoff,
            backoff,
            probes: if probing {
                self.cold.attempts
            } else {
                info.keepalive_probes
            },
            options: agreed(info),
            wscale: info.send_scale | info.receive_scale << 4,
            rto: info.rto_us,
            ato: info.delayed_ack_us,
            snd_mss: mss,
            rcv_mss: info.receive_mss.into(),
            unacked: segments(info.unacked),
            sacked: segments(info.sacked.max(self.cold.reno_sacked)),
            lost,
            retrans: resent,
            last_data_sent: since(info.last_sent),
            last_data_recv: since(info.last_received),
            last_ack_recv: since(info.last_received),
            pmtu: info.path_mtu.into(),
            rcv_ssthresh: info.receive_window,
            rtt: info.srtt_us,
            rttvar: info.rttvar_us,
            snd_ssthresh: match info.ssthresh {
                u32::MAX => NO_THRESHOLD,
                bytes => bytes / mss,
            },
            snd_cwnd: info.cwnd / mss,
            advmss: info.announced_mss.into(),
            reordering: DUP_THRESH as u32,
            rcv_rtt: info.receiver_rtt_us,
            rcv_space: info.window_hint,
            total_retrans: info.retransmissions,
            pacing_rate: self.pacing_rate().unwrap_or(0),
            max_pacing_rate: self.max_pacing_rate().unwrap_or(u64::MAX),
            bytes_acked: info.bytes_acked,
            bytes_received: info.bytes_received,
            notsent_bytes: info.bytes_unsent.try_into().unwrap_or(u32::MAX),
            min_rtt: match info.min_rtt_us {
                0 => u32::MAX,
                known => known,
            },
            delivery_rate: self.bbr_info().map_or(0, |bbr| bbr.bandwidth),
            delivered_ce: info.ece_received,
            bytes_sent: info.bytes_acked + u64::from(info.unacked) + info.bytes_retransmitted,
            bytes_retrans: info.bytes_retransmitted,
            reord_seen: info.reordering_seen.into(),
            rcv_ooopack: info.out_of_order,
            snd_wnd: info.send_window,
            rcv_wnd: info.receive_window,
            total_rto: info.timeouts.try_into().unwrap_or(u16::MAX),
            ..TcpInfo::default()
        }
    }

    /// tcpi_ca_state: what the sender is busy with.
    fn ca_state(&self) -> u8 {
        let amiss = self.flags.any(Flags::SACKED.or(Flags::DUPLICATES));
        match self.phase {
            Phase::Open if amiss => 1,
            Phase::Open => 0,
            Phase::Recovery => 3,
            Phase::Loss => 4,
        }
    }

    fn amiss(&self, ranges: &RangePool) -> Amiss {
        let mss = u64::from(self.mss).max(1);
        let mut amiss = Amiss { lost: 0, resent: 0 };
        if !self.rack_is_on() {
            // The estimate of what is in flight is all that is known.
            let gone = self.outstanding().saturating_sub(self.in_flight());
            let known = self.cold.sacked_bytes.max(self.cold.reno_sacked);
            let lost = u64::from(gone.saturating_sub(known));
            amiss.lost = lost.div_ceil(mss) as u32;
            return amiss;
        }
        for (range, sent) in self.cold.flight.iter(ranges) {
            let count = range.len().div_ceil(mss) as u32;
            if sent.is_resent() || sent.is_lost() {
                amiss.lost += count;
            }
            if sent.is_resent() && !sent.is_lost() {
                amiss.resent += count;
            }
        }
        amiss
    }
}
