//! Sockets that block, as those of [`std::net`] do.
//!
//! They differ in one thing: making one names the [`Sockets`](crate::Sockets) group that it shall be in. Clones ([`TcpStream::try_clone`]) and
//! references may be used from several threads.
//!
//! ```no_run
//! use std::io::{Read, Write};
//! use sidecore_client::{Sockets, blocking::TcpStream};
//!
//! # fn main() -> std::io::Result<()> {
//! let sockets = Sockets::open("/run/sidecore.sock")?;
//! let mut stream = TcpStream::connect(&sockets, "10.77.0.1:80")?;
//! stream.write_all(b"GET / HTTP/1.0\r\n\r\n")?;
//! let mut page = String::new();
//! stream.read_to_string(&mut page)?;
//! # Ok(()) }
//! ```

mod listener;
mod stream;
mod udp;

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::time::Duration;

pub use listener::{Incoming, TcpListener};
pub use stream::TcpStream;
pub use udp::UdpSocket;

/// Tries each address until one works.
fn each_address<T>(
    addresses: impl ToSocketAddrs,
    mut attempt: impl FnMut(SocketAddr) -> io::Result<T>,
) -> io::Result<T> {
    let mut last = None;
    for address in addresses.to_socket_addrs()? {
        match attempt(address) {
            Ok(done) => return Ok(done),
            Err(error) => last = Some(error),
        }
    }
    Err(last.unwrap_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "no address was given")))
}

/// A timeout of zero is refused, as `std` does: it would mean "never".
fn checked(timeout: Option<Duration>) -> io::Result<Option<Duration>> {
    if timeout == Some(Duration::ZERO) {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "a timeout of zero",
        ));
    }
    Ok(timeout)
}
