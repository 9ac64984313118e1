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

/// A script with its last expectation changed, or with a segment more that is answered: it must fail.
fn spoilt(text: &str) -> String {
    let lines: Vec<_> = text.lines().collect();
    let found = (0..lines.len())
        .rev()
        .find_map(|at| Some((at, spoilt_line(lines[at])?)));
    let mut lines: Vec<String> = lines.iter().map(ToString::to_string).collect();
    match found {
        Some((at, line)) => lines[at] = line,
        None => lines.insert(lines.len() - 1, "+0 < 9 > 9 . 1:1(0) ack 5 win 5".into()),
    }
    lines.join("\n")
}

/// A line that expects something else; `None` if it expects nothing that is easily changed.
fn spoilt_line(line: &str) -> Option<String> {
    let outbound = line.contains(" > ") && !line.contains(" < ");
    if line.starts_with("//") || line.contains("socket(") || line.contains("accept(") {
        return None;
    }
    if line.contains("assert ") {
        return other_number(line, " == ", 7_777_777)
            .or_else(|| other_number(line, " <= ", 0))
            .or_else(|| other_number(line, " >= ", 1 << 40));
    }
    if !outbound {
        return other_number(line, ") = ", 77);
    }
    let other = |old: &str, new: &str| line.contains(old).then(|| line.replacen(old, new, 1));
    other_number(line, " ack ", 77)
        .or_else(|| other(" R ", " RP "))
        .or_else(|| other(" S ", " SP "))
        .or_else(|| other(" SEW ", " S "))
        .or_else(|| other_number(line, " id ", 77))
        .or_else(|| other_number(line, "udp (", 77))
        .or_else(|| other("port_unreachable", "failed_policy"))
}

/// The last number behind a mark is another.
fn other_number(line: &str, mark: &str, other: u64) -> Option<String> {
    let start = line.rfind(mark)? + mark.len();
    let digits = line[start..].bytes().take_while(u8::is_ascii_digit).count();
    let number: u64 = line[start..start + digits].parse().ok()?;
    let other = if number == other { other + 1 } else { other };
    Some(format!(
        "{}{other}{}",
        &line[..start],
        &line[start + digits..]
    ))
}

fn can_fail(path: &Path) -> Result<(), String> {
    let text = spoilt(&fs::read_to_string(path).map_err(|error| error.to_string())?);
    let include = |file: &str| fs::read_to_string(root().join(file)).ok();
    let file = path.display().to_string();
    match script::run(&file, &text, &include) {
        Ok(()) => Err(format!("{file}: passes though spoilt:\n{text}")),
        Err(_) => Ok(()),
    }
}

fn main() {
    let arguments = Arguments::from_args();
    let all = scripts();
    let tests = all.clone().into_iter().map(|path| {
        let name = name_of(&path);
        Trial::test(name, move || run(&path))
    });
    let mut tests: Vec<_> = tests.collect();
    let spoilt = all.clone();
    tests.push(Trial::test("every_script_can_fail", move || {
        let passing: Vec<_> = spoilt
            .iter()
            .filter_map(|path| can_fail(path).err())
            .collect();
        match passing.is_empty() {
            true => Ok(()),
            false => Err(passing.join("\n").into()),
        }
    }));
    tests.push(Trial::test("every_script_names_its_rule", move || {
        all.iter().try_for_each(|path| names_its_rule(path))
    }));
    libtest_mimic::run(&arguments, tests).exit();
}
