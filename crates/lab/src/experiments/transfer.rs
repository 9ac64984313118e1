//! `transfer`: one bulk connection to a kernel client, in each direction, by transfer size.

use std::net::SocketAddr;

use sidecore_engine::IdlePolicy;

use super::Experiment;
use super::common::{in_short, note_void, ratio_cell, run_against, with_range};
use crate::bulk::BulkConfig;
use crate::ground::{TapGround, VethGround};
use crate::load::{Ask, LoadConfig};
use crate::native::Threads;
use crate::progress::Progress;
use crate::report::{Plot, Report, Series, Summary, Table, figure, summarise};
use crate::roles::Role;
use crate::run::{Arm, Run, Settings, interleave, sample};
use crate::statistics::Spread;
use crate::web::{Carrier, Site, WebConfig};

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "transfer",
    question: "one bulk connection to a kernel client, in each direction: what does a byte cost the server's side?",
    run,
};

const ENGINE_ONE: &str = "engine and server in one thread";
const ENGINE_TWO: &str = "engine and server in two threads";
const SENDFILE: &str = "kernel, epoll + sendfile";
const WRITE: &str = "kernel, epoll + write";
const READ: &str = "kernel, read";

/// Sizes of transfers: names and bytes. A first look takes the last of them.
const SIZES: [(&str, usize); 4] = [
    ("16 KiB", 16 << 10),
    ("64 KiB", 64 << 10),
    ("1 MiB", 1 << 20),
    ("16 MiB", 16 << 20),
];

const PORT: u16 = 8080;

const MIB: f64 = (1 << 20) as f64;

/// Where everything happens.
struct Stage {
    veth: VethGround,
    tap: TapGround,
    site: Site,
}

fn run(settings: &Settings, progress: &Progress) -> anyhow::Result<Report> {
    let mut report = Report::new(EXPERIMENT.name, EXPERIMENT.question, settings);
    let stage = Stage {
        veth: VethGround::create()?,
        tap: TapGround::create("tc")?,
        site: site()?,
    };
    stage.veth.congestion(&settings.congestion)?;
    let sizes = if settings.quick { &SIZES[2..] } else { &SIZES };
    for (name, bytes) in sizes {
        let mut downloads = [
            stage.download(SENDFILE, name, stage.kernel("sendfile", settings)),
            stage.download(WRITE, name, stage.kernel("epoll", settings)),
            stage.download(ENGINE_ONE, name, stage.engine(Threads::One)),
            stage.download(ENGINE_TWO, name, stage.engine(Threads::Two)),
        ];
        let mut uploads = [
            stage.upload(READ, *bytes, stage.kernel("epoll", settings)),
            stage.upload(ENGINE_ONE, *bytes, stage.engine(Threads::One)),
            stage.upload(ENGINE_TWO, *bytes, stage.engine(Threads::Two)),
        ];
        for (case, arms) in [
            (down(name), &mut downloads[..]),
            (up(name), &mut uploads[..]),
        ] {
            let runs = interleave(settings, &case, arms, progress)?;
            report.runs.extend(runs);
            let runs = sample(settings, &case, arms, progress)?;
            report.runs.extend(runs);
        }
    }
    report.summaries = summarise(&report.runs);
    for (name, bytes) in sizes {
        for (case, best) in [(down(name), SENDFILE), (up(name), READ)] {
            let table = table(&case, best, *bytes, &report);
            report.tables.push(table);
        }
    }
    report.findings.extend(finding(&report.runs));
    report.plots = vec![
        plot("Download", down, sizes, &report.summaries),
        plot("Upload", up, sizes, &report.summaries),
    ];
    report.notes = notes();
    note_void(&report.summaries, &mut report.notes);
    Ok(report)
}

fn site() -> anyhow::Result<Site> {
    let names = SIZES.map(|(size, bytes)| (file(size), bytes));
    Site::create(
        &names
            .each_ref()
            .map(|(name, bytes)| (name.as_str(), *bytes)),
    )
}

fn file(size: &str) -> String {
    format!("{}.bin", size.replace(' ', "-"))
}

fn down(size: &str) -> String {
    format!("download, {size}")
}

fn up(size: &str) -> String {
    format!("upload, {size}")
}

impl Stage {
    fn kernel(&self, io: &str, settings: &Settings) -> Carrier {
        Carrier::Kernel {
            io: io.into(),
            listen: (self.veth.address, 0).into(),
            cores: vec![settings.server_core],
        }
    }

    fn engine(&self, threads: Threads) -> Carrier {
        Carrier::Engine {
            tap: self.tap.tap(),
            port: PORT,
            threads,
            idle: match threads {
                Threads::One => IdlePolicy::Poll,
                Threads::Two => IdlePolicy::Adaptive,
            },
        }
    }

