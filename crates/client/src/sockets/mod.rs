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

mod accepting;
mod arrivals;
pub(crate) mod beside;
mod closing;
pub(crate) mod config;
mod copies;
pub(crate) mod datagram;
mod file;
pub(crate) mod group;
pub(crate) mod held;
pub(crate) mod membership;
pub(crate) mod moving;
pub(crate) mod raw;
mod ready;
pub(crate) mod receipt;
mod region;
pub(crate) mod report;
pub(crate) mod send;
pub(crate) mod socket;
pub(crate) mod transfer;
pub(crate) mod urgent;
pub(crate) mod wait;
pub(crate) mod wakers;

use std::future::Future;
use std::io;
use std::os::fd::{BorrowedFd, RawFd};
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Waker;
use std::thread::JoinHandle;
use std::time::Duration;

use crate::{Disconnected, Ual, UalConfig};
pub use config::{SocketsConfig, Wakes};
pub use datagram::Datagram;
use group::{Group, Queue, lock};
pub use report::DatagramReport;
use wait::Place;

/// A group of sockets. Cheap to clone; the sockets keep it open.
///
/// When the last of them goes, it waits for what was written to go out ([`SocketsConfig::linger`]).
#[derive(Clone)]
pub struct Sockets {
    pub(crate) group: Arc<Group>,
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

    /// The sleep of a thread that waits for descriptors of the system beside sockets of this group, which know `waker` already.
    ///
    /// Either this thread looks after the event queue meanwhile: then `sleep` gets a descriptor to sleep on (poll, for reading), beside its own
    /// ones, and how long it may at most; what came is handed out; and if then `again` says so, all of it once more: with nothing for this
    /// thread, it goes on looking after the queue. Or another does: then `sleep` gets no descriptor, and `waker` must be able to end
    /// the sleep. False: nobody slept, as something came at once.
    pub fn rest(
        &self,
        waker: &Waker,
        mut sleep: impl FnMut(Option<BorrowedFd<'_>>, Option<Duration>),
        mut again: impl FnMut() -> bool,
    ) -> bool {
        let group = &self.group;
        if group.is_dead() {
            // All sockets are ready by now; what else the thread waits for is its own.
            sleep(None, None);
            return true;
        }
        group.post_gathered();
        let mut place = Place::new(&group.followers);
        loop {
            let queue = group.try_queue().or_else(|| {
                place.enlist(waker);
                group.try_queue()
            });
            if let Some(mut queue) = queue {
                let slept = lead(group, &mut queue, &mut sleep, &mut again);
                drop(queue);
                place.withdraw();
                group.followers.hand_over();
                return slept;
            }
            // Who leads has gathered nothing of what this thread read: chunks that are given back must reach the engine, or the window stays shut.
            lock(&group.lane).flush();
            sleep(None, None);
            if !place.withdraw() {
                return true;
            }
            // Chosen to lead; who has something to do itself chooses another.
            if group.is_dead() || !again() {
                group.followers.hand_over();
                return true;
            }
        }
    }

    /// Does now what the first [`Self::rest`] would: asks the agent for the descriptor, and starts the thread that watches the engine. Gives the
    /// number of that descriptor. Blocks for the agent's answer.
    pub fn prepare_rest(&self) -> io::Result<RawFd> {
        let fd = lock(&self.group.queue).prepare();
        self.group.followers.glanced();
        let fd = fd?;
        self.group.ual.watch()?;
        Ok(fd)
    }

    /// Posts now what [`RawSocket::set_option`](crate::RawSocket::set_option) has left for later.
    pub fn post_options(&self) {
        self.group.post_gathered();
    }

    /// Whether the engine has gone, as far as anybody saw.
    pub fn is_over(&self) -> bool {
        self.group.is_dead()
    }

    /// Drives a future to its end on this thread, and the sockets of the group with it. The future may wait for other things too, if
    /// they wake it.
    pub fn block_on<F: Future>(&self, future: F) -> F::Output {
        let mut future = pin!(future);
        loop {
            // Without a deadline it does not time out.
            if let Ok(output) = wait::run(&self.group, None, future.as_mut()) {
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
        self.group.try_turn(timeout)
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

/// Sleeps on the event queue and hands out what comes, for as long as that is nothing for this thread. Whether it slept.
fn lead(
    group: &Group,
    queue: &mut Queue,
    sleep: &mut impl FnMut(Option<BorrowedFd<'_>>, Option<Duration>),
    again: &mut impl FnMut() -> bool,
) -> bool {
    let mut slept = false;
    while let Ok(Some((fd, limit))) = group.arm(queue) {
        sleep(Some(fd), limit);
        slept = true;
        group.slept(queue);
        if group.is_dead() || !again() {
            break;
        }
    }
    slept
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
