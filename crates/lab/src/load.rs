//! The load generator: closed or open loop over kernel sockets.
//!
//! One thread drives thousands of connections with level-triggered epoll, one `read` and one `write` per request, no allocation
//! per request, and one look at the clock per answer. A closed loop keeps one request outstanding on every connection; an
//! open loop sends at a rate of its own ([`arrivals`]) and counts latency from when a request was *due*.

pub mod arrivals;
pub mod churn;
pub mod latency;
pub mod protocol;
pub mod ring;
pub mod worker;

use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, channel};
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use serde::{Deserialize, Serialize};

use arrivals::Arrivals;
use churn::ChurnWorker;
use latency::{Latency, Recorder};
use protocol::{Echo, Exact, Http, Upload};
use ring::RingWorker;
use sidecore_sys::affinity;
use worker::{Counts, Orders, Window, Worker};

/// What is asked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ask {
    /// Messages of so many bytes, which come back.
    Echo(usize),
    /// The same, each on a connection of its own: opened, used once, closed. Closed loops only.
    Churn(usize),
    /// Messages of so many bytes, each answered by one byte.
    Upload(usize),
    /// These messages in turn, each answered as it says here.
    Exact(Vec<(String, String)>),
    /// A message and its answer, each on a connection of its own: opened, used once, closed. Closed loops only.
    ChurnExact(String, String),
    /// `GET` of these paths in turn, over connections that stay.
    Http(Vec<String>),
}

/// How the client does its I/O.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Driver {
    /// epoll, one `read` and one `write` a request.
    #[default]
    Epoll,
    /// io_uring: closed loops of echo requests of up to 4096 bytes only.
    IoUring,
}

/// A load.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LoadConfig {
    /// Where to; connections take the addresses in turn.
    pub targets: Vec<SocketAddr>,
    /// What is asked.
    pub ask: Ask,
    /// How.
    pub driver: Driver,
    /// Connections, over all threads.
    pub connections: usize,
    /// Threads.
    pub threads: usize,
    /// Processors to which the threads are bound in turn; none: unbound.
    pub cores: Vec<usize>,
    /// Closed or open loop.
    pub arrivals: Arrivals,
    /// Time before measuring begins.
    pub warm_up: Duration,
    /// Measured time.
    pub measure: Duration,
    /// Congestion control of the connections.
    pub congestion: Option<String>,
    /// Never sleep.
    pub spin: bool,
}

impl LoadConfig {
    /// One thread, closed loop, short: what tests and quick looks want.
    pub fn closed(target: SocketAddr, ask: Ask, connections: usize) -> Self {
        Self {
            targets: vec![target],
            ask,
            driver: Driver::Epoll,
            connections,
            threads: 1,
            cores: Vec::new(),
            arrivals: Arrivals::Closed,
            warm_up: Duration::from_millis(200),
            measure: Duration::from_secs(1),
            congestion: None,
            spin: false,
        }
    }
}

/// What came of a load.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LoadReport {
    /// Measured seconds.
    pub seconds: f64,
    /// Answers inside the measured time.
    pub requests: u64,
    /// Answers a second.
    pub rate: f64,
    /// Requests a second that were offered; none in a closed loop.
    pub offered: Option<f64>,
    /// Answers that said that something failed.
    pub failed: u64,
    /// Connections that broke and were made anew.
    pub reconnects: u64,
    /// Open loop: requests that were not even tried, because too many were waiting.
    pub dropped: u64,
    /// Open loop: requests that were not answered in time.
    pub unanswered: u64,
    /// Bytes received a second.
    pub bytes_in: f64,
    /// Bytes sent a second.
    pub bytes_out: f64,
    /// Latencies.
    pub latency: Latency,
}

/// Moments of a load at which somebody else may want to do something (take a snapshot of the books).
pub trait Milestones {
    /// All connections are up; the load begins when this returns.
    fn connected(&mut self) -> anyhow::Result<()>;
    /// Measuring has just begun.
    fn begun(&mut self) -> anyhow::Result<()>;
    /// Measuring has just ended; the load's threads are still there until this returns.
    fn ended(&mut self) -> anyhow::Result<()>;
}

