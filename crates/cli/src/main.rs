//! The sidecore program: the engine as a service, a look into it, and the lab.
#![forbid(unsafe_code)]

mod agent;
mod capture;
mod config;
mod congestion;
mod engine;
mod notify;
mod run;
mod socket;
mod stat;

use std::fmt;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use sidecore_lab::command::{LabCommand, RunOptions};

/// Exit code for something that went wrong while running.
const FAILED: u8 = 1;

/// Exit code for wrong usage: clap's own, and ours for what clap cannot know.
const USAGE: u8 = 2;

#[derive(Parser)]
#[command(
    name = "sidecore",
    version,
    about = "TCP/IP on a core of its own, outside the kernel",
    arg_required_else_help = true
)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run an engine until SIGTERM or Ctrl-C
    Engine(engine::Options),
    /// Run a program with its sockets on the engine
    Run(run::Options),
    /// Show an engine's connections, counters and cycles
    Stat(stat::Options),
    /// Write an engine's packets as pcapng, for Wireshark and tcpdump
    Capture(capture::Options),
    /// Web server and echo server on the engine and on the kernel, measured side by side
    Demo(RunOptions),
    /// Experiments, load generators and baselines
    #[command(subcommand)]
    Lab(LabCommand),
}

/// What was asked for makes no sense.
#[derive(Debug)]
struct Usage(String);

impl fmt::Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Usage {}

/// An error of wrong usage.
fn usage(what: impl Into<String>) -> anyhow::Error {
    anyhow::Error::new(Usage(what.into()))
}

fn main() -> ExitCode {
    let result = match Arguments::parse().command {
        Command::Engine(options) => engine::run(&options),
        Command::Run(options) => run::run(&options),
        Command::Stat(options) => stat::run(&options),
        Command::Capture(options) => capture::run(&options),
        Command::Demo(options) => sidecore_lab::command::demo(&options),
        Command::Lab(command) => sidecore_lab::command::run(&command),
    };
    let Err(error) = result else {
        return ExitCode::SUCCESS;
    };
    if is_closed_pipe(&error) {
        // `sidecore stat | head`: nobody is left to read, which is no failure.
        return ExitCode::SUCCESS;
    }
    eprintln!("sidecore: {error:#}");
    if let Some(exit) = error.downcast_ref::<run::Exit>() {
        return ExitCode::from(exit.0);
    }
    let is_usage = error.is::<Usage>() || error.is::<sidecore_lab::link::Usage>();
    ExitCode::from(if is_usage { USAGE } else { FAILED })
}

fn is_closed_pipe(error: &anyhow::Error) -> bool {
    let kind = error
        .downcast_ref::<std::io::Error>()
        .map(std::io::Error::kind);
    kind == Some(std::io::ErrorKind::BrokenPipe)
}
