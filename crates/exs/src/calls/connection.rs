//! Connections: their beginning, readiness and end.

use std::sync::Arc;

use libc::{c_int, sockaddr, socklen_t};
use rustix::io::Errno;

use super::Given;
use crate::boundary::{self, call};
use crate::operation::Work;
use crate::poll::Poll;
use crate::process::process;
use crate::queue::Detail;
use crate::sys::{self, Bytes, Wish};
use crate::types::{
    EXS_EVTVEC_MAX, EXS_POLLIN, EXS_POLLOUT, EXS_SHUT_WR, exs_acceptaddr_t, exs_ahandle_t,
    exs_pollfd_t, exs_qhandle_t,
};

/// Takes a connection. The event EXS_EVT_ACCEPT has its descriptor. Several may be posted.
///
/// Parameters:
/// - `socket`: a descriptor of a socket that listens
/// - `address`: room for the peer's address, which is the operation's until the event, or NULL
/// - `flags`: 0
/// - `qhandle`: the queue for the event
/// - `ahandle`: given back in the event
///
/// Errors: as exs_send; EINVAL for flags. The event says EINVAL for a socket that does not listen.
///
/// Blocking: no.
///
/// Origin: the types' names are in a public editor's list of the interface's words; the rest is our reading.
///
/// # Safety
/// `address` is NULL, or points to such room, until the event.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn exs_accept(
    socket: c_int,
    address: *mut exs_acceptaddr_t,
    flags: c_int,
    qhandle: exs_qhandle_t,
    ahandle: exs_ahandle_t,
) -> c_int {
    call(|| {
        let given = Given::new(socket, qhandle, ahandle)?.with(flags, 0)?;
        let mut room = Bytes { address: 0, len: 0 };
        if !address.is_null() {
            // SAFETY: as the caller promises.
            let said = unsafe { boundary::read(address) }?;
            room = boundary::bytes(said.exs_acc_addr.cast(), said.exs_acc_addrlen as usize)?;
        }
        let work = Work::Accept {
            room: address as usize,
            address: room,
        };
        let detail = Detail::Accept {
            fd: -1,
            room: address as usize,
        };
        given.post(work, detail)
    })
}

/// Connects. The event EXS_EVT_CONNECT tells how it ended. Operations that are posted on the socket meanwhile wait for that.
///
/// Parameters:
/// - `socket`: a descriptor of the socket
/// - `address`: the peer's address; it may go once the call has returned
/// - `address_len`: its length
/// - `flags`: 0
/// - `qhandle`: the queue for the event
/// - `ahandle`: given back in the event
///
/// Errors: as exs_send; EFAULT for NULL; EINVAL for flags or a length that no address has. The event says why there is no connection: ECONNREFUSED and so on.
///
/// Blocking: no.
///
/// Origin: our reading, after connect(2).
///
/// # Safety
/// `address` is NULL, or points to `address_len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn exs_connect(
    socket: c_int,
    address: *const sockaddr,
    address_len: socklen_t,
    flags: c_int,
    qhandle: exs_qhandle_t,
    ahandle: exs_ahandle_t,
) -> c_int {
    call(|| {
        let given = Given::new(socket, qhandle, ahandle)?.with(flags, 0)?;
        // SAFETY: as the caller promises.
        let address = unsafe { boundary::address(address.cast(), address_len) }?;
        let work = Work::Connect {
            address,
            begun: false,
        };
        given.post(work, Detail::None)
    })
}

