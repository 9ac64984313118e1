//! `wake`: what it costs to wake somebody.

use super::Experiment;
use super::common::{note_void, with_range};
use crate::progress::Progress;
use crate::report::{Plot, Report, Series, Summary, Table, figure, summarise};
use crate::roles::{Role, RoleSpec};
use crate::run::{Arm, Settings, interleave, measure_alone};
use crate::wake::{Sleeper, WakeConfig};

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "wake",
    question: "how long from posting a command until its event is there, when the engine, the application, both or nobody sleeps?",
    run,
};

const CASE: &str = "a probe every millisecond";

const ARMS: [(&str, Sleeper); 5] = [
    ("nobody sleeps (poll)", Sleeper::Nobody),
    ("the engine sleeps (adaptive)", Sleeper::Engine),
    ("the application sleeps", Sleeper::Application),
    ("both sleep", Sleeper::Both),
    ("kernel: AF_UNIX to a sleeping thread", Sleeper::Kernel),
];

fn run(settings: &Settings, progress: &Progress) -> anyhow::Result<Report> {
    let mut report = Report::new(EXPERIMENT.name, EXPERIMENT.question, settings);
    let mut arms = ARMS.map(|(name, sleeper)| arm(name, sleeper));
    report.runs = interleave(settings, CASE, &mut arms, progress)?;
    report.summaries = summarise(&report.runs);
    report.tables.push(table(&report.summaries));
    report.plots.push(plot(&report.summaries));
    report.notes = vec![
        "A probe is a command that does nothing: from before it is posted until the application has its event. Engine on one processor, application on the other; one millisecond of pause before each.".into(),
        "'The engine sleeps' is the way down: application to sleeping engine. 'The application sleeps' is the way up: a polling engine to an application in `EventQueue::wait` without spinning. The kernel's row is one such wake-up of a thread on the other processor, the least that either can cost.".into(),
    ];
    note_void(&report.summaries, &mut report.notes);
    Ok(report)
}

fn arm<'a>(name: &str, sleeper: Sleeper) -> Arm<'a> {
    let run = move |settings: &Settings| {
        let role = Role::Wake(WakeConfig {
            sleeper,
            cores: [settings.server_core, settings.client_core],
            warm_up: settings.warm_up,
            measure: settings.measure,
        });
        let (netns, cores) = (None, Vec::new());
        measure_alone(settings, &RoleSpec { role, netns, cores })
    };
    Arm::new(name, run)
}

fn table(summaries: &[Summary]) -> Table {
    let columns = ["", "p50 µs (min–max)", "p99 µs", "p99.9 µs", "probes/s"];
    let mut table = Table::new("From posting to the event", &columns);
    for summary in summaries {
        table.rows.push(vec![
            summary.arm.clone(),
            with_range(&summary.p50_us),
            figure(summary.p99_us.median),
            figure(summary.p999_us.median),
            figure(summary.rate.median),
        ]);
    }
    table
}

fn plot(summaries: &[Summary]) -> Plot {
    let series = summaries.iter().map(|s| Series {
        name: s.arm.clone(),
        points: vec![(0.0, s.p50_us.median), (1.0, s.p99_us.median)],
    });
    Plot {
        title: "From posting to the event".into(),
        x: "quantile".into(),
        y: "µs".into(),
        groups: vec!["p50".into(), "p99".into()],
        series: series.collect(),
        logarithmic: true,
    }
}
