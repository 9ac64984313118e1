//! Echo servers, siblings of one shape: each is a function that serves for ever and calls `ready` once, with where it serves.
//!
//! | kind | what answers |
//! |---|---|
//! | [`epoll`] | the kernel, level-triggered epoll, one `read` and one `write` a request |
//! | [`io_uring`] | the kernel, multishot accept and receive into provided buffers, one `enter` per batch |
//! | [`null`] | nothing: a frame is read from a TAP, turned round in place, and written: the floor of any stack over TAP |
//! | [`engine`] | a Sidecore engine over a TAP, the server on its native API |
//! | [`smoltcp`] | smoltcp over a TAP, the nearest other stack in this language |
//!
//! A server ends with its process.

pub mod engine;
pub mod epoll;
pub mod io_uring;
mod listen;
pub mod null;
pub mod smoltcp;
pub mod tap;

use std::convert::Infallible;
use std::net::SocketAddr;

use serde::{Deserialize, Serialize};
use sidecore_engine::EngineControlHandle;

/// An echo server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EchoConfig {
    /// Kernel sockets, epoll.
    Epoll(KernelEcho),
    /// Kernel sockets, io_uring.
    IoUring(KernelEcho),
    /// No stack at all.
    Null(NullEcho),
    /// smoltcp.
    Smoltcp(SmoltcpEcho),
    /// A Sidecore engine.
    Engine(engine::EngineEcho),
}

/// What a server says when it serves.
pub struct Announcement {
    /// Where.
    pub address: SocketAddr,
    /// Its engine, if it has one.
    pub engine: Option<EngineControlHandle>,
}

impl Announcement {
    /// A server without an engine.
    pub fn plain(address: SocketAddr) -> Self {
        Self {
            address,
            engine: None,
        }
    }

    /// A server on this engine.
    pub fn of_engine(address: SocketAddr, engine: EngineControlHandle) -> Self {
        Self {
            address,
            engine: Some(engine),
        }
    }
}

/// An echo server on kernel sockets.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct KernelEcho {
    /// Where it listens; port 0 is chosen by the kernel.
    pub listen: SocketAddr,
    /// Processors: one thread with a listener of its own (`SO_REUSEPORT`) on each. Empty: one unbound thread.
    pub cores: Vec<usize>,
    /// Congestion control of its connections.
    pub congestion: Option<String>,
    /// Never sleep (epoll only).
    pub spin: bool,
}

/// The null responder.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NullEcho {
    /// The device.
    pub tap: tap::TapSpec,
    /// The port that it claims to serve.
    pub port: u16,
    /// Bytes of a canned answer to every segment with data; none: the segment's own bytes.
    pub canned: Option<Vec<u8>>,
    /// Never sleep.
    pub spin: bool,
}

/// An echo server on smoltcp.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SmoltcpEcho {
    /// The device.
    pub tap: tap::TapSpec,
    /// The port.
    pub port: u16,
    /// Connections at a time: sockets are made beforehand.
    pub connections: usize,
    /// Never sleep.
    pub spin: bool,
}

/// Serves until the process ends; returns only errors.
pub fn serve(
    config: &EchoConfig,
    ready: &mut dyn FnMut(Announcement),
) -> anyhow::Result<Infallible> {
    match config {
        EchoConfig::Epoll(config) => epoll::serve(config, ready),
        EchoConfig::IoUring(config) => io_uring::serve(config, ready),
        EchoConfig::Null(config) => null::serve(config, ready),
        EchoConfig::Smoltcp(config) => smoltcp::serve(config, ready),
        EchoConfig::Engine(config) => engine::serve(config, ready),
    }
}

#[cfg(test)]
mod tests;
