//! `rpc`: both ends of every connection on one stack.

use std::net::{Ipv4Addr, SocketAddr};

use super::Experiment;
use super::common::{in_short, note_void, ratio_cell, run_echo, with_range};
use super::echo::case_name;
use crate::echo::{EchoConfig, KernelEcho};
use crate::ground::Namespace;
use crate::load::arrivals::Arrivals;
use crate::load::{Ask, Driver, LoadConfig};
use crate::native::rpc::{RpcConfig, Shape};
use crate::pairs::PairsConfig;
use crate::progress::Progress;
use crate::report::{Plot, Report, Series, Summary, Table, figure, summarise};
use crate::roles::{Role, RoleSpec};
use crate::run::{Arm, Run, Settings, interleave, measure_alone};

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "rpc",
    question: "requests with both ends on one stack and two processors: how many a second, what do they cost, how long do they take?",
    run,
};

const EPOLL: &str = "kernel: epoll";
const SPIN: &str = "kernel: epoll, both ends spin";
const URING: &str = "kernel: io_uring server, epoll client";
const URINGS: &str = "kernel: io_uring, both ends";
const WORKERS: &str = "kernel: epoll, two workers, two clients";
const UNIX: &str = "AF_UNIX: epoll";
const ONE: &str = "engine: all in one thread (one processor)";
const DOUBLE: &str = "engine: the same on each processor";
const APART: &str = "engine: both ends on the other processor";
const WIRE: &str = "engine: one with each end, a wire between";

/// What counts as the kernel's TCP.
const KERNEL: [&str; 5] = [EPOLL, SPIN, URING, URINGS, WORKERS];

/// What is compared with it.
const OTHERS: [&str; 5] = [UNIX, ONE, DOUBLE, APART, WIRE];

/// Bytes of a message, where nothing else is said.
const BYTES: usize = 64;

/// Connections of the open loop, whose rate comes from the closed one with as many.
const CONNECTIONS: usize = 64;

/// Connections and bytes of the closed loops; the first two are all of a first look.
const LOOPS: [(usize, usize); 7] = [
    (1, BYTES),
    (CONNECTIONS, BYTES),
    (512, BYTES),
    (10_000, BYTES),
    (CONNECTIONS, 1024),
    (CONNECTIONS, 16 * 1024),
    (CONNECTIONS, 64 * 1024),
];

const HALF: &str = "half load";

/// A load.
#[derive(Clone, Copy)]
struct Load {
    connections: usize,
    bytes: usize,
    arrivals: Arrivals,
}

fn run(settings: &Settings, progress: &Progress) -> anyhow::Result<Report> {
    let mut report = Report::new(EXPERIMENT.name, EXPERIMENT.question, settings);
    let loopback = Namespace::create("lo")?;
    let loops = &LOOPS[..if settings.quick { 2 } else { LOOPS.len() }];
    for (connections, bytes) in loops {
        let load = Load {
            connections: *connections,
            bytes: *bytes,
            arrivals: Arrivals::Closed,
        };
        let mut arms = arms(&loopback, load);
        let case = case(*connections, *bytes);
        report
            .runs
            .extend(interleave(settings, &case, &mut arms, progress)?);
    }
    let peak_case = case(CONNECTIONS, BYTES);
    let summaries = summarise(&report.runs);
    let peak = best(&summaries, &peak_case, &KERNEL, |s| -s.rate.median);
    let rate = peak.map_or(50_000.0, |summary| summary.rate.median / 2.0);
    let half = Load {
        connections: CONNECTIONS,
        bytes: BYTES,
        arrivals: Arrivals::Poisson(rate, 1),
    };
    let mut arms = arms(&loopback, half);
    report
        .runs
        .extend(interleave(settings, HALF, &mut arms, progress)?);
    report.summaries = summarise(&report.runs);
    for (connections, bytes) in loops {
        let case = case(*connections, *bytes);
        report.tables.push(table(&case, &case, &report.summaries));
    }
    let title = format!(
        "{peak_case}, open loop at {} requests/s, half of the kernel's best rate ({})",
        figure(rate),
        peak.map_or("none", |summary| &summary.arm)
    );
    report.tables.push(table(&title, HALF, &report.summaries));
    let ratios = ratios(&report, loops);
    report.tables.push(ratios);
    report.findings.extend(finding(&report));
    report.plots = plots(&report.summaries, loops);
    report.notes = notes();
    note_void(&report.summaries, &mut report.notes);
    Ok(report)
}

fn case(connections: usize, bytes: usize) -> String {
    let size = match bytes {
        1024.. => format!("{} KiB", bytes / 1024),
        _ => format!("{bytes} bytes"),
    };
    format!("{}, {size}", case_name(connections))
}

