//! `idle`: what an engine costs while nothing or next to nothing happens, and how long the first request after idleness takes.

use std::net::SocketAddr;

use super::Experiment;
use super::common::{note_void, run_echo};
use crate::echo::engine::EngineEcho;
use crate::echo::{EchoConfig, KernelEcho};
use crate::ground::{TapGround, VethGround};
use crate::load::arrivals::Arrivals;
use crate::load::{Ask, LoadConfig};
use crate::native::Threads;
use crate::progress::Progress;
use crate::report::{Report, Table, figure, summarise};
use crate::run::{Arm, ENGINE, Run, SERVER, Settings, interleave};
use crate::statistics::Spread;

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "idle",
    question: "64 connections that do nothing, or next to nothing: how busy is the server's side, and how late is an answer after idleness?",
    run,
};

const CONNECTIONS: usize = 64;

/// Requests a second over all connections: every one finds everybody asleep.
const RATE: f64 = 20.0;

const CASE: &str = "20 requests a second";

/// Its first request is due at once, before anything is measured, its second never.
const NEVER: f64 = 1e-4;

const SILENCE: &str = "silence";

const CASES: [(&str, f64); 2] = [(SILENCE, NEVER), (CASE, RATE)];

const KERNEL: &str = "kernel, epoll";
const ADAPTIVE: &str = "engine, adaptive";
const POLL: &str = "engine, never sleeping";

fn run(settings: &Settings, progress: &Progress) -> anyhow::Result<Report> {
    let mut report = Report::new(EXPERIMENT.name, EXPERIMENT.question, settings);
    let (veth, tap) = (VethGround::create()?, TapGround::create("tc")?);
    for (case, rate) in CASES {
        let mut arms = [
            kernel(&veth, rate),
            engine(&tap, ADAPTIVE, false, rate),
            engine(&tap, POLL, true, rate),
        ];
        let runs = interleave(settings, case, &mut arms, progress)?;
        report.runs.extend(runs);
    }
    report.summaries = summarise(&report.runs);
    report.tables.push(table(SILENCE, &report.runs));
    report.tables.push(table(CASE, &report.runs));
    report.notes = vec![
        format!("{CONNECTIONS} connections; silence, or {RATE} requests of 64 bytes a second over all of them; engine and server in threads of their own on one processor."),
        "Busy: what the scheduler charged to the threads, in percent of a processor; 'processor' is all that the server side's processor did, interrupts included, and comes in steps of 10 ms. Latencies are those of a request that finds everybody asleep, waking of the client included.".into(),
    ];
    note_void(&report.summaries, &mut report.notes);
    Ok(report)
}

fn load(address: SocketAddr, rate: f64) -> LoadConfig {
    LoadConfig {
        arrivals: Arrivals::Uniform(rate),
        ..LoadConfig::closed(address, Ask::Echo(64), CONNECTIONS)
    }
}

fn kernel(veth: &VethGround, rate: f64) -> Arm<'_> {
    let run = move |settings: &Settings| {
        let server = EchoConfig::Epoll(KernelEcho {
            listen: (veth.address, 0).into(),
            cores: vec![settings.server_core],
            congestion: Some(settings.congestion.clone()),
            spin: false,
        });
        run_echo(
            settings,
            (Some(veth.server.name()), server),
            Some(veth.client.name()),
            |address| load(address, rate),
        )
    };
    Arm::new(KERNEL, run)
}

fn engine<'a>(tap: &'a TapGround, name: &str, poll: bool, rate: f64) -> Arm<'a> {
    let run = move |settings: &Settings| {
        let server = EchoConfig::Engine(EngineEcho {
            tap: tap.tap(),
            port: 7,
            threads: Threads::Two,
            poll,
            connections: CONNECTIONS,
            socket: None,
        });
        run_echo(
            settings,
            (None, server),
            Some(tap.client.name()),
            |address| load(address, rate),
        )
    };
    Arm::new(name, run)
}

fn table(case: &str, runs: &[Run]) -> Table {
    let mut columns = vec!["", "engine %", "server %", "processor %"];
    if case == CASE {
        columns.extend(["p50 µs", "p99 µs", "max µs"]);
    }
    let mut table = Table::new(&format!("Busy: {case}"), &columns);
    for arm in [KERNEL, ADAPTIVE, POLL] {
        let of_arm = || runs.iter().filter(|run| run.arm == arm && run.case == case);
        let valid = of_arm().any(|run| run.void.is_none());
        let median = |value: &dyn Fn(&Run) -> f64| {
            let counted = of_arm().filter(|run| !valid || run.void.is_none());
            figure(Spread::of(counted.map(value)).unwrap_or_default().median)
        };
        let percent = |seconds: f64, run: &Run| 100.0 * seconds / run.books.seconds;
        let busy = |run: &Run| {
            let cores = run.server_cores.iter();
            let busy = cores.filter_map(|core| run.books.busy_per_core.get(core));
            percent(busy.sum(), run)
        };
        let mut row = vec![
            arm.to_owned(),
            median(&|run| percent(run.books.role(ENGINE), run)),
            median(&|run| percent(run.books.role(SERVER), run)),
            median(&busy),
        ];
        if case == CASE {
            row.extend([
                median(&|run| run.load.latency.p50_us),
                median(&|run| run.load.latency.p99_us),
                median(&|run| run.load.latency.max_us),
            ]);
        }
        table.rows.push(row);
    }
    table
}
