//! The experiments, by name.

pub mod common;
pub mod connections;
pub mod demo;
pub mod echo;
pub mod fairness;
pub mod flood;
pub mod idle;
pub mod longlink;
pub mod programs;
pub mod rpc;
pub mod transfer;
pub mod wake;
pub mod web;

use anyhow::bail;

use crate::progress::Progress;
use crate::report::Report;
use crate::run::Settings;

/// An experiment.
#[derive(Clone, Copy)]
pub struct Experiment {
    /// Name on the command line and of the files of its report.
    pub name: &'static str,
    /// What it asks.
    pub question: &'static str,
    /// Makes it.
    pub run: fn(&Settings, &Progress) -> anyhow::Result<Report>,
}

/// All of them.
pub const ALL: &[Experiment] = &[
    demo::EXPERIMENT,
    web::EXPERIMENT,
    echo::EXPERIMENT,
    rpc::EXPERIMENT,
    transfer::EXPERIMENT,
    connections::EXPERIMENT,
    flood::EXPERIMENT,
    idle::EXPERIMENT,
    wake::EXPERIMENT,
    fairness::EXPERIMENT,
    longlink::EXPERIMENT,
    programs::EXPERIMENT,
];

/// The experiment of this name.
pub fn find(name: &str) -> anyhow::Result<Experiment> {
    match ALL.iter().find(|experiment| experiment.name == name) {
        Some(experiment) => Ok(*experiment),
        None => {
            let names: Vec<&str> = ALL.iter().map(|experiment| experiment.name).collect();
            bail!(
                "there is no experiment named '{name}'; there are: {}",
                names.join(", ")
            )
        }
    }
}
