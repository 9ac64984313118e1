//! Timers: retransmission (RFC 6298), persist (RFC 9293 section 3.8.6.1), delayed ACK, cork, keepalive, FIN-WAIT-2, TIME-WAIT.
//!
//! Retransmission and persist share one deadline, as never both run; so do keepalive, FIN-WAIT-2 and TIME-WAIT.

use crate::Connection;
use crate::flags::Flags;
use crate::range_pool::RangePool;
use crate::time::Instant;
use crate::tlp::{GRANULARITY_US, MAX_ACK_DELAY_US};
use crate::types::{CloseReason, State, TimeoutOutcome};

/// Retransmissions and probes of a connection that no application holds any more (Linux: tcp_orphan_retries).
const ORPHAN_ATTEMPTS: u8 = 8;

impl Connection {
    /// When [`Connection::handle_timeout`] must be called at the latest; `None`: no timer runs. Cheap. May be earlier than
    /// necessary, and then nothing happens but that it is later the next time.
    #[inline]
    pub fn next_timeout(&self) -> Option<Instant> {
        let mut next = self.retransmit_at.min(self.ack_at).min(self.idle_at);
        if self.flags.any(Flags::CORKED.or(Flags::PACED)) {
            next = next.min(self.next_rare_timeout());
        }
        (next != Instant::NEVER).then_some(next)
    }

    #[cold]
    fn next_rare_timeout(&self) -> Instant {
        let corked = self.flags.any(Flags::CORKED);
        let cork_at = if corked {
            self.cold.cork_at
        } else {
            Instant::NEVER
        };
        cork_at.min(self.pacing_due())
    }

    /// Time has passed: whatever is due by `now` happens. Call [`Connection::poll_transmit`] after it.
    pub fn handle_timeout(&mut self, now: Instant, ranges: &mut RangePool) -> TimeoutOutcome {
        let mut closed = None;
        if self.ack_at <= now {
            self.ack_at = Instant::NEVER;
            self.flags.set(Flags::ACK_NOW);
        }
        if self.flags.any(Flags::CORKED) && self.cold.cork_at <= now {
            self.flags.clear(Flags::CORKED);
            self.flags.set(Flags::FLUSH);
        }
        if self.flags.any(Flags::PACED) {
            self.pacing_timeout(now);
        }
        if self.retransmit_at <= now {
            closed = self.retransmit_timeout(now, ranges);
        }
        if self.idle_at <= now && closed.is_none() {
            closed = self.idle_timeout(now);
        }
        TimeoutOutcome { closed }
    }

    fn retransmit_timeout(&mut self, now: Instant, ranges: &mut RangePool) -> Option<CloseReason> {
        match self.state {
            State::Closed | State::Listen | State::TimeWait => {
                self.retransmit_at = Instant::NEVER;
                None
            }
            State::SynSent | State::SynReceived => self.syn_timeout(),
            _ if self.flags.any(Flags::PROBING) => self.persist_timeout(now),
            _ if self.outstanding() > 0 => self.data_timeout(now, ranges),
            _ => {
                self.ecn_release();
                self.retransmit_at = Instant::NEVER;
                None
            }
        }
    }

    /// The SYN or SYN-ACK was not answered.
    fn syn_timeout(&mut self) -> Option<CloseReason> {
        if self.cold.attempts >= self.cold.settings.syn_retries {
            return Some(self.give_up());
        }
        self.cold.attempts += 1;
        self.cold.counters.timeouts = self.cold.counters.timeouts.wrapping_add(1);
        self.cold.counters.retransmissions = self.cold.counters.retransmissions.wrapping_add(1);
        self.back_off();
        self.fast_open_gives_up();
        self.retransmit_at = Instant::NEVER;
        self.flags.set(Flags::SYN_DUE);
        None
    }

