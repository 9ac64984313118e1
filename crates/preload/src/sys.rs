//! The system behind safe functions. Nothing here goes through libc's names, which are this library's own.

use std::io::{IoSlice, IoSliceMut};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::ops::{Deref, DerefMut};
use std::os::fd::{BorrowedFd, RawFd};
use std::time::Duration;

use libc::{c_int, c_long, c_void, iovec, pollfd, sockaddr, socklen_t};
use rustix::io::Errno;
use sidecore_sys::interruptible;

use crate::memory;

/// This thread's errno.
pub(crate) fn errno() -> c_int {
    // SAFETY: the pointer is this thread's, and good as long as the thread.
    unsafe { *libc::__errno_location() }
}

/// Sets this thread's errno.
pub(crate) fn set_errno(value: c_int) {
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = value }
}

/// A descriptor number as a borrow, for the length of a call. A number that is none gives EBADF there.
pub(crate) fn borrow(fd: RawFd) -> BorrowedFd<'static> {
    debug_assert!(fd >= 0);
    // SAFETY: nothing unsafe hangs on whether it is open. It is not -1, as all callers took it from the table.
    unsafe { BorrowedFd::borrow_raw(fd.max(0)) }
}

fn outcome(result: c_long) -> Result<c_long, Errno> {
    if result < 0 {
        Err(Errno::from_raw_os_error(errno()))
    } else {
        Ok(result)
    }
}

/// Writes to standard error; what goes wrong is not told.
pub(crate) fn write_error(text: &[u8]) {
    // SAFETY: the bytes live over the call.
    unsafe { libc::syscall(libc::SYS_write, 2, text.as_ptr(), text.len()) };
}

/// Closes a number. EBADF is not told.
pub(crate) fn close(fd: RawFd) {
    // SAFETY: numbers that are closed here are the library's own.
    unsafe { libc::syscall(libc::SYS_close, fd) };
}

/// `dup3` that allows equal numbers to fail as the system has it.
pub(crate) fn dup3(from: RawFd, to: RawFd, flags: c_int) -> Result<(), Errno> {
    // SAFETY: no memory is passed.
    let result = unsafe { libc::syscall(libc::SYS_dup3, from, to, flags) };
    outcome(result).map(|_| ())
}

/// `fcntl` with a number.
pub(crate) fn fcntl(fd: RawFd, command: c_int, argument: c_long) -> Result<c_int, Errno> {
    // SAFETY: commands given here take numbers only.
    let result = unsafe { libc::syscall(libc::SYS_fcntl, fd, command, argument) };
    outcome(result).map(|value| value as c_int)
}

/// Sets or takes away O_NONBLOCK.
pub(crate) fn set_nonblocking(fd: RawFd, on: bool) -> Result<(), Errno> {
    let flags = fcntl(fd, libc::F_GETFL, 0)?;
    let wanted = if on {
        flags | libc::O_NONBLOCK
    } else {
        flags & !libc::O_NONBLOCK
    };
    fcntl(fd, libc::F_SETFL, c_long::from(wanted)).map(|_| ())
}

/// A signal mask of the caller's: the pointer that it passed.
#[derive(Clone, Copy)]
pub(crate) struct Mask(*const c_void);

impl Mask {
    /// # Safety
    ///
    /// Null, or a `sigset_t` that lives as long as this is used.
    pub(crate) unsafe fn new(mask: *const libc::sigset_t) -> Option<Self> {
        (!mask.is_null()).then_some(Self(mask.cast()))
    }
}

/// Bytes of the system's signal sets.
const SIGSET_BYTES: usize = 8;

