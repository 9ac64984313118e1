//! What an engine is told when it starts. The parts that a file can say are `serde` types: the file of
//! `sidecore engine --config` is this in TOML.

use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::time::Duration;

use sidecore_stack::{Ipv6Config, SynCookies};

use serde::{Deserialize, Serialize};

/// What the polling loop does when there is nothing to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum IdlePolicy {
    /// Never sleeps, as in the papers.
    Poll,
    /// Polls for [`EngineConfig::spin`], then sleeps on NIC and doorbells. While frames come fast it naps for
    /// [`EngineConfig::nap`] instead.
    #[default]
    Adaptive,
}

/// What happens to the connections of an application that died.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DeathPolicy {
    /// They are reset.
    #[default]
    Reset,
    /// Queued data and a FIN still go out, within the stack's time limits.
    Linger,
}

/// What a UAL may have and do. The agent grants what was wished, cut to this.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Policy {
    /// UALs at a time.
    pub uals: u32,
    /// User ids that may open one; empty: whoever may open the socket.
    pub users: Vec<u32>,
    /// Local ports below this are for user id 0 only.
    pub unprivileged_ports_from: u16,
    /// DTIs of one UAL.
    pub dtis: u32,
    /// Bytes of receive pool of one UAL.
    pub pool_bytes: u64,
    /// Regions of one UAL.
    pub regions: u32,
    /// Bytes in all regions of one UAL.
    pub region_bytes: u64,
    /// Sends, receives and accepts that one DTI may have outstanding.
    pub descriptors_per_dti: u32,
    /// The same for one UAL.
    pub descriptors: u32,
    /// What becomes of the connections of an application that died.
    pub death: DeathPolicy,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            uals: 64,
            users: Vec::new(),
            unprivileged_ports_from: 1024,
            dtis: 1 << 20,
            pool_bytes: 4 << 30,
            regions: sidecore_abi::control::limits::REGIONS,
            region_bytes: 16 << 30,
            descriptors_per_dti: 4096,
            descriptors: 1 << 20,
            death: DeathPolicy::Reset,
        }
    }
}

/// How much of each source one turn takes, so that none starves another.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Budgets {
    /// Bursts (of up to 64 frames) from the NIC.
    pub receive_bursts: usize,
    /// Frames from the internal loopback.
    pub loopback_frames: usize,
    /// Commands from one doorbell lane. (The paper takes one; more amortise the turn's fixed cost.)
    pub commands_per_lane: usize,
    /// Commands of one UAL, all its lanes together: many lanes are no way to a greater share. The next turn goes on with the
    /// lane at which this one stopped.
    pub commands_per_ual: usize,
    /// Timers.
    pub timers: usize,
    /// Frames to send.
    pub transmit_frames: usize,
}

impl Default for Budgets {
    fn default() -> Self {
        Self {
            receive_bursts: 2,
            loopback_frames: 256,
            commands_per_lane: 64,
            commands_per_ual: 512,
            timers: 256,
            transmit_frames: 512,
        }
    }
}

/// An address with its prefix length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cidr {
    /// The address.
    pub address: Ipv4Addr,
    /// 0 to 32.
    pub prefix: u8,
}

impl std::str::FromStr for Cidr {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bad = || format!("'{text}' is not ADDRESS/PREFIX, like 10.77.0.2/24");
        let (address, prefix) = text.split_once('/').ok_or_else(bad)?;
        if address.contains(':') {
            return Err(format!(
                "'{text}' is an IPv6 address, where one of IPv4 is wanted"
            ));
        }
        let prefix = prefix
            .parse::<u8>()
            .ok()
            .filter(|p| *p <= 32)
            .ok_or_else(bad)?;
        Ok(Self {
            address: address.parse().map_err(|_| bad())?,
            prefix,
        })
    }
}

/// The device of an engine.
pub enum Device {
    /// None: only connections between its own DTIs.
    None,
    /// A driver that is ready.
    Nic(Box<sidecore_nic::AnyNic>),
}

/// Everything that an engine is told.
pub struct EngineConfig {
    /// Where the agent listens; `None`: only [`crate::EngineHandle::connect`] opens UALs.
    pub socket: Option<PathBuf>,
    /// The device.
    pub device: Device,
    /// Addresses of this engine.
    pub addresses: Vec<Cidr>,
    /// Router for everything that is not on a link of ours.
    pub gateway: Option<Ipv4Addr>,
    /// Whether another address, and a router if none is given, are asked for by DHCP.
    pub dhcp: bool,
    /// IPv6, with its own addresses and router; off unless it says otherwise.
    pub ipv6: Ipv6Config,
    /// What to do when there is nothing to do.
    pub idle: IdlePolicy,
    /// How long `adaptive` polls without finding anything before it sleeps, at most: it does so while most gaps in the work are shorter, and
    /// else for as long as a wake-up costs.
    pub spin: Duration,
    /// How long `adaptive` naps at a time at most, instead of polling, while several frames come in that time: a frame then waits up to so
    /// much longer, and costs less. Naps that find little, or slow the peers down, are given up for a while. Zero: none.
    pub nap: Duration,
    /// Core to run on.
    pub core: Option<usize>,
    /// What UALs may have.
    pub policy: Policy,
    /// What one turn takes.
    pub budgets: Budgets,
    /// Connections at a time, all UALs together.
    pub connections: usize,
    /// How long connections get to end by themselves at shut-down before they are reset.
    pub drain: Duration,
    /// Seed of all keys and sequence numbers; `None`: from the system's random source.
    pub seed: Option<[u8; 32]>,
    /// How many times slower than the system's clock the engine's goes: 1. More is for programs that count instructions under an emulator, which runs
    /// them so many times slower; sleeps would be wrong.
    #[doc(hidden)]
    pub clock_slowdown: u32,
    /// When SYNs are answered with cookies.
    pub syn_cookies: SynCookies,
    /// Defaults of new connections.
    pub tcp: sidecore_tcp::Config,
}

impl Default for EngineConfig {
    fn default() -> Self {
        Self {
            socket: None,
            device: Device::None,
            addresses: Vec::new(),
            gateway: None,
            dhcp: false,
            ipv6: Ipv6Config::default(),
            idle: IdlePolicy::default(),
            spin: Duration::from_micros(50),
            nap: Duration::from_micros(100),
            core: None,
            policy: Policy::default(),
            budgets: Budgets::default(),
            connections: 1 << 20,
            drain: Duration::from_secs(1),
            seed: None,
            clock_slowdown: 1,
            syn_cookies: SynCookies::default(),
            tcp: sidecore_tcp::Config {
                delay_fin_ack: true,
                ..sidecore_tcp::Config::default()
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Cidr;

    #[test]
    fn addresses_are_read_or_refused_with_a_reason() {
        let cidr: Cidr = "10.77.0.2/24".parse().unwrap();
        assert_eq!((cidr.address.octets(), cidr.prefix), ([10, 77, 0, 2], 24));
        for bad in [
            "10.77.0.2",
            "10.77.0.2/33",
            "10.77.0/24",
            "x/1",
            "/",
            "10.77.0.2/-1",
        ] {
            assert!(
                bad.parse::<Cidr>().unwrap_err().contains("ADDRESS/PREFIX"),
                "{bad}"
            );
        }
        assert!(
            "fe80::1/64"
                .parse::<Cidr>()
                .unwrap_err()
                .contains("one of IPv4 is wanted")
        );
    }
}
