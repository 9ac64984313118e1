//! `connections`: how many connections can come and go in a second, and what an idle one costs.

use std::net::SocketAddr;

use super::Experiment;
use super::common::{note_void, run_echo, table};
use super::echo::case_name;
use crate::echo::engine::EngineEcho;
use crate::echo::{EchoConfig, KernelEcho};
use crate::ground::{TapGround, VethGround};
use crate::load::{Ask, LoadConfig};
use crate::native::Threads;
use crate::progress::Progress;
use crate::report::{Report, compare, summarise};
use crate::run::{Arm, Run, Settings, interleave};

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "connections",
    question: "connect, 64 bytes there and back, close: how many a second, and what does one cost the server's side?",
    run,
};

/// Exchanges under way at a time.
const NUMBERS: [usize; 2] = [1, 64];

const KERNEL: &str = "kernel, epoll";
const ONE: &str = "engine and server in one thread";
const TWO: &str = "engine and server in two threads";

fn run(settings: &Settings, progress: &Progress) -> anyhow::Result<Report> {
    let mut report = Report::new(EXPERIMENT.name, EXPERIMENT.question, settings);
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
        report.runs.extend(interleave(
            settings,
            &case_name(number),
            &mut arms,
            progress,
        )?);
    }
    report.summaries = summarise(&report.runs);
    for number in NUMBERS {
        let case = case_name(number);
        report.tables.push(table(
            &format!("{case} at a time"),
            &case,
            &report.summaries,
        ));
        for arm in [ONE, TWO] {
            if let Some(ratio) =
                compare(&report.runs, &case, arm, KERNEL, |run: &Run| run.load.rate)
            {
                report.notes.push(format!(
                    "{arm}, {case} at a time: {:.2} times the kernel's rate ({:.2}–{:.2}, {} pairs).",
                    ratio.ratio, ratio.low, ratio.high, ratio.pairs
                ));
            }
        }
    }
    report.notes.push("A request is a whole exchange, from before connect to after close; the client closes first. The kernel client's own work (about 20 µs an exchange) bounds all of them.".into());
    note_void(&report.summaries, &mut report.notes);
    Ok(report)
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
