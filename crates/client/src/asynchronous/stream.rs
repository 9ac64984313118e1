//! A TCP connection.

use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::net::{Shutdown, SocketAddr};
use std::task::{Context, Poll};

use sidecore_abi::command::shutdown;

use crate::sockets::held::Held;
use crate::{Dti, Opt, Sockets};

/// A TCP connection. Clones mean the same connection, so that one task may read and another write; it is closed when the last is
/// dropped, and what was written still goes out.
#[derive(Clone, Debug)]
pub struct TcpStream {
    held: Held,
}

impl TcpStream {
    pub(super) fn new(held: Held) -> Self {
        Self { held }
    }

    /// Connects. Given up when this is dropped before it is done.
    pub async fn connect(sockets: &Sockets, peer: SocketAddr) -> io::Result<Self> {
        let held = Held::connect(sockets, peer).await?;
        Ok(Self { held })
    }

    /// Some bytes; none when the peer has ended its direction.
    pub async fn read(&self, out: &mut [u8]) -> io::Result<usize> {
        poll_fn(|cx| self.poll_read(cx, out)).await
    }

    /// Fills `out`; `UnexpectedEof` when the stream ends before.
    pub async fn read_exact(&self, out: &mut [u8]) -> io::Result<()> {
        let mut filled = 0;
        while filled < out.len() {
            match self.read(&mut out[filled..]).await? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                n => filled += n,
            }
        }
        Ok(())
    }

    /// Takes some bytes to be sent, as many as may be in flight, and says how many.
    pub async fn write(&self, data: &[u8]) -> io::Result<usize> {
        poll_fn(|cx| self.poll_write_vectored(cx, &[IoSlice::new(data)])).await
    }

    /// Takes all bytes to be sent.
    pub async fn write_all(&self, mut data: &[u8]) -> io::Result<()> {
        while !data.is_empty() {
            let n = self.write(data).await?;
            data = &data[n..];
        }
        Ok(())
    }

    /// Connects, and sends `data`: with the SYN, if the engine knows that server from before (TCP Fast Open, RFC 7413). For requests that
    /// may be delivered twice; `data` must not be empty.
    pub async fn connect_with(
        sockets: &Sockets,
        peer: SocketAddr,
        data: &[u8],
    ) -> io::Result<Self> {
        let (held, taken) = Held::connect_with(sockets, peer, data).await?;
        let stream = Self { held };
        stream.write_all(&data[taken..]).await?;
        Ok(stream)
    }

    /// As [`Self::read`], for implementations of futures.
    pub fn poll_read(&self, cx: &mut Context<'_>, mut out: &mut [u8]) -> Poll<io::Result<usize>> {
        let (group, socket) = (self.held.group(), self.held.socket());
        socket.poll_read(group, cx, &mut out, true)
    }

    /// As [`Self::write`], for implementations of futures; the pieces go out together.
    pub fn poll_write_vectored(
        &self,
        cx: &mut Context<'_>,
        data: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.held.socket().poll_write(self.held.group(), cx, data)
    }

    /// Ends one direction or both: nothing waits. (It is not called `shutdown`, as that is `tokio`'s name for ending the sending
    /// direction.)
    pub fn end(&self, how: Shutdown) -> io::Result<()> {
        let bits = match how {
            Shutdown::Read => shutdown::READ,
            Shutdown::Write => shutdown::WRITE,
            Shutdown::Both => shutdown::READ | shutdown::WRITE,
        };
        self.held.socket().shutdown(self.held.group(), bits)
    }

    /// Ends the sending direction, as `AsyncWrite` and its kin want it: a connection that is over already is well ended.
    #[cfg(any(feature = "hyper", feature = "tokio"))]
    pub(super) fn end_writing(&self) -> io::Result<()> {
        match self.end(Shutdown::Write) {
            Err(error) if error.kind() == io::ErrorKind::NotConnected => Ok(()),
            other => other,
        }
    }

    /// Sends small writes at once instead of gathering them (TCP_NODELAY).
    pub fn set_nodelay(&self, on: bool) {
        self.set_option(Opt::NoDelay, u64::from(on));
    }

    /// Sets any option, without waiting.
    pub fn set_option(&self, option: Opt, value: u64) {
        let socket = self.held.socket();
        socket.set_option(self.held.group(), option, value);
    }

    /// What the engine knows of the connection, as Linux would tell it (TCP_INFO).
    pub async fn info(&self) -> io::Result<sidecore_abi::TcpInfo> {
        self.held.info().await
    }

    /// What an option is set to, or what is in force where none is. Not for addresses.
    pub async fn option(&self, option: Opt) -> io::Result<u64> {
        self.held.option(option).await
    }

    /// The peer's address.
    pub async fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.held.address(Opt::PeerAddress).await
    }

    /// This side's address.
    pub async fn local_addr(&self) -> io::Result<SocketAddr> {
        self.held.address(Opt::LocalAddress).await
    }

    /// The DTI beneath.
    pub fn dti(&self) -> Dti {
        self.held.socket().dti
    }
}
