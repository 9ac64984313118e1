//! `connections`: how many connections can come and go in a second, and what an idle one costs.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use super::Experiment;
use super::common::{note_void, ratio_cell, run_echo, table, with_range};
use super::echo::case_name;
use crate::echo::engine::EngineEcho;
use crate::echo::{EchoConfig, KernelEcho};
use crate::ground::{Namespace, TapGround, VethGround};
use crate::load::arrivals::Arrivals;
use crate::load::{Ask, LoadConfig};
use crate::memory::MemoryConfig;
use crate::native::Threads;
use crate::native::rpc::{ADDRESSES, RpcConfig, Shape};
use crate::process::RoleProcess;
use crate::progress::Progress;
use crate::report::{Report, Table, figure, summarise};
use crate::roles::{Role, RoleSpec};
use crate::run::{Arm, Run, Settings, interleave, measure_alone};

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "connections",
    question: "connect, 64 bytes there and back, close: how many a second, and what does one cost? And an idle connection?",
    run,
};

/// Exchanges under way at a time.
const NUMBERS: [usize; 2] = [1, 64];

const KERNEL: &str = "kernel, epoll";
const ONE: &str = "engine and server in one thread";
const TWO: &str = "engine and server in two threads";

/// Both ends on one stack.
const LOOPBACK: &str = "kernel loopback: epoll";
const LOOPBACKS: &str = "kernel loopback: two workers, two clients";
const ENGINE: &str = "engine: all in one thread (one processor)";
const ENGINES: &str = "engine: the same on each processor";

/// Idle connections; a first look takes the first number. The kernel takes the first only.
const IDLE: [usize; 2] = [100_000, 1_000_000];

/// How long idle connections may take to come up.
const COME_UP: Duration = Duration::from_secs(300);

const MEMORY: &str = "idle connections";

fn run(settings: &Settings, progress: &Progress) -> anyhow::Result<Report> {
    let mut report = Report::new(EXPERIMENT.name, EXPERIMENT.question, settings);
    over_a_link(&mut report, settings, progress)?;
    on_one_stack(&mut report, settings, progress)?;
    report.summaries = summarise(&report.runs);
    for number in NUMBERS {
        let (case, own) = (case_name(number), own_case(number));
        let title = format!("Kernel client, {case} at a time");
        report.tables.push(table(&title, &case, &report.summaries));
        let title = format!("Both ends on one stack, {case} at a time");
        report.tables.push(both_ends(&title, &own, &report));
        for arm in [ONE, TWO] {
            let ratio = ratio_cell(&report.runs, &case, arm, KERNEL, |run| run.load.rate);
            report.notes.push(format!(
                "{arm}, kernel client, {case} at a time: {ratio} times the kernel's rate."
            ));
        }
    }
    memory(&mut report, settings, progress)?;
    report.notes.extend([
        "A request is a whole exchange, from before connect to after close; the client closes first. The kernel client's own work (about 20 µs an exchange) bounds everything that it loads.".to_owned(),
        "Both ends on one stack: loopback, 64 addresses; the kernel may use a local port again after a second (`tcp_tw_reuse`), the engine's TIME-WAIT lasts a second here.".to_owned(),
        "Memory: what the process has more than before (shared memory counted once), its page tables, and the kernel's slabs, divided by the number of ends: two for each connection. Nothing was sent; nothing is queued. On the kernel there are as many connections as the limit of descriptors allows.".to_owned(),
    ]);
    note_void(&report.summaries, &mut report.notes);
    Ok(report)
}

/// A kernel client: the server on the kernel over veth, on an engine over a TAP.
fn over_a_link(
    report: &mut Report,
    settings: &Settings,
    progress: &Progress,
) -> anyhow::Result<()> {
    let (veth, tap) = (VethGround::create()?, TapGround::create("tc")?);
    for namespace in [&veth.client, &tap.client] {
        // A client that closes first keeps its ports for a minute; let it use them again.
        namespace.sysctl("net/ipv4/tcp_tw_reuse", "1")?;
    }
    for number in NUMBERS {
        let arm = |name: &str, threads: Threads| engine(&tap, name, threads, number);
        let mut arms = [
            kernel(&veth, number),
            arm(ONE, Threads::One),
            arm(TWO, Threads::Two),
        ];
        let runs = interleave(settings, &case_name(number), &mut arms, progress)?;
        report.runs.extend(runs);
    }
    Ok(())
}

fn own_case(number: usize) -> String {
    format!("both ends, {}", case_name(number))
}

/// Both ends on the kernel's loopback, or on an engine.
fn on_one_stack(
    report: &mut Report,
    settings: &Settings,
    progress: &Progress,
) -> anyhow::Result<()> {
    let loopback = Namespace::create("lo")?;
    loopback.sysctl("net/ipv4/tcp_tw_reuse", "1")?;
    for number in NUMBERS {
        let mut arms = vec![
            own_kernel(&loopback, LOOPBACK, number),
            own_engine(ENGINE, Shape::One, number),
        ];
        if number > 1 {
            arms.push(own_kernel(&loopback, LOOPBACKS, number));
            arms.push(own_engine(ENGINES, Shape::Double, number));
        }
        let runs = interleave(settings, &own_case(number), &mut arms, progress)?;
        report.runs.extend(runs);
    }
    Ok(())
}

