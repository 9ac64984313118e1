//! Sends and receives.

use std::ffi::c_void;
use std::net::SocketAddr;

use libc::{sockaddr, socklen_t};
use sidecore_client::{Dti, Extent, INLINE_MAX};

use crate::boundary::{self, call};
use crate::door::Door;
use crate::handle::{Kind, Name};
use crate::status::Dusi_Status::{self, *};
use crate::status::Outcome;
use crate::table;
use crate::types::{
    DUSI_COPY, DUSI_COPY_MAX, DUSI_FIN, DUSI_MORE, DUSI_NO_CHUNK, DUSI_NO_REGION, DUSI_NOTIFY,
    DUSI_URGENT, DUSI_VECTOR_MAX, DUSI_WAIT_ALL, Dusi_Buffer, Dusi_Chunk, Dusi_Dti, Dusi_Region,
};

/// What a send is told, checked as far as no table is needed.
struct Send<'a> {
    region: Dusi_Region,
    address: usize,
    len: usize,
    /// The bytes themselves, where there is no region.
    bytes: &'a [u8],
    flags: u8,
    cookie: u64,
}

impl Send<'_> {
    /// Bytes from anywhere: inside the command, or by way of the library's own region.
    fn copied(&self, door: &mut Door, dti: Dti, peer: Option<SocketAddr>) -> Outcome {
        if self.bytes.len() <= INLINE_MAX && peer.is_none() {
            let lane = &mut door.lane;
            let posted = lane.send_inline(dti, self.bytes, self.flags, self.cookie);
            return door.posted(posted);
        }
        if !door.lane.has_room(1) {
            door.flush();
            return Err(DUSI_DOORBELL_FULL.into());
        }
        let extent = door.staging.copy(self.bytes)?;
        self.post(door, dti, extent, peer, self.flags | DUSI_COPY as u8)
    }

    fn post(
        &self,
        door: &mut Door,
        dti: Dti,
        extent: Extent,
        peer: Option<SocketAddr>,
        flags: u8,
    ) -> Outcome {
        let lane = &mut door.lane;
        let posted = match peer {
            Some(peer) => lane.send_to(dti, extent, peer, flags, self.cookie),
            None => lane.send(dti, extent, flags, self.cookie),
        };
        door.posted(posted)
    }

    #[inline]
    fn run(&self, dti: Dusi_Dti, peer: Option<SocketAddr>) -> Outcome {
        table::with_door(dti, Kind::Dti, |door, name| {
            let dti = door.dti(name)?;
            let datagram = door.is_datagram(dti);
            let urgent = u32::from(self.flags) & DUSI_URGENT != 0;
            if !datagram && (self.len == 0 || peer.is_some()) || datagram && urgent {
                return Err(DUSI_BAD_ARGUMENT.into());
            }
            if self.region == DUSI_NO_REGION {
                return self.copied(door, dti, peer);
            }
            let extent = door.extent(self.region, self.address, self.len)?;
            if u32::from(self.flags) & DUSI_COPY != 0 && extent.len > DUSI_COPY_MAX {
                return Err(DUSI_BAD_ARGUMENT.into());
            }
            self.post(door, dti, extent, peer, self.flags)
        })
    }
}

/// Takes the arguments of a send in, and runs it.
///
/// # Safety
/// Without a region, `data` is null or points to `length` bytes.
#[inline]
unsafe fn send(
    dti: Dusi_Dti,
    (region, data, length): (Dusi_Region, *const c_void, usize),
    peer: Option<SocketAddr>,
    flags: u32,
    cookie: u64,
) -> Outcome {
    if flags & !(DUSI_NOTIFY | DUSI_COPY | DUSI_MORE | DUSI_FIN | DUSI_URGENT) != 0 {
        return Err(DUSI_BAD_ARGUMENT.into());
    }
    if region == DUSI_NO_REGION {
        // SAFETY: as the caller promises.
        return unsafe { send_copied(dti, (data, length), peer, flags, cookie) };
    }
    let send = Send {
        region,
        address: data.addr(),
        len: length,
        bytes: &[],
        flags: flags as u8,
        cookie,
    };
    send.run(dti, peer)
}

