//! Urgent data as a program sees it: MSG_OOB, SIOCATMARK, SO_OOBINLINE, POLLPRI, as Linux has them.

use super::host::Tcp;
use super::stream::ReceiveBuffer;
use super::{Errno, Fd, Sockets};

/// What is known of the peer's urgent data.
#[derive(Debug, Default)]
pub(super) struct Urgent {
    /// Stream offset after it; 0: there was none.
    end: u64,
    /// The octet was read by MSG_OOB.
    taken: bool,
    /// Octets that were left out of the stream.
    left_out: u64,
}

impl Urgent {
    pub(super) fn told(&mut self, end: u64) {
        (self.end, self.taken) = (end, false);
    }

    /// The octet that is out of band, and the mark.
    fn mark(&self) -> Option<u64> {
        self.end.checked_sub(1)
    }

    /// Whether the next octet to be read is the mark.
    pub(super) fn is_next(&self, receive: &ReceiveBuffer) -> bool {
        self.mark() == Some(receive.consumed())
    }
}

impl Sockets {
    /// Where in the stream the octet is that is out of band; and how many such were left out of it so far.
    pub fn urgent_mark(&mut self, fd: Fd) -> (Option<u64>, u64) {
        let urgent = self.tcp(fd).ok().map(|(_, tcp)| &tcp.urgent);
        urgent.map_or((None, 0), |urgent| (urgent.mark(), urgent.left_out))
    }
}

impl Tcp {
    /// How many bytes the next read may take at most: it stops before the mark, and what is out of band it leaves out.
    pub(super) fn readable_before_mark(&mut self) -> usize {
        if self.urgent.is_next(&self.receive) && !self.values.oob_inline && self.receive.len() > 0 {
            self.receive.consume(1);
            self.urgent.left_out += 1;
        }
        match self.urgent.mark() {
            Some(mark) if mark > self.receive.consumed() => {
                (mark - self.receive.consumed()) as usize
            }
            _ => usize::MAX,
        }
    }

    /// Bytes that SIOCINQ tells of: those before the mark, unless it is in line.
    pub(super) fn unread(&self) -> usize {
        let (start, len) = (self.receive.consumed(), self.receive.len());
        match self.urgent.mark() {
            Some(mark) if !self.values.oob_inline && mark >= start => {
                len.min((mark - start) as usize)
            }
            _ => len,
        }
    }

    /// Whether POLLPRI says that there is an octet out of band.
    pub(super) fn has_urgent_octet(&self) -> bool {
        self.urgent_octet().is_some() && !self.urgent.taken
    }

    fn urgent_octet(&self) -> Option<u8> {
        let at = self.urgent.mark()?.checked_sub(self.receive.consumed())?;
        let received = self.receive.peek(usize::MAX);
        received.get(at as usize).copied()
    }

    /// `recv` with MSG_OOB.
    pub(super) fn take_urgent(&mut self, peek: bool) -> Result<Vec<u8>, Errno> {
        let gone = self
            .urgent
            .mark()
            .is_none_or(|mark| mark < self.receive.consumed());
        if self.values.oob_inline || gone || self.urgent.taken {
            return Err(Errno::EINVAL);
        }
        match self.urgent_octet() {
            Some(octet) => {
                self.urgent.taken |= !peek;
                Ok(vec![octet])
            }
            None if self.fin || self.no_read => Ok(Vec::new()),
            None => Err(Errno::EAGAIN),
        }
    }
}
