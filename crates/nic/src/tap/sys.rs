//! The driver's `unsafe` code: its pages, the gathering write, and its io_uring.

use core::mem::{ManuallyDrop, MaybeUninit};
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU16, AtomicU64, Ordering};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use io_uring::{IoUring, cqueue, opcode, squeue, types};

use super::memory::{RxMemory, SLOTS};
use super::readwrite::Head;
use crate::TxFrame;
use sidecore_shm::MemRef;

/// The most pieces of payload in one write.
pub(super) const FRAGMENTS_MAX: usize = 64;

/// Anonymous zeroed memory, on huge pages where the kernel has them, and present: no page faults later.
pub(super) struct Pages {
    start: NonNull<u8>,
    len: usize,
    mapping: (*mut libc::c_void, usize),
}

// SAFETY: the mapping belongs to this value alone, like a `Box<[u8]>`.
unsafe impl Send for Pages {}

/// What a huge page has, and the alignment that lets there be one.
const HUGE_PAGE: usize = 2 << 20;

impl Pages {
    pub(super) fn new(len: usize) -> io::Result<Self> {
        let huge = len >= HUGE_PAGE;
        let mapped = if huge { len + HUGE_PAGE } else { len };
        // SAFETY: a new private mapping at a place that the kernel chooses touches nothing that exists.
        let address = unsafe {
            libc::mmap(
                core::ptr::null_mut(),
                mapped,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        if address == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let skip = if huge {
            address.align_offset(HUGE_PAGE)
        } else {
            0
        };
        let start = address.wrapping_byte_add(skip);
        // SAFETY: advice about our own mapping, inside it; it does not change what the memory holds. A kernel that
        // refuses it gives the pages when they are touched.
        unsafe {
            if huge {
                libc::madvise(start, len, libc::MADV_HUGEPAGE);
            }
            libc::madvise(start, len, libc::MADV_POPULATE_WRITE);
        }
        Ok(Self {
            start: NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?,
            len,
            mapping: (address, mapped),
        })
    }

    #[inline]
    pub(super) fn as_slice(&self) -> &[u8] {
        // SAFETY: `len` initialised (zeroed) bytes from `start` are ours for as long as `self` lives; writers need
        // `&mut self`.
        unsafe { core::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }

    #[inline]
    pub(super) fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: as in `as_slice`, and `&mut self` excludes any other reference.
        unsafe { core::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours and no reference into it outlives `self`.
        unsafe { libc::munmap(self.mapping.0, self.mapping.1) };
    }
}

/// Writes one frame: `head` (the virtio-net header and the frame's own headers), then the payload's pieces. At most
/// [`FRAGMENTS_MAX`] pieces; more are an error. Gives the number of bytes written.
pub(super) fn write_frame(
    fd: BorrowedFd<'_>,
    head: &[u8],
    payload: &[MemRef<'_>],
) -> io::Result<usize> {
    let mut pieces = [const { MaybeUninit::<libc::iovec>::uninit() }; FRAGMENTS_MAX + 1];
    if payload.len() > FRAGMENTS_MAX {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let all = core::iter::once((head.as_ptr(), head.len()))
        .chain(payload.iter().map(|piece| (piece.as_ptr(), piece.len())));
    for (slot, (start, len)) in pieces.iter_mut().zip(all) {
        slot.write(libc::iovec {
            iov_base: start.cast_mut().cast(),
            iov_len: len,
        });
    }
    // SAFETY: the first `1 + payload.len()` entries were written above. Each names memory that its borrow keeps
    // mapped for the call; the kernel only reads it, and copes with its changing meanwhile.
    let written = unsafe {
        libc::writev(
            fd.as_raw_fd(),
            pieces.as_ptr().cast(),
            (1 + payload.len()) as libc::c_int,
        )
    };
    usize::try_from(written).map_err(|_| io::Error::last_os_error())
}

/// How many frames the kernel has put, or is just putting, into the device's queue: a number in memory.
///
/// A filter program on the device (`TUNSETFILTEREBPF`) adds 1 for each frame and lets it pass. It runs just before the
/// frame is queued, so that the frame may be missing for some instants more; and when the queue is full, it is dropped
/// although it was counted.
pub(super) struct Arrivals {
    page: NonNull<libc::c_void>,
}

// SAFETY: the mapping belongs to this value and is only read, atomically.
unsafe impl Send for Arrivals {}

const PAGE: usize = 4096;

/// `union bpf_attr` for `BPF_MAP_CREATE`, as far as it is used.
#[repr(C)]
struct MapCreate {
    map_type: u32,
    key_size: u32,
    value_size: u32,
    max_entries: u32,
    map_flags: u32,
}

/// `union bpf_attr` for `BPF_PROG_LOAD`, as far as it is used.
#[repr(C)]
struct ProgramLoad {
    prog_type: u32,
    insn_cnt: u32,
    insns: u64,
    license: u64,
}

impl Arrivals {
    /// Sets the filter of the device whose queue `tap` is. Fails without `CAP_BPF`, as in most user namespaces.
    pub(super) fn attach(tap: BorrowedFd<'_>) -> io::Result<Self> {
        const MAP_CREATE: libc::c_int = 0;
        const PROGRAM_LOAD: libc::c_int = 5;
        const MAP_TYPE_ARRAY: u32 = 2;
        const MAP_MAPPABLE: u32 = 1 << 10;
        const PROGRAM_SOCKET_FILTER: u32 = 1;
        const TUNSETFILTEREBPF: libc::Ioctl = 0x8004_54e1;
        let map = bpf(
            MAP_CREATE,
            &MapCreate {
                map_type: MAP_TYPE_ARRAY,
                key_size: 4,
                value_size: 8,
                max_entries: 1,
                map_flags: MAP_MAPPABLE,
            },
        )?;
        let instructions = count_and_pass(map.as_raw_fd());
        let program = bpf(
            PROGRAM_LOAD,
            &ProgramLoad {
                prog_type: PROGRAM_SOCKET_FILTER,
                insn_cnt: instructions.len() as u32,
                insns: instructions.as_ptr() as u64,
                license: c"Dual MIT/GPL".as_ptr() as u64,
            },
        )?;
        // SAFETY: a new read-only mapping at a place that the kernel chooses; the map has one page.
        let page = unsafe {
            libc::mmap(
                core::ptr::null_mut(),
                PAGE,
                libc::PROT_READ,
                libc::MAP_SHARED,
                map.as_raw_fd(),
                0,
            )
        };
        if page == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let this = Self {
            page: NonNull::new(page).ok_or(io::ErrorKind::OutOfMemory)?,
        };
        let descriptor = program.as_raw_fd();
        // SAFETY: the request takes a pointer to a descriptor, which lives over the call.
        let result =
            unsafe { libc::ioctl(tap.as_raw_fd(), TUNSETFILTEREBPF, &raw const descriptor) };
        if result < 0 {
            return Err(io::Error::last_os_error());
        }
        // The device keeps the program, and the program the map.
        Ok(this)
    }

    /// Frames so far.
    #[inline]
    pub(super) fn count(&self) -> u64 {
        // SAFETY: the map's value is the first eight bytes of its page, which is mapped as long as `self` lives, and
        // only changed atomically. A plain load is all that this reads it by: the page is read-only.
        unsafe { AtomicU64::from_ptr(self.page.as_ptr().cast()) }.load(Ordering::Relaxed)
    }
}

impl Drop for Arrivals {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours; the reference made in `count` does not outlive that call.
        unsafe { libc::munmap(self.page.as_ptr(), PAGE) };
    }
}

/// Adds 1 to the map's value and passes the whole frame, as a program of eBPF (RFC 9669).
fn count_and_pass(map: RawFd) -> [u64; 7] {
    let instruction = |opcode: u64, dst: u64, src: u64, imm: u32| {
        opcode | dst << 8 | src << 12 | u64::from(imm) << 32
    };
    [
        instruction(0xbf, 6, 1, 0),          // r6 = r1: the frame
        instruction(0x18, 1, 2, map as u32), // r1 = address of the map's value 0 (src 2: by descriptor) …
        instruction(0x00, 0, 0, 0),          // … offset 0
        instruction(0xb7, 2, 0, 1),          // r2 = 1
        instruction(0xdb, 1, 2, 0),          // lock *(u64 *)r1 += r2
        instruction(0x61, 0, 6, 0),          // r0 = *(u32 *)r6: its length, of which all passes
        instruction(0x95, 0, 0, 0),          // return r0
    ]
}

/// A bpf call that gives a descriptor.
fn bpf<T>(command: libc::c_int, attributes: &T) -> io::Result<OwnedFd> {
    // SAFETY: the attributes are a prefix of `union bpf_attr` with its size; what they point to lives over the call.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            command,
            &raw const *attributes,
            size_of::<T>(),
        )
    };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is new and nobody else's.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as RawFd) })
}

/// The group of the receive buffers.
const GROUP: u16 = 0;
/// Frames that may be submitted and not yet written.
pub(super) const TX_SLOTS: usize = 64;
/// Bytes from one frame's head to the next one's: an odd number of cache lines, see [`RxMemory`].
const HEAD_STRIDE: usize = super::readwrite::SCRATCH_LEN.next_multiple_of(128) + 64;
const ENTER_GETEVENTS: u32 = 1;
const READ: u64 = 1 << 32;

/// Something that the kernel has done.
pub(super) enum Done {
    /// It put `len` bytes of a frame, with the virtio-net header, into a receive buffer, which is ours now. Without
    /// `armed`, this was the armed read's last.
    Read { slot: u32, len: usize, armed: bool },
    /// The armed read is over, without a frame.
    Disarmed { errno: i32 },
    /// It wrote the frame in a transmit slot (`errno` 0), or refused to.
    Written { slot: usize, errno: i32 },
}

/// An io_uring for one TAP device: an armed multishot read into the receive buffers, and writes.
///
/// The kernel touches our memory during [`enter`](Self::enter) only: with `DEFER_TASKRUN` it does the reads' work in
/// that call of this thread, and writes are tried at once in it; a device that is never full finishes them there too.
/// What could not be finished is counted in `writes_in_flight`, and its memory stays as it is until it is.
pub(super) struct Ring {
    ring: ManuallyDrop<IoUring>,
    /// What the kernel may refer to: leaked if the ring cannot be emptied.
    memory: ManuallyDrop<RingMemory>,
    fd: RawFd,
    provided_tail: u16,
    enabled: bool,
    /// Operations pushed and not yet handed over.
    queued: u32,
}

struct RingMemory {
    rx: RxMemory,
    /// The ring of receive buffers that the kernel may fill.
    provided: Pages,
    heads: Pages,
    pieces: Box<[[libc::iovec; FRAGMENTS_MAX + 1]]>,
}

// SAFETY: what the raw pointers of `pieces` name is looked at by the kernel only; all else belongs to this value.
unsafe impl Send for Ring {}

impl Ring {
    /// Makes a ring for `fd`, which must be in blocking mode and stay open for as long as the ring lives. It belongs to
    /// the thread that calls [`enter`](Self::enter) first.
    pub(super) fn new(fd: BorrowedFd<'_>) -> io::Result<Self> {
        let ring: IoUring = IoUring::builder()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_taskrun_flag()
            .setup_submit_all()
            .setup_r_disabled()
            .setup_cqsize(1024)
            .build(2 * TX_SLOTS as u32)?;
        let none = libc::iovec {
            iov_base: core::ptr::null_mut(),
            iov_len: 0,
        };
        let memory = RingMemory {
            rx: RxMemory::new()?,
            provided: Pages::new(SLOTS * size_of::<types::BufRingEntry>())?,
            heads: Pages::new(TX_SLOTS * HEAD_STRIDE)?,
            pieces: vec![[none; FRAGMENTS_MAX + 1]; TX_SLOTS].into_boxed_slice(),
        };
        // SAFETY: the entries are in page-aligned memory of the right size, zeroed, and outlive the ring (see `drop`).
        unsafe {
            ring.submitter().register_buf_ring_with_flags(
                memory.provided.start.as_ptr() as u64,
                SLOTS as u16,
                GROUP,
                0,
            )?;
        }
        let mut this = Self {
            ring: ManuallyDrop::new(ring),
            memory: ManuallyDrop::new(memory),
            fd: fd.as_raw_fd(),
            provided_tail: 0,
            enabled: false,
            queued: 0,
        };
        for slot in 0..SLOTS as u32 {
            this.provide(slot);
        }
        this.publish_provided();
        Ok(this)
    }

    pub(super) fn rx(&self) -> &RxMemory {
        &self.memory.rx
    }

    pub(super) fn rx_mut(&mut self) -> &mut RxMemory {
        &mut self.memory.rx
    }

    /// Gives a receive buffer that nobody holds to the kernel, as soon as it is published.
    #[inline]
    pub(super) fn provide(&mut self, slot: u32) {
        let buffer = self.memory.rx.buffer_mut(slot);
        let (address, len) = (buffer.as_mut_ptr() as u64, buffer.len() as u32);
        let index = usize::from(self.provided_tail) % SLOTS;
        // SAFETY: there are `SLOTS` entries, the kernel reads none beyond the published tail, and no field written
        // here overlaps the tail (which is the padding of entry 0).
        unsafe {
            let entry = self.memory.provided.start.cast::<types::BufRingEntry>();
            let entry = entry.add(index).as_mut();
            entry.set_addr(address);
            entry.set_len(len);
            entry.set_bid(slot as u16);
        }
        self.provided_tail = self.provided_tail.wrapping_add(1);
    }

    /// Publishes the receive buffers provided since the last time.
    #[inline]
    pub(super) fn publish_provided(&mut self) {
        let entries = self.memory.provided.start.cast::<types::BufRingEntry>();
        // SAFETY: the tail lies in entry 0, two bytes aligned to two, which only we write, as an atomic.
        let tail =
            unsafe { AtomicU16::from_ptr(types::BufRingEntry::tail(entries.as_ptr()).cast_mut()) };
        tail.store(self.provided_tail, Ordering::Release);
    }

    /// Queues the multishot read.
    pub(super) fn arm(&mut self) {
        let read = opcode::ReadMulti::new(types::Fd(self.fd), 0, GROUP)
            .offset(u64::MAX)
            .build()
            .user_data(READ);
        self.push(&read);
    }

    /// Queues the write of a frame from transmit slot `slot`, which no write in flight uses; false if its parts do not
    /// add up.
    #[inline]
    pub(super) fn write(&mut self, slot: usize, frame: &TxFrame<'_>) -> bool {
        let start = slot * HEAD_STRIDE;
        let RingMemory { heads, pieces, .. } = &mut *self.memory;
        let (Some(scratch), Some(pieces)) = (
            heads.as_mut_slice().get_mut(start..start + HEAD_STRIDE),
            pieces.get_mut(slot),
        ) else {
            return false;
        };
        let fd = types::Fd(self.fd);
        let write = match super::readwrite::assemble(scratch, frame) {
            None => return false,
            Some(Head::Whole(bytes)) => {
                opcode::Write::new(fd, bytes.as_ptr(), bytes.len() as u32).build()
            }
            Some(Head::Gather(head)) => {
                let all = core::iter::once((head.as_ptr(), head.len()))
                    .chain(frame.payload.iter().map(|p| (p.as_ptr(), p.len())));
                for (place, (address, len)) in pieces.iter_mut().zip(all) {
                    place.iov_base = address.cast_mut().cast();
                    place.iov_len = len;
                }
                opcode::Writev::new(fd, pieces.as_ptr(), 1 + frame.payload.len() as u32).build()
            }
        };
        self.push(&write.user_data(slot as u64));
        true
    }

    fn push(&mut self, entry: &squeue::Entry) {
        // SAFETY: reads go to the provided buffers, writes come from `memory`, which outlives the ring, and from
        // payload, which the caller of `submit` keeps mapped until it is written.
        if unsafe { self.ring.submission().push(entry) }.is_ok() {
            self.queued += 1;
        }
    }

    /// Whether the kernel has something to do or to say: one look at memory.
    #[inline]
    pub(super) fn has_news(&mut self) -> bool {
        self.wants_to_run() || !self.ring.completion().is_empty()
    }

    /// Whether the kernel waits for [`enter`](Self::enter) to read frames.
    #[inline]
    pub(super) fn wants_to_run(&mut self) -> bool {
        self.ring.submission().taskrun()
    }

    /// Hands over what is queued and lets the kernel do what it has to do. Does not wait.
    pub(super) fn enter(&mut self) -> io::Result<()> {
        if !self.enabled {
            self.ring.submitter().register_enable_rings()?;
            self.enabled = true;
        }
        // SAFETY: no argument is passed; the queued entries are valid (see `push`).
        let taken = unsafe {
            self.ring
                .submitter()
                .enter::<libc::sigset_t>(self.queued, 0, ENTER_GETEVENTS, None)?
        };
        self.queued = self.queued.saturating_sub(taken as u32);
        Ok(())
    }

    /// Takes the kernel's next news.
    #[inline]
    pub(super) fn next(&mut self) -> Option<Done> {
        let entry = self.ring.completion().next()?;
        let result = entry.result();
        if entry.user_data() != READ {
            return Some(Done::Written {
                slot: entry.user_data() as usize,
                errno: if result < 0 { -result } else { 0 },
            });
        }
        Some(match cqueue::buffer_select(entry.flags()) {
            Some(slot) if result >= 0 => Done::Read {
                slot: slot.into(),
                len: result as usize,
                armed: cqueue::more(entry.flags()),
            },
            _ => Done::Disarmed { errno: -result },
        })
    }
}

impl Ring {
    /// Ends all operations; false if that cannot be made sure. Afterwards no operation refers to the device, so that it
    /// vanishes with its last descriptor and not with the ring, which ends in the background.
    fn empty(&mut self) -> bool {
        if !self.enabled {
            return true;
        }
        let timeout = types::Timespec::new().sec(1);
        let all = types::CancelBuilder::any();
        let ended = match self
            .ring
            .submitter()
            .register_sync_cancel(Some(timeout), all)
        {
            Ok(()) => true,
            Err(error) => error.raw_os_error() == Some(libc::ENOENT),
        };
        // What was cancelled is let go of when it completes, in a call of ours.
        ended && self.enter().is_ok()
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        let empty = self.empty();
        // SAFETY: neither is used again. The memory goes after the ring, and only if the kernel has nothing left that
        // refers to it; otherwise it is leaked.
        unsafe {
            ManuallyDrop::drop(&mut self.ring);
            if empty {
                ManuallyDrop::drop(&mut self.memory);
            }
        }
    }
}
