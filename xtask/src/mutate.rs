//! `cargo xtask mutate`: switches the rules off, one at a time, and sees whether the test that is about each fails.
//!
//! All of it happens in a copy below `target/mutate`: the tree itself is only read, so that an interruption leaves nothing
//! behind in it. The copy and what was built from it stay for the next run.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use crate::conformance::mutations::{Mutation, Mutations};

/// A test that runs longer is in an endless loop.
const LIMIT: Duration = Duration::from_secs(120);
/// Address space of a test, in KiB: a rule switched off may make something grow for ever.
const MEMORY_KIB: u32 = 4 << 20;

/// What became of a mutation.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Fate {
    /// The test failed, as it must.
    Killed,
    /// The test failed by taking too long.
    KilledByTime,
    /// The test passed: it does not show the rule.
    Survived,
    /// The source does not compile.
    DoesNotBuild(String),
    /// The text to replace is not there, or not once.
    TextNotFound(String),
    /// Without the mutation the test does not pass either, or does not exist.
    TestIsBroken,
}

impl fmt::Display for Fate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Killed => f.write_str("killed"),
            Self::KilledByTime => f.write_str("killed (took too long)"),
            Self::Survived => f.write_str("SURVIVED"),
            Self::DoesNotBuild(why) => write!(f, "DOES NOT BUILD: {why}"),
            Self::TextNotFound(why) => write!(f, "TEXT NOT FOUND: {why}"),
            Self::TestIsBroken => f.write_str("TEST FAILS WITHOUT IT"),
        }
    }
}

/// A test's target, and its name there.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct TestName {
    package: String,
    /// `--test` of cargo; `None`: the library.
    target: Option<String>,
    name: String,
}

impl TestName {
    /// Takes a name as `cargo nextest list` has it apart.
    fn parse(listed: &str) -> Option<Self> {
        let (binary, name) = listed.split_once(' ')?;
        let (package, target) = match binary.split_once("::") {
            Some((package, target)) => (package, Some(target.to_owned())),
            None => (binary, None),
        };
        Some(Self {
            package: package.to_owned(),
            target,
            name: name.to_owned(),
        })
    }
}

