//! `web`: 1 KiB files over keep-alive connections; the web server on the engine, and on the kernel in each of its ways.

use std::net::SocketAddr;

use sidecore_engine::IdlePolicy;

use super::Experiment;
use super::common::{in_short, note_void, ratio_cell, run_against, run_echo, table};
use crate::echo::{EchoConfig, NullEcho};
use crate::ground::{TapGround, VethGround};
use crate::load::arrivals::Arrivals;
use crate::load::{Ask, LoadConfig};
use crate::native::Threads;
use crate::progress::Progress;
use crate::report::{Plot, Report, Series, Summary, Table, figure, summarise};
use crate::roles::Role;
use crate::run::{Arm, Run, Settings, interleave, measure, sample};
use crate::web::nginx::{self, Nginx};
use crate::web::{Carrier, Site, WebConfig};

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "web",
    question: "1 KiB files over keep-alive connections: requests a second, and what one costs the server's side?",
    run,
};

/// Connections of the client.
const CONNECTIONS: usize = 64;

/// The file, and its bytes.
const FILE: (&str, usize) = ("1k.bin", 1024);

/// Bytes of a response head, about: what the null responder sends along.
const HEAD: usize = 200;

const PORT: u16 = 8080;

/// The case in which every server gives what it can.
pub const SATURATION: &str = "saturation";

/// The case in which all get the same load.
pub const HALF: &str = "half of the kernel's best rate";

const ENGINE_ONE: &str = "userver on the engine, one thread";
const ENGINE_ADAPTIVE: &str = "userver on the engine, one thread, adaptive";
const ENGINE_TWO: &str = "userver on the engine, two threads";
const FLOOR: &str = "TAP floor (null responder)";
const KERNEL: [(&str, &str); 3] = [
    ("userver, epoll + write", "epoll"),
    ("userver, epoll + sendfile", "sendfile"),
    ("userver, io_uring", "io-uring"),
];
const NGINX: &str = "nginx";

/// Where everything happens.
struct Stage {
    veth: VethGround,
    tap: TapGround,
    site: Site,
}

fn run(settings: &Settings, progress: &Progress) -> anyhow::Result<Report> {
    let mut report = Report::new(EXPERIMENT.name, EXPERIMENT.question, settings);
    add_to(&mut report, settings, progress)?;
    note_void(&report.summaries, &mut report.notes);
    Ok(report)
}

/// Makes the runs, and adds them with tables, plot and notes to a report.
pub fn add_to(report: &mut Report, settings: &Settings, progress: &Progress) -> anyhow::Result<()> {
    let stage = Stage {
        veth: VethGround::create()?,
        tap: TapGround::create("tc")?,
        site: Site::create(&[FILE])?,
    };
    stage.veth.congestion(&settings.congestion)?;
    let mut arms = stage.arms(Arrivals::Closed);
    let mut runs = interleave(settings, SATURATION, &mut arms, progress)?;
    runs.extend(sample(settings, SATURATION, &mut arms, progress)?);
    let summaries = summarise(&runs);
    let best = best_kernel(&summaries);
    let rate = best.map_or(10_000.0, |summary| summary.rate.median / 2.0);
    let half = Arrivals::Poisson(rate, 1);
    let mut arms = stage.arms(half);
    runs.extend(interleave(settings, HALF, &mut arms, progress)?);
    if !settings.quick {
        runs.extend(sample(settings, HALF, &mut arms, progress)?);
    }
    let summaries = summarise(&runs);
    let saturation = format!("1 KiB files, {CONNECTIONS} connections, closed loop");
    let half = format!(
        "1 KiB files, open loop at {} requests/s ({HALF})",
        figure(rate)
    );
    report
        .tables
        .push(table(&saturation, SATURATION, &summaries));
    report.tables.push(table(&half, HALF, &summaries));
    report.findings.extend(finding(&summaries, &runs));
    report.tables.push(ratios(&summaries, &runs));
    report.plots.push(plot(&summaries));
    report.notes.extend(notes());
    report.notes.extend(per_request(&runs));
    report.summaries.extend(summaries);
    report.runs.extend(runs);
    Ok(())
}

