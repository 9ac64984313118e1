//! Listening sockets of the kernel's back-ends.

use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::OwnedFd;

use rustix::net::{self, AddressFamily, SocketFlags, SocketType, ipproto, sockopt};

use crate::error::Error;

/// Connections that wait to be accepted; the kernel lowers it to its own limit.
const BACKLOG: i32 = 16_384;

/// One listening socket for each worker. With several, the kernel spreads connections over them (`SO_REUSEPORT`), so that workers share
/// no accept queue.
pub(crate) fn listeners(address: SocketAddr, workers: usize) -> Result<Vec<OwnedFd>, Error> {
    let mut sockets = Vec::with_capacity(workers);
    let mut address = address;
    for _ in 0..workers {
        let refuse = |errno: rustix::io::Errno| Error::Listen {
            address,
            source: errno.into(),
        };
        let socket = bind(address, workers > 1).map_err(refuse)?;
        // Port 0 became a real one with the first socket.
        address = local_address(&socket).map_err(refuse)?;
        sockets.push(socket);
    }
    // Only now, so that nobody connects to a server that then does not start.
    for socket in &sockets {
        net::listen(socket, BACKLOG).map_err(|errno| Error::Listen {
            address,
            source: errno.into(),
        })?;
    }
    Ok(sockets)
}

fn bind(address: SocketAddr, shared: bool) -> rustix::io::Result<OwnedFd> {
    let family = match address {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = net::socket_with(family, SocketType::STREAM, flags, Some(ipproto::TCP))?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    if shared {
        sockopt::set_socket_reuseport(&socket, true)?;
    }
    // Accepted sockets inherit it: no system call per connection.
    sockopt::set_tcp_nodelay(&socket, true)?;
    net::bind(&socket, &address)?;
    Ok(socket)
}

/// The address that a socket is bound to.
pub(crate) fn local_address(socket: &OwnedFd) -> rustix::io::Result<SocketAddr> {
    net::getsockname(socket)?.try_into()
}

/// Accepts one connection; its peer is looked up only when it is wanted.
pub(crate) fn accept(
    listener: &OwnedFd,
    flags: SocketFlags,
    wants_peer: bool,
) -> rustix::io::Result<(OwnedFd, SocketAddr)> {
    let unknown = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
    if !wants_peer {
        return Ok((net::accept_with(listener, flags)?, unknown));
    }
    let (socket, peer) = net::acceptfrom_with(listener, flags)?;
    let peer = peer.and_then(|peer| SocketAddr::try_from(peer).ok());
    Ok((socket, peer.unwrap_or(unknown)))
}
