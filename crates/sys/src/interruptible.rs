//! Sleeps that a signal handler can end without a race.
//!
//! A library that puts a program's signals off while a thread is within it must not let the thread sleep with one put off. A look before the
//! sleep is not enough: the signal may come between the look and the sleep. So the look and the call are one piece of code of known bounds,
//! and a handler that finds its thread in there sends it to where the call is given up ([`give_up`]).
//!
//! ```text
//!   begin:  is anything put off? ------------> give up: EINTR
//!           the arguments                        ^
//!           the call (also when it is restarted) | by the handler, if it came up to here
//!   end:    the answer
//! ```

use std::cell::Cell;
use std::io;

use libc::{c_long, c_void};

thread_local! {
    /// Signals that this thread has put off: signal 1 is bit 0.
    static PUT_OFF: Cell<u64> = const { Cell::new(0) };
}

/// The signals that this thread has put off: signal 1 is bit 0. Reads one word of the thread's.
#[inline]
pub fn put_off() -> u64 {
    PUT_OFF.with(Cell::get)
}

/// Changes them; gives those before. For signal handlers, too.
#[inline]
pub fn set_put_off(signals: u64) -> u64 {
    PUT_OFF.with(|cell| cell.replace(signals))
}

#[cfg(target_arch = "x86_64")]
std::arch::global_asm!(
    ".pushsection .text.sidecore_interruptible,\"ax\",@progbits",
    ".hidden sidecore_sleep_begin",
    ".globl sidecore_sleep_begin",
    ".hidden sidecore_sleep_end",
    ".globl sidecore_sleep_end",
    ".hidden sidecore_sleep_give_up",
    ".globl sidecore_sleep_give_up",
    ".type sidecore_sleep_begin,@function",
    "sidecore_sleep_begin:",
    ".cfi_startproc",
    "cmp qword ptr [rdi], 0",
    "jne sidecore_sleep_give_up",
    "mov rax, [rsi]",
    "mov rdi, [rsi + 8]",
    "mov rdx, [rsi + 24]",
    "mov r10, [rsi + 32]",
    "mov r8, [rsi + 40]",
    "mov r9, [rsi + 48]",
    "mov rsi, [rsi + 16]",
    "syscall",
    "sidecore_sleep_end:",
    "ret",
    "sidecore_sleep_give_up:",
    "mov rax, -4",
    "ret",
    ".cfi_endproc",
    ".size sidecore_sleep_begin, . - sidecore_sleep_begin",
    ".popsection",
);

#[cfg(target_arch = "aarch64")]
std::arch::global_asm!(
    ".pushsection .text.sidecore_interruptible,\"ax\",@progbits",
    ".hidden sidecore_sleep_begin",
    ".globl sidecore_sleep_begin",
    ".hidden sidecore_sleep_end",
    ".globl sidecore_sleep_end",
    ".hidden sidecore_sleep_give_up",
    ".globl sidecore_sleep_give_up",
    ".type sidecore_sleep_begin,@function",
    "sidecore_sleep_begin:",
    ".cfi_startproc",
    "ldr x9, [x0]",
    "cbnz x9, sidecore_sleep_give_up",
    "mov x9, x1",
    "ldr x8, [x9]",
    "ldp x0, x1, [x9, #8]",
    "ldp x2, x3, [x9, #24]",
    "ldp x4, x5, [x9, #40]",
    "svc #0",
    "sidecore_sleep_end:",
    "ret",
    "sidecore_sleep_give_up:",
    "mov x0, #-4",
    "ret",
    ".cfi_endproc",
    ".size sidecore_sleep_begin, . - sidecore_sleep_begin",
    ".popsection",
);

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
// SAFETY: the code above: a function of the C convention, and two places in it.
unsafe extern "C" {
    fn sidecore_sleep_begin(put_off: *const u64, call: *const [usize; 7]) -> isize;
    fn sidecore_sleep_end();
    fn sidecore_sleep_give_up();
}

