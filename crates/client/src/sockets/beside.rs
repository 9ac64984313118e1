//! What goes beside a socket's bytes: urgent data, groups, and reports of what became of datagrams.

use std::io;
use std::task::{Context, Poll, Waker};

use sidecore_abi::Membership;

use super::datagram::Datagram;
use super::group::lock;
use super::raw::RawSocket;
use super::report::DatagramReport;
use super::wakers::wake_all;

impl RawSocket {
    /// Receives one datagram, with what its headers said. `WouldBlock`.
    pub fn receive_datagram(&self, out: &mut [u8], peek: bool) -> io::Result<Datagram> {
        self.show_interest();
        let mut cx = Context::from_waker(Waker::noop());
        let socket = self.0.socket();
        match socket.poll_receive_event(self.0.group(), &mut cx, out, !peek) {
            Poll::Ready(Err(_)) if self.is_over() => {
                let told = &mut lock(&socket.state).told;
                Err(match std::mem::replace(told, true) {
                    true => io::ErrorKind::WouldBlock.into(),
                    false => io::ErrorKind::NetworkDown.into(),
                })
            }
            Poll::Ready(received) => received,
            Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
        }
    }

    /// Whether the next byte of a stream to be read is the mark, the last byte of the peer's urgent data (SIOCATMARK).
    pub fn at_mark(&self) -> bool {
        self.0.socket().at_mark()
    }

    /// Whether the last byte of urgent data stays in the stream (SO_OOBINLINE). It does in a new socket, other than with BSD.
    pub fn set_urgent_inline(&self, inline: bool) {
        self.0.socket().set_urgent_inline(inline);
    }

    /// The last byte of the peer's urgent data, where it is not in line (MSG_OOB). `None`: it will never come; `WouldBlock`: it is announced and
    /// has not come; `InvalidInput`: there is none, it was read, or it is in line. With `peek` it stays.
    pub fn urgent_octet(&self, peek: bool) -> io::Result<Option<u8>> {
        self.0.socket().urgent_octet(self.0.group(), !peek)
    }

    /// Changes what a UDP socket, which must be bound, listens to. Blocks for the engine's answer.
    pub fn change_membership(&self, membership: &Membership) -> io::Result<()> {
        self.0.run(self.0.membership(membership))
    }

    /// The oldest report of what became of a datagram, if there is one (MSG_ERRQUEUE).
    pub fn take_report(&self) -> Option<DatagramReport> {
        self.0.socket().take_report()
    }

    /// Bytes written that the peer has not acknowledged (SIOCOUTQ). Blocks for the engine's answer, if there may be any.
    pub fn unacknowledged(&self) -> io::Result<usize> {
        // Of small writes the engine does not tell each: it is asked.
        let (in_flight, written) = {
            let state = lock(&self.0.socket().state);
            (state.sends.in_flight(), state.written)
        };
        if in_flight == 0 || self.is_datagram() {
            return Ok(in_flight);
        }
        let acknowledged = self.info()?.bytes_acked;
        let left = written.saturating_sub(acknowledged);
        Ok(usize::try_from(left).unwrap_or(usize::MAX).min(in_flight))
    }

    /// How many bytes of a stream may be in flight, if that is less than the group's configuration says (SO_SNDBUF). At least one.
    pub fn set_send_limit(&self, bytes: usize) {
        lock(&self.0.socket().state).send_limit = bytes.max(1);
    }

    /// Lets every call that is blocked on the socket, in whatever thread, try once more.
    pub fn wake_blocked(&self) {
        let mut wake = Vec::new();
        self.0.socket().wake_everybody(&mut wake);
        wake_all(&mut wake);
    }
}