/// The same without a region. Apart, so that the usual send has no room for bytes to clear.
///
/// # Safety
/// `data` is null or points to `length` bytes.
#[inline(never)]
unsafe fn send_copied(
    dti: Dusi_Dti,
    (data, length): (*const c_void, usize),
    peer: Option<SocketAddr>,
    flags: u32,
    cookie: u64,
) -> Outcome {
    let mut small = [0u8; DUSI_COPY_MAX as usize];
    // SAFETY: as the caller promises.
    let bytes = unsafe { boundary::copy_bytes(data, length, &mut small)? };
    let send = Send {
        region: DUSI_NO_REGION,
        address: 0,
        len: length,
        bytes,
        // Copied anyway: the engine wants to hear of it only with memory of a region.
        flags: (flags & !DUSI_COPY) as u8,
        cookie,
    };
    send.run(dti, peer)
}

/// Sends bytes.
///
/// From registered memory they are not copied where the driver can gather: they must stay as they are until the peer has acknowledged them. With
/// DUSI_NOTIFY, DUSI_EVENT_SENT on the TX EvQ tells when that is so, for this send and all before it on the DTI. A send is never partial. Sends may be
/// posted before the connection is there, and as many as you like.
///
/// Up to DUSI_COPY_MAX bytes can be sent from any memory with DUSI_NO_REGION in place of the region: they are copied before the call returns.
/// With that, or with DUSI_COPY, the event is DUSI_EVENT_COMPLETION (DUSI_OP_SEND), and comes at once.
///
/// Received bytes can be sent on from where they lie: give the event's chunk in place of the region, and return the chunk when the send is done.
///
/// Parameters:
/// - `dti`: the DTI.
/// - `region`: the memory that the bytes lie in, the chunk of an event, or DUSI_NO_REGION.
/// - `data`: the first byte.
/// - `length`: how many bytes; 0 only for a datagram.
/// - `flags`: any of DUSI_NOTIFY, DUSI_MORE, DUSI_FIN, DUSI_COPY, DUSI_URGENT.
/// - `cookie`: comes back with the event.
///
/// Blocking: no.
///
/// Statuses: DUSI_OK; DUSI_BAD_HANDLE; DUSI_BAD_EXTENT if the bytes do not lie in the region; DUSI_BAD_ARGUMENT; DUSI_DOORBELL_FULL; DUSI_FORKED. In the
/// event also DUSI_WRONG_STATE, DUSI_QUEUE_FULL, DUSI_MESSAGE_TOO_LARGE, DUSI_NO_RESOURCES; what was sent and not acknowledged when a connection ends is told by
/// DUSI_EVENT_CLOSED.
///
/// Paper: Dusi_Send, sections 5 and 6.4.
///
/// # Safety
/// With DUSI_NO_REGION, `data` is NULL or points to `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn Dusi_Send(
    dti: Dusi_Dti,
    region: Dusi_Region,
    data: *const c_void,
    length: usize,
    flags: u32,
    cookie: u64,
) -> Dusi_Status {
    call(|| {
        // SAFETY: as the header asks of the caller.
        unsafe { send(dti, (region, data, length), None, flags, cookie) }
    })
}

/// Sends one datagram to an address.
///
/// As Dusi_Send; it counts as sent when it left.
///
/// Parameters:
/// - `dti`: a datagram DTI.
/// - `region`: the memory that the bytes lie in, the chunk of an event, or DUSI_NO_REGION.
/// - `data`: the first byte.
/// - `length`: how many bytes.
/// - `address`: of the receiver, a struct sockaddr_in or sockaddr_in6.
/// - `address_length`: its bytes.
/// - `flags`: any of DUSI_NOTIFY, DUSI_COPY.
/// - `cookie`: comes back with the event.
///
/// Blocking: no.
///
/// Statuses: as Dusi_Send; in the event also DUSI_UNREACHABLE.
///
/// Paper: Dusi_Send, section 5; the prototype had TCP only.
///
/// # Safety
/// With DUSI_NO_REGION, `data` is NULL or points to `length` bytes. `address` is NULL or points to `address_length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn Dusi_Send_To(
    dti: Dusi_Dti,
    region: Dusi_Region,
    data: *const c_void,
    length: usize,
    address: *const sockaddr,
    address_length: socklen_t,
    flags: u32,
    cookie: u64,
) -> Dusi_Status {
    call(|| {
        // SAFETY: as the header asks of the caller.
        let peer = unsafe { boundary::address(address, address_length)? };
        if flags & (DUSI_MORE | DUSI_FIN | DUSI_URGENT) != 0 {
            return Err(DUSI_BAD_ARGUMENT.into());
        }
        // SAFETY: as the header asks of the caller.
        unsafe { send(dti, (region, data, length), Some(peer), flags, cookie) }
    })
}

