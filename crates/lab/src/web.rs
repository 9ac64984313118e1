//! Web servers for measuring: `userver` with each of its back-ends, on the kernel or on an engine, and nginx.
//!
//! As with the echo servers, a server ends with its process.

pub mod nginx;

use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use serde::{Deserialize, Serialize};
use sidecore_client::Ual;
use sidecore_engine::{Engine, EngineConfig, IdlePolicy, Turn};
use sidecore_userver::{Config, EngineWorker, Io, Server, ual_config};

use crate::echo::Announcement;
use crate::echo::tap::TapSpec;
use crate::native::{Threads, at, engine_on_tap, within};

/// Turns of engine and server between two looks at whether the server has failed.
const TURNS: usize = 64;

/// A web server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WebConfig {
    /// Folder that it serves.
    pub root: PathBuf,
    /// What carries its connections.
    pub carrier: Carrier,
    /// Connections at a time.
    pub connections: usize,
}

/// What carries connections.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Carrier {
    /// Kernel sockets, with the back-end of this name, a worker on each of these processors.
    Kernel {
        /// `epoll`, `sendfile` or `io-uring`.
        io: String,
        /// Where it listens.
        listen: SocketAddr,
        /// Processors of the workers.
        cores: Vec<usize>,
    },
    /// An engine of its own on a TAP device.
    Engine {
        /// The device.
        tap: TapSpec,
        /// The port.
        port: u16,
        /// Threads of engine and server.
        threads: Threads,
        /// What the engine does when there is nothing to do.
        idle: IdlePolicy,
    },
}

/// Serves until the process ends.
pub fn serve(
    config: &WebConfig,
    ready: &mut dyn FnMut(Announcement),
) -> anyhow::Result<Infallible> {
    sidecore_userver::raise_descriptor_limit();
    match &config.carrier {
        Carrier::Kernel { io, listen, cores } => {
            let io: Io = io.parse().map_err(anyhow::Error::msg)?;
            let server = Server::start(Config {
                workers: cores.len().max(1),
                cores: cores.clone(),
                ..userver(config, *listen, io)
            })?;
            ready(Announcement::plain(server.address()));
            server.join()?;
            bail!("the server ended")
        }
        Carrier::Engine {
            tap,
            port,
            threads,
            idle,
        } => {
            let listen = at(tap.address, *port);
            let engine = engine_on_tap(tap, *idle)?;
            match threads {
                Threads::One => serve_within(config, engine, listen, ready),
                Threads::Two => serve_beside(config, engine, listen, ready),
            }
        }
    }
}

fn userver(config: &WebConfig, listen: SocketAddr, io: Io) -> Config {
    Config {
        max_connections: config.connections + 1024,
        ..Config::new(&config.root, listen, io)
    }
}

/// Engine and server in this thread: their turns alternate.
fn serve_within(
    config: &WebConfig,
    engine: EngineConfig,
    listen: SocketAddr,
    ready: &mut dyn FnMut(Announcement),
) -> anyhow::Result<Infallible> {
    let (mut engine, control) = Engine::new(engine)?;
    let socket = control.connect()?;
    let userver = userver(config, listen, Io::Sidecore);
    let wishes = ual_config(&userver);
    let ual = within(&mut engine, || Ok(Ual::open_on(socket, &wishes)?))?;
    let mut worker = EngineWorker::start(userver, &ual, |_| {
        engine.turn();
        Ok(())
    })?;
    ready(Announcement::of_engine(worker.address(), control));
    loop {
        for _ in 0..TURNS {
            let turn = engine.turn();
            if worker.turn() == 0 && turn == Turn::Idle {
                engine.rest();
            }
        }
        if worker.has_stopped() {
            bail!("the server ended");
        }
    }
}

/// The engine in a thread beside the server's.
fn serve_beside(
    config: &WebConfig,
    mut engine: EngineConfig,
    listen: SocketAddr,
    ready: &mut dyn FnMut(Announcement),
) -> anyhow::Result<Infallible> {
    let folder = tempfile::tempdir().context("a folder for the engine's socket")?;
    let socket = folder.path().join("engine.sock");
    engine.socket = Some(socket.clone());
    let engine = Engine::spawn(engine)?;
    let server = Server::start(Config {
        socket,
        ..userver(config, listen, Io::Sidecore)
    })?;
    ready(Announcement::of_engine(server.address(), engine.control()));
    server.join()?;
    bail!("the server ended")
}

/// A folder with files for a web server, removed when dropped.
pub struct Site {
    folder: tempfile::TempDir,
}

impl Site {
    /// One file of so many bytes for each name.
    pub fn create(files: &[(&str, usize)]) -> anyhow::Result<Self> {
        let folder = tempfile::Builder::new()
            .prefix("sclab-")
            .tempdir()
            .context("a folder for files to serve")?;
        // A server that gives up its rights must be able to read it.
        let readable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(folder.path(), readable)?;
        for (name, bytes) in files {
            let content: Vec<u8> = (0..*bytes).map(|i| b'a' + (i % 26) as u8).collect();
            std::fs::write(folder.path().join(name), content)?;
        }
        Ok(Self { folder })
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }
}
