//! Bytes in and out of a socket.

use std::io::{self, IoSlice, IoSliceMut};
use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};

use sidecore_abi::command::flags;
use sidecore_abi::event::NO_CHUNK;
use sidecore_abi::{Command, Operation, Status};

use super::datagram::Datagram;
use super::group::{Group, lock};
use super::moving::{Moving, elsewhere};
use super::send::Stop;
use super::socket::{Phase, Socket, State};
use super::urgent::leave_out;
use crate::error::{Disconnected, kind, to_io};
use crate::{Address, Lane};

/// The largest payload of a UDP datagram over IPv4.
const DATAGRAM_MAX: usize = 65507;

/// Urgent data may exceed what a stream may have in flight by so many bytes, as with BSD.
const URGENT_ALLOWANCE: usize = 1024;

/// Where read bytes go.
pub(crate) trait Sink {
    /// How many bytes are wanted still.
    fn room(&self) -> usize;
    /// Takes up to [`Self::room`] bytes: `fill` copies into what it is given, from `skip` bytes on, and says how many.
    fn put(&mut self, fill: impl FnMut(usize, &mut [u8]) -> usize) -> usize;
}

impl Sink for &mut [u8] {
    fn room(&self) -> usize {
        self.len()
    }

    fn put(&mut self, mut fill: impl FnMut(usize, &mut [u8]) -> usize) -> usize {
        let n = fill(0, self);
        let whole = std::mem::take(self);
        *self = &mut whole[n..];
        n
    }
}

/// Several buffers, one after the other.
pub(crate) struct Scatter<'a, 'b> {
    pub(crate) buffers: &'a mut [IoSliceMut<'b>],
    /// Buffers that are full, and bytes in the next.
    pub(crate) at: (usize, usize),
}

impl Sink for Scatter<'_, '_> {
    fn room(&self) -> usize {
        let (full, used) = self.at;
        let all: usize = self.buffers[full..].iter().map(|b| b.len()).sum();
        all - used
    }

    fn put(&mut self, mut fill: impl FnMut(usize, &mut [u8]) -> usize) -> usize {
        let mut total = 0;
        while let Some(buffer) = self.buffers.get_mut(self.at.0) {
            let rest = &mut buffer[self.at.1..];
            let n = if rest.is_empty() {
                0
            } else {
                fill(total, rest)
            };
            total += n;
            self.at.1 += n;
            if self.at.1 < buffer.len() {
                break;
            }
            self.at = (self.at.0 + 1, 0);
        }
        total
    }
}

/// Bytes that are given back at once, and not with the next ones.
const LARGE: u32 = 16 << 10;

/// Copies out what came, and gives back what is used up. Without `consume` it is only looked at.
fn copy_received(state: &mut State, group: &Group, sink: &mut impl Sink, consume: bool) -> usize {
    let mut early = 0;
    if !state.before.is_empty() {
        early = copy_before(state, sink, consume);
        if early < state.before.len() || consume && !state.before.is_empty() {
            return early;
        }
    }
    leave_out(state, group);
    let pool = group.ual.pool();
    let mut left = state.urgent.before_mark(state.consumed);
    let mut lane: Option<std::sync::MutexGuard<'_, Lane>> = None;
    let (mut total, mut peeked, mut large) = (early, 0, false);
    while sink.room() > 0 && left > 0 {
        let Some(piece) = state.received.get_mut(peeked) else {
            break;
        };
        let n = sink.put(|skip, out| {
            let most = left.saturating_sub(skip as u64).min(out.len() as u64);
            pool.read_at(&piece.event, piece.taken + skip, &mut out[..most as usize])
        });
        total += n;
        left -= n as u64;
        if !consume {
            peeked += 1;
            continue;
        }
        piece.taken += n;
        state.consumed += n as u64;
        // A piece of nothing (memory that is not there) must not be read for ever.
        if n == 0 || piece.taken >= piece.event.len() as usize {
            let lane = lane.get_or_insert_with(|| lock(&group.lane));
            lane.return_chunk(&piece.event);
            large |= piece.event.len() >= LARGE;
            state.received.pop_front();
        }
    }
    // Whoever reads no more for now, and does not wait either, is not to keep the window shut.
    if let Some(mut lane) = lane
        && (large || total >= LARGE as usize)
    {
        lane.flush();
    }
    total
}

