//! Engines that go away under load, and come back: every program gets errors, none hangs, and servers listen again.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use sidecore_e2e::Ground;
use sidecore_e2e::ground::{ENGINE, available};
use sidecore_e2e::preload::{Server, command, finish, have, within};

use crate::stores::redis;
use crate::web::nginx;
use crate::{body, curl, engine, script};

/// How long a program may take to see that its engine is gone, and that one is there again.
const PATIENCE: Duration = Duration::from_secs(30);

/// Seconds of processor time that a process has used.
fn used(pid: u32) -> Result<f64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let rest = stat.rsplit(')').next().context("stat")?;
    let ticks = rest.split_whitespace().skip(11).take(2);
    let ticks: u64 = ticks.filter_map(|n| n.parse::<u64>().ok()).sum();
    Ok(ticks as f64 / 100.0)
}

/// What the threads of a process are at: state, where the system has it, and its call with its arguments.
fn threads(pid: u32) -> String {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task"));
    let tasks = tasks.into_iter().flatten().flatten();
    let lines = tasks.map(|task| {
        let read = |name: &str| std::fs::read_to_string(task.path().join(name)).unwrap_or_default();
        let stat = read("stat");
        let state = stat.rsplit(')').next().unwrap_or_default().get(1..2);
        let (name, at, call) = (read("comm"), read("wchan"), read("syscall"));
        format!(
            "{} {} {at} {}",
            name.trim(),
            state.unwrap_or_default(),
            call.trim()
        )
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// A program that must end by itself, soon; whether it said that all was well.
fn ends(name: &str, server: &mut Server) -> Result<bool> {
    let begun = Instant::now();
    while !server.has_ended()? {
        ensure!(
            begun.elapsed() < PATIENCE,
            "{name} hangs:\n{}",
            threads(server.pid())
        );
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(server.wait()?.success())
}

/// Waits until a port of the engine's can be reached from the namespace.
fn serves_again(ground: &Ground, port: u16) -> Result<()> {
    let (begun, to) = (Instant::now(), engine(port));
    let second = Duration::from_secs(1);
    let reach = || TcpStream::connect_timeout(&to, second);
    while ground.inside(reach).is_err() {
        ensure!(begun.elapsed() < PATIENCE, "nobody listens at {port} again");
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// Waits until a server has so many connections.
fn at_work(ground: &Ground, port: u16, least: usize) {
    let local = engine(port).to_string();
    ground.eventually("the clients are connected", |stat| {
        let all = stat["connections"].as_array();
        let theirs = |c: &&Value| c["local"] == local.as_str() && c["state"] == "Established";
        all.is_some_and(|all| all.iter().filter(theirs).count() >= least)
    });
}

/// Clients of the servers on the engine: each ends soon once its engine is gone.
fn clients(ground: &Ground) -> Result<Vec<(&'static str, Server)>> {
    // In the namespace, so that what they do without an engine stays there.
    let start = |program: &str, arguments: &[&str]| -> Result<Server> {
        let mut client = within(ground, program);
        client.args(arguments);
        Server::spawn(client)
    };
    let host = ENGINE.to_string();
    let page = format!("http://{ENGINE}:8080/page");
    let again = format!("http://{ENGINE}:8080/large?[1-100000]");
    let client = script("gone_client.py");
    let client = client.to_str().context("its path")?;
    // The slowest to begin first.
    let python = start("python3", &[client, &host, "6379"])?;
    at_work(ground, 6379, 5);
    // Not redis-benchmark: where all its connections break between an answer and the next request, it asks to write for ever, on the kernel's
    // sockets as well.
    let asks = || start("redis-cli", &["-h", &host, "-r", "100000000", "ping"]);
    let clients = vec![
        (
            "wrk",
            start("wrk", &["-c", "20", "-t", "2", "-d", "3", &page])?,
        ),
        ("redis-cli", asks()?),
        ("redis-cli", asks()?),
        (
            "curl",
            start(
                "curl",
                &[
                    "-s",
                    "-o",
                    "/dev/null",
                    "--fail-early",
                    "--connect-timeout",
                    "3",
                    &again,
                ],
            )?,
        ),
        ("python", python),
    ];
    at_work(ground, 6379, 7);
    at_work(ground, 8080, 21);
    Ok(clients)
}

#[test]
fn an_engine_killed_under_load_is_told_and_servers_listen_at_the_next() -> Result<()> {
    let needed = [
        "nginx",
        "redis-server",
        "redis-benchmark",
        "redis-cli",
        "python3",
        "wrk",
        "curl",
    ];
    if !available() || !have(&needed) {
        return Ok(());
    }
    let mut ground = Ground::apart()?;
    ground.ip(&["link", "set", "lo", "up"])?;
    let configuration = nginx(&ground, ENGINE.to_string(), "worker_processes 2;")?;
    let mut web = command(&ground, "nginx");
    web.arg("-c").arg(&configuration);
    let web = Server::start(&ground, web, engine(8080))?;
    let store = Server::start(&ground, redis(&ground, 6379)?, engine(6379))?;
    let file = ground.folder().join("page");
    let mut python = command(&ground, "python3");
    python.arg(script("http_server.py"));
    python.args([&ENGINE.to_string(), "8000"]).arg(&file);
    let python = Server::start(&ground, python, engine(8000))?;
    for _ in 0..2 {
        let mut clients = clients(&ground)?;
        std::thread::sleep(Duration::from_millis(300));
        ground.kill_engine()?;
        for (name, client) in &mut clients {
            let well = ends(name, client)?;
            // wrk counts errors and ends well, python expects them; the others fail.
            assert_eq!(well, matches!(*name, "wrk" | "python"), "{name}");
        }
        // Servers wait, and do not spin.
        let pids = [web.pid(), store.pid(), python.pid()].into_iter();
        let pids: Vec<u32> = pids.flat_map(family).collect();
        let before: Vec<f64> = pids.iter().map(|pid| used(*pid)).collect::<Result<_>>()?;
        std::thread::sleep(Duration::from_secs(1));
        for (pid, before) in pids.iter().zip(before) {
            let spent = used(*pid)? - before;
            assert!(spent < 0.5, "process {pid} spent {spent} s of one");
        }
        ground.start_apart()?;
        for port in [8080, 6379, 8000] {
            serves_again(&ground, port)?;
        }
        let page = format!("http://{ENGINE}:8080/large");
        assert!(finish(curl(&ground, &[&page]))?.stdout == body(3_000_000));
        let page = format!("http://{ENGINE}:8000/");
        assert!(finish(curl(&ground, &[&page]))?.stdout == body(1024));
        let mut benchmark = ground.command("redis-benchmark");
        benchmark.args(["-h", &ENGINE.to_string(), "-t", "set", "-n", "500", "-q"]);
        finish(benchmark)?;
    }
    for server in [&web, &store, &python] {
        server.assert_fast(&ground)?;
    }
    Ok(())
}

/// A process and its children.
fn family(pid: u32) -> Vec<u32> {
    let path = format!("/proc/{pid}/task/{pid}/children");
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let children = text.split_whitespace().filter_map(|n| n.parse().ok());
    std::iter::once(pid).chain(children).collect()
}

#[test]
fn without_its_engine_a_program_ends_or_goes_on_as_configured() -> Result<()> {
    if !available() || !have(&["python3"]) {
        return Ok(());
    }
    let mut ground = Ground::apart()?;
    ground.ip(&["link", "set", "lo", "up"])?;
    let echo = ground.listen()?;
    let address: SocketAddr = echo.local_addr()?;
    let start = |what: &str| -> Result<std::process::Child> {
        let mut python = within(&ground, "python3");
        python.env("SIDECORE_NO_ENGINE", what);
        python.arg(script("gone_after.py"));
        python.args([&address.ip().to_string(), &address.port().to_string()]);
        python.stdin(Stdio::piped()).stdout(Stdio::piped());
        Ok(python.spawn()?)
    };
    let mut programs = Vec::new();
    for what in ["kernel", "exit"] {
        let mut child = start(what)?;
        let mut said = BufReader::new(child.stdout.take().context("its output")?);
        let mut line = String::new();
        said.read_line(&mut line)?;
        assert_eq!(line, "connected\n");
        programs.push((what, child, said));
    }
    ground.kill_engine()?;
    for (what, mut child, mut said) in programs {
        child.stdin.take().context("its input")?.write_all(b"\n")?;
        let mut rest = String::new();
        while said.read_line(&mut rest)? > 0 {}
        let status = child.wait()?;
        // It was told of its connection's end in either case; then it wants another.
        assert_eq!(
            (rest.as_str(), status.code()),
            match what {
                "kernel" => ("reset\nnone\nlocal\n", Some(0)),
                _ => ("reset\n", Some(1)),
            },
            "{what}"
        );
    }
    Ok(())
}

/// Answers datagrams from wherever it waits: a blocked receive, poll, or one that also has the kernel's half.
const ECHO: &str = r#"
import select, socket, sys
def bound(address):
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.bind(address)
    return s
polled, both = bound(("10.77.0.2", 7021)), bound(("0.0.0.0", 7022))
peer = bound(("10.77.0.2", 7023))
peer.connect(("10.77.0.1", 7024))
polled.setblocking(False)
print("bound", flush=True)
while True:
    for s in select.select([polled, both, peer], [], [])[0]:
        try:
            data, sender = s.recvfrom(100)
            s.send(data) if s is peer else s.sendto(data, sender)
        except OSError as error:
            print(error.errno, file=sys.stderr, flush=True)
"#;

#[test]
fn udp_sockets_are_at_the_next_engine() -> Result<()> {
    if !available() || !have(&["python3"]) {
        return Ok(());
    }
    let mut ground = Ground::apart()?;
    let mut python = within(&ground, "python3");
    python.args(["-c", ECHO]);
    let mut server = Server::spawn(python)?;
    let client = ground.inside(|| std::net::UdpSocket::bind("10.77.0.1:7024"))?;
    client.set_read_timeout(Some(Duration::from_millis(300)))?;
    let answers = |port: u16| -> Result<()> {
        let (begun, mut count, mut room) = (Instant::now(), 0u32, [0; 100]);
        loop {
            count += 1;
            let text = format!("{port} {count}");
            client.send_to(text.as_bytes(), engine(port))?;
            if let Ok((n, from)) = client.recv_from(&mut room)
                && room[..n] == *text.as_bytes()
            {
                assert_eq!(from, engine(port));
                return Ok(());
            }
            ensure!(begun.elapsed() < PATIENCE, "{port} does not answer");
        }
    };
    for _ in 0..2 {
        (7021..=7023).try_for_each(answers)?;
        ground.kill_engine()?;
        std::thread::sleep(Duration::from_millis(200));
        let before = used(server.pid())?;
        std::thread::sleep(Duration::from_secs(1));
        let spent = used(server.pid())? - before;
        assert!(spent < 0.5, "it runs in circles: {spent} s of one");
        ground.start_apart()?;
    }
    (7021..=7023).try_for_each(answers)?;
    assert!(!server.has_ended()?);
    Ok(())
}