/// Sends several pieces of registered memory as one: a header and a file share segments.
///
/// As one Dusi_Send: never partial, one event for all. The array may be forgotten when the call returns, the pieces not.
///
/// Parameters:
/// - `dti`: a stream DTI.
/// - `buffers`: the pieces, each in a region of its own or the same, or in a chunk; empty ones are left out.
/// - `count`: how many, 1 to DUSI_VECTOR_MAX.
/// - `flags`: any of DUSI_NOTIFY, DUSI_MORE, DUSI_FIN.
/// - `cookie`: comes back with the event.
///
/// Blocking: no.
///
/// Statuses: as Dusi_Send; DUSI_BAD_ARGUMENT also if all pieces are empty; DUSI_NOT_SUPPORTED for a datagram DTI.
///
/// Paper: "Vectored sends and receives", section 5; "a list of pointers to the HTTP response header and the requested file data", section 6.4.
///
/// # Safety
/// `buffers` is NULL or points to `count` structures.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn Dusi_Send_Vector(
    dti: Dusi_Dti,
    buffers: *const Dusi_Buffer,
    count: usize,
    flags: u32,
    cookie: u64,
) -> Dusi_Status {
    call(|| {
        // SAFETY: as the header asks of the caller.
        let buffers = unsafe { boundary::array(buffers, count, DUSI_VECTOR_MAX as usize)? };
        if flags & !(DUSI_NOTIFY | DUSI_MORE | DUSI_FIN) != 0 {
            return Err(DUSI_BAD_ARGUMENT.into());
        }
        table::with_door(dti, Kind::Dti, |door, name| {
            send_vector(door, name, buffers, flags as u8, cookie)
        })
    })
}

fn send_vector(
    door: &mut Door,
    name: Name,
    buffers: &[Dusi_Buffer],
    flags: u8,
    cookie: u64,
) -> Outcome {
    let dti = door.dti(name)?;
    if door.is_datagram(dti) {
        return Err(DUSI_NOT_SUPPORTED.into());
    }
    let mut extents = [Extent::default(); DUSI_VECTOR_MAX as usize];
    let mut pieces = 0;
    for buffer in buffers.iter().filter(|buffer| buffer.length > 0) {
        extents[pieces] = door.extent(buffer.region, buffer.data.addr(), buffer.length)?;
        pieces += 1;
    }
    let posted = match &extents[..pieces] {
        [] => return Err(DUSI_BAD_ARGUMENT.into()),
        [one] => door.lane.send(dti, *one, flags, cookie),
        _ if !door.lane.has_room(1) => Err(sidecore_client::PostError::LaneFull),
        many => {
            let list = door.staging.list(many)?;
            door.lane.send_list(dti, list, flags, cookie)
        }
    };
    door.posted(posted)
}

/// Posts a buffer for received bytes.
///
/// Several may be outstanding; they are filled in order. DUSI_EVENT_RECEIVED_INTO on the RX EvQ tells how many bytes lie there: what had come, or with
/// DUSI_WAIT_ALL the whole buffer, unless the stream ended. When the peer has ended its direction, receives complete with a length of 0 and
/// DUSI_EVENT_END. Bytes that come while no buffer is posted come as DUSI_EVENT_RECEIVED, unless the DTI was created with DUSI_POSTED_ONLY: then they wait.
///
/// The engine writes into the buffer until the event; what is in it before is undefined.
///
/// Parameters:
/// - `dti`: a stream DTI, connected or not yet: also a child before its Dusi_Accept.
/// - `region`: the memory that the buffer lies in.
/// - `data`: its first byte.
/// - `length`: its bytes, at least 1.
/// - `flags`: 0 or DUSI_WAIT_ALL.
/// - `cookie`: comes back with the event.
///
/// Blocking: no.
///
/// Statuses: DUSI_OK; DUSI_BAD_HANDLE; DUSI_BAD_EXTENT if the buffer does not lie in the region, or the region cannot be written; DUSI_BAD_ARGUMENT;
/// DUSI_DOORBELL_FULL; DUSI_FORKED. In the event also DUSI_CANCELLED, DUSI_CONNECTION_RESET, DUSI_QUEUE_FULL, DUSI_WRONG_STATE.
///
/// Paper: Dusi_Recv, sections 5 and 6.4.
#[unsafe(no_mangle)]
pub extern "C" fn Dusi_Recv(
    dti: Dusi_Dti,
    region: Dusi_Region,
    data: *mut c_void,
    length: usize,
    flags: u32,
    cookie: u64,
) -> Dusi_Status {
    call(|| {
        let buffer = Dusi_Buffer {
            region,
            data,
            length,
        };
        receive(dti, &[buffer], flags, cookie)
    })
}

