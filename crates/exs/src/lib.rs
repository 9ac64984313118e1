//! The Extended Sockets API (ES-API, The Open Group, 2005) in C: asynchronous calls on ordinary socket descriptors, with event queues and registered
//! memory.
//!
//! C programs include `sys/exs.h`, which is made from this source (`cargo xtask header`), and link `libexs`. What was taken from where, and what is
//! our own reading, says `docs/extended-sockets.md`.
//!
//! ```text
//!   calls ──> operation, kept with its socket ──> tried at once; if it would block, by the service thread when epoll says so
//!                                             └─> or handed to the engine (direct): a send from memory that it shares
//!   what became of it ──> event queue ──> exs_qdequeue
//! ```
//!
//! Descriptors are used by libc's functions only. So a descriptor that the preload library (`sidecore run`) has made the engine's is the engine's
//! here, too, and any other is the system's.

#![deny(unsafe_code)]
#![allow(
    non_camel_case_types,
    reason = "the names are those of the C interface"
)]

#[allow(unsafe_code, reason = "the C boundary")]
mod boundary;
#[allow(
    unsafe_code,
    reason = "the C boundary: exported names, and pointers taken in"
)]
mod calls;
#[allow(unsafe_code, reason = "functions of another library")]
mod direct;
mod memory;
mod operation;
mod poll;
#[allow(
    unsafe_code,
    reason = "pthread_atfork, and a state that is never freed"
)]
mod process;
mod queue;
mod service;
mod socket;
#[allow(unsafe_code, reason = "calls of libc")]
mod sys;
mod types;

pub use calls::connection::*;
pub use calls::control::*;
pub use calls::queue::*;
pub use calls::transfer::*;
pub use types::*;
