//! Epoll and `sendfile`: the head is sent with `MSG_MORE`, so that it shares a segment with the content, which goes from the page cache
//! without passing through the program.

use std::fs::File;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::net::{SendFlags, send};

use super::readiness::{self, Sent, Transmit};
use crate::cache::{AdmitError, Store};
use crate::error::Error;
use crate::http::condition::DATE_LEN;
use crate::http::plan::{Piece, Plan};
use crate::server::{Birth, descriptor_limit};

/// A worker: runs until it is told to stop.
pub(crate) fn run(birth: Birth, listener: OwnedFd) -> Result<(), Error> {
    // Each cached file is a descriptor: half of them for files, half for connections.
    let files = (descriptor_limit() / 2 / birth.config.workers as u64).max(16) as usize;
    let site = birth.site(OpenStore, files)?;
    readiness::run(birth, listener, site, Sendfile)
}

/// Keeps files open and nothing else.
struct OpenStore;

impl Store for OpenStore {
    type Edition = File;

    fn admit(&mut self, _head: &[u8], file: &File, _len: u64) -> Result<File, AdmitError> {
        Ok(file.try_clone()?)
    }

    fn open(&mut self, file: File) -> File {
        file
    }

    fn carries_head(_edition: &File) -> bool {
        false
    }

    fn set_date(&mut self, _edition: &mut File, _at: usize, _date: &[u8; DATE_LEN]) -> bool {
        false
    }

    fn reissue(&mut self, _edition: &File, _at: usize, _date: &[u8; DATE_LEN]) -> Option<File> {
        None
    }
}

struct Sendfile;

impl Transmit for Sendfile {
    type Store = OpenStore;

    fn transmit(&mut self, socket: BorrowedFd<'_>, plan: &Plan<File>) -> io::Result<Sent> {
        let pieces = plan.pieces();
        let bytes = match pieces.first() {
            None => return Err(io::ErrorKind::InvalidInput.into()),
            Some(Piece::Made { start, len }) => {
                let mut flags = SendFlags::NOSIGNAL;
                if pieces.len() > 1 {
                    flags |= SendFlags::MORE;
                }
                send(socket, plan.made_bytes(*start, *len), flags)?
            }
            Some(Piece::File {
                edition,
                start,
                len,
            }) => {
                let mut offset = *start;
                // The kernel takes at most this much at once anyway.
                let count = (*len).min(0x7fff_f000) as usize;
                let sent = rustix::fs::sendfile(socket, &**edition, Some(&mut offset), count)?;
                if sent == 0 {
                    return Err(io::ErrorKind::UnexpectedEof.into()); // the file was cut short
                }
                sent
            }
        };
        // Less than asked for need not mean that the socket is full: a signal cuts `sendfile` short as well. The next call tells.
        Ok(Sent {
            bytes: bytes as u64,
            full: false,
        })
    }
}
