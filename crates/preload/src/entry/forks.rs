//! Forks that libc does not tell of: by `clone` and `_Fork`, and by their numbers. A child that has its memory for itself has what a child of
//! fork's has.

use libc::{c_int, c_long, c_void, pid_t};

use crate::guard::is_inside;
use crate::process::existing;
use crate::real::ChildFunction;
use crate::{fork, memory, real};

/// Whether such a child shares no memory with its parent. (A thread, and vfork's child, do.)
fn is_fork(flags: u64) -> bool {
    flags & (libc::CLONE_VM | libc::CLONE_THREAD) as u64 == 0
}

/// _Fork(3), which is fork(2) without the functions that libc calls around it.
///
/// # Safety
///
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn _Fork() -> pid_t {
    // SAFETY: as libc's.
    fork::untold(|| unsafe { real::_Fork() })
}

/// What the child is to run.
struct Begin {
    function: ChildFunction,
    argument: *mut c_void,
}

/// Runs in the child, on its own stack.
extern "C-unwind" fn begin(begin: *mut c_void) -> c_int {
    // SAFETY: `clone` below gave it, and its frame is in the child's memory as it was.
    let Begin { function, argument } = unsafe { begin.cast::<Begin>().read() };
    fork::child();
    let status = function(argument);
    // libc would end this thread alone, and the library may have another by now: that is to end, too, as the process is.
    // SAFETY: it does not return.
    unsafe { libc::_exit(status) }
}

/// clone(2), as libc has it.
///
/// # Safety
///
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn clone(
    function: Option<ChildFunction>,
    stack: *mut c_void,
    flags: c_int,
    argument: *mut c_void,
    parent: *mut pid_t,
    thread: *mut c_void,
    child: *mut pid_t,
) -> c_int {
    let Some(function) = function else {
        crate::sys::set_errno(libc::EINVAL);
        return -1;
    };
    let run = |function, argument| {
        // SAFETY: as libc's.
        unsafe { real::clone(function, stack, flags, argument, parent, thread, child) }
    };
    // With variables of its own, a thread's state is not what it was.
    let forks = is_fork(flags as u64) && flags & libc::CLONE_SETTLS == 0;
    if !forks || is_inside() || existing().is_none() {
        return run(function, argument);
    }
    let mut its = Begin { function, argument };
    fork::before();
    let made = run(begin, (&raw mut its).cast());
    fork::parent();
    made
}

/// A fork by its number; `None` for all other calls, which are to be made.
///
/// # Safety
///
/// As the call's own.
pub(super) unsafe fn by_number(
    number: c_long,
    [first, second, ..]: [usize; 6],
    make: impl FnOnce() -> isize,
) -> isize {
    let forks = match number {
        #[cfg(target_arch = "x86_64")]
        libc::SYS_fork => true,
        // With a stack of its own a child does not come back here.
        libc::SYS_clone => is_fork(first as u64) && second == 0,
        libc::SYS_clone3 => {
            // SAFETY: the program's promise.
            let known = unsafe { memory::value(first as *const [u64; 6]) };
            known.is_ok_and(|[flags, .., stack]| is_fork(flags) && stack == 0)
        }
        _ => false,
    };
    match forks {
        true => fork::untold(make),
        false => make(),
    }
}
