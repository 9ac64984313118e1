//! One entry of a set's list.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::task::{Wake, Waker};

use sidecore_client::RawSocket;

use super::{Epoll, Key};
use crate::poll::bits;
use crate::socket::Socket;
use crate::table::lock;

/// What a descriptor in a set stands for.
pub(super) enum Source {
    Socket(Arc<Socket>),
    Set(Arc<Epoll>),
}

impl Source {
    /// Tells it from others that have, or had, the same number.
    pub(super) fn identity(&self) -> usize {
        match self {
            Self::Socket(socket) => Arc::as_ptr(socket).cast::<u8>() as usize,
            Self::Set(set) => Arc::as_ptr(set).cast::<u8>() as usize,
        }
    }

    /// Whether the system has something of it.
    pub(super) fn has_system(&self) -> bool {
        match self {
            Self::Socket(socket) => socket.has_kernel(),
            Self::Set(_) => true,
        }
    }
}

/// What an item looks at, once there is something of the engine's.
pub(crate) enum Watching {
    Socket(RawSocket, u64),
    Set(Weak<Epoll>, u64),
}

impl Watching {
    pub(super) fn socket(raw: RawSocket, item: &Arc<Item>) -> Self {
        let number = raw.watch(Waker::from(Arc::clone(item)));
        Self::Socket(raw, number)
    }

    pub(super) fn set(set: &Arc<Epoll>, item: &Arc<Item>) -> Self {
        let number = set.watch(Waker::from(Arc::clone(item)));
        Self::Set(Arc::downgrade(set), number)
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        match self {
            Self::Socket(raw, number) => raw.unwatch(*number),
            Self::Set(set, number) => {
                if let Some(set) = set.upgrade() {
                    set.unwatch(*number);
                }
            }
        }
    }
}

struct State {
    /// What is asked for, and how; 0: nothing, after a one-shot event.
    events: u32,
    data: u64,
    watching: Option<Watching>,
}

/// An entry.
pub(crate) struct Item {
    key: Key,
    set: Weak<Epoll>,
    queued: AtomicBool,
    /// Of an entry that was added with EPOLLEXCLUSIVE: the socket, whose other such entries need not be told.
    exclusive: Option<Weak<Socket>>,
    state: Mutex<State>,
}

/// What is told though nobody asked.
const ALWAYS: u32 = (libc::EPOLLERR | libc::EPOLLHUP) as u32;
/// Bits of `events` that say how, not what.
const HOW: u32 =
    (libc::EPOLLET | libc::EPOLLONESHOT | libc::EPOLLEXCLUSIVE | libc::EPOLLWAKEUP) as u32;

impl Item {
    pub(super) fn new(
        key: Key,
        set: &Arc<Epoll>,
        source: &Source,
        events: u32,
        data: u64,
    ) -> Arc<Self> {
        let exclusive = match source {
            Source::Socket(socket) if events & libc::EPOLLEXCLUSIVE as u32 != 0 => {
                Some(Arc::downgrade(socket))
            }
            _ => None,
        };
        Arc::new(Self {
            exclusive,
            key,
            set: Arc::downgrade(set),
            queued: AtomicBool::new(false),
            state: Mutex::new(State {
                events,
                data,
                watching: None,
            }),
        })
    }

    pub(super) fn key(&self) -> Key {
        self.key
    }

    pub(super) fn set(&self) -> Option<Arc<Epoll>> {
        self.set.upgrade()
    }

    /// Takes a place on the ready list: false if it has one.
    pub(super) fn queue(&self) -> bool {
        !self.queued.swap(true, Ordering::AcqRel)
    }

    /// It was taken off.
    pub(super) fn unqueue(&self) {
        self.queued.store(false, Ordering::Release);
    }

    pub(super) fn modify(&self, events: u32, data: u64) {
        let mut state = lock(&self.state);
        (state.events, state.data) = (events, data);
    }

    /// What is asked for, and the program's data.
    pub(super) fn asked(&self) -> (u32, u64) {
        let state = lock(&self.state);
        (state.events, state.data)
    }

    /// From now on this is looked at.
    pub(super) fn attach(&self, watching: Watching) {
        let old = lock(&self.state).watching.replace(watching);
        drop(old);
    }

    pub(super) fn detach(&self) {
        let old = lock(&self.state).watching.take();
        drop(old);
    }

    /// Its set, and itself, forget it: the socket is gone.
    pub(crate) fn drop_from_set(self: &Arc<Self>) {
        match self.set.upgrade() {
            Some(set) => set.drop_item(self),
            None => self.detach(),
        }
    }

    /// What there is to tell, and the program's data.
    pub(super) fn look(&self) -> Option<(u32, u64)> {
        let state = lock(&self.state);
        if state.events & !HOW == 0 && state.events & libc::EPOLLONESHOT as u32 != 0 {
            return None;
        }
        let found = match state.watching.as_ref()? {
            Watching::Socket(raw, _) => bits(raw.ready()) as u16 as u32,
            Watching::Set(set, _) => match set.upgrade()?.is_ready() {
                true => libc::EPOLLIN as u32,
                false => 0,
            },
        };
        let found = found & (state.events & !HOW | ALWAYS);
        (found != 0).then_some((found, state.data))
    }

    /// An event was told. Whether the next wait looks again.
    pub(super) fn told(&self) -> bool {
        let mut state = lock(&self.state);
        if state.events & libc::EPOLLONESHOT as u32 != 0 {
            state.events &= HOW;
            return false;
        }
        state.events & libc::EPOLLET as u32 == 0
    }
}

impl Wake for Item {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        match &self.exclusive {
            None => {
                self.tell();
            }
            Some(socket) => {
                if let Some(socket) = socket.upgrade() {
                    self.tell_one(&socket);
                }
            }
        }
    }
}

impl Item {
    /// Puts it on its set's ready list. Whether somebody was woken for it.
    fn tell(self: &Arc<Self>) -> bool {
        self.set.upgrade().is_some_and(|set| set.enqueue(self))
    }

    /// Of a socket's exclusive entries, tells one after the other until a thread is woken, as Linux does. Each of them is called for a change; the
    /// first acts for all.
    fn tell_one(self: &Arc<Self>, socket: &Socket) {
        let mut items = socket.items();
        items.retain(|item| item.exclusive.is_some());
        if items.first().is_some_and(|first| Arc::ptr_eq(first, self)) {
            let _ = items.iter().any(Self::tell);
        }
    }

    pub(super) fn is_exclusive(&self) -> bool {
        self.exclusive.is_some()
    }
}
