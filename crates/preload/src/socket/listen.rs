//! Listening, and taking connections.

use std::net::SocketAddr;
use std::os::fd::{IntoRawFd, RawFd};
use std::time::Duration;

use rustix::io::Errno;
use sidecore_client::abi::command::REUSE_PORT_KEY;
use sidecore_client::{Opt, RawSocket, Share};

use super::{Kind, Listening, Role, Route, Socket, install, kernel_name};
use crate::cancel::Sleep;
use crate::errors::{errno, told};
use crate::process::{Process, process};
use crate::table::lock;
use crate::{log, poll, sys};

/// How long a listener's end is waited for. The engine answers in its next turn.
const LAST_CONNECTIONS: Duration = Duration::from_millis(100);

/// How long the engine's answer to an accept is waited for, where it has told that a connection waits.
const ANSWER: Duration = Duration::from_millis(100);

impl Socket {
    /// In a child, a listener is opened once more when it is first used.
    pub(super) fn listen_again(&self, listening: Listening) -> Route {
        let opened = process().link().ok_or(Errno::NETDOWN).and_then(|link| {
            let Listening {
                local,
                backlog,
                share,
                held,
            } = listening;
            let options = lock(&self.state).settings.before(self.is_v6(), local);
            let open = if held {
                RawSocket::hold
            } else {
                RawSocket::listen
            };
            told(open(&link.sockets, local, &options, backlog, share))
        });
        let mut state = lock(&self.state);
        match opened {
            Ok(raw) => {
                raw.has_copies();
                log::debug(format_args!("listens again at {}", listening.local));
                state.raw = Some(raw.clone());
                process().listens();
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
                    _ => state.role = Role::Lost,
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

    /// Others may listen, too, from here on, if it is a listener.
    pub(crate) fn is_copied(&self) {
        let raw = lock(&self.state).raw.clone();
        if let Some(raw) = raw.filter(RawSocket::is_listening) {
            raw.has_copies();
        }
    }

    /// After its last number went: the engine may have given a connection to this process that nobody will take, and nobody may look after the
    /// event queue from here on.
    pub(crate) fn after_last_close(&self) {
        let raw = {
            let state = lock(&self.state);
            state.raw.clone().filter(|_| state.numbers.is_empty())
        };
        if let Some(raw) = raw.filter(RawSocket::is_listening) {
            raw.finish_listening(LAST_CONNECTIONS);
        }
    }

    /// Listens at the engine that came in the place of one that is gone, if it listened there; or sends and receives there, if it did.
    pub(crate) fn listen_anew(&self, process: &'static Process) -> Result<(), Errno> {
        if self.known_kind() == Kind::Datagram {
            return self.datagram_anew(process);
        }
        let (listening, role) = {
            let state = lock(&self.state);
            let gone = state.raw.as_ref().is_some_and(RawSocket::is_over);
            match state.listening {
                Some(listening) if gone => (listening, state.role),
                _ => return Ok(()),
            }
        };
        let link = process.link().ok_or(Errno::NETDOWN)?;
        let Listening {
            local,
            backlog,
            share,
            held,
        } = listening;
        let options = lock(&self.state).settings.before(self.is_v6(), local);
        let sockets = &link.sockets;
        let open = match held {
            true => RawSocket::hold,
            false => RawSocket::listen,
        };
        let raw = told(open(sockets, local, &options, backlog, share))?;
        let mut number = None;
        {
            let mut state = lock(&self.state);
            if role == Role::Engine {
                // What stands for it is the new engine's, too.
                let placed = process.stash.replace(process, &link, &state.numbers)?;
                number = Some(state.has(placed));
            }
            state.raw = Some(raw);
        }
        if let Some(number) = number {
            self.begin_custody(number);
        }
        log::info(format_args!(
            "{local}: listens at the engine that came back"
        ));
        self.attach_items();
        Ok(())
    }

    /// The engine's socket for an address to which this was bound; `held`: a listener only has its port.
    pub(super) fn open_bound(
        &self,
        local: SocketAddr,
        backlog: u32,
        held: bool,
    ) -> Result<(), Errno> {
        let process = process();
        let link = process.link().ok_or(Errno::NETDOWN)?;
        let (options, share) = self.opening(local);
        let raw = match self.known_kind() {
            Kind::Stream if held => RawSocket::hold(&link.sockets, local, &options, backlog, share),
            Kind::Stream => RawSocket::listen(&link.sockets, local, &options, backlog, share),
            Kind::Datagram => self.open_shared(&link, local, &options),
        };
        let raw = match raw {
            Ok(raw) => raw,
            Err(error) => {
                lock(&self.state).bound = None;
                return Err(errno(&error));
            }
        };
        let bound = told(raw.local_address())?;
        process.listens();
        {
            let mut state = lock(&self.state);
            state.bound = Some(bound);
            state.listening = (self.known_kind() == Kind::Stream).then_some(Listening {
                local: bound,
                backlog,
                share,
                held,
            });
        }
        self.become_engines(process, raw)
    }

    /// Options for a socket that begins there, and who may share a listener: all that share the port by SO_REUSEPORT, or only its copies.
    fn opening(&self, local: SocketAddr) -> (Vec<(Opt, u64)>, Share) {
        let state = lock(&self.state);
        let copies = sys::random().max(REUSE_PORT_KEY + 1);
        let key = match state.settings.shares_port() {
            true => REUSE_PORT_KEY,
            false => copies,
        };
        (
            state.settings.before(self.is_v6(), local),
            Share { key, copies },
        )
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
        if self.kind() != Kind::Stream {
            return Err(Errno::OPNOTSUPP);
        }
        match (role, bound) {
            (Role::Engine, _) => return self.listen_from_here(backlog).map(|()| true),
            // Listening already; the backlog stays.
            (Role::Both, _) => return Ok(true),
            (Role::Inherited | Role::Proxied | Role::Lost, _) => return Err(Errno::INVAL),
            (Role::Undecided, Some(local)) => {
                self.open_bound(local, backlog, false)?;
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
        let (options, share) = self.opening(local);
        let raw = told(RawSocket::listen(
            &link.sockets,
            local,
            &options,
            backlog,
            share,
        ))?;
        process.listens();
        // Either may have nothing when the other has: the system's must never wait.
        sys::set_nonblocking(fd, true)?;
        let mut state = lock(&self.state);
        state.role = Role::Both;
        state.raw = Some(raw);
        state.listening = Some(Listening {
            local,
            backlog,
            share,
            held: false,
        });
        drop(state);
        self.attach_items();
        Ok(())
    }

    /// A socket that has its port, or listens, has this backlog from now on.
    fn listen_from_here(&self, backlog: u32) -> Result<(), Errno> {
        let raw = match self.route() {
            Route::Engine(raw) if raw.is_listening() => raw,
            _ => return Err(Errno::INVAL),
        };
        told(raw.open(backlog))?;
        let begun = {
            let mut state = lock(&self.state);
            let Some(listening) = &mut state.listening else {
                return Ok(());
            };
            let held = std::mem::replace(&mut listening.held, false);
            listening.backlog = backlog;
            let listening = *listening;
            held.then_some((state.custody.number, listening))
        };
        if let Some((number, listening)) = begun {
            self.describe(number, &listening);
        }
        Ok(())
    }

    /// Takes a connection: its number and the peer. `None`: the system's listener has the next.
    pub(crate) fn accept(&self, fd: RawFd, flags: i32) -> Result<(RawFd, SocketAddr), Errno> {
        let (raw, both) = match self.route() {
            Route::Engine(raw) => (raw, false),
            Route::Both(raw) => (raw, true),
            Route::Kernel | Route::Descriptor | Route::Nowhere => return Err(Errno::INVAL),
        };
        if !raw.is_listening() || self.is_held() {
            return Err(Errno::INVAL);
        }
        let attempt = || self.accept_now(&raw, both.then_some(fd), flags);
        if self.is_nonblocking() {
            // A poll may have told of one that waits at a copy: then this one is not to say that there is none.
            return match attempt() {
                Err(Errno::AGAIN) if raw.hears_of_incoming(ANSWER) => attempt(),
                done => done,
            };
        }
        let deadline = self.deadline(false);
        if both || raw.is_over() {
            // Another may take its place meanwhile.
            return poll::block(fd, libc::POLLIN, deadline, || {
                let raw = self.raw().ok_or(Errno::INVAL)?;
                self.accept_now(&raw, both.then_some(fd), flags)
            });
        }
        let mut last = None;
        let sleep = Sleep::on_socket(&raw, deadline.is_some());
        let attempt = || match sleep.is_over() {
            true => Err(Errno::INTR),
            false => attempt(),
        };
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
        let mut found = raw.has_incoming();
        if would_block(&found) {
            raw.turn();
            found = raw.has_incoming();
        }
        match (found, kernel) {
            (Ok(()), _) => self.adopt(raw, flags),
            // Without an engine the system's half goes on.
            (Err(error), Some(fd))
                if error.kind() == std::io::ErrorKind::WouldBlock || raw.is_over() =>
            {
                accept_of_system(fd, flags)
            }
            (Err(error), _) => Err(errno(&error)),
        }
    }

    /// Takes a connection of the engine's. The number comes first, as Linux has it: where there is none the connection waits on.
    fn adopt(&self, raw: &RawSocket, flags: i32) -> Result<(RawFd, SocketAddr), Errno> {
        let process = process();
        let link = process.link().ok_or(Errno::NETDOWN)?;
        let nonblocking = flags & libc::SOCK_NONBLOCK != 0;
        let cloexec = flags & libc::SOCK_CLOEXEC != 0;
        let (fd, placed) = process.stash.lowest(process, &link, cloexec, nonblocking)?;
        let accepted = told(raw.accept()).and_then(|(child, peer)| match peer {
            Some(peer) => Ok((child, peer)),
            None => told(child.peer_address()).map(|peer| (child, peer)),
        });
        let (child, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                // Another thread was faster, mostly.
                process.stash.take_back(&link, fd, placed, nonblocking);
                return Err(error);
            }
        };
        let (settings, at) = {
            let state = lock(&self.state);
            let at = state.listening.map(|listening| listening.local);
            (state.settings.of_child(), at)
        };
        settings.dress(&child);
        let socket = Self::with(
            self.is_v6(),
            Kind::Stream,
            nonblocking,
            Role::Engine,
            Some(child),
        );
        let number = {
            let mut state = lock(&socket.state);
            state.settings = settings;
            state.has(placed)
        };
        socket.begin_custody(number);
        lock(&socket.state).custody.local = at.filter(|at| !at.ip().is_unspecified());
        if !install(process, fd, socket) {
            sys::close(fd);
            return Err(Errno::MFILE);
        }
        Ok((fd, peer))
    }
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
