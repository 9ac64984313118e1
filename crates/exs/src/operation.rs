//! One operation: what it wants, how far it is, and what is told of it.

use std::os::fd::RawFd;
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use rustix::io::Errno;

use crate::boundary;
use crate::direct::{Receipt, Sent};
use crate::memory::Registration;
use crate::process::Kept;
use crate::queue::{Detail, Event, Queue, lock};
use crate::socket::Returns;
use crate::sys::{self, Beside, Bytes};
use crate::types::{
    EXS_EVT_ACCEPT, EXS_EVT_CLOSE, EXS_EVT_CONNECT, EXS_EVT_RECV, EXS_EVT_RECVMSG, EXS_EVT_SEND,
    EXS_EVT_SENDFILE, EXS_EVT_SENDMSG, EXS_EVT_SHUTDOWN,
};

/// Bytes of one send by the engine: a longer one is several.
const DIRECT_BYTES: usize = 1 << 30;

/// A piece of memory, and the registration that it is of.
pub(crate) struct Piece {
    pub(crate) bytes: Bytes,
    pub(crate) memory: Option<Arc<Registration>>,
}

/// A piece of a sendfile.
pub(crate) enum Part {
    Memory(Piece),
    File { file: Kept, offset: i64, len: usize },
}

/// What is to be done.
pub(crate) enum Work {
    Send {
        pieces: Pieces,
        beside: Beside,
        flags: i32,
        /// Whether the engine may be given it as it is.
        direct: bool,
    },
    Receive {
        pieces: Pieces,
        beside: Beside,
        flags: i32,
        /// A message that is told how it went, in the program's memory; 0: none.
        message: usize,
    },
    File(Vec<Part>),
    Accept {
        /// An exs_acceptaddr_t of the program's; 0: none.
        room: usize,
        address: Bytes,
    },
    Connect {
        address: Vec<u8>,
        begun: bool,
    },
    Shutdown,
    Close,
}

/// Pieces of memory. Most operations have one.
pub(crate) struct Pieces {
    bytes: Vec<Bytes>,
    memory: Vec<Option<Arc<Registration>>>,
}

impl Pieces {
    pub(crate) fn new(pieces: Vec<Piece>) -> Self {
        let (bytes, memory) = pieces.into_iter().map(|p| (p.bytes, p.memory)).unzip();
        Self { bytes, memory }
    }

    fn total(&self) -> usize {
        self.bytes.iter().map(|piece| piece.len).sum()
    }

    /// Whether the engine could have all of it.
    pub(crate) fn are_lent(&self) -> bool {
        let all = self.bytes.iter().zip(&self.memory);
        let mut lent = all.map(|(bytes, memory)| {
            let memory = memory.as_ref();
            memory.is_some_and(|memory| memory.lent(*bytes).is_some())
        });
        self.total() > 0 && lent.all(|lent| lent)
    }
}

/// How an attempt went.
pub(crate) enum Progress {
    /// The system would make us wait.
    Again,
    /// It is over.
    Done(Result<(), Errno>),
    /// The engine has it, and tells when it is over.
    Posted(Arc<Tracker>),
}

/// An operation that is under way.
pub(crate) struct Operation {
    pub(crate) queue: Arc<Queue>,
    /// As the program named it.
    pub(crate) fd: RawFd,
    pub(crate) ahandle: usize,
    pub(crate) work: Work,
    pub(crate) kind: i32,
    pub(crate) detail: Detail,
    /// Bytes sent or received; of a sendfile all pieces together.
    done: usize,
    tracker: Option<Arc<Tracker>>,
}

impl Operation {
    pub(crate) fn new(
        queue: Arc<Queue>,
        (fd, ahandle): (RawFd, usize),
        work: Work,
        detail: Detail,
    ) -> Self {
        let kind = match (&work, &detail) {
            (Work::Send { .. }, Detail::Message { .. }) => EXS_EVT_SENDMSG,
            (Work::Send { .. }, _) => EXS_EVT_SEND,
            (Work::Receive { .. }, Detail::Message { .. }) => EXS_EVT_RECVMSG,
            (Work::Receive { .. }, _) => EXS_EVT_RECV,
            (Work::File(_), _) => EXS_EVT_SENDFILE,
            (Work::Accept { .. }, _) => EXS_EVT_ACCEPT,
            (Work::Connect { .. }, _) => EXS_EVT_CONNECT,
            (Work::Shutdown, _) => EXS_EVT_SHUTDOWN,
            (Work::Close, _) => EXS_EVT_CLOSE,
        };
        Self {
            queue,
            fd,
            ahandle,
            work,
            kind,
            detail,
            done: 0,
            tracker: None,
        }
    }

