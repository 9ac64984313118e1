//! The agent: the engine process's slow side. A thread of its own that opens UALs, registers memory and answers questions, over
//! a UNIX socket. It never touches the engine's tables: it makes things, checks policy, and sends them to the engine.

mod custody;
mod descriptors;
mod open;
mod session;

use std::collections::{HashMap, HashSet};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use rustix::event::{PollFd, PollFlags, poll};
use sidecore_sys::unix::{Listener, Stream};
use sidecore_sys::wake::{Sleeper, WakePair, Waker};

use crate::config::Policy;
use crate::mailbox::{Mailbox, RegionsGone};
use custody::Custodian;
use descriptors::{Descriptors, Standing};
use session::Session;

/// Sockets that have not opened a UAL (yet): somebody who asks for figures, mostly.
const SESSIONS_MAX: usize = 1024;

/// Ends the agent and joins its thread.
pub(crate) struct AgentThread {
    thread: Option<JoinHandle<()>>,
    stop: Sender<Order>,
    waker: std::sync::Arc<Waker>,
}

/// What the engine's owner tells the agent.
enum Order {
    /// Serve this socket as if it had been accepted.
    Adopt(Stream),
    /// End.
    Stop,
}

/// Hands connected sockets to the agent, from any thread.
#[derive(Clone)]
pub(crate) struct Door {
    orders: Sender<Order>,
    waker: std::sync::Arc<Waker>,
}

impl Door {
    /// A socket whose other end the agent serves.
    pub(crate) fn connect(&self) -> std::io::Result<OwnedFd> {
        let (ours, theirs) = Stream::pair()?;
        self.orders.send(Order::Adopt(theirs)).map_err(|_| {
            std::io::Error::new(std::io::ErrorKind::NotConnected, "the engine has ended")
        })?;
        self.waker.wake();
        Ok(ours.into_fd())
    }
}

/// Starts the agent. The socket is bound here, so that errors are the caller's.
pub(crate) fn start(
    socket: Option<&Path>,
    policy: Policy,
    mailbox: Mailbox,
    regions_gone: RegionsGone,
) -> std::io::Result<(AgentThread, Door)> {
    let listener = socket.map(Listener::bind).transpose()?;
    if let Some(listener) = &listener {
        listener.set_blocking(false)?;
    }
    let (orders, receiver) = channel();
    let (waker, sleeper) = WakePair::new()?.split();
    let waker = std::sync::Arc::new(waker);
    let agent = Agent {
        listener,
        sessions: Vec::new(),
        orders: receiver,
        sleeper,
        shared: Shared {
            policy,
            mailbox,
            next_id: 1,
            epoch: epoch(),
            open: 0,
            descriptors: Descriptors::new()?,
            custodian: None,
            bells: HashMap::new(),
            shared_numbers: HashSet::new(),
        },
        regions_gone,
    };
    let thread = std::thread::Builder::new()
        .name("sidecore-agent".into())
        .spawn(move || agent.run())?;
    let door = Door {
        orders: orders.clone(),
        waker: waker.clone(),
    };
    Ok((
        AgentThread {
            thread: Some(thread),
            stop: orders,
            waker,
        },
        door,
    ))
}

/// Tells this engine process from others: nanoseconds since the machine started.
fn epoch() -> u64 {
    sidecore_sys::clock::monotonic_ns()
}

