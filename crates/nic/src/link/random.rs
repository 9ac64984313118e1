//! Chance that can be repeated.

/// The random numbers of one frame: SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators,
/// 2014), started from the seed and the frame's number.
pub(super) struct Draws {
    state: u64,
}

const GOLDEN_GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;

impl Draws {
    pub(super) fn new(seed: u64, frame: u64) -> Self {
        // Seed and number are mixed apart from each other first: neighbours must not share parts of their sequences.
        Self {
            state: mix(mix(seed.wrapping_add(GOLDEN_GAMMA)) ^ frame.wrapping_mul(GOLDEN_GAMMA)),
        }
    }

    /// The next number, uniform over all 64-bit ones.
    pub(super) fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(GOLDEN_GAMMA);
        mix(self.state)
    }
}

fn mix(z: u64) -> u64 {
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// A probability, ready to be compared with a draw.
#[derive(Clone, Copy)]
pub(super) struct Threshold(Option<u64>);

impl Threshold {
    /// Probabilities below 0 and what is no number count as 0, above 1 as 1.
    pub(super) fn new(probability: f64) -> Self {
        Self(if probability >= 1.0 {
            None
        } else {
            // Casting saturates, and makes 0 of what is no number.
            Some((probability * 2f64.powi(64)) as u64)
        })
    }

    pub(super) fn hit(self, draw: u64) -> bool {
        self.0.is_none_or(|threshold| draw < threshold)
    }
}
