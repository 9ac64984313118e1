//! IPv6 through a TAP: one server for both versions, the kernel's TCP and curl on the other side.

use std::io::{Read, Write};
use std::net::{Ipv6Addr, Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Result, ensure};
use sha2::{Digest, Sha256};
use sidecore_e2e::Ground;
use sidecore_e2e::ground::available;
use sidecore_e2e::service::{Kind, Service, hex};
use sidecore_e2e::transfers::{Set, generate, web_config, web_server, write_files};
use sidecore_userver::Config;

/// The engine's address, and the kernel's.
const ENGINE6: &str = "fd77::2";
const HOST6: &str = "fd77::1";

fn ground() -> Result<Ground> {
    let ground = Ground::with(|config| {
        config.ipv6.enabled = true;
        // The test is alone on its link: nobody else can have the address.
        config.ipv6.dad_transmits = 0;
        let address = format!("{ENGINE6}/64").parse().expect("a network");
        config.ipv6.addresses.push(address);
    })?;
    let host = format!("{HOST6}/64");
    let device = ground.name().to_owned();
    ground.ip(&["-6", "addr", "add", &host, "dev", &device, "nodad"])?;
    Ok(ground)
}

#[test]
fn one_web_server_for_both_versions() -> Result<()> {
    if !available() {
        return Ok(());
    }
    let ground = ground()?;
    let set = Set {
        files: 6,
        largest: 3_000_000,
        giants: 2,
        at_a_time: 1,
    };
    let root = ground.folder().join("www");
    let digests = write_files(&set, &root)?;
    let config = Config {
        listen: SocketAddr::from((Ipv6Addr::UNSPECIFIED, 80)),
        ..web_config(&root, 80)
    };
    let server = web_server(&ground, config)?;
    for (index, digest) in digests.iter().enumerate() {
        for host in [format!("[{ENGINE6}]"), "10.77.0.2".into()] {
            let url = format!("http://{host}/{index}.bin");
            let output = ground
                .command("curl")
                .args(["-sS", "-g", "--max-time", "30", &url])
                .output()?;
            let error = String::from_utf8_lossy(&output.stderr).into_owned();
            ensure!(output.status.success(), "{url}: {error}");
            let mut seen = Sha256::new();
            seen.update(&output.stdout);
            ensure!(hex(&seen) == *digest, "{url}: other bytes came");
        }
    }
    server.stop().map_err(|error| anyhow::anyhow!("{error}"))?;
    Ok(())
}

#[test]
fn uploads_over_ipv6_arrive_byte_for_byte() -> Result<()> {
    if !available() {
        return Ok(());
    }
    let ground = ground()?;
    let address: SocketAddr = format!("[{ENGINE6}]:9").parse()?;
    let _sink = Service::start(ground.ual()?, address, Kind::Digest)?;
    for (index, size) in [0, 1, 1440, 70_000, 5_000_000].into_iter().enumerate() {
        let mut stream =
            ground.inside(|| TcpStream::connect_timeout(&address, Duration::from_secs(10)))?;
        stream.set_read_timeout(Some(Duration::from_secs(30)))?;
        let mut digest = Sha256::new();
        generate(index, size, |piece| {
            digest.update(piece);
            Ok(stream.write_all(piece)?)
        })?;
        stream.shutdown(Shutdown::Write)?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        assert_eq!(answer, hex(&digest), "{size} bytes");
    }
    Ok(())
}