/// `ppoll`; `None`: without end. How many are ready. `INTR` also for a signal that was put off.
pub(crate) fn ppoll(
    fds: &mut [pollfd],
    timeout: Option<Duration>,
    mask: Option<Mask>,
) -> Result<usize, Errno> {
    let mut time = timeout.map(|t| libc::timespec {
        tv_sec: t.as_secs().min(i64::MAX as u64) as libc::time_t,
        tv_nsec: i64::from(t.subsec_nanos()),
    });
    let time = time.as_mut().map_or(std::ptr::null_mut(), |t| t as *mut _);
    let mask = mask.map_or(std::ptr::null(), |mask| mask.0);
    let arguments = [
        fds.as_mut_ptr() as usize,
        fds.len(),
        time as usize,
        mask as usize,
        SIGSET_BYTES,
        0,
    ];
    // SAFETY: all pointers are null or live over the call; the mask is the caller's promise.
    let result = unsafe { interruptible::call(libc::SYS_ppoll, arguments) };
    result.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
}

/// `epoll_wait` without waiting.
pub(crate) fn epoll_now(set: RawFd, events: &mut [libc::epoll_event]) -> Result<usize, Errno> {
    let max = events.len().min(c_int::MAX as usize) as c_int;
    // SAFETY: the events live over the call, and `max` is at most their number.
    let result = unsafe {
        libc::syscall(
            libc::SYS_epoll_pwait,
            set,
            events.as_mut_ptr(),
            max,
            0,
            std::ptr::null::<c_void>(),
            SIGSET_BYTES,
        )
    };
    outcome(result).map(|n| n as usize)
}

/// `recvmsg` that does not wait.
///
/// # Safety
///
/// As libc's.
pub(crate) unsafe fn receive_now(
    fd: RawFd,
    message: *mut libc::msghdr,
    flags: c_int,
) -> Result<usize, Errno> {
    // SAFETY: the caller's promise.
    let done = unsafe { libc::syscall(libc::SYS_recvmsg, fd, message, flags | libc::MSG_DONTWAIT) };
    outcome(done).map(|n| n as usize)
}

/// `recvfrom` that does not wait.
///
/// # Safety
///
/// As libc's.
pub(crate) unsafe fn receive_from_now(
    fd: RawFd,
    list: iovec,
    flags: c_int,
    address: *mut sockaddr,
    len: *mut socklen_t,
) -> Result<usize, Errno> {
    let flags = flags | libc::MSG_DONTWAIT;
    // SAFETY: the caller's promise.
    let done = unsafe {
        let (buffer, room) = (list.iov_base, list.iov_len);
        libc::syscall(libc::SYS_recvfrom, fd, buffer, room, flags, address, len)
    };
    outcome(done).map(|n| n as usize)
}

/// `epoll_ctl`.
pub(crate) fn epoll_ctl(
    set: RawFd,
    operation: c_int,
    fd: RawFd,
    events: u32,
    data: u64,
) -> Result<(), Errno> {
    let mut event = libc::epoll_event { events, u64: data };
    // SAFETY: the event lives over the call.
    let result = unsafe { libc::syscall(libc::SYS_epoll_ctl, set, operation, fd, &raw mut event) };
    outcome(result).map(|_| ())
}

/// SIGPIPE for this thread, as a write on a closed connection has it.
pub(crate) fn raise_sigpipe() {
    // SAFETY: no memory is passed.
    unsafe {
        let (pid, thread) = (
            libc::syscall(libc::SYS_getpid),
            libc::syscall(libc::SYS_gettid),
        );
        libc::syscall(libc::SYS_tgkill, pid, thread, libc::SIGPIPE);
    }
}

/// The calling thread's stack: its lowest address and its end. `None` if the system does not say.
pub(crate) fn own_stack() -> Option<(usize, usize)> {
    let mut attributes = std::mem::MaybeUninit::<libc::pthread_attr_t>::uninit();
    let (mut lowest, mut size) = (std::ptr::null_mut::<c_void>(), 0);
    // SAFETY: the attributes are written by the first call, and used and given back only if that did well; the places live over the calls.
    let told = unsafe {
        if libc::pthread_getattr_np(libc::pthread_self(), attributes.as_mut_ptr()) != 0 {
            return None;
        }
        let told = libc::pthread_attr_getstack(attributes.as_ptr(), &raw mut lowest, &raw mut size);
        libc::pthread_attr_destroy(attributes.as_mut_ptr());
        told
    };
    (told == 0).then(|| (lowest.addr(), lowest.addr() + size))
}

