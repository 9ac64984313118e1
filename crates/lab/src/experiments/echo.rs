//! `echo`: 64-byte messages from a kernel client; what each server costs on its side.

use super::Experiment;
use super::common::{note_void, run_echo, table};
use crate::echo::engine::EngineEcho;
use crate::echo::{EchoConfig, KernelEcho, NullEcho, SmoltcpEcho};
use crate::ground::{TapGround, VethGround};
use crate::load::{Ask, LoadConfig};
use crate::native::Threads;
use crate::progress::Progress;
use crate::report::{Plot, Report, Series, Summary, summarise};
use crate::run::{Arm, Settings, interleave, sample};

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "echo",
    question: "64-byte echo for a kernel client: what does a request cost the server's side?",
    run,
};

const PORT: u16 = 7;

/// Bytes of a message.
const BYTES: usize = 64;

/// Numbers of connections.
const CONNECTIONS: [usize; 3] = [1, 64, 512];

fn run(settings: &Settings, progress: &Progress) -> anyhow::Result<Report> {
    let mut report = Report::new(EXPERIMENT.name, EXPERIMENT.question, settings);
    add_to(&mut report, &CONNECTIONS, settings, progress)?;
    report.notes.extend(notes());
    note_void(&report.summaries, &mut report.notes);
    Ok(report)
}

/// Makes the runs with these numbers of connections, and adds them with tables and plot to a report.
pub fn add_to(
    report: &mut Report,
    connections: &[usize],
    settings: &Settings,
    progress: &Progress,
) -> anyhow::Result<()> {
    let veth = VethGround::create()?;
    let tap = TapGround::create("tc")?;
    let mut runs = Vec::new();
    for number in connections {
        let mut arms = arms(&veth, &tap, *number);
        let case = case_name(*number);
        runs.extend(interleave(settings, &case, &mut arms, progress)?);
        runs.extend(sample(settings, &case, &mut arms, progress)?);
    }
    let summaries = summarise(&runs);
    for number in connections {
        let case = case_name(*number);
        report
            .tables
            .push(table(&format!("64-byte echo, {case}"), &case, &summaries));
    }
    report.plots.push(plot(&summaries, connections));
    report.summaries.extend(summaries);
    report.runs.extend(runs);
    Ok(())
}

/// Name of the load.
pub fn case_name(connections: usize) -> String {
    match connections {
        1 => "1 connection".into(),
        _ => format!("{connections} connections"),
    }
}

/// All servers, for interleaved runs with so many connections.
pub fn arms<'a>(veth: &'a VethGround, tap: &'a TapGround, connections: usize) -> Vec<Arm<'a>> {
    let kernel = move |make: fn(KernelEcho) -> EchoConfig| {
        move |settings: &Settings| {
            let server = make(KernelEcho {
                // A port of its own each time: a ring's listener outlives its process for a moment.
                listen: (veth.address, 0).into(),
                cores: vec![settings.server_core],
                congestion: Some(settings.congestion.clone()),
                spin: false,
            });
            let client = Some(veth.client.name());
            run_echo(
                settings,
                (Some(veth.server.name()), server),
                client,
                |address| load(address, connections),
            )
        }
    };
    let over_tap = move |make: fn(&TapGround, usize) -> EchoConfig| {
        move |settings: &Settings| {
            let server = make(tap, connections);
            run_echo(
                settings,
                (None, server),
                Some(tap.client.name()),
                |address| load(address, connections),
            )
        }
    };
    vec![
        Arm::new("kernel, epoll", kernel(EchoConfig::Epoll)),
        Arm::new("kernel, io_uring", kernel(EchoConfig::IoUring)),
        Arm::new("TAP floor (null responder)", over_tap(null)),
        Arm::new("smoltcp over TAP", over_tap(smoltcp)),
        Arm::new("engine and server in one thread", over_tap(engine_one)),
        Arm::new("engine and server in two threads", over_tap(engine_two)),
    ]
}

fn load(address: std::net::SocketAddr, connections: usize) -> LoadConfig {
    LoadConfig::closed(address, Ask::Echo(BYTES), connections)
}

fn null(ground: &TapGround, _: usize) -> EchoConfig {
    EchoConfig::Null(NullEcho {
        tap: ground.tap(),
        port: PORT,
        canned: None,
        spin: false,
    })
}

fn smoltcp(ground: &TapGround, connections: usize) -> EchoConfig {
    EchoConfig::Smoltcp(SmoltcpEcho {
        tap: ground.tap(),
        port: PORT,
        connections: connections + connections.min(32),
        spin: false,
    })
}

fn engine_one(ground: &TapGround, connections: usize) -> EchoConfig {
    engine(ground, connections, Threads::One)
}

fn engine_two(ground: &TapGround, connections: usize) -> EchoConfig {
    engine(ground, connections, Threads::Two)
}

fn engine(ground: &TapGround, connections: usize, threads: Threads) -> EchoConfig {
    EchoConfig::Engine(EngineEcho {
        tap: ground.tap(),
        port: PORT,
        threads,
        poll: false,
        connections,
        socket: None,
    })
}

/// Costs by number of connections, for each server.
fn plot(summaries: &[Summary], numbers: &[usize]) -> Plot {
    let mut series: Vec<Series> = Vec::new();
    for (group, connections) in numbers.iter().enumerate() {
        let case = case_name(*connections);
        for summary in summaries.iter().filter(|summary| summary.case == case) {
            let point = (group as f64, summary.server_us.median);
            match series.iter_mut().find(|series| series.name == summary.arm) {
                Some(series) => series.points.push(point),
                None => series.push(Series {
                    name: summary.arm.clone(),
                    points: vec![point],
                }),
            }
        }
    }
    Plot {
        title: "64-byte echo: time of the server's processor per request".into(),
        x: "load".into(),
        y: "µs per request".into(),
        groups: numbers.iter().map(|number| case_name(*number)).collect(),
        series,
        logarithmic: false,
    }
}

/// What a reader must know.
pub fn notes() -> Vec<String> {
    [
        "Server µs/request: all time that the server side's processor was busy, polling, interrupts and soft interrupts included, divided by requests. 'Application' and 'engine' are what the scheduler charged to their threads; 'useful' is what the engine counts as productive.",
        "Peer's receive: the client's TCP receive runs inside the server's writes, on veth and on TAP alike, and is charged to the server. 'Without peer's receive' takes it away, as one more run under `perf` tells its share (no such column: not sampled). Over veth the server's own receive likewise runs inside the client's writes and is charged to the client, while a stack behind a TAP does its own: 'with its own elsewhere' adds it. It is what the server's side costs, wherever it was done; the columns before it favour the kernel.",
        "Kernel servers are reached over a veth pair between two namespaces, the others over a TAP device; no receive steering. Closed loop: one request outstanding on each connection.",
    ]
    .map(str::to_owned)
    .to_vec()
}
