//! `sidecore run`: what it says when it cannot do what was asked, and what it does without an engine.

use std::process::{Command, Output, Stdio};

/// A file that is there, in place of the library: nothing loads it without an engine.
fn some_file() -> &'static str {
    env!("CARGO_BIN_EXE_sidecore")
}

fn run(arguments: &[&str]) -> (Output, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sidecore"));
    command.env_remove("LD_PRELOAD").stdin(Stdio::null());
    let output = command.arg("run").args(arguments).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    (output, said)
}

#[test]
fn wrong_usage_names_the_mend() {
    let cases: &[(&[&str], &str)] = &[
        (&[], "PROGRAM"),
        (
            &["--take", "10.77.0.0/33", "--", "true"],
            "is not ADDR/BITS, like",
        ),
        (
            &["--take", "example.org", "--", "true"],
            "is not ADDR/BITS, like",
        ),
        (
            &["--take", "10.0.0.0/8", "--take-all", "--", "true"],
            "cannot be used with",
        ),
        (&["--no-engine", "panic", "--", "true"], "kernel, exit"),
        (&["--spin", "fast", "--", "true"], "--spin"),
        (
            &["--library", "/nonexistent/l.so", "--", "true"],
            "no such file",
        ),
    ];
    for (arguments, mend) in cases {
        let (output, said) = run(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {said}");
        assert!(said.contains(mend), "{arguments:?}: {said}");
    }
}

#[test]
fn without_an_engine_it_is_the_kernel_or_the_end() {
    let nowhere = [
        "--socket",
        "/nonexistent/engine.sock",
        "--library",
        some_file(),
    ];
    let program = ["--", "sh", "-c", "echo \"${LD_PRELOAD:-plain}\"; exit 7"];
    let (output, said) = run(&[&nowhere[..], &program[..]].concat());
    assert_eq!(output.status.code(), Some(7), "the program's own: {said}");
    assert_eq!(output.stdout, b"plain\n");
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(
        said.contains("no engine at /nonexistent/engine.sock"),
        "{said}"
    );
    assert!(said.contains("uses the kernel's sockets"), "{said}");

    let silent = [&nowhere[..], &["--log", "off"], &program[..]].concat();
    assert_eq!(run(&silent).1, "");

    let exit = [&nowhere[..], &["--no-engine", "exit"], &program[..]].concat();
    let (output, said) = run(&exit);
    assert_eq!(
        (output.status.code(), output.stdout.len()),
        (Some(1), 0),
        "{said}"
    );
    assert!(
        said.contains("no engine at /nonexistent/engine.sock"),
        "{said}"
    );
}

#[test]
fn a_program_that_is_not_there_is_named() {
    let nowhere = [
        "--socket",
        "/nonexistent/engine.sock",
        "--library",
        some_file(),
    ];
    let (output, said) = run(&[
        &nowhere[..],
        &["--log", "off", "--", "/nonexistent/program"],
    ]
    .concat());
    assert_eq!(output.status.code(), Some(127), "{said}");
    assert!(said.contains("cannot run /nonexistent/program"), "{said}");
    let folder = [&nowhere[..], &["--log", "off", "--", "/proc"]].concat();
    let (output, said) = run(&folder);
    assert_eq!(output.status.code(), Some(126), "{said}");
    assert!(said.contains("cannot run /proc"), "{said}");
}

#[test]
fn the_help_shows_how_it_is_used() {
    let (output, _) = run(&["--help"]);
    assert!(output.status.success());
    let help = String::from_utf8_lossy(&output.stdout).into_owned();
    for part in [
        "--take ",
        "--take-all",
        "--spin",
        "--no-engine",
        "sidecore run -- curl",
    ] {
        assert!(help.contains(part), "{part} is missing:\n{help}");
    }
}
