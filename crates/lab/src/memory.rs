//! What idle connections cost in memory: both ends of each in one process, on an engine or on the kernel's loopback.
//!
//! Counted is what there is more after than before: this process' own share of its memory (`Pss`: memory that is mapped twice counts once),
//! its page tables, and the kernel's slabs (of the whole machine: others may blur it by a few megabytes). Before: there is no engine yet.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::ops::Range;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use rustix::event::epoll;
use rustix::process::{Resource, getrlimit};
use serde::{Deserialize, Serialize};
use sidecore_client::{Dti, EventKind, EventQueue, Lane, Status, Ual, UalConfig};
use sidecore_engine::{Device, Engine, EngineConfig, IdlePolicy, Policy};

use crate::native::{HERE, engine_config, within};

/// Connections to one address: local ports of each are few.
const PER_ADDRESS: usize = 20_000;

/// Connections that are being made at a time.
const BATCH: usize = 256;

/// How long a batch may take.
const LATE: Duration = Duration::from_secs(20);

const PORT: u16 = 7;

/// Idle connections.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MemoryConfig {
    /// How many.
    pub connections: usize,
    /// On the kernel's loopback instead of an engine.
    pub kernel: bool,
}

/// What they cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MemoryUse {
    /// Connections, perhaps fewer than were asked for: on the kernel no more than descriptors allow. Each has two ends here.
    pub connections: usize,
    /// Bytes of the process, memory that it shares with itself counted once.
    pub process: u64,
    /// Bytes of its page tables, and of the kernel's slabs.
    pub kernel: u64,
    /// Seconds that making them took.
    pub seconds: f64,
}

impl MemoryUse {
    /// Bytes of one end of a connection.
    pub fn per_end(&self) -> f64 {
        (self.process + self.kernel) as f64 / (2 * self.connections.max(1)) as f64
    }
}

/// Bytes of the process and of the kernel, now.
#[derive(Clone, Copy)]
struct Look {
    process: u64,
    kernel: u64,
}

impl Look {
    fn now() -> anyhow::Result<Self> {
        let field = |path: &str, name: &str| {
            let text = fs::read_to_string(path).with_context(|| format!("cannot read {path}"))?;
            let found = kibibytes(&text, name);
            found.with_context(|| format!("no {name} in {path}"))
        };
        Ok(Self {
            process: field("/proc/self/smaps_rollup", "Pss:")?,
            kernel: field("/proc/self/status", "VmPTE:")? + field("/proc/meminfo", "Slab:")?,
        })
    }
}

/// The bytes that a line `name … kB` says.
fn kibibytes(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    let number: u64 = line.split_ascii_whitespace().next()?.parse().ok()?;
    Some(number * 1024)
}

/// Makes the connections and says what they cost.
pub fn run(config: &MemoryConfig) -> anyhow::Result<MemoryUse> {
    let connections = allowed(config);
    let before = Look::now()?;
    let start = Instant::now();
    let held: Box<dyn std::any::Any> = match config.kernel {
        true => Box::new(kernel(connections)?),
        false => Box::new(engine(connections)?),
    };
    let seconds = start.elapsed().as_secs_f64();
    let after = Look::now()?;
    drop(held);
    Ok(MemoryUse {
        connections,
        process: after.process.saturating_sub(before.process),
        kernel: after.kernel.saturating_sub(before.kernel),
        seconds,
    })
}

/// Of 127.0.0.1 and up, the address for this connection.
fn address(number: usize) -> Ipv4Addr {
    let number = (number / PER_ADDRESS + 1) as u32;
    Ipv4Addr::from(u32::from(Ipv4Addr::new(127, 0, 0, 0)) + number)
}

/// Descriptors that are needed for other things.
const OTHER_FILES: u64 = 64;

/// How many connections this process may have of these: each takes two descriptors on the kernel.
fn allowed(config: &MemoryConfig) -> usize {
    let limit = getrlimit(Resource::Nofile).current;
    let most = limit.map_or(usize::MAX, |limit| {
        (limit.saturating_sub(OTHER_FILES) / 2) as usize
    });
    match config.kernel {
        true => config.connections.min(most),
        false => config.connections,
    }
}

