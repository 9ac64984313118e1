//! What `sidecore engine` is told: a TOML file, and options, which go before it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use serde::Deserialize;
use sidecore_engine::{Budgets, Cidr, EngineConfig, IdlePolicy, Ipv6Cidr, Ipv6Config, Policy};
use sidecore_nic::tap::TapConfig;

use crate::congestion::{Congestion, EcnUse};
use crate::engine::Options;
use crate::usage;

/// The file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Config {
    /// The agent's socket.
    pub(crate) socket: Option<PathBuf>,
    /// Name of the TAP device. None: connections between its own applications only.
    pub(crate) tap: Option<String>,
    /// Namespace of the TAP's kernel side.
    pub(crate) netns: Option<String>,
    /// Addresses of the TAP's kernel side, with their prefixes.
    pub(crate) host_addresses: Vec<String>,
    /// Addresses of the engine, with their prefixes.
    pub(crate) addresses: Vec<String>,
    /// Router for what is not on the link.
    pub(crate) gateway: Option<Ipv4Addr>,
    /// The same for IPv6; without it, routers are listened to.
    pub(crate) gateway6: Option<Ipv6Addr>,
    /// Whether an IPv4 address is asked for by DHCP, and a router if none is given.
    pub(crate) dhcp: bool,
    /// Whether IPv6 is spoken though no address of it is given.
    pub(crate) ipv6: bool,
    /// Largest IP packet.
    pub(crate) mtu: Option<u16>,
    /// Congestion controller of connections that choose none.
    pub(crate) congestion: Option<Congestion>,
    /// Whether data of all connections is paced, whatever the controller.
    pub(crate) pacing: bool,
    /// The largest rate at which one connection sends, in bytes a second; it is paced then.
    pub(crate) max_pacing_rate: Option<u64>,
    /// Cores of the engine's threads.
    pub(crate) cores: Vec<usize>,
    /// What to do when there is nothing to do.
    pub(crate) idle: Option<IdlePolicy>,
    /// Whether ECN is used, by connections that do not choose.
    pub(crate) ecn: Option<EcnUse>,
    /// How long `adaptive` polls before it sleeps, in microseconds.
    pub(crate) spin_us: Option<u64>,
    /// How long `adaptive` naps while frames come fast, in microseconds; 0: it does not.
    pub(crate) nap_us: Option<u64>,
    /// Connections at a time.
    pub(crate) connections: Option<usize>,
    /// How long connections get to end at shut-down, in milliseconds.
    pub(crate) drain_ms: Option<u64>,
    /// What applications may have.
    pub(crate) policy: Policy,
    /// What one turn of the loop takes.
    pub(crate) budgets: Budgets,
}

impl Config {
    /// From a file.
    pub(crate) fn read(path: &Path) -> anyhow::Result<Self> {
        let shown = path.display();
        let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {shown}"))?;
        toml::from_str(&text).map_err(|error| usage(format!("{shown}: {error}")))
    }

    /// With what the command line says.
    pub(crate) fn with(mut self, options: &Options) -> Self {
        fn replace<T: Clone>(place: &mut Option<T>, value: &Option<T>) {
            if value.is_some() {
                place.clone_from(value);
            }
        }
        replace(&mut self.socket, &options.socket);
        replace(&mut self.tap, &options.tap);
        replace(&mut self.netns, &options.netns);
        replace(&mut self.gateway, &options.gateway);
        replace(&mut self.gateway6, &options.gateway6);
        self.ipv6 |= options.ipv6;
        self.dhcp |= options.dhcp;
        replace(&mut self.mtu, &options.mtu);
        replace(&mut self.congestion, &options.congestion);
        self.pacing |= options.pacing;
        replace(&mut self.idle, &options.idle.map(Into::into));
        replace(&mut self.ecn, &options.ecn);
        if !options.host_addr.is_empty() {
            self.host_addresses.clone_from(&options.host_addr);
        }
        if !options.addr.is_empty() {
            self.addresses.clone_from(&options.addr);
        }
        if !options.cores.is_empty() {
            self.cores.clone_from(&options.cores);
        }
        self
    }

