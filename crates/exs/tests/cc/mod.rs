//! The C compiler, and the library as it lies beside the tests.
#![allow(dead_code, reason = "each test uses a part of it")]

use std::path::{Path, PathBuf};
use std::process::Command;

pub(crate) fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// The committed header.
pub(crate) fn header() -> String {
    std::fs::read_to_string(folder().join("include/sys/exs.h")).unwrap()
}

/// The shared (so) or static (a) library of this build.
pub(crate) fn library(kind: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let beside = test.parent().unwrap();
    let found = beside.join(format!("libexs.{kind}"));
    assert!(found.exists(), "{} is missing", found.display());
    found
}

/// Runs a command to its end, which must be a good one; what it says on standard output.
pub(crate) fn run(command: &mut Command) -> String {
    let answer = command.output();
    let answer = answer.unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let words = String::from_utf8_lossy(&answer.stderr);
    assert!(answer.status.success(), "{command:?}: {words}");
    String::from_utf8(answer.stdout).unwrap()
}

/// Runs a compiler, which must find nothing to complain about.
fn compile_by(compiler: &str, source: &Path, to: &Path, arguments: &[&str]) {
    let mut command = Command::new(compiler);
    command
        .args(["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-g", "-O1"])
        .arg("-I")
        .arg(folder().join("include"))
        .arg(source)
        .arg("-o")
        .arg(to)
        .args(arguments);
    run(&mut command);
}

/// Compiles C11.
pub(crate) fn compile(source: &Path, to: &Path, arguments: &[&str]) {
    let all = [&["-std=c11"], arguments].concat();
    compile_by("cc", source, to, &all);
}

/// Compiles text as C++.
pub(crate) fn compile_as_cpp(text: &str, folder: &Path) {
    let source = folder.join("text.cc");
    std::fs::write(&source, text).unwrap();
    compile_by(
        "c++",
        &source,
        &folder.join("text.o"),
        &["-std=c++17", "-c"],
    );
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
    let wanted = folder.join("libexs.so.0");
    if !wanted.exists() {
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
