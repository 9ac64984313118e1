//! The engine's address from a real DHCP server, dnsmasq.

use std::net::{Ipv4Addr, SocketAddr};
use std::process::{Child, Stdio};

use anyhow::{Context, Result, ensure};
use sidecore_e2e::Ground;
use sidecore_e2e::ground::available;
use sidecore_e2e::transfers::{Set, web_config, web_server, write_files};
use sidecore_userver::Config;

/// Ends with the test.
struct Server(Child);

impl Server {
    fn start(ground: &Ground) -> Result<Self> {
        let folder = ground.folder();
        let child = ground
            .command("dnsmasq")
            .args(["--keep-in-foreground", "--conf-file=/dev/null", "--port=0"])
            .args([
                "--user=root",
                "--pid-file=",
                "--bind-interfaces",
                "--no-ping",
            ])
            .arg(format!("--interface={}", ground.name()))
            .arg("--dhcp-range=10.77.0.100,10.77.0.110,255.255.255.0,1h")
            .arg(format!(
                "--dhcp-leasefile={}",
                folder.join("leases").display()
            ))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        Ok(Self(child.context("dnsmasq cannot be started")?))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn an_engine_without_an_address_gets_one() -> Result<()> {
    if !available() {
        return Ok(());
    }
    let ground = Ground::with(|config| {
        config.addresses.clear();
        config.dhcp = true;
    })?;
    let _server = Server::start(&ground)?;
    ground.eventually("the engine has a lease", |stat| stat["dhcp"].is_object());
    let lease = ground.stat()["dhcp"].clone();
    let address = lease["address"].as_str().unwrap_or_default();
    let (ip, prefix) = address.split_once('/').context("an address")?;
    ensure!(ip.starts_with("10.77.0.10") && prefix == "24", "{lease}");
    ensure!(
        lease["router"] == "10.77.0.1" && lease["server"] == "10.77.0.1",
        "{lease}"
    );
    let left = lease["seconds_left"].as_u64();
    ensure!(
        left.is_some_and(|left| (3000..=3600).contains(&left)),
        "{lease}"
    );

    // The kernel reaches what listens there.
    let set = Set {
        files: 1,
        largest: 100_000,
        giants: 0,
        at_a_time: 1,
    };
    let root = ground.folder().join("www");
    write_files(&set, &root)?;
    let config = Config {
        listen: SocketAddr::from((Ipv4Addr::UNSPECIFIED, 80)),
        ..web_config(&root, 80)
    };
    let server = web_server(&ground, config)?;
    let url = format!("http://{ip}/0.bin");
    let output = ground
        .command("curl")
        .args(["-sSf", "--max-time", "30", &url])
        .output()?;
    ensure!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    ensure!(
        output.stdout == std::fs::read(root.join("0.bin"))?,
        "other bytes came"
    );
    server.stop().map_err(|error| anyhow::anyhow!("{error}"))?;
    Ok(())
}
