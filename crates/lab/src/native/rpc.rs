//! Both ends of every connection on Sidecore, in one process with two processors.
//!
//! | shape | first processor | second processor |
//! |---|---|---|
//! | [`Shape::One`] | engine, client and server in one thread | — |
//! | [`Shape::Double`] | as `One` | another such engine |
//! | [`Shape::Apart`] | the engine | client and server in one thread |
//! | [`Shape::Wire`] | an engine and the server in one thread | an engine and the client in one thread, joined by the wire driver |

use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use serde::{Deserialize, Serialize};
use sidecore_client::{Region, Ual};
use sidecore_engine::{Device, Engine, EngineConfig, EngineControlHandle, IdlePolicy};
use sidecore_nic::AnyNic;
use sidecore_nic::wire::{self, Wire, WireConfig};
use sidecore_sys::affinity;

use super::churn::ChurnClient;
use super::client::EchoClient;
use super::server::EchoServer;
use super::{
    Application, Both, Client, Ends, HERE, THERE, at, drive_within, engine_config, open_within,
    wishes, within,
};
use crate::load::arrivals::Arrivals;
use crate::load::worker::{Counts, Window};
use crate::load::{LoadReport, Milestones, in_threads, pass};

const PORT: u16 = 7;

/// Where connections that come and go go to: each of 127.0.0.1 and up has its own local ports.
pub const ADDRESSES: u8 = 64;

/// How long connections that come and go stay in TIME-WAIT: as long as the kernel keeps a port before it uses it again (`tcp_tw_reuse`).
const TIME_WAIT: Duration = Duration::from_secs(1);

/// How long all connections may take to come up.
const START: Duration = Duration::from_secs(20);

/// Which thread has what.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Shape {
    /// Everything in one thread.
    One,
    /// Twice everything in one thread.
    Double,
    /// The engine in one thread, both applications in another.
    Apart,
    /// Two engines, each in one thread with its application, joined by a wire.
    Wire,
}

/// Both ends, and their load.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RpcConfig {
    /// Which thread has what.
    pub shape: Shape,
    /// Connections, over all engines.
    pub connections: usize,
    /// Bytes of a message.
    pub bytes: usize,
    /// Every message goes over a connection of its own, opened and closed for it. Closed loops only, and not [`Shape::Apart`].
    pub churn: bool,
    /// Closed or open loop.
    pub arrivals: Arrivals,
    /// The two processors.
    pub cores: [usize; 2],
    /// Time before measuring begins.
    pub warm_up: Duration,
    /// Measured time.
    pub measure: Duration,
}

/// What a client's thread and the one that leads have to say to each other.
struct Cue {
    /// All connections are up.
    ready: Sender<()>,
    /// When to begin, and until when.
    window: Receiver<Window>,
}

/// What threads share.
struct Stage<'a> {
    config: &'a RpcConfig,
    /// Clients are done; servers may end.
    over: AtomicBool,
}

