//! An echo server on the native API: what comes is sent back from where it lies in the receive pool, without a copy.
//!
//! ```text
//! cargo run --release --example echo_server -- --socket /run/sidecore.sock --listen 10.77.0.2:7
//! ```

mod common;

use std::collections::VecDeque;

use sidecore_client::{Dti, Event, EventKind, EventQueue, Lane, PostError, Ual, UalConfig, flags};

/// Accepts that wait at the listener.
const ACCEPTS: usize = 64;

/// Commands that one event can lead to.
const COMMANDS: u32 = 4;

struct Server {
    ual: Ual,
    lane: Lane,
    queue: EventQueue,
    listener: Dti,
    /// Connections by the index of their DTI: those that are ours and not closed.
    open: Vec<Option<Dti>>,
}

impl Server {
    /// Makes a child and lets it wait for a connection.
    fn accept(&mut self) -> Result<(), PostError> {
        let child = self.lane.create_stream(&self.queue, &self.queue)?;
        if self.open.len() <= child.index() {
            self.open.resize(child.index() + 1, None);
        }
        self.open[child.index()] = Some(child);
        self.lane.accept(self.listener, child, 0)
    }

    fn close(&mut self, dti: Dti) -> Result<(), PostError> {
        let place = self.open.get_mut(dti.index());
        match place.and_then(|open| open.take_if(|open| *open == dti)) {
            Some(dti) => self.lane.close(dti, 0),
            None => Ok(()),
        }
    }

    fn handle(&mut self, event: &Event) -> Result<(), PostError> {
        let dti = Dti::from(event.dti);
        match event.kind {
            EventKind::Accepted => self.accept()?,
            EventKind::Received => {
                if let Some(bytes) = self.ual.pool().extent(event) {
                    // The chunk is ours until the peer has acknowledged its bytes; its number comes back with Sent.
                    let chunk = u64::from(event.chunk());
                    self.lane.send(dti, bytes, flags::NOTIFY, chunk)?;
                }
                if event.end() {
                    self.close(dti)?;
                }
            }
            EventKind::Sent => self.lane.return_chunk_number(event.cookie as u32),
            EventKind::Closed => self.close(dti)?,
            kind => eprintln!("{kind:?}: {:?}", event.status),
        }
        Ok(())
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let options = common::options("0.0.0.0:7");
    let ual = Ual::open(&options.socket, &UalConfig::default())?;
    let (mut lane, mut queue) = (ual.lane()?, ual.event_queue()?);
    let listener = lane.create_stream(&queue, &queue)?;
    lane.bind(listener, options.address, 1)?;
    lane.listen(listener, 1024, 2)?;
    lane.flush();
    for what in ["bind", "listen"] {
        queue.wait(None)?;
        let answer = queue.poll().ok_or("no answer")?;
        if answer.status != sidecore_client::Status::Ok {
            return Err(format!("{what} {}: {:?}", options.address, answer.status).into());
        }
    }
    println!("listening on {}", options.address);
    let mut server = Server {
        ual,
        lane,
        queue,
        listener,
        open: Vec::new(),
    };
    for _ in 0..ACCEPTS {
        server.accept()?;
    }
    // Events are always taken, also while the lane has no room for what follows from them: the engine reads no commands while
    // the queue is full.
    let (mut batch, mut backlog) = (Vec::new(), VecDeque::new());
    loop {
        server.lane.flush();
        if backlog.is_empty() {
            server.queue.wait(None)?;
        }
        server.queue.dequeue(&mut batch, 256);
        backlog.extend(batch.drain(..));
        while server.lane.has_room(COMMANDS)
            && let Some(event) = backlog.pop_front()
        {
            server.handle(&event)?;
        }
    }
}
