//! Threads that are cancelled (pthreads(7)) while they are blocked in a call of the library.
//!
//! libc ends such a thread by unwinding it from the call that it is in. Code of the library holds locks and references there, so it is not
//! to be unwound: the call is ended first, as by a signal, and the thread is cancelled where it enters and leaves the library.
//!
//! ```text
//!   pthread_cancel(t)   libc's (t is to end) … mark t's wish … wake t
//!   t, blocked          told where it sleeps … sees the wish … the call ends … pthread_testcancel: does not return
//! ```

use std::cell::OnceCell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use libc::{c_int, pthread_t};
use sidecore_client::RawSocket;
use sidecore_sys::interruptible::put_off;

use crate::guard::Edge;
use crate::kick::Kick;
use crate::table::lock;
use crate::{guard, real, signals, sys};

// SAFETY: libc's function, of this type; it may unwind its caller.
unsafe extern "C-unwind" {
    fn pthread_testcancel();
}

// SAFETY: libc's function, of this type.
unsafe extern "C" {
    fn pthread_setcancelstate(state: c_int, old: *mut c_int) -> c_int;
}

const PTHREAD_CANCEL_DISABLE: c_int = 1;

/// Where a thread sleeps.
enum Place {
    Socket(RawSocket),
    Kick(Arc<Kick>),
}

/// A thread that has slept in the library.
struct Target {
    thread: pthread_t,
    wish: AtomicBool,
    place: Mutex<Option<Place>>,
}

#[derive(Default)]
struct Targets {
    known: Vec<Arc<Target>>,
    /// Threads that were cancelled before they slept here. One may be over, and its number another thread's by now: that one looks whether
    /// it was meant, and goes on.
    early: Vec<pthread_t>,
}

static TARGETS: Mutex<Targets> = Mutex::new(Targets {
    known: Vec::new(),
    early: Vec::new(),
});

/// Somebody was cancelled, ever.
static USED: AtomicBool = AtomicBool::new(false);

/// This thread's target, in the list as long as the thread lives.
struct Listed(Arc<Target>);

impl Drop for Listed {
    fn drop(&mut self) {
        let mut targets = lock(&TARGETS);
        targets.known.retain(|known| !Arc::ptr_eq(known, &self.0));
    }
}

thread_local! {
    static ME: OnceCell<Listed> = const { OnceCell::new() };
}

fn me() -> Option<Arc<Target>> {
    let make = || {
        // SAFETY: no memory is passed.
        let thread = unsafe { libc::pthread_self() };
        let mut targets = lock(&TARGETS);
        let early = targets.early.len();
        targets.early.retain(|other| *other != thread);
        let target = Arc::new(Target {
            thread,
            wish: AtomicBool::new(targets.early.len() < early),
            place: Mutex::new(None),
        });
        targets.known.push(Arc::clone(&target));
        Listed(target)
    };
    // A thread that is ending sleeps as it is.
    ME.try_with(|me| Arc::clone(&me.get_or_init(make).0)).ok()
}

/// A sleep that ends when its thread is cancelled, or puts off a signal.
pub(crate) struct Sleep(Option<Arc<Target>>);

impl Sleep {
    /// On a socket of the engine's. With a time limit every handler ends the call, as signal(7) has it.
    pub(crate) fn on_socket(raw: &RawSocket, limited: bool) -> Self {
        signals::may_restart(!limited);
        Self::at(Place::Socket(raw.clone()))
    }

    /// By the thread's kick: a poll, which every handler ends.
    pub(crate) fn on_kick(kick: &Arc<Kick>) -> Self {
        signals::may_restart(false);
        Self::at(Place::Kick(Arc::clone(kick)))
    }

    fn at(place: Place) -> Self {
        let target = me();
        if let Some(target) = &target {
            *lock(&target.place) = Some(place);
        }
        Self(target)
    }

