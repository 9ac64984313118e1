//! Applications that behave badly beside one that does not.

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use std::sync::Arc;

use anyhow::{Result, ensure};
use serde_json::Value;
use sidecore_abi::{Command, DtiHandle, EventKind, Operation, Status};
use sidecore_client::{Ual, UalConfig};
use sidecore_e2e::Ground;
use sidecore_e2e::ground::{ENGINE, available};
use sidecore_e2e::service::{Door, Kind, Service};
use sidecore_e2e::transfers::{web_config, web_server};

/// Round trips and files that the innocent one must serve beside each of the others.
const ROUND_TRIPS: usize = 1000;
const FILES: usize = 5;

/// DTIs that one application may have, in these tests.
const DTIS: u32 = 20_000;

fn ground() -> Result<Ground> {
    Ground::with(|config| config.policy.dtis = DTIS)
}

/// A thread of a bad application, until it is dropped.
struct Bad {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<()>>>,
}

impl Bad {
    fn start(mut step: impl FnMut() -> Result<()> + Send + 'static) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                step()?;
                // It must not take the core of those who are measured.
                std::thread::sleep(Duration::from_micros(20));
            }
            Ok(())
        });
        Self {
            stop,
            thread: Some(thread),
        }
    }
}

impl Drop for Bad {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(Ok(Err(error))) = self.thread.take().map(JoinHandle::join) {
            eprintln!("the bad one: {error:#}");
        }
    }
}

/// The innocent one: an echo, and files by curl. All must be right.
fn serve_innocently(ground: &Ground) -> Result<()> {
    let _echo = Service::start(ground.ual()?, (ENGINE, 7).into(), Kind::Echo)?;
    let mut stream = ground.connect(7)?;
    stream.set_nodelay(true)?;
    for round in 0..ROUND_TRIPS {
        let sent = [round as u8; 64];
        stream.write_all(&sent)?;
        let mut back = [0; 64];
        stream.read_exact(&mut back)?;
        ensure!(back == sent, "round {round}: {back:?}");
    }
    let root = ground.folder().join("www");
    std::fs::create_dir(&root)?;
    let file: Vec<u8> = (0..100_000u32).map(|i| (i / 7) as u8).collect();
    std::fs::write(root.join("file"), &file)?;
    let server = web_server(ground, web_config(&root, 80))?;
    for _ in 0..FILES {
        let output = ground
            .command("curl")
            .args(["-sS", "--max-time", "60"])
            .arg(format!("http://{}/file", SocketAddr::from((ENGINE, 80))))
            .output()?;
        ensure!(output.status.success(), "{output:?}");
        ensure!(output.stdout == file, "{} bytes came", output.stdout.len());
    }
    server.stop().map_err(|error| anyhow::anyhow!("{error}"))?;
    Ok(())
}

/// Figures of the first UAL: the bad one's.
fn bad_one(ground: &Ground) -> Value {
    ground.stat()["uals"][0].clone()
}

fn nop(evq: u16) -> Command {
    let mut nop = Command::new(Operation::Nop, DtiHandle::default(), 0);
    nop.evq = evq;
    nop
}

#[test]
fn a_flood_of_commands_on_many_lanes() -> Result<()> {
    if !available() {
        return Ok(());
    }
    let ground = ground()?;
    let config = UalConfig {
        lanes: 64,
        ..UalConfig::default()
    };
    let ual = Ual::open_on(ground.engine().connect()?, &config)?;
    let mut lanes = (0..64).map(|_| ual.lane()).collect::<Result<Vec<_>, _>>()?;
    let evq = ual.event_queue()?.id().index();
    let before = bad_one(&ground)["counters"]["commands"].as_u64();
    let bad = Bad::start(move || {
        for lane in &mut lanes {
            while lane.free() > 0 {
                lane.post(nop(evq))?;
            }
            lane.flush();
        }
        let _alive = &ual;
        Ok(())
    });
    serve_innocently(&ground)?;
    let executed = bad_one(&ground)["counters"]["commands"].as_u64();
    assert!(
        executed > before.map(|before| before + 100_000),
        "{executed:?}"
    );
    assert!(ground.figure("/tables/budgets_used_up") > 0);
    drop(bad);
    Ok(())
}

