//! System calls.

use std::net::SocketAddr;

use super::flow::{OURS, SERVER_PORT, THEIRS};
use super::run::{Runner, seconds};
use super::syntax::{Call, Expr, Place};
use super::{Failure, flow::LOCAL_PORT};
use crate::pattern;
use crate::sockets::number::{MSG_OOB, MSG_PEEK, MSG_TRUNC};
use crate::sockets::{Errno, Fd};

/// A call that blocks.
#[derive(Debug)]
pub(super) struct Pending {
    pub(super) place: Place,
    call: Call,
    /// When it is to return.
    pub(super) until: u64,
    /// When a time-out of its own ends it.
    gives_up: Option<u64>,
    /// Bytes that it has written so far.
    written: i64,
}

impl Pending {
    pub(super) fn overdue(&self) -> Result<(), Failure> {
        let message = format!(
            "{} still blocks, expected to return at {}",
            self.call.name,
            seconds(self.until)
        );
        Err(Failure::new(&self.place, message))
    }
}

/// What a call gives.
type Outcome = Result<i64, Errno>;

fn would_block(outcome: &Outcome) -> bool {
    let blocks = [Errno::EAGAIN, Errno::EINPROGRESS, Errno::EALREADY];
    outcome.as_ref().is_err_and(|error| blocks.contains(error))
}

/// `-1 EAGAIN`, or a number.
fn shown(outcome: &Outcome) -> String {
    match outcome {
        Ok(value) => value.to_string(),
        Err(error) => format!("-1 {error}"),
    }
}

impl Runner {
    /// Begins a call, and ends it if it does not block.
    pub(super) fn call(&mut self, place: &Place, call: &Call, now: u64) -> Result<(), String> {
        if self.pending.is_some() {
            return Err("another call still blocks".into());
        }
        let gives_up = match (call.name.as_str(), call.args.get(2)) {
            ("poll", Some(timeout)) => u64::try_from(timeout.int()?).ok().map(|ms| now + ms * 1000),
            _ => None,
        };
        let pending = Pending {
            place: place.clone(),
            call: call.clone(),
            until: call.until.map_or(now, |after| now + after),
            gives_up,
            written: 0,
        };
        if call.until.is_some() {
            self.pending = Some(pending);
            return Ok(());
        }
        // It does not block: it is over, whatever it gives.
        match self.attempt(pending)? {
            None => Ok(()),
            Some(_) => Err(format!("{} blocks", call.name)),
        }
    }

    /// Tries a call; gives it back if it still blocks.
    ///
    /// # Errors
    /// What is wrong with the call, or with what it gave.
    pub(super) fn attempt(&mut self, mut pending: Pending) -> Result<Option<Pending>, String> {
        let call = pending.call.clone();
        let blocking = call.until.is_some();
        let outcome = match call.name.as_str() {
            "write" | "send" if blocking => {
                let total = call.arg(2)?.int()?;
                let rest = total - pending.written;
                let outcome = self.write(&call, rest)?;
                if let Ok(more) = outcome {
                    pending.written += more;
                    if pending.written < total {
                        return Ok(Some(pending));
                    }
                }
                outcome.map(|_| total)
            }
            "poll" => {
                let ready = self.poll(&call)?;
                let over = pending.gives_up.is_some_and(|at| self.now() >= at);
                if ready == 0 && !over {
                    return Ok(Some(pending));
                }
                self.check_poll(&call)?;
                Ok(ready)
            }
            _ => self.once(&call)?,
        };
        if blocking && would_block(&outcome) {
            return Ok(Some(pending));
        }
        self.check(&call, &outcome)?;
        Ok(None)
    }

    fn check(&mut self, call: &Call, outcome: &Outcome) -> Result<(), String> {
        let expected = match (&call.result, &call.errno) {
            (Expr::Ellipsis, _) => return Ok(()),
            (_, Some(name)) => format!("-1 {name}"),
            (result, None) => result.int()?.to_string(),
        };
        // A new descriptor is the script's to name.
        if let (Ok(fd), Ok(name), None) = (outcome, call.result.int(), &call.errno)
            && matches!(call.name.as_str(), "socket" | "accept" | "accept4")
            && name >= 0
        {
            self.fds.insert(name, *fd as Fd);
            self.read.insert(*fd as Fd, 0);
            self.written.insert(*fd as Fd, 0);
            if call.name != "socket" {
                self.under_test = Some(*fd as Fd);
            }
            return Ok(());
        }
        let actual = shown(outcome);
        if actual == expected {
            return Ok(());
        }
        Err(format!(
            "{} gives {actual}\n  expected: {expected}\n    actual: {actual}",
            call.name
        ))
    }

