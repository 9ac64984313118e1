//! One socket of the program: the system's, the engine's, or both.
//!
//! A program says which address it means only when it binds or connects. Until then the descriptor is a socket of the system
//! (*undecided*), and what is set on it is remembered. Then it stays that and is forgotten here; or the number gets a
//! descriptor of the engine's instead; or, bound to a wildcard address, it stays and has a socket of the engine's *beside* it.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::os::fd::{IntoRawFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use sidecore_client::{Opt, RawSocket, Shut};

use crate::config::Place;
use crate::epoll::Item;
use crate::errors::{errno, told};
use crate::options::Settings;
use crate::process::{Process, process};
use crate::table::{Thing, lock};
use crate::{log, poll, sys};

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
    /// A connection or UDP socket of the parent's: this process has its number only.
    Parents,
}

/// Where a call on a socket goes.
pub(crate) enum Route {
    Kernel,
    Engine(RawSocket),
    Both(RawSocket),
    /// Nowhere: what was inherited over a fork and cannot be used here.
    Nowhere,
}

/// A listener of the engine's, as it can be opened once more: in a forked child.
#[derive(Clone, Copy)]
struct Listening {
    local: SocketAddr,
    backlog: u32,
    /// Who knows it may listen, too.
    key: u64,
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
    /// Whether the end of a connect was told.
    connected: bool,
    /// Numbers that stand for it.
    numbers: Vec<RawFd>,
    /// Its entries in epoll sets.
    items: Vec<Weak<Item>>,
}

/// A socket.
pub(crate) struct Socket {
    pub(crate) v6: bool,
    pub(crate) kind: Kind,
    nonblocking: AtomicBool,
    state: Mutex<State>,
}

impl Socket {
    fn with(v6: bool, kind: Kind, nonblocking: bool, role: Role, raw: Option<RawSocket>) -> Self {
        Self {
            v6,
            kind,
            nonblocking: AtomicBool::new(nonblocking),
            state: Mutex::new(State {
                connected: raw.is_some(),
                role,
                raw,
                bound: None,
                wildcard: false,
                settings: Settings::default(),
                listening: None,
                numbers: Vec::new(),
                items: Vec::new(),
            }),
        }
    }

    /// One that the system just made.
    pub(crate) fn undecided(v6: bool, kind: Kind, nonblocking: bool) -> Self {
        Self::with(v6, kind, nonblocking, Role::Undecided, None)
    }

    /// Where calls go.
    pub(crate) fn route(&self) -> Route {
        let state = lock(&self.state);
        match (state.role, &state.raw, state.listening) {
            (Role::Engine, Some(raw), _) => Route::Engine(raw.clone()),
            (Role::Both, Some(raw), _) => Route::Both(raw.clone()),
            (Role::Engine | Role::Both, None, Some(listening)) => {
                drop(state);
                self.listen_again(listening)
            }
            (Role::Parents, ..) | (Role::Engine, None, None) => Route::Nowhere,
            _ => Route::Kernel,
        }
    }

    /// In a child, a listener is opened once more when it is first used.
    fn listen_again(&self, listening: Listening) -> Route {
        let opened = process().link().ok_or(Errno::NETDOWN).and_then(|link| {
            let Listening {
                local,
                backlog,
                key,
            } = listening;
            let options = lock(&self.state).settings.before(self.v6, local);
            told(RawSocket::listen(
                &link.sockets,
                local,
                &options,
                backlog,
                key,
            ))
        });
        let mut state = lock(&self.state);
        match opened {
            Ok(raw) => {
                log::debug(format_args!("listens again at {}", listening.local));
                state.raw = Some(raw.clone());
                let both = state.role == Role::Both;
                drop(state);
                self.attach_items();
                if both {
                    Route::Both(raw)
                } else {
                    Route::Engine(raw)
                }
            }
            Err(error) => {
                log::error(format_args!(
                    "{}: the listener that was inherited cannot be used: {error}",
                    listening.local
                ));
                state.listening = None;
                match state.role {
                    // The system's half goes on.
                    Role::Both => state.role = Role::Undecided,
                    _ => state.role = Role::Parents,
                }
                drop(state);
                if self.has_kernel() {
                    Route::Kernel
                } else {
                    Route::Nowhere
                }
            }
        }
    }

