//! The packet processing engine: polling loop, DTI queues, and the agent that opens UALs.
//!
//! - [`engine`](Engine): the loop. One turn looks at every source once: mail, device, loopback, doorbells, timers, transmission,
//!   wake-ups. [`Engine::turn`] for a caller's own loop, [`Engine::spawn`] for a thread of its own.
//! - `dti`: the engine's record of each socket, with its TX and RX descriptor queues.
//! - `ual`: the engine's record of each application: lanes, regions, receive pool, quotas.
//! - `tables`: what happens between stack and applications: storing, delivering, completing, accepting, ending.
//! - `commands`: what applications ask for, checked once.
//! - `output`: the stack's `Host` and `FrameSink`.
//! - `agent`: the thread that opens UALs and registers memory over a UNIX socket.
#![forbid(unsafe_code)]

mod agent;
mod capture;
mod clock;
mod commands;
mod config;
mod cycles;
mod dti;
mod engine;
mod handle;
mod idle;
mod loopback;
mod mail;
mod mailbox;
mod output;
mod shutdown;
mod slab_list;
mod stat;
mod tables;
mod ual;

pub use config::{Budgets, Cidr, DeathPolicy, Device, EngineConfig, IdlePolicy, Policy};
pub use engine::{Engine, Turn};
pub use handle::{EngineControlHandle, EngineError, EngineHandle};
pub use sidecore_stack::{InterfaceId, Ipv6Cidr, Ipv6Config, SynCookies};
pub use sidecore_tcp::{Algorithm, Ecn};