fn arms(loopback: &Namespace, load: Load) -> Vec<Arm<'_>> {
    let mut arms = kernel_arms(loopback, load);
    arms.push(unix_arm(load));
    arms.extend(engine_arms(load));
    arms
}

/// Kernel loopback: servers and clients of each kind that can make this load.
fn kernel_arms(loopback: &Namespace, load: Load) -> Vec<Arm<'_>> {
    let arm = |name: &str, make: fn(KernelEcho) -> EchoConfig, driver: Driver| {
        let (spin, workers) = (name == SPIN, name == WORKERS);
        let run = move |settings: &Settings| {
            let both = vec![settings.server_core, settings.client_core];
            let server = make(KernelEcho {
                // A port of its own each time: a ring's listener outlives its process for a moment.
                listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
                cores: if workers {
                    both.clone()
                } else {
                    vec![settings.server_core]
                },
                congestion: Some(settings.congestion.clone()),
                spin,
            });
            let namespace = Some(loopback.name());
            run_echo(settings, (namespace, server), namespace, |address| {
                LoadConfig {
                    driver,
                    spin,
                    arrivals: load.arrivals,
                    threads: if workers { 2 } else { 1 },
                    cores: if workers { both } else { Vec::new() },
                    ..LoadConfig::closed(address, Ask::Echo(load.bytes), load.connections)
                }
            })
        };
        Arm::new(name, run)
    };
    let mut arms = vec![
        arm(EPOLL, EchoConfig::Epoll, Driver::Epoll),
        arm(SPIN, EchoConfig::Epoll, Driver::Epoll),
        arm(URING, EchoConfig::IoUring, Driver::Epoll),
    ];
    // The ring client knows closed loops of small messages only.
    if load.arrivals == Arrivals::Closed && load.bytes <= 4096 {
        arms.push(arm(URINGS, EchoConfig::IoUring, Driver::IoUring));
    }
    if load.connections > 1 {
        arms.push(arm(WORKERS, EchoConfig::Epoll, Driver::Epoll));
    }
    arms
}

/// Both ends on AF_UNIX.
fn unix_arm<'a>(load: Load) -> Arm<'a> {
    let run = move |settings: &Settings| {
        let role = Role::Pairs(PairsConfig {
            connections: load.connections,
            bytes: load.bytes,
            arrivals: load.arrivals,
            cores: [settings.server_core, settings.client_core],
            warm_up: settings.warm_up,
            measure: settings.measure,
        });
        alone(settings, role)
    };
    Arm::new(UNIX, run)
}

/// Both ends on Sidecore, in each shape.
fn engine_arms<'a>(load: Load) -> Vec<Arm<'a>> {
    let arm = |name: &str, shape: Shape| {
        let run = move |settings: &Settings| {
            let role = Role::Rpc(RpcConfig {
                shape,
                connections: load.connections,
                bytes: load.bytes,
                churn: false,
                arrivals: load.arrivals,
                cores: [settings.server_core, settings.client_core],
                warm_up: settings.warm_up,
                measure: settings.measure,
            });
            alone(settings, role)
        };
        Arm::new(name, run)
    };
    let mut arms = vec![
        arm(ONE, Shape::One),
        arm(APART, Shape::Apart),
        arm(WIRE, Shape::Wire),
    ];
    if load.connections > 1 {
        arms.insert(1, arm(DOUBLE, Shape::Double));
    }
    arms
}

fn alone(settings: &Settings, role: Role) -> anyhow::Result<Run> {
    let (netns, cores) = (None, Vec::new());
    measure_alone(settings, &RoleSpec { role, netns, cores })
}

fn table(title: &str, case: &str, summaries: &[Summary]) -> Table {
    let columns = [
        "",
        "requests/s (min–max)",
        "µs/request (min–max)",
        "p50 µs",
        "p99 µs",
        "p99.9 µs",
    ];
    let mut table = Table::new(title, &columns);
    for summary in summaries.iter().filter(|summary| summary.case == case) {
        table.rows.push(vec![
            summary.arm.clone(),
            with_range(&summary.rate),
            with_range(&summary.total_us),
            figure(summary.p50_us.median),
            figure(summary.p99_us.median),
            figure(summary.p999_us.median),
        ]);
    }
    table
}

/// Of these arms in a case, the one of which `value` is the least.
fn best<'a>(
    summaries: &'a [Summary],
    case: &str,
    arms: &[&str],
    value: impl Fn(&Summary) -> f64,
) -> Option<&'a Summary> {
    summaries
        .iter()
        .filter(|s| s.case == case && arms.contains(&s.arm.as_str()))
        .min_by(|a, b| value(a).total_cmp(&value(b)))
}

