//! Ending the sleep of a thread that is in the system's poll.

use std::cell::RefCell;
use std::os::fd::{IntoRawFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Wake, Waker};

use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;
use sidecore_client::Wakes;

use crate::process::{self, Process};
use crate::sys;

/// A thread's eventfd, and whether it sleeps.
pub(crate) struct Kick {
    process: &'static Process,
    fd: RawFd,
    state: AtomicU8,
}

/// It is awake, and looks before it sleeps.
const AWAKE: u8 = 0;
/// It sleeps, or is about to.
const ASLEEP: u8 = 1;
/// Somebody has ended that sleep: something is in the eventfd, or will be.
const KICKED: u8 = 2;

thread_local! {
    static KICK: RefCell<Option<Arc<Kick>>> = const { RefCell::new(None) };
}

impl Kick {
    /// This thread's.
    pub(crate) fn of_thread(process: &'static Process) -> Result<Arc<Self>, Errno> {
        let known = KICK.try_with(|kick| kick.borrow().clone()).ok().flatten();
        if let Some(kick) = known.filter(|kick| std::ptr::eq(kick.process, process)) {
            return Ok(kick);
        }
        let fd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let kick = Arc::new(Self {
            process,
            fd: process.keep_high(fd).into_raw_fd(),
            state: AtomicU8::new(AWAKE),
        });
        // A thread that is ending uses it once.
        let _ = KICK.try_with(|place| place.replace(Some(Arc::clone(&kick))));
        Ok(kick)
    }

    /// Wakes this thread.
    pub(crate) fn waker(self: &Arc<Self>) -> Waker {
        Waker::from(Arc::clone(self))
    }

    /// The descriptor to sleep on.
    pub(crate) fn fd(&self) -> RawFd {
        self.fd
    }

    /// From here on wakes end a sleep. Look once more before sleeping.
    pub(crate) fn prepare(&self) {
        // A kick that was not taken notice of still counts.
        let _ = self
            .state
            .compare_exchange(AWAKE, ASLEEP, Ordering::SeqCst, Ordering::SeqCst);
    }

    /// After the sleep, or instead of it; once more does nothing.
    pub(crate) fn cancel(&self) {
        if self.state.swap(AWAKE, Ordering::SeqCst) == KICKED {
            // Somebody wrote, or is about to; what comes late ends another sleep for nothing.
            self.drain();
        }
    }

    /// A sleep was ended by the descriptor: by a kick that came late, perhaps, which would end all others, too.
    pub(crate) fn drain(&self) {
        let mut count = [0; 8];
        let _ = rustix::io::read(sys::borrow(self.fd), &mut count);
    }

    /// Whether the thread is neither asleep nor about to wake: what is noted now it will find.
    pub(crate) fn is_awake(&self) -> bool {
        self.state.load(Ordering::SeqCst) == AWAKE
    }

    /// Ends the thread's sleep, within a batch of wakes at the end of that; false if it does not sleep.
    pub(crate) fn wake_if_asleep(self: &Arc<Self>) -> bool {
        // Read first: most wakes find it awake, and the thread itself is among those that wake.
        let asleep = self.state.load(Ordering::SeqCst) == ASLEEP
            && self
                .state
                .compare_exchange(ASLEEP, KICKED, Ordering::SeqCst, Ordering::SeqCst)
                .is_ok();
        if asleep && !put_off(self) {
            self.kick();
        }
        asleep
    }

    fn kick(&self) {
        let _ = rustix::io::write(sys::borrow(self.fd), &1u64.to_ne_bytes());
    }
}

/// Kicks of the batch of wakes that this thread is in.
#[derive(Default)]
struct Batch {
    open: bool,
    kicks: Vec<Arc<Kick>>,
}

thread_local! {
    static BATCH: RefCell<Batch> = const { RefCell::new(Batch { open: false, kicks: Vec::new() }) };
}

/// Notes a kick for the end of the batch; false if this thread is in none.
fn put_off(kick: &Arc<Kick>) -> bool {
    let noted = BATCH.try_with(|batch| {
        let mut batch = batch.borrow_mut();
        if batch.open {
            batch.kicks.push(Arc::clone(kick));
        }
        batch.open
    });
    noted.unwrap_or(false)
}

/// This thread hands a batch of events out. A thread that the first of them woke would often have done with it, and sleep again, before it got
/// the second: they are woken at the end.
pub(crate) const WAKES: Wakes = Wakes {
    begin: begin_batch,
    end: end_batch,
};

fn begin_batch() {
    // A thread that is ending wakes one by one.
    let _ = BATCH.try_with(|batch| batch.borrow_mut().open = true);
}

fn end_batch() {
    let kicks = BATCH.try_with(|batch| {
        let mut batch = batch.borrow_mut();
        batch.open = false;
        std::mem::take(&mut batch.kicks)
    });
    let mut kicks = kicks.unwrap_or_default();
    kicks.drain(..).for_each(|kick| kick.kick());
    // Its memory is used again.
    let _ = BATCH.try_with(|batch| batch.borrow_mut().kicks = kicks);
}

impl Wake for Kick {
    fn wake(self: Arc<Self>) {
        self.wake_if_asleep();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.wake_if_asleep();
    }
}

impl Drop for Kick {
    fn drop(&mut self) {
        // In a forked child the parent's are closed already.
        if process::existing().is_some_and(|now| std::ptr::eq(now, self.process)) {
            self.process.release(self.fd);
            sys::close(self.fd);
        }
    }
}
