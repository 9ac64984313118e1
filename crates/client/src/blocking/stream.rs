//! A TCP connection.

use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::net::{Shutdown, SocketAddr, ToSocketAddrs};
use std::time::{Duration, Instant};

use sidecore_abi::TcpInfo;
use sidecore_abi::command::shutdown;

use super::{checked, each_address};
use crate::sockets::group::lock;
use crate::sockets::held::{Held, run};
use crate::sockets::transfer::Scatter;
use crate::sockets::wait;
use crate::{Dti, Opt, Sockets};

/// A TCP connection, as [`std::net::TcpStream`]. Closed when the last clone is dropped: what was written still goes out.
#[derive(Debug)]
pub struct TcpStream {
    held: Held,
}

impl TcpStream {
    pub(super) fn new(held: Held) -> Self {
        Self { held }
    }

    /// Connects. Blocks until the connection is there or failed.
    pub fn connect(sockets: &Sockets, peer: impl ToSocketAddrs) -> io::Result<Self> {
        each_address(peer, |peer| Self::open(sockets, peer, None))
    }

    /// Connects, for `timeout` at most (then `TimedOut`).
    pub fn connect_timeout(
        sockets: &Sockets,
        peer: &SocketAddr,
        timeout: Duration,
    ) -> io::Result<Self> {
        let timeout = checked(Some(timeout))?;
        Self::open(sockets, *peer, timeout)
    }

    /// Connects, and sends `data`: with the SYN, if the engine knows that server from before (TCP Fast Open, RFC 7413), which saves a
    /// round trip. Blocks until the connection is there. For requests that may be delivered twice, as a server that is restarted at the
    /// wrong moment can get them so (section 2.1); `data` must not be empty.
    pub fn connect_with(
        sockets: &Sockets,
        peer: impl ToSocketAddrs,
        data: &[u8],
    ) -> io::Result<Self> {
        let (mut stream, taken) = each_address(peer, |peer| {
            let connecting = Held::connect_with(sockets, peer, data);
            let (held, taken) = run(&sockets.group, connecting)?;
            Ok((Self::new(held), taken))
        })?;
        stream.write_all(&data[taken..])?;
        Ok(stream)
    }

    /// What the engine knows of the connection, as Linux would tell it (TCP_INFO). Blocks for the engine's answer.
    pub fn info(&self) -> io::Result<TcpInfo> {
        self.held.run(self.held.info())
    }

    fn open(sockets: &Sockets, peer: SocketAddr, timeout: Option<Duration>) -> io::Result<Self> {
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let connecting = Held::connect(sockets, peer);
        match wait::run(&sockets.group, deadline, connecting) {
            Ok(connected) => connected.map(Self::new),
            Err(wait::TimedOut) => Err(io::ErrorKind::TimedOut.into()),
        }
    }

