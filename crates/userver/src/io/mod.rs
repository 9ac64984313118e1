//! The back-ends: siblings of one shape.
//!
//! Each has
//! - a [`Store`](crate::cache::Store), which keeps files in the form that it sends best, and
//! - a function `run(birth, …)`, which is the worker's thread: it receives bytes, hands them to [`Site::serve`](crate::site::Site::serve),
//!   and sends the plan that comes back.
//!
//! | back-end | receives | sends | files |
//! |---|---|---|---|
//! | [`epoll`] | edge-triggered epoll, `recv` | `send`, `sendmsg` | heap: head and content together |
//! | [`sendfile`] | the same loop | `send` with `MSG_MORE`, then `sendfile` | open files |
//! | [`io_uring`] | multishot accept and receive into provided buffers | one `send` each | memory that the kernel shares while it sends: head and content together |
//! | [`sidecore`] | received events of the engine | one extent each | a registered region: head and content together |

pub mod epoll;
pub(crate) mod idle;
pub mod io_uring;
pub(crate) mod listen;
pub(crate) mod readiness;
pub mod sendfile;
pub mod sidecore;
pub(crate) mod slab;
pub(crate) mod transmit;