fn own_kernel<'a>(loopback: &'a Namespace, name: &str, number: usize) -> Arm<'a> {
    let both = name == LOOPBACKS;
    let run = move |settings: &Settings| {
        let cores = match both {
            true => vec![settings.server_core, settings.client_core],
            false => vec![settings.server_core],
        };
        let server = EchoConfig::Epoll(KernelEcho {
            listen: (Ipv4Addr::UNSPECIFIED, 0).into(),
            cores: cores.clone(),
            congestion: Some(settings.congestion.clone()),
            spin: false,
        });
        let namespace = Some(loopback.name());
        run_echo(settings, (namespace, server), namespace, |address| {
            let target = |n: u8| SocketAddr::from((Ipv4Addr::new(127, 0, 0, n), address.port()));
            LoadConfig {
                targets: (1..=ADDRESSES).map(target).collect(),
                threads: if both { 2 } else { 1 },
                cores: if both { cores } else { Vec::new() },
                ..load(address, number)
            }
        })
    };
    Arm::new(name, run)
}

fn own_engine<'a>(name: &str, shape: Shape, connections: usize) -> Arm<'a> {
    let run = move |settings: &Settings| {
        let role = Role::Rpc(RpcConfig {
            shape,
            connections,
            bytes: 64,
            churn: true,
            arrivals: Arrivals::Closed,
            cores: [settings.server_core, settings.client_core],
            warm_up: settings.warm_up,
            measure: settings.measure,
        });
        let (netns, cores) = (None, Vec::new());
        measure_alone(settings, &RoleSpec { role, netns, cores })
    };
    Arm::new(name, run)
}

fn both_ends(title: &str, case: &str, report: &Report) -> Table {
    let columns = [
        "",
        "exchanges/s (min–max)",
        "µs/exchange, both processors (min–max)",
        "p50 µs",
        "p99 µs",
        "rate: ratio",
    ];
    let mut table = Table::new(title, &columns);
    for summary in report.summaries.iter().filter(|s| s.case == case) {
        // As many processors on either side.
        let partner = match summary.arm.as_str() {
            ENGINE => LOOPBACK,
            ENGINES => LOOPBACKS,
            _ => "",
        };
        table.rows.push(vec![
            summary.arm.clone(),
            with_range(&summary.rate),
            with_range(&summary.total_us),
            figure(summary.p50_us.median),
            figure(summary.p99_us.median),
            match partner {
                "" => "1".into(),
                partner => ratio_cell(&report.runs, case, &summary.arm, partner, |run| {
                    run.load.rate
                }),
            },
        ]);
    }
    table
}

/// What idle connections cost, on an engine and on the kernel.
fn memory(report: &mut Report, settings: &Settings, progress: &Progress) -> anyhow::Result<()> {
    let numbers = &IDLE[..if settings.quick { 1 } else { IDLE.len() }];
    let loopback = Namespace::create("lo")?;
    let columns = [
        "",
        "connections",
        "bytes of one end",
        "of these the kernel's",
        "MiB in all",
        "connections/s while they came up",
    ];
    for (index, number) in numbers.iter().enumerate() {
        let mut table = Table::new(&format!("{number} idle connections"), &columns);
        let kernel = (index == 0).then_some(("kernel loopback: epoll", true));
        let arms = kernel.into_iter().chain([("engine: both ends", false)]);
        for (name, kernel) in arms.filter(|(name, _)| settings.wants(name)) {
            progress.say(&format!("{number} {MEMORY}: {name}"));
            let connections = *number;
            let role = Role::Memory(MemoryConfig {
                connections,
                kernel,
            });
            let spec = settings.on_server(Some(loopback.name()), role);
            let process = RoleProcess::start(name, &spec)?;
            let used = process.memory(COME_UP)?;
            let ends = 2.0 * used.connections as f64;
            table.rows.push(vec![
                name.to_owned(),
                used.connections.to_string(),
                format!("{:.0}", used.per_end()),
                format!("{:.0}", used.kernel as f64 / ends),
                figure((used.process + used.kernel) as f64 / (1 << 20) as f64),
                figure(used.connections as f64 / used.seconds),
            ]);
            report.runs.push(Run {
                arm: name.to_owned(),
                case: format!("{number} {MEMORY}"),
                memory: Some(used),
                ..Run::default()
            });
        }
        report.tables.push(table);
    }
    Ok(())
}

fn load(address: SocketAddr, number: usize) -> LoadConfig {
    LoadConfig::closed(address, Ask::Churn(64), number)
}

fn kernel(veth: &VethGround, number: usize) -> Arm<'_> {
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
            |address| load(address, number),
        )
    };
    Arm::new(KERNEL, run)
}

fn engine<'a>(tap: &'a TapGround, name: &str, threads: Threads, number: usize) -> Arm<'a> {
    let run = move |settings: &Settings| {
        let server = EchoConfig::Engine(EngineEcho {
            tap: tap.tap(),
            port: 7,
            threads,
            poll: false,
            // Closed connections keep their handles for a moment.
            connections: 64 * 1024,
            socket: None,
        });
        run_echo(
            settings,
            (None, server),
            Some(tap.client.name()),
            |address| load(address, number),
        )
    };
    Arm::new(name, run)
}
