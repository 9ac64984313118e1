//! The sidecore program: the engine as a service, a look into it, and the lab.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use sidecore_lab::command::LabCommand;

/// Exit code for something that went wrong while running. (Wrong usage is 2, by clap.)
const FAILED: u8 = 1;

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
    /// Experiments, load generators and baselines
    #[command(subcommand)]
    Lab(LabCommand),
}

fn main() -> ExitCode {
    let result = match Arguments::parse().command {
        Command::Lab(command) => sidecore_lab::command::run(&command),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("sidecore: {error:#}");
            ExitCode::from(FAILED)
        }
    }
}
