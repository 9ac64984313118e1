//! Finding connections on which nothing happens, without work for those on which something does.
//!
//! A wheel of seconds holds each connection's token at the second at which it is worth a look. Activity only writes the time into the
//! connection; when its second comes, the worker looks whether it was really idle, and if not puts it in again where its idle time now
//! ends. So a connection costs one look per idle time, however busy it is.

use std::time::Duration;

use super::slab::Token;

const SLOTS: usize = 512;

/// The idle time in the wheel's seconds. Times are known to the second: one more, so that nobody is cut off early.
pub(crate) fn seconds(idle_timeout: Duration) -> u32 {
    idle_timeout.as_secs().min(1 << 30) as u32 + 1
}

/// The wheel.
pub(crate) struct IdleWheel {
    slots: Vec<Vec<Token>>,
    now: u32,
}

impl IdleWheel {
    /// A wheel that stands at `now`, in seconds.
    pub(crate) fn new(now: u32) -> Self {
        Self {
            slots: (0..SLOTS).map(|_| Vec::new()).collect(),
            now,
        }
    }

    /// Has `token` looked at when `at` comes, or earlier when that is farther away than the wheel reaches.
    pub(crate) fn schedule(&mut self, token: Token, at: u32) {
        let delay = (at.wrapping_sub(self.now) as i32).clamp(1, SLOTS as i32 - 1);
        let slot = self.now.wrapping_add(delay as u32) as usize % SLOTS;
        self.slots[slot].push(token);
    }

    /// Moves to `now` and takes what is worth a look into `due`.
    pub(crate) fn advance(&mut self, now: u32, due: &mut Vec<Token>) {
        let steps = now.wrapping_sub(self.now).min(SLOTS as u32);
        for _ in 0..steps {
            self.now = self.now.wrapping_add(1);
            due.append(&mut self.slots[self.now as usize % SLOTS]);
        }
        self.now = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn due(wheel: &mut IdleWheel, now: u32) -> Vec<u64> {
        let mut due = Vec::new();
        wheel.advance(now, &mut due);
        due.sort_unstable_by_key(|t| t.0);
        due.iter().map(|t| t.0).collect()
    }

    #[test]
    fn tokens_come_when_their_second_comes() {
        let mut wheel = IdleWheel::new(u32::MAX - 3);
        wheel.schedule(Token(1), u32::MAX - 1);
        wheel.schedule(Token(2), 5);
        wheel.schedule(Token(3), u32::MAX - 100); // past: at once, that is next second
        assert_eq!(due(&mut wheel, u32::MAX - 2), [3]);
        assert_eq!(due(&mut wheel, u32::MAX - 1), [1]);
        assert_eq!(due(&mut wheel, 4), []);
        assert_eq!(due(&mut wheel, 5), [2]);
    }

    #[test]
    fn what_is_far_away_comes_early_and_long_sleeps_lose_nothing() {
        let mut wheel = IdleWheel::new(0);
        wheel.schedule(Token(1), 1_000_000);
        assert_eq!(due(&mut wheel, SLOTS as u32 - 1), [1]);
        wheel.schedule(Token(2), SLOTS as u32 + 3);
        assert_eq!(due(&mut wheel, 10_000_000), [2]);
    }
}
