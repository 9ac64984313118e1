//! Roles: the programs of a run, each a process of its own, so that its processor time is its own.
//!
//! A role is started as `sidecore lab role` and told what it is by the first line of its standard input, a [`RoleSpec`] in
//! JSON. It answers in lines of JSON on its standard output ([`Message`]). A line on its input lets a load begin, another lets it end;
//! the end of its input ends the role, whatever becomes of its parent.

use std::io::{self, BufRead, Write};
use std::net::SocketAddr;

use anyhow::Context;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde::{Deserialize, Serialize};
use sidecore_engine::EngineControlHandle;
use sidecore_sys::{affinity, netns};

use crate::bulk::{self, BulkConfig};
use crate::echo::{self, Announcement, EchoConfig};
use crate::flood::{self, FloodConfig, FloodUse};
use crate::load::{self, LoadConfig, LoadReport, Milestones};
use crate::memory::{self, MemoryConfig, MemoryUse};
use crate::native::rpc::{self, RpcConfig};
use crate::pairs::{self, PairsConfig};
use crate::wake::{self, WakeConfig};
use crate::web::{self, WebConfig};

/// What a role process is to be.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RoleSpec {
    /// The program.
    pub role: Role,
    /// Network namespace to be in; none: the parent's.
    pub netns: Option<String>,
    /// Processors to which the process (all its threads) is bound; empty: unbound.
    pub cores: Vec<usize>,
}

/// The programs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// A load generator.
    Load(LoadConfig),
    /// An echo server.
    Echo(EchoConfig),
    /// A web server.
    Web(WebConfig),
    /// Both ends on Sidecore.
    Rpc(RpcConfig),
    /// Both ends on AF_UNIX sockets.
    Pairs(PairsConfig),
    /// A server that takes what is sent.
    Bulk(BulkConfig),
    /// Probes of sleepers.
    Wake(WakeConfig),
    /// Idle connections.
    Memory(MemoryConfig),
    /// A server, connects that are meant, and a flood.
    Flood(FloodConfig),
}

/// What a role says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Message {
    /// A server serves here.
    Ready(SocketAddr),
    /// How the engine of a server has spent its time.
    Engine(EngineUse),
    /// A load has all its connections up and waits for leave to begin.
    Connected,
    /// The measured time has begun.
    Begun,
    /// The measured time has ended.
    Ended,
    /// What idle connections cost.
    Memory(MemoryUse),
    /// What came of a flood.
    Flood(Box<FloodUse>),
    /// What came of a load.
    Report(Box<LoadReport>),
    /// It cannot go on; the process ends.
    Failed(String),
}

/// Is the role that standard input names. Returns when its work is done or failed; the caller exits then.
pub fn run() -> anyhow::Result<()> {
    // Should the parent be killed: do not stay behind. (The end of our input says so too, but a load does not read it.)
    let _ = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL));
    let result = read_spec().and_then(|spec| be(&spec));
    if let Err(error) = &result {
        let _ = say(&Message::Failed(format!("{error:#}")));
    }
    result
}

fn read_spec() -> anyhow::Result<RoleSpec> {
    let mut line = String::new();
    io::stdin().lock().read_line(&mut line)?;
    serde_json::from_str(&line).context("the first line of input is no role")
}

fn be(spec: &RoleSpec) -> anyhow::Result<()> {
    if let Some(name) = &spec.netns {
        netns::enter(netns::open_named(name)?)?;
    }
    raise_descriptor_limit();
    if !spec.cores.is_empty() {
        affinity::set_cores(&spec.cores)?;
    }
    match &spec.role {
        Role::Load(config) => {
            let report = load::run(config, &mut Speaker)?;
            say(&Message::Report(Box::new(report)))
        }
        Role::Pairs(config) => {
            let report = pairs::run(config, &mut Speaker)?;
            say(&Message::Report(Box::new(report)))
        }
        Role::Wake(config) => {
            let report = wake::run(config, &mut Speaker)?;
            say(&Message::Report(Box::new(report)))
        }
        Role::Memory(config) => say(&Message::Memory(memory::run(config)?)),
        Role::Flood(config) => say(&Message::Flood(Box::new(flood::run(config)?))),
        Role::Bulk(config) => {
            let never = bulk::serve(config, &mut announce)?;
            match never {}
        }
        Role::Rpc(config) => {
            let report = rpc::run(config, &mut Speaker)?;
            say(&Message::Report(Box::new(report)))
        }
        Role::Echo(config) => {
            let never = echo::serve(config, &mut announce)?;
            match never {}
        }
        Role::Web(config) => {
            let never = web::serve(config, &mut announce)?;
            match never {}
        }
    }
}

/// Thousands of connections want as many descriptors as may be had.
fn raise_descriptor_limit() {
    // Root may have more than its shell says.
    let most = std::fs::read_to_string("/proc/sys/fs/nr_open").ok();
    let most = most.and_then(|text| text.trim().parse().ok());
    let own = getrlimit(Resource::Nofile).maximum;
    for limit in [most, own] {
        let (current, maximum) = (limit, limit);
        if limit.is_some() && setrlimit(Resource::Nofile, Rlimit { current, maximum }).is_ok() {
            return;
        }
    }
}

