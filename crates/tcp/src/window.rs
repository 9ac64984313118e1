//! The receive window: what is advertised, when, and how large it should be.

use serde::{Deserialize, Serialize};
use sidecore_wire::{TcpHeader, UnscaledWindow, WindowScale};

use crate::Connection;
use crate::flags::Flags;
use crate::time::Instant;
use crate::types::State;

/// Units of the window scale that the first window has at least.
const LEAST_UNITS: u64 = 4;
/// The least window that is ever suggested.
const MIN_WINDOW_HINT: u32 = 64 * 1024;
/// The largest: that of the largest window scale.
const MAX_WINDOW_HINT: u32 = 1 << 30;
/// The least time over which arrival is measured: round trips below it say more about scheduling.
const MIN_AUTOTUNE_US: u32 = 250;
/// A longer echo is no round trip.
const MAX_ROUND_TRIP_MS: u32 = 10_000;

/// Dynamic right-sizing: a window of twice what arrives in a round trip lets the peer's congestion window double
/// (Fisk and Feng, "Dynamic Right-Sizing in TCP"; what Linux does in `tcp_rcv_space_adjust`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Autotune {
    /// When the current round trip began, and RCV.NXT then.
    pub(crate) started: Instant,
    pub(crate) offset: u64,
    /// The round-trip time as the receiver sees it, in microseconds; 0: not known, or below a millisecond.
    pub(crate) round_trip_us: u32,
    /// The answer so far, in bytes.
    pub(crate) hint: u32,
}

impl Default for Autotune {
    fn default() -> Self {
        Self {
            started: Instant::ZERO,
            offset: 0,
            round_trip_us: 0,
            hint: MIN_WINDOW_HINT,
        }
    }
}

impl Connection {
    /// The stream offset up to which there is receive buffer. Moving it left is ignored: what was advertised stays.
    ///
    /// May make a window update due. Cheap enough to call whenever the application has consumed something.
    #[inline]
    pub fn set_receive_limit(&mut self, right_edge: u64) {
        if right_edge <= self.rcv_limit {
            return;
        }
        self.rcv_limit = right_edge;
        let buffer = right_edge.saturating_sub(self.rcv_nxt);
        if self.rcv_sws < self.cold.announced_mss {
            // RFC 9293 section 3.8.6.2.2: "min( Fr * RCV.BUFF, Eff.snd.MSS )" with Fr = 1/2.
            let half = u16::try_from(buffer / 2).unwrap_or(u16::MAX);
            self.rcv_sws = self.rcv_sws.max(half.min(self.cold.announced_mss));
        }
        if self.window_update_due(buffer) {
            self.flags.set(Flags::ACK_NOW);
        }
    }

    /// Whether the window opened by so much that the peer should hear it although nothing arrived: by two segments,
    /// and either a quarter of the buffer or as much as is left of the old window.
    #[inline]
    fn window_update_due(&self, buffer: u64) -> bool {
        if !matches!(
            self.state,
            State::Established | State::FinWait1 | State::FinWait2
        ) {
            return false;
        }
        let left = self.rcv_adv - self.rcv_nxt;
        let unit = 1u64 << self.rcv_scale.shift();
        let gain = (buffer.min(0xffff * unit) / unit * unit).saturating_sub(left);
        let least = u64::from(self.rcv_sws).max(1);
        if left < u64::from(self.rcv_mss) {
            // The peer is, or soon will be, stuck.
            return gain >= least;
        }
        gain >= 2 * least && (gain >= left || gain >= buffer / 4)
    }

