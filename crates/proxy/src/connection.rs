//! One connection in custody: what was read on one side and not yet written on the other.

use std::io::{ErrorKind, IoSlice, IoSliceMut};
use std::os::fd::{AsFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::{SendFlags, Shutdown};
use sidecore_client::abi::Status;
use sidecore_client::abi::command::flags;
use sidecore_client::custody::read_bytes;
use sidecore_client::{RawSocket, Shut};
use sidecore_sys::mark::at_mark;

/// Pieces that are copied in one direction before other connections have their turn.
const PIECES: usize = 8;

/// … and before a connection that never stops writing is not given away.
const LAST_PIECES: usize = 64;

/// How a step ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Step {
    /// Nothing can be done until something is told.
    Waits,
    /// There is more.
    Again,
    /// It is over.
    Over,
}

/// Bytes on their way.
#[derive(Default)]
struct Held {
    bytes: Vec<u8>,
    done: usize,
}

impl Held {
    fn is_empty(&self) -> bool {
        self.done >= self.bytes.len()
    }

    fn rest(&self) -> &[u8] {
        self.bytes.get(self.done..).unwrap_or_default()
    }

    fn set(&mut self, bytes: &[u8]) {
        self.bytes.clear();
        self.bytes.extend_from_slice(bytes);
        self.done = 0;
    }

    /// So many were taken. An idle connection keeps no memory.
    fn advance(&mut self, n: usize) {
        self.done += n;
        if self.is_empty() {
            *self = Self::default();
        }
    }
}

/// A direction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Flow {
    Open,
    /// Nothing more comes.
    Ended,
}

/// A connection.
pub(crate) struct Connection {
    number: u64,
    end: OwnedFd,
    /// `None`: the connection is over; only what came before is left.
    raw: Option<RawSocket>,
    /// Bytes that come before those of the connection: memory, place and end.
    before: Option<(OwnedFd, u64, u64)>,
    /// To the holders.
    down: Held,
    /// Its last byte is the end of urgent data.
    down_urgent: bool,
    down_flow: Flow,
    /// From them.
    up: Held,
    /// It is the end of urgent data.
    up_urgent: bool,
    up_flow: Flow,
    /// The peer, or the engine, has ended the connection in disorder.
    broken: bool,
}

impl Connection {
    pub(crate) fn new(
        number: u64,
        end: OwnedFd,
        raw: Option<RawSocket>,
        before: Option<(OwnedFd, u64)>,
    ) -> Self {
        Self {
            number,
            end,
            raw,
            before: before.map(|(memory, len)| (memory, 0, len)),
            down: Held::default(),
            down_urgent: false,
            down_flow: Flow::Open,
            up: Held::default(),
            up_urgent: false,
            up_flow: Flow::Open,
            broken: false,
        }
    }

    /// The agent's end of its descriptor.
    pub(crate) fn end(&self) -> &OwnedFd {
        &self.end
    }

    /// The connection, if there is one yet.
    pub(crate) fn raw(&self) -> Option<&RawSocket> {
        self.raw.as_ref()
    }

    /// Carries bytes both ways, as far as either side lets it.
    pub(crate) fn step(&mut self, scratch: &mut [u8]) -> Step {
        let (down, up) = (self.carry_down(scratch), self.carry_up(scratch, PIECES));
        if self.broken && self.down.is_empty() && self.before.is_none() {
            return Step::Over;
        }
        if self.up_flow == Flow::Ended && self.up.is_empty() && self.is_abandoned() {
            return Step::Over;
        }
        if down || up { Step::Again } else { Step::Waits }
    }

    /// Whether nobody holds the descriptor, or both directions have ended.
    fn is_abandoned(&self) -> bool {
        let mut fds = [PollFd::new(&self.end, PollFlags::empty())];
        let now = rustix::time::Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        poll(&mut fds, Some(&now)).is_ok() && fds[0].revents().contains(PollFlags::HUP)
    }

    /// From the connection to the holders; true if there may be more.
    fn carry_down(&mut self, scratch: &mut [u8]) -> bool {
        for _ in 0..PIECES {
            if self.down.is_empty() && !self.refill_down(scratch) {
                return false;
            }
            while !self.down.is_empty() {
                let mut flags = SendFlags::NOSIGNAL;
                flags.set(SendFlags::OOB, self.down_urgent);
                match rustix::net::send(&self.end, self.down.rest(), flags) {
                    Ok(n) => self.down.advance(n),
                    Err(Errno::INTR) => {}
                    Err(Errno::AGAIN) => return false,
                    Err(_) => {
                        self.stop_down();
                        return false;
                    }
                }
            }
        }
        true
    }

