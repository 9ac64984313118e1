//! The program's signal handlers, and when they run: never while their thread is inside the library.
//!
//! A handler may use the very socket at which its thread is at work, and may leave by `longjmp`: neither is possible with locks held. So the
//! system is told of our handler instead of the program's:
//!
//! ```text
//!   a signal comes     the thread is inside?  no:  the program's handler
//!                                             yes: the signal is queued to the thread once more, as it came, and blocked;
//!                                                  a sleep of the library's is given up
//!   the thread leaves  the signal is unblocked: the system delivers it, by all its rules (mask, stack, order)
//! ```
//!
//! So a blocked call ends first, and its handlers run where nothing is held. Then it is begun again, or says EINTR, as signal(7) has it. Those
//! of faults (SIGSEGV and its like) are the program's own, and are not touched. Whoever sets handlers without libc has them called as they come.

use std::cell::Cell;
use std::mem::transmute;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};

use libc::{c_int, c_void, sighandler_t, siginfo_t};
use sidecore_sys::interruptible;

use crate::guard::{is_inside, puts_off};
use crate::interrupt::{self, NEVER, change_mask};
use crate::process::existing;
use crate::{memory, real, sys};

/// Signals have the numbers from 1 to this.
const LAST: c_int = 64;

/// What the program has set for a signal. What is left of its action is the system's to know.
struct Slot {
    handler: AtomicUsize,
    /// [`OURS`] of its flags.
    flags: AtomicU32,
}

/// Flags that the system does not get as they are.
const OURS: c_int = libc::SA_SIGINFO | libc::SA_RESETHAND;

static SLOTS: [Slot; LAST as usize + 1] = [const {
    Slot {
        handler: AtomicUsize::new(libc::SIG_DFL),
        flags: AtomicU32::new(0),
    }
}; LAST as usize + 1];

impl Slot {
    fn get(&self) -> (usize, c_int) {
        let flags = self.flags.load(Ordering::Acquire) as c_int;
        (self.handler.load(Ordering::Acquire), flags)
    }

    fn set(&self, (handler, flags): (usize, c_int)) {
        self.flags.store((flags & OURS) as u32, Ordering::Release);
        self.handler.store(handler, Ordering::Release);
    }
}

thread_local! {
    /// Of the signals that were put off, those that this library has blocked: the others the program had blocked itself.
    static BLOCKED: Cell<u64> = const { Cell::new(0) };
    /// How often signals were put off since they were delivered last.
    static TIMES: Cell<u32> = const { Cell::new(0) };
    /// Whether the call that sleeps may be begun again after a handler.
    static RESTARTS: Cell<bool> = const { Cell::new(false) };
}

/// A signal that was put off is blocked, so that many times in one call mean that what a handler asks for is not done: under valgrind it is
/// not. There handlers run as they come.
const TOO_OFTEN: u32 = 1000;

/// That was found.
static IGNORED: AtomicBool = AtomicBool::new(false);

/// Whether the call that is about to sleep goes on after handlers with SA_RESTART.
pub(crate) fn may_restart(may: bool) {
    RESTARTS.with(|restarts| restarts.set(may));
}

/// The slot of a signal whose handlers can be put off.
fn slot(signal: c_int) -> Option<&'static Slot> {
    let fits = (1..=LAST).contains(&signal) && !NEVER.contains(&signal);
    fits.then(|| &SLOTS[signal as usize])
}

fn bit(signal: c_int) -> u64 {
    1 << (signal - 1)
}

fn ours() -> usize {
    handle as *const () as usize
}

fn is_function(handler: usize) -> bool {
    !matches!(handler, libc::SIG_DFL | libc::SIG_IGN)
}

