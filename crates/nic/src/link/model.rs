//! How a link behaves, and what it did.

use std::time::Duration;

/// How a link behaves, in one direction. The default is a perfect one.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct LinkModel {
    /// Probability that a frame is lost on the line, 0 to 1. It takes up the line all the same.
    pub loss: f64,
    /// Probability that a frame arrives twice.
    pub duplicate: f64,
    /// Probability that a frame is held back until later ones have overtaken it.
    pub reorder: f64,
    /// How many frames overtake a held-back one.
    pub reorder_distance: u32,
    /// How long a held-back frame waits at most for frames to overtake it.
    pub reorder_hold: Duration,
    /// Probability that bits of a frame are flipped, behind its Ethernet header.
    pub corrupt: f64,
    /// How many bits of a corrupt frame are flipped. One bit is what every checksum detects.
    pub corrupt_bits: u32,
    /// Time on the line.
    pub delay: Duration,
    /// Largest additional time on the line; each frame's is uniform in 0 to `jitter`.
    pub jitter: Duration,
    /// With jitter, frames may overtake each other. Else a frame waits for the one before it.
    pub jitter_reorders: bool,
    /// Bits per second of the line, counting the frames' bytes as they are; 0: infinitely fast.
    pub rate_bps: u64,
    /// Bytes that wait for the line before frames are dropped, if it has a rate; 0: no limit.
    pub queue_bytes: u64,
    /// The same in frames, the one on the line among them; 0: no limit.
    pub queue_frames: u32,
    /// Probability that a packet is to be marked "congestion experienced", as a router does that manages its queue: one of an ECN-capable transport
    /// is marked, any other is dropped (RFC 3168 section 5).
    pub mark: f64,
    /// The same for every packet that finds at least so many bytes waiting for the line (a step, as RFC 8257 section 3.1 has it for DCTCP); 0: none.
    pub mark_bytes: u64,
    /// The same in frames; 0: none.
    pub mark_frames: u32,
    /// Largest IP packet that passes, in bytes; 0: any. It is the router before the line that says so.
    pub mtu: u16,
    /// That router tells senders of what is too big: "fragmentation needed" to those who forbid fragments, "packet too big" with IPv6. Else such
    /// packets vanish: a black hole.
    pub tell_too_big: bool,
    /// A time in which every frame that comes is lost.
    pub outage: Option<Outage>,
    /// Seed of all chance.
    pub seed: u64,
}

impl Default for LinkModel {
    fn default() -> Self {
        Self {
            loss: 0.0,
            duplicate: 0.0,
            reorder: 0.0,
            reorder_distance: 3,
            reorder_hold: Duration::from_millis(5),
            corrupt: 0.0,
            corrupt_bits: 1,
            delay: Duration::ZERO,
            jitter: Duration::ZERO,
            jitter_reorders: false,
            rate_bps: 0,
            queue_bytes: 0,
            queue_frames: 0,
            mark: 0.0,
            mark_bytes: 0,
            mark_frames: 0,
            mtu: 0,
            tell_too_big: true,
            outage: None,
            seed: 1,
        }
    }
}

impl LinkModel {
    /// Whether every frame arrives at once, whole and in order.
    pub fn is_perfect(&self) -> bool {
        let probabilities = [
            self.loss,
            self.duplicate,
            self.reorder,
            self.corrupt,
            self.mark,
        ];
        probabilities.iter().all(|&p| p <= 0.0)
            && self.delay.is_zero()
            && self.jitter.is_zero()
            && self.rate_bps == 0
            && self.mtu == 0
            && self.outage.is_none()
    }
}

/// When nothing passes, by the clock of the calls: from `after` until `after + length`, and again after each `every`, if that is not zero.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Outage {
    /// When it begins.
    pub after: Duration,
    /// How long it lasts.
    pub length: Duration,
    /// After what time it comes again; zero: never.
    pub every: Duration,
}

impl Outage {
    /// Whether it is on.
    pub(super) fn is_at(&self, now_ns: u64) -> bool {
        let Some(since) = now_ns.checked_sub(nanos(self.after)) else {
            return false;
        };
        let since = since.checked_rem(nanos(self.every)).unwrap_or(since);
        since < nanos(self.length)
    }
}

/// What became of the frames of a link.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LinkCounters {
    /// Frames given to the link.
    pub pushed: u64,
    /// Frames taken from it, duplicates among them.
    pub popped: u64,
    /// Frames that found the queue full.
    pub queue_dropped: u64,
    /// Frames dropped because the link held [`FRAMES_MAX`](super::FRAMES_MAX) frames or [`BYTES_MAX`](super::BYTES_MAX) bytes.
    pub full: u64,
    /// Frames lost on the line.
    pub lost: u64,
    /// Frames lost in an outage.
    pub outage: u64,
    /// Packets that were too big.
    pub too_big: u64,
    /// Senders who were told so.
    pub answered: u64,
    /// Packets marked "congestion experienced", or that were already.
    pub marked: u64,
    /// Packets dropped where those of an ECN-capable transport are marked.
    pub mark_dropped: u64,
    /// Frames with flipped bits.
    pub corrupted: u64,
    /// Frames held back.
    pub reordered: u64,
    /// Frames that arrive twice.
    pub duplicated: u64,
    /// The most bytes that waited for the line, the frame that came last among them.
    pub queue_bytes_max: u64,
}

/// What travels with a frame's bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FrameInfo {
    /// As in [`RxFrame`](crate::RxFrame).
    pub checksum_valid: bool,
    /// As in [`RxFrame`](crate::RxFrame).
    pub gso_size: u16,
}

/// A frame that came out of a link.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Frame {
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// What travelled with them.
    pub info: FrameInfo,
}

pub(super) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
