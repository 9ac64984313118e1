//! The RX side of a DTI: what has been stored for the application and what it has been told of.
//!
//! ```text
//!    stream offset:   returned        delivered           in order           (out of order)
//!                        |                |                  |
//!                        | application    |  ready pieces    |   gap   [piece]   gap  [piece]
//!                        | holds chunks   |  (queue was full |         `-- out_of_order --'
//!                        |                |   or no buffer)  |
//! ```

use crate::slab_list::List;

/// Bytes that lie in the receive pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Piece {
    /// Stream offset of the first byte.
    pub(crate) start: u64,
    /// Bytes.
    pub(crate) len: u32,
    /// Chunk; the piece holds one reference to it.
    pub(crate) chunk: u32,
    /// First byte in the pool.
    pub(crate) offset: u64,
}

/// A receive that the application posted.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PostedReceive {
    /// Region and offset of the buffer.
    pub(crate) region: u32,
    /// Whether it completes only when full.
    pub(crate) wait_all: bool,
    /// Queue for the completion.
    pub(crate) evq: u16,
    /// Offset of the buffer in the region.
    pub(crate) offset: u64,
    /// Size of the buffer.
    pub(crate) len: u32,
    /// Bytes that are in it.
    pub(crate) filled: u32,
    /// Stream offset of the first of them.
    pub(crate) start: u64,
    /// Cookie of the receive.
    pub(crate) cookie: u64,
}

/// Part of a chunk that is still free for the bytes that come next.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Fill {
    /// The chunk, if `room` is not 0.
    pub(crate) chunk: u32,
    /// First free byte in the pool.
    pub(crate) offset: u64,
    /// Free bytes.
    pub(crate) room: u32,
}

/// The receive side of one DTI.
#[derive(Debug, Default)]
pub(crate) struct ReceiveQueue {
    /// In order, not delivered: the event queue was full or only posted buffers take data.
    pub(crate) ready: List,
    /// Not in order yet, sorted by start; pieces may overlap.
    pub(crate) out_of_order: List,
    /// Posted receives.
    pub(crate) posted: List,
    /// Everything before this was delivered.
    pub(crate) delivered: u64,
    /// Where the peer's urgent data ends, as far as it has told; 0: it has not.
    pub(crate) urgent: u64,
    /// Everything before this is stored and in order.
    pub(crate) in_order: u64,
    /// Bytes that the application gave back (or that went into its own buffers).
    pub(crate) returned: u64,
    /// The receive limit that the stack was told last.
    pub(crate) limit: u64,
    /// Bytes of window beyond what was returned; 0: auto-tuned. Follows from the next two.
    pub(crate) window_option: u32,
    /// … as asked for by the application; 0: it did not.
    pub(crate) buffer_option: u32,
    /// Bytes of window at most; 0: no such limit. With it the window is not tuned: it costs nothing until it is used.
    pub(crate) window_clamp: u32,
    /// Where the next bytes may be appended.
    pub(crate) fill: Fill,
}

impl ReceiveQueue {
    /// Sets the size of the window (SO_RCVBUF), and the most that it may be (TCP_WINDOW_CLAMP); 0: none of the two is set.
    pub(crate) fn set_window(&mut self, buffer: u32, clamp: u32) {
        self.buffer_option = buffer;
        self.window_clamp = clamp;
        self.window_option = match (buffer, clamp) {
            (0, clamp) => clamp,
            (buffer, 0) => buffer,
            (buffer, clamp) => buffer.min(clamp),
        };
    }

    /// A window that was not asked for, brought below what was.
    pub(crate) fn clamped(&self, window: u32) -> u32 {
        match self.window_clamp {
            0 => window,
            clamp => window.min(clamp),
        }
    }
}