impl Stage<'_> {
    /// Lets a client run its window, driven by `drive`, which does what keeps it going until its argument says so.
    fn perform<A: Application, C: Client>(
        &self,
        application: &mut A,
        cue: &Cue,
        client: fn(&mut A) -> &mut C,
        mut drive: impl FnMut(
            &mut A,
            &mut dyn FnMut(&mut A) -> anyhow::Result<bool>,
        ) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let last = Instant::now() + START;
        drive(application, &mut |application| {
            if Instant::now() > last {
                bail!("not all connections came up");
            }
            Ok(client(application).is_connected())
        })?;
        cue.ready.send(()).ok().context("nobody leads")?;
        drive(
            application,
            &mut |application| match cue.window.try_recv() {
                Ok(window) => client(application).begin(window).map(|()| true),
                Err(_) => Ok(self.over.load(Ordering::Relaxed)),
            },
        )?;
        drive(application, &mut |application| {
            Ok(client(application).is_over())
        })?;
        Ok(())
    }

    /// Everything in one thread, on this processor.
    fn one(
        &self,
        core: usize,
        connections: usize,
        arrivals: Arrivals,
        cue: &Cue,
    ) -> anyhow::Result<Counts> {
        affinity::pin_current_thread(core)?;
        let (mut engine, control) = Engine::new(self.engine(HERE, Device::None))?;
        let ends = open_within(&mut engine, &control, connections)?;
        let server = EchoServer::new(ends, at(Ipv4Addr::UNSPECIFIED, PORT))?;
        engine.turn();
        let engine = &mut engine;
        let (ends, region) = self.ends_within(engine, &control, connections)?;
        if self.config.churn {
            let targets = (1..=ADDRESSES).map(|n| at(Ipv4Addr::new(127, 0, 0, n), PORT));
            let bytes = self.config.bytes;
            let client = ChurnClient::new(ends, region, targets.collect(), connections, bytes)?;
            self.both(engine, Both(server, client), cue)
        } else {
            let client = self.echo_client(ends, region, connections)?;
            self.both(engine, Both(server, client.with(arrivals)), cue)
        }
    }

    fn both<C: Client>(
        &self,
        engine: &mut Engine,
        mut both: Both<EchoServer, C>,
        cue: &Cue,
    ) -> anyhow::Result<Counts> {
        self.perform(
            &mut both,
            cue,
            |both| &mut both.1,
            |both, until| drive_within(engine, both, until),
        )?;
        Ok(both.1.counted())
    }

    fn engine(&self, address: Ipv4Addr, device: Device) -> EngineConfig {
        let mut config = engine_config(address, 24, device, IdlePolicy::Poll);
        if self.config.churn {
            config.tcp.time_wait = TIME_WAIT;
        }
        config
    }

    fn ends_within(
        &self,
        engine: &mut Engine,
        control: &EngineControlHandle,
        connections: usize,
    ) -> anyhow::Result<(Ends, Region)> {
        let ends = open_within(engine, control, connections)?;
        let region = within(engine, || {
            Ok(ends.ual.allocate_region(self.config.bytes as u64, false)?)
        })?;
        Ok((ends, region))
    }

    fn echo_client(
        &self,
        ends: Ends,
        region: Region,
        connections: usize,
    ) -> anyhow::Result<EchoClient> {
        EchoClient::new(ends, region, at(HERE, PORT), connections, self.config.bytes)
    }

    /// The engine on the first processor, both applications in this thread on the second.
    fn apart(&self, cue: &Cue) -> anyhow::Result<Counts> {
        let [first, second] = self.config.cores;
        let connections = self.config.connections;
        let mut config = self.engine(HERE, Device::None);
        config.core = Some(first);
        let engine = Engine::spawn(config)?;
        affinity::pin_current_thread(second)?;
        let open = || Ends::of(Ual::open_on(engine.connect()?, &wishes(connections))?);
        let server = EchoServer::new(open()?, at(HERE, PORT))?;
        let ends = open()?;
        let region = ends.ual.allocate_region(self.config.bytes as u64, false)?;
        let client = self.echo_client(ends, region, connections)?;
        let mut both = Both(server, client.with(self.config.arrivals));
        self.perform(&mut both, cue, |both| &mut both.1, drive_spinning)?;
        Ok(both.1.counted())
    }

    /// The server's end of a wire.
    fn wire_server(&self, wire: Wire, listening: &Sender<()>) -> anyhow::Result<()> {
        affinity::pin_current_thread(self.config.cores[0])?;
        let device = Device::Nic(Box::new(AnyNic::Wire(wire)));
        let (mut engine, control) = Engine::new(self.engine(HERE, device))?;
        let ends = open_within(&mut engine, &control, self.config.connections)?;
        let mut server = EchoServer::new(ends, at(HERE, PORT))?;
        engine.turn();
        let _ = listening.send(());
        drive_within(&mut engine, &mut server, |_| {
            Ok(self.over.load(Ordering::Relaxed))
        })?;
        Ok(())
    }

    /// The client's end of a wire.
    fn wire_client(
        &self,
        wire: Wire,
        listening: &Receiver<()>,
        cue: &Cue,
    ) -> anyhow::Result<Counts> {
        affinity::pin_current_thread(self.config.cores[1])?;
        let device = Device::Nic(Box::new(AnyNic::Wire(wire)));
        let (mut engine, control) = Engine::new(self.engine(THERE, device))?;
        listening.recv().context("the server did not come up")?;
        let connections = self.config.connections;
        let engine = &mut engine;
        let (ends, region) = self.ends_within(engine, &control, connections)?;
        if self.config.churn {
            let (targets, bytes) = (vec![at(HERE, PORT)], self.config.bytes);
            let client = ChurnClient::new(ends, region, targets, connections, bytes)?;
            self.alone(engine, client, cue)
        } else {
            let client = self.echo_client(ends, region, connections)?;
            self.alone(engine, client.with(self.config.arrivals), cue)
        }
    }

    fn alone<C: Client>(
        &self,
        engine: &mut Engine,
        mut client: C,
        cue: &Cue,
    ) -> anyhow::Result<Counts> {
        self.perform(
            &mut client,
            cue,
            |client| client,
            |client, until| drive_within(engine, client, until),
        )?;
        Ok(client.counted())
    }
}

