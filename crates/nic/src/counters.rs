//! What a device counts.

use crate::RxFrame;

/// Counts since a device was opened. Plain numbers of the engine thread; they wrap in no lifetime.
///
/// A counter's name says at which side the frame was lost: `rx_dropped_*` came in, `tx_dropped_*` was to go out.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct NicCounters {
    /// Frames received (a super-segment is one).
    pub rx_frames: u64,
    /// Bytes of the frames received, from the Ethernet header on.
    pub rx_bytes: u64,
    /// Received super-segments.
    pub rx_super_segments: u64,
    /// Frames larger than a receive buffer.
    pub rx_dropped_oversized: u64,
    /// Frames with a device header that makes no sense, or too short to be one.
    pub rx_dropped_malformed: u64,
    /// Times that frames may have waited because all receive buffers were with the engine.
    pub rx_no_buffer: u64,
    /// Receive attempts that cost a system call and found nothing.
    pub rx_empty_calls: u64,
    /// Receive errors of the device other than having nothing.
    pub rx_errors: u64,
    /// Frames sent (a super-segment is one).
    pub tx_frames: u64,
    /// Bytes of the frames sent, from the Ethernet header on.
    pub tx_bytes: u64,
    /// Super-segments sent.
    pub tx_super_segments: u64,
    /// Frames that broke the rules of [`TxFrame`](crate::TxFrame).
    pub tx_dropped_invalid: u64,
    /// Frames submitted without room ([`has_room`](crate::Nic::has_room) was false).
    pub tx_dropped_full: u64,
    /// Frames the device refused because it is down or gone.
    pub tx_dropped_down: u64,
    /// Frames the device refused for another reason (its memory or queue full, a header it does not take).
    pub tx_dropped_refused: u64,
    /// System calls made by the driver.
    pub syscalls: u64,
    /// Times the other end was woken from its sleep.
    pub wakeups: u64,
}

impl NicCounters {
    #[inline]
    pub(crate) fn count_received(&mut self, frame: &RxFrame) {
        self.rx_frames += 1;
        self.rx_bytes += u64::from(frame.len);
        self.rx_super_segments += u64::from(frame.gso_size != 0);
    }

    #[inline]
    pub(crate) fn count_sent(&mut self, len: usize, super_segment: bool) {
        self.tx_frames += 1;
        self.tx_bytes += len as u64;
        self.tx_super_segments += u64::from(super_segment);
    }

    /// Counts a frame that the kernel refused with `errno`.
    #[cold]
    pub(crate) fn count_refused(&mut self, errno: i32) {
        match errno {
            // EIO: the interface is down. EBADFD: it was deleted. EBUSY: the queue is detached.
            libc::EIO | libc::EBADFD | libc::ENODEV | libc::EBUSY => self.tx_dropped_down += 1,
            _ => self.tx_dropped_refused += 1,
        }
    }

    /// Incoming frames lost in the driver, whatever the reason.
    pub const fn rx_dropped(&self) -> u64 {
        self.rx_dropped_oversized + self.rx_dropped_malformed
    }

    /// Outgoing frames lost in the driver or refused by the device, whatever the reason.
    pub const fn tx_dropped(&self) -> u64 {
        self.tx_dropped_invalid
            + self.tx_dropped_full
            + self.tx_dropped_down
            + self.tx_dropped_refused
    }
}
