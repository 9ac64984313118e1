//! The C compiler, and the library as it lies beside the tests.
#![allow(dead_code, reason = "each test uses a part of it")]

use std::path::{Path, PathBuf};
use std::process::Command;

pub(crate) fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// The committed header.
pub(crate) fn header() -> String {
    std::fs::read_to_string(folder().join("include/dusi.h")).unwrap()
}

/// The shared (so) or static (a) library of this build.
pub(crate) fn library(kind: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let beside = test.parent().unwrap();
    let found = beside.join(format!("libsidecore_dusi.{kind}"));
    assert!(found.exists(), "{} is missing", found.display());
    found
}

/// What the shared library exports.
pub(crate) fn exported() -> Vec<String> {
    let listing = Command::new("nm")
        .args(["-D", "--defined-only", "--format=posix"])
        .arg(library("so"))
        .output()
        .unwrap();
    let text = String::from_utf8(listing.stdout).unwrap();
    let names = text.lines().filter_map(|line| line.split(' ').next());
    let mut names: Vec<String> = names.map(str::to_string).collect();
    names.sort();
    names
}

/// Runs a compiler, which must find nothing to complain about.
fn run(compiler: &str, source: &Path, to: &Path, arguments: &[&str]) {
    let answer = Command::new(compiler)
        .args(["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-g", "-O1"])
        .arg("-I")
        .arg(folder().join("include"))
        .arg(source)
        .arg("-o")
        .arg(to)
        .args(arguments)
        .output();
    let answer = answer.unwrap_or_else(|error| panic!("{compiler}: {error}"));
    let words = String::from_utf8_lossy(&answer.stderr);
    assert!(answer.status.success() && words.is_empty(), "{words}");
}

/// Compiles C11.
pub(crate) fn compile(source: &Path, to: &Path, arguments: &[&str]) {
    let mut all = vec!["-std=c11"];
    all.extend(arguments);
    run("cc", source, to, &all);
}

/// Compiles C as C++.
pub(crate) fn compile_as_cpp(source: &Path, to: &Path) {
    let copy = to.with_extension("cc");
    std::fs::copy(source, &copy).unwrap();
    let examples = folder().join("examples");
    let include = format!("-I{}", examples.display());
    run("c++", &copy, to, &["-std=c++17", "-c", &include]);
}

/// How a program is linked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Link {
    Shared,
    Static,
    /// Shared, with AddressSanitizer and UndefinedBehaviorSanitizer in the C part.
    Sanitized,
}

/// Builds a program of C.
pub(crate) fn build(source: &Path, folder: &Path, link: Link) -> PathBuf {
    let name = source.file_stem().unwrap().to_string_lossy();
    let program = folder.join(format!("{name}-{link:?}"));
    let kind = if link == Link::Static { "a" } else { "so" };
    // The name by which programs ask for it.
    let wanted = folder.join("libsidecore_dusi.so.0");
    if !wanted.exists() {
        // Two tests may do so at a time, each in a folder of its own.
        std::os::unix::fs::symlink(library("so"), &wanted).unwrap();
    }
    let library = library(kind);
    let library = library.to_string_lossy();
    let rpath = format!("-Wl,-rpath,{}", folder.display());
    let mut arguments = vec![&*library, &*rpath, "-pthread"];
    match link {
        Link::Shared => {}
        Link::Static => arguments.extend(["-ldl", "-lm"]),
        Link::Sanitized => {
            arguments.extend(["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]);
        }
    }
    compile(source, &program, &arguments);
    program
}
