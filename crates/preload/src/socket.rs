//! One socket of the program: the system's, the engine's, or both.
//!
//! A program says which address it means only when it binds or connects. Until then the descriptor is a socket of the system
//! (*undecided*), and what is set on it is remembered. Then it stays that and is forgotten here; or the number gets a
//! descriptor of the engine's instead; or, bound to a wildcard address, it stays and has a socket of the engine's *beside* it.

mod adopt;
mod connect;
pub(crate) mod custody;
mod elsewhere;
mod holders;
mod listen;

use std::net::{IpAddr, SocketAddr};
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::task::Waker;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use sidecore_client::{RawSocket, Share, Shut, is_elsewhere};

use crate::config::Place;
use crate::descriptors::{Placed, Twin};
use crate::epoll::Item;
use crate::errors::{errno, told};
use crate::options::Settings;
use crate::process::{Process, process};
use crate::table::{Thing, lock};
use crate::{log, sys};
use custody::Custody;
use holders::Sharing;

/// Connections that may wait at a listener that was opened for its port's sake, before its program said how many.
const EARLY_BACKLOG: u32 = 1024;

/// What a socket carries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Stream,
    Datagram,
}

/// Whose it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Role {
    /// The system's so far.
    Undecided,
    /// The engine's.
    Engine,
    /// Both listen, or both send and receive.
    Both,
    /// It was inherited, or received, and nothing was asked yet.
    Inherited,
    /// A connection whose bytes go through the descriptor: others hold it, or may.
    Proxied,
    /// It cannot be used here: a UDP socket of the parent's, or a connection that is no more.
    Lost,
}

/// Where a call on a socket goes.
pub(crate) enum Route {
    Kernel,
    Engine(RawSocket),
    Both(RawSocket),
    /// To the descriptor itself, which stands for a connection that is with the custodian.
    Descriptor,
    /// Nowhere: what was inherited over a fork and cannot be used here.
    Nowhere,
}

/// A listener of the engine's, as it can be opened once more: in a forked child.
#[derive(Clone, Copy)]
struct Listening {
    local: SocketAddr,
    backlog: u32,
    /// Who may listen there, too: those that share the port, and its copies.
    share: Share,
    /// It only has its port: the program has not called listen.
    held: bool,
}

struct State {
    role: Role,
    raw: Option<RawSocket>,
    /// Bound to this address of the engine's; the system knows nothing of it.
    bound: Option<SocketAddr>,
    /// Bound to a wildcard address, at the system.
    wildcard: bool,
    settings: Settings,
    listening: Option<Listening>,
    /// Of a UDP socket of the engine's: how others that hold it open it.
    sharing: Option<Sharing>,
    /// Whether the end of a connect was told.
    connected: bool,
    /// Numbers that stand for it.
    numbers: Vec<RawFd>,
    /// The library's own number of the descriptor.
    twin: Option<Twin>,
    /// Its entries in epoll sets.
    items: Vec<Weak<Item>>,
    custody: Custody,
    /// Who polls the descriptor: to be told when the connection is here.
    pollers: Vec<(u64, Waker)>,
}

impl State {
    /// A descriptor of the agent's stands for it from now on; the agent's number.
    fn has(&mut self, placed: Placed) -> u64 {
        self.twin = placed.twin;
        placed.number
    }
}

/// A socket.
pub(crate) struct Socket {
    v6: AtomicBool,
    datagram: AtomicBool,
    /// It came from elsewhere, and what it is was not asked yet.
    unknown: AtomicBool,
    nonblocking: AtomicBool,
    /// It may be that the connection is not here: look before moving bytes.
    elsewhere: AtomicBool,
    /// Threads that are in a call on the descriptor.
    descriptor_calls: AtomicUsize,
    /// Held while the connection comes or goes, and taken before a call on the descriptor.
    gate: Mutex<()>,
    state: Mutex<State>,
}

