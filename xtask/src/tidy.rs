//! The rules of the tree, one module a subject.

mod arrows;
mod leftovers;
mod size;
mod source;
mod unsafety;

use std::io;
use std::path::Path;
use std::process::Command;

use source::SourceFile;

use crate::Finding;

/// Everything that the files which git tracks below `root` do wrong, in the order of the paths.
///
/// # Errors
/// If git does not answer, or a tracked file can be listed but not read.
pub(crate) fn run(root: &Path) -> io::Result<Vec<Finding>> {
    let mut findings = Vec::new();
    for path in tracked_files(root)? {
        let bytes = match std::fs::read(root.join(&path)) {
            Ok(bytes) => bytes,
            // Deleted but not yet committed, or a link to a directory.
            Err(e)
                if matches!(
                    e.kind(),
                    io::ErrorKind::NotFound | io::ErrorKind::IsADirectory
                ) =>
            {
                continue;
            }
            Err(e) => return Err(io::Error::new(e.kind(), format!("{path}: {e}"))),
        };
        // What is not text has no lines to find anything in.
        if let Ok(text) = String::from_utf8(bytes) {
            check_file(&path, &text, &mut findings);
        }
    }
    findings.sort();
    findings.dedup();
    Ok(findings)
}

/// All rules, on one file.
fn check_file(path: &str, text: &str, findings: &mut Vec<Finding>) {
    leftovers::check_paths(path, text, findings);
    if path.ends_with(".rs") {
        match SourceFile::new(path, text) {
            Ok(file) => {
                size::check(&file, findings);
                unsafety::check(&file, findings);
                leftovers::check_source(&file, findings);
            }
            Err(line) => findings.push(Finding::new(
                path,
                line,
                "is no sequence of Rust tokens",
                "make it compile",
            )),
        }
    } else if path.ends_with("Cargo.toml") {
        arrows::check(path, text, findings);
    }
    if leftovers::is_code(path) {
        leftovers::check_marks(path, text, findings);
    }
}

pub(crate) fn tracked_files(root: &Path) -> io::Result<Vec<String>> {
    let listing = Command::new("git")
        .arg("-C")
        .arg(root)
        .args(["ls-files", "-z"])
        .output()?;
    if !listing.status.success() {
        let complaint = String::from_utf8_lossy(&listing.stderr).trim().to_string();
        return Err(io::Error::other(complaint));
    }
    let names = listing
        .stdout
        .split(|byte| *byte == 0)
        .filter(|name| !name.is_empty());
    Ok(names
        .map(|name| String::from_utf8_lossy(name).into_owned())
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a check finds in a file, as `line: what`.
    pub(super) fn found(path: &str, text: &str) -> Vec<String> {
        let mut findings = Vec::new();
        check_file(path, text, &mut findings);
        findings.sort();
        assert!(
            findings
                .iter()
                .all(|f| f.path == path && !f.mend.is_empty())
        );
        findings
            .iter()
            .map(|f| format!("{}: {}", f.line, f.what))
            .collect()
    }

    #[test]
    fn a_finding_is_one_line() {
        let finding = Finding::new("crates/tcp/src/lib.rs", 7, "too long", "split it");
        assert_eq!(
            finding.to_string(),
            "crates/tcp/src/lib.rs:7: too long: split it"
        );
    }

    #[test]
    fn a_tidy_file_has_no_findings() {
        let text = "//! Docs.\n\n#![forbid(unsafe_code)]\n\nfn main() {}\n";
        assert_eq!(found("crates/tcp/src/lib.rs", text), [""; 0]);
    }

    #[test]
    fn what_is_no_rust_is_a_finding() {
        let found = found("crates/tcp/src/flags.rs", "fn f() {\n    (]\n}\n");
        assert_eq!(found, ["2: is no sequence of Rust tokens"]);
    }
}
