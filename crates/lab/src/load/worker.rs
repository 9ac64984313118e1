//! One thread of the load generator: an epoll loop over its connections.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use rustix::event::{Timespec, epoll};

use super::arrivals::{Arrivals, Schedule};
use super::latency::Recorder;
use super::protocol::{Progress, Protocol};

/// How long a connection may take to come up.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// How long answers may trickle in after the end of an open loop's window.
const GRACE: Duration = Duration::from_secs(2);

/// Requests that may wait for one connection of an open loop; more are counted as dropped.
pub(crate) const MAX_PENDING: usize = 4096;

/// Bytes read with one call.
const READ_BYTES: usize = 256 * 1024;

/// Bytes shown of an answer that is not the one expected.
const SHOWN: usize = 100;

/// What a worker is told.
pub struct Orders {
    /// Where to connect to; connections take the addresses in turn.
    pub targets: Vec<SocketAddr>,
    /// How many connections.
    pub connections: usize,
    /// When requests are due.
    pub arrivals: Arrivals,
    /// Congestion control of the connections; the kernel's default if none is named.
    pub congestion: Option<String>,
    /// Ask epoll again and again instead of sleeping in it.
    pub spin: bool,
}

/// The measured window, as instants.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    /// Requests begin (warm-up).
    pub start: Instant,
    /// Measuring begins.
    pub begin: Instant,
    /// Measuring ends.
    pub end: Instant,
}

/// What a worker counted inside its window.
#[derive(Default)]
pub struct Counts {
    /// Answers that came inside the window.
    pub completed: u64,
    /// Of these: the server answered with an error of its own.
    pub failed: u64,
    /// Connections that broke and were made anew.
    pub reconnects: u64,
    /// Open loop: requests that were due but found [`MAX_PENDING`] waiting.
    pub dropped: u64,
    /// Open loop: requests due inside the window that were never answered.
    pub unanswered: u64,
    /// Bytes received inside the window.
    pub bytes_in: u64,
    /// Bytes sent inside the window.
    pub bytes_out: u64,
    /// Latencies of requests that were due (open loop) or sent (closed loop) inside the window.
    pub latency: Recorder,
}

struct Connection<S> {
    stream: TcpStream,
    state: S,
    /// When the outstanding request was due, in nanoseconds since the start; none: idle.
    asked: Option<u64>,
    /// Bytes of the outstanding request that are not sent yet.
    unsent: usize,
    /// Due times of requests that wait for this connection.
    pending: VecDeque<u64>,
}

/// A worker with its connections up.
pub struct Worker<P: Protocol> {
    orders: Orders,
    protocol: P,
    epoll: OwnedFd,
    connections: Vec<Connection<P::State>>,
    buffer: Vec<u8>,
    counts: Counts,
    start: Instant,
    begin: u64,
    end: u64,
    /// Requests of the window that are due and unanswered.
    owed: u64,
}

/// Connects, without waiting longer than a few seconds.
fn connect(target: SocketAddr, congestion: Option<&str>) -> anyhow::Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&target, CONNECT_TIMEOUT)
        .with_context(|| format!("cannot connect to {target}"))?;
    stream.set_nodelay(true)?;
    stream.set_nonblocking(true)?;
    if let Some(name) = congestion {
        rustix::net::sockopt::set_tcp_congestion(&stream, name)
            .with_context(|| format!("no congestion control named {name}"))?;
    }
    Ok(stream)
}

/// The connection of this number.
pub(super) fn open(orders: &Orders, number: usize) -> anyhow::Result<TcpStream> {
    let target = orders.targets.get(number % orders.targets.len().max(1));
    connect(
        *target.context("no address to connect to")?,
        orders.congestion.as_deref(),
    )
}

fn watch(epoll: &OwnedFd, stream: &TcpStream, number: usize) -> anyhow::Result<()> {
    let data = epoll::EventData::new_u64(number as u64);
    Ok(epoll::add(epoll, stream, data, epoll::EventFlags::IN)?)
}

impl<P: Protocol> Worker<P> {
    /// Opens all connections, one after the other.
    pub fn connect(orders: Orders, protocol: P) -> anyhow::Result<Self> {
        let open = |number: usize| open(&orders, number);
        let streams = (0..orders.connections)
            .map(open)
            .collect::<anyhow::Result<_>>()?;
        Self::over(orders, protocol, streams)
    }