/// A call of the system that is not begun, or given up, when a signal is put off: `Interrupted`. A handler that runs meanwhile and does not put
/// its signal off ends the call or not, as the system has it.
///
/// # Safety
///
/// As the call's own.
pub unsafe fn call(number: c_long, arguments: [usize; 6]) -> io::Result<usize> {
    let [a, b, c, d, e, f] = arguments;
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    let done = {
        let call = [number as usize, a, b, c, d, e, f];
        // SAFETY: both live over the call; the rest is the caller's promise.
        PUT_OFF.with(|put_off| unsafe { sidecore_sleep_begin(put_off.as_ptr(), &raw const call) })
    };
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let done = if put_off() != 0 {
        -(libc::EINTR as isize)
    } else {
        // SAFETY: the caller's promise.
        let done = unsafe { libc::syscall(number, a, b, c, d, e, f) } as isize;
        match done {
            -1 => {
                -(io::Error::last_os_error()
                    .raw_os_error()
                    .unwrap_or(libc::EIO) as isize)
            }
            done => done,
        }
    };
    match done {
        -4095..=-1 => Err(io::Error::from_raw_os_error(-done as i32)),
        done => Ok(done as usize),
    }
}

/// For signal handlers that put their signal off: if the thread was about to sleep by [`call`], or is to be sent to sleep again, the call is
/// given up when the handler returns.
///
/// # Safety
///
/// `context` is what the system gave to the handler (`ucontext_t`).
pub unsafe fn give_up(context: *mut c_void) {
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    {
        let place =
            sidecore_sleep_begin as *const () as usize..sidecore_sleep_end as *const () as usize;
        // SAFETY: the caller's promise.
        let counter = unsafe { counter(context) };
        if place.contains(&(*counter as usize)) {
            *counter = sidecore_sleep_give_up as *const () as usize as _;
        }
    }
    let _ = context;
}

/// Where the thread goes on.
///
/// # Safety
///
/// `context` is what the system gave to a signal handler, which has not returned.
#[cfg(target_arch = "x86_64")]
unsafe fn counter<'a>(context: *mut c_void) -> &'a mut i64 {
    let context = context.cast::<libc::ucontext_t>();
    // SAFETY: the caller's promise.
    unsafe { &mut (*context).uc_mcontext.gregs[libc::REG_RIP as usize] }
}

/// Where the thread goes on.
///
/// # Safety
///
/// As above.
#[cfg(target_arch = "aarch64")]
unsafe fn counter<'a>(context: *mut c_void) -> &'a mut u64 {
    let context = context.cast::<libc::ucontext_t>();
    // SAFETY: the caller's promise.
    unsafe { &mut (*context).uc_mcontext.pc }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::{Duration, Instant};

    extern "C" fn puts_off(signal: i32, _: *mut libc::siginfo_t, context: *mut c_void) {
        set_put_off(put_off() | 1 << (signal - 1));
        // SAFETY: what the system gave.
        unsafe { give_up(context) };
    }

    fn sleep() -> io::Result<usize> {
        let time = libc::timespec {
            tv_sec: 20,
            tv_nsec: 0,
        };
        // SAFETY: the time lives over the call.
        unsafe { call(libc::SYS_ppoll, [0, 0, &raw const time as usize, 0, 8, 0]) }
    }

    /// A futex that nobody wakes: the system goes on with it after a handler with SA_RESTART.
    fn restarted_sleep() -> io::Result<usize> {
        let word = 0u32;
        // SAFETY: the word lives over the call.
        unsafe { call(libc::SYS_futex, [&raw const word as usize, 0, 0, 0, 0, 0]) }
    }

    #[test]
    fn a_signal_that_is_put_off_ends_a_sleep_whenever_it_comes() {
        // SAFETY: a handler that does what handlers may, for a signal that this test alone uses.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = puts_off as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
            libc::sigaction(libc::SIGUSR2, &raw const action, std::ptr::null_mut());
        }
        // SAFETY: no memory is passed.
        let sleeper = unsafe { libc::pthread_self() };
        for sleeps in [sleep, restarted_sleep] {
            let done = AtomicBool::new(false);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    while !done.load(Ordering::Acquire) {
                        // SAFETY: the thread lives as long as the scope.
                        unsafe { libc::pthread_kill(sleeper, libc::SIGUSR2) };
                        std::thread::sleep(Duration::from_micros(50));
                    }
                });
                let begun = Instant::now();
                for _ in 0..2000 {
                    let error = sleeps().unwrap_err();
                    assert_eq!(error.kind(), io::ErrorKind::Interrupted);
                    assert_ne!(set_put_off(0), 0);
                }
                assert!(begun.elapsed() < Duration::from_secs(15), "none slept on");
                done.store(true, Ordering::Release);
            });
            set_put_off(0);
        }
        set_put_off(1);
        assert_eq!(sleep().unwrap_err().kind(), io::ErrorKind::Interrupted);
        set_put_off(0);
    }
}
