//! The C boundary: packetdrill's function table, and what its pointers point to.
//!
//! Every function of the table gets the instance as its first argument, answers as the system call of its name does (−1 and
//! `errno`), and lets no panic out. `fcntl` and `ioctl` are variadic in C; here they have one more argument of a machine word,
//! which the calling conventions of Linux pass in the same place.
//!
//! If the library is preloaded too (LD_PRELOAD), two functions of the C library are answered here while there is an instance:
//! `getsockopt`, because packetdrill asks TCP_INFO of the kernel, not of the table; and `system`, because commands of scripts would
//! change sysctls of the machine.

use std::ffi::{CStr, c_char, c_int, c_long, c_ulong, c_void};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::IntoRawFd;
use std::os::unix::process::ExitStatusExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::Command;
use std::slice;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use libc::{
    epoll_event, iovec, msghdr, nfds_t, pollfd, sockaddr, sockaddr_in, sockaddr_in6, socklen_t,
    ssize_t, timeval,
};
use sidecore_testkit::sockets::Errno;
use sidecore_testkit::sockets::number::MSG_FASTOPEN;

use crate::calls::Polled;
use crate::drill::Drill;
use crate::epoll::Interest;
use crate::shell;

/// What the file begins with that packetdrill runs assertions from: not a command of a script.
const ASSERTIONS: &str = "/tmp/code_";

/// The instance that was made last.
static CURRENT: Mutex<Weak<Drill>> = Mutex::new(Weak::new());

macro_rules! table {
    ($($name:ident($($arg:ident: $type:ty),*) -> $answer:ty = |$drill:ident| $act:expr;)*) => {
        /// packetdrill's `struct packetdrill_interface`.
        #[repr(C)]
        #[derive(Debug)]
        pub struct Interface {
            /// The instance: the first argument of every function.
            pub userdata: *mut c_void,
            /// Ends the instance.
            pub free: unsafe extern "C" fn(*mut c_void),
            $(
                #[doc = concat!("`", stringify!($name), "`")]
                pub $name: unsafe extern "C" fn(*mut c_void, $($type),*) -> $answer,
            )*
        }

        impl Interface {
            fn new(userdata: *mut c_void) -> Self {
                Self { userdata, free, $($name: calls::$name,)* }
            }
        }

        mod calls {
            use super::*;

            $(
                pub(super) unsafe extern "C" fn $name(at: *mut c_void, $($arg: $type),*) -> $answer {
                    call(at, |$drill| $act)
                }
            )*
        }
    };
}

