//! 100 000 connections at once between two engines joined by a wire, both driven turn by turn with their applications in one thread.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use sidecore_abi::{Event, EventKind, Status};
use sidecore_client::{Dti, EventQueue, Lane, Ual, UalConfig};
use sidecore_engine::{Device, Engine, EngineConfig, EngineControlHandle, Turn};
use sidecore_nic::{WireConfig, wire};

const CONNECTIONS: usize = 100_000;
/// One client has some ten thousand ports to a server's one.
const LISTENERS: usize = 5;
/// Handshakes, or requests, at a time.
const AT_A_TIME: usize = 512;
/// Accepts that wait on each listener.
const ACCEPTS: usize = 512;

/// What it all may take at most, on a machine that does much else.
const TIME: Duration = Duration::from_secs(240);

struct Side {
    engine: Engine,
    control: EngineControlHandle,
    lane: Lane,
    evq: EventQueue,
    ual: Ual,
}

impl Side {
    fn new(address: &str, nic: sidecore_nic::Wire) -> Result<Self> {
        let config = EngineConfig {
            addresses: vec![address.parse().map_err(anyhow::Error::msg)?],
            device: Device::Nic(Box::new(nic.into())),
            connections: CONNECTIONS + 1024,
            ..EngineConfig::default()
        };
        let (engine, control) = Engine::new(config)?;
        let wishes = UalConfig {
            dtis: (CONNECTIONS + LISTENERS * (ACCEPTS + 1)) as u32,
            lane_order: 14,
            evq_order: 14,
            // Idle connections hold none of it.
            pool_bytes: 8 << 20,
            ..UalConfig::default()
        };
        let ual = Ual::open_on(control.connect()?, &wishes)?;
        Ok(Self {
            engine,
            control,
            lane: ual.lane()?,
            evq: ual.event_queue()?,
            ual,
        })
    }

    fn stream(&mut self) -> Result<Dti> {
        Ok(self.lane.create_stream(&self.evq, &self.evq)?)
    }
}

struct World {
    client: Side,
    server: Side,
    listeners: Vec<Dti>,
    /// Established at the client's side.
    connected: Vec<Dti>,
    accepted: usize,
    /// Answers that the client got.
    answers: usize,
    begun: Instant,
}

fn server_address(listener: usize) -> SocketAddr {
    SocketAddr::from(([10, 9, 0, 2], 8000 + listener as u16))
}

impl World {
    fn new() -> Result<Self> {
        let (a, b) = wire::pair(&WireConfig {
            capacity: 8192,
            ..WireConfig::default()
        })?;
        let mut world = Self {
            client: Side::new("10.9.0.1/24", a)?,
            server: Side::new("10.9.0.2/24", b)?,
            listeners: Vec::new(),
            connected: Vec::with_capacity(CONNECTIONS),
            accepted: 0,
            answers: 0,
            begun: Instant::now(),
        };
        for listener in 0..LISTENERS {
            let dti = world.server.stream()?;
            world.server.lane.bind(dti, server_address(listener), 0)?;
            world.server.lane.listen(dti, 4096, 0)?;
            world.listeners.push(dti);
        }
        for listener in 0..LISTENERS {
            for _ in 0..ACCEPTS {
                world.accept(listener)?;
            }
        }
        world.server.lane.flush();
        Ok(world)
    }

    fn accept(&mut self, listener: usize) -> Result<()> {
        let child = self.server.stream()?;
        let lane = &mut self.server.lane;
        Ok(lane.accept(self.listeners[listener], child, listener as u64)?)
    }

    /// A turn of both engines, and what their applications make of it.
    fn turn(&mut self) -> Result<()> {
        ensure!(self.begun.elapsed() < TIME, "it takes too long: {self:?}");
        self.client.engine.turn();
        self.server.engine.turn();
        while let Some(event) = self.client.evq.poll() {
            self.at_client(&event)?;
        }
        while let Some(event) = self.server.evq.poll() {
            self.at_server(&event)?;
        }
        self.client.lane.flush();
        self.server.lane.flush();
        Ok(())
    }

    fn at_client(&mut self, event: &Event) -> Result<()> {
        match event.kind {
            EventKind::Connected => {
                ensure!(event.status == Status::Ok, "{event:?}");
                self.connected.push(Dti::from(event.dti));
            }
            EventKind::Received if !event.is_empty() => {
                let mut back = [0; 16];
                let n = self.client.ual.pool().read(event, &mut back);
                self.client.lane.return_chunk(event);
                let expected = event.dti.to_word().to_le_bytes();
                ensure!(back[..n] == expected, "{:?} for {event:?}", &back[..n]);
                self.answers += 1;
            }
            _ => bail!("the client got {event:?}"),
        }
        Ok(())
    }

