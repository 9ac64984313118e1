//! An imperfect link: MTU, queue, marks, rate, loss, corruption, delay, jitter, reordering, duplication and outages.
//!
//! ```text
//!  push --> outage? --> too big? --> queue (drops when full, --> line at --> lost? --> corrupt? --> delay + --> pop
//!                         |           marks when long)           rate_bps                           jitter
//!                         v answer                                                                     \--> held back / duplicated
//! ```
//!
//! The model serves wherever two stacks are joined: tests and the laboratory join devices by it ([`join`]), the wire driver has it built in, and as
//! it takes the time as an argument it also runs in virtual time.
//!
//! What happens to the n-th frame is a pure function of the seed and n, and when, of the times of the calls. Every
//! frame draws the same number of random numbers whatever becomes of it, so that runs that differ in one probability
//! agree in all other accidents.

pub mod join;
mod model;
mod packet;
mod random;

use std::cmp::{Ordering, Reverse};
use std::collections::{BinaryHeap, VecDeque};

pub use model::{Frame, FrameInfo, LinkCounters, LinkModel, Outage};

use model::nanos;
use packet::Marking;
use random::{Draws, Threshold};

/// Frames that a link holds at most; further ones are dropped and counted.
pub const FRAMES_MAX: usize = 65_536;
/// Bytes that a link holds at most.
pub const BYTES_MAX: u64 = 256 << 20;

/// Bytes at the start of a frame that corruption spares. In a real network a damaged Ethernet header loses the frame;
/// that is what `loss` is for.
const CORRUPT_FROM: usize = packet::ETHERNET;

/// Answers to senders that wait to be taken; further ones are not made.
const ANSWERS_MAX: usize = 64;

const NS_PER_S: u128 = 1_000_000_000;

/// One direction of a link: frames go in at one time and come out at another. Times are nanoseconds of any clock that
/// does not go back.
pub struct Link {
    model: LinkModel,
    loss: Threshold,
    duplicate: Threshold,
    reorder: Threshold,
    corrupt: Threshold,
    mark: Threshold,
    counters: LinkCounters,
    /// When the line will have sent all that was pushed, in nanoseconds **times its rate**: in that unit a bit takes
    /// exactly 10^9, and nothing is rounded.
    line_free: u128,
    /// When each of the frames will have been sent that wait for the line, in nanoseconds; kept if there is a limit of frames.
    waiting: VecDeque<u64>,
    answers: VecDeque<Vec<u8>>,
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
            mark: Threshold::new(model.mark),
            model,
            counters: LinkCounters::default(),
            line_free: 0,
            waiting: VecDeque::new(),
            answers: VecDeque::new(),
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

