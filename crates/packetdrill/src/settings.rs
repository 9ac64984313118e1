//! `--so_flags` and sysctls, and what they mean to the stack.
//!
//! Flags are words between commas: `time=real`, `mtu=1500`, `local=192.168.0.1/16` (again for each address), `gateway=`,
//! `receive_buffer=`, and every sysctl below `net.ipv4` by its name: `tcp_sack=0`. What is unknown is taken and means nothing.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::str::FromStr;
use std::time::Duration;

use sidecore_stack::StackConfig;
use sidecore_tcp::{Algorithm, Config, Ecn};
use sidecore_testkit::sockets::{FastOpenPolicy, Sockets, SocketsConfig};
use sidecore_wire::WindowScale;

/// What packetdrill's own suite sets before each script, as far as it means something here.
const SUITE: [(&str, &str); 12] = [
    ("tcp_rmem", "4096 540000 15728640"),
    ("tcp_wmem", "4096 262144 4194304"),
    ("tcp_timestamps", "1"),
    ("tcp_syn_retries", "5"),
    ("tcp_sack", "1"),
    ("tcp_congestion_control", "cubic"),
    ("tcp_slow_start_after_idle", "0"),
    ("tcp_ecn", "0"),
    ("tcp_fastopen", "0x70403"),
    ("tcp_fastopen_key", "a1a1a1a1-b2b2b2b2-c3c3c3c3-d4d4d4d4"),
    ("tcp_min_tso_segs", "2"),
    ("tso", "1"),
];

/// The addresses that the suite's runner and scripts name, and the routers to everything else.
const ADDRESSES: [&str; 4] = [
    "192.168.0.1/16",
    "192.168.0.2/16",
    "192.168.0.3/16",
    "fd3d:0a0b:17d6::1/48",
];
const GATEWAYS: [&str; 2] = ["192.168.255.254", "fd3d:0a0b:17d6:ffff::fe"];

/// Early connections of a listener that does not say how many, where all have some.
const FAST_OPEN_QUEUE: u32 = 16;

/// What Linux adds to the reordering window, and rounds it up by: two ticks of its clock, and part of one, at 250 Hz.
const REORDERING_SLACK: Duration = Duration::from_millis(13);

/// Bytes of receive buffer: what Linux advertises first, 64 KiB.
const RECEIVE_BUFFER: usize = 65536;

/// What was set.
#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) real_time: bool,
    addresses: Vec<String>,
    gateways: Vec<String>,
    mtu: u16,
    receive_buffer: usize,
    sysctls: BTreeMap<String, String>,
}

impl Default for Settings {
    fn default() -> Self {
        let owned = |words: &[&str]| words.iter().map(ToString::to_string).collect();
        let mut settings = Self {
            real_time: false,
            addresses: owned(&ADDRESSES),
            gateways: owned(&GATEWAYS),
            mtu: 1500,
            receive_buffer: RECEIVE_BUFFER,
            sysctls: BTreeMap::new(),
        };
        settings.set_suite();
        settings
    }
}

fn parsed<T: FromStr>(name: &str, value: &str) -> Result<T, String> {
    value
        .parse()
        .map_err(|_| format!("{name}={value}: not understood"))
}

/// A number as sysctls have them: decimal, or hexadecimal with 0x.
fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    }
}

/// A key as `tcp_fastopen_key` has it: four numbers of 32 bits, which are stored with their lowest byte first.
fn key(text: &str) -> Option<[u8; 16]> {
    let mut key = [0; 16];
    let mut words = text.split('-');
    for place in key.chunks_exact_mut(4) {
        let word = u32::from_str_radix(words.next()?, 16).ok()?;
        place.copy_from_slice(&word.to_le_bytes());
    }
    Some(key)
}

impl Settings {
    /// Reads `--so_flags`.
    pub(crate) fn set_flags(&mut self, flags: &str) -> Result<(), String> {
        let mut own_addresses = false;
        for flag in flags.split(',').filter(|flag| !flag.is_empty()) {
            let (name, value) = flag.split_once('=').unwrap_or((flag, "1"));
            match name {
                "time" => self.real_time = value == "real",
                "mtu" => self.mtu = parsed(name, value)?,
                "receive_buffer" => self.receive_buffer = parsed(name, value)?,
                "local" => {
                    let (address, _) = value.split_once('/').unwrap_or((value, ""));
                    parsed::<IpAddr>(name, address)?;
                    if !own_addresses {
                        self.addresses.clear();
                    }
                    own_addresses = true;
                    self.addresses.push(value.to_string());
                }
                "gateway" => {
                    let six = parsed::<IpAddr>(name, value)?.is_ipv6();
                    self.gateways.retain(|other| other.contains(':') != six);
                    self.gateways.push(value.to_string());
                }
                _ => self.set(name, value),
            }
        }
        Ok(())
    }