    /// Tries, by `fd`; `returns` is told when the engine is done with it, if it gets it.
    pub(crate) fn attempt(&mut self, fd: RawFd, returns: &Arc<Returns>) -> Progress {
        loop {
            let tried = match &mut self.work {
                Work::Send { direct: true, .. } => match self.give_to_engine(fd, returns) {
                    Some(progress) => return progress,
                    // Not the engine's, or not this memory: as any other.
                    None => continue,
                },
                Work::Send {
                    pieces,
                    beside,
                    flags,
                    ..
                } => {
                    let sent = sys::send(fd, &pieces.bytes, self.done, beside, *flags);
                    sent.map(|n| (n, self.done + n >= pieces.total()))
                }
                Work::Receive { .. } => self.receive(fd),
                Work::File(parts) => send_part(fd, parts, self.done),
                Work::Accept { room, address } => {
                    sys::accept(fd, *address).map(|(connection, len)| {
                        boundary::store_address_length(*room, len);
                        let room = *room;
                        self.detail = Detail::Accept {
                            fd: connection,
                            room,
                        };
                        (0, true)
                    })
                }
                Work::Connect { address, begun } => connect(fd, address, begun).map(|()| (0, true)),
                Work::Shutdown => sys::end_sending(fd).map(|()| (0, true)),
                // It is the program's number that goes.
                Work::Close => sys::close(self.fd).map(|()| (0, true)),
            };
            match tried {
                Ok((n, over)) => {
                    self.done += n;
                    if over {
                        return Progress::Done(Ok(()));
                    }
                }
                // No port, or no room at a UNIX socket: nothing tells when there is.
                Err(Errno::AGAIN) if matches!(self.work, Work::Connect { begun: false, .. }) => {
                    return Progress::Done(Err(Errno::AGAIN));
                }
                Err(Errno::AGAIN) => return Progress::Again,
                // The next connection, if there is one.
                Err(Errno::CONNABORTED) if matches!(self.work, Work::Accept { .. }) => {}
                Err(Errno::INTR) if !matches!(self.work, Work::Close) => {}
                // What came before counts; the error is told next time.
                Err(_) if self.done > 0 && matches!(self.work, Work::Receive { .. }) => {
                    return Progress::Done(Ok(()));
                }
                Err(error) => return Progress::Done(Err(error)),
            }
        }
    }

    fn receive(&mut self, fd: RawFd) -> Result<(usize, bool), Errno> {
        let Work::Receive {
            pieces,
            beside,
            flags,
            message,
        } = &self.work
        else {
            return Ok((0, true));
        };
        let (n, told) = sys::receive(fd, &pieces.bytes, self.done, beside, *flags)?;
        boundary::store_told(*message, &told);
        // The end, and a datagram, end it early.
        let whole = flags & libc::MSG_WAITALL != 0 && flags & libc::MSG_PEEK == 0;
        let more = whole && n > 0 && self.done + n < pieces.total();
        Ok((n, !more))
    }

    /// Sends from memory that the engine has; `None`: it cannot be sent so.
    fn give_to_engine(&mut self, fd: RawFd, returns: &Arc<Returns>) -> Option<Progress> {
        let Work::Send {
            pieces,
            direct,
            flags,
            ..
        } = &mut self.work
        else {
            return None;
        };
        let total = pieces.total();
        let tracker = Arc::clone(self.tracker.get_or_insert_with(|| Tracker::new(returns)));
        let mut skip = self.done;
        for (bytes, memory) in pieces.bytes.iter().zip(&pieces.memory) {
            let begin = skip.min(bytes.len);
            skip -= begin;
            let mut rest = Bytes {
                address: bytes.address + begin,
                len: bytes.len - begin,
            };
            while rest.len > 0 {
                let len = rest.len.min(DIRECT_BYTES);
                let more = self.done + len < total || *flags & libc::MSG_MORE != 0;
                let lent = memory.as_ref().and_then(|memory| memory.lent(rest));
                let sent = lent.map_or(Sent::Elsewhere, |(direct, number, offset)| {
                    tracker.left.fetch_add(1, Ordering::Relaxed);
                    let receipt = Arc::clone(&tracker) as Arc<dyn Receipt>;
                    let sent = direct.send(fd, (number, offset, len as u32), more, receipt);
                    if sent != Sent::Posted {
                        tracker.left.fetch_sub(1, Ordering::Relaxed);
                    }
                    sent
                });
                match sent {
                    Sent::Posted => {
                        self.done += len;
                        rest.address += len;
                        rest.len -= len;
                    }
                    Sent::Full => return Some(Progress::Again),
                    Sent::Elsewhere if self.done == 0 => {
                        (*direct, self.tracker) = (false, None);
                        return None;
                    }
                    Sent::Elsewhere => return Some(self.posted(Errno::NOTCONN.raw_os_error())),
                    Sent::Failed(error) if self.done == 0 => {
                        return Some(Progress::Done(Err(error)));
                    }
                    // The engine may still read what it has: it is over when that is.
                    Sent::Failed(error) => return Some(self.posted(error.raw_os_error())),
                }
            }
        }
        Some(self.posted(0))
    }

