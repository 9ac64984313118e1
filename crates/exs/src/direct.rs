//! The preload library's ways, where it is in the process (`sidecore run`): sends from registered memory go to the engine as they are, without a
//! copy.

use std::mem::transmute;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::sync::{Arc, OnceLock};

use rustix::io::Errno;
use sidecore_abi::direct::{Done, NAME, Table, VERSION};

use crate::sys;

/// Who is told that a send is over: 0, or an errno. May be called by any thread, also within [`Direct::send`]; must not call back, and takes no
/// lock that is held around [`Direct::send`].
pub(crate) trait Receipt: Send + Sync {
    fn settle(&self, errno: i32);
}

/// What became of an attempt to send.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Sent {
    /// The receipt will be settled.
    Posted,
    /// Not a connection of the engine's: send it otherwise.
    Elsewhere,
    /// There is no room now: POLLOUT tells when there is.
    Full,
    /// It cannot be sent.
    Failed(Errno),
}

/// The preload library.
#[derive(Clone, Copy)]
pub(crate) struct Direct(&'static Table);

/// It, if it is there and as we know it.
pub(crate) fn get() -> Option<Direct> {
    static FOUND: OnceLock<Option<Direct>> = OnceLock::new();
    *FOUND.get_or_init(|| {
        let ask = sys::symbol(NAME);
        if ask.is_null() {
            return None;
        }
        // SAFETY: a symbol of this name is a function of this type, or belongs to nobody whom we know.
        let ask: extern "C" fn() -> *const Table = unsafe { transmute(ask) };
        // SAFETY: null, or a table that lives as long as its library, which is never unloaded.
        let table = unsafe { ask().as_ref() }?;
        (table.version == VERSION).then_some(Direct(table))
    })
}

/// What the preload library calls when a send is over.
extern "C" fn done(context: usize, errno: i32) {
    // SAFETY: made by `send` below, and given back once.
    let receipt = unsafe { Box::from_raw(context as *mut Arc<dyn Receipt>) };
    receipt.settle(errno);
}

impl Direct {
    /// A number for memory: from now on sends may name it. It is made known to the engine when the first does.
    pub(crate) fn lend(self, memory: &impl AsFd, len: usize) -> Option<u64> {
        let number = (self.0.lend)(memory.as_fd().as_raw_fd(), len as u64);
        (number != 0).then_some(number)
    }

    /// Takes it back. No send that names it may be under way.
    pub(crate) fn take_back(self, number: u64) {
        (self.0.take_back)(number);
    }

    /// Sends `len` bytes of lent memory from `offset` on. `more`: others follow at once.
    pub(crate) fn send(
        self,
        fd: RawFd,
        (number, offset, len): (u64, u64, u32),
        more: bool,
        receipt: Arc<dyn Receipt>,
    ) -> Sent {
        let context = Box::into_raw(Box::new(receipt)) as usize;
        let told: Done = done;
        let answer = (self.0.send)(fd, number, offset, len, i32::from(more), told, context);
        if answer == 0 {
            return Sent::Posted;
        }
        // SAFETY: it was made above, and the library has not kept it.
        drop(unsafe { Box::from_raw(context as *mut Arc<dyn Receipt>) });
        match answer {
            1 => Sent::Elsewhere,
            libc::EAGAIN => Sent::Full,
            errno => Sent::Failed(Errno::from_raw_os_error(errno)),
        }
    }
}
