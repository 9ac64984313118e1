//! The ground a test stands on: namespace, TAP, engine, and if wanted a bad line between them. All of it is gone when the test
//! ends, however it ends.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use sidecore_client::{Ual, UalConfig};
use sidecore_engine::{Device, Engine, EngineConfig, EngineHandle};
use sidecore_nic::{AnyNic, LinkModel, Tap, TapConfig};
use sidecore_sys::netns;

use crate::line::Line;

/// The engine's address.
pub const ENGINE: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 2);
/// The kernel's address in the test's namespace.
pub const HOST: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);

/// Frames that wait on their way to the engine, as with every TAP of ours.
const QUEUE: u32 = 60_000;

/// Times that an engine is asked for its figures, two seconds each.
const PATIENCE: usize = 15;

static COUNT: AtomicU32 = AtomicU32::new(0);

/// Where the engine runs.
enum Place {
    /// In a thread of this process.
    Here(EngineHandle),
    /// In a process of its own.
    Apart(Child),
}

/// Namespace, TAP and engine of one test.
pub struct Ground {
    name: String,
    engine: Option<Place>,
    line: Option<Line>,
    folder: tempfile::TempDir,
}

/// Whether this process may make namespaces and devices. Tests that cannot run say so and pass.
pub fn available() -> bool {
    let may =
        sidecore_sys::privileges::can_administer_network() && rustix::process::geteuid().is_root();
    if !may {
        eprintln!("skipped: making network namespaces needs root");
    }
    may
}

fn tap_config(name: &str) -> TapConfig {
    TapConfig {
        name: name.to_owned(),
        host_addresses: vec![(HOST.into(), 24)],
        netns: Some(name.to_owned()),
        queue_len: QUEUE,
        ..TapConfig::default()
    }
}

fn engine_config(socket: PathBuf, nic: AnyNic) -> Result<EngineConfig> {
    Ok(EngineConfig {
        socket: Some(socket),
        device: Device::Nic(Box::new(nic)),
        addresses: vec![format!("{ENGINE}/24").parse().map_err(anyhow::Error::msg)?],
        ..EngineConfig::default()
    })
}

/// What [`Ground::apart`] starts: an engine on a TAP of this name, in the namespace of the same name, until standard input ends.
pub fn run_apart(name: &str, socket: PathBuf) -> Result<()> {
    let tap = Tap::create(tap_config(name))?;
    let engine = Engine::spawn(engine_config(socket, tap.into())?)?;
    sidecore_proxy::spawn(engine.connect()?)?;
    println!("ready");
    std::io::stdout().flush()?;
    let _ = std::io::stdin().read(&mut [0])?;
    engine.stop();
    Ok(())
}

/// One of this package's programs.
pub fn program(name: &str) -> PathBuf {
    let ours = std::env::current_exe().expect("this program");
    // target/debug/deps/TEST
    ours.ancestors().nth(2).expect("target folder").join(name)
}

impl Ground {
    /// An engine as it comes.
    pub fn new() -> Result<Self> {
        Self::with(|_| {})
    }

    /// An engine with changes to its configuration.
    pub fn with(change: impl FnOnce(&mut EngineConfig)) -> Result<Self> {
        Self::build(None, QUEUE, change)
    }

    /// As it comes, but so many frames wait on their way to the engine before the kernel drops them.
    pub fn with_queue(frames: u32) -> Result<Self> {
        Self::build(None, frames, |_| {})
    }

    /// As it comes, but frames of both directions pass through a link model.
    pub fn over(link: LinkModel) -> Result<Self> {
        let back = LinkModel {
            seed: link.seed.wrapping_add(1_000_000),
            ..link
        };
        Self::on_line([link, back], |_| {})
    }

    /// With changes to its configuration, and a line from the kernel to the engine and back.
    pub fn on_line(models: [LinkModel; 2], change: impl FnOnce(&mut EngineConfig)) -> Result<Self> {
        Self::build(Some(models), QUEUE, change)
    }

    /// The line that it stands on.
    pub fn line(&self) -> &Line {
        self.line.as_ref().expect("a ground without a line")
    }

    fn build(
        link: Option<[LinkModel; 2]>,
        queue_len: u32,
        change: impl FnOnce(&mut EngineConfig),
    ) -> Result<Self> {
        let mut ground = Self::bare()?;
        let tap = Tap::create(TapConfig {
            // On a line every frame is one frame.
            offload: link.is_none(),
            queue_len,
            ..tap_config(&ground.name)
        })?;
        let nic = match link {
            None => tap.into(),
            Some(models) => {
                let (line, end) = Line::between(tap, models)?;
                ground.line = Some(line);
                end.into()
            }
        };
        let mut config = engine_config(ground.socket(), nic)?;
        change(&mut config);
        let engine = Engine::spawn(config)?;
        sidecore_proxy::spawn(engine.connect()?)?;
        ground.engine = Some(Place::Here(engine));
        Ok(ground)
    }

    /// The namespace, and nothing in it.
    fn bare() -> Result<Self> {
        let name = format!(
            "sce{}x{}",
            std::process::id(),
            COUNT.fetch_add(1, Ordering::Relaxed)
        );
        netns::create_named(&name).context("network namespace")?;
        let folder = tempfile::tempdir()?;
        // From here on the namespace is removed on every way out.
        Ok(Self {
            name,
            engine: None,
            line: None,
            folder,
        })
    }

    /// An engine in a process of its own, as it comes: for tests that kill it, or that count what that process has.
    pub fn apart() -> Result<Self> {
        let mut ground = Self::bare()?;
        ground.start_apart()?;
        Ok(ground)
    }

