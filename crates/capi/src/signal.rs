//! Signals for event queues: a descriptor that becomes readable raises one (F_SETSIG, O_ASYNC), as the paper's applications wait.

use std::ffi::c_int;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use libc::{F_GETFL, F_SETFL, O_ASYNC};

// Linux's numbers, which `libc` does not have for all C libraries.
const F_SETSIG: c_int = 10;
const F_SETOWN_EX: c_int = 15;
const F_OWNER_TID: c_int = 0;
const F_OWNER_PID: c_int = 1;

/// Whether a program may have this signal raised: one of the kernel's, and not one that cannot be caught.
pub(crate) fn is_signal(number: c_int) -> bool {
    (1..=libc::SIGRTMAX()).contains(&number) && number != libc::SIGKILL && number != libc::SIGSTOP
}

fn checked(answer: c_int) -> io::Result<c_int> {
    if answer < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(answer)
    }
}

fn set_async(fd: BorrowedFd<'_>, on: bool) -> io::Result<()> {
    // SAFETY: reads the flags of an open descriptor.
    let flags = checked(unsafe { libc::fcntl(fd.as_raw_fd(), F_GETFL) })?;
    let flags = if on {
        flags | O_ASYNC
    } else {
        flags & !O_ASYNC
    };
    // SAFETY: sets the flags of an open descriptor.
    checked(unsafe { libc::fcntl(fd.as_raw_fd(), F_SETFL, flags) })?;
    Ok(())
}

/// From now on a signal is raised when the descriptor becomes readable, for the process or for the calling thread.
pub(crate) fn associate(fd: BorrowedFd<'_>, number: c_int, thread: bool) -> io::Result<()> {
    #[repr(C)]
    struct Owner {
        kind: c_int,
        pid: libc::pid_t,
    }
    let owner = if thread {
        // SAFETY: no arguments, and no conditions.
        let pid = unsafe { libc::gettid() };
        Owner {
            kind: F_OWNER_TID,
            pid,
        }
    } else {
        let pid = std::process::id() as libc::pid_t;
        Owner {
            kind: F_OWNER_PID,
            pid,
        }
    };
    // SAFETY: the kernel reads a `struct f_owner_ex`, which `Owner` is.
    checked(unsafe { libc::fcntl(fd.as_raw_fd(), F_SETOWN_EX, &raw const owner) })?;
    // SAFETY: sets the signal of an open descriptor.
    checked(unsafe { libc::fcntl(fd.as_raw_fd(), F_SETSIG, number) })?;
    set_async(fd, true)
}

/// No signal any more.
pub(crate) fn dissociate(fd: BorrowedFd<'_>) -> io::Result<()> {
    set_async(fd, false)
}
