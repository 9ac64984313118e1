//! DTIs: a socket's life.

use libc::{sockaddr, socklen_t};
use sidecore_client::{Dti, Opt};

use crate::boundary::{self, Out, call};
use crate::door::Door;
use crate::handle::{self, Kind};
use crate::status::Dusi_Status::{self, *};
use crate::status::Outcome;
use crate::table;
use crate::types::{
    DUSI_FAST_OPEN, DUSI_NOTIFY, DUSI_POSTED_ONLY, DUSI_SHUTDOWN_READ, DUSI_SHUTDOWN_WRITE,
    Dusi_Dti, Dusi_Dti_Type, Dusi_Evq, Dusi_Ual,
};

/// Runs `act` on a DTI that no call has closed.
fn on_dti(dti: Dusi_Dti, act: impl FnOnce(&mut Door, Dti) -> Outcome) -> Outcome {
    table::with_door(dti, Kind::Dti, |door, name| {
        let dti = door.dti(name)?;
        act(door, dti)
    })
}

/// Creates a DTI: a socket.
///
/// It can be used at once; that there was no room for it at the engine is told by a DUSI_EVENT_COMPLETION that failed. The RX EvQ is told of what comes
/// in (accepts, received bytes, the end), the TX EvQ of what goes out (connects, sends, shutdowns) and of all other completions. Both may be the
/// same queue.
///
/// A DTI is over when two things have happened, in either order: Dusi_Close (or Dusi_Abort) was called, and DUSI_EVENT_CLOSED was taken from its queue.
///
/// Parameters:
/// - `ual`: the UAL.
/// - `type`: DUSI_STREAM or DUSI_DATAGRAM.
/// - `rx_evq`: the queue for what comes in, of the same UAL.
/// - `tx_evq`: the queue for what goes out, of the same UAL.
/// - `flags`: 0, or DUSI_POSTED_ONLY for a stream.
/// - `dti`: where the handle is stored. The caller owns it, and ends it by Dusi_Close or Dusi_Abort.
///
/// Blocking: no.
///
/// Statuses: DUSI_OK; DUSI_BAD_HANDLE; DUSI_BAD_ARGUMENT; DUSI_EXHAUSTED if as many exist as were granted; DUSI_DOORBELL_FULL; DUSI_FORKED.
///
/// Paper: section 5, "When an application creates a DTI socket, it associates two EvQs".
///
/// # Safety
/// `dti` is NULL or points to room for a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn Dusi_Create_Dti(
    ual: Dusi_Ual,
    r#type: u32,
    rx_evq: Dusi_Evq,
    tx_evq: Dusi_Evq,
    flags: u32,
    dti: *mut Dusi_Dti,
) -> Dusi_Status {
    call(|| {
        // SAFETY: as the header asks of the caller.
        let mut out = unsafe { Out::new(dti)? };
        let datagram = r#type == Dusi_Dti_Type::DUSI_DATAGRAM as u32;
        let known = datagram || r#type == Dusi_Dti_Type::DUSI_STREAM as u32;
        let posted_only = flags & DUSI_POSTED_ONLY != 0;
        if !known || flags & !DUSI_POSTED_ONLY != 0 || posted_only && datagram {
            return Err(DUSI_BAD_ARGUMENT.into());
        }
        let made = table::with_ual(ual, |door| {
            let (rx, tx) = (door.queue(rx_evq)?, door.queue(tx_evq)?);
            let lane = &mut door.lane;
            let made = match (datagram, posted_only) {
                (true, _) => lane.create_datagram(rx, tx),
                (_, true) => lane.create_stream_posted(rx, tx),
                _ => lane.create_stream(rx, tx),
            };
            door.posted(made.map(|_| ()))?;
            Ok(door.enter_dti(made?, datagram, rx.index(), tx.index()))
        });
        out.set(made?);
        Ok(())
    })
}

/// Tells the index of a DTI in its UAL's table, fit to index a table of the program's own.
///
/// Indexes are below the number of DTIs that was granted, small ones first, and used again: compare the whole handle before you believe
/// that an event is for the present user of an index. Nothing is looked up: a handle that is closed has its index, too.
///
/// Parameters:
/// - `dti`: the DTI.
/// - `index`: where it is stored.
///
/// Blocking: no.
///
/// Statuses: DUSI_OK; DUSI_BAD_HANDLE; DUSI_BAD_ARGUMENT.
///
/// Paper: not named there.
///
/// # Safety
/// `index` is NULL or points to room for a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn Dusi_Get_Dti_Index(dti: Dusi_Dti, index: *mut u32) -> Dusi_Status {
    call(|| {
        // SAFETY: as the header asks of the caller.
        let mut out = unsafe { Out::new(index)? };
        out.set(handle::dti_index(dti).ok_or(DUSI_BAD_HANDLE)?);
        Ok(())
    })
}

