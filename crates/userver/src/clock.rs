//! The time, read once a turn and written out once a second.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::http::condition::{DATE_LEN, http_date};

/// What a worker knows of the time.
#[derive(Clone, Debug)]
pub struct Clock {
    /// Seconds since 1970.
    pub second: u64,
    /// Seconds of a clock that is never set; for idle times.
    pub monotonic: u32,
    /// Value of Date.
    pub date: [u8; DATE_LEN],
    /// Time in the access log, `[10/Oct/2000:13:55:36 +0000]`.
    pub log_time: [u8; LOG_TIME_LEN],
    start: Instant,
    looked: Instant,
}

/// How closely seconds are met.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Bytes of a time in the access log.
pub const LOG_TIME_LEN: usize = 28;

impl Clock {
    /// A clock that was read now.
    pub fn new() -> Self {
        Self::at(since_1970(), 0)
    }

    /// A clock that stands at a time, until it ticks.
    pub fn at(second: u64, monotonic: u32) -> Self {
        let now = Instant::now();
        let mut clock = Self {
            second: 0,
            monotonic: 0,
            date: [0; DATE_LEN],
            log_time: [0; LOG_TIME_LEN],
            start: now,
            looked: now,
        };
        clock.set(second, monotonic);
        clock
    }

    fn set(&mut self, second: u64, monotonic: u32) {
        self.second = second;
        self.monotonic = monotonic;
        self.date = http_date(second);
        self.log_time = log_time(&self.date);
    }

    /// Looks at the time; true when another second has begun. Costs one read of the clock, no system call.
    pub fn tick(&mut self) -> bool {
        let now = Instant::now();
        if now.duration_since(self.looked) < LOOK_EVERY {
            return false;
        }
        self.looked = now;
        let second = since_1970();
        let monotonic = now.duration_since(self.start).as_secs() as u32;
        if second == self.second && monotonic == self.monotonic {
            return false;
        }
        self.set(second, monotonic);
        true
    }
}

fn since_1970() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs())
}

impl Default for Clock {
    fn default() -> Self {
        Self::new()
    }
}

/// `Sun, 06 Nov 1994 08:49:37 GMT` as `[06/Nov/1994:08:49:37 +0000]`.
fn log_time(date: &[u8; DATE_LEN]) -> [u8; LOG_TIME_LEN] {
    let mut text = *b"[dd/mmm/yyyy:hh:mm:ss +0000]";
    text[1..3].copy_from_slice(&date[5..7]);
    text[4..7].copy_from_slice(&date[8..11]);
    text[8..12].copy_from_slice(&date[12..16]);
    text[13..21].copy_from_slice(&date[17..25]);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_of_the_time() {
        let clock = Clock::at(784_111_777, 5);
        assert_eq!(&clock.date, b"Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(&clock.log_time, b"[06/Nov/1994:08:49:37 +0000]");
    }

    #[test]
    fn ticking_reads_the_time() {
        let mut clock = Clock::at(0, 0);
        std::thread::sleep(2 * LOOK_EVERY);
        assert!(clock.tick());
        assert!(clock.second > 1_600_000_000);
        assert!(Clock::new().second >= clock.second);
    }
}