    fn fd(&self, call: &Call) -> Result<Fd, String> {
        let name = call.arg(0)?.int()?;
        // One that was never opened is tried as it is.
        Ok(self.fds.get(&name).copied().unwrap_or(name as Fd + 1000))
    }

    fn once(&mut self, call: &Call) -> Result<Outcome, String> {
        let fd = match call.name.as_str() {
            "socket" => {
                let six = self.flows.hosts.local.is_ipv6();
                let domain = match call.arg(0)? {
                    Expr::Ellipsis if six => 10,
                    Expr::Ellipsis => 2,
                    domain => domain.int()? as i32,
                };
                let (kind, protocol) = (call.arg(1)?.int()?, call.arg(2)?.int()?);
                let fd = self.sockets.socket(domain, kind as i32, protocol as i32);
                return Ok(fd.map(i64::from));
            }
            _ => self.fd(call)?,
        };
        let sockets = &mut self.sockets;
        let zero = |done: Result<(), Errno>| done.map(|()| 0);
        Ok(match call.name.as_str() {
            "bind" => {
                let local = address(call.arg(1)?)?;
                zero(self.bind(fd, local))
            }
            "listen" => zero(sockets.listen(fd, call.arg(1)?.int()? as i32)),
            "accept" | "accept4" => sockets.accept(fd).map(|(fd, _)| i64::from(fd)),
            "connect" => {
                let remote = address(call.arg(1)?)?;
                zero(self.connect(fd, remote))
            }
            "close" => {
                let done = sockets.close(fd);
                if let Ok(name) = call.arg(0)?.int() {
                    self.fds.remove(&name);
                }
                if self.under_test == Some(fd) {
                    self.under_test = None;
                }
                zero(done)
            }
            "shutdown" => zero(sockets.shutdown(fd, call.arg(1)?.int()? as i32)),
            "read" | "recv" => self.read(call, fd)?,
            "recvfrom" => self.receive_from(call, fd)?,
            "write" | "send" => {
                let len = call.arg(2)?.int()?;
                self.write(call, len)?
            }
            "sendto" => self.send_to(call, fd)?,
            "setsockopt" => self.set_option(call, fd)?,
            "getsockopt" => self.get_option(call, fd)?,
            "fcntl" => self.control(call, fd)?,
            "ioctl" => self.ioctl(call, fd)?,
            other => return Err(format!("{other} is not a call that is known here")),
        })
    }

    fn bind(&mut self, fd: Fd, local: Option<SocketAddr>) -> Result<(), Errno> {
        let default = SocketAddr::new(self.flows.hosts.local, LOCAL_PORT);
        self.sockets.bind(fd, local.unwrap_or(default))
    }

    fn connect(&mut self, fd: Fd, remote: Option<SocketAddr>) -> Result<(), Errno> {
        let default = SocketAddr::new(self.flows.hosts.remote, SERVER_PORT);
        let remote = remote.unwrap_or(default);
        let known = self.sockets.peer_addr(fd).is_ok();
        let outcome = self.sockets.connect(fd, remote);
        let begun = matches!(outcome, Ok(()) | Err(Errno::EINPROGRESS));
        if begun
            && !known
            && let Ok(local) = self.sockets.local_addr(fd)
        {
            self.flows.open(local.port(), remote.port());
        }
        self.under_test = Some(fd);
        outcome
    }

    fn flow_start(&mut self, fd: Fd) -> u64 {
        let (local, peer) = (self.sockets.local_addr(fd), self.sockets.peer_addr(fd));
        match (local, peer) {
            (Ok(local), Ok(peer)) => {
                let index = self.flows.at(local.port(), peer.port());
                self.flows.list[index].first_byte()
            }
            _ => self
                .flows
                .current
                .map_or(1, |index| self.flows.list[index].first_byte()),
        }
    }

    /// `read`, `recv`: the bytes are looked at.
    fn read(&mut self, call: &Call, fd: Fd) -> Result<Outcome, String> {
        let max = call.arg(2)?.int()? as usize;
        let flags = call.args.get(3).map_or(Ok(0), Expr::int)? as i32;
        let bytes = match self.sockets.recv(fd, max, flags) {
            Ok(bytes) => bytes,
            Err(error) => return Ok(Err(error)),
        };
        if flags & MSG_TRUNC == 0 && self.read.contains_key(&fd) {
            let place = match self.sockets.urgent_mark(fd) {
                (Some(mark), _) if flags & MSG_OOB != 0 => mark,
                (_, left_out) => self.read[&fd] + left_out,
            };
            let start = self.flow_start(fd) + place;
            let datagram = bytes == pattern(THEIRS, 0, bytes.len());
            if !datagram && bytes != pattern(THEIRS, start, bytes.len()) {
                return Err(format!(
                    "the bytes read at {start} are not those that were sent"
                ));
            }
        }
        if flags & (MSG_PEEK | MSG_OOB) == 0 {
            *self.read.entry(fd).or_default() += bytes.len() as u64;
        }
        Ok(Ok(bytes.len() as i64))
    }