    /// IPv4 addresses of the engine.
    fn engine_addresses(&self) -> anyhow::Result<Vec<Cidr>> {
        let addresses: Vec<Cidr> = self
            .addresses
            .iter()
            .filter(|text| !is_v6(text))
            .map(|text| parse(text))
            .collect::<Result<_, _>>()?;
        let ipv6 = self.ipv6()?;
        if self.tap.is_some() && addresses.is_empty() && !ipv6.enabled && !self.dhcp {
            return Err(usage(
                "the engine needs an address: give --addr, like --addr 10.77.0.2/24, or --dhcp",
            ));
        }
        Ok(addresses)
    }

    /// What the engine is told of IPv6.
    fn ipv6(&self) -> anyhow::Result<Ipv6Config> {
        let addresses: Vec<Ipv6Cidr> = self
            .addresses
            .iter()
            .filter(|text| is_v6(text))
            .map(|text| parse_v6(text))
            .collect::<Result<_, _>>()?;
        Ok(Ipv6Config {
            enabled: self.ipv6 || !addresses.is_empty(),
            addresses,
            gateway: self.gateway6,
            ..Ipv6Config::default()
        })
    }

    /// The core of the one engine thread.
    fn core(&self) -> anyhow::Result<Option<usize>> {
        match self.cores.as_slice() {
            [] => Ok(None),
            [core] => Ok(Some(*core)),
            _ => Err(usage(
                "this version runs one engine thread: name one core with --cores",
            )),
        }
    }

    /// What the engine is told, but for the device.
    pub(crate) fn engine(&self, socket: PathBuf) -> anyhow::Result<EngineConfig> {
        let default = EngineConfig::default();
        let mut tcp = default.tcp.clone();
        tcp.congestion = self.congestion.map_or(tcp.congestion, Into::into);
        tcp.ecn = self.ecn.map_or(tcp.ecn, Into::into);
        tcp.pacing = self.pacing;
        tcp.max_pacing_rate = self.max_pacing_rate;
        Ok(EngineConfig {
            tcp,
            socket: Some(socket),
            addresses: self.engine_addresses()?,
            gateway: self.gateway,
            ipv6: self.ipv6()?,
            dhcp: self.dhcp,
            idle: self.idle.unwrap_or_default(),
            spin: self.spin_us.map_or(default.spin, Duration::from_micros),
            nap: self.nap_us.map_or(default.nap, Duration::from_micros),
            core: self.core()?,
            policy: self.policy.clone(),
            budgets: self.budgets.clone(),
            connections: self.connections.unwrap_or(default.connections),
            drain: self.drain_ms.map_or(default.drain, Duration::from_millis),
            ..default
        })
    }

    /// What the TAP driver is told, if there is to be a device.
    pub(crate) fn tap(&self) -> anyhow::Result<Option<TapConfig>> {
        let Some(name) = &self.tap else {
            return match self.netns.is_some() || !self.host_addresses.is_empty() {
                true => Err(usage(
                    "--netns and --host-addr are for a TAP device: name it with --tap NAME",
                )),
                false => Ok(None),
            };
        };
        let host = |text: &String| {
            if is_v6(text) {
                let cidr = parse_v6(text)?;
                return Ok((IpAddr::V6(cidr.address()), cidr.prefix_len()));
            }
            parse(text).map(|cidr| (IpAddr::V4(cidr.address), cidr.prefix))
        };
        let default = TapConfig::default();
        Ok(Some(TapConfig {
            name: name.clone(),
            mtu: self.mtu.unwrap_or(default.mtu),
            host_addresses: self
                .host_addresses
                .iter()
                .map(host)
                .collect::<anyhow::Result<_>>()?,
            netns: self.netns.clone(),
            ..default
        }))
    }
}

fn parse(text: &str) -> anyhow::Result<Cidr> {
    text.parse().map_err(usage)
}

fn is_v6(text: &str) -> bool {
    text.contains(':')
}

fn parse_v6(text: &str) -> anyhow::Result<Ipv6Cidr> {
    let bad = |_| usage(format!("'{text}' is not ADDRESS/PREFIX, like fd00::2/64"));
    text.parse().map_err(bad)
}

#[cfg(test)]
mod tests {
    use sidecore_engine::{Algorithm, Ecn};

    use super::*;

    fn read(text: &str) -> Config {
        toml::from_str(text).unwrap()
    }

