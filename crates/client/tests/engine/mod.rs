//! A real engine without a device, in a thread: everything goes over its loopback.
#![allow(dead_code, reason = "each test uses a part of it")]

use std::time::Duration;

use sidecore_client::{Sockets, SocketsConfig, Ual, UalConfig};
use sidecore_engine::{Engine, EngineConfig, EngineHandle};

pub(crate) const ADDRESS: &str = "10.9.0.1";

pub(crate) fn start() -> EngineHandle {
    let config = EngineConfig {
        addresses: vec!["10.9.0.1/24".parse().unwrap()],
        seed: Some([7; 32]),
        drain: Duration::from_millis(50),
        ..EngineConfig::default()
    };
    Engine::spawn(config).unwrap()
}

pub(crate) fn open(engine: &EngineHandle, config: &UalConfig) -> Ual {
    Ual::open_on(engine.connect().unwrap(), config).unwrap()
}

/// Sockets with a UAL of their own.
pub(crate) fn group(engine: &EngineHandle) -> Sockets {
    group_with(engine, 1024, SocketsConfig::default())
}

pub(crate) fn group_with(engine: &EngineHandle, dtis: u32, config: SocketsConfig) -> Sockets {
    let wishes = UalConfig {
        lanes: 1,
        evqs: 1,
        wait_cells: 1,
        dtis,
        ..UalConfig::default()
    };
    Sockets::new(&open(engine, &wishes), config).unwrap()
}
