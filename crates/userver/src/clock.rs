//! The time, read once a turn and written out once a second.

use rustix::time::{ClockId, clock_gettime};

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
}

/// Bytes of a time in the access log.
pub const LOG_TIME_LEN: usize = 28;

impl Clock {
    /// A clock that was read now.
    pub fn new() -> Self {
        let mut clock = Self::at(0, 0);
        clock.tick();
        clock
    }

    /// A clock that stands at a time.
    pub fn at(second: u64, monotonic: u32) -> Self {
        let date = http_date(second);
        Self {
            second,
            monotonic,
            date,
            log_time: log_time(&date),
        }
    }

    /// Reads the clocks; true when another second has begun. Costs two reads of the kernel's coarse clocks, no system call.
    pub fn tick(&mut self) -> bool {
        let second = clock_gettime(ClockId::RealtimeCoarse).tv_sec.max(0) as u64;
        let monotonic = clock_gettime(ClockId::MonotonicCoarse).tv_sec as u32;
        if second == self.second && monotonic == self.monotonic {
            return false;
        }
        *self = Self::at(second, monotonic);
        true
    }
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
        assert!(clock.tick());
        assert!(clock.second > 1_600_000_000);
    }
}
