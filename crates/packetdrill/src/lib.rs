//! The stack as a shared library for packetdrill, so that its scripts run against it: `packetdrill_interface_init`, the entry of
//! packetdrill's `--so_filename`, and what `--so_flags` say.
//!
//! Time is virtual (`time=real` among the flags makes it real): it passes when packetdrill sleeps, waits for a packet, or looks at
//! the clock, and in no other way. Every timer of the stack fires at its own instant.
//!
//! | file | what |
//! |---|---|
//! | `sys` | the C boundary: the function table, pointers into slices; all of the crate's `unsafe` |
//! | `drill` | one instance: the lock, calls that block, the clock |
//! | `calls` | the calls, in Rust |
//! | `world` | what the lock protects: sockets, descriptors, packets that left |
//! | `epoll` | epoll over readiness |
//! | `settings` | flags and sysctls, and what they mean to the stack |
//! | `shell` | shell commands of scripts, as far as they set sysctls |
//!
//! `docs/packetdrill.md` tells how it is used and what comes out.

#![deny(unsafe_code)]

mod calls;
mod drill;
mod epoll;
mod settings;
mod shell;
#[allow(unsafe_code)]
mod sys;
mod world;

pub use sys::{Interface, packetdrill_interface_init};
