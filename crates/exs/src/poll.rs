//! exs_poll: one event when the first of several descriptors is ready.

use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use rustix::io::Errno;

use crate::boundary;
use crate::queue::{Detail, Event, Queue, lock};
use crate::socket::Socket;
use crate::types::EXS_EVT_POLL;

/// What is told though nobody asked.
const ALWAYS: i16 = libc::POLLERR | libc::POLLHUP | libc::POLLNVAL;

/// A poll that is under way.
pub(crate) struct Poll {
    queue: Arc<Queue>,
    ahandle: usize,
    /// The program's list, by its address.
    list: usize,
    /// Descriptors, and what is wanted of each.
    wanted: Vec<(RawFd, i16)>,
    over: AtomicBool,
    sockets: Mutex<Vec<Arc<Socket>>>,
}

impl Poll {
    pub(crate) fn new(
        queue: Arc<Queue>,
        ahandle: usize,
        list: usize,
        wanted: Vec<(RawFd, i16)>,
    ) -> Arc<Self> {
        Arc::new(Self {
            queue,
            ahandle,
            list,
            wanted,
            over: AtomicBool::new(false),
            sockets: Mutex::new(Vec::new()),
        })
    }

    pub(crate) fn ahandle(&self) -> usize {
        self.ahandle
    }

    pub(crate) fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }

    fn end(&self, fd: RawFd, errno: i32, count: i32) {
        self.queue.push(Event {
            kind: EXS_EVT_POLL,
            errno,
            fd,
            ahandle: self.ahandle,
            detail: Detail::Poll {
                list: self.list,
                count,
            },
        });
    }

    /// A look at all found this, before any was watched: bits of each.
    pub(crate) fn found_at_once(&self, bits: &[i16]) {
        if self.over.swap(true, Ordering::AcqRel) {
            return;
        }
        let mut first = None;
        let mut count = 0;
        for (at, bits) in bits.iter().enumerate() {
            boundary::store_found(self.list, at, *bits);
            if *bits != 0 {
                count += 1;
                first = first.or(self.wanted.get(at));
            }
        }
        self.end(first.map_or(-1, |(fd, _)| *fd), 0, count);
    }

    /// One of the list is ready for this. Whether that ends the poll.
    pub(crate) fn found(&self, at: usize, bits: i16) -> bool {
        let Some((fd, wanted)) = self.wanted.get(at) else {
            return false;
        };
        let bits = bits & (wanted | ALWAYS);
        if bits == 0 || self.over.swap(true, Ordering::AcqRel) {
            return false;
        }
        for other in 0..self.wanted.len() {
            boundary::store_found(self.list, other, if other == at { bits } else { 0 });
        }
        self.end(*fd, 0, 1);
        true
    }

    /// Ends it without a result. Whether it was not over before.
    pub(crate) fn cancel(&self) -> bool {
        if self.over.swap(true, Ordering::AcqRel) {
            return false;
        }
        self.end(-1, Errno::CANCELED.raw_os_error(), 0);
        true
    }

    /// It did not begin: nothing is told. False: it is over already, and that was told.
    pub(crate) fn withdraw(&self) -> bool {
        let begun = self.over.swap(true, Ordering::AcqRel);
        self.forget();
        !begun
    }

    /// It waits for this socket, too.
    pub(crate) fn waits_for(&self, socket: Arc<Socket>) {
        lock(&self.sockets).push(socket);
    }

    /// It is over: its sockets need not look for it any more.
    pub(crate) fn forget(&self) {
        for socket in std::mem::take(&mut *lock(&self.sockets)) {
            socket.look_later();
        }
    }
}
