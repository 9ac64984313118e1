//! A group of sockets over one lane and one event queue: what [`crate::blocking`] and [`crate::asynchronous`] are made of.
//!
//! ```text
//!   threads, tasks ──> TcpStream, TcpListener, UdpSocket
//!                           │  (each: what came, what is in flight, who waits)
//!                        Sockets: one lane, one event queue, memory to send from
//!                           │
//!                          Ual
//! ```
//!
//! Any number of threads may use the sockets of one group: whoever waits looks after the event queue for all. Threads that
//! shall not meet at all get a group each.

pub(crate) mod config;
pub(crate) mod group;
pub(crate) mod send;
pub(crate) mod socket;
pub(crate) mod transfer;
pub(crate) mod wait;
pub(crate) mod wakers;

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use sidecore_abi::command::Opt;
use sidecore_abi::{Command, Event, Operation};

use crate::{Address, Disconnected, Ual, UalConfig};
pub use config::SocketsConfig;
use group::{Group, lock};
use socket::{Kind, Phase, Socket};

/// A group of sockets. Cheap to clone; the sockets keep it open.
///
/// When the last of them goes, it waits for what was written to go out ([`SocketsConfig::linger`]).
#[derive(Clone)]
pub struct Sockets {
    group: Arc<Group>,
}

impl Sockets {
    /// A group with a UAL of its own, at the engine whose agent listens at `path`. Blocks for the agent's answer.
    pub fn open(path: impl AsRef<Path>) -> io::Result<Self> {
        let config = UalConfig {
            lanes: 1,
            evqs: 1,
            wait_cells: 1,
            ..UalConfig::default()
        };
        Self::new(&Ual::open(path, &config)?, SocketsConfig::default())
    }

    /// A group that takes one lane and one event queue of a UAL. Blocks for the agent's answer.
    pub fn new(ual: &Ual, config: SocketsConfig) -> io::Result<Self> {
        Ok(Self {
            group: Arc::new(Group::new(ual, config)?),
        })
    }

    /// The UAL beneath.
    pub fn ual(&self) -> &Ual {
        &self.group.ual
    }

    /// Drives a future to its end on this thread, and the sockets of the group with it. The future may wait for other things too, if
    /// they wake it.
    pub fn block_on<F: Future>(&self, future: F) -> F::Output {
        let mut future = pin!(future);
        loop {
            let poll = |cx: &mut Context<'_>| future.as_mut().poll(cx);
            if let Ok(output) = wait::block_on(&self.group, None, poll) {
                return output;
            }
        }
    }

    /// Hands out what has come, waiting at most `timeout` for something to come; says whether something did. For programs with a loop of
    /// their own. False at once while another thread does this.
    pub fn turn(&self, timeout: Duration) -> Result<bool, Disconnected> {
        if self.group.is_dead() {
            return Err(Disconnected);
        }
        let Ok(mut queue) = self.group.queue.try_lock() else {
            return Ok(false);
        };
        let came = self.group.turn(&mut queue, Some(timeout));
        drop(queue);
        self.group.followers.hand_over();
        came
    }

    /// Starts a thread that looks after the event queue, so that no other has to: for executors that know nothing of this library. It
    /// ends when the returned guard is dropped.
    pub fn spawn_reactor(&self) -> io::Result<Reactor> {
        let stop = Arc::new(AtomicBool::new(false));
        let (group, told) = (Arc::clone(&self.group), Arc::clone(&stop));
        let thread = std::thread::Builder::new()
            .name("sidecore-reactor".into())
            .spawn(move || {
                let mut queue = lock(&group.queue);
                while !told.load(Ordering::Acquire) {
                    if group.turn(&mut queue, None).is_err() {
                        break;
                    }
                }
                drop(queue);
                group.followers.hand_over();
            })?;
        Ok(Reactor {
            group: Arc::clone(&self.group),
            stop,
            thread: Some(thread),
        })
    }

    /// Blocks of send memory that are in use, of 64 KiB each.
    pub fn send_blocks_used(&self) -> u32 {
        self.group.memory.used()
    }
}

impl std::fmt::Debug for Sockets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sockets")
            .field("config", &self.group.config)
            .finish_non_exhaustive()
    }
}

/// A thread that serves a group's event queue, until this is dropped.
#[must_use = "the thread ends when this is dropped"]
pub struct Reactor {
    group: Arc<Group>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Reactor {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        let Some(thread) = self.thread.take() else {
            return;
        };
        // Any event ends its sleep.
        while !thread.is_finished() && !self.group.is_dead() {
            let posted = {
                let mut lane = lock(&self.group.lane);
                let posted = lane.nop(self.group.evq, 0);
                lane.flush();
                posted
            };
            if posted.is_ok() {
                break;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        // A panic of that thread was printed already.
        let _ = thread.join();
    }
}

impl std::fmt::Debug for Reactor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reactor").finish_non_exhaustive()
    }
}

/// A socket and its group, as its users hold it: closed when the last is dropped.
#[derive(Debug)]
pub(crate) struct Held(Arc<Holder>);

struct Holder {
    group: Arc<Group>,
    socket: Arc<Socket>,
}

impl Drop for Holder {
    fn drop(&mut self) {
        self.socket.close(&self.group);
    }
}

impl std::fmt::Debug for Holder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.socket.dti.fmt(f)
    }
}

impl Clone for Held {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl Held {
    fn new(group: &Arc<Group>, socket: Arc<Socket>) -> Self {
        let group = Arc::clone(group);
        Self(Arc::new(Holder { group, socket }))
    }

