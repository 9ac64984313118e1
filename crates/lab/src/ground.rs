//! The ground of a run: network namespaces and veth pairs, with names of this process, removed when they are dropped.
//!
//! Should the program be killed, the next one removes what is left: names contain the number of their process.

use std::fs;
use std::net::Ipv4Addr;
use std::process::Command;

use anyhow::{Context, bail};
use sidecore_sys::{netns, privileges};

/// What our names begin with.
const PREFIX: &str = "sclab";

/// A network namespace.
#[derive(Debug)]
pub struct Namespace {
    name: String,
}

impl Namespace {
    /// Makes one, with loopback up and all ports free for connections. `tag`: what it is for, in a few letters.
    pub fn create(tag: &str) -> anyhow::Result<Self> {
        if !privileges::can_administer_network() {
            bail!(
                "making network namespaces needs root: run it with sudo, or let `sidecore lab` make a user namespace"
            );
        }
        remove_left_over();
        let name = format!("{PREFIX}{}-{tag}", std::process::id());
        netns::create_named(&name).with_context(|| format!("network namespace {name}"))?;
        let namespace = Self { name };
        namespace.ip(&["link", "set", "lo", "up"])?;
        namespace.sysctl("net/ipv4/ip_local_port_range", "1024 65535")?;
        Ok(namespace)
    }

    /// Its name, as `ip netns` knows it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Runs `ip` inside.
    pub fn ip(&self, arguments: &[&str]) -> anyhow::Result<()> {
        ip(&[&["-n", &self.name], arguments].concat())
    }

    /// Has frames that come in by a device received on one processor, whoever sent them (receive packet steering); `None`: where the sender
    /// is, as it is by default.
    pub fn receive_on(&self, device: &str, core: Option<usize>) -> anyhow::Result<()> {
        let mask = core.map_or(0, |core| 1u128 << core);
        // 32 processors in each group, the highest first.
        let groups: Vec<String> = (0..4)
            .rev()
            .map(|group| format!("{:08x}", (mask >> (32 * group)) as u32))
            .collect();
        let count = std::thread::available_parallelism().map_or(1, usize::from);
        let groups = groups[groups.len() - count.div_ceil(32).clamp(1, 4)..].join(",");
        let file = format!("/sys/class/net/{device}/queues/rx-0/rps_cpus");
        // Its own view of /sys is what `ip netns exec` gives.
        let line = format!("echo {groups} > {file}");
        ip(&["netns", "exec", &self.name, "sh", "-c", &line])
    }

    /// Sets a variable below `/proc/sys` inside.
    pub fn sysctl(&self, variable: &str, value: &str) -> anyhow::Result<()> {
        let path = format!("/proc/sys/{variable}");
        netns::with_netns(&self.name, || fs::write(&path, value))?
            .with_context(|| format!("{path} in {}", self.name))
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = netns::delete_named(&self.name);
    }
}

/// Runs `ip` of iproute2.
fn ip(arguments: &[&str]) -> anyhow::Result<()> {
    let output = Command::new("ip")
        .args(arguments)
        .output()
        .context("cannot run `ip`: install the package iproute2")?;
    if !output.status.success() {
        let why = String::from_utf8_lossy(&output.stderr);
        bail!("ip {}: {}", arguments.join(" "), why.trim());
    }
    Ok(())
}

/// Removes namespaces of processes that are gone.
fn remove_left_over() {
    let Ok(entries) = fs::read_dir(netns::DIRECTORY) else {
        return;
    };
    for entry in entries.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if owner(&name).is_some_and(|pid| !fs::exists(format!("/proc/{pid}")).unwrap_or(true)) {
            let _ = netns::delete_named(&name);
        }
    }
}

/// The process that made a namespace of ours.
fn owner(name: &str) -> Option<u32> {
    name.strip_prefix(PREFIX)?.split_once('-')?.0.parse().ok()
}

/// Two namespaces joined by a veth pair: what kernel servers are measured over.
#[derive(Debug)]
pub struct VethGround {
    /// Where the client is.
    pub client: Namespace,
    /// Where the server is.
    pub server: Namespace,
    /// The server's address.
    pub address: Ipv4Addr,
}

