//! Epoll sets with descriptors of both kinds.
//!
//! The set's descriptor is the system's own, and the system's descriptors are in it as always. Sockets of the engine are items in
//! a list here. A wait looks at both, and sleeps on both: on the set, on the event queue (or whoever looks after it), and on the
//! thread's kick.
//!
//! ```text
//!   the engine's event -> socket -> item, put on the ready list -> a sleeping thread is kicked
//! ```
//!
//! Locks are taken in this order: a set, an item, a socket of the group. Nothing is woken with one of them held.

mod item;

use std::collections::{HashMap, VecDeque};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Waker;
use std::time::{Duration, Instant};

use libc::{c_int, epoll_event, pollfd};
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;

use crate::cancel::Sleep;
use crate::kick::Kick;
use crate::mix::Mix;
use crate::poll;
use crate::process::{Process, process};
use crate::socket::Socket;
use crate::sys::{self, Mask};
use crate::table::{Thing, lock};
pub(crate) use item::Item;
use item::{Source, Watching};

/// What the system's event of a [`Bump`] says. No program's data is this by accident.
const BUMP: u64 = 0x5349_4445_434f_5245;

/// With events of the engine's at hand, the system's are looked at only so often, so that neither starves.
const TURNS: usize = 4;

/// An item: the number under which it was added, and what it stood for then.
type Key = (RawFd, usize);

#[derive(Default)]
struct Inner {
    items: HashMap<Key, Arc<Item>, Mix>,
    ready: VecDeque<Arc<Item>>,
    /// Threads that may sleep.
    sleepers: Vec<Arc<Kick>>,
    /// Who waits for the set itself: another set, or a poll.
    watchers: Vec<(u64, Waker)>,
    /// Ends sleeps in the system's own wait, once there is something of the engine's.
    bump: Option<OwnedFd>,
}

/// A set.
pub(crate) struct Epoll {
    /// The number by which the system is asked: one of those that stand for it.
    fd: AtomicI32,
    /// All of them.
    numbers: Mutex<Vec<RawFd>>,
    inner: Mutex<Inner>,
    /// Something of the engine's is in it, or was.
    engine: AtomicBool,
    /// Something of the system's is in it, or was.
    system: AtomicBool,
    /// Threads in the system's own wait.
    waiting: AtomicUsize,
    turns: AtomicUsize,
}

impl Epoll {
    /// The set behind a descriptor that the system just made.
    pub(crate) fn new(fd: RawFd) -> Arc<Self> {
        Arc::new(Self {
            fd: AtomicI32::new(fd),
            numbers: Mutex::new(vec![fd]),
            inner: Mutex::new(Inner::default()),
            engine: AtomicBool::new(false),
            system: AtomicBool::new(false),
            waiting: AtomicUsize::new(0),
            turns: AtomicUsize::new(0),
        })
    }

    /// The same set in a forked child, with its numbers. The engine's entries are the parent's.
    pub(crate) fn inherited(&self) -> (Arc<Self>, Vec<RawFd>) {
        let set = Self::new(self.fd());
        set.system.store(true, Ordering::Relaxed);
        let numbers = lock(&self.numbers).clone();
        lock(&set.numbers).clone_from(&numbers);
        (set, numbers)
    }

    fn fd(&self) -> RawFd {
        self.fd.load(Ordering::Relaxed)
    }

    /// One more number stands for it.
    pub(crate) fn add_number(&self, fd: RawFd) {
        let mut numbers = lock(&self.numbers);
        if !numbers.contains(&fd) {
            numbers.push(fd);
        }
    }

    /// One fewer.
    pub(crate) fn remove_number(&self, fd: RawFd) {
        let mut numbers = lock(&self.numbers);
        numbers.retain(|other| *other != fd);
        if let Some(first) = numbers.first() {
            self.fd.store(*first, Ordering::Relaxed);
        }
    }

    /// Whether the system's own wait will not do.
    pub(crate) fn has_engine(&self) -> bool {
        self.engine.load(Ordering::SeqCst)
    }

