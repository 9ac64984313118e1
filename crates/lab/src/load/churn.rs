//! Connections that come and go: each exchange opens a connection, sends one message, gets it back, and closes. So many are under way
//! at a time.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::time::Instant;

use anyhow::{Context, bail};
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, connect, sockopt};

use super::worker::{Counts, Orders, Window};

/// How often a refused or broken connection may be tried again, for each one that is under way at a time.
const TRIES: u64 = 100;

/// One exchange under way.
struct Exchange {
    socket: OwnedFd,
    began: u64,
    sent: bool,
    received: usize,
}

/// A worker that churns.
pub struct ChurnWorker {
    orders: Orders,
    message: Vec<u8>,
    answer: Vec<u8>,
    epoll: OwnedFd,
    exchanges: Vec<Exchange>,
    counts: Counts,
    next: usize,
    start: Instant,
    begin: u64,
    end: u64,
}

impl ChurnWorker {
    /// A worker that has so many bytes echoed; it connects when it runs.
    pub fn new(orders: Orders, bytes: usize) -> anyhow::Result<Self> {
        let message: Vec<u8> = (0..bytes.max(1)).map(|i| (i % 251) as u8).collect();
        Self::with(orders, &message, &message)
    }

    /// A worker that sends this message and expects this answer; it connects when it runs.
    pub fn with(orders: Orders, message: &[u8], answer: &[u8]) -> anyhow::Result<Self> {
        if message.is_empty() || answer.is_empty() {
            bail!("a message or its answer is empty");
        }
        if orders.targets.is_empty() {
            bail!("no address to connect to");
        }
        Ok(Self {
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            message: message.to_vec(),
            answer: answer.to_vec(),
            exchanges: Vec::with_capacity(orders.connections),
            orders,
            counts: Counts::default(),
            next: 0,
            start: Instant::now(),
            begin: 0,
            end: 0,
        })
    }

    /// Runs warm-up and window, and returns what was counted: an answer is a whole exchange, from before `connect` to after `close`.
    pub fn run(mut self, window: Window) -> anyhow::Result<Counts> {
        self.start = window.start;
        self.begin = (window.begin - window.start).as_nanos() as u64;
        self.end = (window.end - window.start).as_nanos() as u64;
        for number in 0..self.orders.connections {
            let exchange = self.open(number)?;
            self.exchanges.push(exchange);
        }
        let mut events: Vec<epoll::Event> = Vec::with_capacity(1024);
        let mut buffer = vec![0; self.answer.len().max(4096)];
        loop {
            let now = self.now();
            if now >= self.end {
                return Ok(self.counts);
            }
            let left = self.end - now;
            let timeout = Timespec {
                tv_sec: (left / 1_000_000_000) as i64,
                tv_nsec: (left % 1_000_000_000) as i64,
            };
            let spare = rustix::buffer::spare_capacity(&mut events);
            match epoll::wait(&self.epoll, spare, Some(&timeout)) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error).context("epoll_wait"),
            }
            for event in events.drain(..) {
                self.serve(event.data.u64() as usize, &mut buffer)?;
            }
        }
    }

    fn now(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }

    /// Begins to connect.
    fn open(&mut self, number: usize) -> anyhow::Result<Exchange> {
        let target: SocketAddr = self.orders.targets[self.next % self.orders.targets.len()];
        self.next = self.next.wrapping_add(1);
        let family = if target.is_ipv4() {
            AddressFamily::INET
        } else {
            AddressFamily::INET6
        };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let began = self.now();
        let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
        sockopt::set_tcp_nodelay(&socket, true)?;
        if let Some(name) = &self.orders.congestion {
            sockopt::set_tcp_congestion(&socket, name)
                .with_context(|| format!("no congestion control named {name}"))?;
        }
        match connect(&socket, &target) {
            Ok(()) | Err(Errno::INPROGRESS) => {}
            Err(error) => return Err(error).with_context(|| format!("cannot connect to {target}")),
        }
        let data = epoll::EventData::new_u64(number as u64);
        epoll::add(&self.epoll, &socket, data, epoll::EventFlags::OUT)?;
        Ok(Exchange {
            socket,
            began,
            sent: false,
            received: 0,
        })
    }

    fn serve(&mut self, number: usize, buffer: &mut [u8]) -> anyhow::Result<()> {
        let exchange = &mut self.exchanges[number];
        if !exchange.sent {
            return match rustix::io::write(&exchange.socket, &self.message) {
                Ok(sent) if sent == self.message.len() => {
                    exchange.sent = true;
                    let data = epoll::EventData::new_u64(number as u64);
                    Ok(epoll::modify(
                        &self.epoll,
                        &exchange.socket,
                        data,
                        epoll::EventFlags::IN,
                    )?)
                }
                Err(Errno::AGAIN) => Ok(()),
                Ok(_) => bail!(
                    "a new connection takes only part of a message of {} bytes",
                    self.message.len()
                ),
                Err(_) => self.again(number),
            };
        }
        match rustix::io::read(&exchange.socket, &mut *buffer) {
            Ok(read @ 1..) => {
                let end = exchange.received + read;
                if self.answer.get(exchange.received..end) != Some(&buffer[..read]) {
                    bail!("another answer than was expected");
                }
                exchange.received = end;
            }
            Err(Errno::AGAIN) => return Ok(()),
            Ok(_) | Err(_) => return self.again(number),
        }
        if exchange.received < self.answer.len() {
            return Ok(());
        }
        let began = exchange.began;
        let next = self.open(number)?;
        // Closes the old one.
        self.exchanges[number] = next;
        let now = self.now();
        if (self.begin..self.end).contains(&now) {
            self.counts.completed += 1;
        }
        if (self.begin..self.end).contains(&began) {
            self.counts.latency.record(now - began);
        }
        Ok(())
    }

    /// A connection was refused or broke: counted, and tried again.
    fn again(&mut self, number: usize) -> anyhow::Result<()> {
        self.counts.reconnects += 1;
        if self.counts.reconnects > TRIES * self.orders.connections as u64 {
            bail!("connections are refused or break again and again");
        }
        self.exchanges[number] = self.open(number)?;
        Ok(())
    }
}