table! {
    socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int = |drill| drill.socket(domain, kind, protocol);
    bind(fd: c_int, at_addr: *const sockaddr, len: socklen_t) -> c_int = |drill| {
        drill.bind(fd, internet(at_addr, len)?).map(|()| 0)
    };
    listen(fd: c_int, backlog: c_int) -> c_int = |drill| drill.listen(fd, backlog).map(|()| 0);
    accept(fd: c_int, peer: *mut sockaddr, len: *mut socklen_t) -> c_int = |drill| {
        let (accepted, from) = drill.accept(fd)?;
        tell_address(from, peer, len);
        Ok(accepted)
    };
    connect(fd: c_int, to: *const sockaddr, len: socklen_t) -> c_int = |drill| {
        drill.connect(fd, internet(to, len)?).map(|()| 0)
    };
    read(fd: c_int, buf: *mut c_void, len: usize) -> ssize_t = |drill| received(drill, fd, buf, len, 0);
    readv(fd: c_int, iov: *const iovec, count: c_int) -> ssize_t = |drill| {
        scattered(drill, fd, vectors(iov, length(count)?)?, 0)
    };
    recv(fd: c_int, buf: *mut c_void, len: usize, flags: c_int) -> ssize_t = |drill| {
        received(drill, fd, buf, len, flags)
    };
    recvfrom(
        fd: c_int, buf: *mut c_void, len: usize, flags: c_int, _from: *mut sockaddr, from_len: *mut socklen_t
    ) -> ssize_t = |drill| {
        // A stream has no sender to tell.
        if let Ok(from_len) = place(from_len) {
            *from_len = 0;
        }
        received(drill, fd, buf, len, flags)
    };
    recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t = |drill| {
        let message = place(message)?;
        let received = scattered(drill, fd, vectors(message.msg_iov, message.msg_iovlen)?, flags)?;
        (message.msg_flags, message.msg_controllen) = (0, 0);
        Ok(received)
    };
    write(fd: c_int, buf: *const c_void, len: usize) -> ssize_t = |drill| {
        sent(drill, fd, bytes(buf, len)?.to_vec(), 0, None)
    };
    writev(fd: c_int, iov: *const iovec, count: c_int) -> ssize_t = |drill| {
        sent(drill, fd, gathered(vectors(iov, length(count)?)?)?, 0, None)
    };
    send(fd: c_int, buf: *const c_void, len: usize, flags: c_int) -> ssize_t = |drill| {
        sent(drill, fd, bytes(buf, len)?.to_vec(), flags, None)
    };
    sendto(
        fd: c_int, buf: *const c_void, len: usize, flags: c_int, to: *const sockaddr, to_len: socklen_t
    ) -> ssize_t = |drill| {
        let to = fast_open_to(to, to_len, flags)?;
        sent(drill, fd, bytes(buf, len)?.to_vec(), flags, to)
    };
    sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t = |drill| {
        let message = place(message.cast_mut())?;
        let to = fast_open_to(message.msg_name.cast(), message.msg_namelen, flags)?;
        sent(drill, fd, gathered(vectors(message.msg_iov, message.msg_iovlen)?)?, flags, to)
    };
    fcntl(fd: c_int, command: c_int, value: c_long) -> c_int = |drill| match command {
        libc::F_GETFL => {
            let non_blocking = drill.non_blocking(fd)?;
            Ok(libc::O_RDWR | if non_blocking { libc::O_NONBLOCK } else { 0 })
        }
        libc::F_SETFL => {
            let non_blocking = value as c_int & libc::O_NONBLOCK != 0;
            drill.set_non_blocking(fd, non_blocking).map(|()| 0)
        }
        libc::F_GETFD | libc::F_SETFD => drill.non_blocking(fd).map(|_| 0),
        _ => Err(Errno::EINVAL),
    };
    ioctl(fd: c_int, request: c_ulong, value: *mut c_int) -> c_int = |drill| {
        // All requests that are known tell an `int`.
        let told = drill.ioctl(fd, request)?;
        *place(value)? = told;
        Ok(0)
    };
    close(fd: c_int) -> c_int = |drill| drill.close(fd).map(|()| 0);
    shutdown(fd: c_int, how: c_int) -> c_int = |drill| drill.shutdown(fd, how).map(|()| 0);
    getsockopt(fd: c_int, level: c_int, name: c_int, value: *mut c_void, len: *mut socklen_t) -> c_int = |drill| {
        option(drill, fd, (level, name), value, len)
    };
    setsockopt(fd: c_int, level: c_int, name: c_int, value: *const c_void, len: socklen_t) -> c_int = |drill| {
        drill.set_option(fd, level, name, bytes(value, len as usize)?).map(|()| 0)
    };
    poll(fds: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int = |drill| polled(drill, fds, count, timeout);
    netdev_send(packet: *const c_void, len: usize) -> c_int = |drill| {
        let packet = bytes(packet, len)?;
        drill.with(|world| world.arrives(packet));
        Ok(0)
    };
    netdev_receive(buf: *mut c_void, len: *mut usize, micros: *mut i64) -> c_int = |drill| {
        sniffed(drill, buf, place(len)?, place(micros)?)
    };
    usleep(micros: u32) -> c_int = |drill| {
        drill.usleep(Duration::from_micros(micros.into()));
        Ok(0)
    };
    gettimeofday(time: *mut timeval, _zone: *mut c_void) -> c_int = |drill| {
        let now = drill.time().as_micros() as i64;
        let time = place(time)?;
        (time.tv_sec, time.tv_usec) = (now / 1_000_000, now % 1_000_000);
        Ok(0)
    };
    epoll_create(_size: c_int) -> c_int = |drill| drill.epoll_create();
    epoll_ctl(epoll: c_int, what: c_int, fd: c_int, event: *mut epoll_event) -> c_int = |drill| {
        let interest = if what == libc::EPOLL_CTL_DEL {
            None
        } else {
            let epoll_event { events, u64: data } = *place(event)?;
            Some(Interest { events, data })
        };
        drill.epoll_change(epoll, fd, what == libc::EPOLL_CTL_ADD, interest).map(|()| 0)
    };
    epoll_wait(epoll: c_int, events: *mut epoll_event, max: c_int, timeout: c_int) -> c_int = |drill| {
        epoll_told(drill, epoll, events, length(max)?, timeout)
    };
    pipe(_fds: *mut c_int) -> c_int = |_drill| Err(Errno::EOPNOTSUPP);
    splice(
        _from: c_int, _from_offset: *mut i64, _to: c_int, _to_offset: *mut i64, _len: usize, _flags: u32
    ) -> c_int = |_drill| Err(Errno::EOPNOTSUPP);
}

const _: () = assert!(size_of::<Interface>() == 33 * size_of::<*mut c_void>());
const _: () = assert!(std::mem::offset_of!(Interface, userdata) == 0);
const _: () = assert!(std::mem::offset_of!(Interface, fcntl) == 17 * size_of::<*mut c_void>());
const _: () = assert!(std::mem::offset_of!(Interface, splice) == 32 * size_of::<*mut c_void>());

/// packetdrill's entry: fills its table in for a new instance with these `--so_flags`. Ends the process if the flags make no
/// sense, as packetdrill does with its own.
///
/// # Safety
/// `flags` is null or a C string, `table` is a table that may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn packetdrill_interface_init(flags: *const c_char, table: *mut Interface) {
    let flags = if flags.is_null() {
        String::new()
    } else {
        // SAFETY: a C string, as the caller promises.
        unsafe { CStr::from_ptr(flags) }
            .to_string_lossy()
            .into_owned()
    };
    let made = catch_unwind(|| Drill::new(&flags));
    let drill = match made {
        Ok(Ok(drill)) => Arc::new(drill),
        Ok(Err(what)) => {
            eprintln!("sidecore: {what}");
            std::process::exit(2);
        }
        Err(_) => std::process::exit(2),
    };
    *CURRENT.lock().unwrap_or_else(PoisonError::into_inner) = Arc::downgrade(&drill);
    let userdata = Arc::into_raw(drill).cast_mut().cast();
    // SAFETY: the caller promises a table.
    unsafe { table.write(Interface::new(userdata)) };
}