    /// epoll_ctl.
    pub(crate) fn control(
        self: &Arc<Self>,
        process: &'static Process,
        operation: c_int,
        fd: RawFd,
        events: u32,
        data: u64,
    ) -> Result<(), Errno> {
        let system = || {
            sys::epoll_ctl(self.fd(), operation, fd, events, data)?;
            self.system
                .fetch_or(operation == libc::EPOLL_CTL_ADD, Ordering::Relaxed);
            Ok(())
        };
        let source = match process.get(fd) {
            None => return system(),
            Some(Thing::Epoll(set)) if Arc::ptr_eq(&set, self) => return Err(Errno::INVAL),
            Some(Thing::Epoll(set)) => Source::Set(set),
            Some(Thing::Socket(socket)) => Source::Socket(socket),
        };
        check_exclusive(operation, &source, events)?;
        if let Source::Socket(socket) = &source {
            // What was inherited is asked for here.
            drop(socket.route());
        }
        let key = (fd, source.identity());
        let known = lock(&self.inner).items.get(&key).cloned();
        match (operation, known) {
            (libc::EPOLL_CTL_ADD, Some(_)) => Err(Errno::EXIST),
            (libc::EPOLL_CTL_ADD, None) => {
                if source.has_system() {
                    system()?;
                }
                self.add(key, &source, events, data);
                Ok(())
            }
            (_, None) => Err(Errno::NOENT),
            (libc::EPOLL_CTL_MOD, Some(item)) if item.is_exclusive() => Err(Errno::INVAL),
            (libc::EPOLL_CTL_MOD, Some(item)) => {
                if source.has_system() {
                    system()?;
                }
                item.modify(events, data);
                self.enqueue(&item);
                Ok(())
            }
            (libc::EPOLL_CTL_DEL, Some(item)) => {
                let done = if source.has_system() {
                    system()
                } else {
                    Ok(())
                };
                self.remove(&item);
                done
            }
            _ => Err(Errno::INVAL),
        }
    }

    fn add(self: &Arc<Self>, key: Key, source: &Source, events: u32, data: u64) {
        let item = Item::new(key, self, source, events, data);
        lock(&self.inner).items.insert(key, Arc::clone(&item));
        match source {
            Source::Socket(socket) => {
                socket.add_item(&item);
                // A listener that was inherited is opened here.
                drop(socket.route());
                if let Some(raw) = socket.raw() {
                    item.attach(Watching::socket(raw, &item));
                    self.attached(&item);
                }
            }
            Source::Set(set) => {
                item.attach(Watching::set(set, &item));
                if set.has_engine() {
                    self.attached(&item);
                }
            }
        }
    }

    /// An item became one of the engine's.
    pub(crate) fn attached(self: &Arc<Self>, item: &Arc<Item>) {
        if !self.engine.swap(true, Ordering::SeqCst) {
            self.end_system_waits();
        }
        self.enqueue(item);
    }

    /// Threads that went to sleep when there was nothing of the engine's come out of the system's wait.
    fn end_system_waits(&self) {
        let mut inner = lock(&self.inner);
        if self.waiting.load(Ordering::SeqCst) == 0 || inner.bump.is_some() {
            return;
        }
        let Ok(bump) = eventfd(1, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK) else {
            return;
        };
        let bump = process().keep_high(bump);
        let events = libc::EPOLLIN as u32;
        let _ = sys::epoll_ctl(
            self.fd(),
            libc::EPOLL_CTL_ADD,
            bump.as_raw_fd(),
            events,
            BUMP,
        );
        inner.bump = Some(bump);
    }

    /// A thread is about to run the system's own wait. False, and nothing noted, if there is something of the engine's.
    pub(crate) fn begin_system_wait(&self) -> bool {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        if self.has_engine() {
            self.end_system_wait();
            return false;
        }
        true
    }

    /// It has.
    pub(crate) fn end_system_wait(&self) {
        if self.waiting.fetch_sub(1, Ordering::SeqCst) == 1 && self.has_engine() {
            let bump = lock(&self.inner).bump.take();
            if let Some(bump) = bump {
                let fd = bump.as_raw_fd();
                let _ = sys::epoll_ctl(self.fd(), libc::EPOLL_CTL_DEL, fd, 0, 0);
                process().release(fd);
            }
        }
    }

    /// What the system's own wait found for the program; `None`: it was ended because there is something of the engine's by now.
    pub(crate) fn found(events: &mut [epoll_event], found: c_int) -> Option<c_int> {
        let count = usize::try_from(found).unwrap_or(0).min(events.len());
        let left = without_bump(events, count);
        (left == count)
            .then_some(found)
            .or_else(|| (left > 0).then_some(left as c_int))
    }

    /// Puts an item on the ready list, to be looked at, and wakes a thread for it.
    /// Says whether one was woken.
    pub(crate) fn enqueue(&self, item: &Arc<Item>) -> bool {
        let mut wake = Vec::new();
        let woken;
        {
            let mut inner = lock(&self.inner);
            if item.queue() {
                inner.ready.push_back(Arc::clone(item));
            }
            wake.extend(inner.watchers.iter().map(|(_, waker)| waker.clone()));
            woken = wake_one(&inner) || !wake.is_empty();
        }
        wake.into_iter().for_each(Waker::wake);
        woken
    }

    fn remove(&self, item: &Arc<Item>) {
        {
            let mut inner = lock(&self.inner);
            inner.items.remove(&item.key());
            inner.ready.retain(|other| !Arc::ptr_eq(other, item));
        }
        item.detach();
    }