/// Steps applications without sleeping; their engine is elsewhere.
fn drive_spinning<A: Application>(
    application: &mut A,
    until: &mut dyn FnMut(&mut A) -> anyhow::Result<bool>,
) -> anyhow::Result<()> {
    loop {
        for _ in 0..64 {
            if application.step()? == 0 {
                std::hint::spin_loop();
            }
        }
        if until(application)? {
            return Ok(());
        }
    }
}

/// What a thread does; a server counts nothing.
type Job<'a> = Box<dyn FnOnce() -> anyhow::Result<Option<Counts>> + Send + 'a>;

/// The threads of a shape.
fn jobs<'a>(stage: &'a Stage<'_>, mut cue: impl FnMut() -> Cue) -> anyhow::Result<Vec<Job<'a>>> {
    let config = stage.config;
    let mut jobs: Vec<Job<'a>> = Vec::new();
    let mut one = |core: usize, connections: usize, arrivals: Arrivals| {
        let cue = cue();
        let job = move || {
            let counts = stage.one(core, connections.max(1), arrivals, &cue);
            counts.map(Some)
        };
        jobs.push(Box::new(job));
    };
    match config.shape {
        Shape::One => one(config.cores[0], config.connections, config.arrivals),
        Shape::Double => {
            let share = |part| config.arrivals.share(part, 2);
            one(config.cores[0], config.connections.div_ceil(2), share(0));
            one(config.cores[1], config.connections / 2, share(1));
        }
        Shape::Apart => {
            let cue = cue();
            jobs.push(Box::new(move || stage.apart(&cue).map(Some)));
        }
        Shape::Wire => {
            let (here, there) = wire::pair(&WireConfig::default())?;
            let (cue, (listening, listens)) = (cue(), channel());
            jobs.push(Box::new(move || {
                stage.wire_server(here, &listening).map(|()| None)
            }));
            jobs.push(Box::new(move || {
                stage.wire_client(there, &listens, &cue).map(Some)
            }));
        }
    }
    Ok(jobs)
}

