//! Waiting for descriptors of both kinds: poll, select, and blocking calls on sockets that have both.

use std::cell::Cell;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use libc::{c_short, pollfd};
use rustix::io::Errno;
use sidecore_client::{RawSocket, Ready};
use sidecore_sys::interruptible::put_off;

use crate::cancel::{self, Sleep};
use crate::epoll::{self, Epoll};
use crate::interrupt::Watch;
use crate::kick::Kick;
use crate::process::{Process, process};
use crate::signals;
use crate::socket::{Route, Socket};
use crate::sys::{self, Mask};
use crate::table::Thing;

/// Readiness as poll's bits.
pub(crate) fn bits(ready: Ready) -> c_short {
    let mut bits = 0;
    if ready.read {
        bits |= libc::POLLIN | libc::POLLRDNORM;
    }
    if ready.write {
        bits |= libc::POLLOUT | libc::POLLWRNORM;
    }
    if ready.read_ended {
        bits |= libc::POLLRDHUP;
    }
    if ready.hung_up {
        bits |= libc::POLLHUP;
    }
    if ready.error {
        bits |= libc::POLLERR;
    }
    if ready.urgent {
        bits |= libc::POLLPRI;
    }
    bits
}

/// What is told though nobody asked.
const ALWAYS: c_short = libc::POLLERR | libc::POLLHUP;

/// What of the engine's is waited for at one place of the list.
enum Source {
    Socket(RawSocket),
    Set(Arc<Epoll>),
    /// The descriptor is the system's to poll, until the connection is here.
    Descriptor(Arc<Socket>),
    /// Inherited over a fork, and of no use here.
    Nowhere,
}

/// It, and the number under which the thread's kick watches it.
struct Watched {
    at: usize,
    source: Source,
    number: u64,
}

impl Watched {
    fn new(at: usize, source: Source, kick: &Arc<Kick>) -> Self {
        let number = match &source {
            Source::Socket(raw) => raw.watch(kick.waker()),
            Source::Set(set) => set.watch(kick.waker()),
            Source::Descriptor(socket) => socket.poll_descriptor(kick.waker()),
            Source::Nowhere => 0,
        };
        Self { at, source, number }
    }

    /// Whether it is to be looked for elsewhere.
    fn has_moved(&self) -> bool {
        match &self.source {
            Source::Socket(raw) => raw.is_elsewhere(),
            Source::Descriptor(socket) => !socket.is_proxied(),
            Source::Set(_) | Source::Nowhere => false,
        }
    }

    /// What there is to tell of it.
    fn told(&self, fds: &[pollfd]) -> c_short {
        self.ready() & (fds[self.at].events | ALWAYS)
    }

    fn ready(&self) -> c_short {
        match &self.source {
            Source::Socket(raw) => bits(raw.ready()),
            Source::Set(set) if set.is_ready() => libc::POLLIN | libc::POLLRDNORM,
            Source::Set(_) | Source::Descriptor(_) => 0,
            Source::Nowhere => libc::POLLERR | libc::POLLHUP,
        }
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        match &self.source {
            Source::Socket(raw) => raw.unwatch(self.number),
            Source::Set(set) => set.unwatch(self.number),
            Source::Descriptor(socket) => socket.end_poll(self.number),
            Source::Nowhere => {}
        }
    }
}

/// Whether any of these is the engine's: else the system's own call will do.
pub(crate) fn concerns(fds: &[pollfd]) -> bool {
    let process = process();
    fds.iter().any(|fd| match process.get(fd.fd) {
        Some(Thing::Socket(socket)) => !matches!(socket.route(), Route::Kernel),
        Some(Thing::Epoll(set)) => set.has_engine(),
        None => false,
    })
}

