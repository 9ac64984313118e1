//! How two libraries of one process meet: the preload library, which has a program's sockets on an engine, and `libexs`, whose operations use those
//! sockets' descriptors. Not in memory that is shared with anybody.
//!
//! `libexs` looks for the function [`NAME`] in the process, and asks it for the [`Table`].

use core::ffi::CStr;

/// Version of [`Table`]: another is not used.
pub const VERSION: u32 = 1;

/// The function that gives the table.
pub const NAME: &CStr = c"sidecore_direct";

/// Is told that a send is over: its context, and 0 or an errno. May be called by any thread, with none of the library's locks held.
pub type Done = extern "C" fn(context: usize, errno: i32);

/// What the preload library does for others. All functions may be called by any thread.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Table {
    /// [`VERSION`].
    pub version: u32,
    /// `(memfd, bytes)`: takes note of memory, a memfd whose size is sealed, which is kept open here; a number for it, 0 if that fails.
    pub lend: extern "C" fn(memory: i32, len: u64) -> u64,
    /// Forgets memory. No send that names it may be under way.
    pub take_back: extern "C" fn(number: u64),
    /// `(descriptor, memory, offset, bytes, more, done, context)`: sends bytes of lent memory over a connection, without copying. `more` is 1 if
    /// others follow at once. 0: it was posted, and `done` will be called once. 1: the descriptor is no connection of the engine's, or the engine
    /// cannot have this memory. EAGAIN: no room; poll tells when there is. Else an errno.
    pub send: extern "C" fn(
        fd: i32,
        number: u64,
        offset: u64,
        len: u32,
        more: i32,
        done: Done,
        context: usize,
    ) -> i32,
}
