//! libc's own functions, found when they are first used: also before any constructor ran, and within `malloc`.

use std::ffi::CStr;
use std::mem::transmute;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};

use libc::{FILE, pid_t, posix_spawn_file_actions_t, posix_spawnattr_t};
use libc::{c_char, c_int, c_uint, c_ulong, c_void, off_t, size_t, socklen_t, ssize_t};
use libc::{epoll_event, fd_set, iovec, mmsghdr, msghdr, nfds_t, pollfd, sigset_t, sockaddr};
use libc::{pthread_t, timespec, timeval};

/// The next library's function of this name; null if none has it.
fn find(place: &AtomicPtr<c_void>, name: &CStr) -> *mut c_void {
    let known = place.load(Ordering::Acquire);
    if !known.is_null() {
        return known;
    }
    // SAFETY: the name is a C string. glibc allocates nothing here when the symbol is found.
    let found = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr().cast::<c_char>()) };
    place.store(found, Ordering::Release);
    found
}

/// What a function gives that failed.
trait Failure {
    const FAILURE: Self;
}

impl Failure for c_int {
    const FAILURE: Self = -1;
}

impl Failure for ssize_t {
    const FAILURE: Self = -1;
}

impl Failure for libc::sighandler_t {
    const FAILURE: Self = libc::SIG_ERR;
}

impl Failure for *mut FILE {
    const FAILURE: Self = null_mut();
}

/// What a child of clone(2) runs.
pub(crate) type ChildFunction = extern "C-unwind" fn(*mut c_void) -> c_int;

/// Words for a program that is executed.
type Words = *const *const c_char;