/// `ppoll`.
pub(crate) fn poll(
    fds: &mut [pollfd],
    timeout: Option<Duration>,
    mask: Option<Mask>,
) -> Result<usize, Errno> {
    let process = process();
    let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
    let kick = Kick::of_thread(process)?;
    let mut renewals = process.tend();
    let (mut watched, mut system) = sort(process, fds, &kick);
    let cancelled = Sleep::on_kick(&kick);
    loop {
        let now = process.tend();
        // Listeners are others now.
        if std::mem::replace(&mut renewals, now) != now {
            (watched, system) = sort(process, fds, &kick);
        }
        // This thread need not wake itself for what it takes now.
        epoll::turn(process);
        kick.prepare();
        if cancelled.is_over() {
            kick.cancel();
            return Err(Errno::INTR);
        }
        if watched.iter().any(Watched::has_moved) {
            // Looked at from here on only: what moved before has woken nobody.
            kick.cancel();
            (watched, system) = sort(process, fds, &kick);
            continue;
        }
        let mut left = deadline.map(|at| at.saturating_duration_since(Instant::now()));
        if look(fds, &watched) > 0 {
            left = Some(Duration::ZERO);
        }
        let slept = if left == Some(Duration::ZERO) {
            kick.cancel();
            glance(&mut system, mask)
        } else {
            sleep(process, &kick, &mut system, deadline, mask, || {
                let mut all = watched.iter();
                cancelled.is_over() || all.any(|one| one.has_moved() || one.told(fds) != 0)
            })
        };
        kick.cancel();
        look(fds, &watched);
        let found = merge(fds, &system, &watched);
        if found > 0 || watched.iter().any(Watched::has_moved) && left != Some(Duration::ZERO) {
            if found == 0 {
                continue;
            }
            return Ok(found);
        }
        slept?;
        if left == Some(Duration::ZERO) {
            return Ok(0);
        }
    }
}

/// A look at the system's, if there are any; and signals that the mask lets through are delivered.
fn glance(system: &mut [pollfd], mask: Option<Mask>) -> Result<(), Errno> {
    match mask.is_some() || system.iter().any(|fd| fd.fd >= 0) {
        true => sys::ppoll(system, Some(Duration::ZERO), mask).map(|_| ()),
        false => Ok(()),
    }
}

/// Which are the engine's; and the list for the system, with places of the same order (-1 where it has none).
fn sort(
    process: &'static Process,
    fds: &[pollfd],
    kick: &Arc<Kick>,
) -> (Vec<Watched>, Vec<pollfd>) {
    let mut watched = Vec::new();
    let mut system = Vec::with_capacity(fds.len() + 2);
    for (at, fd) in fds.iter().enumerate() {
        let mut of_system = pollfd { revents: 0, ..*fd };
        let source = match process.get(fd.fd) {
            Some(Thing::Socket(socket)) => match socket.route() {
                Route::Kernel => None,
                Route::Nowhere => {
                    of_system.fd = -1;
                    Some(Source::Nowhere)
                }
                Route::Engine(raw) => {
                    of_system.fd = -1;
                    Some(Source::Socket(raw))
                }
                Route::Both(raw) => Some(Source::Socket(raw)),
                Route::Descriptor => Some(Source::Descriptor(socket)),
            },
            Some(Thing::Epoll(set)) => Some(Source::Set(set)),
            None => None,
        };
        watched.extend(source.map(|source| Watched::new(at, source, kick)));
        system.push(of_system);
    }
    (watched, system)
}

/// Writes down what the engine's are ready for; how many are.
fn look(fds: &mut [pollfd], watched: &[Watched]) -> usize {
    let mut found = 0;
    for watched in watched {
        let told = watched.told(fds);
        fds[watched.at].revents = told;
        found += usize::from(told != 0);
    }
    found
}

/// Adds what the system found; how many are ready together.
fn merge(fds: &mut [pollfd], system: &[pollfd], watched: &[Watched]) -> usize {
    let mut engines = watched.iter().map(|watched| watched.at).peekable();
    let mut found = 0;
    for (at, (fd, of_system)) in fds.iter_mut().zip(system).enumerate() {
        let engines = engines.next_if_eq(&at).is_some();
        let told = if of_system.fd < 0 {
            0
        } else {
            of_system.revents
        };
        fd.revents = if engines { fd.revents | told } else { told };
        found += usize::from(fd.revents != 0);
    }
    found
}