    /// The link behaves so from now on. What is on its way goes on as it was.
    pub fn set_model(&mut self, model: LinkModel) {
        // What waits was timed at the old rate.
        let free_ns = self.line_free.checked_div(self.model.rate_bps.into());
        self.line_free = free_ns.unwrap_or(0) * u128::from(model.rate_bps);
        self.loss = Threshold::new(model.loss);
        self.duplicate = Threshold::new(model.duplicate);
        self.reorder = Threshold::new(model.reorder);
        self.corrupt = Threshold::new(model.corrupt);
        self.mark = Threshold::new(model.mark);
        self.model = model;
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
        let chosen = self.mark.hit(draws.next());

        let Some((sent_ns, marked)) = self.admit(now_ns, bytes, chosen) else {
            return;
        };
        if lost {
            self.counters.lost += 1;
            return;
        }
        let mut arrival = sent_ns
            .saturating_add(nanos(self.model.delay))
            .saturating_add(jitter_ns);
        if !self.model.jitter_reorders {
            arrival = arrival.max(self.last_arrival_ns);
            self.last_arrival_ns = arrival;
        }
        let mut frame = self.store(bytes, info, marked);
        if corrupted {
            self.counters.corrupted += 1;
            flip_bits(&mut frame.bytes, self.model.corrupt_bits, &mut draws);
        }
        if duplicated {
            self.counters.duplicated += 1;
            let copy = self.store(bytes, info, marked);
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

    /// The next answer to who sends into this link (see [`LinkModel::tell_too_big`]); it is there at once.
    pub fn take_answer(&mut self) -> Option<Vec<u8>> {
        self.answers.pop_front()
    }

    /// The router before the line: when it will have sent the frame, and whether the frame is to be marked. `None`: it dropped it.
    fn admit(&mut self, now_ns: u64, bytes: &[u8], chosen: bool) -> Option<(u64, bool)> {
        if self.model.outage.is_some_and(|outage| outage.is_at(now_ns)) {
            self.counters.outage += 1;
            return None;
        }
        let mtu = self.model.mtu;
        if mtu != 0 && packet::packet_len(bytes).is_some_and(|len| len > mtu.into()) {
            self.counters.too_big += 1;
            self.answer_too_big(bytes, mtu);
            return None;
        }
        let mut marked = chosen || self.is_long(now_ns);
        if marked {
            match packet::marking(bytes) {
                Marking::Capable => {}
                Marking::NotCapable => {
                    self.counters.mark_dropped += 1;
                    return None;
                }
                Marking::NoPacket => marked = false,
            }
        }
        if self.in_transit() >= FRAMES_MAX || self.bytes >= BYTES_MAX {
            self.counters.full += 1;
            return None;
        }
        let Some(sent_ns) = self.transmit(now_ns, bytes.len()) else {
            self.counters.queue_dropped += 1;
            return None;
        };
        self.counters.marked += u64::from(marked);
        Some((sent_ns, marked))
    }

    fn answer_too_big(&mut self, bytes: &[u8], mtu: u16) {
        if self.model.tell_too_big
            && self.answers.len() < ANSWERS_MAX
            && let Some(answer) = packet::too_big(bytes, mtu)
        {
            self.counters.answered += 1;
            self.answers.push_back(answer);
        }
    }

    /// Whether so much waits for the line that what comes is to be marked.
    fn is_long(&mut self, now_ns: u64) -> bool {
        let LinkModel {
            rate_bps,
            mark_bytes,
            mark_frames,
            ..
        } = self.model;
        let waiting = self
            .line_free
            .saturating_sub(u128::from(now_ns) * u128::from(rate_bps));
        mark_bytes != 0 && waiting >= line_time(mark_bytes)
            || mark_frames != 0 && self.waiting_frames(now_ns) >= mark_frames as usize
    }

    /// How many frames wait for the line, the one on it among them.
    fn waiting_frames(&mut self, now_ns: u64) -> usize {
        while self.waiting.front().is_some_and(|sent| *sent <= now_ns) {
            self.waiting.pop_front();
        }
        self.waiting.len()
    }

    /// Puts `len` bytes on the line and says when the last of them is sent, in nanoseconds. `None`: no room to wait.
    fn transmit(&mut self, now_ns: u64, len: usize) -> Option<u64> {
        let rate = self.model.rate_bps;
        if rate == 0 {
            return Some(now_ns);
        }
        let rate = u128::from(rate);
        let now = u128::from(now_ns) * rate;
        let start = self.line_free.max(now);
        let after = start + line_time(len as u64);
        let limit = self.model.queue_bytes;
        // The frame that the line is sending just now does not wait: a queue shorter than a frame passes one at a time.
        if limit != 0 && start > now && after - now > line_time(limit) {
            return None;
        }
        let frames = self.model.queue_frames as usize;
        if frames != 0 && self.waiting_frames(now_ns) >= frames {
            return None;
        }
        self.line_free = after;
        let sent_ns = u64::try_from(after.div_ceil(rate)).unwrap_or(u64::MAX);
        if frames != 0 || self.model.mark_frames != 0 {
            self.waiting.push_back(sent_ns);
        }
        let waiting = u64::try_from((after - now) / line_time(1)).unwrap_or(u64::MAX);
        self.counters.queue_bytes_max = self.counters.queue_bytes_max.max(waiting);
        Some(sent_ns)
    }

    fn store(&mut self, bytes: &[u8], info: FrameInfo, marked: bool) -> Frame {
        let mut memory = self.spare.pop().unwrap_or_default();
        memory.clear();
        memory.extend_from_slice(bytes);
        if marked {
            packet::mark(&mut memory);
        }
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

/// How long so many bytes take on the line, in nanoseconds times its rate.
fn line_time(bytes: u64) -> u128 {
    u128::from(bytes) * 8 * NS_PER_S
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
