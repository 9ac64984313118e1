//! More clients than there is room for, and very many at once.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::sync::Mutex;

use anyhow::{Context, Result, ensure};
use rustix::process::{Resource, getrlimit};
use sidecore_e2e::Ground;
use sidecore_e2e::ground::{ENGINE, available};
use sidecore_e2e::service::{Door, Kind, Service};
use sidecore_e2e::transfers::{web_config, web_server};

/// Bytes that a client sends with its first segments, before anybody has accepted it.
const REQUEST: usize = 3000;

fn echo(ground: &Ground, client: usize) -> Result<()> {
    let mut stream = ground.connect(7).context("connect")?;
    let request = vec![client as u8; REQUEST];
    stream.write_all(&request).context("write")?;
    stream.shutdown(Shutdown::Write)?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).context("read")?;
    ensure!(answer == request, "{} bytes came back", answer.len());
    Ok(())
}

#[test]
fn a_full_accept_queue_delays_and_refuses_nobody() -> Result<()> {
    if !available() {
        return Ok(());
    }
    let ground = Ground::new()?;
    let door = Door {
        backlog: 4,
        accepts: 1,
    };
    let _slow = Service::behind(door, ground.ual()?, (ENGINE, 7).into(), Kind::Echo)?;
    // It has one accept only, and this one keeps it.
    let mut first = ground.connect(7)?;
    first.write_all(b"x")?;
    first.read_exact(&mut [0])?;
    let failures = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for client in 0..24 {
            let (ground, failures) = (&ground, &failures);
            scope.spawn(move || {
                if let Err(error) = echo(ground, client) {
                    failures
                        .lock()
                        .expect("poisoned")
                        .push(format!("{client}: {error:#}"));
                }
            });
        }
        ground.eventually("the queue is full", |stat| {
            let full = |name: &str| stat["stack"][name].as_u64().unwrap_or(0);
            full("accept_queue_full") + full("syn_accept_queue_full") > 0
        });
        drop(first);
    });
    let failures = failures.into_inner().expect("poisoned");
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    let held_up =
        ground.figure("/stack/accept_queue_full") + ground.figure("/stack/syn_accept_queue_full");
    assert!(held_up > 0, "the queue was never full");
    assert_eq!(ground.figure("/stack/incoming_refused"), 0);
    assert_eq!(ground.figure("/stack/syn_evicted"), 0);
    assert_eq!(ground.figure("/stack/tcp_resets_out"), 0);
    Ok(())
}

/// Clients of wrk, and descriptors that it and we need beside them.
const CLIENTS: u64 = 10_000;
const SPARE: u64 = 200;

#[test]
fn ten_thousand_clients_at_once() -> Result<()> {
    if !available() {
        return Ok(());
    }
    sidecore_userver::raise_descriptor_limit();
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let clients = CLIENTS.min(limit.saturating_sub(SPARE));
    if clients < CLIENTS {
        eprintln!("only {limit} descriptors: {clients} clients");
    }
    // A request of each, and more, while others have the engine's core.
    let ground = Ground::with_queue(6 * CLIENTS as u32)?;
    let root = ground.folder().join("www");
    std::fs::create_dir(&root)?;
    std::fs::write(root.join("index.html"), [b'x'; 1024])?;
    let server = web_server(&ground, web_config(&root, 80))?;
    let output = ground
        .command("wrk")
        .args(["-t", "2", "-d", "5s", "--timeout", "60s", "-c"])
        .arg(clients.to_string())
        .arg(format!(
            "http://{}/index.html",
            SocketAddr::from((ENGINE, 80))
        ))
        .output()
        .context("wrk")?;
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{output:?}");
    // The line is there only if something went wrong.
    assert!(!said.contains("Socket errors"), "{said}");
    assert!(!said.contains("Non-2xx"), "{said}");
    let stat = ground.stat();
    let opened = ground.figure("/stack/passive_established");
    assert!(opened >= clients, "only {opened} connections\n{said}");
    assert_eq!(stat["stack"]["incoming_refused"], 0);
    assert_eq!(stat["stack"]["syn_evicted"], 0);
    assert_eq!(stat["nic"]["device_drops"]["to_engine"], 0, "{said}");
    assert_eq!(stat["nic"]["device_drops"]["from_engine"], 0, "{said}");
    assert_eq!(stat["nic"]["tx_dropped"], 0);
    server.stop().map_err(|error| anyhow::anyhow!("{error}"))?;
    Ok(())
}