/// Nobody wants to know.
pub struct Unwatched;

impl Milestones for Unwatched {
    fn connected(&mut self) -> anyhow::Result<()> {
        Ok(())
    }
    fn begun(&mut self) -> anyhow::Result<()> {
        Ok(())
    }
    fn ended(&mut self) -> anyhow::Result<()> {
        Ok(())
    }
}

/// Connects, loads and reports. Blocks for warm-up and measured time (an open loop for up to two seconds more).
pub fn run(config: &LoadConfig, milestones: &mut dyn Milestones) -> anyhow::Result<LoadReport> {
    match (&config.ask, config.driver) {
        (Ask::Echo(bytes), Driver::Epoll) => run_workers(
            config,
            milestones,
            |_, orders| Worker::connect(orders, Echo::new(*bytes)),
            Worker::run,
        ),
        (Ask::Upload(bytes), Driver::Epoll) => run_workers(
            config,
            milestones,
            |_, orders| Worker::connect(orders, Upload::new(*bytes)),
            Worker::run,
        ),
        (Ask::Exact(exchanges), Driver::Epoll) => run_exact(config, milestones, exchanges),
        (Ask::Http(paths), Driver::Epoll) => {
            let host = config
                .targets
                .first()
                .map(|t| t.ip().to_string())
                .unwrap_or_default();
            let connect = |thread: usize, orders| {
                Worker::connect(orders, Http::new(&host, paths, thread * 7919))
            };
            run_workers(config, milestones, connect, Worker::run)
        }
        (Ask::Echo(bytes), Driver::IoUring) if config.arrivals == Arrivals::Closed => run_workers(
            config,
            milestones,
            |_, orders| RingWorker::connect(orders, *bytes),
            RingWorker::run,
        ),
        (Ask::Churn(bytes), Driver::Epoll) if config.arrivals == Arrivals::Closed => run_workers(
            config,
            milestones,
            |_, orders| ChurnWorker::new(orders, *bytes),
            ChurnWorker::run,
        ),
        (Ask::ChurnExact(message, answer), Driver::Epoll)
            if config.arrivals == Arrivals::Closed =>
        {
            run_workers(
                config,
                milestones,
                |_, orders| ChurnWorker::with(orders, message.as_bytes(), answer.as_bytes()),
                ChurnWorker::run,
            )
        }
        (Ask::Churn(_) | Ask::ChurnExact(..), _) => {
            bail!("connections that come and go make closed loops only, over epoll")
        }
        (_, Driver::IoUring) => {
            bail!("the io_uring client makes closed loops of echo requests only")
        }
    }
}

fn run_exact(
    config: &LoadConfig,
    milestones: &mut dyn Milestones,
    exchanges: &[(String, String)],
) -> anyhow::Result<LoadReport> {
    if exchanges.is_empty() || exchanges.iter().any(|(a, b)| a.is_empty() || b.is_empty()) {
        bail!("there are no messages to exchange, or one is empty");
    }
    run_workers(
        config,
        milestones,
        |thread, orders| Worker::connect(orders, Exact::new(exchanges, thread)),
        Worker::run,
    )
}

// tidy: long function because starting, timing and ending the workers share one set of barriers
fn run_workers<W: Send>(
    config: &LoadConfig,
    milestones: &mut dyn Milestones,
    connect: impl Fn(usize, Orders) -> anyhow::Result<W>,
    run: fn(W, Window) -> anyhow::Result<Counts>,
) -> anyhow::Result<LoadReport> {
    let threads = config.threads.max(1);
    let workers: Vec<W> = (0..threads)
        .map(|thread| connect(thread, orders(config, thread, threads)))
        .collect::<Result<_, _>>()?;
    milestones.connected()?;
    let start = Instant::now();
    let begin = start + config.warm_up;
    let end = begin + config.measure;
    let window = Window { start, begin, end };
    let jobs = workers.into_iter().enumerate().map(|(number, worker)| {
        let core = config
            .cores
            .get(number % config.cores.len().max(1))
            .copied();
        move || {
            core.map(affinity::pin_current_thread).transpose()?;
            run(worker, window)
        }
    });
    let counts = in_threads(jobs, |failures| pass(window, failures, milestones)).context("load")?;
    Ok(LoadReport::of(config.measure, config.arrivals, &counts))
}

