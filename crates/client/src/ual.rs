//! The UAL: what this process shares with an engine.

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use sidecore_abi::RegionId;
use sidecore_abi::agent::{Reply, Request, RequestKind};
use sidecore_abi::control::READER_TAKEN;
use sidecore_shm::control::{AppControl, WaitCell};
use sidecore_shm::{Consumer, Producer, Shared};
use sidecore_sys::descriptors::place;
use sidecore_sys::memfd::{Memfd, check_sealed};
use sidecore_sys::unix::Stream;
use sidecore_sys::wake::{Sleeper, Waker};

use crate::agent::{Agent, Opened};
use crate::config::{Granted, UalConfig};
use crate::error::{Exhausted, OpenError};
use crate::evq::{EventQueue, EvqId};
use crate::handles::{Handles, Place};
use crate::lane::Lane;
use crate::liveness::{Bell, Liveness};
use crate::pool::ReceivePool;
use crate::region::Region;

/// Bytes of an answer with addresses that are read at most.
const ADDRESSES_MAX: u64 = 64 << 10;

/// Bytes of an engine's figures that are read at most.
const FIGURES_MAX: u64 = 64 << 20;

/// The connection of a process to an engine: lanes, event queues, regions, a receive pool, and a table of DTIs. The protection domain:
/// another UAL sees nothing of it.
///
/// Cheap to clone; all clones, and the lanes and queues made of it, keep it open. When the last goes, the engine closes the UAL with
/// everything in it.
///
/// A forked child must not use its parent's: it opens its own.
#[derive(Clone)]
pub struct Ual {
    inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) control: AppControl,
    pub(crate) granted: Granted,
    pub(crate) handles: Handles,
    pub(crate) spin: Duration,
    memory_in_children: bool,
    /// The control memory once more, for the one word that another thread's lane is asked for.
    memory: Shared,
    pool: ReceivePool,
    waker: Waker,
    /// Second descriptors of the wait sockets that were given out: see [`Inner::wake_everybody`].
    sockets: Mutex<Vec<OwnedFd>>,
    lanes: Mutex<Vec<Option<IdleLane>>>,
    queues: Mutex<Vec<Option<IdleQueue>>>,
    // Dropped in this order: the watching thread lets its copy of the socket go before the socket itself closes.
    liveness: Liveness,
    agent: Agent,
}

/// A lane that nobody claims.
pub(crate) struct IdleLane {
    pub(crate) producer: Producer,
    /// Chunks that its last user could not return any more.
    pub(crate) returns: Vec<u32>,
    /// … and options that it could not set.
    pub(crate) options: Option<sidecore_abi::Command>,
}

/// The ends of an event queue, while nobody claims it. (Its default is no queue at all.)
#[derive(Default)]
pub(crate) struct IdleQueue {
    /// One for each engine thread.
    pub(crate) consumers: Vec<Consumer>,
    /// Where its consumer sleeps.
    pub(crate) cell: Option<WaitCell>,
    /// The socket on which the engine wakes the cell, once it was asked for.
    pub(crate) socket: Option<Sleeper>,
}

