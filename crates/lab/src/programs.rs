//! Unmodified servers as they are measured: on the kernel's sockets, or by `sidecore run` on an engine of their own.

use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use sidecore_sys::{affinity, netns};

use crate::ground::{TapGround, VethGround};
use crate::run::Measured;

/// How long a program may take to come up.
const START: Duration = Duration::from_secs(10);

/// Where a server is.
#[derive(Clone, Copy)]
pub enum Place<'a> {
    /// In the server's namespace of a veth pair.
    Kernel(&'a VethGround),
    /// On an engine behind a TAP device.
    Engine(&'a TapGround),
}

impl Place<'_> {
    /// The server's address.
    pub fn address(&self) -> Ipv4Addr {
        match self {
            Self::Kernel(veth) => veth.address,
            Self::Engine(tap) => tap.tap().address,
        }
    }

    /// Has each side's frames received on its own processor, (the server's, the client's); the server is up. `None`: where the sender is.
    pub fn steer(&self, cores: Option<(usize, usize)>) -> anyhow::Result<()> {
        match (self, cores) {
            (Self::Kernel(veth), cores) => veth.steer(cores),
            (Self::Engine(tap), Some((_, client))) => tap.steer(client),
            // Each engine makes its device anew.
            (Self::Engine(_), None) => Ok(()),
        }
    }

    /// Where its clients are.
    pub fn clients(&self) -> &str {
        match self {
            Self::Kernel(veth) => veth.client.name(),
            Self::Engine(tap) => tap.client.name(),
        }
    }
}

/// Where a program is, if it is there.
pub fn find(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders =
        std::env::split_paths(&path).chain(["/usr/sbin", "/usr/local/sbin"].map(PathBuf::from));
    folders
        .map(|folder| folder.join(name))
        .find(|file| file.is_file())
}

/// Whether the library that `sidecore run` loads is where that looks for it.
pub fn has_library() -> bool {
    let Ok(program) = std::env::current_exe() else {
        return false;
    };
    let library = "libsidecore_preload.so";
    let folder = program.parent().unwrap_or(Path::new("/"));
    [
        folder.join(library),
        folder.join("../lib/sidecore").join(library),
    ]
    .iter()
    .any(|file| file.is_file())
}

/// A server, and its engine if it has one. Both are ended when this is dropped.
pub struct Program {
    server: Child,
    engine: Option<Child>,
    folder: tempfile::TempDir,
}

impl Program {
    /// Starts a server, bound to a processor with its engine, and waits until it takes connections at `port`. `command` gets a folder for its
    /// files and gives the program with its arguments.
    pub fn start(
        place: Place<'_>,
        port: u16,
        core: usize,
        command: impl FnOnce(&Path) -> anyhow::Result<Vec<String>>,
    ) -> anyhow::Result<Self> {
        let folder = tempfile::Builder::new()
            .prefix("sclab-program-")
            .tempdir()?;
        let words = command(folder.path())?;
        let (engine, mut line) = match place {
            Place::Kernel(veth) => {
                let mut line = Command::new("ip");
                line.args(["netns", "exec", veth.server.name()]);
                (None, line)
            }
            Place::Engine(tap) => {
                let socket = folder.path().join("socket");
                let engine = start_engine(tap, &socket, core)?;
                let mut line = Command::new(std::env::current_exe()?);
                line.arg("run").arg("--socket").arg(&socket);
                line.args(["--no-engine", "exit", "--log", "error", "--"]);
                (Some(engine), line)
            }
        };
        line.args(words);
        let server = match spawn_on(core, &mut line) {
            Ok(server) => server,
            Err(error) => {
                engine.into_iter().for_each(end);
                return Err(error);
            }
        };
        let mut program = Self {
            server,
            engine,
            folder,
        };
        program.wait_for(place.clients(), (place.address(), port).into())?;
        Ok(program)
    }

    fn wait_for(&mut self, clients: &str, at: SocketAddr) -> anyhow::Result<()> {
        let last = Instant::now() + START;
        let connect = || TcpStream::connect_timeout(&at, Duration::from_secs(1));
        while Instant::now() < last {
            if let Some(status) = self.server.try_wait()? {
                bail!("the server ended with {status}");
            }
            if netns::with_netns(clients, connect)?.is_ok() {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        bail!("nobody serves at {at}")
    }

    /// Where its files are.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }
}

impl Measured for Program {
    /// The server and its children, of which masters have some.
    fn processes(&self) -> Vec<u32> {
        let first = self.server.id();
        let children = std::fs::read_to_string(format!("/proc/{first}/task/{first}/children"));
        let children = children.unwrap_or_default();
        let children = children.split_ascii_whitespace();
        std::iter::once(first)
            .chain(children.filter_map(|pid| pid.parse().ok()))
            .collect()
    }

    fn engines(&self) -> Vec<u32> {
        self.engine.iter().map(Child::id).collect()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let engine = self.engine.take();
        terminate(&mut self.server);
        engine.into_iter().for_each(end);
    }
}

fn start_engine(tap: &TapGround, socket: &Path, core: usize) -> anyhow::Result<Child> {
    let spec = tap.tap();
    let network = |address: Ipv4Addr| format!("{address}/{}", spec.prefix);
    let mut line = Command::new(std::env::current_exe()?);
    line.args(["engine", "--tap", &spec.name, "--idle", "adaptive"]);
    line.args(["--netns", tap.client.name()]);
    line.args(["--host-addr", &network(spec.host)]);
    line.args(["--addr", &network(spec.address)]);
    line.arg("--socket").arg(socket);
    let engine = spawn_on(core, &mut line)?;
    let last = Instant::now() + START;
    while !socket.exists() {
        if Instant::now() > last {
            end(engine);
            bail!("the engine does not come up");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(engine)
}

/// Starts a program on one processor, all its threads and children.
fn spawn_on(core: usize, line: &mut Command) -> anyhow::Result<Child> {
    line.stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::inherit());
    // What a thread is bound to its children inherit.
    let spawned = std::thread::scope(|scope| {
        let spawn = || {
            affinity::pin_current_thread(core)?;
            line.spawn()
        };
        scope.spawn(spawn).join().expect("a thread panicked")
    });
    spawned.with_context(|| format!("cannot start {:?}", line.get_program()))
}

fn end(mut child: Child) {
    terminate(&mut child);
}

/// Asks a program to end, and kills it if it does not.
fn terminate(child: &mut Child) {
    if let Some(pid) = rustix::process::Pid::from_raw(child.id() as i32) {
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
    }
    let last = Instant::now() + Duration::from_secs(2);
    while Instant::now() < last {
        if !matches!(child.try_wait(), Ok(None)) {
            return;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let _ = child.kill();
    let _ = child.wait();
}
