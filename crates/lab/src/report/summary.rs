//! Medians over the runs of an arm, and ratios between arms.

use serde::{Deserialize, Serialize};

use crate::run::{ENGINE, Run, SERVER};
use crate::statistics::{Ratio, Spread, paired_ratio};

/// Medians of one arm under one load.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// Load.
    pub case: String,
    /// Arm.
    pub arm: String,
    /// Runs that count.
    pub runs: usize,
    /// Runs that do not.
    pub void: usize,
    /// Answers a second.
    pub rate: Spread,
    /// Microseconds of the server side's processors per request, everything included.
    pub server_us: Spread,
    /// Microseconds of all processors per request.
    pub total_us: Spread,
    /// Of the server side's: charged to the application's threads.
    pub application_us: f64,
    /// Of these: charged to the engine's threads.
    pub engine_us: f64,
    /// Of these: useful work of the engine by its own count.
    pub productive_us: Option<f64>,
    /// Of the server side's time: the client's receive, which the kernel does inside the server's sends. None without a sampled run.
    pub peer_receive_us: Option<f64>,
    /// The server's receive, which the kernel does inside the client's sends: part of the client's time (over veth).
    pub receive_elsewhere_us: Option<f64>,
    /// Median latency, microseconds.
    pub p50_us: Spread,
    /// 99th percentile, microseconds.
    pub p99_us: Spread,
    /// 99.9th percentile, microseconds.
    pub p999_us: Spread,
}

impl Summary {
    /// Microseconds of the server side per request, less the client's receive. None without a sampled run.
    pub fn without_peer_us(&self) -> Option<f64> {
        Some(self.server_us.median - self.peer_receive_us?)
    }

    /// The same with what the client's side did for the server: its receive, over veth. None without a sampled run.
    pub fn own_us(&self) -> Option<f64> {
        Some(self.without_peer_us()? + self.receive_elsewhere_us?)
    }
}

/// Runs that count: the valid ones; if there are none (a noisy machine, a quick look), all.
fn counted<'a>(runs: &'a [Run], case: &str, arm: &str) -> (Vec<&'a Run>, usize) {
    let is_one = |run: &&Run| run.case == case && run.arm == arm && run.profile.is_none();
    let all: Vec<&Run> = runs.iter().filter(is_one).collect();
    let valid: Vec<&Run> = all
        .iter()
        .copied()
        .filter(|run| run.void.is_none())
        .collect();
    let void = all.len() - valid.len();
    (if valid.is_empty() { all } else { valid }, void)
}

/// Summaries of every case and arm, in the order in which they were measured first.
pub fn summarise(runs: &[Run]) -> Vec<Summary> {
    let mut names: Vec<(&str, &str)> = Vec::new();
    for run in runs {
        let name = (run.case.as_str(), run.arm.as_str());
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
        .into_iter()
        .map(|(case, arm)| summary(runs, case, arm))
        .collect()
}

fn summary(runs: &[Run], case: &str, arm: &str) -> Summary {
    let (counted, void) = counted(runs, case, arm);
    let spread = |value: &dyn Fn(&Run) -> f64| {
        Spread::of(counted.iter().map(|run| value(run))).unwrap_or_default()
    };
    let of_arm = |run: &&Run| run.case == case && run.arm == arm;
    let profile = runs.iter().filter(of_arm).find_map(|run| run.profile);
    let client_us = spread(&|run| run.busy_us(run.client_core));
    let server_us = spread(&Run::server_us);
    let productive = Spread::of(counted.iter().filter_map(|run| run.productive_us()));
    Summary {
        case: case.to_owned(),
        arm: arm.to_owned(),
        runs: counted.len(),
        void,
        rate: spread(&|run| run.load.rate),
        server_us,
        total_us: spread(&Run::total_us),
        peer_receive_us: profile.map(|profile| profile.server.receive_share() * server_us.median),
        receive_elsewhere_us: profile
            .map(|profile| profile.client.receive_share() * client_us.median),
        application_us: spread(&|run| run.role_us(SERVER)).median,
        engine_us: spread(&|run| run.role_us(ENGINE)).median,
        productive_us: productive.map(|spread| spread.median),
        p50_us: spread(&|run| run.load.latency.p50_us),
        p99_us: spread(&|run| run.load.latency.p99_us),
        p999_us: spread(&|run| run.load.latency.p999_us),
    }
}

/// Ratio of two arms' values, paired by round.
pub fn compare(
    runs: &[Run],
    case: &str,
    first: &str,
    second: &str,
    value: impl Fn(&Run) -> f64,
) -> Option<Ratio> {
    let (first, _) = counted(runs, case, first);
    let (second, _) = counted(runs, case, second);
    let partner = |run: &&Run| {
        second
            .iter()
            .find(|other| other.round == run.round)
            .copied()
    };
    let pairs: Vec<(f64, f64)> = first
        .iter()
        .filter_map(|run| Some((value(run), value(partner(run)?))))
        .collect();
    paired_ratio(&pairs)
}
