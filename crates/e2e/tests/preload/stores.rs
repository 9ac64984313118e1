//! Stores of keys and values: redis with its replication, memcached under load.

use std::fmt::Write as _;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde_json::Value;
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

/// How the bytes of all connections go, other than in shared memory.
fn not_fast(stat: &Value) -> usize {
    let all = stat["connections"].as_array();
    let slow = all.map(|all| all.iter().filter(|c| c["mode"] != "fast").count());
    slow.unwrap_or(usize::MAX)
}

/// A server that begins with what the first has saved, in the kernel's hands; its digest.
fn digest_of_saved(ground: &Ground, folder: &Path, append_only: bool) -> Result<String> {
    let socket = folder.join("saved.sock");
    let mut redis = Command::new("redis-server");
    redis.args(["--port", "0", "--save", "", "--enable-debug-command", "yes"]);
    redis.args(["--appendonly", if append_only { "yes" } else { "no" }]);
    redis
        .arg("--dir")
        .arg(folder)
        .arg("--unixsocket")
        .arg(&socket);
    let mut server = Server::spawn(redis)?;
    let begun = Instant::now();
    let digest = loop {
        let mut cli = Command::new("redis-cli");
        cli.arg("-s").arg(&socket).args(["debug", "digest"]);
        let told = finish(cli).map(|told| String::from_utf8_lossy(&told.stdout).trim().to_owned());
        match told {
            Ok(digest) if digest.len() == 40 => break digest,
            _ => anyhow::ensure!(
                begun.elapsed() < PATIENCE,
                "it does not load: {}",
                ground.name()
            ),
        }
        std::thread::sleep(Duration::from_millis(50));
    };
    server.end();
    Ok(digest)
}

#[test]
fn redis_saves_in_children_while_it_serves() -> Result<()> {
    const CLIENTS: usize = 200;
    const ROUNDS: usize = 40;
    if !available() || !have(&["redis-server", "redis-cli", "python3"]) {
        return Ok(());
    }
    let ground = Ground::new()?;
    let server = Server::start(&ground, redis(&ground, 6379)?, engine(6379))?;
    let mut clients = ground.command("python3");
    clients.arg(script("redis_saving.py"));
    clients.args([&ENGINE.to_string(), "6379"]);
    clients.args([&CLIENTS.to_string(), &ROUNDS.to_string()]);
    clients.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut clients = clients.spawn()?;
    let mut told = String::new();
    let out = clients.stdout.take().context("what it says")?;
    BufReader::new(out).read_line(&mut told)?;
    assert_eq!(told.trim(), (3 * CLIENTS * ROUNDS).to_string());
    // The children are gone; nobody but the server has the connections.
    ground.eventually("all connections are fast", |stat| {
        let all = stat["connections"].as_array().map_or(0, Vec::len);
        all > CLIENTS && not_fast(stat) == 0 && stat["in_custody"] == 0
    });
    server.assert_fast(&ground)?;
    drop(clients.stdin.take());
    assert!(clients.wait()?.success());
    // What the children wrote is what the server has.
    let digest = ask(&ground, 6379, &["debug", "digest"])?;
    assert_eq!(digest.len(), 40, "{digest}");
    assert_eq!(ask(&ground, 6379, &["dbsize"])?, (CLIENTS * 8).to_string());
    for command in ["bgsave", "bgrewriteaof"] {
        let answer = ask(&ground, 6379, &[command])?;
        assert!(answer.starts_with("Background"), "{answer}");
        saved(&ground)?;
    }
    let folder = ground.folder().join("redis6379");
    drop(server);
    assert_eq!(
        digest_of_saved(&ground, &folder, false)?,
        digest,
        "dump.rdb"
    );
    assert_eq!(
        digest_of_saved(&ground, &folder, true)?,
        digest,
        "appendonlydir"
    );
    ground.eventually("nothing is left", |stat| {
        stat["dtis"] == 0 && stat["in_custody"] == 0
    });
    Ok(())
}

/// Waits until no child saves.
fn saved(ground: &Ground) -> Result<()> {
    let begun = Instant::now();
    loop {
        let info = ask(ground, 6379, &["info", "persistence"])?;
        let busy = ["rdb_bgsave_in_progress:1", "aof_rewrite_in_progress:1"];
        if !busy.iter().any(|busy| info.contains(busy)) {
            assert!(info.contains("rdb_last_bgsave_status:ok"), "{info}");
            assert!(info.contains("aof_last_bgrewrite_status:ok"), "{info}");
            return Ok(());
        }
        anyhow::ensure!(begun.elapsed() < PATIENCE, "it saves for ever");
        std::thread::sleep(Duration::from_millis(50));
    }
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
