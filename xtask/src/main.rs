//! Checks on the source tree that cargo has no command for.
//!
//! `cargo xtask tidy` holds the tree to the rules that neither rustc nor clippy knows: how long files
//! and functions may be, where `unsafe` may stand, which crate may depend on which, and what must not
//! be left lying about. `cargo xtask conformance` holds the pages about RFCs to the tests that they name, and `cargo xtask mutate`
//! the tests to the rules: it switches those off. Each finding is one line, `path:line: what: mend`.
//!
//! `cargo xtask header` makes the C interface's header and man pages from its source.
//!
//! `cargo xtask packetdrill` runs packetdrill's own scripts against the stack; docs/packetdrill.md tells how to get them.
//!
//! Exit codes: 0 nothing found, 1 something found or the tree could not be read, 2 wrong usage.

#![forbid(unsafe_code)]

mod conformance;
mod finding;
mod header;
mod inventory;
mod mutate;
mod packetdrill;
mod tidy;

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use finding::Finding;

const USAGE: &str =
    "usage: cargo xtask tidy [--root DIR] | conformance [--root DIR] | mutate [--only LABEL|PACKAGE]
       cargo xtask header
       cargo xtask packetdrill --bin PROGRAM --gtests DIR [--only PART] [--markdown FILE]";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["tidy"] => check("tidy", tidy::run(&workspace_root())),
        ["tidy", "--root", root] => check("tidy", tidy::run(Path::new(root))),
        ["conformance"] => check("conformance", conformance::run(&workspace_root())),
        ["conformance", "--root", root] => check("conformance", conformance::run(Path::new(root))),
        ["header"] => match header::run(&workspace_root()) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("header: {error}");
                ExitCode::FAILURE
            }
        },
        ["mutate"] => mutate(None),
        ["mutate", "--only", what] => mutate(Some(what)),
        ["packetdrill", ref words @ ..] => match packetdrill::Request::of(words) {
            Some(request) => packetdrill::run(&workspace_root(), &request),
            None => wrong_usage(),
        },
        ["help" | "--help" | "-h"] => {
            println!("{USAGE}");
            ExitCode::SUCCESS
        }
        _ => wrong_usage(),
    }
}

fn wrong_usage() -> ExitCode {
    eprintln!("{USAGE}");
    ExitCode::from(2)
}

fn mutate(only: Option<&str>) -> ExitCode {
    mutate::run(&workspace_root(), only).unwrap_or_else(|error| {
        eprintln!("mutate: {error}");
        ExitCode::FAILURE
    })
}

/// Prints what a check found.
fn check(name: &str, outcome: io::Result<Vec<Finding>>) -> ExitCode {
    let findings = match outcome {
        Ok(findings) => findings,
        Err(error) => {
            eprintln!("{name}: {error}");
            return ExitCode::FAILURE;
        }
    };
    let mut out = std::io::stdout().lock();
    for finding in &findings {
        // A reader that went away (`| head`) wants no more lines; the exit code still tells.
        if writeln!(out, "{finding}").is_err() {
            break;
        }
    }
    if findings.is_empty() {
        return ExitCode::SUCCESS;
    }
    eprintln!("{name}: {} findings", findings.len());
    ExitCode::FAILURE
}

fn workspace_root() -> PathBuf {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    manifest.parent().unwrap_or(manifest).to_path_buf()
}
