//! TCP sequence numbers (RFC 9293 section 3.4).

use core::fmt;
use core::ops::{Add, AddAssign, Sub};

/// A point in TCP's sequence space, which is a circle of 2^32 numbers.
///
/// ```text
///              after (self - other < 2^31)
///            ┌────────────────────────────►
///   ── other ●─────────────────────────────── …
///   ◄────────┘
///     before (self - other ≥ 2^31)
/// ```
///
/// On a circle there is no order, only "before" and "after" seen from a point not more than half
/// the circle away; so this type has no `Ord`, and comparing with `<` does not compile. All
/// arithmetic is modulo 2^32.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[repr(transparent)]
pub struct SeqNumber(pub u32);

#[allow(
    clippy::should_implement_trait,
    reason = "the operators are implemented too; these are their const forms"
)]
impl SeqNumber {
    /// Strictly before `other`: `(self - other)` is negative as a 32-bit number.
    ///
    /// Two points exactly 2^31 apart are each before the other; no window of TCP is that large (RFC
    /// 7323 2.3).
    #[inline]
    pub const fn before(self, other: Self) -> bool {
        (self.0.wrapping_sub(other.0) as i32) < 0
    }

    /// Before `other` or equal to it.
    #[inline]
    pub const fn before_eq(self, other: Self) -> bool {
        (self.0.wrapping_sub(other.0) as i32) <= 0
    }

    /// Strictly after `other`: `other` is before `self`.
    #[inline]
    pub const fn after(self, other: Self) -> bool {
        other.before(self)
    }

    /// After `other` or equal to it.
    #[inline]
    pub const fn after_eq(self, other: Self) -> bool {
        other.before_eq(self)
    }

    /// `self + n` modulo 2^32.
    #[inline]
    pub const fn add(self, n: u32) -> Self {
        Self(self.0.wrapping_add(n))
    }

    /// `self - n` modulo 2^32.
    #[inline]
    pub const fn sub(self, n: u32) -> Self {
        Self(self.0.wrapping_sub(n))
    }

    /// How far `self` lies after `earlier`: `self - earlier` modulo 2^32.
    ///
    /// If `self` is in truth before `earlier`, the answer is the long way round (more than 2^31).
    #[inline]
    pub const fn distance_from(self, earlier: Self) -> u32 {
        self.0.wrapping_sub(earlier.0)
    }

    /// Whether `start <= self < start + len` on the circle. An empty window holds nothing.
    #[inline]
    pub const fn in_window(self, start: Self, len: u32) -> bool {
        self.distance_from(start) < len
    }

    /// The later of two points.
    #[inline]
    pub const fn max(self, other: Self) -> Self {
        if self.before(other) { other } else { self }
    }

    /// The earlier of two points.
    #[inline]
    pub const fn min(self, other: Self) -> Self {
        if other.before(self) { other } else { self }
    }
}

impl Add<u32> for SeqNumber {
    type Output = Self;
    #[inline]
    fn add(self, n: u32) -> Self {
        SeqNumber::add(self, n)
    }
}

impl AddAssign<u32> for SeqNumber {
    #[inline]
    fn add_assign(&mut self, n: u32) {
        *self = SeqNumber::add(*self, n);
    }
}

impl Sub<u32> for SeqNumber {
    type Output = Self;
    #[inline]
    fn sub(self, n: u32) -> Self {
        SeqNumber::sub(self, n)
    }
}

impl fmt::Display for SeqNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}
