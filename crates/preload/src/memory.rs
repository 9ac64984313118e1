//! The program's memory, of which only the program says that it is there. What is small is copied by the system, which tells a bad address
//! instead of faulting (EFAULT). Buffers of reads and writes are used as they are: for them only what can never be memory is refused.

use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicBool, Ordering};

use libc::{c_long, c_void, iovec};
use rustix::io::Errno;

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
    if !REFUSED.load(Ordering::Relaxed) {
        let ours = out.as_mut_ptr().cast();
        match copy(libc::SYS_process_vm_readv, ours, from.cast_mut(), out.len()) {
            Ok(()) => return Ok(()),
            Err(Errno::FAULT) => return Err(Errno::FAULT),
            Err(_) => {}
        }
    }
    // SAFETY: the caller's promise.
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
    if !REFUSED.load(Ordering::Relaxed) {
        let ours = bytes.as_ptr().cast_mut().cast();
        match copy(libc::SYS_process_vm_writev, ours, to, bytes.len()) {
            Ok(()) => return Ok(()),
            Err(Errno::FAULT) => return Err(Errno::FAULT),
            Err(_) => {}
        }
    }
    // SAFETY: the caller's promise.
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
