//! What the sockets of a group share: lane, event queue, memory to send from, and the table that says whose an event is.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::task::Waker;
use std::time::{Duration, Instant};

use sidecore_abi::command::Opt;
use sidecore_abi::{Command, DtiHandle, Event, EventKind, Operation, Status};

use super::config::{SocketsConfig, Wakes};
use super::send::SendPool;
use super::socket::{Kind, Socket};
use super::wait::Followers;
use super::wakers::wake_all;
use crate::error::Disconnected;
use crate::evq::Waited;
use crate::{Dti, EventQueue, EvqId, Lane, PostError, Ual};

/// Events taken from the queue at a time.
const BATCH: usize = 64;

/// How long a thread that must post goes on trying before it leaves the command to others.
const PATIENCE: Duration = Duration::from_millis(10);

/// How often a leader looks after commands that found the lane full.
const RETRY: Duration = Duration::from_millis(1);

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The event queue and what its leader needs.
pub(crate) struct Queue {
    events: EventQueue,
    batch: Vec<Event>,
    wake: Vec<Waker>,
}

impl Queue {
    /// Asks for the descriptor to sleep on; its number.
    pub(crate) fn prepare(&mut self) -> io::Result<RawFd> {
        self.events.fd().map(|fd| fd.as_raw_fd())
    }
}

/// The sockets of a group.
#[derive(Default)]
struct Table {
    /// By the handle's index.
    places: Vec<Option<Arc<Socket>>>,
    /// Sockets whose place has a new one already. A handle is free as soon as its last event is taken from the queue, and the events of a batch
    /// are handed out after that: what is among them for the old socket must still find it.
    replaced: Vec<Arc<Socket>>,
}

impl Table {
    fn put(&mut self, socket: &Arc<Socket>) {
        let index = socket.dti.index();
        if self.places.len() <= index {
            self.places.resize(index + 1, None);
        }
        let old = self.places[index].replace(Arc::clone(socket));
        self.replaced.extend(old);
    }

    fn find(&self, dti: DtiHandle) -> Option<&Arc<Socket>> {
        let place = self.places.get(dti.index as usize).and_then(Option::as_ref);
        place
            .filter(|socket| socket.dti == dti)
            .or_else(|| self.replaced.iter().find(|socket| socket.dti == dti))
    }

    fn remove(&mut self, socket: &Socket) {
        let place = self.places.get_mut(socket.dti.index());
        if let Some(place) = place
            && place.as_ref().is_some_and(|other| other.dti == socket.dti)
        {
            *place = None;
        } else {
            self.replaced.retain(|other| other.dti != socket.dti);
        }
    }
}

/// The shared part of [`super::Sockets`]. Locks are taken in this order: queue, table, a socket, lane; never two sockets.
pub(crate) struct Group {
    pub(crate) ual: Ual,
    pub(crate) config: SocketsConfig,
    pub(crate) evq: EvqId,
    pub(crate) lane: Arc<Mutex<Lane>>,
    pub(crate) queue: Mutex<Queue>,
    pub(crate) followers: Followers,
    pub(crate) memory: SendPool,
    table: Mutex<Table>,
    /// Commands that must be posted and found the lane full.
    deferred: Mutex<VecDeque<(Command, Option<Dti>)>>,
    /// How many they are. Written with their lock held.
    late: AtomicUsize,
    /// Options wait on the lane for the next command, or for the next look at the queue.
    gathered: AtomicBool,
    cookies: AtomicU64,
    dead: AtomicBool,
    /// No other group of this process has it.
    pub(crate) number: u64,
}

static GROUPS: AtomicU64 = AtomicU64::new(1);

impl Group {
    pub(crate) fn new(ual: &Ual, mut config: SocketsConfig) -> io::Result<Self> {
        config.accepts = config.accepts.max(1);
        let events = ual.event_queue()?;
        let lane = ual.lane()?;
        Ok(Self {
            evq: events.id(),
            memory: SendPool::new(ual, config.send_bytes)?,
            lane: post_options_soon(ual, lane),
            queue: Mutex::new(Queue {
                events,
                batch: Vec::with_capacity(BATCH),
                wake: Vec::new(),
            }),
            followers: Followers::default(),
            table: Mutex::new(Table::default()),
            deferred: Mutex::new(VecDeque::new()),
            late: AtomicUsize::new(0),
            gathered: AtomicBool::new(false),
            cookies: AtomicU64::new(1),
            dead: AtomicBool::new(false),
            number: GROUPS.fetch_add(1, Ordering::Relaxed),
            ual: ual.clone(),
            config,
        })
    }

