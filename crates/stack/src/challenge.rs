//! How many challenge ACKs all connections send together (RFC 5961 section 7).
//!
//! A limit that connections share tells an attacker who has one of his own whether another has used some of it (CVE-2016-5696). So each
//! connection has a limit too, which is far below this one ([`sidecore_tcp::ChallengeLimit`]), and what this one is, is drawn anew each
//! second: from half to one and a half times what is configured.

use sidecore_tcp::Instant;

use crate::hash::FlowHasher;

#[derive(Debug)]
pub(crate) struct ChallengeBudget {
    per_second: u32,
    second: u64,
    left: u32,
    hasher: FlowHasher,
}

impl ChallengeBudget {
    /// `per_second` on average; 0: none.
    pub(crate) fn new(per_second: u32, hasher: FlowHasher) -> Self {
        Self {
            per_second,
            second: u64::MAX,
            left: 0,
            hasher,
        }
    }

    /// Takes one, if there is one.
    pub(crate) fn take(&mut self, now: Instant) -> bool {
        let second = now.as_nanos() / 1_000_000_000;
        if second != self.second {
            self.second = second;
            self.left = self.drawn(second);
        }
        let may = self.left > 0;
        self.left -= u32::from(may);
        may
    }

    /// What this second's budget is.
    fn drawn(&self, second: u64) -> u32 {
        let hash = self.hasher.hash(second, 0) as u32;
        let share = (u64::from(hash) * u64::from(self.per_second)) >> 32;
        (self.per_second / 2).saturating_add(share as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spent(budget: &mut ChallengeBudget, second: u64) -> u32 {
        let now = Instant::from_secs(second);
        (0..10_000).filter(|_| budget.take(now)).count() as u32
    }

    #[test]
    fn every_second_has_another_budget_and_nobody_knows_it() {
        let mut budget = ChallengeBudget::new(1000, FlowHasher::new([1, 2]));
        let seconds: Vec<u32> = (0..200).map(|s| spent(&mut budget, s)).collect();
        assert!(seconds.iter().all(|spent| (500..1500).contains(spent)));
        let mean = seconds.iter().sum::<u32>() / 200;
        assert!((900..1100).contains(&mean), "{mean}");
        let mut different = seconds.clone();
        different.sort_unstable();
        different.dedup();
        assert!(different.len() > 150, "{}", different.len());
        let mut other = ChallengeBudget::new(1000, FlowHasher::new([1, 3]));
        assert_ne!(spent(&mut other, 7), seconds[7]);
    }

    #[test]
    fn none_is_none_and_once_spent_is_spent() {
        let mut budget = ChallengeBudget::new(0, FlowHasher::new([1, 2]));
        assert_eq!(spent(&mut budget, 1), 0);
        let mut budget = ChallengeBudget::new(10, FlowHasher::new([1, 2]));
        assert!(spent(&mut budget, 1) > 0);
        assert!(!budget.take(Instant::from_millis(1999)));
    }
}