impl AgentThread {
    /// Ends it: listeners close, UALs' sockets close (their applications see that the engine is gone).
    pub(crate) fn stop(mut self) {
        let _ = self.stop.send(Order::Stop);
        self.waker.wake();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// What sessions share.
pub(crate) struct Shared {
    pub(crate) policy: Policy,
    pub(crate) mailbox: Mailbox,
    pub(crate) next_id: u64,
    pub(crate) epoch: u64,
    /// UALs open now.
    pub(crate) open: u32,
    /// The other ends of the descriptors that were handed out.
    pub(crate) descriptors: Descriptors,
    /// Who carries what several processes hold.
    pub(crate) custodian: Option<Custodian>,
    /// On which UALs are asked to give connections away.
    pub(crate) bells: HashMap<u64, Stream>,
    /// Connections in custody that have more than one holder, as the engine was told.
    pub(crate) shared_numbers: HashSet<u64>,
}

struct Agent {
    listener: Option<Listener>,
    sessions: Vec<Session>,
    orders: Receiver<Order>,
    sleeper: Sleeper,
    shared: Shared,
    regions_gone: RegionsGone,
}

impl Agent {
    fn run(mut self) {
        while self.turn() {}
    }

    /// Tells how much there is of what.
    fn show(&self) {
        let gauges = &self.shared.mailbox.gauges;
        gauges
            .sessions
            .store(self.sessions.len(), Ordering::Relaxed);
        gauges
            .uals
            .store(self.shared.open as usize, Ordering::Relaxed);
        let descriptors = self.shared.descriptors.len();
        gauges.descriptors.store(descriptors, Ordering::Relaxed);
    }

    /// Waits for something and handles it; false when it is time to end.
    fn turn(&mut self) -> bool {
        self.show();
        let ready = self.wait();
        self.sleeper.drain();
        self.look_after_descriptors();
        while let Ok(order) = self.orders.try_recv() {
            match order {
                Order::Adopt(socket) => self.adopt(socket),
                Order::Stop => return false,
            }
        }
        while let Ok((ual, region)) = self.regions_gone.try_recv() {
            for session in &mut self.sessions {
                session.region_gone(ual, region);
            }
        }
        if ready.first() == Some(&true)
            && let Some(listener) = &self.listener
            && let Ok(socket) = listener.accept()
        {
            self.adopt(socket);
        }
        for index in (0..self.sessions.len()).rev() {
            if ready.get(index + 1) == Some(&true) && !self.sessions[index].serve(&mut self.shared)
            {
                self.sessions.swap_remove(index).end(&mut self.shared);
            }
        }
        true
    }

    /// Descriptors that were closed or written to, and what the custodian says.
    fn look_after_descriptors(&mut self) {
        for number in self.shared.descriptors.look() {
            // Somebody who knows nothing of the library writes there: the bytes are to flow.
            let pair = self.shared.descriptors.get_mut(number);
            if let Some(Standing::Fast(owner)) = pair.map(|pair| pair.standing) {
                self.shared.recall(number, owner);
            }
        }
        for late in self.shared.hear_custodian() {
            let mut sessions = self.sessions.iter_mut();
            if let Some(session) = sessions.find(|session| session.is(late.ual)) {
                session.answer_late(late.answer);
            }
        }
    }

    fn adopt(&mut self, socket: Stream) {
        if self.sessions.len() >= SESSIONS_MAX {
            tracing::warn!("more than {SESSIONS_MAX} sockets at the agent: one is refused");
            return;
        }
        match Session::new(socket) {
            Ok(session) => self.sessions.push(session),
            Err(error) => tracing::warn!(%error, "cannot serve a socket"),
        }
    }

    /// Which of listener and sessions have something: the listener first.
    fn wait(&self) -> Vec<bool> {
        let mut fds = vec![
            PollFd::new(&self.shared.descriptors, PollFlags::IN),
            PollFd::new(&self.sleeper, PollFlags::IN),
        ];
        if let Some(listener) = &self.listener {
            fds.push(PollFd::new(listener, PollFlags::IN));
        }
        fds.extend(
            self.sessions
                .iter()
                .map(|s| PollFd::from_borrowed_fd(s.socket(), PollFlags::IN)),
        );
        if let Some(custodian) = &self.shared.custodian {
            let mut asked = PollFlags::IN;
            asked.set(PollFlags::OUT, custodian.is_behind());
            fds.push(PollFd::new(custodian, asked));
        }
        if poll(&mut fds, None).is_err() {
            return Vec::new();
        }
        let has = |fd: &PollFd<'_>| !fd.revents().is_empty();
        let sessions_end = fds.len() - usize::from(self.shared.custodian.is_some());
        let mut ready: Vec<bool> = fds[2..sessions_end].iter().map(has).collect();
        if self.listener.is_none() {
            ready.insert(0, false);
        }
        ready
    }
}

impl AsFd for Session {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.socket()
    }
}