    /// A socket is gone, and its item with it.
    pub(crate) fn drop_item(&self, item: &Arc<Item>) {
        self.remove(item);
    }

    /// Whether a wait would find something of the engine's.
    pub(crate) fn is_ready(&self) -> bool {
        let inner = lock(&self.inner);
        let mut ready = inner.ready.iter();
        ready.any(|item| item.look().is_some())
    }

    /// From now on `waker` is woken when there may be something. Gives a number for [`Self::unwatch`].
    pub(crate) fn watch(&self, waker: Waker) -> u64 {
        static NUMBERS: AtomicU64 = AtomicU64::new(1);
        let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
        lock(&self.inner).watchers.push((number, waker));
        number
    }

    pub(crate) fn unwatch(&self, number: u64) {
        lock(&self.inner)
            .watchers
            .retain(|(other, _)| *other != number);
    }

    /// Takes events of the engine's; how many.
    fn collect(&self, events: &mut [epoll_event]) -> usize {
        let mut inner = lock(&self.inner);
        let mut found = 0;
        for _ in 0..inner.ready.len() {
            if found == events.len() {
                break;
            }
            let Some(item) = inner.ready.pop_front() else {
                break;
            };
            // From here on a change puts it there again.
            item.unqueue();
            let Some((bits, data)) = item.look() else {
                continue;
            };
            events[found] = epoll_event {
                events: bits,
                u64: data,
            };
            found += 1;
            if item.told() && item.queue() {
                // Level: it is looked at again by the next wait.
                inner.ready.push_back(item);
            }
        }
        if !inner.ready.is_empty() {
            wake_one(&inner);
        }
        found
    }

    /// Adds events of the system's.
    fn collect_system(&self, events: &mut [epoll_event], found: usize) -> Result<usize, Errno> {
        let room = &mut events[found..];
        if room.is_empty() || !self.system.load(Ordering::Relaxed) {
            return Ok(found);
        }
        let more = sys::epoll_now(self.fd(), room)?;
        Ok(found + without_bump(room, more))
    }

    /// The set itself as something to wait for, if it has anything of the system's.
    fn of_system(&self) -> Option<pollfd> {
        let set = pollfd {
            fd: self.fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        self.system.load(Ordering::Relaxed).then_some(set)
    }

    /// epoll_pwait, where something of the engine's is in the set.
    pub(crate) fn wait(
        &self,
        process: &'static Process,
        events: &mut [epoll_event],
        timeout: Option<Duration>,
        mask: Option<Mask>,
    ) -> Result<usize, Errno> {
        // What is there is taken without a word to those who would wake this thread.
        process.tend();
        turn(process);
        let found = self.collect(events);
        if found > 0 {
            return self.with_some_of_the_systems(events, found, mask);
        }
        self.wait_for_more(process, events, timeout, mask)
    }

    fn with_some_of_the_systems(
        &self,
        events: &mut [epoll_event],
        found: usize,
        mask: Option<Mask>,
    ) -> Result<usize, Errno> {
        if mask.is_some() {
            // For the signals that it lets through; their handlers run when the call is over.
            let _ = sys::ppoll(&mut [], Some(Duration::ZERO), mask);
        }
        match self.turns.fetch_add(1, Ordering::Relaxed) % TURNS {
            0 => self.collect_system(events, found),
            _ => Ok(found),
        }
    }

    fn wait_for_more(
        &self,
        process: &'static Process,
        events: &mut [epoll_event],
        timeout: Option<Duration>,
        mask: Option<Mask>,
    ) -> Result<usize, Errno> {
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let kick = Kick::of_thread(process)?;
        let sleeper = Sleeper::new(self, &kick);
        let mut system: Vec<pollfd> = Vec::with_capacity(3);
        let cancelled = Sleep::on_kick(&kick);
        loop {
            process.tend();
            // This thread need not wake itself for what it takes now.
            turn(process);
            kick.prepare();
            if cancelled.is_over() {
                kick.cancel();
                return Err(Errno::INTR);
            }
            let found = self.collect(events);
            if found > 0 {
                kick.cancel();
                return self.with_some_of_the_systems(events, found, mask);
            }
            let left = deadline.map(|at| at.saturating_duration_since(Instant::now()));
            system.clear();
            system.extend(self.of_system());
            let slept = if left == Some(Duration::ZERO) {
                sys::ppoll(&mut system, left, mask).map(|_| ())
            } else {
                poll::sleep(process, &kick, &mut system, deadline, mask, || {
                    self.is_ready() || cancelled.is_over()
                })
            };
            kick.cancel();
            let found = self.collect(events);
            let found = match system.first() {
                Some(set) if set.revents != 0 => self.collect_system(events, found)?,
                _ => found,
            };
            if found > 0 || left == Some(Duration::ZERO) {
                drop(sleeper);
                return Ok(found);
            }
            slept?;
        }
    }
}

/// Takes what the event queue has.
pub(crate) fn turn(process: &Process) {
    if let Some(link) = process.opened() {
        // Its end is told by the sockets.
        let _ = link.sockets.turn(Duration::ZERO);
    }
}

/// What Linux takes EPOLLEXCLUSIVE with: a new entry of something that is no set, and nothing that says how but edges.
fn check_exclusive(operation: c_int, source: &Source, events: u32) -> Result<(), Errno> {
    if events & libc::EPOLLEXCLUSIVE as u32 == 0 {
        return Ok(());
    }
    let with = libc::EPOLLIN
        | libc::EPOLLOUT
        | libc::EPOLLERR
        | libc::EPOLLHUP
        | libc::EPOLLWAKEUP
        | libc::EPOLLET
        | libc::EPOLLEXCLUSIVE;
    match source {
        Source::Socket(_) if operation == libc::EPOLL_CTL_ADD && events & !(with as u32) == 0 => {
            Ok(())
        }
        _ => Err(Errno::INVAL),
    }
}

/// Takes the [`BUMP`] out of the first `count` events; how many are left.
fn without_bump(events: &mut [epoll_event], count: usize) -> usize {
    let mut left = 0;
    for at in 0..count {
        let event = events[at];
        if event.u64 != BUMP {
            events[left] = event;
            left += 1;
        }
    }
    left
}

/// Wakes one of the threads that wait, unless one is awake, and looks before it sleeps or goes: the one that hands events out, often. False if none
/// waits.
fn wake_one(inner: &Inner) -> bool {
    inner.sleepers.iter().any(|kick| kick.is_awake())
        || inner.sleepers.iter().any(|kick| kick.wake_if_asleep())
}

/// A thread's place among those that wait.
struct Sleeper<'a> {
    set: &'a Epoll,
    kick: Arc<Kick>,
}

