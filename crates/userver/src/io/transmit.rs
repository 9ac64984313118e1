//! What differs between the two back-ends on epoll: how bytes leave.

use std::io;
use std::os::fd::BorrowedFd;

use crate::cache::Store;
use crate::http::plan::Plan;

/// How a back-end sends.
pub(crate) trait Transmit {
    /// How it keeps files.
    type Store: Store;

    /// Sends from the front of a plan that is not empty, in one system call. Does not block: when the socket takes nothing, that is
    /// [`io::ErrorKind::WouldBlock`].
    fn transmit(
        &mut self,
        socket: BorrowedFd<'_>,
        plan: &Plan<<Self::Store as Store>::Edition>,
    ) -> io::Result<Sent>;
}

/// What a send did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Sent {
    /// Bytes that went, at least one.
    pub(crate) bytes: u64,
    /// The socket is full: it will say by an edge when it takes more.
    pub(crate) full: bool,
}
