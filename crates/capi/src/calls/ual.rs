//! Statuses and UALs.

use std::ffi::{c_char, c_int};
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;

use sidecore_client::{Address, Ual};

use crate::boundary::{self, Out, call};
use crate::status::Dusi_Status::{self, *};
use crate::types::{DUSI_VERSION, Dusi_Event, Dusi_Evq, Dusi_Ual, Dusi_Ual_Config, Dusi_Ual_Info};
use crate::{open, status, table};

/// Tells the version of the library, as DUSI_VERSION tells that of the header.
///
/// Blocking: no.
#[unsafe(no_mangle)]
pub extern "C" fn Dusi_Version() -> u32 {
    DUSI_VERSION
}

/// Says a status in words.
///
/// The text is English, needs no freeing, and never changes. Numbers that are no status have a text, too. May be called in a signal handler and
/// after a fork.
///
/// Parameters:
/// - `status`: one of Dusi_Status, from a call or an event.
///
/// Blocking: no.
#[unsafe(no_mangle)]
pub extern "C" fn Dusi_Status_String(status: i32) -> *const c_char {
    status::words(status).as_ptr()
}

/// Says a status as the errno that a socket call would have given.
///
/// For programs that map this interface to that of sockets: DUSI_CONNECTION_REFUSED is ECONNREFUSED, and so on; DUSI_OK is 0; numbers that are
/// no status are EIO. May be called in a signal handler and after a fork.
///
/// Parameters:
/// - `status`: one of Dusi_Status, from a call or an event.
///
/// Blocking: no.
#[unsafe(no_mangle)]
pub extern "C" fn Dusi_Status_Errno(status: i32) -> c_int {
    status::errno(status)
}

/// Opens a UAL: connects to an engine, and maps the memory that is shared with it.
///
/// A process may open several; each is a protection domain of its own, with its own doorbell queue, event queues, DTIs and memory. Threads that
/// are to have nothing to do with each other open one each.
///
/// Parameters:
/// - `path`: of the engine's socket; NULL for the default, /run/sidecore.sock for root, else $XDG_RUNTIME_DIR/sidecore.sock.
/// - `config`: what is wished for; NULL for the defaults.
/// - `ual`: where the handle is stored. The caller owns it, and ends it by Dusi_Close_Ual.
///
/// Blocking: until the engine's agent has answered.
///
/// Statuses: DUSI_OK; DUSI_BAD_ARGUMENT; DUSI_NO_ENGINE (errno says why); DUSI_NOT_PERMITTED and DUSI_NO_RESOURCES, by the engine's policy;
/// DUSI_VERSION_MISMATCH; DUSI_PROTOCOL; DUSI_EXHAUSTED, with 512 UALs open; DUSI_SYSTEM (errno says why).
///
/// Paper: Dusi_Open_Ual, section 5, with the depth of the doorbell queue and the number of DTIs.
///
/// # Safety
/// `path` and `config` are NULL or point to what their types say; `ual` is NULL or points to room for a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn Dusi_Open_Ual(
    path: *const c_char,
    config: *const Dusi_Ual_Config,
    ual: *mut Dusi_Ual,
) -> Dusi_Status {
    call(|| {
        // SAFETY: as the header asks of the caller.
        let (mut out, wishes, path) =
            unsafe { (Out::new(ual)?, wishes(config)?, boundary::path(path)) };
        let path = match path {
            Some(path) => path.to_path_buf(),
            None => open::default_path()?,
        };
        out.set(wishes.open(|config| open::at(&path, config))?.ual());
        Ok(())
    })
}

/// # Safety
/// As [`boundary::read`], but null stands for the defaults.
unsafe fn wishes(config: *const Dusi_Ual_Config) -> status::Outcome<open::Wishes> {
    if config.is_null() {
        return Ok(open::Wishes::none());
    }
    // SAFETY: as the caller promises.
    open::Wishes::of(&unsafe { boundary::read(config)? })
}