/// Runs the handlers that were put off. Whether they let a blocked call go on.
#[cold]
pub(crate) fn deliver() -> bool {
    let signals = interruptible::set_put_off(0);
    let blocked = BLOCKED.with(|cell| cell.replace(0));
    TIMES.with(|times| times.set(0));
    let restarts = RESTARTS.with(Cell::get);
    let ends = |signal: c_int| signals & bit(signal) != 0 && interrupt::ends_calls(signal);
    let restarts = restarts && !(1..=LAST).any(ends);
    let errno = sys::errno();
    // They run within this call. One may not come back, by longjmp: nothing is held here.
    change_mask(libc::SIG_UNBLOCK, signals);
    if signals & !blocked != 0 {
        // Let through by the mask of a poll, which is over.
        change_mask(libc::SIG_BLOCK, signals & !blocked);
    }
    sys::set_errno(errno);
    restarts
}

/// Puts a signal off; false if it cannot be.
///
/// # Safety
///
/// The arguments are what the system gave to a handler.
unsafe fn put_off(signal: c_int, info: *mut siginfo_t, context: *mut c_void) -> bool {
    let times = TIMES.with(|times| times.replace(times.get().saturating_add(1)));
    if times >= TOO_OFTEN {
        IGNORED.store(true, Ordering::Relaxed);
    }
    if IGNORED.load(Ordering::Relaxed) {
        return false;
    }
    let errno = sys::errno();
    // SAFETY: the caller's promise; the system copies the info.
    let queued = unsafe {
        let pid = libc::syscall(libc::SYS_getpid);
        let thread = libc::syscall(libc::SYS_gettid);
        let call = libc::SYS_rt_tgsigqueueinfo;
        // There may be as many as may be queued: then it goes without what came with it.
        libc::syscall(call, pid, thread, signal, info) == 0
            || libc::syscall(libc::SYS_tgkill, pid, thread, signal) == 0
    };
    sys::set_errno(errno);
    if !queued {
        return false;
    }
    // SAFETY: the caller's promise. The system's set has one word; libc's type is longer.
    let mask =
        unsafe { &mut *(&raw mut (*context.cast::<libc::ucontext_t>()).uc_sigmask).cast::<u64>() };
    if *mask & bit(signal) == 0 {
        *mask |= bit(signal);
        BLOCKED.with(|blocked| blocked.set(blocked.get() | bit(signal)));
    }
    interruptible::set_put_off(interruptible::put_off() | bit(signal));
    // SAFETY: the caller's promise.
    unsafe { interruptible::give_up(context) };
    true
}

thread_local! {
    /// Handlers of the program's that this thread is in, and those that it left by a jump.
    static HANDLING: Cell<u32> = const { Cell::new(0) };
}

/// Whether this thread may be in a handler of the program's: then it may have been in the midst of anything, such as `malloc`.
pub(crate) fn is_handling() -> bool {
    HANDLING.with(Cell::get) > 0
}

/// What the system calls in place of the program's handlers.
extern "C-unwind" fn handle(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    // SAFETY: the system's own arguments.
    if puts_off() && unsafe { put_off(signal, info, context) } {
        return;
    }
    let Some(slot) = slot(signal) else { return };
    let (handler, flags) = slot.get();
    if !is_function(handler) {
        return;
    }
    if flags & libc::SA_RESETHAND != 0 {
        // SAFETY: a set of zeros is one, and the action lives over the call.
        unsafe {
            let default: libc::sigaction = std::mem::zeroed();
            real::sigaction(signal, &raw const default, std::ptr::null_mut());
        }
    }
    // SAFETY: what the program gave as a handler. One that takes the number only leaves the rest alone.
    unsafe {
        let handler: unsafe extern "C-unwind" fn(c_int, *mut siginfo_t, *mut c_void) =
            transmute(handler);
        HANDLING.with(|handling| handling.set(handling.get().saturating_add(1)));
        handler(signal, info, context);
        HANDLING.with(|handling| handling.set(handling.get().saturating_sub(1)));
    }
}

/// Whether the program's handler is not to be replaced: the library's own calls, and a child of vfork's, which has our memory and handlers of
/// its own.
fn passes() -> bool {
    let visitor = || existing().is_some_and(|process| std::process::id() != process.pid);
    is_inside() || visitor()
}

