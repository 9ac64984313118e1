//! Medians, spreads, and ratios with a bootstrap interval.

use serde::{Deserialize, Serialize};

use crate::load::arrivals::SplitMix;

/// Resamples of a bootstrap.
const RESAMPLES: usize = 2000;

/// Middle and ends of some measured values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// Median.
    pub median: f64,
    /// Smallest.
    pub min: f64,
    /// Largest.
    pub max: f64,
    /// How many values.
    pub count: usize,
}

impl Spread {
    /// Of these values; none of none.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut values: Vec<f64> = values.into_iter().filter(|v| v.is_finite()).collect();
        values.sort_by(f64::total_cmp);
        Some(Self {
            median: median_of_sorted(&values)?,
            min: *values.first()?,
            max: *values.last()?,
            count: values.len(),
        })
    }
}

fn median_of_sorted(values: &[f64]) -> Option<f64> {
    let middle = values.len() / 2;
    let upper = *values.get(middle)?;
    match values.len() % 2 {
        1 => Some(upper),
        _ => Some((values[middle - 1] + upper) / 2.0),
    }
}

fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    median_of_sorted(&values)
}

/// A ratio with its 95 % interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ratio {
    /// Median of the pairs' ratios.
    pub ratio: f64,
    /// Lower end of the interval.
    pub low: f64,
    /// Upper end of the interval.
    pub high: f64,
    /// How many pairs.
    pub pairs: usize,
}

/// The median ratio first/second over pairs that were measured next to each other, with a percentile bootstrap interval. The resampling is
/// seeded: equal pairs give equal intervals.
pub fn paired_ratio(pairs: &[(f64, f64)]) -> Option<Ratio> {
    let ratios: Vec<f64> = pairs
        .iter()
        .map(|(first, second)| first / second)
        .filter(|ratio| ratio.is_finite())
        .collect();
    let ratio = median(ratios.clone())?;
    let mut random = SplitMix(ratios.len() as u64);
    let mut resample = || {
        let sample = ratios
            .iter()
            .map(|_| ratios[random.below(ratios.len())])
            .collect();
        median(sample).unwrap_or(ratio)
    };
    let mut medians: Vec<f64> = (0..RESAMPLES).map(|_| resample()).collect();
    medians.sort_by(f64::total_cmp);
    Some(Ratio {
        ratio,
        low: medians[RESAMPLES * 25 / 1000],
        high: medians[RESAMPLES * 975 / 1000],
        pairs: ratios.len(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_of_odd_and_even_numbers_of_values() {
        let spread = Spread::of([3.0, 1.0, 2.0]).unwrap();
        assert_eq!(
            (spread.median, spread.min, spread.max, spread.count),
            (2.0, 1.0, 3.0, 3)
        );
        assert_eq!(Spread::of([4.0, 1.0, 2.0, 3.0]).unwrap().median, 2.5);
        assert_eq!(Spread::of([]), None);
        assert_eq!(Spread::of([f64::NAN, 1.0]).unwrap().count, 1);
    }

    #[test]
    fn a_ratio_of_pairs_is_not_moved_by_drift_that_both_share() {
        let pairs: Vec<(f64, f64)> = (1..=11)
            .map(|i| (2.0 * f64::from(i), f64::from(i)))
            .collect();
        let ratio = paired_ratio(&pairs).unwrap();
        assert_eq!(
            (ratio.ratio, ratio.low, ratio.high, ratio.pairs),
            (2.0, 2.0, 2.0, 11)
        );
    }

    #[test]
    fn an_interval_holds_the_median_and_widens_with_noise() {
        let pairs: Vec<(f64, f64)> = (0..20)
            .map(|i| (1.0 + f64::from(i % 5) / 10.0, 1.0))
            .collect();
        let ratio = paired_ratio(&pairs).unwrap();
        assert!(ratio.low <= ratio.ratio && ratio.ratio <= ratio.high);
        assert!(
            ratio.low < ratio.high && ratio.low >= 1.0 && ratio.high <= 1.4,
            "{ratio:?}"
        );
        assert_eq!(
            paired_ratio(&pairs),
            Some(ratio),
            "the same pairs, the same interval"
        );
        assert_eq!(paired_ratio(&[]), None);
        assert_eq!(paired_ratio(&[(1.0, 0.0)]), None);
    }
}