/// Opens a UAL over a connected socket: of an engine in this process, or one that was passed on by another.
///
/// As Dusi_Open_Ual else.
///
/// Parameters:
/// - `socket`: a stream socket of AF_UNIX that is connected to an engine's agent. It is duplicated; the caller's own may be closed.
/// - `config`: what is wished for; NULL for the defaults.
/// - `ual`: where the handle is stored.
///
/// Blocking: until the engine's agent has answered.
///
/// Statuses: as Dusi_Open_Ual.
///
/// Paper: Dusi_Open_Ual, section 5.
///
/// # Safety
/// `config` is NULL or points to a structure; `ual` is NULL or points to room for a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn Dusi_Open_Ual_On(
    socket: c_int,
    config: *const Dusi_Ual_Config,
    ual: *mut Dusi_Ual,
) -> Dusi_Status {
    call(|| {
        // SAFETY: as the header asks of the caller.
        let (mut out, wishes) = unsafe { (Out::new(ual)?, wishes(config)?) };
        if socket < 0 {
            return Err(DUSI_BAD_ARGUMENT.into());
        }
        // SAFETY: not −1; whether it is open the duplication tells.
        let socket = unsafe { BorrowedFd::borrow_raw(socket) }.try_clone_to_owned()?;
        let opened = wishes.open(|config| Ok(Ual::open_on(socket, config)?))?;
        out.set(opened.ual());
        Ok(())
    })
}

/// Closes a UAL, with everything in it.
///
/// Connections that are still open are reset: close what is to end in good order by Dusi_Close before, and wait for DUSI_EVENT_CLOSED. Every handle of
/// the UAL means nothing from now on, and its memory is unmapped: what Dusi_Allocate_Memory gave, and received bytes. Threads that sleep
/// on its event queues wake with DUSI_DISCONNECTED.
///
/// Parameters:
/// - `ual`: the UAL.
///
/// Blocking: for threads that are just leaving a call.
///
/// Statuses: DUSI_OK; DUSI_BAD_HANDLE; DUSI_FORKED.
///
/// Paper: not named there; the counterpart of Dusi_Open_Ual.
#[unsafe(no_mangle)]
pub extern "C" fn Dusi_Close_Ual(ual: Dusi_Ual) -> Dusi_Status {
    call(|| table::close(ual))
}

/// Tells what was granted to a UAL.
///
/// Parameters:
/// - `ual`: the UAL.
/// - `info`: where it is stored.
/// - `size`: sizeof (Dusi_Ual_Info); another number is refused.
///
/// Blocking: no.
///
/// Statuses: DUSI_OK; DUSI_BAD_HANDLE; DUSI_BAD_ARGUMENT; DUSI_FORKED.
///
/// Paper: not named there.
///
/// # Safety
/// `info` is NULL or points to room for a structure.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn Dusi_Get_Ual_Info(
    ual: Dusi_Ual,
    info: *mut Dusi_Ual_Info,
    size: usize,
) -> Dusi_Status {
    call(|| {
        if size != size_of::<Dusi_Ual_Info>() {
            return Err(DUSI_BAD_ARGUMENT.into());
        }
        // SAFETY: as the header asks of the caller.
        let mut out = unsafe { Out::new(info)? };
        out.set(table::with_ual(ual, |door| Ok(open::info(&door.ual)))?);
        Ok(())
    })
}

/// Tells whether the engine still holds a UAL open.
///
/// After DUSI_DISCONNECTED every connection of the UAL is lost. Close it, and open another when there is an engine again.
///
/// Parameters:
/// - `ual`: the UAL.
///
/// Blocking: no. A system call, as long as no thread has slept on an event queue.
///
/// Statuses: DUSI_OK; DUSI_DISCONNECTED; DUSI_BAD_HANDLE; DUSI_FORKED.
///
/// Paper: not named there.
#[unsafe(no_mangle)]
pub extern "C" fn Dusi_Check_Ual(ual: Dusi_Ual) -> Dusi_Status {
    call(|| {
        let alive = table::with_ual(ual, |door| Ok(door.ual.is_alive()))?;
        if alive {
            Ok(())
        } else {
            Err(DUSI_DISCONNECTED.into())
        }
    })
}

