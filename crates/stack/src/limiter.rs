//! How often something may be done.

use sidecore_tcp::Instant;

/// A token bucket: `rate` a second in the long run, `burst` at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rate {
    /// How many a second; 0: none at all.
    pub per_second: u32,
    /// How many at once.
    pub burst: u32,
}

const NANOS: u64 = 1_000_000_000;

#[derive(Clone, Debug)]
pub(crate) struct Limiter {
    /// What one costs, in nanoseconds.
    cost: u64,
    /// What may be saved up, in nanoseconds.
    most: u64,
    saved: u64,
    last: Instant,
}

impl Limiter {
    pub(crate) fn new(rate: Rate, now: Instant) -> Self {
        let cost = match rate.per_second {
            0 => u64::MAX,
            per_second => NANOS / u64::from(per_second),
        };
        let most = if rate.per_second == 0 {
            0
        } else {
            cost.saturating_mul(u64::from(rate.burst.max(1)))
        };
        Self {
            cost,
            most,
            saved: most,
            last: now,
        }
    }

    /// Takes one, if there is one.
    pub(crate) fn take(&mut self, now: Instant) -> bool {
        let passed = now.as_nanos().saturating_sub(self.last.as_nanos());
        self.last = self.last.max(now);
        self.saved = self.saved.saturating_add(passed).min(self.most);
        match self.saved.checked_sub(self.cost) {
            Some(left) => {
                self.saved = left;
                true
            }
            None => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn burst_then_rate() {
        let start = Instant::from_millis(5);
        let rate = Rate {
            per_second: 10,
            burst: 3,
        };
        let mut limiter = Limiter::new(rate, start);
        let taken = |limiter: &mut Limiter, now| (0..10).filter(|_| limiter.take(now)).count();
        assert_eq!(taken(&mut limiter, start), 3);
        assert_eq!(taken(&mut limiter, Instant::from_millis(104)), 0);
        assert_eq!(taken(&mut limiter, Instant::from_millis(105)), 1);
        assert_eq!(taken(&mut limiter, Instant::from_secs(100)), 3);
    }

    #[test]
    fn zero_is_never() {
        let rate = Rate {
            per_second: 0,
            burst: 9,
        };
        let mut limiter = Limiter::new(rate, Instant::ZERO);
        assert!(!limiter.take(Instant::from_secs(1000)));
    }
}
