//! Conversations of the kernel's TCP with the engine's over a bad line: who connects, over which version of IP, what the line does and when it changes.

use std::io::{self, Read, Write};
use std::net::{Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use sha2::{Digest, Sha256};
use sidecore_abi::command::Opt;
use sidecore_client::{Sockets, SocketsConfig, blocking};
use sidecore_nic::LinkModel;
use sidecore_nic::link::LinkCounters;

use crate::Ground;
use crate::ground::{ENGINE, HOST};
use crate::service::hex;
use crate::transfers::generate;

/// The engine's address of IPv6.
pub const ENGINE6: Ipv6Addr = Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, 2);
/// The kernel's.
pub const HOST6: Ipv6Addr = Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, 1);

/// Who connects.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// The kernel, to the engine.
    Kernel,
    /// The engine, to the kernel.
    Engine,
}

/// Which IP.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Version {
    /// IPv4.
    Four,
    /// IPv6.
    Six,
}

/// How long one call may take before a conversation counts as stuck. A machine that stands still for three seconds while the first round trip is measured
/// makes a retransmission timeout of nine (RFC 6298), and a black hole is believed after three of them, the second and third doubled: 63 seconds.
const STUCK: Duration = Duration::from_secs(100);

/// A conversation: both ends send so many bytes at once, the one that connected ends its stream when it has sent all, the other one when it has
/// received all.
#[derive(Clone, Debug)]
pub struct Case {
    /// What is special about it.
    pub name: &'static str,
    /// The line, there (from the kernel) and back.
    pub line: [LinkModel; 2],
    /// Bytes each way.
    pub bytes: u64,
    /// What the line becomes, one after the other and for how long each, when half of all bytes have arrived. The last is for good.
    pub changes: Vec<([LinkModel; 2], Duration)>,
    /// Bytes that the kernel's receive buffer is asked to have; 0: as it comes.
    pub kernel_buffer: usize,
    /// Bytes of the engine's receive window; 0: as it comes.
    pub engine_window: u64,
}

impl Case {
    /// The same line both ways, but with other luck.
    pub fn both(name: &'static str, bytes: u64, model: LinkModel) -> Self {
        Self {
            name,
            line: there_and_back(model),
            bytes,
            changes: Vec::new(),
            kernel_buffer: 0,
            engine_window: 0,
        }
    }

    /// What the line becomes half-way.
    pub fn then(mut self, model: LinkModel, lasts: Duration) -> Self {
        self.changes.push((there_and_back(model), lasts));
        self
    }
}

/// A model for both directions, each with luck of its own.
pub fn there_and_back(model: LinkModel) -> [LinkModel; 2] {
    let back = LinkModel {
        seed: model.seed.wrapping_add(1_000_000),
        ..model
    };
    [model, back]
}

/// What is to be known of a conversation that went well.
#[derive(Debug)]
pub struct Outcome {
    /// What the line did.
    pub line: [LinkCounters; 2],
    /// The engine's figures at the end.
    pub stat: serde_json::Value,
    /// How long it took: to be printed, not to be judged.
    pub took: Duration,
}

/// Two ends of a stream.
trait Stream: Read + Write + Send + Sized {
    fn again(&self) -> io::Result<Self>;
    fn end(&self) -> io::Result<()>;
}

impl Stream for TcpStream {
    fn again(&self) -> io::Result<Self> {
        self.try_clone()
    }

    fn end(&self) -> io::Result<()> {
        self.shutdown(Shutdown::Write)
    }
}

impl Stream for blocking::TcpStream {
    fn again(&self) -> io::Result<Self> {
        self.try_clone()
    }

    fn end(&self) -> io::Result<()> {
        self.shutdown(Shutdown::Write)
    }
}

/// An engine with addresses of both versions on a line, and a group of sockets on it.
pub struct Meeting {
    /// Where it is.
    pub ground: Ground,
    /// The engine's sockets.
    pub sockets: Sockets,
    version: Version,
}

impl Meeting {
    /// On this line.
    pub fn on(line: [LinkModel; 2], version: Version) -> Result<Self> {
        let ground = Ground::on_line(line, |config| {
            config.ipv6.enabled = true;
            // The test is alone on its link: nobody else can have the address.
            config.ipv6.dad_transmits = 0;
            let address = format!("{ENGINE6}/64").parse().expect("a network");
            config.ipv6.addresses.push(address);
        })?;
        let host = format!("{HOST6}/64");
        let device = ground.name().to_owned();
        ground.ip(&["-6", "addr", "add", &host, "dev", &device, "nodad"])?;
        // Otherwise the kernel never asks itself whether large packets get lost in silence (RFC 4821), as the engine does.
        ground.inside(|| std::fs::write("/proc/sys/net/ipv4/tcp_mtu_probing", "1"))?;
        let sockets = Sockets::new(&ground.ual()?, SocketsConfig::default())?;
        Ok(Self {
            ground,
            sockets,
            version,
        })
    }

