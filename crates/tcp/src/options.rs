//! Options that few connections set: what Linux calls TCP_SYNCNT, TCP_LINGER2, TCP_MAXSEG.

use core::time::Duration;

use crate::Connection;
use crate::connection::MIN_MSS;
use crate::time::{Instant, millis};
use crate::types::State;

impl Connection {
    /// How often a SYN or SYN-ACK is sent again before the attempt is given up (TCP_SYNCNT).
    pub fn set_syn_retries(&mut self, retries: u8) {
        self.cold.settings.syn_retries = retries;
    }

    /// As last set: [`Connection::set_syn_retries`].
    pub fn syn_retries(&self) -> u8 {
        self.cold.settings.syn_retries
    }

    /// How long FIN-WAIT-2 lasts once the application has closed the connection (TCP_LINGER2). Of no effect when it has begun.
    pub fn set_fin_wait_2_timeout(&mut self, timeout: Duration) {
        self.cold.settings.fin_wait_2_ms = millis(timeout);
    }

    /// As last set: [`Connection::set_fin_wait_2_timeout`].
    pub fn fin_wait_2_timeout(&self) -> Duration {
        Duration::from_millis(self.cold.settings.fin_wait_2_ms.into())
    }

    /// Sends segments of at most `mss` bytes, options included as in the option of that name (TCP_MAXSEG): never larger ones than
    /// before, never smaller ones than 88 bytes. What the peer may send was announced with the SYN, and stays. False, and nothing
    /// done, while the handshake is not complete.
    pub fn limit_mss(&mut self, mss: u16) -> bool {
        if !self.state.is_synchronized() {
            return false;
        }
        self.cold.peer_mss = self.cold.peer_mss.min(mss.max(MIN_MSS));
        self.set_effective_mss();
        true
    }

    /// When the handshake began: when the first SYN or SYN-ACK was sent. Meaningful in SYN-SENT and SYN-RECEIVED.
    pub fn handshake_began(&self) -> Instant {
        self.cold.unanswered_since
    }

    /// The SYN-ACK was answered at `now`, but the handshake is to stay open (TCP_DEFER_ACCEPT): the SYN-ACK is not sent again before
    /// `until`, and that it is sent then is no sign of loss.
    pub fn defer_handshake(&mut self, now: Instant, until: Instant) {
        if self.state != State::SynReceived {
            return;
        }
        if self.cold.attempts == 0 && !self.cold.deferred {
            self.rtt_finish(now);
        }
        self.cold.deferred |= self.cold.attempts == 0;
        self.retransmit_at = self.retransmit_at.max(until);
    }
}
