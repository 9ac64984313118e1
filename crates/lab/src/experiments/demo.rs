//! `demo`: the web server and the echo server, on the engine and on the kernel, in one report.

use super::Experiment;
use super::common::note_void;
use crate::progress::Progress;
use crate::report::Report;
use crate::run::Settings;

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "demo",
    question: "the web server and 64-byte echo, on the engine and on the kernel: what does a request cost the server's side?",
    run,
};

/// Connections of the echo clients.
const CONNECTIONS: [usize; 1] = [64];

fn run(settings: &Settings, progress: &Progress) -> anyhow::Result<Report> {
    let mut report = Report::new(EXPERIMENT.name, EXPERIMENT.question, settings);
    super::web::add_to(&mut report, settings, progress)?;
    super::echo::add_to(&mut report, &CONNECTIONS, settings, progress)?;
    note_void(&report.summaries, &mut report.notes);
    Ok(report)
}
