//! How long it takes from posting a command until its answer is there, when somebody sleeps: the engine, the application, both, or nobody.
//!
//! A probe is a no-operation whose answer goes to an event queue; it carries the time of its posting as its cookie. Between two probes
//! there is a pause in which everybody who may sleep does. One thread posts; where the application sleeps, another thread waits for
//! the answers, on the same processor, which is idle then. Beside it stands the kernel's own: a byte by an AF_UNIX socket to a thread that
//! sleeps in `read`.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use serde::{Deserialize, Serialize};
use sidecore_client::{EventQueue, Lane, Ual, UalConfig};
use sidecore_engine::{Device, Engine, EngineHandle, IdlePolicy};
use sidecore_sys::affinity;

use crate::load::arrivals::Arrivals;
use crate::load::worker::{Counts, Window};
use crate::load::{LoadReport, Milestones, in_threads, pass};
use crate::native::{HERE, engine_config, wishes};

/// Longer than engines and queues poll before they sleep.
const PAUSE: Duration = Duration::from_millis(1);

/// How long an answer may take.
const LATE: Duration = Duration::from_secs(2);

/// Who sleeps between two probes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sleeper {
    /// Nobody: both poll.
    Nobody,
    /// The engine (`adaptive`); the application polls.
    Engine,
    /// The application; the engine polls.
    Application,
    /// Both.
    Both,
    /// There is no engine: one thread wakes another by the kernel.
    Kernel,
}

/// Probes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WakeConfig {
    /// Who sleeps.
    pub sleeper: Sleeper,
    /// Processors of the engine and of the application.
    pub cores: [usize; 2],
    /// Time before measuring begins.
    pub warm_up: Duration,
    /// Measured time.
    pub measure: Duration,
}

/// What a thread does; one that only posts counts nothing.
type Job = Box<dyn FnOnce() -> anyhow::Result<Option<Counts>> + Send>;

/// Counts what is inside the window.
struct Probes {
    window: Window,
    counts: Counts,
}

impl Probes {
    fn new(window: Window) -> Self {
        Self {
            window,
            counts: Counts::default(),
        }
    }

    fn is_over(&self) -> bool {
        Instant::now() >= self.window.end
    }

    /// Nanoseconds since the window's start.
    fn now(&self) -> u64 {
        self.window.start.elapsed().as_nanos() as u64
    }

    /// An answer has come to a probe that was posted at `posted`.
    fn count(&mut self, posted: u64) {
        let now = self.now();
        let inside = |at: Instant| at.duration_since(self.window.start).as_nanos() as u64;
        if (inside(self.window.begin)..inside(self.window.end)).contains(&posted) {
            self.counts.completed += 1;
            self.counts.latency.record(now.saturating_sub(posted));
        }
    }
}

/// Makes probes and reports. Blocks for warm-up and measured time.
pub fn run(config: &WakeConfig, milestones: &mut dyn Milestones) -> anyhow::Result<LoadReport> {
    let [engine_core, core] = config.cores;
    let engine = match config.sleeper {
        Sleeper::Kernel => None,
        Sleeper::Nobody | Sleeper::Application => Some(engine(IdlePolicy::Poll, engine_core)?),
        Sleeper::Engine | Sleeper::Both => Some(engine(IdlePolicy::Adaptive, engine_core)?),
    };
    let ends = engine.as_ref().map(open).transpose()?;
    milestones.connected()?;
    let start = Instant::now();
    let begin = start + config.warm_up;
    let end = begin + config.measure;
    let window = Window { start, begin, end };
    let on = |core: usize, job: Job| -> Job {
        Box::new(move || {
            affinity::pin_current_thread(core)?;
            job()
        })
    };
    let jobs: Vec<Job> = match (ends, config.sleeper) {
        (Some((lane, queue)), Sleeper::Nobody | Sleeper::Engine) => {
            let job = move || ask(Probes::new(window), lane, queue).map(Some);
            vec![on(core, Box::new(job))]
        }
        (Some((lane, queue)), _) => {
            let target = queue.id();
            let (done, is_done) = std::sync::mpsc::channel();
            let post = move || post(Probes::new(window), lane, target, &is_done).map(|()| None);
            let wait = move || {
                let _done = done;
                wait(Probes::new(window), queue).map(Some)
            };
            vec![on(core, Box::new(post)), on(core, Box::new(wait))]
        }
        (None, _) => {
            let (writer, reader) = UnixStream::pair()?;
            let write = move || write(&Probes::new(window), writer).map(|()| None);
            let read = move || read(Probes::new(window), reader).map(Some);
            vec![on(core, Box::new(write)), on(engine_core, Box::new(read))]
        }
    };
    let counts = in_threads(jobs.into_iter(), |failures| {
        pass(window, failures, milestones)
    })?;
    let counts: Vec<Counts> = counts.into_iter().flatten().collect();
    Ok(LoadReport::of(config.measure, Arrivals::Closed, &counts))
}

