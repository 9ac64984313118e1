//! Which descriptors are this library's business.

use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use crate::epoll::Epoll;
use crate::socket::Socket;

/// What a descriptor stands for.
#[derive(Clone)]
pub(crate) enum Thing {
    /// An internet socket that is, or may become, the engine's.
    Socket(Arc<Socket>),
    /// An epoll set.
    Epoll(Arc<Epoll>),
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Places of one part.
const PART: usize = 1024;
/// Descriptors from here on are never ours.
const LIMIT: usize = 1 << 20;

#[derive(Default)]
struct Place {
    /// Fast answer for descriptors that are not ours.
    used: AtomicBool,
    thing: Mutex<Option<Thing>>,
}

type Part = Box<[Place]>;

/// All descriptors. Parts are made when they are first needed.
pub(crate) struct Table {
    parts: [OnceLock<Part>; LIMIT / PART],
}

impl Table {
    pub(crate) fn new() -> Box<Self> {
        Box::new(Self {
            parts: [const { OnceLock::new() }; LIMIT / PART],
        })
    }

    fn place(&self, fd: RawFd) -> Option<&Place> {
        let fd = usize::try_from(fd).ok()?;
        self.parts.get(fd / PART)?.get()?.get(fd % PART)
    }

    /// What a descriptor is; `None`: the system's business.
    #[inline]
    pub(crate) fn get(&self, fd: RawFd) -> Option<Thing> {
        let place = self.place(fd)?;
        if !place.used.load(Ordering::Acquire) {
            return None;
        }
        lock(&place.thing).clone()
    }

    /// Puts something there; false where the number is too high. What was there is given back to be dropped without a lock.
    pub(crate) fn put(&self, fd: RawFd, thing: Thing) -> bool {
        let Ok(number) = usize::try_from(fd) else {
            return false;
        };
        let Some(part) = self.parts.get(number / PART) else {
            return false;
        };
        let part = part.get_or_init(|| (0..PART).map(|_| Place::default()).collect());
        let place = &part[number % PART];
        let old = lock(&place.thing).replace(thing);
        place.used.store(true, Ordering::Release);
        drop(old);
        true
    }

    /// Takes away what is there.
    pub(crate) fn take(&self, fd: RawFd) -> Option<Thing> {
        let place = self.place(fd)?;
        if !place.used.load(Ordering::Acquire) {
            return None;
        }
        let mut thing = lock(&place.thing);
        place.used.store(false, Ordering::Release);
        thing.take()
    }

    /// Everything that is there, one after the other. Allocates nothing.
    pub(crate) fn each(&self, mut look: impl FnMut(&Thing)) {
        for (index, part) in self.parts.iter().enumerate() {
            for at in 0..part.get().map_or(0, |part| part.len()) {
                if let Some(thing) = self.get((index * PART + at) as RawFd) {
                    look(&thing);
                }
            }
        }
    }

    /// All descriptors that are ours, within a range.
    pub(crate) fn used(&self, first: RawFd, last: RawFd) -> Vec<RawFd> {
        let mut all = Vec::new();
        for (index, part) in self.parts.iter().enumerate() {
            let Some(part) = part.get() else { continue };
            let used = part.iter().enumerate();
            let used = used.filter(|(_, place)| place.used.load(Ordering::Acquire));
            all.extend(used.map(|(at, _)| (index * PART + at) as RawFd));
        }
        all.retain(|fd| (first..=last).contains(fd));
        all
    }
}
