//! A TCP listener.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};

use super::{TcpStream, each_address};
use crate::sockets::group::lock;
use crate::sockets::held::{Held, run};
use crate::{Opt, Sockets};

/// A TCP listener, as [`std::net::TcpListener`]. It stops listening when the last clone is dropped; connections that were not accepted
/// are closed then.
#[derive(Debug)]
pub struct TcpListener {
    held: Held,
}

impl TcpListener {
    /// Listens on the first of these addresses on which it can. Port 0: any free one.
    pub fn bind(sockets: &Sockets, local: impl ToSocketAddrs) -> io::Result<Self> {
        Self::bind_with(sockets, local, &[])
    }

    /// As [`Self::bind`], with options that must be set before, or are for the connections to come.
    pub fn bind_with(
        sockets: &Sockets,
        local: impl ToSocketAddrs,
        options: &[(Opt, u64)],
    ) -> io::Result<Self> {
        each_address(local, |local| {
            let held = run(&sockets.group, Held::listen(sockets, local, options))?;
            Ok(Self { held })
        })
    }

    /// Sets an option, for the connections to come. Blocks for the engine's word on it.
    pub fn set_option(&self, option: Opt, value: u64) -> io::Result<()> {
        self.held.run(self.held.set_option(option, value))
    }

    /// What an option is set to. Blocks for the engine's answer.
    pub fn option(&self, option: Opt) -> io::Result<u64> {
        self.held.run(self.held.option(option))
    }

    /// Waits for a connection.
    pub fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        let (held, peer) = self.held.wait(None, |cx| self.held.poll_accept(cx))?;
        let stream = TcpStream::new(held);
        let peer = match peer {
            Some(peer) => peer,
            None => stream.peer_addr()?,
        };
        Ok((stream, peer))
    }

    /// Connections without end.
    pub fn incoming(&self) -> Incoming<'_> {
        Incoming { listener: self }
    }

    /// Where it listens.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.held.run(self.held.address(Opt::LocalAddress))
    }

    /// Another handle of the same listener.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(Self {
            held: self.held.clone(),
        })
    }

    /// Lets accepts fail with `WouldBlock` instead of waiting. Holds for all clones.
    pub fn set_nonblocking(&self, on: bool) -> io::Result<()> {
        lock(&self.held.socket().state).nonblocking = on;
        Ok(())
    }

    /// What went wrong since this was last asked (SO_ERROR).
    pub fn take_error(&self) -> io::Result<Option<io::Error>> {
        Ok(self.held.socket().take_error())
    }
}

/// See [`TcpListener::incoming`].
#[derive(Debug)]
pub struct Incoming<'a> {
    listener: &'a TcpListener,
}

impl Iterator for Incoming<'_> {
    type Item = io::Result<TcpStream>;

    fn next(&mut self) -> Option<io::Result<TcpStream>> {
        Some(self.listener.accept().map(|(stream, _)| stream))
    }
}