/// Makes a sleeping engine look at what was posted.
///
/// Only needed with DUSI_MANUAL_FLUSH, where it is called once for many calls, and to give back chunks at once: they are gathered until the next
/// flush, or the next posting without DUSI_MANUAL_FLUSH. Calls that wait or arm do it by themselves.
///
/// Parameters:
/// - `ual`: the UAL.
///
/// Blocking: no. A system call, if the engine sleeps.
///
/// Statuses: DUSI_OK; DUSI_BAD_HANDLE; DUSI_FORKED.
///
/// Paper: posting to the doorbell queue (DbQ), sections 4.1 and 5.
#[unsafe(no_mangle)]
pub extern "C" fn Dusi_Flush(ual: Dusi_Ual) -> Dusi_Status {
    call(|| {
        table::with_ual(ual, |door| {
            door.flush();
            Ok(())
        })
    })
}

/// Tells how many operations can be posted for certain.
///
/// While an event queue is full the engine reads no operations, so a loop that waits for room must take events meanwhile. One that keeps what it takes in a
/// list of its own, and works on it while there is room for what follows from one event, never meets DUSI_DOORBELL_FULL: see
/// examples/dusi_echo_server.c.
///
/// Parameters:
/// - `ual`: the UAL.
/// - `room`: where the number is stored. With one posting thread it only grows until that thread posts.
///
/// Blocking: no.
///
/// Statuses: DUSI_OK; DUSI_BAD_HANDLE; DUSI_BAD_ARGUMENT; DUSI_FORKED.
///
/// Paper: not named there.
///
/// # Safety
/// `room` is NULL or points to room for a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn Dusi_Get_Doorbell_Room(ual: Dusi_Ual, room: *mut u32) -> Dusi_Status {
    call(|| {
        // SAFETY: as the header asks of the caller.
        let mut out = unsafe { Out::new(room)? };
        out.set(table::with_ual(ual, |door| Ok(door.lane.free()))?);
        Ok(())
    })
}

/// Does nothing, and says so on an event queue.
///
/// Its DUSI_EVENT_COMPLETION (DUSI_OP_NOP) tells that the engine has read everything that was posted before. It is also a way for one thread to wake
/// another that sleeps on the queue.
///
/// Parameters:
/// - `evq`: where the event is to come.
/// - `cookie`: comes back with the event.
///
/// Blocking: no.
///
/// Statuses: DUSI_OK; DUSI_BAD_HANDLE; DUSI_DOORBELL_FULL; DUSI_FORKED.
///
/// Paper: not named there.
#[unsafe(no_mangle)]
pub extern "C" fn Dusi_Nop(evq: Dusi_Evq, cookie: u64) -> Dusi_Status {
    call(|| {
        table::with_door(evq, crate::handle::Kind::Evq, |door, _| {
            let id = door.queue(evq)?;
            let posted = door.lane.nop(id, cookie);
            door.posted(posted)?;
            door.use_queue(id.index());
            Ok(())
        })
    })
}

/// Takes the address out of an event.
///
/// Which events have one, and whose it is, stands with their kinds. As getsockname(2), it stores as much as there is room for, and the whole
/// length in `length`. May be called in a signal handler and after a fork.
///
/// Parameters:
/// - `event`: the event.
/// - `address`: where the address is stored: a struct sockaddr_in or sockaddr_in6. A struct sockaddr_storage holds both.
/// - `length`: the room there, in bytes; then the address's length.
///
/// Blocking: no.
///
/// Statuses: DUSI_OK; DUSI_EMPTY if the event has no address; DUSI_BAD_ARGUMENT.
///
/// Paper: not named there.
///
/// # Safety
/// `event` is NULL or points to an event; `length` is NULL or points to a length; `address` is NULL or points to so many bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn Dusi_Event_Address(
    event: *const Dusi_Event,
    address: *mut libc::sockaddr,
    length: *mut libc::socklen_t,
) -> Dusi_Status {
    call(|| {
        // SAFETY: as the header asks of the caller.
        let event = unsafe { boundary::read(event)? };
        let found: Option<SocketAddr> = Address(event.address).get();
        let found = found.ok_or(DUSI_EMPTY)?;
        // SAFETY: as the header asks of the caller.
        unsafe { boundary::put_address(found, address, length) }
    })
}