/// Everything else against the best of the kernel's TCP, in what is asked.
fn ratios(report: &Report, loops: &[(usize, usize)]) -> Table {
    type Value = fn(&Run) -> f64;
    let mut questions: Vec<(String, String, &str, Value)> = Vec::new();
    let mut ask = |title: String, case: &str, best: Option<&Summary>, value: Value| {
        let Some(best) = best else { return };
        let arm = report.summaries.iter().find(|s| s.arm == best.arm);
        if let Some(arm) = arm {
            questions.push((title, case.to_owned(), &arm.arm, value));
        }
    };
    let of_kernel =
        |case: &str, value: fn(&Summary) -> f64| best(&report.summaries, case, &KERNEL, value);
    for (connections, bytes) in loops {
        let case = case(*connections, *bytes);
        let peak = of_kernel(&case, |s| -s.rate.median);
        ask(format!("requests/s: {case}"), &case, peak, |r| r.load.rate);
    }
    let least = of_kernel(HALF, |s| s.total_us.median);
    ask("µs/request: half load".into(), HALF, least, Run::total_us);
    let p99 = of_kernel(HALF, |s| s.p99_us.median);
    ask("p99: half load".into(), HALF, p99, |r| {
        r.load.latency.p99_us
    });
    let short = OTHERS.map(|arm| arm.split(" (").next().unwrap_or(arm));
    let columns: Vec<&str> = ["", "kernel's best"].into_iter().chain(short).collect();
    let title = "Against the kernel's best: ratios of pairs, with 95 % intervals";
    let mut table = Table::new(title, &columns);
    for (title, case, best, value) in questions {
        let mut row = vec![title, best.trim_start_matches("kernel: ").to_owned()];
        row.extend(OTHERS.map(|arm| ratio_cell(&report.runs, &case, arm, best, value)));
        table.rows.push(row);
    }
    table
}

/// What it comes to.
fn finding(report: &Report) -> Option<String> {
    let case = case(CONNECTIONS, BYTES);
    let peak = best(&report.summaries, &case, &KERNEL, |s| -s.rate.median)?;
    let ratio = |arm: &str| {
        let rate = |run: &Run| run.load.rate;
        ratio_cell(&report.runs, &case, arm, &peak.arm, rate)
    };
    in_short(format!(
        "In short: with {case}, {} times the requests a second of the kernel's best ({}) on one processor, {} times on both.",
        ratio(ONE),
        peak.arm,
        ratio(DOUBLE)
    ))
}

fn plots(summaries: &[Summary], loops: &[(usize, usize)]) -> Vec<Plot> {
    let cases: Vec<String> = loops.iter().map(|(c, b)| case(*c, *b)).collect();
    let arms: Vec<&str> = KERNEL.into_iter().chain(OTHERS).collect();
    let find = |case: &str, arm: &str| summaries.iter().find(|s| s.case == case && s.arm == arm);
    let rates = arms.iter().map(|arm| {
        let cases = cases.iter().enumerate();
        let points =
            cases.filter_map(|(group, case)| Some((group as f64, find(case, arm)?.rate.median)));
        series(arm, points.collect())
    });
    let latencies = arms.iter().filter_map(|arm| {
        let s = find(HALF, arm)?;
        let values = [s.p50_us.median, s.p99_us.median, s.p999_us.median];
        let points = values
            .iter()
            .enumerate()
            .map(|(group, v)| (group as f64, *v));
        Some(series(arm, points.collect()))
    });
    vec![
        Plot {
            title: "Requests a second, both ends on one stack".into(),
            x: "load (closed loop)".into(),
            y: "requests/s".into(),
            groups: cases.clone(),
            series: rates.collect(),
            logarithmic: true,
        },
        Plot {
            title: "Latency at half of the kernel's best rate".into(),
            x: "quantile".into(),
            y: "µs".into(),
            groups: ["p50", "p99", "p99.9"].map(str::to_owned).to_vec(),
            series: latencies.collect(),
            logarithmic: true,
        },
    ]
}

fn series(name: &str, points: Vec<(f64, f64)>) -> Series {
    let name = name.to_owned();
    Series { name, points }
}

fn notes() -> Vec<String> {
    [
        "µs/request: busy time of all processors, client and server together, polling included. Engines poll here: their processors are busy whatever the load.",
        "Engine: 'all in one thread' is engine, server and client on one processor; 'the same on each' twice that; 'both ends on the other': the engine alone on one processor, server and client in one thread on the other; 'one with each end': an engine and one application in one thread on each processor.",
        "Kernel: loopback inside one namespace, server on one processor, client on the other; 'two workers, two clients': one of each on each processor. Sleeping and spinning servers both stand for the kernel: the better one counts.",
        "AF_UNIX: stream socket pairs, epoll at both ends, one thread on each processor: what programs of one machine have without TCP.",
        "Open loop: Poisson arrivals, latency from when a request was due.",
    ]
    .map(str::to_owned)
    .to_vec()
}
