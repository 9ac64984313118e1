//! Waking the other end from its sleep.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering, fence};

use rustix::event::EventfdFlags;

use crate::NicError;

/// The sleep of the two ends. Nobody outside this process has its descriptors.
pub(super) struct Wakes([Sleep; 2]);

/// On lines of its own: the other end reads it at every flush.
#[repr(align(128))]
struct Sleep {
    asleep: AtomicBool,
    gone: AtomicBool,
    event: OwnedFd,
}

impl Wakes {
    pub(super) fn new() -> Result<Self, NicError> {
        let sleep = || {
            let event = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
                .map_err(|errno| NicError::System {
                what: "a descriptor to wake a wire's end".into(),
                source: errno.into(),
            })?;
            Ok(Sleep {
                asleep: AtomicBool::new(false),
                gone: AtomicBool::new(false),
                event,
            })
        };
        Ok(Self([sleep()?, sleep()?]))
    }

    #[inline]
    fn end(&self, index: usize) -> &Sleep {
        let Self([first, second]) = self;
        if index == 0 { first } else { second }
    }

    pub(super) fn fd(&self, index: usize) -> BorrowedFd<'_> {
        self.end(index).event.as_fd()
    }

    /// The end will sleep unless it now finds frames. What was published before the other end's [`wake`](Self::wake)
    /// is found, or that call sees the announcement: each side has a full fence between its store and its load.
    pub(super) fn announce_sleep(&self, index: usize) {
        self.end(index).asleep.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// The end changed its mind. If someone took the announcement meanwhile, the next sleep ends early.
    pub(super) fn cancel_sleep(&self, index: usize) {
        self.end(index).asleep.store(false, Ordering::Relaxed);
    }

    /// The end slept and does not any more: a system call takes the event's count off, which may also be one that
    /// came too late for an earlier sleep.
    pub(super) fn awake(&self, index: usize) {
        self.cancel_sleep(index);
        let _ = rustix::io::read(&self.end(index).event, &mut [0; 8]);
    }

    /// Wakes the end if it sleeps, and says whether it did. Called after frames were published.
    #[inline]
    pub(super) fn wake(&self, index: usize) -> bool {
        let end = self.end(index);
        fence(Ordering::SeqCst);
        if !end.asleep.load(Ordering::Relaxed) || !end.asleep.swap(false, Ordering::Release) {
            return false;
        }
        // Whoever takes an announcement adds 1, so that the count stays far from where this would block.
        let _ = rustix::io::write(&end.event, &1u64.to_ne_bytes());
        true
    }

    /// The end was dropped.
    pub(super) fn leave(&self, index: usize) {
        self.end(index).gone.store(true, Ordering::Release);
    }

    #[inline]
    pub(super) fn is_gone(&self, index: usize) -> bool {
        self.end(index).gone.load(Ordering::Relaxed)
    }
}
