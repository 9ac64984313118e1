//! The custodian: a thread of the engine's process that carries the bytes of connections which several processes hold.
//!
//! A descriptor that stands for a connection is one end of a stream socket pair, whose other end the agent keeps. While one process has
//! the connection for itself, nothing goes through that pair. Once others hold the descriptor (a forked child, an image begun by exec, the
//! receiver of a message, a program that makes its system calls itself), the connection's DTI is given to the UAL of this thread, which
//! copies between the two:
//!
//! ```text
//!   holders: read, write, poll     agent's end        RawSocket          DTI
//!   of the descriptor  <----------------------> proxy <------------> engine <----> peer
//!                         socket pair                   shared memory
//! ```
//!
//! One loop over all of them, which sleeps in one `poll`: on an epoll set with the ends and the agent's messages, and on the event
//! queue. Each direction holds [`PIECE`] bytes at most beside what the system keeps for the pair, and what the engine keeps in its window: who does
//! not read, stops whoever writes.
#![forbid(unsafe_code)]

mod connection;

use std::collections::{HashMap, VecDeque};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Wake, Waker};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, epoll, poll};
use rustix::io::Errno;
use sidecore_client::abi::Status;
use sidecore_client::abi::command::Opt;
use sidecore_client::abi::custody::{ABANDONED, CUSTODY_BYTES, Custody, CustodyKind, OVER};
use sidecore_client::custody::sealed_bytes;
use sidecore_client::{Address, RawSocket, Sockets, SocketsConfig, Ual, UalConfig};
use sidecore_sys::signals::without_signals;
use sidecore_sys::unix::{Stream, close_aside};

use connection::{Connection, Step};

/// Bytes that are copied at a time.
pub const PIECE: usize = 64 << 10;

/// Connections at a time.
const CONNECTIONS: u32 = 65536;

/// Bytes of the receive pool: what came and was not taken by the holders, of all connections. Used as it is needed.
const POOL_BYTES: u64 = 256 << 20;

/// Memory to send from, for all connections. Used as it is needed.
const SEND_BYTES: u64 = 256 << 20;

/// Bytes of one connection that may be sent and not acknowledged.
const STREAM_BYTES: usize = 1 << 20;

/// Events taken from the epoll set at a time.
const EVENTS: usize = 256;

/// In the epoll set: the agent's messages. No descriptor has this number.
const AGENT: u64 = 0;

/// The custodian's thread. It ends with its engine.
#[derive(Debug)]
pub struct Proxy {
    thread: JoinHandle<()>,
}

/// Opens a UAL on a connected socket of the engine's agent, which must be of this process, and becomes the custodian.
pub fn spawn(agent: OwnedFd) -> io::Result<Proxy> {
    let wishes = UalConfig {
        lanes: 1,
        evqs: 1,
        wait_cells: 1,
        dtis: CONNECTIONS,
        pool_bytes: POOL_BYTES,
        spin: Duration::ZERO,
        ..UalConfig::default()
    };
    let ual = Ual::open_on(agent, &wishes)?;
    let config = SocketsConfig {
        send_bytes: SEND_BYTES,
        stream_bytes: STREAM_BYTES,
        linger: Duration::ZERO,
        ..SocketsConfig::default()
    };
    let sockets = Sockets::new(&ual, config)?;
    sockets.prepare_rest()?;
    let custody = Stream::from(ual.custody()?);
    let service = Service::new(sockets, custody)?;
    let thread = std::thread::Builder::new().name("sidecore-proxy".into());
    let thread = without_signals(|| thread.spawn(move || service.run()))?;
    Ok(Proxy { thread })
}

impl Proxy {
    /// Waits until it has ended: when its engine did.
    pub fn join(self) {
        // A panic was printed already.
        let _ = self.thread.join();
    }
}

/// Connections about which the engine said something.
#[derive(Default)]
struct Ready(Mutex<VecDeque<u64>>);

impl Ready {
    fn put(&self, number: u64) {
        let mut list = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if list.back() != Some(&number) {
            list.push_back(number);
        }
    }

