//! The thread that goes on with operations when their descriptors are ready, and the table of sockets.

use std::collections::HashMap;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};

use rustix::io::Errno;
use sidecore_sys::signals::without_signals;

use crate::process::Kept;
use crate::queue::lock;
use crate::socket::Socket;
use crate::sys::{Bell, Identity, Poller, Wish, identity};

/// The bell's key; sockets' are larger.
const BELL: u64 = 0;

/// Sockets that may be remembered before those are forgotten of which nothing is under way.
const REMEMBERED: usize = 1024;

/// What is served.
pub(crate) struct Service {
    pub(crate) poller: Poller,
    bell: Bell,
    sockets: Mutex<Sockets>,
    /// Keys of sockets to look after.
    reviews: Mutex<Vec<u64>>,
    keys: AtomicU64,
    own: Weak<Service>,
}

#[derive(Default)]
struct Sockets {
    by_identity: HashMap<Identity, Arc<Socket>>,
    /// Those in the epoll set.
    waiting: HashMap<u64, Arc<Socket>>,
}

impl Service {
    /// Makes one, with its thread, which takes no signals and never ends.
    pub(crate) fn start() -> Result<Arc<Self>, Errno> {
        let poller = Poller::new()?;
        let bell = Bell::new(&poller, BELL)?;
        let service = Arc::new_cyclic(|own| Self {
            poller,
            bell,
            sockets: Mutex::default(),
            reviews: Mutex::default(),
            keys: AtomicU64::new(BELL + 1),
            own: Weak::clone(own),
        });
        let served = Arc::clone(&service);
        let thread = std::thread::Builder::new().name("exs".into());
        let begun = without_signals(|| thread.spawn(move || served.serve()));
        match begun {
            Ok(_) => Ok(service),
            Err(error) => Err(Errno::from_io_error(&error).unwrap_or(Errno::AGAIN)),
        }
    }

    fn serve(&self) {
        let mut found = Vec::new();
        loop {
            self.poller.wait(&mut found);
            for readiness in &found {
                if readiness.key == BELL {
                    self.bell.quiet();
                    for key in std::mem::take(&mut *lock(&self.reviews)) {
                        if let Some(socket) = self.waiting(key) {
                            socket.review();
                        }
                    }
                } else if let Some(socket) = self.waiting(readiness.key) {
                    socket.ready(readiness);
                }
            }
        }
    }

    fn waiting(&self, key: u64) -> Option<Arc<Socket>> {
        lock(&self.sockets).waiting.get(&key).cloned()
    }

    /// The socket of a descriptor; one that is none only for polls.
    pub(crate) fn socket(&self, fd: RawFd, any: bool) -> Result<Arc<Socket>, Errno> {
        let (identity, is_socket) = identity(fd)?;
        if !is_socket && !any {
            return Err(Errno::NOTSOCK);
        }
        let mut sockets = lock(&self.sockets);
        if let Some(known) = sockets.by_identity.get(&identity) {
            return Ok(Arc::clone(known));
        }
        if sockets.by_identity.len() >= REMEMBERED {
            // Nobody else has one of which nothing is under way.
            sockets
                .by_identity
                .retain(|_, socket| Arc::strong_count(socket) > 1);
        }
        let key = self.keys.fetch_add(1, Ordering::Relaxed);
        let socket = Arc::new(Socket::new(key, identity, &self.own));
        sockets.by_identity.insert(identity, Arc::clone(&socket));
        Ok(socket)
    }

    /// All sockets of which something may be under way.
    pub(crate) fn all(&self) -> Vec<Arc<Socket>> {
        lock(&self.sockets).waiting.values().cloned().collect()
    }

    /// A socket has become another to the system.
    pub(crate) fn rename(&self, socket: &Arc<Socket>, before: Identity, now: Identity) {
        let mut sockets = lock(&self.sockets);
        sockets.by_identity.remove(&before);
        sockets.by_identity.insert(now, Arc::clone(socket));
    }

    /// A socket waits for something.
    pub(crate) fn enter(&self, own: &Kept, wish: Wish, socket: &Arc<Socket>) -> Result<(), Errno> {
        // Known before it is told of.
        lock(&self.sockets)
            .waiting
            .insert(socket.key(), Arc::clone(socket));
        let entered = self.poller.set(own.number(), wish, socket.key(), true);
        if entered.is_err() {
            lock(&self.sockets).waiting.remove(&socket.key());
        }
        entered
    }

    /// It does no more.
    pub(crate) fn leave(&self, own: &Kept, key: u64) {
        self.poller.remove(own.number());
        lock(&self.sockets).waiting.remove(&key);
    }

    /// Has a socket looked after soon.
    pub(crate) fn review(&self, key: u64) {
        let mut reviews = lock(&self.reviews);
        if !reviews.contains(&key) {
            reviews.push(key);
        }
        drop(reviews);
        self.bell.ring();
    }
}
