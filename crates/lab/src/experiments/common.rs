//! What the experiments share: starting a server for one run, tables of summaries.

use std::net::SocketAddr;

use crate::echo::EchoConfig;
use crate::load::LoadConfig;
use crate::process::RoleProcess;
use crate::report::{Summary, Table, figure};
use crate::roles::Role;
use crate::run::{Run, SERVER, Settings, measure};

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
    for summary in summaries
        .iter()
        .filter(|summary| summary.void > 0 && summary.runs == summary.void)
    {
        notes.push(format!(
            "**Every run of {} ({}) was void**: its figures say little.",
            summary.arm, summary.case
        ));
    }
}

/// The usual table of one case: rates, times, latencies, with their spread.
pub fn table(title: &str, case: &str, summaries: &[Summary]) -> Table {
    let columns = [
        "",
        "requests/s",
        "min–max",
        "server µs/request",
        "min–max",
        "application",
        "engine",
        "useful",
        "p50 µs",
        "p99 µs",
    ];
    let mut table = Table::new(title, &columns);
    for summary in summaries.iter().filter(|summary| summary.case == case) {
        let range = |spread: &crate::statistics::Spread| {
            format!("{}–{}", figure(spread.min), figure(spread.max))
        };
        let or_dash = |value: f64| {
            if value > 0.0 {
                figure(value)
            } else {
                "–".into()
            }
        };
        table.rows.push(vec![
            summary.arm.clone(),
            figure(summary.rate.median),
            range(&summary.rate),
            figure(summary.server_us.median),
            range(&summary.server_us),
            or_dash(summary.application_us),
            or_dash(summary.engine_us),
            summary.productive_us.map_or("–".into(), figure),
            figure(summary.p50_us.median),
            figure(summary.p99_us.median),
        ]);
    }
    table
}
