//! `sidecore engine`: an engine with its agent, until a signal ends it.

use std::io::Write;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;

use anyhow::Context;
use clap::{Args, ValueEnum};
use sidecore_engine::{Device, Engine, EngineConfig, IdlePolicy};
use sidecore_nic::AnyNic;
use sidecore_nic::tap::{Tap, TapConfig};
use sidecore_sys::{netns, privileges};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::config::Config;
use crate::congestion::{Congestion, EcnUse};
use crate::{notify, socket};

/// Options of `sidecore engine`.
#[derive(Debug, Default, Args)]
pub(crate) struct Options {
    /// Read this TOML file; options go before it
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Make a TAP device of this name; without one, only the engine's own applications reach each other
    #[arg(long, value_name = "NAME")]
    pub(crate) tap: Option<String>,
    /// Address of the TAP's kernel side, like 10.77.0.1/24 or fd00::1/64 (may be repeated)
    #[arg(long, value_name = "ADDR/PREFIX")]
    pub(crate) host_addr: Vec<String>,
    /// Address of the engine, like 10.77.0.2/24 or fd00::2/64 (may be repeated); one of IPv6 turns IPv6 on
    #[arg(long, value_name = "ADDR/PREFIX")]
    pub(crate) addr: Vec<String>,
    /// Router for what is not on the link
    #[arg(long, value_name = "ADDR")]
    pub(crate) gateway: Option<Ipv4Addr>,
    /// Ask for an IPv4 address by DHCP, and for a router if none is given
    #[arg(long)]
    pub(crate) dhcp: bool,
    /// Router of IPv6, if it is not to be learnt from router advertisements
    #[arg(long, value_name = "ADDR")]
    pub(crate) gateway6: Option<Ipv6Addr>,
    /// Speak IPv6, with a link-local address and those that routers announce
    #[arg(long)]
    pub(crate) ipv6: bool,
    /// Put the TAP's kernel side into this network namespace
    #[arg(long, value_name = "NAME")]
    pub(crate) netns: Option<String>,
    /// Largest IP packet on the TAP
    #[arg(long, value_name = "BYTES")]
    pub(crate) mtu: Option<u16>,
    /// Congestion controller of connections that choose none [default: cubic]
    #[arg(long, value_enum)]
    pub(crate) congestion: Option<Congestion>,
    /// Pace data whatever the controller
    #[arg(long)]
    pub(crate) pacing: bool,
    /// Where applications find the engine [default: /run/sidecore.sock, or in $XDG_RUNTIME_DIR without root]
    #[arg(long, value_name = "PATH")]
    pub(crate) socket: Option<PathBuf>,
    /// Core of the engine's thread
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub(crate) cores: Vec<usize>,
    /// What to do when there is nothing to do
    #[arg(long, value_enum)]
    pub(crate) idle: Option<Idle>,
    /// Whether explicit congestion notification is used [default: accept]
    #[arg(long, value_enum)]
    pub(crate) ecn: Option<EcnUse>,
}

/// What an engine does when there is nothing to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Idle {
    /// Never sleep
    Poll,
    /// Poll for a moment, then sleep
    Adaptive,
}

impl From<Idle> for IdlePolicy {
    fn from(idle: Idle) -> Self {
        match idle {
            Idle::Poll => Self::Poll,
            Idle::Adaptive => Self::Adaptive,
        }
    }
}

/// Runs an engine until SIGTERM or SIGINT.
pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    let file = options
        .config
        .as_deref()
        .map(Config::read)
        .transpose()?
        .unwrap_or_default();
    let config = file.with(options);
    let path = socket::path(config.socket.as_deref())?;
    let mut engine = config.engine(path)?;
    let tap = config.tap()?;
    start_log();
    // Before any thread is started: both change the calling thread only, and later threads inherit it.
    if let Some(tap) = &tap {
        if !privileges::can_administer_network() {
            enter_own_namespaces()?;
        }
        engine.device = Device::Nic(Box::new(AnyNic::Tap(create(tap)?)));
    }
    let mut signals = Signals::new([SIGTERM, SIGINT]).context("signal handlers")?;
    if let Err(error) = privileges::drop_privileges() {
        tracing::warn!(%error, "cannot give up privileges");
    }
    allow_descriptors();
    serve(engine, tap.as_ref(), &mut signals)
}

/// As many descriptors as the system lets this process have: the agent keeps one for each socket of a program under the preload library.
fn allow_descriptors() {
    let mut limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    limit.current = limit.maximum;
    if let Err(error) = rustix::process::setrlimit(rustix::process::Resource::Nofile, limit) {
        tracing::warn!(%error, "cannot raise the limit of open files");
    }
}

fn create(tap: &TapConfig) -> anyhow::Result<Tap> {
    Ok(Tap::create(tap.clone())?)
}

/// Starts the engine, says so, and waits for a signal.
fn serve(
    config: EngineConfig,
    tap: Option<&TapConfig>,
    signals: &mut Signals,
) -> anyhow::Result<()> {
    let addresses: Vec<String> = config
        .addresses
        .iter()
        .map(|a| format!("{}/{}", a.address, a.prefix))
        .chain(config.dhcp.then(|| "dhcp".to_owned()))
        .chain(config.ipv6.addresses.iter().map(|a| a.to_string()))
        .collect();
    let engine = Engine::spawn(config)?;
    if let Err(error) = engine.connect().and_then(sidecore_proxy::spawn) {
        tracing::warn!(%error, "no custodian: connections cannot be shared by processes");
    }
    let path = engine
        .socket_path()
        .map(|path| path.display().to_string())
        .unwrap_or_default();
    let mut line = format!("ready socket={path}");
    if let Some(tap) = tap {
        line.push_str(&format!(" tap={} addr={}", tap.name, addresses.join(",")));
    }
    let mut out = std::io::stdout().lock();
    // Whoever started us may have closed our output: the engine runs all the same.
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
    drop(out);
    notify::ready();
    signals.forever().next();
    engine.stop();
    Ok(())
}

/// Without root: user and network namespaces of our own, in which the TAP can be made. Says how to get in.
fn enter_own_namespaces() -> anyhow::Result<()> {
    netns::unshare_user_and_net().context(
        "no permission to make a TAP device, nor to make a user namespace for it: run as root, or allow user namespaces (sysctl kernel.unprivileged_userns_clone=1)",
    )?;
    let pid = std::process::id();
    eprintln!(
        "not root: the TAP device is in a network namespace of its own; run programs there with"
    );
    eprintln!("  nsenter --preserve-credentials -t {pid} -U -n -- COMMAND");
    Ok(())
}

/// Messages of the engine go to standard error; `RUST_LOG` says which.
fn start_log() {
    let filter = tracing_subscriber::EnvFilter::try_from_default_env()
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("warn"));
    let _ = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .try_init();
}