    /// Starts the engine again, in a process of its own.
    pub fn start_apart(&mut self) -> Result<()> {
        ensure!(self.engine.is_none(), "the engine runs");
        let mut child = Command::new(program("sidecore-e2e-app"))
            .args(["engine", &self.name])
            .arg(self.socket())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let said = child.stdout.take().context("its output")?;
        self.engine = Some(Place::Apart(child));
        let mut line = String::new();
        BufReader::new(said).read_line(&mut line)?;
        ensure!(line == "ready\n", "the engine said {line:?}");
        Ok(())
    }

    /// The engine's process: this one, or its own.
    pub fn engine_pid(&self) -> u32 {
        match &self.engine {
            Some(Place::Apart(child)) => child.id(),
            _ => std::process::id(),
        }
    }

    /// SIGKILL to an engine of its own process.
    pub fn kill_engine(&mut self) -> Result<()> {
        match self.engine.take() {
            Some(Place::Apart(mut child)) => {
                child.kill()?;
                child.wait()?;
                Ok(())
            }
            other => {
                self.engine = other;
                anyhow::bail!("there is no engine in a process of its own")
            }
        }
    }

    /// The namespace's (and the TAP's) name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Where the agent listens.
    pub fn socket(&self) -> PathBuf {
        self.folder.path().join("engine.sock")
    }

    /// A folder that goes with the test.
    pub fn folder(&self) -> PathBuf {
        self.folder.path().to_owned()
    }

    /// The engine.
    pub fn engine(&self) -> &EngineHandle {
        match &self.engine {
            Some(Place::Here(engine)) => engine,
            _ => panic!("no engine in this process"),
        }
    }

    /// Stops the engine and waits for its end.
    pub fn stop_engine(&mut self) {
        match self.engine.take() {
            Some(Place::Here(engine)) => engine.stop(),
            Some(Place::Apart(mut child)) => {
                // It ends when its input does.
                drop(child.stdin.take());
                if let Err(error) = child.wait() {
                    eprintln!("the engine: {error}");
                }
            }
            None => {}
        }
    }

    /// A new UAL.
    pub fn ual(&self) -> Result<Ual> {
        Ok(Ual::open_on(
            self.engine().connect()?,
            &UalConfig::default(),
        )?)
    }

    /// Runs something inside the namespace; sockets made there stay there.
    pub fn inside<T: Send>(&self, run: impl FnOnce() -> T + Send) -> T {
        netns::with_netns(&self.name, run).expect("namespace")
    }

    /// A kernel connection to the engine.
    pub fn connect(&self, port: u16) -> std::io::Result<TcpStream> {
        let to = SocketAddr::from((ENGINE, port));
        let stream = self.inside(|| TcpStream::connect_timeout(&to, Duration::from_secs(60)))?;
        stream.set_read_timeout(Some(Duration::from_secs(30)))?;
        stream.set_write_timeout(Some(Duration::from_secs(30)))?;
        Ok(stream)
    }

    /// A kernel listener for the engine's side to connect to.
    pub fn listen(&self) -> std::io::Result<TcpListener> {
        self.inside(|| TcpListener::bind((HOST, 0)))
    }

    /// A kernel UDP socket.
    pub fn udp(&self) -> std::io::Result<UdpSocket> {
        let socket = self.inside(|| UdpSocket::bind((HOST, 0)))?;
        socket.set_read_timeout(Some(Duration::from_secs(10)))?;
        Ok(socket)
    }

    /// A command that runs inside the namespace.
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.name, program]);
        command
    }

    /// Runs `ip` with these arguments inside the namespace.
    pub fn ip(&self, arguments: &[&str]) -> Result<()> {
        let status = Command::new("ip")
            .args(["-n", &self.name])
            .args(arguments)
            .status()?;
        anyhow::ensure!(status.success(), "ip {arguments:?}: {status}");
        Ok(())
    }

    /// Cuts the cable: nothing crosses the TAP any more, and neither side is told by the other.
    pub fn cut(&self) -> Result<()> {
        self.ip(&["link", "set", &self.name, "down"])
    }

    /// What `sidecore stat --json` shows.
    pub fn stat(&self) -> Value {
        // On a machine that does much else an engine with many connections may take its time.
        let text = (0..PATIENCE).find_map(|_| match &self.engine {
            Some(Place::Apart(_)) => Ual::figures(self.socket()).ok(),
            _ => self.engine().stat_json(),
        });
        let text = text.expect("the engine does not answer");
        serde_json::from_str(&text).expect("the engine's figures are not JSON")
    }

    /// One figure, by its JSON pointer.
    pub fn figure(&self, pointer: &str) -> u64 {
        self.stat()
            .pointer(pointer)
            .and_then(Value::as_u64)
            .unwrap_or_else(|| panic!("no figure {pointer}"))
    }

    /// Waits until something holds of the engine's figures; panics with them when it does not within a minute.
    pub fn eventually(&self, what: &str, holds: impl Fn(&Value) -> bool) {
        let begun = Instant::now();
        loop {
            let stat = self.stat();
            if holds(&stat) {
                return;
            }
            assert!(
                begun.elapsed() < Duration::from_secs(60),
                "not so after a minute: {what}\n{stat:#}"
            );
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Ground {
    fn drop(&mut self) {
        self.stop_engine();
        self.line = None;
        if let Err(error) = netns::delete_named(&self.name) {
            eprintln!("namespace {}: {error}", self.name);
        }
    }
}
