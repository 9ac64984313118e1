//! One instance: who may wait, and how time passes.
//!
//! packetdrill has two threads. One goes through the script: it sleeps, injects packets and looks for those that left; time
//! passes in its calls. The other makes the calls that the script expects to block, one at a time. Such a call waits here until
//! the first thread has made it ready, and its end bears the instant at which that was so, however late its thread wakes.

use std::cell::Cell;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::ThreadId;
use std::time::Duration;

use sidecore_tcp::Instant;
use sidecore_testkit::sockets::{Errno, SentPacket};

use crate::world::{Waiter, World};

/// Where time begins: far enough from 0 for whatever subtracts.
const START: Instant = Instant::from_secs(1_000);
/// What a look at the clock costs, as packetdrill spins on it: virtual time would stand still otherwise.
const LOOK: Duration = Duration::from_micros(1);
/// How long the other thread is given, in real time, to take the result of a call that blocked.
const SETTLE: Duration = Duration::from_millis(5);
/// How long a packet is waited for that does not come, and a call that nothing makes ready.
const PATIENCE: Duration = Duration::from_secs(300);

thread_local! {
    /// When this thread's last call that blocked was done, until the thread has looked at the clock.
    static DONE_AT: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// An instance.
pub(crate) struct Drill {
    world: Mutex<World>,
    woken: Condvar,
    /// The thread that goes through the script.
    main: ThreadId,
    /// When virtual time began, if it is not virtual.
    real: Option<std::time::Instant>,
}

impl Drill {
    /// An instance with these flags.
    ///
    /// # Errors
    /// What is wrong with the flags.
    pub(crate) fn new(flags: &str) -> Result<Self, String> {
        let mut world = World::default();
        world.now = START;
        world.settings.set_flags(flags)?;
        let real = world.settings.real_time.then(std::time::Instant::now);
        Ok(Self {
            world: Mutex::new(world),
            woken: Condvar::new(),
            main: std::thread::current().id(),
            real,
        })
    }

    /// A call that panicked is answered with EIO; the next one finds the state that it left.
    fn lock(&self) -> MutexGuard<'_, World> {
        let mut world = self.world.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(now) = self.real_now() {
            world.advance(now);
        }
        world
    }

    fn real_now(&self) -> Option<Instant> {
        Some(START + self.real?.elapsed())
    }

    /// Something is done at once.
    pub(crate) fn with<R>(&self, act: impl FnOnce(&mut World) -> R) -> R {
        let mut world = self.lock();
        let answer = act(&mut world);
        world.happened();
        self.wake(world);
        answer
    }

    fn wake(&self, world: MutexGuard<'_, World>) {
        drop(world);
        self.woken.notify_all();
    }

    /// Something is tried until it succeeds, for `patience` at most (`None`: for ever).
    ///
    /// # Errors
    /// EAGAIN: it did not succeed in this time, or nothing is left that could let it.
    pub(crate) fn wait<R: Send + 'static>(
        &self,
        patience: Option<Duration>,
        mut attempt: impl FnMut(&mut World) -> Option<R> + Send + 'static,
    ) -> Result<R, Errno> {
        let mut world = self.lock();
        if let Some(answer) = attempt(&mut world) {
            world.happened();
            self.wake(world);
            return Ok(answer);
        }
        let until = patience.map(|patience| world.now + patience);
        if std::thread::current().id() == self.main {
            return self.drive(world, until, |world| attempt(world));
        }
        let kept = Arc::new(Mutex::new(None));
        let keep = Arc::clone(&kept);
        world.waiter = Some(Waiter {
            attempt: Box::new(move |world| {
                let answer = attempt(world);
                let done = answer.is_some();
                *keep.lock().unwrap_or_else(PoisonError::into_inner) = answer;
                done
            }),
            until,
            done: None,
        });
        let done = loop {
            world = self
                .woken
                .wait(world)
                .unwrap_or_else(PoisonError::into_inner);
            if let Some(done) = world.waiter.as_ref().and_then(|waiter| waiter.done) {
                break done;
            }
        };
        world.waiter = None;
        drop(world);
        DONE_AT.set(Some(done));
        let answer = kept.lock().unwrap_or_else(PoisonError::into_inner).take();
        answer.ok_or(Errno::EAGAIN)
    }

    /// The thread that makes time pass waits itself: timers are all that can help.
    fn drive<'a, R>(
        &'a self,
        mut world: MutexGuard<'a, World>,
        until: Option<Instant>,
        mut attempt: impl FnMut(&mut World) -> Option<R>,
    ) -> Result<R, Errno> {
        let last = until.unwrap_or(world.now + PATIENCE);
        let answer = loop {
            if let Some(answer) = attempt(&mut world) {
                break Ok(answer);
            }
            if world.now >= last {
                break Err(Errno::EAGAIN);
            }
            let next = world.next().unwrap_or(last).min(last);
            world = self.sleep(world, next);
        };
        self.wake(world);
        answer
    }

    /// Time passes until `until`.
    fn sleep<'a>(
        &'a self,
        mut world: MutexGuard<'a, World>,
        until: Instant,
    ) -> MutexGuard<'a, World> {
        if self.real.is_some() {
            let nap = until.duration_since(world.now);
            drop(world);
            self.woken.notify_all();
            std::thread::sleep(nap);
            return self.lock();
        }
        world.advance(until);
        world
    }

    /// packetdrill's `usleep`.
    pub(crate) fn usleep(&self, time: Duration) {
        let mut world = self.lock();
        let until = world.now + time;
        while world.now < until {
            let next = world.next().unwrap_or(until).clamp(world.now, until);
            world = self.sleep(world, next);
        }
        let settles = world
            .waiter
            .as_ref()
            .is_some_and(|waiter| waiter.done.is_some());
        self.wake(world);
        if settles {
            // The other thread has something to tell packetdrill, which it can while this one sleeps.
            std::thread::sleep(SETTLE);
        }
    }

    /// packetdrill's clock.
    pub(crate) fn time(&self) -> Instant {
        if let Some(done) = DONE_AT.take() {
            return done;
        }
        let mut world = self.lock();
        if self.real.is_none() {
            let now = world.now + LOOK;
            world.advance(now);
        }
        let now = world.now;
        self.wake(world);
        now
    }

    /// The next packet that leaves; `None`: none does.
    pub(crate) fn packet(&self) -> Option<SentPacket> {
        let world = self.lock();
        let until = world.now + PATIENCE;
        self.drive(world, Some(until), World::take_packet).ok()
    }
}