/// Runs jobs in threads of their own, while `lead` runs in this one, and hears of the first that fails. Threads that are done stay until `lead`
/// has returned: a thread that is gone cannot be asked how long it ran.
pub(crate) fn in_threads<T: Send, J: FnOnce() -> anyhow::Result<T> + Send>(
    jobs: impl Iterator<Item = J>,
    lead: impl FnOnce(&Receiver<()>) -> anyhow::Result<()>,
) -> anyhow::Result<Vec<T>> {
    let stay = Mutex::new(());
    let (failed, failures) = channel();
    std::thread::scope(|scope| {
        let told = stay.lock();
        let mut threads = Vec::new();
        for (number, job) in jobs.enumerate() {
            let (stay, failed) = (&stay, failed.clone());
            let work = move || {
                let result = job();
                if result.is_err() {
                    let _ = failed.send(());
                }
                drop(stay.lock());
                result
            };
            let name = format!("load-{number}");
            threads.push(
                std::thread::Builder::new()
                    .name(name)
                    .spawn_scoped(scope, work)?,
            );
        }
        let led = lead(&failures);
        drop(told);
        let join = |thread: ScopedJoinHandle<'_, anyhow::Result<T>>| {
            thread.join().unwrap_or_else(|_| bail!("a thread panicked"))
        };
        // What a thread says of its failure is more than that it failed.
        let results = threads
            .into_iter()
            .map(join)
            .collect::<anyhow::Result<Vec<T>>>()?;
        led.map(|()| results)
    })
}

/// Waits for both ends of the window and passes the milestones there; ends early when something is heard of a failure.
pub(crate) fn pass(
    window: Window,
    failures: &Receiver<()>,
    milestones: &mut dyn Milestones,
) -> anyhow::Result<()> {
    let wait = |until: Instant| match failures
        .recv_timeout(until.saturating_duration_since(Instant::now()))
    {
        Ok(()) => bail!("a thread failed"),
        Err(_) => Ok(()),
    };
    wait(window.begin)?;
    milestones.begun()?;
    wait(window.end)?;
    milestones.ended()
}

fn orders(config: &LoadConfig, thread: usize, threads: usize) -> Orders {
    let connections =
        config.connections / threads + usize::from(thread < config.connections % threads);
    Orders {
        targets: config.targets.clone(),
        connections,
        arrivals: config.arrivals.share(thread as u64, threads as u64),
        congestion: config.congestion.clone(),
        spin: config.spin,
    }
}

impl LoadReport {
    /// The sum of what several threads counted in `measure`.
    pub fn of(measure: Duration, arrivals: Arrivals, counts: &[Counts]) -> Self {
        let seconds = measure.as_secs_f64();
        let sum = |field: fn(&Counts) -> u64| counts.iter().map(field).sum::<u64>();
        let mut latency = Recorder::new();
        counts.iter().for_each(|c| latency.merge(&c.latency));
        let requests = sum(|c| c.completed);
        Self {
            seconds,
            requests,
            rate: requests as f64 / seconds,
            offered: arrivals.rate(),
            failed: sum(|c| c.failed),
            reconnects: sum(|c| c.reconnects),
            dropped: sum(|c| c.dropped),
            unanswered: sum(|c| c.unanswered),
            bytes_in: sum(|c| c.bytes_in) as f64 / seconds,
            bytes_out: sum(|c| c.bytes_out) as f64 / seconds,
            latency: latency.summary(),
        }
    }
}

/// For tests: loads again, for longer, until there are answers. A busy machine may leave a short window without any.
#[cfg(test)]
pub(crate) fn answered(mut load: impl FnMut(Duration) -> LoadReport) -> LoadReport {
    for attempt in 1..=20 {
        let report = load(Duration::from_millis(100) * attempt);
        if report.requests > 0 && report.latency.count > 0 {
            return report;
        }
    }
    panic!("no answers in twenty windows")
}

#[cfg(test)]
mod tests;