    fn download(&self, name: &str, size: &str, carrier: Carrier) -> Arm<'_> {
        let role = Role::Web(WebConfig {
            root: self.site.path().to_owned(),
            carrier: carrier.clone(),
            connections: 1,
        });
        let ask = Ask::Http(vec![format!("/{}", file(size))]);
        self.arm(name, &carrier, role, ask)
    }

    fn upload(&self, name: &str, bytes: usize, carrier: Carrier) -> Arm<'_> {
        let role = Role::Bulk(BulkConfig {
            bytes: bytes as u64,
            carrier: carrier.clone(),
        });
        self.arm(name, &carrier, role, Ask::Upload(bytes))
    }

    fn arm(&self, name: &str, carrier: &Carrier, role: Role, ask: Ask) -> Arm<'_> {
        let (server, client) = match carrier {
            Carrier::Kernel { .. } => {
                (Some(self.veth.server.name()), Some(self.veth.client.name()))
            }
            Carrier::Engine { .. } => (None, Some(self.tap.client.name())),
        };
        let load = move |address: SocketAddr| LoadConfig::closed(address, ask.clone(), 1);
        let run =
            move |settings: &Settings| run_against(settings, (server, role.clone()), client, &load);
        Arm::new(name, run)
    }
}

fn table(case: &str, best: &str, bytes: usize, report: &Report) -> Table {
    let of_case = || report.summaries.iter().filter(|s| s.case == case);
    let sampled = of_case().any(|summary| summary.peer_receive_us.is_some());
    let mut columns = vec!["", "MiB/s (min–max)", "server µs/MiB (min–max)"];
    if sampled {
        columns.extend(["without peer's receive", "with its own elsewhere"]);
    }
    columns.extend(["both sides µs/MiB", "server CPU: ratio"]);
    let mib = bytes as f64 / MIB;
    let scaled = |spread: &Spread, by: f64| Spread {
        median: spread.median * by,
        min: spread.min * by,
        max: spread.max * by,
        ..*spread
    };
    let mut table = Table::new(case, &columns);
    for summary in of_case() {
        let mut row = vec![
            summary.arm.clone(),
            with_range(&scaled(&summary.rate, mib)),
            with_range(&scaled(&summary.server_us, 1.0 / mib)),
        ];
        if sampled {
            let cell = |us: Option<f64>| us.map_or("–".into(), |us| figure(us / mib));
            row.push(cell(summary.without_peer_us()));
            row.push(cell(summary.own_us()));
        }
        row.push(figure(summary.total_us.median / mib));
        row.push(match summary.arm == best {
            true => "1".into(),
            false => ratio_cell(&report.runs, case, &summary.arm, best, Run::server_us),
        });
        table.rows.push(row);
    }
    table
}

/// What it comes to.
fn finding(runs: &[Run]) -> Option<String> {
    let (size, _) = SIZES.last()?;
    let ratio = |case: &str, best| ratio_cell(runs, case, ENGINE_ONE, best, Run::server_us);
    in_short(format!(
        "In short, server CPU a byte with engine and server in one thread, {size} a transfer: {} of sendfile's for downloads, {} of read's for uploads.",
        ratio(&down(size), SENDFILE),
        ratio(&up(size), READ)
    ))
}

fn plot(
    title: &str,
    case: fn(&str) -> String,
    sizes: &[(&str, usize)],
    summaries: &[Summary],
) -> Plot {
    let series = [SENDFILE, WRITE, READ, ENGINE_ONE, ENGINE_TWO].map(|arm| {
        let points = sizes
            .iter()
            .enumerate()
            .filter_map(|(group, (size, bytes))| {
                let case = case(size);
                let found = summaries.iter().find(|s| s.case == case && s.arm == arm)?;
                Some((group as f64, found.server_us.median * MIB / *bytes as f64))
            });
        Series {
            name: arm.into(),
            points: points.collect(),
        }
    });
    Plot {
        title: format!("{title}: time of the server's processor per MiB"),
        x: "transfer".into(),
        y: "µs per MiB".into(),
        groups: sizes.iter().map(|(size, _)| (*size).to_owned()).collect(),
        series: series
            .into_iter()
            .filter(|s| !s.points.is_empty())
            .collect(),
        logarithmic: false,
    }
}

fn notes() -> Vec<String> {
    let mut notes = super::echo::notes();
    notes.truncate(2);
    notes.extend([
        "Download: `userver` serves a file from its cache over one connection. Upload: the client sends, the server takes the bytes and answers each transfer with one byte; on the kernel by a blocking `read`, on the engine from the receive pool.".to_owned(),
        "Ratios are of server CPU per byte against sendfile (download) or read (upload), of pairs, with 95 % intervals. Engine and server in one thread never sleep: where the client is the slower side, all of the processor's time counts.".to_owned(),
    ]);
    notes
}
