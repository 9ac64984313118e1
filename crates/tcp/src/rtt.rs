//! Round-trip time and retransmission timeout (RFC 6298).

use serde::{Deserialize, Serialize};

use crate::Connection;
use crate::connection::NO_OFFSET;
use crate::flags::Flags;
use crate::time::Instant;

#[cfg(test)]
mod tests;

/// Round-trip times above this are taken as this (134 s), so that eight times them fit into 32 bits.
pub(crate) const MAX_RTT_US: u32 = 1 << 27;

/// SRTT and RTTVAR, in fixed point.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct RttEstimator {
    /// Eight times SRTT, in microseconds; 0: no sample yet.
    pub(crate) srtt_x8: u32,
    /// Four times RTTVAR, in microseconds.
    pub(crate) rttvar_x4: u32,
}

impl RttEstimator {
    /// RFC 6298 rules 2.2 and 2.3, with alpha 1/8 and beta 1/4.
    #[inline]
    pub(crate) fn sample(&mut self, rtt_us: u32) {
        let rtt = rtt_us;
        if self.srtt_x8 == 0 {
            // "SRTT <- R, RTTVAR <- R/2"
            self.srtt_x8 = rtt * 8;
            self.rttvar_x4 = rtt * 2;
            return;
        }
        // "RTTVAR <- (1 - beta) * RTTVAR + beta * |SRTT - R'|": before SRTT changes.
        let deviation = (self.srtt_x8 / 8).abs_diff(rtt);
        self.rttvar_x4 = self.rttvar_x4 - self.rttvar_x4 / 4 + deviation;
        // "SRTT <- (1 - alpha) * SRTT + alpha * R'"
        self.srtt_x8 = self.srtt_x8 - self.srtt_x8 / 8 + rtt;
    }

    /// "RTO <- SRTT + max (G, K*RTTVAR)" with K = 4, in microseconds.
    #[inline]
    pub(crate) fn rto_us(&self, granularity_us: u32) -> u32 {
        (self.srtt_x8 / 8).saturating_add(self.rttvar_x4.max(granularity_us))
    }

    #[inline]
    pub(crate) fn srtt_us(&self) -> u32 {
        self.srtt_x8 / 8
    }
}

impl Connection {
    /// The data that is being timed was acknowledged.
    #[inline]
    pub(crate) fn rtt_finish(&mut self, now: Instant) {
        self.rtt_end = NO_OFFSET;
        self.rtt_sample(now.micros_since(self.rtt_started, MAX_RTT_US));
    }

    /// Takes a sample of at most [`MAX_RTT_US`], and with it ends a backoff (RFC 6298 sections 2.3 and 5).
    #[inline]
    pub(crate) fn rtt_sample(&mut self, rtt_us: u32) {
        let rtt_us = rtt_us.max(1);
        self.rtt.sample(rtt_us);
        self.rto_us = self.base_rto_us();
        self.min_rtt_us = self.min_rtt_us.min(rtt_us);
    }

    /// The timeout as the round-trip times have it, with its bounds (rules 2.4 and 2.5); without backoff. G is 1 ms, or configured.
    #[inline]
    pub(crate) fn base_rto_us(&self) -> u32 {
        let granularity_us = if self.flags.any(Flags::RTO_MARGIN) {
            self.min_rto_us
        } else {
            1_000
        };
        let rto_us = self.rtt.rto_us(granularity_us);
        rto_us.max(self.min_rto_us).min(self.max_rto_us)
    }

    /// Starts to time the data that ends at `end`, if nothing is being timed.
    #[inline]
    pub(crate) fn rtt_start(&mut self, now: Instant, end: u64) {
        if self.rtt_end == NO_OFFSET {
            self.rtt_end = end;
            self.rtt_started = now;
        }
    }

    /// "RTT samples MUST NOT be made using segments that were retransmitted" (RFC 6298 section 3, Karn's algorithm).
    pub(crate) fn rtt_cancel(&mut self) {
        self.rtt_end = NO_OFFSET;
    }

    /// Timestamp clock: milliseconds, with an offset of its own for each connection (RFC 7323 section 5.4).
    #[inline]
    pub(crate) fn timestamp(&self, now: Instant) -> u32 {
        (now.as_millis() as u32).wrapping_add(self.ts_offset)
    }
}
