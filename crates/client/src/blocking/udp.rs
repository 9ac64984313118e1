//! A UDP socket.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::time::Duration;

use super::{checked, each_address};
use crate::sockets::group::lock;
use crate::sockets::held::{Held, run};
use crate::{Opt, Sockets};

/// A UDP socket, as [`std::net::UdpSocket`].
#[derive(Debug)]
pub struct UdpSocket {
    held: Held,
}

impl UdpSocket {
    /// Binds to the first of these addresses to which it can. Port 0: any free one.
    pub fn bind(sockets: &Sockets, local: impl ToSocketAddrs) -> io::Result<Self> {
        each_address(local, |local| {
            let held = run(&sockets.group, Held::datagram(sockets, local))?;
            Ok(Self { held })
        })
    }

    /// From now on datagrams go to, and come from, `peer` alone.
    pub fn connect(&self, peer: impl ToSocketAddrs) -> io::Result<()> {
        each_address(peer, |peer| self.held.run(self.held.connect_datagram(peer)))
    }

    /// Sends one datagram to `peer`. Waits only for memory to send from.
    pub fn send_to(&self, data: &[u8], peer: impl ToSocketAddrs) -> io::Result<usize> {
        each_address(peer, |peer| self.post(data, Some(peer)))
    }

    /// Sends one datagram to where the socket is connected.
    pub fn send(&self, data: &[u8]) -> io::Result<usize> {
        self.post(data, None)
    }

    fn post(&self, data: &[u8], peer: Option<SocketAddr>) -> io::Result<usize> {
        let (group, socket) = (self.held.group(), self.held.socket());
        let timeout = lock(&socket.state).write_timeout;
        self.held.wait(timeout, |cx| {
            socket.poll_send_datagram(group, cx, data, peer)
        })
    }

    /// Receives one datagram, and says how long it was and whose; what does not fit is cut off.
    pub fn recv_from(&self, out: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.receive(out, true)
    }

    /// As [`Self::recv_from`], but the datagram stays.
    pub fn peek_from(&self, out: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.receive(out, false)
    }

    /// As [`Self::recv_from`], without the sender.
    pub fn recv(&self, out: &mut [u8]) -> io::Result<usize> {
        self.receive(out, true).map(|(len, _)| len)
    }

    fn receive(&self, out: &mut [u8], consume: bool) -> io::Result<(usize, SocketAddr)> {
        let (group, socket) = (self.held.group(), self.held.socket());
        let timeout = lock(&socket.state).read_timeout;
        self.held.wait(timeout, |cx| {
            socket.poll_receive_datagram(group, cx, out, consume)
        })
    }

    /// Where it is bound.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.held.run(self.held.address(Opt::LocalAddress))
    }

    /// Where it is connected.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        let known = self.held.socket().known_address(Opt::PeerAddress);
        known.ok_or_else(|| io::ErrorKind::NotConnected.into())
    }

    /// Another handle of the same socket.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(Self {
            held: self.held.clone(),
        })
    }

    /// How long receives wait (`WouldBlock` then); `None`: for ever. Holds for all clones.
    pub fn set_read_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        lock(&self.held.socket().state).read_timeout = checked(timeout)?;
        Ok(())
    }

    /// How long sends wait for memory (`WouldBlock` then); `None`: for ever. Holds for all clones.
    pub fn set_write_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        lock(&self.held.socket().state).write_timeout = checked(timeout)?;
        Ok(())
    }

    /// Lets calls fail with `WouldBlock` instead of waiting. Holds for all clones.
    pub fn set_nonblocking(&self, on: bool) -> io::Result<()> {
        lock(&self.held.socket().state).nonblocking = on;
        Ok(())
    }

    /// What went wrong since this was last asked (SO_ERROR).
    pub fn take_error(&self) -> io::Result<Option<io::Error>> {
        Ok(self.held.socket().take_error())
    }
}