/// Waits for descriptors. The event EXS_EVT_POLL comes when the first of them is ready, and says how many are; the list's revents say which, and what
/// for. It comes once: poll again for more.
///
/// Parameters:
/// - `fds`: the list, which is the operation's until the event. Any descriptor that poll(2) and epoll take
/// - `nfds`: how many, 1 to EXS_EVTVEC_MAX. A negative descriptor is passed over
/// - `flags`: 0
/// - `qhandle`: the queue for the event
/// - `ahandle`: given back in the event
///
/// Errors: EAGAIN when the queue is full; EBADF for what is no queue, or before exs_init; EFAULT for NULL; EINVAL for another count, flags, or events that
/// are not EXS_POLLIN and EXS_POLLOUT, or when there is nothing to wait for; EMFILE, ENFILE or ENOMEM when the library has no descriptors to wait with. A
/// descriptor that is not open is found ready (POLLNVAL).
///
/// Blocking: no.
///
/// Origin: the types' names are in a public editor's list of the interface's words; the rest is our reading.
///
/// # Safety
/// `fds` is NULL, or points to `nfds` places, until the event.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn exs_poll(
    fds: *mut exs_pollfd_t,
    nfds: c_int,
    flags: c_int,
    qhandle: exs_qhandle_t,
    ahandle: exs_ahandle_t,
) -> c_int {
    call(|| {
        let process = process().ok_or(Errno::BADF)?;
        let queue = process.queues.get(qhandle)?;
        // SAFETY: as the caller promises.
        let list = unsafe { boundary::list(fds.cast_const(), nfds, EXS_EVTVEC_MAX) }?;
        let known = |place: &exs_pollfd_t| place.events & !(EXS_POLLIN | EXS_POLLOUT) == 0;
        if flags != 0 || !list.iter().all(known) || list.iter().all(|place| place.fd < 0) {
            return Err(Errno::INVAL);
        }
        let mut looked: Vec<_> = list.iter().map(|p| (p.fd, p.events, 0)).collect();
        let found = sys::poll_now(&mut looked)?;
        queue.reserve()?;
        let wanted = list.iter().map(|place| (place.fd, place.events)).collect();
        let poll = Poll::new(Arc::clone(&queue), ahandle, fds as usize, wanted);
        if found > 0 {
            let bits: Vec<i16> = looked.iter().map(|(_, _, bits)| *bits).collect();
            poll.found_at_once(&bits);
            return Ok(0);
        }
        let watched = list.iter().enumerate().filter(|(_, place)| place.fd >= 0);
        for (at, place) in watched {
            let wish = Wish {
                read: place.events & EXS_POLLIN != 0,
                write: place.events & EXS_POLLOUT != 0,
            };
            let watched = process.service.socket(place.fd, true).and_then(|socket| {
                poll.waits_for(Arc::clone(&socket));
                socket.watch(place.fd, at, wish, &poll)
            });
            if let Err(error) = watched {
                if poll.withdraw() {
                    queue.release();
                    return Err(error);
                }
                break;
            }
        }
        if poll.is_over() {
            // Found while others were still being watched.
            poll.forget();
        }
        Ok(0)
    })
}

/// Ends sending, after all that was posted on the socket before: the peer sees the end. The event is EXS_EVT_SHUTDOWN.
///
/// Parameters:
/// - `socket`: a descriptor of the socket
/// - `how`: EXS_SHUT_WR
/// - `qhandle`: the queue for the event
/// - `ahandle`: given back in the event
///
/// Errors: as exs_send; EINVAL for another way. The event says ENOTCONN where there is no connection.
///
/// Blocking: no.
///
/// Origin: EXS_SHUT_WR and EXS_EVT_SHUTDOWN are in a public editor's list of the interface's words; the call is our reading.
#[unsafe(no_mangle)]
pub extern "C" fn exs_shutdown(
    socket: c_int,
    how: c_int,
    qhandle: exs_qhandle_t,
    ahandle: exs_ahandle_t,
) -> c_int {
    call(|| {
        let given = Given::new(socket, qhandle, ahandle)?;
        if how != EXS_SHUT_WR {
            return Err(Errno::INVAL);
        }
        given.post(Work::Shutdown, Detail::None)
    })
}

/// Closes a descriptor, after all sends that were posted on its socket before; receives, accepts and polls that wait end with ECANCELED. The event is
/// EXS_EVT_CLOSE. The number must not be used after the call.
///
/// Parameters:
/// - `socket`: the descriptor
/// - `qhandle`: the queue for the event
/// - `ahandle`: given back in the event
///
/// Errors: as exs_send. The event says EBADF if the program has closed the descriptor by itself meanwhile.
///
/// Blocking: no.
///
/// Origin: EXS_EVT_CLOSE is in a public editor's list of the interface's words; the call is our reading.
#[unsafe(no_mangle)]
pub extern "C" fn exs_close(
    socket: c_int,
    qhandle: exs_qhandle_t,
    ahandle: exs_ahandle_t,
) -> c_int {
    call(|| Given::new(socket, qhandle, ahandle)?.post(Work::Close, Detail::None))
}