    /// Whether the engine has gone.
    #[inline]
    pub(crate) fn is_dead(&self) -> bool {
        self.dead.load(Ordering::Acquire)
    }

    /// A number for a command whose answer is awaited.
    pub(crate) fn cookie(&self) -> u64 {
        self.cookies.fetch_add(1, Ordering::Relaxed)
    }

    /// Makes a DTI and the socket for it. Nothing is flushed.
    pub(crate) fn create(
        &self,
        kind: Kind,
        parent: Option<Arc<Socket>>,
    ) -> Result<Arc<Socket>, PostError> {
        // Held until the socket is in: no event may come before.
        let mut table = lock(&self.table);
        let dti = {
            let mut lane = lock(&self.lane);
            match kind {
                Kind::Datagram => lane.create_datagram(self.evq, self.evq)?,
                Kind::Stream | Kind::Listener => lane.create_stream(self.evq, self.evq)?,
            }
        };
        let socket = Arc::new(Socket::new(dti, kind, parent));
        table.put(&socket);
        Ok(socket)
    }

    /// Takes a connection that was given to this UAL, and makes the socket for it. The cookie is that of the answer. Flushed.
    pub(crate) fn attach(&self, from: u64, number: u64) -> Result<(Arc<Socket>, u64), PostError> {
        let cookie = self.cookie();
        // Held until the socket is in: no event may come before.
        let mut table = lock(&self.table);
        let dti = {
            let mut lane = lock(&self.lane);
            let dti = lane.attach(self.evq, self.evq, (from, number), cookie)?;
            lane.flush();
            dti
        };
        let socket = Arc::new(Socket::new(dti, Kind::Stream, None));
        lock(&socket.state).answers.push((cookie, None));
        table.put(&socket);
        Ok((socket, cookie))
    }

    pub(crate) fn find(&self, dti: DtiHandle) -> Option<Arc<Socket>> {
        lock(&self.table).find(dti).cloned()
    }

    pub(crate) fn forget(&self, socket: &Socket) {
        lock(&self.table).remove(socket);
    }

    fn sockets(&self) -> Vec<Arc<Socket>> {
        let table = lock(&self.table);
        let all = table.places.iter().flatten().chain(&table.replaced);
        all.cloned().collect()
    }

