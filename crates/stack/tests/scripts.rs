//! The scripts below `tests/scripts`, each a test of its own: `docs/scripts.md` says how they are written.
//!
//! `cargo nextest run -p sidecore-stack --test scripts` runs all, with `handshake::` behind it those of one topic.

use std::fs;
use std::path::{Path, PathBuf};

use libtest_mimic::{Arguments, Failed, Trial};
use sidecore_testkit::script;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scripts")
}

/// What scripts share is in `include`, and no test.
fn scripts() -> Vec<PathBuf> {
    let entries = |dir: &Path| {
        let listed = fs::read_dir(dir).expect("a directory of scripts");
        let mut paths: Vec<_> = listed
            .map(|entry| entry.expect("an entry").path())
            .collect();
        paths.sort();
        paths
    };
    let topics = entries(&root()).into_iter().filter(|path| path.is_dir());
    let files = topics.flat_map(|topic| entries(&topic));
    files
        .filter(|path| path.extension().is_some_and(|ext| ext == "pkt"))
        .collect()
}

/// `handshake::passive_open`
fn name_of(path: &Path) -> String {
    let relative = path.strip_prefix(root()).expect("a script");
    let name = relative.with_extension("").display().to_string();
    name.replace(std::path::MAIN_SEPARATOR, "::")
}

fn run(path: &Path) -> Result<(), Failed> {
    let text = fs::read_to_string(path)?;
    let include = |file: &str| fs::read_to_string(root().join(file)).ok();
    let file = path.strip_prefix(root())?.display().to_string();
    script::run(&file, &text, &include).map_err(|failure| failure.to_string().into())
}

/// The first line of a script says what rule it is about, and where that stands.
fn names_its_rule(path: &Path) -> Result<(), Failed> {
    let text = fs::read_to_string(path)?;
    let comment: String = text
        .lines()
        .take_while(|line| line.starts_with("//"))
        .collect();
    if comment.contains("RFC ") && (comment.contains("section") || comment.contains("appendix ")) {
        return Ok(());
    }
    Err(format!(
        "{}: the first comment names no section of an RFC",
        path.display()
    )
    .into())
}

fn main() {
    let arguments = Arguments::from_args();
    let all = scripts();
    let tests = all.clone().into_iter().map(|path| {
        let name = name_of(&path);
        Trial::test(name, move || run(&path))
    });
    let mut tests: Vec<_> = tests.collect();
    tests.push(Trial::test("every_script_names_its_rule", move || {
        all.iter().try_for_each(|path| names_its_rule(path))
    }));
    libtest_mimic::run(&arguments, tests).exit();
}