/// Runs all mutations, or those with one label, or whose tests are in one package. Success: all were killed.
pub(crate) fn run(root: &Path, only: Option<&str>) -> io::Result<ExitCode> {
    let list = Mutations::read(root)?.mutations;
    let chosen: Vec<Mutation> = list
        .into_iter()
        .filter(|mutation| only.is_none_or(|only| is_meant(mutation, only)))
        .collect();
    if chosen.is_empty() {
        eprintln!(
            "mutate: no mutation has the label, or a test in the package, {}",
            only.unwrap_or("that")
        );
        return Ok(ExitCode::FAILURE);
    }
    let copy = Copy::of(root)?;
    // All of them before the first change, so that each target is built once for it.
    let mut passes = BTreeMap::new();
    let mut tests: Vec<_> = chosen
        .iter()
        .filter_map(|m| TestName::parse(&m.test))
        .collect();
    tests.sort();
    for test in tests {
        copy.passes(&test, &mut passes)?;
    }
    let mut counts: BTreeMap<bool, usize> = BTreeMap::new();
    for mutation in &chosen {
        let started = Instant::now();
        let fate = copy.try_mutation(mutation, &mut passes)?;
        let killed = matches!(fate, Fate::Killed | Fate::KilledByTime);
        *counts.entry(killed).or_default() += 1;
        let seconds = started.elapsed().as_secs();
        println!(
            "{}: {fate} ({}, {seconds} s)",
            mutation.label, mutation.test
        );
    }
    let left = counts.get(&false).copied().unwrap_or_default();
    println!("{} mutations, {left} not killed", chosen.len());
    Ok(if left == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Whether a mutation has the label, or its test is in the package.
fn is_meant(mutation: &Mutation, only: &str) -> bool {
    let package = TestName::parse(&mutation.test).map(|test| test.package);
    mutation.label == only || package.is_some_and(|package| package == only)
}

/// The copy in which sources are changed.
struct Copy {
    tree: PathBuf,
    target: PathBuf,
}

impl Copy {
    /// Brings the copy up to date. What has not changed keeps its time, so that cargo does not build it again.
    fn of(root: &Path) -> io::Result<Self> {
        let folder = root.join("target/mutate");
        let copy = Self {
            tree: folder.join("tree"),
            target: folder.join("target"),
        };
        let files = crate::tidy::tracked_files(root)?;
        for file in &files {
            let (from, to) = (root.join(file), copy.tree.join(file));
            if !from.is_file() {
                continue;
            }
            let bytes = std::fs::read(&from)?;
            copy.write(&to, &bytes)?;
        }
        // What is gone: a file too many could be built.
        for old in files_below(&copy.tree)? {
            let known = old.strip_prefix(&copy.tree).is_ok_and(|path| {
                let path = path.to_string_lossy();
                path == "Cargo.lock" || files.iter().any(|file| *file == path)
            });
            if !known {
                std::fs::remove_file(&old)?;
            }
        }
        Ok(copy)
    }

    fn write(&self, to: &Path, bytes: &[u8]) -> io::Result<()> {
        if std::fs::read(to).is_ok_and(|old| old == bytes) {
            return Ok(());
        }
        if let Some(folder) = to.parent() {
            std::fs::create_dir_all(folder)?;
        }
        std::fs::write(to, bytes)
    }

    fn try_mutation(
        &self,
        mutation: &Mutation,
        passes: &mut BTreeMap<TestName, bool>,
    ) -> io::Result<Fate> {
        let Some(test) = TestName::parse(&mutation.test) else {
            return Ok(Fate::TestIsBroken);
        };
        let path = self.tree.join(&mutation.file);
        let original = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) => return Ok(Fate::TextNotFound(error.to_string())),
        };
        let mutated = match mutation.apply(&original) {
            Ok(text) => text,
            Err(why) => return Ok(Fate::TextNotFound(why)),
        };
        if !self.passes(&test, passes)? {
            return Ok(Fate::TestIsBroken);
        }
        std::fs::write(&path, mutated)?;
        let fate = self.test(&test);
        std::fs::write(&path, original)?;
        fate
    }

    /// Whether a test passes while nothing is switched off.
    fn passes(&self, test: &TestName, known: &mut BTreeMap<TestName, bool>) -> io::Result<bool> {
        if let Some(passes) = known.get(test) {
            return Ok(*passes);
        }
        let passes = self.test(test)? == Fate::Survived;
        known.insert(test.clone(), passes);
        Ok(passes)
    }

    /// Builds and runs one test.
    fn test(&self, test: &TestName) -> io::Result<Fate> {
        let mut build = Command::new(env!("CARGO"));
        build
            .current_dir(&self.tree)
            .env("CARGO_TARGET_DIR", &self.target)
            // Built once and run for a moment: what takes long is the building. Other packages have their own level.
            .env("CARGO_PROFILE_DEV_OPT_LEVEL", "0")
            .args(["test", "--no-run", "--offline", "-p", &test.package]);
        match &test.target {
            Some(target) => build.args(["--test", target]),
            None => build.arg("--lib"),
        };
        let built = build.output()?;
        let said = String::from_utf8_lossy(&built.stderr);
        if !built.status.success() {
            let error = said.lines().find(|line| line.starts_with("error"));
            return Ok(Fate::DoesNotBuild(error.unwrap_or("no error").to_owned()));
        }
        let Some(binary) = executable(&said) else {
            return Ok(Fate::DoesNotBuild("cargo names no executable".to_owned()));
        };
        let folder = self
            .tree
            .join("crates")
            .join(test.package.trim_start_matches("sidecore-"));
        self.run_test(&self.tree.join(binary), &folder, &test.name)
    }

    fn run_test(&self, binary: &Path, folder: &Path, name: &str) -> io::Result<Fate> {
        // A file, not a pipe that might fill up.
        let said = self.tree.with_file_name("said");
        let mut child = Command::new("sh")
            .args(["-c", &format!("ulimit -v {MEMORY_KIB}; exec \"$0\" \"$@\"")])
            .arg(binary)
            .args(["--exact", name])
            .current_dir(folder)
            .stdin(Stdio::null())
            .stdout(std::fs::File::create(&said)?)
            .stderr(Stdio::null())
            .spawn()?;
        let started = Instant::now();
        let status = loop {
            if let Some(status) = child.try_wait()? {
                break status;
            }
            if started.elapsed() > LIMIT {
                child.kill()?;
                child.wait()?;
                return Ok(Fate::KilledByTime);
            }
            std::thread::sleep(Duration::from_millis(10));
        };
        if !status.success() {
            return Ok(Fate::Killed);
        }
        let said = std::fs::read_to_string(&said)?;
        // A name that matches nothing passes, too.
        Ok(if said.contains("1 passed") {
            Fate::Survived
        } else {
            Fate::TestIsBroken
        })
    }
}

