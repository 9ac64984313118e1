//! Connecting, and UDP sockets that send to both sides.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::time::Instant;

use rustix::io::Errno;
use sidecore_client::RawSocket;

use super::custody::Custody;
use super::{Kind, Role, Route, Socket, canonical, kernel_name};
use crate::cancel::Sleep;
use crate::errors::{errno, told};
use crate::log;
use crate::process::{Process, process};
use crate::table::lock;

impl Socket {
    /// Begins to connect, and ends it if it may wait. `Ok(false)`: it is the system's, from now on for good (streams).
    pub(crate) fn connect(&self, peer: SocketAddr) -> Result<bool, Errno> {
        if self.may_be_elsewhere() {
            // It may have a port only, and no peer.
            drop(self.route());
        }
        let (role, raw) = {
            let state = lock(&self.state);
            (state.role, state.raw.clone())
        };
        if matches!(role, Role::Inherited | Role::Proxied | Role::Lost) {
            return Err(Errno::ISCONN);
        }
        if self.known_kind() == Kind::Datagram {
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
        let options = lock(&self.state).settings.before(self.is_v6(), peer);
        // A listener that only held the port gives it up.
        let held = {
            let mut state = lock(&self.state);
            state.raw = None;
            state.listening.take().map(|listening| listening.local)
        };
        drop(raw);
        let raw = told(RawSocket::connect(
            &link.sockets,
            bound,
            &options,
            canonical(peer),
        ))?;
        lock(&self.state).connected = false;
        self.become_engines(process, raw.clone())?;
        if let Some(local) = held {
            self.is_connection(&raw, local);
        }
        self.finish_connect(&raw).map(|()| true)
    }

    /// Waits for a connect, unless that may not be.
    fn finish_connect(&self, raw: &RawSocket) -> Result<(), Errno> {
        if self.is_nonblocking() {
            return Err(Errno::INPROGRESS);
        }
        let deadline = self.deadline(true);
        let sleep = Sleep::on_socket(raw, deadline.is_some());
        let done = raw.block(deadline, || match sleep.is_over() {
            true => Err(std::io::ErrorKind::Interrupted.into()),
            false => raw.connected(),
        });
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
                let options = lock(&self.state).settings.before(self.is_v6(), peer);
                let raw = RawSocket::connect(&link.sockets, None, &options, canonical(peer));
                let raw = told(raw)?;
                self.dress(&raw);
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
        told(raw.connect_datagram(Some(canonical(peer))))?;
        self.has_another_peer();
        // Only that peer counts from here on.
        self.become_engines(process(), raw)?;
        Ok(true)
    }

    /// connect(2) to AF_UNSPEC: a UDP socket has no peer any more. `Ok(false)`: the system is to do it.
    pub(crate) fn disconnect(&self) -> Result<bool, Errno> {
        if self.kind() != Kind::Datagram {
            return match self.is_engines() {
                true => Err(Errno::AFNOSUPPORT),
                false => Ok(false),
            };
        }
        match self.route() {
            Route::Engine(raw) => {
                told(raw.connect_datagram(None))?;
                self.has_another_peer();
                Ok(true)
            }
            Route::Kernel | Route::Both(_) => Ok(false),
            Route::Descriptor | Route::Nowhere => Err(Errno::NOTCONN),
        }
    }

    /// A UDP socket's place at the engine that came, at its old address and with its peer.
    pub(super) fn datagram_anew(&self, process: &'static Process) -> Result<(), Errno> {
        let (role, old) = {
            let state = lock(&self.state);
            (state.role, state.raw.clone())
        };
        let Some(old) = old.filter(RawSocket::is_over) else {
            return Ok(());
        };
        let link = process.link().ok_or(Errno::NETDOWN)?;
        // They are known without asking.
        let local = told(old.local_address())?;
        let peer = old.peer_address().ok();
        let options = lock(&self.state).settings.before(self.is_v6(), local);
        let raw = told(self.open_shared(&link, local, &options))?;
        if let Some(peer) = peer {
            told(raw.connect_datagram(Some(peer)))?;
        }
        self.dress(&raw);
        {
            let mut state = lock(&self.state);
            if role == Role::Engine {
                let placed = process.stash.replace(process, &link, &state.numbers)?;
                state.custody = Custody::new(state.has(placed));
            }
            state.raw = Some(raw);
        }
        log::info(format_args!("{local}: at the engine that came back"));
        self.attach_items();
        Ok(())
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
        if let Route::Engine(raw) | Route::Both(raw) = self.route() {
            return Ok(raw);
        }
        let link = process().link().ok_or(Errno::NETUNREACH)?;
        let fd = number.ok_or(Errno::BADF)?;
        let port = kernel_name(fd).map_or(0, |local| local.port());
        let any: IpAddr = match self.is_v6() {
            true => Ipv6Addr::UNSPECIFIED.into(),
            false => std::net::Ipv4Addr::UNSPECIFIED.into(),
        };
        let local = SocketAddr::new(any, port);
        let options = lock(&self.state).settings.before(self.is_v6(), local);
        let raw = told(self.open_shared(&link, local, &options))?;
        self.dress(&raw);
        process().listens();
        let mut state = lock(&self.state);
        state.raw = Some(raw.clone());
        if state.role == Role::Undecided {
            state.role = Role::Both;
            // Whom it is inherited by from here on counts.
            state.custody = Custody::new(0);
        }
        drop(state);
        self.attach_items();
        Ok(raw)
    }
}