    /// Starts the retransmission timer (RFC 6298 section 5), or what may come before it.
    #[inline]
    pub(crate) fn arm_retransmission(&mut self, now: Instant) {
        if self.outstanding() <= u32::from(self.mss) {
            return self.arm_for_one(now);
        }
        if self.may_probe_tail() {
            // None was measured: 0.
            let round_trips = self.rtt.srtt_x8 / 4;
            if round_trips > 0 {
                let delay_us = self.rto_us.min(round_trips + GRANULARITY_US);
                self.rto_after_us = self.rto_us - delay_us;
                self.retransmit_at = now.after_micros(delay_us);
                return;
            }
        }
        self.arm_rarely(now);
    }

    /// One segment is out at most: with a timeout that is no longer than an ACK may be delayed, nothing can come before it.
    #[inline]
    fn arm_for_one(&mut self, now: Instant) {
        if self.rto_us > MAX_ACK_DELAY_US {
            return self.arm_rarely(now);
        }
        self.rto_after_us = 0;
        self.retransmit_at = now.after_micros(self.rto_us);
    }

    /// Long timeouts, timeouts before a round trip was measured, and the reordering timer.
    #[cold]
    #[inline(never)]
    fn arm_rarely(&mut self, now: Instant) {
        let more_than_one = self.outstanding() > u32::from(self.mss);
        let mut delay_us = self.rto_us;
        self.rto_after_us = 0;
        if self.may_probe_tail() {
            delay_us = delay_us.min(self.probe_timeout_us(more_than_one));
            self.rto_after_us = self.rto_us - delay_us;
        }
        self.retransmit_at = now.after_micros(delay_us);
        if self.flags.any(Flags::LOSSY) {
            self.hasten(self.cold.rack.due);
        }
    }

    /// The timer is the retransmission timer: puts before it the reordering timer, or a tail loss probe (RFC 8985 section 8:
    /// they take turns on one timer).
    #[inline(never)]
    fn hasten(&mut self, earlier: Instant) {
        if earlier < self.retransmit_at {
            let left = self.retransmit_at.micros_since(earlier, u32::MAX);
            self.rto_after_us = left;
            self.retransmit_at = earlier;
        }
    }

    /// When the retransmission timer proper fires.
    fn rto_at(&self) -> Instant {
        self.retransmit_at.after_micros(self.rto_after_us)
    }

    /// What may come before the retransmission timer has changed; that has not.
    #[inline(never)]
    pub(crate) fn rearm_earlier(&mut self, now: Instant) {
        if self.retransmit_at == Instant::NEVER || self.flags.any(Flags::PROBING) {
            return;
        }
        self.retransmit_at = self.rto_at();
        self.rto_after_us = 0;
        if self.flags.any(Flags::LOSSY) {
            self.hasten(self.cold.rack.due);
        } else if self.may_probe_tail() {
            let more_than_one = self.outstanding() > u32::from(self.mss);
            self.hasten(now.after_micros(self.probe_timeout_us(more_than_one)));
        }
    }

    /// More data goes out while a timer runs: a probe is due two round trips after the last segment (RFC 8985 section 7.2).
    #[inline]
    pub(crate) fn postpone_probe(&mut self, now: Instant) {
        if self.outstanding() <= u32::from(self.mss) {
            return;
        }
        let round_trips = u64::from(self.rtt.srtt_x8) * 250;
        let soon = self.retransmit_at.as_nanos() < now.as_nanos() + round_trips;
        if soon || self.rto_after_us == 0 {
            self.rearm_earlier(now);
        }
    }

    /// An ACK was taken up outside of header prediction.
    pub(crate) fn rearm_after_ack(&mut self, now: Instant, acked: u32) {
        if self.outstanding() == 0 || self.flags.any(Flags::PROBING) {
            return;
        }
        if acked > 0 {
            // Rule 5.3 again: what may come before it was not known.
            self.arm_retransmission(now);
        } else if self.flags.any(Flags::LOSSY) {
            self.rearm_earlier(now);
        }
    }