fn engine(idle: IdlePolicy, core: usize) -> anyhow::Result<EngineHandle> {
    let mut config = engine_config(HERE, 24, Device::None, idle);
    config.core = Some(core);
    Ok(Engine::spawn(config)?)
}

/// A lane, and a queue on which a wait sleeps at once.
fn open(engine: &EngineHandle) -> anyhow::Result<(Lane, EventQueue)> {
    let wishes = UalConfig {
        spin: Duration::ZERO,
        ..wishes(1)
    };
    let ual = Ual::open_on(engine.connect()?, &wishes)?;
    Ok((ual.lane()?, ual.event_queue()?))
}

/// Posts, and polls for the answer, in one thread.
fn ask(mut probes: Probes, mut lane: Lane, mut queue: EventQueue) -> anyhow::Result<Counts> {
    while !probes.is_over() {
        std::thread::sleep(PAUSE);
        let posted = probes.now();
        lane.nop(&queue, posted)?;
        lane.flush();
        let answer = loop {
            match queue.poll() {
                Some(event) => break event,
                None if probes.now() > posted + LATE.as_nanos() as u64 => bail!("no answer"),
                None => std::hint::spin_loop(),
            }
        };
        probes.count(answer.cookie);
    }
    Ok(probes.counts)
}

/// Posts only, until the window is over; and then until nobody waits for answers any more.
fn post(
    probes: Probes,
    mut lane: Lane,
    target: sidecore_client::EvqId,
    is_done: &Receiver<()>,
) -> anyhow::Result<()> {
    loop {
        std::thread::sleep(PAUSE);
        if is_done.try_recv() == Err(std::sync::mpsc::TryRecvError::Disconnected) {
            return Ok(());
        }
        lane.nop(target, probes.now())?;
        lane.flush();
    }
}

/// Sleeps until answers come.
fn wait(mut probes: Probes, mut queue: EventQueue) -> anyhow::Result<Counts> {
    while !probes.is_over() {
        if !queue.wait(Some(LATE))? {
            bail!("no answer");
        }
        while let Some(event) = queue.poll() {
            probes.count(event.cookie);
        }
    }
    Ok(probes.counts)
}

/// Sends the time, again and again.
fn write(probes: &Probes, mut writer: UnixStream) -> anyhow::Result<()> {
    while !probes.is_over() {
        std::thread::sleep(PAUSE);
        writer
            .write_all(&probes.now().to_le_bytes())
            .context("writing to the other thread")?;
    }
    Ok(())
}

/// Sleeps until a time comes, until nobody sends any more.
fn read(mut probes: Probes, mut reader: UnixStream) -> anyhow::Result<Counts> {
    let mut posted = [0; 8];
    while reader.read_exact(&mut posted).is_ok() {
        probes.count(u64::from_le_bytes(posted));
    }
    Ok(probes.counts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::Unwatched;

    #[test]
    fn every_sleeper_is_woken() {
        let cores = affinity::allowed_cores().unwrap();
        for sleeper in [
            Sleeper::Nobody,
            Sleeper::Engine,
            Sleeper::Application,
            Sleeper::Both,
            Sleeper::Kernel,
        ] {
            let mut config = WakeConfig {
                sleeper,
                cores: [cores[0], *cores.last().unwrap()],
                warm_up: Duration::from_millis(10),
                measure: Duration::from_millis(100),
            };
            let report = crate::load::answered(|measure| {
                config.measure = measure;
                run(&config, &mut Unwatched).unwrap()
            });
            assert_eq!(report.latency.count, report.requests);
        }
    }
}
