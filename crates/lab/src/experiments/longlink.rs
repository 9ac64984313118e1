//! `longlink`: what a bulk flow gets over a long link that loses, from the engine and from the kernel with the same controller.

use std::time::Duration;

use sidecore_nic::LinkModel;

use super::Experiment;
use super::common::with_range;
use crate::flows::{self, FlowRun, Plan, Sender};
use crate::progress::Progress;
use crate::report::{Plot, Report, Series, Table, figure};
use crate::run::Settings;
use crate::statistics::{Ratio, Spread, paired_ratio};

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "longlink",
    question: "over the identical link of 100 ms that loses 1 % or marks, how much does a bulk flow of the engine carry against the kernel's with the same congestion controller?",
    run,
};

/// A flow of the engine and one of the kernel over lines of the same kind.
struct Comparison {
    name: &'static str,
    /// Of the engine and the kernel.
    controllers: [&'static str; 2],
    line: Kind,
    /// Whether the engine paces.
    paced: bool,
    /// What the engine is to reach of what the kernel does. Of BBR there are several versions, so that there is no aim.
    aim: Option<f64>,
}

/// What a line does.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// It loses 1 %.
    Loses,
    /// It marks above a queue of [`MARK_ABOVE`] frames, and loses nothing of who is ECN-capable.
    Marks,
}

const COMPARISONS: [Comparison; 6] = [
    Comparison {
        name: "cubic",
        controllers: ["cubic", "cubic"],
        line: Kind::Loses,
        paced: false,
        aim: Some(0.9),
    },
    Comparison {
        name: "reno",
        controllers: ["reno", "reno"],
        line: Kind::Loses,
        paced: false,
        aim: None,
    },
    Comparison {
        name: "bbr",
        controllers: ["bbr", "bbr"],
        line: Kind::Loses,
        paced: false,
        aim: None,
    },
    Comparison {
        name: "cubic with ECN",
        controllers: ["cubic", "cubic"],
        line: Kind::Marks,
        paced: false,
        aim: Some(0.9),
    },
    Comparison {
        name: "cubic with ECN, paced",
        controllers: ["cubic", "cubic"],
        line: Kind::Marks,
        paced: true,
        aim: None,
    },
    Comparison {
        name: "dctcp",
        controllers: ["dctcp", "dctcp"],
        line: Kind::Marks,
        paced: false,
        aim: Some(0.9),
    },
];

/// Frames of queue above which a line marks: more than a seventh of what is on the line (RFC 8257 section 4.1 has DCTCP's need).
const MARK_ABOVE: u32 = 40;

/// Where flows of the same round go at the same time, so many rounds at once: the links rest most of the time.
const AT_ONCE: usize = 5;

/// How much longer than usual a run is, as a round trip is 100 ms.
const LONGER: u32 = 10;

fn run(settings: &Settings, progress: &Progress) -> anyhow::Result<Report> {
    let mut report = Report::new(EXPERIMENT.name, EXPERIMENT.question, settings);
    let mut measured = Vec::new();
    for comparison in COMPARISONS.iter().filter(|it| settings.wants(it.name)) {
        let [engine, kernel] = comparison.controllers;
        if let Some(why) = flows::why_not(engine, kernel) {
            progress.warn(&why);
            report.notes.push(why);
            continue;
        }
        report.flows.extend(pairs(comparison, settings, progress)?);
        measured.push(comparison);
    }
    report.tables.push(table(&report.flows, &measured));
    report.findings.extend(finding(&report.flows, &measured));
    report.plots.push(bars(&report.flows, &measured));
    let curves = measured.iter().map(|it| curves(&report.flows, it.name));
    report.plots.extend(curves);
    report.notes.extend(notes(settings));
    Ok(report)
}

/// The line: 50 ms each way. One that loses is fast and has a queue that never is full.
fn line(kind: Kind, round: u32) -> [LinkModel; 2] {
    [0, 1].map(|way| {
        let common = LinkModel {
            delay: Duration::from_millis(50),
            seed: u64::from(round) * 2 + way + 1,
            ..LinkModel::default()
        };
        match kind {
            Kind::Loses => LinkModel {
                loss: 0.01,
                rate_bps: 100_000_000,
                queue_bytes: 4 << 20,
                ..common
            },
            Kind::Marks => LinkModel {
                rate_bps: 20_000_000,
                queue_frames: 400,
                mark_frames: MARK_ABOVE,
                ..common
            },
        }
    })
}

fn times(settings: &Settings) -> [Duration; 2] {
    [settings.warm_up, settings.measure].map(|time| time * LONGER)
}

fn name(sender: Sender) -> &'static str {
    match sender {
        Sender::Engine => "engine",
        Sender::Kernel => "kernel",
    }
}

/// Rounds: in each, both send over lines of their own with the same seed, at the same time.
fn pairs(
    comparison: &Comparison,
    settings: &Settings,
    progress: &Progress,
) -> anyhow::Result<Vec<FlowRun>> {
    let rounds: Vec<u32> = (0..settings.rounds).collect();
    let mut runs = Vec::new();
    for some in rounds.chunks(AT_ONCE) {
        progress.say(&format!(
            "{}: rounds {} to {} of {}",
            comparison.name,
            some[0] + 1,
            some[some.len() - 1] + 1,
            settings.rounds
        ));
        let results: Vec<anyhow::Result<FlowRun>> = std::thread::scope(|scope| {
            let both = some
                .iter()
                .flat_map(|round| [Sender::Engine, Sender::Kernel].map(|sender| (*round, sender)));
            let threads: Vec<_> = both
                .map(|(round, sender)| {
                    scope.spawn(move || one(comparison, round, sender, settings))
                })
                .collect();
            let join = |thread: std::thread::ScopedJoinHandle<'_, _>| {
                thread.join().expect("a run panicked")
            };
            threads.into_iter().map(join).collect()
        });
        for result in results {
            runs.push(result?);
        }
    }
    Ok(runs)
}

