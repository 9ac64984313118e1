//! `rpc`: both ends of every connection on one stack.

use std::net::{Ipv4Addr, SocketAddr};

use super::Experiment;
use super::common::{note_void, run_echo};
use super::echo::case_name;
use crate::echo::{EchoConfig, KernelEcho};
use crate::ground::Namespace;
use crate::load::{Ask, Driver, LoadConfig};
use crate::native::rpc::{RpcConfig, Shape};
use crate::progress::Progress;
use crate::report::{Report, Summary, Table, figure, summarise};
use crate::roles::{Role, RoleSpec};
use crate::run::{Arm, Run, Settings, interleave, measure_alone};

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "rpc",
    question: "64-byte requests with both ends on one stack and two processors: how many a second?",
    run,
};

const EPOLL: &str = "kernel, epoll server, epoll client";
const URING: &str = "kernel, io_uring server, epoll client";
const URINGS: &str = "kernel, io_uring server, io_uring client";
const ONE: &str = "one engine and both applications in one thread (one processor)";
const DOUBLE: &str = "the same on both processors";
const APART: &str = "engine on one processor, both applications on the other";
const WIRE: &str = "two engines joined by the wire driver, an application with each";

/// Bytes of a message.
const BYTES: usize = 64;

/// Numbers of connections.
const CONNECTIONS: [usize; 2] = [1, 64];

fn run(settings: &Settings, progress: &Progress) -> anyhow::Result<Report> {
    let mut report = Report::new(EXPERIMENT.name, EXPERIMENT.question, settings);
    let loopback = Namespace::create("lo")?;
    for connections in CONNECTIONS {
        let mut arms = kernel_arms(&loopback, connections);
        arms.extend(engine_arms(connections));
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
        arm(EPOLL, EchoConfig::Epoll, Driver::Epoll),
        arm(URING, EchoConfig::IoUring, Driver::Epoll),
        arm(URINGS, EchoConfig::IoUring, Driver::IoUring),
    ]
}

/// Both ends on Sidecore, in each shape.
fn engine_arms<'a>(connections: usize) -> Vec<Arm<'a>> {
    let arm = |name: &str, shape: Shape| {
        let run = move |settings: &Settings| {
            let role = Role::Rpc(RpcConfig {
                shape,
                connections,
                bytes: BYTES,
                cores: [settings.server_core, settings.client_core],
                warm_up: settings.warm_up,
                measure: settings.measure,
            });
            let (netns, cores) = (None, Vec::new());
            measure_alone(settings, &RoleSpec { role, netns, cores })
        };
        Arm::new(name, run)
    };
    let mut arms = vec![
        arm(ONE, Shape::One),
        arm(APART, Shape::Apart),
        arm(WIRE, Shape::Wire),
    ];
    if connections > 1 {
        arms.push(arm(DOUBLE, Shape::Double));
    }
    arms
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
