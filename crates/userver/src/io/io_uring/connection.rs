//! One connection's receives and sends.

use std::io;
use std::mem::{replace, take};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::rc::Rc;
use std::sync::Arc;

use rustix::io::Errno;
use rustix::net::Shutdown;
use sidecore_sys::uring::{Buffer, Completion, FileSlot, Ring};

use super::is_last;
use super::store::{CHUNK, RingEdition, RingStore};
use crate::http::plan::{Piece, Plan};
use crate::http::request::may_be_complete;
use crate::site::{Next, Site};

/// Bytes that are copied together into one send, rather than sent one by one.
const GATHER: usize = 64 * 1024;

/// Bytes of requests that may wait behind an answer that waits. Who sends more is cut off.
const WAITING: usize = 256 * 1024;

/// A connection, until the last operation on it has completed.
pub(super) struct Connection {
    pub(super) socket: OwnedFd,
    /// Its place among the ring's files.
    pub(super) slot: FileSlot,
    peer: SocketAddr,
    /// Received bytes that are not answered yet.
    partial: Vec<u8>,
    /// What is to be sent after the send under way.
    pending: Option<Box<Plan<RingEdition>>>,
    /// The edition that is being sent from.
    held: Option<Rc<RingEdition>>,
    /// Bytes of the send under way, 0 if there is none.
    sending: u32,
    receiving: bool,
    next: Next,
    pub(super) active: u32,
    /// The peer has ended its direction.
    ended: bool,
    /// The last answer went out; what comes is dropped until the peer closes.
    pub(super) lingering: bool,
    /// Nothing more is received or sent; it goes when its operations have completed.
    pub(super) ending: bool,
    closing: bool,
}

impl Connection {
    pub(super) fn new(socket: OwnedFd, peer: SocketAddr, now: u32) -> Self {
        Self {
            socket,
            slot: super::LISTENER,
            peer,
            partial: Vec::new(),
            pending: None,
            held: None,
            sending: 0,
            receiving: false,
            next: Next::Read,
            active: now,
            ended: false,
            lingering: false,
            ending: false,
            closing: false,
        }
    }

    /// Whether an answer is under way.
    pub(super) fn is_busy(&self) -> bool {
        self.sending > 0 || self.pending.is_some()
    }
}

/// The worker but for its connections, so that both can be borrowed at once.
pub(super) struct Core {
    pub(super) ring: Ring,
    pub(super) site: Site<RingStore>,
    plan: Box<Plan<RingEdition>>,
    #[expect(
        clippy::vec_box,
        reason = "plans move between here and connections by their box"
    )]
    spare_plans: Vec<Box<Plan<RingEdition>>>,
    spare_buffers: Vec<Vec<u8>>,
    gathered: Vec<u8>,
}

impl Core {
    pub(super) fn new(ring: Ring, site: Site<RingStore>) -> Self {
        Self {
            ring,
            site,
            plan: Box::default(),
            spare_plans: Vec::new(),
            spare_buffers: Vec::new(),
            gathered: Vec::new(),
        }
    }

    /// Begins to receive, if it does not already.
    pub(super) fn receive(&mut self, connection: &mut Connection) -> io::Result<()> {
        if !connection.receiving && !connection.ending && !connection.ended {
            self.ring.receive(connection.slot, connection.slot.0)?;
            connection.receiving = true;
        }
        Ok(())
    }

    /// Something was received; true: nothing can be received until buffers were given back.
    pub(super) fn received(
        &mut self,
        connection: &mut Connection,
        completion: Completion,
    ) -> io::Result<bool> {
        connection.receiving = completion.more;
        let Some(buffer) = completion.buffer else {
            return match completion.result {
                Err(error) if is_starved(&error) => Ok(true),
                // The peer's end, a reset, or our own shutdown.
                result => {
                    connection.ended = true;
                    if result.is_err() || !connection.is_busy() {
                        self.end(connection)?;
                    }
                    Ok(false)
                }
            };
        };
        let unwanted = connection.lingering || connection.ending || is_last(connection.next);
        if unwanted || buffer.is_empty() {
            self.ring.provide(buffer);
        } else if connection.is_busy() {
            connection
                .partial
                .extend_from_slice(self.ring.bytes(&buffer));
            self.ring.provide(buffer);
            if connection.partial.len() > WAITING + self.site.max_head() {
                self.site.counters.broken.add(1);
                self.end(connection)?;
            }
        } else {
            self.take_in(connection, buffer)?;
        }
        self.receive(connection)?;
        Ok(false)
    }