    /// What a forked child has of it, with its numbers.
    pub(crate) fn inherited(&self) -> (Self, Vec<RawFd>) {
        let state = lock(&self.state);
        let role = match (state.role, state.listening) {
            (Role::Engine, None) => Role::Parents,
            // The system's half is a socket as any other.
            (Role::Both, None) => Role::Undecided,
            (role, _) => role,
        };
        let child = Self {
            v6: self.v6,
            kind: self.kind,
            nonblocking: AtomicBool::new(self.is_nonblocking()),
            state: Mutex::new(State {
                role,
                raw: None,
                bound: state.bound,
                wildcard: state.wildcard,
                settings: state.settings.clone(),
                listening: state.listening,
                connected: false,
                numbers: state.numbers.clone(),
                items: Vec::new(),
            }),
        };
        (child, state.numbers.clone())
    }

    /// Whether it is the engine's alone, be it only bound there.
    pub(crate) fn is_engines(&self) -> bool {
        let state = lock(&self.state);
        matches!(state.role, Role::Engine | Role::Parents) || state.bound.is_some()
    }

    /// Whether there is a socket of the system's behind the number, that counts.
    pub(crate) fn has_kernel(&self) -> bool {
        !matches!(lock(&self.state).role, Role::Engine | Role::Parents)
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

    /// One fewer.
    pub(crate) fn remove_number(&self, fd: RawFd) {
        lock(&self.state).numbers.retain(|other| *other != fd);
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
                let now = self.kind == Kind::Datagram || local.port() == 0;
                drop(state);
                if now {
                    // A port is chosen, or taken, with the socket itself.
                    self.open_bound(local, 1)?;
                }
                Ok(true)
            }
        }
    }

    /// The engine's socket for an address to which this was bound.
    fn open_bound(&self, local: SocketAddr, backlog: u32) -> Result<(), Errno> {
        let process = process();
        let link = process.link().ok_or(Errno::NETDOWN)?;
        let (options, key) = self.opening(local);
        let raw = match self.kind {
            Kind::Stream => RawSocket::listen(&link.sockets, local, &options, backlog, key),
            Kind::Datagram => RawSocket::datagram(&link.sockets, local, &options),
        };
        let raw = match raw {
            Ok(raw) => raw,
            Err(error) => {
                lock(&self.state).bound = None;
                return Err(errno(&error));
            }
        };
        let bound = told(raw.local_address())?;
        {
            let mut state = lock(&self.state);
            state.bound = Some(bound);
            state.listening = (self.kind == Kind::Stream).then_some(Listening {
                local: bound,
                backlog,
                key,
            });
        }
        self.become_engines(process, raw)
    }

    /// Options for a socket that begins there, and a listener's key: one for all that share the port by SO_REUSEPORT, else one of its own.
    fn opening(&self, local: SocketAddr) -> (Vec<(Opt, u64)>, u64) {
        let state = lock(&self.state);
        let key = match state.settings.shares_port() {
            true => REUSE_PORT,
            false => sys::random().max(REUSE_PORT + 1),
        };
        (state.settings.before(self.v6, local), key)
    }

    /// From here on its numbers stand for the engine's socket.
    fn become_engines(&self, process: &Process, raw: RawSocket) -> Result<(), Errno> {
        let link = process.link().ok_or(Errno::NETDOWN)?;
        let mut state = lock(&self.state);
        if state.role != Role::Engine {
            process.stash.replace(process, &link, &state.numbers)?;
        }
        state.role = Role::Engine;
        state.raw = Some(raw);
        drop(state);
        self.attach_items();
        Ok(())
    }

    /// Listens. `Ok(true)`: nothing is left to do for the system.
    pub(crate) fn listen(&self, fd: RawFd, backlog: i32) -> Result<bool, Errno> {
        let backlog = if backlog < 0 {
            4096
        } else {
            (backlog as u32).clamp(1, 4096)
        };
        let (role, bound, wildcard) = {
            let state = lock(&self.state);
            (state.role, state.bound, state.wildcard)
        };
        if self.kind != Kind::Stream {
            return Err(Errno::OPNOTSUPP);
        }
        match (role, bound) {
            // Listening already; the backlog stays. Or it was only to hold its port: then it listens from here on.
            (Role::Engine | Role::Both, _) => return Ok(true),
            (Role::Parents, _) => return Err(Errno::INVAL),
            (Role::Undecided, Some(local)) => {
                self.open_bound(local, backlog)?;
                return Ok(true);
            }
            (Role::Undecided, None) if !wildcard => return Ok(false),
            (Role::Undecided, None) => {}
        }
        rustix::net::listen(sys::borrow(fd), backlog as i32)?;
        if let Err(error) = self.listen_beside(fd, backlog) {
            log::info(format_args!("the engine does not listen, too: {error}"));
        }
        Ok(true)
    }

    /// A listener of the engine's beside the system's, at the same port.
    fn listen_beside(&self, fd: RawFd, backlog: u32) -> Result<(), Errno> {
        let process = process();
        let link = process.link().ok_or(Errno::NETDOWN)?;
        let local = kernel_name(fd)?;
        let (options, key) = self.opening(local);
        let raw = told(RawSocket::listen(
            &link.sockets,
            local,
            &options,
            backlog,
            key,
        ))?;
        // Either may have nothing when the other has: the system's must never wait.
        sys::set_nonblocking(fd, true)?;
        let mut state = lock(&self.state);
        state.role = Role::Both;
        state.raw = Some(raw);
        state.listening = Some(Listening {
            local,
            backlog,
            key,
        });
        drop(state);
        self.attach_items();
        Ok(())
    }

    /// Begins to connect, and ends it if it may wait. `Ok(false)`: it is the system's, from now on for good (streams).
    pub(crate) fn connect(&self, peer: SocketAddr) -> Result<bool, Errno> {
        let (role, raw) = {
            let state = lock(&self.state);
            (state.role, state.raw.clone())
        };
        if role == Role::Parents {
            return Err(Errno::ISCONN);
        }
        if self.kind == Kind::Datagram {
            return self.connect_datagram(peer);
        }
        if let (Role::Engine, Some(raw)) = (role, &raw)
            && !raw.is_listening()
        {
            return self.connect_again(raw, peer).map(|()| true);
        }
        let process = process();
        let bound = lock(&self.state).bound;
        if bound.is_none() {
            let takes = process.addresses().is_some_and(|a| a.takes(peer));
            if !takes {
                return Ok(false);
            }
        }
        let Some(link) = process.link() else {
            return Ok(false);
        };
        let bound = bound.filter(|local| !local.ip().is_unspecified() || local.port() != 0);
        let options = lock(&self.state).settings.before(self.v6, peer);
        // A listener that only held the port gives it up.
        {
            let mut state = lock(&self.state);
            (state.raw, state.listening) = (None, None);
        }
        drop(raw);
        let raw = told(RawSocket::connect(
            &link.sockets,
            bound,
            &options,
            canonical(peer),
        ))?;
        lock(&self.state).connected = false;
        self.become_engines(process, raw.clone())?;
        self.finish_connect(&raw).map(|()| true)
    }

    /// Waits for a connect, unless that may not be.
    fn finish_connect(&self, raw: &RawSocket) -> Result<(), Errno> {
        if self.is_nonblocking() {
            return Err(Errno::INPROGRESS);
        }
        let deadline = self.deadline(true);
        let done = raw.block(deadline, || raw.connected());
        let done = done.map_err(|error| match error.kind() {
            // RFC of old: the attempt goes on.
            std::io::ErrorKind::TimedOut if deadline.is_some_and(|at| at <= Instant::now()) => {
                Errno::INPROGRESS
            }
            _ => errno(&error),
        });
        if done.is_ok() {
            lock(&self.state).connected = true;
        }
        done
    }

    /// A connect on a socket that was connected, or tried to.
    fn connect_again(&self, raw: &RawSocket, peer: SocketAddr) -> Result<(), Errno> {
        raw.turn();
        match raw.connected() {
            Ok(()) => {
                let mut state = lock(&self.state);
                if std::mem::replace(&mut state.connected, true) {
                    Err(Errno::ISCONN)
                } else {
                    Ok(())
                }
            }
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                if self.is_nonblocking() {
                    Err(Errno::ALREADY)
                } else {
                    self.finish_connect(raw)
                }
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotConnected => {
                // The failure was told: a new attempt.
                let link = process().link().ok_or(Errno::NETUNREACH)?;
                let options = lock(&self.state).settings.before(self.v6, peer);
                let raw = RawSocket::connect(&link.sockets, None, &options, canonical(peer));
                let raw = told(raw)?;
                {
                    let mut state = lock(&self.state);
                    state.raw = Some(raw.clone());
                    state.connected = false;
                }
                self.attach_items();
                self.finish_connect(&raw)
            }
            Err(error) => Err(errno(&error)),
        }
    }

    fn connect_datagram(&self, peer: SocketAddr) -> Result<bool, Errno> {
        let takes = process().addresses().is_some_and(|a| a.takes(peer));
        if !takes && !self.is_engines() {
            return Ok(false);
        }
        let raw = self.datagram_beside()?;
        told(raw.connect_datagram(canonical(peer)))?;
        // Only that peer counts from here on.
        self.become_engines(process(), raw)?;
        Ok(true)
    }

    /// The engine's socket of a UDP socket: made when it is first needed.
    pub(crate) fn datagram_beside(&self) -> Result<RawSocket, Errno> {
        let (raw, number) = {
            let state = lock(&self.state);
            (state.raw.clone(), state.numbers.first().copied())
        };
        if let Some(raw) = raw {
            return Ok(raw);
        }
        let link = process().link().ok_or(Errno::NETUNREACH)?;
        let fd = number.ok_or(Errno::BADF)?;
        let port = kernel_name(fd).map_or(0, |local| local.port());
        let any: IpAddr = match self.v6 {
            true => Ipv6Addr::UNSPECIFIED.into(),
            false => std::net::Ipv4Addr::UNSPECIFIED.into(),
        };
        let local = SocketAddr::new(any, port);
        let options = lock(&self.state).settings.before(self.v6, local);
        let raw = told(RawSocket::datagram(&link.sockets, local, &options))?;
        let mut state = lock(&self.state);
        state.raw = Some(raw.clone());
        if state.role == Role::Undecided {
            state.role = Role::Both;
        }
        drop(state);
        self.attach_items();
        Ok(raw)
    }

    /// After the system bound it.
    pub(crate) fn bound_by_system(&self, local: SocketAddr) -> bool {
        let wildcard = lock(&self.state).wildcard;
        if wildcard && self.kind == Kind::Datagram && local.port() != 0 {
            // It can be reached by the engine from now on.
            if let Err(error) = self.datagram_beside() {
                log::info(format_args!("the engine does not listen, too: {error}"));
            }
        }
        wildcard || self.kind == Kind::Datagram
    }

    /// Takes a connection: its number and the peer. `None`: the system's listener has the next.
    pub(crate) fn accept(&self, fd: RawFd, flags: i32) -> Result<(RawFd, SocketAddr), Errno> {
        let (raw, both) = match self.route() {
            Route::Engine(raw) => (raw, false),
            Route::Both(raw) => (raw, true),
            Route::Kernel | Route::Nowhere => return Err(Errno::INVAL),
        };
        if !raw.is_listening() {
            return Err(Errno::INVAL);
        }
        let attempt = || self.accept_now(&raw, both.then_some(fd), flags);
        if self.is_nonblocking() {
            return attempt();
        }
        let deadline = self.deadline(false);
        if both {
            return poll::block(fd, libc::POLLIN, deadline, attempt);
        }
        let mut last = None;
        let done = raw.block(deadline, || match attempt() {
            Err(Errno::AGAIN) => Err(std::io::ErrorKind::WouldBlock.into()),
            other => {
                last = Some(other);
                Ok(())
            }
        });
        match (done, last) {
            (Ok(()), Some(accepted)) => accepted,
            (Err(error), _) if error.kind() == std::io::ErrorKind::TimedOut => Err(Errno::AGAIN),
            (Err(error), _) => Err(errno(&error)),
            (Ok(()), None) => Err(Errno::IO),
        }
    }

    fn accept_now(
        &self,
        raw: &RawSocket,
        kernel: Option<RawFd>,
        flags: i32,
    ) -> Result<(RawFd, SocketAddr), Errno> {
        let mut accepted = raw.accept();
        if would_block(&accepted) {
            raw.turn();
            accepted = raw.accept();
        }
        match (accepted, kernel) {
            (Ok((child, peer)), _) => self.adopt(child, peer, flags),
            (Err(error), Some(fd)) if error.kind() == std::io::ErrorKind::WouldBlock => {
                accept_of_system(fd, flags)
            }
            (Err(error), _) => Err(errno(&error)),
        }
    }

    /// Gives a connection of the engine's a number.
    fn adopt(
        &self,
        child: RawSocket,
        peer: Option<SocketAddr>,
        flags: i32,
    ) -> Result<(RawFd, SocketAddr), Errno> {
        let process = process();
        let link = process.link().ok_or(Errno::NETDOWN)?;
        let peer = match peer {
            Some(peer) => peer,
            None => told(child.peer_address())?,
        };
        let nonblocking = flags & libc::SOCK_NONBLOCK != 0;
        let cloexec = flags & libc::SOCK_CLOEXEC != 0;
        let fd = process.stash.lowest(process, &link, cloexec)?;
        if nonblocking {
            let _ = sys::set_nonblocking(fd, true);
        }
        let settings = lock(&self.state).settings.of_child();
        let socket = Self::with(
            self.v6,
            Kind::Stream,
            nonblocking,
            Role::Engine,
            Some(child),
        );
        lock(&socket.state).settings = settings;
        if !install(process, fd, socket) {
            sys::close(fd);
            return Err(Errno::MFILE);
        }
        Ok((fd, peer))
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
            Route::Engine(raw) => told(raw.shutdown(how)),
            _ => Err(Errno::NOTCONN),
        }
    }

    /// This side's address.
    pub(crate) fn local(&self) -> Result<SocketAddr, Errno> {
        let (bound, raw) = {
            let state = lock(&self.state);
            (state.bound, state.raw.clone())
        };
        match (raw, bound) {
            (Some(raw), _) => told(raw.local_address()),
            (None, Some(bound)) => Ok(bound),
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
            Route::Kernel | Route::Nowhere => 0,
        }
    }

    /// Sets an option of the engine's.
    pub(crate) fn set_option(&self, option: Opt, value: u64) {
        if let Route::Engine(raw) | Route::Both(raw) = self.route() {
            raw.set_option(option, value);
        }
    }
}