impl Socket {
    fn with(v6: bool, kind: Kind, nonblocking: bool, role: Role, raw: Option<RawSocket>) -> Self {
        Self {
            v6: AtomicBool::new(v6),
            datagram: AtomicBool::new(kind == Kind::Datagram),
            unknown: AtomicBool::new(false),
            nonblocking: AtomicBool::new(nonblocking),
            elsewhere: AtomicBool::new(role == Role::Inherited),
            descriptor_calls: AtomicUsize::new(0),
            gate: Mutex::new(()),
            state: Mutex::new(State {
                connected: raw.is_some(),
                role,
                raw,
                bound: None,
                wildcard: false,
                settings: Settings::default(),
                listening: None,
                sharing: None,
                numbers: Vec::new(),
                twin: None,
                items: Vec::new(),
                custody: Custody::default(),
                pollers: Vec::new(),
            }),
        }
    }

    /// One that the system just made.
    pub(crate) fn undecided(v6: bool, kind: Kind, nonblocking: bool) -> Self {
        Self::with(v6, kind, nonblocking, Role::Undecided, None)
    }

    /// One that this image inherited over exec, or that was received: what it is will be asked when it is first used.
    pub(crate) fn of_another(fd: RawFd) -> Self {
        let flags = sys::fcntl(fd, libc::F_GETFL, 0).unwrap_or(0);
        let nonblocking = flags & libc::O_NONBLOCK != 0;
        let socket = Self::with(false, Kind::Stream, nonblocking, Role::Inherited, None);
        socket.unknown.store(true, Ordering::Relaxed);
        lock(&socket.state).custody = Custody::new(custody::number_of(fd).unwrap_or(0));
        socket.add_number(fd);
        socket
    }

    /// Whether the program knows it as a socket of IPv6.
    pub(crate) fn is_v6(&self) -> bool {
        self.v6.load(Ordering::Relaxed)
    }

    /// Of one that came from elsewhere, once an address is known.
    fn learn_family(&self, address: Option<SocketAddr>) {
        if address.is_some_and(|address| address.is_ipv6()) {
            self.v6.store(true, Ordering::Relaxed);
        }
    }

    /// What it carries, asked for if it came from elsewhere.
    pub(crate) fn kind(&self) -> Kind {
        if self.unknown.load(Ordering::Relaxed) {
            self.look_again();
        }
        self.known_kind()
    }

    /// The same, as far as it is known.
    pub(crate) fn known_kind(&self) -> Kind {
        match self.datagram.load(Ordering::Relaxed) {
            true => Kind::Datagram,
            false => Kind::Stream,
        }
    }

    /// Where calls go.
    pub(crate) fn route(&self) -> Route {
        if self.elsewhere.load(Ordering::Relaxed) {
            self.look_again();
        }
        let state = lock(&self.state);
        match (state.role, &state.raw, state.listening) {
            (Role::Engine, Some(raw), _) => Route::Engine(raw.clone()),
            (Role::Both, Some(raw), _) => Route::Both(raw.clone()),
            (Role::Engine | Role::Both, None, Some(listening)) => {
                drop(state);
                self.listen_again(listening)
            }
            (Role::Engine | Role::Both, None, None) if state.sharing.is_some() => {
                drop(state);
                self.open_again()
            }
            (Role::Proxied, ..) => Route::Descriptor,
            (Role::Inherited | Role::Lost, ..) | (Role::Engine, None, None) => Route::Nowhere,
            _ => Route::Kernel,
        }
    }

    /// What a forked child has of it, with its numbers.
    pub(crate) fn inherited(&self) -> (Self, Vec<RawFd>) {
        let mut state = lock(&self.state);
        let role = state.role_in_child(self.known_kind());
        // Who has asked for it tells of its children.
        let tells = state.role != Role::Inherited;
        if !tells {
            state.custody.leave_out_one_fork();
        }
        let peer = state.raw.as_ref().and_then(|raw| raw.peer_address().ok());
        match &state.raw {
            Some(raw) if raw.is_datagram() => raw.settle(),
            Some(raw) if raw.is_listening() => raw.has_copies(),
            _ => {}
        }
        let custody = state.custody.inherited(tells, peer);
        let child = Self {
            v6: AtomicBool::new(self.is_v6()),
            datagram: AtomicBool::new(self.known_kind() == Kind::Datagram),
            unknown: AtomicBool::new(self.unknown.load(Ordering::Relaxed)),
            nonblocking: AtomicBool::new(self.is_nonblocking()),
            elsewhere: AtomicBool::new(role == Role::Inherited),
            descriptor_calls: AtomicUsize::new(0),
            gate: Mutex::new(()),
            state: Mutex::new(State {
                role,
                raw: None,
                bound: state.bound,
                wildcard: state.wildcard,
                settings: state.settings.clone(),
                listening: state.listening,
                sharing: state.sharing,
                connected: false,
                numbers: state.numbers.clone(),
                twin: None,
                items: Vec::new(),
                custody,
                pollers: Vec::new(),
            }),
        };
        (child, state.numbers.clone())
    }

