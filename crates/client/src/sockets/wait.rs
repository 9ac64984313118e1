//! Who looks at the event queue.
//!
//! All sockets of a group share one event queue, and many threads may wait for their own socket. Whoever waits and finds nobody
//! looking becomes the *leader*: sleeps on the queue and hands out what comes. The others sleep each on its own. A leader
//! that got what it waited for passes the lead on to one of them.
//!
//! ```text
//!   leader    lock the queue … turn … unlock, then wake one follower
//!   follower  enlist, try the lock once more, sleep
//! ```
//!
//! A follower enlists before its last look at the lock, a leader lets go of the lock before it looks at the list: so either
//! the follower gets the lock or the leader sees the follower.
//!
//! Who only takes what is there (a *glance*, which does not sleep) finds the lock free when nobody is on the list, or when one of the list was
//! chosen and is on its way. So it need choose nobody, unless somebody found the lock taken because of it: then there is one on the list, and none
//! on the way. A server's threads glance at every turn; if each of them woke a thread, they would do little else.
//!
//! Wakers of a thread find it wherever it sleeps, on its own or on the queue, and whoever wakes it: another thread of the group, or what a future
//! waits for beside its sockets.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::pin::pin;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use sidecore_sys::futex::{futex_wait, futex_wait_interruptible, futex_wake};

use super::group::{Group, Queue, lock};
use crate::EvqId;
use crate::evq::Waited;
use crate::ual::Inner;

/// States of a [`Parker`]: nobody called its thread.
const AWAKE: u32 = 0;
/// Somebody called.
const WOKEN: u32 = 1;
/// The thread sleeps on the state itself, or is about to.
const PARKED: u32 = 2;
/// It sleeps on the event queue, or is about to.
const LEADING: u32 = 3;

/// Wakes a thread that waits for sockets of one group.
struct Parker {
    /// As above. The thread itself goes from AWAKE to a sleep and back; anybody goes to WOKEN.
    state: AtomicU32,
    /// The group's number.
    group: u64,
    ual: Weak<Inner>,
    evq: EvqId,
}

impl Wake for Parker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        match self.state.swap(WOKEN, Ordering::AcqRel) {
            PARKED => drop(futex_wake(&self.state, 1)),
            LEADING => {
                if let Some(ual) = self.ual.upgrade() {
                    ual.call(self.evq);
                }
            }
            _ => {}
        }
    }
}

impl Parker {
    fn is_woken(&self) -> bool {
        self.state.load(Ordering::Acquire) == WOKEN
    }

    /// The thread says how it is about to sleep; false: it was called, and must not.
    fn lie_down(&self, how: u32) -> bool {
        self.state
            .compare_exchange(AWAKE, how, Ordering::AcqRel, Ordering::Acquire)
            .is_ok()
    }

    /// It does not sleep any more.
    fn rise(&self, how: u32) {
        // Called meanwhile: that stays.
        let _ = self
            .state
            .compare_exchange(how, AWAKE, Ordering::Relaxed, Ordering::Relaxed);
    }

    fn take(&self) {
        self.state.store(AWAKE, Ordering::Relaxed);
        // What was written before the wake that is taken here is seen by what is looked at next.
        std::sync::atomic::fence(Ordering::SeqCst);
    }
}

thread_local! {
    /// Of the group that this thread waited for last, while it does not.
    static PARKER: RefCell<Option<Arc<Parker>>> = const { RefCell::new(None) };
}

/// The parker of this thread while it waits. One that waits within a wait, as a signal handler may, gets another, and so does one that is ending.
struct Lent(Arc<Parker>);

impl Lent {
    fn of(group: &Group) -> Self {
        let kept = PARKER.try_with(|kept| kept.try_borrow_mut().ok()?.take());
        let kept = kept.ok().flatten();
        Self(
            kept.filter(|parker| parker.group == group.number)
                .unwrap_or_else(|| {
                    Arc::new(Parker {
                        state: AtomicU32::new(AWAKE),
                        group: group.number,
                        ual: Arc::downgrade(group.ual.inner()),
                        evq: group.evq,
                    })
                }),
        )
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        let _ = PARKER.try_with(|kept| {
            if let Ok(mut kept) = kept.try_borrow_mut() {
                *kept = Some(Arc::clone(&self.0));
            }
        });
    }
}