    /// The reordering timer, a probe, or the retransmission timer?
    fn data_timeout(&mut self, now: Instant, ranges: &mut RangePool) -> Option<CloseReason> {
        let rto_at = self.rto_at();
        if now < rto_at && self.flags.any(Flags::LOSSY) {
            if self.cold.rack.due <= now {
                self.reordering_timeout(now, ranges);
            }
            self.rearm_earlier(now);
            return None;
        }
        if self.may_probe_tail() {
            // If this is when the retransmission timer would fire: "PTO = TCP_RTO_expiration() - Now()".
            self.cold.tlp.due = true;
            self.flags.set(Flags::PROBE_DUE);
            self.retransmit_at = now.after_micros(self.rto_us);
            self.rto_after_us = 0;
            return None;
        }
        if now < rto_at {
            self.retransmit_at = rto_at;
            self.rto_after_us = 0;
            return None;
        }
        self.rto_timeout(now, ranges)
    }

    /// Rules 5.4 to 5.6 of RFC 6298; R2 of RFC 9293 section 3.8.3.
    fn rto_timeout(&mut self, now: Instant, ranges: &mut RangePool) -> Option<CloseReason> {
        if self.cold.attempts == 0 {
            // What timed out was sent (or its timer restarted) one timeout ago.
            let ago = core::time::Duration::from_micros(self.rto_us.into());
            self.cold.unanswered_since = now - ago;
        }
        if self.snd_wnd == 0 {
            // The peer has taken its window back ("strongly discouraged", RFC 9293 section 3.8.6): as with zero-window probes,
            // what counts is that it answers (MUST-37).
            self.cold.unanswered_since = self.cold.unanswered_since.max(self.last_received);
        }
        if self.unanswered_too_long(now) {
            return Some(self.give_up());
        }
        self.cold.attempts = self.cold.attempts.saturating_add(1);
        self.cold.counters.timeouts = self.cold.counters.timeouts.wrapping_add(1);
        self.flags.set(Flags::BACKED_OFF);
        // "The host MUST set RTO <- RTO * 2 ('back off the timer')."
        self.back_off();
        self.path_timeout(now);
        self.enter_loss(now, ranges);
        self.retransmit_at = self.bounded_by_user_timeout(now, self.rto_us);
        self.rto_after_us = 0;
        None
    }

    /// "The retransmission timer … MUST be bounded": doubles RTO up to its bound.
    fn back_off(&mut self) {
        self.rto_us = self.rto_us.saturating_mul(2).min(self.max_rto_us);
    }

    fn unanswered_too_long(&self, now: Instant) -> bool {
        let orphan = self.flags.any(Flags::ORPHAN) && self.cold.attempts >= ORPHAN_ATTEMPTS;
        let silent = now.millis_since(self.cold.unanswered_since);
        orphan || silent >= u64::from(self.cold.settings.user_timeout_ms)
    }

    /// The next attempt, but not later than the user timeout.
    fn bounded_by_user_timeout(&self, now: Instant, delay_us: u32) -> Instant {
        let limit = self.user_limit();
        let next = now.after_micros(delay_us);
        if limit > now { next.min(limit) } else { next }
    }

    /// No retransmission timeout is longer than the user timeout: the timer that runs out first is then never too late to say so, and the usual
    /// case, in which it is restarted with each ACK, has nothing to look at.
    pub(crate) fn bound_rto(&mut self) {
        let kept = self.cold.seldom.as_deref();
        let configured = match kept.map_or(0, |seldom| seldom.max_rto_us) {
            0 => self.max_rto_us,
            kept => kept,
        };
        let user_us = self.cold.settings.user_timeout_ms.saturating_mul(1000);
        if user_us < configured {
            self.seldom().max_rto_us = configured;
        }
        self.max_rto_us = configured.min(user_us);
        self.rto_us = self.rto_us.min(self.max_rto_us);
    }