    /// Answers what a buffer completes, from that very buffer if the answer is short.
    fn take_in(&mut self, connection: &mut Connection, buffer: Buffer) -> io::Result<()> {
        let input = self.ring.bytes(&buffer);
        let requests;
        if connection.partial.is_empty() {
            self.plan.clear();
            let served = self.site.serve(&connection.peer, input, &mut self.plan);
            requests = served.requests;
            connection.next = served.next;
            if let Some(rest) = input.get(served.consumed..).filter(|rest| !rest.is_empty()) {
                connection.partial = self.spare_buffers.pop().unwrap_or_default();
                connection.partial.extend_from_slice(rest);
            }
        } else {
            let seen = connection.partial.len();
            connection.partial.extend_from_slice(input);
            if connection.partial.len() < self.site.max_head()
                && !may_be_complete(&connection.partial, seen)
            {
                self.ring.provide(buffer);
                return Ok(());
            }
            requests = self.answer_waiting(connection);
        }
        if requests > 0 {
            connection.active = self.site.clock.monotonic;
            self.send(connection, Some(buffer))
        } else {
            self.ring.provide(buffer);
            Ok(())
        }
    }

    /// Plans answers to requests that were kept; returns how many.
    fn answer_waiting(&mut self, connection: &mut Connection) -> u32 {
        let mut input = take(&mut connection.partial);
        self.plan.clear();
        let served = self.site.serve(&connection.peer, &input, &mut self.plan);
        connection.next = served.next;
        input.drain(..served.consumed);
        if !input.is_empty() {
            connection.partial = input;
        } else if self.spare_buffers.len() < 64 {
            self.spare_buffers.push(input);
        }
        served.requests
    }

    /// Sends the front of the plan, and puts the rest aside. `buffer`: a received one that may carry it.
    fn send(&mut self, connection: &mut Connection, buffer: Option<Buffer>) -> io::Result<()> {
        let Some(first) = self.plan.pieces().first() else {
            if let Some(buffer) = buffer {
                self.ring.provide(buffer);
            }
            return Ok(());
        };
        let (slot, token) = (connection.slot, connection.slot.0);
        let whole = whole_chunk(first, self.plan.pieces().len());
        let sent = if let Some((edition, chunk)) = whole {
            if let Some(buffer) = buffer {
                self.ring.provide(buffer);
            }
            connection.held = Some(Rc::clone(edition));
            self.ring.send_shared(slot, token, chunk)?;
            chunk.len()
        } else {
            if gather(&self.plan, &mut self.gathered).is_err() {
                if let Some(buffer) = buffer {
                    self.ring.provide(buffer);
                }
                self.site.counters.broken.add(1);
                self.plan.clear();
                return self.end(connection); // the file was cut short
            }
            self.send_gathered(slot, token, buffer)?;
            self.gathered.len()
        };
        connection.sending = sent as u32;
        self.plan.advance(sent as u64);
        if !self.plan.is_empty() {
            let spare = self.spare_plans.pop().unwrap_or_default();
            connection.pending = Some(replace(&mut self.plan, spare));
        }
        Ok(())
    }

    fn send_gathered(
        &mut self,
        slot: FileSlot,
        token: u32,
        buffer: Option<Buffer>,
    ) -> io::Result<()> {
        let bytes = &self.gathered;
        if let Some(mut buffer) = buffer {
            let mut fits = false;
            self.ring.fill(&mut buffer, |space| {
                let Some(place) = space.get_mut(..bytes.len()) else {
                    return 0;
                };
                place.copy_from_slice(bytes);
                fits = true;
                bytes.len()
            });
            if fits {
                return self.ring.send(slot, token, buffer);
            }
            self.ring.provide(buffer);
        }
        self.ring
            .send_shared(slot, token, &Arc::from(bytes.as_slice()))
    }

