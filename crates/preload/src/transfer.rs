//! Bytes in and out.

mod datagrams;

use std::borrow::Cow;
use std::cell::OnceCell;
use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::net::SocketAddr;
use std::os::fd::{BorrowedFd, RawFd};
use std::time::Instant;

use rustix::io::Errno;
use sidecore_client::flags as engine;
use sidecore_client::{Datagram, DatagramReport, RawSocket, is_elsewhere};

use crate::cancel::Sleep;
use crate::control::Asked;
use crate::errors::{ELSEWHERE, errno};
use crate::socket::{Kind, Route, Socket};
use crate::{log, poll, process, segments, sys};

/// What a receive gave.
pub(crate) struct Received {
    /// Bytes that were put there.
    pub(crate) len: usize,
    /// Bytes of the datagram that did not fit, too.
    pub(crate) whole: usize,
    /// The sender, of a datagram.
    pub(crate) from: Option<SocketAddr>,
    pub(crate) beside: Beside,
}

/// What came with the bytes.
pub(crate) enum Beside {
    Nothing,
    /// They are a datagram.
    Datagram(Datagram),
    /// They are several datagrams of this length, of which the last may be shorter; what is said is of the first.
    Joined(Datagram, usize),
    /// They are what an error quoted (MSG_ERRQUEUE).
    Report(Box<DatagramReport>),
    /// They are the byte that is out of band (MSG_OOB).
    Urgent,
}

fn at_once(socket: &Socket, flags: i32) -> bool {
    socket.is_nonblocking() || flags & libc::MSG_DONTWAIT != 0
}

/// Until when a call may wait. It begins when the call finds that it must.
struct Deadline<'a> {
    socket: &'a Socket,
    write: bool,
    begun: OnceCell<Option<Instant>>,
}

impl<'a> Deadline<'a> {
    fn of(socket: &'a Socket, write: bool) -> Self {
        let begun = OnceCell::new();
        Self {
            socket,
            write,
            begun,
        }
    }

    fn get(&self) -> Option<Instant> {
        *self.begun.get_or_init(|| self.socket.deadline(self.write))
    }
}

