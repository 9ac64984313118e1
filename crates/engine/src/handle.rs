//! Making an engine, and what its owner holds while it runs in a thread of its own.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::mpsc::channel;
use std::thread::JoinHandle;
use std::time::Duration;

use sidecore_nic::{AnyNic, Nic, Null};
use sidecore_stack::{Ipv4Cidr, Stack, StackConfig};
use sidecore_tcp::Instant;

use crate::agent::{self, Door};
use crate::config::{Device, EngineConfig};
use crate::engine::Engine;
use crate::mailbox::{self, Mailbox, Message};

/// Why an engine cannot start. Each is one line that names the thing and the mend.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// The configuration makes no sense.
    #[error("{0}")]
    Config(String),
    /// The agent's socket cannot be made.
    #[error("agent socket: {0}")]
    Socket(std::io::Error),
    /// The system refused something else.
    #[error("{what}: {error}")]
    System {
        /// What was tried.
        what: &'static str,
        /// What the system said.
        error: std::io::Error,
    },
}

/// Ways to an engine, wherever it runs: cheap to clone, usable from any thread.
#[derive(Clone)]
pub struct EngineControlHandle {
    door: Door,
    mailbox: Mailbox,
}

impl EngineControlHandle {
    /// A connected agent socket, for `sidecore_client::Ual::open_on`. Does not wait for the engine.
    pub fn connect(&self) -> std::io::Result<OwnedFd> {
        self.door.connect()
    }

    /// Tells the engine to close its listeners, let connections end for the configured time, reset the rest, and stop.
    pub fn request_stop(&self) {
        self.mailbox.send(Message::Stop);
    }

    /// Counters, cycles, connections and UALs as one JSON document. Waits for the engine's next turn; `None` when none comes.
    pub fn stat_json(&self) -> Option<String> {
        let (sender, receiver) = channel();
        self.mailbox.send(Message::Stat(sender));
        receiver.recv_timeout(Duration::from_secs(2)).ok()
    }
}

/// An engine that runs in a thread of its own. Dropping it stops the engine at once.
pub struct EngineHandle {
    control: EngineControlHandle,
    thread: Option<JoinHandle<()>>,
    socket: Option<PathBuf>,
}

impl EngineHandle {
    /// See [`EngineControlHandle::connect`].
    pub fn connect(&self) -> std::io::Result<OwnedFd> {
        self.control.connect()
    }

    /// Where the agent listens, if it does.
    pub fn socket_path(&self) -> Option<&Path> {
        self.socket.as_deref()
    }

    /// See [`EngineControlHandle::stat_json`].
    pub fn stat_json(&self) -> Option<String> {
        self.control.stat_json()
    }

    /// For other threads.
    pub fn control(&self) -> EngineControlHandle {
        self.control.clone()
    }

    /// Stops the engine and waits until it has ended: at most the configured drain time and a little.
    pub fn stop(mut self) {
        self.end();
    }

    /// Waits until the engine ends by itself (somebody else requested the stop).
    pub fn join(mut self) {
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }

    fn end(&mut self) {
        self.control.request_stop();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Drop for EngineHandle {
    fn drop(&mut self) {
        self.end();
    }
}

impl Engine {
    /// Makes an engine that its caller drives by [`Engine::turn`] (or [`Engine::run`]), and the handle for everybody else.
    pub fn new(mut config: EngineConfig) -> Result<(Engine, EngineControlHandle), EngineError> {
        sidecore_sys::sigbus::install().map_err(|error| EngineError::System {
            what: "SIGBUS handler",
            error,
        })?;
        let nic = match std::mem::replace(&mut config.device, Device::None) {
            Device::None => AnyNic::Null(Null::default()),
            Device::Nic(nic) => *nic,
        };
        let stack = Stack::new(
            stack_config(&config, &nic)?,
            Instant::from_nanos(sidecore_sys::clock::monotonic_ns()),
        );
        let (mailbox, inbox, regions_gone) =
            mailbox::pair().map_err(|error| EngineError::System {
                what: "engine mailbox",
                error,
            })?;
        let (agent, door) = agent::start(
            config.socket.as_deref(),
            config.policy.clone(),
            mailbox.clone(),
            regions_gone,
        )
        .map_err(EngineError::Socket)?;
        let engine = Engine::assemble(config, nic, stack, inbox, agent).map_err(|error| {
            EngineError::System {
                what: "engine",
                error,
            }
        })?;
        Ok((engine, EngineControlHandle { door, mailbox }))
    }

    /// Makes an engine and runs it in a thread of its own.
    pub fn spawn(config: EngineConfig) -> Result<EngineHandle, EngineError> {
        let socket = config.socket.clone();
        let (engine, control) = Engine::new(config)?;
        let thread = std::thread::Builder::new()
            .name("sidecore-engine".into())
            .spawn(move || engine.run())
            .map_err(|error| EngineError::System {
                what: "engine thread",
                error,
            })?;
        Ok(EngineHandle {
            control,
            thread: Some(thread),
            socket,
        })
    }
}

fn stack_config(config: &EngineConfig, nic: &AnyNic) -> Result<StackConfig, EngineError> {
    let caps = nic.caps();
    if !(576..=65535).contains(&caps.mtu) {
        return Err(EngineError::Config(format!(
            "MTU {} is outside 576..=65535",
            caps.mtu
        )));
    }
    if config.ipv6.enabled && caps.mtu < 1280 {
        // RFC 8200 section 5.
        return Err(EngineError::Config(format!(
            "MTU {} is below the 1280 bytes that IPv6 needs",
            caps.mtu
        )));
    }
    let bad = |cidr: &crate::Cidr| {
        EngineError::Config(format!("prefix length {} is not 0 to 32", cidr.prefix))
    };
    let addresses: Result<Vec<_>, _> = config
        .addresses
        .iter()
        .map(|cidr| Ipv4Cidr::new(cidr.address, cidr.prefix).ok_or_else(|| bad(cidr)))
        .collect();
    Ok(StackConfig {
        mac: caps.mac,
        addresses: addresses?,
        gateway: config.gateway,
        dhcp: config.dhcp,
        ipv6: config.ipv6.clone(),
        mtu: caps.mtu,
        max_connections: config.connections,
        syn_cookies: config.syn_cookies,
        tcp: config.tcp.clone(),
        seed: config.seed.unwrap_or_else(rand::random),
        ..StackConfig::default()
    })
}