/// A number that nobody guesses.
pub(crate) fn random() -> u64 {
    let mut bytes = [0u8; 8];
    // It does not fail for so few bytes; if it did, nobody else would know the number either.
    // SAFETY: the bytes live over the call.
    unsafe { libc::syscall(libc::SYS_getrandom, bytes.as_mut_ptr(), bytes.len(), 0) };
    u64::from_ne_bytes(bytes)
}

/// Functions that the system calls around fork.
pub(crate) fn at_fork(
    before: unsafe extern "C" fn(),
    parent: unsafe extern "C" fn(),
    child: unsafe extern "C" fn(),
) {
    // SAFETY: they are functions of this library, which is never unloaded.
    unsafe { libc::pthread_atfork(Some(before), Some(parent), Some(child)) };
}

/// An IP address as C has it; `None` when it is none (another family, or too short).
///
/// # Safety
///
/// `address` is null or points to `len` bytes.
pub(crate) unsafe fn read_address(address: *const sockaddr, len: socklen_t) -> Option<SocketAddr> {
    let len = len as usize;
    if memory::may_be(address.cast(), len).is_err() || len < size_of::<libc::sa_family_t>() {
        return None;
    }
    // SAFETY: at least so long, as was just checked; it may lie anywhere.
    let family = unsafe { address.cast::<libc::sa_family_t>().read_unaligned() };
    match c_int::from(family) {
        libc::AF_INET if len >= size_of::<libc::sockaddr_in>() => {
            // SAFETY: long enough.
            let v4 = unsafe { address.cast::<libc::sockaddr_in>().read_unaligned() };
            let ip = Ipv4Addr::from(v4.sin_addr.s_addr.to_ne_bytes());
            Some(SocketAddrV4::new(ip, u16::from_be(v4.sin_port)).into())
        }
        // The scope may be left out.
        libc::AF_INET6 if len >= size_of::<libc::sockaddr_in6>() - 4 => {
            let mut v6 = [0u8; size_of::<libc::sockaddr_in6>()];
            let n = len.min(v6.len());
            // SAFETY: both are at least `n` long and do not overlap.
            unsafe { std::ptr::copy_nonoverlapping(address.cast::<u8>(), v6.as_mut_ptr(), n) };
            // SAFETY: every pattern of bytes is a sockaddr_in6.
            let v6: libc::sockaddr_in6 = unsafe { std::mem::transmute(v6) };
            let ip = Ipv6Addr::from(v6.sin6_addr.s6_addr);
            let port = u16::from_be(v6.sin6_port);
            Some(SocketAddrV6::new(ip, port, 0, v6.sin6_scope_id).into())
        }
        _ => None,
    }
}

/// Bytes of the longer of the two.
const ADDRESS_MAX: usize = size_of::<libc::sockaddr_in6>();

/// Writes an address as accept and its like do: cut to the room there is, with its whole length told.
///
/// # Safety
///
/// `len` is null, or points to a length, and `address` to so many bytes.
pub(crate) unsafe fn write_address(
    from: SocketAddr,
    as_v6: bool,
    address: *mut sockaddr,
    len: *mut socklen_t,
) -> Result<(), Errno> {
    if address.is_null() {
        return Ok(());
    }
    memory::may_be(len.cast_const().cast(), size_of::<socklen_t>())?;
    // SAFETY: the caller's promise.
    let room = unsafe { len.read_unaligned() };
    if (room as i32) < 0 {
        return Err(Errno::INVAL);
    }
    let (bytes, whole) = address_bytes(from, as_v6);
    let n = whole.min(room as usize);
    memory::may_be(address.cast_const().cast(), n)?;
    // SAFETY: the caller's promise; `n` is at most what it says there is room for.
    unsafe {
        std::ptr::copy_nonoverlapping(bytes.as_ptr(), address.cast::<u8>(), n);
        len.write_unaligned(whole as socklen_t);
    }
    Ok(())
}