    /// Nobody reads any more.
    fn stop_down(&mut self) {
        self.down = Held::default();
        self.before = None;
        self.down_flow = Flow::Ended;
        if let Some(raw) = &self.raw {
            // What comes is acknowledged and dropped. It fails when the connection is over.
            let _ = raw.shutdown(Shut::Read);
        }
    }

    /// Reads what is to be written next; false if there is nothing for the moment.
    fn refill_down(&mut self, scratch: &mut [u8]) -> bool {
        if self.down_flow == Flow::Ended {
            return false;
        }
        if let Some((memory, at, len)) = &mut self.before {
            let most = (*len - *at).min(scratch.len() as u64) as usize;
            match rustix::io::pread(&*memory, &mut scratch[..most], *at) {
                Ok(n) if n > 0 => {
                    self.down.set(&scratch[..n]);
                    self.down_urgent = false;
                    *at += n as u64;
                    if *at >= *len {
                        self.before = None;
                    }
                    return true;
                }
                // It was sealed to be so long: the memory vanished, and its bytes with it.
                _ => self.before = None,
            }
        }
        let Some(raw) = &self.raw else {
            self.broken = true;
            return false;
        };
        // A read ends before the mark: what comes next is the byte itself.
        let urgent = raw.at_mark();
        let room = if urgent { 1 } else { scratch.len() };
        match raw.read(&mut [IoSliceMut::new(&mut scratch[..room])], false) {
            Ok(0) => {
                self.down_flow = Flow::Ended;
                // The holders' end of file. It fails when they are gone.
                let _ = rustix::net::shutdown(&self.end, Shutdown::Write);
                false
            }
            Ok(n) => {
                self.down.set(&scratch[..n]);
                self.down_urgent = urgent;
                true
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => false,
            Err(_) => {
                self.broken = true;
                false
            }
        }
    }

    /// From the holders to the connection; true if there may be more.
    fn carry_up(&mut self, scratch: &mut [u8], pieces: usize) -> bool {
        for _ in 0..pieces {
            while !self.up.is_empty() {
                let written = match &self.raw {
                    Some(raw) => {
                        let how = if self.up_urgent { flags::URGENT } else { 0 };
                        raw.write(&[IoSlice::new(self.up.rest())], how)
                    }
                    None => Ok(self.up.rest().len()),
                };
                match written {
                    Ok(n) => self.up.advance(n),
                    Err(error) if error.kind() == ErrorKind::WouldBlock => return false,
                    // Nobody gets them. Reading tells why, after what came before.
                    Err(_) => self.up = Held::default(),
                }
            }
            if self.up_flow == Flow::Ended {
                return false;
            }
            // As above: reads of the system end before the byte, too.
            let urgent = at_mark(self.end.as_fd()).unwrap_or(false);
            let room = if urgent { 1 } else { scratch.len() };
            match rustix::io::read(&self.end, &mut scratch[..room]) {
                Ok(0) | Err(Errno::CONNRESET | Errno::PIPE) => {
                    self.up_flow = Flow::Ended;
                    if let Some(raw) = self.raw.as_ref().filter(|_| !self.is_abandoned()) {
                        // A FIN, after all that was written. It fails when the connection is over.
                        let _ = raw.shutdown(Shut::Write);
                    }
                    return false;
                }
                Ok(n) => {
                    self.up.set(&scratch[..n]);
                    self.up_urgent = urgent;
                }
                Err(Errno::INTR) => {}
                Err(_) => return false,
            }
        }
        true
    }

    /// Gives the connection to a UAL, and says which bytes come before those of the engine. When it is refused nothing has changed.
    pub(crate) fn give(&mut self, to: u64, scratch: &mut [u8]) -> Result<Vec<u8>, Status> {
        // What its only holder wrote comes before what it writes from now on.
        let more = self.carry_up(scratch, LAST_PIECES);
        let Some(raw) = &self.raw else {
            return Err(Status::WrongState);
        };
        if more || !self.up.is_empty() || self.broken {
            return Err(Status::QueueFull);
        }
        let mut bytes = self.down.rest().to_vec();
        if let Some((memory, at, len)) = &self.before {
            let all = read_bytes(memory, *len).map_err(|_| Status::NoResources)?;
            bytes.extend_from_slice(all.get(*at as usize..).unwrap_or_default());
        }
        let handed = raw
            .hand_over(self.number, to)
            .map_err(|_| Status::NoResources)?;
        bytes.extend_from_slice(&handed.bytes);
        if handed.over.is_some() {
            // It is over: what is left goes to the holders here, and then they see the end.
            self.raw = None;
            self.before = None;
            self.down.set(&bytes);
            return Err(Status::WrongState);
        }
        Ok(bytes)
    }
}
