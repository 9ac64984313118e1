//! Programs that are killed at random, under load, and started again: nothing of them is left, and what they had written arrives.

use std::collections::BTreeMap;
use std::io::Read;
use std::net::{SocketAddr, TcpListener};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use serde_json::Value;
use sidecore_e2e::Ground;
use sidecore_e2e::ground::{ENGINE, HOST, available, program};
use sidecore_e2e::preload::{Server, command, finish, have};

use crate::stores::redis;
use crate::web::nginx;
use crate::{curl, engine, script};

/// How long programs are killed. `SIDECORE_KILL_SECONDS` says another time, `SIDECORE_KILL_SEED` another order.
const SECONDS: u64 = 12;

fn from_environment(name: &str, otherwise: u64) -> u64 {
    let text = std::env::var(name).ok();
    text.and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

/// Numbers by chance, the same for the same seed.
struct Chance(u64);

impl Chance {
    /// Below `limit`.
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

/// A program that is killed and started again.
struct Actor<'a> {
    name: &'static str,
    start: Box<dyn Fn() -> Result<Command> + 'a>,
    /// Where it listens, if it does.
    port: Option<u16>,
    running: Option<Server>,
}

impl<'a> Actor<'a> {
    fn new(
        name: &'static str,
        port: Option<u16>,
        start: impl Fn() -> Result<Command> + 'a,
    ) -> Self {
        Self {
            name,
            start: Box::new(start),
            port,
            running: None,
        }
    }

    /// Starts it, unless it runs.
    fn see_to(&mut self) -> Result<()> {
        let ended = match &mut self.running {
            Some(server) => server.has_ended()?,
            None => true,
        };
        if ended {
            self.running = None;
            let command = (self.start)().context(self.name)?;
            self.running = Some(Server::spawn(command).context(self.name)?);
        }
        Ok(())
    }

    /// Ends it in one of several ways.
    fn strike(&mut self, chance: &mut Chance) -> Result<()> {
        let Some(server) = &mut self.running else {
            return Ok(());
        };
        let pid = Pid::from_raw(server.pid() as i32).context("its pid")?;
        match chance.below(4) {
            0 => {
                // Gone already: as well.
                let _ = kill_process_group(pid, Signal::TERM);
                let begun = Instant::now();
                while !server.has_ended()? && begun.elapsed() < Duration::from_secs(2) {
                    std::thread::sleep(Duration::from_millis(5));
                }
            }
            1 => {
                // One of its children, if it has some; its master sees to another.
                let children = children(server.pid());
                if !children.is_empty() {
                    let child = children[chance.below(children.len() as u64) as usize];
                    let _ = Pid::from_raw(child).map(|pid| kill_process(pid, Signal::KILL));
                    return Ok(());
                }
            }
            _ => {}
        }
        server.end();
        self.running = None;
        Ok(())
    }
}

/// Processes whose parent this is.
fn children(pid: u32) -> Vec<i32> {
    let path = format!("/proc/{pid}/task/{pid}/children");
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.split_whitespace()
        .filter_map(|n| n.parse().ok())
        .collect()
}

/// All that is at work, on the engine and on the kernel's side.
fn actors(ground: &Ground) -> Result<Vec<Actor<'_>>> {
    let configuration = nginx(ground, ENGINE.to_string(), "worker_processes 2;")?;
    let page = format!("http://{ENGINE}:8080/page");
    let file = ground.folder().join("page");
    let echo = engine(8010).to_string();
    let net = program("sidecore-e2e-net");
    let net = net.to_str().context("its path")?.to_owned();
    let with = |mut command: Command, arguments: &[&str]| {
        command.args(arguments);
        Ok(command)
    };
    let repeat = move |line: &str| format!("while :; do {line}; sleep 0.05; done");
    let fetch = repeat(&format!(
        "curl -s -o /dev/null --max-time 5 http://{ENGINE}:8000/ {page}"
    ));
    let echoed = repeat(&format!("{net} client {echo} 3 400000 2>/dev/null"));
    let echoed_too = echoed.clone();
    let (page_too, net_too) = (page.clone(), net.clone());
    let benchmark = ["-h", "10.77.0.2", "-t", "set,get", "-c", "10", "-l", "-q"];
    Ok(vec![
        Actor::new("redis-server", Some(6379), move || redis(ground, 6379)),
        Actor::new("nginx", Some(8080), move || {
            let mut nginx = command(ground, "nginx");
            nginx.arg("-c").arg(&configuration);
            Ok(nginx)
        }),
        Actor::new("http.server", Some(8000), move || {
            let mut python = command(ground, "python3");
            python.arg(script("http_server.py"));
            python.args([&ENGINE.to_string(), "8000"]).arg(&file);
            Ok(python)
        }),
        Actor::new("tokio", Some(8010), move || {
            with(command(ground, &net_too), &["tokio", &echo])
        }),
        Actor::new("curl", None, move || {
            with(command(ground, "sh"), &["-c", &fetch])
        }),
        Actor::new("wrk", None, move || {
            with(
                command(ground, "wrk"),
                &["-c", "10", "-t", "2", "-d", "600", &page],
            )
        }),
        Actor::new("redis-benchmark", None, move || {
            with(command(ground, "redis-benchmark"), &benchmark)
        }),
        Actor::new("std's clients", None, move || {
            with(command(ground, "sh"), &["-c", &echoed])
        }),
        Actor::new("the kernel's wrk", None, move || {
            with(
                ground.command("wrk"),
                &["-c", "10", "-t", "1", "-d", "600", &page_too],
            )
        }),
        Actor::new("the kernel's clients", None, move || {
            with(ground.command("sh"), &["-c", &echoed_too])
        }),
    ])
}

