//! The beginning, memory, and taking operations back.

use std::ffi::c_void;
use std::sync::Arc;

use libc::{c_int, size_t};
use rustix::io::Errno;

use crate::boundary::{bytes, call};
use crate::memory::Registration;
use crate::process::{init, process};
use crate::socket::Which;
use crate::types::{
    EXS_CAF_AHANDLE, EXS_CAF_FILDES, EXS_MRF_SHARED, EXS_VERSION1, exs_ahandle_t, exs_mhandle_t,
};

/// Begins to use the interface: to be called before any other call. Calling it again does nothing. A forked child calls it anew: it has no part in its
/// parent's queues, memory and operations.
///
/// Parameters:
/// - `version`: EXS_VERSION
///
/// Errors: EINVAL for a version that is not known; EMFILE, ENFILE, EAGAIN or ENOMEM when the library cannot have its descriptors and its thread.
///
/// Blocking: no.
///
/// Origin: call and constant are in netperf, with -1 for failure.
#[unsafe(no_mangle)]
pub extern "C" fn exs_init(version: c_int) -> c_int {
    call(|| {
        if version != EXS_VERSION1 {
            return Err(Errno::INVAL);
        }
        init().map(|()| 0)
    })
}

/// Registers memory, for operations to name. It must stay mapped until exs_mderegister.
///
/// With the kernel's sockets this says where an operation's bytes may lie, and no more. On sockets of a Sidecore engine, sends from memory of this kind go
/// without a copy: memory that is mapped MAP_SHARED | MAP_ANONYMOUS, and begins at a page; or, with EXS_MRF_SHARED, whole pages of any anonymous
/// mapping. To that end the memory may be moved to other pages at the same addresses during this call. So nothing may write to it meanwhile, and
/// processes that shared it before (children forked already) share it no more. Memory of any other kind is copied.
///
/// Parameters:
/// - `addr`: its first byte
/// - `len`: bytes
/// - `flags`: 0 or EXS_MRF_SHARED
///
/// Errors: the answer is a handle, which is positive, or EXS_MHANDLE_INVALID. EFAULT for NULL; EINVAL for no bytes, more than an address space has, or
/// unknown flags; EBADF before exs_init; ENFILE when 65534 are registered.
///
/// Blocking: for the time of copying the memory, where it is moved.
///
/// Origin: call and EXS_MHANDLE_INVALID are in netperf; what EXS_MRF_SHARED means is our reading.
///
/// # Safety
/// `addr` points to `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn exs_mregister(
    addr: *mut c_void,
    len: size_t,
    flags: c_int,
) -> exs_mhandle_t {
    call(|| {
        let process = process().ok_or(Errno::BADF)?;
        if addr.is_null() {
            return Err(Errno::FAULT);
        }
        let memory = bytes(addr, len)?;
        let beyond = memory.address.checked_add(len).is_none();
        if len == 0 || beyond || flags & !EXS_MRF_SHARED != 0 {
            return Err(Errno::INVAL);
        }
        let shared = flags & EXS_MRF_SHARED != 0;
        process
            .memory
            .put(Arc::new(Registration::new(memory, shared)))
    })
}

/// Ends a registration. The memory stays as it is.
///
/// Parameters:
/// - `mhandle`: what exs_mregister answered
/// - `flags`: 0
///
/// Errors: EBADF for what is no such handle; EBUSY while operations use it, which their events end; EINVAL for unknown flags.
///
/// Blocking: no.
///
/// Origin: our reading, beside exs_mregister.
#[unsafe(no_mangle)]
pub extern "C" fn exs_mderegister(mhandle: exs_mhandle_t, flags: c_int) -> c_int {
    call(|| {
        let process = process().ok_or(Errno::BADF)?;
        if flags != 0 {
            return Err(Errno::INVAL);
        }
        let unused = |memory: &Arc<Registration>| match Arc::strong_count(memory) {
            1 => Ok(()),
            _ => Err(Errno::BUSY),
        };
        process.memory.take(mhandle, unused).map(|_| 0)
    })
}

/// Ends operations that are under way. Each of them has its event, as any other: with errno ECANCELED, and how much was sent or received before. A send
/// that the engine has already goes on, and a send that has been sent in part leaves the peer without the rest.
///
/// Parameters:
/// - `socket`: a descriptor of the socket; not looked at without EXS_CAF_FILDES
/// - `ahandle`: the operations' handle; not looked at without EXS_CAF_AHANDLE
/// - `flags`: EXS_CAF_FILDES for the operations of that socket (an exs_poll whose list names it among them), EXS_CAF_AHANDLE for those with that
///   handle, both for those that are both
///
/// Errors: 0 also when there was nothing to end. EINVAL for no flags or unknown ones; EBADF for a descriptor that is not open, or before exs_init.
///
/// Blocking: no.
///
/// Origin: the names of the flags are in a public editor's list of the interface's words; the call is our reading.
#[unsafe(no_mangle)]
pub extern "C" fn exs_cancel(socket: c_int, ahandle: exs_ahandle_t, flags: c_int) -> c_int {
    call(|| {
        let process = process().ok_or(Errno::BADF)?;
        if flags == 0 || flags & !(EXS_CAF_FILDES | EXS_CAF_AHANDLE) != 0 {
            return Err(Errno::INVAL);
        }
        let which = Which {
            ahandle: (flags & EXS_CAF_AHANDLE != 0).then_some(ahandle),
        };
        if flags & EXS_CAF_FILDES != 0 {
            process.service.socket(socket, true)?.cancel(which);
        } else {
            for socket in process.service.all() {
                socket.cancel(which);
            }
        }
        Ok(0)
    })
}
