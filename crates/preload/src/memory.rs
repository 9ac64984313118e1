//! The program's memory, of which only the program says that it is there. What is small is copied by the system, which tells a bad address
//! instead of faulting (EFAULT), unless it lies on the stack of the thread that calls, which is there: most arguments do, and the copy takes
//! two system calls. Buffers of reads and writes are used as they are: for them only what can never be memory is refused.

use std::cell::Cell;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicBool, Ordering};

use libc::{c_long, c_void, iovec};
use rustix::io::Errno;

use crate::guard::Stay;
use crate::sys;

/// No program has memory below this: the system maps nothing there (vm.mmap_min_addr).
const LOWEST: usize = 4096;
/// … nor from here on, which is the system's half.
const HIGHEST: usize = 1 << 47;

/// The system refuses such copies (a container's filter): addresses are believed.
static REFUSED: AtomicBool = AtomicBool::new(false);

/// Whether a buffer may be memory. One of no bytes may be anywhere.
pub(crate) fn may_be(at: *const c_void, len: usize) -> Result<(), Errno> {
    let at = at as usize;
    let ends = at.checked_add(len);
    match len {
        0 => Ok(()),
        _ if at >= LOWEST && ends.is_some_and(|end| end <= HIGHEST) => Ok(()),
        _ => Err(Errno::FAULT),
    }
}

thread_local! {
    /// This thread's stack, from its lowest address to its end; zeros: not asked for yet.
    static STACK: Cell<(usize, usize)> = const { Cell::new((0, 0)) };
}

/// Whether so many bytes lie on the stack of the calling thread, in the part that its callers use: those pages are there, to be read and
/// written. False on a stack that is not the thread's own (a signal handler's, a coroutine's).
#[inline(never)]
fn is_on_stack(at: *const c_void, len: usize) -> bool {
    let frame = 0u8;
    // Below the frames of all callers.
    let here = (&raw const frame).addr();
    let (lowest, end) = match STACK.try_with(Cell::get) {
        Ok((0, 0)) => learn_stack(),
        Ok(known) => known,
        // The thread is ending.
        Err(_) => return false,
    };
    let at = at.addr();
    lowest <= here && here < at && at.checked_add(len).is_some_and(|to| to <= end)
}

#[cold]
fn learn_stack() -> (usize, usize) {
    // It reads a file for the first thread.
    let _stay = Stay::begin();
    let errno = sys::errno();
    // Without an answer nothing is on it.
    let stack = sys::own_stack().unwrap_or((usize::MAX, 0));
    sys::set_errno(errno);
    let _ = STACK.try_with(|place| place.set(stack));
    stack
}

/// One copy by the system, between two places of this process.
fn copy(call: c_long, ours: *mut c_void, theirs: *mut c_void, len: usize) -> Result<(), Errno> {
    let local = iovec {
        iov_base: ours,
        iov_len: len,
    };
    let remote = iovec {
        iov_base: theirs,
        iov_len: len,
    };
    // SAFETY: `local` is the caller's own memory of this length; the system looks at `remote` and tells what is not there.
    let done = unsafe {
        let pid = libc::syscall(libc::SYS_getpid);
        libc::syscall(
            call,
            pid,
            &raw const local,
            1usize,
            &raw const remote,
            1usize,
            0usize,
        )
    };
    if done == len as c_long {
        return Ok(());
    }
    let error = crate::sys::errno();
    if done < 0 && error != libc::EFAULT {
        REFUSED.store(true, Ordering::Relaxed);
        return Err(Errno::from_raw_os_error(error));
    }
    Err(Errno::FAULT)
}

/// Fills `out` from the program's memory.
///
/// # Safety
///
/// Where the system refuses such copies, there must be so many bytes.
pub(crate) unsafe fn read(from: *const c_void, out: &mut [u8]) -> Result<(), Errno> {
    may_be(from, out.len())?;
    if out.is_empty() {
        return Ok(());
    }
    if !is_on_stack(from, out.len()) && !REFUSED.load(Ordering::Relaxed) {
        let ours = out.as_mut_ptr().cast();
        match copy(libc::SYS_process_vm_readv, ours, from.cast_mut(), out.len()) {
            Ok(()) => return Ok(()),
            Err(Errno::FAULT) => return Err(Errno::FAULT),
            Err(_) => {}
        }
    }
    // SAFETY: on this thread's stack, which is there; else the caller's promise. A program that shares its argument with other threads while it
    // calls has a race of its own.
    unsafe { std::ptr::copy_nonoverlapping(from.cast::<u8>(), out.as_mut_ptr(), out.len()) };
    Ok(())
}

