//! What is amiss on a connection, in segments: what Linux tells in TCP_INFO.

use crate::Connection;
use crate::flags::Flags;
use crate::range_pool::RangePool;
use crate::recovery::Phase;

/// What a sender is busy with.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum RecoveryState {
    /// Nothing is amiss.
    #[default]
    Open,
    /// Something arrived out of order, or twice; nothing is deemed lost yet (RFC 5681 section 3.2, RFC 3042).
    Disorder,
    /// Fast recovery (RFC 6675, RFC 8985).
    Recovery,
    /// After a retransmission timeout (RFC 5681 section 3.1).
    Loss,
}

/// What is amiss on a connection. Counts are in segments of the effective MSS.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RecoveryInfo {
    /// What the sender is busy with.
    pub state: RecoveryState,
    /// Sent and not cumulatively acknowledged.
    pub outstanding: u32,
    /// Of them, selectively acknowledged; without SACK, as many as duplicate ACKs stand for.
    pub sacked: u32,
    /// Of them, deemed lost, sent again or not.
    pub lost: u32,
    /// Of them, sent again, and not deemed lost a second time.
    pub resent: u32,
    /// Timeouts in a row.
    pub backoff: u8,
    /// Zero-window or keepalive probes without an answer.
    pub probes: u8,
}

impl Connection {
    /// What is amiss. `ranges`: the pool that the connection was driven with.
    pub fn recovery_info(&self, ranges: &RangePool) -> RecoveryInfo {
        let mss = u64::from(self.mss).max(1);
        let segments = |bytes: u64| bytes.div_ceil(mss) as u32;
        let cold = &self.cold;
        let amiss = self.flags.any(Flags::SACKED.or(Flags::DUPLICATES));
        let state = match self.phase {
            Phase::Open if amiss => RecoveryState::Disorder,
            Phase::Open => RecoveryState::Open,
            Phase::Recovery => RecoveryState::Recovery,
            Phase::Loss => RecoveryState::Loss,
        };
        let (mut lost, mut resent) = (0, 0);
        for (range, sent) in cold.flight.iter(ranges) {
            let count = segments(range.len());
            resent += if sent.is_resent() && !sent.is_lost() {
                count
            } else {
                0
            };
            lost += if sent.is_resent() || sent.is_lost() {
                count
            } else {
                0
            };
        }
        let probing = self.flags.any(Flags::PROBING);
        RecoveryInfo {
            state,
            outstanding: segments(u64::from(self.outstanding())),
            sacked: segments(u64::from(cold.sacked_bytes.max(cold.reno_sacked))),
            lost,
            resent,
            backoff: if probing {
                cold.probe_backoff
            } else {
                cold.attempts
            },
            probes: if probing { cold.attempts } else { 0 },
        }
    }
}