/// Asks an agent for a text, on a connection of its own. What is longer than `limit` bytes is cut.
fn ask_for_text(path: &Path, kind: RequestKind, limit: u64) -> io::Result<String> {
    let agent = Agent::new(Stream::connect(path)?);
    let (reply, mut fds) = agent.ask(&Request::new(kind), &[])?;
    let fd = fds.pop().ok_or(io::ErrorKind::InvalidData)?;
    let mut text = vec![0; reply.args[0].min(limit) as usize];
    let mut have = 0;
    while have < text.len() {
        match rustix::io::pread(&fd, &mut text[have..], have as u64)? {
            0 => break,
            n => have += n,
        }
    }
    Ok(String::from_utf8_lossy(&text[..have]).into_owned())
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Ual {
    /// Opens a UAL at the engine whose agent listens at `path`. Blocks until the agent has answered.
    pub fn open(path: impl AsRef<Path>, config: &UalConfig) -> Result<Self, OpenError> {
        let stream = Stream::connect(path).map_err(OpenError::Connect)?;
        Self::open_stream(stream, config)
    }

    /// The addresses of the engine whose agent listens at `path`, each with its network's prefix length, as they are now. Opens no UAL; blocks for
    /// the agent's answer.
    pub fn addresses(path: impl AsRef<Path>) -> io::Result<Vec<(IpAddr, u8)>> {
        let text = ask_for_text(path.as_ref(), RequestKind::Addresses, ADDRESSES_MAX)?;
        let line = |line: &str| {
            let (address, prefix) = line.split_once('/')?;
            Some((address.parse().ok()?, prefix.parse().ok()?))
        };
        Ok(text.lines().filter_map(line).collect())
    }

    /// The figures of the engine whose agent listens at `path`: the JSON text that `sidecore stat --json` shows. Opens no UAL; blocks for the
    /// agent's answer.
    pub fn figures(path: impl AsRef<Path>) -> io::Result<String> {
        ask_for_text(path.as_ref(), RequestKind::Stat, FIGURES_MAX)
    }

    /// The same over a connected socket: of an engine in this process, or one that was passed on.
    pub fn open_on(socket: OwnedFd, config: &UalConfig) -> Result<Self, OpenError> {
        Self::open_stream(Stream::from(socket), config)
    }

    fn open_stream(stream: Stream, config: &UalConfig) -> Result<Self, OpenError> {
        let agent = Agent::new(stream);
        let Opened {
            reply,
            control,
            pool,
            wake,
        } = agent.open(&config.request())?;
        let granted = Granted::from_reply(&reply);
        let memory = Shared::map_trusted(control, true).map_err(OpenError::Io)?;
        let control = AppControl::new(memory.clone(), granted.geometry)
            .map_err(|_| OpenError::Protocol("its control memory does not fit what it granted"))?;
        let pool = Shared::map_trusted(pool, false).map_err(OpenError::Io)?;
        if pool.len() < granted.pool_bytes {
            return Err(OpenError::Protocol(
                "its receive pool is smaller than granted",
            ));
        }
        if !config.memory_in_children {
            // Where that is not to be had the children have it.
            let _ = memory.leave_out_of_forks();
            let _ = pool.leave_out_of_forks();
        }
        let (lanes, queues) = ends(&control, &granted)
            .ok_or(OpenError::Protocol("its control memory lacks a lane"))?;
        Ok(Self {
            inner: Arc::new(Inner {
                control,
                granted,
                handles: Handles::new(granted.dtis),
                spin: config.spin,
                memory_in_children: config.memory_in_children,
                memory,
                pool: ReceivePool::new(pool),
                waker: Waker::from(wake),
                sockets: Mutex::new(Vec::new()),
                lanes: Mutex::new(lanes),
                queues: Mutex::new(queues),
                liveness: Liveness::new(),
                agent,
            }),
        })
    }

    /// Claims a doorbell lane, which is given back when dropped.
    pub fn lane(&self) -> Result<Lane, Exhausted> {
        let mut lanes = lock(&self.inner.lanes);
        for (index, place) in lanes.iter_mut().enumerate() {
            if let Some(idle) = place.take() {
                let index = index as u32;
                let engine = index % self.inner.granted.geometry.engines;
                return Ok(Lane::new(Arc::clone(&self.inner), index, engine, idle));
            }
        }
        Err(Exhausted("doorbell lane"))
    }

    /// Claims an event queue, which is given back when dropped. Events that lie on it by then, or still come for DTIs that name it, are
    /// its next claimer's.
    pub fn event_queue(&self) -> Result<EventQueue, Exhausted> {
        let mut queues = lock(&self.inner.queues);
        for (index, place) in queues.iter_mut().enumerate() {
            if let Some(idle) = place.take() {
                let id = EvqId(index as u16);
                return Ok(EventQueue::new(Arc::clone(&self.inner), id, idle));
            }
        }
        Err(Exhausted("event queue"))
    }

    /// Makes `len` bytes of memory (whole pages; huge ones if `huge`) and registers them. Blocks until the agent has answered.
    pub fn allocate_region(&self, len: u64, huge: bool) -> io::Result<Region> {
        let memory = Memfd::create("sidecore-region", whole_pages(len)?, huge)?;
        memory.seal_size()?;
        self.register(memory).map_err(|error| match error.kind() {
            io::ErrorKind::OutOfMemory if huge => io::Error::new(
                error.kind(),
                "too few huge pages are free: reserve some (sysctl vm.nr_hugepages) or do without",
            ),
            _ => error,
        })
    }

    /// Registers memory that the caller made: a memfd sealed against shrinking and growing ([`Memfd::seal_size`]), or it is
    /// refused. Blocks until the agent has answered. Mapped here writable if it may be.
    pub fn register(&self, memory: impl AsFd) -> io::Result<Region> {
        self.inner.register(memory, None)
    }

    /// As [`Self::register`], without waiting for the engine itself: a Registered event with this cookie, on `answer`, tells that the
    /// region may be used. (Blocks only for the answer of the agent's thread.)
    pub fn register_async(
        &self,
        memory: impl AsFd,
        answer: impl Into<EvqId>,
        cookie: u64,
    ) -> io::Result<Region> {
        self.inner.register(memory, Some((answer.into(), cookie)))
    }

    /// Copies a file into memory and registers that: files themselves cannot be registered, as anybody could cut them while the
    /// engine reads. Blocks for reading. The file's length is returned too, the region's being whole pages.
    pub fn register_file(&self, path: impl AsRef<Path>) -> io::Result<(Region, u64)> {
        let mut file = std::fs::File::open(path)?;
        let (memory, len) = copy_of(&mut file)?;
        Ok((self.register(memory)?, len))
    }

    /// The receive pool: where the bytes of Received and Datagram events lie.
    #[inline]
    pub fn pool(&self) -> &ReceivePool {
        &self.inner.pool
    }

    /// Descriptors that stand for sockets ([`sidecore_abi::agent::RequestKind::Descriptors`]): as many as asked for, or fewer, at least one, and the
    /// number of the first. Blocks for the agent's answer.
    pub fn descriptors(&self, count: usize) -> io::Result<(u64, Vec<OwnedFd>)> {
        let request = Request {
            args: [count as u64, 0, 0],
            ..Request::new(RequestKind::Descriptors)
        };
        let (reply, fds) = self.inner.agent.ask(&request, &[])?;
        if fds.is_empty() {
            return Err(io::ErrorKind::InvalidData.into());
        }
        Ok((reply.args[0], fds))
    }

    /// Numbers of the descriptors that this UAL keeps open now: for a library that must not let its program, or a forked child, use or
    /// keep them. The socket of each event queue ([`EventQueue::fd`]) is among them once it was asked for.
    pub fn kept_descriptors(&self) -> Vec<RawFd> {
        let inner = &self.inner;
        let mut all = vec![
            inner.agent.socket().as_fd().as_raw_fd(),
            inner.waker.as_fd().as_raw_fd(),
        ];
        all.extend(lock(&inner.sockets).iter().map(AsRawFd::as_raw_fd));
        let queues = lock(&inner.queues);
        let idle = queues.iter().flatten();
        all.extend(idle.filter_map(|idle| Some(idle.socket.as_ref()?.as_fd().as_raw_fd())));
        all.extend(inner.liveness.kept_descriptors());
        all
    }

    /// Starts the thread that watches the engine now, instead of when somebody sleeps for the first time.
    pub fn watch(&self) -> io::Result<()> {
        self.inner.watch()
    }

    pub(crate) fn inner(&self) -> &Arc<Inner> {
        &self.inner
    }

    /// What was granted of what was wished.
    pub fn granted(&self) -> &Granted {
        &self.inner.granted
    }

    /// Whether the engine still holds this UAL open. A system call, unless a thread has slept on an event queue before.
    pub fn is_alive(&self) -> bool {
        self.inner.is_alive()
    }

    /// Ends the UAL for all who share it, whoever still holds clones, lanes and queues (or, after a fork, copies of descriptors): the engine
    /// closes everything in it, and who sleeps on an event queue wakes and finds [`crate::Disconnected`]. Cannot be taken back.
    pub fn disconnect(&self) {
        self.inner.disconnect();
    }
}

impl std::fmt::Debug for Ual {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ual")
            .field("granted", &self.inner.granted)
            .finish_non_exhaustive()
    }
}