/// Threads that would lead if nobody did.
#[derive(Default)]
pub(crate) struct Followers {
    list: Mutex<(u64, VecDeque<(u64, Waker)>)>,
    /// How many are on the list, and [`CHOSEN`] times how many were taken from it to lead and have not come yet. Only ever exchanged.
    count: AtomicU64,
}

/// One that was chosen, in [`Followers::count`].
const CHOSEN: u64 = 1 << 32;

impl Followers {
    fn lock(&self) -> MutexGuard<'_, (u64, VecDeque<(u64, Waker)>)> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn enlist(&self, waker: Waker) -> u64 {
        let mut list = self.lock();
        list.0 += 1;
        let id = list.0;
        list.1.push_back((id, waker));
        // Before the last look at the lock: see `glanced`.
        self.count.fetch_add(1, Ordering::AcqRel);
        id
    }

    /// To be called after a glance let go of the lock.
    pub(crate) fn glanced(&self) {
        // An exchange, as the other side's is: either this one sees who is on the list, or that side's look at the lock comes after its release.
        let count = self.count.fetch_add(0, Ordering::AcqRel);
        if count != 0 && count < CHOSEN {
            self.hand_over();
        }
    }

    /// Whether it was still there: else it was chosen to lead, and has come.
    fn leave(&self, id: u64) -> bool {
        let mut list = self.lock();
        let before = list.1.len();
        list.1.retain(|(other, _)| *other != id);
        let left = list.1.len() < before;
        self.count
            .fetch_sub(if left { 1 } else { CHOSEN }, Ordering::AcqRel);
        left
    }

    /// To be called after every unlocking of the queue but a glance's.
    pub(crate) fn hand_over(&self) {
        let next = {
            let mut list = self.lock();
            let next = list.1.pop_front();
            if next.is_some() {
                self.count.fetch_add(CHOSEN - 1, Ordering::AcqRel);
            }
            next
        };
        if let Some((_, waker)) = next {
            waker.wake();
        }
    }
}

/// A thread's place among the followers. Whoever leaves after being chosen, without leading, passes the lead on.
pub(crate) struct Place<'a> {
    followers: &'a Followers,
    id: Option<u64>,
}

impl<'a> Place<'a> {
    pub(crate) fn new(followers: &'a Followers) -> Self {
        Self {
            followers,
            id: None,
        }
    }

    pub(crate) fn enlist(&mut self, waker: &Waker) {
        // Chosen or not: if somebody else leads by now, that one will choose again.
        self.withdraw();
        self.id = Some(self.followers.enlist(waker.clone()));
    }

    /// Whether it was chosen since it enlisted.
    pub(crate) fn withdraw(&mut self) -> bool {
        self.id.take().is_some_and(|id| !self.followers.leave(id))
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        if self.withdraw() {
            self.followers.hand_over();
        }
    }
}

/// Time is up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct TimedOut;

/// Why a wait ended without its result.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ended {
    TimedOut,
    /// A signal handler ran.
    Interrupted,
}

