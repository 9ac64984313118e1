//! What the engine does when there is nothing to do.
//!
//! Sleeping is announced to every UAL before the last look at the queues, so that whoever posts afterwards rings (the protocol
//! is in `sidecore_abi::control`). The engine then waits for the device, the UALs' wake sockets, the agent's, or the next timer.

use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant as SystemInstant};

use rustix::event::epoll;
use sidecore_nic::{AnyNic, Nic};
use sidecore_sys::wake::Sleeper;
use sidecore_tcp::Instant;

use crate::config::IdlePolicy;
use crate::engine::Engine;
use crate::mailbox::Inbox;

/// State of the idle policy.
pub(crate) struct Idle {
    policy: IdlePolicy,
    spin: Duration,
    since: Option<SystemInstant>,
    epoll: OwnedFd,
}

impl Idle {
    pub(crate) fn new(
        policy: IdlePolicy,
        spin: Duration,
        nic: &AnyNic,
        inbox: &Inbox,
    ) -> std::io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let idle = Self {
            policy,
            spin,
            since: None,
            epoll,
        };
        if let Some(fd) = nic.sleep_fd() {
            idle.add(fd)?;
        }
        idle.add(inbox.sleeper.as_fd())?;
        Ok(idle)
    }

    fn add(&self, fd: impl AsFd) -> std::io::Result<()> {
        Ok(epoll::add(
            &self.epoll,
            fd,
            epoll::EventData::new_u64(0),
            epoll::EventFlags::IN,
        )?)
    }

    /// The policy.
    pub(crate) fn policy(&self) -> IdlePolicy {
        self.policy
    }

    /// A UAL's wake socket ends sleeps from now on.
    pub(crate) fn watch(&self, sleeper: &Sleeper) {
        if let Err(error) = self.add(sleeper.as_fd()) {
            tracing::warn!(%error, "cannot watch a wake socket: its application may wait for the engine's next timer");
        }
    }

    /// … and no longer.
    pub(crate) fn unwatch(&self, sleeper: &Sleeper) {
        let _ = epoll::delete(&self.epoll, sleeper.as_fd());
    }

    /// Something was done: the spinning begins anew when that ends.
    #[inline]
    pub(crate) fn was_productive(&mut self) {
        self.since = None;
    }

    /// Whether it has been idle for long enough.
    fn is_tired(&mut self) -> bool {
        let since = *self.since.get_or_insert_with(SystemInstant::now);
        since.elapsed() >= self.spin
    }

    fn wait(&self, timeout: Option<Duration>) {
        let timeout = timeout.map(|t| rustix::event::Timespec {
            tv_sec: t.as_secs() as _,
            tv_nsec: t.subsec_nanos() as _,
        });
        let mut events = [const { std::mem::MaybeUninit::uninit() }; 16];
        let _ = epoll::wait(&self.epoll, &mut events, timeout.as_ref());
    }
}

impl Engine {
    /// An idle turn under `adaptive`: spins on, or sleeps until something happens.
    pub(crate) fn rest(&mut self) {
        if !self.idle.is_tired() {
            return std::hint::spin_loop();
        }
        let begun = sidecore_sys::clock::cycles();
        if self.announce_sleep() && self.nic.prepare_sleep() {
            let now = Instant::from_nanos(self.clock.nanos());
            self.idle.wait(self.sleep_limit(now));
            self.counters.sleeps += 1;
        }
        self.nic.awake();
        self.end_sleep();
        self.idle.was_productive();
        self.counters.sleep_cycles += sidecore_sys::clock::cycles().wrapping_sub(begun);
    }

    /// Tells all UALs; false when one of them has posted something meanwhile.
    fn announce_sleep(&mut self) -> bool {
        for ual in self.tables.uals.iter_mut().flatten() {
            ual.control.announce_sleep();
        }
        std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
        let quiet = !self.inbox.may_have_mail()
            && self
                .tables
                .uals
                .iter_mut()
                .flatten()
                .all(|ual| ual.is_quiet());
        quiet
            && self.loopback.len() == 0
            && !self.stack.has_work()
            && self.tables.dirty.is_empty()
            && self.tables.datagram_senders.is_empty()
    }

    fn end_sleep(&mut self) {
        for ual in self.tables.uals.iter_mut().flatten() {
            ual.control.announce_awake();
            ual.sleeper.drain();
        }
        self.inbox.sleeper.drain();
    }

    /// The sleep ends at the next timer, or in time for chores that are due while something is unfinished.
    fn sleep_limit(&self, now: Instant) -> Option<Duration> {
        let backlog = self
            .tables
            .uals
            .iter()
            .flatten()
            .any(|ual| ual.has_backlog() || (ual.gone && ual.dtis == 0));
        let mut limit = self.stack.next_timeout().map(|at| at.duration_since(now));
        if backlog || self.stopping.is_some() || self.captures.active() {
            // Full event queues are looked at again soon: applications do not ring when they have read.
            limit = Some(limit.unwrap_or(Duration::MAX).min(Duration::from_millis(1)));
        }
        if let Some(at) = self.nic.next_arrival_ns() {
            let arrival =
                Duration::from_nanos(at.saturating_sub(sidecore_sys::clock::monotonic_ns()));
            limit = Some(limit.unwrap_or(Duration::MAX).min(arrival));
        }
        limit
    }
}
