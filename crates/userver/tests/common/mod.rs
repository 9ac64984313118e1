//! A server over a directory of its own, and a client that looks at bytes.

use std::fs;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::path::PathBuf;
use std::time::Duration;

use sidecore_client::{Sockets, SocketsConfig, Ual, UalConfig, blocking};
use sidecore_engine::{Engine, EngineConfig, EngineHandle};
use sidecore_userver::{Config, Counters, Io, Server, ual_config};

/// Nothing here should take this long.
pub(crate) const LONG: Duration = Duration::from_secs(10);

pub(crate) struct Site {
    pub(crate) dir: tempfile::TempDir,
    pub(crate) server: Server,
    /// An engine without a device: clients are on it as well.
    engine: Option<(Sockets, EngineHandle)>,
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
        if io == Io::Sidecore {
            return Self::start_on_engine(dir, config);
        }
        let server = Server::start(config).unwrap();
        Self {
            dir,
            server,
            engine: None,
        }
    }

    fn start_on_engine(dir: tempfile::TempDir, mut config: Config) -> Self {
        let engine = Engine::spawn(EngineConfig {
            addresses: vec!["10.9.0.1/24".parse().unwrap()],
            ..EngineConfig::default()
        })
        .unwrap();
        config.listen = "10.9.0.1:80".parse().unwrap();
        let ual = Ual::open_on(engine.connect().unwrap(), &ual_config(&config)).unwrap();
        let server = Server::start_on(config, &ual).unwrap();
        let ual = Ual::open_on(engine.connect().unwrap(), &UalConfig::default()).unwrap();
        let sockets = Sockets::new(&ual, SocketsConfig::default()).unwrap();
        Self {
            dir,
            server,
            engine: Some((sockets, engine)),
        }
    }

    pub(crate) fn client(&self) -> Client {
        let address = self.server.address();
        Client::new(match &self.engine {
            None => Stream::Kernel(TcpStream::connect(address).unwrap()),
            Some((sockets, _)) => {
                Stream::Engine(blocking::TcpStream::connect(sockets, address).unwrap())
            }
        })
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

/// A client's connection, through the kernel or through the engine.
pub(crate) enum Stream {
    Kernel(TcpStream),
    Engine(blocking::TcpStream),
}

macro_rules! either {
    ($self:expr, $stream:ident => $work:expr) => {
        match $self {
            Self::Kernel($stream) => $work,
            Self::Engine($stream) => $work,
        }
    };
}

impl Stream {
    pub(crate) fn set_read_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        either!(self, stream => stream.set_read_timeout(timeout))
    }

    fn set_write_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        either!(self, stream => stream.set_write_timeout(timeout))
    }

    fn set_nodelay(&self, on: bool) -> io::Result<()> {
        either!(self, stream => stream.set_nodelay(on))
    }

    pub(crate) fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        either!(self, stream => stream.shutdown(how))
    }
}

impl Read for Stream {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        either!(self, stream => stream.read(out))
    }
}

impl Write for Stream {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        either!(self, stream => stream.write(data))
    }

    fn flush(&mut self) -> io::Result<()> {
        either!(self, stream => stream.flush())
    }
}

pub(crate) struct Client {
    pub(crate) stream: Stream,
    buffer: Vec<u8>,
}

impl Client {
    fn new(stream: Stream) -> Self {
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
        assert!(is_timeout(&error), "{error}");
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

pub(crate) fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}
