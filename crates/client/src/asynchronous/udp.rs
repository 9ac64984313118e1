//! A UDP socket.

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;

use crate::sockets::held::Held;
use crate::{Opt, Sockets};

/// A UDP socket. Clones mean the same socket.
#[derive(Clone, Debug)]
pub struct UdpSocket {
    held: Held,
}

impl UdpSocket {
    /// Binds. Port 0: any free one.
    pub async fn bind(sockets: &Sockets, local: SocketAddr) -> io::Result<Self> {
        let held = Held::datagram(sockets, local).await?;
        Ok(Self { held })
    }

    /// From now on datagrams go to, and come from, `peer` alone.
    pub async fn connect(&self, peer: SocketAddr) -> io::Result<()> {
        self.held.connect_datagram(peer).await
    }

    /// Sends one datagram to `peer`. Waits only for memory to send from.
    pub async fn send_to(&self, data: &[u8], peer: SocketAddr) -> io::Result<usize> {
        self.post(data, Some(peer)).await
    }

    /// Sends one datagram to where the socket is connected.
    pub async fn send(&self, data: &[u8]) -> io::Result<usize> {
        self.post(data, None).await
    }

    async fn post(&self, data: &[u8], peer: Option<SocketAddr>) -> io::Result<usize> {
        let (group, socket) = (self.held.group(), self.held.socket());
        poll_fn(|cx| socket.poll_send_datagram(group, cx, data, peer)).await
    }

    /// Receives one datagram, and says how long it was and whose; what does not fit is cut off.
    pub async fn recv_from(&self, out: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        let (group, socket) = (self.held.group(), self.held.socket());
        poll_fn(|cx| socket.poll_receive_datagram(group, cx, out, true)).await
    }

    /// Where it is bound.
    pub async fn local_addr(&self) -> io::Result<SocketAddr> {
        self.held.address(Opt::LocalAddress).await
    }
}