    /// Another handle of the same connection.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(Self {
            held: self.held.clone(),
        })
    }

    /// The DTI beneath.
    pub fn dti(&self) -> Dti {
        self.held.socket().dti
    }

    /// The peer's address.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.held.run(self.held.address(Opt::PeerAddress))
    }

    /// This side's address. May block for the engine's answer the first time.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.held.run(self.held.address(Opt::LocalAddress))
    }

    /// Ends one direction or both. Reads of an ended direction give what came before, then 0.
    pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        let bits = match how {
            Shutdown::Read => shutdown::READ,
            Shutdown::Write => shutdown::WRITE,
            Shutdown::Both => shutdown::READ | shutdown::WRITE,
        };
        self.held.socket().shutdown(self.held.group(), bits)
    }

    /// Sends small writes at once instead of gathering them while others are unacknowledged (TCP_NODELAY).
    pub fn set_nodelay(&self, on: bool) -> io::Result<()> {
        lock(&self.held.socket().state).nodelay = on;
        self.set_option(Opt::NoDelay, u64::from(on))
    }

    /// Whether small writes are sent at once.
    pub fn nodelay(&self) -> io::Result<bool> {
        Ok(lock(&self.held.socket().state).nodelay)
    }

    /// Sets any option, without waiting; a value that the engine refuses is told by [`Self::take_error`].
    pub fn set_option(&self, option: Opt, value: u64) -> io::Result<()> {
        let socket = self.held.socket();
        socket.set_option(self.held.group(), option, value);
        Ok(())
    }

    /// What an option is set to, or what is in force where none is. Blocks for the engine's answer. Not for addresses.
    pub fn option(&self, option: Opt) -> io::Result<u64> {
        self.held.run(self.held.option(option))
    }

    /// How long reads wait (`WouldBlock` then); `None`: for ever. Holds for all clones.
    pub fn set_read_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        lock(&self.held.socket().state).read_timeout = checked(timeout)?;
        Ok(())
    }

    /// How long writes wait (`WouldBlock` then); `None`: for ever. Holds for all clones.
    pub fn set_write_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        lock(&self.held.socket().state).write_timeout = checked(timeout)?;
        Ok(())
    }

    /// See [`Self::set_read_timeout`].
    pub fn read_timeout(&self) -> io::Result<Option<Duration>> {
        Ok(lock(&self.held.socket().state).read_timeout)
    }

    /// See [`Self::set_write_timeout`].
    pub fn write_timeout(&self) -> io::Result<Option<Duration>> {
        Ok(lock(&self.held.socket().state).write_timeout)
    }

    /// Lets reads and writes fail with `WouldBlock` instead of waiting. Holds for all clones.
    pub fn set_nonblocking(&self, on: bool) -> io::Result<()> {
        lock(&self.held.socket().state).nonblocking = on;
        Ok(())
    }

    /// What went wrong since this was last asked (SO_ERROR).
    pub fn take_error(&self) -> io::Result<Option<io::Error>> {
        Ok(self.held.socket().take_error())
    }

    /// Bytes written that the peer has not acknowledged, to the last few.
    pub fn in_flight(&self) -> usize {
        self.held.socket().in_flight()
    }

    /// As read, but what is read stays there.
    pub fn peek(&self, out: &mut [u8]) -> io::Result<usize> {
        self.receive(
            Scatter {
                buffers: &mut [IoSliceMut::new(out)],
                at: (0, 0),
            },
            false,
        )
    }

    /// Sends urgent data (RFC 9293 section 3.8.5, MSG_OOB): in line, after what was written, and the peer is told at once that there is urgent
    /// data that ends with the last byte of `data`. Says how many bytes were taken, as `write` does; what was taken of a part is urgent when the
    /// rest is sent so, too. Where a stream may have no more in flight, 1024 bytes of urgent data still find room.
    ///
    /// RFC 6093 section 5 advises new applications against urgent data.
    pub fn send_urgent(&self, data: &[u8]) -> io::Result<usize> {
        let (group, socket) = (self.held.group(), self.held.socket());
        let timeout = lock(&socket.state).write_timeout;
        self.held
            .wait(timeout, |cx| socket.poll_write_urgent(group, cx, data))
    }

    /// Whether the next byte to be read is the mark, the last byte of the peer's urgent data (SIOCATMARK, `sockatmark`). Reads stop before
    /// it, so that this can be asked. Does not wait, but takes in what has come.
    pub fn at_mark(&self) -> io::Result<bool> {
        self.take_in();
        Ok(self.held.socket().at_mark())
    }

    /// How many bytes are to be read until all urgent data is of which the peer has told, come or not; `None`: there is none ahead. Does not
    /// wait.
    pub fn urgent_left(&self) -> io::Result<Option<u64>> {
        self.take_in();
        Ok(self.held.socket().urgent_left())
    }

    /// Waits until there is urgent data ahead (POLLPRI), as long as reads wait; as [`Self::urgent_left`] then, with `None` if the stream has
    /// ended instead.
    pub fn wait_urgent(&self) -> io::Result<Option<u64>> {
        let (group, socket) = (self.held.group(), self.held.socket());
        let timeout = lock(&socket.state).read_timeout;
        self.held.wait(timeout, |cx| socket.poll_urgent(group, cx))
    }

    /// Whether the last byte of urgent data stays in the stream (SO_OOBINLINE): true by default, other than with BSD, as RFC 6093 section 6
    /// recommends. If it does not, reads leave it out, and [`Self::read_urgent`] gives it. Holds for all clones.
    pub fn set_oob_inline(&self, on: bool) -> io::Result<()> {
        self.held.socket().set_urgent_inline(on);
        Ok(())
    }

    /// See [`Self::set_oob_inline`].
    pub fn oob_inline(&self) -> io::Result<bool> {
        Ok(self.held.socket().urgent_inline())
    }

    /// The last byte of the peer's urgent data (`recv` with MSG_OOB), where it is not in line. Never waits: `WouldBlock` if it is announced
    /// and has not come, `InvalidInput` if there is none, it was read already, or it is in line; `None` if the stream ended without it.
    /// When more urgent data comes, the byte before is data like all other. With `consume` false it stays to be read again.
    pub fn read_urgent(&self, consume: bool) -> io::Result<Option<u8>> {
        self.take_in();
        self.held.socket().urgent_octet(self.held.group(), consume)
    }

    /// Takes in what has come. The engine's end is told by reads.
    fn take_in(&self) {
        let _ = self.held.group().try_turn(Duration::ZERO);
    }

    fn receive(&self, mut sink: Scatter<'_, '_>, consume: bool) -> io::Result<usize> {
        let (group, socket) = (self.held.group(), self.held.socket());
        let timeout = lock(&socket.state).read_timeout;
        self.held.wait(timeout, |cx| {
            socket.poll_read(group, cx, &mut sink, consume)
        })
    }

    fn send(&self, data: &[IoSlice<'_>]) -> io::Result<usize> {
        let (group, socket) = (self.held.group(), self.held.socket());
        let timeout = lock(&socket.state).write_timeout;
        self.held
            .wait(timeout, |cx| socket.poll_write(group, cx, data))
    }
}

impl Read for &TcpStream {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        self.read_vectored(&mut [IoSliceMut::new(out)])
    }

    fn read_vectored(&mut self, buffers: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        self.receive(
            Scatter {
                buffers,
                at: (0, 0),
            },
            true,
        )
    }
}

impl Write for &TcpStream {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        self.send(&[IoSlice::new(data)])
    }

    fn write_vectored(&mut self, data: &[IoSlice<'_>]) -> io::Result<usize> {
        self.send(data)
    }

    /// Nothing to do: what was written is on its way.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Read for TcpStream {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        (&*self).read(out)
    }

    fn read_vectored(&mut self, buffers: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        (&*self).read_vectored(buffers)
    }
}

impl Write for TcpStream {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        (&*self).write(data)
    }

    fn write_vectored(&mut self, data: &[IoSlice<'_>]) -> io::Result<usize> {
        (&*self).write_vectored(data)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