    /// The user timeout has changed, perhaps while data is out.
    pub(crate) fn bound_by_user_timeout(&mut self) {
        if !self.state.is_synchronized() {
            return;
        }
        let before = self.rto_us;
        self.bound_rto();
        if self.retransmit_at == Instant::NEVER {
            return;
        }
        let limit = if self.cold.attempts > 0 {
            self.user_limit()
        } else {
            // It was started one timeout, as that was then, before its end.
            let shorter = core::time::Duration::from_micros((before - self.rto_us).into());
            self.rto_at() - shorter
        };
        self.end_timer_by(limit);
    }

    /// When the user timeout is over, where something went unanswered before.
    fn user_limit(&self) -> Instant {
        let timeout = self.cold.settings.user_timeout_ms;
        self.cold.unanswered_since.after_millis(timeout)
    }

    /// The retransmission or persist timer ends no later than then; what comes before it stays.
    fn end_timer_by(&mut self, limit: Instant) {
        if self.retransmit_at >= limit {
            self.retransmit_at = limit;
            self.rto_after_us = 0;
        } else if self.rto_at() > limit {
            self.rto_after_us = limit.micros_since(self.retransmit_at, u32::MAX);
        }
    }

    /// The timer was started again for what is sent again: that is no answer.
    pub(crate) fn arm_again(&mut self, now: Instant) {
        self.arm_retransmission(now);
        if self.cold.attempts > 0 {
            let limit = self.user_limit();
            if limit > now {
                self.end_timer_by(limit);
            }
        }
    }

    fn give_up(&mut self) -> CloseReason {
        let reason = if self.cold.soft_error {
            CloseReason::Unreachable
        } else {
            CloseReason::TimedOut
        };
        self.enter_closed(reason)
    }

    /// Data waits, nothing is in flight, and the peer's window is (as good as) closed: the persist timer must run, or a
    /// lost window update would stop the connection for ever (RFC 9293 section 3.8.6.1, MUST-36).
    pub(crate) fn enter_persist(&mut self, now: Instant) {
        if self.retransmit_at != Instant::NEVER || self.outstanding() > 0 {
            return;
        }
        self.flags.set(Flags::PROBING);
        self.cold.attempts = 0;
        self.cold.probe_backoff = 0;
        self.cold.unanswered_since = now;
        // "SHOULD send the first zero-window probe when a zero window has existed for the retransmission timeout period"
        self.retransmit_at = now.after_micros(self.rto_us);
    }

    /// An ACK came: if the window has opened, the persist timer has done its work.
    pub(crate) fn leave_persist(&mut self, now: Instant) {
        if !self.flags.any(Flags::PROBING) {
            return;
        }
        self.cold.unanswered_since = now;
        let open = self.snd_wnd >= u32::from(self.mss).min((self.max_snd_wnd / 2).max(1));
        if open || self.outstanding() > 0 {
            self.flags.clear(Flags::PROBING.or(Flags::PROBE_DUE));
            self.cold.attempts = 0;
            self.retransmit_at = Instant::NEVER;
            if self.outstanding() > 0 {
                self.arm_retransmission(now);
            }
        }
    }

    /// The persist timer fired. As long as probes are answered, the connection stays (MUST-37); without an application that
    /// holds it, not for ever.
    fn persist_timeout(&mut self, now: Instant) -> Option<CloseReason> {
        if self.cold.attempts == 0 && !self.flags.any(Flags::ORPHAN) {
            self.cold.unanswered_since = now;
        }
        // Linux, too, counts the probes of an orphan whether they are answered or not.
        let orphan = self.flags.any(Flags::ORPHAN) && self.cold.probe_backoff >= ORPHAN_ATTEMPTS;
        if orphan || self.unanswered_too_long(now) {
            if orphan {
                self.flags.set(Flags::RESET_DUE.or(Flags::RESET_OWN));
            }
            return Some(self.give_up());
        }
        self.cold.attempts = self.cold.attempts.saturating_add(1);
        // "SHOULD increase exponentially the interval between successive probes" (RFC 9293 section 3.8.6.1).
        self.cold.probe_backoff = (self.cold.probe_backoff + 1).min(16);
        let delay = (u64::from(self.rto_us) << self.cold.probe_backoff).min(self.max_rto_us.into());
        self.retransmit_at = self.bounded_by_user_timeout(now, delay as u32);
        if self.snd_wnd > 0 && self.snd_nxt < self.send_limit {
            // The override timeout of silly window avoidance: what fits goes out (RFC 9293 section 3.8.6.2.1). That is no probe, and whether it is
            // answered its own timer will say.
            self.flags.set(Flags::FLUSH);
            self.flags.clear(Flags::PROBING);
            self.cold.attempts = 0;
            self.retransmit_at = Instant::NEVER;
        } else {
            self.flags.set(Flags::PROBE_DUE);
        }
        None
    }