    fn at_server(&mut self, event: &Event) -> Result<()> {
        match event.kind {
            EventKind::Accepted => {
                ensure!(event.status == Status::Ok, "{event:?}");
                self.accepted += 1;
                self.accept(event.cookie as usize)?;
            }
            EventKind::Received if !event.is_empty() => {
                let mut request = [0; 16];
                let n = self.server.ual.pool().read(event, &mut request);
                self.server.lane.return_chunk(event);
                let dti = Dti::from(event.dti);
                self.server.lane.send_inline(dti, &request[..n], 0, 0)?;
            }
            EventKind::Incoming => {}
            EventKind::Completion if event.status == Status::Ok => {}
            _ => bail!("the server got {event:?}"),
        }
        Ok(())
    }

    fn figures(&mut self) -> Result<[Value; 2]> {
        let side = |side: &mut Side| figures(&mut side.engine, &side.control);
        Ok([side(&mut self.client)?, side(&mut self.server)?])
    }
}

/// The figures of an engine whose turns this thread drives.
fn figures(engine: &mut Engine, control: &EngineControlHandle) -> Result<Value> {
    let asking = control.clone();
    let stat = std::thread::spawn(move || asking.stat_json());
    while !stat.is_finished() {
        engine.turn();
    }
    let text = stat.join().expect("it panicked").context("no figures")?;
    Ok(serde_json::from_str(&text)?)
}

impl std::fmt::Debug for World {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("World")
            .field("connected", &self.connected.len())
            .field("accepted", &self.accepted)
            .field("answers", &self.answers)
            .finish_non_exhaustive()
    }
}

/// Resident memory of this process, shared pages included, in bytes.
fn resident() -> Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB"));
    Ok(kib.context("VmRSS")?.parse::<u64>()? << 10)
}

#[test]
fn between_two_engines() -> Result<()> {
    let mut world = World::new()?;
    for _ in 0..8 {
        world.turn()?;
    }
    let before = resident()?;
    let mut opened = 0;
    while world.connected.len() < CONNECTIONS || world.accepted < CONNECTIONS {
        while opened < CONNECTIONS && opened - world.connected.len() < AT_A_TIME {
            let dti = world.client.stream()?;
            let to = server_address(opened % LISTENERS);
            world.client.lane.connect(dti, to, 0)?;
            opened += 1;
        }
        world.client.lane.flush();
        world.turn()?;
    }
    let connected = world.begun.elapsed();
    let grown = resident()?.saturating_sub(before);
    // Both ends of each, with all that engines, applications and the queues between them keep.
    eprintln!(
        "{CONNECTIONS} connections in {connected:?}: {} bytes for both ends of one",
        grown / CONNECTIONS as u64
    );
    let [client, server] = world.figures()?;
    assert_eq!(client["dtis"], CONNECTIONS);
    assert_eq!(client["stack"]["active_established"], CONNECTIONS);
    assert_eq!(server["stack"]["passive_established"], CONNECTIONS);
    for side in [&client, &server] {
        assert_eq!(side["stack"]["connections_ended"], 0);
        assert_eq!(side["stack"]["tcp_resets_out"], 0);
        assert_eq!(side["nic"]["tx_dropped"], 0);
        let ual = &side["uals"][0];
        assert_eq!(
            ual["pool_free"], ual["pool_bytes"],
            "an idle connection holds no buffer"
        );
    }
    // All of them are alive: each asks, with its own name, and is answered.
    let mut waiting: VecDeque<Dti> = world.connected.iter().copied().collect();
    let mut asked = 0;
    while world.answers < CONNECTIONS {
        while asked - world.answers < AT_A_TIME
            && let Some(dti) = waiting.pop_front()
        {
            let name = dti.handle().to_word().to_le_bytes();
            world.client.lane.send_inline(dti, &name, 0, 0)?;
            asked += 1;
        }
        world.client.lane.flush();
        world.turn()?;
    }
    eprintln!(
        "each has asked and was answered after {:?}",
        world.begun.elapsed()
    );
    close_all(world)
}

/// The applications go: everything is given back.
fn close_all(world: World) -> Result<()> {
    let World {
        client,
        server,
        begun,
        ..
    } = world;
    let mut engines = Vec::new();
    for side in [client, server] {
        drop((side.lane, side.evq, side.ual));
        engines.push((side.engine, side.control));
    }
    // Reset by the death policy; the agents hear of it in their own time.
    let (mut left, mut longest) = (u64::MAX, Duration::ZERO);
    while left > 0 {
        ensure!(begun.elapsed() < TIME, "{left} are left");
        for _ in 0..1000 {
            for (engine, _) in &mut engines {
                let turn = Instant::now();
                engine.turn();
                longest = longest.max(turn.elapsed());
            }
        }
        left = 0;
        for (engine, control) in &mut engines {
            // Not yet, if there is no answer.
            left += figures(engine, control).map_or(1, |stat| {
                stat["dtis"].as_u64().unwrap_or(1) + stat["connections_open"].as_u64().unwrap_or(1)
            });
        }
    }
    eprintln!(
        "all is over after {:?}; the longest turn took {longest:?}",
        begun.elapsed()
    );
    for (engine, _) in &mut engines {
        assert_ne!(engine.turn(), Turn::Stopped);
    }
    Ok(())
}
