//! Real programs with the preload library in them.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use crate::Ground;

/// How long a program may take to begin to listen, or to end.
const PATIENCE: Duration = Duration::from_secs(60);

/// The preload library, built now if it is not as new as its source.
pub fn library() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| built("sidecore-preload", "libsidecore_preload.so"))
}

/// `libexs.so`, likewise.
pub fn exs() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| built("sidecore-exs", "libexs.so"))
}

/// `libsidecore_dusi.so`, likewise.
pub fn dusi() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| built("sidecore-capi", "libsidecore_dusi.so"))
}

fn built(package: &str, file: &str) -> PathBuf {
    let ours = std::env::current_exe().expect("this program");
    // target/debug/deps/TEST
    let folder = ours.ancestors().nth(2).expect("target folder").to_owned();
    let mut build = Command::new(std::env::var_os("CARGO").unwrap_or("cargo".into()));
    build.args(["build", "--quiet", "--package", package]);
    if folder.ends_with("release") {
        build.arg("--release");
    }
    let status = build.current_dir(env!("CARGO_MANIFEST_DIR")).status();
    assert!(status.expect("cargo").success(), "building {package}");
    let library = folder.join(file);
    assert!(library.is_file(), "{} was not built", library.display());
    library
}

/// Whether this machine has all of these programs; says which it lacks.
pub fn have(programs: &[&str]) -> bool {
    let path = std::env::var("PATH").unwrap_or_default() + ":/usr/sbin:/sbin";
    let missing = |program: &&&str| {
        let mut folders = path.split(':');
        !folders.any(|folder| Path::new(folder).join(program).is_file())
    };
    let lacks: Vec<_> = programs.iter().filter(missing).collect();
    if !lacks.is_empty() {
        eprintln!("skipped: {lacks:?} not installed (make setup-test installs them)");
    }
    lacks.is_empty()
}

/// Python with this module, if there is one; says so if not. A Python in the path may be another than Debian's, which has Debian's modules.
pub fn python_with(module: &str) -> Option<String> {
    let has = |python: &&str| {
        let mut look = Command::new(python);
        look.args(["-c", &format!("import {module}")]);
        finish(look).is_ok()
    };
    let found = ["python3", "/usr/bin/python3"].iter().find(|p| has(p));
    if found.is_none() {
        eprintln!("skipped: Python's module {module} not installed (make setup-test installs it)");
    }
    found.map(|python| (*python).to_owned())
}

/// What the engine's TCP has done since.
pub struct Meter<'a> {
    ground: &'a Ground,
    connections: u64,
    bytes: u64,
}

impl<'a> Meter<'a> {
    /// From here on.
    pub fn new(ground: &'a Ground) -> Self {
        let (connections, bytes) = Self::now(ground);
        Self {
            ground,
            connections,
            bytes,
        }
    }

    fn now(ground: &Ground) -> (u64, u64) {
        let stack = &ground.stat()["stack"];
        let count = |name: &str| stack[name].as_u64().unwrap_or(0);
        let bytes = count("tcp_bytes_in") + count("tcp_bytes_out");
        (count("active_established"), bytes)
    }

    /// Connections that programs on the engine made.
    pub fn connections(&self) -> u64 {
        Self::now(self.ground).0 - self.connections
    }

    /// Bytes in and out.
    pub fn bytes(&self) -> u64 {
        Self::now(self.ground).1 - self.bytes
    }
}

/// The same, but inside the namespace: what it does with the kernel's sockets stays there.
pub fn within(ground: &Ground, program: &str) -> Command {
    let mut command = command(ground, "ip");
    command.args(["netns", "exec", ground.name(), program]);
    command
}

/// A program with the library in it, as `sidecore run` sets it up. It runs where the test runs, and not in the namespace: it reaches the
/// namespace by the engine only.
pub fn command(ground: &Ground, program: &str) -> Command {
    let mut command = Command::new(program);
    command
        .env(
            "PATH",
            std::env::var("PATH").unwrap_or_default() + ":/usr/sbin:/sbin",
        )
        .env("LD_PRELOAD", library())
        .env("SIDECORE_SOCKET", ground.socket())
        .env("SIDECORE_LOG", "error")
        .stdin(Stdio::null());
    command
}

/// Runs a command to its end; an error when it takes more than a minute, or fails.
pub fn finish(command: Command) -> Result<Output> {
    finish_within(command, PATIENCE)
}