unsafe extern "C" fn free(userdata: *mut c_void) {
    // SAFETY: it came from `Arc::into_raw` and is given back once.
    let drill = unsafe { Arc::from_raw(userdata.cast::<Drill>()) };
    let _ = catch_unwind(AssertUnwindSafe(|| drop(drill)));
}

fn set_errno(errno: Errno) {
    // SAFETY: the thread's own.
    unsafe { *libc::__errno_location() = errno.raw() };
}

/// Answers as system calls do.
fn answer<N: From<i8>>(answered: std::thread::Result<Result<N, Errno>>) -> N {
    let errno = match answered {
        Ok(Ok(number)) => return number,
        Ok(Err(errno)) => errno,
        Err(_) => Errno::EIO,
    };
    set_errno(errno);
    N::from(-1)
}

/// One call on the instance.
fn call<N: From<i8>>(userdata: *mut c_void, act: impl FnOnce(&Drill) -> Result<N, Errno>) -> N {
    // SAFETY: what `packetdrill_interface_init` handed out, and `free` not yet taken back.
    let drill = unsafe { &*userdata.cast::<Drill>() };
    answer(catch_unwind(AssertUnwindSafe(|| act(drill))))
}

/// A descriptor of the process that nothing else gets: packetdrill closes what a script left open by the C library.
pub(crate) fn placeholder() -> Result<i32, Errno> {
    let null = std::fs::File::open("/dev/null");
    null.map(IntoRawFd::into_raw_fd).map_err(|_| Errno::EMFILE)
}

