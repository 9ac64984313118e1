//! The conversation with the engine's agent: opening, registering memory, sockets for sleeping.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::{Mutex, PoisonError};

use sidecore_abi::Status;
use sidecore_abi::agent::{MESSAGE_ROOM, MessageError, Reply, Request};
use sidecore_sys::unix::Stream;

use crate::error::{OpenError, to_io};

/// The socket, and the rule that one request is answered before the next is asked.
pub(crate) struct Agent {
    socket: Stream,
    turn: Mutex<()>,
}

/// What opening a UAL gave.
pub(crate) struct Opened {
    pub(crate) reply: Reply,
    pub(crate) control: OwnedFd,
    pub(crate) pool: OwnedFd,
    pub(crate) wake: OwnedFd,
}

fn receive(socket: &Stream) -> io::Result<(Result<Reply, MessageError>, Vec<OwnedFd>)> {
    let mut bytes = [0u8; MESSAGE_ROOM];
    let (n, fds) = socket.recv_with_many_fds(&mut bytes)?;
    if n == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok((Reply::from_bytes(bytes.get(..n).unwrap_or(&bytes)), fds))
}

impl Agent {
    pub(crate) fn new(socket: Stream) -> Self {
        Self {
            socket,
            turn: Mutex::new(()),
        }
    }

    /// Asks for a UAL: the first message on the socket. Blocks until the agent answers.
    pub(crate) fn open(&self, request: &Request) -> Result<Opened, OpenError> {
        let sent = self.socket.send_with_fds(&request.to_bytes(), &[]);
        sent.map_err(OpenError::Io)?;
        let (reply, fds) = receive(&self.socket).map_err(OpenError::Io)?;
        let reply = reply.map_err(unreadable)?;
        let status = Status::from_raw(reply.status);
        if status != Status::Ok {
            return Err(OpenError::Refused(status));
        }
        let [control, pool, wake] = <[OwnedFd; 3]>::try_from(fds)
            .map_err(|_| OpenError::Protocol("OpenUal came without its three descriptors"))?;
        Ok(Opened {
            reply,
            control,
            pool,
            wake,
        })
    }

    /// Asks and waits for the answer; a status other than Ok is an error.
    pub(crate) fn ask(
        &self,
        request: &Request,
        fds: &[BorrowedFd<'_>],
    ) -> io::Result<(Reply, Vec<OwnedFd>)> {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        self.socket.send_with_fds(&request.to_bytes(), fds)?;
        let (reply, fds) = receive(&self.socket)?;
        let reply = reply.map_err(unreadable)?;
        match Status::from_raw(reply.status) {
            Status::Ok => Ok((reply, fds)),
            status => Err(to_io(status)),
        }
    }

    /// Ends the conversation, also for those who hold copies of the socket.
    pub(crate) fn shut(&self) {
        // It fails only where the other side has ended it before.
        let _ = rustix::net::shutdown(&self.socket, rustix::net::Shutdown::Both);
    }

    pub(crate) fn socket(&self) -> &Stream {
        &self.socket
    }
}

/// Why an answer cannot be read: mostly since the engine is of another version.
fn unreadable(error: MessageError) -> OpenError {
    match error {
        MessageError::Version(version) => OpenError::Version(version),
        _ => OpenError::Protocol("the answer cannot be read"),
    }
}
