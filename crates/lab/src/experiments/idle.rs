//! `idle`: what an engine costs while next to nothing happens, and how long the first request after idleness takes.

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
    question: "64 connections that do next to nothing: how busy is the server's side, and how late is an answer after idleness?",
    run,
};

const CONNECTIONS: usize = 64;

/// Requests a second over all connections: every one finds everybody asleep.
const RATE: f64 = 20.0;

const CASE: &str = "20 requests a second";

const KERNEL: &str = "kernel, epoll";
const ADAPTIVE: &str = "engine, adaptive";
const POLL: &str = "engine, never sleeping";

fn run(settings: &Settings, progress: &Progress) -> anyhow::Result<Report> {
    let mut report = Report::new(EXPERIMENT.name, EXPERIMENT.question, settings);
    let (veth, tap) = (VethGround::create()?, TapGround::create("tc")?);
    let mut arms = [
        kernel(&veth),
        engine(&tap, ADAPTIVE, false),
        engine(&tap, POLL, true),
    ];
    report.runs = interleave(settings, CASE, &mut arms, progress)?;
    report.summaries = summarise(&report.runs);
    report.tables.push(table(&report.runs));
    report.notes = vec![
        format!("{CONNECTIONS} connections, {RATE} requests of 64 bytes a second over all of them; engine and server in threads of their own on one processor."),
        "Busy: what the scheduler charged to the threads, in percent of a processor. Latencies are those of a request that finds everybody asleep, waking of the client included.".into(),
    ];
    note_void(&report.summaries, &mut report.notes);
    Ok(report)
}

fn load(address: SocketAddr) -> LoadConfig {
    LoadConfig {
        arrivals: Arrivals::Uniform(RATE),
        ..LoadConfig::closed(address, Ask::Echo(64), CONNECTIONS)
    }
}

fn kernel(veth: &VethGround) -> Arm<'_> {
    let run = |settings: &Settings| {
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
            load,
        )
    };
    Arm::new(KERNEL, run)
}

fn engine<'a>(tap: &'a TapGround, name: &str, poll: bool) -> Arm<'a> {
    let run = move |settings: &Settings| {
        let server = EchoConfig::Engine(EngineEcho {
            tap: tap.tap(),
            port: 7,
            threads: Threads::Two,
            poll,
            connections: CONNECTIONS,
            socket: None,
        });
        run_echo(settings, (None, server), Some(tap.client.name()), load)
    };
    Arm::new(name, run)
}

fn table(runs: &[Run]) -> Table {
    let mut table = Table::new(
        "Next to nothing to do",
        &[
            "",
            "engine busy %",
            "server busy %",
            "p50 µs",
            "p99 µs",
            "max µs",
        ],
    );
    for arm in [KERNEL, ADAPTIVE, POLL] {
        let median = |value: &dyn Fn(&Run) -> f64| {
            let values = runs.iter().filter(|run| run.arm == arm).map(value);
            figure(Spread::of(values).unwrap_or_default().median)
        };
        table.rows.push(vec![
            arm.into(),
            median(&|run| 100.0 * run.books.role(ENGINE) / run.books.seconds),
            median(&|run| 100.0 * run.books.role(SERVER) / run.books.seconds),
            median(&|run| run.load.latency.p50_us),
            median(&|run| run.load.latency.p99_us),
            median(&|run| run.load.latency.max_us),
        ]);
    }
    table
}
