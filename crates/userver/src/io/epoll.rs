//! Epoll and `send`: files lie in memory behind their heads, and an answer is one system call that copies.

use std::io::{self, IoSlice};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;

use rustix::net::{SendAncillaryBuffer, SendFlags, send, sendmsg};

use super::readiness::{self, Sent, Transmit};
use crate::cache::heap::{HeapEdition, HeapStore};
use crate::error::Error;
use crate::http::plan::{Piece, Plan};
use crate::server::{Birth, descriptor_limit};

/// Runs of bytes in one `sendmsg`.
const GATHER: usize = 64;

/// How much of a file that is not kept in memory is read at once, in bytes.
const CHUNK: usize = 128 * 1024;

/// A worker: runs until it is told to stop.
pub(crate) fn run(birth: Birth, listener: OwnedFd) -> Result<(), Error> {
    // Files too large for memory stay open: leave most descriptors to connections.
    let files = (descriptor_limit() / 4).max(16) as usize;
    let site = birth.site(HeapStore::new(birth.config.cache_bytes), files)?;
    let write = Write {
        chunk: vec![0; CHUNK].into_boxed_slice(),
    };
    readiness::run(birth, listener, site, write)
}

struct Write {
    /// For files that are not kept in memory.
    chunk: Box<[u8]>,
}

impl Transmit for Write {
    type Store = HeapStore;

    fn transmit(&mut self, socket: BorrowedFd<'_>, plan: &Plan<HeapEdition>) -> io::Result<Sent> {
        match plan.pieces() {
            [] => Err(io::ErrorKind::InvalidInput.into()),
            [only] => match memory(plan, only) {
                Some(bytes) => send_all(socket, bytes, SendFlags::NOSIGNAL),
                None => self.send_from_file(socket, only, false),
            },
            [first, ..] if memory(plan, first).is_none() => {
                self.send_from_file(socket, first, true)
            }
            pieces => gather(socket, plan, pieces),
        }
    }
}

impl Write {
    fn send_from_file(
        &mut self,
        socket: BorrowedFd<'_>,
        piece: &Piece<HeapEdition>,
        more: bool,
    ) -> io::Result<Sent> {
        let Piece::File {
            edition,
            start,
            len,
        } = piece
        else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        let HeapEdition::Open(file) = &**edition else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        let wanted = (*len).min(self.chunk.len() as u64);
        let read = file.read_at(&mut self.chunk[..wanted as usize], *start)?;
        if read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into()); // the file was cut short
        }
        let mut flags = SendFlags::NOSIGNAL;
        if more || wanted < *len {
            flags |= SendFlags::MORE;
        }
        send_all(socket, &self.chunk[..read], flags)
    }
}

/// A stream socket takes less than it is offered only when it is full.
fn send_all(socket: BorrowedFd<'_>, bytes: &[u8], flags: SendFlags) -> io::Result<Sent> {
    let sent = send(socket, bytes, flags)?;
    Ok(Sent {
        bytes: sent as u64,
        full: sent < bytes.len(),
    })
}

/// The bytes of a piece, if they are in memory.
fn memory<'a>(plan: &'a Plan<HeapEdition>, piece: &'a Piece<HeapEdition>) -> Option<&'a [u8]> {
    match piece {
        Piece::Made { start, len } => Some(plan.made_bytes(*start, *len)),
        Piece::File {
            edition,
            start,
            len,
        } => match &**edition {
            HeapEdition::Memory(lease) => lease
                .value
                .get(*start as usize..)
                .and_then(|rest| rest.get(..*len as usize)),
            HeapEdition::Open(_) => None,
        },
    }
}

fn gather(
    socket: BorrowedFd<'_>,
    plan: &Plan<HeapEdition>,
    pieces: &[Piece<HeapEdition>],
) -> io::Result<Sent> {
    let mut slices = [IoSlice::new(&[]); GATHER];
    let mut count = 0;
    let mut offered = 0;
    for (slice, bytes) in slices
        .iter_mut()
        .zip(pieces.iter().map_while(|piece| memory(plan, piece)))
    {
        *slice = IoSlice::new(bytes);
        count += 1;
        offered += bytes.len();
    }
    let mut flags = SendFlags::NOSIGNAL;
    if count < pieces.len() {
        flags |= SendFlags::MORE;
    }
    let mut control = SendAncillaryBuffer::default();
    let sent = sendmsg(socket, &slices[..count], &mut control, flags)?;
    Ok(Sent {
        bytes: sent as u64,
        full: sent < offered,
    })
}
