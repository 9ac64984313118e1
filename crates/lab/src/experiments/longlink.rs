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
    question: "over the identical link of 100 ms that loses 1 %, how much does a bulk flow of the engine carry against the kernel's with the same congestion controller?",
    run,
};

/// What is compared.
const CONTROLLERS: [&str; 4] = ["cubic", "reno", "bbr", "dctcp"];

/// Where flows of the same round go at the same time, so many rounds at once: the links rest most of the time.
const AT_ONCE: usize = 5;

/// How much longer than usual a run is, as a round trip is 100 ms.
const LONGER: u32 = 10;

/// The aim.
const AIM: f64 = 0.9;

fn run(settings: &Settings, progress: &Progress) -> anyhow::Result<Report> {
    let mut report = Report::new(EXPERIMENT.name, EXPERIMENT.question, settings);
    let controllers = CONTROLLERS.iter().filter(|name| settings.wants(name));
    let mut measured = Vec::new();
    for controller in controllers {
        match flows::why_not(controller) {
            Some(why) => {
                progress.warn(&why);
                report.notes.push(why);
            }
            None => {
                report.flows.extend(pairs(controller, settings, progress)?);
                measured.push(*controller);
            }
        }
    }
    report.tables.push(table(&report.flows, &measured));
    report.findings.extend(finding(&report.flows, &measured));
    report.plots.push(bars(&report.flows, &measured));
    if let Some(controller) = measured.first() {
        report.plots.push(curves(&report.flows, controller));
    }
    report.notes.extend(notes(settings));
    Ok(report)
}

/// The line: 50 ms and 1 % each way, fast, and with a queue that never is full.
fn line(round: u32) -> [LinkModel; 2] {
    [0, 1].map(|way| LinkModel {
        loss: 0.01,
        delay: Duration::from_millis(50),
        rate_bps: 100_000_000,
        queue_bytes: 4 << 20,
        seed: u64::from(round) * 2 + way + 1,
        ..LinkModel::default()
    })
}

fn times(settings: &Settings) -> [Duration; 2] {
    [settings.warm_up, settings.measure].map(|time| time * LONGER)
}

fn case(controller: &str, sender: Sender) -> String {
    format!("{controller}, {}", name(sender))
}

fn name(sender: Sender) -> &'static str {
    match sender {
        Sender::Engine => "engine",
        Sender::Kernel => "kernel",
    }
}

/// Rounds: in each, both send over links of their own with the same seed, at the same time.
fn pairs(
    controller: &'static str,
    settings: &Settings,
    progress: &Progress,
) -> anyhow::Result<Vec<FlowRun>> {
    let rounds: Vec<u32> = (0..settings.rounds).collect();
    let mut runs = Vec::new();
    for some in rounds.chunks(AT_ONCE) {
        progress.say(&format!(
            "{controller}: rounds {} to {} of {}",
            some[0] + 1,
            some[some.len() - 1] + 1,
            settings.rounds
        ));
        let one = |round: u32, sender: Sender| {
            let plan = Plan {
                name: case(controller, sender),
                sender,
                controller,
            };
            flows::run(controller, round, line(round), &[plan], times(settings))
        };
        let results: Vec<anyhow::Result<FlowRun>> = std::thread::scope(|scope| {
            let both = some
                .iter()
                .flat_map(|round| [Sender::Engine, Sender::Kernel].map(|sender| (*round, sender)));
            let threads: Vec<_> = both
                .map(|(round, sender)| scope.spawn(move || one(round, sender)))
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

/// What each round brought.
fn rates(runs: &[FlowRun], controller: &str, sender: Sender) -> Vec<f64> {
    let of_flow = runs
        .iter()
        .flat_map(|run| &run.flows)
        .filter(|flow| flow.controller == controller && flow.sender == sender);
    of_flow.map(|flow| flow.mbit_s).collect()
}

fn ratio(runs: &[FlowRun], controller: &str) -> Option<Ratio> {
    let engine = rates(runs, controller, Sender::Engine);
    let kernel = rates(runs, controller, Sender::Kernel);
    let pairs: Vec<(f64, f64)> = engine.into_iter().zip(kernel).collect();
    paired_ratio(&pairs)
}

fn table(runs: &[FlowRun], controllers: &[&str]) -> Table {
    let columns = [
        "",
        "engine, Mbit/s (min–max)",
        "kernel, Mbit/s (min–max)",
        "engine/kernel, medians",
        "median of pairs' ratios (95 %)",
        "aim",
    ];
    let mut table = Table::new("Payload a second", &columns);
    for controller in controllers {
        let [engine, kernel] = [Sender::Engine, Sender::Kernel]
            .map(|sender| Spread::of(rates(runs, controller, sender)).unwrap_or_default());
        let ratio = ratio(runs, controller);
        let ratio = ratio.map(|it| format!("{:.2} ({:.2}–{:.2})", it.ratio, it.low, it.high));
        table.rows.push(vec![
            (*controller).to_owned(),
            with_range(&engine),
            with_range(&kernel),
            figure(engine.median / kernel.median),
            ratio.unwrap_or_else(|| "–".into()),
            aim(controller).map_or("–".into(), |aim| format!("≥ {aim}")),
        ]);
    }
    table
}

/// Of BBR there are several versions: what ours gets beside the kernel's is told, and no aim.
fn aim(controller: &str) -> Option<f64> {
    matches!(controller, "cubic" | "dctcp").then_some(AIM)
}

fn finding(runs: &[FlowRun], controllers: &[&str]) -> Option<String> {
    let parts: Vec<String> = controllers
        .iter()
        .filter_map(|controller| {
            let ratio = ratio(runs, controller)?;
            Some(format!(
                "{:.2} ({:.2}–{:.2}) of what the kernel's {controller} carries",
                ratio.ratio, ratio.low, ratio.high
            ))
        })
        .collect();
    (!parts.is_empty()).then(|| format!("In short: {}.", parts.join("; ")))
}

fn bars(runs: &[FlowRun], controllers: &[&str]) -> Plot {
    let series = [Sender::Engine, Sender::Kernel].map(|sender| {
        let points = controllers.iter().enumerate().filter_map(|(at, name)| {
            let spread = Spread::of(rates(runs, name, sender))?;
            Some((at as f64, spread.median))
        });
        Series {
            name: name(sender).into(),
            points: points.collect(),
        }
    });
    Plot {
        title: "A bulk flow over 100 ms that loses 1 %".into(),
        x: "congestion controller".into(),
        y: "Mbit/s (medians)".into(),
        groups: controllers.iter().map(|it| (*it).to_owned()).collect(),
        series: series.into(),
        logarithmic: false,
    }
}

/// The first round over time.
fn curves(runs: &[FlowRun], controller: &str) -> Plot {
    let first = runs
        .iter()
        .filter(|run| run.case == controller && run.round == 0);
    let series = first.flat_map(|run| &run.flows).map(|flow| Series {
        name: flow.name.clone(),
        points: flow.curve(1.0),
    });
    Plot {
        title: format!("{controller} over 100 ms that loses 1 %: the first round"),
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
        format!("The link is that of `sidecore lab link --delay 50ms --loss 1% --rate 100mbit --queue 4m`: both directions lose. Measured for {measure:.1} s after {warm_up:.1} s, ten times what the settings say."),
        "Engine and kernel run at the same time over links of their own whose n-th frame has the same fate; a round has its seed. Both send through the same bridge to a kernel that receives.".into(),
        "No processor time is measured: the link is so slow that both processors rest, and runs of several rounds go on at once.".into(),
    ]
}
