//! Descriptors that stand for sockets in an application's table of descriptors.
//!
//! Each is one end of a pair; the agent keeps the other, bound to a name that says which engine and which descriptor it is. So
//! whoever holds one can find out what it is (`getpeername`), over fork, exec and passing, and the agent is told when the last
//! holder, in whatever process, has closed it or died.
//!
//! What a descriptor stands for is in one of these states:
//!
//! ```text
//!              Describe                    Release                       Give
//!   Listener <---------> Fast (one UAL's) ---------> Proxied (custody) -------> Giving
//!                             ^                          ^    refused            |
//!                             |                          `-----------------------'
//!                             `--------------------- given ---------------------'
//! ```

use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, epoll, poll};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use sidecore_abi::agent::descriptor_name;

/// Ends of which something is told at a time.
const BATCH: usize = 256;

/// Holders that one process can have made.
const HOLDERS_MAX: u64 = 1 << 20;

/// What a descriptor stands for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Standing {
    /// A connection of this UAL's, or one to be.
    Fast(u64),
    /// A listener, or a UDP socket, which each process opens for itself.
    Listener {
        address: [u64; 3],
        backlog: u64,
        key: u64,
        /// The number of its copies, or a peer's address.
        more: [u64; 3],
        flags: u32,
    },
    /// A connection in custody.
    Proxied,
    /// The custodian was told to give it to this UAL.
    Giving(u64),
    /// A connection of a UAL that died, which nobody took.
    Lost,
}

/// A descriptor's other end, and what is known of its holders.
pub(crate) struct Pair {
    end: OwnedFd,
    /// UAL that asked for it, whose quota it counts against.
    asked_by: u64,
    pub(crate) standing: Standing,
    /// UALs that are known to hold it.
    pub(crate) holders: Vec<u64>,
    /// Others that hold it, as far as was told. Rather too many than too few.
    pub(crate) others: u64,
    /// Holders that came forward before anybody told of them.
    early: u64,
    /// It is never to be one process's own again.
    pub(crate) stays: bool,
    /// Local and peer's address.
    pub(crate) addresses: [u64; 6],
}

impl Pair {
    /// How many hold it.
    pub(crate) fn count(&self) -> u64 {
        self.holders.len() as u64 + self.others
    }

    /// A process of which was not known that it holds it; it was one of the others.
    pub(crate) fn add_holder(&mut self, ual: u64) {
        if self.holders.contains(&ual) {
            return;
        }
        self.holders.push(ual);
        if self.others > 0 {
            self.others -= 1;
        } else {
            self.early += 1;
        }
    }

    /// A process tells of holders that it made; some of them may be known already.
    pub(crate) fn add_others(&mut self, count: u64) {
        let known = self.early.min(count);
        self.early -= known;
        self.others += (count - known).min(HOLDERS_MAX);
    }

    /// The end, once more: for the custodian.
    pub(crate) fn end(&self) -> std::io::Result<OwnedFd> {
        Ok(rustix::io::fcntl_dupfd_cloexec(&self.end, 0)?)
    }

    /// Whether nobody holds the descriptor.
    fn is_abandoned(&self) -> bool {
        let mut fds = [PollFd::new(&self.end, PollFlags::empty())];
        let now = rustix::time::Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        poll(&mut fds, Some(&now)).is_ok() && fds[0].revents().contains(PollFlags::HUP)
    }
}

/// The agent's ends.
pub(crate) struct Descriptors {
    epoll: OwnedFd,
    pairs: HashMap<u64, Pair>,
    /// How many each UAL has.
    held: HashMap<u64, usize>,
    next: u64,
}