    /// A send is over: goes on with what is left, then with requests that came meanwhile.
    pub(super) fn sent(
        &mut self,
        connection: &mut Connection,
        completion: Completion,
    ) -> io::Result<()> {
        if let Some(buffer) = completion.buffer {
            self.ring.provide(buffer);
        }
        let expected = take(&mut connection.sending);
        connection.held = None;
        let sent = completion.result.unwrap_or(0);
        self.site.counters.bytes_sent.add(u64::from(sent));
        if sent < expected || connection.ending {
            if !connection.ending {
                self.site.counters.broken.add(1);
            }
            return self.end(connection);
        }
        connection.active = self.site.clock.monotonic;
        if let Some(plan) = connection.pending.take() {
            let mut unused = replace(&mut self.plan, plan);
            if self.spare_plans.len() < 64 {
                unused.clear();
                self.spare_plans.push(unused);
            }
            return self.send(connection, None);
        }
        if is_last(connection.next) {
            return self.last_was_sent(connection);
        }
        if !connection.partial.is_empty() && self.answer_waiting(connection) > 0 {
            return self.send(connection, None);
        }
        if connection.ended {
            return self.end(connection);
        }
        Ok(())
    }

    fn last_was_sent(&mut self, connection: &mut Connection) -> io::Result<()> {
        if connection.next == Next::Close || connection.ended {
            return self.end(connection);
        }
        // Closing over unread bytes would reset the connection under the answer.
        connection.lingering = true;
        connection.partial = Vec::new();
        match rustix::net::shutdown(&connection.socket, Shutdown::Write) {
            Ok(()) => Ok(()),
            Err(_) => self.end(connection),
        }
    }

    /// Ends a connection: at once, or as soon as its operations have completed.
    pub(super) fn end(&mut self, connection: &mut Connection) -> io::Result<()> {
        let operations = connection.receiving || connection.sending > 0;
        if operations && !connection.ending {
            // Makes them complete. The socket may be gone already.
            let _ = rustix::net::shutdown(&connection.socket, Shutdown::Both);
        }
        connection.ending = true;
        connection.pending = None;
        if !operations && !connection.closing {
            connection.closing = true;
            self.ring.close(connection.slot, connection.slot.0)?;
        }
        Ok(())
    }
}

fn is_starved(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::NOBUFS.raw_os_error())
}

/// The chunk that a piece begins with, if it can be sent as it lies in memory. Small ones among others are better gathered.
fn whole_chunk(
    piece: &Piece<RingEdition>,
    pieces: usize,
) -> Option<(&Rc<RingEdition>, &Arc<[u8]>)> {
    let Piece::File {
        edition,
        start,
        len,
    } = piece
    else {
        return None;
    };
    let (chunk, begin) = edition.chunk(*start)?;
    let chunk_len = chunk.len() as u64;
    let is_whole = *start == begin && *len >= chunk_len;
    let is_worth_it = pieces == 1 || chunk_len >= CHUNK / 4;
    (is_whole && is_worth_it).then_some((edition, chunk))
}

/// Copies the front of a plan, up to [`GATHER`] bytes.
fn gather(plan: &Plan<RingEdition>, out: &mut Vec<u8>) -> io::Result<()> {
    out.clear();
    for (number, piece) in plan.pieces().iter().enumerate() {
        let room = GATHER - out.len();
        if room == 0 || (number > 0 && whole_chunk(piece, 2).is_some()) {
            break;
        }
        match piece {
            Piece::Made { start, len } => {
                out.extend_from_slice(plan.made_bytes(*start, (*len).min(room)));
            }
            Piece::File {
                edition,
                start,
                len,
            } => append(edition, *start, (*len).min(room as u64), out)?,
        }
    }
    Ok(())
}

fn append(edition: &RingEdition, start: u64, len: u64, out: &mut Vec<u8>) -> io::Result<()> {
    if let RingEdition::Open(file) = edition {
        let from = out.len();
        out.resize(from + len as usize, 0);
        return file.read_exact_at(&mut out[from..], start);
    }
    let mut at = start;
    while at < start + len {
        let (chunk, begin) = edition.chunk(at).ok_or(io::ErrorKind::UnexpectedEof)?;
        let bytes = chunk
            .get((at - begin) as usize..)
            .filter(|bytes| !bytes.is_empty())
            .ok_or(io::ErrorKind::UnexpectedEof)?;
        let count = (bytes.len() as u64).min(start + len - at);
        out.extend_from_slice(&bytes[..count as usize]);
        at += count;
    }
    Ok(())
}
