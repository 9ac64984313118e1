//! The engine's clock: cycles turned into nanoseconds, corrected against the system's monotonic clock now and then.
//! Reading it costs one instruction; it never goes back.

use sidecore_sys::clock::{CycleScale, cycles, monotonic_ns};

/// The clock of one engine thread.
#[derive(Debug)]
pub(crate) struct EngineClock {
    scale: CycleScale,
    base_cycles: u64,
    base_ns: u64,
    /// Goes slower than the system's.
    slowed: bool,
}

impl EngineClock {
    /// One that goes `times` times slower than the system's: 1 but for programs that are counted.
    pub(crate) fn new(times: u32) -> Self {
        Self {
            scale: CycleScale::new().slower(times),
            base_cycles: cycles(),
            base_ns: monotonic_ns(),
            slowed: times > 1,
        }
    }

    /// The time at which the cycle counter read `cycles`.
    #[inline]
    pub(crate) fn nanos_at(&self, cycles: u64) -> u64 {
        self.base_ns + self.scale.to_ns(cycles.saturating_sub(self.base_cycles))
    }

    /// The time now.
    pub(crate) fn nanos(&self) -> u64 {
        self.nanos_at(cycles())
    }

    /// Follows the system's clock: the measured rate is a few millionths off.
    pub(crate) fn correct(&mut self) {
        if self.slowed {
            return;
        }
        let now = cycles();
        let ours = self.nanos_at(now);
        self.base_ns = ours.max(monotonic_ns());
        self.base_cycles = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn follows_the_system_and_never_goes_back() {
        let mut clock = EngineClock::new(1);
        let mut last = clock.nanos();
        for _ in 0..1000 {
            clock.correct();
            let now = clock.nanos();
            assert!(now >= last);
            last = now;
        }
        let off = clock.nanos().abs_diff(monotonic_ns());
        assert!(off < 50_000_000, "{off} ns off");
    }

    #[test]
    fn goes_slower_where_that_is_asked_for() {
        let mut clock = EngineClock::new(1_000_000);
        let begun = clock.nanos();
        std::thread::sleep(std::time::Duration::from_millis(2));
        clock.correct();
        assert!(clock.nanos() - begun < 1_000_000);
    }
}
