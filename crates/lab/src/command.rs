//! The command line of the lab: `sidecore lab …`.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use clap::{Args, Subcommand};
use serde_json::json;
use sidecore_sys::privileges;

use crate::experiments::{self, Experiment, demo};
use crate::link::{self, LinkOptions};
use crate::progress::Progress;
use crate::report::{Plot, Report};
use crate::run::Settings;
use crate::{interrupt, roles, unprivileged};

/// What the lab can be told.
#[derive(Debug, Subcommand)]
pub enum LabCommand {
    /// List the experiments
    List {
        /// One JSON document
        #[arg(long)]
        json: bool,
    },
    /// Make an experiment
    Run {
        /// Its name (see `sidecore lab list`), or `all`
        #[arg(value_parser = names())]
        name: String,
        /// How
        #[command(flatten)]
        options: RunOptions,
    },
    /// Join two TAP devices by a link with loss, delay, reordering, a rate, marks, an MTU and outages
    Link(LinkOptions),
    /// Draw a plot as SVG: one of a report's JSON document, or one of the same form
    Draw {
        /// The plot's JSON; `-`: standard input
        plot: PathBuf,
        /// Where the drawing goes; otherwise to standard output
        #[arg(long, value_name = "FILE")]
        out: Option<PathBuf>,
    },
    /// Be a role of an experiment (for the lab's own use)
    #[command(hide = true)]
    Role,
}

/// How experiments are made.
#[derive(Clone, Debug, Default, Args)]
pub struct RunOptions {
    /// A first look: fewer and shorter runs
    #[arg(long)]
    pub quick: bool,
    /// Write the JSON document, the Markdown page and the plots into this folder
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Rounds: every variant runs once in each
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: Option<u32>,
    /// Measured time of a run, in seconds
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds)]
    pub seconds: Option<f64>,
    /// Processor of the server's side
    #[arg(long, value_name = "CORE")]
    pub server_core: Option<usize>,
    /// Processor of the client
    #[arg(long, value_name = "CORE")]
    pub client_core: Option<usize>,
    /// Only the variants whose names ("case: variant") contain one of these
    #[arg(long, value_name = "PART", value_delimiter = ',')]
    pub only: Vec<String>,
    /// Congestion control of kernel connections
    #[arg(long, value_name = "NAME")]
    pub congestion: Option<String>,
    /// Do not sample one more run of each variant with perf, where that tells the client's receive apart
    #[arg(long)]
    pub no_profile: bool,
    /// Print the report as one JSON document
    #[arg(long)]
    pub json: bool,
}

/// What can be run.
fn names() -> clap::builder::PossibleValuesParser {
    experiments::ALL
        .iter()
        .map(|e| e.name)
        .chain(["all"])
        .collect::<Vec<_>>()
        .into()
}

fn parse_seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.05..=600.0).contains(&seconds) => Ok(seconds),
        _ => Err("give seconds from 0.05 to 600".into()),
    }
}

impl RunOptions {
    /// The settings that they say.
    pub fn settings(&self) -> Settings {
        let mut settings = Settings::new(self.quick);
        if let Some(rounds) = self.rounds {
            settings.rounds = rounds;
        }
        if let Some(seconds) = self.seconds {
            settings.measure = Duration::from_secs_f64(seconds);
        }
        settings.server_core = self.server_core.unwrap_or(settings.server_core);
        settings.client_core = self.client_core.unwrap_or(settings.client_core);
        settings.only.clone_from(&self.only);
        if let Some(name) = &self.congestion {
            settings.congestion.clone_from(name);
        }
        settings.profile &= !self.no_profile;
        settings
    }
}

/// Does what was told.
pub fn run(command: &LabCommand) -> anyhow::Result<()> {
    match command {
        LabCommand::List { json } => list(*json),
        LabCommand::Run { name, options } => {
            prepare()?;
            run_named(name, options)
        }
        LabCommand::Link(options) => run_link(options),
        LabCommand::Draw { plot, out } => draw(plot, out.as_deref()),
        LabCommand::Role => roles::run(),
    }
}

/// Makes the demonstration: `sidecore demo`.
pub fn demo(options: &RunOptions) -> anyhow::Result<()> {
    prepare()?;
    run_named(demo::EXPERIMENT.name, options)
}

