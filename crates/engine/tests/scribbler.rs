//! Applications that write anything into the memory that they share with the engine. The fuzz target `engine_memory` does the same with
//! more patience.

mod common;

use common::scribbler::World;

#[test]
fn whatever_is_written_the_engine_goes_on() {
    let runs = std::env::var("RUNS")
        .ok()
        .and_then(|runs| runs.parse().ok());
    let mut world = World::default();
    for seed in 0..runs.unwrap_or(150) {
        let mut state = seed as u64 + 1;
        let bytes: Vec<u8> = (0..1500)
            .map(|_| {
                // xorshift64
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                (state >> 32) as u8
            })
            .collect();
        world.run(&bytes);
    }
    let commands = world.commands;
    assert!(
        commands > 1000,
        "{commands} commands were read: that was no test"
    );
}