    /// Whether it is to end: to be asked after it was begun and whenever it was woken.
    pub(crate) fn is_over(&self) -> bool {
        let target = self.0.as_ref();
        put_off() != 0 || target.is_some_and(|target| target.wish.load(Ordering::SeqCst))
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        let place = self
            .0
            .as_ref()
            .and_then(|target| lock(&target.place).take());
        drop(place);
    }
}

/// Whether this thread is to end.
pub(crate) fn is_wished() -> bool {
    let wished = ME.try_with(|me| me.get().is_some_and(|me| me.0.wish.load(Ordering::SeqCst)));
    wished.unwrap_or(false)
}

/// Takes the wish that this thread end.
fn take_wish() -> bool {
    let taken = ME.try_with(|me| {
        me.get()
            .is_some_and(|me| me.0.wish.swap(false, Ordering::SeqCst))
    });
    taken.unwrap_or(false)
}

/// What a call gives.
pub(crate) trait Told {
    /// Whether it failed.
    fn failed(&self) -> bool;
}

impl Told for c_int {
    fn failed(&self) -> bool {
        *self < 0
    }
}

impl Told for isize {
    fn failed(&self) -> bool {
        *self < 0
    }
}

/// Runs a call that POSIX makes a cancellation point: `ours`, which is never unwound, or `system`, which libc may unwind, if `ours` gives
/// none. Neither holds anything that must be dropped. Signals that come within `ours` are handled when it is over.
pub(crate) fn point<T: Told>(ours: impl Fn() -> Option<T>, system: impl Fn() -> T) -> T {
    if guard::is_inside() {
        return system();
    }
    loop {
        if USED.load(Ordering::Relaxed) {
            // SAFETY: nothing of the library's is on the stack but this and its caller, which hold nothing.
            unsafe { pthread_testcancel() };
        }
        let edge = Edge::begin();
        let done = ours();
        let restarts = edge.end();
        match done {
            None => return system(),
            // Ended for the handlers' sake, and they let it go on.
            Some(done)
                if restarts == Some(true) && done.failed() && sys::errno() == libc::EINTR => {}
            Some(done) if !USED.load(Ordering::Relaxed) || !take_wish() => return done,
            // Where the thread does not allow it now, the call goes on.
            Some(_) => {}
        }
    }
}

/// Runs what calls libc's cancellation points from within the library, where nothing may be unwound.
pub(crate) fn held_off<T>(run: impl FnOnce() -> T) -> T {
    let mut old = 0;
    // SAFETY: the number lives over the call.
    unsafe { pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &raw mut old) };
    let done = run();
    // SAFETY: the state that was there before.
    unsafe { pthread_setcancelstate(old, std::ptr::null_mut()) };
    done
}

/// pthread_cancel(3).
///
/// # Safety
///
/// As libc's.
#[unsafe(no_mangle)]
#[allow(unreachable_pub)]
pub unsafe extern "C-unwind" fn pthread_cancel(thread: pthread_t) -> c_int {
    USED.store(true, Ordering::SeqCst);
    // SAFETY: as libc's.
    let done = unsafe { real::pthread_cancel(thread) };
    if done == 0 && !guard::is_inside() {
        guard::within((), || wake(thread));
    }
    done
}

fn wake(thread: pthread_t) {
    let target = {
        let mut targets = lock(&TARGETS);
        let known = targets.known.iter().find(|target| target.thread == thread);
        let known = known.cloned();
        if known.is_none() && !targets.early.contains(&thread) {
            targets.early.push(thread);
        }
        known
    };
    let Some(target) = target else { return };
    target.wish.store(true, Ordering::SeqCst);
    // Woken without the lock: what wakes may lock much.
    let place = match &*lock(&target.place) {
        Some(Place::Socket(raw)) => Some(Place::Socket(raw.clone())),
        Some(Place::Kick(kick)) => Some(Place::Kick(Arc::clone(kick))),
        None => None,
    };
    match place {
        Some(Place::Socket(raw)) => raw.wake_blocked(),
        Some(Place::Kick(kick)) => {
            kick.wake_if_asleep();
        }
        None => {}
    }
}