    /// The event queue, unless somebody serves it. After letting go of it: [`Followers::hand_over`].
    pub(crate) fn try_queue(&self) -> Option<MutexGuard<'_, Queue>> {
        match self.queue.try_lock() {
            Ok(queue) => Some(queue),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// A [`Self::turn`], unless another thread serves the queue.
    pub(crate) fn try_turn(&self, timeout: Duration) -> Result<bool, Disconnected> {
        self.post_gathered();
        let Some(mut queue) = self.try_queue() else {
            return Ok(false);
        };
        let came = self.turn(&mut queue, Some(timeout));
        drop(queue);
        match timeout {
            Duration::ZERO => self.followers.glanced(),
            _ => self.followers.hand_over(),
        }
        came
    }

    /// Posts a command that must not fail. A `patient` caller, which must not hold the queue, tries for a moment when the lane is full;
    /// then, or if not patient, whoever serves the queue tries on. Not to be called with a socket locked.
    pub(crate) fn post_surely(&self, command: Command, leaves: Option<Dti>, patient: bool) {
        // Usually there is room, and the time does not matter.
        let mut until = None;
        loop {
            if self.late.load(Ordering::Acquire) == 0 && self.post_now(command, leaves) {
                return;
            }
            if self.is_dead() {
                return;
            }
            if !patient || Instant::now() >= *until.get_or_insert_with(|| Instant::now() + PATIENCE)
            {
                self.change_deferred(|deferred| deferred.push_back((command, leaves)));
                return;
            }
            // A full event queue may be what keeps the engine from reading. Its end is told by others.
            let _ = self.try_turn(Duration::ZERO);
            std::thread::yield_now();
        }
    }

    fn post_now(&self, command: Command, leaves: Option<Dti>) -> bool {
        let mut lane = lock(&self.lane);
        let posted = match (command.operation, leaves) {
            (Operation::Close, Some(dti)) => lane.leave(command, dti),
            _ => lane.post(command),
        };
        lane.flush();
        posted.is_ok()
    }

    fn change_deferred<T>(
        &self,
        change: impl FnOnce(&mut VecDeque<(Command, Option<Dti>)>) -> T,
    ) -> T {
        let mut deferred = lock(&self.deferred);
        let done = change(&mut deferred);
        self.late.store(deferred.len(), Ordering::Release);
        done
    }

    /// Posts what was deferred; says whether something is left.
    pub(super) fn retry_deferred(&self) -> bool {
        if self.late.load(Ordering::Acquire) == 0 {
            return false;
        }
        loop {
            let Some((command, leaves)) = self.change_deferred(VecDeque::pop_front) else {
                return false;
            };
            if !self.post_now(command, leaves) {
                self.change_deferred(|deferred| deferred.push_front((command, leaves)));
                return true;
            }
        }
    }

    /// Lets an option wait for the next command, or for the next look at the event queue, so that several make one command. False: it must be
    /// posted by itself.
    pub(crate) fn gather_option(&self, dti: Dti, option: Opt, value: u64) -> bool {
        if self.late.load(Ordering::Acquire) > 0 {
            return false;
        }
        let mut lane = lock(&self.lane);
        let gathered = lane.set_option(dti, option, value, 0, 0).is_ok();
        // With the lane held: whoever finds it set finds the option.
        self.gathered.store(true, Ordering::Release);
        drop(lane);
        self.ual.inner().liveness().soon();
        gathered
    }

    /// Posts the options that wait. To be called by whoever is about to wait, or looks at the event queue.
    #[inline]
    pub(crate) fn post_gathered(&self) {
        if self.gathered.load(Ordering::Relaxed) {
            self.post_gathered_now();
        }
    }

    #[cold]
    fn post_gathered_now(&self) {
        self.gathered.store(false, Ordering::Relaxed);
        let mut lane = lock(&self.lane);
        lane.flush();
        if lane.has_options() {
            self.gathered.store(true, Ordering::Release);
        }
    }

    /// One look at the event queue: sleeps until something comes or time is up, and hands it out. Says whether something came.
    pub(crate) fn turn(
        &self,
        queue: &mut Queue,
        timeout: Option<Duration>,
    ) -> Result<bool, Disconnected> {
        let turned = self.turn_by(queue, timeout, |events, timeout| {
            events.wait(timeout).map(|came| match came {
                true => Waited::Came,
                false => Waited::TimedOut,
            })
        });
        turned.map(|waited| waited == Waited::Came)
    }

    /// Readies the queue for a sleep in poll, with a look at what is there already. The descriptor to sleep on, and how long at most; `None`:
    /// something came, do not sleep. After the sleep comes [`Self::slept`].
    pub(crate) fn arm<'q>(
        &self,
        queue: &'q mut Queue,
    ) -> Result<Option<(BorrowedFd<'q>, Option<Duration>)>, Disconnected> {
        if self.turn(queue, Some(Duration::ZERO))? {
            return Ok(None);
        }
        let late = self.retry_deferred();
        lock(&self.lane).flush();
        // Asked for once; then it is there.
        let known = queue.events.fd().is_ok();
        if !known || !queue.events.arm() {
            if !queue.events.is_alive() {
                self.die(queue);
                return Err(Disconnected);
            }
            return Ok(None);
        }
        let limit = late.then_some(RETRY);
        Ok(queue.events.fd().ok().map(|fd| (fd, limit)))
    }

