//! Latencies in an HDR histogram, and what is told of them.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// Longest latency that is told apart, in nanoseconds; longer ones count as this.
const LONGEST: u64 = 60_000_000_000;

/// Quantiles of which the curve is made.
const CURVE: [f64; 16] = [
    0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.98, 0.99, 0.995, 0.998, 0.999, 0.9995, 0.9999, 0.99999,
    1.0,
];

/// Counts latencies of 1 ns to 60 s with three significant digits. Never allocates after it is made.
pub struct Recorder {
    histogram: Histogram<u64>,
}

impl Recorder {
    /// An empty one.
    pub fn new() -> Self {
        let histogram = Histogram::new_with_bounds(1, LONGEST, 3)
            .expect("bounds and precision are constants that the histogram accepts");
        Self { histogram }
    }

    /// Counts one latency, in nanoseconds.
    #[inline]
    pub fn record(&mut self, nanos: u64) {
        self.histogram.saturating_record(nanos.max(1));
    }

    /// Adds what another one counted.
    pub fn merge(&mut self, other: &Self) {
        // Both have the same bounds, so nothing can be out of range.
        let _ = self.histogram.add(&other.histogram);
    }

    /// How many were counted.
    pub fn count(&self) -> u64 {
        self.histogram.len()
    }

    /// The summary.
    pub fn summary(&self) -> Latency {
        let at = |q: f64| self.histogram.value_at_quantile(q) as f64 / 1e3;
        if self.histogram.is_empty() {
            return Latency::default();
        }
        Latency {
            count: self.histogram.len(),
            mean_us: self.histogram.mean() / 1e3,
            p50_us: at(0.5),
            p90_us: at(0.9),
            p99_us: at(0.99),
            p999_us: at(0.999),
            max_us: self.histogram.max() as f64 / 1e3,
            curve: CURVE.iter().map(|q| (*q, at(*q))).collect(),
        }
    }
}

impl Default for Recorder {
    fn default() -> Self {
        Self::new()
    }
}

/// Latencies of one run, in microseconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// How many requests.
    pub count: u64,
    /// Mean.
    pub mean_us: f64,
    /// Median.
    pub p50_us: f64,
    /// 90th percentile.
    pub p90_us: f64,
    /// 99th percentile.
    pub p99_us: f64,
    /// 99.9th percentile.
    pub p999_us: f64,
    /// The longest.
    pub max_us: f64,
    /// Quantile (0 to 1) and latency.
    pub curve: Vec<(f64, f64)>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_those_of_what_was_recorded() {
        let mut recorder = Recorder::new();
        (1..=1000u64).for_each(|i| recorder.record(i * 1000));
        let summary = recorder.summary();
        assert_eq!(summary.count, 1000);
        assert!((summary.p50_us - 500.0).abs() < 1.0, "{summary:?}");
        assert!((summary.p99_us - 990.0).abs() < 1.5, "{summary:?}");
        assert!((summary.max_us - 1000.0).abs() < 1.5, "{summary:?}");
    }

    #[test]
    fn merging_adds_and_extremes_saturate() {
        let mut a = Recorder::new();
        let mut b = Recorder::new();
        a.record(0);
        b.record(u64::MAX);
        a.merge(&b);
        assert_eq!(a.count(), 2);
        assert!(a.summary().max_us >= 59.9e6);
        assert_eq!(Recorder::new().summary(), Latency::default());
    }
}
