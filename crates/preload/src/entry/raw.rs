//! syscall(2): the system's calls by their numbers. Those that this library knows by name are answered as by name.

use std::arch::asm;

use libc::{c_int, c_long, c_uint, c_ulong, c_void, off_t};

use super::{confine, data, epolls, files, forks, life, messages, names, numbers, waits};
use crate::guard::is_inside;
use crate::sys;

/// The call itself: what the system gives, an errno as a negative number.
///
/// # Safety
///
/// As the call's own.
#[cfg(target_arch = "x86_64")]
pub(super) unsafe fn instruction(number: c_long, [a, b, c, d, e, f]: [usize; 6]) -> isize {
    let done: isize;
    // SAFETY: the caller's promise; the system changes these two registers beside the result's.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") number as isize => done,
            in("rdi") a, in("rsi") b, in("rdx") c, in("r10") d, in("r8") e, in("r9") f,
            lateout("rcx") _, lateout("r11") _,
            options(nostack),
        );
    }
    done
}

/// The call itself: what the system gives, an errno as a negative number.
///
/// # Safety
///
/// As the call's own.
#[cfg(target_arch = "aarch64")]
pub(super) unsafe fn instruction(number: c_long, [a, b, c, d, e, f]: [usize; 6]) -> isize {
    let done: isize;
    // SAFETY: the caller's promise.
    unsafe {
        asm!(
            "svc #0",
            in("x8") number,
            inlateout("x0") a as isize => done,
            in("x1") b, in("x2") c, in("x3") d, in("x4") e, in("x5") f,
            options(nostack),
        );
    }
    done
}

/// syscall(2).
///
/// # Safety
///
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn syscall(
    number: c_long,
    a: usize,
    b: usize,
    c: usize,
    d: usize,
    e: usize,
    f: usize,
) -> c_long {
    let all = [a, b, c, d, e, f];
    let known = match is_inside() {
        true => None,
        // SAFETY: the program's promise.
        false => unsafe { by_name(number, all) },
    };
    if let Some(done) = known {
        return done;
    }
    // SAFETY: the program's promise.
    match unsafe { forks::by_number(number, all, || instruction(number, all)) } {
        error @ -4095..=-1 => {
            sys::set_errno(-error as c_int);
            -1
        }
        done => done as c_long,
    }
}

/// The calls that move bytes, or name and make sockets; `None` for all others.
///
/// # Safety
///
/// As the call's own.
unsafe fn by_name(number: c_long, [a, b, c, d, e, f]: [usize; 6]) -> Option<c_long> {
    let fd = a as c_int;
    // SAFETY: the program's promise: the arguments are what the call of this number takes.
    let done = unsafe {
        match number {
            libc::SYS_read => data::read(fd, b as _, c) as c_long,
            libc::SYS_write => data::write(fd, b as _, c) as c_long,
            libc::SYS_readv => data::readv(fd, b as _, c as c_int) as c_long,
            libc::SYS_writev => data::writev(fd, b as _, c as c_int) as c_long,
            libc::SYS_recvfrom => {
                data::recvfrom(fd, b as _, c, d as c_int, e as _, f as _) as c_long
            }
            libc::SYS_sendto => {
                data::sendto(fd, b as _, c, d as c_int, e as _, f as c_uint) as c_long
            }
            libc::SYS_recvmsg => messages::recvmsg(fd, b as _, c as c_int) as c_long,
            libc::SYS_sendmsg => messages::sendmsg(fd, b as _, c as c_int) as c_long,
            libc::SYS_sendfile => files::sendfile(fd, b as c_int, c as _, d) as c_long,
            libc::SYS_splice => {
                files::splice(fd, b as _, c as c_int, d as _, e, f as c_uint) as c_long
            }
            // The place comes in two halves, of which the first is all of it here.
            libc::SYS_preadv2 => {
                data::preadv2(fd, b as _, c as c_int, d as off_t, f as c_int) as c_long
            }
            libc::SYS_pwritev2 => {
                data::pwritev2(fd, b as _, c as c_int, d as off_t, f as c_int) as c_long
            }
            libc::SYS_ioctl => numbers::ioctl(fd, b as c_ulong, c as c_ulong).into(),
            libc::SYS_prctl => {
                confine::prctl(fd, b as c_ulong, c as c_ulong, d as c_ulong, e as c_ulong).into()
            }
            libc::SYS_chroot => confine::chroot(a as _).into(),
            libc::SYS_seccomp => {
                confine::before_seccomp(a);
                return None;
            }
            // Its calls would be made at the descriptors, where a socket of the engine has no bytes: programs do without it.
            libc::SYS_io_uring_setup => {
                sys::set_errno(libc::ENOSYS);
                -1
            }
            _ => return by_name_of_sockets(number, [a, b, c, d, e, f]),
        }
    };
    Some(done)
}

