//! Interrupt moderation, for a device that the kernel owns: when frames come fast, an engine that slept until each of them
//! would pay for a wake-up a frame, and one that polled until the next would pay for all of its core. It naps instead, for a fixed
//! time, and takes what has come meanwhile in one go: what network cards do with their interrupts. What comes while it works on a
//! small burst waits for the next one too, or bursts would become ever smaller.
//!
//! A nap delays frames by up to its length, so it must earn that: it pays while it finds several frames, and while those would
//! have come without it too. A client that waits for each answer sends one frame a nap, and less of them than before; then the engine
//! goes back to sleeping until something comes, and tries again later and later.

use std::time::Duration;

/// Tenths of a frame in a nap's time from which on napping is worth it, and below which it is not. (A nap costs as much as a sleep.)
const BEGIN: u64 = 18;
const END: u64 = 14;

/// Rates are measured over at least this long.
const WINDOW: Duration = Duration::from_millis(1);

/// A nap is no longer than it takes so many frames to come.
const BURST: u64 = 8;

/// A burst of so many frames is followed by the next at once: there is enough to do.
const MANY: usize = 16;

/// Windows that pass before the next try, after a try that did not pay: the first time, and at most.
const HOLD_OFF: u32 = 4;
const HOLD_OFF_MAX: u32 = 1024;

/// Whether to nap. Fed with the engine's count of frames and its clock, both from any start.
#[derive(Debug)]
pub(super) struct Moderation {
    /// The longest nap, and what the rate makes of it, in nanoseconds.
    most_ns: u64,
    nap_ns: u64,
    begun_ns: u64,
    frames: u64,
    /// Naps of this window.
    naps: u64,
    napping: bool,
    /// Nothing is to be received before this time.
    hold_until: u64,
    /// Frames a second before the naps began, and how long naps have been paying.
    rate_before: u64,
    hold_off: u32,
    next_hold_off: u32,
}

impl Moderation {
    /// Naps of at most this length; none if it is zero.
    pub(super) fn new(most: Duration) -> Self {
        Self {
            most_ns: most.as_nanos() as u64,
            nap_ns: 0,
            begun_ns: 0,
            frames: 0,
            naps: 0,
            napping: false,
            hold_until: 0,
            rate_before: 0,
            hold_off: 0,
            next_hold_off: HOLD_OFF,
        }
    }

    /// Whether what comes is to wait a little longer, so that it is taken in few large bursts.
    #[inline]
    pub(super) fn holds_back(&self, now_ns: u64) -> bool {
        now_ns < self.hold_until
    }

    /// A burst of `frames` was taken at `now_ns`.
    #[inline]
    pub(super) fn received(&mut self, now_ns: u64, frames: usize) {
        if self.napping && frames > 0 {
            self.hold_until = match frames {
                MANY.. => 0,
                _ => now_ns + self.nap_ns,
            };
        }
    }

    /// The engine has nothing to do at `now_ns`, and has taken `frames` in all: how long to nap, if at all.
    pub(super) fn nap(&mut self, now_ns: u64, frames: u64) -> Option<Duration> {
        if self.most_ns == 0 {
            return None;
        }
        let elapsed = now_ns.saturating_sub(self.begun_ns);
        if elapsed >= WINDOW.as_nanos() as u64 {
            let came = frames.wrapping_sub(self.frames);
            let rate = (u128::from(came) * 1_000_000_000 / u128::from(elapsed)) as u64;
            self.judge(rate, came);
            (self.begun_ns, self.frames, self.naps) = (now_ns, frames, 0);
        }
        if !self.napping {
            self.hold_until = 0;
            return None;
        }
        self.naps += 1;
        if self.hold_until <= now_ns {
            self.hold_until = now_ns + self.nap_ns;
        }
        Some(Duration::from_nanos(self.hold_until - now_ns))
    }