    fn receive_from(&mut self, call: &Call, fd: Fd) -> Result<Outcome, String> {
        let max = call.arg(2)?.int()? as usize;
        let flags = call.arg(3)?.int()? as i32;
        let (bytes, from) = match self.sockets.recv_from(fd, max, flags) {
            Ok(received) => received,
            Err(error) => return Ok(Err(error)),
        };
        if bytes != pattern(THEIRS, 0, bytes.len()) {
            return Err("the datagram is not as it was sent".into());
        }
        let wanted = call.args.get(4).map_or(Ok(None), address)?;
        if wanted.is_some() && from != wanted {
            return Err(format!("the datagram is from {from:?}"));
        }
        Ok(Ok(bytes.len() as i64))
    }

    /// `write`, `send`: `len` bytes of the pattern that is next.
    fn write(&mut self, call: &Call, len: i64) -> Result<Outcome, String> {
        let fd = self.fd(call)?;
        let flags = call.args.get(3).map_or(Ok(0), Expr::int)? as i32;
        let len = usize::try_from(len).map_err(|_| "a negative length")?;
        let stream = self.sockets.is_stream(fd);
        let start = if stream {
            1 + self.written.get(&fd).copied().unwrap_or(0)
        } else {
            0
        };
        let outcome = self.sockets.send(fd, &pattern(OURS, start, len), flags);
        if let Ok(more) = outcome {
            *self.written.entry(fd).or_default() += more as u64;
        }
        Ok(outcome.map(|more| more as i64))
    }

    fn send_to(&mut self, call: &Call, fd: Fd) -> Result<Outcome, String> {
        let len = call.arg(2)?.int()? as usize;
        let flags = call.arg(3)?.int()? as i32;
        let named = call.args.get(4).map_or(Ok(None), address)?;
        let connected = self.sockets.peer_addr(fd).is_ok();
        let current = self
            .flows
            .current
            .map(|index| self.flows.list[index].remote);
        let default = SocketAddr::new(self.flows.hosts.remote, current.unwrap_or(SERVER_PORT));
        let to = match named {
            None if connected => None,
            named => Some(named.unwrap_or(default)),
        };
        if self.sockets.is_stream(fd) {
            let start = 1 + self.written.get(&fd).copied().unwrap_or(0);
            let outcome = self
                .sockets
                .send_to(fd, &pattern(OURS, start, len), flags, to);
            if let Ok(more) = outcome {
                *self.written.entry(fd).or_default() += more as u64;
            }
            return Ok(outcome.map(|sent| sent as i64));
        }
        let outcome = self.sockets.send_to(fd, &pattern(OURS, 0, len), flags, to);
        Ok(outcome.map(|sent| sent as i64))
    }

    fn set_option(&mut self, call: &Call, fd: Fd) -> Result<Outcome, String> {
        let (level, name) = (call.arg(1)?.int()? as i32, call.arg(2)?.int()? as i32);
        let value = bytes_of(call.arg(3)?)?;
        let len = call.arg(4)?.int()? as usize;
        let value = value.get(..len).unwrap_or(&value);
        let done = self.sockets.set_option(fd, level, name, value);
        Ok(done.map(|()| 0))
    }

    fn get_option(&mut self, call: &Call, fd: Fd) -> Result<Outcome, String> {
        let (level, name) = (call.arg(1)?.int()? as i32, call.arg(2)?.int()? as i32);
        let max = call.arg(4)?.int()? as usize;
        let value = match self.sockets.option(fd, level, name, max) {
            Ok(value) => value,
            Err(error) => return Ok(Err(error)),
        };
        let mut expected = match call.arg(3)? {
            Expr::Ellipsis => return Ok(Ok(0)),
            expected => bytes_of(expected)?,
        };
        let text = matches!(call.arg(3)?, Expr::Text(_));
        if text {
            expected.resize(value.len(), 0);
        }
        if value != expected {
            let shown = match value.first_chunk() {
                _ if text => String::from_utf8_lossy(&value)
                    .trim_end_matches('\0')
                    .into(),
                Some(int) if value.len() == 4 => i32::from_ne_bytes(*int).to_string(),
                _ => format!("{value:?}"),
            };
            return Err(format!("the option is {shown}"));
        }
        Ok(Ok(0))
    }

    fn control(&mut self, call: &Call, fd: Fd) -> Result<Outcome, String> {
        /// O_RDWR, O_NONBLOCK.
        const READ_WRITE: i64 = 2;
        const NON_BLOCKING: i64 = 0o4000;
        Ok(match call.arg(1)?.int()? {
            3 => self
                .sockets
                .non_blocking(fd)
                .map(|set| READ_WRITE | if set { NON_BLOCKING } else { 0 }),
            4 => {
                let set = call.arg(2)?.int()? & NON_BLOCKING != 0;
                self.sockets.set_non_blocking(fd, set).map(|()| 0)
            }
            _ => Err(Errno::EINVAL),
        })
    }