impl Stage {
    /// All servers under this load.
    fn arms(&self, arrivals: Arrivals) -> Vec<Arm<'_>> {
        let mut arms = vec![
            self.engine(ENGINE_ONE, Threads::One, IdlePolicy::Poll, arrivals),
            self.engine(
                ENGINE_ADAPTIVE,
                Threads::One,
                IdlePolicy::Adaptive,
                arrivals,
            ),
            self.engine(ENGINE_TWO, Threads::Two, IdlePolicy::Adaptive, arrivals),
        ];
        arms.extend(KERNEL.map(|(name, io)| self.kernel(name, io, arrivals)));
        arms.extend(nginx::program().map(|program| self.nginx(program, arrivals)));
        arms.push(self.floor(arrivals));
        arms
    }

    fn engine(
        &self,
        name: &str,
        threads: Threads,
        idle: IdlePolicy,
        arrivals: Arrivals,
    ) -> Arm<'_> {
        let run = move |settings: &Settings| {
            let carrier = Carrier::Engine {
                tap: self.tap.tap(),
                port: PORT,
                threads,
                idle,
            };
            let client = Some(self.tap.client.name());
            run_against(settings, (None, self.server(carrier)), client, |address| {
                load(address, arrivals)
            })
        };
        Arm::new(name, run)
    }

    fn kernel(&self, name: &str, io: &'static str, arrivals: Arrivals) -> Arm<'_> {
        let run = move |settings: &Settings| {
            let carrier = Carrier::Kernel {
                io: io.into(),
                listen: (self.veth.address, 0).into(),
                cores: vec![settings.server_core],
            };
            let (server, client) = (Some(self.veth.server.name()), Some(self.veth.client.name()));
            run_against(
                settings,
                (server, self.server(carrier)),
                client,
                |address| load(address, arrivals),
            )
        };
        Arm::new(name, run)
    }

    fn server(&self, carrier: Carrier) -> Role {
        Role::Web(WebConfig {
            root: self.site.path().to_owned(),
            carrier,
            connections: CONNECTIONS,
        })
    }

    fn nginx(&self, program: std::path::PathBuf, arrivals: Arrivals) -> Arm<'_> {
        let run = move |settings: &Settings| {
            let listen = SocketAddr::from((self.veth.address, PORT));
            let namespace = self.veth.server.name();
            let mut server = Nginx::start(
                &program,
                namespace,
                self.site.path(),
                listen,
                settings.server_core,
            )?;
            let load = settings.on_client(Some(self.veth.client.name()), load(listen, arrivals));
            measure(settings, &load, &mut server)
        };
        Arm::new(NGINX, run)
    }

    fn floor(&self, arrivals: Arrivals) -> Arm<'_> {
        let run = move |settings: &Settings| {
            let head = format!(
                "HTTP/1.1 200 OK\r\nServer: null\r\nContent-Length: {}\r\nX: ",
                FILE.1
            );
            let filler = "x".repeat(HEAD - head.len() - 4);
            let canned = format!("{head}{filler}\r\n\r\n{}", "a".repeat(FILE.1));
            let server = EchoConfig::Null(NullEcho {
                tap: self.tap.tap(),
                port: PORT,
                canned: Some(canned.into_bytes()),
                spin: false,
            });
            run_echo(
                settings,
                (None, server),
                Some(self.tap.client.name()),
                |address| load(address, arrivals),
            )
        };
        Arm::new(FLOOR, run)
    }
}

fn load(address: SocketAddr, arrivals: Arrivals) -> LoadConfig {
    LoadConfig {
        arrivals,
        ..LoadConfig::closed(
            address,
            Ask::Http(vec![format!("/{}", FILE.0)]),
            CONNECTIONS,
        )
    }
}

/// The kernel's best: the highest rate at saturation.
fn best_kernel(summaries: &[Summary]) -> Option<&Summary> {
    let is_kernel = |summary: &&Summary| {
        summary.case == SATURATION
            && (summary.arm == NGINX || KERNEL.iter().any(|(name, _)| *name == summary.arm))
    };
    summaries
        .iter()
        .filter(is_kernel)
        .max_by(|a, b| a.rate.median.total_cmp(&b.rate.median))
}

