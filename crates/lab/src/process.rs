//! Role processes as their parent sees them.

use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, bail};

use crate::flood::FloodUse;
use crate::interrupt;
use crate::load::LoadReport;
use crate::memory::MemoryUse;
use crate::roles::{ASK_ENGINE, EngineUse, Message, RoleSpec};

/// How long a role may take to come up, all its connections included.
const START: Duration = Duration::from_secs(60);

/// How long a load may take to report after its measured time.
const LATE: Duration = Duration::from_secs(30);

/// How often a waiting parent looks whether it has been interrupted.
const LOOK: Duration = Duration::from_millis(100);

/// A running role. It is killed when this is dropped.
pub struct RoleProcess {
    name: String,
    child: Child,
    input: Option<ChildStdin>,
    messages: Receiver<anyhow::Result<Message>>,
}

impl RoleProcess {
    /// Starts a role; `name` is for messages.
    pub fn start(name: &str, spec: &RoleSpec) -> anyhow::Result<Self> {
        let program = std::env::current_exe().context("the path of this program")?;
        let mut child = Command::new(program)
            .args(["lab", "role"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot start {name}"))?;
        let mut input = child.stdin.take().context("no pipe to the role")?;
        let output = child.stdout.take().context("no pipe from the role")?;
        let (sender, messages) = channel();
        let read = move || {
            for line in BufReader::new(output).lines() {
                let message = line.map_err(anyhow::Error::from).and_then(|line| {
                    serde_json::from_str(&line).with_context(|| format!("not a message: {line}"))
                });
                if sender.send(message).is_err() {
                    return;
                }
            }
        };
        std::thread::Builder::new()
            .name(format!("from-{name}"))
            .spawn(read)?;
        let mut line = serde_json::to_string(spec)?;
        line.push('\n');
        let started = input.write_all(line.as_bytes());
        let process = Self {
            name: name.to_owned(),
            child,
            input: Some(input),
            messages,
        };
        started.with_context(|| format!("{name} ended at once"))?;
        Ok(process)
    }

    /// Starts a server and waits until it serves.
    pub fn start_server(name: &str, spec: &RoleSpec) -> anyhow::Result<(Self, SocketAddr)> {
        let process = Self::start(name, spec)?;
        match process.next(START)? {
            Message::Ready(address) => Ok((process, address)),
            other => bail!("{name} said {other:?} instead of being ready"),
        }
    }

    /// Starts a load and waits until all its connections are up.
    pub fn start_load(name: &str, spec: &RoleSpec) -> anyhow::Result<Self> {
        let process = Self::start(name, spec)?;
        process.expect(&Message::Connected, START)?;
        Ok(process)
    }

    /// How the engine of this server has spent its time (all zero without one).
    pub fn engine_use(&mut self) -> anyhow::Result<EngineUse> {
        self.write(ASK_ENGINE)?;
        match self.next(LATE)? {
            Message::Engine(used) => Ok(used),
            other => bail!(
                "{} said {other:?} instead of what its engine did",
                self.name
            ),
        }
    }

    /// Waits for what idle connections cost.
    pub fn memory(&self, at_most: Duration) -> anyhow::Result<MemoryUse> {
        match self.next(at_most)? {
            Message::Memory(used) => Ok(used),
            other => bail!("{} said {other:?} instead of what it costs", self.name),
        }
    }

    /// Waits for what comes of a flood.
    pub fn flood(&self, at_most: Duration) -> anyhow::Result<FloodUse> {
        match self.next(at_most)? {
            Message::Flood(used) => Ok(*used),
            other => bail!("{} said {other:?} instead of what came of it", self.name),
        }
    }

    /// The process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Lets a load begin; `look` runs at both ends of its measured time.
    pub fn measure(
        &mut self,
        at_most: Duration,
        look: &mut dyn FnMut() -> anyhow::Result<()>,
    ) -> anyhow::Result<LoadReport> {
        self.nod()?;
        self.expect(&Message::Begun, at_most)?;
        look()?;
        self.expect(&Message::Ended, at_most)?;
        look()?;
        self.nod()?;
        match self.next(LATE)? {
            Message::Report(report) => Ok(*report),
            other => bail!("{} said {other:?} instead of its report", self.name),
        }
    }

    /// Lets it go on.
    fn nod(&mut self) -> anyhow::Result<()> {
        self.write("go")
    }

    fn write(&mut self, line: &str) -> anyhow::Result<()> {
        let input = self.input.as_mut().context("the role's input is closed")?;
        input
            .write_all(format!("{line}\n").as_bytes())
            .with_context(|| format!("{} ended early", self.name))
    }

    fn expect(&self, wanted: &Message, at_most: Duration) -> anyhow::Result<()> {
        let message = self.next(at_most)?;
        if message != *wanted {
            bail!("{} said {message:?} instead of {wanted:?}", self.name);
        }
        Ok(())
    }

    /// The next message.
    fn next(&self, at_most: Duration) -> anyhow::Result<Message> {
        let last = Instant::now() + at_most;
        loop {
            interrupt::check()?;
            match self.messages.recv_timeout(LOOK) {
                Ok(Ok(Message::Failed(why))) => bail!("{}: {why}", self.name),
                Ok(message) => return message,
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(anyhow!("{} ended without a word", self.name));
                }
                Err(RecvTimeoutError::Timeout) if Instant::now() < last => {}
                Err(RecvTimeoutError::Timeout) => {
                    bail!("{} said nothing for {} s", self.name, at_most.as_secs());
                }
            }
        }
    }
}

impl Drop for RoleProcess {
    fn drop(&mut self) {
        drop(self.input.take());
        let last = Instant::now() + Duration::from_secs(2);
        while Instant::now() < last {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
