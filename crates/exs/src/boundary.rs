//! The C boundary: pointers become values, values go out through pointers, panics stay inside.
//!
//! Null pointers are refused. Any other must point to what the header says, for which the program answers; what an operation works on stays
//! the operation's until its event.

use std::ffi::c_void;
use std::mem::{offset_of, size_of};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use libc::{c_int, socklen_t, timeval};
use rustix::io::Errno;

use crate::queue::{Detail, Event};
use crate::sys::{self, Bytes, Told};
use crate::types::{
    exs_acceptaddr_t, exs_event_t, exs_evt_accept_t, exs_evt_poll_t, exs_evt_union_t,
    exs_evt_xfer_t, exs_evt_xferfile_t, exs_evt_xfermsg_t, exs_msghdr_t, exs_pollfd_t,
};

/// Runs a call, and turns what it gives into what C expects: -1 and errno for an error. A panic is EIO.
pub(crate) fn call(run: impl FnOnce() -> Result<c_int, Errno>) -> c_int {
    let saved = sys::errno();
    let answer = catch_unwind(AssertUnwindSafe(run)).unwrap_or(Err(Errno::IO));
    match answer {
        Ok(value) => {
            // A call that succeeds leaves errno alone.
            sys::set_errno(saved);
            value
        }
        Err(error) => {
            sys::set_errno(error.raw_os_error());
            -1
        }
    }
}

/// Bytes of the program's.
pub(crate) fn bytes(buffer: *const c_void, len: usize) -> Result<Bytes, Errno> {
    if buffer.is_null() && len > 0 {
        return Err(Errno::FAULT);
    }
    if len > isize::MAX as usize {
        return Err(Errno::INVAL);
    }
    Ok(Bytes {
        address: buffer as usize,
        len,
    })
}

/// A copy of what a pointer points to.
///
/// # Safety
/// It is null, or points to a `T` that nobody changes during the call.
pub(crate) unsafe fn read<T: Copy>(pointer: *const T) -> Result<T, Errno> {
    if pointer.is_null() {
        return Err(Errno::FAULT);
    }
    // SAFETY: a `T`, as the caller promises.
    Ok(unsafe { pointer.read_unaligned() })
}

/// Elements of the program's, for the length of the call.
///
/// # Safety
/// The pointer is null, or points to `count` elements that nobody changes during the call.
pub(crate) unsafe fn list<T: Copy>(
    first: *const T,
    count: c_int,
    most: c_int,
) -> Result<Vec<T>, Errno> {
    if count < 1 || count > most {
        return Err(Errno::INVAL);
    }
    if first.is_null() {
        return Err(Errno::FAULT);
    }
    // SAFETY: so many elements, as the caller promises.
    let each = (0..count as usize).map(|at| unsafe { first.add(at).read_unaligned() });
    Ok(each.collect())
}

/// A copy of an address.
///
/// # Safety
/// The pointer is null, or points to `len` bytes.
pub(crate) unsafe fn address(from: *const c_void, len: socklen_t) -> Result<Vec<u8>, Errno> {
    let len = len as usize;
    if len > size_of::<libc::sockaddr_storage>() {
        return Err(Errno::INVAL);
    }
    if from.is_null() {
        return Err(Errno::FAULT);
    }
    // SAFETY: so many bytes, as the caller promises.
    Ok(unsafe { std::slice::from_raw_parts(from.cast::<u8>(), len) }.to_vec())
}

/// When a wait ends; `None`: not before what it waits for.
///
/// # Safety
/// The pointer is null, or points to a timeval.
pub(crate) unsafe fn deadline(timeout: *const timeval) -> Result<Option<Instant>, Errno> {
    if timeout.is_null() {
        return Ok(None);
    }
    // SAFETY: as the caller promises.
    let timeout = unsafe { read(timeout) }?;
    let seconds = u64::try_from(timeout.tv_sec).map_err(|_| Errno::INVAL)?;
    let micros = u64::try_from(timeout.tv_usec).map_err(|_| Errno::INVAL)?;
    if micros >= 1_000_000 {
        return Err(Errno::INVAL);
    }
    let time = Duration::from_secs(seconds) + Duration::from_micros(micros);
    // A time beyond all clocks never comes.
    Ok(Instant::now().checked_add(time))
}

/// An event as C has it.
pub(crate) fn event(event: &Event) -> exs_event_t {
    // Zeros of the largest member, so that all bytes are said.
    let mut said = exs_evt_union_t {
        exs_evt_xfer: exs_evt_xfer_t {
            exs_evt_buffer: std::ptr::null_mut(),
            exs_evt_length: 0,
            exs_evt_mhandle: 0,
        },
    };
    match event.detail {
        Detail::None => {}
        Detail::Transfer {
            buffer,
            len,
            memory,
        } => {
            said.exs_evt_xfer = exs_evt_xfer_t {
                exs_evt_buffer: buffer as *mut c_void,
                exs_evt_length: len,
                exs_evt_mhandle: memory,
            };
        }
        Detail::Message { message, len } => {
            said.exs_evt_xfermsg = exs_evt_xfermsg_t {
                exs_evt_message: message as *mut exs_msghdr_t,
                exs_evt_length: len,
            };
        }
        Detail::File { pieces, len } => {
            said.exs_evt_xferfile = exs_evt_xferfile_t {
                exs_evt_pieces: pieces as *mut _,
                exs_evt_length: len,
            };
        }
        Detail::Accept { fd, room } => {
            said.exs_evt_accept = exs_evt_accept_t {
                exs_evt_newsocket: fd,
                exs_evt_address: room as *mut exs_acceptaddr_t,
            };
        }
        Detail::Poll { list, count } => {
            said.exs_evt_poll = exs_evt_poll_t {
                exs_evt_fds: list as *mut exs_pollfd_t,
                exs_evt_count: count,
            };
        }
    }
    exs_event_t {
        exs_evt_type: event.kind,
        exs_evt_errno: event.errno,
        exs_evt_socket: event.fd,
        exs_evt_ahandle: event.ahandle,
        exs_evt_union: said,
    }
}

/// Stores a value at a place of the program's; nowhere at address 0.
fn store<T>(address: usize, offset: usize, value: T) {
    if address != 0 {
        // SAFETY: a field of a structure of the program's, which is the operation's until its event.
        unsafe { ((address + offset) as *mut T).write_unaligned(value) };
    }
}

/// The length of a peer's address.
pub(crate) fn store_address_length(room: usize, len: u32) {
    store(room, offset_of!(exs_acceptaddr_t, exs_acc_addrlen), len);
}

/// What a receive told.
pub(crate) fn store_told(message: usize, told: &Told) {
    store(
        message,
        offset_of!(exs_msghdr_t, msg_namelen),
        told.name_len,
    );
    let control_len = offset_of!(exs_msghdr_t, msg_controllen);
    store(message, control_len, told.control_len);
    store(message, offset_of!(exs_msghdr_t, msg_flags), told.flags);
}

/// What a poll found at a place of its list.
pub(crate) fn store_found(list: usize, at: usize, bits: i16) {
    let place = at * size_of::<exs_pollfd_t>();
    store(list, place + offset_of!(exs_pollfd_t, revents), bits);
}
