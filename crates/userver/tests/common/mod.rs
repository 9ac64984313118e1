//! A server over a directory of its own, and a client that looks at bytes.

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::time::Duration;

use sidecore_userver::{Config, Counters, Io, Server};

/// Nothing here should take this long.
pub(crate) const LONG: Duration = Duration::from_secs(10);

pub(crate) struct Site {
    pub(crate) dir: tempfile::TempDir,
    pub(crate) server: Server,
}

/// Bytes that tell where they belong.
pub(crate) fn pattern(len: usize) -> Vec<u8> {
    (0..len as u32)
        .map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8)
        .collect()
}

pub(crate) const LARGE: usize = 5_000_000;

fn files(dir: &tempfile::TempDir) -> PathBuf {
    let root = dir.path().join("root");
    fs::create_dir_all(root.join("dir/sub")).unwrap();
    fs::write(root.join("index.html"), "<p>index").unwrap();
    fs::write(root.join("dir/index.html"), "<p>dir").unwrap();
    fs::write(root.join("small.txt"), pattern(1000)).unwrap();
    fs::write(root.join("large.bin"), pattern(LARGE)).unwrap();
    fs::write(root.join("empty"), "").unwrap();
    fs::write(dir.path().join("secret"), "secret").unwrap();
    std::os::unix::fs::symlink("../secret", root.join("link")).unwrap();
    root
}

impl Site {
    pub(crate) fn start(io: Io, change: impl FnOnce(&mut Config)) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let root = files(&dir);
        let mut config = Config::new(root, "127.0.0.1:0".parse().unwrap(), io);
        config.max_connections = 1000;
        change(&mut config);
        let server = Server::start(config).unwrap();
        Self { dir, server }
    }

    pub(crate) fn client(&self) -> Client {
        Client::connect(self.server.address())
    }

    /// What one request is answered with, on a connection of its own.
    pub(crate) fn ask(&self, request: &str) -> Answer {
        let mut client = self.client();
        client.send(request);
        client.answer()
    }

    pub(crate) fn stop(self) -> Counters {
        self.server.stop().unwrap()
    }
}

#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (n, v) = line.split_once(": ")?;
            n.eq_ignore_ascii_case(name).then_some(v)
        })
    }
}

pub(crate) struct Client {
    pub(crate) stream: TcpStream,
    buffer: Vec<u8>,
}

impl Client {
    pub(crate) fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(LONG)).unwrap();
        stream.set_write_timeout(Some(LONG)).unwrap();
        stream.set_nodelay(true).unwrap();
        Self {
            stream,
            buffer: Vec::new(),
        }
    }

    pub(crate) fn send(&mut self, text: &str) {
        self.stream.write_all(text.as_bytes()).unwrap();
    }

    pub(crate) fn get(&mut self, path: &str) -> Answer {
        self.send(&get(path));
        self.answer()
    }

    fn fill(&mut self) -> usize {
        let mut chunk = [0; 65536];
        let n = self.stream.read(&mut chunk).unwrap();
        self.buffer.extend_from_slice(&chunk[..n]);
        n
    }

    /// The next answer to a GET.
    pub(crate) fn answer(&mut self) -> Answer {
        self.read_answer(true)
    }

    /// The next answer to a HEAD.
    pub(crate) fn head_answer(&mut self) -> Answer {
        self.read_answer(false)
    }

    fn read_answer(&mut self, has_body: bool) -> Answer {
        let end = loop {
            if let Some(at) = self.buffer.windows(4).position(|w| w == b"\r\n\r\n") {
                break at + 4;
            }
            assert!(
                self.fill() > 0,
                "closed before an answer: {:?}",
                self.buffer
            );
        };
        let head = String::from_utf8(self.buffer.drain(..end).collect()).unwrap();
        let status = head[9..12].parse().unwrap();
        let mut answer = Answer {
            status,
            head,
            body: Vec::new(),
        };
        if has_body && status != 304 {
            let len: usize = answer.field("Content-Length").unwrap().parse().unwrap();
            while self.buffer.len() < len {
                assert!(self.fill() > 0, "closed within an answer");
            }
            answer.body = self.buffer.drain(..len).collect();
        }
        answer
    }

    /// Asserts that the server closes now, with nothing more said.
    pub(crate) fn expect_end(&mut self) {
        assert_eq!(self.buffer, b"", "left over");
        let mut rest = Vec::new();
        self.stream.read_to_end(&mut rest).unwrap();
        assert_eq!(rest, b"");
    }

    /// Asserts that the connection is open and silent.
    pub(crate) fn expect_silence(&mut self, time: Duration) {
        self.stream.set_read_timeout(Some(time)).unwrap();
        let error = self.stream.read(&mut [0; 16]).unwrap_err();
        assert!(matches!(
            error.kind(),
            ErrorKind::WouldBlock | ErrorKind::TimedOut
        ));
        self.stream.set_read_timeout(Some(LONG)).unwrap();
    }
}

pub(crate) fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n")
}

/// Waits until `condition` holds.
pub(crate) fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let start = std::time::Instant::now();
    while !condition() {
        assert!(start.elapsed() < LONG, "{what} did not happen");
        std::thread::sleep(Duration::from_millis(5));
    }
}
