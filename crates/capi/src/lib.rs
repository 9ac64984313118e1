//! DUSI (Direct User Sockets Interface) in C: the asynchronous interface that the ETA+AIO paper describes, over a Sidecore engine.
//!
//! C programs include `dusi.h`, which is made from this source (`cargo xtask header`), and link `libsidecore_dusi`. The guide is `docs/c-api.md`.
//!
//! Each call turns what C hands it into checked values at once (`boundary`), finds what its handle names (`table`, `handle`), and does its work
//! with safe code. No panic leaves a call.

#![deny(unsafe_code)]
#![allow(
    non_camel_case_types,
    non_snake_case,
    reason = "the names are those of the C interface"
)]

#[allow(unsafe_code, reason = "the C boundary")]
mod boundary;
#[allow(
    unsafe_code,
    reason = "the C boundary: exported names, and pointers taken in"
)]
mod calls;
mod door;
mod handle;
mod open;
mod queue;
#[allow(unsafe_code, reason = "fcntl of descriptors that are open")]
mod signal;
mod staging;
mod status;
#[allow(unsafe_code, reason = "pthread_atfork")]
mod table;
mod types;

pub use calls::dti::*;
pub use calls::evq::*;
pub use calls::memory::*;
pub use calls::transfer::*;
pub use calls::ual::*;
pub use status::Dusi_Status;
pub use types::*;