    /// All was posted that will be.
    fn posted(&mut self, errno: i32) -> Progress {
        match self.tracker.take() {
            Some(tracker) => {
                tracker.error.fetch_max(errno, Ordering::Relaxed);
                Progress::Posted(tracker)
            }
            None => Progress::Done(Err(Errno::IO)),
        }
    }

    /// Tells of its end.
    pub(crate) fn finish(self, result: Result<(), Errno>) {
        let errno = result.map_or_else(Errno::raw_os_error, |()| 0);
        let Self {
            queue,
            fd,
            ahandle,
            work,
            kind,
            mut detail,
            done,
            ..
        } = self;
        // Memory is free when the event says so.
        drop(work);
        set_len(&mut detail, done);
        queue.push(Event {
            kind,
            errno,
            fd,
            ahandle,
            detail,
        });
    }

    /// The engine has it: `tracker` tells of its end.
    pub(crate) fn hand_over(self, tracker: &Arc<Tracker>) {
        *lock(&tracker.operation) = Some(self);
        // The share that kept it from ending before.
        tracker.settle(0);
    }

    /// Whether it has sent or received something.
    pub(crate) fn is_under_way(&self) -> bool {
        self.done > 0
    }

    /// Whether the engine has a part of it, so that it cannot be taken back.
    pub(crate) fn is_with_engine(&self) -> bool {
        self.tracker.is_some() && self.done > 0
    }
}

fn set_len(detail: &mut Detail, done: usize) {
    match detail {
        Detail::Transfer { len, .. } | Detail::Message { len, .. } | Detail::File { len, .. } => {
            *len = done;
        }
        Detail::None | Detail::Accept { .. } | Detail::Poll { .. } => {}
    }
}

fn connect(fd: RawFd, address: &[u8], begun: &mut bool) -> Result<(), Errno> {
    if *begun {
        return sys::connected(fd);
    }
    match sys::connect(fd, address) {
        Err(Errno::INPROGRESS | Errno::ALREADY) => {
            *begun = true;
            Err(Errno::AGAIN)
        }
        // It goes on; it is not begun anew.
        Err(Errno::INTR) => {
            *begun = true;
            Err(Errno::INTR)
        }
        done => done,
    }
}

/// One step of a sendfile whose first `done` bytes are sent.
fn send_part(fd: RawFd, parts: &[Part], done: usize) -> Result<(usize, bool), Errno> {
    let mut skip = done;
    let mut parts = parts.iter().peekable();
    while let Some(part) = parts.next() {
        let len = match part {
            Part::Memory(piece) => piece.bytes.len,
            Part::File { len, .. } => *len,
        };
        if skip >= len && len > 0 || len == 0 {
            skip -= len;
            continue;
        }
        let more = parts.peek().is_some();
        let sent = match part {
            Part::Memory(piece) => {
                let flags = if more { libc::MSG_MORE } else { 0 };
                sys::send(fd, &[piece.bytes], skip, &Beside::default(), flags)?
            }
            Part::File { file, offset, .. } => {
                let at = offset.saturating_add(skip as i64);
                match sys::send_file(fd, file.number(), at, len - skip)? {
                    // The file has been cut short.
                    0 => return Ok((0, true)),
                    n => n,
                }
            }
        };
        return Ok((sent, !more && skip + sent >= len));
    }
    Ok((0, true))
}

/// An operation that the engine has: it ends when all its sends have.
pub(crate) struct Tracker {
    /// Sends that are under way, and one while not all are posted.
    left: AtomicUsize,
    error: AtomicI32,
    operation: Mutex<Option<Operation>>,
    returns: Arc<Returns>,
}

impl Tracker {
    fn new(returns: &Arc<Returns>) -> Arc<Self> {
        Arc::new(Self {
            left: AtomicUsize::new(1),
            error: AtomicI32::new(0),
            operation: Mutex::new(None),
            returns: Arc::clone(returns),
        })
    }
}

impl Receipt for Tracker {
    fn settle(&self, errno: i32) {
        self.error.fetch_max(errno, Ordering::Relaxed);
        if self.left.fetch_sub(1, Ordering::AcqRel) != 1 {
            return;
        }
        let Some(mut operation) = lock(&self.operation).take() else {
            return;
        };
        let result = match self.error.load(Ordering::Relaxed) {
            0 => Ok(()),
            errno => {
                // How much of it arrived is not known.
                operation.done = 0;
                Err(Errno::from_raw_os_error(errno))
            }
        };
        operation.finish(result);
        self.returns.one_less();
    }
}
