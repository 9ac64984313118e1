//! Which commit the program was built of: `SIDECORE_COMMIT` for `src/machine.rs`, `+` behind it if the tree was changed since, nothing
//! where there is no git or no repository. Who packages the source without its repository sets the variable for the build.

use std::path::Path;
use std::process::Command;

const VARIABLE: &str = "SIDECORE_COMMIT";

fn main() {
    println!("cargo::rerun-if-env-changed={VARIABLE}");
    let commit = match std::env::var(VARIABLE) {
        Ok(given) => given,
        Err(_) => {
            watch();
            commit().unwrap_or_default()
        }
    };
    println!("cargo::rustc-env={VARIABLE}={commit}");
}

fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}

fn commit() -> Option<String> {
    let commit = git(&["rev-parse", "--short=12", "HEAD"]).filter(|commit| !commit.is_empty())?;
    let changed = git(&["status", "--porcelain", "--untracked-files=no"])?;
    Some(if changed.is_empty() {
        commit
    } else {
        format!("{commit}+")
    })
}

/// What the answer depends on: which commit is checked out, and the sources of all crates.
fn watch() {
    for name in ["HEAD", "logs/HEAD"] {
        let path = git(&["rev-parse", "--git-path", name]);
        for path in path.iter().filter(|path| Path::new(path).exists()) {
            println!("cargo::rerun-if-changed={path}");
        }
    }
    let crates = std::fs::read_dir("..").into_iter().flatten().flatten();
    for sources in crates.map(|entry| entry.path().join("src")) {
        if sources.is_dir() {
            println!("cargo::rerun-if-changed={}", sources.display());
        }
    }
}