/// The engine against the kernel's best, pair by pair. Without the peer's receive: ratios of medians, as shares come from one run of each.
fn ratios(summaries: &[Summary], runs: &[Run]) -> Table {
    let best = best_kernel(summaries).map_or("", |summary| summary.arm.as_str());
    let title = format!("Against the kernel's best ({best}): ratios of pairs, with 95 % intervals");
    let find = |case: &str, arm: &str| summaries.iter().find(|s| s.case == case && s.arm == arm);
    let without = |case: &str, arm: &str, value: fn(&Summary) -> Option<f64>| {
        let (ours, theirs) = (value(find(case, arm)?)?, value(find(case, best)?)?);
        Some(ours / theirs)
    };
    let sampled = without(SATURATION, ENGINE_ONE, Summary::without_peer_us).is_some();
    let mut columns = vec!["", "requests/s", "server CPU/request"];
    if sampled {
        columns.extend(["without peer's receive", "with its own elsewhere"]);
    }
    columns.extend(["CPU at half load", "p99 at half load"]);
    let mut table = Table::new(&title, &columns);
    for arm in [ENGINE_ONE, ENGINE_ADAPTIVE, ENGINE_TWO, FLOOR] {
        let ratio = |case, value: fn(&Run) -> f64| ratio_cell(runs, case, arm, best, value);
        let plain = |value| match without(SATURATION, arm, value) {
            Some(ratio) => format!("{ratio:.2}"),
            None => "–".into(),
        };
        let mut row = vec![arm.into(), ratio(SATURATION, |run| run.load.rate)];
        row.push(ratio(SATURATION, Run::server_us));
        if sampled {
            row.push(plain(Summary::without_peer_us));
            row.push(plain(Summary::own_us));
        }
        row.push(ratio(HALF, Run::server_us));
        row.push(ratio(HALF, |run| run.load.latency.p99_us));
        table.rows.push(row);
    }
    table
}

/// What it comes to.
fn finding(summaries: &[Summary], runs: &[Run]) -> Option<String> {
    let best = &best_kernel(summaries)?.arm;
    let ratio = |value: fn(&Run) -> f64| ratio_cell(runs, SATURATION, ENGINE_ONE, best, value);
    in_short(format!(
        "In short: for 1 KiB files, engine and web server in one thread took {} of the server CPU a request that the kernel's best ({best}) took, and answered {} times as many requests a second.",
        ratio(Run::server_us),
        ratio(|run| run.load.rate)
    ))
}

/// What the engine did for a request at saturation, by its own counters.
fn per_request(runs: &[Run]) -> Vec<String> {
    [ENGINE_ONE, ENGINE_ADAPTIVE, ENGINE_TWO]
        .iter()
        .filter_map(|arm| {
            let run = runs.iter().find(|run| run.case == SATURATION && run.arm == *arm && run.engine.is_some())?;
            let (engine, requests) = (run.engine?, run.load.rate * run.books.seconds);
            Some(format!(
                "{arm}, one run at saturation, by the engine's own counters: {:.2} frames in, {:.2} out and {:.2} system calls a request.",
                engine.frames_in as f64 / requests,
                engine.frames_out as f64 / requests,
                engine.system_calls as f64 / requests
            ))
        })
        .collect()
}

fn plot(summaries: &[Summary]) -> Plot {
    let arms = summaries
        .iter()
        .filter(|summary| summary.case == SATURATION);
    let series = |arm: &Summary| {
        let value = |case: &str| {
            summaries
                .iter()
                .find(|s| s.case == case && s.arm == arm.arm)
                .map(|s| s.server_us.median)
        };
        let points = [SATURATION, HALF].iter().enumerate();
        Series {
            name: arm.arm.clone(),
            points: points
                .filter_map(|(group, case)| Some((group as f64, value(case)?)))
                .collect(),
        }
    };
    Plot {
        title: "1 KiB files: time of the server's processor per request".into(),
        x: "load".into(),
        y: "µs per request".into(),
        groups: vec![SATURATION.into(), HALF.into()],
        series: arms.map(series).collect(),
        logarithmic: false,
    }
}

fn notes() -> Vec<String> {
    let mut notes = super::echo::notes();
    notes.push(
        "'One thread': turns of the engine and of the server alternate in one thread, which never sleeps (at half load its 'server µs' are all of the processor, 'useful' what the engine needed of it) or, 'adaptive', sleeps or naps when there is nothing to do. 'Two threads': the engine in a thread of its own beside the server's, on the same processor, sleeping when idle (adaptive)."
            .into(),
    );
    notes.push("Half load: an open loop, Poisson arrivals, latency from when a request was due; the same rate for all.".into());
    notes
}