    /// The window field of the next segment; moves the advertised right edge.
    ///
    /// The edge moves right by at least [`Self::rcv_sws`] or not at all (RFC 9293 section 3.8.6.2.2, MUST-39). It never
    /// moves left; but the field counts in units of 2^Rcv.Wind.Shift, so that an old edge may lie between two units. It
    /// is then rounded up if there is buffer for that, and else down: what the peer was told before stays acceptable
    /// (RFC 7323 section 2.4).
    #[inline]
    pub(crate) fn select_window(&mut self) -> UnscaledWindow {
        let shift = self.rcv_scale.shift();
        let threshold = self.rcv_adv + u64::from(self.rcv_sws);
        if self.rcv_limit >= threshold {
            // A FIN may lie just after the last byte of buffer.
            let units = (self.rcv_limit.saturating_sub(self.rcv_nxt) >> shift).min(0xffff);
            let edge = self.rcv_nxt + (units << shift);
            if edge >= threshold {
                self.rcv_adv = edge;
                return UnscaledWindow(units as u16);
            }
        }
        // The edge was that many units or fewer from an earlier RCV.NXT: the field has room for it.
        let left = self.rcv_adv - self.rcv_nxt;
        let rounded_up = (left + (1 << shift) - 1) >> shift;
        let edge = self.rcv_nxt + (rounded_up << shift);
        if edge <= self.rcv_limit {
            self.rcv_adv = edge;
            UnscaledWindow(rounded_up as u16)
        } else {
            UnscaledWindow((left >> shift) as u16)
        }
    }

    /// The window field of a SYN: not scaled (RFC 7323 section 2.2).
    ///
    /// The scale becomes one in which this buffer is at least [`LEAST_UNITS`]: with a unit larger than the buffer, the window could
    /// only be said to be closed, and would never open.
    pub(crate) fn select_syn_window(&mut self) -> UnscaledWindow {
        let bytes = self.rcv_limit.saturating_sub(self.rcv_nxt).min(0xffff);
        let most = (bytes / LEAST_UNITS).checked_ilog2().unwrap_or(0);
        if u32::from(self.rcv_scale.shift()) > most {
            self.rcv_scale = WindowScale::new(most as u8);
        }
        self.rcv_adv = self.rcv_adv.max(self.rcv_nxt + bytes);
        UnscaledWindow((self.rcv_adv - self.rcv_nxt) as u16)
    }

    /// How many bytes of receive window would be useful, from how fast data arrives: grows, never shrinks.
    #[inline]
    pub fn receive_window_hint(&self) -> u32 {
        self.cold.autotune.hint
    }

    /// In-order data arrived, enough of it to ask for an ACK.
    #[inline(never)]
    pub(crate) fn autotune(&mut self, now: Instant, header: &TcpHeader) {
        let with_timestamps = self.flags.any(Flags::TIMESTAMPS);
        if let Some(timestamps) = header.options.timestamps
            && with_timestamps
        {
            let elapsed_ms = self.timestamp(now).wrapping_sub(timestamps.echo);
            self.cold.autotune.round_trip(elapsed_ms);
        }
        let window = self.rcv_adv - self.rcv_nxt;
        let tune = &mut self.cold.autotune;
        let round_trip = self
            .rtt
            .srtt_us()
            .max(tune.round_trip_us)
            .max(MIN_AUTOTUNE_US);
        let elapsed = now.micros_since(tune.started, u32::MAX);
        let arrived = self.rcv_nxt.saturating_sub(tune.offset);
        // Without timestamps, the round-trip time of what the peer sends is not known; that it uses up the window is.
        let window_used = arrived >= window / 2;
        let long_enough = with_timestamps || window_used || elapsed >= round_trip.saturating_mul(4);
        if elapsed < round_trip || !long_enough {
            return;
        }
        let in_round_trip = if window_used {
            arrived
        } else if !with_timestamps {
            arrived * u64::from(round_trip) / u64::from(elapsed)
        } else if elapsed < round_trip.saturating_mul(2) {
            arrived
        } else {
            // An idle time is no measure of the peer's rate.
            0
        };
        let useful = (in_round_trip * 2 + 16 * u64::from(self.rcv_mss)).min(MAX_WINDOW_HINT.into());
        tune.hint = tune.hint.max(useful as u32);
        tune.started = now;
        tune.offset = self.rcv_nxt;
    }
}

impl Autotune {
    /// How long ago the ACK was sent that let the peer send this: its round-trip time as the receiver sees it. An idle peer
    /// makes it long, so that it follows downwards at once and upwards slowly.
    fn round_trip(&mut self, elapsed_ms: u32) {
        if elapsed_ms > MAX_ROUND_TRIP_MS {
            return;
        }
        let sample = elapsed_ms * 1_000;
        if sample < self.round_trip_us || self.round_trip_us == 0 {
            self.round_trip_us = sample;
        } else {
            self.round_trip_us += (sample - self.round_trip_us) / 8;
        }
    }
}
