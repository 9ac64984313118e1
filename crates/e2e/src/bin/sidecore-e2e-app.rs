//! An application that a test can kill: a process of its own with a service on somebody else's engine.
//!
//! `sidecore-e2e-app SOCKET ADDRESS echo` serves echoes; `… burst BYTES` sends so many bytes to whoever connects and never closes.
//! `sidecore-e2e-app engine NAME SOCKET` is an engine on a TAP in the namespace of that name.
//! It prints one line when it is ready, and one for each burst that is posted; it ends when its input does.
#![forbid(unsafe_code)]

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use sidecore_abi::{EventKind, Status};
use sidecore_client::{Ual, UalConfig};
use sidecore_e2e::service::{Kind, Service};

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [role, name, socket] = arguments.as_slice()
        && role == "engine"
    {
        return sidecore_e2e::ground::run_apart(name, socket.into());
    }
    let [socket, address, role, rest @ ..] = arguments.as_slice() else {
        bail!("usage: sidecore-e2e-app SOCKET ADDRESS echo|burst [BYTES], or engine NAME SOCKET");
    };
    let ual = Ual::open(socket, &UalConfig::default())?;
    let address: SocketAddr = address.parse()?;
    match (role.as_str(), rest) {
        ("echo", []) => {
            let _echo = Service::start(ual, address, Kind::Echo)?;
            say("ready");
            let _ = std::io::stdin().read(&mut [0])?;
            Ok(())
        }
        ("burst", [bytes]) => burst(&ual, address, bytes.parse()?),
        _ => bail!("no such role"),
    }
}

fn say(what: &str) {
    println!("{what}");
    let _ = std::io::stdout().flush();
}

/// Bytes of one send.
const PIECE: u32 = 1 << 16;

fn burst(ual: &Ual, address: SocketAddr, bytes: u32) -> Result<()> {
    let (mut lane, mut evq) = (ual.lane()?, ual.event_queue()?);
    let region = ual.allocate_region(bytes.into(), false)?;
    for at in (0..bytes).step_by(4096) {
        region.write(at.into(), &(at / 4096).to_le_bytes())?;
    }
    let listener = lane.create_stream(&evq, &evq)?;
    lane.bind(listener, address, 0)?;
    lane.listen(listener, 16, 0)?;
    let child = lane.create_stream(&evq, &evq)?;
    lane.accept(listener, child, 0)?;
    lane.flush();
    let mut answers = 0;
    loop {
        ensure!(evq.wait(Some(Duration::from_secs(60)))?, "nothing happens");
        while let Some(event) = evq.poll() {
            ensure!(event.status == Status::Ok, "{event:?}");
            answers += 1;
            if answers == 2 {
                say("ready");
            }
            if event.kind == EventKind::Accepted {
                for at in (0..bytes).step_by(PIECE as usize) {
                    let extent = region.extent(at.into(), PIECE.min(bytes - at))?;
                    lane.send(child, extent, 0, 0).context("send")?;
                }
                lane.flush();
                say("sent");
            }
        }
    }
}
