//! ACKs in answer to what may be forged (RFC 5961), and how many of them (section 7, "ACK throttling").
//!
//! Limits are kept for each connection on its own: what is shared can be observed by an attacker with a connection of his own
//! (CVE-2016-5696). There are two, so that nobody who does not know where the window is can keep a peer's probes from being
//! answered. The caller may have a limit of its own for all connections together: see [`Connection::withhold_challenge`].

use core::time::Duration;

use serde::{Deserialize, Serialize};

use crate::Connection;
use crate::flags::Flags;
use crate::time::Instant;

/// How many challenge ACKs a connection sends (RFC 5961 section 7: number and time should be tunable).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct ChallengeLimit {
    /// How many in each interval; 0: none.
    pub count: u8,
    /// In whole seconds, at least one, at most 255.
    pub interval: Duration,
}

impl Default for ChallengeLimit {
    /// Ten in five seconds: the example of RFC 5961 section 7.
    fn default() -> Self {
        Self {
            count: 10,
            interval: Duration::from_secs(5),
        }
    }
}

/// What a connection has sent of them, and may send.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Challenges {
    /// The interval that is counted in, modulo 2^16.
    interval: u16,
    /// Answers to what may come from anybody.
    sent: u8,
    /// Answers to what sits exactly before RCV.NXT: probes.
    answered: u8,
    count: u8,
    seconds: u8,
    /// One is due that the segment in hand has asked for.
    pub(crate) fresh: bool,
}

impl Challenges {
    pub(crate) fn new(limit: ChallengeLimit) -> Self {
        Self {
            interval: 0,
            sent: 0,
            answered: 0,
            count: limit.count,
            seconds: limit.interval.as_secs().clamp(1, 255) as u8,
            fresh: false,
        }
    }

    fn may(&mut self, now: Instant, probe: bool) -> bool {
        let interval = (now.as_millis() / 1_000 / u64::from(self.seconds)) as u16;
        if self.interval != interval {
            self.interval = interval;
            (self.sent, self.answered) = (0, 0);
        }
        let used = if probe {
            &mut self.answered
        } else {
            &mut self.sent
        };
        let may = *used < self.count;
        *used += u8::from(may);
        may
    }
}

impl Connection {
    /// RFC 5961: a challenge ACK, `<SEQ=SND.NXT><ACK=RCV.NXT><CTL=ACK>`.
    pub(crate) fn challenge(&mut self, now: Instant) {
        if self.cold.challenges.may(now, false) {
            self.cold.counters.challenge_acks = self.cold.counters.challenge_acks.wrapping_add(1);
            // If an ACK is due anyway, it says the same.
            self.cold.challenges.fresh = !self.flags.any(Flags::ACK_NOW);
            self.flags.set(Flags::ACK_NOW);
        }
    }

    /// Whether something that is not acceptable, and at `seq`, may be answered by an ACK.
    pub(crate) fn may_answer(&mut self, now: Instant, seq: i64) -> bool {
        let probe = seq == self.rcv_nxt as i64 - 1;
        self.cold.challenges.may(now, probe)
    }

    /// The segment that was handled last asked for a challenge ACK ([`crate::Outcome::challenge`]), and the caller has sent too many: this one is
    /// not sent.
    pub fn withhold_challenge(&mut self) {
        if core::mem::take(&mut self.cold.challenges.fresh) {
            self.flags.clear(Flags::ACK_NOW);
        }
    }
}
