//! What the counted benchmarks share: an engine with its application, and how their instructions are counted.

use gungraun::{Callgrind, EntryPoint, EventKind, LibraryBenchmarkConfig};
use sidecore_client::{EventQueue, Lane, Region, Ual, UalConfig};
use sidecore_engine::{Device, Engine, EngineConfig, EngineControlHandle};
use sidecore_nic::{AnyNic, wire};

/// How many times slower everything runs while it is counted, about: the engines' clocks go so much slower, too, or the timer wheel would turn once a request.
const SLOWDOWN: u32 = 50;

/// An engine and its application.
pub(crate) struct End {
    pub(crate) engine: Engine,
    pub(crate) _control: EngineControlHandle,
    pub(crate) ual: Ual,
    pub(crate) lane: Lane,
    pub(crate) evq: EventQueue,
    pub(crate) region: Region,
}

impl End {
    pub(crate) fn new(nic: wire::Wire, address: &str) -> Self {
        let config = EngineConfig {
            device: Device::Nic(Box::new(AnyNic::from(nic))),
            addresses: vec![address.parse().unwrap()],
            connections: 1024,
            seed: Some([1; 32]),
            clock_slowdown: SLOWDOWN,
            ..EngineConfig::default()
        };
        let (engine, control) = Engine::new(config).unwrap();
        let ual = Ual::open_on(control.connect().unwrap(), &UalConfig::default()).unwrap();
        Self {
            engine,
            _control: control,
            lane: ual.lane().unwrap(),
            evq: ual.event_queue().unwrap(),
            region: ual.allocate_region(4096, false).unwrap(),
            ual,
        }
    }
}

/// Counts what runs below one function, and fails when that is more than `limit` instructions for each of so many.
pub(crate) fn counted(function: &str, limit: u64, times: usize) -> LibraryBenchmarkConfig {
    let tool = Callgrind::default()
        .entry_point(EntryPoint::Custom(format!("*::{function}")))
        .hard_limits([(EventKind::Ir, limit * times as u64)])
        .clone();
    LibraryBenchmarkConfig::default().tool(tool).clone()
}
