//! What an application links to use a Sidecore engine.
//!
//! The native API is asynchronous and batched, and makes no system call while both sides are busy:
//!
//! - [`Ual`]: the process's connection to an engine. Made once.
//! - [`Lane`]: posts commands; each thread has its own.
//! - [`EventQueue`]: gives events; a thread polls, or sleeps on one or several, or puts it into epoll.
//! - [`Dti`]: names a socket; any lane may post to it, its events go to the queues named when it was made.
//! - [`Region`]: memory that sends refer to and posted receives fill.
//! - [`ReceivePool`]: where other received bytes lie until they are returned.
//!
//! ```no_run
//! use sidecore_client::{EventKind, Ual, UalConfig, flags};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let ual = Ual::open("/run/sidecore.sock", &UalConfig::default())?;
//! let (mut lane, mut queue) = (ual.lane()?, ual.event_queue()?);
//! let dti = lane.create_stream(&queue, &queue)?;
//! lane.connect(dti, "10.77.0.1:7".parse()?, 1)?;
//! lane.send_inline(dti, b"hello", flags::NOTIFY, 2)?; // goes out when the connection is there
//! lane.flush();
//! while queue.wait(None)? {
//!     let Some(event) = queue.poll() else { continue };
//!     match event.kind {
//!         EventKind::Received => {
//!             let mut text = [0; 64];
//!             let n = ual.pool().read(&event, &mut text);
//!             println!("{:?}", &text[..n]);
//!             lane.return_chunk(&event);
//!             lane.close(dti, 3)?;
//!         }
//!         EventKind::Closed => break,
//!         _ => println!("{:?}: {:?}", event.kind, event.status),
//!     }
//!     lane.flush();
//! }
//! # Ok(()) }
//! ```
//!
//! The user's guide is `docs/client-api.md`.
#![forbid(unsafe_code)]

mod agent;
pub mod asynchronous;
pub mod blocking;
mod config;
pub mod custody;
pub mod error;
mod evq;
mod handles;
mod lane;
mod liveness;
mod pool;
mod region;
mod sockets;
mod ual;

pub use sidecore_abi as abi;
pub use sidecore_abi::TcpInfo;
pub use sidecore_abi::command::{COPY_MAX, INLINE_MAX, Opt, flags, shutdown};
pub use sidecore_abi::{
    Address, Command, DtiHandle, ErrorOrigin, ErrorReport, Event, EventKind, Extent, Membership,
    MembershipChange, Operation, RegionId, Status,
};
pub use sidecore_shm::MemRef;
pub use sidecore_sys::memfd::Memfd;

pub use config::{Death, Granted, UalConfig};
pub use error::{Disconnected, Exhausted, OpenError, OutOfRange, PostError};
pub use evq::{EventQueue, EvqId, Waited};
pub use handles::Dti;
pub use lane::Lane;
pub use pool::{ReceivePool, ReceivedBytes};
pub use region::Region;
pub use sockets::moving::{HandedOver, is_elsewhere};
pub use sockets::raw::{RawSocket, Ready, Share, Shut};
pub use sockets::{Datagram, DatagramReport, Reactor, Sockets, SocketsConfig, Wakes};
pub use ual::Ual;
