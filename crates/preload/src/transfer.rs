//! Bytes in and out.

use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::time::Instant;

use rustix::io::Errno;
use sidecore_client::{RawSocket, is_elsewhere};

use crate::errors::{ELSEWHERE, errno};
use crate::socket::{Kind, Route, Socket, canonical};
use crate::{log, poll, process, sys};

/// What a receive gave.
pub(crate) struct Received {
    /// Bytes that were put there.
    pub(crate) len: usize,
    /// Bytes of the datagram that did not fit, too.
    pub(crate) whole: usize,
    /// The sender, of a datagram.
    pub(crate) from: Option<SocketAddr>,
}

fn at_once(socket: &Socket, flags: i32) -> bool {
    socket.is_nonblocking() || flags & libc::MSG_DONTWAIT != 0
}

/// Tries once, or until it does not say `WouldBlock` any more.
fn wait<T>(
    raw: &RawSocket,
    deadline: Option<Instant>,
    at_once: bool,
    mut attempt: impl FnMut() -> io::Result<T>,
) -> io::Result<T> {
    match attempt() {
        Err(error) if error.kind() == ErrorKind::WouldBlock => {}
        done => return done,
    }
    if !at_once {
        return raw.block(deadline, attempt).map_err(|error| {
            let late = deadline.is_some_and(|at| at <= Instant::now());
            match error.kind() {
                ErrorKind::TimedOut if late => ErrorKind::WouldBlock.into(),
                _ => error,
            }
        });
    }
    raw.turn();
    attempt()
}

