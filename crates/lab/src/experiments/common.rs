//! What the experiments share: starting a server for one run, tables of summaries.

use std::net::SocketAddr;

use crate::echo::EchoConfig;
use crate::load::LoadConfig;
use crate::process::RoleProcess;
use crate::report::{Summary, Table, compare, figure};
use crate::roles::Role;
use crate::run::{Run, SERVER, Settings, measure};
use crate::statistics::Spread;

/// One run against a server that is started for it and ended after it. `load` makes the load for the server's address.
pub fn run_against(
    settings: &Settings,
    server: (Option<&str>, Role),
    client: Option<&str>,
    load: impl FnOnce(SocketAddr) -> LoadConfig,
) -> anyhow::Result<Run> {
    let (namespace, role) = server;
    let (mut server, address) =
        RoleProcess::start_server(SERVER, &settings.on_server(namespace, role))?;
    let load = settings.on_client(client, load(address));
    measure(settings, &load, &mut server)
}

/// The same for an echo server.
pub fn run_echo(
    settings: &Settings,
    (namespace, server): (Option<&str>, EchoConfig),
    client: Option<&str>,
    load: impl FnOnce(SocketAddr) -> LoadConfig,
) -> anyhow::Result<Run> {
    run_against(settings, (namespace, Role::Echo(server)), client, load)
}

/// Adds a warning of what was not measured to the end of `notes`, unless nothing was left out.
pub fn note_void(summaries: &[Summary], notes: &mut Vec<String>) {
    let is_void = |summary: &&Summary| summary.void > 0 && summary.runs == summary.void;
    let void: Vec<&Summary> = summaries.iter().filter(is_void).collect();
    if void.is_empty() {
        return;
    }
    if void.len() == summaries.len() {
        notes.push("**Every run was void**: the figures say little.".into());
        return;
    }
    let mut cases: Vec<(&str, Vec<&str>)> = Vec::new();
    for summary in void {
        match cases.iter_mut().find(|(case, _)| *case == summary.case) {
            Some((_, arms)) => arms.push(&summary.arm),
            None => cases.push((&summary.case, vec![&summary.arm])),
        }
    }
    for (case, arms) in cases {
        let arms = arms.join("; ");
        notes.push(format!(
            "**Every run was void** in {case} of: {arms}. Their figures say little."
        ));
    }
}

/// A median, and between which values it lies.
pub fn with_range(spread: &Spread) -> String {
    let [median, min, max] = [spread.median, spread.min, spread.max].map(figure);
    format!("{median} ({min}–{max})")
}

/// The ratio of two arms' values with its interval; a dash where there are no pairs.
pub fn ratio_cell(
    runs: &[Run],
    case: &str,
    first: &str,
    second: &str,
    value: impl Fn(&Run) -> f64,
) -> String {
    match compare(runs, case, first, second, value) {
        Some(ratio) => format!("{:.2} ({:.2}–{:.2})", ratio.ratio, ratio.low, ratio.high),
        None => "–".into(),
    }
}

/// What it comes to, unless a ratio in it could not be had.
pub fn in_short(text: String) -> Option<String> {
    (!text.contains(" –")).then_some(text)
}

/// The usual table of one case: rates, times, latencies, with their spread. Where runs were sampled, also what was received for whom.
pub fn table(title: &str, case: &str, summaries: &[Summary]) -> Table {
    let of_case = || summaries.iter().filter(|summary| summary.case == case);
    let sampled = of_case().any(|summary| summary.peer_receive_us.is_some());
    let mut columns = vec!["", "requests/s (min–max)", "server µs/request (min–max)"];
    if sampled {
        columns.extend(["without peer's receive", "with its own elsewhere"]);
    }
    columns.extend(["application", "engine", "useful", "p50 µs", "p99 µs"]);
    let mut table = Table::new(title, &columns);
    let or_dash = |value: Option<f64>| match value {
        Some(value) if value > 0.0 => figure(value),
        _ => "–".into(),
    };
    for summary in of_case() {
        let mut row = vec![
            summary.arm.clone(),
            with_range(&summary.rate),
            with_range(&summary.server_us),
        ];
        if sampled {
            row.push(or_dash(summary.without_peer_us()));
            row.push(or_dash(summary.own_us()));
        }
        row.extend([
            or_dash(Some(summary.application_us)),
            or_dash(Some(summary.engine_us)),
            or_dash(summary.productive_us),
            figure(summary.p50_us.median),
            figure(summary.p99_us.median),
        ]);
        table.rows.push(row);
    }
    table
}
