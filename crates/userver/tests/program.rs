//! The program as it is called: its ready line, its end, its errors.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

fn userver(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_userver"));
    command
        .args(arguments)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

#[test]
fn says_ready_serves_and_ends_at_sigterm() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("index.html"), "hello").unwrap();
    let root = dir.path().to_str().unwrap();
    for io in ["epoll", "sendfile", "io-uring"] {
        let arguments = [
            "--root",
            root,
            "--listen",
            "127.0.0.1:0",
            "--io",
            io,
            "--counters",
        ];
        let mut child = userver(&arguments).spawn().unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let mut ready = String::new();
        out.read_line(&mut ready).unwrap();
        let listen = ready
            .strip_prefix("ready listen=")
            .and_then(|rest| rest.split(' ').next())
            .unwrap_or_else(|| panic!("{ready}"));
        assert!(ready.contains(&format!(" io={io} ")), "{ready}");

        let mut stream = TcpStream::connect(listen).unwrap();
        stream.write_all(b"GET / HTTP/1.0\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.ends_with("\r\n\r\nhello"), "{answer}");

        kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(0), "{io}");
        let mut rest = String::new();
        out.read_to_string(&mut rest).unwrap();
        assert!(rest.contains("\"requests\":1,"), "{rest}");
        assert_eq!(rest.lines().count(), 1);
    }
}

/// Exit code and what was said on stderr, which is one line.
fn failure(arguments: &[&str]) -> (Option<i32>, String) {
    let output = userver(arguments).output().unwrap();
    assert!(output.stdout.is_empty());
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(text.lines().count(), 1, "{text}");
    assert!(text.starts_with("userver: "), "{text}");
    (output.status.code(), text)
}

#[test]
fn errors_are_one_line_that_names_the_mend() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().to_str().unwrap();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    let nowhere = dir.path().join("no-engine");
    let nowhere = nowhere.to_str().unwrap();
    let any = "127.0.0.1:0";
    let cases: &[(&[&str], i32, &str)] = &[
        (&[], 2, "--root <DIR>"),
        (
            &["--root", root, "--listen", any, "--io", "magic"],
            2,
            "choose sidecore, epoll",
        ),
        (
            &["--root", "/no/such", "--listen", any, "--io", "epoll"],
            2,
            "--root",
        ),
        (
            &["--root", root, "--listen", "nonsense", "--io", "epoll"],
            2,
            "--listen",
        ),
        (
            &[
                "--root",
                root,
                "--listen",
                any,
                "--io",
                "epoll",
                "--workers",
                "0",
            ],
            2,
            "workers",
        ),
        (
            &["--root", root, "--listen", &taken, "--io", "epoll"],
            1,
            "choose another port",
        ),
        (
            &[
                "--root", root, "--listen", any, "--io", "epoll", "--core", "9999",
            ],
            1,
            "choose one that",
        ),
        (
            &[
                "--root",
                root,
                "--listen",
                any,
                "--io",
                "epoll",
                "--access-log",
                "/no/such/log",
            ],
            1,
            "/no/such/log",
        ),
        (
            &[
                "--root", root, "--listen", any, "--io", "sidecore", "--socket", nowhere,
            ],
            1,
            "start one with `sidecore engine --socket",
        ),
    ];
    for (arguments, code, mend) in cases {
        let (status, text) = failure(arguments);
        assert_eq!(status, Some(*code), "{text}");
        assert!(text.contains(mend), "{text}");
    }
    let help = userver(&["--help"]).output().unwrap();
    assert!(help.status.success());
    assert!(
        String::from_utf8(help.stdout)
            .unwrap()
            .contains("--encrypt-percent")
    );
}
