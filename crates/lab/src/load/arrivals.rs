//! When requests are due in an open loop: the load does not wait for the server, so that a slow answer does not hide how long the
//! next ones would have had to wait (coordinated omission).

use serde::{Deserialize, Serialize};

/// How requests are spaced.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Arrivals {
    /// Closed loop: the next request of a connection follows its last answer.
    Closed,
    /// Open loop, evenly spaced; requests per second over all connections.
    Uniform(f64),
    /// Open loop, exponentially distributed gaps (a Poisson process) of this mean rate, from this seed.
    Poisson(f64, u64),
}

impl Arrivals {
    /// Requests per second, if the loop is open.
    pub fn rate(&self) -> Option<f64> {
        match self {
            Self::Closed => None,
            Self::Uniform(rate) | Self::Poisson(rate, _) => Some(*rate),
        }
    }

    /// One of `parts` equal shares; seeds differ.
    pub fn share(&self, part: u64, parts: u64) -> Self {
        match self {
            Self::Closed => Self::Closed,
            Self::Uniform(rate) => Self::Uniform(rate / parts as f64),
            Self::Poisson(rate, seed) => {
                Self::Poisson(rate / parts as f64, seed.wrapping_add(part))
            }
        }
    }
}

/// The sequence of due times, in nanoseconds from 0 on.
pub struct Schedule {
    next: f64,
    gap: f64,
    random: Option<SplitMix>,
}

impl Schedule {
    /// The schedule of an open loop; none of a closed one or of a rate that is not positive.
    pub fn new(arrivals: Arrivals) -> Option<Self> {
        let rate = arrivals.rate().filter(|rate| *rate > 0.0)?;
        let random = match arrivals {
            Arrivals::Poisson(_, seed) => Some(SplitMix(seed)),
            _ => None,
        };
        Some(Self {
            next: 0.0,
            gap: 1e9 / rate,
            random,
        })
    }

    /// When the next request is due.
    #[inline]
    pub fn due(&self) -> u64 {
        self.next as u64
    }

    /// Goes on to the one after it.
    #[inline]
    pub fn advance(&mut self) {
        self.next += match &mut self.random {
            None => self.gap,
            Some(random) => -(1.0 - random.unit()).ln() * self.gap,
        };
    }
}

/// The generator of Steele, Lea and Flood (SplitMix64): small, seeded, good enough to draw gaps and samples.
#[derive(Clone, Debug)]
pub struct SplitMix(pub u64);

impl SplitMix {
    /// The next 64 bits.
    #[inline]
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Evenly from 0 (included) to 1 (excluded).
    #[inline]
    pub fn unit(&mut self) -> f64 {
        (self.draw() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Evenly below `bound` (which is at least 1; the bias is below 2^-32 for bounds below 2^32).
    pub fn below(&mut self, bound: usize) -> usize {
        ((u128::from(self.draw()) * bound as u128) >> 64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dues(arrivals: Arrivals, count: usize) -> Vec<u64> {
        let mut schedule = Schedule::new(arrivals).unwrap();
        let mut due = || {
            let due = schedule.due();
            schedule.advance();
            due
        };
        (0..count).map(|_| due()).collect()
    }

    #[test]
    fn uniform_arrivals_are_evenly_spaced() {
        assert_eq!(dues(Arrivals::Uniform(1e6), 4), [0, 1000, 2000, 3000]);
        assert!(Schedule::new(Arrivals::Closed).is_none());
        assert!(Schedule::new(Arrivals::Uniform(0.0)).is_none());
    }

    #[test]
    fn poisson_arrivals_have_mean_and_spread_of_their_rate() {
        let count = 100_000;
        let dues = dues(Arrivals::Poisson(1e6, 1), count);
        assert!(dues.is_sorted());
        let gaps: Vec<f64> = dues.windows(2).map(|w| (w[1] - w[0]) as f64).collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let variance = gaps.iter().map(|g| (g - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
        assert!((mean - 1000.0).abs() < 15.0, "mean {mean}");
        assert!(
            (variance.sqrt() - 1000.0).abs() < 30.0,
            "deviation {}",
            variance.sqrt()
        );
    }

    #[test]
    fn shares_add_up_and_differ() {
        assert_eq!(Arrivals::Uniform(10.0).share(1, 4), Arrivals::Uniform(2.5));
        let poisson = Arrivals::Poisson(10.0, 7);
        assert_ne!(poisson.share(0, 2), poisson.share(1, 2));
    }

    #[test]
    fn random_numbers_stay_in_their_range() {
        let mut random = SplitMix(3);
        assert!((0..1000).all(|_| random.below(7) < 7));
        assert!((0..1000).all(|_| (0.0..1.0).contains(&random.unit())));
    }
}
