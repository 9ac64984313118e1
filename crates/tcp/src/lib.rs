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
//! ```
//! use sidecore_tcp::{Config, Connection, Instant, RangePool, State, TxLimits};
//! use sidecore_wire::SeqNumber;
//!
//! let (config, tx, now) = (Config::default(), TxLimits::default(), Instant::from_secs(1));
//! let mut ranges = RangePool::new(1024); // shared by all connections of a thread
//!
//! let mut client = Connection::connect(now, &config, SeqNumber(1));
//! client.set_receive_limit(65_536);
//! let syn = client.poll_transmit(now, &tx, &mut ranges).unwrap();
//! let mut server = Connection::accept(now, &config, SeqNumber(2), &syn.header);
//! server.set_receive_limit(65_536);
//!
//! // Five bytes are written at stream offset 0, and the client will write no more.
//! client.set_send_limit(5);
//! client.shutdown_send();
//! let mut received = 0;
//! for _ in 0..3 {
//!     while let Some(segment) = server.poll_transmit(now, &tx, &mut ranges) {
//!         client.handle_segment(now, &segment.header, 0, true, &mut ranges);
//!     }
//!     while let Some(segment) = client.poll_transmit(now, &tx, &mut ranges) {
//!         let len = (segment.payload.end - segment.payload.start) as u32;
//!         let outcome = server.handle_segment(now, &segment.header, len, true, &mut ranges);
//!         received += outcome.accept.map_or(0, |range| range.len);
//!     }
//! }
//! assert_eq!((received, server.receive_next()), (5, 5));
//! assert_eq!((client.state(), server.state()), (State::FinWait2, State::CloseWait));
//! assert_eq!(client.send_una(), 5);
//! ```
//!
//! # What it does
//!
//! RFC 9293, with RFC 5961 (blind attacks), 7323 (window scale, timestamps, PAWS), 2018 and 2883 (SACK), 8985 (RACK-TLP),
//! 6675 (SACK by count), 6582 (NewReno), 9937 (PRR), 3042 (limited transmit), 6298 (RTO), 3522, 3708, 4015 and 5682
//! (spurious retransmissions), 5681, 6928, 3465, 9406 and 9438 (congestion control), draft-ietf-ccwg-bbr, 3168 (ECN), 8257 (DCTCP), 5482 (user timeout),
//! 6191 (TIME-WAIT), 5927 (ICMP), 7413 (Fast Open).
//!
//! Urgent data is in line, and its end is told (RFC 6093). Not there: data on a SYN without Fast Open. `docs/loss-recovery.md` says more about loss.
//!
//! # What is where
//!
//! Opening and fields in `connection`, segments in `receive`, segments out `transmit`, `timers`,
//! `recovery`, `scoreboard`, `rack`, `tlp`, `edges`, `flight`, `prr` and `undo` (loss), `congestion`, `ecn`, `model` and `pacing` (how fast), `window` (what we
//! advertise), `sack` (what we report), `rtt`, `urgent`.
//!
//! Nothing here allocates after set-up, blocks, or panics on what a peer sends.

#![forbid(unsafe_code)]

mod application;
mod challenge;
mod config;
mod congestion;
mod connection;
mod ecn;
mod edges;
mod fast_open;
mod flags;
mod flight;
mod icmp;
mod info;
mod invariants;
mod isn;
mod model;
mod options;
mod pacing;
mod path;
mod prr;
mod rack;
mod range_pool;
mod receive;
mod recovery;
mod reset;
mod rtt;
mod sack;
mod scoreboard;
mod snapshot;
mod tcp_info;
mod time;
mod timers;
mod tlp;
mod transmit;
mod types;
mod undo;
mod urgent;
mod window;

pub use challenge::ChallengeLimit;
pub use config::{Algorithm, Config, Ecn, Keepalive, LossDetection};
pub use congestion::BbrState;
pub use connection::Connection;
pub use fast_open::FastOpenResult;
pub use isn::{initial_sequence_number, timestamp_offset};
pub use path::MtuProbing;
pub use range_pool::{MAX_RANGES_PER_LIST, RangePool};
pub use reset::reset_for;
pub use snapshot::{ConnectionSnapshot, RestoreError};
pub use time::Instant;
pub use types::{
    BbrInfo, CloseReason, DropReason, IcmpKind, Info, Notice, Outcome, RxRange, State,
    TimeoutOutcome, TxLimits, TxSegment,
};
