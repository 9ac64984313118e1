//! An imperfect link: rate, queue, loss, corruption, delay, jitter, reordering and duplication.
//!
//! ```text
//!  push --> queue (drops when full) --> line at rate_bps --> lost? --> corrupt? --> delay + jitter --> pop
//!                                                                              \--> held back / duplicated
//! ```
//!
//! What happens to the n-th frame is a pure function of the seed and n, and when, of the times of the calls. Every
//! frame draws the same number of random numbers whatever becomes of it, so that runs that differ in one probability
//! agree in all other accidents.

mod random;

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::time::Duration;

use random::{Draws, Threshold};

/// Frames that a link holds at most; further ones are dropped and counted.
pub const FRAMES_MAX: usize = 65_536;
/// Bytes that a link holds at most.
pub const BYTES_MAX: u64 = 256 << 20;

/// Bytes at the start of a frame that corruption spares. In a real network a damaged Ethernet header loses the frame;
/// that is what `loss` is for.
const CORRUPT_FROM: usize = 14;

const NS_PER_S: u128 = 1_000_000_000;

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
    /// Largest additional time on the line; each frame's is uniform in 0 to `jitter`. It never reorders: a frame waits
    /// for the one before it.
    pub jitter: Duration,
    /// Bits per second of the line, counting the frames' bytes as they are; 0: infinitely fast.
    pub rate_bps: u64,
    /// Bytes that wait for the line before frames are dropped, if it has a rate; 0: no limit.
    pub queue_bytes: u64,
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
            rate_bps: 0,
            queue_bytes: 0,
            seed: 1,
        }
    }
}