    /// Makes a socket; waits for room on the lane.
    fn create(sockets: &Sockets, kind: Kind) -> io::Result<Self> {
        let group = &sockets.group;
        let socket = retry(group, || group.create(kind, None))?;
        Ok(Self::new(group, socket))
    }

    pub(crate) fn group(&self) -> &Arc<Group> {
        &self.0.group
    }

    pub(crate) fn socket(&self) -> &Arc<Socket> {
        &self.0.socket
    }

    /// Waits, for as long as the socket's settings say.
    pub(crate) fn wait<T>(
        &self,
        timeout: Option<Duration>,
        mut poll: impl FnMut(&mut Context<'_>) -> Poll<io::Result<T>>,
    ) -> io::Result<T> {
        let nonblocking = lock(&self.socket().state).nonblocking;
        if nonblocking {
            return self.poll_once(poll);
        }
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        match wait::block_on(self.group(), deadline, &mut poll) {
            Ok(result) => result,
            Err(wait::TimedOut) => Err(io::ErrorKind::WouldBlock.into()),
        }
    }

    fn poll_once<T>(
        &self,
        mut poll: impl FnMut(&mut Context<'_>) -> Poll<io::Result<T>>,
    ) -> io::Result<T> {
        let mut cx = Context::from_waker(std::task::Waker::noop());
        if let Ok(mut queue) = self.group().queue.try_lock() {
            // The engine's end is told by the poll.
            let _ = self.group().turn(&mut queue, Some(Duration::ZERO));
            drop(queue);
            self.group().followers.hand_over();
        }
        match poll(&mut cx) {
            Poll::Ready(result) => result,
            Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
        }
    }

    /// Posts a command and waits for its answer.
    pub(crate) fn ask(&self, command: impl Fn(u64) -> Command) -> io::Result<Event> {
        let (group, socket) = (self.group(), self.socket());
        let cookie = retry(group, || socket.ask(group, &command))?;
        let poll = |cx: &mut Context<'_>| socket.poll_answer(group, cx, cookie);
        match wait::block_on(group, None, poll) {
            Ok(result) => result,
            Err(wait::TimedOut) => Err(io::ErrorKind::TimedOut.into()),
        }
    }

    /// A listener on `local`.
    pub(crate) fn listen(sockets: &Sockets, local: SocketAddr) -> io::Result<Self> {
        let held = Self::create(sockets, Kind::Listener)?;
        held.bind(local)?;
        let config = &sockets.group.config;
        let handle = held.socket().dti.handle();
        let answer = held.ask(|cookie| {
            let mut command = Command::new(Operation::Listen, handle, cookie);
            command.body[0] = u64::from(config.backlog);
            command
        })?;
        {
            let mut state = lock(&held.socket().state);
            state.local = answer.address(0).get().or(state.local);
            state.accepts_due = config.accepts;
            state.phase = Phase::Open;
        }
        // What is not posted now is posted by the first accept.
        let _ = held.socket().post_accepts(held.group());
        Ok(held)
    }

    fn bind(&self, local: SocketAddr) -> io::Result<()> {
        let handle = self.socket().dti.handle();
        let answer = self.ask(|cookie| {
            Command::new(Operation::Bind, handle, cookie).with_address(0, Address::new(local))
        })?;
        lock(&self.socket().state).local = answer.address(0).get();
        Ok(())
    }

    /// A UDP socket on `local`.
    pub(crate) fn datagram(sockets: &Sockets, local: SocketAddr) -> io::Result<Self> {
        let held = Self::create(sockets, Kind::Datagram)?;
        held.bind(local)?;
        lock(&held.socket().state).phase = Phase::Open;
        Ok(held)
    }

    /// A stream on its way to `peer`; see [`Socket::poll_connected`].
    pub(crate) fn connecting(sockets: &Sockets, peer: SocketAddr) -> io::Result<Self> {
        let held = Self::create(sockets, Kind::Stream)?;
        retry(&sockets.group, || {
            held.socket().connect(&sockets.group, peer)
        })?;
        Ok(held)
    }

    /// Waits for a connection on a listener.
    pub(crate) fn poll_accept(
        &self,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<(Self, Option<SocketAddr>)>> {
        let accepted = self.socket().poll_accept(self.group(), cx);
        accepted.map_ok(|(child, peer)| (Self::new(self.group(), child), peer))
    }

    /// An address, asked for if it is not known.
    pub(crate) fn address(&self, option: Opt) -> io::Result<SocketAddr> {
        if let Some(known) = self.socket().known_address(option) {
            return Ok(known);
        }
        let answer = self.option(option)?;
        self.socket().learn_address(option, answer.address(0))
    }

    /// The answer to GetOption.
    pub(crate) fn option(&self, option: Opt) -> io::Result<Event> {
        let handle = self.socket().dti.handle();
        self.ask(|cookie| {
            let mut command = Command::new(Operation::GetOption, handle, cookie);
            command.body[0] = option as u64;
            command
        })
    }
}

/// Repeats a post until the lane has room.
fn retry<T>(group: &Group, mut post: impl FnMut() -> Result<T, crate::PostError>) -> io::Result<T> {
    let poll = |cx: &mut Context<'_>| match post() {
        Err(crate::PostError::LaneFull) if group.is_dead() => Poll::Ready(Err(Disconnected.into())),
        Err(crate::PostError::LaneFull) => {
            cx.waker().wake_by_ref();
            Poll::Pending
        }
        Err(error) => Poll::Ready(Err(error.into())),
        Ok(value) => Poll::Ready(Ok(value)),
    };
    match wait::block_on(group, None, poll) {
        Ok(result) => result,
        Err(wait::TimedOut) => Err(io::ErrorKind::TimedOut.into()),
    }
}
