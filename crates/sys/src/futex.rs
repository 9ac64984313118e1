//! Futexes in shared memory.

use std::io;
use std::sync::atomic::AtomicU32;
use std::time::Duration;

use rustix::io::Errno;
use rustix::thread::futex;

use crate::interruptible;

/// Sleeps while `*addr == expected`, at most `timeout`. Shared between processes. Returns at once when the word is another.
///
/// `Ok` also for a wake-up without a reason (a signal, a stray wake): callers look at the word again. `TimedOut` when time is up.
pub fn futex_wait(addr: &AtomicU32, expected: u32, timeout: Option<Duration>) -> io::Result<()> {
    let timeout = timeout.map(|t| rustix::time::Timespec {
        tv_sec: t.as_secs().min(i64::MAX as u64) as i64,
        tv_nsec: t.subsec_nanos() as i64,
    });
    match futex::wait(addr, futex::Flags::empty(), expected, timeout.as_ref()) {
        Ok(()) | Err(Errno::AGAIN | Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// As [`futex_wait`], but a signal handler that ran is told as `Interrupted`: with a timeout always, without one if the handler was installed
/// without SA_RESTART. (The system restarts the sleep itself in the other case. It is what POSIX says of a blocked `recv`.) A signal that was put
/// off ([`interruptible`]) is told so, too, and there is no sleep.
pub fn futex_wait_interruptible(
    addr: &AtomicU32,
    expected: u32,
    timeout: Option<Duration>,
) -> io::Result<()> {
    let timeout = timeout.map(|t| libc::timespec {
        tv_sec: t.as_secs().min(i64::MAX as u64) as i64,
        tv_nsec: i64::from(t.subsec_nanos()),
    });
    let timeout = timeout
        .as_ref()
        .map_or(0, |time| std::ptr::from_ref(time) as usize);
    let word = std::ptr::from_ref(addr) as usize;
    let operation = libc::FUTEX_WAIT as usize;
    let arguments = [word, operation, expected as usize, timeout, 0, 0];
    // SAFETY: the word and the time live over the call, which only reads them.
    match unsafe { interruptible::call(libc::SYS_futex, arguments) } {
        Ok(_) => Ok(()),
        Err(error) if error.raw_os_error() == Some(libc::EAGAIN) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Wakes at most `n` threads that sleep on the word, in any process; says how many. Never blocks on a sleeper. An error (the page
/// could not be looked at) wakes nobody and is told as 0.
pub fn futex_wake(addr: &AtomicU32, n: u32) -> usize {
    futex::wake(addr, futex::Flags::empty(), n).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering;

    #[test]
    fn waits_wakes_and_times_out() {
        let word = AtomicU32::new(0);
        futex_wait(&word, 1, None).unwrap();
        let error = futex_wait(&word, 0, Some(Duration::from_millis(1))).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert_eq!(futex_wake(&word, 1), 0, "nobody sleeps");
        std::thread::scope(|scope| {
            let sleeper = scope.spawn(|| {
                while word.load(Ordering::Acquire) == 0 {
                    futex_wait(&word, 0, None).unwrap();
                }
            });
            word.store(1, Ordering::Release);
            futex_wake(&word, 1);
            sleeper.join().unwrap();
        });
    }
}