/// A `struct sockaddr_in` or `sockaddr_in6`, and how long it is.
pub(crate) fn address_bytes(from: SocketAddr, as_v6: bool) -> ([u8; ADDRESS_MAX], usize) {
    let mut bytes = [0u8; ADDRESS_MAX];
    let whole = match (from, as_v6) {
        (SocketAddr::V4(v4), false) => {
            bytes[..2].copy_from_slice(&(libc::AF_INET as u16).to_ne_bytes());
            bytes[2..4].copy_from_slice(&v4.port().to_be_bytes());
            bytes[4..8].copy_from_slice(&v4.ip().octets());
            size_of::<libc::sockaddr_in>()
        }
        (from, _) => {
            let (ip, scope) = match from {
                SocketAddr::V4(v4) => (v4.ip().to_ipv6_mapped(), 0),
                SocketAddr::V6(v6) => (*v6.ip(), v6.scope_id()),
            };
            bytes[..2].copy_from_slice(&(libc::AF_INET6 as u16).to_ne_bytes());
            bytes[2..4].copy_from_slice(&from.port().to_be_bytes());
            bytes[8..24].copy_from_slice(&ip.octets());
            bytes[24..28].copy_from_slice(&scope.to_ne_bytes());
            size_of::<libc::sockaddr_in6>()
        }
    };
    (bytes, whole)
}

/// A list of pieces to send.
///
/// # Safety
///
/// Each is of memory that may be read while `'a`, and none is null.
pub(crate) unsafe fn slices<'a>(list: &'a [iovec]) -> &'a [IoSlice<'a>] {
    // SAFETY: IoSlice has the layout of iovec, and the caller promises the rest.
    unsafe { std::slice::from_raw_parts(list.as_ptr().cast(), list.len()) }
}

/// Pieces to fill. Most calls have one, for which nothing is allocated.
pub(crate) enum Buffers<'a> {
    One([IoSliceMut<'a>; 1]),
    Many(Vec<IoSliceMut<'a>>),
}

impl<'a> Deref for Buffers<'a> {
    type Target = [IoSliceMut<'a>];

    fn deref(&self) -> &Self::Target {
        match self {
            Self::One(one) => one,
            Self::Many(many) => many,
        }
    }
}

impl DerefMut for Buffers<'_> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        match self {
            Self::One(one) => one,
            Self::Many(many) => many,
        }
    }
}

/// A list of pieces to fill.
///
/// # Safety
///
/// Each is of memory that is the caller's to write while `'a`, or of no bytes.
pub(crate) unsafe fn slices_mut<'a>(list: &[iovec]) -> Buffers<'a> {
    // SAFETY: the caller's promise.
    let piece =
        |piece: &iovec| IoSliceMut::new(unsafe { bytes_mut(piece.iov_base, piece.iov_len) });
    match list {
        [one] => Buffers::One([piece(one)]),
        many => Buffers::Many(many.iter().map(piece).collect()),
    }
}

/// Memory to fill.
///
/// # Safety
///
/// `buffer` points to `len` bytes that are the caller's to write while `'a`, or `len` is 0.
pub(crate) unsafe fn bytes_mut<'a>(buffer: *mut c_void, len: usize) -> &'a mut [u8] {
    if len == 0 || buffer.is_null() {
        return &mut [];
    }
    // SAFETY: the caller's promise.
    unsafe { std::slice::from_raw_parts_mut(buffer.cast(), len) }
}

/// Memory to read.
///
/// # Safety
///
/// `buffer` points to `len` bytes that may be read while `'a`, or `len` is 0.
pub(crate) unsafe fn bytes<'a>(buffer: *const c_void, len: usize) -> &'a [u8] {
    if len == 0 || buffer.is_null() {
        return &[];
    }
    // SAFETY: the caller's promise.
    unsafe { std::slice::from_raw_parts(buffer.cast(), len) }
}