/// Before anything that makes namespaces and devices: the right to, and an end to them. Called while there is one thread only.
fn prepare() -> anyhow::Result<()> {
    if !privileges::can_administer_network() {
        unprivileged::enter()?;
    }
    interrupt::install()
}

fn list(as_json: bool) -> anyhow::Result<()> {
    let all = experiments::ALL;
    if as_json {
        let entries = all
            .iter()
            .map(|e| json!({ "name": e.name, "question": e.question }));
        return print(&serde_json::to_string_pretty(&entries.collect::<Vec<_>>())?);
    }
    let width = all.iter().map(|e| e.name.len()).max().unwrap_or(0);
    let lines = all
        .iter()
        .map(|e| format!("{:<width$}  {}", e.name, e.question));
    print(&lines.collect::<Vec<_>>().join("\n"))
}

fn draw(plot: &Path, out: Option<&Path>) -> anyhow::Result<()> {
    let name = plot.display();
    let text = match plot.to_str() {
        Some("-") => std::io::read_to_string(std::io::stdin().lock()),
        _ => std::fs::read_to_string(plot),
    };
    let text = text.with_context(|| format!("reading {name}"))?;
    let drawn: Plot = serde_json::from_str(&text)
        .with_context(|| format!("{name} is no plot: it needs title, x, y, groups and series"))?;
    let svg = drawn.svg()?;
    match out {
        Some(out) => std::fs::write(out, svg).with_context(|| format!("writing {}", out.display())),
        None => print(&svg),
    }
}

fn print(text: &str) -> anyhow::Result<()> {
    writeln!(std::io::stdout().lock(), "{text}").context("writing to standard output")
}

fn run_named(name: &str, options: &RunOptions) -> anyhow::Result<()> {
    let chosen: Vec<Experiment> = match name {
        // The demonstration is made of others.
        "all" => experiments::ALL
            .iter()
            .copied()
            .filter(|e| e.name != demo::EXPERIMENT.name)
            .collect(),
        name => vec![experiments::find(name)?],
    };
    let mut reports = Vec::new();
    let alone = chosen.len() == 1;
    let mut others = Vec::new();
    for experiment in chosen {
        let report = match run_one(experiment, options) {
            // Of all experiments, those are made that have such variants.
            Err(error) if !alone && error.is::<NoVariant>() => {
                others.push(error);
                continue;
            }
            report => report?,
        };
        if !options.json {
            print(&report.markdown())?;
        }
        reports.push(report);
    }
    if let (true, Some(error)) = (reports.is_empty(), others.pop()) {
        return Err(error);
    }
    match (options.json, reports.as_slice()) {
        (true, [report]) => print(&serde_json::to_string_pretty(report)?),
        (true, reports) => print(&serde_json::to_string_pretty(reports)?),
        (false, _) => Ok(()),
    }
}

/// What `--only` names is not there.
#[derive(Debug, thiserror::Error)]
#[error("--only {only}: no variant of experiment {name} has that in its name; there are: {names}")]
struct NoVariant {
    only: String,
    name: &'static str,
    names: String,
}

/// Makes an experiment and writes its report where the options say.
pub fn run_one(experiment: Experiment, options: &RunOptions) -> anyhow::Result<Report> {
    let (progress, settings) = (Progress::new(), options.settings());
    let report = (experiment.run)(&settings, &progress)
        .with_context(|| format!("experiment {}", experiment.name))?;
    progress.clear();
    if let Some(names) = settings.none_wanted() {
        let (only, name) = (settings.only.join(","), experiment.name);
        return Err(NoVariant { only, name, names }.into());
    }
    if let Some(folder) = &options.out {
        for path in report.write(folder)? {
            progress.tell(&format!("wrote {}", path.display()));
        }
    }
    Ok(report)
}

fn run_link(options: &LinkOptions) -> anyhow::Result<()> {
    let models = options.models()?;
    prepare()?;
    let progress = Progress::new();
    let (a, b) = (&options.a, &options.b);
    let ready = || {
        progress.tell(&format!(
            "{} and {} are joined; Ctrl-C ends it",
            a.name, b.name
        ))
    };
    let [there, back] = link::run([a, b], models, options.time, ready)?;
    if options.json {
        return print(&serde_json::to_string_pretty(
            &json!({ "there": there, "back": back }),
        )?);
    }
    print(&format!(
        "{} to {}: {there}\n{} to {}: {back}",
        a.name, b.name, b.name, a.name
    ))
}
