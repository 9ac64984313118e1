//! How long a turn of the loop takes that finds nothing, with one application and the wire driver: nanoseconds, the fastest and the middle of many
//! samples.
//!
//! `cargo run --release -p sidecore-engine --example empty_turn`

use std::error::Error;
use std::hint::black_box;
use std::time::Instant;

use sidecore_client::{Ual, UalConfig};
use sidecore_engine::{Device, Engine, EngineConfig};
use sidecore_nic::{AnyNic, WireConfig, wire};

const TURNS: u32 = 1000;
const SAMPLES: usize = 2000;

fn main() -> Result<(), Box<dyn Error>> {
    let (nic, _peer) = wire::pair(&WireConfig::default())?;
    let (mut engine, control) = Engine::new(EngineConfig {
        device: Device::Nic(Box::new(AnyNic::from(nic))),
        addresses: vec!["10.9.0.1/24".parse()?],
        connections: 1024,
        ..EngineConfig::default()
    })?;
    let _ual = Ual::open_on(control.connect()?, &UalConfig::default())?;
    // Until the engine has parked the lanes that nobody uses.
    for _ in 0..10_000 {
        engine.turn();
    }
    let mut samples: Vec<f64> = (0..SAMPLES)
        .map(|_| {
            let begun = Instant::now();
            for _ in 0..TURNS {
                black_box(engine.turn());
            }
            begun.elapsed().as_nanos() as f64 / f64::from(TURNS)
        })
        .collect();
    samples.sort_by(f64::total_cmp);
    println!(
        "empty turn: {:.1} ns (the middle of {SAMPLES} samples: {:.1} ns)",
        samples[0],
        samples[SAMPLES / 2]
    );
    Ok(())
}