/// Binds a DTI to a local address.
///
/// DUSI_EVENT_COMPLETION (DUSI_OP_BIND) comes to the TX EvQ, with the address.
///
/// Parameters:
/// - `dti`: the DTI.
/// - `address`: a struct sockaddr_in or sockaddr_in6; port 0 stands for any free one.
/// - `length`: its bytes.
/// - `cookie`: comes back with the event.
///
/// Blocking: no.
///
/// Statuses: DUSI_OK; DUSI_BAD_HANDLE; DUSI_BAD_ARGUMENT; DUSI_DOORBELL_FULL; DUSI_FORKED. In the event also DUSI_ADDRESS_IN_USE,
/// DUSI_ADDRESS_NOT_AVAILABLE, DUSI_NOT_PERMITTED, DUSI_WRONG_STATE.
///
/// Paper: section 5, "bind it to a TCP port address".
///
/// # Safety
/// `address` is NULL or points to `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn Dusi_Bind(
    dti: Dusi_Dti,
    address: *const sockaddr,
    length: socklen_t,
    cookie: u64,
) -> Dusi_Status {
    call(|| {
        // SAFETY: as the header asks of the caller.
        let local = unsafe { boundary::address(address, length)? };
        on_dti(dti, |door, dti| {
            let posted = door.lane.bind(dti, local, cookie);
            door.posted(posted)
        })
    })
}

/// Makes a bound stream DTI a listener.
///
/// DUSI_EVENT_COMPLETION (DUSI_OP_LISTEN) comes to the TX EvQ, with the local address. Connections that find no accept posted wait, up to the
/// backlog; DUSI_EVENT_INCOMING tells when that begins.
///
/// Parameters:
/// - `dti`: the DTI.
/// - `backlog`: connections that may wait.
/// - `cookie`: comes back with the event.
///
/// Blocking: no.
///
/// Statuses: DUSI_OK; DUSI_BAD_HANDLE; DUSI_DOORBELL_FULL; DUSI_FORKED. In the event also DUSI_WRONG_STATE, DUSI_ADDRESS_IN_USE, DUSI_NO_RESOURCES.
///
/// Paper: section 5, the "listen DTI socket".
#[unsafe(no_mangle)]
pub extern "C" fn Dusi_Listen(dti: Dusi_Dti, backlog: u32, cookie: u64) -> Dusi_Status {
    call(|| {
        on_dti(dti, |door, dti| {
            let posted = door.lane.listen(dti, backlog, cookie);
            door.posted(posted)
        })
    })
}

/// Accepts one connection of a listener into a child that was created before.
///
/// Any number of accepts may be outstanding. Receives may be posted on the child before, so that the first bytes find their buffer. DUSI_EVENT_ACCEPTED comes
/// to the RX EvQ of the listener, for the child, with the peer's address; the first receive completion of the child may come before it and can be
/// taken for it.
///
/// Parameters:
/// - `listener`: the listening DTI.
/// - `child`: a stream DTI of the same UAL that is neither bound nor connected.
/// - `cookie`: comes back with the event.
///
/// Blocking: no.
///
/// Statuses: DUSI_OK; DUSI_BAD_HANDLE; DUSI_DOORBELL_FULL; DUSI_FORKED. In the event also DUSI_WRONG_STATE, DUSI_CANCELLED.
///
/// Paper: Dusi_Accept, sections 5, 6.3 and 6.4.
#[unsafe(no_mangle)]
pub extern "C" fn Dusi_Accept(listener: Dusi_Dti, child: Dusi_Dti, cookie: u64) -> Dusi_Status {
    call(|| {
        on_dti(listener, |door, listener| {
            let child = door.dti_of(child)?;
            let posted = door.lane.accept(listener, child, cookie);
            door.posted(posted)
        })
    })
}