/// Kernel sockets, the server's ends watched by epoll.
fn kernel(connections: usize) -> anyhow::Result<impl Sized> {
    let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0))?;
    let port = listener.local_addr()?.port();
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    let mut ends = Vec::with_capacity(connections);
    for number in 0..connections {
        let target = SocketAddr::from((address(number), port));
        let stream = TcpStream::connect(target)
            .with_context(|| format!("connection {number} of {connections}"))?;
        let (accepted, _) = listener.accept()?;
        let data = epoll::EventData::new_u64(number as u64);
        epoll::add(&epoll, &accepted, data, epoll::EventFlags::IN)?;
        ends.push((stream, accepted));
    }
    Ok((listener, epoll, ends))
}

/// An engine and an application of it that holds both ends.
fn engine(connections: usize) -> anyhow::Result<impl Sized> {
    let dtis = 2 * connections + 2 * BATCH + 1;
    let (mut engine, control) = Engine::new(EngineConfig {
        connections: 2 * connections + BATCH,
        policy: Policy {
            dtis: u32::try_from(dtis)?,
            ..Policy::default()
        },
        ..engine_config(HERE, 24, Device::None, IdlePolicy::Poll)
    })?;
    let socket = control.connect()?;
    let wishes = UalConfig {
        lanes: 1,
        lane_order: 12,
        evqs: 1,
        evq_order: 12,
        wait_cells: 1,
        dtis: u32::try_from(dtis)?,
        ..UalConfig::default()
    };
    let ual = within(&mut engine, || Ok(Ual::open_on(socket, &wishes)?))?;
    if (ual.granted().dtis as usize) < dtis {
        bail!("the engine grants {} DTIs only", ual.granted().dtis);
    }
    let (mut lane, mut queue) = (ual.lane()?, ual.event_queue()?);
    let listener = lane.create_stream(&queue, &queue)?;
    lane.bind(listener, (Ipv4Addr::UNSPECIFIED, PORT).into(), 0)?;
    lane.listen(listener, 4096, 0)?;
    for made in (0..connections).step_by(BATCH) {
        let numbers = made..connections.min(made + BATCH);
        connect(&mut engine, &mut lane, &mut queue, listener, numbers)?;
    }
    // What was put off is done: delayed acknowledgements, buffers of the handshake.
    let last = Instant::now() + Duration::from_millis(300);
    while Instant::now() < last {
        engine.turn();
    }
    Ok((engine, control, ual, lane, queue))
}

/// Makes the connections of these numbers, and waits until they are up.
fn connect(
    engine: &mut Engine,
    lane: &mut Lane,
    queue: &mut EventQueue,
    listener: Dti,
    numbers: Range<usize>,
) -> anyhow::Result<()> {
    let first = numbers.start;
    let wanted = 2 * numbers.len();
    for number in numbers {
        let child = lane.create_stream(&*queue, &*queue)?;
        lane.accept(listener, child, 0)?;
        let dti = lane.create_stream(&*queue, &*queue)?;
        lane.connect(dti, (address(number), PORT).into(), 0)?;
    }
    lane.flush();
    let last = Instant::now() + LATE;
    let mut up = 0;
    while up < wanted {
        engine.turn();
        while let Some(event) = queue.poll() {
            if event.status != Status::Ok {
                let (kind, status) = (event.kind, event.status);
                bail!("{kind:?} after {first} connections: {status:?}");
            }
            up += usize::from(matches!(
                event.kind,
                EventKind::Connected | EventKind::Accepted
            ));
        }
        if Instant::now() > last {
            bail!("connections after the first {first} do not come up");
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_proc_are_read() {
        let text = "Rss:   10 kB\nPss:\t  12 kB\nPss_Dirty: 3 kB\n";
        assert_eq!(kibibytes(text, "Pss:"), Some(12 * 1024));
        assert_eq!(kibibytes(text, "Slab:"), None);
    }

    #[test]
    fn idle_connections_come_up_and_cost_something() {
        for kernel in [false, true] {
            let connections = 1000;
            let config = MemoryConfig {
                connections,
                kernel,
            };
            let used = run(&config).unwrap();
            assert_eq!(used.connections, connections);
            assert!(used.process + used.kernel > 0 && used.per_end() > 0.0);
        }
    }
}
