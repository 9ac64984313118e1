//! The application's side: what it writes, how it closes, what it sets.

use core::time::Duration;

use crate::Connection;
use crate::config::{Algorithm, Keepalive};
use crate::connection::delayed_ack_ms;
use crate::flags::Flags;
use crate::time::Instant;
use crate::types::{CloseReason, State};

impl Connection {
    /// The application has written up to stream offset `end`. Going back is ignored, as is writing after
    /// [`Connection::shutdown_send`].
    #[inline]
    pub fn set_send_limit(&mut self, end: u64) {
        if end > self.send_limit && !self.flags.any(Flags::FIN_QUEUED) {
            self.send_limit = end;
        }
    }

    /// Whether the application is about to write more (MSG_MORE). While it is, a final partial segment is held back,
    /// for at most 200 ms.
    #[inline]
    pub fn set_push(&mut self, more_to_come: bool) {
        self.flags.assign(Flags::MORE, more_to_come);
        self.uncork();
    }

    /// Switches Nagle's algorithm off (RFC 9293 section 3.7.4, MUST-17).
    pub fn set_no_delay(&mut self, no_delay: bool) {
        if self.flags.any(Flags::NO_DELAY) && !no_delay {
            // It was not kept: as if what is out ended with a small segment.
            self.snd_sml = self.snd_nxt as u32;
        }
        self.flags.assign(Flags::NO_DELAY, no_delay);
    }

    /// As [`Connection::set_push`], but lasting until it is switched off (TCP_CORK).
    pub fn set_cork(&mut self, cork: bool) {
        self.flags.assign(Flags::CORK, cork);
        self.uncork();
    }

    #[inline]
    fn uncork(&mut self) {
        if !self.flags.any(Flags::MORE.or(Flags::CORK)) {
            self.flags.clear(Flags::CORKED);
        }
    }

    /// Switches keepalive probes on or off. Silence counts from the last segment received.
    pub fn set_keepalive(&mut self, keepalive: Option<Keepalive>) {
        self.cold.settings.set_keepalive(keepalive);
        self.cold.keepalive_probes = 0;
        if self.state.is_synchronized() && self.state != State::TimeWait {
            self.arm_keepalive();
        }
    }

    /// How long sent data may stay unacknowledged (RFC 5482); `None`: the default. Holds for what is out already, too. The handshake has
    /// limits of its own.
    pub fn set_user_timeout(&mut self, timeout: Option<Duration>) {
        self.cold.settings.set_user_timeout(timeout);
        self.bound_by_user_timeout();
    }

    /// How long an ACK may be delayed: whole milliseconds, less than half a second; zero: every segment is
    /// acknowledged at once. The first segments of a connection are no exception any more.
    pub fn set_delayed_ack(&mut self, delay: Duration) {
        self.quick_acks = 0;
        self.delayed_ack_ms = delayed_ack_ms(delay);
    }

    /// As last set: [`Connection::set_no_delay`].
    pub fn no_delay(&self) -> bool {
        self.flags.any(Flags::NO_DELAY)
    }

    /// As last set: [`Connection::set_cork`].
    pub fn cork(&self) -> bool {
        self.flags.any(Flags::CORK)
    }

    /// As last set: [`Connection::set_delayed_ack`].
    pub fn delayed_ack(&self) -> Duration {
        Duration::from_millis(self.delayed_ack_ms.into())
    }

    /// As last set: [`Connection::set_keepalive`].
    pub fn keepalive(&self) -> Option<Keepalive> {
        let settings = &self.cold.settings;
        (settings.keepalive_probes > 0).then(|| Keepalive {
            idle: Duration::from_millis(settings.keepalive_idle_ms.into()),
            interval: Duration::from_millis(settings.keepalive_interval_ms.into()),
            probes: settings.keepalive_probes,
        })
    }

    /// How long sent data may stay unacknowledged before the connection is given up.
    pub fn user_timeout(&self) -> Duration {
        Duration::from_millis(self.cold.settings.user_timeout_ms.into())
    }

    /// The congestion controller.
    pub fn algorithm(&self) -> Algorithm {
        self.cold.controller.algorithm()
    }

    /// Ends the stream after what was written: FIN (RFC 9293 section 3.10.4). Receiving goes on. Idempotent.
    ///
    /// In SYN-SENT and SYN-RECEIVED it is queued "for processing after entering ESTABLISHED state".
    pub fn shutdown_send(&mut self) {
        if self.state == State::Closed || self.flags.any(Flags::FIN_QUEUED) {
            return;
        }
        self.flags.set(Flags::FIN_QUEUED);
        self.flags.clear(Flags::CORKED);
        self.enter_fin_states();
    }

    /// RFC 9293 section 3.10.4: "queue this until all preceding SENDs have been segmentized, then form a FIN segment
    /// and send it. In any case, enter FIN-WAIT-1 state"; from CLOSE-WAIT, LAST-ACK.
    pub(crate) fn enter_fin_states(&mut self) {
        match self.state {
            State::Established => self.state = State::FinWait1,
            State::CloseWait => self.state = State::LastAck,
            _ => {}
        }
    }

    /// The application is gone: [`Connection::shutdown_send`], and nobody is left to read. Data that still arrives is
    /// answered by a RST (RFC 1122 section 4.2.2.13), and FIN-WAIT-2 ends after a time.
    ///
    /// In SYN-SENT the connection is over at once (RFC 9293 section 3.10.4).
    pub fn close(&mut self) {
        if self.state == State::SynSent {
            self.enter_closed(CloseReason::Aborted);
            return;
        }
        self.shutdown_send();
        self.flags.set(Flags::ORPHAN);
        if self.state == State::FinWait2 {
            self.flags.set(Flags::FIN_WAIT_2_DUE);
        }
    }

    /// The connection is over now (RFC 9293 section 3.10.5). If the peer must hear it,
    /// [`Connection::poll_transmit`] gives one RST.
    pub fn abort(&mut self, now: Instant) {
        let _ = now;
        let must_reset = matches!(
            self.state,
            State::SynReceived
                | State::Established
                | State::FinWait1
                | State::FinWait2
                | State::CloseWait
        );
        self.enter_closed(CloseReason::Aborted);
        if must_reset {
            self.flags.set(Flags::RESET_DUE.or(Flags::RESET_OWN));
        }
    }
}