fn say(message: &Message) -> anyhow::Result<()> {
    let mut line = serde_json::to_string(message)?;
    line.push('\n');
    io::stdout().lock().write_all(line.as_bytes())?;
    Ok(())
}

/// Says that a server serves, and from then on answers what the parent asks; the process ends with its input.
fn announce(it: Announcement) {
    let Announcement { address, engine } = it;
    let wait = move || {
        for line in io::stdin().lock().lines() {
            let Ok(line) = line else { break };
            if line == ASK_ENGINE {
                let used = engine.as_ref().and_then(EngineUse::of);
                let _ = say(&Message::Engine(used.unwrap_or_default()));
            }
        }
        std::process::exit(0);
    };
    let _ = match std::thread::Builder::new().name("input".into()).spawn(wait) {
        Ok(_) => say(&Message::Ready(address)),
        Err(error) => say(&Message::Failed(format!("cannot start a thread: {error}"))),
    };
}

/// What a parent says to hear about a server's engine.
pub const ASK_ENGINE: &str = "engine";

/// How an engine has spent its time since it was made, in seconds, and what it did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct EngineUse {
    /// In turns that found something to do.
    pub useful: f64,
    /// In turns that found nothing.
    pub polling: f64,
    /// Asleep.
    pub asleep: f64,
    /// Frames received.
    pub frames_in: u64,
    /// Frames sent.
    pub frames_out: u64,
    /// System calls of its driver.
    pub system_calls: u64,
    /// Times that it slept until something came.
    pub sleeps: u64,
    /// Times that it napped.
    pub naps: u64,
    /// Times that it woke the first application.
    pub wakes: u64,
    /// Turns that found something to do.
    pub turns: u64,
}

impl EngineUse {
    fn of(engine: &EngineControlHandle) -> Option<Self> {
        let document: serde_json::Value = serde_json::from_str(&engine.stat_json()?).ok()?;
        let number = |path: &str| {
            document
                .pointer(path)
                .and_then(serde_json::Value::as_f64)
                .unwrap_or(0.0)
        };
        let per_second = number("/cycles_per_second").max(1.0);
        Some(Self {
            useful: number("/loop/productive_cycles") / per_second,
            polling: number("/loop/polling_cycles") / per_second,
            asleep: number("/loop/sleep_cycles") / per_second,
            frames_in: number("/loop/frames_in") as u64,
            frames_out: number("/loop/frames_out") as u64,
            system_calls: number("/nic/syscalls") as u64,
            sleeps: number("/loop/sleeps") as u64,
            naps: number("/loop/naps") as u64,
            wakes: number("/uals/0/counters/wakes") as u64,
            turns: number("/loop/productive_turns") as u64,
        })
    }

    /// What was done since an earlier time.
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            useful: self.useful - earlier.useful,
            polling: self.polling - earlier.polling,
            asleep: self.asleep - earlier.asleep,
            frames_in: self.frames_in.saturating_sub(earlier.frames_in),
            frames_out: self.frames_out.saturating_sub(earlier.frames_out),
            system_calls: self.system_calls.saturating_sub(earlier.system_calls),
            sleeps: self.sleeps.saturating_sub(earlier.sleeps),
            naps: self.naps.saturating_sub(earlier.naps),
            wakes: self.wakes.saturating_sub(earlier.wakes),
            turns: self.turns.saturating_sub(earlier.turns),
        }
    }
}

/// Tells the parent where a load stands.
struct Speaker;

impl Milestones for Speaker {
    fn connected(&mut self) -> anyhow::Result<()> {
        say(&Message::Connected)?;
        read_line()
    }

    fn begun(&mut self) -> anyhow::Result<()> {
        say(&Message::Begun)
    }

    fn ended(&mut self) -> anyhow::Result<()> {
        say(&Message::Ended)?;
        read_line()
    }
}

fn read_line() -> anyhow::Result<()> {
    io::stdin().lock().read_line(&mut String::new())?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roles_survive_the_way_through_a_line_of_text() {
        let target: SocketAddr = "10.0.0.2:7".parse().unwrap();
        let spec = RoleSpec {
            role: Role::Load(LoadConfig::closed(
                target,
                load::Ask::Http(vec!["/\n".into()]),
                3,
            )),
            netns: Some("x".into()),
            cores: vec![1],
        };
        let line = serde_json::to_string(&spec).unwrap();
        assert!(!line.contains('\n'));
        assert_eq!(serde_json::from_str::<RoleSpec>(&line).unwrap(), spec);
        let message = Message::Failed("two\nlines".into());
        let line = serde_json::to_string(&message).unwrap();
        assert!(!line.contains('\n'));
        assert_eq!(serde_json::from_str::<Message>(&line).unwrap(), message);
    }
}
