//! Programs in C on the kernel's sockets. Each is linked with the shared and the static library, and with sanitizers in its own part. On an engine's
//! sockets the same programs run in `sidecore-e2e`.

mod library;

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use library::LIBRARY;
use sidecore_clibs::{Link, run};

const HERE: &str = "127.0.0.1";

fn fine(name: &str) {
    for link in Link::ALL {
        let place = tempfile::tempdir().unwrap();
        let source = LIBRARY.path("tests/programs").join(name);
        let program = LIBRARY.build(&source, place.path(), link);
        let said = run(Command::new(program)
            .arg(HERE)
            .arg(place.path().join("file")));
        assert_eq!(said, "fine\n", "{link:?}");
    }
}

#[test]
fn wrong_arguments_are_answered() {
    fine("bad.c");
}

#[test]
fn bytes_go_both_ways() {
    fine("streams.c");
}

#[test]
fn queues_threads_signals_and_forks() {
    fine("queues.c");
}

#[test]
fn the_echo_examples_understand_each_other() {
    for link in Link::ALL {
        let place = tempfile::tempdir().unwrap();
        let example =
            |name: &str| LIBRARY.build(&LIBRARY.path("examples").join(name), place.path(), link);
        let server = example("exs_echo_server.c");
        let client = example("exs_echo_client.c");
        let mut server = Command::new(server)
            .args([HERE, "0", "3"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(server.stdout.take().unwrap()).lines();
        let said = lines.next().unwrap().unwrap();
        let port = said.strip_prefix("listening on port ").unwrap();
        for _ in 0..3 {
            let said = run(Command::new(&client).args([HERE, port, "300"]));
            assert_eq!(said, "300 messages of 16384 bytes came back unchanged\n");
        }
        assert!(server.wait().unwrap().success(), "{link:?}");
    }
}

#[test]
fn an_example_that_reaches_nobody_says_so() {
    let place = tempfile::tempdir().unwrap();
    let source = LIBRARY.path("examples/exs_echo_client.c");
    let program = LIBRARY.build(&source, place.path(), Link::Shared);
    // A port that was free a moment ago, of a socket that does not listen.
    let bound = std::net::UdpSocket::bind((HERE, 0)).unwrap();
    let port = bound.local_addr().unwrap().port().to_string();
    let answer = Command::new(program)
        .args([HERE, &port, "1"])
        .output()
        .unwrap();
    assert_eq!(answer.status.code(), Some(1));
    let said = String::from_utf8(answer.stderr).unwrap();
    assert_eq!(said, "connect: Connection refused\n");
}
