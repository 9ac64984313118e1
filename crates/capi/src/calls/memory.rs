//! Memory: what sends refer to and posted receives fill.

use std::ffi::{c_char, c_int, c_void};
use std::os::fd::BorrowedFd;

use sidecore_client::{Region, Ual};

use crate::boundary::{self, Out, call};
use crate::handle::Kind;
use crate::status::Dusi_Status::{self, *};
use crate::status::Outcome;
use crate::table;
use crate::types::{DUSI_HUGE_PAGES, Dusi_Dti, Dusi_Evq, Dusi_Region, Dusi_Ual};

/// Where a region's handle and its place go.
struct Answer {
    region: Out<Dusi_Region>,
    address: Out<*mut c_void>,
}

impl Answer {
    /// # Safety
    /// Each is null or points to room for what its type says.
    unsafe fn new(region: *mut Dusi_Region, address: *mut *mut c_void) -> Outcome<Self> {
        // SAFETY: as the caller promises.
        let (region, address) = unsafe { (Out::new(region)?, Out::new(address)?) };
        Ok(Self { region, address })
    }

    /// Enters a region into its UAL's table, and tells.
    fn enter(mut self, ual: Dusi_Ual, region: Region) -> Outcome {
        let address = region.memory().as_ptr().cast_mut().cast();
        let handle = table::with_ual(ual, |door| Ok(door.enter_region(region)))?;
        self.region.set(handle);
        self.address.set(address);
        Ok(())
    }
}

/// The UAL itself: what waits for the agent must not hold the doorbell's lock.
fn ual_of(ual: Dusi_Ual) -> Outcome<Ual> {
    table::with_ual(ual, |door| Ok(door.ual.clone()))
}

fn descriptor<'a>(memfd: c_int) -> Outcome<BorrowedFd<'a>> {
    if memfd < 0 {
        return Err(DUSI_BAD_ARGUMENT.into());
    }
    // SAFETY: not −1. It is used during the call only, and one that is not open is told by the first system call on it.
    Ok(unsafe { BorrowedFd::borrow_raw(memfd) })
}

/// Makes memory, and registers it.
///
/// It is zeroed, and shared with the engine, which reads it for sends and writes it for receives.
///
/// Parameters:
/// - `ual`: the UAL.
/// - `length`: bytes, at least 1; rounded up to whole pages.
/// - `flags`: 0 or DUSI_HUGE_PAGES.
/// - `region`: where the handle is stored. The caller owns it, and ends it by Dusi_Deregister_Memory.
/// - `address`: where it is stored where the memory lies in this process; valid until it is deregistered, or the UAL is closed.
///
/// Blocking: until the engine's agent has answered.
///
/// Statuses: DUSI_OK; DUSI_BAD_HANDLE; DUSI_BAD_ARGUMENT; DUSI_NO_RESOURCES by the engine's policy; DUSI_DISCONNECTED; DUSI_SYSTEM (errno says why; with
/// DUSI_HUGE_PAGES, ENOMEM if too few are free); DUSI_FORKED.
///
/// Paper: memory registration, section 5.
///
/// # Safety
/// `region` and `address` are NULL or point to room for what their types say.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn Dusi_Allocate_Memory(
    ual: Dusi_Ual,
    length: usize,
    flags: u32,
    region: *mut Dusi_Region,
    address: *mut *mut c_void,
) -> Dusi_Status {
    call(|| {
        // SAFETY: as the header asks of the caller.
        let answer = unsafe { Answer::new(region, address)? };
        if length == 0 || length > isize::MAX as usize || flags & !DUSI_HUGE_PAGES != 0 {
            return Err(DUSI_BAD_ARGUMENT.into());
        }
        let huge = flags & DUSI_HUGE_PAGES != 0;
        let made = ual_of(ual)?.allocate_region(length as u64, huge)?;
        answer.enter(ual, made)
    })
}

/// Registers memory that the caller made.
///
/// The engine's process must be able to map it, and nobody may be able to cut it short: so it must be a memfd (memfd_create(2) with
/// MFD_ALLOW_SEALING) with the seals F_SEAL_SHRINK and F_SEAL_GROW. It is mapped here a second time, writable if it may be; `data` of
/// sends and receives are addresses in that mapping. The descriptor stays the caller's, and may be closed.
///
/// Parameters:
/// - `ual`: the UAL.
/// - `memfd`: the memory's descriptor.
/// - `region`: where the handle is stored. The caller owns it, and ends it by Dusi_Deregister_Memory.
/// - `address`: where it is stored where the memory lies in this process.
/// - `length`: where its bytes are stored; may be NULL.
///
/// Blocking: until the engine's agent has answered.
///
/// Statuses: as Dusi_Allocate_Memory; DUSI_BAD_ARGUMENT also if it is no memfd that is sealed so.
///
/// Paper: memory registration, section 5.
///
/// # Safety
/// `region`, `address` and `length` are NULL or point to room for what their types say.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn Dusi_Register_Memory(
    ual: Dusi_Ual,
    memfd: c_int,
    region: *mut Dusi_Region,
    address: *mut *mut c_void,
    length: *mut usize,
) -> Dusi_Status {
    call(|| {
        // SAFETY: as the header asks of the caller.
        let (answer, mut length) =
            unsafe { (Answer::new(region, address)?, Out::optional(length)?) };
        let made = ual_of(ual)?.register(descriptor(memfd)?)?;
        let len = made.len() as usize;
        answer.enter(ual, made)?;
        if let Some(length) = &mut length {
            length.set(len);
        }
        Ok(())
    })
}

