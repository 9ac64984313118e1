//! Datagrams where there is more than one engine's socket to think of: the system's half, an engine that went, the source of what is sent.

use std::io::{ErrorKind, IoSliceMut};
use std::net::SocketAddr;
use std::os::fd::RawFd;

use rustix::io::Errno;
use sidecore_client::RawSocket;

use super::{Outcome, at_once, receive_datagram};
use crate::control::Asked;
use crate::errors::errno;
use crate::socket::Socket;
use crate::{poll, process};

impl Socket {
    /// Receives a datagram where the engine is gone: when there is one again.
    pub(super) fn receive_at_the_next(
        &self,
        fd: RawFd,
        buffers: &mut [IoSliceMut<'_>],
        flags: i32,
    ) -> Result<Outcome, Errno> {
        let peek = flags & libc::MSG_PEEK != 0;
        let mut attempt = || {
            process::process().tend();
            let raw = self.raw().ok_or(Errno::NOTCONN)?;
            raw.turn();
            let received = receive_datagram(&raw, buffers, peek, false);
            received.map(Outcome::Engine).map_err(|e| errno(&e))
        };
        if at_once(self, flags) {
            return attempt();
        }
        poll::block(fd, libc::POLLIN, self.deadline(false), attempt)
    }

    pub(super) fn receive_of_both(
        &self,
        fd: RawFd,
        raw: &RawSocket,
        buffers: &mut [IoSliceMut<'_>],
        flags: i32,
        mut kernel: impl FnMut() -> Result<usize, Errno>,
    ) -> Result<Outcome, Errno> {
        let peek = flags & libc::MSG_PEEK != 0;
        let mut attempt = || {
            // Another may have taken its place meanwhile.
            let raw = self.raw().unwrap_or_else(|| raw.clone());
            raw.turn();
            match receive_datagram(&raw, buffers, peek, false) {
                Ok(received) => Ok(Outcome::Engine(received)),
                // That the engine has gone is told once, as polls have; then the system's half goes on.
                Err(error) if error.kind() == ErrorKind::WouldBlock => kernel().map(Outcome::Done),
                Err(error) => Err(errno(&error)),
            }
        };
        if at_once(self, flags) {
            return attempt();
        }
        poll::block(fd, libc::POLLIN, self.deadline(false), attempt)
    }

    /// The same socket, or what took its place when its engine went. `NETDOWN` while there is none.
    pub(super) fn at_an_engine(&self, raw: RawSocket) -> Result<RawSocket, Errno> {
        if !raw.is_over() {
            return Ok(raw);
        }
        process::process().tend();
        let now = self.raw().filter(|raw| !raw.is_over());
        now.ok_or(Errno::NETDOWN)
    }

    /// The engine chooses where datagrams come from. A program may name what it would choose; another is refused.
    pub(super) fn check_source(&self, asked: &Asked, to: Option<SocketAddr>) -> Result<(), Errno> {
        let Some(source) = asked.source else {
            return Ok(());
        };
        let to = match to {
            Some(to) => Some(to),
            None => self.peer().ok(),
        };
        let loopback = source.is_loopback() && to.is_none_or(|to| to.ip().is_loopback());
        let bound = self
            .local()
            .is_ok_and(|local| local.ip().to_canonical() == source);
        let addresses = process::process().addresses();
        let only = addresses.is_some_and(|addresses| {
            let mut own = addresses.own.iter().map(|(own, _)| *own);
            let alike = own.by_ref().filter(|own| own.is_ipv4() == source.is_ipv4());
            alike.collect::<Vec<_>>() == [source]
        });
        match loopback || bound || only {
            true => Ok(()),
            false => Err(Errno::INVAL),
        }
    }
}