/// Gives a descriptor of [`placeholder`] back.
pub(crate) fn drop_placeholder(fd: i32) {
    // SAFETY: nobody but this crate holds it as its own.
    unsafe { libc::close(fd) };
}

/// Bytes that a program names.
fn bytes<'a>(at: *const c_void, len: usize) -> Result<&'a [u8], Errno> {
    match (at.is_null(), len) {
        (_, 0) => Ok(&[]),
        (true, _) => Err(Errno::EFAULT),
        // SAFETY: the caller's buffer, as long as the call lasts.
        (false, _) => Ok(unsafe { slice::from_raw_parts(at.cast(), len) }),
    }
}

fn bytes_mut<'a>(at: *mut c_void, len: usize) -> Result<&'a mut [u8], Errno> {
    match (at.is_null(), len) {
        (_, 0) => Ok(&mut []),
        (true, _) => Err(Errno::EFAULT),
        // SAFETY: the caller's buffer, as long as the call lasts; nobody else looks at it.
        (false, _) => Ok(unsafe { slice::from_raw_parts_mut(at.cast(), len) }),
    }
}

/// An address; none: of a family that is not the Internet's.
fn address(at: *const sockaddr, len: socklen_t) -> Result<Option<SocketAddr>, Errno> {
    let all = bytes(at.cast(), len as usize)?;
    let family = all.first_chunk().ok_or(Errno::EINVAL)?;
    match c_int::from(u16::from_ne_bytes(*family)) {
        libc::AF_INET if all.len() >= size_of::<sockaddr_in>() => {
            // SAFETY: long enough, and any bytes are one.
            let four: sockaddr_in = unsafe { at.cast::<sockaddr_in>().read_unaligned() };
            let ip = IpAddr::from(four.sin_addr.s_addr.to_ne_bytes());
            Ok(Some(SocketAddr::new(ip, u16::from_be(four.sin_port))))
        }
        libc::AF_INET6 if all.len() >= size_of::<sockaddr_in6>() => {
            // SAFETY: long enough, and any bytes are one.
            let six: sockaddr_in6 = unsafe { at.cast::<sockaddr_in6>().read_unaligned() };
            let ip = IpAddr::from(six.sin6_addr.s6_addr);
            Ok(Some(SocketAddr::new(ip, u16::from_be(six.sin6_port))))
        }
        libc::AF_INET | libc::AF_INET6 => Err(Errno::EINVAL),
        _ => Ok(None),
    }
}

/// Tells an address, as much of it as there is room for.
fn tell_address(address: SocketAddr, at: *mut sockaddr, len: *mut socklen_t) {
    if at.is_null() || len.is_null() {
        return;
    }
    let mut told = match address {
        SocketAddr::V4(_) => vec![0; size_of::<sockaddr_in>()],
        SocketAddr::V6(_) => vec![0; size_of::<sockaddr_in6>()],
    };
    let (family, ip) = match address.ip() {
        IpAddr::V4(four) => (libc::AF_INET, four.octets().to_vec()),
        IpAddr::V6(six) => (libc::AF_INET6, six.octets().to_vec()),
    };
    told[..2].copy_from_slice(&(family as u16).to_ne_bytes());
    told[2..4].copy_from_slice(&address.port().to_be_bytes());
    let start = if address.is_ipv4() { 4 } else { 8 };
    told[start..start + ip.len()].copy_from_slice(&ip);
    // SAFETY: the caller's length, and so many bytes of its buffer.
    unsafe {
        let room = told.len().min(*len as usize);
        at.cast::<u8>().copy_from(told.as_ptr(), room);
        *len = told.len() as socklen_t;
    }
}

