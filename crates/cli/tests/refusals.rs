//! An engine that cannot start says so in one line that names the thing and the mend, and leaves nobody else's engine worse off.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use sidecore_sys::netns;

fn sidecore() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sidecore"));
    command
        .env_remove("NOTIFY_SOCKET")
        .env_remove("RUST_LOG")
        .stdin(Stdio::null());
    command
}

/// A network namespace of the test's own.
struct Namespace(String);

impl Namespace {
    /// `None` where none can be made.
    fn new(kind: &str) -> Option<Self> {
        let root = rustix::process::geteuid().is_root();
        if !root || !sidecore_sys::privileges::can_administer_network() {
            eprintln!("skipped: making network namespaces needs root");
            return None;
        }
        let name = format!("scr{kind}{}", std::process::id());
        netns::create_named(&name).unwrap();
        Some(Self(name))
    }

    /// Options of an engine with a TAP of this name here.
    fn engine(&self, tap: &str, socket: &PathBuf) -> Command {
        let mut command = sidecore();
        command
            .args(["engine", "--netns", &self.0, "--tap", tap])
            .args(["--host-addr", "10.77.0.1/24", "--addr", "10.77.0.2/24"])
            .arg("--socket")
            .arg(socket);
        command
    }

    fn has(&self, tap: &str) -> bool {
        let shown = Command::new("ip")
            .args(["-n", &self.0, "link", "show", tap])
            .output()
            .unwrap();
        shown.status.success()
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = netns::delete_named(&self.0);
    }
}

/// An engine that is ready; killed when it is dropped.
struct Running(Child);

impl Running {
    fn start(command: &mut Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap())
            .read_line(&mut line)
            .unwrap();
        assert!(line.starts_with("ready "), "{line}");
        Self(child)
    }

    /// SIGTERM; it must end well.
    fn terminate(mut self) {
        let pid = rustix::process::Pid::from_child(&self.0);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        let begun = Instant::now();
        loop {
            if let Some(status) = self.0.try_wait().unwrap() {
                assert_eq!(status.code(), Some(0));
                return;
            }
            assert!(begun.elapsed() < Duration::from_secs(30), "it does not end");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// It failed, with one line that says all of these.
#[track_caller]
fn refused(output: &Output, says: &[&str]) {
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(output.stdout.is_empty());
    assert_eq!(said.trim_end().lines().count(), 1, "{said}");
    for part in says {
        assert!(said.contains(part), "{said}");
    }
}

#[test]
fn names_that_others_have() {
    let Some(namespace) = Namespace::new("n") else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let (socket, other) = (folder.path().join("a"), folder.path().join("b"));
    let tap = format!("{}t", namespace.0);
    let first = Running::start(&mut namespace.engine(&tap, &socket));
    let output = namespace.engine(&tap, &other).output().unwrap();
    refused(&output, &[&tap, "in use", "choose another name"]);
    assert!(!other.exists());
    let another = format!("{}u", namespace.0);
    let output = namespace.engine(&another, &socket).output().unwrap();
    refused(
        &output,
        &[socket.to_str().unwrap(), "another process listens"],
    );
    assert!(!namespace.has(&another), "its TAP went with it");
    // The first one has noticed nothing, and takes both with it.
    let stat = sidecore()
        .args(["stat", "--json", "--socket"])
        .arg(&socket)
        .output()
        .unwrap();
    assert!(stat.status.success());
    assert!(namespace.has(&tap));
    first.terminate();
    assert!(!namespace.has(&tap) && !socket.exists());
}

#[test]
fn a_namespace_that_there_is_not() {
    let Some(_may) = Namespace::new("m") else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let nowhere = std::mem::ManuallyDrop::new(Namespace("sc-no-such".into()));
    let output = nowhere.engine("scr0", &folder.path().join("s")).output();
    let output = output.unwrap();
    refused(&output, &["sc-no-such", "ip netns add sc-no-such"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(said.matches("No such file").count(), 1, "{said}");
}

#[test]
fn no_permission_for_the_socket() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root can become somebody else");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("s");
    let output = Command::new("setpriv")
        .args(["--reuid", "65534", "--regid", "65534", "--clear-groups"])
        .arg(env!("CARGO_BIN_EXE_sidecore"))
        .args(["engine", "--socket"])
        .arg(&socket)
        .output();
    let output = output.expect("setpriv of util-linux");
    if String::from_utf8_lossy(&output.stderr).contains("failed to execute") {
        eprintln!("skipped: nobody else may run programs from here");
        return;
    }
    refused(&output, &[socket.to_str().unwrap(), "ermission denied"]);
}

#[test]
fn no_permission_for_the_tap() {
    // Root of a user namespace of its own, and nobody in the network namespace that it is in.
    let folder = tempfile::tempdir().unwrap();
    let output = Command::new("unshare")
        .args(["--user", "--map-root-user"])
        .arg(env!("CARGO_BIN_EXE_sidecore"))
        .args([
            "engine",
            "--tap",
            "scr1",
            "--addr",
            "10.77.0.2/24",
            "--socket",
        ])
        .arg(folder.path().join("s"))
        .output();
    let output = output.expect("unshare of util-linux");
    if String::from_utf8_lossy(&output.stderr).starts_with("unshare:") {
        eprintln!("skipped: no user namespaces here");
        return;
    }
    refused(&output, &["scr1", "ermission denied", "run as root"]);
}
