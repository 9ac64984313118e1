//! The engine's clock: cycles turned into nanoseconds, corrected against the system's monotonic clock now and then.
//! Reading it costs one instruction; it never goes back.

use sidecore_sys::clock::{CycleScale, cycles, monotonic_ns};

/// The clock of one engine thread.
#[derive(Debug)]
pub(crate) struct EngineClock {
    scale: CycleScale,
    base_cycles: u64,
    base_ns: u64,
}

impl EngineClock {
    pub(crate) fn new() -> Self {
        let scale = CycleScale::new();
        Self {
            scale,
            base_cycles: cycles(),
            base_ns: monotonic_ns(),
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
        let mut clock = EngineClock::new();
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
}