impl LinkModel {
    /// Whether every frame arrives at once, whole and in order.
    pub fn is_perfect(&self) -> bool {
        let probabilities = [self.loss, self.duplicate, self.reorder, self.corrupt];
        probabilities.iter().all(|&p| p <= 0.0)
            && self.delay.is_zero()
            && self.jitter.is_zero()
            && self.rate_bps == 0
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
    /// Frames dropped because the link held [`FRAMES_MAX`] frames or [`BYTES_MAX`] bytes.
    pub full: u64,
    /// Frames lost on the line.
    pub lost: u64,
    /// Frames with flipped bits.
    pub corrupted: u64,
    /// Frames held back.
    pub reordered: u64,
    /// Frames that arrive twice.
    pub duplicated: u64,
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

/// One direction of a link: frames go in at one time and come out at another. Times are nanoseconds of any clock that
/// does not go back.
pub struct Link {
    model: LinkModel,
    loss: Threshold,
    duplicate: Threshold,
    reorder: Threshold,
    corrupt: Threshold,
    counters: LinkCounters,
    /// When the line will have sent all that was pushed, in nanoseconds **times its rate**: in that unit a bit takes
    /// exactly 10^9, and nothing is rounded.
    line_free: u128,
    /// The latest arrival so far, before which no later frame arrives.
    last_arrival_ns: u64,
    arriving: BinaryHeap<Reverse<Arrival>>,
    held: Vec<Held>,
    order: u64,
    bytes: u64,
    spare: Vec<Vec<u8>>,
}

struct Arrival {
    at_ns: u64,
    order: u64,
    frame: Frame,
}

impl Arrival {
    const fn key(&self) -> (u64, u64) {
        (self.at_ns, self.order)
    }
}

impl PartialEq for Arrival {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Arrival {}

impl PartialOrd for Arrival {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Arrival {
    fn cmp(&self, other: &Self) -> Ordering {
        self.key().cmp(&other.key())
    }
}

/// A frame that waits to be overtaken.
struct Held {
    frame: Frame,
    overtakers_left: u32,
    at_latest_ns: u64,
}

impl Link {
    /// A link on which nothing has travelled yet.
    pub fn new(model: LinkModel) -> Self {
        Self {
            loss: Threshold::new(model.loss),
            duplicate: Threshold::new(model.duplicate),
            reorder: Threshold::new(model.reorder),
            corrupt: Threshold::new(model.corrupt),
            model,
            counters: LinkCounters::default(),
            line_free: 0,
            last_arrival_ns: 0,
            arriving: BinaryHeap::new(),
            held: Vec::new(),
            order: 0,
            bytes: 0,
            spare: Vec::new(),
        }
    }

    /// How the link behaves.
    pub fn model(&self) -> &LinkModel {
        &self.model
    }

    /// What became of the frames.
    pub fn counters(&self) -> &LinkCounters {
        &self.counters
    }

    /// Sends a frame at `now_ns`.
    pub fn push(&mut self, now_ns: u64, bytes: &[u8]) {
        self.push_with(now_ns, bytes, FrameInfo::default());
    }

    /// Sends a frame at `now_ns`, with what travels with it.
    pub fn push_with(&mut self, now_ns: u64, bytes: &[u8], info: FrameInfo) {
        let mut draws = Draws::new(self.model.seed, self.counters.pushed);
        self.counters.pushed += 1;
        let lost = self.loss.hit(draws.next());
        let duplicated = self.duplicate.hit(draws.next());
        let reordered = self.reorder.hit(draws.next());
        let corrupted = self.corrupt.hit(draws.next());
        let jitter_ns = scale(draws.next(), nanos(self.model.jitter));

        let Some(sent_ns) = self.transmit(now_ns, bytes.len()) else {
            self.counters.queue_dropped += 1;
            return;
        };
        if self.in_transit() >= FRAMES_MAX || self.bytes >= BYTES_MAX {
            self.counters.full += 1;
            return;
        }
        if lost {
            self.counters.lost += 1;
            return;
        }
        let arrival = sent_ns
            .saturating_add(nanos(self.model.delay))
            .saturating_add(jitter_ns)
            .max(self.last_arrival_ns);
        self.last_arrival_ns = arrival;
        let mut frame = self.store(bytes, info);
        if corrupted {
            self.counters.corrupted += 1;
            flip_bits(&mut frame.bytes, self.model.corrupt_bits, &mut draws);
        }
        if duplicated {
            self.counters.duplicated += 1;
            let copy = self.store(bytes, info);
            self.insert(arrival, copy);
        }
        if reordered && self.model.reorder_distance > 0 {
            self.counters.reordered += 1;
            self.held.push(Held {
                frame,
                overtakers_left: self.model.reorder_distance,
                at_latest_ns: arrival.saturating_add(nanos(self.model.reorder_hold)),
            });
        } else {
            self.insert(arrival, frame);
            self.overtake(arrival);
        }
    }

    /// The next frame that has arrived by `now_ns`. Give it back by [`recycle`](Self::recycle), so that its memory
    /// serves again.
    pub fn pop(&mut self, now_ns: u64) -> Option<Frame> {
        self.let_go(now_ns);
        if self.arriving.peek()?.0.at_ns > now_ns {
            return None;
        }
        let Reverse(arrival) = self.arriving.pop()?;
        self.bytes = self.bytes.saturating_sub(arrival.frame.bytes.len() as u64);
        self.counters.popped += 1;
        Some(arrival.frame)
    }

    /// Takes the memory of a frame back.
    pub fn recycle(&mut self, frame: Frame) {
        if self.spare.len() < FRAMES_MAX {
            self.spare.push(frame.bytes);
        }
    }

    /// When the next frame arrives, in nanoseconds; `None`: nothing is on the way.
    pub fn next_arrival_ns(&self) -> Option<u64> {
        let arriving = self.arriving.peek().map(|Reverse(first)| first.at_ns);
        let held = self.held.iter().map(|held| held.at_latest_ns).min();
        match (arriving, held) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    /// Frames on their way.
    pub fn in_transit(&self) -> usize {
        self.arriving.len() + self.held.len()
    }

    /// Puts `len` bytes on the line and says when the last of them is sent, in nanoseconds. `None`: no room to wait.
    fn transmit(&mut self, now_ns: u64, len: usize) -> Option<u64> {
        let rate = self.model.rate_bps;
        if rate == 0 {
            return Some(now_ns);
        }
        let rate = u128::from(rate);
        let time = |bytes: u64| u128::from(bytes) * 8 * NS_PER_S;
        let now = u128::from(now_ns) * rate;
        let start = self.line_free.max(now);
        let after = start + time(len as u64);
        let limit = self.model.queue_bytes;
        // The frame that the line is sending just now does not wait: a queue shorter than a frame passes one at a time.
        if limit != 0 && start > now && after - now > time(limit) {
            return None;
        }
        self.line_free = after;
        Some(u64::try_from(after.div_ceil(rate)).unwrap_or(u64::MAX))
    }

    fn store(&mut self, bytes: &[u8], info: FrameInfo) -> Frame {
        let mut memory = self.spare.pop().unwrap_or_default();
        memory.clear();
        memory.extend_from_slice(bytes);
        self.bytes += bytes.len() as u64;
        Frame {
            bytes: memory,
            info,
        }
    }

    fn insert(&mut self, at_ns: u64, frame: Frame) {
        let order = self.order;
        self.order += 1;
        self.arriving.push(Reverse(Arrival {
            at_ns,
            order,
            frame,
        }));
    }

    /// A frame arrives at `at_ns` and overtakes all that are held back; those overtaken often enough follow it.
    fn overtake(&mut self, at_ns: u64) {
        let mut index = 0;
        while let Some(held) = self.held.get_mut(index) {
            held.overtakers_left -= 1;
            if held.overtakers_left == 0 {
                let held = self.held.remove(index);
                self.insert(at_ns, held.frame);
            } else {
                index += 1;
            }
        }
    }

    /// Sends on what was held back for as long as may be.
    fn let_go(&mut self, now_ns: u64) {
        let mut index = 0;
        while let Some(held) = self.held.get(index) {
            if held.at_latest_ns <= now_ns {
                let held = self.held.remove(index);
                self.insert(held.at_latest_ns, held.frame);
            } else {
                index += 1;
            }
        }
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// A uniform draw scaled to 0 to `max`.
fn scale(draw: u64, max: u64) -> u64 {
    ((u128::from(draw) * (u128::from(max) + 1)) >> 64) as u64
}

/// Flips `count` different bits behind the Ethernet header, as far as there are as many.
fn flip_bits(bytes: &mut [u8], count: u32, draws: &mut Draws) {
    let Some(body) = bytes.get_mut(CORRUPT_FROM..).filter(|b| !b.is_empty()) else {
        return;
    };
    let bits = body.len() as u64 * 8;
    let first = scale(draws.next(), bits - 1);
    // An odd step visits different bits as long as fewer than all are visited; neighbours in a burst, mostly.
    let step = 1 + 2 * scale(draws.next(), 7);
    for n in 0..u64::from(count).min(bits) {
        let bit = (first + n * step) % bits;
        if let Some(byte) = body.get_mut((bit / 8) as usize) {
            *byte ^= 1 << (bit % 8);
        }
    }
}

#[cfg(test)]
mod tests;
