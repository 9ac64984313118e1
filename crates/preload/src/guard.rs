//! Who is calling: the program, or this library itself; and where the program's signal handlers may run.
//!
//! The library's own code, and that of `std` within it, calls `read`, `close` and the like, and its symbols are ours. While a thread is
//! inside, such calls go straight to the system.
//!
//! A handler of the program's never runs while its thread is inside, or holds anything of ours on its way in or out (an [`Edge`]): it may use
//! the socket that the thread is at work on, or leave by `longjmp`. What comes meanwhile is put off ([`crate::signals`]).

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{Ordering, compiler_fence};

use rustix::io::Errno;
use sidecore_sys::interruptible::put_off;

use crate::{log, signals, sys};

/// Where a thread is. Signal handlers of the same thread look at it: the compiler must not move what it guards over a change.
struct Here {
    inside: Cell<bool>,
    edges: Cell<u32>,
}

thread_local! {
    static HERE: Here = const {
        Here {
            inside: Cell::new(false),
            edges: Cell::new(0),
        }
    };
}

/// Whether this thread is inside the library.
#[inline]
pub(crate) fn is_inside() -> bool {
    HERE.with(|here| here.inside.get())
}

/// Whether the program's handlers must not run on this thread now.
pub(crate) fn puts_off() -> bool {
    HERE.with(|here| here.inside.get() || here.edges.get() > 0)
}

/// A thread's stay inside. When the outermost ends, the handlers that were put off run, unless there is an [`Edge`] around it.
pub(crate) struct Stay(bool);

impl Stay {
    #[inline]
    pub(crate) fn begin() -> Self {
        let before = HERE.with(|here| here.inside.replace(true));
        compiler_fence(Ordering::SeqCst);
        Self(before)
    }
}

impl Drop for Stay {
    #[inline]
    fn drop(&mut self) {
        compiler_fence(Ordering::SeqCst);
        HERE.with(|here| here.inside.set(self.0));
        if put_off() != 0 && !puts_off() {
            signals::deliver();
        }
    }
}

/// From where one of our functions begins to hold something of the library's to where it holds nothing any more. It costs a few words of the
/// thread's own, no call and nothing atomic.
pub(crate) struct Edge(());

impl Edge {
    /// To be the first variable of its function, so that it is the last to be dropped.
    #[inline]
    pub(crate) fn begin() -> Self {
        HERE.with(|here| here.edges.set(here.edges.get() + 1));
        compiler_fence(Ordering::SeqCst);
        Self(())
    }

    /// Ends it. `None`: no handler was put off; else they have run, and this is whether they let blocked calls go on (SA_RESTART).
    #[inline]
    pub(crate) fn end(self) -> Option<bool> {
        std::mem::forget(self);
        Self::leave()
    }

    #[inline]
    fn leave() -> Option<bool> {
        compiler_fence(Ordering::SeqCst);
        HERE.with(|here| here.edges.set(here.edges.get() - 1));
        (put_off() != 0 && !puts_off()).then(signals::deliver)
    }
}

impl Drop for Edge {
    #[inline]
    fn drop(&mut self) {
        Self::leave();
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