/// The key of listeners that share their port with whoever of the same user asks for it (SO_REUSEPORT).
const REUSE_PORT: u64 = 1;

/// Puts a socket into the table.
pub(crate) fn install(process: &Process, fd: RawFd, socket: Socket) -> bool {
    socket.add_number(fd);
    process.table.put(fd, Thing::Socket(Arc::new(socket)))
}

fn would_block<T>(result: &std::io::Result<T>) -> bool {
    matches!(result, Err(error) if error.kind() == std::io::ErrorKind::WouldBlock)
}

/// The next connection of the system's listener.
fn accept_of_system(fd: RawFd, flags: i32) -> Result<(RawFd, SocketAddr), Errno> {
    let with = rustix::net::SocketFlags::from_bits_retain(flags as u32);
    let (accepted, peer) = rustix::net::acceptfrom_with(sys::borrow(fd), with)?;
    let peer = peer.and_then(|peer| SocketAddr::try_from(peer).ok());
    let peer = peer.ok_or(Errno::CONNABORTED)?;
    Ok((accepted.into_raw_fd(), peer))
}

/// Where the system has a socket bound.
fn kernel_name(fd: RawFd) -> Result<SocketAddr, Errno> {
    let name = rustix::net::getsockname(sys::borrow(fd))?;
    SocketAddr::try_from(name).map_err(|_| Errno::INVAL)
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

    /// Whether the engine has a say in its accepts.
    pub(crate) fn may_accept(&self) -> bool {
        !matches!(self.route(), Route::Kernel)
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        for item in self.items() {
            item.drop_from_set();
        }
    }
}
