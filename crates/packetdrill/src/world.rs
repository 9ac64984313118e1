//! What an instance's lock protects.

use std::collections::{BTreeMap, VecDeque};

use sidecore_tcp::Instant;
use sidecore_testkit::sockets::{Errno, Fd, SentPacket, Sockets};

use crate::epoll::Epoll;
use crate::settings::Settings;

/// What a descriptor that packetdrill knows stands for.
#[derive(Debug)]
pub(crate) enum Thing {
    Socket(Fd),
    Epoll(Epoll),
}

/// A call that blocks in another thread. It is tried again whenever something happened, by whoever made it happen and at the
/// instant at which it happened.
pub(crate) struct Waiter {
    /// Tries; keeps the result. True: it is there.
    pub(crate) attempt: Box<dyn FnMut(&mut World) -> bool + Send>,
    /// When it gives up: the attempt is made once more then, and is the last.
    pub(crate) until: Option<Instant>,
    /// When it was done.
    pub(crate) done: Option<Instant>,
}

/// The state of an instance.
#[derive(Default)]
pub(crate) struct World {
    pub(crate) settings: Settings,
    /// Made when the first socket is: by then the script's first command has set the sysctls.
    sockets: Option<Sockets>,
    pub(crate) things: BTreeMap<i32, Thing>,
    left: VecDeque<SentPacket>,
    /// packetdrill has one thread for calls that block.
    pub(crate) waiter: Option<Waiter>,
    pub(crate) now: Instant,
}

impl World {
    /// The sockets.
    pub(crate) fn sockets(&mut self) -> &mut Sockets {
        let (settings, now) = (&self.settings, self.now);
        self.sockets.get_or_insert_with(|| {
            let mut sockets = Sockets::new(&settings.sockets(), now);
            settings.tell(&mut sockets);
            sockets
        })
    }

    /// The socket that a descriptor stands for.
    pub(crate) fn socket(&mut self, fd: i32) -> Result<Fd, Errno> {
        match self.things.get(&fd) {
            Some(Thing::Socket(socket)) => Ok(*socket),
            Some(Thing::Epoll(_)) => Err(Errno::ENOTSOCK),
            None => Err(Errno::EBADF),
        }
    }

    /// A sysctl was set: new sockets are made so.
    pub(crate) fn set(&mut self, name: &str, value: &str) {
        self.settings.set(name, value);
        if let Some(sockets) = &mut self.sockets {
            self.settings.tell(sockets);
        }
    }

    /// What the stack remembers of servers is forgotten.
    pub(crate) fn forget(&mut self) {
        if let Some(sockets) = &mut self.sockets {
            sockets.forget_fast_open();
        }
    }

    /// When something is due next.
    pub(crate) fn next(&self) -> Option<Instant> {
        let stack = self.sockets.as_ref().and_then(Sockets::next_timeout);
        let waiter = self.waiter.as_ref().filter(|waiter| waiter.done.is_none());
        let until = waiter.and_then(|waiter| waiter.until);
        [stack, until].into_iter().flatten().min()
    }

    /// Time passes until `now`; what is due on the way happens at its own instant.
    pub(crate) fn advance(&mut self, now: Instant) {
        while let Some(next) = self.next().filter(|next| *next <= now) {
            self.step(next.max(self.now));
        }
        self.step(now.max(self.now));
    }

    fn step(&mut self, now: Instant) {
        self.now = now;
        if let Some(sockets) = &mut self.sockets {
            sockets.advance(now);
        }
        self.happened();
    }

    /// A packet comes from outside.
    pub(crate) fn arrives(&mut self, packet: &[u8]) {
        let now = self.now;
        self.sockets().receive(now, packet);
        self.happened();
    }

    /// The oldest packet that left and was not taken yet.
    pub(crate) fn take_packet(&mut self) -> Option<SentPacket> {
        self.collect();
        self.left.pop_front()
    }

    fn collect(&mut self) {
        if let Some(sockets) = &mut self.sockets {
            self.left.extend(sockets.take_packets());
        }
    }

    /// Something may have changed: the call that blocks is tried again.
    pub(crate) fn happened(&mut self) {
        self.collect();
        let Some(mut waiter) = self.waiter.take() else {
            return;
        };
        if waiter.done.is_none() {
            let over = waiter.until.is_some_and(|until| until <= self.now);
            if (waiter.attempt)(self) || over {
                waiter.done = Some(self.now);
            }
        }
        self.waiter = Some(waiter);
    }
}