/// Registers memory without waiting until the engine has it.
///
/// As Dusi_Register_Memory, but DUSI_EVENT_REGISTERED on the queue tells, with the cookie, when sends and receives may refer to the memory. Its bytes may
/// be read and written at once.
///
/// Parameters:
/// - `ual`: the UAL.
/// - `memfd`: the memory's descriptor.
/// - `evq`: where the event is to come, of the same UAL.
/// - `cookie`: comes back with the event.
/// - `region`: where the handle is stored.
/// - `address`: where it is stored where the memory lies in this process.
///
/// Blocking: for the answer of the engine's agent, which is another thread than the one that moves data.
///
/// Statuses: as Dusi_Register_Memory.
///
/// Paper: "a new, asynchronous version of the DUSI memory registration operation", wished for in section 6.4.
///
/// # Safety
/// `region` and `address` are NULL or point to room for what their types say.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn Dusi_Register_Memory_Async(
    ual: Dusi_Ual,
    memfd: c_int,
    evq: Dusi_Evq,
    cookie: u64,
    region: *mut Dusi_Region,
    address: *mut *mut c_void,
) -> Dusi_Status {
    call(|| {
        // SAFETY: as the header asks of the caller.
        let answer = unsafe { Answer::new(region, address)? };
        let memfd = descriptor(memfd)?;
        let (shared, id) = table::with_ual(ual, |door| {
            let id = door.queue(evq)?;
            door.use_queue(id.index());
            Ok((door.ual.clone(), id))
        })?;
        match shared.register_async(memfd, id, cookie) {
            Ok(made) => answer.enter(ual, made),
            Err(error) => {
                table::with_ual(ual, |door| {
                    door.unuse_queue(id.index());
                    Ok(())
                })?;
                Err(error.into())
            }
        }
    })
}

/// Copies a file into memory, and registers that.
///
/// A file itself cannot be registered: anybody who may write it could cut it short while the engine reads. The copy does not follow later changes
/// of the file.
///
/// Parameters:
/// - `ual`: the UAL.
/// - `path`: of the file.
/// - `region`: where the handle is stored. The caller owns it, and ends it by Dusi_Deregister_Memory.
/// - `address`: where it is stored where the copy lies in this process.
/// - `length`: where the file's length in bytes is stored.
///
/// Blocking: for reading the file, and until the engine's agent has answered.
///
/// Statuses: as Dusi_Allocate_Memory; DUSI_SYSTEM if the file cannot be read (errno says why).
///
/// Paper: section 6.4, "the userver mmaps requested files and registers the mmap'd memory regions".
///
/// # Safety
/// `path` is NULL or points to a string; `region`, `address` and `length` are NULL or point to room for what their types say.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn Dusi_Register_File(
    ual: Dusi_Ual,
    path: *const c_char,
    region: *mut Dusi_Region,
    address: *mut *mut c_void,
    length: *mut usize,
) -> Dusi_Status {
    call(|| {
        // SAFETY: as the header asks of the caller.
        let (answer, mut length, path) = unsafe {
            let path = boundary::path(path).ok_or(DUSI_BAD_ARGUMENT)?;
            (Answer::new(region, address)?, Out::new(length)?, path)
        };
        let (made, len) = ual_of(ual)?.register_file(path)?;
        answer.enter(ual, made)?;
        length.set(len as usize);
        Ok(())
    })
}

/// Gives memory back.
///
/// The handle means nothing from now on, and the mapping that the library made is gone: the address must not be used any more. The engine keeps
/// its own as long as posted sends and receives refer to it; DUSI_EVENT_COMPLETION (DUSI_OP_DEREGISTER) tells when it has let go.
///
/// Parameters:
/// - `region`: the memory.
/// - `evq`: where the event is to come, of the same UAL.
/// - `cookie`: comes back with the event.
///
/// Blocking: no.
///
/// Statuses: DUSI_OK; DUSI_BAD_HANDLE; DUSI_DOORBELL_FULL; DUSI_FORKED.
///
/// Paper: "until it is later unregistered by the application", section 6.4.
#[unsafe(no_mangle)]
pub extern "C" fn Dusi_Deregister_Memory(
    region: Dusi_Region,
    evq: Dusi_Evq,
    cookie: u64,
) -> Dusi_Status {
    call(|| {
        table::with_door(region, Kind::Region, |door, name| {
            let made = door.named_region(name)?;
            let id = door.queue(evq)?;
            let posted = door.lane.deregister(made.id(), id, cookie);
            door.posted(posted)?;
            door.use_queue(id.index());
            door.leave_region(name);
            Ok(())
        })
    })
}

/// Asks what the engine knows of a connection: Linux's struct tcp_info.
///
/// The engine writes as much of it as fits into registered memory; DUSI_EVENT_COMPLETION (DUSI_OP_GET_OPTION) on the TX EvQ tells how many bytes, in
/// `value`.
///
/// Parameters:
/// - `dti`: a stream DTI.
/// - `region`: the memory that it is to be written to.
/// - `data`: its first byte there.
/// - `length`: the room there; sizeof (struct tcp_info) of the caller's headers.
/// - `cookie`: comes back with the event.
///
/// Blocking: no.
///
/// Statuses: as Dusi_Recv. In the event also DUSI_WRONG_STATE.
///
/// Paper: missing in the prototype ("getsockopt"), footnote of section 6.4.
#[unsafe(no_mangle)]
pub extern "C" fn Dusi_Get_Info(
    dti: Dusi_Dti,
    region: Dusi_Region,
    data: *mut c_void,
    length: usize,
    cookie: u64,
) -> Dusi_Status {
    call(|| {
        table::with_door(dti, Kind::Dti, |door, name| {
            let dti = door.dti(name)?;
            let to = door.buffer(region, data.addr(), length)?;
            let posted = door.lane.get_info(dti, to, cookie);
            door.posted(posted)
        })
    })
}
