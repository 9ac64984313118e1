//! Settings of a group of sockets.

use std::time::Duration;

/// Settings of [`super::Sockets`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SocketsConfig {
    /// Bytes of memory to send from, for all sockets of the group (used only as it is needed; at least 64 KiB).
    pub send_bytes: u64,
    /// Bytes that one stream may have written and the peer not acknowledged, before writes wait.
    pub stream_bytes: usize,
    /// Accepts that each listener keeps posted.
    pub accepts: u32,
    /// Connections that wait for an accept at each listener.
    pub backlog: u32,
    /// How long dropping the group waits for closed connections to end, so that what was written goes out.
    pub linger: Duration,
    /// Called around the wakes of a batch of events.
    pub wakes: Option<Wakes>,
}

/// What is called by the thread that hands events out, before it calls the wakers of a batch and after. A waker that wakes a thread may put that off to
/// the end: a thread that is woken by the first of its events has done with it, and sleeps again, before it gets the second.
#[derive(Clone, Copy, Debug)]
pub struct Wakes {
    /// Before the first waker.
    pub begin: fn(),
    /// After the last.
    pub end: fn(),
}

impl PartialEq for Wakes {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::fn_addr_eq(self.begin, other.begin) && std::ptr::fn_addr_eq(self.end, other.end)
    }
}

impl Eq for Wakes {}

impl Default for SocketsConfig {
    fn default() -> Self {
        Self {
            send_bytes: 64 << 20,
            stream_bytes: 1 << 20,
            accepts: 16,
            backlog: 1024,
            linger: Duration::from_secs(1),
            wakes: None,
        }
    }
}
