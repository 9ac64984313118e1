//! A peer and an application that do anything. The fuzz target `tcp_segments` does the same with more patience.

mod common;

use common::chaos;
use common::pair::Rng;
use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn arbitrary_operations(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
        chaos::run(&bytes);
    }
}

/// Longer runs, from a seed.
#[test]
fn long_runs() {
    let runs = std::env::var("RUNS")
        .ok()
        .and_then(|runs| runs.parse().ok());
    for seed in 0..runs.unwrap_or(300) {
        let mut rng = Rng(seed);
        let bytes: Vec<u8> = (0..20_000).map(|_| rng.next() as u8).collect();
        chaos::run(&bytes);
    }
}