    /// Over connections that are up already; they must be non-blocking.
    pub fn over(orders: Orders, protocol: P, streams: Vec<TcpStream>) -> anyhow::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).context("epoll")?;
        let mut connections = Vec::with_capacity(streams.len());
        for (number, stream) in streams.into_iter().enumerate() {
            watch(&epoll, &stream, number)?;
            connections.push(Connection {
                stream,
                state: P::State::default(),
                asked: None,
                unsent: 0,
                pending: VecDeque::new(),
            });
        }
        Ok(Self {
            connections,
            orders,
            protocol,
            epoll,
            buffer: vec![0; READ_BYTES],
            counts: Counts::default(),
            start: Instant::now(),
            begin: 0,
            end: 0,
            owed: 0,
        })
    }

    /// Runs warm-up and window, and returns what was counted.
    pub fn run(mut self, window: Window) -> anyhow::Result<Counts> {
        self.start = window.start;
        self.begin = nanos(window.begin - window.start);
        self.end = nanos(window.end - window.start);
        // An open loop's requests are spread by the timer: do not let the kernel round it to 50 microseconds.
        let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
        if let Some(wait) = window.start.checked_duration_since(Instant::now()) {
            std::thread::sleep(wait);
        }
        match Schedule::new(self.orders.arrivals) {
            None => self.run_closed()?,
            Some(schedule) => self.run_open(schedule)?,
        }
        Ok(self.counts)
    }

    #[inline]
    fn now(&self) -> u64 {
        nanos(self.start.elapsed())
    }

    fn run_closed(&mut self) -> anyhow::Result<()> {
        for number in 0..self.connections.len() {
            let now = self.now();
            self.ask(number, now, now)?;
        }
        let mut events = Vec::with_capacity(1024);
        loop {
            let now = self.now();
            if now >= self.end {
                return Ok(());
            }
            self.wait(&mut events, self.end - now)?;
            for event in events.drain(..) {
                self.serve(event, true)?;
            }
        }
    }

    fn run_open(&mut self, mut schedule: Schedule) -> anyhow::Result<()> {
        let mut events = Vec::with_capacity(1024);
        let mut turn = 0;
        let last = self.end + nanos(GRACE);
        loop {
            let mut now = self.now();
            while schedule.due() <= now && schedule.due() < self.end {
                self.due(turn, schedule.due(), now)?;
                turn = if turn + 1 < self.connections.len() {
                    turn + 1
                } else {
                    0
                };
                schedule.advance();
                now = self.now();
            }
            let issued_all = schedule.due() >= self.end;
            if now >= last || (now >= self.end && self.owed == 0 && issued_all) {
                self.counts.unanswered = self.owed;
                return Ok(());
            }
            let next = if issued_all && now >= self.end {
                last
            } else {
                schedule.due().min(self.end)
            };
            self.wait(&mut events, next.saturating_sub(now))?;
            for event in events.drain(..) {
                self.serve(event, false)?;
            }
        }
    }

    /// Waits for events, at most so many nanoseconds.
    fn wait(&self, events: &mut Vec<epoll::Event>, nanos: u64) -> anyhow::Result<()> {
        let nanos = if self.orders.spin { 0 } else { nanos };
        let timeout = Timespec {
            tv_sec: (nanos / 1_000_000_000) as i64,
            tv_nsec: (nanos % 1_000_000_000) as i64,
        };
        match epoll::wait(
            &self.epoll,
            rustix::buffer::spare_capacity(events),
            Some(&timeout),
        ) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error).context("epoll_wait"),
        }
    }

    /// A request is due on this connection: sends it if the connection is idle, else lets it wait.
    fn due(&mut self, number: usize, due: u64, now: u64) -> anyhow::Result<()> {
        let inside = self.inside(due);
        let connection = &mut self.connections[number];
        if connection.pending.len() >= MAX_PENDING {
            self.counts.dropped += 1;
            return Ok(());
        }
        self.owed += u64::from(inside);
        if connection.asked.is_some() {
            connection.pending.push_back(due);
            return Ok(());
        }
        self.ask(number, due, now)
    }

    #[inline]
    fn inside(&self, at: u64) -> bool {
        at >= self.begin && at < self.end
    }

    /// Sends the next request of a connection; its latency counts from `due`.
    #[inline]
    fn ask(&mut self, number: usize, due: u64, now: u64) -> anyhow::Result<()> {
        let connection = &mut self.connections[number];
        connection.asked = Some(due);
        let request = self.protocol.next_request(&mut connection.state);
        let length = request.len();
        let sent = match connection.stream.write(request) {
            Ok(sent) => sent,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
            Err(_) => return self.broken(number),
        };
        connection.unsent = length - sent;
        if connection.unsent > 0 {
            self.want(number, epoll::EventFlags::IN | epoll::EventFlags::OUT)?;
        }
        if self.inside(now) {
            self.counts.bytes_out += sent as u64;
        }
        Ok(())
    }

    fn want(&self, number: usize, flags: epoll::EventFlags) -> anyhow::Result<()> {
        let data = epoll::EventData::new_u64(number as u64);
        epoll::modify(&self.epoll, &self.connections[number].stream, data, flags)?;
        Ok(())
    }

    /// Sends more of a request that did not fit.
    fn send_rest(&mut self, number: usize) -> anyhow::Result<()> {
        let connection = &mut self.connections[number];
        let request = self.protocol.request(&connection.state);
        let rest = &request[request.len() - connection.unsent..];
        match connection.stream.write(rest) {
            Ok(sent) => connection.unsent -= sent,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
            Err(_) => return self.broken(number),
        }
        if connection.unsent == 0 {
            self.want(number, epoll::EventFlags::IN)?;
        }
        Ok(())
    }

    #[inline]
    fn serve(&mut self, event: epoll::Event, closed: bool) -> anyhow::Result<()> {
        let number = event.data.u64() as usize;
        let flags = event.flags;
        if flags.contains(epoll::EventFlags::OUT) && self.connections[number].unsent > 0 {
            self.send_rest(number)?;
        }
        let connection = &mut self.connections[number];
        let read = match connection.stream.read(&mut self.buffer) {
            Ok(0) => return self.broken(number),
            Ok(read) => read,
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
                ) =>
            {
                return Ok(());
            }
            Err(_) => return self.broken(number),
        };
        let progress = self
            .protocol
            .receive(&mut connection.state, &self.buffer[..read]);
        let now = self.now();
        if self.inside(now) {
            self.counts.bytes_in += read as u64;
        }
        let connection = &mut self.connections[number];
        match (progress, connection.asked) {
            (Ok(Progress::Partial), Some(_)) => Ok(()),
            (Ok(Progress::Complete { ok }), Some(asked)) => {
                connection.asked = None;
                self.answered(asked, now, ok);
                self.go_on(number, now, closed)
            }
            (Err(error), _) => {
                let begin = &self.buffer[..read.min(SHOWN)];
                let begin = begin.escape_ascii();
                bail!("connection {number}: {error:?} in the answer, {read} bytes: {begin}")
            }
            (Ok(_), None) => bail!("connection {number}: an answer without a request"),
        }
    }

    #[inline]
    fn answered(&mut self, asked: u64, now: u64, ok: bool) {
        if self.inside(now) {
            self.counts.completed += 1;
            self.counts.failed += u64::from(!ok);
        }
        if self.inside(asked) {
            self.counts.latency.record(now.saturating_sub(asked));
            self.owed = self.owed.saturating_sub(1);
        }
    }

    /// Sends what is due next on a connection that became idle.
    #[inline]
    fn go_on(&mut self, number: usize, now: u64, closed: bool) -> anyhow::Result<()> {
        if closed {
            return self.ask(number, now, now);
        }
        match self.connections[number].pending.pop_front() {
            Some(due) => self.ask(number, due, now),
            None => Ok(()),
        }
    }

    /// Makes a broken connection anew; its request is asked again, and its time goes on.
    fn broken(&mut self, number: usize) -> anyhow::Result<()> {
        self.counts.reconnects += 1;
        if self.counts.reconnects > 100 + 2 * self.connections.len() as u64 {
            bail!("the server closes connections again and again");
        }
        let stream = open(&self.orders, number)?;
        watch(&self.epoll, &stream, number)?;
        let asked = self.connections[number].asked.take();
        self.connections[number].stream = stream;
        self.connections[number].state = P::State::default();
        match asked {
            Some(due) => {
                let now = self.now();
                self.ask(number, due, now)
            }
            None => Ok(()),
        }
    }
}

fn nanos(duration: Duration) -> u64 {
    duration.as_nanos() as u64
}
