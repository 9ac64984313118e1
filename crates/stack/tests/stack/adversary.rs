//! Two stacks on a network that does anything. The fuzz target `stack_pair` does the same with more patience.

use proptest::prelude::*;
use sidecore_testkit::{Rng, adversary, property_config};

proptest! {
    #![proptest_config(property_config(300))]

    #[test]
    fn short_runs(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        adversary::run(&bytes);
    }
}

fn long_run(seed: u64) {
    let mut rng = Rng::new(seed);
    let bytes: Vec<u8> = (0..6000).map(|_| rng.below(256) as u8).collect();
    adversary::run(&bytes);
}

/// Longer ones, from a seed.
#[test]
fn long_runs() {
    let runs = std::env::var("RUNS")
        .ok()
        .and_then(|runs| runs.parse().ok());
    for seed in 0..runs.unwrap_or(60) {
        long_run(seed);
    }
}

/// What found something once.
#[test]
fn runs_that_stood_still() {
    // Segments grew beyond a window of one segment, and nothing could go out any more.
    long_run(776);
    // A window of one segment was closed by an echo of a mark, grew by an ACK of few bytes, and its timer did not know it any more.
    adversary::run(include_bytes!(
        "../../../../fuzz/corpus/stack_pair/window-below-a-segment"
    ));
}

/// What the watcher of the network once took for a fault.
#[test]
fn runs_that_looked_wrong() {
    // A copy of the SYN, after both had ended, began another connection.
    adversary::run(include_bytes!(
        "../../../../fuzz/corpus/stack_pair/late-copy-of-the-syn"
    ));
}
