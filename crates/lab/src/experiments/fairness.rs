//! `fairness`: two flows share a bottleneck.

use std::time::Duration;

use sidecore_nic::LinkModel;

use super::Experiment;
use super::common::with_range;
use crate::flows::{self, Flow, FlowRun, Plan, Sender, jain};
use crate::progress::Progress;
use crate::report::{Plot, Report, Series, Table};
use crate::run::Settings;
use crate::statistics::Spread;

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "fairness",
    question: "two flows share a bottleneck of 20 Mbit/s and 40 ms: what does each get, if they are the engine's, the kernel's, or one of each?",
    run,
};

/// What is compared.
const CONTROLLERS: [&str; 4] = ["cubic", "reno", "bbr", "dctcp"];

/// Rounds at once.
const AT_ONCE: usize = 2;

/// How much longer than usual a run is: two flows need time to find their shares.
const LONGER: u32 = 15;

/// Bits a second of the bottleneck.
const RATE: u64 = 20_000_000;

/// Frames that wait for it: the bandwidth-delay product.
const QUEUE: u32 = 67;

/// Who shares it.
const SHARERS: [[Sender; 2]; 3] = [
    [Sender::Engine, Sender::Kernel],
    [Sender::Kernel, Sender::Kernel],
    [Sender::Engine, Sender::Engine],
];

fn run(settings: &Settings, progress: &Progress) -> anyhow::Result<Report> {
    let mut report = Report::new(EXPERIMENT.name, EXPERIMENT.question, settings);
    let mut measured = Vec::new();
    for controller in CONTROLLERS.iter().filter(|name| settings.wants(name)) {
        if let Some(why) = flows::why_not(controller, controller) {
            progress.warn(&why);
            report.notes.push(why);
            continue;
        }
        for sharers in SHARERS {
            let runs = rounds(controller, sharers, settings, progress)?;
            report.flows.extend(runs);
        }
        measured.push(*controller);
    }
    for controller in &measured {
        report.tables.push(table(&report.flows, controller));
        report.plots.extend(plots(&report.flows, controller));
    }
    report.findings = measured
        .iter()
        .filter_map(|controller| finding(&report.flows, controller))
        .collect();
    report.notes.extend(notes(settings));
    Ok(report)
}

