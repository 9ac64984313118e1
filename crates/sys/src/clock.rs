//! Time and cycles.

use std::sync::OnceLock;
use std::time::Duration;

/// Nanoseconds of CLOCK_MONOTONIC: since some point in the past, never backwards. About 20 ns (no system call where the vDSO works).
#[inline]
pub fn monotonic_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Nanoseconds for which the calling thread has run. A system call, some 0.2 µs.
pub fn thread_cpu_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Seconds and nanoseconds since 1970.
pub fn realtime() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
    Duration::new(now.tv_sec.max(0) as u64, now.tv_nsec as u32)
}

/// The processor's time-stamp counter: constant rate, not ordered with other instructions, some 10 ns.
#[inline]
pub fn cycles() -> u64 {
    #[cfg(target_arch = "x86_64")]
    {
        // SAFETY: every x86-64 processor has RDTSC.
        unsafe { core::arch::x86_64::_rdtsc() }
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        monotonic_ns()
    }
}

/// The same by its usual name.
#[inline]
pub fn rdtsc() -> u64 {
    cycles()
}

/// How many [`cycles`] a second has. Measured at the first call, which takes 10 ms.
pub fn cycles_per_second() -> u64 {
    static RATE: OnceLock<u64> = OnceLock::new();
    *RATE.get_or_init(|| {
        if !cfg!(target_arch = "x86_64") {
            return 1_000_000_000;
        }
        let (ns, start) = paired();
        std::thread::sleep(Duration::from_millis(10));
        let (later_ns, later) = paired();
        let elapsed = later_ns.saturating_sub(ns).max(1);
        let rate = later.wrapping_sub(start) as u128 * 1_000_000_000 / elapsed as u128;
        (rate as u64).max(1)
    })
}

/// Both clocks at about the same moment: the closest of a few tries.
fn paired() -> (u64, u64) {
    let mut best = (u64::MAX, 0, 0);
    for _ in 0..8 {
        let before = cycles();
        let ns = monotonic_ns();
        let after = cycles();
        let width = after.wrapping_sub(before);
        if width < best.0 {
            best = (width, ns, before.wrapping_add(width / 2));
        }
    }
    (best.1, best.2)
}

/// Turns cycles into nanoseconds without a division.
#[derive(Clone, Copy, Debug)]
pub struct CycleScale {
    /// Nanoseconds a cycle, times 2^32.
    scale: u64,
}

impl CycleScale {
    /// From the measured rate; the first call takes 10 ms.
    pub fn new() -> Self {
        let scale = (1_000_000_000u128 << 32) / cycles_per_second() as u128;
        Self {
            scale: u64::try_from(scale).unwrap_or(u64::MAX),
        }
    }

    /// Of a clock that goes so many times slower.
    pub fn slower(self, times: u32) -> Self {
        Self {
            scale: self.scale / u64::from(times.max(1)),
        }
    }

    /// Nanoseconds that so many cycles take.
    #[inline]
    pub fn to_ns(self, cycles: u64) -> u64 {
        ((cycles as u128 * self.scale as u128) >> 32) as u64
    }
}

impl Default for CycleScale {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cycles_agree_with_the_clock() {
        let scale = CycleScale::new();
        let (ns, start) = paired();
        std::thread::sleep(Duration::from_millis(20));
        let (later_ns, later) = paired();
        let by_cycles = scale.to_ns(later - start) as f64;
        let by_clock = (later_ns - ns) as f64;
        assert!(
            (by_cycles / by_clock - 1.0).abs() < 0.05,
            "{by_cycles} against {by_clock}"
        );
        assert!(realtime() > Duration::from_secs(1_600_000_000));
    }
}