    /// At the end of a window.
    fn judge(&mut self, rate: u64, came: u64) {
        if self.napping {
            let pays = 10 * came >= END * self.naps && rate >= self.rate_before / 4 * 3;
            if pays {
                self.next_hold_off = HOLD_OFF;
                // What the load has become is what the next window is held against.
                self.rate_before = self.rate_before.max(rate) / 16 * 15;
            } else {
                self.napping = false;
                self.hold_off = self.next_hold_off;
                self.next_hold_off = (2 * self.next_hold_off).min(HOLD_OFF_MAX);
            }
        } else if self.hold_off > 0 {
            self.hold_off -= 1;
        } else {
            let in_a_nap = 10 * u128::from(rate) * u128::from(self.most_ns) / 1_000_000_000;
            self.napping = in_a_nap >= u128::from(BEGIN);
            self.rate_before = rate;
        }
        self.nap_ns = (BURST * 1_000_000_000 / rate.max(1)).min(self.most_ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAP: Duration = Duration::from_micros(50);

    /// Runs an engine that looks every `step_ns` while it does not nap; `arrives` tells how many frames come in a span of time.
    /// Naps, and frames, of the last second of two.
    fn run(step_ns: u64, mut arrives: impl FnMut(u64, bool) -> u64) -> (u64, u64) {
        let mut moderation = Moderation::new(NAP);
        let (mut now, mut frames) = (1_000_000_000, 0);
        let (mut naps, mut came) = (0, 0);
        while now < 3_000_000_000 {
            let nap = moderation.nap(now, frames);
            let span = nap.map_or(step_ns, |nap| nap.as_nanos() as u64);
            let new = arrives(span, nap.is_some());
            now += span;
            frames += new;
            if now > 2_000_000_000 {
                naps += u64::from(nap.is_some());
                came += new;
            }
        }
        (naps, came)
    }

    #[test]
    fn a_steady_stream_is_taken_in_naps() {
        let mut owed = 0;
        let (naps, frames) = run(5_000, |span, _| {
            owed += span;
            let new = owed / 10_000;
            owed %= 10_000;
            new
        });
        assert!(naps > 19_000, "{naps}");
        assert_eq!(frames, 100_000);
    }

    #[test]
    fn the_faster_frames_come_the_shorter_are_the_naps() {
        let mut owed = 0;
        let (naps, frames) = run(5_000, |span, _| {
            owed += span;
            let new = owed / 1_000;
            owed %= 1_000;
            new
        });
        assert!((120_000..130_000).contains(&naps), "{naps}");
        assert_eq!(frames, 1_000_000);
    }

    #[test]
    fn small_bursts_hold_the_next_one_back_and_large_ones_do_not() {
        let mut moderation = Moderation::new(NAP);
        assert!(moderation.nap(1_000_000_000, 0).is_none());
        assert!(moderation.nap(1_002_000_000, 1_000).is_some());
        moderation.received(1_003_000_000, 3);
        let nap = moderation.nap_ns;
        assert!(nap > 0 && moderation.holds_back(1_003_000_000 + nap - 1));
        assert!(!moderation.holds_back(1_003_000_000 + nap));
        moderation.received(1_003_000_000, MANY);
        assert!(!moderation.holds_back(1_003_000_000));
    }

    #[test]
    fn a_trickle_is_not() {
        let mut owed = 0;
        let (naps, _) = run(20_000, |span, _| {
            owed += span;
            let new = owed / 40_000;
            owed %= 40_000;
            new
        });
        assert_eq!(naps, 0);
    }

    #[test]
    fn who_waits_for_each_answer_is_not_made_to_wait() {
        // One frame each time that the engine looks: every 10 us without naps, later with.
        let (naps, frames) = run(10_000, |_, _| 1);
        assert!(naps < 2_000, "{naps}");
        assert!(frames > 90_000, "{frames}");
        // Four of them.
        let (naps, frames) = run(40_000, |_, nap| if nap { 3 } else { 4 });
        assert!(naps < 2_000, "{naps}");
        assert!(frames > 90_000, "{frames}");
    }

    #[test]
    fn a_load_that_falls_off_ends_the_naps() {
        let (mut time, mut owed) = (0, 0);
        let (naps, _) = run(20_000, |span, _| {
            time += span;
            let every = if time < 500_000_000 { 5_000 } else { 100_000 };
            owed += span;
            let new = owed / every;
            owed %= every;
            new
        });
        assert_eq!(naps, 0);
    }

    #[test]
    fn without_a_length_there_are_none() {
        let mut moderation = Moderation::new(Duration::ZERO);
        assert!((0..100).all(|i| moderation.nap(i * 1_000_000, i * 1000).is_none()));
    }
}