fn line(round: u32) -> [LinkModel; 2] {
    [0, 1].map(|way| LinkModel {
        delay: Duration::from_millis(20),
        rate_bps: RATE,
        queue_frames: QUEUE,
        seed: u64::from(round) * 2 + way + 1,
        ..LinkModel::default()
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

fn case(controller: &str, [a, b]: [Sender; 2]) -> String {
    format!("{controller}, {} beside {}", name(a), name(b))
}

fn rounds(
    controller: &'static str,
    sharers: [Sender; 2],
    settings: &Settings,
    progress: &Progress,
) -> anyhow::Result<Vec<FlowRun>> {
    let case = case(controller, sharers);
    let rounds: Vec<u32> = (0..settings.rounds).collect();
    let mut runs = Vec::new();
    for some in rounds.chunks(AT_ONCE) {
        progress.say(&format!(
            "{case}: round {} of {}",
            some[0] + 1,
            settings.rounds
        ));
        let one = |round: u32| {
            let mut plans = sharers.map(|sender| Plan {
                name: name(sender).into(),
                sender,
                controller,
                ecn: false,
                paced: false,
            });
            if sharers[0] == sharers[1] {
                for (plan, number) in plans.iter_mut().zip(["first", "second"]) {
                    plan.name = format!("{} {number}", plan.name);
                }
            } else if round % 2 == 1 {
                // Who connects first shall not always be the same.
                plans.reverse();
            }
            flows::run(&case, round, line(round), &plans, times(settings))
        };
        let results: Vec<anyhow::Result<FlowRun>> = std::thread::scope(|scope| {
            let one = &one;
            let threads: Vec<_> = some
                .iter()
                .map(|round| scope.spawn(move || one(*round)))
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

/// The flows of a run in the order of the names.
fn in_order(run: &FlowRun) -> Vec<&Flow> {
    let mut flows: Vec<&Flow> = run.flows.iter().collect();
    flows.sort_by(|a, b| a.name.cmp(&b.name));
    flows
}

fn of_case<'a>(runs: &'a [FlowRun], case: &str) -> Vec<&'a FlowRun> {
    runs.iter().filter(|run| run.case == case).collect()
}

fn spread(runs: &[&FlowRun], value: impl Fn(&FlowRun) -> f64) -> Spread {
    Spread::of(runs.iter().map(|run| value(run))).unwrap_or_default()
}

fn fairness(run: &FlowRun) -> f64 {
    let rates: Vec<f64> = run.flows.iter().map(|flow| flow.mbit_s).collect();
    jain(&rates)
}

fn table(runs: &[FlowRun], controller: &str) -> Table {
    let columns = [
        "",
        "one, Mbit/s (min–max)",
        "the other",
        "together",
        "Jain's index (min–max)",
    ];
    let mut table = Table::new(controller, &columns);
    for sharers in SHARERS {
        let runs = of_case(runs, &case(controller, sharers));
        let rate = |at: usize| spread(&runs, |run| in_order(run)[at].mbit_s);
        let fair = spread(&runs, fairness);
        table.rows.push(vec![
            format!("{} and {}", name(sharers[0]), name(sharers[1])),
            with_range(&rate(0)),
            with_range(&rate(1)),
            with_range(&spread(&runs, |run| {
                run.flows.iter().map(|flow| flow.mbit_s).sum()
            })),
            format!("{:.3} ({:.3}–{:.3})", fair.median, fair.min, fair.max),
        ]);
    }
    table
}

fn finding(runs: &[FlowRun], controller: &str) -> Option<String> {
    let runs = of_case(runs, &case(controller, SHARERS[0]));
    let share = Spread::of(runs.iter().map(|run| {
        let flows = in_order(run);
        flows[0].mbit_s / (flows[0].mbit_s + flows[1].mbit_s)
    }))?;
    let fair = spread(&runs, fairness);
    Some(format!(
        "In short: beside a kernel flow with {controller} the engine's has {:.0} % ({:.0}–{:.0} %) of what both have; Jain's index is {:.3}.",
        share.median * 100.0,
        share.min * 100.0,
        share.max * 100.0,
        fair.median
    ))
}

/// The first round of each pair of sharers over time.
fn plots(runs: &[FlowRun], controller: &str) -> Vec<Plot> {
    let plot = |sharers: [Sender; 2]| {
        let case = case(controller, sharers);
        let run = runs.iter().find(|run| run.case == case && run.round == 0)?;
        let series = in_order(run).into_iter().map(|flow| Series {
            name: flow.name.clone(),
            points: flow.curve(0.5),
        });
        Some(Plot {
            title: format!("{case}: 20 Mbit/s, 40 ms, {QUEUE} frames of queue"),
            x: "seconds from the start".into(),
            y: "Mbit/s".into(),
            groups: Vec::new(),
            series: series.collect(),
            logarithmic: false,
        })
    };
    SHARERS.into_iter().filter_map(plot).collect()
}

fn notes(settings: &Settings) -> Vec<String> {
    let [warm_up, measure] = times(settings).map(|time| time.as_secs_f64());
    vec![
        format!("The bottleneck is that of `sidecore lab link --delay 20ms --rate 20mbit --queue {QUEUE}p`, drop-tail, the same both ways. Measured for {measure:.1} s after {warm_up:.1} s, {LONGER} times what the settings say."),
        "Both flows begin together; engine and kernel send through the same bridge to a kernel that receives. Plots show the first round.".into(),
        "Two flows of the engine are of one engine.".into(),
    ]
}
