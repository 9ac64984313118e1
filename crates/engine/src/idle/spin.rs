//! How long to poll before sleeping. Polling through a gap in the work answers sooner and saves a wake-up, and burns the core for as long as
//! the gap lasts. So it is done where gaps are short again and again, as with a peer that answers at once; where they are not, the engine polls
//! for no longer than a wake-up costs, which is never worse than twice the best.

/// About what falling asleep and waking cost, in nanoseconds.
const LEAST_NS: u64 = 5_000;

/// Scores are out of this; each gap is an eighth of the score.
const ALL: u32 = 1 << 16;

/// Part of the recent gaps that must have been short.
const ENOUGH: u32 = ALL / 8 * 7;

/// The spinning of one engine thread. All times are of one clock, in nanoseconds.
#[derive(Debug)]
pub(super) struct Spin {
    most_ns: u64,
    /// When the gap began; none: there is work.
    since: Option<u64>,
    score: u32,
}

impl Spin {
    /// Polls for at most so long; zero: not at all.
    pub(super) fn new(most_ns: u64) -> Self {
        Self {
            most_ns,
            since: None,
            score: ALL,
        }
    }

    /// There was work at `now`: a gap, if there was one, is over.
    #[inline]
    pub(super) fn end_gap(&mut self, now: u64) {
        if let Some(since) = self.since.take() {
            let short = now.saturating_sub(since) < self.most_ns;
            self.score = self.score / 8 * 7 + if short { ALL / 8 } else { 0 };
        }
    }

    /// The gap says nothing: it was not waited through.
    pub(super) fn forget_gap(&mut self) {
        self.since = None;
    }

    /// There is no work at `now`: whether to look again at once.
    pub(super) fn goes_on(&mut self, now: u64) -> bool {
        let since = *self.since.get_or_insert(now);
        let limit = if self.score >= ENOUGH {
            self.most_ns
        } else {
            self.most_ns.min(LEAST_NS)
        };
        now.saturating_sub(since) < limit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Nanoseconds polled through gaps of these lengths, the last of many.
    fn polled(spin: &mut Spin, gap: u64) -> u64 {
        let mut last = 0;
        for round in 1..100u64 {
            let begin = round * 10_000_000;
            let step = 100;
            last = (0..gap / step)
                .take_while(|i| spin.goes_on(begin + i * step))
                .count() as u64
                * step;
            spin.end_gap(begin + gap);
        }
        last
    }

    #[test]
    fn short_gaps_are_polled_through_and_long_ones_slept_through() {
        let mut spin = Spin::new(50_000);
        assert_eq!(polled(&mut spin, 20_000), 20_000);
        assert_eq!(polled(&mut spin, 200_000), LEAST_NS);
        assert_eq!(polled(&mut spin, 20_000), 20_000);
        assert_eq!(polled(&mut Spin::new(2_000), 200_000), 2_000);
        assert_eq!(polled(&mut Spin::new(0), 1_000), 0);
    }

    #[test]
    fn one_long_gap_in_many_changes_nothing() {
        let mut spin = Spin::new(50_000);
        polled(&mut spin, 20_000);
        assert!(spin.goes_on(1 << 40));
        spin.end_gap(1 << 41);
        assert!(spin.goes_on(1 << 42) && spin.goes_on((1 << 42) + 20_000));
    }

    #[test]
    fn a_forgotten_gap_does_not_count() {
        let mut spin = Spin::new(50_000);
        for round in 0..20u64 {
            assert!(spin.goes_on(round << 30));
            spin.forget_gap();
            spin.end_gap((round << 30) + 1_000_000);
        }
        assert!(spin.goes_on(1 << 40) && spin.goes_on((1 << 40) + 40_000));
    }
}