fn one(
    comparison: &Comparison,
    round: u32,
    sender: Sender,
    settings: &Settings,
) -> anyhow::Result<FlowRun> {
    let [engine, kernel] = comparison.controllers;
    let plan = Plan {
        name: name(sender).into(),
        sender,
        controller: match sender {
            Sender::Engine => engine,
            Sender::Kernel => kernel,
        },
        ecn: comparison.line == Kind::Marks,
        paced: comparison.paced,
    };
    let line = line(comparison.line, round);
    flows::run(comparison.name, round, line, &[plan], times(settings))
}

/// What each round brought.
fn rates(runs: &[FlowRun], case: &str, sender: Sender) -> Vec<f64> {
    let of_flow = runs
        .iter()
        .filter(|run| run.case == case)
        .flat_map(|run| &run.flows)
        .filter(|flow| flow.sender == sender);
    of_flow.map(|flow| flow.mbit_s).collect()
}

fn ratio(runs: &[FlowRun], case: &str) -> Option<Ratio> {
    let engine = rates(runs, case, Sender::Engine);
    let kernel = rates(runs, case, Sender::Kernel);
    let pairs: Vec<(f64, f64)> = engine.into_iter().zip(kernel).collect();
    paired_ratio(&pairs)
}

fn table(runs: &[FlowRun], measured: &[&Comparison]) -> Table {
    let columns = [
        "",
        "engine, Mbit/s (min–max)",
        "kernel, Mbit/s (min–max)",
        "engine/kernel, medians",
        "median of pairs' ratios (95 %)",
        "aim",
    ];
    let mut table = Table::new("Payload a second", &columns);
    for comparison in measured {
        let [engine, kernel] = [Sender::Engine, Sender::Kernel]
            .map(|sender| Spread::of(rates(runs, comparison.name, sender)).unwrap_or_default());
        let ratio = ratio(runs, comparison.name);
        let ratio = ratio.map(|it| format!("{:.2} ({:.2}–{:.2})", it.ratio, it.low, it.high));
        table.rows.push(vec![
            comparison.name.to_owned(),
            with_range(&engine),
            with_range(&kernel),
            figure(engine.median / kernel.median),
            ratio.unwrap_or_else(|| "–".into()),
            comparison.aim.map_or("–".into(), |aim| format!("≥ {aim}")),
        ]);
    }
    table
}

fn finding(runs: &[FlowRun], measured: &[&Comparison]) -> Option<String> {
    let parts: Vec<String> = measured
        .iter()
        .filter_map(|comparison| {
            let Ratio {
                ratio, low, high, ..
            } = ratio(runs, comparison.name)?;
            Some(format!(
                "{}: {ratio:.2} ({low:.2}–{high:.2})",
                comparison.name
            ))
        })
        .collect();
    (!parts.is_empty()).then(|| {
        format!(
            "In short, what the engine carries for each byte of the kernel's: {}.",
            parts.join("; ")
        )
    })
}

fn bars(runs: &[FlowRun], measured: &[&Comparison]) -> Plot {
    let series = [Sender::Engine, Sender::Kernel].map(|sender| {
        let points = measured.iter().enumerate().filter_map(|(at, comparison)| {
            let spread = Spread::of(rates(runs, comparison.name, sender))?;
            Some((at as f64, spread.median))
        });
        Series {
            name: name(sender).into(),
            points: points.collect(),
        }
    });
    Plot {
        title: "A bulk flow over 100 ms".into(),
        x: "congestion controller".into(),
        y: "Mbit/s (medians)".into(),
        groups: measured.iter().map(|it| it.name.to_owned()).collect(),
        series: series.into(),
        logarithmic: false,
    }
}

/// The first round over time.
fn curves(runs: &[FlowRun], case: &str) -> Plot {
    let first = runs.iter().filter(|run| run.case == case && run.round == 0);
    let series = first.flat_map(|run| &run.flows).map(|flow| Series {
        name: flow.name.clone(),
        points: flow.curve(1.0),
    });
    Plot {
        title: format!("{case} over 100 ms: the first round"),
        x: "seconds from the start".into(),
        y: "Mbit/s".into(),
        groups: Vec::new(),
        series: series.collect(),
        logarithmic: false,
    }
}

fn notes(settings: &Settings) -> Vec<String> {
    let [warm_up, measure] = times(settings).map(|time| time.as_secs_f64());
    vec![
        format!("The link that loses is that of `sidecore lab link --delay 50ms --loss 1% --rate 100mbit --queue 4m`, the one that marks that of `--delay 50ms --rate 20mbit --queue 400p --mark-above {MARK_ABOVE}p`, both ways alike. Measured for {measure:.1} s after {warm_up:.1} s, ten times what the settings say."),
        "Engine and kernel run at the same time over links of their own whose n-th frame has the same fate; a round has its seed. Both send through the same bridge to a kernel that receives.".into(),
        "A kernel receives. One without DCTCP does not agree on ECN with a DCTCP that asks for it by a SYN that is ECN-capable itself, so that DCTCP is compared only where the kernel has it.".into(),
        "No processor time is measured: the link is so slow that both processors rest, and runs of several rounds go on at once.".into(),
    ]
}
