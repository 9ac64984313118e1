//! Measuring: load generators, baselines, books of processor time, and experiments that put them together.
//!
//! | module | holds |
//! |---|---|
//! | [`accounting`] | whose work took how much processor time, and whether the sum is right |
//! | [`profile`] | how much of a processor's time went into receiving for somebody else |
//! | [`load`] | the load generator: closed and open loop over kernel sockets |
//! | [`echo`] | echo servers: the kernel's, smoltcp's, and the null responder |
//! | [`web`] | web servers: `userver` with each of its back-ends, nginx |
//! | [`native`] | applications on the engine's native API |
//! | [`bulk`] | servers that take what is sent |
//! | [`wake`] | how long it takes to wake somebody |
//! | [`flood`] | connects beside a flood of SYNs |
//! | [`memory`] | what idle connections cost |
//! | [`pairs`] | both ends on AF_UNIX sockets |
//! | [`ground`] | namespaces and veth pairs for runs |
//! | [`roles`], [`process`] | the programs of a run, each a process of its own |
//! | [`run`] | one measured run, and interleaved rounds of runs |
//! | [`statistics`], [`report`] | medians, ratios with intervals, documents, pages and plots |
//! | [`experiments`] | the experiments |
//! | [`link`] | two TAP devices joined by a link with faults |
//! | [`flows`] | bulk flows over such a link |
//! | [`unprivileged`] | doing all this without root |
//! | [`command`] | the command line |
#![forbid(unsafe_code)]

pub mod accounting;
pub mod bulk;
pub mod command;
pub mod echo;
pub mod experiments;
pub mod flood;
pub mod flows;
pub mod ground;
pub mod interrupt;
pub mod link;
pub mod load;
pub mod machine;
pub mod memory;
pub mod native;
pub mod pairs;
pub mod process;
pub mod profile;
pub mod programs;
pub mod progress;
pub mod report;
pub mod roles;
pub mod run;
pub mod statistics;
pub mod unprivileged;
pub mod wake;
pub mod web;
