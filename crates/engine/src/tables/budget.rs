//! What datagrams that wait for a holder of their socket may come to, over all and for each application.

use std::collections::HashMap;

/// Bytes that wait in all sockets at most, and in those that one UAL bound: no application takes the engine's memory, nor the others' share.
const LIMIT: usize = 64 << 20;
const SHARE: usize = LIMIT / 4;

/// What waits, in bytes.
#[derive(Debug, Default)]
pub(super) struct Budget {
    pub(super) all: usize,
    /// By the UAL that bound the socket, also of those that are gone.
    shares: HashMap<u64, usize>,
}

impl Budget {
    /// Counts so many bytes more; false, and nothing has changed, if they are too many.
    pub(super) fn take(&mut self, owner: u64, bytes: usize) -> bool {
        let share = self.shares.get(&owner).copied().unwrap_or(0);
        let fits = self.all + bytes <= LIMIT && share + bytes <= SHARE;
        if fits {
            self.all += bytes;
            *self.shares.entry(owner).or_default() += bytes;
        }
        fits
    }

    /// So many fewer.
    pub(super) fn give(&mut self, owner: u64, bytes: usize) {
        self.all -= bytes;
        if let Some(share) = self.shares.get_mut(&owner) {
            *share -= bytes;
            if *share == 0 {
                self.shares.remove(&owner);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_has_more_than_a_share_of_what_waits() {
        let mut budget = Budget::default();
        let mut fill = |owner| (0..).take_while(|_| budget.take(owner, 1 << 20)).count();
        assert_eq!(fill(1), SHARE >> 20);
        assert_eq!(fill(1), 0);
        assert_eq!((fill(2), fill(3), fill(4)), (16, 16, 16));
        assert_eq!(fill(5), 0, "all together have no more");
        budget.give(1, 1 << 20);
        assert!(budget.take(5, 1 << 20) && !budget.take(1, 1));
        for owner in [2, 3, 4] {
            budget.give(owner, SHARE);
        }
        budget.give(1, SHARE - (1 << 20));
        budget.give(5, 1 << 20);
        assert_eq!((budget.all, budget.shares.len()), (0, 0));
    }
}
