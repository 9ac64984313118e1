//! Signals: threads of a library take none.

use std::mem::MaybeUninit;

/// Runs `act` with all signals blocked in this thread. A thread that `act` starts inherits that for its whole life: the signals of a process
/// go to threads of the program, never to one that it does not know of (where a signal without a handler would end it).
///
/// Must not be used around anything that waits for a signal.
pub fn without_signals<T>(act: impl FnOnce() -> T) -> T {
    let _restore = Restore::block();
    act()
}

/// The mask that was there before, put back when it is dropped; also when `act` panics.
struct Restore(Option<libc::sigset_t>);

impl Restore {
    fn block() -> Self {
        let mut all = MaybeUninit::uninit();
        let mut before = MaybeUninit::uninit();
        // SAFETY: `sigfillset` makes `all` a set; `pthread_sigmask` reads it and stores another in `before`.
        unsafe {
            libc::sigfillset(all.as_mut_ptr());
            let answer =
                libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
            Self((answer == 0).then(|| before.assume_init()))
        }
    }
}

impl Drop for Restore {
    fn drop(&mut self) {
        if let Some(before) = &self.0 {
            // SAFETY: a set that `pthread_sigmask` has stored.
            unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before, std::ptr::null_mut()) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether this thread takes SIGUSR1.
    fn takes_signals() -> bool {
        let mut mask = MaybeUninit::uninit();
        // SAFETY: stores a set, and asks about it.
        unsafe {
            libc::pthread_sigmask(libc::SIG_BLOCK, std::ptr::null(), mask.as_mut_ptr());
            libc::sigismember(mask.as_ptr(), libc::SIGUSR1) == 0
        }
    }

    #[test]
    fn threads_started_inside_take_none_and_the_starter_does_again() {
        assert!(takes_signals());
        let inside = without_signals(|| std::thread::spawn(takes_signals));
        assert!(!inside.join().unwrap());
        assert!(takes_signals());
    }
}
