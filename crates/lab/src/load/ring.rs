//! A closed loop of echo requests over io_uring: what a kernel client can do at best. One system call for each batch of answers;
//! the answer's own buffer is sent as the next request.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use sidecore_sys::uring::{Buffer, Completion, FileSlot, Operation, Ring, RingConfig};

use super::worker::{Counts, Orders, Window, open};

/// Bytes of a buffer, and so of the largest message.
const BUFFER: u32 = 4096;

/// A worker with its connections up. They become a ring's when it runs, on its own thread.
pub struct RingWorker {
    orders: Orders,
    message: Arc<[u8]>,
    sockets: Vec<std::net::TcpStream>,
}

struct Connection {
    asked: u64,
    /// Bytes of the answer so far.
    received: usize,
}

struct Loop {
    ring: Ring,
    message: Arc<[u8]>,
    connections: Vec<Connection>,
    counts: Counts,
    start: Instant,
    begin: u64,
    end: u64,
}

impl RingWorker {
    /// Opens all connections.
    pub fn connect(orders: Orders, bytes: usize) -> anyhow::Result<Self> {
        if bytes > BUFFER as usize || bytes == 0 {
            bail!("the io_uring client sends messages of 1 to {BUFFER} bytes");
        }
        let open = |number: usize| open(&orders, number);
        let sockets = (0..orders.connections)
            .map(open)
            .collect::<anyhow::Result<_>>()?;
        let message = (0..bytes).map(|i| (i % 251) as u8).collect();
        Ok(Self {
            orders,
            message,
            sockets,
        })
    }

    /// Runs warm-up and window, and returns what was counted.
    pub fn run(self, window: Window) -> anyhow::Result<Counts> {
        let connections = self.orders.connections;
        let config = RingConfig {
            entries: 4096,
            completions: 32 * 1024,
            buffers: (connections as u16)
                .saturating_mul(2)
                .max(64)
                .next_power_of_two()
                .min(1 << 15),
            buffer_bytes: BUFFER,
            files: connections as u32,
        };
        let mut ring = Ring::new(&config).context("io_uring")?;
        for (number, socket) in self.sockets.iter().enumerate() {
            ring.register(FileSlot(number as u32), socket.as_fd())?;
        }
        let idle = || Connection {
            asked: 0,
            received: 0,
        };
        let mut work = Loop {
            ring,
            message: self.message,
            connections: (0..connections).map(|_| idle()).collect(),
            counts: Counts::default(),
            start: window.start,
            begin: (window.begin - window.start).as_nanos() as u64,
            end: (window.end - window.start).as_nanos() as u64,
        };
        work.run()?;
        Ok(work.counts)
    }
}

impl Loop {
    #[inline]
    fn now(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }

    fn run(&mut self) -> anyhow::Result<()> {
        for number in 0..self.connections.len() as u32 {
            self.connections[number as usize].asked = self.now();
            self.ring.receive(FileSlot(number), number)?;
            let message = Arc::clone(&self.message);
            self.ring.send_shared(FileSlot(number), number, &message)?;
        }
        loop {
            let now = self.now();
            if now >= self.end {
                return Ok(());
            }
            self.ring
                .submit(1, Some(Duration::from_nanos(self.end - now)))?;
            while let Some(completion) = self.ring.complete() {
                self.handle(completion)?;
            }
        }
    }

    #[inline]
    fn handle(&mut self, completion: Completion) -> anyhow::Result<()> {
        let Completion {
            operation,
            token,
            result,
            buffer,
            more,
        } = completion;
        match operation {
            Operation::Send => {
                result.context("sending")?;
                buffer
                    .into_iter()
                    .for_each(|buffer| self.ring.provide(buffer));
            }
            Operation::Receive => {
                match (result, buffer) {
                    (Ok(1..), Some(buffer)) => self.answer(token, buffer)?,
                    (Ok(_), _) => bail!("the server closed connection {token}"),
                    (Err(error), _)
                        if error.raw_os_error()
                            == Some(rustix::io::Errno::NOBUFS.raw_os_error()) => {}
                    (Err(error), _) => return Err(error).context("receiving"),
                }
                if !more {
                    self.ring.receive(FileSlot(token), token)?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    #[inline]
    fn answer(&mut self, token: u32, buffer: Buffer) -> anyhow::Result<()> {
        let connection = &mut self.connections[token as usize];
        let end = connection.received + buffer.len();
        if self.message.get(connection.received..end) != Some(self.ring.bytes(&buffer)) {
            bail!("connection {token}: not the bytes that were sent");
        }
        connection.received = end;
        if end < self.message.len() {
            self.ring.provide(buffer);
            return Ok(());
        }
        connection.received = 0;
        let asked = connection.asked;
        let now = self.start.elapsed().as_nanos() as u64;
        connection.asked = now;
        if (self.begin..self.end).contains(&now) {
            self.counts.completed += 1;
            self.counts.bytes_in += self.message.len() as u64;
            self.counts.bytes_out += self.message.len() as u64;
        }
        if (self.begin..self.end).contains(&asked) {
            self.counts.latency.record(now - asked);
        }
        if buffer.len() == self.message.len() {
            self.ring.send(FileSlot(token), token, buffer)?;
        } else {
            self.ring.provide(buffer);
            let message = Arc::clone(&self.message);
            self.ring.send_shared(FileSlot(token), token, &message)?;
        }
        Ok(())
    }
}
