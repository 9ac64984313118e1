//! `rpc`: both ends of every connection on one stack.

use std::net::{Ipv4Addr, SocketAddr};

use super::Experiment;
use super::common::{note_void, run_echo};
use super::echo::case_name;
use crate::echo::{EchoConfig, KernelEcho};
use crate::ground::Namespace;
use crate::load::{Ask, Driver, LoadConfig};
use crate::progress::Progress;
use crate::report::{Report, Summary, Table, figure, summarise};
use crate::run::{Arm, Run, Settings, interleave};

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "rpc",
    question: "64-byte requests with both ends on one stack and two processors: how many a second?",
    run,
};

/// Bytes of a message.
const BYTES: usize = 64;

/// Numbers of connections.
const CONNECTIONS: [usize; 2] = [1, 64];

fn run(settings: &Settings, progress: &Progress) -> anyhow::Result<Report> {
    let mut report = Report::new(EXPERIMENT.name, EXPERIMENT.question, settings);
    let loopback = Namespace::create("lo")?;
    for connections in CONNECTIONS {
        let mut arms = kernel_arms(&loopback, connections);
        let case = case_name(connections);
        report
            .runs
            .extend(interleave(settings, &case, &mut arms, progress)?);
    }
    report.summaries = summarise(&report.runs);
    for connections in CONNECTIONS {
        let case = case_name(connections);
        report
            .tables
            .push(table(&case, &report.summaries, &report.runs));
    }
    report.notes = vec![
        "µs/request: busy time of both processors, client and server together. Kernel: loopback inside one namespace, server on one processor, client on the other.".into(),
    ];
    note_void(&report.summaries, &mut report.notes);
    Ok(report)
}

/// Kernel loopback: each server with each kind of client.
fn kernel_arms(loopback: &Namespace, connections: usize) -> Vec<Arm<'_>> {
    let arm = |name: &str, make: fn(KernelEcho) -> EchoConfig, driver: Driver| {
        let run = move |settings: &Settings| {
            let server = make(KernelEcho {
                // A port of its own each time: a ring's listener outlives its process for a moment.
                listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
                cores: vec![settings.server_core],
                congestion: Some(settings.congestion.clone()),
            });
            let namespace = Some(loopback.name());
            run_echo(settings, (namespace, server), namespace, |address| {
                LoadConfig {
                    driver,
                    ..LoadConfig::closed(address, Ask::Echo(BYTES), connections)
                }
            })
        };
        Arm::new(name, run)
    };
    vec![
        arm(
            "kernel, epoll server, epoll client",
            EchoConfig::Epoll,
            Driver::Epoll,
        ),
        arm(
            "kernel, io_uring server, epoll client",
            EchoConfig::IoUring,
            Driver::Epoll,
        ),
        arm(
            "kernel, io_uring server, io_uring client",
            EchoConfig::IoUring,
            Driver::IoUring,
        ),
    ]
}

/// Microseconds of all processors per request.
fn both_us(run: &Run) -> f64 {
    run.books.busy * 1e6 / (run.load.rate * run.books.seconds)
}

fn table(case: &str, summaries: &[Summary], runs: &[Run]) -> Table {
    let mut table = Table::new(
        case,
        &[
            "",
            "requests/s",
            "min–max",
            "µs/request",
            "p50 µs",
            "p99 µs",
            "p99.9 µs",
        ],
    );
    for summary in summaries.iter().filter(|summary| summary.case == case) {
        let of_arm = runs
            .iter()
            .filter(|run| run.case == case && run.arm == summary.arm);
        let both = crate::statistics::Spread::of(of_arm.map(both_us)).unwrap_or_default();
        table.rows.push(vec![
            summary.arm.clone(),
            figure(summary.rate.median),
            format!("{}–{}", figure(summary.rate.min), figure(summary.rate.max)),
            figure(both.median),
            figure(summary.p50_us.median),
            figure(summary.p99_us.median),
            figure(summary.p999_us.median),
        ]);
    }
    table
}
