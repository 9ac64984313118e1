//! Lines `--option=value` before a script's first event.

use std::net::IpAddr;
use std::time::Duration;

use sidecore_stack::{StackConfig, SynCookies};
use sidecore_tcp::{Algorithm, Ecn, LossDetection, MtuProbing};
use sidecore_wire::WindowScale;

use crate::sockets::SocketsConfig;

/// Whose packets a script writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Hosts {
    pub(super) local: IpAddr,
    pub(super) remote: IpAddr,
}

/// What a script is run with.
#[derive(Clone, Debug)]
pub(super) struct Settings {
    pub(super) sockets: SocketsConfig,
    pub(super) v4: bool,
    pub(super) v6: bool,
    pub(super) tolerance_us: u64,
    /// The peer's initial sequence number where a script says 0.
    pub(super) remote_isn: u32,
}

impl Default for Settings {
    fn default() -> Self {
        let address = |text: &str| text.parse().expect("an address");
        let mut stack = StackConfig {
            addresses: vec!["192.168.0.1/16".parse().expect("an address")],
            gateway: Some("192.168.0.254".parse().expect("an address")),
            max_connections: 256,
            ranges: 4096,
            seed: [7; 32],
            ..StackConfig::default()
        };
        stack.ipv6.enabled = true;
        stack.ipv6.addresses = vec!["fd3d:fa7b:d17d::1/48".parse().expect("an address")];
        stack.ipv6.gateway = Some(address("fe80::ffff"));
        Self {
            sockets: SocketsConfig::new(stack),
            v4: true,
            v6: false,
            tolerance_us: 2000,
            remote_isn: 0x1234_5678,
        }
    }
}

fn number<T: std::str::FromStr>(value: &str) -> Option<T> {
    value.parse().ok()
}

fn switch(value: &str) -> Option<bool> {
    match value {
        "on" => Some(true),
        "off" => Some(false),
        _ => None,
    }
}

/// `40ms`, `60s`.
fn duration(value: &str) -> Option<Duration> {
    if let Some(millis) = value.strip_suffix("ms") {
        return number(millis).map(Duration::from_millis);
    }
    number(value.strip_suffix('s')?).map(Duration::from_secs)
}

impl Settings {
    /// The hosts of the version that is being run.
    pub(super) fn hosts(six: bool) -> Hosts {
        let address = |text: &str| text.parse().expect("an address");
        if six {
            Hosts {
                local: address("fd3d:fa7b:d17d::1"),
                remote: address("2001:db8::1"),
            }
        } else {
            Hosts {
                local: address("192.168.0.1"),
                remote: address("192.0.2.1"),
            }
        }
    }

    /// Sets one; `None` if there is none of that name, or its value cannot be.
    pub(super) fn set(&mut self, name: &str, value: &str) -> Option<()> {
        let sockets = &mut self.sockets;
        match name {
            "ip_version" => {
                (self.v4, self.v6) = match value {
                    "ipv4" => (true, false),
                    "ipv6" => (false, true),
                    "both" => (true, true),
                    _ => return None,
                };
            }
            "tolerance_usecs" => self.tolerance_us = number(value)?,
            "remote_isn" => self.remote_isn = number(value)?,
            "receive_buffer" => sockets.receive_buffer = number(value)?,
            "send_buffer" => sockets.send_buffer = number(value)?,
            "tso" => {
                sockets.tso_max = number(value)?;
                sockets.uncut = true;
            }
            "mtu" => sockets.stack.mtu = number(value)?,
            "max_connections" => sockets.stack.max_connections = number(value)?,
            "syn_backlog" => sockets.stack.syn_backlog_total = number(value)?,
            "syn_cookies" => {
                sockets.stack.syn_cookies = match value {
                    "off" => SynCookies::Off,
                    "on_overflow" => SynCookies::OnOverflow,
                    "always" => SynCookies::Always,
                    _ => return None,
                };
            }
            "icmp_error_burst" => sockets.stack.icmp_error_rate.burst = number(value)?,
            "icmp_error_rate" => sockets.stack.icmp_error_rate.per_second = number(value)?,
            _ => return self.set_tcp(name, value),
        }
        Some(())
    }

    fn set_tcp(&mut self, name: &str, value: &str) -> Option<()> {
        let tcp = &mut self.sockets.stack.tcp;
        match name {
            "congestion" => {
                tcp.congestion = match value {
                    "reno" => Algorithm::NewReno,
                    "cubic" => Algorithm::Cubic,
                    "dctcp" => Algorithm::Dctcp,
                    _ => return None,
                };
            }
            "loss_detection" => {
                tcp.loss_detection = match value {
                    "rack" => LossDetection::Rack,
                    "dupthresh" => LossDetection::DupThresh,
                    _ => return None,
                };
            }
            "window_scale" => {
                tcp.window_scale = match value {
                    "off" => None,
                    shift => Some(WindowScale::new(number(shift)?)),
                };
            }
            "ecn" => {
                tcp.ecn = match value {
                    "off" => Ecn::Off,
                    "accept" => Ecn::Accept,
                    "request" => Ecn::Request,
                    _ => return None,
                };
            }
            "mtu_probing" => {
                tcp.mtu_probing = match value {
                    "off" => MtuProbing::Off,
                    "on_black_hole" => MtuProbing::OnBlackHole,
                    "always" => MtuProbing::Always,
                    _ => return None,
                };
            }
            "base_mss" => tcp.base_mss = number(value)?,
            "timestamps" => tcp.timestamps = switch(value)?,
            "require_timestamps" => tcp.require_timestamps = switch(value)?,
            "sack" => tcp.sack = switch(value)?,
            "no_delay" => tcp.no_delay = switch(value)?,
            "initial_window" => tcp.initial_window_segments = number(value)?,
            "abc_segments" => tcp.abc_segments = number(value)?,
            "max_burst" => tcp.max_burst = number(value)?,
            "syn_retries" => tcp.syn_retries = number(value)?,
            "delayed_ack" => tcp.delayed_ack = duration(value)?,
            "min_rto" => tcp.min_rto = duration(value)?,
            "max_rto" => tcp.max_rto = duration(value)?,
            "initial_rto" => tcp.initial_rto = duration(value)?,
            "time_wait" => tcp.time_wait = duration(value)?,
            "fin_wait_2_timeout" => tcp.fin_wait_2_timeout = duration(value)?,
            "user_timeout" => tcp.user_timeout = Some(duration(value)?),
            _ => return None,
        }
        Some(())
    }
}
