//! Two connections, virtual time, seeded loss, reordering and duplication: what is written arrives, exactly once.

mod common;

use std::time::Duration;

use common::pair::{App, Link, Pair, Rng};
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

/// Side 0 sends over a link of 2 MB/s and 20 ms whose queue holds about a round trip. Returns the bytes per second.
fn throughput(congestion: sidecore_tcp::Algorithm, sack: bool, cut: bool) -> u64 {
    const TOTAL: u64 = 20_000_000;
    let link = Link {
        delay: Duration::from_millis(10),
        rate: 2_000_000,
        queue: 30,
        ..Link::default()
    };
    let config = Config {
        congestion,
        sack,
        ..Config::default()
    };
    let app = App {
        send_buffer: 1 << 20,
        receive_buffer: 1 << 20,
        tso: if cut { 0 } else { 4 * 1448 },
        ..bulk(TOTAL)
    };
    let mut pair = Pair::new(
        7,
        [config.clone(), config],
        [
            app,
            App {
                total: 0,
                receive_buffer: 1 << 20,
                ..App::default()
            },
        ],
        [link.clone(), Link { rate: 0, ..link }],
    );
    pair.cut = cut;
    pair.run_until(2_000_000, |pair| pair.ends[1].received() == TOTAL);
    if std::env::var("VERBOSE").is_ok() {
        eprintln!("{:?}", pair.ends[0].connection.info());
    }
    assert!(
        pair.ends[0].retransmissions > 0,
        "the queue is too small for slow start"
    );
    (TOTAL as f64 / pair.elapsed().as_secs_f64()) as u64
}

#[test]
fn a_bottleneck_is_used_well() {
    use sidecore_tcp::Algorithm::{Cubic, NewReno};
    for (congestion, sack, least) in [
        (Cubic, true, 1_700_000),
        (NewReno, true, 1_700_000),
        (Cubic, false, 1_600_000),
        (NewReno, false, 1_600_000),
    ] {
        for cut in [true, false] {
            let rate = throughput(congestion, sack, cut);
            eprintln!("{congestion:?}, SACK {sack}, cut {cut}: {rate} B/s");
            assert!(rate > least, "{congestion:?}, SACK {sack}: {rate} B/s");
        }
    }
}

#[test]
#[ignore = "long: run by hand with SEEDS=n"]
fn many_seeds() {
    let n: u64 = std::env::var("SEEDS")
        .ok()
        .and_then(|s| s.parse().ok())
        .unwrap_or(500);
    let from: u64 = std::env::var("FROM")
        .ok()
        .and_then(|s| s.parse().ok())
        .unwrap_or(0);
    for seed in from..from + n {
        let start = std::time::Instant::now();
        random_pair(seed);
        if start.elapsed() > Duration::from_millis(200) {
            eprintln!("seed {seed} took {:?}", start.elapsed());
        }
    }
}

fn random_pair(seed: u64) {
    let mut rng = Rng(seed);
    let link = |rng: &mut Rng| Link {
        delay: Duration::from_micros(rng.below(30_000)),
        jitter: Duration::from_micros(if rng.chance(500) {
            rng.below(20_000)
        } else {
            0
        }),
        loss: if rng.chance(300) {
            0
        } else {
            rng.below(250) as u32
        },
        duplicate: if rng.chance(500) {
            0
        } else {
            rng.below(200) as u32
        },
        rate: if rng.chance(300) {
            20_000 + rng.below(2_000_000)
        } else {
            0
        },
        queue: 5 + rng.below(100) as usize,
    };
    let links = [link(&mut rng), link(&mut rng)];
    let app = |rng: &mut Rng| App {
        total: if rng.chance(200) {
            0
        } else {
            rng.below(120_000)
        },
        send_buffer: 1 + rng.below(100_000),
        write: 1 + rng.below(20_000),
        receive_buffer: 500 + rng.below(150_000),
        reads: 50 + rng.below(950) as u32,
        shutdown: true,
        tso: [0, 3000, 65_000][rng.below(3) as usize],
    };
    let apps = [app(&mut rng), app(&mut rng)];
    let config = |rng: &mut Rng| Config {
        mss: if rng.chance(500) {
            1460
        } else {
            200 + rng.below(1260) as u16
        },
        congestion: match rng.below(3) {
            0 => sidecore_tcp::Algorithm::NewReno,
            1 => sidecore_tcp::Algorithm::Bbr,
            _ => sidecore_tcp::Algorithm::Cubic,
        },
        pacing: rng.chance(200),
        sack: rng.chance(700),
        timestamps: rng.chance(700),
        no_delay: rng.chance(500),
        window_scale: rng
            .chance(700)
            .then(|| sidecore_wire::WindowScale::new(rng.below(9) as u8)),
        initial_window_segments: 1 + rng.below(10) as u8,
        syn_retries: 20,
        user_timeout: Some(Duration::from_secs(100_000)),
        max_rto: Duration::from_secs(2),
        ..Config::default()
    };
    let configs = [config(&mut rng), config(&mut rng)];
    let mut pair = Pair::new(seed, configs, apps, links);
    pair.cut = rng.chance(600);
    pair.trace = std::env::var("TRACE").is_ok();
    if std::env::var("VERBOSE").is_ok() {
        eprintln!("seed {seed}: {:?}", pair.links);
    }
    pair.run(2_000_000);
    pair.assert_delivered();
}