fn vectors<'a>(at: *const iovec, count: usize) -> Result<&'a [iovec], Errno> {
    if count == 0 {
        return Ok(&[]);
    }
    if at.is_null() {
        return Err(Errno::EFAULT);
    }
    // SAFETY: the caller's array, as long as the call lasts.
    Ok(unsafe { slice::from_raw_parts(at, count) })
}

/// All bytes of a vector.
fn gathered(vectors: &[iovec]) -> Result<Vec<u8>, Errno> {
    let parts = vectors
        .iter()
        .map(|part| bytes(part.iov_base, part.iov_len));
    Ok(parts.collect::<Result<Vec<_>, _>>()?.concat())
}

/// Receives into a vector.
fn scattered(drill: &Drill, fd: c_int, vectors: &[iovec], flags: c_int) -> Result<isize, Errno> {
    let parts = vectors
        .iter()
        .map(|part| bytes_mut(part.iov_base, part.iov_len));
    let parts: Vec<_> = parts.collect::<Result<_, _>>()?;
    let max = parts.iter().map(|part| part.len()).sum();
    let received = drill.receive(fd, max, flags)?;
    let mut rest = &received[..];
    for part in parts {
        let (now, later) = rest.split_at(rest.len().min(part.len()));
        part[..now.len()].copy_from_slice(now);
        rest = later;
    }
    Ok(received.len() as isize)
}

fn sent(
    drill: &Drill,
    fd: c_int,
    bytes: Vec<u8>,
    flags: c_int,
    to: Option<SocketAddr>,
) -> Result<isize, Errno> {
    let taken = drill.send(fd, bytes, flags, to)?;
    Ok(taken as isize)
}

/// Where to, if it is a Fast Open: for others, TCP does not look.
fn fast_open_to(
    at: *const sockaddr,
    len: socklen_t,
    flags: c_int,
) -> Result<Option<SocketAddr>, Errno> {
    if flags & MSG_FASTOPEN == 0 || at.is_null() {
        return Ok(None);
    }
    address(at, len)?.map(Some).ok_or(Errno::EOPNOTSUPP)
}

/// An address of the Internet's.
fn internet(at: *const sockaddr, len: socklen_t) -> Result<SocketAddr, Errno> {
    address(at, len)?.ok_or(Errno::EAFNOSUPPORT)
}

/// What a pointer points to.
fn place<'a, T>(at: *mut T) -> Result<&'a mut T, Errno> {
    // SAFETY: null, or the caller's, as long as the call lasts; nobody else looks at it. `epoll_event` is packed where it must be.
    unsafe { at.as_mut() }.ok_or(Errno::EFAULT)
}

fn length(count: c_int) -> Result<usize, Errno> {
    usize::try_from(count).map_err(|_| Errno::EINVAL)
}

fn received(
    drill: &Drill,
    fd: c_int,
    iov_base: *mut c_void,
    iov_len: usize,
    flags: c_int,
) -> Result<isize, Errno> {
    scattered(drill, fd, &[iovec { iov_base, iov_len }], flags)
}

fn option(
    drill: &Drill,
    fd: c_int,
    (level, name): (c_int, c_int),
    value: *mut c_void,
    len: *mut socklen_t,
) -> Result<c_int, Errno> {
    let len = place(len)?;
    let into = bytes_mut(value, *len as usize)?;
    let told = drill.option(fd, level, name, into.len())?;
    into[..told.len()].copy_from_slice(&told);
    *len = told.len() as socklen_t;
    Ok(0)
}