#[test]
fn commands_whose_answers_nobody_reads() -> Result<()> {
    if !available() {
        return Ok(());
    }
    let ground = ground()?;
    let config = UalConfig {
        lanes: 16,
        evq_order: 3,
        ..UalConfig::default()
    };
    let ual = Ual::open_on(ground.engine().connect()?, &config)?;
    let mut lanes = (0..16).map(|_| ual.lane()).collect::<Result<Vec<_>, _>>()?;
    let evq = ual.event_queue()?;
    let bad = Bad::start(move || {
        for lane in &mut lanes {
            while lane.free() > 0 {
                lane.nop(&evq, 1)?;
            }
            lane.flush();
        }
        let _alive = &ual;
        Ok(())
    });
    ground.eventually("its queue is full", |stat| {
        stat["uals"][0]["overflowing"].as_u64() > Some(0)
    });
    serve_innocently(&ground)?;
    let bad_one = bad_one(&ground);
    // One turn's worth of answers waits at most; the engine reads no more of its commands.
    assert!(bad_one["overflowing"].as_u64() <= Some(64), "{bad_one:#}");
    assert!(
        bad_one["counters"]["commands"].as_u64() < Some(1000),
        "{bad_one:#}"
    );
    assert_eq!(bad_one["condemned"], false);
    drop(bad);
    Ok(())
}

#[test]
fn connections_that_send_to_an_application_that_does_not_read() -> Result<()> {
    if !available() {
        return Ok(());
    }
    let ground = ground()?;
    let config = UalConfig {
        evq_order: 3,
        pool_bytes: 4 << 20,
        ..UalConfig::default()
    };
    let ual = Ual::open_on(ground.engine().connect()?, &config)?;
    let door = Door {
        backlog: 64,
        accepts: 8,
    };
    let _deaf = Service::behind(door, ual, (ENGINE, 5).into(), Kind::Deaf)?;
    let mut peers = Vec::new();
    for _ in 0..24 {
        let mut peer = ground.connect(5)?;
        peer.set_write_timeout(Some(Duration::from_millis(20)))?;
        // Until the window is closed.
        while peer.write(&[1; 65536]).is_ok() {}
        peers.push(peer);
    }
    serve_innocently(&ground)?;
    let bad_one = bad_one(&ground);
    assert_eq!(bad_one["condemned"], false, "{bad_one:#}");
    assert!(
        bad_one["counters"]["events"].as_u64() <= Some(8 + 2),
        "{bad_one:#}"
    );
    drop(peers);
    Ok(())
}

#[test]
fn as_many_sockets_as_are_allowed() -> Result<()> {
    if !available() {
        return Ok(());
    }
    let ground = ground()?;
    let config = UalConfig {
        dtis: 10 * DTIS,
        lane_order: 16,
        evq_order: 16,
        ..UalConfig::default()
    };
    let ual = Ual::open_on(ground.engine().connect()?, &config)?;
    assert_eq!(ual.granted().dtis, DTIS);
    let (mut lane, mut evq) = (ual.lane()?, ual.event_queue()?);
    // Names beyond the limit, too: the client's library would not post these.
    for index in 0..2 * DTIS {
        let handle = DtiHandle {
            index,
            generation: 1,
        };
        let mut command = Command::new(Operation::CreateStream, handle, u64::from(index));
        command.body[0] = u64::from(evq.id().index()) | u64::from(evq.id().index()) << 16;
        lane.post(command)?;
    }
    lane.flush();
    ground.eventually("all are answered", |stat| {
        stat["uals"][0]["counters"]["refused"].as_u64() == Some(u64::from(DTIS))
    });
    assert_eq!(bad_one(&ground)["dtis"], DTIS);
    serve_innocently(&ground)?;
    let mut refused = 0;
    while let Some(event) = evq.poll() {
        assert_eq!(event.kind, EventKind::Completion);
        assert_eq!(event.status, Status::NoResources);
        assert!(event.cookie >= u64::from(DTIS));
        refused += 1;
    }
    assert_eq!(refused, DTIS);
    drop((lane, evq, ual));
    ground.eventually("all is given back", |stat| {
        stat["dtis"] == 0 && stat["uals"].as_array().is_some_and(Vec::is_empty)
    });
    Ok(())
}
