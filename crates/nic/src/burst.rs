//! Frames on their way in.

/// The most frames that one [`receive`](crate::Nic::receive) gives.
pub const BURST: usize = 64;

/// One received frame: a claim on driver memory until it is released.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RxFrame {
    /// The driver's name for the memory that holds the frame.
    pub token: u32,
    /// Bytes of the frame, from the Ethernet header on.
    pub len: u32,
    /// The device vouches for the transport checksum: it verified it (`VIRTIO_NET_HDR_F_DATA_VALID`), or the frame
    /// never left memory and carries none (`VIRTIO_NET_HDR_F_NEEDS_CSUM`).
    pub checksum_valid: bool,
    /// Of a super-segment, the payload bytes of the segments that it stands for; 0: an ordinary frame.
    pub gso_size: u16,
}

/// Up to [`BURST`] received frames. The engine owns one and uses it again every turn.
#[derive(Debug)]
pub struct RxBurst {
    frames: [RxFrame; BURST],
    len: usize,
}

impl RxBurst {
    /// An empty burst.
    pub const fn new() -> Self {
        const NONE: RxFrame = RxFrame {
            token: 0,
            len: 0,
            checksum_valid: false,
            gso_size: 0,
        };
        Self {
            frames: [NONE; BURST],
            len: 0,
        }
    }

    /// The frames, in the order of their arrival.
    #[inline]
    pub fn frames(&self) -> &[RxFrame] {
        self.frames.get(..self.len).unwrap_or_default()
    }

    /// The `index`th frame.
    #[inline]
    pub fn get(&self, index: usize) -> Option<RxFrame> {
        self.frames().get(index).copied()
    }

    /// How many frames there are.
    #[inline]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// How many frames can be added.
    #[inline]
    pub const fn room(&self) -> usize {
        BURST.saturating_sub(self.len)
    }

    /// Adds a frame; false if the burst is full. For drivers.
    #[inline]
    pub fn push(&mut self, frame: RxFrame) -> bool {
        match self.frames.get_mut(self.len) {
            Some(slot) => {
                *slot = frame;
                self.len += 1;
                true
            }
            None => false,
        }
    }

    /// Forgets all frames. For drivers: the engine calls [`release`](crate::Nic::release).
    #[inline]
    pub fn clear(&mut self) {
        self.len = 0;
    }
}

impl Default for RxBurst {
    fn default() -> Self {
        Self::new()
    }
}

impl<'a> IntoIterator for &'a RxBurst {
    type Item = &'a RxFrame;
    type IntoIter = core::slice::Iter<'a, RxFrame>;

    fn into_iter(self) -> Self::IntoIter {
        self.frames().iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holds_a_burst_and_no_more() {
        let mut burst = RxBurst::new();
        for token in 0..BURST as u32 {
            assert_eq!(burst.room(), BURST - token as usize);
            assert!(burst.push(RxFrame {
                token,
                ..RxFrame::default()
            }));
        }
        assert!(!burst.push(RxFrame::default()));
        assert_eq!(burst.len(), BURST);
        assert_eq!(burst.get(63).map(|f| f.token), Some(63));
        assert_eq!(burst.get(64), None);
        assert!(
            burst
                .into_iter()
                .map(|f| f.token)
                .eq((0..BURST).map(|t| t as u32))
        );
        burst.clear();
        assert!(burst.is_empty() && burst.frames().is_empty());
    }
}
