//! Small services on the native API, each in a thread of its own until it is dropped.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Result, ensure};
use sha2::{Digest, Sha256};
use sidecore_abi::command::flags;
use sidecore_abi::handle::POOL_REGION;
use sidecore_abi::{Event, EventKind, Extent, Status};
use sidecore_client::{Dti, EventQueue, Lane, Ual};

/// What a service does with what it receives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Sends everything back, from the receive pool, without a copy.
    Echo,
    /// Receives to the end, then answers with the SHA-256 of all of it in hexadecimal digits, and closes.
    Digest,
    /// Accepts, and never takes an event again.
    Deaf,
}

/// A running service.
pub struct Service {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<()>>>,
}

/// How a service takes connections in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Door {
    /// Connections that may wait for an accept.
    pub backlog: u32,
    /// Accepts that wait at a time; a new one is posted when a connection has ended.
    pub accepts: usize,
}

impl Default for Door {
    fn default() -> Self {
        Self {
            backlog: 1024,
            accepts: 256,
        }
    }
}

struct Worker {
    ual: Ual,
    lane: Lane,
    evq: EventQueue,
    listener: Dti,
    kind: Kind,
    digests: HashMap<Dti, Sha256>,
}

impl Service {
    /// Starts one on its own UAL; it listens when this returns.
    pub fn start(ual: Ual, address: SocketAddr, kind: Kind) -> Result<Self> {
        Self::behind(Door::default(), ual, address, kind)
    }

    /// The same with a door of one's own.
    pub fn behind(door: Door, ual: Ual, address: SocketAddr, kind: Kind) -> Result<Self> {
        let (mut lane, mut evq) = (ual.lane()?, ual.event_queue()?);
        let listener = lane.create_stream(&evq, &evq)?;
        lane.bind(listener, address, 0)?;
        lane.listen(listener, door.backlog, 0)?;
        lane.flush();
        for _ in 0..2 {
            ensure!(
                evq.wait(Some(Duration::from_secs(5)))?,
                "no answer to bind and listen"
            );
            let event = evq.poll();
            ensure!(
                event.is_some_and(|e| e.status == Status::Ok),
                "bind or listen: {event:?}"
            );
        }
        let stop = Arc::new(AtomicBool::new(false));
        let mut worker = Worker {
            ual,
            lane,
            evq,
            listener,
            kind,
            digests: HashMap::new(),
        };
        for _ in 0..door.accepts {
            worker.accept()?;
        }
        let stopped = stop.clone();
        let thread = std::thread::spawn(move || worker.run(&stopped));
        Ok(Self {
            stop,
            thread: Some(thread),
        })
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take()
            && let Ok(Err(error)) = thread.join()
            && !error.to_string().contains("gone")
        {
            eprintln!("service: {error:#}");
        }
    }
}

impl Worker {
    fn accept(&mut self) -> Result<()> {
        let child = self.lane.create_stream(&self.evq, &self.evq)?;
        self.lane.accept(self.listener, child, 0)?;
        self.lane.flush();
        Ok(())
    }

    fn run(&mut self, stop: &AtomicBool) -> Result<()> {
        while !stop.load(Ordering::Relaxed) {
            if self.kind == Kind::Deaf {
                std::thread::sleep(Duration::from_millis(10));
                continue;
            }
            while let Some(event) = self.evq.poll() {
                self.handle(&event)?;
                if self.lane.free() < 64 {
                    self.lane.flush();
                }
            }
            self.lane.flush();
            self.evq.wait(Some(Duration::from_millis(50)))?;
        }
        Ok(())
    }

    fn handle(&mut self, event: &Event) -> Result<()> {
        let dti = Dti::from(event.dti);
        match event.kind {
            EventKind::Received if self.kind == Kind::Echo => self.echo(event)?,
            EventKind::Received => self.digest(event)?,
            EventKind::Sent if event.cookie > 0 => {
                self.lane.return_chunk_number(event.cookie as u32 - 1);
            }
            EventKind::Closed => {
                self.digests.remove(&dti);
                if event.status != Status::Ok {
                    // Reset: our own close is still to come.
                    let _ = self.lane.close(dti, 0);
                }
                self.accept()?;
            }
            _ => {}
        }
        Ok(())
    }

    fn echo(&mut self, event: &Event) -> Result<()> {
        let dti = Dti::from(event.dti);
        if !event.is_empty() {
            let extent = Extent {
                region: POOL_REGION,
                offset: event.offset(),
                len: event.len(),
            };
            // The chunk goes back when the peer has acknowledged what lies in it.
            self.lane
                .send(dti, extent, flags::NOTIFY, u64::from(event.chunk()) + 1)?;
        }
        if event.end() {
            self.lane.close(dti, 0)?;
        }
        Ok(())
    }

    fn digest(&mut self, event: &Event) -> Result<()> {
        let dti = Dti::from(event.dti);
        let digest = self.digests.entry(dti).or_default();
        if !event.is_empty() {
            let mut bytes = vec![0; event.len() as usize];
            self.ual.pool().read(event, &mut bytes);
            self.lane.return_chunk(event);
            digest.update(&bytes);
        }
        if event.end() {
            let text = hex(&self.digests.remove(&dti).unwrap_or_default());
            for (i, part) in text.as_bytes().chunks(32).enumerate() {
                let more = if i == 0 { flags::MORE } else { 0 };
                self.lane.send_inline(dti, part, more, 0)?;
            }
            self.lane.close(dti, 0)?;
        }
        Ok(())
    }
}

/// A digest in hexadecimal digits.
pub fn hex(digest: &Sha256) -> String {
    digest
        .clone()
        .finalize()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}