    fn ioctl(&mut self, call: &Call, fd: Fd) -> Result<Outcome, String> {
        let request = call.arg(1)?.int()? as u64;
        let value = match self.sockets.ioctl(fd, request) {
            Ok(value) => i64::from(value),
            Err(error) => return Ok(Err(error)),
        };
        match call.arg(2)? {
            Expr::Ellipsis => Ok(Ok(0)),
            expected if expected.int()? == value => Ok(Ok(0)),
            _ => Err(format!("ioctl gives the value {value}")),
        }
    }

    fn pollfds(&mut self, call: &Call) -> Result<Vec<(Fd, i16, i16)>, String> {
        let Expr::List(list) = call.arg(0)? else {
            return Err("poll takes a list of {fd=…, events=…, revents=…}".into());
        };
        let field = |one: &Expr, name: &str| match one {
            Expr::Struct(fields) => match fields.iter().find(|(known, _)| known == name) {
                Some((_, value)) => value.int(),
                None => Ok(0),
            },
            _ => Err("poll takes structures".to_string()),
        };
        let one = |one| {
            let name = field(one, "fd")?;
            let fd = self.fds.get(&name).copied().unwrap_or(name as Fd);
            let (events, revents) = (field(one, "events")?, field(one, "revents")?);
            Ok((fd, events as i16, revents as i16))
        };
        list.iter().map(one).collect()
    }

    fn poll(&mut self, call: &Call) -> Result<i64, String> {
        let fds = self.pollfds(call)?;
        let ready = fds
            .iter()
            .filter(|(fd, events, _)| self.sockets.poll(*fd, *events) != 0);
        Ok(ready.count() as i64)
    }

    fn check_poll(&mut self, call: &Call) -> Result<(), String> {
        for (fd, events, expected) in self.pollfds(call)? {
            let actual = self.sockets.poll(fd, events);
            if actual != expected {
                return Err(format!(
                    "poll gives revents {actual:#x}, expected {expected:#x}"
                ));
            }
        }
        Ok(())
    }
}

impl Call {
    fn arg(&self, index: usize) -> Result<&Expr, String> {
        let missing = || format!("{} takes more than {index} arguments", self.name);
        self.args.get(index).ok_or_else(missing)
    }
}

/// `...`, or `{sa_family = AF_INET, sin_port = htons(8080), sin_addr = inet_addr("192.0.2.1")}`.
fn address(expr: &Expr) -> Result<Option<SocketAddr>, String> {
    let fields = match expr {
        Expr::Ellipsis => return Ok(None),
        Expr::Struct(fields) => fields,
        other => return Err(format!("{other:?} is no address")),
    };
    let (mut port, mut ip) = (0, None);
    for (name, value) in fields {
        match (name.as_str(), value) {
            ("sin_port" | "sin6_port", Expr::Apply(_, args)) => {
                let number = args.first().ok_or("htons takes a port")?.int()?;
                port = u16::try_from(number).map_err(|_| "a port that cannot be")?;
            }
            ("sin_addr" | "sin6_addr", Expr::Apply(_, args)) => match args.last() {
                Some(Expr::Text(text)) => {
                    ip = Some(
                        text.parse()
                            .map_err(|_| format!("{text:?} is no address"))?,
                    );
                }
                _ => return Err("inet_addr takes a text".into()),
            },
            _ => {}
        }
    }
    let ip = ip.ok_or("an address without sin_addr")?;
    Ok(Some(SocketAddr::new(ip, port)))
}

/// An option's value: `[1]`, `"cubic"`, `{onoff=1, linger=0}`.
fn bytes_of(expr: &Expr) -> Result<Vec<u8>, String> {
    let int = |expr: &Expr| Ok::<_, String>((expr.int()? as i32).to_ne_bytes());
    match expr {
        Expr::Text(text) => Ok(text.as_bytes().to_vec()),
        Expr::List(list) if list.len() == 1 && !matches!(list[0], Expr::Int(_) | Expr::Word(_)) => {
            bytes_of(&list[0])
        }
        Expr::List(list) => {
            let all: Result<Vec<_>, _> = list.iter().map(int).collect();
            Ok(all?.concat())
        }
        Expr::Struct(fields) => {
            let of = |name: &str| {
                let found = fields.iter().find(|(known, _)| known == name);
                found.map_or(Ok([0; 4]), |(_, value)| int(value))
            };
            Ok([of("onoff")?, of("linger")?].concat())
        }
        other => Ok(int(other)?.to_vec()),
    }
}
