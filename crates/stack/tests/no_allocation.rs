//! In the steady state no packet costs an allocation: what tables and lists need is there from the start.

#![allow(
    dead_code,
    reason = "the benchmarks' world has more than is needed here"
)]

#[path = "../benches/common/mod.rs"]
mod common;

use common::World;
use sidecore_stack::RxChecksum;

/// Requests until estimators, windows and lists have reached their size, and requests that are watched. Multiples of the connections.
const WARM: usize = 640;
const WATCHED: usize = 6400;

fn allocations(connections: usize, checksum: RxChecksum) -> u64 {
    let mut world = World::new(connections, WARM + WATCHED, true, checksum);
    let mut request = move || {
        world.take_frame();
        world.answer();
        world.end_turn();
        world.stub.sent
    };
    for _ in 0..WARM {
        request();
    }
    let mut sent = 0;
    let seen = allocation_counter::measure(|| {
        for _ in 0..WATCHED {
            sent = request();
        }
    });
    assert_eq!(sent as usize, common::SIZE * (WARM + WATCHED));
    seen.count_total
}

#[test]
fn requests_and_answers_allocate_nothing() {
    for connections in [1, 64] {
        for checksum in [RxChecksum::Valid, RxChecksum::Unchecked] {
            assert_eq!(
                allocations(connections, checksum),
                0,
                "{connections} connections"
            );
        }
    }
}

#[test]
fn an_allocation_would_be_seen() {
    let seen = allocation_counter::measure(|| drop(std::hint::black_box(Box::new(7u64))));
    assert_eq!(seen.count_total, 1);
}