impl Socket {
    /// Receives. `kernel` does it at the system, without waiting, where both can have something.
    pub(crate) fn receive(
        &self,
        fd: RawFd,
        buffers: &mut [IoSliceMut<'_>],
        flags: i32,
        kernel: impl FnMut() -> Result<usize, Errno>,
    ) -> Result<Outcome, Errno> {
        if flags & (libc::MSG_OOB | libc::MSG_ERRQUEUE) != 0 {
            // There is no urgent data apart from the stream, and no error queue.
            return Err(if flags & libc::MSG_OOB != 0 {
                Errno::INVAL
            } else {
                Errno::AGAIN
            });
        }
        match (self.kind, self.route()) {
            (_, Route::Kernel) => Ok(Outcome::Kernel),
            (_, Route::Descriptor) => Err(ELSEWHERE),
            (_, Route::Nowhere) => Err(nowhere()),
            (Kind::Stream, Route::Engine(raw)) => self.receive_stream(&raw, buffers, flags),
            (Kind::Stream, Route::Both(_)) => Err(Errno::NOTCONN),
            (Kind::Datagram, Route::Engine(raw)) => {
                let (peek, now) = (flags & libc::MSG_PEEK != 0, at_once(self, flags));
                let deadline = self.deadline(false);
                let one = || receive_datagram(&raw, buffers, peek);
                let received = wait(&raw, deadline, now, one);
                received.map(Outcome::Engine).map_err(|e| errno(&e))
            }
            (Kind::Datagram, Route::Both(raw)) => {
                self.receive_of_both(fd, &raw, buffers, flags, kernel)
            }
        }
    }

    fn receive_stream(
        &self,
        raw: &RawSocket,
        buffers: &mut [IoSliceMut<'_>],
        flags: i32,
    ) -> Result<Outcome, Errno> {
        let (peek, now) = (flags & libc::MSG_PEEK != 0, at_once(self, flags));
        let whole = flags & libc::MSG_WAITALL != 0 && !now;
        let deadline = self.deadline(false);
        let room: usize = buffers.iter().map(|buffer| buffer.len()).sum();
        let mut len = 0;
        loop {
            let got = if len > 0 {
                let mut rest = remaining(buffers, len);
                wait(raw, deadline, now, || raw.read(&mut rest, false))
            } else if whole && peek {
                wait(raw, deadline, now, || full_peek(raw, buffers, room))
            } else {
                wait(raw, deadline, now, || raw.read(buffers, peek))
            };
            match got {
                Ok(n) => {
                    len += n;
                    if !whole || peek || n == 0 || len >= room {
                        break;
                    }
                }
                // What came before counts; the error is told next time.
                Err(error) if len > 0 => {
                    raw.tell_again(&error);
                    break;
                }
                Err(error) => return Err(errno(&error)),
            }
        }
        Ok(Outcome::Engine(Received {
            len,
            whole: len,
            from: None,
        }))
    }

    fn receive_of_both(
        &self,
        fd: RawFd,
        raw: &RawSocket,
        buffers: &mut [IoSliceMut<'_>],
        flags: i32,
        mut kernel: impl FnMut() -> Result<usize, Errno>,
    ) -> Result<Outcome, Errno> {
        let peek = flags & libc::MSG_PEEK != 0;
        let mut attempt = || {
            raw.turn();
            match receive_datagram(raw, buffers, peek) {
                Ok(received) => Ok(Outcome::Engine(received)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => kernel().map(Outcome::Done),
                Err(error) => Err(errno(&error)),
            }
        };
        if at_once(self, flags) {
            return attempt();
        }
        poll::block(fd, libc::POLLIN, self.deadline(false), attempt)
    }

    /// Sends. `Outcome::Kernel`: the system is to do it.
    pub(crate) fn send(
        &self,
        data: &[IoSlice<'_>],
        flags: i32,
        to: Option<SocketAddr>,
    ) -> Result<Outcome, Errno> {
        let sent = match self.kind {
            Kind::Stream => self.send_stream(data, flags),
            Kind::Datagram => self.send_datagram(data, flags, to),
        };
        if matches!(sent, Err(Errno::PIPE))
            && flags & libc::MSG_NOSIGNAL == 0
            && self.kind == Kind::Stream
        {
            sys::raise_sigpipe();
        }
        sent
    }

    fn send_stream(&self, data: &[IoSlice<'_>], flags: i32) -> Result<Outcome, Errno> {
        let Route::Engine(raw) = self.route() else {
            return match self.is_engines() {
                true if self.is_proxied() => Err(ELSEWHERE),
                true => Err(nowhere()),
                false => Ok(Outcome::Kernel),
            };
        };
        if raw.is_listening() {
            return Err(Errno::NOTCONN);
        }
        let now = at_once(self, flags);
        let deadline = self.deadline(true);
        let total: usize = data.iter().map(|piece| piece.len()).sum();
        let urgent = flags & libc::MSG_OOB != 0;
        let mut done = 0;
        loop {
            let rest = rest_of(data, done);
            match wait(&raw, deadline, now, || raw.write(&rest, urgent)) {
                Ok(n) => done += n,
                Err(error) if done > 0 && !now && is_elsewhere(&error) => {
                    done += self.send_rest(&rest_of(data, done));
                    break;
                }
                Err(error) if done > 0 => {
                    raw.tell_again(&error);
                    break;
                }
                Err(error) => return Err(errno(&error)),
            }
            // A send that may wait sends all of it.
            if done >= total || now {
                break;
            }
        }
        Ok(Outcome::Done(done))
    }

    /// Sends what is left through the descriptor, after a part went the fast way; how much.
    fn send_rest(&self, rest: &[IoSlice<'_>]) -> usize {
        let Some(fd) = self.first_number() else {
            return 0;
        };
        let mut done = 0;
        for piece in rest {
            let mut at = 0;
            while at < piece.len() {
                let flags = rustix::net::SendFlags::NOSIGNAL;
                match rustix::net::send(sys::borrow(fd), &piece[at..], flags) {
                    Ok(n) => at += n,
                    // What went counts; the error is told next time.
                    Err(_) => return done + at,
                }
            }
            done += at;
        }
        done
    }

    fn send_datagram(
        &self,
        data: &[IoSlice<'_>],
        flags: i32,
        to: Option<SocketAddr>,
    ) -> Result<Outcome, Errno> {
        let raw = match (self.route(), to) {
            (Route::Engine(raw), _) => raw,
            (Route::Descriptor | Route::Nowhere, _) => return Err(nowhere()),
            (_, None) => return Ok(Outcome::Kernel),
            (Route::Both(_) | Route::Kernel, Some(to)) => {
                let addresses = process::process().addresses();
                if !addresses.is_some_and(|addresses| addresses.takes(to)) {
                    return Ok(Outcome::Kernel);
                }
                self.datagram_beside()?
            }
        };
        let whole: Vec<u8>;
        let bytes: &[u8] = match data {
            [] => &[],
            [one] => one,
            many => {
                whole = many
                    .iter()
                    .flat_map(|piece| piece.iter().copied())
                    .collect();
                &whole
            }
        };
        if bytes.len() > 65507 {
            return Err(Errno::MSGSIZE);
        }
        let (now, deadline) = (at_once(self, flags), self.deadline(true));
        let to = to.map(canonical);
        let sent = wait(&raw, deadline, now, || raw.send_to(bytes, to));
        match sent {
            Err(error) if error.kind() == ErrorKind::NotConnected => Err(Errno::DESTADDRREQ),
            sent => sent.map(Outcome::Done).map_err(|e| errno(&e)),
        }
    }
}

/// A socket that was inherited over a fork and cannot be used here, or was never connected.
fn nowhere() -> Errno {
    log::info(
        "a connection that was inherited over a fork cannot be used in the child, or a socket is not connected",
    );
    Errno::NOTCONN
}

/// How a transfer ended.
pub(crate) enum Outcome {
    /// Nothing was done: the system is to do it.
    Kernel,
    /// So many bytes.
    Done(usize),
    /// The engine's socket gave this.
    Engine(Received),
}

fn receive_datagram(
    raw: &RawSocket,
    buffers: &mut [IoSliceMut<'_>],
    peek: bool,
) -> io::Result<Received> {
    if let [one] = buffers {
        let (len, whole, from) = raw.receive_from(one, peek)?;
        return Ok(Received {
            len,
            whole,
            from: Some(from),
        });
    }
    let room: usize = buffers.iter().map(|buffer| buffer.len()).sum();
    let mut all = vec![0; room.min(65536)];
    let (len, whole, from) = raw.receive_from(&mut all, peek)?;
    let mut left = &all[..len];
    for buffer in buffers {
        let n = left.len().min(buffer.len());
        buffer[..n].copy_from_slice(&left[..n]);
        left = &left[n..];
    }
    Ok(Received {
        len,
        whole,
        from: Some(from),
    })
}

/// Looks until everything asked for is there, or the end.
fn full_peek(raw: &RawSocket, buffers: &mut [IoSliceMut<'_>], room: usize) -> io::Result<usize> {
    let n = raw.read(buffers, true)?;
    if n < room && !raw.ready().read_ended {
        return Err(ErrorKind::WouldBlock.into());
    }
    Ok(n)
}

/// The pieces after the first `done` bytes.
fn rest_of<'a>(data: &'a [IoSlice<'a>], mut done: usize) -> Vec<IoSlice<'a>> {
    let mut rest = Vec::with_capacity(data.len());
    for piece in data {
        let n = done.min(piece.len());
        done -= n;
        if n < piece.len() {
            rest.push(IoSlice::new(&piece[n..]));
        }
    }
    rest
}

/// The same to be filled.
fn remaining<'a>(buffers: &'a mut [IoSliceMut<'_>], mut done: usize) -> Vec<IoSliceMut<'a>> {
    let mut rest = Vec::with_capacity(buffers.len());
    for buffer in buffers {
        let n = done.min(buffer.len());
        done -= n;
        if n < buffer.len() {
            rest.push(IoSliceMut::new(&mut buffer[n..]));
        }
    }
    rest
}
