//! Times of the same turns that `instructions` counts.

mod common;

use common::World;
use divan::counter::ItemsCount;
use divan::{Bencher, black_box};
use sidecore_stack::RxChecksum;

const REQUESTS: usize = 1000;

fn main() {
    divan::main();
}

#[divan::bench(args = [1, 8, 256])]
fn request_and_answer(bencher: Bencher<'_, '_>, connections: usize) {
    bencher
        .counter(ItemsCount::new(REQUESTS))
        .with_inputs(|| World::new(connections, REQUESTS, true, RxChecksum::Valid))
        .bench_local_refs(|world| {
            for _ in 0..REQUESTS {
                world.take_frame();
                world.answer();
                world.end_turn();
            }
            black_box(world.stub.acked + world.stub.sent)
        });
}

#[divan::bench(args = [1, 8, 256])]
fn receive(bencher: Bencher<'_, '_>, connections: usize) {
    bencher
        .counter(ItemsCount::new(REQUESTS))
        .with_inputs(|| World::new(connections, REQUESTS, false, RxChecksum::Valid))
        .bench_local_refs(|world| {
            for _ in 0..REQUESTS {
                world.take_frame();
            }
            black_box(world.stub.stored)
        });
}

/// Bursts of segments, each of another connection, of so many that caches do not hold them.
#[divan::bench(args = [false, true], sample_count = 20)]
fn bursts(bencher: Bencher<'_, '_>, prefetch: bool) {
    const CONNECTIONS: usize = 100_000;
    const BURST: usize = 32;
    let mut order = sidecore_testkit::Rng::new(1);
    bencher
        .counter(ItemsCount::new(REQUESTS * BURST))
        .with_inputs(|| {
            let mut world = World::new(CONNECTIONS, CONNECTIONS, false, RxChecksum::Valid);
            world.shuffle(|limit| order.below(limit as u64) as usize);
            world
        })
        .bench_local_refs(|world| {
            for _ in 0..REQUESTS {
                world.take_burst(BURST, prefetch);
            }
            black_box(world.stub.stored)
        });
}
