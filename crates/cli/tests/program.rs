//! The program as a user meets it: its output, its exit codes, and an engine that starts, is looked into and ends.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

fn sidecore() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sidecore"));
    command
        .env_remove("NOTIFY_SOCKET")
        .env_remove("RUST_LOG")
        .stdin(Stdio::null());
    command
}

fn run(arguments: &[&str]) -> Output {
    sidecore().args(arguments).output().unwrap()
}

fn code(output: &Output) -> i32 {
    output.status.code().expect("not killed by a signal")
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

/// An engine without a device, and a folder for its socket.
struct Running {
    child: Child,
    folder: tempfile::TempDir,
}

impl Running {
    fn start(arguments: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let child = sidecore()
            .arg("engine")
            .arg("--socket")
            .arg(folder.path().join("s"))
            .args(arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut running = Self { child, folder };
        let mut line = String::new();
        BufReader::new(running.child.stdout.as_mut().unwrap())
            .read_line(&mut line)
            .unwrap();
        let expected = format!("ready socket={}", running.socket().display());
        assert!(line.trim_end().starts_with(&expected), "{line}");
        running
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("s")
    }

    fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, signal).unwrap();
    }

    /// Waits for its end; the exit code and what it said on standard error.
    fn end(mut self) -> (Option<i32>, String) {
        let last = Instant::now() + Duration::from_secs(20);
        while Instant::now() < last {
            if let Some(status) = self.child.try_wait().unwrap() {
                let mut said = String::new();
                self.child
                    .stderr
                    .take()
                    .unwrap()
                    .read_to_string(&mut said)
                    .unwrap();
                return (status.code(), said);
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("the engine does not end");
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn an_engine_starts_says_so_and_ends_with_either_signal() {
    for signal in [rustix::process::Signal::TERM, rustix::process::Signal::INT] {
        let engine = Running::start(&["--idle", "adaptive"]);
        let socket = engine.socket();
        assert!(socket.exists());
        engine.signal(signal);
        assert_eq!(engine.end(), (Some(0), String::new()));
        assert!(!socket.exists(), "the socket's file is removed");
    }
}

#[test]
fn an_engine_can_be_looked_into() {
    let engine = Running::start(&[]);
    let socket = engine.socket();
    let page = sidecore()
        .arg("stat")
        .arg("--socket")
        .arg(&socket)
        .output()
        .unwrap();
    assert_eq!(code(&page), 0, "{}", text(&page.stderr));
    assert!(
        text(&page.stdout).starts_with("State  "),
        "{}",
        text(&page.stdout)
    );
    let document = sidecore()
        .args(["stat", "--json", "--socket"])
        .arg(&socket)
        .output()
        .unwrap();
    let value: Value =
        serde_json::from_slice(&document.stdout).expect("one JSON document and nothing else");
    assert!(value["loop"]["turns"].as_u64().unwrap() > 0);
    assert!(document.stderr.is_empty());
}

#[test]
fn a_capture_is_pcapng_and_ends_with_its_engine() {
    let engine = Running::start(&[]);
    let file = engine.folder.path().join("packets.pcapng");
    let mut capture = sidecore()
        .args(["capture", "-w"])
        .arg(&file)
        .arg("--socket")
        .arg(engine.socket())
        .args(["port", "80"])
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    wait_for(&file);
    engine.signal(rustix::process::Signal::TERM);
    engine.end();
    assert!(capture.wait().unwrap().success());
}

/// Waits until the section header of a pcapng file is there.
fn wait_for(file: &Path) {
    let last = Instant::now() + Duration::from_secs(10);
    while Instant::now() < last {
        // The capture is flushed when nothing more is at hand.
        if std::fs::read(file).is_ok_and(|bytes| bytes.starts_with(&0x0a0d_0d0au32.to_le_bytes())) {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("no packets' file");
}

#[test]
fn a_second_engine_on_one_socket_is_refused() {
    let engine = Running::start(&[]);
    let second = sidecore()
        .args(["engine", "--socket"])
        .arg(engine.socket())
        .output()
        .unwrap();
    assert_eq!(code(&second), 1);
    let said = text(&second.stderr);
    assert!(
        said.contains("socket") && said.lines().count() == 1,
        "{said}"
    );
}

#[test]
fn no_engine_is_an_error_that_says_how_to_start_one() {
    for arguments in [&["stat"][..], &["capture", "-w", "/dev/null"]] {
        let output = sidecore()
            .args(arguments)
            .args(["--socket", "/nonexistent/s"])
            .output()
            .unwrap();
        assert_eq!(code(&output), 1);
        let said = text(&output.stderr);
        assert!(
            said.contains("/nonexistent/s") && said.contains("sidecore engine"),
            "{said}"
        );
        assert!(output.stdout.is_empty());
    }
}

#[test]
fn wrong_usage_is_told_from_failure() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("engine.toml");
    std::fs::write(&file, "tap = 7\n").unwrap();
    let file = file.to_str().unwrap();
    for arguments in [
        &[][..],
        &["nonsense"],
        &["engine", "--addr", "10.77.0.2", "--tap", "x"],
        &["engine", "--addr", "fd00::1/129", "--tap", "x"],
        &["engine", "--tap", "x"],
        &["engine", "--cores", "0,1"],
        &["engine", "--netns", "x"],
        &["engine", "--idle", "sometimes"],
        &["engine", "--config", file],
        &["capture", "-w", "/dev/null", "host", "x"],
        &["lab", "run", "echo", "--rounds", "0"],
        &["lab", "link", "a", "@"],
        &["lab", "link", "a", "b", "--loss", "2"],
        &["lab", "link", "a", "b", "--queue", "10p"],
        &["lab", "link", "a", "b", "--there", "colour=red"],
    ] {
        let output = run(arguments);
        assert_eq!(code(&output), 2, "{arguments:?}: {}", text(&output.stderr));
        assert!(!output.stderr.is_empty(), "{arguments:?}");
    }
    let missing = run(&["engine", "--config", "/nonexistent/engine.toml"]);
    assert_eq!(code(&missing), 1);
    assert!(text(&missing.stderr).contains("/nonexistent/engine.toml"));
}

#[test]
fn the_lab_lists_its_experiments() {
    let page = run(&["lab", "list"]);
    assert_eq!(code(&page), 0);
    let document = run(&["lab", "list", "--json"]);
    let value: Value = serde_json::from_slice(&document.stdout).unwrap();
    for experiment in value.as_array().unwrap() {
        let name = experiment["name"].as_str().unwrap();
        assert!(
            text(&page.stdout)
                .lines()
                .any(|line| line.starts_with(name)),
            "{name}"
        );
    }
    let unknown = run(&["lab", "run", "nonsense"]);
    assert_eq!(code(&unknown), 2);
    assert!(
        text(&unknown.stderr).contains("possible values"),
        "{}",
        text(&unknown.stderr)
    );
}

#[test]
fn a_link_says_what_it_did() {
    if !sidecore_sys::privileges::can_administer_network() || !Path::new("/dev/net/tun").exists() {
        eprintln!("skipped: needs CAP_NET_ADMIN and /dev/net/tun");
        return;
    }
    let names = ["a", "b"].map(|end| format!("scl{end}{}", std::process::id()));
    let link = ["lab", "link", &names[0], &names[1], "--time", "200ms"];
    let page = run(&[&link[..], &["--there", "loss=100%"]].concat());
    assert_eq!(code(&page), 0, "{}", text(&page.stderr));
    let expected = format!("{} and {} are joined", names[0], names[1]);
    assert!(text(&page.stderr).contains(&expected));
    let lines: Vec<&str> = text(&page.stdout).lines().collect();
    assert_eq!(lines.len(), 2);
    assert!(lines[0].starts_with(&format!("{} to {}: ", names[0], names[1])));
    assert!(lines[0].contains(" 0 arrived"), "{}", lines[0]);
    let document = run(&[&link[..], &["--json"]].concat());
    let value: Value = serde_json::from_slice(&document.stdout).expect("one JSON document");
    assert_eq!(value["there"]["lost"], 0);
    let wrong = run(&["lab", "link", &names[0], "a-name-that-is-too-long"]);
    assert_eq!(code(&wrong), 1);
    assert!(
        text(&wrong.stderr).contains("a-name-that-is-too-long"),
        "{}",
        text(&wrong.stderr)
    );
}

#[test]
fn an_experiment_leaves_a_report_and_nothing_else() {
    if !sidecore_sys::privileges::can_administer_network() || !Path::new("/dev/net/tun").exists() {
        eprintln!("skipped: needs CAP_NET_ADMIN and /dev/net/tun");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let output = sidecore()
        .args([
            "lab",
            "run",
            "idle",
            "--quick",
            "--rounds",
            "1",
            "--seconds",
            "0.2",
            "--json",
            "--out",
        ])
        .arg(folder.path())
        .output()
        .unwrap();
    assert_eq!(code(&output), 0, "{}", text(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).expect("one JSON document");
    assert_eq!(report["experiment"], "idle");
    // Three variants in silence, which asks for nothing, and three with a few requests.
    let runs = report["runs"].as_array().unwrap();
    assert_eq!(runs.len(), 6);
    for run in runs {
        let answers = run["load"]["latency"]["count"].as_u64().unwrap();
        assert_eq!(answers > 0, run["case"] != "silence", "{run}");
    }
    assert!(folder.path().join("idle.json").exists() && folder.path().join("idle.md").exists());
}