    /// Whether it is the engine's alone, be it only bound there.
    pub(crate) fn is_engines(&self) -> bool {
        let state = lock(&self.state);
        let of_engine = [Role::Engine, Role::Inherited, Role::Proxied, Role::Lost];
        of_engine.contains(&state.role) || state.bound.is_some()
    }

    /// Whether there is a socket of the system's behind the number, that counts.
    pub(crate) fn has_kernel(&self) -> bool {
        if self.elsewhere.load(Ordering::Relaxed) {
            self.look_again();
        }
        let role = lock(&self.state).role;
        !matches!(role, Role::Engine | Role::Inherited | Role::Lost)
    }

    pub(crate) fn is_nonblocking(&self) -> bool {
        self.nonblocking.load(Ordering::Relaxed)
    }

    /// Follows a change of O_NONBLOCK. True: the system is not to be told, since its socket never waits.
    pub(crate) fn set_nonblocking(&self, on: bool) -> bool {
        self.nonblocking.store(on, Ordering::Relaxed);
        lock(&self.state).role == Role::Both
    }

    pub(crate) fn settings<T>(&self, with: impl FnOnce(&mut Settings) -> T) -> T {
        with(&mut lock(&self.state).settings)
    }

    /// One more number stands for it.
    pub(crate) fn add_number(&self, fd: RawFd) {
        let mut state = lock(&self.state);
        if !state.numbers.contains(&fd) {
            state.numbers.push(fd);
        }
    }

    /// One fewer. With the last the library's own goes, too: nobody is to think that the program holds the descriptor.
    pub(crate) fn remove_number(&self, fd: RawFd) {
        let twin = {
            let mut state = lock(&self.state);
            state.numbers.retain(|other| *other != fd);
            let last = state.numbers.is_empty();
            last.then(|| state.twin.take()).flatten()
        };
        drop(twin);
    }

    /// The library's own number of the descriptor, if there is one, to be used otherwise.
    pub(crate) fn take_twin(&self) -> Option<Twin> {
        lock(&self.state).twin.take()
    }

    /// Until when a read or write may wait.
    pub(crate) fn deadline(&self, write: bool) -> Option<Instant> {
        let state = lock(&self.state);
        let timeout = if write {
            state.settings.write_timeout
        } else {
            state.settings.read_timeout
        };
        timeout.and_then(|timeout| Instant::now().checked_add(timeout))
    }

    /// Decides by the address that it is bound to. `Ok(false)`: the system must bind it, and `self` follows by [`Self::bound_by_system`].
    pub(crate) fn bind(&self, local: SocketAddr) -> Result<bool, Errno> {
        let process = process();
        let mut state = lock(&self.state);
        if state.role != Role::Undecided || state.bound.is_some() {
            return Err(Errno::INVAL);
        }
        let Some(addresses) = process.addresses() else {
            return Ok(false);
        };
        match addresses.place(local) {
            Place::Kernel => Ok(false),
            Place::Both => {
                state.wildcard = true;
                Ok(false)
            }
            Place::Engine => {
                if process.link().is_none() {
                    return Ok(false);
                }
                state.bound = Some(local);
                // Streams that share their port do so when they listen.
                let now = self.known_kind() == Kind::Datagram
                    || local.port() == 0
                    || !state.settings.shares_port();
                drop(state);
                if now {
                    self.open_bound(local, EARLY_BACKLOG, true)?;
                }
                Ok(true)
            }
        }
    }

