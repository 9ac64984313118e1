//! An event-driven HTTP/1.1 server for files (the papers' *userver*), whose I/O runs on the engine, on epoll with `write`, on epoll
//! with `sendfile`, or on io_uring.
//!
//! What the server says is decided without I/O: [`http`] parses and writes, [`cache`] keeps files, [`site`] puts both together
//! and answers a run of received bytes with a [`http::plan::Plan`]. The back-ends in [`io`] are siblings that only receive bytes
//! and send plans. One thread is one worker with a cache of its own; workers share nothing but the listening address.
//!
//! ```no_run
//! use sidecore_userver::{Config, Io, Server};
//!
//! let config = Config::new("/srv/www", "127.0.0.1:0".parse().unwrap(), Io::Epoll);
//! let server = Server::start(config)?;
//! println!("{}", server.address());
//! let counters = server.stop()?;
//! println!("{} requests", counters.requests);
//! # Ok::<(), sidecore_userver::Error>(())
//! ```
#![forbid(unsafe_code)]

pub mod access_log;
pub mod cache;
pub mod clock;
mod config;
mod counters;
pub mod encrypt;
mod error;
pub mod http;
pub mod io;
mod server;
pub mod site;

pub use config::{Config, Io, default_socket};
pub use counters::Counters;
pub use error::Error;
pub use io::sidecore::EngineWorker;
pub use io::sidecore::setup::ual_config;
pub use server::{Server, raise_descriptor_limit};
