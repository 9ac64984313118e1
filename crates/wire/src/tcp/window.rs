//! The window field and its scale (RFC 7323 section 2): what is scaled and what is not are
//! different types.

/// A window as the wire carries it, before scaling.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
#[repr(transparent)]
pub struct UnscaledWindow(pub u16);

impl UnscaledWindow {
    /// The window in bytes. The window field of a SYN is never scaled (RFC 7323 section 2.2).
    #[inline]
    pub const fn scaled_by(self, scale: WindowScale) -> u32 {
        (self.0 as u32) << scale.0
    }

    /// What the wire carries for a window of `bytes`: rounded down, at most the largest there is.
    #[inline]
    pub const fn from_bytes(bytes: u32, scale: WindowScale) -> Self {
        let unscaled = bytes >> scale.0;
        Self(if unscaled > 0xffff {
            0xffff
        } else {
            unscaled as u16
        })
    }
}

/// A window scale: the number of bits, 0..=14, by which window fields are shifted.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
#[repr(transparent)]
pub struct WindowScale(u8);

impl WindowScale {
    /// The largest scale, which makes windows of up to 2^30 bytes.
    pub const MAX: Self = Self(14);

    /// A scale of `shift` bits; "if a Window Scale option is received with a shift.cnt value larger
    /// than 14, the TCP SHOULD log the error but MUST use 14 instead of the specified value" (RFC
    /// 7323 section 2.3).
    #[inline]
    pub const fn new(shift: u8) -> Self {
        if shift > Self::MAX.0 {
            Self::MAX
        } else {
            Self(shift)
        }
    }

    /// The number of bits.
    #[inline]
    pub const fn shift(self) -> u8 {
        self.0
    }
}