    /// From here on its numbers stand for the engine's socket.
    pub(super) fn become_engines(
        &self,
        process: &'static Process,
        raw: RawSocket,
    ) -> Result<(), Errno> {
        let link = process.link().ok_or(Errno::NETDOWN)?;
        self.dress(&raw);
        let mut state = lock(&self.state);
        let mut number = None;
        if state.role != Role::Engine {
            let placed = process.stash.replace(process, &link, &state.numbers)?;
            number = Some(state.has(placed));
        }
        state.role = Role::Engine;
        state.raw = Some(raw);
        drop(state);
        if let Some(number) = number {
            self.begin_custody(number);
        }
        self.attach_items();
        Ok(())
    }

    /// After the system bound it.
    pub(crate) fn bound_by_system(&self, local: SocketAddr) -> bool {
        let wildcard = lock(&self.state).wildcard;
        let datagram = self.known_kind() == Kind::Datagram;
        if wildcard && datagram && local.port() != 0 {
            // It can be reached by the engine from now on.
            if let Err(error) = self.datagram_beside() {
                log::info(format_args!("the engine does not listen, too: {error}"));
            }
        }
        wildcard || datagram
    }

    /// Ends directions.
    pub(crate) fn shutdown(&self, how: i32) -> Result<(), Errno> {
        let how = match how {
            libc::SHUT_RD => Shut::Read,
            libc::SHUT_WR => Shut::Write,
            libc::SHUT_RDWR => Shut::Both,
            _ => return Err(Errno::INVAL),
        };
        match self.route() {
            Route::Engine(raw) if raw.is_listening() => {
                // As Linux has it: the listener is no more, and blocked accepts end.
                told(raw.stop_listening())
            }
            Route::Engine(raw) => match raw.shutdown(how) {
                Err(error) if is_elsewhere(&error) => self.shutdown_descriptor(how),
                done => told(done),
            },
            Route::Descriptor => self.shutdown_descriptor(how),
            _ => Err(Errno::NOTCONN),
        }
    }

    /// The same while the connection is not here.
    fn shutdown_descriptor(&self, how: Shut) -> Result<(), Errno> {
        let fd = lock(&self.state).numbers.first().copied();
        let how = match how {
            Shut::Read => rustix::net::Shutdown::Read,
            Shut::Write => rustix::net::Shutdown::Write,
            Shut::Both => rustix::net::Shutdown::Both,
        };
        rustix::net::shutdown(sys::borrow(fd.ok_or(Errno::BADF)?), how)
    }

    /// This side's address. Of what was never connected, and came from elsewhere, nobody knows it.
    pub(crate) fn local(&self) -> Result<SocketAddr, Errno> {
        let proxied = matches!(self.route(), Route::Descriptor);
        let known = proxied.then(|| self.learn_addresses().0).flatten();
        let (bound, raw, lost) = {
            let state = lock(&self.state);
            let lost = state.role == Role::Lost;
            (state.bound, state.raw.clone(), proxied || lost)
        };
        match (raw, known.or(bound)) {
            (Some(raw), _) => told(raw.local_address()),
            (None, Some(known)) => Ok(known),
            (None, None) if lost => Ok(any(self.is_v6())),
            (None, None) => Err(Errno::INVAL),
        }
    }

    /// The peer's.
    pub(crate) fn peer(&self) -> Result<SocketAddr, Errno> {
        match self.route() {
            Route::Engine(raw) => {
                raw.turn();
                told(raw.peer_address())
            }
            Route::Descriptor => self.learn_addresses().1.ok_or(Errno::NOTCONN),
            _ => Err(Errno::NOTCONN),
        }
    }

    /// SO_ERROR: what went wrong since it was last asked.
    pub(crate) fn take_error(&self) -> i32 {
        match self.route() {
            Route::Engine(raw) | Route::Both(raw) => {
                raw.turn();
                let error = raw.take_error();
                error.map_or(0, |error| errno(&error).raw_os_error())
            }
            Route::Descriptor => {
                let fd = lock(&self.state).numbers.first().copied();
                let error =
                    fd.and_then(|fd| rustix::net::sockopt::socket_error(sys::borrow(fd)).ok());
                let error = error.and_then(Result::err);
                error.map_or(0, Errno::raw_os_error)
            }
            Route::Kernel | Route::Nowhere => 0,
        }
    }
}

