//! Descriptors that stand for sockets in an application's table of descriptors.
//!
//! Each is one end of a pair; the agent keeps the other, bound to a name that says which engine and which descriptor it is. So
//! whoever holds one can find out what it is (`getpeername`), over fork, exec and passing, and the agent is told when the last
//! holder, in whatever process, has closed it or died.

use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::epoll;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use sidecore_abi::agent::descriptor_name;

/// Ends whose other side closed that are let go of at a time.
const BATCH: usize = 256;

/// The agent's ends.
pub(crate) struct Descriptors {
    epoll: OwnedFd,
    /// By number: the end, and the UAL that asked for it.
    ends: HashMap<u64, (OwnedFd, u64)>,
    /// How many each UAL has.
    held: HashMap<u64, usize>,
    next: u64,
}

impl Descriptors {
    pub(crate) fn new() -> std::io::Result<Self> {
        Ok(Self {
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            ends: HashMap::new(),
            held: HashMap::new(),
            next: 1,
        })
    }

    /// Makes up to `count`, as long as this UAL has fewer than `limit`; gives the number of the first. An error when not even one can be
    /// made.
    pub(crate) fn make(
        &mut self,
        epoch: u64,
        ual: u64,
        count: usize,
        limit: usize,
    ) -> std::io::Result<(u64, Vec<OwnedFd>)> {
        let first = self.next;
        let mut given = Vec::with_capacity(count);
        for _ in 0..count {
            if self.held.get(&ual).is_some_and(|held| *held >= limit) {
                break;
            }
            match self.pair(epoch, ual) {
                Ok(end) => given.push(end),
                Err(error) if given.is_empty() => return Err(error),
                Err(_) => break,
            }
        }
        if given.is_empty() {
            return Err(std::io::ErrorKind::QuotaExceeded.into());
        }
        Ok((first, given))
    }

    fn pair(&mut self, epoch: u64, ual: u64) -> std::io::Result<OwnedFd> {
        let (ours, theirs) = rustix::net::socketpair(
            AddressFamily::UNIX,
            SocketType::STREAM,
            SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
            None,
        )?;
        let number = self.next;
        let name = descriptor_name(epoch, number);
        rustix::net::bind(&ours, &SocketAddrUnix::new_abstract_name(name.as_bytes())?)?;
        // A hang-up is told without being asked for.
        let data = epoll::EventData::new_u64(number);
        epoll::add(&self.epoll, &ours, data, epoll::EventFlags::empty())?;
        // Blocking as every new socket is; the flag is the open file's, so it was set for ours alone.
        rustix::io::ioctl_fionbio(&theirs, false)?;
        self.next += 1;
        self.ends.insert(number, (ours, ual));
        *self.held.entry(ual).or_default() += 1;
        Ok(theirs)
    }

    /// Lets go of ends whose other side has closed.
    pub(crate) fn reap(&mut self) {
        let now = rustix::time::Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let mut found = Vec::with_capacity(BATCH);
        let into = rustix::buffer::spare_capacity(&mut found);
        if epoll::wait(&self.epoll, into, Some(&now)).is_err() {
            return;
        }
        for event in found {
            let Some((_, ual)) = self.ends.remove(&event.data.u64()) else {
                continue;
            };
            if let Some(held) = self.held.get_mut(&ual) {
                *held -= 1;
                if *held == 0 {
                    self.held.remove(&ual);
                }
            }
        }
    }

    /// How many are held somewhere.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }
}

impl AsFd for Descriptors {
    /// Readable when [`Self::reap`] has something to do.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sidecore_abi::agent::parse_descriptor_name;

    #[test]
    fn descriptors_say_what_they_are_and_their_last_holder_counts() {
        let mut all = Descriptors::new().unwrap();
        let (first, mut fds) = all.make(0xabc, 7, 3, 2).unwrap();
        assert_eq!((first, fds.len(), all.len()), (1, 2, 2), "the limit is two");
        assert!(all.make(0xabc, 7, 1, 2).is_err());
        let peer = rustix::net::getpeername(&fds[1]).unwrap().unwrap();
        let peer = SocketAddrUnix::try_from(peer).unwrap();
        assert_eq!(
            parse_descriptor_name(peer.abstract_name().unwrap()),
            Some((0xabc, 2))
        );
        let copy = fds[0].try_clone().unwrap();
        fds.clear();
        all.reap();
        assert_eq!(all.len(), 1, "one is held still, by a copy");
        drop(copy);
        all.reap();
        assert_eq!(all.len(), 0);
        assert_eq!(all.make(0xabc, 7, 1, 2).unwrap().0, 3);
    }
}