/// Tries once, or until it does not say `WouldBlock` any more.
fn wait<T>(
    raw: &RawSocket,
    deadline: &Deadline<'_>,
    at_once: bool,
    mut attempt: impl FnMut() -> io::Result<T>,
) -> io::Result<T> {
    match attempt() {
        Err(error) if error.kind() == ErrorKind::WouldBlock => {}
        done => return done,
    }
    if !at_once {
        let deadline = deadline.get();
        let sleep = Sleep::on_socket(raw, deadline.is_some());
        let attempt = || match sleep.is_over() {
            true => Err(ErrorKind::Interrupted.into()),
            false => attempt(),
        };
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
        let route = self.route();
        match (self.known_kind(), route) {
            (_, Route::Kernel) => Ok(Outcome::Kernel),
            (_, Route::Descriptor) => Err(ELSEWHERE),
            (_, Route::Nowhere) => Err(nowhere()),
            (_, Route::Engine(raw) | Route::Both(raw)) if flags & libc::MSG_ERRQUEUE != 0 => {
                report(&raw, buffers, kernel)
            }
            (Kind::Stream, Route::Engine(raw)) if flags & libc::MSG_OOB != 0 => {
                urgent(&raw, buffers, flags & libc::MSG_PEEK != 0)
            }
            (Kind::Stream, Route::Engine(raw)) if raw.is_listening() => Err(Errno::NOTCONN),
            (Kind::Stream, Route::Engine(raw)) => self.receive_stream(&raw, buffers, flags),
            (Kind::Stream, Route::Both(_)) => Err(Errno::NOTCONN),
            (Kind::Datagram, Route::Engine(raw)) if raw.is_over() => {
                self.receive_at_the_next(fd, buffers, flags)
            }
            (Kind::Datagram, Route::Engine(raw)) => {
                let (peek, now) = (flags & libc::MSG_PEEK != 0, at_once(self, flags));
                let deadline = Deadline::of(self, false);
                let joins = !peek && self.settings(|settings| settings.joins());
                let one = || receive_datagram(&raw, buffers, peek, joins);
                let received = wait(&raw, &deadline, now, one);
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
        let deadline = Deadline::of(self, false);
        let room: usize = buffers.iter().map(|buffer| buffer.len()).sum();
        let mut len = 0;
        loop {
            let got = if len > 0 {
                let mut rest = remaining(buffers, len);
                wait(raw, &deadline, now, || raw.read(&mut rest, false))
            } else if whole && peek {
                wait(raw, &deadline, now, || full_peek(raw, buffers, room))
            } else {
                wait(raw, &deadline, now, || raw.read(buffers, peek))
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
            beside: Beside::Nothing,
        }))
    }

    /// Receives a datagram where the engine is gone: when there is one again.
    fn receive_at_the_next(
        &self,
        fd: RawFd,
        buffers: &mut [IoSliceMut<'_>],
        flags: i32,
    ) -> Result<Outcome, Errno> {
        let peek = flags & libc::MSG_PEEK != 0;
        let mut attempt = || {
            process::process().tend();
            let raw = self.raw().ok_or(Errno::NOTCONN)?;
            raw.turn();
            let received = receive_datagram(&raw, buffers, peek, false);
            received.map(Outcome::Engine).map_err(|e| errno(&e))
        };
        if at_once(self, flags) {
            return attempt();
        }
        poll::block(fd, libc::POLLIN, self.deadline(false), attempt)
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
            // Another may have taken its place meanwhile.
            let raw = self.raw().unwrap_or_else(|| raw.clone());
            raw.turn();
            match receive_datagram(&raw, buffers, peek, false) {
                Ok(received) => Ok(Outcome::Engine(received)),
                // That the engine has gone is told once, as polls have; then the system's half goes on.
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
        asked: &Asked,
    ) -> Result<Outcome, Errno> {
        let sent = match self.kind() {
            Kind::Stream => self.send_stream(data, flags),
            Kind::Datagram => self.send_datagram(data, flags, to, asked),
        };
        if matches!(sent, Err(Errno::PIPE))
            && flags & libc::MSG_NOSIGNAL == 0
            && self.kind() == Kind::Stream
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
            return Err(Errno::PIPE);
        }
        let now = at_once(self, flags);
        let deadline = Deadline::of(self, true);
        let total: usize = data.iter().map(|piece| piece.len()).sum();
        let how = how(flags);
        let mut done = 0;
        loop {
            let rest = rest_of(data, done);
            match wait(&raw, &deadline, now, || raw.write(&rest, how)) {
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

    /// Sends `count` bytes of a file, from its byte `begin` on, or fewer: up to the file's end, or as many as there is room for, or until something
    /// goes wrong. AGAIN, and other errors, when none was sent.
    pub(crate) fn send_file(
        &self,
        file: BorrowedFd<'_>,
        begin: u64,
        count: usize,
    ) -> Result<usize, Errno> {
        let raw = match self.route() {
            Route::Engine(raw) if !raw.is_listening() => raw,
            Route::Engine(_) => return Err(broken_pipe()),
            _ if self.is_proxied() => return Err(ELSEWHERE),
            _ => return Err(nowhere()),
        };
        let (deadline, now) = (Deadline::of(self, true), self.is_nonblocking());
        let mut sent = 0;
        while sent < count {
            let one = || raw.send_file(file, begin + sent as u64, count - sent, 0);
            match wait(&raw, &deadline, now, one) {
                Ok(0) => break,
                Ok(n) => sent += n,
                // What went counts; the error is told next time.
                Err(error) if sent > 0 => {
                    raw.tell_again(&error);
                    break;
                }
                Err(error) => {
                    return Err(match errno(&error) {
                        Errno::PIPE => broken_pipe(),
                        error => error,
                    });
                }
            }
        }
        Ok(sent)
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
}

/// Nobody reads any more: the thread is told by a signal, too.
fn broken_pipe() -> Errno {
    sys::raise_sigpipe();
    Errno::PIPE
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
    joins: bool,
) -> io::Result<Received> {
    let datagram = match buffers {
        [one] if joins => return segments::receive(raw, one),
        [one] => raw.receive_datagram(one, peek)?,
        many => {
            let room: usize = many.iter().map(|buffer| buffer.len()).sum();
            let mut all = vec![0; room.min(65536)];
            let datagram = raw.receive_datagram(&mut all, peek)?;
            scatter(&all[..datagram.len], many);
            datagram
        }
    };
    Ok(Received {
        len: datagram.len,
        whole: datagram.whole,
        from: Some(datagram.from),
        beside: Beside::Datagram(datagram),
    })
}

/// Puts bytes into buffers, one after the other; how many found room.
fn scatter(bytes: &[u8], buffers: &mut [IoSliceMut<'_>]) -> usize {
    let mut left = bytes;
    for buffer in buffers {
        let n = left.len().min(buffer.len());
        buffer[..n].copy_from_slice(&left[..n]);
        left = &left[n..];
    }
    bytes.len() - left.len()
}

/// The oldest entry of the error queue; the system's, where both have one. It is never waited for.
fn report(
    raw: &RawSocket,
    buffers: &mut [IoSliceMut<'_>],
    mut kernel: impl FnMut() -> Result<usize, Errno>,
) -> Result<Outcome, Errno> {
    raw.turn();
    let Some(report) = raw.take_report() else {
        return match raw.is_datagram() {
            true => kernel().map(Outcome::Done),
            false => Err(Errno::AGAIN),
        };
    };
    Ok(Outcome::Engine(Received {
        len: scatter(&report.payload, buffers),
        whole: report.payload.len(),
        from: Some(report.destination),
        beside: Beside::Report(Box::new(report)),
    }))
}

/// The byte that is out of band. It is never waited for.
fn urgent(raw: &RawSocket, buffers: &mut [IoSliceMut<'_>], peek: bool) -> Result<Outcome, Errno> {
    raw.turn();
    let octet = raw.urgent_octet(peek).map_err(|e| errno(&e))?;
    let len = octet.map_or(0, |octet| scatter(&[octet], buffers));
    Ok(Outcome::Engine(Received {
        len,
        whole: octet.iter().len(),
        from: None,
        beside: Beside::Urgent,
    }))
}

/// The engine's flags of a send.
fn how(flags: i32) -> u8 {
    let mut how = 0;
    if flags & libc::MSG_OOB != 0 {
        how |= engine::URGENT;
    }
    if flags & libc::MSG_MORE != 0 {
        how |= engine::MORE;
    }
    how
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
fn rest_of<'a>(data: &'a [IoSlice<'a>], mut done: usize) -> Cow<'a, [IoSlice<'a>]> {
    if done == 0 {
        return Cow::Borrowed(data);
    }
    let mut rest = Vec::with_capacity(data.len());
    for piece in data {
        let n = done.min(piece.len());
        done -= n;
        if n < piece.len() {
            rest.push(IoSlice::new(&piece[n..]));
        }
    }
    Cow::Owned(rest)
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
