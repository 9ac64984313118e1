//! Waking a thread of another process through a socket.
//!
//! A byte on a datagram socket, sent without waiting: when the socket is full the sleeper has bytes enough to wake, and the
//! sender goes on. Never an eventfd or a pipe: whoever holds the other end of those can make a writer or reader wait (a full
//! counter without O_NONBLOCK, a pipe whose lock is held over a page fault).

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};

/// The end that wakes.
#[derive(Debug)]
pub struct Waker(OwnedFd);

/// The end that sleeps.
#[derive(Debug)]
pub struct Sleeper(OwnedFd);

/// Both ends, before one is passed on.
#[derive(Debug)]
pub struct WakePair {
    /// The end that wakes.
    pub waker: Waker,
    /// The end that sleeps.
    pub sleeper: Sleeper,
}

/// SO_PASSRIGHTS (Linux 6.16): whether descriptors may be sent to this socket.
const SO_PASSRIGHTS: libc::c_int = 83;

/// Datagrams that one [`Sleeper::drain`] takes at most; a flood leaves the socket readable and is met again later.
const DRAIN_MAX: usize = 64;

impl WakePair {
    /// Makes a pair. Both ends are close-on-exec and never block.
    ///
    /// Where the kernel can (6.16), neither end takes descriptors: the last reference to a hostile descriptor could make whoever
    /// drops it wait.
    pub fn new() -> io::Result<Self> {
        let (waker, sleeper) = rustix::net::socketpair(
            AddressFamily::UNIX,
            SocketType::DGRAM,
            SocketFlags::NONBLOCK | SocketFlags::CLOEXEC,
            None,
        )?;
        refuse_descriptors(&waker);
        refuse_descriptors(&sleeper);
        Ok(Self {
            waker: Waker(waker),
            sleeper: Sleeper(sleeper),
        })
    }

    /// Both ends.
    pub fn split(self) -> (Waker, Sleeper) {
        (self.waker, self.sleeper)
    }
}

/// Makes sends of descriptors to this socket fail; false on kernels that cannot.
pub fn refuse_descriptors(socket: impl AsFd) -> bool {
    let off: libc::c_int = 0;
    // SAFETY: the option's value is an int that lives over the call.
    let result = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            SO_PASSRIGHTS,
            (&raw const off).cast(),
            size_of_val(&off) as libc::socklen_t,
        )
    };
    result == 0
}

impl Waker {
    /// Sends one byte and returns at once whatever happens: a full socket wakes as well as another byte would, and a closed one has
    /// nobody to wake. Says whether the byte went out.
    #[inline]
    pub fn wake(&self) -> bool {
        rustix::net::send(&self.0, &[1], SendFlags::DONTWAIT | SendFlags::NOSIGNAL).is_ok()
    }

    /// The descriptor, to be passed on.
    pub fn into_fd(self) -> OwnedFd {
        self.0
    }
}

impl Sleeper {
    /// Takes what lies in the socket (at most 64 datagrams), without blocking. Says whether there was anything.
    pub fn drain(&self) -> bool {
        let mut byte = [0u8; 1];
        for turn in 0..DRAIN_MAX {
            match rustix::net::recv(&self.0, &mut byte, RecvFlags::DONTWAIT) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(_) => return turn > 0,
            }
        }
        true
    }

    /// Takes one datagram, if there is one, without blocking: enough where each sleep is ended by one. Says whether there was.
    pub fn take(&self) -> bool {
        let mut byte = [0u8; 1];
        loop {
            match rustix::net::recv(&self.0, &mut byte, RecvFlags::DONTWAIT) {
                Err(Errno::INTR) => {}
                took => return took.is_ok(),
            }
        }
    }

    /// Blocks until a byte is there, or the other end is closed (true), or time is up (false). The byte stays.
    pub fn wait(&self, timeout: Option<Duration>) -> io::Result<bool> {
        let timeout = timeout.map(|t| rustix::time::Timespec {
            tv_sec: t.as_secs().min(i64::MAX as u64) as i64,
            tv_nsec: t.subsec_nanos() as i64,
        });
        let mut fds = [PollFd::new(&self.0, PollFlags::IN)];
        match rustix::event::poll(&mut fds, timeout.as_ref()) {
            Ok(n) => Ok(n > 0),
            Err(Errno::INTR) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// The descriptor, to be passed on.
    pub fn into_fd(self) -> OwnedFd {
        self.0
    }
}

impl AsFd for Waker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl AsFd for Sleeper {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl From<OwnedFd> for Waker {
    fn from(fd: OwnedFd) -> Self {
        Self(fd)
    }
}

impl From<OwnedFd> for Sleeper {
    fn from(fd: OwnedFd) -> Self {
        Self(fd)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    #[test]
    fn waking_a_full_socket_returns_at_once() {
        let (waker, sleeper) = WakePair::new().unwrap().split();
        // The other end may have undone O_NONBLOCK on its own side; it must not matter.
        rustix::io::ioctl_fionbio(&sleeper, false).unwrap();
        rustix::io::ioctl_fionbio(&waker, false).unwrap();
        let start = Instant::now();
        let sent = (0..100_000).filter(|_| waker.wake()).count();
        assert!(sent > 0 && sent < 100_000, "it did fill: {sent}");
        assert!(start.elapsed() < Duration::from_secs(20));
        assert!(sleeper.wait(Some(Duration::ZERO)).unwrap());
        let mut drains = 0;
        while sleeper.drain() {
            drains += 1;
        }
        assert_eq!(drains, sent.div_ceil(DRAIN_MAX), "each drain is bounded");
        assert!(!sleeper.wait(Some(Duration::ZERO)).unwrap());
        assert!(waker.wake());
    }

    #[test]
    fn no_descriptor_can_be_sent_along() {
        use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, sendmsg};
        let (waker, sleeper) = WakePair::new().unwrap().split();
        if !refuse_descriptors(&sleeper) {
            eprintln!("skipped: this kernel has no SO_PASSRIGHTS");
            return;
        }
        for from in [waker.as_fd(), sleeper.as_fd()] {
            let fds = [from];
            let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
            let mut control = SendAncillaryBuffer::new(&mut space);
            assert!(control.push(SendAncillaryMessage::ScmRights(&fds)));
            let bytes = [io::IoSlice::new(b"x")];
            let sent = sendmsg(from, &bytes, &mut control, SendFlags::DONTWAIT);
            assert_eq!(sent, Err(Errno::PERM));
        }
        assert!(!sleeper.drain() && waker.wake());
    }

    #[test]
    fn a_closed_end_is_harmless() {
        let (waker, sleeper) = WakePair::new().unwrap().split();
        drop(sleeper);
        assert!(!waker.wake());
        let (waker, sleeper) = WakePair::new().unwrap().split();
        drop(waker);
        assert!(!sleeper.drain());
    }
}