/// What the engine's process has.
#[derive(PartialEq, Eq, Debug)]
struct Holdings {
    /// Open descriptors by what they are.
    descriptors: BTreeMap<String, usize>,
    /// Threads, but for those that close what strangers sent: they begin when there is something to be closed, and stay.
    threads: usize,
    /// Mappings of applications' memory.
    mappings: usize,
}

impl Holdings {
    fn of(pid: u32) -> Result<Self> {
        let folder = format!("/proc/{pid}");
        let mut descriptors = BTreeMap::new();
        for entry in std::fs::read_dir(format!("{folder}/fd"))? {
            let to = std::fs::read_link(entry?.path()).unwrap_or_default();
            let to = to.to_string_lossy();
            let kind = to.split([':', '(']).next().unwrap_or_default().to_owned();
            *descriptors.entry(kind).or_default() += 1;
        }
        let maps = std::fs::read_to_string(format!("{folder}/maps"))?;
        Ok(Self {
            descriptors,
            threads: threads(&folder)?,
            mappings: maps.matches("/memfd:").count(),
        })
    }

    /// As soon as they stay the same for a moment: who has just asked for figures is let go of.
    fn settled(pid: u32) -> Result<Self> {
        let mut last = Self::of(pid)?;
        let mut same = 0;
        while same < 5 {
            std::thread::sleep(Duration::from_millis(20));
            let now = Self::of(pid)?;
            same = if now == last { same + 1 } else { 0 };
            last = now;
        }
        Ok(last)
    }
}

/// Threads that are not closers; an error if there are more of those than there may be.
fn threads(folder: &str) -> Result<usize> {
    let (mut others, mut closers) = (0, 0);
    for task in std::fs::read_dir(format!("{folder}/task"))? {
        let name = std::fs::read_to_string(task?.path().join("comm")).unwrap_or_default();
        match name.trim_end() == "sidecore-closer" {
            true => closers += 1,
            false => others += 1,
        }
    }
    ensure!(closers <= 8, "{closers} threads close");
    Ok(others)
}

/// Resident memory in bytes.
fn resident(pid: u32) -> Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB"));
    let kib: u64 = kib.context("VmRSS")?.parse()?;
    Ok(kib << 10)
}

/// Whether the engine's tables are empty but for connections that wait out their time.
fn is_empty(stat: &Value) -> bool {
    let connections = stat["connections"].as_array();
    let only_waiting = |all: &Vec<Value>| all.iter().all(|c| c["state"] == "TimeWait");
    stat["dtis"] == 0
        && stat["descriptors"] == 0
        && stat["uals"].as_array().is_some_and(Vec::is_empty)
        && stat["sockets"].as_array().is_some_and(Vec::is_empty)
        && connections.is_some_and(only_waiting)
        && stat["in_custody"] == 0
        && stat["agent"]["descriptors"] == 0
}

/// Memory that the engine's process may have more than before: what its allocator keeps.
const KEPT: u64 = 96 << 20;

