//! `cargo xtask conformance`: whether the pages that say which RFC is kept, and what shows it, are true as far as can be told
//! without running anything.

pub(crate) mod mutations;
mod page;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;

use self::mutations::{FOLDER, Mutations};
use self::page::{Row, Status, is_script};
use crate::Finding;

/// Where the pages are, from the root of the tree: this page and the folder beside it.
const OVERVIEW: &str = "docs/conformance.md";
const PAGES: &str = "docs/conformance";
/// The page on which each label of RFC 9293 stands once.
const RFC_9293: &str = "docs/conformance/rfc9293.md";
/// How many labels of each kind RFC 9293 has (appendix B).
const LABELS: [(&str, u32); 4] = [("MUST", 69), ("SHLD", 31), ("MAY", 18), ("REC", 1)];

/// Everything that the pages below `root` claim and that is not so.
///
/// # Errors
/// If the pages or the sources cannot be read.
pub(crate) fn run(root: &Path) -> io::Result<Vec<Finding>> {
    let tests = crate::inventory::tests(root)?;
    let exists = |path: &str| root.join(path).is_file();
    let mut findings = Vec::new();
    let mut of_rfc_9293 = Vec::new();
    for (path, text) in pages(root)? {
        let (rows, faults) = page::rows(&text);
        for (line, fault) in faults {
            findings.push(Finding::new(&path, line, fault, "see docs/conformance.md"));
        }
        check_rows(&path, &rows, &tests, &exists, &mut findings);
        if path == RFC_9293 {
            check_labels(&rows, &mut findings);
            of_rfc_9293 = rows;
        } else if rows.is_empty() && path != OVERVIEW {
            findings.push(Finding::new(&path, 1, "no table", "say what is kept"));
        }
    }
    let list = Mutations::read(root)?;
    check_mutations(root, &list, &of_rfc_9293, &tests, &mut findings);
    findings.sort();
    Ok(findings)
}

fn pages(root: &Path) -> io::Result<Vec<(String, String)>> {
    let mut paths = vec![OVERVIEW.to_owned()];
    for entry in std::fs::read_dir(root.join(PAGES))? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if name.ends_with(".md") {
            paths.push(format!("{PAGES}/{name}"));
        }
    }
    paths.sort();
    let read = |path: String| {
        let text = std::fs::read_to_string(root.join(&path))
            .map_err(|e| io::Error::new(e.kind(), format!("{path}: {e}")))?;
        Ok((path, text))
    };
    paths.into_iter().map(read).collect()
}

/// Each row has what shows it, and that exists; or says why not.
fn check_rows(
    path: &str,
    rows: &[Row],
    tests: &BTreeSet<String>,
    exists: &dyn Fn(&str) -> bool,
    findings: &mut Vec<Finding>,
) {
    for row in rows {
        let mut tell = |what: String, mend: &str| {
            findings.push(Finding::new(
                path,
                row.line,
                format!("{}: {what}", row.label),
                mend,
            ));
        };
        for name in &row.shown_by {
            let there = if is_script(name) {
                exists(name)
            } else {
                tests.contains(name)
            };
            if !there {
                tell(format!("`{name}` does not exist"), "name what shows it");
            }
        }
        let has_reason = row.reason.split_whitespace().count() >= 2;
        if row.shown_by.is_empty() && !has_reason {
            tell(
                "neither test nor reason".into(),
                "name a test, or say why there is none",
            );
        } else if row.status != Status::Yes && !has_reason {
            tell("not kept in full, and no reason".into(), "say why");
        }
    }
}

