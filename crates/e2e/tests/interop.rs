//! The engine's TCP against the kernel's: each connects to the other, over both versions of IP, over every kind of bad line.
//!
//! Every byte is compared, both ends must be in the states that RFC 9293 has for them afterwards, and nobody may send very much more than
//! there is to send.

use std::time::Duration;

use anyhow::{Result, ensure};
use sidecore_e2e::ground::available;
use sidecore_e2e::interop::{Case, Outcome, Role, Version, all};
use sidecore_nic::LinkModel;

const MS: Duration = Duration::from_millis(1);

/// Payload of a full segment, with timestamps, on the narrower kind of packet.
const SEGMENT: u64 = 1428;

fn good() -> LinkModel {
    LinkModel {
        delay: MS,
        ..LinkModel::default()
    }
}

/// Lines that lose, delay, damage, double and reorder.
fn bad_lines() -> Vec<Case> {
    let line = |name, bytes, model| Case::both(name, bytes, model);
    vec![
        line("a good line", 2_000_000, good()),
        line(
            "1 % is lost",
            1_000_000,
            LinkModel {
                loss: 0.01,
                ..good()
            },
        ),
        line(
            "10 % is lost",
            200_000,
            LinkModel {
                loss: 0.1,
                seed: 3,
                ..good()
            },
        ),
        line(
            "20 % is overtaken",
            1_000_000,
            LinkModel {
                reorder: 0.2,
                ..good()
            },
        ),
        line(
            "jitter reorders",
            500_000,
            LinkModel {
                jitter: 4 * MS,
                jitter_reorders: true,
                ..good()
            },
        ),
        line(
            "20 % comes twice",
            1_000_000,
            LinkModel {
                duplicate: 0.2,
                ..good()
            },
        ),
        line(
            "3 % is damaged",
            500_000,
            LinkModel {
                corrupt: 0.03,
                ..good()
            },
        ),
        line(
            "300 ms each way",
            60_000,
            LinkModel {
                delay: 300 * MS,
                ..good()
            },
        ),
        line(
            "2 Mbit/s and a short queue",
            300_000,
            LinkModel {
                rate_bps: 2_000_000,
                queue_frames: 10,
                delay: 10 * MS,
                ..good()
            },
        ),
        line(
            "a little of everything",
            300_000,
            LinkModel {
                loss: 0.02,
                duplicate: 0.02,
                reorder: 0.05,
                corrupt: 0.01,
                delay: 5 * MS,
                jitter: 5 * MS,
                rate_bps: 20_000_000,
                queue_bytes: 100_000,
                seed: 5,
                ..good()
            },
        ),
    ]
}

/// Lines that change while there is much to send, and ends that have little room.
fn changes() -> Vec<Case> {
    // So slow that half-way is not the end.
    let slow = LinkModel {
        rate_bps: 8_000_000,
        queue_bytes: 64_000,
        ..good()
    };
    let narrow = LinkModel { mtu: 1280, ..slow };
    let silent = LinkModel {
        tell_too_big: false,
        ..narrow
    };
    let dead = LinkModel { loss: 1.0, ..slow };
    let crawling = LinkModel {
        rate_bps: 1_000_000,
        ..slow
    };
    let small_kernel = Case {
        kernel_buffer: 1,
        ..Case::both("the kernel has hardly any buffer", 100_000, good())
    };
    let small_engine = Case {
        engine_window: 2_000,
        ..Case::both("the engine has hardly any buffer", 100_000, good())
    };
    vec![
        Case::both("the MTU falls to 1280", 400_000, slow).then(narrow, Duration::ZERO),
        Case::both("the MTU falls and rises", 400_000, slow)
            .then(narrow, 100 * MS)
            .then(slow, Duration::ZERO),
        Case::both("the MTU falls and nobody tells", 400_000, slow).then(silent, Duration::ZERO),
        Case::both("a black hole for 0.7 s", 400_000, slow)
            .then(dead, 700 * MS)
            .then(slow, Duration::ZERO),
        Case::both("the rate falls to an eighth", 200_000, slow).then(crawling, Duration::ZERO),
        Case::both("the path becomes longer by 200 ms", 200_000, slow).then(
            LinkModel {
                delay: 100 * MS,
                ..slow
            },
            Duration::ZERO,
        ),
        small_kernel,
        small_engine,
    ]
}

/// Nobody sent very much more than needed, and the line did what it was there for.
fn sober(case: &Case, outcome: &Outcome) -> Result<()> {
    let [there, back] = outcome.line;
    let model = case.line[0];
    // Either way: data, an ACK for each segment of the other, and everything once more; small windows make small segments.
    let small = case.kernel_buffer > 0 || case.engine_window > 0;
    let segments = case.bytes.div_ceil(if small { 128 } else { SEGMENT });
    let most = (4.0 * segments as f64 * (1.0 + 4.0 * model.loss)) as u64 + 150;
    for counters in [there, back] {
        ensure!(
            counters.pushed <= most,
            "more than {most} frames: {counters:?}"
        );
        let frames = counters.pushed as f64;
        for (chance, happened, what) in [
            (model.loss, counters.lost, "lost"),
            (model.reorder, counters.reordered, "overtaken"),
            (model.duplicate, counters.duplicated, "doubled"),
            (model.corrupt, counters.corrupted, "damaged"),
        ] {
            let expected = chance * frames;
            ensure!(
                (happened as f64) >= expected * 0.3 - 3.0,
                "{happened} {what}, of {frames}"
            );
        }
    }
    // Where a bit flips decides what notices it.
    let counters = outcome.stat["stack"].as_object().into_iter().flatten();
    let damaged: u64 = counters
        .filter(|(name, _)| name.contains("checksum") || name.contains("malformed"))
        .filter_map(|(_, count)| count.as_u64())
        .sum();
    ensure!(
        model.corrupt == 0.0 || damaged > 0,
        "the engine noticed no damage: {}",
        outcome.stat["stack"]
    );
    Ok(())
}

fn run(cases: &[Case], role: Role, version: Version) {
    if available() {
        all(cases, role, version, sober);
    }
}

#[test]
fn the_kernel_connects_over_bad_lines_of_ipv4() {
    run(&bad_lines(), Role::Kernel, Version::Four);
}

#[test]
fn the_engine_connects_over_bad_lines_of_ipv4() {
    run(&bad_lines(), Role::Engine, Version::Four);
}

#[test]
fn the_kernel_connects_over_bad_lines_of_ipv6() {
    run(&bad_lines(), Role::Kernel, Version::Six);
}

#[test]
fn the_engine_connects_over_bad_lines_of_ipv6() {
    run(&bad_lines(), Role::Engine, Version::Six);
}

#[test]
fn the_kernel_connects_and_the_line_of_ipv4_changes() {
    run(&changes(), Role::Kernel, Version::Four);
}

#[test]
fn the_engine_connects_and_the_line_of_ipv4_changes() {
    run(&changes(), Role::Engine, Version::Four);
}

#[test]
fn the_kernel_connects_and_the_line_of_ipv6_changes() {
    run(&changes(), Role::Kernel, Version::Six);
}

#[test]
fn the_engine_connects_and_the_line_of_ipv6_changes() {
    run(&changes(), Role::Engine, Version::Six);
}