/// Copies out of what came before the connection was this process's.
fn copy_before(state: &mut State, sink: &mut impl Sink, consume: bool) -> usize {
    let bytes = state.before.make_contiguous();
    let n = sink.put(|skip, out| {
        let rest = bytes.get(skip..).unwrap_or_default();
        let n = rest.len().min(out.len());
        out[..n].copy_from_slice(&rest[..n]);
        n
    });
    if consume {
        state.before.drain(..n);
        if state.before.is_empty() {
            state.before = std::collections::VecDeque::new();
        }
    }
    n
}

impl Socket {
    /// Reads from a stream: some bytes; none when the peer has ended its direction.
    pub(crate) fn poll_read(
        &self,
        group: &Group,
        cx: &mut Context<'_>,
        sink: &mut impl Sink,
        consume: bool,
    ) -> Poll<io::Result<usize>> {
        if sink.room() == 0 {
            return Poll::Ready(Ok(0));
        }
        let mut state = lock(&self.state);
        if state.moving == Some(Moving::Gone) {
            return Poll::Ready(Err(elsewhere()));
        }
        let n = copy_received(&mut state, group, sink, consume);
        if n > 0 {
            return Poll::Ready(Ok(n));
        }
        match (state.phase, state.over) {
            _ if state.end || state.read_shut => return Poll::Ready(Ok(0)),
            (_, Some(Status::Ok)) => return Poll::Ready(Ok(0)),
            (_, Some(status)) => return Poll::Ready(Err(to_io(status))),
            (Phase::New, None) => return Poll::Ready(Err(io::ErrorKind::NotConnected.into())),
            (Phase::Failed(status), None) => return Poll::Ready(Err(to_io(status))),
            _ if group.is_dead() => return Poll::Ready(Err(Disconnected.into())),
            _ => {}
        }
        state.readers.add(cx.waker());
        drop(state);
        // What was returned must reach the engine before we wait for more.
        lock(&group.lane).flush();
        Poll::Pending
    }

    /// Why nothing can be written, if so.
    fn write_error(state: &State, group: &Group) -> Option<io::Error> {
        match (state.phase, state.over) {
            _ if state.write_shut => Some(io::ErrorKind::BrokenPipe.into()),
            (_, Some(Status::Ok)) => Some(io::ErrorKind::BrokenPipe.into()),
            (_, Some(status)) => Some(to_io(status)),
            (Phase::Failed(status), _) => Some(to_io(status)),
            (Phase::New, _) => Some(io::ErrorKind::NotConnected.into()),
            _ if group.is_dead() => Some(Disconnected.into()),
            _ => None,
        }
    }

    /// Writes to a stream: as many bytes as may be in flight.
    pub(crate) fn poll_write(
        &self,
        group: &Group,
        cx: &mut Context<'_>,
        data: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_as(group, cx, data, 0)
    }

