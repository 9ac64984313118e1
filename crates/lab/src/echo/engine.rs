//! Echo on a Sidecore engine, over a TAP device or without one, through the native API; engine and server in one thread or in two.

use std::convert::Infallible;

use anyhow::bail;
use serde::{Deserialize, Serialize};
use sidecore_client::Ual;
use sidecore_engine::{Engine, IdlePolicy};

use super::Announcement;
use super::tap::TapSpec;
use crate::native::server::EchoServer;
use crate::native::{
    Ends, Threads, at, drive_beside, drive_within, engine_on_tap, open_within, wishes,
};

/// An echo server on an engine of its own.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EngineEcho {
    /// The device.
    pub tap: TapSpec,
    /// The port.
    pub port: u16,
    /// Threads of engine and server.
    pub threads: Threads,
    /// The engine never sleeps (two threads; in one thread it never does).
    pub poll: bool,
    /// Connections at a time.
    pub connections: usize,
    /// Where `sidecore stat` finds the engine; none: nowhere.
    pub socket: Option<std::path::PathBuf>,
}

/// Serves until the process ends.
pub fn serve(
    config: &EngineEcho,
    ready: &mut dyn FnMut(Announcement),
) -> anyhow::Result<Infallible> {
    let idle = if config.poll {
        IdlePolicy::Poll
    } else {
        IdlePolicy::Adaptive
    };
    let mut engine = engine_on_tap(&config.tap, idle)?;
    engine.socket.clone_from(&config.socket);
    let address = at(config.tap.address, config.port);
    match config.threads {
        Threads::One => {
            let (mut engine, control) = Engine::new(engine)?;
            let ends = open_within(&mut engine, &control, config.connections)?;
            let mut server = EchoServer::new(ends, address)?;
            // Once for what the server has posted, once for what came of it.
            engine.turn();
            ready(Announcement::of_engine(address, control));
            drive_within(&mut engine, &mut server, |_| Ok(false))?;
            bail!("the engine ended")
        }
        Threads::Two => {
            let engine = Engine::spawn(engine)?;
            let ual = Ual::open_on(engine.connect()?, &wishes(config.connections))?;
            let mut server = EchoServer::new(Ends::of(ual)?, address)?;
            ready(Announcement::of_engine(address, engine.control()));
            drive_beside(&mut server)
        }
    }
}