/// The same, with so much time.
pub fn finish_within(mut command: Command, patience: Duration) -> Result<Output> {
    let shown = format!("{command:?}");
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().with_context(|| shown.clone())?;
    let (mut out, mut err) = (child.stdout.take(), child.stderr.take());
    let reader = |pipe: Option<Box<dyn Read + Send>>| {
        std::thread::spawn(move || {
            let mut all = Vec::new();
            if let Some(mut pipe) = pipe {
                let _ = pipe.read_to_end(&mut all);
            }
            all
        })
    };
    let out = reader(
        out.take()
            .map(|pipe| Box::new(pipe) as Box<dyn Read + Send>),
    );
    let err = reader(
        err.take()
            .map(|pipe| Box::new(pipe) as Box<dyn Read + Send>),
    );
    let begun = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if begun.elapsed() > patience {
            // Python tells where its threads are, and ends.
            if let Some(pid) = rustix::process::Pid::from_raw(child.id() as i32) {
                let _ = rustix::process::kill_process(pid, rustix::process::Signal::ABORT);
            }
            std::thread::sleep(Duration::from_secs(1));
            child.kill()?;
            child.wait()?;
            let said = err.join().unwrap_or_default();
            let said = String::from_utf8_lossy(&said);
            bail!("{shown}: not done after {patience:?}\n{said}");
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    let output = Output {
        status,
        stdout: out.join().unwrap_or_default(),
        stderr: err.join().unwrap_or_default(),
    };
    ensure!(
        output.status.success(),
        "{shown}: {}\n{}\n{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(output)
}

/// A program that serves; killed, with all that it started, when it is dropped.
pub struct Server {
    child: Child,
    log: Option<JoinHandle<String>>,
}

impl Server {
    /// Starts it, and waits until it can be reached from the namespace.
    pub fn start(ground: &Ground, command: Command, address: SocketAddr) -> Result<Self> {
        let shown = format!("{command:?}");
        let mut server = Self::spawn(command)?;
        let begun = Instant::now();
        loop {
            let second = Duration::from_secs(1);
            if ground
                .inside(|| TcpStream::connect_timeout(&address, second))
                .is_ok()
            {
                return Ok(server);
            }
            let ended = server.child.try_wait()?;
            if ended.is_some() || begun.elapsed() > PATIENCE {
                bail!("{shown}: does not serve ({ended:?})\n{}", server.end());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Starts it, and does not wait.
    pub fn spawn(mut command: Command) -> Result<Self> {
        let shown = format!("{command:?}");
        command.stdout(Stdio::null()).stderr(Stdio::piped());
        // A group of its own, so that nothing is left of it.
        command.process_group(0);
        let mut child = command.spawn().context(shown)?;
        let pipe = child.stderr.take().context("its output")?;
        let log = std::thread::spawn(move || {
            let lines = BufReader::new(pipe).lines().map_while(Result::ok);
            lines.fold(String::new(), |all, line| all + &line + "\n")
        });
        Ok(Self {
            child,
            log: Some(log),
        })
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Fails unless its bytes go through shared memory: it, or a process that it started, has a UAL with commands and events of its own.
    pub fn assert_fast(&self, ground: &Ground) -> Result<()> {
        let stat = ground.stat();
        let uals = stat["uals"].as_array().context("uals")?;
        let counts = |ual: &&Value| {
            let counters = &ual["counters"];
            let count = |name: &str| counters[name].as_u64().unwrap_or(0);
            count("commands") > 4 && count("events") > 4
        };
        let ours = |ual: &&Value| {
            let pid = ual["pid"].as_u64().and_then(|pid| i32::try_from(pid).ok());
            let pid = pid.and_then(rustix::process::Pid::from_raw);
            let group = pid.and_then(|pid| rustix::process::getpgid(Some(pid)).ok());
            group.is_some_and(|group| group.as_raw_nonzero().get() as u32 == self.pid())
        };
        ensure!(
            uals.iter().filter(ours).any(|ual| counts(&ual)),
            "process {} has no UAL at work: {uals:#?}",
            self.pid()
        );
        Ok(())
    }

    /// Whether it has ended by itself.
    pub fn has_ended(&mut self) -> Result<bool> {
        Ok(self.child.try_wait()?.is_some())
    }

    /// Waits for its end.
    pub fn wait(&mut self) -> Result<std::process::ExitStatus> {
        let begun = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait()? {
                return Ok(status);
            }
            ensure!(begun.elapsed() < PATIENCE, "a server that does not end");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// SIGKILL to it and all it started; what it said on standard error.
    pub fn end(&mut self) -> String {
        if let Some(pid) = rustix::process::Pid::from_raw(self.child.id() as i32) {
            let _ = rustix::process::kill_process_group(pid, rustix::process::Signal::KILL);
        }
        let _ = self.child.wait();
        let log = self.log.take().map(JoinHandle::join);
        log.and_then(Result::ok).unwrap_or_default()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let log = self.end();
        if std::thread::panicking() {
            eprintln!("{log}");
        }
    }
}

/// A web server of the kernel's, in the namespace: answers every request with the same body. `before` is called with the connection made
/// and nothing answered yet.
pub fn serve(
    listener: TcpListener,
    body: Vec<u8>,
    before: impl Fn() + Send + 'static,
) -> JoinHandle<()> {
    std::thread::spawn(move || {
        while let Ok((stream, _)) = listener.accept() {
            if respond(stream, &body, &before).unwrap_or(true) {
                return;
            }
        }
    })
}

/// Answers one request; true when it asks for the server's end.
fn respond(mut stream: TcpStream, body: &[u8], before: &dyn Fn()) -> std::io::Result<bool> {
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut line = String::new();
    reader.read_line(&mut line)?;
    let end = line.starts_with("END");
    while line.trim_end() != "" && !end {
        line.clear();
        reader.read_line(&mut line)?;
    }
    if end {
        return Ok(true);
    }
    before();
    let length = body.len();
    write!(
        stream,
        "HTTP/1.0 200 OK\r\nContent-Length: {length}\r\n\r\n"
    )?;
    stream.write_all(body)?;
    Ok(false)
}

/// Ends a [`serve`].
pub fn end_serving(ground: &Ground, address: SocketAddr, server: JoinHandle<()>) -> Result<()> {
    let mut stream = ground.inside(|| TcpStream::connect(address))?;
    stream.write_all(b"END\r\n\r\n")?;
    server.join().map_err(|_| anyhow::anyhow!("the server"))
}
