//! The calls.

pub(crate) mod connection;
pub(crate) mod control;
pub(crate) mod queue;
pub(crate) mod transfer;

use std::os::fd::RawFd;
use std::sync::Arc;

use libc::c_int;
use rustix::io::Errno;

use crate::memory::Registration;
use crate::operation::{Operation, Piece, Work};
use crate::process::{Process, process};
use crate::queue::{Detail, Queue};
use crate::socket::Socket;
use crate::sys::Bytes;
use crate::types::{EXS_MHANDLE_UNREGISTERED, exs_ahandle_t, exs_mhandle_t, exs_qhandle_t};

/// What every operation is given, looked up.
struct Given {
    process: &'static Process,
    socket: Arc<Socket>,
    queue: Arc<Queue>,
    fd: RawFd,
    ahandle: exs_ahandle_t,
}

impl Given {
    /// `BADF`: neither descriptor nor queue, or exs_init was not called; `NOTSOCK`.
    fn new(fd: RawFd, queue: exs_qhandle_t, ahandle: exs_ahandle_t) -> Result<Self, Errno> {
        let process = process().ok_or(Errno::BADF)?;
        Ok(Self {
            process,
            socket: process.service.socket(fd, false)?,
            queue: process.queues.get(queue)?,
            fd,
            ahandle,
        })
    }

    /// The same, if the call's flags are among these; `INVAL`.
    fn with(self, flags: c_int, all: c_int) -> Result<Self, Errno> {
        (flags & !all == 0).then_some(self).ok_or(Errno::INVAL)
    }

    /// Bytes of the memory that a handle names.
    fn piece(&self, bytes: Bytes, memory: exs_mhandle_t) -> Result<Piece, Errno> {
        piece(self.process, bytes, memory)
    }

    /// Begins the operation.
    fn post(self, work: Work, detail: Detail) -> Result<i32, Errno> {
        self.queue.reserve()?;
        let queue = Arc::clone(&self.queue);
        let operation = Operation::new(queue, (self.fd, self.ahandle), work, detail);
        let posted = self.socket.post(operation);
        if posted.is_err() {
            self.queue.release();
        }
        posted.map(|()| 0)
    }
}

fn piece(process: &Process, bytes: Bytes, memory: exs_mhandle_t) -> Result<Piece, Errno> {
    let memory: Option<Arc<Registration>> = match memory {
        EXS_MHANDLE_UNREGISTERED => None,
        name => {
            let memory = process.memory.get(name)?;
            memory.check(bytes)?;
            Some(memory)
        }
    };
    Ok(Piece { bytes, memory })
}
