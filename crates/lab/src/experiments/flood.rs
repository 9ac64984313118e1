//! `flood`: whether those who mean it get in while others send SYNs as fast as the wire takes them.

use std::time::Duration;

use super::Experiment;
use crate::flood::{FloodConfig, FloodUse};
use crate::process::RoleProcess;
use crate::progress::Progress;
use crate::report::{Report, Table, figure};
use crate::roles::{Role, RoleSpec};
use crate::run::{Run, Settings};

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "flood",
    question: "connects during a flood of SYNs at line rate: how many succeed, how many a second, how late?",
    run,
};

/// Exchanges under way at a time.
const EXCHANGES: usize = 8;

const ARMS: [(&str, bool, bool); 3] = [
    ("no flood", false, true),
    ("flood, cookies when the SYN queue is full", true, true),
    (
        "flood, no cookies: the oldest handshake gives way",
        true,
        false,
    ),
];

/// How long a run may take beyond its own times.
const LATE: Duration = Duration::from_secs(60);

fn run(settings: &Settings, progress: &Progress) -> anyhow::Result<Report> {
    let mut report = Report::new(EXPERIMENT.name, EXPERIMENT.question, settings);
    let case = format!("{EXCHANGES} at a time");
    for round in 0..settings.rounds {
        for (name, flood, cookies) in ARMS {
            if !settings.wants(name) {
                continue;
            }
            progress.say(&format!("round {}: {name}", round + 1));
            let role = Role::Flood(FloodConfig {
                flood,
                cookies,
                exchanges: EXCHANGES,
                cores: [settings.server_core, settings.client_core],
                warm_up: settings.warm_up,
                measure: settings.measure,
            });
            let (netns, cores) = (None, Vec::new());
            let process = RoleProcess::start(name, &RoleSpec { role, netns, cores })?;
            let used = process.flood(settings.warm_up + settings.measure + LATE)?;
            report.runs.push(Run {
                arm: name.to_owned(),
                case: case.clone(),
                round,
                flood: Some(used),
                ..Run::default()
            });
        }
    }
    report.tables.push(connects(&report.runs));
    report.tables.push(latencies(&report.runs));
    report.tables.push(server(&report.runs));
    report.notes = vec![
        "A connect is an exchange: SYN, SYN-ACK, ACK with a request of 32 bytes, the answer, a reset. It failed if four SYNs or four requests, a second apart, were not answered, or if it was reset. Eight are under way at a time.".into(),
        "The client speaks TCP by hand, from raw frames, and floods with all the room that the wire has left: SYNs from 252 addresses and all ports, as of today's hosts. The wire is a ring of 512 full frames in memory that loses nothing, so that whoever comes waits behind what is in it.".into(),
        "Server and engine share one thread on one processor, the client has the other. The listener's backlog is 4096, and fills during warm-up.".into(),
    ];
    Ok(report)
}

fn of<'a>(runs: &'a [Run], arm: &str) -> Vec<&'a FloodUse> {
    let of_arm = runs.iter().filter(|run| run.arm == arm);
    of_arm.filter_map(|run| run.flood.as_ref()).collect()
}

/// The middle one.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

fn connects(runs: &[Run]) -> Table {
    let columns = [
        "",
        "connects",
        "failed",
        "sent again",
        "connects/s (median)",
        "SYNs of the flood/s (median)",
    ];
    let mut table = Table::new("Connects", &columns);
    for (arm, ..) in ARMS {
        let used = of(runs, arm);
        let sum = |value: fn(&FloodUse) -> u64| used.iter().map(|u| value(u)).sum::<u64>();
        let rate = |value: fn(&FloodUse) -> u64| {
            median(used.iter().map(|u| value(u) as f64 / u.seconds).collect())
        };
        table.rows.push(vec![
            arm.to_owned(),
            sum(|u| u.connects).to_string(),
            sum(|u| u.failed).to_string(),
            sum(|u| u.again).to_string(),
            figure(rate(|u| u.connects - u.failed)),
            figure(rate(|u| u.flood)),
        ]);
    }
    table
}

fn latencies(runs: &[Run]) -> Table {
    let columns = [
        "",
        "SYN to SYN-ACK: p50 µs",
        "p99 µs",
        "max µs",
        "SYN to answer: p50 µs",
        "p99 µs",
        "max µs",
    ];
    let mut table = Table::new("Latency (medians of rounds)", &columns);
    for (arm, ..) in ARMS {
        let used = of(runs, arm);
        let cell =
            |value: fn(&FloodUse) -> f64| figure(median(used.iter().map(|u| value(u)).collect()));
        table.rows.push(vec![
            arm.to_owned(),
            cell(|u| u.connect.p50_us),
            cell(|u| u.connect.p99_us),
            cell(|u| u.connect.max_us),
            cell(|u| u.exchange.p50_us),
            cell(|u| u.exchange.p99_us),
            cell(|u| u.exchange.max_us),
        ]);
    }
    table
}

fn server(runs: &[Run]) -> Table {
    let first = ARMS.iter().flat_map(|(arm, ..)| of(runs, arm)).next();
    let names: Vec<&str> = first
        .map(|used| {
            used.counters
                .iter()
                .map(|(name, _)| name.as_str())
                .collect()
        })
        .unwrap_or_default();
    let columns: Vec<&str> = core::iter::once("").chain(names.iter().copied()).collect();
    let mut table = Table::new(
        "The server's counters, all rounds, warm-up included",
        &columns,
    );
    for (arm, ..) in ARMS {
        let used = of(runs, arm);
        let sum = |index: usize| -> u64 {
            let counts = used.iter().filter_map(|u| u.counters.get(index));
            counts.map(|(_, count)| count).sum()
        };
        let counts = (0..names.len()).map(|index| sum(index).to_string());
        table
            .rows
            .push(core::iter::once(arm.to_owned()).chain(counts).collect());
    }
    table
}