/// Connects a DTI.
///
/// DUSI_EVENT_CONNECTED comes to the TX EvQ, with the own address, or with the status that says why not. Sends may be posted at once. For a
/// datagram DTI it sets where sends without an address go, and whom it hears, and the event is DUSI_EVENT_COMPLETION (DUSI_OP_CONNECT); with AF_UNSPEC
/// it hears everybody again.
///
/// Parameters:
/// - `dti`: the DTI.
/// - `address`: of the peer, a struct sockaddr_in or sockaddr_in6; of a datagram DTI also a struct sockaddr of AF_UNSPEC: none any more.
/// - `length`: its bytes.
/// - `flags`: 0 or DUSI_FAST_OPEN.
/// - `cookie`: comes back with the event.
///
/// Blocking: no.
///
/// Statuses: DUSI_OK; DUSI_BAD_HANDLE; DUSI_BAD_ARGUMENT; DUSI_DOORBELL_FULL; DUSI_FORKED. In the event also DUSI_CONNECTION_REFUSED,
/// DUSI_CONNECTION_RESET, DUSI_TIMED_OUT, DUSI_UNREACHABLE, DUSI_ADDRESS_NOT_AVAILABLE, DUSI_WRONG_STATE, DUSI_CANCELLED.
///
/// Paper: section 5, "application initiated connections".
///
/// # Safety
/// `address` is NULL or points to `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn Dusi_Connect(
    dti: Dusi_Dti,
    address: *const sockaddr,
    length: socklen_t,
    flags: u32,
    cookie: u64,
) -> Dusi_Status {
    call(|| {
        // SAFETY: as the header asks of the caller.
        let peer = unsafe { boundary::peer(address, length)? };
        if flags & !DUSI_FAST_OPEN != 0 {
            return Err(DUSI_BAD_ARGUMENT.into());
        }
        on_dti(dti, |door, dti| {
            let posted = match peer {
                None => door.lane.disconnect(dti, cookie),
                Some(peer) if flags == 0 => door.lane.connect(dti, peer, cookie),
                Some(peer) => door.lane.connect_fast(dti, peer, cookie),
            };
            door.posted(posted)
        })
    })
}

/// Ends one direction of a connection, or both.
///
/// Sending ends behind all that was posted: the peer sees the end of the stream. With DUSI_NOTIFY, DUSI_EVENT_COMPLETION (DUSI_OP_SHUTDOWN) comes to the TX EvQ
/// when the peer has acknowledged it. What still comes in a direction that was ended for receiving is acknowledged and dropped.
///
/// Parameters:
/// - `dti`: the DTI.
/// - `how`: DUSI_SHUTDOWN_READ, DUSI_SHUTDOWN_WRITE, or both.
/// - `flags`: 0 or DUSI_NOTIFY.
/// - `cookie`: comes back with the event.
///
/// Blocking: no.
///
/// Statuses: DUSI_OK; DUSI_BAD_HANDLE; DUSI_BAD_ARGUMENT; DUSI_DOORBELL_FULL; DUSI_FORKED. In the event also DUSI_WRONG_STATE, DUSI_CONNECTION_RESET.
///
/// Paper: section 6.4, "posting a shutdown operation to the connection's TX descriptor queue".
#[unsafe(no_mangle)]
pub extern "C" fn Dusi_Shutdown(dti: Dusi_Dti, how: u32, flags: u32, cookie: u64) -> Dusi_Status {
    call(|| {
        let both = DUSI_SHUTDOWN_READ | DUSI_SHUTDOWN_WRITE;
        if how == 0 || how & !both != 0 || flags & !DUSI_NOTIFY != 0 {
            return Err(DUSI_BAD_ARGUMENT.into());
        }
        on_dti(dti, |door, dti| {
            let posted = door.lane.shutdown(dti, how.into(), flags as u8, cookie);
            door.posted(posted)
        })
    })
}

/// Closes a DTI in good order.
///
/// What was posted for sending still goes out, and the end of the stream behind it; nothing more is received. Received bytes that were never taken make it a
/// reset (RFC 1122, 4.2.2.13). DUSI_EVENT_CLOSED comes to the RX EvQ when the connection is over. The handle means nothing to other calls from now
/// on (but for Dusi_Abort), and stands in the events that still come. Memory of sends stays the engine's until their completions, or that event.
///
/// A DTI whose DUSI_EVENT_CLOSED came by itself (reset, timeout) is to be closed as well: until then its place stays taken.
///
/// Parameters:
/// - `dti`: the DTI.
/// - `cookie`: comes back with the event, if it was not on its way already.
///
/// Blocking: no.
///
/// Statuses: DUSI_OK; DUSI_BAD_HANDLE; DUSI_DOORBELL_FULL; DUSI_FORKED.
///
/// Paper: sections 6.2 and 6.4.
#[unsafe(no_mangle)]
pub extern "C" fn Dusi_Close(dti: Dusi_Dti, cookie: u64) -> Dusi_Status {
    call(|| {
        on_dti(dti, |door, dti| {
            let posted = door.lane.close(dti, cookie);
            door.posted(posted)?;
            door.left(dti);
            Ok(())
        })
    })
}

