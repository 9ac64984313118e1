//! Descriptors that stand for the engine's sockets: ends of pairs that the agent made ([`sidecore_client::Ual::descriptors`]). A few wait at
//! high numbers, and are moved to the number that the program is to see.

use std::os::fd::{AsRawFd, IntoRawFd, OwnedFd, RawFd};
use std::sync::Mutex;

use rustix::io::Errno;

use crate::process::{Link, Process};
use crate::sys;
use crate::table::lock;
use crate::{cancel, errors};

/// Asked for at first; twice as many each time they were used up, up to as many as wait.
const FIRST_BATCH: usize = 4;

/// How many wait at most.
const MOST: usize = 64;

/// A descriptor that waits for use.
struct Spare {
    /// The agent's number of it.
    number: u64,
    fd: OwnedFd,
    nonblocking: bool,
    /// Which link to an engine it is of.
    link: u64,
}

#[derive(Default)]
struct Spares {
    all: Vec<Spare>,
    asked: usize,
}

/// Descriptors that wait for use: new ones, and those of connections that were closed and that nobody else ever had.
#[derive(Default)]
pub(crate) struct Stash(Mutex<Spares>);

/// A descriptor that has served one connection, and may serve another.
pub(crate) struct Used {
    pub(crate) number: u64,
    pub(crate) nonblocking: bool,
    pub(crate) link: u64,
}

impl Stash {
    /// One more; its own number is high.
    fn take(&self, process: &Process, link: &Link) -> Result<Spare, Errno> {
        let mut spares = lock(&self.0);
        // Those of an engine that is gone are of no use.
        while let Some(spare) = spares.all.pop() {
            if spare.link == link.serial {
                return Ok(spare);
            }
            process.release(spare.fd.as_raw_fd());
            sys::close(spare.fd.into_raw_fd());
        }
        let batch = (spares.asked * 2).clamp(FIRST_BATCH, MOST);
        let (first, fds) = errors::told(cancel::held_off(|| link.ual.descriptors(batch)))?;
        spares.asked = batch;
        let new = fds.into_iter().zip(first..).map(|(fd, number)| Spare {
            number,
            fd: process.keep_high(fd),
            nonblocking: false,
            link: link.serial,
        });
        spares.all.extend(new);
        spares.all.pop().ok_or(Errno::NFILE)
    }

    /// Whether it makes sense to keep one more.
    pub(crate) fn has_room(&self) -> bool {
        lock(&self.0).all.len() < MOST
    }

    /// Keeps the descriptor of a connection that is closed for another one. It has a number of the library's.
    pub(crate) fn give_back(&self, fd: OwnedFd, used: &Used) {
        lock(&self.0).all.push(Spare {
            number: used.number,
            fd,
            nonblocking: used.nonblocking,
            link: used.link,
        });
    }

    /// A descriptor at the lowest free number, and the agent's number of it.
    pub(crate) fn lowest(
        &self,
        process: &Process,
        link: &Link,
        cloexec: bool,
        nonblocking: bool,
    ) -> Result<(RawFd, u64), Errno> {
        let spare = self.take(process, link)?;
        if spare.nonblocking != nonblocking {
            let _ = sys::set_nonblocking(spare.fd.as_raw_fd(), nonblocking);
        }
        let command = if cloexec {
            libc::F_DUPFD_CLOEXEC
        } else {
            libc::F_DUPFD
        };
        let placed = sys::fcntl(spare.fd.as_raw_fd(), command, 0);
        process.release(spare.fd.as_raw_fd());
        sys::close(spare.fd.into_raw_fd());
        Ok((placed?, spare.number))
    }

    /// A descriptor in the place of others: all these numbers stand for it from now on. Their flags stay. The agent's number of it.
    pub(crate) fn replace(
        &self,
        process: &Process,
        link: &Link,
        numbers: &[RawFd],
    ) -> Result<u64, Errno> {
        let Spare {
            number: agents, fd, ..
        } = self.take(process, link)?;
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
        done.map(|()| agents)
    }
}