/// Posts several buffers for received bytes: all, or none.
///
/// They are filled in order, and each answers with a DUSI_EVENT_RECEIVED_INTO of its own, with the same cookie.
///
/// Parameters:
/// - `dti`: a stream DTI, connected or not yet.
/// - `buffers`: the buffers.
/// - `count`: how many, 1 to DUSI_VECTOR_MAX.
/// - `flags`: 0 or DUSI_WAIT_ALL.
/// - `cookie`: comes back with the events.
///
/// Blocking: no.
///
/// Statuses: as Dusi_Recv.
///
/// Paper: "Vectored sends and receives", section 5.
///
/// # Safety
/// `buffers` is NULL or points to `count` structures.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn Dusi_Recv_Vector(
    dti: Dusi_Dti,
    buffers: *const Dusi_Buffer,
    count: usize,
    flags: u32,
    cookie: u64,
) -> Dusi_Status {
    call(|| {
        // SAFETY: as the header asks of the caller.
        let buffers = unsafe { boundary::array(buffers, count, DUSI_VECTOR_MAX as usize)? };
        receive(dti, buffers, flags, cookie)
    })
}

fn receive(dti: Dusi_Dti, buffers: &[Dusi_Buffer], flags: u32, cookie: u64) -> Outcome {
    if flags & !DUSI_WAIT_ALL != 0 {
        return Err(DUSI_BAD_ARGUMENT.into());
    }
    table::with_door(dti, Kind::Dti, |door, name| {
        let dti = door.dti(name)?;
        let mut extents = [Extent::default(); DUSI_VECTOR_MAX as usize];
        for (extent, buffer) in extents.iter_mut().zip(buffers) {
            *extent = door.buffer(buffer.region, buffer.data.addr(), buffer.length)?;
        }
        if !door.lane.has_room(buffers.len() as u32) {
            door.flush();
            return Err(DUSI_DOORBELL_FULL.into());
        }
        let lane = &mut door.lane;
        let mut each = extents.iter().take(buffers.len());
        let posted = each.try_for_each(|extent| lane.receive(dti, *extent, flags as u8, cookie));
        door.posted(posted)
    })
}

/// Gives received bytes back.
///
/// Until then the engine writes nothing over them, and counts them against the window of their connection: who keeps chunks slows down its own
/// peers. Each event holds one reference, so each is returned once. Returns are gathered and go out with the next posting, flush or wait.
///
/// Parameters:
/// - `chunk`: of a DUSI_EVENT_RECEIVED or DUSI_EVENT_DATAGRAM. DUSI_NO_CHUNK is fine, and nothing is done.
///
/// Blocking: no.
///
/// Statuses: DUSI_OK; DUSI_BAD_HANDLE; DUSI_FORKED.
///
/// Paper: not named there; received bytes that no buffer was posted for lie in the anonymous buffer pool.
#[unsafe(no_mangle)]
pub extern "C" fn Dusi_Return_Chunk(chunk: Dusi_Chunk) -> Dusi_Status {
    call(|| {
        if chunk == DUSI_NO_CHUNK {
            return Ok(());
        }
        table::with_door(chunk, Kind::Chunk, |door, name| {
            let number = name.chunk().ok_or(DUSI_BAD_HANDLE)?;
            if number == sidecore_abi::event::NO_CHUNK {
                return Err(DUSI_BAD_HANDLE.into());
            }
            door.lane.return_chunk_number(number);
            Ok(())
        })
    })
}
