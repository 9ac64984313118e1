//! Servers that take what is sent: after so many bytes of a connection they answer with one byte.

use std::convert::Infallible;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};

use anyhow::{Context, bail};
use serde::{Deserialize, Serialize};
use sidecore_client::{Dti, Event, EventKind, EventQueue, Status, Ual};
use sidecore_engine::Engine;

use crate::echo::Announcement;
use crate::native::{
    Application, Ends, Threads, Waits, at, drive_beside, drive_within, engine_on_tap, open_within,
    wishes,
};
use crate::web::Carrier;

/// Cookie of everything whose answer does not matter.
const NONE: u64 = u64::MAX;

/// Accepts that wait at a time.
const ACCEPTS: usize = 16;

/// Connections at a time.
const CONNECTIONS: usize = 64;

/// Bytes that a kernel server reads with one call.
const READ_BYTES: usize = 256 * 1024;

/// A server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BulkConfig {
    /// Bytes for which there is an answer.
    pub bytes: u64,
    /// What carries its connections. (A kernel server reads in a thread for each connection, whatever back-end is named.)
    pub carrier: Carrier,
}

/// Serves until the process ends.
pub fn serve(
    config: &BulkConfig,
    ready: &mut dyn FnMut(Announcement),
) -> anyhow::Result<Infallible> {
    match &config.carrier {
        Carrier::Kernel { listen, .. } => serve_kernel(*listen, config.bytes, ready),
        Carrier::Engine {
            tap,
            port,
            threads,
            idle,
        } => {
            let address = at(tap.address, *port);
            let engine = engine_on_tap(tap, *idle)?;
            match threads {
                Threads::One => {
                    let (mut engine, control) = Engine::new(engine)?;
                    let ends = open_within(&mut engine, &control, CONNECTIONS)?;
                    let mut server = BulkServer::new(ends, address, config.bytes)?;
                    engine.turn();
                    ready(Announcement::of_engine(address, control));
                    drive_within(&mut engine, &mut server, |_| Ok(false))?;
                    bail!("the engine ended")
                }
                Threads::Two => {
                    let engine = Engine::spawn(engine)?;
                    let ual = Ual::open_on(engine.connect()?, &wishes(CONNECTIONS))?;
                    let mut server = BulkServer::new(Ends::of(ual)?, address, config.bytes)?;
                    ready(Announcement::of_engine(address, engine.control()));
                    drive_beside(&mut server)
                }
            }
        }
    }
}

/// A thread for each connection: for a few bulk connections the kernel knows nothing cheaper than a blocking `read`.
fn serve_kernel(
    listen: SocketAddr,
    bytes: u64,
    ready: &mut dyn FnMut(Announcement),
) -> anyhow::Result<Infallible> {
    let listener =
        TcpListener::bind(listen).with_context(|| format!("cannot listen on {listen}"))?;
    ready(Announcement::plain(listener.local_addr()?));
    loop {
        let (stream, _) = listener.accept()?;
        std::thread::Builder::new()
            .name("bulk".into())
            .spawn(move || take(stream, bytes))?;
    }
}

fn take(mut stream: TcpStream, bytes: u64) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut buffer = vec![0; READ_BYTES];
    let mut taken = 0;
    loop {
        let read = stream.read(&mut buffer)?;
        if read == 0 {
            return Ok(());
        }
        taken += read as u64;
        while taken >= bytes {
            taken -= bytes;
            stream.write_all(b"k")?;
        }
    }
}

/// The same on the native API: what comes lies in the receive pool, and is given back.
struct BulkServer {
    ends: Ends,
    listener: Dti,
    bytes: u64,
    /// Bytes since the last answer, by the index of the DTI.
    taken: Vec<u64>,
}

impl BulkServer {
    fn new(mut ends: Ends, address: SocketAddr, bytes: u64) -> anyhow::Result<Self> {
        let listener = ends.lane.create_stream(ends.queue_id(), ends.queue_id())?;
        ends.lane.bind(listener, address, NONE)?;
        ends.lane.listen(listener, 64, NONE)?;
        let taken = vec![0; ends.ual.granted().dtis as usize];
        let mut server = Self {
            ends,
            listener,
            bytes: bytes.max(1),
            taken,
        };
        for _ in 0..ACCEPTS {
            server.accept()?;
        }
        server.ends.lane.flush();
        Ok(server)
    }

    fn accept(&mut self) -> anyhow::Result<()> {
        let queue = self.ends.queue_id();
        let child = self.ends.lane.create_stream(queue, queue)?;
        Ok(self.ends.lane.accept(self.listener, child, NONE)?)
    }

    fn handle(&mut self, event: &Event) -> anyhow::Result<()> {
        let dti = Dti::from(event.dti);
        match event.kind {
            EventKind::Received => {
                let taken = self.taken.get_mut(dti.index());
                let taken = taken.context("an event for a DTI that was never made")?;
                *taken += u64::from(event.len());
                let answers = *taken / self.bytes;
                *taken %= self.bytes;
                self.ends.lane.return_chunk(event);
                if answers > 0 {
                    let answers = vec![b'k'; (answers as usize).min(32)];
                    self.ends.lane.send_inline(dti, &answers, 0, NONE)?;
                }
                if event.end() {
                    self.close(dti)?;
                }
                Ok(())
            }
            EventKind::Accepted if event.status == Status::Ok => self.accept(),
            EventKind::Accepted => bail!("accept: {:?}", event.status),
            EventKind::Closed => self.close(dti),
            _ => Ok(()),
        }
    }

    /// Closes; what was closed before is an error that nobody minds.
    fn close(&mut self, dti: Dti) -> anyhow::Result<()> {
        if let Some(taken) = self.taken.get_mut(dti.index()) {
            *taken = 0;
        }
        Ok(self.ends.lane.close(dti, NONE)?)
    }
}

impl Application for BulkServer {
    fn step(&mut self) -> anyhow::Result<usize> {
        let mut taken = 0;
        for _ in 0..self.ends.limit() {
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

impl Waits for BulkServer {
    fn queue(&mut self) -> &mut EventQueue {
        self.ends.queue()
    }

    fn is_behind(&self) -> bool {
        self.ends.is_behind()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::{Ask, LoadConfig, Unwatched};

    #[test]
    fn a_kernel_server_takes_uploads() {
        let (sender, addresses) = std::sync::mpsc::channel();
        let config = BulkConfig {
            bytes: 100_000,
            carrier: Carrier::Kernel {
                io: "epoll".into(),
                listen: "127.0.0.1:0".parse().unwrap(),
                cores: Vec::new(),
            },
        };
        std::thread::spawn(move || serve(&config, &mut |it| sender.send(it.address).unwrap()));
        let address = addresses.recv().unwrap();
        let mut load = LoadConfig::closed(address, Ask::Upload(100_000), 2);
        let report = crate::load::answered(|measure| {
            load.measure = measure;
            crate::load::run(&load, &mut Unwatched).unwrap()
        });
        assert_eq!((report.failed, report.reconnects), (0, 0));
    }
}