    /// Where the engine is.
    pub fn engine(&self, port: u16) -> SocketAddr {
        match self.version {
            Version::Four => (ENGINE, port).into(),
            Version::Six => (ENGINE6, port).into(),
        }
    }

    fn host(&self) -> SocketAddr {
        match self.version {
            Version::Four => (HOST, 0).into(),
            Version::Six => (HOST6, 0).into(),
        }
    }

    /// A connection: the kernel's end and the engine's.
    pub fn connect(
        &self,
        role: Role,
        kernel_buffer: usize,
        engine_window: u64,
    ) -> Result<(TcpStream, blocking::TcpStream)> {
        let (kernel, engine) = match role {
            Role::Kernel => {
                let listener = blocking::TcpListener::bind(&self.sockets, self.engine(80))?;
                let to = self.engine(80);
                let kernel = self
                    .ground
                    .inside(|| TcpStream::connect_timeout(&to, STUCK))
                    .context("the kernel connects")?;
                (kernel, listener.accept().context("accept")?.0)
            }
            Role::Engine => {
                let listener = self.ground.inside(|| TcpListener::bind(self.host()))?;
                let to = listener.local_addr()?;
                let engine = blocking::TcpStream::connect_timeout(&self.sockets, &to, STUCK)
                    .context("the engine connects")?;
                (listener.accept().context("accept")?.0, engine)
            }
        };
        if kernel_buffer > 0 {
            rustix::net::sockopt::set_socket_recv_buffer_size(&kernel, kernel_buffer)?;
        }
        if engine_window > 0 {
            engine.set_option(Opt::ReceiveBuffer, engine_window)?;
        }
        kernel.set_read_timeout(Some(STUCK))?;
        kernel.set_write_timeout(Some(STUCK))?;
        engine.set_read_timeout(Some(STUCK))?;
        engine.set_write_timeout(Some(STUCK))?;
        Ok((kernel, engine))
    }

    /// The states of the kernel's TCP sockets that do not listen, as `ss` names them.
    pub fn kernel_states(&self) -> Result<Vec<String>> {
        let output = ss(&self.ground, &["-tanH", "exclude", "listening"])?;
        let state = |line: &str| line.split_whitespace().next().map(str::to_owned);
        Ok(output.lines().filter_map(state).collect())
    }

    /// The states of the engine's connections.
    pub fn engine_states(&self) -> Vec<String> {
        let stat = self.ground.stat();
        let connections = stat["connections"].as_array().cloned().unwrap_or_default();
        let state = |it: serde_json::Value| it["state"].as_str().unwrap_or_default().to_lowercase();
        connections.into_iter().map(state).collect()
    }

    /// How many resets the kernel's side has sent.
    fn kernel_resets(&self) -> Result<u64> {
        let text = self
            .ground
            .inside(|| std::fs::read_to_string("/proc/thread-self/net/snmp"))?;
        let mut lines = text.lines().filter_map(|line| line.strip_prefix("Tcp: "));
        let (names, values) = (lines.next(), lines.next());
        let (names, values) = names.zip(values).context("no figures of TCP")?;
        let mut pairs = names.split(' ').zip(values.split(' '));
        let resets = pairs.find(|(name, _)| *name == "OutRsts");
        Ok(resets.context("no OutRsts")?.1.parse()?)
    }