type Ends = (Vec<Option<IdleLane>>, Vec<Option<IdleQueue>>);

/// The application's ends of all lanes and queues.
fn ends(control: &AppControl, granted: &Granted) -> Option<Ends> {
    let g = granted.geometry;
    let lane = |lane: u32| {
        Some(Some(IdleLane {
            producer: control.dbq(lane, lane % g.engines)?,
            returns: Vec::new(),
            options: None,
        }))
    };
    let queue = |evq: u32| {
        let consumers: Option<Vec<_>> = (0..g.engines).map(|e| control.evq(evq, e)).collect();
        Some(Some(IdleQueue {
            consumers: consumers?,
            cell: Some(control.wait_cell(evq)?),
            socket: None,
        }))
    };
    // A queue without a cell to sleep on could not be waited for: it is not offered.
    let queues: Option<Vec<_>> = (0..g.evqs.min(g.wait_cells)).map(queue).collect();
    let lanes: Option<Vec<_>> = (0..g.lanes).map(lane).collect();
    Some((lanes?, queues?))
}

fn whole_pages(len: u64) -> io::Result<u64> {
    let pages = len.max(1).checked_next_multiple_of(4096);
    pages.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))
}

/// A sealed copy of what is left to read of `file`, and its length.
fn copy_of(file: &mut std::fs::File) -> io::Result<(Memfd, u64)> {
    use std::io::Read;
    let len = file.metadata()?.len();
    let memory = Memfd::create("sidecore-file", whole_pages(len)?, false)?;
    let copy = std::fs::File::from(memory.into_fd());
    // Not more than it was long: it may grow meanwhile.
    let copied = io::copy(&mut file.take(len), &mut &copy)?;
    let memory = Memfd::from(OwnedFd::from(copy));
    memory.seal_size()?;
    Ok((memory, copied))
}

