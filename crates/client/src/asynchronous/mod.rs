//! Sockets for futures, of any executor.
//!
//! Somebody must look after the group's event queue and wake the tasks: this thread, by [`Sockets::block_on`]; a loop of your own, by
//! [`Sockets::turn`]; or a thread for it, by [`Sockets::spawn_reactor`], with which the sockets can be used on any executor.
//!
//! - feature `hyper`: [`TcpStream`] is `hyper::rt::Read` and `Write`.
//! - feature `tokio`: [`TcpStream`] is `tokio::io::AsyncRead` and `AsyncWrite`.
//!
//! ```no_run
//! use sidecore_client::{Sockets, asynchronous::TcpStream};
//!
//! # fn main() -> std::io::Result<()> {
//! let sockets = Sockets::open("/run/sidecore.sock")?;
//! sockets.block_on(async {
//!     let stream = TcpStream::connect(&sockets, "10.77.0.1:7".parse().unwrap()).await?;
//!     stream.write_all(b"hello").await?;
//!     let mut out = [0; 5];
//!     let n = stream.read(&mut out).await?;
//!     println!("{:?}", &out[..n]);
//!     Ok(())
//! })
//! # }
//! ```
//!
//! [`Sockets::block_on`]: crate::Sockets::block_on
//! [`Sockets::turn`]: crate::Sockets::turn
//! [`Sockets::spawn_reactor`]: crate::Sockets::spawn_reactor

#[cfg(feature = "hyper")]
mod hyper;
mod stream;
#[cfg(feature = "tokio")]
mod tokio;
mod udp;

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::task::{Context, Poll};

use crate::sockets::held::Held;
use crate::{Opt, Sockets};

pub use stream::TcpStream;
pub use udp::UdpSocket;

/// A TCP listener. It stops listening when the last clone is dropped; connections that were not accepted are closed then.
#[derive(Clone, Debug)]
pub struct TcpListener {
    held: Held,
}

impl TcpListener {
    /// Listens. Port 0: any free one.
    pub async fn bind(sockets: &Sockets, local: SocketAddr) -> io::Result<Self> {
        Self::bind_with(sockets, local, &[]).await
    }

    /// As [`Self::bind`], with options that must be set before, or are for the connections to come.
    pub async fn bind_with(
        sockets: &Sockets,
        local: SocketAddr,
        options: &[(Opt, u64)],
    ) -> io::Result<Self> {
        let held = Held::listen(sockets, local, options).await?;
        Ok(Self { held })
    }

    /// The next connection, and whose it is. Nothing is lost when this is dropped before it is done.
    pub async fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        let (held, peer) = poll_fn(|cx| self.held.poll_accept(cx)).await?;
        let stream = TcpStream::new(held);
        let peer = match peer {
            Some(peer) => peer,
            None => stream.peer_addr().await?,
        };
        Ok((stream, peer))
    }

    /// As [`Self::accept`], for implementations of futures and streams.
    pub fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<io::Result<TcpStream>> {
        let accepted = self.held.poll_accept(cx);
        accepted.map_ok(|(held, _)| TcpStream::new(held))
    }

    /// Where it listens.
    pub async fn local_addr(&self) -> io::Result<SocketAddr> {
        self.held.address(Opt::LocalAddress).await
    }
}