/// All labels of RFC 9293, each once.
fn check_labels(rows: &[Row], findings: &mut Vec<Finding>) {
    let mut lines: BTreeMap<&str, usize> = BTreeMap::new();
    for row in rows {
        if let Some(first) = lines.insert(&row.label, row.line) {
            let what = format!("{} stands in line {first} too", row.label);
            findings.push(Finding::new(RFC_9293, row.line, what, "once is enough"));
        }
    }
    for (kind, count) in LABELS {
        for number in 1..=count {
            let label = format!("{kind}-{number}");
            if lines.remove(label.as_str()).is_none() {
                let what = format!("{label} is missing");
                findings.push(Finding::new(RFC_9293, 1, what, "say what is done about it"));
            }
        }
    }
    for (label, line) in lines {
        let what = format!("{label} is no label of RFC 9293");
        findings.push(Finding::new(
            RFC_9293,
            line,
            what,
            "its labels are in appendix B",
        ));
    }
}

/// Each MUST that is kept can be switched off, and each mutation still fits.
fn check_mutations(
    root: &Path,
    list: &Mutations,
    rows: &[Row],
    tests: &BTreeSet<String>,
    findings: &mut Vec<Finding>,
) {
    let mut tell = |what: String, mend: &str| findings.push(Finding::new(FOLDER, 1, what, mend));
    let row_of = |label: &str| rows.iter().find(|row| row.label == label);
    for mutation in &list.mutations {
        let label = &mutation.label;
        let applied = match std::fs::read_to_string(root.join(&mutation.file)) {
            Ok(text) => mutation.apply(&text).map(|_| ()),
            Err(error) => Err(format!("{}: {error}", mutation.file)),
        };
        if let Err(error) = applied {
            tell(format!("{label}: {error}"), "follow the source");
        }
        if !tests.contains(&mutation.test) {
            tell(
                format!("{label}: `{}` does not exist", mutation.test),
                "name the test that must fail",
            );
        } else if !row_of(label).is_some_and(|row| row.shown_by.contains(&mutation.test)) {
            tell(
                format!("{label}: `{}` is not in its row", mutation.test),
                "the page names the test that the mutation fails",
            );
        }
    }
    for (label, _) in &list.none {
        if row_of(label).is_none() || list.mutations.iter().any(|m| m.label == *label) {
            tell(
                format!("{label}: a reason for no mutation, and no need of one"),
                "take it out",
            );
        }
    }
    for row in rows {
        let counts = row.label.starts_with("MUST-") && row.status == Status::Yes;
        let has_one = list.mutations.iter().any(|m| m.label == row.label)
            || list.none.iter().any(|(label, _)| *label == row.label);
        if counts && !has_one {
            tell(
                format!("{}: no mutation", row.label),
                "switch its rule off, or say why that is not possible",
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str =
        "| label | section | requirement | here | shown by, or why not |\n|---|---|---|---|---|\n";
    const TEST: &str = "sidecore-tcp::t good";

    /// All labels but those for which other rows are given.
    fn page(rows: &[&str]) -> String {
        let given = |label: &str| {
            rows.iter()
                .any(|row| row.starts_with(&format!("| {label} |")))
        };
        let mut page = HEAD.to_owned();
        for (kind, count) in LABELS {
            for number in 1..=count {
                let label = format!("{kind}-{number}");
                if !given(&label) {
                    page += &format!("| {label} | 3 | a | no | not yet |\n");
                }
            }
        }
        for row in rows {
            page += row;
            page += "\n";
        }
        page
    }

    /// What is found in a tree with this page and this list of mutations.
    fn found(page: &str, mutations: &str) -> Vec<String> {
        let root = tempfile::tempdir().expect("a temporary directory");
        for (path, text) in [
            ("docs/conformance.md", "# Conformance\n"),
            (RFC_9293, page),
            (
                "crates/tcp/Cargo.toml",
                "[package]\nname = \"sidecore-tcp\"\n",
            ),
            ("crates/tcp/src/lib.rs", "fn rule() -> bool { true }\n"),
            (
                "crates/tcp/tests/t.rs",
                "#[test]\nfn good() {}\n#[test]\nfn other() {}\n",
            ),
            (
                "crates/stack/Cargo.toml",
                "[package]\nname = \"sidecore-stack\"\n",
            ),
            ("crates/stack/tests/scripts/close/a.pkt", "0 > F.\n"),
            ("xtask/mutations/a.toml", mutations),
        ] {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().expect("a parent")).expect("a folder");
            std::fs::write(path, text).expect("a file");
        }
        let findings = run(root.path()).expect("readable");
        findings
            .iter()
            .map(|finding| finding.what.clone())
            .collect()
    }

    fn list(file: &str, find: &str, test: &str) -> String {
        format!(
            "[[mutation]]\nlabel = \"MUST-1\"\nfile = \"{file}\"\nfind = \"{find}\"\nreplace = \"x\"\ntest = \"{test}\"\n"
        )
    }

    fn good_list() -> String {
        list("crates/tcp/src/lib.rs", "true", TEST)
    }

    const GOOD_ROW: &str = "| MUST-1 | 3 | a | yes | `sidecore-tcp::t good`, `crates/stack/tests/scripts/close/a.pkt` |";

    #[test]
    fn a_true_page_passes() {
        assert_eq!(found(&page(&[GOOD_ROW]), &good_list()), [""; 0]);
        let by_design = "[[none]]\nlabel = \"MUST-1\"\nreason = \"by type\"\n";
        assert_eq!(found(&page(&[GOOD_ROW]), by_design), [""; 0]);
    }

    #[test]
    fn a_test_or_script_that_does_not_exist_is_found() {
        let row = "| MAY-1 | 3 | a | yes | `sidecore-tcp::t bad`, `crates/stack/tests/scripts/close/b.pkt` |";
        assert_eq!(
            found(&page(&[row]), ""),
            [
                "MAY-1: `crates/stack/tests/scripts/close/b.pkt` does not exist",
                "MAY-1: `sidecore-tcp::t bad` does not exist"
            ]
        );
    }

    #[test]
    fn labels_stand_once_and_are_of_the_rfc() {
        let twice =
            page(&[]) + "| MAY-1 | 3 | a | no | not yet |\n| MUST-70 | 3 | a | no | not yet |\n";
        assert_eq!(
            found(&twice, ""),
            [
                "MAY-1 stands in line 103 too",
                "MUST-70 is no label of RFC 9293"
            ]
        );
        let missing = page(&[]).replace("| SHLD-31 | 3 | a | no | not yet |\n", "");
        assert_eq!(found(&missing, ""), ["SHLD-31 is missing"]);
    }

    #[test]
    fn rows_without_test_or_reason_are_found() {
        let rows = [
            "| MAY-1 | 3 | a | yes | |",
            "| MAY-2 | 3 | a | partly | `sidecore-tcp::t good` |",
            "| MAY-3 | 3 | a | perhaps | not yet |",
        ];
        assert_eq!(
            found(&page(&rows), ""),
            [
                "MAY-3 is missing",
                "MAY-1: neither test nor reason",
                "MAY-2: not kept in full, and no reason",
                "`perhaps` is none of: yes, partly, no, does not apply",
            ]
        );
    }

    #[test]
    fn a_must_that_is_kept_has_a_mutation_that_fits() {
        let good = page(&[GOOD_ROW]);
        assert_eq!(found(&good, ""), ["MUST-1: no mutation"]);
        let lib = "crates/tcp/src/lib.rs";
        for (list, told) in [
            (list(lib, "false", TEST), "the text is not there"),
            (list(lib, "l", TEST), "the text is there"),
            (list("crates/tcp/src/no.rs", "true", TEST), "No such file"),
            (list(lib, "true", "sidecore-tcp::t bad"), "does not exist"),
            (
                list(lib, "true", "sidecore-tcp::t other"),
                "is not in its row",
            ),
        ] {
            let found = found(&good, &list);
            assert_eq!(found.len(), 1, "{found:?}");
            assert!(found[0].contains(told), "{found:?}");
        }
        let needless = good_list() + "[[none]]\nlabel = \"MUST-1\"\nreason = \"by type\"\n";
        let found = found(&good, &needless);
        assert_eq!(
            found,
            ["MUST-1: a reason for no mutation, and no need of one"]
        );
    }
}
