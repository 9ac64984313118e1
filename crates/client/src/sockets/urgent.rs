//! Urgent data of a stream (RFC 9293 section 3.8.5, RFC 6093), as the sockets of BSD show it.
//!
//! The engine tells where the peer's urgent data ends. The last octet before that is the *mark*: reads stop before it, [`Socket::at_mark`] says
//! when it is what comes next, and without in-line mode it is left out of the stream and read by itself.
//!
//! ```text
//!    stream   … read │ not read yet …            M │ data that is not urgent …
//!                    consumed                 mark  end
//! ```

use std::io::{self, IoSlice};
use std::task::{Context, Poll};

use sidecore_abi::command::flags;

use super::group::{Group, lock};
use super::socket::{Socket, State};
use crate::error::Disconnected;

/// What a socket knows of its peer's urgent data.
#[derive(Debug)]
pub(crate) struct Urgent {
    /// Stream offset after it; 0: there was none.
    end: u64,
    /// The last octet stays in the stream (SO_OOBINLINE).
    inline: bool,
    /// … it was read by itself.
    taken: bool,
    /// … or the stream was read past it, and it is kept.
    kept: Option<u8>,
}

impl Default for Urgent {
    /// In line, as RFC 6093 section 6 recommends.
    fn default() -> Self {
        Self {
            end: 0,
            inline: true,
            taken: false,
            kept: None,
        }
    }
}

impl Urgent {
    /// The engine tells of urgent data. What was the mark before is data like all other.
    pub(crate) fn told(&mut self, end: u64) {
        if end > self.end {
            self.end = end;
            self.taken = false;
            self.kept = None;
        }
    }

    /// How many bytes a read that begins at `consumed` may take: none beyond the mark, if it does not begin there.
    pub(crate) fn before_mark(&self, consumed: u64) -> u64 {
        match self.end.checked_sub(1) {
            Some(mark) if mark > consumed => mark - consumed,
            _ => u64::MAX,
        }
    }

    fn is_mark(&self, offset: u64) -> bool {
        self.end == offset + 1
    }

    /// Whether the octet at this place is left out of the stream.
    fn leaves_out(&self, offset: u64) -> bool {
        !self.inline && self.is_mark(offset)
    }
}

/// Before a read: the octet that is out of band is no part of the stream.
pub(crate) fn leave_out(state: &mut State, group: &Group) {
    if !state.urgent.leaves_out(state.consumed) {
        return;
    }
    let Some(piece) = state.received.front_mut() else {
        return;
    };
    let mut octet = [0];
    group
        .ual
        .pool()
        .read_at(&piece.event, piece.taken, &mut octet);
    piece.taken += 1;
    let used_up = piece.taken >= piece.event.len() as usize;
    state.consumed += 1;
    if !state.urgent.taken {
        state.urgent.kept = Some(octet[0]);
    }
    if used_up && let Some(piece) = state.received.pop_front() {
        lock(&group.lane).return_chunk(&piece.event);
    }
}

impl Socket {
    /// Writes urgent data: the peer is told that it ends with the last byte of `data`. As [`Socket::poll_write`], but 1024 bytes more may be
    /// in flight. What was taken of a part is urgent when the rest is sent so, too.
    pub(crate) fn poll_write_urgent(
        &self,
        group: &Group,
        cx: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_as(group, cx, &[IoSlice::new(data)], flags::URGENT)
    }

    /// Whether the next byte to be read is the mark.
    pub(crate) fn at_mark(&self) -> bool {
        let state = lock(&self.state);
        state.urgent.is_mark(state.consumed)
    }

    /// Bytes to be read until all urgent data is; `None`: there is none ahead.
    pub(crate) fn urgent_left(&self) -> Option<u64> {
        let state = lock(&self.state);
        (state.urgent.end > state.consumed).then(|| state.urgent.end - state.consumed)
    }

    /// Whether there is urgent data ahead; with `None` there will be none.
    pub(crate) fn poll_urgent(
        &self,
        group: &Group,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<Option<u64>>> {
        let mut state = lock(&self.state);
        if state.urgent.end > state.consumed {
            return Poll::Ready(Ok(Some(state.urgent.end - state.consumed)));
        }
        if state.end || state.read_shut || state.over.is_some() {
            return Poll::Ready(Ok(None));
        }
        if group.is_dead() {
            return Poll::Ready(Err(Disconnected.into()));
        }
        state.readers.add(cx.waker());
        drop(state);
        lock(&group.lane).flush();
        Poll::Pending
    }

    /// The octet that is out of band; `None`: it will never come. Never waits.
    pub(crate) fn urgent_octet(&self, group: &Group, consume: bool) -> io::Result<Option<u8>> {
        let mut state = lock(&self.state);
        let state = &mut *state;
        let urgent = &state.urgent;
        let Some(mark) = urgent.end.checked_sub(1) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        if urgent.inline || urgent.taken {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let received = state.received.iter().find_map(|piece| {
            let skip = mark.checked_sub(piece.event.body[2])?;
            let mut octet = [0];
            let skip = usize::try_from(skip).ok()?;
            let found = group.ual.pool().read_at(&piece.event, skip, &mut octet) == 1;
            found.then_some(octet[0])
        });
        match urgent.kept.or(received) {
            Some(octet) => {
                state.urgent.taken |= consume;
                Ok(Some(octet))
            }
            None if state.end || state.read_shut || state.over.is_some() => Ok(None),
            // The stream was read past it while it was in line.
            None if state.consumed > mark => Err(io::ErrorKind::InvalidInput.into()),
            None => Err(io::ErrorKind::WouldBlock.into()),
        }
    }

    /// Whether the last octet of urgent data has come and was not read (POLLPRI).
    pub(crate) fn has_urgent(state: &State) -> bool {
        let urgent = &state.urgent;
        let Some(mark) = urgent.end.checked_sub(1) else {
            return false;
        };
        let ahead = || {
            let last = state.received.back();
            let came = last.map_or(0, |piece| {
                piece.event.body[2] + u64::from(piece.event.len())
            });
            mark >= state.consumed && mark < came
        };
        match urgent.inline {
            true => ahead(),
            false => !urgent.taken && (urgent.kept.is_some() || ahead()),
        }
    }

    /// Whether a read finds bytes: more than an octet that is left out.
    pub(crate) fn has_bytes(state: &State) -> bool {
        if !state.urgent.leaves_out(state.consumed) {
            return !state.received.is_empty();
        }
        let left = state
            .received
            .iter()
            .map(|piece| piece.event.len() as usize - piece.taken);
        left.sum::<usize>() > 1
    }

    pub(crate) fn set_urgent_inline(&self, inline: bool) {
        lock(&self.state).urgent.inline = inline;
    }

    pub(crate) fn urgent_inline(&self) -> bool {
        lock(&self.state).urgent.inline
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mark_is_the_last_octet_and_moves_on_only() {
        let mut urgent = Urgent::default();
        assert_eq!(urgent.before_mark(0), u64::MAX);
        assert!(!urgent.is_mark(0));
        urgent.told(10);
        assert_eq!((urgent.before_mark(0), urgent.before_mark(8)), (9, 1));
        assert_eq!(urgent.before_mark(9), u64::MAX, "a read may begin there");
        assert!(urgent.is_mark(9) && !urgent.leaves_out(9));
        urgent.inline = false;
        assert!(urgent.leaves_out(9) && !urgent.leaves_out(10));
        urgent.taken = true;
        urgent.told(7);
        assert!(urgent.taken && urgent.is_mark(9));
        urgent.told(12);
        assert!(!urgent.taken && !urgent.is_mark(9) && urgent.is_mark(11));
    }
}