    /// After a conversation: who ended first waits, the other one has forgotten it. A second ACK of the other's FIN, or a frame that was overtaken by
    /// the end of it all, is answered by a reset, which ends the kernel's waiting (RFC 9293 section 3.10.7.4; a hazard, says RFC 1337, and ours goes on).
    fn expect_closed(&self, first: Role) -> Result<()> {
        let last = Instant::now() + STUCK;
        loop {
            let (kernel, engine) = (self.kernel_states()?, self.engine_states());
            let as_expected = match first {
                Role::Kernel => {
                    let waits = kernel == ["TIME-WAIT"];
                    let was_reset = || self.ground.figure("/stack/tcp_resets_out") > 0;
                    engine.is_empty() && (waits || kernel.is_empty() && was_reset())
                }
                Role::Engine => {
                    let waits = engine == ["timewait"];
                    let was_reset = self.kernel_resets()? > 0;
                    kernel.is_empty() && (waits || engine.is_empty() && was_reset)
                }
            };
            if as_expected {
                return Ok(());
            }
            ensure!(
                Instant::now() < last,
                "ended first: {first:?}; kernel {kernel:?}, engine {engine:?}"
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Runs `ss` of iproute2 in the ground's namespace.
pub fn ss(ground: &Ground, arguments: &[&str]) -> Result<String> {
    let output = Command::new("ip")
        .args(["netns", "exec", ground.name(), "ss"])
        .args(arguments)
        .output()?;
    ensure!(
        output.status.success(),
        "ss {arguments:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Runs a conversation; an error if a byte is wrong, a connection breaks, or the ends are not in the states that they should be in.
pub fn converse(case: &Case, role: Role, version: Version) -> Result<Outcome> {
    let meeting = Meeting::on(case.line, version)?;
    let (kernel, engine) = meeting.connect(role, case.kernel_buffer, case.engine_window)?;
    let begun = Instant::now();
    let arrived = AtomicU64::new(0);
    std::thread::scope(|scope| {
        let change = scope.spawn(|| half_way(case, &meeting.ground, &arrived));
        let result = match role {
            Role::Kernel => exchange(kernel, engine, case.bytes, &arrived),
            Role::Engine => exchange(engine, kernel, case.bytes, &arrived),
        };
        // Whatever came of it, half of it is over.
        arrived.store(u64::MAX / 2, Ordering::Relaxed);
        let changed = change.join().expect("a thread panicked");
        result.and(changed)
    })?;
    let took = begun.elapsed();
    meeting.expect_closed(role)?;
    Ok(Outcome {
        line: meeting.ground.line().counters(),
        stat: meeting.ground.stat(),
        took,
    })
}

/// Changes the line as the case has it.
fn half_way(case: &Case, ground: &Ground, arrived: &AtomicU64) -> Result<()> {
    while !case.changes.is_empty() && arrived.load(Ordering::Relaxed) < case.bytes {
        std::thread::sleep(Duration::from_millis(1));
    }
    let early = arrived.load(Ordering::Relaxed) < 2 * case.bytes;
    ensure!(
        case.changes.is_empty() || early,
        "all had arrived before the line changed"
    );
    for (models, lasts) in &case.changes {
        ground.line().set(*models);
        std::thread::sleep(*lasts);
    }
    Ok(())
}

/// Both ends send and receive. Every failure is told.
fn exchange(
    connector: impl Stream,
    acceptor: impl Stream,
    bytes: u64,
    arrived: &AtomicU64,
) -> Result<()> {
    let (ended, may_end) = channel();
    let writers = (connector.again()?, acceptor.again()?);
    let results: [Result<()>; 4] = std::thread::scope(|scope| {
        let threads = [
            scope.spawn(|| send(writers.0, 1, bytes, None).context("the connecting end sends")),
            scope.spawn(move || {
                send(writers.1, 2, bytes, Some(may_end)).context("the accepting end sends")
            }),
            scope.spawn(|| {
                receive(connector, 2, bytes, arrived).context("the connecting end receives")
            }),
            scope.spawn(move || {
                let result = receive(acceptor, 1, bytes, arrived);
                let _ = ended.send(());
                result.context("the accepting end receives")
            }),
        ];
        threads.map(|thread| thread.join().expect("a thread panicked"))
    });
    let failures: Vec<String> = results
        .into_iter()
        .filter_map(|result| Some(format!("{:#}", result.err()?)))
        .collect();
    ensure!(failures.is_empty(), "{}", failures.join("; "));
    Ok(())
}

fn send(
    mut to: impl Stream,
    index: usize,
    bytes: u64,
    may_end: Option<Receiver<()>>,
) -> Result<()> {
    generate(index, bytes, |piece| Ok(to.write_all(piece)?))?;
    if let Some(may_end) = may_end {
        may_end.recv().context("the receiving half is gone")?;
    }
    Ok(to.end()?)
}

fn receive(mut from: impl Stream, index: usize, bytes: u64, arrived: &AtomicU64) -> Result<()> {
    let (mut seen, mut digest) = (0, Sha256::new());
    let mut block = vec![0; 1 << 16];
    loop {
        let n = from
            .read(&mut block)
            .with_context(|| format!("after {seen} bytes"))?;
        if n == 0 {
            break;
        }
        seen += n as u64;
        arrived.fetch_add(n as u64, Ordering::Relaxed);
        digest.update(&block[..n]);
    }
    ensure!(seen == bytes, "{seen} of {bytes} bytes came");
    let mut expected = Sha256::new();
    generate(index, bytes, |piece| {
        expected.update(piece);
        Ok(())
    })?;
    ensure!(hex(&digest) == hex(&expected), "other bytes came");
    Ok(())
}

/// Runs cases some at a time and panics with everything that went wrong. `check` looks at what came of each.
pub fn all(
    cases: &[Case],
    role: Role,
    version: Version,
    check: impl Fn(&Case, &Outcome) -> Result<()> + Sync,
) {
    const AT_A_TIME: usize = 4;
    let (turn, failures) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..AT_A_TIME {
            scope.spawn(|| {
                while let Some(case) = cases.get(turn.fetch_add(1, Ordering::Relaxed)) {
                    let result = converse(case, role, version).and_then(|outcome| {
                        eprintln!("{}: {:.2?}", case.name, outcome.took);
                        check(case, &outcome)
                    });
                    if let Err(error) = result {
                        let text = format!("{}: {error:#}", case.name);
                        failures.lock().expect("poisoned").push(text);
                    }
                }
            });
        }
    });
    let failures = failures.into_inner().expect("poisoned");
    assert!(
        failures.is_empty(),
        "{role:?} connects, IPv{version:?}: {} of {} failed:\n{}",
        failures.len(),
        cases.len(),
        failures.join("\n")
    );
}