impl Descriptors {
    pub(crate) fn new() -> std::io::Result<Self> {
        Ok(Self {
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            pairs: HashMap::new(),
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
        // A hang-up is told without being asked for. Bytes are told once for each time that some come: the custodian may read them.
        let data = epoll::EventData::new_u64(number);
        let events = epoll::EventFlags::IN | epoll::EventFlags::ET;
        epoll::add(&self.epoll, &ours, data, events)?;
        // Blocking as every new socket is; the flag is the open file's, so it was set for ours alone.
        rustix::io::ioctl_fionbio(&theirs, false)?;
        self.next += 1;
        let pair = Pair {
            end: ours,
            asked_by: ual,
            standing: Standing::Fast(ual),
            holders: vec![ual],
            others: 0,
            early: 0,
            stays: false,
            addresses: [0; 6],
        };
        self.pairs.insert(number, pair);
        *self.held.entry(ual).or_default() += 1;
        Ok(theirs)
    }

    pub(crate) fn get_mut(&mut self, number: u64) -> Option<&mut Pair> {
        self.pairs.get_mut(&number)
    }

    /// Lets go of ends whose other side has closed, but for those that the custodian looks after. Gives the numbers of fast connections into
    /// whose descriptors somebody has written.
    pub(crate) fn look(&mut self) -> Vec<u64> {
        let now = rustix::time::Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let mut found = Vec::with_capacity(BATCH);
        let into = rustix::buffer::spare_capacity(&mut found);
        if epoll::wait(&self.epoll, into, Some(&now)).is_err() {
            return Vec::new();
        }
        let mut written = Vec::new();
        for event in found {
            let (number, flags) = (event.data.u64(), event.flags);
            let Some(pair) = self.pairs.get(&number) else {
                continue;
            };
            let kept = matches!(pair.standing, Standing::Proxied | Standing::Giving(_));
            if flags.contains(epoll::EventFlags::HUP) && !kept {
                self.remove(number);
            } else if matches!(pair.standing, Standing::Fast(_)) {
                written.push(number);
            }
        }
        written
    }

    /// Lets go of an end.
    pub(crate) fn remove(&mut self, number: u64) -> Option<Pair> {
        let pair = self.pairs.remove(&number)?;
        if let Some(held) = self.held.get_mut(&pair.asked_by) {
            *held -= 1;
            if *held == 0 {
                self.held.remove(&pair.asked_by);
            }
        }
        Some(pair)
    }

    /// A UAL died: it holds nothing any more. Gives what it had for itself and others still hold, if they may (`spread`).
    pub(crate) fn forget_ual(&mut self, ual: u64, spread: bool) -> Vec<u64> {
        let mut left = Vec::new();
        for (number, pair) in &mut self.pairs {
            pair.holders.retain(|holder| *holder != ual);
            if pair.standing == Standing::Giving(ual) {
                pair.standing = Standing::Proxied;
            }
            if pair.standing != Standing::Fast(ual) {
                continue;
            }
            pair.standing = Standing::Lost;
            if spread && !pair.is_abandoned() {
                left.push(*number);
            }
        }
        left
    }

    /// How many are held somewhere.
    pub(crate) fn len(&self) -> usize {
        self.pairs.len()
    }
}

impl AsFd for Descriptors {
    /// Readable when [`Self::look`] has something to do.
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
        assert!(all.look().is_empty());
        assert_eq!(all.len(), 1, "one is held still, by a copy");
        drop(copy);
        assert!(all.look().is_empty());
        assert_eq!(all.len(), 0);
        assert_eq!(all.make(0xabc, 7, 1, 2).unwrap().0, 3);
    }

    #[test]
    fn bytes_are_told_of_fast_connections_and_custody_outlives_holders() {
        let mut all = Descriptors::new().unwrap();
        let (first, mut fds) = all.make(1, 7, 2, 9).unwrap();
        rustix::io::write(&fds[0], b"raw").unwrap();
        assert_eq!(all.look(), [first]);
        assert!(all.look().is_empty(), "it is told once");
        all.get_mut(first).unwrap().standing = Standing::Proxied;
        rustix::io::write(&fds[0], b"more").unwrap();
        assert!(all.look().is_empty());
        fds.remove(0);
        assert!(all.look().is_empty());
        assert_eq!(all.len(), 2, "the custodian looks after it");
        assert!(all.remove(first).is_some() && all.remove(first).is_none());
    }

    #[test]
    fn holders_are_counted_with_care() {
        let mut all = Descriptors::new().unwrap();
        let (first, fds) = all.make(1, 7, 2, 9).unwrap();
        let pair = all.get_mut(first).unwrap();
        pair.add_others(1);
        pair.add_holder(8);
        pair.add_holder(8);
        assert_eq!((pair.count(), pair.others), (2, 0));
        // One that comes forward before its parent tells of it, and of another.
        pair.add_holder(9);
        pair.add_others(2);
        assert_eq!((pair.count(), pair.others), (4, 1));
        pair.holders.retain(|holder| *holder != 9);
        pair.others = 0;
        assert!(all.forget_ual(7, false).is_empty());
        let pair = all.get_mut(first).unwrap();
        assert_eq!((pair.count(), pair.standing), (1, Standing::Lost));
        all.get_mut(first + 1).unwrap().standing = Standing::Fast(8);
        assert_eq!(all.forget_ual(8, true), [first + 1]);
        drop(fds);
        all.look();
        assert_eq!(all.len(), 0);
    }
}