    fn idle_timeout(&mut self, now: Instant) -> Option<CloseReason> {
        let scheduled = core::mem::replace(&mut self.idle_at, Instant::NEVER);
        match self.state {
            // "the time-wait timeout expires … delete the TCB, enter the CLOSED state"
            State::TimeWait => Some(self.enter_closed(CloseReason::Normal)),
            State::FinWait2 if self.flags.any(Flags::ORPHAN) => {
                Some(self.enter_closed(CloseReason::TimedOut))
            }
            state if state.is_synchronized() => self.keepalive_timeout(now, scheduled),
            _ => None,
        }
    }

    /// RFC 9293 section 3.8.4.
    fn keepalive_timeout(&mut self, now: Instant, scheduled: Instant) -> Option<CloseReason> {
        let settings = self.cold.settings;
        if settings.keepalive_probes == 0 {
            return None;
        }
        let answer_due = self
            .last_received
            .after_millis(settings.keepalive_interval_ms);
        if answer_due >= scheduled {
            // Something came since the last probe. The interval may well be longer than the idle time.
            self.cold.keepalive_probes = 0;
        }
        let due = self.last_received.after_millis(settings.keepalive_idle_ms);
        if due > now {
            // Something came since the timer was set.
            self.cold.keepalive_probes = 0;
            self.idle_at = due;
            return None;
        }
        if self.outstanding() > 0 || self.snd_nxt < self.send_limit {
            // Retransmissions and window probes find out by themselves.
            self.idle_at = now.after_millis(settings.keepalive_idle_ms);
            return None;
        }
        if self.cold.keepalive_probes >= settings.keepalive_probes {
            self.flags.set(Flags::RESET_DUE.or(Flags::RESET_OWN));
            return Some(self.give_up());
        }
        self.cold.keepalive_probes += 1;
        self.flags.set(Flags::PROBE_DUE);
        self.idle_at = now.after_millis(settings.keepalive_interval_ms);
        None
    }

    /// Starts the keepalive timer, or stops it.
    pub(crate) fn arm_keepalive(&mut self) {
        let settings = &self.cold.settings;
        self.idle_at = if settings.keepalive_probes == 0 {
            Instant::NEVER
        } else {
            self.last_received.after_millis(settings.keepalive_idle_ms)
        };
    }

    pub(crate) fn arm_fin_wait_2(&mut self, now: Instant) {
        self.flags.clear(Flags::FIN_WAIT_2_DUE);
        if self.state == State::FinWait2 {
            self.idle_at = now.after_millis(self.cold.settings.fin_wait_2_ms);
        }
    }

    /// "Start the time-wait timer, turn off the other timers."
    pub(crate) fn enter_time_wait(&mut self, now: Instant) {
        self.state = State::TimeWait;
        self.retransmit_at = Instant::NEVER;
        self.flags.clear(Flags::PROBE_DUE.or(Flags::PROBING));
        self.restart_time_wait(now);
    }

    pub(crate) fn restart_time_wait(&mut self, now: Instant) {
        self.idle_at = now.after_millis(self.cold.settings.time_wait_ms);
    }
}