/// Polls until it is ready or time is up, and looks at the event queue meanwhile, or lets somebody else do it.
pub(crate) fn block_on<T>(
    group: &Group,
    deadline: Option<Instant>,
    poll: impl FnMut(&mut Context<'_>) -> Poll<T>,
) -> Result<T, TimedOut> {
    // It is not interrupted.
    block(group, deadline, false, poll).map_err(|_| TimedOut)
}

/// The same; `interruptible`: a signal handler ends it where POSIX has it that a blocked call ends.
pub(crate) fn block<T>(
    group: &Group,
    deadline: Option<Instant>,
    interruptible: bool,
    mut poll: impl FnMut(&mut Context<'_>) -> Poll<T>,
) -> Result<T, Ended> {
    let lent = Lent::of(group);
    let parker = &lent.0;
    let waker = Waker::from(Arc::clone(parker));
    let mut cx = Context::from_waker(&waker);
    let mut place = Place::new(&group.followers);
    loop {
        parker.take();
        if let Poll::Ready(value) = poll(&mut cx) {
            return Ok(value);
        }
        group.post_gathered();
        let left = deadline.map(|at| at.saturating_duration_since(Instant::now()));
        if left == Some(Duration::ZERO) {
            return Err(Ended::TimedOut);
        }
        if group.is_dead() {
            // Nothing will come to the queue. What the caller waits for is not ours, or it is told at once.
            park(parker, left, interruptible)?;
            continue;
        }
        let queue = group.try_queue().or_else(|| {
            place.enlist(&waker);
            group.try_queue()
        });
        match queue {
            Some(queue) => {
                let led = lead(group, queue, parker, deadline, interruptible);
                place.withdraw();
                group.followers.hand_over();
                led?;
            }
            None => {
                // Not the leader's: see `Sockets::rest`.
                lock(&group.lane).flush();
                park(parker, left, interruptible)?;
            }
        }
    }
}

/// Drives a future, as [`block_on`] does.
pub(crate) fn run<F: Future>(
    group: &Group,
    deadline: Option<Instant>,
    future: F,
) -> Result<F::Output, TimedOut> {
    let mut future = pin!(future);
    block_on(group, deadline, |cx| future.as_mut().poll(cx))
}

/// Serves the queue until this thread has something to do itself.
fn lead(
    group: &Group,
    mut queue: MutexGuard<'_, Queue>,
    parker: &Parker,
    deadline: Option<Instant>,
    interruptible: bool,
) -> Result<(), Ended> {
    loop {
        let left = if parker.is_woken() {
            // By itself, or by another thread: only what is there already.
            Some(Duration::ZERO)
        } else {
            deadline.map(|at| at.saturating_duration_since(Instant::now()))
        };
        let served = group.turn_by(&mut queue, left, |events, timeout| {
            if !parker.lie_down(LEADING) {
                return Ok(Waited::Came);
            }
            let waited = events.wait_unless(timeout, interruptible, &|| parker.is_woken());
            parker.rise(LEADING);
            waited
        });
        if served == Ok(Waited::Interrupted) && !parker.is_woken() {
            return Err(Ended::Interrupted);
        }
        if parker.is_woken() || served.is_err() || left == Some(Duration::ZERO) {
            return Ok(());
        }
    }
}

fn park(parker: &Parker, left: Option<Duration>, interruptible: bool) -> Result<(), Ended> {
    if !parker.lie_down(PARKED) {
        // Woken by itself: give others the processor before the next try.
        std::thread::yield_now();
        return Ok(());
    }
    let slept = if interruptible {
        futex_wait_interruptible(&parker.state, PARKED, left)
    } else {
        futex_wait(&parker.state, PARKED, left)
    };
    parker.rise(PARKED);
    match slept {
        Err(error) if error.kind() == io::ErrorKind::Interrupted => Err(Ended::Interrupted),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Told(AtomicU32);

    impl Wake for Told {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn told() -> (Arc<Told>, Waker) {
        let told = Arc::new(Told(AtomicU32::new(0)));
        (Arc::clone(&told), Waker::from(told))
    }

    fn calls(told: &Told) -> u32 {
        told.0.load(Ordering::Relaxed)
    }

    #[test]
    fn a_glance_wakes_who_found_the_lock_taken_by_it() {
        let followers = Followers::default();
        let (first, waker) = told();
        let mut place = Place::new(&followers);
        // The leader has gone, and found nobody; then this one enlists, finds a glance at work, which began after that, and sleeps.
        followers.hand_over();
        place.enlist(&waker);
        followers.glanced();
        assert_eq!(calls(&first), 1);
        // It is on its way: no other glance calls it, or another.
        let (second, waker) = told();
        let mut after = Place::new(&followers);
        after.enlist(&waker);
        followers.glanced();
        assert_eq!((calls(&first), calls(&second)), (1, 0));
        // It came, and found a further glance at work: that one calls who has waited longest.
        place.enlist(&first.into());
        followers.glanced();
        assert_eq!(calls(&second), 1);
        // That one leaves without leading.
        drop(after);
        assert!(place.withdraw(), "chosen in its stead");
        followers.glanced();
        assert_eq!(followers.count.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn who_is_not_on_the_list_any_more_is_not_counted() {
        let followers = Followers::default();
        let (never, waker) = told();
        let mut place = Place::new(&followers);
        for _ in 0..3 {
            place.enlist(&waker);
            assert!(!place.withdraw());
            assert!(!place.withdraw(), "once");
        }
        drop(place);
        followers.glanced();
        followers.hand_over();
        assert_eq!(calls(&never), 0);
        assert_eq!(followers.count.load(Ordering::Relaxed), 0);
    }
}
