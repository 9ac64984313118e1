//! The smallest engine: a TAP device, an address on each side, an agent socket. Ends with the process.
//!
//! `cargo run --release -p sidecore-engine --example engine_on_tap -- NAME HOST_CIDR ENGINE_CIDR SOCKET [NETNS]`

use std::error::Error;

use sidecore_engine::{Cidr, Device, Engine, EngineConfig};
use sidecore_nic::{Tap, TapConfig};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [name, host, ours, socket, rest @ ..] = arguments.as_slice() else {
        return Err("usage: engine_on_tap NAME HOST_CIDR ENGINE_CIDR SOCKET [NETNS]".into());
    };
    let host: Cidr = host.parse()?;
    let tap = Tap::create(TapConfig {
        name: name.clone(),
        host_addresses: vec![(host.address.into(), host.prefix)],
        netns: rest.first().cloned(),
        ..TapConfig::default()
    })?;
    let engine = Engine::spawn(EngineConfig {
        socket: Some(socket.into()),
        device: Device::Nic(Box::new(tap.into())),
        addresses: vec![ours.parse()?],
        ..EngineConfig::default()
    })?;
    println!(
        "ready {}",
        engine.socket_path().unwrap_or(socket.as_ref()).display()
    );
    engine.join();
    Ok(())
}