/// The path in cargo's `  Executable tests/a.rs (target/debug/deps/a-0123)`.
fn executable(said: &str) -> Option<&str> {
    let line = said
        .lines()
        .find(|line| line.trim().starts_with("Executable"))?;
    let (_, path) = line.rsplit_once('(')?;
    path.strip_suffix(')')
}

fn files_below(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            files.extend(files_below(&entry.path())?);
        } else {
            files.push(entry.path());
        }
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_are_chosen_by_label_or_by_the_package_of_their_test() {
        let mutation = Mutation {
            label: "MUST-1".into(),
            file: "crates/tcp/src/lib.rs".into(),
            find: "a".into(),
            replace: "b".into(),
            test: "sidecore-tcp::timers a_test".into(),
        };
        for (only, meant) in [
            ("MUST-1", true),
            ("sidecore-tcp", true),
            ("MUST-10", false),
            ("sidecore", false),
            ("timers", false),
        ] {
            assert_eq!(is_meant(&mutation, only), meant, "{only}");
        }
    }

    #[test]
    fn names_are_taken_apart() {
        let name = |package: &str, target: Option<&str>, name: &str| {
            Some(TestName {
                package: package.into(),
                target: target.map(str::to_owned),
                name: name.into(),
            })
        };
        assert_eq!(
            TestName::parse("sidecore-stack::stack six::transport::a"),
            name("sidecore-stack", Some("stack"), "six::transport::a")
        );
        assert_eq!(
            TestName::parse("sidecore-tcp prr::tests::b"),
            name("sidecore-tcp", None, "prr::tests::b")
        );
        assert_eq!(TestName::parse("nothing"), None);
    }

    #[test]
    fn the_executable_is_found_in_what_cargo_says() {
        let said = "   Compiling a v0.1.0 (/x)\n    Finished `test` profile in 1s\n  Executable tests/a.rs (/t/debug/deps/a-01)\n";
        assert_eq!(executable(said), Some("/t/debug/deps/a-01"));
        assert_eq!(executable("error: no"), None);
    }

    /// A package of one file and one test, and what becomes of mutations of it.
    fn fates(mutations: &[(&str, &str)]) -> Vec<Fate> {
        let root = tempfile::tempdir().expect("a temporary directory");
        let manifest =
            "[package]\nname = \"sidecore-one\"\nversion = \"0.1.0\"\nedition = \"2021\"\n";
        let source = "pub fn limit(n: u32) -> u32 {\n    n.min(10)\n}\n";
        let test = "#[test]\nfn limited() {\n    assert_eq!(sidecore_one::limit(99), 10);\n}\n";
        let workspace = "[workspace]\nresolver = \"2\"\nmembers = [\"crates/*\"]\n";
        for (path, text) in [
            ("Cargo.toml", workspace),
            ("crates/one/Cargo.toml", manifest),
            ("crates/one/src/lib.rs", source),
            ("crates/one/tests/t.rs", test),
        ] {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().expect("a parent")).expect("a folder");
            std::fs::write(path, text).expect("a file");
        }
        let git = |arguments: &[&str]| {
            let mut git = Command::new("git");
            let status = git.arg("-C").arg(root.path()).args(arguments).status();
            assert!(status.expect("git runs").success());
        };
        git(&["init", "-q"]);
        git(&["add", "."]);
        let copy = Copy::of(root.path()).expect("a copy");
        let mut passes = BTreeMap::new();
        let fates = mutations
            .iter()
            .map(|(find, replace)| {
                let mutation = Mutation {
                    label: "MUST-1".into(),
                    file: "crates/one/src/lib.rs".into(),
                    find: (*find).into(),
                    replace: (*replace).into(),
                    test: "sidecore-one::t limited".into(),
                };
                copy.try_mutation(&mutation, &mut passes).expect("it runs")
            })
            .collect();
        let after = std::fs::read_to_string(root.path().join("crates/one/src/lib.rs"));
        assert_eq!(after.expect("a file"), source, "the tree is as it was");
        fates
    }

    #[test]
    fn what_becomes_of_mutations() {
        let fates = fates(&[
            ("n.min(10)", "n"),
            ("n.min(10)", "n.min(5 + 5)"),
            ("n.min(10)", "n.min(\"10\")"),
            ("n.max(10)", "n"),
        ]);
        assert_eq!(fates[..2], [Fate::Killed, Fate::Survived]);
        assert!(matches!(fates[2], Fate::DoesNotBuild(_)), "{fates:?}");
        assert!(matches!(fates[3], Fate::TextNotFound(_)), "{fates:?}");
    }
}
