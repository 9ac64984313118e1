//! The command as a whole: what it prints and how it exits.

use std::path::Path;
use std::process::{Command, Output};

fn xtask(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_xtask"))
        .args(arguments)
        .output()
        .expect("xtask runs")
}

fn git(root: &Path, arguments: &[&str]) {
    let status = Command::new("git")
        .arg("-C")
        .arg(root)
        .args(arguments)
        .status();
    assert!(status.expect("git runs").success(), "git {arguments:?}");
}

/// A tree with these files, all tracked.
fn tree(files: &[(&str, &str)]) -> tempfile::TempDir {
    let root = tempfile::tempdir().expect("a temporary directory");
    git(root.path(), &["init", "-q"]);
    for (path, text) in files {
        let path = root.path().join(path);
        std::fs::create_dir_all(path.parent().expect("within the tree")).expect("a folder");
        std::fs::write(path, text).expect("a file");
    }
    git(root.path(), &["add", "."]);
    root
}

fn tidy(root: &Path) -> (Option<i32>, String) {
    let output = xtask(&["tidy", "--root", root.to_str().expect("a path in UTF-8")]);
    (
        output.status.code(),
        String::from_utf8(output.stdout).expect("UTF-8"),
    )
}

#[test]
fn findings_are_lines_and_fail() {
    let root = tree(&[
        (
            "crates/tcp/src/lib.rs",
            "//! Docs.\n\nfn f() {\n    todo!()\n}\n",
        ),
        (
            "crates/tcp/Cargo.toml",
            "[dependencies]\nsidecore-stack.workspace = true\n",
        ),
    ]);
    let expected = "\
        crates/tcp/Cargo.toml:2: `tcp` must not depend on `stack`: it may use wire\n\
        crates/tcp/src/lib.rs:1: no `#![forbid(unsafe_code)]`: put it below the crate's docs\n\
        crates/tcp/src/lib.rs:4: unfinished code: `todo!`: write it, or return an error\n";
    assert_eq!(tidy(root.path()), (Some(1), expected.to_string()));
}

#[test]
fn a_tidy_tree_passes() {
    let root = tree(&[(
        "crates/tcp/src/lib.rs",
        "//! Docs.\n\n#![forbid(unsafe_code)]\n",
    )]);
    std::fs::write(root.path().join("untracked.rs"), "fn f() { todo!() }").expect("a file");
    std::fs::write(root.path().join("binary"), [0xff, 0xfe, 0]).expect("a file");
    git(root.path(), &["add", "binary"]);
    assert_eq!(tidy(root.path()), (Some(0), String::new()));
}

#[test]
fn a_deleted_file_is_passed_over() {
    let root = tree(&[("crates/tcp/src/a.rs", "fn f() { todo!() }\n")]);
    std::fs::remove_file(root.path().join("crates/tcp/src/a.rs")).expect("removed");
    assert_eq!(tidy(root.path()), (Some(0), String::new()));
}

#[test]
fn what_is_no_tree_fails() {
    let root = tempfile::tempdir().expect("a temporary directory");
    let output = xtask(&[
        "tidy",
        "--root",
        root.path().join("absent").to_str().expect("UTF-8"),
    ]);
    assert_eq!(output.status.code(), Some(1));
    assert!(!output.stderr.is_empty(), "says why");
}

#[test]
fn wrong_usage() {
    for arguments in [&[][..], &["tidier"], &["tidy", "--root"], &["tidy", "now"]] {
        let output = xtask(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(String::from_utf8_lossy(&output.stderr).starts_with("usage: "));
    }
    assert_eq!(xtask(&["--help"]).status.code(), Some(0));
}
