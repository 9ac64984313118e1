//! Programs in C against a real engine without a device: everything goes over its loopback. Each is linked with the shared and the static
//! library, and with sanitizers in its own part.

mod library;

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use library::LIBRARY;
use sidecore_clibs::Link;
use sidecore_engine::{Engine, EngineConfig, EngineHandle};
use tempfile::TempDir;

/// An engine at a path, and a folder for what a test makes.
struct World {
    folder: TempDir,
    engine: Option<EngineHandle>,
}

impl World {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let config = EngineConfig {
            socket: Some(folder.path().join("engine.sock")),
            addresses: vec!["10.9.0.1/24".parse().unwrap()],
            seed: Some([7; 32]),
            drain: Duration::from_millis(50),
            ..EngineConfig::default()
        };
        let engine = Some(Engine::spawn(config).unwrap());
        Self { folder, engine }
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("engine.sock")
    }

    /// Builds a program and starts it; its output is ours to read.
    fn start(&self, source: &Path, link: Link, arguments: &[&str]) -> Child {
        let program = LIBRARY.build(source, self.folder.path(), link);
        Command::new(program)
            .args(arguments)
            .env("DUSI_SOCKET", self.socket())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap()
    }
}

fn program(name: &str) -> PathBuf {
    LIBRARY.path("tests/programs").join(name)
}

fn example(name: &str) -> PathBuf {
    LIBRARY.path("examples").join(name)
}

/// What a program says, once it has ended well.
fn outcome(mut child: Child) -> String {
    let mut said = String::new();
    let mut out = child.stdout.take().unwrap();
    out.read_to_string(&mut said).unwrap();
    let status = child.wait().unwrap();
    assert!(status.success(), "{status}: {said}");
    said
}

#[test]
fn wrong_arguments_are_answered() {
    for link in Link::ALL {
        let world = World::new();
        let child = world.start(&program("bad.c"), link, &[]);
        assert_eq!(outcome(child), "fine\n", "{link:?}");
    }
}

#[test]
fn every_feature() {
    for link in Link::ALL {
        let world = World::new();
        let file = world.folder.path().join("file");
        let arguments = [file.to_str().unwrap()];
        let child = world.start(&program("features.c"), link, &arguments);
        assert_eq!(outcome(child), "fine\n", "{link:?}");
    }
}

#[test]
fn sleeping_threads_forks_and_the_engines_end() {
    for link in Link::ALL {
        let mut world = World::new();
        let mut child = world.start(&program("waiting.c"), link, &[]);
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        assert_eq!(lines.next().unwrap().unwrap(), "end the engine", "{link:?}");
        drop(world.engine.take());
        assert_eq!(lines.next().unwrap().unwrap(), "fine");
        assert!(child.wait().unwrap().success());
    }
}

#[test]
fn the_echo_examples_understand_each_other() {
    for link in Link::ALL {
        let world = World::new();
        let socket = world.socket();
        let common = [
            "--socket",
            socket.to_str().unwrap(),
            "--address",
            "10.9.0.1",
        ];
        let serve = [&common[..], &["--port", "0", "--count", "3"]].concat();
        let mut server = world.start(&example("dusi_echo_server.c"), link, &serve);
        let mut lines = BufReader::new(server.stdout.take().unwrap()).lines();
        let said = lines.next().unwrap().unwrap();
        let port = said.strip_prefix("listening on port ").unwrap();
        for _ in 0..3 {
            let ask = [&common[..], &["--port", port, "--count", "200"]].concat();
            let client = world.start(&example("dusi_echo_client.c"), link, &ask);
            let said = outcome(client);
            assert_eq!(said, "200 messages of 4096 bytes came back unchanged\n");
        }
        assert!(server.wait().unwrap().success(), "{link:?}");
    }
}

#[test]
fn an_example_without_an_engine_says_so() {
    let world = World::new();
    let program = LIBRARY.build(
        &example("dusi_echo_client.c"),
        world.folder.path(),
        Link::Shared,
    );
    let answer = Command::new(program)
        .args(["--socket", "/nonexistent/engine.sock"])
        .output()
        .unwrap();
    assert_eq!(answer.status.code(), Some(1));
    let said = String::from_utf8(answer.stderr).unwrap();
    assert_eq!(said, "Dusi_Open_Ual: no engine answers at that path\n");
}

#[test]
fn the_examples_are_cpp_as_well() {
    for name in ["dusi_echo_server.c", "dusi_echo_client.c"] {
        let text = std::fs::read_to_string(example(name)).unwrap();
        LIBRARY.compile_as_cpp(&text, &LIBRARY.path("examples"));
    }
}