/// Writes bytes to the program's memory.
///
/// # Safety
///
/// Where the system refuses such copies, there must be room for so many bytes.
pub(crate) unsafe fn write(to: *mut c_void, bytes: &[u8]) -> Result<(), Errno> {
    may_be(to, bytes.len())?;
    if bytes.is_empty() {
        return Ok(());
    }
    if !is_on_stack(to, bytes.len()) && !REFUSED.load(Ordering::Relaxed) {
        let ours = bytes.as_ptr().cast_mut().cast();
        match copy(libc::SYS_process_vm_writev, ours, to, bytes.len()) {
            Ok(()) => return Ok(()),
            Err(Errno::FAULT) => return Err(Errno::FAULT),
            Err(_) => {}
        }
    }
    // SAFETY: as above.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to.cast::<u8>(), bytes.len()) };
    Ok(())
}

/// A plain value: every pattern of bytes is one.
///
/// # Safety
///
/// As [`read`]; and `T` is made of integers and pointers only.
pub(crate) unsafe fn value<T: Copy>(from: *const T) -> Result<T, Errno> {
    let mut value = MaybeUninit::<T>::zeroed();
    // SAFETY: the value's own bytes, which were set to zero.
    let bytes =
        unsafe { std::slice::from_raw_parts_mut(value.as_mut_ptr().cast::<u8>(), size_of::<T>()) };
    // SAFETY: the caller's promise.
    unsafe { read(from.cast(), bytes)? };
    // SAFETY: the caller's promise: any bytes will do.
    Ok(unsafe { value.assume_init() })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether a word of the caller's is on the stack of the thread that runs this.
    fn is_here(word: &u64) -> bool {
        is_on_stack((&raw const *word).cast(), 8)
    }

    #[test]
    fn only_what_callers_have_on_this_threads_stack_needs_no_look() {
        let (word, heap) = (7u64, Box::new(7u64));
        assert!(is_here(&word));
        assert!(!is_here(&heap));
        let (lowest, end) = STACK.get();
        assert!(lowest < end);
        let at = |address: usize| std::ptr::without_provenance::<c_void>(address);
        assert!(!is_on_stack(at(end - 4), 8), "it goes over the end");
        assert!(!is_on_stack(at(end - 4), usize::MAX));
        assert!(!is_on_stack(at(lowest), 8), "nobody uses that");
        std::thread::scope(|scope| {
            let other = scope.spawn(|| {
                let own = 8u64;
                (is_here(&word), is_here(&own))
            });
            assert_eq!(other.join().unwrap(), (false, true));
        });
        assert!(is_here(&word));
    }

    #[test]
    fn words_on_the_stack_are_copied_both_ways() {
        let mut word = 7u64;
        // SAFETY: a word of this thread's.
        unsafe {
            assert_eq!(write((&raw mut word).cast(), &9u64.to_ne_bytes()), Ok(()));
            assert_eq!(value(&raw const word), Ok(9));
        }
        assert_eq!(word, 9);
    }

    #[test]
    fn bad_addresses_are_told() {
        assert_eq!(may_be(std::ptr::null(), 0), Ok(()));
        assert_eq!(may_be(std::ptr::null(), 1), Err(Errno::FAULT));
        assert_eq!(may_be(usize::MAX as *const c_void, 8), Err(Errno::FAULT));
        assert_eq!(may_be((HIGHEST - 4) as *const c_void, 8), Err(Errno::FAULT));
        let word = 7u64;
        // SAFETY: a word of this thread's.
        assert_eq!(unsafe { value(&raw const word) }, Ok(7));
        let map = |protection| {
            // SAFETY: a fresh page, which nobody else uses.
            unsafe {
                let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
                libc::mmap(std::ptr::null_mut(), 4096, protection, flags, -1, 0)
            }
        };
        let page = map(libc::PROT_NONE);
        // SAFETY: the page exists, and the system tells that it cannot be used.
        unsafe {
            assert_eq!(read(page, &mut [0; 4]), Err(Errno::FAULT));
            assert_eq!(write(page, &[0; 4]), Err(Errno::FAULT));
        }
        let page = map(libc::PROT_READ);
        // SAFETY: as above.
        unsafe {
            assert_eq!(value(page.cast::<u32>()), Ok(0));
            assert_eq!(write(page, &[0; 4]), Err(Errno::FAULT));
        }
    }
}
