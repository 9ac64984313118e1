//! `libsidecore_preload.so`: loaded into an unmodified program by LD_PRELOAD, it answers the program's socket calls. Those for the engine's
//! addresses go to the engine, all others to the system, untouched. `sidecore run` sets it up; `docs/preload.md` is its description.
//!
//! ```text
//!   entry       libc's names: C arguments to safe types, then one of the below
//!   table       descriptor -> socket or epoll set
//!   socket      one socket: the system's, the engine's, or both
//!   lent        sends from memory that the engine reads itself
//!   poll, epoll waiting for sockets of both kinds at once
//!   process     what a process has: UAL, descriptors to hand out, configuration; made anew after a fork
//!   signals     the program's signal handlers, which run when nothing of the library's is held
//!   real, sys   libc's own functions, and the system's calls
//! ```

mod cancel;
mod config;
mod control;
mod descriptors;
mod entry;
mod epoll;
mod errors;
mod fork;
mod guard;
mod interrupt;
mod kick;
mod lent;
mod log;
mod memory;
mod mix;
mod options;
mod poll;
mod process;
mod real;
mod segments;
mod signals;
mod socket;
mod sys;
mod table;
mod transfer;