fn polled(drill: &Drill, fds: *mut pollfd, count: nfds_t, timeout: c_int) -> Result<c_int, Errno> {
    let fds: &mut [pollfd] = match (fds.is_null(), count) {
        (_, 0) => &mut [],
        (true, _) => return Err(Errno::EFAULT),
        // SAFETY: the caller's array, as long as the call lasts.
        (false, _) => unsafe { slice::from_raw_parts_mut(fds, count as usize) },
    };
    let asked = fds.iter().map(|asked| Polled {
        fd: asked.fd,
        events: asked.events,
        revents: 0,
    });
    let (some, answered) = drill.poll(asked.collect(), timeout);
    for (fd, polled) in fds.iter_mut().zip(answered) {
        fd.revents = polled.revents;
    }
    Ok(some as c_int)
}

fn sniffed(
    drill: &Drill,
    buf: *mut c_void,
    len: &mut usize,
    micros: &mut i64,
) -> Result<c_int, Errno> {
    let into = bytes_mut(buf, *len)?;
    let Some(packet) = drill.packet() else {
        eprintln!("sidecore: no packet leaves the stack any more");
        *len = 0;
        return Ok(0);
    };
    *len = packet.bytes.len().min(into.len());
    into[..*len].copy_from_slice(&packet.bytes[..*len]);
    *micros = packet.at.as_micros() as i64;
    Ok(0)
}

fn epoll_told(
    drill: &Drill,
    epoll: c_int,
    events: *mut epoll_event,
    max: usize,
    timeout: c_int,
) -> Result<c_int, Errno> {
    if max == 0 || events.is_null() {
        return Err(Errno::EINVAL);
    }
    let told = drill.epoll_wait(epoll, max, timeout)?;
    for (at, &(what, data)) in told.iter().enumerate() {
        let event = epoll_event {
            events: what,
            u64: data,
        };
        // SAFETY: no more than `max` of the caller's array.
        unsafe { events.add(at).write_unaligned(event) };
    }
    Ok(told.len() as c_int)
}

fn current() -> Option<Arc<Drill>> {
    CURRENT
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .upgrade()
}

/// What is answered here if the library is preloaded.
mod preload {
    use super::*;

    /// The C library's `getsockopt`: of an instance's descriptor as the table's, of others by the kernel.
    ///
    /// # Safety
    /// As the C library's.
    #[unsafe(no_mangle)]
    pub(super) unsafe extern "C" fn getsockopt(
        fd: c_int,
        level: c_int,
        name: c_int,
        value: *mut c_void,
        len: *mut socklen_t,
    ) -> c_int {
        if let Some(drill) = current()
            && drill.non_blocking(fd).is_ok()
        {
            let told = || option(&drill, fd, (level, name), value, len);
            return answer(catch_unwind(AssertUnwindSafe(told)));
        }
        // SAFETY: passed on as it came.
        unsafe { libc::syscall(libc::SYS_getsockopt, fd, level, name, value, len) as c_int }
    }

    /// The C library's `system`: a script's command is read for sysctls while there is an instance, and not run. What runs a script's
    /// assertions is.
    ///
    /// # Safety
    /// As the C library's.
    #[unsafe(no_mangle)]
    pub(super) unsafe extern "C" fn system(command: *const c_char) -> c_int {
        if command.is_null() {
            return 1;
        }
        // SAFETY: a C string, as the caller promises.
        let command = unsafe { CStr::from_ptr(command) }
            .to_string_lossy()
            .into_owned();
        let drill = current().filter(|_| !command.contains(ASSERTIONS));
        if let Some(drill) = drill {
            let run = || drill.with(|world| shell::run(world, &command));
            return if catch_unwind(AssertUnwindSafe(run)).is_ok() {
                0
            } else {
                -1
            };
        }
        let mut shell = Command::new("/bin/sh");
        shell.args(["-c", &command]).env_remove("LD_PRELOAD");
        shell.status().map_or(-1, ExitStatusExt::into_raw)
    }
}
