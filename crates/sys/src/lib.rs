//! The system calls Sidecore needs, as thin wrappers that are safe to call.
//!
//! Nothing here knows of lanes, UALs or TCP. Every function says whether it can block; errors are [`std::io::Error`]s.
//!
//! - [`memfd`], [`mmap`]: memory that two processes share, and whether it is sealed as it must be.
//! - [`sigbus`]: what happens when such memory vanishes under a reader.
//! - [`signals`]: threads that take none.
//! - [`file`](mod@file): files into shared memory.
//! - [`futex`], [`wake`]: how one process wakes another without ever waiting for it.
//! - [`unix`]: sockets that carry descriptors; [`descriptors`]: which numbers they get.
//! - [`affinity`], [`clock`], [`counters`]: cores, cycles, CPU time.
//! - [`netns`], [`tap`], [`interface`], [`netlink`]: namespaces and network devices.
//! - [`uring`]: a safe io_uring for sockets.
//! - [`mark`]: where a socket stands in urgent data.
//! - [`privileges`]: giving up what is no longer needed.

pub mod affinity;
pub mod clock;
pub mod counters;
pub mod descriptors;
pub mod file;
pub mod futex;
pub mod interface;
pub mod interruptible;
pub mod mark;
pub mod memfd;
pub mod mmap;
pub mod netlink;
pub mod netns;
pub mod privileges;
pub mod sigbus;
pub mod signals;
pub mod tap;
pub mod unix;
pub mod uring;
pub mod wake;

pub use affinity::pin_current_thread;
pub use futex::{futex_wait, futex_wake};
pub use memfd::{Memfd, check_sealed};
pub use mmap::Mmap;

use std::io;

/// Puts a name before an error of the system, keeping its kind and, in the text, its cause.
pub(crate) fn context(what: impl std::fmt::Display, error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{what}: {error}"))
}

/// `-1` of a libc call as an error.
pub(crate) fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}
