//! What the engine does when there is nothing to do: polls on, sleeps, or naps while frames come fast ([`moderation`]).
//!
//! Sleeping is announced to every UAL before the last look at the queues, so that whoever posts afterwards rings (the protocol
//! is in `sidecore_abi::control`). The engine then waits for the device, the UALs' wake sockets, the agent's, or the next timer.

mod moderation;
mod spin;

use std::num::NonZeroU64;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::time::Duration;

use rustix::event::epoll;
use sidecore_nic::{AnyNic, Nic};
use sidecore_sys::wake::Sleeper;
use sidecore_tcp::Instant;

use crate::config::{EngineConfig, IdlePolicy};
use crate::engine::Engine;
use crate::mailbox::Inbox;
use moderation::Moderation;
use spin::Spin;

/// How late a nap may end, in nanoseconds. By default the kernel gathers timers within 50 µs, which doubles a nap.
const TIMER_SLACK: NonZeroU64 = NonZeroU64::new(1_000).expect("not zero");

/// State of the idle policy.
pub(crate) struct Idle {
    policy: IdlePolicy,
    spin: Spin,
    moderation: Moderation,
    /// Timers of this thread are exact ([`TIMER_SLACK`]).
    exact: bool,
    /// An application was woken, which may be waiting for this core.
    has_woken: bool,
    epoll: OwnedFd,
}

impl Idle {
    pub(crate) fn new(config: &EngineConfig, nic: &AnyNic, inbox: &Inbox) -> std::io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let idle = Self {
            policy: config.idle,
            spin: Spin::new(config.spin.as_nanos() as u64),
            moderation: Moderation::new(config.nap),
            exact: false,
            has_woken: false,
            epoll,
        };
        if let Some(fd) = nic.sleep_fd() {
            idle.add(fd)?;
        }
        idle.add(inbox.sleeper.as_fd())?;
        Ok(idle)
    }

    fn add(&self, fd: impl AsFd) -> std::io::Result<()> {
        let fd = fd.as_fd();
        let data = epoll::EventData::new_u64(fd.as_raw_fd() as u64);
        Ok(epoll::add(&self.epoll, fd, data, epoll::EventFlags::IN)?)
    }

    /// Whether the device is not to be looked at yet.
    #[inline]
    pub(crate) fn holds_back(&self, now: Instant) -> bool {
        self.moderation.holds_back(now.as_nanos())
    }

    /// A turn took so many frames from the device.
    #[inline]
    pub(crate) fn received(&mut self, now: Instant, frames: usize) {
        self.moderation.received(now.as_nanos(), frames);
    }

    /// An application was woken: before the engine naps it is let run, and its answers are sent.
    pub(crate) fn has_woken(&mut self) {
        self.has_woken = true;
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

    /// Something was done.
    #[inline]
    pub(crate) fn was_productive(&mut self, now: Instant) {
        self.spin.end_gap(now.as_nanos());
    }

    /// Sleeps; says what ended it.
    fn wait(&self, timeout: Option<Duration>) -> Rung {
        let timeout = timeout.map(timespec);
        let mut events = [const { std::mem::MaybeUninit::uninit() }; RUNG_MAX];
        let mut rung = Rung::NOTHING;
        if let Ok((events, _)) = epoll::wait(&self.epoll, &mut events, timeout.as_ref()) {
            for (place, event) in rung.fds.iter_mut().zip(events.iter()) {
                *place = event.data.u64() as RawFd;
                rung.count += 1;
            }
        }
        rung
    }
}

/// Descriptors that a sleep tells of at most.
const RUNG_MAX: usize = 16;

/// What ended a sleep: of the others nothing need be read, at a system call each. A byte that comes too late to be told of ends the next sleep.
struct Rung {
    fds: [RawFd; RUNG_MAX],
    count: usize,
}

impl Rung {
    const NOTHING: Self = Self {
        fds: [-1; RUNG_MAX],
        count: 0,
    };
    /// It is not known.
    const ANY: Self = Self {
        count: RUNG_MAX,
        ..Self::NOTHING
    };

    /// Whether this one may have.
    fn may_be(&self, fd: impl AsFd) -> bool {
        self.count == RUNG_MAX || self.fds.contains(&fd.as_fd().as_raw_fd())
    }
}

fn timespec(time: Duration) -> rustix::event::Timespec {
    rustix::event::Timespec {
        tv_sec: time.as_secs() as _,
        tv_nsec: time.subsec_nanos() as _,
    }
}

impl Engine {
    /// For who drives the turns: to be called after a turn that returned [`Turn::Idle`](crate::Turn::Idle), when the caller has nothing to do
    /// either. Under `poll` it returns at once. Under `adaptive` it may block: until a frame, a command or a timer, or for a nap
    /// ([`EngineConfig::nap`]). A caller that serves event queues in this thread has looked at them before.
    pub fn rest(&mut self) {
        if self.idle.policy == IdlePolicy::Poll {
            return std::hint::spin_loop();
        }
        let now = self.clock.nanos();
        if let Some(nap) = self.idle.moderation.nap(now, self.counters.frames_in) {
            self.idle.spin.forget_gap();
            if std::mem::take(&mut self.idle.has_woken) {
                return rustix::thread::sched_yield();
            }
            return self.nap(Instant::from_nanos(now), nap);
        }
        if self.idle.spin.goes_on(now) {
            return std::hint::spin_loop();
        }
        let begun = sidecore_sys::clock::cycles();
        let mut rung = Rung::ANY;
        if self.announce_sleep() && self.nic.prepare_sleep() {
            let now = Instant::from_nanos(self.clock.nanos());
            rung = self.idle.wait(self.sleep_limit(now));
            self.counters.sleeps += 1;
        }
        self.nic.awake();
        self.end_sleep(&rung);
        self.counters.sleep_cycles += sidecore_sys::clock::cycles().wrapping_sub(begun);
    }

    /// Sleeps for so long, or until the next timer, whatever comes. Nobody is told: what is posted meanwhile waits for the nap's end, and
    /// costs no system call to ring for.
    fn nap(&mut self, now: Instant, nap: Duration) {
        if !self.idle.exact {
            self.idle.exact = true;
            let _ = rustix::thread::set_current_timer_slack(Some(TIMER_SLACK));
        }
        let nap = self.sleep_limit(now).map_or(nap, |limit| limit.min(nap));
        let begun = sidecore_sys::clock::cycles();
        let _ = rustix::thread::nanosleep(&timespec(nap));
        self.counters.naps += 1;
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

    fn end_sleep(&mut self, rung: &Rung) {
        for ual in self.tables.uals.iter_mut().flatten() {
            ual.control.announce_awake();
            if rung.may_be(&ual.sleeper) {
                ual.sleeper.drain();
            }
        }
        if rung.may_be(&self.inbox.sleeper) {
            self.inbox.sleeper.drain();
        }
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
