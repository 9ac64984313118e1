//! One direction of an imperfect link.

use std::collections::BTreeMap;
use std::time::Duration;

use sidecore_tcp::Instant;

use crate::{Rng, marking, too_big};

/// What a link does to frames. Probabilities are in thousandths.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// How long every frame takes.
    pub delay: Duration,
    /// How much longer it may take; so frames overtake each other.
    pub jitter: Duration,
    /// Frames lost.
    pub loss: u32,
    /// Frames delivered twice.
    pub duplicate: u32,
    /// Frames with one bit flipped.
    pub corrupt: u32,
    /// Bytes a second; 0: unlimited.
    pub rate: u64,
    /// Frames that may wait for their turn at this rate; the rest is lost. 0: unlimited.
    pub queue: usize,
    /// Bytes that may wait for their turn at this rate before frames that come on top are marked (CE, RFC 3168), or, if they are not
    /// ECN-capable, lost. 0: nothing is marked.
    pub mark_above: u64,
    /// IP packets that are longer are lost.
    pub narrow: Option<Narrow>,
}

/// Somewhere on the way there is a link of a smaller MTU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Narrow {
    /// What it carries.
    pub mtu: u16,
    /// What the router before it says of it, by ICMP; `None`: nothing (a black hole).
    pub says: Option<u16>,
}

impl Narrow {
    /// With a router that does as it should.
    pub const fn honest(mtu: u16) -> Self {
        Self {
            mtu,
            says: Some(mtu),
        }
    }

    /// With a router that says nothing.
    pub const fn silent(mtu: u16) -> Self {
        Self { mtu, says: None }
    }
}

impl Default for Link {
    /// Perfect, with 100 µs delay.
    fn default() -> Self {
        Self {
            delay: Duration::from_micros(100),
            jitter: Duration::ZERO,
            loss: 0,
            duplicate: 0,
            corrupt: 0,
            rate: 0,
            queue: 0,
            narrow: None,
            mark_above: 0,
        }
    }
}

/// What a link did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkCounters {
    /// Frames put in.
    pub sent: u64,
    /// Frames that did not arrive.
    pub lost: u64,
    /// Of these, frames that were too long for it.
    pub too_long: u64,
    /// Frames that arrived twice.
    pub duplicated: u64,
    /// Frames that were changed.
    pub corrupted: u64,
    /// Frames that were marked.
    pub marked: u64,
    /// The most bytes that ever waited for their turn.
    pub longest_queue: u64,
    /// Frames taken out.
    pub delivered: u64,
}

/// One direction of a link: frames on their way, by the time of their arrival.
#[derive(Debug)]
pub struct Direction {
    /// What it does to frames that are put in from now on.
    pub link: Link,
    rng: Rng,
    in_flight: BTreeMap<(Instant, u64), Vec<u8>>,
    number: u64,
    busy_until: Instant,
    /// What it has done.
    pub counters: LinkCounters,
}

impl Direction {
    /// An empty one; equal seeds make equal decisions.
    pub fn new(link: Link, seed: u64) -> Self {
        Self {
            link,
            rng: Rng::new(seed),
            in_flight: BTreeMap::new(),
            number: 0,
            busy_until: Instant::ZERO,
            counters: LinkCounters::default(),
        }
    }

    /// Whether a frame is too long for this way: then it is lost, and what comes back is said of it.
    pub fn refuses(&mut self, frame: &[u8]) -> Option<Option<Vec<u8>>> {
        let narrow = self.link.narrow?;
        if frame.len() <= 14 + usize::from(narrow.mtu) {
            return None;
        }
        self.counters.sent += 1;
        self.counters.lost += 1;
        self.counters.too_long += 1;
        let answer = narrow.says.and_then(|mtu| too_big::answer(frame, mtu));
        Some(answer)
    }