macro_rules! real {
    ($($(#[$about:meta])? $name:ident($($argument:ident: $type:ty),*) -> $result:ty;)*) => {$(
        /// libc's function of this name.
        ///
        /// # Safety
        ///
        /// As that function.
        $(#[$about])?
        pub(crate) unsafe fn $name($($argument: $type),*) -> $result {
            static PLACE: AtomicPtr<c_void> = AtomicPtr::new(null_mut());
            const NAME: &[u8] = concat!(stringify!($name), "\0").as_bytes();
            let found = CStr::from_bytes_with_nul(NAME).map_or(null_mut(), |name| find(&PLACE, name));
            if found.is_null() {
                crate::sys::set_errno(libc::ENOSYS);
                return <$result as Failure>::FAILURE;
            }
            // SAFETY: libc's function of this name has this type.
            let function: unsafe extern "C-unwind" fn($($type),*) -> $result = unsafe { transmute(found) };
            // SAFETY: the caller's promise.
            unsafe { function($($argument),*) }
        }
    )*};
}

real! {
    socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int;
    bind(fd: c_int, address: *const sockaddr, len: socklen_t) -> c_int;
    listen(fd: c_int, backlog: c_int) -> c_int;
    accept4(fd: c_int, address: *mut sockaddr, len: *mut socklen_t, flags: c_int) -> c_int;
    connect(fd: c_int, address: *const sockaddr, len: socklen_t) -> c_int;
    getsockname(fd: c_int, address: *mut sockaddr, len: *mut socklen_t) -> c_int;
    getpeername(fd: c_int, address: *mut sockaddr, len: *mut socklen_t) -> c_int;
    getsockopt(fd: c_int, level: c_int, name: c_int, value: *mut c_void, len: *mut socklen_t) -> c_int;
    setsockopt(fd: c_int, level: c_int, name: c_int, value: *const c_void, len: socklen_t) -> c_int;
    shutdown(fd: c_int, how: c_int) -> c_int;
    read(fd: c_int, buffer: *mut c_void, len: size_t) -> ssize_t;
    readv(fd: c_int, list: *const iovec, count: c_int) -> ssize_t;
    recv(fd: c_int, buffer: *mut c_void, len: size_t, flags: c_int) -> ssize_t;
    recvfrom(fd: c_int, buffer: *mut c_void, len: size_t, flags: c_int, address: *mut sockaddr, size: *mut socklen_t) -> ssize_t;
    recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t;
    recvmmsg(fd: c_int, list: *mut mmsghdr, count: c_uint, flags: c_int, timeout: *mut timespec) -> c_int;
    write(fd: c_int, buffer: *const c_void, len: size_t) -> ssize_t;
    writev(fd: c_int, list: *const iovec, count: c_int) -> ssize_t;
    send(fd: c_int, buffer: *const c_void, len: size_t, flags: c_int) -> ssize_t;
    sendto(fd: c_int, buffer: *const c_void, len: size_t, flags: c_int, address: *const sockaddr, size: socklen_t) -> ssize_t;
    sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t;
    sendmmsg(fd: c_int, list: *mut mmsghdr, count: c_uint, flags: c_int) -> c_int;
    sendfile(to: c_int, from: c_int, offset: *mut off_t, count: size_t) -> ssize_t;
    close(fd: c_int) -> c_int;
    close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int;
    dup(fd: c_int) -> c_int;
    dup2(fd: c_int, to: c_int) -> c_int;
    dup3(fd: c_int, to: c_int, flags: c_int) -> c_int;
    fcntl(fd: c_int, command: c_int, argument: c_ulong) -> c_int;
    ioctl(fd: c_int, request: c_ulong, argument: c_ulong) -> c_int;
    poll(list: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int;
    ppoll(list: *mut pollfd, count: nfds_t, timeout: *const timespec, mask: *const sigset_t) -> c_int;
    select(count: c_int, read: *mut fd_set, write: *mut fd_set, except: *mut fd_set, timeout: *mut timeval) -> c_int;
    pselect(count: c_int, read: *mut fd_set, write: *mut fd_set, except: *mut fd_set, timeout: *const timespec, mask: *const sigset_t) -> c_int;
    execve(path: *const c_char, arguments: Words, environment: Words) -> c_int;
    execv(path: *const c_char, arguments: Words) -> c_int;
    execvp(file: *const c_char, arguments: Words) -> c_int;
    execvpe(file: *const c_char, arguments: Words, environment: Words) -> c_int;
    fexecve(fd: c_int, arguments: Words, environment: Words) -> c_int;
    execveat(fd: c_int, path: *const c_char, arguments: Words, environment: Words, flags: c_int) -> c_int;
    posix_spawn(pid: *mut pid_t, path: *const c_char, actions: *const posix_spawn_file_actions_t, attributes: *const posix_spawnattr_t, arguments: Words, environment: Words) -> c_int;
    posix_spawnp(pid: *mut pid_t, file: *const c_char, actions: *const posix_spawn_file_actions_t, attributes: *const posix_spawnattr_t, arguments: Words, environment: Words) -> c_int;
    system(command: *const c_char) -> c_int;
    popen(command: *const c_char, mode: *const c_char) -> *mut FILE;
    #[expect(non_snake_case, reason = "libc's name")]
    _Fork() -> pid_t;
    clone(function: ChildFunction, stack: *mut c_void, flags: c_int, argument: *mut c_void, parent: *mut pid_t, thread: *mut c_void, child: *mut pid_t) -> c_int;
    fdopen(fd: c_int, mode: *const c_char) -> *mut FILE;
    fclose(stream: *mut FILE) -> c_int;
    freopen(path: *const c_char, mode: *const c_char, stream: *mut FILE) -> *mut FILE;
    freopen64(path: *const c_char, mode: *const c_char, stream: *mut FILE) -> *mut FILE;
    epoll_create1(flags: c_int) -> c_int;
    epoll_ctl(set: c_int, operation: c_int, fd: c_int, event: *mut epoll_event) -> c_int;
    epoll_pwait(set: c_int, events: *mut epoll_event, max: c_int, timeout: c_int, mask: *const sigset_t) -> c_int;
    epoll_pwait2(set: c_int, events: *mut epoll_event, max: c_int, timeout: *const timespec, mask: *const sigset_t) -> c_int;
    splice(from: c_int, from_at: *mut off_t, to: c_int, to_at: *mut off_t, len: size_t, flags: c_uint) -> ssize_t;
    preadv2(fd: c_int, list: *const iovec, count: c_int, offset: off_t, flags: c_int) -> ssize_t;
    pwritev2(fd: c_int, list: *const iovec, count: c_int, offset: off_t, flags: c_int) -> ssize_t;
    sockatmark(fd: c_int) -> c_int;
    pthread_cancel(thread: pthread_t) -> c_int;
    chroot(path: *const c_char) -> c_int;
    prctl(option: c_int, second: c_ulong, third: c_ulong, fourth: c_ulong, fifth: c_ulong) -> c_int;
    sigaction(signal: c_int, new: *const libc::sigaction, old: *mut libc::sigaction) -> c_int;
    signal(signal: c_int, handler: libc::sighandler_t) -> libc::sighandler_t;
    __sysv_signal(signal: c_int, handler: libc::sighandler_t) -> libc::sighandler_t;
    sigset(signal: c_int, handler: libc::sighandler_t) -> libc::sighandler_t;
}
