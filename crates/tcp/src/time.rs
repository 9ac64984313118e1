//! Time as an argument: nanoseconds since an origin that the caller chooses.

use core::ops::{Add, AddAssign, Sub};
use core::time::Duration;

use serde::{Deserialize, Serialize};

/// A point in time: nanoseconds since an arbitrary origin, the same for all calls on one connection.
///
/// Nothing in this crate reads a clock. Time may stand still between calls but must not run backwards.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Hash, Serialize, Deserialize,
)]
#[repr(transparent)]
pub struct Instant(u64);

impl Instant {
    /// The origin.
    pub const ZERO: Self = Self(0);
    /// Later than every time that comes: a timer that is off.
    pub const NEVER: Self = Self(u64::MAX);

    /// From nanoseconds since the origin.
    #[inline]
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// From microseconds since the origin (saturating).
    #[inline]
    pub const fn from_micros(micros: u64) -> Self {
        Self(micros.saturating_mul(1_000))
    }

    /// From milliseconds since the origin (saturating).
    #[inline]
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis.saturating_mul(1_000_000))
    }

    /// From seconds since the origin (saturating).
    #[inline]
    pub const fn from_secs(secs: u64) -> Self {
        Self(secs.saturating_mul(1_000_000_000))
    }

    /// Nanoseconds since the origin.
    #[inline]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Whole microseconds since the origin.
    #[inline]
    pub const fn as_micros(self) -> u64 {
        self.0 / 1_000
    }

    /// Whole milliseconds since the origin.
    #[inline]
    pub const fn as_millis(self) -> u64 {
        self.0 / 1_000_000
    }

    /// How long after `earlier` this is; zero if it is not after it.
    #[inline]
    pub const fn duration_since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// `self + duration`, or `None` beyond the end of time (584 years).
    #[inline]
    pub fn checked_add(self, duration: Duration) -> Option<Self> {
        let nanos = u64::try_from(duration.as_nanos()).ok()?;
        self.0.checked_add(nanos).map(Self)
    }

    /// `self - duration`, or `None` before the origin.
    #[inline]
    pub fn checked_sub(self, duration: Duration) -> Option<Self> {
        let nanos = u64::try_from(duration.as_nanos()).ok()?;
        self.0.checked_sub(nanos).map(Self)
    }

    /// `self` and so many microseconds. Wraps only after 584 years.
    #[inline]
    pub(crate) const fn after_micros(self, micros: u32) -> Self {
        Self(self.0.wrapping_add(micros as u64 * 1_000))
    }

    /// `self` and so many milliseconds. Wraps only after 584 years.
    #[inline]
    pub(crate) const fn after_millis(self, millis: u32) -> Self {
        Self(self.0.wrapping_add(millis as u64 * 1_000_000))
    }

    /// Whole microseconds since `earlier`, at most `limit`; 0 if not after it.
    #[inline]
    pub(crate) fn micros_since(self, earlier: Self, limit: u32) -> u32 {
        let nanos = self.0.saturating_sub(earlier.0);
        (nanos.min(u64::from(limit) * 1_000) / 1_000) as u32
    }

    /// The same moment on another clock, on which `from` is called `to`. [`Self::NEVER`] stays (saturating).
    pub(crate) const fn on_other_clock(self, from: Self, to: Self) -> Self {
        if self.0 == u64::MAX {
            self
        } else if to.0 >= from.0 {
            Self(self.0.saturating_add(to.0 - from.0))
        } else {
            Self(self.0.saturating_sub(from.0 - to.0))
        }
    }

    /// Whole milliseconds since `earlier`, 0 if not after it.
    #[inline]
    pub(crate) const fn millis_since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0) / 1_000_000
    }
}

impl Add<Duration> for Instant {
    type Output = Self;
    /// Saturates at [`Instant::NEVER`].
    #[inline]
    fn add(self, duration: Duration) -> Self {
        self.checked_add(duration).unwrap_or(Self::NEVER)
    }
}

impl AddAssign<Duration> for Instant {
    #[inline]
    fn add_assign(&mut self, duration: Duration) {
        *self = *self + duration;
    }
}

impl Sub<Duration> for Instant {
    type Output = Self;
    /// Saturates at [`Instant::ZERO`].
    #[inline]
    fn sub(self, duration: Duration) -> Self {
        self.checked_sub(duration).unwrap_or(Self::ZERO)
    }
}

impl Sub for Instant {
    type Output = Duration;
    /// Saturates at zero, as [`Instant::duration_since`].
    #[inline]
    fn sub(self, earlier: Self) -> Duration {
        self.duration_since(earlier)
    }
}

/// A duration in whole milliseconds, rounded up (a timer must not fire early), saturating at 49 days.
pub(crate) fn millis(duration: Duration) -> u32 {
    let below = duration.subsec_nanos().div_ceil(1_000_000);
    let millis = duration.as_secs().saturating_mul(1_000);
    u32::try_from(millis.saturating_add(below.into())).unwrap_or(u32::MAX)
}

/// A duration in whole microseconds, rounded up, saturating at 71 minutes.
pub(crate) fn micros(duration: Duration) -> u32 {
    let below = duration.subsec_nanos().div_ceil(1_000);
    let micros = duration.as_secs().saturating_mul(1_000_000);
    u32::try_from(micros.saturating_add(below.into())).unwrap_or(u32::MAX)
}