    /// The same, with flags of a send: perhaps as urgent data.
    pub(super) fn poll_write_as(
        &self,
        group: &Group,
        cx: &mut Context<'_>,
        data: &[IoSlice<'_>],
        how: u8,
    ) -> Poll<io::Result<usize>> {
        let mut state = lock(&self.state);
        if let Some(error) = Self::write_error(&state, group) {
            return Poll::Ready(Err(error));
        }
        if let Some(error) = state.take_failure() {
            return Poll::Ready(Err(error));
        }
        if data.iter().all(|slice| slice.is_empty()) {
            return Poll::Ready(Ok(0));
        }
        let most = group.config.stream_bytes.max(1);
        let window = if how & flags::URGENT != 0 {
            Some(most + URGENT_ALLOWANCE)
        } else {
            state.send_window(most)
        };
        let Some(window) = window else {
            state.writers.add(cx.waker());
            return Poll::Pending;
        };
        let (written, stop) = {
            let mut lane = lock(&group.lane);
            let memory = &group.memory;
            let done = state
                .sends
                .write(memory, &mut lane, self.dti, data, window, how, || {
                    cx.waker().clone()
                });
            lane.flush();
            done
        };
        if written > 0 {
            state.written += written as u64;
            return Poll::Ready(Ok(written));
        }
        wait_for_room(&mut state, cx, stop);
        Poll::Pending
    }

    /// Waits until everything written has been acknowledged.
    pub(crate) fn in_flight(&self) -> usize {
        lock(&self.state).sends.in_flight()
    }

    /// Sends one datagram, to `peer` or to where the socket is connected.
    pub(crate) fn poll_send_datagram(
        &self,
        group: &Group,
        cx: &mut Context<'_>,
        data: &[u8],
        peer: Option<SocketAddr>,
    ) -> Poll<io::Result<usize>> {
        match self.send_datagrams(group, cx, (data, data.len()), peer) {
            Ok(Stop::Done) => Poll::Ready(Ok(data.len())),
            Ok(_) => Poll::Pending,
            Err(error) => Poll::Ready(Err(error)),
        }
    }

    /// Sends datagrams of `size` bytes each, the last of what is left: all of them, or none, where it says why and will wake.
    pub(crate) fn send_datagrams(
        &self,
        group: &Group,
        cx: &mut Context<'_>,
        (data, size): (&[u8], usize),
        peer: Option<SocketAddr>,
    ) -> io::Result<Stop> {
        let mut state = lock(&self.state);
        if let Some(error) = state.take_failure() {
            return Err(error);
        }
        if let Some(error) = Self::write_error(&state, group) {
            return Err(error);
        }
        if data.len() > DATAGRAM_MAX {
            return Err(kind(Status::MessageTooLarge).into());
        }
        let mut command = Command::new(Operation::Send, self.dti.handle(), 0);
        match peer {
            Some(peer) => command = command.with_address(2, Address::new(peer)),
            None if state.peer.is_none() => {
                return Err(io::ErrorKind::NotConnected.into());
            }
            None => {}
        }
        let stop = {
            let mut lane = lock(&group.lane);
            let memory = &group.memory;
            let stop = state
                .sends
                .datagrams(memory, &mut lane, command, (data, size), cx.waker());
            lane.flush();
            stop
        };
        if stop != Stop::Done {
            wait_for_room(&mut state, cx, stop);
        }
        Ok(stop)
    }

    /// Receives one datagram; what does not fit is cut off.
    pub(crate) fn poll_receive_datagram(
        &self,
        group: &Group,
        cx: &mut Context<'_>,
        out: &mut [u8],
        consume: bool,
    ) -> Poll<io::Result<(usize, SocketAddr)>> {
        let received = self.poll_receive_event(group, cx, out, consume);
        received.map_ok(|received| (received.len, received.from))
    }

    /// The same, with what its event says of it.
    pub(crate) fn poll_receive_event(
        &self,
        group: &Group,
        cx: &mut Context<'_>,
        out: &mut [u8],
        consume: bool,
    ) -> Poll<io::Result<Datagram>> {
        let mut state = lock(&self.state);
        if let Some(error) = state.take_failure() {
            return Poll::Ready(Err(error));
        }
        while let Some(piece) = state.received.front().copied() {
            let n = group.ual.pool().read(&piece.event, out);
            let datagram = Datagram::of(group, &piece.event, n);
            if consume || datagram.is_none() {
                state.received.pop_front();
                if piece.event.chunk() != NO_CHUNK {
                    let mut lane = lock(&group.lane);
                    lane.return_chunk(&piece.event);
                    if self.settles.load(Ordering::Relaxed) {
                        lane.flush();
                    }
                }
            }
            if let Some(datagram) = datagram {
                return Poll::Ready(Ok(datagram));
            }
        }
        if let Some(status) = state.over {
            return Poll::Ready(Err(to_io(status)));
        }
        if group.is_dead() {
            return Poll::Ready(Err(Disconnected.into()));
        }
        state.readers.add(cx.waker());
        drop(state);
        lock(&group.lane).flush();
        Poll::Pending
    }
}

fn wait_for_room(state: &mut State, cx: &mut Context<'_>, stop: Stop) {
    match stop {
        // Nothing tells when the engine has read: try again, after others had their turn.
        Stop::Lane => cx.waker().wake_by_ref(),
        // The memory wakes us itself.
        Stop::Memory => {}
        Stop::Window | Stop::Done => {}
    }
    // Also to be told of the connection's end.
    state.writers.add(cx.waker());
}