    fn take(&self) -> VecDeque<u64> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Puts one connection there.
struct Notice {
    number: u64,
    ready: Arc<Ready>,
}

impl Wake for Notice {
    fn wake(self: Arc<Self>) {
        self.ready.put(self.number);
    }
}

struct Service {
    sockets: Sockets,
    custody: Stream,
    epoll: OwnedFd,
    connections: HashMap<u64, Connection>,
    ready: Arc<Ready>,
    scratch: Vec<u8>,
    /// The agent has gone.
    over: bool,
}

impl Service {
    fn new(sockets: Sockets, custody: Stream) -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let data = epoll::EventData::new_u64(AGENT);
        epoll::add(&epoll, &custody, data, epoll::EventFlags::IN)?;
        Ok(Self {
            sockets,
            custody,
            epoll,
            connections: HashMap::new(),
            ready: Arc::default(),
            scratch: vec![0; PIECE],
            over: false,
        })
    }

    fn run(mut self) {
        while !self.over && !self.sockets.is_over() {
            let came = self.sockets.turn(Duration::ZERO);
            if came.is_err() {
                break;
            }
            let ready = self.ready.take();
            if ready.is_empty() {
                self.rest();
            }
            for number in ready {
                self.step(number);
            }
            self.look();
        }
        tracing::debug!("the custodian ends with its engine");
    }

    /// Sleeps until something comes, of the engine or of the system.
    fn rest(&self) {
        let epoll = &self.epoll;
        let waker = Waker::noop();
        self.sockets.rest(
            waker,
            |queue, limit| {
                let mut fds = vec![PollFd::new(epoll, PollFlags::IN)];
                if let Some(queue) = queue {
                    fds.push(PollFd::from_borrowed_fd(queue, PollFlags::IN));
                }
                let limit = limit.map(|limit| rustix::time::Timespec {
                    tv_sec: limit.as_secs().min(i64::MAX as u64) as i64,
                    tv_nsec: limit.subsec_nanos().into(),
                });
                // An interrupted sleep is a short one.
                let _ = poll(&mut fds, limit.as_ref());
            },
            || false,
        );
    }

    /// Takes what the system has to say.
    fn look(&mut self) {
        let now = rustix::time::Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let mut found = Vec::with_capacity(EVENTS);
        let into = rustix::buffer::spare_capacity(&mut found);
        match epoll::wait(&self.epoll, into, Some(&now)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(_) => self.over = true,
        }
        for event in found {
            match event.data.u64() {
                AGENT => self.hear(),
                number => self.step(number),
            }
        }
    }

    /// Carries bytes of one connection.
    fn step(&mut self, number: u64) {
        let Some(connection) = self.connections.get_mut(&number) else {
            return;
        };
        match connection.step(&mut self.scratch) {
            Step::Waits => {}
            Step::Again => self.ready.put(number),
            Step::Over => {
                self.remove(number);
                self.tell(&Custody::new(CustodyKind::Done, number), None);
            }
        }
    }

    fn remove(&mut self, number: u64) {
        if let Some(connection) = self.connections.remove(&number) {
            // The agent holds the same end: the system would keep the entry, and hold it against the next one.
            let _ = epoll::delete(&self.epoll, connection.end());
        }
    }

    fn tell(&mut self, message: &Custody, memory: Option<OwnedFd>) {
        let fds: Vec<_> = memory.iter().map(AsFd::as_fd).collect();
        // The agent reads all the time; when it does not, it has gone.
        if self
            .custody
            .send_with_fds(&message.to_bytes(), &fds)
            .is_err()
        {
            self.over = true;
        }
    }

    /// One message of the agent's.
    fn hear(&mut self) {
        let mut bytes = [0; CUSTODY_BYTES + 1];
        let (n, fds) = match self.custody.recv_with_fds(&mut bytes) {
            Ok((0, _)) => {
                self.over = true;
                return;
            }
            Ok(received) => received,
            Err(_) => return,
        };
        let message = Custody::from_bytes(&bytes[..n]);
        match message {
            Some(message) if message.kind == CustodyKind::Take => self.take(&message, fds),
            Some(message) if message.kind == CustodyKind::Give => self.give(&message),
            Some(message) if message.kind == CustodyKind::Sweep => self.tell(&message, None),
            Some(message) if message.kind == CustodyKind::Ask => self.option(&message),
            _ => close_aside(fds),
        }
    }