impl<'a> Sleeper<'a> {
    fn new(set: &'a Epoll, kick: &Arc<Kick>) -> Self {
        lock(&set.inner).sleepers.push(Arc::clone(kick));
        Self {
            set,
            kick: Arc::clone(kick),
        }
    }
}

impl Drop for Sleeper<'_> {
    fn drop(&mut self) {
        let mut inner = lock(&self.set.inner);
        let place = inner
            .sleepers
            .iter()
            .position(|kick| Arc::ptr_eq(kick, &self.kick));
        if let Some(at) = place {
            inner.sleepers.swap_remove(at);
        }
        // What came for this thread is another's to take.
        if !inner.ready.is_empty() {
            wake_one(&inner);
        }
    }
}

impl Drop for Epoll {
    fn drop(&mut self) {
        let items: Vec<_> = lock(&self.inner).items.drain().collect();
        for (_, item) in items {
            item.detach();
        }
    }
}

impl Epoll {
    /// An item's socket is with the custodian from now on: the system looks at the descriptor.
    fn to_system(&self, item: &Arc<Item>) {
        item.detach();
        let (events, data) = item.asked();
        let (fd, _) = item.key();
        let _ = sys::epoll_ctl(self.fd(), libc::EPOLL_CTL_ADD, fd, events, data);
        self.system.store(true, Ordering::Relaxed);
        // Sleepers look at what they sleep on.
        let inner = lock(&self.inner);
        for kick in &inner.sleepers {
            kick.wake_if_asleep();
        }
    }

    /// … and it has come back.
    fn leave_system(&self, item: &Arc<Item>) {
        let (fd, _) = item.key();
        let _ = sys::epoll_ctl(self.fd(), libc::EPOLL_CTL_DEL, fd, 0, 0);
    }
}

impl Socket {
    /// Its items, when its connection has gone to the custodian.
    pub(crate) fn items_to_system(&self) {
        for item in self.items() {
            if let Some(set) = item.set() {
                set.to_system(&item);
            }
        }
    }

    /// Its items, when this process lets go of a connection that is with the custodian.
    pub(crate) fn items_leave_system(&self) {
        for item in self.items() {
            if let Some(set) = item.set() {
                set.leave_system(&item);
            }
        }
    }

    /// Its items, when its connection has come here.
    pub(crate) fn items_from_system(&self) {
        self.items_leave_system();
        self.attach_items();
    }

    /// Its items, now that there is a socket of the engine's.
    pub(crate) fn attach_items(&self) {
        let Some(raw) = self.raw() else { return };
        for item in self.items() {
            item.attach(Watching::socket(raw.clone(), &item));
            let _ = item.set().map(|set| set.attached(&item));
        }
    }
}
