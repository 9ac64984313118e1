//! Roles: the programs of a run, each a process of its own, so that its processor time is its own.
//!
//! A role is started as `sidecore lab role` and told what it is by the first line of its standard input, a [`RoleSpec`] in
//! JSON. It answers in lines of JSON on its standard output ([`Message`]). A line on its input lets a load begin, another lets it end;
//! the end of its input ends the role, whatever becomes of its parent.

use std::io::{self, BufRead, Write};
use std::net::SocketAddr;

use anyhow::Context;
use serde::{Deserialize, Serialize};
use sidecore_sys::{affinity, netns};

use crate::echo::{self, EchoConfig};
use crate::load::{self, LoadConfig, LoadReport, Milestones};

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
}

/// What a role says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Message {
    /// A server serves here.
    Ready(SocketAddr),
    /// A load has all its connections up and waits for leave to begin.
    Connected,
    /// The measured time has begun.
    Begun,
    /// The measured time has ended.
    Ended,
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
    if !spec.cores.is_empty() {
        affinity::set_cores(&spec.cores)?;
    }
    match &spec.role {
        Role::Load(config) => {
            let report = load::run(config, &mut Speaker)?;
            say(&Message::Report(Box::new(report)))
        }
        Role::Echo(config) => {
            exit_with_input()?;
            let never = echo::serve(config, &mut |address| {
                let _ = say(&Message::Ready(address));
            })?;
            match never {}
        }
    }
}

fn say(message: &Message) -> anyhow::Result<()> {
    let mut line = serde_json::to_string(message)?;
    line.push('\n');
    io::stdout().lock().write_all(line.as_bytes())?;
    Ok(())
}

/// Ends the process when its input ends.
fn exit_with_input() -> anyhow::Result<()> {
    let wait = || {
        let _ = io::copy(&mut io::stdin().lock(), &mut io::sink());
        std::process::exit(0);
    };
    std::thread::Builder::new()
        .name("input".into())
        .spawn(wait)?;
    Ok(())
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
