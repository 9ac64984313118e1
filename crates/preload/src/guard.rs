//! Who is calling: the program, or this library itself.
//!
//! The library's own code, and that of `std` within it, calls `read`, `close` and the like, and its symbols are ours. While a thread is
//! inside, such calls go straight to the system.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

use rustix::io::Errno;

use crate::{log, sys};

thread_local! {
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// Whether this thread is inside the library.
#[inline]
pub(crate) fn is_inside() -> bool {
    INSIDE.with(Cell::get)
}

/// A thread's stay inside.
pub(crate) struct Stay(bool);

impl Stay {
    pub(crate) fn begin() -> Self {
        Self(INSIDE.with(|inside| inside.replace(true)))
    }
}

impl Drop for Stay {
    fn drop(&mut self) {
        INSIDE.with(|inside| inside.set(self.0));
    }
}

/// Runs library code for the program, and turns what it gives into what C expects: -1 and errno for an error. A panic is EIO.
pub(crate) fn answer(run: impl FnOnce() -> Result<i64, Errno>) -> i64 {
    let _stay = Stay::begin();
    let saved = sys::errno();
    match catch_unwind(AssertUnwindSafe(run)) {
        Ok(Ok(value)) => {
            // A call that succeeds leaves errno alone.
            sys::set_errno(saved);
            value
        }
        Ok(Err(error)) => {
            sys::set_errno(error.raw_os_error());
            -1
        }
        Err(_) => {
            log::error("a fault in the library: the call fails with EIO");
            sys::set_errno(Errno::IO.raw_os_error());
            -1
        }
    }
}

/// Runs library code that cannot fail. A panic gives `otherwise`.
pub(crate) fn within<T>(otherwise: T, run: impl FnOnce() -> T) -> T {
    let _stay = Stay::begin();
    let saved = sys::errno();
    let done = catch_unwind(AssertUnwindSafe(run));
    sys::set_errno(saved);
    done.unwrap_or_else(|_| {
        log::error("a fault in the library");
        otherwise
    })
}