#[test]
fn programs_killed_at_random_leave_nothing_behind() -> Result<()> {
    let needed = [
        "redis-server",
        "redis-benchmark",
        "nginx",
        "python3",
        "curl",
        "wrk",
    ];
    if !available() || !have(&needed) {
        return Ok(());
    }
    let ground = Ground::apart()?;
    ground.ip(&["link", "set", "lo", "up"])?;
    let pid = ground.engine_pid();
    ground.eventually("nothing is there", is_empty);
    // The custodian's, and the one that asks.
    let agents = ground.stat()["agent"].clone();
    let (before, memory) = (Holdings::settled(pid)?, resident(pid)?);
    let time = Duration::from_secs(from_environment("SIDECORE_KILL_SECONDS", SECONDS));
    let seed = from_environment("SIDECORE_KILL_SEED", 0x5eed_0001).max(1);
    eprintln!("seed {seed}, {time:?}");
    let mut chance = Chance(seed);
    let mut actors = actors(&ground)?;
    let begun = Instant::now();
    let mut strikes = 0;
    while begun.elapsed() < time {
        for actor in &mut actors {
            actor.see_to()?;
        }
        std::thread::sleep(Duration::from_millis(30 + chance.below(200)));
        let which = chance.below(actors.len() as u64) as usize;
        actors[which].strike(&mut chance)?;
        strikes += 1;
    }
    // Whatever was killed when: all serve again.
    for actor in &mut actors {
        if let Some(port) = actor.port {
            serves(&ground, actor, port)?;
        }
    }
    let bytes = ground.figure("/stack/tcp_bytes_in");
    eprintln!("{strikes} strikes; {bytes} bytes came in");
    drop(actors);
    ground.eventually("nothing is left", |stat| {
        is_empty(stat) && stat["agent"] == agents
    });
    let begun = Instant::now();
    while Holdings::of(pid)? != before && begun.elapsed() < Duration::from_secs(20) {
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(Holdings::of(pid)?, before);
    let now = resident(pid)?;
    assert!(now < memory + KEPT, "{memory} bytes became {now}");
    // And it works.
    let mut last = self::actors(&ground)?.swap_remove(1);
    serves(&ground, &mut last, 8080)?;
    let page = format!("http://{ENGINE}:8080/page");
    assert_eq!(finish(curl(&ground, &[&page]))?.stdout.len(), 1024);
    Ok(())
}

/// Starts it if it does not run, until it can be reached.
fn serves(ground: &Ground, actor: &mut Actor<'_>, port: u16) -> Result<()> {
    let begun = Instant::now();
    loop {
        actor.see_to()?;
        let second = Duration::from_secs(1);
        let to = engine(port);
        if ground
            .inside(|| std::net::TcpStream::connect_timeout(&to, second))
            .is_ok()
        {
            return Ok(());
        }
        ensure!(
            begun.elapsed() < Duration::from_secs(60),
            "{} does not serve again",
            actor.name
        );
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Sends so much and is gone.
const BURST: &str = r#"
import os, signal, socket, sys
s = socket.create_connection((sys.argv[1], int(sys.argv[2])))
s.sendall(bytes(i * 7 & 255 for i in range(251)) * int(sys.argv[3]))
os.kill(os.getpid(), int(sys.argv[4]))
"#;

/// Takes a connection and everything that comes, slowly at first.
fn take(listener: &TcpListener) -> std::io::Result<Vec<u8>> {
    let (mut stream, _) = listener.accept()?;
    stream.set_read_timeout(Some(Duration::from_secs(60)))?;
    std::thread::sleep(Duration::from_millis(100));
    let mut all = Vec::new();
    stream.read_to_end(&mut all)?;
    Ok(all)
}

#[test]
fn what_was_written_before_a_kill_arrives() -> Result<()> {
    if !available() || !have(&["python3"]) {
        return Ok(());
    }
    let ground = Ground::new()?;
    let listener = ground.listen()?;
    let address: SocketAddr = listener.local_addr()?;
    for (times, signal) in [(10, 9), (3000, 9), (8000, 9), (3000, 15)] {
        let mut python = command(&ground, "python3");
        python.args(["-c", BURST, &HOST.to_string(), &address.port().to_string()]);
        python.args([times.to_string(), signal.to_string()]);
        let mut running = Server::spawn(python)?;
        let all = take(&listener)?;
        let piece: Vec<u8> = (0..251u32).map(|i| (i * 7) as u8).collect();
        assert!(all == piece.repeat(times), "{times}: {} bytes", all.len());
        use std::os::unix::process::ExitStatusExt;
        assert_eq!(running.wait()?.signal(), Some(signal));
    }
    ground.eventually("nothing is left", |stat| {
        stat["dtis"] == 0 && stat["uals"].as_array().is_some_and(Vec::is_empty)
    });
    Ok(())
}
