//! The greatest value of a sliding window, by three samples (Kathleen Nichols' algorithm, as in Linux's `win_minmax`).

use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
struct Sample {
    time: u32,
    value: u32,
}

/// The best value, the best of what came after it, and the best of what came after that.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct WindowedMax([Sample; 3]);

impl WindowedMax {
    pub(crate) fn get(&self) -> u32 {
        self.0[0].value
    }

    /// A value at `time`; those of more than `window` before are forgotten. Returns the greatest.
    pub(crate) fn update(&mut self, window: u32, time: u32, value: u32) -> u32 {
        let new = Sample { time, value };
        let best = &mut self.0;
        let nothing_left = time.wrapping_sub(best[2].time) > window;
        if value >= best[0].value || nothing_left {
            *best = [new; 3];
            return value;
        }
        if value >= best[1].value {
            best[1] = new;
            best[2] = new;
        } else if value >= best[2].value {
            best[2] = new;
        }
        let age = time.wrapping_sub(best[0].time);
        if age > window {
            // The best is too old: the next ones move up, perhaps by two.
            *best = [best[1], best[2], new];
            if time.wrapping_sub(best[0].time) > window {
                *best = [best[1], best[2], new];
            }
        } else if best[1].time == best[0].time && age > window / 4 {
            // A quarter without a second best: take one from the second quarter.
            best[1] = new;
            best[2] = new;
        } else if best[2].time == best[1].time && age > window / 2 {
            best[2] = new;
        }
        best[0].value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_greatest_of_the_window_and_no_longer() {
        let mut filter = WindowedMax::default();
        for (time, value, greatest) in [
            (0, 5, 5),
            (1, 9, 9),
            (4, 7, 9),
            (6, 3, 9),
            (8, 6, 9),
            (11, 2, 9),
            // 9 is eleven old.
            (12, 2, 7),
            (15, 1, 6),
            (40, 1, 1),
            (41, 8, 8),
        ] {
            assert_eq!(filter.update(10, time, value), greatest, "at {time}");
            assert_eq!(filter.get(), greatest);
        }
    }

    #[test]
    fn a_window_of_one_remembers_one_round() {
        let mut filter = WindowedMax::default();
        assert_eq!(filter.update(1, 7, 100), 100);
        assert_eq!(filter.update(1, 8, 50), 100);
        assert_eq!(filter.update(1, 9, 40), 50);
        assert_eq!(filter.update(1, u32::MAX, 3), 3);
        assert_eq!(filter.update(1, 0, 2), 3);
    }
}
