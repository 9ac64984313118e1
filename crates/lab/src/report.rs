//! Results: a JSON document with every run, a Markdown page for people, and plots. Page and plots are made from the document alone.

pub mod plot;
mod summary;

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;
use serde::{Deserialize, Serialize};

use crate::flows::FlowRun;
use crate::machine::Machine;
use crate::run::{Run, Settings};

pub use plot::{Plot, Series};
pub use summary::{Summary, compare, summarise};

/// Version of the document's form.
const FORM: u32 = 1;

/// What an experiment found.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Version of this form.
    pub form: u32,
    /// Name of the experiment.
    pub experiment: String,
    /// What it asks.
    pub question: String,
    /// Where it was measured.
    pub machine: Machine,
    /// How.
    pub settings: Option<Settings>,
    /// What it comes to, in a sentence or two; stands before all figures.
    #[serde(default)]
    pub findings: Vec<String>,
    /// What a reader must know to judge the figures.
    pub notes: Vec<String>,
    /// Figures for people, in order.
    pub tables: Vec<Table>,
    /// Plots, in order.
    pub plots: Vec<Plot>,
    /// Medians and spreads.
    pub summaries: Vec<Summary>,
    /// Every run.
    pub runs: Vec<Run>,
    /// Every run of experiments about flows.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub flows: Vec<FlowRun>,
}

/// A table.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Table {
    /// Heading.
    pub title: String,
    /// Names of the columns.
    pub columns: Vec<String>,
    /// Cells, ready to print.
    pub rows: Vec<Vec<String>>,
}

impl Table {
    /// A table without rows.
    pub fn new(title: &str, columns: &[&str]) -> Self {
        Self {
            title: title.to_owned(),
            columns: columns.iter().map(|c| (*c).to_owned()).collect(),
            rows: Vec::new(),
        }
    }

    /// As Markdown, with columns of even width.
    pub fn markdown(&self) -> String {
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            let widest = cells
                .chain(self.columns.get(column))
                .map(|cell| cell.chars().count())
                .max();
            widest.unwrap_or(0)
        };
        let widths: Vec<usize> = (0..self.columns.len()).map(width).collect();
        let mut text = format!("### {}\n\n", self.title);
        let line = |text: &mut String, cells: &[String]| {
            for (column, width) in widths.iter().enumerate() {
                let cell = cells.get(column).map_or("", String::as_str);
                let _ = match column {
                    0 => write!(text, "| {cell:<width$} "),
                    _ => write!(text, "| {cell:>width$} "),
                };
            }
            text.push_str("|\n");
        };
        line(&mut text, &self.columns);
        for (column, width) in widths.iter().enumerate() {
            let dashes = "-".repeat(width + 1);
            let _ = match column {
                0 => write!(text, "|{dashes}-"),
                _ => write!(text, "|{dashes}:"),
            };
        }
        text.push_str("|\n");
        self.rows.iter().for_each(|row| line(&mut text, row));
        text
    }
}

impl Report {
    /// An empty report of an experiment on this machine.
    pub fn new(experiment: &str, question: &str, settings: &Settings) -> Self {
        Self {
            form: FORM,
            experiment: experiment.to_owned(),
            question: question.to_owned(),
            machine: Machine::look(),
            settings: Some(settings.clone()),
            ..Self::default()
        }
    }

    /// The page.
    pub fn markdown(&self) -> String {
        let mut text = format!(
            "## {}: {}\n\n{}\n",
            self.experiment,
            self.question,
            self.machine.describe()
        );
        if let Some(settings) = &self.settings {
            let kind = if settings.quick {
                "quick look"
            } else {
                "full run"
            };
            let _ = writeln!(
                text,
                "{kind}: {} interleaved rounds of {:.2} s after {:.2} s of warm-up; server side on processor {}, client on {}; kernel congestion control {}",
                settings.rounds,
                settings.measure.as_secs_f64(),
                settings.warm_up.as_secs_f64(),
                settings.server_core,
                settings.client_core,
                settings.congestion
            );
        }
        // Runs under `perf` have another program beside them, and only their shares count.
        let figures = || self.runs.iter().filter(|run| run.profile.is_none());
        let made = figures().count();
        let void = figures().filter(|run| run.void.is_some()).count();
        if 2 * void > made {
            let _ = writeln!(
                text,
                "\n**Most runs ({void} of {made}) are void, mostly because other programs kept this machine busy: the figures say little.**",
            );
        }
        if !self.findings.is_empty() {
            text.push('\n');
        }
        for finding in &self.findings {
            let _ = writeln!(text, "{finding}");
        }
        for table in &self.tables {
            let _ = write!(text, "\n{}", table.markdown());
        }
        if !self.notes.is_empty() {
            text.push('\n');
        }
        for note in &self.notes {
            let _ = writeln!(text, "- {note}");
        }
        if void > 0 {
            let _ = writeln!(
                text,
                "- {void} of {made} runs were void (the JSON document says why: --json, or --out DIR)",
            );
        }
        text
    }

    /// Writes document, page and plots into a folder, which is made; their paths.
    pub fn write(&self, folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
        fs::create_dir_all(folder)
            .with_context(|| format!("cannot make the folder {}", folder.display()))?;
        let mut written = Vec::new();
        let mut put = |name: String, text: &str| -> anyhow::Result<()> {
            let path = folder.join(name);
            fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
            written.push(path);
            Ok(())
        };
        put(
            format!("{}.json", self.experiment),
            &serde_json::to_string_pretty(self)?,
        )?;
        put(format!("{}.md", self.experiment), &self.markdown())?;
        for (number, plot) in self.plots.iter().enumerate() {
            let suffix = if number == 0 {
                String::new()
            } else {
                format!("-{}", number + 1)
            };
            put(format!("{}{suffix}.svg", self.experiment), &plot.svg()?)?;
        }
        Ok(written)
    }
}

/// A figure with three significant digits, as people read them: 1.23, 12.3, 123, 12.3 k, 1.23 M.
pub fn figure(value: f64) -> String {
    if !value.is_finite() {
        return "–".into();
    }
    match value.abs() {
        v if v >= 1_000_000.0 => format!("{:.2} M", value / 1e6),
        v if v >= 100_000.0 => format!("{:.0} k", value / 1000.0),
        v if v >= 10_000.0 => format!("{:.1} k", value / 1000.0),
        v if v >= 100.0 => format!("{value:.0}"),
        v if v >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

#[cfg(test)]
mod tests;