impl VethGround {
    /// Makes namespaces and pair: 10.78.0.1 for the client, 10.78.0.2 for the server.
    pub fn create() -> anyhow::Result<Self> {
        let client = Namespace::create("vc")?;
        let server = Namespace::create("vs")?;
        let peer = ["peer", "name", "sc1", "netns", server.name()];
        client.ip(&[
            &["link", "add", "sc0", "txqueuelen", "10000", "type", "veth"],
            &peer[..],
        ]
        .concat())?;
        for (namespace, name, address) in [
            (&client, "sc0", "10.78.0.1/24"),
            (&server, "sc1", "10.78.0.2/24"),
        ] {
            namespace.ip(&["address", "add", address, "dev", name])?;
            namespace.ip(&["link", "set", name, "up"])?;
        }
        let address = Ipv4Addr::new(10, 78, 0, 2);
        Ok(Self {
            client,
            server,
            address,
        })
    }
}

impl VethGround {
    /// Each side's receive runs on its own processor (the server's, the client's), or where the sender is.
    pub fn steer(&self, cores: Option<(usize, usize)>) -> anyhow::Result<()> {
        self.server.receive_on("sc1", cores.map(|cores| cores.0))?;
        self.client.receive_on("sc0", cores.map(|cores| cores.1))
    }

    /// Chooses the congestion control of the server's connections, by an attribute of the route: namespaces may not choose as their default what
    /// the machine does not allow to everybody.
    pub fn congestion(&self, name: &str) -> anyhow::Result<()> {
        let route = [
            "route",
            "replace",
            "10.78.0.0/24",
            "dev",
            "sc1",
            "proto",
            "kernel",
            "scope",
            "link",
        ];
        let choice = ["src", "10.78.0.2", "congctl", name];
        self.server.ip(&[&route[..], &choice].concat())
    }
}

/// A namespace for a client whose server is a stack behind a TAP device in it.
#[derive(Debug)]
pub struct TapGround {
    /// Where the client is; the server makes the device and puts its kernel side there.
    pub client: Namespace,
}

impl TapGround {
    /// Makes the namespace.
    pub fn create(tag: &str) -> anyhow::Result<Self> {
        let client = Namespace::create(tag)?;
        Ok(Self { client })
    }

    /// The client's receive runs on its own processor, once the device is there: the server's stack does its own.
    pub fn steer(&self, client: usize) -> anyhow::Result<()> {
        self.client.receive_on(&self.tap().name, Some(client))
    }

    /// The device that a server is to make: 10.77.0.1 for the client, 10.77.0.2 for the server.
    pub fn tap(&self) -> crate::echo::tap::TapSpec {
        crate::echo::tap::TapSpec {
            name: "sctap0".into(),
            netns: Some(self.client.name().to_owned()),
            host: Ipv4Addr::new(10, 77, 0, 1),
            address: Ipv4Addr::new(10, 77, 0, 2),
            prefix: 24,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn namespaces_tell_their_owner() {
        assert_eq!(owner("sclab123-vc"), Some(123));
        for strange in ["sclab-vc", "sclabx-vc", "other1-vc", "sclab12"] {
            assert_eq!(owner(strange), None, "{strange}");
        }
    }

    #[test]
    fn a_veth_ground_carries_connections_and_vanishes() {
        if !privileges::can_administer_network() {
            eprintln!("skipped: needs CAP_NET_ADMIN");
            return;
        }
        let ground = VethGround::create().unwrap();
        let address = (ground.address, 0);
        let listen = || std::net::TcpListener::bind(address).unwrap();
        let listener = netns::with_netns(ground.server.name(), listen).unwrap();
        let target = listener.local_addr().unwrap();
        let connect = || std::net::TcpStream::connect(target);
        let stream = netns::with_netns(ground.client.name(), connect)
            .unwrap()
            .unwrap();
        assert_eq!(stream.peer_addr().unwrap(), target);
        let names = [
            ground.client.name().to_owned(),
            ground.server.name().to_owned(),
        ];
        drop(ground);
        assert!(names.iter().all(|name| netns::open_named(name).is_err()));
    }
}