/// Puts a socket into the table.
pub(crate) fn install(process: &Process, fd: RawFd, socket: Socket) -> bool {
    socket.add_number(fd);
    process.table.put(fd, Thing::Socket(Arc::new(socket)))
}

/// Where the system has a socket bound.
pub(super) fn kernel_name(fd: RawFd) -> Result<SocketAddr, Errno> {
    let name = rustix::net::getsockname(sys::borrow(fd))?;
    SocketAddr::try_from(name).map_err(|_| Errno::INVAL)
}

/// No address in particular.
fn any(v6: bool) -> SocketAddr {
    match v6 {
        true => (std::net::Ipv6Addr::UNSPECIFIED, 0).into(),
        false => (std::net::Ipv4Addr::UNSPECIFIED, 0).into(),
    }
}

/// An IPv4-mapped address as one of IPv4, which is what it is on the wire; the wildcard address as this machine.
pub(crate) fn canonical(address: SocketAddr) -> SocketAddr {
    match address.ip().to_canonical() {
        IpAddr::V4(ip) if ip.is_unspecified() => {
            SocketAddr::new(std::net::Ipv4Addr::LOCALHOST.into(), address.port())
        }
        IpAddr::V4(ip) => SocketAddr::new(ip.into(), address.port()),
        IpAddr::V6(_) => address,
    }
}

/// A timeout as SO_RCVTIMEO has it: zero is none.
pub(crate) fn timeout(time: Duration) -> Option<Duration> {
    (!time.is_zero()).then_some(time)
}

impl Socket {
    /// The engine's socket, if there is one.
    pub(crate) fn raw(&self) -> Option<RawSocket> {
        lock(&self.state).raw.clone()
    }

    /// It was put into an epoll set.
    pub(crate) fn add_item(&self, item: &Arc<Item>) {
        let mut state = lock(&self.state);
        state.items.retain(|item| item.strong_count() > 0);
        state.items.push(Arc::downgrade(item));
    }

    /// Its entries in epoll sets.
    pub(crate) fn items(&self) -> Vec<Arc<Item>> {
        lock(&self.state)
            .items
            .iter()
            .filter_map(Weak::upgrade)
            .collect()
    }

    /// Whether it only has its port, and does not listen.
    pub(crate) fn is_held(&self) -> bool {
        let listening = lock(&self.state).listening;
        listening.is_some_and(|listening| listening.held)
    }

    /// Whether the engine has a say in its accepts.
    pub(crate) fn may_accept(&self) -> bool {
        !matches!(self.route(), Route::Kernel)
    }

    /// From now on `waker` is woken when the connection, which is not here, has come. Gives a number for [`Self::end_poll`].
    pub(crate) fn poll_descriptor(&self, waker: Waker) -> u64 {
        static NUMBERS: AtomicU64 = AtomicU64::new(1);
        let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
        lock(&self.state).pollers.push((number, waker));
        number
    }

    pub(crate) fn end_poll(&self, number: u64) {
        let mut state = lock(&self.state);
        state.pollers.retain(|(other, _)| *other != number);
    }

    /// One of the numbers that stand for it.
    pub(crate) fn first_number(&self) -> Option<RawFd> {
        lock(&self.state).numbers.first().copied()
    }

    /// Whether calls go to the descriptor, without asking whether that must be so.
    pub(crate) fn is_proxied(&self) -> bool {
        lock(&self.state).role == Role::Proxied
    }

    /// They look again.
    fn wake_pollers(&self) {
        let wakers: Vec<Waker> = {
            let state = lock(&self.state);
            state
                .pollers
                .iter()
                .map(|(_, waker)| waker.clone())
                .collect()
        };
        wakers.into_iter().for_each(Waker::wake);
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        for item in self.items() {
            item.drop_from_set();
        }
    }
}