/// Ends a DTI at once: the connection is reset, and what waits to be sent is dropped.
///
/// It may follow Dusi_Close, to end the lingering. Otherwise as Dusi_Close.
///
/// Parameters:
/// - `dti`: the DTI.
/// - `cookie`: comes back with the event.
///
/// Blocking: no.
///
/// Statuses: DUSI_OK; DUSI_BAD_HANDLE; DUSI_DOORBELL_FULL; DUSI_FORKED.
///
/// Paper: not named there.
#[unsafe(no_mangle)]
pub extern "C" fn Dusi_Abort(dti: Dusi_Dti, cookie: u64) -> Dusi_Status {
    call(|| {
        table::with_door(dti, Kind::Dti, |door, name| {
            let dti = door.dti_lingering(name)?;
            let posted = door.lane.abort(dti, cookie);
            door.posted(posted)?;
            door.left(dti);
            Ok(())
        })
    })
}

/// Cancels receives, accepts or a connect.
///
/// Each that was posted on the DTI with this cookie, and is not done, answers with DUSI_CANCELLED.
///
/// Parameters:
/// - `dti`: the DTI; for accepts the listener.
/// - `which`: the cookie of what is to be cancelled.
/// - `cookie`: comes back with the event if the cancelling itself fails.
///
/// Blocking: no.
///
/// Statuses: DUSI_OK; DUSI_BAD_HANDLE; DUSI_DOORBELL_FULL; DUSI_FORKED.
///
/// Paper: not named there.
#[unsafe(no_mangle)]
pub extern "C" fn Dusi_Cancel(dti: Dusi_Dti, which: u64, cookie: u64) -> Dusi_Status {
    call(|| {
        on_dti(dti, |door, dti| {
            let posted = door.lane.cancel(dti, which, cookie);
            door.posted(posted)
        })
    })
}

/// An option that has a plain value or an address.
fn option(number: u32) -> Outcome<Opt> {
    let option = Opt::from_raw(number.into()).filter(|option| *option != Opt::Info);
    option.ok_or(DUSI_BAD_ARGUMENT.into())
}

/// Sets an option of a DTI.
///
/// Options of a listener are those of its connections to come.
///
/// Parameters:
/// - `dti`: the DTI.
/// - `option`: one of Dusi_Option.
/// - `value`: see there.
/// - `flags`: 0, or DUSI_NOTIFY for a DUSI_EVENT_COMPLETION (DUSI_OP_SET_OPTION) on the TX EvQ, which else comes only if it fails.
/// - `cookie`: comes back with the event.
///
/// Blocking: no.
///
/// Statuses: DUSI_OK; DUSI_BAD_HANDLE; DUSI_BAD_ARGUMENT; DUSI_DOORBELL_FULL; DUSI_FORKED. In the event also DUSI_INVALID, DUSI_WRONG_STATE,
/// DUSI_NOT_SUPPORTED.
///
/// Paper: missing in the prototype ("most notably TCP_CORK"), footnote of section 6.4.
#[unsafe(no_mangle)]
pub extern "C" fn Dusi_Set_Option(
    dti: Dusi_Dti,
    option: u32,
    value: u64,
    flags: u32,
    cookie: u64,
) -> Dusi_Status {
    call(|| {
        let option = self::option(option)?;
        let read_only = matches!(
            option,
            Opt::LocalAddress | Opt::PeerAddress | Opt::UrgentMark | Opt::PathMtu
        );
        if read_only || flags & !DUSI_NOTIFY != 0 {
            return Err(DUSI_BAD_ARGUMENT.into());
        }
        on_dti(dti, |door, dti| {
            let posted = door
                .lane
                .set_option(dti, option, value, flags as u8, cookie);
            door.posted(posted)
        })
    })
}

/// Asks for an option of a DTI.
///
/// DUSI_EVENT_COMPLETION (DUSI_OP_GET_OPTION) comes to the TX EvQ, with what is in force in `value`, or with the address.
///
/// Parameters:
/// - `dti`: the DTI.
/// - `option`: one of Dusi_Option.
/// - `cookie`: comes back with the event.
///
/// Blocking: no.
///
/// Statuses: DUSI_OK; DUSI_BAD_HANDLE; DUSI_BAD_ARGUMENT; DUSI_DOORBELL_FULL; DUSI_FORKED. In the event also DUSI_WRONG_STATE, DUSI_NOT_SUPPORTED.
///
/// Paper: missing in the prototype, footnote of section 6.4.
#[unsafe(no_mangle)]
pub extern "C" fn Dusi_Get_Option(dti: Dusi_Dti, option: u32, cookie: u64) -> Dusi_Status {
    call(|| {
        let option = self::option(option)?;
        on_dti(dti, |door, dti| {
            let posted = door.lane.get_option(dti, option, cookie);
            door.posted(posted)
        })
    })
}