/// A sleep, on the system's descriptors, the thread's kick, and the event queue if nobody else looks after it. Who does that goes on with it while
/// what comes is for other threads, as `found` tells.
pub(crate) fn sleep(
    process: &'static Process,
    kick: &Arc<Kick>,
    system: &mut Vec<pollfd>,
    deadline: Option<Instant>,
    mask: Option<Mask>,
    found: impl Fn() -> bool,
) -> Result<(), Errno> {
    let own = system.len();
    let readable = |fd: RawFd| pollfd {
        fd,
        events: libc::POLLIN,
        revents: 0,
    };
    // How the last sleep ended, and whether it was by the event queue or another thread.
    let ended = Cell::new((Ok(()), false));
    let mut rest = |queue: Option<RawFd>, limit: Option<Duration>| {
        system.push(readable(kick.fd()));
        system.extend(queue.map(readable));
        let left = deadline.map(|at| at.saturating_duration_since(Instant::now()));
        let time = match (left, limit) {
            (Some(left), Some(limit)) => Some(left.min(limit)),
            (left, limit) => left.or(limit),
        };
        let slept = sys::ppoll(system, time, mask);
        if system[own].revents != 0 {
            kick.drain();
        }
        let by_system = system[..own].iter().any(|fd| fd.revents != 0);
        ended.set((slept.map(|_| ()), slept.is_ok_and(|n| n > 0) && !by_system));
        system.truncate(own);
        // What is handed out after the sleep is not to wake this thread again.
        kick.cancel();
    };
    let again = || {
        let (_, by_others) = ended.get();
        if !by_others || found() {
            return false;
        }
        kick.prepare();
        // What came since is looked at before the sleep.
        let nothing = !found();
        if !nothing {
            kick.cancel();
        }
        nothing
    };
    match process.opened() {
        Some(link) => {
            use std::os::fd::AsRawFd;
            let retry = process.retry();
            let rest = |queue: Option<std::os::fd::BorrowedFd<'_>>, limit: Option<Duration>| {
                rest(queue.map(|fd| fd.as_raw_fd()), limit.or(retry));
            };
            link.sockets.rest(&kick.waker(), rest, again);
        }
        None => rest(None, process.retry()),
    }
    ended.get().0
}

/// Repeats an attempt on one descriptor until it does not say AGAIN, waiting for these bits between; AGAIN when time is up.
pub(crate) fn block<T>(
    fd: RawFd,
    events: c_short,
    deadline: Option<Instant>,
    mut attempt: impl FnMut() -> Result<T, Errno>,
) -> Result<T, Errno> {
    let mut signals = None;
    loop {
        match attempt() {
            Err(Errno::AGAIN) => {}
            done => return done,
        }
        let left = deadline.map(|at| at.saturating_duration_since(Instant::now()));
        if left == Some(Duration::ZERO) {
            return Err(Errno::AGAIN);
        }
        let wanted = |fd: RawFd, events: c_short| pollfd {
            fd,
            events,
            revents: 0,
        };
        if left.is_some() {
            // With a timeout every handler ends the call, as signal(7) has it.
            poll(&mut [wanted(fd, events)], left, None)?;
            continue;
        }
        if signals.is_none() {
            signals = Some(Watch::new()?);
        }
        let Some(signals) = &signals else { continue };
        signals.sleep(|readable| {
            let mut fds = [wanted(fd, events), wanted(readable, libc::POLLIN)];
            poll(&mut fds, None, None).map(|_| ())
        })?;
        if put_off() != 0 {
            // Their handlers run, and say whether the call goes on.
            signals::may_restart(true);
            return Err(Errno::INTR);
        }
        if cancel::is_wished() {
            return Err(Errno::INTR);
        }
    }
}
