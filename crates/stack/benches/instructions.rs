//! Instructions that the stack takes for 64-byte requests, counted by valgrind: the host does nothing, and there is no
//! device. Divide a benchmark's count by [`REQUESTS`] for one request.
//!
//! `cargo bench -p sidecore-stack --bench instructions`; it needs valgrind and `cargo install gungraun-runner` of the same
//! version as the library.
#![allow(missing_docs, reason = "the benchmark's macros make public items")]

mod common;

use std::hint::black_box;

use common::{SIZE, World};
use gungraun::{library_benchmark, library_benchmark_group, main};
use sidecore_stack::RxChecksum;

/// A multiple of all numbers of connections.
const WARM: usize = 160;
const REQUESTS: usize = 1000;

/// A world in which the first requests were answered: estimators and windows are where they will be.
fn world(connections: usize, answered: bool, checksum: RxChecksum) -> World {
    let mut world = World::new(connections, WARM + REQUESTS, answered, checksum);
    for _ in 0..WARM {
        world.take_frame();
        if answered {
            world.answer();
        }
        world.end_turn();
    }
    world
}

// A request comes in, and the answer goes out with the acknowledgment: a whole turn.
#[library_benchmark]
#[bench::one(world(1, true, RxChecksum::Valid))]
#[bench::eight(world(8, true, RxChecksum::Valid))]
#[bench::software_checksum(world(1, true, RxChecksum::Unchecked))]
fn request_and_answer(mut world: World) -> World {
    for _ in 0..REQUESTS {
        world.take_frame();
        world.answer();
        world.end_turn();
    }
    assert_eq!(world.stub.sent as usize, SIZE * (WARM + REQUESTS));
    black_box(world)
}

// Segments come in; nothing goes out (the acknowledgment is left to the end of a turn that never comes).
#[library_benchmark]
#[bench::one(world(1, false, RxChecksum::Valid))]
#[bench::eight(world(8, false, RxChecksum::Valid))]
fn receive(mut world: World) -> World {
    for _ in 0..REQUESTS {
        world.take_frame();
    }
    assert_eq!(world.stub.stored as usize, SIZE * (WARM + REQUESTS));
    black_box(world)
}

// Nothing to do: what a turn costs that looks for timers and for something to send.
#[library_benchmark]
#[bench::one(world(1, true, RxChecksum::Valid))]
fn empty_turns(mut world: World) -> World {
    for _ in 0..REQUESTS {
        world.look_for_timers();
        world.end_turn();
    }
    black_box(world)
}

library_benchmark_group!(
    name = stack,
    benchmarks = [request_and_answer, receive, empty_turns]
);
main!(library_benchmark_groups = stack);