/// Makes both ends, loads and reports. Blocks for warm-up and measured time.
pub fn run(config: &RpcConfig, milestones: &mut dyn Milestones) -> anyhow::Result<LoadReport> {
    if config.churn && (config.shape == Shape::Apart || config.arrivals != Arrivals::Closed) {
        bail!("connections that come and go make closed loops only, and not with the engine apart");
    }
    let stage = Stage {
        config,
        over: AtomicBool::new(false),
    };
    let (ready, is_ready) = channel();
    let mut windows = Vec::new();
    let cue = || {
        let (sender, window) = channel();
        windows.push(sender);
        let ready = ready.clone();
        Cue { ready, window }
    };
    let jobs = jobs(&stage, cue)?;
    let counts = in_threads(jobs.into_iter(), |failures| {
        let _over = Over(&stage.over);
        lead(config, &is_ready, &windows, failures, milestones)
    })?;
    let counts: Vec<Counts> = counts.into_iter().flatten().collect();
    Ok(LoadReport::of(config.measure, config.arrivals, &counts))
}

/// Tells everybody that it is over, also when something failed.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Waits for all clients, sets their window, and passes the milestones.
fn lead(
    config: &RpcConfig,
    is_ready: &Receiver<()>,
    windows: &[Sender<Window>],
    failures: &Receiver<()>,
    milestones: &mut dyn Milestones,
) -> anyhow::Result<()> {
    let last = Instant::now() + START + Duration::from_secs(5);
    for _ in windows {
        while is_ready.recv_timeout(Duration::from_millis(10)).is_err() {
            if failures.try_recv().is_ok() || Instant::now() > last {
                bail!("a client did not come up");
            }
        }
    }
    milestones.connected()?;
    let start = Instant::now();
    let begin = start + config.warm_up;
    let end = begin + config.measure;
    let window = Window { start, begin, end };
    for sender in windows {
        sender.send(window).ok().context("a client has ended")?;
    }
    pass(window, failures, milestones)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::Unwatched;

    fn config(shape: Shape, bytes: usize, arrivals: Arrivals) -> RpcConfig {
        let cores = affinity::allowed_cores().unwrap();
        RpcConfig {
            shape,
            connections: 8,
            bytes,
            churn: false,
            arrivals,
            cores: [cores[0], *cores.last().unwrap()],
            warm_up: Duration::from_millis(10),
            measure: Duration::from_millis(250),
        }
    }

    /// Threads that never sleep are slow where others want the same processors.
    fn answered(mut config: RpcConfig) -> LoadReport {
        crate::load::answered(|measure| {
            config.measure = measure;
            run(&config, &mut Unwatched).unwrap()
        })
    }

    fn check(shape: Shape, bytes: usize, arrivals: Arrivals) {
        let report = answered(config(shape, bytes, arrivals));
        assert_eq!((report.failed, report.dropped), (0, 0), "{shape:?}");
    }

    #[test]
    fn one_thread_holds_everything() {
        check(Shape::One, 64, Arrivals::Closed);
    }

    #[test]
    fn two_threads_hold_everything_twice() {
        check(Shape::Double, 64, Arrivals::Closed);
    }

    #[test]
    fn the_engine_apart_serves_both_applications() {
        check(Shape::Apart, 64, Arrivals::Closed);
    }

    #[test]
    fn two_engines_talk_over_a_wire() {
        check(Shape::Wire, 64, Arrivals::Closed);
    }

    #[test]
    fn large_messages_go_by_reference() {
        check(Shape::One, 20_000, Arrivals::Closed);
    }

    #[test]
    fn an_open_loop_asks_at_its_own_rate() {
        for shape in [Shape::One, Shape::Double] {
            check(shape, 64, Arrivals::Poisson(2000.0, 1));
        }
    }

    #[test]
    fn connections_come_and_go() {
        for shape in [Shape::One, Shape::Wire] {
            let mut config = config(shape, 64, Arrivals::Closed);
            config.churn = true;
            assert_eq!(answered(config).reconnects, 0, "{shape:?}");
        }
        let mut config = config(Shape::Apart, 64, Arrivals::Closed);
        config.churn = true;
        assert!(run(&config, &mut Unwatched).is_err());
    }
}
