//! Servers for clients on the kernel's side.

use anyhow::Result;
use sidecore_e2e::Ground;
use sidecore_e2e::ground::{ENGINE, available};
use sidecore_e2e::preload::{Server, command, end_serving, finish, have, serve};

use crate::{body, engine};

#[test]
fn redis_serves_its_benchmark() -> Result<()> {
    if !available() || !have(&["redis-server", "redis-benchmark"]) {
        return Ok(());
    }
    let ground = Ground::new()?;
    let mut redis = command(&ground, "redis-server");
    redis.args(["--port", "6379", "--bind", &ENGINE.to_string()]);
    redis.args(["--protected-mode", "no", "--save", "", "--dir"]);
    redis.arg(ground.folder());
    let _server = Server::start(&ground, redis, engine(6379))?;
    let mut benchmark = ground.command("redis-benchmark");
    benchmark.args([
        "-h",
        &ENGINE.to_string(),
        "-p",
        "6379",
        "-t",
        "set,get,lpush",
    ]);
    benchmark.args(["-n", "5000", "-c", "50", "-q"]);
    let told = finish(benchmark)?;
    let told = String::from_utf8_lossy(&told.stdout).into_owned();
    assert_eq!(told.matches("requests per second").count(), 3, "{told}");
    Ok(())
}

/// Sets and gets over many connections at once.
const MEMCACHED: &str = r#"
import socket, sys, threading
def client(n):
    s = socket.create_connection((sys.argv[1], int(sys.argv[2])))
    f = s.makefile("rwb")
    for i in range(200):
        value = b"%d-%d-" % (n, i) * 100
        f.write(b"set k%d 0 0 %d\r\n%s\r\nget k%d\r\n" % (n, len(value), value, n)); f.flush()
        assert f.readline() == b"STORED\r\n"
        assert f.readline() == b"VALUE k%d 0 %d\r\n" % (n, len(value))
        assert f.read(len(value) + 7) == value + b"\r\nEND\r\n"
    done.append(n)
done = []
all = [threading.Thread(target=client, args=(n,)) for n in range(16)]
[t.start() for t in all]; [t.join() for t in all]
print(len(done))
"#;

#[test]
fn memcached_serves_with_its_threads() -> Result<()> {
    if !available() || !have(&["memcached", "python3"]) {
        return Ok(());
    }
    let ground = Ground::new()?;
    let mut memcached = command(&ground, "memcached");
    memcached.args(["-u", "root", "-t", "4", "-p", "11211", "-U", "0", "-l"]);
    memcached.arg(ENGINE.to_string());
    let _server = Server::start(&ground, memcached, engine(11211))?;
    let mut client = ground.command("python3");
    client.args(["-c", MEMCACHED, &ENGINE.to_string(), "11211"]);
    assert_eq!(finish(client)?.stdout, b"16\n");
    Ok(())
}

#[test]
fn a_wildcard_listener_serves_both_sides() -> Result<()> {
    if !available() || !have(&["curl", "python3"]) {
        return Ok(());
    }
    let ground = Ground::new()?;
    let whole = body(1_000_000);
    std::fs::write(ground.folder().join("file"), &whole)?;
    let port = free_port()?;
    let mut python = command(&ground, "python3");
    python.args(["-m", "http.server", &port.to_string(), "--directory"]);
    python.arg(ground.folder());
    let _server = Server::start(&ground, python, engine(port))?;
    let mut far = ground.command("curl");
    far.args([
        "-sS",
        "--max-time",
        "50",
        &format!("http://{ENGINE}:{port}/file"),
    ]);
    assert!(finish(far)?.stdout == whole, "from the engine's side");
    let mut near = std::process::Command::new("curl");
    near.args([
        "-sS",
        "--max-time",
        "50",
        &format!("http://127.0.0.1:{port}/file"),
    ]);
    assert!(finish(near)?.stdout == whole, "from the kernel's side");
    Ok(())
}

#[test]
fn a_wildcard_listener_serves_both_versions() -> Result<()> {
    if !available() || !have(&["curl", "python3"]) {
        return Ok(());
    }
    let ground = Ground::with(|config| {
        config.ipv6.enabled = true;
        config.ipv6.dad_transmits = 0;
        let address = "fd77::2/64".parse().expect("a network");
        config.ipv6.addresses.push(address);
    })?;
    let device = ground.name().to_owned();
    ground.ip(&["-6", "addr", "add", "fd77::1/64", "dev", &device, "nodad"])?;
    ground.ip(&["link", "set", "lo", "up"])?;
    let whole = body(1_000_000);
    std::fs::write(ground.folder().join("file"), &whole)?;
    let port = free_port()?;
    let mut python = command(&ground, "python3");
    python.args([
        "-m",
        "http.server",
        &port.to_string(),
        "--bind",
        "::",
        "--directory",
    ]);
    python.arg(ground.folder());
    let _server = Server::start(&ground, python, engine(port))?;
    for host in [ENGINE.to_string(), "[fd77::2]".into()] {
        let mut far = ground.command("curl");
        far.args([
            "-sS",
            "-g",
            "--max-time",
            "50",
            &format!("http://{host}:{port}/file"),
        ]);
        assert!(finish(far)?.stdout == whole, "{host}");
    }
    // And as a client.
    let listener = ground.inside(|| std::net::TcpListener::bind("[fd77::1]:0"))?;
    let address = listener.local_addr()?;
    let server = serve(listener, whole.clone(), || {});
    let mut near = command(&ground, "curl");
    near.args([
        "-sS",
        "-g",
        "--max-time",
        "50",
        &format!("http://{address}/"),
    ]);
    assert!(finish(near)?.stdout == whole, "as a client");
    end_serving(&ground, address, server)
}

/// A port of the test's own: the kernel's side is where the tests run.
fn free_port() -> Result<u16> {
    Ok(std::net::TcpListener::bind("127.0.0.1:0")?
        .local_addr()?
        .port())
}

#[test]
fn haproxy_joins_both_sides() -> Result<()> {
    if !available() || !have(&["haproxy", "curl"]) {
        return Ok(());
    }
    let ground = Ground::new()?;
    ground.ip(&["link", "set", "lo", "up"])?;
    let whole = body(1_000_000);
    let listener = ground.listen()?;
    let address = listener.local_addr()?;
    let server = serve(listener, whole.clone(), || {});
    let file = ground.folder().join("haproxy.cfg");
    let text = format!(
        "global\n  nbthread 2\n\
         defaults\n  mode http\n  timeout client 30s\n  timeout server 30s\n  timeout connect 30s\n\
         frontend f\n  bind {ENGINE}:8085\n  default_backend b\n\
         backend b\n  server s {address}\n"
    );
    std::fs::write(&file, text)?;
    let mut haproxy = command(&ground, "haproxy");
    haproxy.args(["-db", "-f"]).arg(&file);
    let _server = Server::start(&ground, haproxy, engine(8085))?;
    for _ in 0..10 {
        let mut curl = ground.command("curl");
        curl.args(["-sS", "--max-time", "50", &format!("http://{ENGINE}:8085/")]);
        assert!(finish(curl)?.stdout == whole);
    }
    end_serving(&ground, address, server)
}
