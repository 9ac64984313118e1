//! What `sidecore run` says by the environment, and which addresses are the engine's.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::Duration;

/// What to do when there is no engine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum NoEngine {
    /// The system's sockets.
    Kernel,
    /// The program ends.
    Exit,
}

/// Which destinations go to the engine.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Take {
    /// Those on the networks of the engine's own addresses.
    Own,
    /// These networks.
    Listed(Vec<(IpAddr, u8)>),
    /// Everything.
    All,
}

/// Everything that is configured.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    pub(crate) socket: PathBuf,
    pub(crate) take: Take,
    pub(crate) no_engine: NoEngine,
    pub(crate) spin: Duration,
}

/// What the environment said when this image began.
static CONFIG: OnceLock<Config> = OnceLock::new();

impl Config {
    /// What is configured, for as long as this image lives: programs clear their environment, and write their titles over it.
    pub(crate) fn get() -> &'static Self {
        CONFIG.get_or_init(Self::from_environment)
    }

    /// From the environment; what cannot be read is as if it were not there, as `sidecore run` has checked it.
    fn from_environment() -> Self {
        let text = |name: &str| std::env::var(name).ok().filter(|text| !text.is_empty());
        let take = match text("SIDECORE_TAKE").as_deref() {
            None => Take::Own,
            Some("all") => Take::All,
            Some(list) => Take::Listed(list.split(',').filter_map(network).collect()),
        };
        let spin = text("SIDECORE_SPIN").and_then(|text| text.parse().ok());
        Self {
            socket: text("SIDECORE_SOCKET")
                .unwrap_or_else(|| "/run/sidecore.sock".into())
                .into(),
            take,
            no_engine: match text("SIDECORE_NO_ENGINE").as_deref() {
                Some("exit") => NoEngine::Exit,
                _ => NoEngine::Kernel,
            },
            spin: Duration::from_micros(spin.unwrap_or(0)),
        }
    }
}

/// ADDRESS/BITS, or an address alone.
fn network(text: &str) -> Option<(IpAddr, u8)> {
    let (address, bits) = text.split_once('/').unwrap_or((text, ""));
    let address: IpAddr = address.trim().parse().ok()?;
    let all = if address.is_ipv4() { 32 } else { 128 };
    match bits {
        "" => Some((address, all)),
        bits => Some((address, bits.trim().parse().ok().filter(|b| *b <= all)?)),
    }
}

fn contains((network, bits): &(IpAddr, u8), address: IpAddr) -> bool {
    match (network, address) {
        (IpAddr::V4(network), IpAddr::V4(address)) => {
            let shift = 32 - u32::from(*bits).min(32);
            let differs = u64::from(network.to_bits() ^ address.to_bits());
            differs >> shift == 0
        }
        (IpAddr::V6(network), IpAddr::V6(address)) => {
            let differs = network.to_bits() ^ address.to_bits();
            differs
                .checked_shr(128 - u32::from(*bits).min(128))
                .unwrap_or(0)
                == 0
        }
        _ => false,
    }
}

/// Which addresses are whose.
#[derive(Clone, Debug)]
pub(crate) struct Addresses {
    pub(crate) take: Take,
    /// The engine's, with their networks.
    pub(crate) own: Vec<(IpAddr, u8)>,
}

/// Where a socket that is bound to an address belongs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Place {
    Kernel,
    Engine,
    /// A wildcard address: both listen.
    Both,
}

impl Addresses {
    /// Whether a connection or datagram to this address is the engine's.
    pub(crate) fn takes(&self, to: SocketAddr) -> bool {
        // As Linux has it, the wildcard address as a destination is this machine.
        let address = match to.ip().to_canonical() {
            address if address.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
            address => address,
        };
        match &self.take {
            Take::All => true,
            Take::Listed(list) => list.iter().any(|network| contains(network, address)),
            Take::Own => self.own.iter().any(|network| contains(network, address)),
        }
    }

    /// Where a socket bound to this address belongs.
    pub(crate) fn place(&self, local: SocketAddr) -> Place {
        let address = local.ip().to_canonical();
        let own = self.own.iter().any(|(own, _)| *own == address);
        match &self.take {
            Take::All => Place::Engine,
            _ if address.is_unspecified() => Place::Both,
            _ if own => Place::Engine,
            _ if address.is_loopback() && self.takes(local) => Place::Engine,
            _ => Place::Kernel,
        }
    }
}
