//! Whether a signal ends a blocked call: signal(7) says that `recv` and `accept` go on after handlers with SA_RESTART and end with EINTR after
//! others. The system's own calls know; a call that sleeps in poll, as those do here that wait for both the system and the engine, would end
//! after each. So signals are held back while it sleeps, and looked at when they come.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use libc::{c_int, c_void};
use rustix::io::Errno;

use crate::process::{Process, process};
use crate::sys;

/// Sets of signals as the system has them: signal 1 is bit 0.
type Set = u64;

const SET_BYTES: usize = size_of::<Set>();

/// Never held back: those that a fault of the thread's own raises, and the two that libc keeps for itself.
pub(crate) const NEVER: [c_int; 9] = [
    libc::SIGSEGV,
    libc::SIGBUS,
    libc::SIGFPE,
    libc::SIGILL,
    libc::SIGTRAP,
    libc::SIGSYS,
    libc::SIGABRT,
    32,
    33,
];

/// The system's `struct sigaction`, which is not libc's.
#[repr(C)]
#[derive(Clone, Copy)]
struct Action {
    handler: usize,
    flags: u64,
    restorer: usize,
    mask: Set,
}

fn bit(signal: c_int) -> Set {
    1 << (signal - 1)
}

pub(crate) fn change_mask(how: c_int, set: Set) -> Set {
    let mut old: Set = 0;
    // SAFETY: both sets live over the call.
    unsafe {
        libc::syscall(
            libc::SYS_rt_sigprocmask,
            how,
            &raw const set,
            &raw mut old,
            SET_BYTES,
        );
    }
    old
}

fn pending() -> Set {
    let mut set: Set = 0;
    // SAFETY: the set lives over the call.
    unsafe { libc::syscall(libc::SYS_rt_sigpending, &raw mut set, SET_BYTES) };
    set
}

/// Whether a signal's handler ends a blocked call: there is one, and it was installed without SA_RESTART.
pub(crate) fn ends_calls(signal: c_int) -> bool {
    let mut action = Action {
        handler: 0,
        flags: 0,
        restorer: 0,
        mask: 0,
    };
    // SAFETY: the action lives over the call; none is set.
    let done = unsafe {
        libc::syscall(
            libc::SYS_rt_sigaction,
            signal,
            std::ptr::null::<c_void>(),
            &raw mut action,
            SET_BYTES,
        )
    };
    let handled = action.handler != libc::SIG_DFL && action.handler != libc::SIG_IGN;
    done == 0 && handled && action.flags & libc::SA_RESTART as u64 == 0
}

/// Signals, watched while a call is blocked.
pub(crate) struct Watch {
    process: &'static Process,
    /// Readable when one waits that is held back.
    fd: OwnedFd,
    held: Set,
}

impl Watch {
    pub(crate) fn new() -> Result<Self, Errno> {
        let held = NEVER
            .iter()
            .fold(Set::MAX, |set, signal| set & !bit(*signal));
        let flags = libc::SFD_CLOEXEC | libc::SFD_NONBLOCK;
        // SAFETY: the set lives over the call.
        let fd =
            unsafe { libc::syscall(libc::SYS_signalfd4, -1, &raw const held, SET_BYTES, flags) };
        if fd < 0 {
            return Err(Errno::from_raw_os_error(sys::errno()));
        }
        let process = process();
        // SAFETY: just made, and nobody else's.
        let fd = process.keep_high(unsafe { OwnedFd::from_raw_fd(fd as RawFd) });
        Ok(Self { process, fd, held })
    }

    /// Sleeps by `sleep`, which is given a descriptor that a signal makes readable. Handlers run when this returns; `INTR` if one of them ends
    /// a blocked call.
    pub(crate) fn sleep(
        &self,
        sleep: impl FnOnce(RawFd) -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        let before = change_mask(libc::SIG_BLOCK, self.held);
        let slept = sleep(self.fd.as_raw_fd());
        // What the program itself had blocked stays pending, and ends nothing.
        let came = pending() & self.held & !before;
        let ended = (1..=64).any(|signal| came & bit(signal) != 0 && ends_calls(signal));
        change_mask(libc::SIG_SETMASK, before);
        match slept {
            _ if ended => Err(Errno::INTR),
            // By a signal of libc's own.
            Err(Errno::INTR) => Ok(()),
            slept => slept,
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.process.release(self.fd.as_raw_fd());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    extern "C" fn nothing(_: c_int) {}

    fn install(signal: c_int, flags: c_int) {
        // SAFETY: a handler that does nothing, for a signal that this test alone uses.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = nothing as *const () as usize;
            action.sa_flags = flags;
            libc::sigaction(signal, &raw const action, std::ptr::null_mut());
        }
    }

    #[test]
    fn handlers_end_calls_unless_they_restart_them() {
        assert!(!ends_calls(libc::SIGUSR2), "the default ends no call");
        install(libc::SIGUSR2, libc::SA_RESTART);
        assert!(!ends_calls(libc::SIGUSR2));
        install(libc::SIGUSR2, 0);
        assert!(ends_calls(libc::SIGUSR2));
        let watch = Watch::new().unwrap();
        let raise = |_: RawFd| {
            // SAFETY: no memory is passed.
            unsafe { libc::raise(libc::SIGUSR2) };
            Ok(())
        };
        assert_eq!(watch.sleep(raise), Err(Errno::INTR));
        install(libc::SIGUSR2, libc::SA_RESTART);
        assert_eq!(watch.sleep(raise), Ok(()));
        assert_eq!(watch.sleep(|_| Err(Errno::INTR)), Ok(()));
        assert_eq!(pending() & bit(libc::SIGUSR2), 0, "it was delivered");
    }
}