/// sigaction(2).
///
/// # Safety
///
/// As libc's.
#[unsafe(no_mangle)]
#[allow(unreachable_pub)]
pub unsafe extern "C" fn sigaction(
    signal: c_int,
    new: *const libc::sigaction,
    old: *mut libc::sigaction,
) -> c_int {
    let Some(slot) = slot(signal).filter(|_| !passes()) else {
        // SAFETY: as libc's.
        return unsafe { real::sigaction(signal, new, old) };
    };
    let before = slot.get();
    let mut action = None;
    if !new.is_null() {
        // SAFETY: the program's promise.
        let Ok(mut wanted) = (unsafe { memory::value(new) }) else {
            sys::set_errno(libc::EFAULT);
            return -1;
        };
        if is_function(wanted.sa_sigaction) {
            slot.set((wanted.sa_sigaction, wanted.sa_flags));
            wanted.sa_sigaction = ours();
            wanted.sa_flags = wanted.sa_flags & !OURS | libc::SA_SIGINFO;
        }
        action = Some(wanted);
    }
    let given = action.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: an action of zeros is one.
    let mut was: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: both live over the call.
    let done = unsafe { real::sigaction(signal, given, &raw mut was) };
    if done != 0 {
        slot.set(before);
        return done;
    }
    if was.sa_sigaction == ours() {
        was.sa_sigaction = before.0;
        was.sa_flags = was.sa_flags & !OURS | before.1;
    }
    if old.is_null() {
        return 0;
    }
    // SAFETY: the bytes of an action; and the program's promise.
    let told = unsafe {
        let bytes = std::slice::from_raw_parts((&raw const was).cast::<u8>(), size_of_val(&was));
        memory::write(old.cast(), bytes)
    };
    if told.is_err() {
        sys::set_errno(libc::EFAULT);
        return -1;
    }
    0
}

/// Sets a handler by one of libc's older functions, which know their own rules.
fn set_by(
    signal: c_int,
    handler: sighandler_t,
    flags: c_int,
    real: impl Fn(c_int, sighandler_t) -> sighandler_t,
) -> sighandler_t {
    let Some(slot) = slot(signal).filter(|_| !passes()) else {
        return real(signal, handler);
    };
    // sigset's SIG_HOLD is neither.
    const SIG_HOLD: sighandler_t = 2;
    let replaces = is_function(handler) && handler != SIG_HOLD && handler != libc::SIG_ERR;
    let before = slot.get();
    if replaces {
        slot.set((handler, flags));
    }
    let was = real(signal, if replaces { ours() } else { handler });
    if was == libc::SIG_ERR {
        slot.set(before);
        return was;
    }
    if replaces {
        // SAFETY: an action of zeros is one, and it lives over both calls.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            real::sigaction(signal, std::ptr::null(), &raw mut action);
            action.sa_flags = action.sa_flags & !OURS | libc::SA_SIGINFO;
            real::sigaction(signal, &raw const action, std::ptr::null_mut());
        }
    }
    if was == ours() { before.0 } else { was }
}

macro_rules! setters {
    ($($name:ident: $flags:expr, $real:ident;)*) => {$(
        #[doc = concat!(stringify!($name), "(3).")]
        ///
        /// # Safety
        ///
        /// As libc's.
        #[unsafe(no_mangle)]
        #[allow(unreachable_pub)]
        pub unsafe extern "C" fn $name(signal: c_int, handler: sighandler_t) -> sighandler_t {
            // SAFETY: as libc's.
            set_by(signal, handler, $flags, |signal, handler| unsafe { real::$real(signal, handler) })
        }
    )*};
}

setters! {
    signal: 0, signal;
    bsd_signal: 0, signal;
    ssignal: 0, signal;
    sysv_signal: libc::SA_RESETHAND, __sysv_signal;
    __sysv_signal: libc::SA_RESETHAND, __sysv_signal;
    sigset: 0, sigset;
}