/// The rest of them.
///
/// # Safety
///
/// As the call's own.
unsafe fn by_name_of_sockets(number: c_long, [a, b, c, d, e, _]: [usize; 6]) -> Option<c_long> {
    let fd = a as c_int;
    // SAFETY: the program's promise: the arguments are what the call of this number takes.
    let done = unsafe {
        match number {
            libc::SYS_socket => life::socket(fd, b as c_int, c as c_int),
            libc::SYS_bind => life::bind(fd, b as _, c as c_uint),
            libc::SYS_listen => life::listen(fd, b as c_int),
            libc::SYS_accept => life::accept(fd, b as _, c as _),
            libc::SYS_accept4 => life::accept4(fd, b as _, c as _, d as c_int),
            libc::SYS_connect => life::connect(fd, b as _, c as c_uint),
            libc::SYS_shutdown => life::shutdown(fd, b as c_int),
            libc::SYS_getsockname => names::getsockname(fd, b as _, c as _),
            libc::SYS_getpeername => names::getpeername(fd, b as _, c as _),
            libc::SYS_getsockopt => {
                names::getsockopt(fd, b as c_int, c as c_int, d as *mut c_void, e as _)
            }
            libc::SYS_setsockopt => {
                names::setsockopt(fd, b as c_int, c as c_int, d as *const c_void, e as c_uint)
            }
            libc::SYS_recvmmsg => messages::recvmmsg(fd, b as _, c as c_uint, d as c_int, e as _),
            libc::SYS_sendmmsg => messages::sendmmsg(fd, b as _, c as c_uint, d as c_int),
            libc::SYS_close => numbers::close(fd),
            libc::SYS_close_range => numbers::close_range(a as c_uint, b as c_uint, c as c_int),
            libc::SYS_dup => numbers::dup(fd),
            libc::SYS_dup3 => numbers::dup3(fd, b as c_int, c as c_int),
            libc::SYS_fcntl => numbers::fcntl(fd, b as c_int, c as c_ulong),
            libc::SYS_epoll_create1 => epolls::epoll_create1(fd),
            libc::SYS_epoll_ctl => epolls::epoll_ctl(fd, b as c_int, c as c_int, d as _),
            libc::SYS_epoll_pwait => {
                epolls::epoll_pwait(fd, b as _, c as c_int, d as c_int, e as _)
            }
            libc::SYS_epoll_pwait2 => epolls::epoll_pwait2(fd, b as _, c as c_int, d as _, e as _),
            libc::SYS_ppoll => waits::ppoll(a as _, b as _, c as _, d as _),
            _ => return by_name_of_old(number, [a, b, c, d, e]),
        }
    };
    Some(done.into())
}

/// Those that newer architectures do without.
///
/// # Safety
///
/// As the call's own.
#[cfg(target_arch = "x86_64")]
unsafe fn by_name_of_old(number: c_long, [a, b, c, d, e]: [usize; 5]) -> Option<c_long> {
    let fd = a as c_int;
    // SAFETY: the program's promise: the arguments are what the call of this number takes.
    let done = unsafe {
        match number {
            libc::SYS_poll => waits::poll(a as _, b as _, c as c_int),
            libc::SYS_select => waits::select(fd, b as _, c as _, d as _, e as _),
            libc::SYS_epoll_create => epolls::epoll_create(fd),
            libc::SYS_epoll_wait => epolls::epoll_wait(fd, b as _, c as c_int, d as c_int),
            libc::SYS_dup2 => numbers::dup2(fd, b as c_int),
            _ => return None,
        }
    };
    Some(done.into())
}

/// Those that newer architectures do without: there are none here.
///
/// # Safety
///
/// None is needed.
#[cfg(not(target_arch = "x86_64"))]
unsafe fn by_name_of_old(_: c_long, _: [usize; 5]) -> Option<c_long> {
    None
}
