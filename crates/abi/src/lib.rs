//! The layout of everything that an application and the engine share in memory.
//!
//! Two programs that were built apart, and that do not trust each other, read and write these bytes; so every
//! field names its one writer, sizes are asserted, and the layout carries a version ([`VERSION`]).
//!
//! - [`entry`]: the 64-byte line that travels on every lane, and the mark that publishes it.
//! - [`command`]: application to engine (DbQ entries).
//! - [`custody`]: what the agent and the custodian of shared connections tell each other.
//! - [`error_report`]: what became of a datagram, as it lies in front of the datagram's bytes.
//! - [`event`]: engine to application (EvQ entries).
//! - [`control`]: where the lanes, wait cells and doorbell words lie in a UAL's control memory.
//! - [`direct`]: how two libraries in one process meet (not in shared memory).
//! - [`membership`]: what a socket does about a multicast group, as a command carries it.
//! - [`pool`]: how the receive pool is cut.
//! - [`agent`]: the messages of the agent's UNIX socket, which opens UALs and passes descriptors.
//! - [`status`]: how the engine says what went wrong.
//!
//! The crate has no code that touches memory: `sidecore-shm` does that.
#![forbid(unsafe_code)]

pub mod address;
pub mod agent;
pub mod command;
pub mod control;
pub mod custody;
pub mod direct;
pub mod entry;
pub mod error_report;
pub mod event;
pub mod handle;
pub mod membership;
pub mod pool;
pub mod status;

pub use address::Address;
pub use command::{Command, Operation};
pub use entry::Entry;
pub use error_report::{ErrorOrigin, ErrorReport};
pub use event::{Event, EventKind};
pub use handle::{DtiHandle, Extent, RegionId};
pub use membership::{Membership, MembershipChange};
pub use sidecore_wire::info;
pub use sidecore_wire::info::TcpInfo;
pub use status::Status;

/// Version of everything in this crate. The agent refuses a UAL whose library was built for another one.
pub const VERSION: u32 = 5;

/// Size of a cache line, the unit in which ownership of memory moves between cores.
pub const LINE: usize = 64;