    #[test]
    fn a_whole_file_is_understood() {
        let config = read(
            r#"
            socket = "/run/x.sock"
            tap = "sc0"
            netns = "client"
            host_addresses = ["10.77.0.1/24"]
            addresses = ["10.77.0.2/24", "10.77.0.3/24"]
            gateway = "10.77.0.1"
            mtu = 9000
            max_pacing_rate = 1000000
            cores = [1]
            idle = "poll"
            congestion = "dctcp"
            ecn = "request"
            spin_us = 20
            nap_us = 0
            connections = 1000
            drain_ms = 50
            [policy]
            dtis = 77
            death = "linger"
            [budgets]
            timers = 3
            "#,
        );
        let engine = config.engine("/s".into()).unwrap();
        assert_eq!(engine.idle, IdlePolicy::Poll);
        assert_eq!(engine.tcp.congestion, Algorithm::Dctcp);
        assert_eq!(engine.tcp.ecn, Ecn::Request);
        assert_eq!(
            (engine.core, engine.addresses.len(), engine.connections),
            (Some(1), 2, 1000)
        );
        assert_eq!((engine.policy.dtis, engine.budgets.timers), (77, 3));
        assert_eq!(
            (engine.tcp.pacing, engine.tcp.max_pacing_rate),
            (false, Some(1_000_000))
        );
        assert_eq!(
            (engine.spin, engine.nap, engine.drain),
            (
                Duration::from_micros(20),
                Duration::ZERO,
                Duration::from_millis(50)
            )
        );
        let tap = config.tap().unwrap().unwrap();
        assert_eq!(
            (tap.name.as_str(), tap.mtu, tap.netns.as_deref()),
            ("sc0", 9000, Some("client"))
        );
        assert_eq!(tap.host_addresses, [("10.77.0.1".parse().unwrap(), 24)]);
    }

    #[test]
    fn options_go_before_the_file() {
        let options = Options {
            tap: Some("other".into()),
            addr: vec!["10.0.0.9/8".into()],
            ..Options::default()
        };
        let config =
            read("tap = \"sc0\"\naddresses = [\"10.77.0.2/24\"]\ncores = [1]").with(&options);
        assert_eq!(config.tap.as_deref(), Some("other"));
        assert_eq!(config.addresses, ["10.0.0.9/8"]);
        assert_eq!(config.cores, [1]);
    }

    #[test]
    fn what_makes_no_sense_is_wrong_usage() {
        let is_usage = |result: anyhow::Result<()>| result.unwrap_err().is::<crate::Usage>();
        let engine = |text: &str| read(text).engine("/s".into()).map(drop);
        assert!(is_usage(engine("tap = \"x\"")));
        assert!(is_usage(engine("addresses = [\"10.77.0.2\"]")));
        assert!(is_usage(engine("addresses = [\"fe80::1\"]")));
        assert!(is_usage(engine("cores = [0, 1]")));
        assert!(toml::from_str::<Config>("congestion = \"vegas\"").is_err());
        assert!(is_usage(read("netns = \"x\"").tap().map(drop)));
        assert!(toml::from_str::<Config>("tpa = \"x\"").is_err());
    }

    #[test]
    fn an_address_of_ipv6_turns_ipv6_on() {
        let engine = |text: &str| read(text).engine("/tmp/s".into());
        let config =
            engine("tap = \"sc0\"\naddresses = [\"10.77.0.2/24\", \"fd00::2/64\"]").unwrap();
        assert_eq!(
            (config.addresses.len(), config.ipv6.addresses.len()),
            (1, 1)
        );
        assert!(config.ipv6.enabled && config.ipv6.gateway.is_none());
        let only = engine("tap = \"sc0\"\nipv6 = true\ngateway6 = \"fe80::1\"").unwrap();
        assert!(only.ipv6.enabled && only.ipv6.gateway.is_some() && only.addresses.is_empty());
        assert!(
            !engine("addresses = [\"10.77.0.2/24\"]")
                .unwrap()
                .ipv6
                .enabled
        );
        assert!(engine("addresses = [\"fd00::2/129\"]").is_err_and(|e| e.is::<crate::Usage>()));
        let tap = read("tap = \"sc0\"\nhost_addresses = [\"fd00::1/64\"]")
            .tap()
            .unwrap();
        assert_eq!(
            tap.unwrap().host_addresses,
            [("fd00::1".parse().unwrap(), 64)]
        );
    }
}