impl Inner {
    fn register(&self, memory: impl AsFd, answer: Option<(EvqId, u64)>) -> io::Result<Region> {
        let memory = memory.as_fd();
        check_sealed(memory)?;
        let shared = Shared::map_trusted(memory, sidecore_sys::memfd::is_writable(memory))?;
        if !self.memory_in_children {
            let _ = shared.leave_out_of_forks();
        }
        let (evq, cookie) = answer.map_or((u64::MAX, 0), |(evq, cookie)| (evq.0.into(), cookie));
        let request = Request {
            args: [0, evq, cookie],
            ..Request::new(RequestKind::RegisterRegion)
        };
        let (reply, _): (Reply, _) = self.agent.ask(&request, &[memory])?;
        if reply.args[1] < shared.len() {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "the agent registered less than was asked for",
            ));
        }
        Ok(Region::new(RegionId(reply.args[0] as u32), shared))
    }

    /// After posting: tells the engine, if it does not look by itself.
    #[inline]
    pub(crate) fn ring(&self, producer: &Producer, lane: u32, engine: u32) {
        if self.control.ring(producer, lane, engine) {
            self.waker.wake();
        }
    }

    /// How many entries of a lane the engine says that it has taken (wrapping).
    pub(crate) fn taken(&self, lane: u32) -> u32 {
        let g = self.granted.geometry;
        let at = g.lane(lane, lane % g.engines) + READER_TAKEN;
        let taken = self.memory.atomic_u32(at as u64);
        taken.map_or(0, |taken| taken.load(Ordering::Acquire))
    }

    /// A DTI was given away: its handle is free.
    pub(crate) fn forget_handle(&self, dti: sidecore_abi::DtiHandle) {
        let posted = self.taken(0);
        self.handles.gone(dti, Place { lane: 0, posted });
    }

    pub(crate) fn agent(&self) -> &Agent {
        &self.agent
    }

    /// Whether the engine has read what was posted at a place of some lane.
    pub(crate) fn has_read(&self, place: Place) -> bool {
        let taken = self.taken(u32::from(place.lane));
        taken.wrapping_sub(place.posted) as i32 >= 0
    }

    pub(crate) fn put_lane_back(&self, index: u32, idle: IdleLane) {
        if let Some(place) = lock(&self.lanes).get_mut(index as usize) {
            *place = Some(idle);
        }
    }

    pub(crate) fn put_queue_back(&self, id: EvqId, idle: IdleQueue) {
        if let Some(place) = lock(&self.queues).get_mut(usize::from(id.0)) {
            *place = Some(idle);
        }
    }

    /// Whether the engine is known to have gone. Costs a load.
    #[inline]
    pub(crate) fn is_gone(&self) -> bool {
        self.liveness.is_gone()
    }

    /// Where options wait that nobody may ever post otherwise: see [`Liveness::soon`].
    pub(crate) fn liveness(&self) -> &Liveness {
        &self.liveness
    }

    pub(crate) fn is_alive(&self) -> bool {
        self.liveness.check(self.agent.socket())
    }

    fn disconnect(&self) {
        self.liveness.end();
        self.agent.shut();
        self.wake_everybody();
    }

    /// From now on sleepers are woken when the engine goes.
    pub(crate) fn watch(self: &Arc<Self>) -> io::Result<()> {
        if self.liveness.is_watched() {
            return Ok(());
        }
        match self.watch_with(None) {
            // By another thread, meanwhile.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            done => done,
        }
    }

    /// The same, and what comes on `bell` is handed on. `AlreadyExists`.
    pub(crate) fn watch_with(self: &Arc<Self>, bell: Option<Bell>) -> io::Result<()> {
        let ual: Weak<Self> = Arc::downgrade(self);
        self.liveness.watch(self.agent.socket(), bell, move || {
            // Upgraded for the moment only; should it be the last by then, it is dropped here, on the watching thread.
            if let Some(ual) = ual.upgrade() {
                ual.wake_everybody();
            }
        })
    }

    /// Wakes whoever sleeps on an event queue, without an event; see [`EventQueue::wait_unless`].
    pub(crate) fn call(&self, queue: EvqId) {
        if let Some(cell) = self.control.wait_cell(u32::from(queue.0)) {
            cell.wake();
        }
    }

    fn wake_everybody(&self) {
        for cell in 0..self.granted.geometry.wait_cells {
            if let Some(cell) = self.control.wait_cell(cell) {
                cell.wake();
            }
        }
        lock(&self.sockets).iter().for_each(end);
    }

    /// A socket on which the engine wakes a wait cell.
    pub(crate) fn wait_socket(self: &Arc<Self>, cell: u32) -> io::Result<Sleeper> {
        let request = Request {
            args: [u64::from(cell), 0, 0],
            ..Request::new(RequestKind::WaitSocket)
        };
        let (_, mut fds) = self.agent.ask(&request, &[])?;
        let fd = fds.pop().ok_or_else(|| {
            io::Error::new(io::ErrorKind::InvalidData, "the agent sent no socket")
        })?;
        // The engine's end does not show here when it closes (datagrams have no end), so the watching thread must see to it.
        lock(&self.sockets).push(place(fd.try_clone()?));
        self.watch()?;
        if self.is_gone() {
            lock(&self.sockets).iter().for_each(end);
        }
        Ok(Sleeper::from(fd))
    }
}

/// Makes a wait socket readable for ever.
fn end(socket: &OwnedFd) {
    // It fails only for descriptors that are no sockets.
    let _ = rustix::net::shutdown(socket, rustix::net::Shutdown::Both);
}