    /// Sets a sysctl, by its name below `net.ipv4`.
    pub(crate) fn set(&mut self, name: &str, value: &str) {
        self.sysctls.insert(name.to_string(), value.to_string());
    }

    /// Sets what the suite sets before each script.
    pub(crate) fn set_suite(&mut self) {
        for (name, value) in SUITE {
            self.set(name, value);
        }
    }

    fn word(&self, name: &str, at: usize) -> Option<&str> {
        self.sysctls.get(name)?.split_whitespace().nth(at)
    }

    fn number(&self, name: &str, at: usize) -> Option<u64> {
        number(self.word(name, at)?)
    }

    fn is_on(&self, name: &str) -> bool {
        self.number(name, 0).is_some_and(|value| value != 0)
    }

    /// What connections are set up with.
    pub(crate) fn tcp(&self) -> Config {
        let retries = self.number("tcp_syn_retries", 0).unwrap_or(6);
        Config {
            timestamps: self.is_on("tcp_timestamps"),
            sack: self.is_on("tcp_sack"),
            congestion: match self.word("tcp_congestion_control", 0) {
                Some("reno") => Algorithm::NewReno,
                Some("dctcp") => Algorithm::Dctcp,
                _ => Algorithm::Cubic,
            },
            window_scale: Some(self.window_scale()),
            ecn: match self.number("tcp_ecn", 0) {
                Some(0) => Ecn::Off,
                Some(2) => Ecn::Accept,
                _ => Ecn::Request,
            },
            min_rto_above_srtt: true,
            reordering_slack: REORDERING_SLACK,
            quick_ack: true,
            syn_retries: retries.try_into().unwrap_or(u8::MAX),
            ..Config::default()
        }
    }

    /// What sockets that exist are told, too: it is for connections that begin from now on.
    pub(crate) fn tell(&self, sockets: &mut Sockets) {
        sockets.set_defaults(self.tcp());
        let bits = self.number("tcp_fastopen", 0).unwrap_or(1);
        sockets.set_fast_open(FastOpenPolicy {
            client: bits & 1 != 0,
            server: bits & 2 != 0,
            queue: if bits & 0x400 != 0 {
                FAST_OPEN_QUEUE
            } else {
                0
            },
            caution: self.number("tcp_fastopen_blackhole_timeout_sec", 0) != Some(0),
        });
        if let Some(key) = self.word("tcp_fastopen_key", 0).and_then(key) {
            sockets.set_fast_open_key(key);
        }
    }

    /// The least with which the largest receive buffer fits into the window.
    fn window_scale(&self) -> WindowScale {
        let largest = self.number("tcp_rmem", 2).unwrap_or(6 << 20);
        let scale = (0..14).find(|scale| largest >> scale <= 65535);
        WindowScale::new(scale.unwrap_or(14))
    }

    /// What the sockets are made of.
    pub(crate) fn sockets(&self) -> SocketsConfig {
        let mut stack = StackConfig {
            mtu: self.mtu,
            max_connections: 256,
            max_listeners: 64,
            max_udp_sockets: 64,
            ranges: 8192,
            tcp: self.tcp(),
            ..StackConfig::default()
        };
        stack.ipv6.enabled = true;
        for address in &self.addresses {
            if let Ok(four) = address.parse() {
                stack.addresses.push(four);
            } else if let Ok(six) = address.parse() {
                stack.ipv6.addresses.push(six);
            }
        }
        for gateway in &self.gateways {
            match gateway.parse() {
                Ok(IpAddr::V4(four)) => stack.gateway = Some(four),
                Ok(IpAddr::V6(six)) => stack.ipv6.gateway = Some(six),
                Err(_) => {}
            }
        }
        let mut config = SocketsConfig::new(stack);
        config.receive_buffer = self.receive_buffer;
        config.tso_max = 65535;
        config.uncut = self.is_on("tso");
        config.tso_min_segments = self.number("tcp_min_tso_segs", 0).unwrap_or(2) as u32;
        let send_buffer = self.number("tcp_wmem", 1).unwrap_or(1 << 20);
        config.send_buffer = send_buffer as usize;
        config
    }
}
