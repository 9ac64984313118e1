//! `struct tcp_info` of Linux.

use sidecore_tcp::{Info, Instant, State};

/// Bytes of the structure as it is here: all of it that Linux 6.x has but the last few counters.
const LEN: usize = 248;
/// Options of `tcpi_options`.
const TIMESTAMPS: u8 = 1;
const SACK: u8 = 2;
const WSCALE: u8 = 4;
/// What Linux says while there is no slow start threshold.
const NO_THRESHOLD: u32 = 0x7fff_ffff;

/// A state's number.
pub(super) const fn state(state: State) -> u8 {
    match state {
        State::Established => 1,
        State::SynSent => 2,
        State::SynReceived => 3,
        State::FinWait1 => 4,
        State::FinWait2 => 5,
        State::TimeWait => 6,
        State::Closed => 7,
        State::CloseWait => 8,
        State::LastAck => 9,
        State::Listen => 10,
        State::Closing => 11,
    }
}

/// The structure, as far as the connection knows what to write there.
pub(super) fn bytes(info: &Info, now: Instant) -> Vec<u8> {
    let mss = u32::from(info.effective_mss).max(1);
    let segments = |bytes: u32| bytes.div_ceil(mss);
    let mut out = vec![0; LEN];
    out[0] = state(info.state);
    let scaled = info.send_scale > 0 || info.receive_scale > 0;
    let used = [
        (info.timestamps, TIMESTAMPS),
        (info.sack, SACK),
        (scaled, WSCALE),
    ];
    out[5] = used
        .iter()
        .filter(|(used, _)| *used)
        .map(|(_, bit)| bit)
        .sum();
    out[6] = info.send_scale | (info.receive_scale << 4);
    let threshold = match info.ssthresh {
        u32::MAX => NO_THRESHOLD,
        bytes => bytes / mss,
    };
    let silence = now.duration_since(info.last_received).as_millis() as u32;
    let words = [
        (8, info.rto_us),
        (16, mss),
        (20, u32::from(info.receive_mss)),
        (24, segments(info.in_flight)),
        (52, silence),
        (68, info.srtt_us),
        (72, info.rttvar_us),
        (76, threshold),
        (80, info.cwnd / mss),
        (100, info.retransmissions),
        (144, info.bytes_unsent.try_into().unwrap_or(u32::MAX)),
        (
            148,
            if info.min_rtt_us == 0 {
                u32::MAX
            } else {
                info.min_rtt_us
            },
        ),
        (220, u32::from(info.reordering_seen)),
        (224, info.out_of_order),
        (228, info.send_window),
        (232, info.receive_window),
    ];
    for (at, word) in words {
        out[at..at + 4].copy_from_slice(&word.to_ne_bytes());
    }
    for (at, word) in [(120, info.bytes_acked), (128, info.bytes_received)] {
        out[at..at + 8].copy_from_slice(&word.to_ne_bytes());
    }
    out
}
