//! Stores of keys and values: redis with its replication, memcached under load.

use std::fmt::Write as _;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use sidecore_e2e::Ground;
use sidecore_e2e::ground::{ENGINE, available};
use sidecore_e2e::preload::{Meter, Server, command, finish, have};

use crate::{engine, script};

/// How long a replica may take to follow.
const PATIENCE: Duration = Duration::from_secs(60);

/// redis-server on the engine, with its files in a folder of its own.
pub(crate) fn redis(ground: &Ground, port: u16) -> Result<Command> {
    let folder = ground.folder().join(format!("redis{port}"));
    std::fs::create_dir_all(&folder)?;
    let mut redis = command(ground, "redis-server");
    redis.args(["--port", &port.to_string(), "--bind", &ENGINE.to_string()]);
    redis
        .args(["--protected-mode", "no", "--save", "", "--dir"])
        .arg(folder);
    redis.args(["--enable-debug-command", "yes"]);
    Ok(redis)
}

/// A command of redis-cli on the kernel's side; its answer.
fn ask(ground: &Ground, port: u16, arguments: &[&str]) -> Result<String> {
    let mut cli = ground.command("redis-cli");
    cli.args(["-h", &ENGINE.to_string(), "-p", &port.to_string()]);
    cli.args(arguments);
    let told = finish(cli)?;
    Ok(String::from_utf8(told.stdout)?.trim().to_owned())
}

#[test]
fn redis_serves_its_benchmark() -> Result<()> {
    if !available() || !have(&["redis-server", "redis-benchmark"]) {
        return Ok(());
    }
    let ground = Ground::new()?;
    let server = Server::start(&ground, redis(&ground, 6379)?, engine(6379))?;
    let mut benchmark = ground.command("redis-benchmark");
    benchmark.args(["-h", &ENGINE.to_string(), "-p", "6379"]);
    benchmark.args(["-t", "set,get,lpush", "-n", "5000", "-c", "50", "-q"]);
    let told = finish(benchmark)?;
    let told = String::from_utf8_lossy(&told.stdout).into_owned();
    assert_eq!(told.matches("requests per second").count(), 3, "{told}");
    server.assert_fast(&ground)
}

/// So many SETs, each of a key of its own, as redis's protocol has them.
fn sets(from: usize, count: usize) -> String {
    let mut text = String::new();
    for at in from..from + count {
        let (key, value) = (format!("key-{at}"), format!("value-{at}-").repeat(8));
        let (k, v) = (key.len(), value.len());
        // Writing to a string does not fail.
        let _ = write!(
            text,
            "*3\r\n$3\r\nSET\r\n${k}\r\n{key}\r\n${v}\r\n{value}\r\n"
        );
    }
    text
}

/// Writes to the first, and waits until the second has it; both have the same then.
fn write_and_compare(ground: &Ground, from: usize, count: usize) -> Result<()> {
    let file = ground.folder().join("sets");
    std::fs::write(&file, sets(from, count))?;
    let mut pipe = ground.command("redis-cli");
    pipe.args(["-h", &ENGINE.to_string(), "--pipe"]);
    pipe.stdin(std::fs::File::open(&file)?);
    let told = String::from_utf8_lossy(&finish(pipe)?.stdout).into_owned();
    assert!(
        told.contains(&format!("errors: 0, replies: {count}")),
        "{told}"
    );
    // What is written last comes last.
    let last = from.to_string();
    assert_eq!(ask(ground, 6379, &["set", "last", &last])?, "OK");
    let whole = (from + count + 1).to_string();
    let begun = Instant::now();
    while ask(ground, 6380, &["get", "last"])? != last {
        anyhow::ensure!(begun.elapsed() < PATIENCE, "the replica does not follow");
        std::thread::sleep(Duration::from_millis(20));
    }
    for port in [6379, 6380] {
        assert_eq!(ask(ground, port, &["dbsize"])?, whole, "{port}");
    }
    let digest = ask(ground, 6379, &["debug", "digest"])?;
    assert_eq!(digest.len(), 40, "{digest}");
    assert_eq!(digest, ask(ground, 6380, &["debug", "digest"])?);
    Ok(())
}

#[test]
fn redis_replicates() -> Result<()> {
    if !available() || !have(&["redis-server", "redis-cli"]) {
        return Ok(());
    }
    let ground = Ground::new()?;
    let first = Server::start(&ground, redis(&ground, 6379)?, engine(6379))?;
    let replica = || -> Result<Server> {
        let mut replica = redis(&ground, 6380)?;
        replica.args(["--replicaof", &ENGINE.to_string(), "6379"]);
        Server::start(&ground, replica, engine(6380))
    };
    let mut second = replica()?;
    write_and_compare(&ground, 0, 5000).context("as a stream")?;
    first.assert_fast(&ground)?;
    second.assert_fast(&ground)?;
    // SIGKILL; the next one begins with everything at once, from a child that the first forks.
    second.end();
    drop(second);
    let _second = replica()?;
    write_and_compare(&ground, 5000, 1000).context("after a new beginning")
}

#[test]
fn memcached_serves_with_its_threads() -> Result<()> {
    if !available() || !have(&["memcached", "python3"]) {
        return Ok(());
    }
    let ground = Ground::new()?;
    let mut memcached = command(&ground, "memcached");
    memcached.args(["-u", "root", "-t", "4", "-p", "11211", "-U", "0", "-l"]);
    memcached.arg(ENGINE.to_string());
    let server = Server::start(&ground, memcached, engine(11211))?;
    for depth in ["1", "50"] {
        let mut client = ground.command("python3");
        client.arg(script("memcached_load.py"));
        client.args([&ENGINE.to_string(), "11211", depth]);
        assert_eq!(finish(client)?.stdout, b"16\n");
    }
    server.assert_fast(&ground)?;
    // The load on the engine, too.
    let meter = Meter::new(&ground);
    let mut client = command(&ground, "python3");
    client.arg(script("memcached_load.py"));
    client.args([&ENGINE.to_string(), "11211", "50"]);
    assert_eq!(finish(client)?.stdout, b"16\n");
    assert!(meter.connections() == 16 && meter.bytes() > 16 * 200 * 1000);
    Ok(())
}
