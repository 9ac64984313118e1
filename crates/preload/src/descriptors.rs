//! Descriptors that stand for the engine's sockets: ends of pairs that the agent made ([`sidecore_client::Ual::descriptors`]). A few wait at
//! high numbers, and are doubled to the number that the program is to see. The high one stays beside it as long as there are not too many:
//! when the program closes its own, the descriptor waits again, and a connection has cost two system calls for it.

use std::os::fd::{AsRawFd, IntoRawFd, OwnedFd, RawFd};
use std::sync::Mutex;

use rustix::io::Errno;

use crate::process::{self, Link, Process};
use crate::sys;
use crate::table::lock;
use crate::{cancel, errors};

/// Asked for at first; twice as many each time they were used up, up to as many as there is room for.
const FIRST_BATCH: usize = 4;

/// Asked for where there is room for none beside the program's numbers.
const FULL_BATCH: usize = 16;

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
    /// Numbers of the library's beside the program's.
    twins: usize,
}

impl Spares {
    fn has_room(&self) -> bool {
        self.all.len() + self.twins < process::waiting_descriptors()
    }
}

/// A number of the library's for a descriptor that the program has under another. The descriptor counts as held while this lives, so it goes
/// with the program's last number.
pub(crate) struct Twin {
    process: &'static Process,
    fd: Option<OwnedFd>,
}

impl Twin {
    /// The number is to be used otherwise.
    fn into_fd(mut self) -> Option<OwnedFd> {
        self.fd.take()
    }
}

impl Drop for Twin {
    fn drop(&mut self) {
        // In a forked child the parent's are closed already.
        if !process::existing().is_some_and(|now| std::ptr::eq(now, self.process)) {
            let _ = self.fd.take().map(IntoRawFd::into_raw_fd);
            return;
        }
        lock(&self.process.stash.0).twins -= 1;
        if let Some(fd) = self.fd.take() {
            self.process.release(fd.as_raw_fd());
            sys::close(fd.into_raw_fd());
        }
    }
}

/// A descriptor that the program has from now on.
pub(crate) struct Placed {
    /// The agent's number of it.
    pub(crate) number: u64,
    pub(crate) twin: Option<Twin>,
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
        let room = process::waiting_descriptors().saturating_sub(spares.twins);
        let room = room.max(FULL_BATCH);
        let batch = match process::is_cramped() {
            true => 1,
            false => (spares.asked * 2).clamp(FIRST_BATCH, room),
        };
        let ask = |count| errors::told(cancel::held_off(|| link.ual.descriptors(count)));
        let (first, fds) = match ask(batch) {
            // So many are not to be had, perhaps one is.
            Err(Errno::MFILE) if batch > 1 => ask(1)?,
            asked => asked?,
        };
        // What was to be had; where numbers are short the next request is small.
        spares.asked = fds.len();
        let new = fds.into_iter().zip(first..).map(|(fd, number)| Spare {
            number,
            fd: process.keep_high(fd),
            nonblocking: false,
            link: link.serial,
        });
        spares.all.extend(new);
        spares.all.pop().ok_or(Errno::NFILE)
    }

    /// A number of the library's for the only one that the program has, about to be closed: the twin that is there, or one that is made now.
    /// `None` where there are enough of them.
    pub(crate) fn retain(
        &self,
        process: &Process,
        fd: RawFd,
        twin: Option<Twin>,
    ) -> Option<OwnedFd> {
        match twin {
            Some(twin) => twin.into_fd(),
            None if process::is_cramped() => None,
            None if lock(&self.0).has_room() => process.double_high(fd).ok(),
            None => None,
        }
    }

    /// A descriptor has its place in the program: its number here stays beside it, if there is room.
    fn beside(&self, process: &'static Process, fd: OwnedFd) -> Option<Twin> {
        if !process::is_cramped() {
            let mut spares = lock(&self.0);
            if spares.has_room() {
                spares.twins += 1;
                let fd = Some(fd);
                return Some(Twin { process, fd });
            }
        }
        process.release(fd.as_raw_fd());
        sys::close(fd.into_raw_fd());
        None
    }

    /// Where the library's numbers are taken from the program's one waits all the same, so that a connect finds it when the program has used up the
    /// rest: a number was given up just now.
    fn stock(&self, process: &'static Process, link: &Link) {
        if process::is_cramped()
            && let Ok(spare) = self.take(process, link)
        {
            lock(&self.0).all.push(spare);
        }
    }

    /// What [`Self::lowest`] gave is not needed after all.
    pub(crate) fn take_back(&self, link: &Link, fd: RawFd, placed: Placed, nonblocking: bool) {
        sys::close(fd);
        if let Some(fd) = placed.twin.and_then(Twin::into_fd) {
            let used = Used {
                number: placed.number,
                nonblocking,
                link: link.serial,
            };
            self.give_back(fd, &used);
        }
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

    /// A descriptor at the lowest free number.
    pub(crate) fn lowest(
        &self,
        process: &'static Process,
        link: &Link,
        cloexec: bool,
        nonblocking: bool,
    ) -> Result<(RawFd, Placed), Errno> {
        let mut spare = self.take(process, link)?;
        if spare.nonblocking != nonblocking {
            let _ = sys::set_nonblocking(spare.fd.as_raw_fd(), nonblocking);
            spare.nonblocking = nonblocking;
        }
        let command = if cloexec {
            libc::F_DUPFD_CLOEXEC
        } else {
            libc::F_DUPFD
        };
        let placed = match sys::fcntl(spare.fd.as_raw_fd(), command, 0) {
            Ok(placed) => placed,
            Err(error) => {
                lock(&self.0).all.push(spare);
                return Err(error);
            }
        };
        let twin = self.beside(process, spare.fd);
        self.stock(process, link);
        let number = spare.number;
        Ok((placed, Placed { number, twin }))
    }

    /// A descriptor in the place of others: all these numbers stand for it from now on. Their flags stay.
    pub(crate) fn replace(
        &self,
        process: &'static Process,
        link: &Link,
        numbers: &[RawFd],
    ) -> Result<Placed, Errno> {
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
        let twin = self.beside(process, fd);
        self.stock(process, link);
        done.map(|()| Placed {
            number: agents,
            twin,
        })
    }
}
