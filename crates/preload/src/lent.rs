//! Memory of the program's that the engine reads itself, for `libexs`: sends from it are not copied.

use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd, RawFd};
use std::sync::{Arc, Mutex};

use rustix::io::Errno;
use sidecore_client::{RawSocket, Region};

use crate::errors::{errno, told};
use crate::process::Process;
use crate::socket::{Route, Socket};
use crate::table::lock;

/// Memory that was lent.
struct Lent {
    memory: OwnedFd,
    len: u64,
    /// As the engine has it: the number of the group of sockets by which it was registered, and the region.
    region: Mutex<Option<(u64, Region)>>,
}

/// All of it, by number.
#[derive(Default)]
pub(crate) struct Loans(Mutex<(u64, HashMap<u64, Arc<Lent>>)>);

impl Loans {
    /// Takes note of memory: its number.
    pub(crate) fn add(&self, memory: OwnedFd, len: u64) -> u64 {
        let lent = Lent {
            memory,
            len,
            region: Mutex::new(None),
        };
        let mut loans = lock(&self.0);
        loans.0 += 1;
        let number = loans.0;
        loans.1.insert(number, Arc::new(lent));
        number
    }

    /// Forgets it, here and at the engine.
    pub(crate) fn remove(&self, process: &Process, number: u64) {
        let Some(lent) = lock(&self.0).1.remove(&number) else {
            return;
        };
        let region = lock(&lent.region).take();
        if let (Some((group, region)), Some(link)) = (region, process.opened())
            && link.sockets.number() == group
        {
            link.sockets.deregister(&region);
        }
        use std::os::fd::AsRawFd;
        process.release(lent.memory.as_raw_fd());
    }

    fn find(&self, number: u64) -> Option<Arc<Lent>> {
        lock(&self.0).1.get(&number).cloned()
    }
}

impl Lent {
    /// The region, registered by the group of this socket. The first time it blocks for the agent's answer.
    fn region(&self, process: &Process, raw: &RawSocket) -> Result<Region, Errno> {
        let mut region = lock(&self.region);
        let group = raw.group_number();
        if let Some((known, region)) = &*region
            && *known == group
        {
            return Ok(region.clone());
        }
        let link = process.opened().ok_or(Errno::NOTCONN)?;
        if link.sockets.number() != group {
            // Of an engine that is gone.
            return Err(Errno::NOTCONN);
        }
        let made = told(link.ual.register(self.memory.as_fd()))?;
        if made.len() < self.len {
            return Err(Errno::INVAL);
        }
        *region = Some((group, made.clone()));
        Ok(made)
    }
}

/// How a send went.
pub(crate) enum Sent {
    Posted,
    /// It must be sent otherwise.
    Elsewhere,
}

/// Sends a piece (offset, length) of lent memory; `then` gets 0 or an errno when it is over.
pub(crate) fn send(
    process: &Process,
    socket: &Socket,
    number: u64,
    piece: (u64, u32),
    more: bool,
    then: impl Fn(i32) + Send + Sync + 'static,
) -> Result<Sent, Errno> {
    let raw = match socket.route() {
        Route::Engine(raw) if !raw.is_datagram() && !raw.is_listening() => raw,
        _ => return Ok(Sent::Elsewhere),
    };
    let lent = process.loans.find(number).ok_or(Errno::INVAL)?;
    let Ok(region) = lent.region(process, &raw) else {
        // The engine does not take it (its tables may be full): a copy will do.
        return Ok(Sent::Elsewhere);
    };
    let then = move |result: std::io::Result<()>| {
        then(result.map_or_else(|error| errno(&error).raw_os_error(), |()| 0));
    };
    told(raw.send_region(&region, piece, more, then))?;
    Ok(Sent::Posted)
}

/// The program's descriptor once more, as the library's own.
pub(crate) fn keep(process: &Process, fd: RawFd) -> Result<OwnedFd, Errno> {
    let fd = crate::sys::borrow(fd).try_clone_to_owned();
    fd.map(|fd| process.keep_high(fd))
        .map_err(|error| errno(&error))
}
