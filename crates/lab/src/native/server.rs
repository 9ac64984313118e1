//! An echo server on the native API. Small messages go back from the receive pool by a copying send, large ones by reference.

use std::collections::HashSet;
use std::net::SocketAddr;

use anyhow::{Context, bail};
use sidecore_client::{COPY_MAX, Dti, Event, EventKind, EventQueue, Operation, Status, flags};

use super::{Application, Ends, Waits};

/// Accepts that wait at a time.
const ACCEPTS: usize = 64;

/// Cookie of everything whose answer does not matter; chunks come as their number and a half.
const NONE: u64 = u64::MAX;

/// The server.
pub struct EchoServer {
    ends: Ends,
    listener: Dti,
    /// Closed by us, not yet by the engine.
    closing: HashSet<Dti>,
}

impl EchoServer {
    /// Listens at `address`. The engine does it when it turns.
    pub fn new(mut ends: Ends, address: SocketAddr) -> anyhow::Result<Self> {
        let listener = ends.lane.create_stream(&ends.queue, &ends.queue)?;
        ends.lane.bind(listener, address, NONE)?;
        ends.lane.listen(listener, 4096, NONE)?;
        let mut server = Self {
            ends,
            listener,
            closing: HashSet::new(),
        };
        for _ in 0..ACCEPTS {
            server.accept()?;
        }
        server.ends.lane.nop(&server.ends.queue, NONE)?;
        server.ends.lane.flush();
        Ok(server)
    }

    fn accept(&mut self) -> anyhow::Result<()> {
        let child = self
            .ends
            .lane
            .create_stream(&self.ends.queue, &self.ends.queue)?;
        Ok(self.ends.lane.accept(self.listener, child, NONE)?)
    }

    fn handle(&mut self, event: &Event) -> anyhow::Result<()> {
        match event.kind {
            EventKind::Received => self.echo(event),
            EventKind::Sent => {
                self.ends.lane.return_chunk_number(event.cookie as u32);
                Ok(())
            }
            EventKind::Accepted if event.status == Status::Ok => self.accept(),
            EventKind::Accepted => bail!("accept: {:?}", event.status),
            EventKind::Closed => {
                if !self.closing.remove(&Dti::from(event.dti)) {
                    self.ends.lane.close(event.dti.into(), NONE)?;
                }
                Ok(())
            }
            EventKind::Completion if event.status != Status::Ok => self.failed(event),
            _ => Ok(()),
        }
    }

    /// A send on a connection that is gone may fail; nothing else may.
    fn failed(&mut self, event: &Event) -> anyhow::Result<()> {
        let operation = event.body[4];
        if operation == Operation::Send as u64 {
            if event.cookie != NONE {
                self.ends.lane.return_chunk_number(event.cookie as u32);
            }
            return Ok(());
        }
        bail!("operation {operation}: {:?}", event.status)
    }

    #[inline]
    fn echo(&mut self, event: &Event) -> anyhow::Result<()> {
        let dti = Dti::from(event.dti);
        if let Some(extent) = self.ends.ual.pool().extent(event) {
            if extent.len <= COPY_MAX {
                self.ends.lane.send_copy(dti, extent, 0, NONE)?;
                self.ends.lane.return_chunk(event);
            } else {
                let chunk = u64::from(event.chunk());
                self.ends.lane.send(dti, extent, flags::NOTIFY, chunk)?;
            }
        }
        if event.end() && self.closing.insert(dti) {
            self.ends.lane.close(dti, NONE).context("closing")?;
        }
        Ok(())
    }
}

impl Application for EchoServer {
    #[inline]
    fn step(&mut self) -> anyhow::Result<usize> {
        let mut taken = 0;
        let limit = self.ends.limit() as usize;
        while taken < limit {
            let Some(event) = self.ends.take() else {
                break;
            };
            taken += 1;
            self.handle(&event)?;
        }
        if taken > 0 {
            self.ends.lane.flush();
        }
        Ok(taken)
    }
}

impl Waits for EchoServer {
    fn queue(&mut self) -> &mut EventQueue {
        &mut self.ends.queue
    }

    fn is_behind(&self) -> bool {
        self.ends.is_behind()
    }
}
