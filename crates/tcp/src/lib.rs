//! One TCP connection's control block, sans-IO: no clock, no socket, no payload byte.
//!
//! A [`Connection`] takes segment headers, the application's wishes and the time, and gives segment headers and stream
//! ranges. Where payload lies is its caller's affair; everything here is *stream offsets* (see [`Connection`]).
//!
//! ```text
//!   handle_segment ──►┌────────────┐◄── set_send_limit, set_receive_limit
//!   handle_icmp ─────►│ Connection │◄── shutdown_send, close, abort
//!   handle_timeout ──►└────────────┘
//!                        │   │   └──► Outcome: store this, that is acknowledged, it is over
//!                        │   └──────► poll_transmit: segments, until None
//!                        └──────────► next_timeout: when to come back at the latest
//! ```
//!
//! What is where: opening and fields in `connection`, segments in `receive`, segments out `transmit`, `timers`,
//! `recovery` and `scoreboard` (loss), `congestion`, `window` (what we advertise), `sack` (what we report), `rtt`.
//!
//! Nothing here allocates after set-up, blocks, or panics on what a peer sends.

#![forbid(unsafe_code)]

mod application;
mod config;
mod congestion;
mod connection;
mod flags;
mod icmp;
mod info;
mod invariants;
mod isn;
mod range_pool;
mod receive;
mod recovery;
mod reset;
mod rtt;
mod sack;
mod scoreboard;
mod snapshot;
mod time;
mod timers;
mod transmit;
mod types;
mod window;

pub use config::{Algorithm, Config, Keepalive};
pub use connection::Connection;
pub use isn::{initial_sequence_number, timestamp_offset};
pub use range_pool::{MAX_RANGES_PER_LIST, RangePool};
pub use reset::reset_for;
pub use snapshot::{ConnectionSnapshot, RestoreError};
pub use time::Instant;
pub use types::{
    CloseReason, DropReason, IcmpKind, Info, Outcome, RxRange, State, TimeoutOutcome, TxLimits,
    TxSegment,
};