    /// Puts a frame in.
    pub fn push(&mut self, now: Instant, mut frame: Vec<u8>) {
        self.counters.sent += 1;
        let full = self.link.queue > 0 && self.in_flight.len() >= self.link.queue;
        if self.rng.chance(self.link.loss) || full {
            self.counters.lost += 1;
            return;
        }
        if !self.admit(now, &mut frame) {
            self.counters.lost += 1;
            return;
        }
        let mut sent_at = now;
        let bytes = frame.len() as u64 * 1_000_000_000;
        if let Some(takes) = bytes.checked_div(self.link.rate) {
            sent_at = self.busy_until.max(now) + Duration::from_nanos(takes);
            self.busy_until = sent_at;
        }
        if self.rng.chance(self.link.corrupt) {
            self.counters.corrupted += 1;
            let bit = self.rng.below(frame.len() as u64 * 8) as usize;
            frame[bit / 8] ^= 1 << (bit % 8);
        }
        let copies = 1 + u64::from(self.rng.chance(self.link.duplicate));
        self.counters.duplicated += copies - 1;
        for _ in 0..copies {
            let at = sent_at + self.link.delay + self.rng.duration(self.link.jitter);
            self.number += 1;
            self.in_flight.insert((at, self.number), frame.clone());
        }
    }

    /// The queue's decision. False: the frame is lost.
    fn admit(&mut self, now: Instant, frame: &mut [u8]) -> bool {
        let waits = self.busy_until.duration_since(now).as_nanos();
        let queue = (waits * u128::from(self.link.rate) / 1_000_000_000) as u64;
        let counters = &mut self.counters;
        counters.longest_queue = counters.longest_queue.max(queue);
        if self.link.mark_above == 0 || queue <= self.link.mark_above {
            return true;
        }
        let marked = marking::mark(frame);
        counters.marked += u64::from(marked);
        // What is no packet cannot say what it is capable of.
        marked || marking::codepoint(frame).is_none()
    }

    /// Takes a frame out that has arrived by `now`.
    pub fn pop(&mut self, now: Instant) -> Option<Vec<u8>> {
        let entry = self.in_flight.first_entry()?;
        if entry.key().0 > now {
            return None;
        }
        self.counters.delivered += 1;
        Some(entry.remove())
    }

    /// When the next frame arrives.
    pub fn next_arrival(&self) -> Option<Instant> {
        self.in_flight.first_key_value().map(|((at, _), _)| *at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(link: Link, seed: u64, frames: u64) -> (Direction, Vec<(Instant, Vec<u8>)>) {
        let mut direction = Direction::new(link, seed);
        for n in 0..frames {
            direction.push(Instant::from_micros(n), n.to_be_bytes().to_vec());
        }
        let mut out = Vec::new();
        while let Some(at) = direction.next_arrival() {
            assert_eq!(direction.pop(at - Duration::from_nanos(1)), None);
            out.push((at, direction.pop(at).expect("it has arrived")));
        }
        (direction, out)
    }

    #[test]
    fn a_perfect_link_delays() {
        let (direction, out) = run(Link::default(), 1, 50);
        for (n, (at, frame)) in out.iter().enumerate() {
            assert_eq!(*at, Instant::from_micros(n as u64 + 100));
            assert_eq!(*frame, (n as u64).to_be_bytes());
        }
        assert_eq!(direction.counters.delivered, 50);
    }

    #[test]
    fn faults_are_as_frequent_as_asked_and_the_same_for_the_same_seed() {
        let link = Link {
            jitter: Duration::from_millis(1),
            loss: 100,
            duplicate: 50,
            corrupt: 20,
            ..Link::default()
        };
        let (direction, out) = run(link.clone(), 7, 10_000);
        let counters = direction.counters;
        assert!((900..1100).contains(&counters.lost), "{counters:?}");
        assert!((380..520).contains(&counters.duplicated), "{counters:?}");
        assert!((130..230).contains(&counters.corrupted), "{counters:?}");
        assert_eq!(
            counters.delivered,
            10_000 - counters.lost + counters.duplicated
        );
        assert!(
            !out.is_sorted_by_key(|(_, frame)| frame.clone()),
            "reordered"
        );
        assert_eq!(run(link.clone(), 7, 10_000).1, out);
        assert_ne!(run(link, 8, 10_000).1, out);
    }

    #[test]
    fn a_rate_makes_a_queue_and_the_queue_has_an_end() {
        let link = Link {
            delay: Duration::ZERO,
            rate: 8_000,
            queue: 10,
            ..Link::default()
        };
        let (direction, out) = run(link, 1, 30);
        assert_eq!((out.len(), direction.counters.lost), (10, 20));
        // Eight bytes take a millisecond.
        let last = out.last().expect("ten").0;
        assert_eq!(last, Instant::from_millis(10));
    }
}