    /// Takes [`Self::arm`] back, and hands out what came.
    pub(crate) fn slept(&self, queue: &mut Queue) {
        queue.events.disarm();
        if self.turn(queue, Some(Duration::ZERO)).is_ok() && !queue.events.is_alive() {
            self.die(queue);
        }
    }

    /// The same, with a sleep of the caller's.
    pub(super) fn turn_by(
        &self,
        queue: &mut Queue,
        timeout: Option<Duration>,
        wait: impl FnOnce(&mut EventQueue, Option<Duration>) -> Result<Waited, Disconnected>,
    ) -> Result<Waited, Disconnected> {
        let late = self.retry_deferred();
        self.post_gathered();
        if timeout != Some(Duration::ZERO) && queue.events.is_empty() {
            lock(&self.lane).flush();
            let timeout = if late {
                Some(timeout.map_or(RETRY, |timeout| timeout.min(RETRY)))
            } else {
                timeout
            };
            match wait(&mut queue.events, timeout) {
                Ok(Waited::Came) => {}
                Ok(other) => return Ok(other),
                Err(gone) => {
                    self.die(queue);
                    return Err(gone);
                }
            }
        }
        let mut batch = std::mem::take(&mut queue.batch);
        let mut wake = std::mem::take(&mut queue.wake);
        let came = queue.events.dequeue(&mut batch, BATCH);
        for event in batch.drain(..) {
            self.dispatch(&event, &mut wake);
        }
        match self.config.wakes {
            Some(Wakes { begin, end }) if wake.len() > 1 => {
                begin();
                wake_all(&mut wake);
                end();
            }
            _ => wake_all(&mut wake),
        }
        (queue.batch, queue.wake) = (batch, wake);
        Ok(if came > 0 {
            Waited::Came
        } else {
            Waited::TimedOut
        })
    }

    fn dispatch(&self, event: &Event, wake: &mut Vec<Waker>) {
        let owner = match refused_accept(event) {
            // Told for the listener; the child is what it is about.
            Some(child) => self.find(child),
            None => self.find(event.dti),
        };
        let Some(socket) = owner else {
            // Of a socket that is gone: its bytes go back.
            if event.has_chunk() {
                lock(&self.lane).return_chunk(event);
            }
            return;
        };
        if matches!(event.kind, EventKind::Accepted) || refused_accept(event).is_some() {
            socket.accepted(self, event, wake);
        } else {
            socket.handle(self, event, wake);
        }
    }

    /// The engine has gone: everybody is told.
    fn die(&self, queue: &mut Queue) {
        if self.dead.swap(true, Ordering::AcqRel) {
            return;
        }
        let mut wake = std::mem::take(&mut queue.wake);
        for socket in self.sockets() {
            socket.give_up(&mut wake);
            socket.wake_everybody(&mut wake);
        }
        wake_all(&mut wake);
    }

    /// Sockets of which something is still to be sent.
    fn unsent(&self) -> bool {
        self.sockets().iter().any(|socket| socket.is_closing())
    }
}

/// A lane whose options are posted a while after they were set, should nobody use it any more.
fn post_options_soon(ual: &Ual, lane: Lane) -> Arc<Mutex<Lane>> {
    let lane = Arc::new(Mutex::new(lane));
    let watched = Arc::downgrade(&lane);
    ual.inner().liveness().add_chore(Box::new(move || {
        let lane = watched.upgrade()?;
        let mut lane = lock(&lane);
        if lane.has_options() {
            lane.flush();
        }
        Some(lane.has_options())
    }));
    lane
}

/// The child of an accept that the engine refused.
fn refused_accept(event: &Event) -> Option<DtiHandle> {
    let refused = event.kind == EventKind::Completion
        && event.status != Status::Ok
        && event.body[4] == Operation::Accept as u64;
    refused.then(|| DtiHandle::from_word(event.cookie))
}

impl Drop for Group {
    /// Lets what was written go out: until each closed connection has ended, or the configured time is up.
    fn drop(&mut self) {
        let end = Instant::now() + self.config.linger;
        while self.unsent() && !self.is_dead() {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            let mut queue = lock(&self.queue);
            if self.turn(&mut queue, Some(left)).is_err() {
                return;
            }
        }
    }
}