    fn take(&mut self, message: &Custody, fds: Vec<OwnedFd>) {
        let number = message.number;
        let mut fds = fds.into_iter();
        if message.flags & ABANDONED != 0 {
            // What was written goes out, and a FIN. If there is nothing, that is well.
            drop(self.sockets.take_over(message.ual, number, Vec::new()));
            return;
        }
        let (Some(end), memory) = (fds.next(), fds.next()) else {
            return;
        };
        let mut taken = Custody {
            addresses: message.addresses,
            ..Custody::new(CustodyKind::Taken, number)
        };
        let raw = if message.flags & OVER != 0 {
            None
        } else {
            match self.sockets.take_over(message.ual, number, Vec::new()) {
                Ok(raw) => {
                    taken.addresses = addresses(&raw);
                    Some(raw)
                }
                Err(error) => {
                    tracing::warn!(number, %error, "a connection cannot be taken into custody");
                    // Its holders see the end.
                    drop(end);
                    self.tell(&Custody::new(CustodyKind::Done, number), None);
                    return;
                }
            }
        };
        let events = epoll::EventFlags::IN
            | epoll::EventFlags::OUT
            | epoll::EventFlags::RDHUP
            | epoll::EventFlags::PRI
            | epoll::EventFlags::ET;
        let data = epoll::EventData::new_u64(number);
        if epoll::add(&self.epoll, &end, data, events).is_err() {
            self.tell(&Custody::new(CustodyKind::Done, number), None);
            return;
        }
        if let Some(raw) = &raw {
            raw.watch(Waker::from(Arc::new(Notice {
                number,
                ready: Arc::clone(&self.ready),
            })));
        }
        // What holders send out of band stays where it is in the stream. A system without it has none.
        let _ = rustix::net::sockopt::set_socket_oobinline(&end, true);
        let memory = memory.map(|memory| (memory, message.bytes));
        let connection = Connection::new(number, end, raw, memory);
        self.connections.insert(number, connection);
        self.tell(&taken, None);
        self.ready.put(number);
    }

    /// A holder sets an option, or wants to know one.
    fn option(&mut self, message: &Custody) {
        let [option, value, asked, ..] = message.addresses;
        let mut answer = Custody {
            ual: message.ual,
            status: Status::WrongState,
            ..Custody::new(CustodyKind::Answer, message.number)
        };
        let mut memory = None;
        let raw = self.connections.get(&message.number);
        if let (Some(raw), Some(option)) = (raw.and_then(Connection::raw), Opt::from_raw(option)) {
            let told = match (option, asked) {
                (_, 0) => {
                    raw.set_option(option, value);
                    Ok(0)
                }
                (Opt::Info, _) => raw.info().and_then(|info| {
                    let bytes = info.to_bytes();
                    answer.bytes = bytes.len() as u64;
                    memory = sealed_bytes(&bytes)?;
                    Ok(0)
                }),
                _ => raw.option(option),
            };
            if let Ok(value) = told {
                (answer.status, answer.addresses[0]) = (Status::Ok, value);
            }
        }
        self.tell(&answer, memory);
    }

    fn give(&mut self, message: &Custody) {
        let number = message.number;
        let mut given = Custody::new(CustodyKind::Given, number);
        let Some(connection) = self.connections.get_mut(&number) else {
            // It was over meanwhile, and the agent knows by now.
            return;
        };
        let bytes = connection.give(message.ual, &mut self.scratch);
        let memory = bytes.and_then(|bytes| {
            given.bytes = bytes.len() as u64;
            sealed_bytes(&bytes).map_err(|_| Status::NoResources)
        });
        match memory {
            Ok(memory) => {
                self.remove(number);
                self.tell(&given, memory);
            }
            Err(status) => {
                given.status = status;
                given.bytes = 0;
                self.tell(&given, None);
                self.ready.put(number);
            }
        }
    }
}

/// Both, as far as they can be had.
fn addresses(raw: &RawSocket) -> [u64; 6] {
    let words = |address: io::Result<_>| address.map_or([0; 3], |a| Address::new(a).0);
    let ([a, b, c], [d, e, f]) = (words(raw.local_address()), words(raw.peer_address()));
    [a, b, c, d, e, f]
}
