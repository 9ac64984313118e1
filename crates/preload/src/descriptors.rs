//! Descriptors that stand for the engine's sockets: ends of pairs that the agent made ([`sidecore_client::Ual::descriptors`]). A few wait at
//! high numbers, and are moved to the number that the program is to see.

use std::os::fd::{AsRawFd, IntoRawFd, OwnedFd, RawFd};
use std::sync::Mutex;

use rustix::io::Errno;

use crate::process::{Link, Process};
use crate::sys;
use crate::table::lock;
use crate::{cancel, errors};

/// Asked for at a time.
const BATCH: usize = 4;

/// Descriptors that wait for use.
#[derive(Default)]
pub(crate) struct Stash(Mutex<Vec<OwnedFd>>);

impl Stash {
    /// One more; its number is high.
    fn take(&self, process: &Process, link: &Link) -> Result<OwnedFd, Errno> {
        let mut stash = lock(&self.0);
        if stash.is_empty() {
            let (_, fds) = errors::told(cancel::held_off(|| link.ual.descriptors(BATCH)))?;
            stash.extend(fds.into_iter().map(|fd| process.keep_high(fd)));
        }
        stash.pop().ok_or(Errno::NFILE)
    }

    /// A descriptor at the lowest free number.
    pub(crate) fn lowest(
        &self,
        process: &Process,
        link: &Link,
        cloexec: bool,
    ) -> Result<RawFd, Errno> {
        let fd = self.take(process, link)?;
        let command = if cloexec {
            libc::F_DUPFD_CLOEXEC
        } else {
            libc::F_DUPFD
        };
        let placed = sys::fcntl(fd.as_raw_fd(), command, 0);
        process.release(fd.as_raw_fd());
        sys::close(fd.into_raw_fd());
        placed
    }

    /// A descriptor in the place of others: all these numbers stand for it from now on. Their flags stay.
    pub(crate) fn replace(
        &self,
        process: &Process,
        link: &Link,
        numbers: &[RawFd],
    ) -> Result<(), Errno> {
        let fd = self.take(process, link)?;
        let mut done = Ok(());
        if let Some(first) = numbers.first() {
            let flags = sys::fcntl(*first, libc::F_GETFL, 0).unwrap_or(0);
            let flags = flags & (libc::O_NONBLOCK | libc::O_ASYNC);
            let _ = sys::fcntl(fd.as_raw_fd(), libc::F_SETFL, flags.into());
        }
        for number in numbers {
            let flags = sys::fcntl(*number, libc::F_GETFD, 0).unwrap_or(0);
            let cloexec = if flags & libc::FD_CLOEXEC != 0 {
                libc::O_CLOEXEC
            } else {
                0
            };
            done = done.and(sys::dup3(fd.as_raw_fd(), *number, cloexec));
        }
        process.release(fd.as_raw_fd());
        sys::close(fd.into_raw_fd());
        done
    }
}
