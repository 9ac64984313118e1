//! Instructions for 64-byte requests and answers between two applications of one engine: client library, engine and stack, both ends.
//! One round is four crossings: send, deliver, answer, deliver; divide a benchmark's count by `ROUNDS * CONNECTIONS * 2` for one end.
#![allow(missing_docs, reason = "the benchmark's macros make public items")]

use std::hint::black_box;
use std::net::SocketAddr;

use gungraun::{library_benchmark, library_benchmark_group, main};
use sidecore_abi::EventKind;
use sidecore_client::{Dti, EventQueue, Lane, Region, Ual, UalConfig};
use sidecore_engine::{Engine, EngineConfig, EngineControlHandle};

const SIZE: u32 = 64;
const ROUNDS: u32 = 100;

struct World {
    engine: Engine,
    _control: EngineControlHandle,
    ual: Ual,
    lane: Lane,
    evq: EventQueue,
    region: Region,
    clients: Vec<Dti>,
}

fn world(connections: u32) -> World {
    let address: SocketAddr = "10.9.0.1:7000".parse().unwrap();
    let config = EngineConfig {
        addresses: vec!["10.9.0.1/24".parse().unwrap()],
        seed: Some([1; 32]),
        ..EngineConfig::default()
    };
    let (engine, control) = Engine::new(config).unwrap();
    let ual = Ual::open_on(control.connect().unwrap(), &UalConfig::default()).unwrap();
    let (lane, evq) = (ual.lane().unwrap(), ual.event_queue().unwrap());
    let region = ual.allocate_region(4096, false).unwrap();
    let mut w = World {
        engine,
        _control: control,
        ual,
        lane,
        evq,
        region,
        clients: Vec::new(),
    };
    let listener = w.lane.create_stream(&w.evq, &w.evq).unwrap();
    w.lane.bind(listener, address, 0).unwrap();
    w.lane.listen(listener, 1024, 0).unwrap();
    for _ in 0..connections {
        let child = w.lane.create_stream(&w.evq, &w.evq).unwrap();
        w.lane.accept(listener, child, 0).unwrap();
        let dti = w.lane.create_stream(&w.evq, &w.evq).unwrap();
        w.lane.connect(dti, address, 0).unwrap();
        w.clients.push(dti);
        let mut done = 0;
        while done < 2 {
            w.lane.flush();
            w.engine.turn();
            while let Some(event) = w.evq.poll() {
                done += u32::from(matches!(
                    event.kind,
                    EventKind::Connected | EventKind::Accepted
                ));
            }
        }
    }
    // Warm: windows, estimators and pools are where they will be.
    rounds(w, 20)
}

fn rounds(mut w: World, rounds: u32) -> World {
    let extent = w.region.extent(0, SIZE).unwrap();
    let mut buffer = [0u8; SIZE as usize];
    for _ in 0..rounds {
        for dti in &w.clients {
            w.lane.send_copy(*dti, extent, 0, 0).unwrap();
        }
        w.lane.flush();
        let mut left = 2 * w.clients.len();
        while left > 0 {
            w.engine.turn();
            while let Some(event) = w.evq.poll() {
                if event.kind != EventKind::Received {
                    continue;
                }
                left -= 1;
                w.ual.pool().read(&event, &mut buffer);
                w.lane.return_chunk(&event);
                let dti = Dti::from(event.dti);
                if !w.clients.contains(&dti) {
                    w.lane.send_copy(dti, extent, 0, 0).unwrap();
                }
            }
            w.lane.flush();
        }
    }
    w
}

#[library_benchmark]
#[bench::one(world(1))]
#[bench::eight(world(8))]
fn request(world: World) -> World {
    black_box(rounds(world, ROUNDS))
}

fn idle_world() -> World {
    let mut w = world(1);
    for _ in 0..20_000 {
        w.engine.turn();
    }
    w
}

#[library_benchmark]
#[bench::one(idle_world())]
fn empty_turns(mut world: World) -> World {
    for _ in 0..ROUNDS {
        black_box(world.engine.turn());
    }
    world
}

library_benchmark_group!(name = engine, benchmarks = [request, empty_turns]);
main!(library_benchmark_groups = engine);
