//! Two connections, virtual time, seeded loss, reordering and duplication: what is written arrives, exactly once.

mod common;

use std::time::Duration;

use common::{App, Link, Pair};
use sidecore_tcp::Config;

fn bulk(total: u64) -> App {
    App {
        total,
        ..App::default()
    }
}

#[test]
fn clean_link_both_ways() {
    for cut in [false, true] {
        let mut pair = Pair::new(
            1,
            [Config::default(), Config::default()],
            [bulk(1_000_000), bulk(300_000)],
            [Link::default(), Link::default()],
        );
        pair.cut = cut;
        pair.run(100_000);
        pair.assert_delivered();
        assert_eq!(pair.ends[0].retransmissions, 0);
        assert_eq!(pair.ends[1].retransmissions, 0);
    }
}

#[test]
fn lossy_links() {
    for seed in 0..60 {
        let loss = [5, 20, 50, 100, 200][seed as usize % 5];
        let link = Link {
            loss,
            duplicate: loss / 2,
            jitter: Duration::from_millis(seed % 4 * 3),
            ..Link::default()
        };
        let mut configs = [Config::default(), Config::default()];
        configs[0].sack = seed % 3 != 0;
        configs[1].timestamps = seed % 4 != 0;
        if seed % 2 == 0 {
            configs[0].congestion = sidecore_tcp::Algorithm::NewReno;
        }
        let mut pair = Pair::new(
            seed,
            configs,
            [bulk(200_000), bulk(50_000)],
            [link.clone(), link],
        );
        pair.cut = seed % 2 == 1;
        pair.run(400_000);
        pair.assert_delivered();
    }
}
