//! Echo on kernel sockets with io_uring: multishot accept and receive, provided buffers, registered files, one system call for
//! each batch of completions. What was received is sent from the buffer it came in.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::io;
use std::net::TcpListener;
use std::os::fd::AsFd;

use anyhow::Context;
use sidecore_sys::uring::{Buffer, Completion, FileSlot, Operation, Ring, RingConfig};

use super::{Announcement, KernelEcho, listen};

/// Connections of one worker at a time.
const FILES: u32 = 16 * 1024;

/// The listener's slot. The kernel chooses the lowest free slot for a connection, so this one stays taken.
const LISTENER: FileSlot = FileSlot(0);

/// Serves until the process ends.
pub fn serve(
    config: &KernelEcho,
    ready: &mut dyn FnMut(Announcement),
) -> anyhow::Result<Infallible> {
    listen::serve_on_cores(config, ready, work)
}

/// A connection, by the number of its slot.
#[derive(Default)]
struct Connection {
    /// A send is in flight.
    sending: bool,
    /// Buffers that wait for it: sends of one connection go one at a time, so that they stay in order.
    waiting: VecDeque<Buffer>,
    /// The receive ended for want of buffers and must be asked again.
    starved: bool,
    /// The peer has ended, or something broke.
    ended: bool,
}

struct Worker {
    ring: Ring,
    connections: Vec<Connection>,
    starved: Vec<u32>,
}

fn work(listener: TcpListener) -> anyhow::Result<Infallible> {
    let config = RingConfig {
        entries: 4096,
        completions: 32 * 1024,
        buffers: 4096,
        buffer_bytes: 4096,
        files: FILES,
    };
    let ring = Ring::new(&config)
        .context("io_uring (Linux 6.1 or later is needed, and it must not be switched off)")?;
    let mut worker = Worker {
        ring,
        connections: Vec::new(),
        starved: Vec::new(),
    };
    worker
        .connections
        .resize_with(FILES as usize, Connection::default);
    worker.ring.register(LISTENER, listener.as_fd())?;
    worker.ring.accept(LISTENER, 0)?;
    loop {
        worker.ring.submit(1, None)?;
        while let Some(completion) = worker.ring.complete() {
            worker.handle(completion)?;
        }
        while let Some(token) = worker.starved.pop() {
            worker.connections[token as usize].starved = false;
            worker.ring.receive(FileSlot(token), token)?;
        }
    }
}

impl Worker {
    fn handle(&mut self, completion: Completion) -> io::Result<()> {
        match completion.operation {
            Operation::Accept => self.accepted(completion),
            Operation::Receive => self.received(completion),
            Operation::Send => self.sent(completion),
            Operation::Close | Operation::Poll => Ok(()),
        }
    }

    fn accepted(&mut self, completion: Completion) -> io::Result<()> {
        if let Ok(slot) = completion.result {
            self.connections[slot as usize] = Connection::default();
            self.ring.receive(FileSlot(slot), slot)?;
        }
        if !completion.more {
            self.ring.accept(LISTENER, 0)?;
        }
        Ok(())
    }

    #[inline]
    fn received(&mut self, completion: Completion) -> io::Result<()> {
        let token = completion.token;
        let connection = &mut self.connections[token as usize];
        match (completion.result, completion.buffer) {
            (Ok(1..), Some(buffer)) if connection.ended => self.ring.provide(buffer),
            (Ok(1..), Some(buffer)) if connection.sending => connection.waiting.push_back(buffer),
            (Ok(1..), Some(buffer)) => {
                connection.sending = true;
                self.ring.send(FileSlot(token), token, buffer)?;
            }
            (Err(error), _)
                if error.raw_os_error() == Some(rustix::io::Errno::NOBUFS.raw_os_error()) =>
            {
                connection.starved = true;
                self.starved.push(token);
                return Ok(());
            }
            (_, buffer) => {
                buffer
                    .into_iter()
                    .for_each(|buffer| self.ring.provide(buffer));
                return self.end(token);
            }
        }
        if !completion.more {
            self.ring.receive(FileSlot(token), token)?;
        }
        Ok(())
    }

    #[inline]
    fn sent(&mut self, completion: Completion) -> io::Result<()> {
        let token = completion.token;
        completion
            .buffer
            .into_iter()
            .for_each(|buffer| self.ring.provide(buffer));
        let connection = &mut self.connections[token as usize];
        connection.sending = false;
        if completion.result.is_err() {
            return self.end(token);
        }
        if let Some(buffer) = connection.waiting.pop_front() {
            connection.sending = true;
            self.ring.send(FileSlot(token), token, buffer)?;
        } else if connection.ended {
            self.ring.close(FileSlot(token), token)?;
        }
        Ok(())
    }

    /// The peer ended or something broke: closes once nothing is being sent.
    fn end(&mut self, token: u32) -> io::Result<()> {
        let connection = &mut self.connections[token as usize];
        let first = !std::mem::replace(&mut connection.ended, true);
        if first && !connection.sending {
            self.ring.close(FileSlot(token), token)?;
        }
        Ok(())
    }
}
