//! Where frames go.

use crate::User;

/// What the way out can do.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SinkCaps {
    /// Payload bytes of a super-segment that the device cuts into segments; 0: it cuts none.
    pub tso_max: u32,
    /// IP MTU of the device, in bytes; not below the one of `StackConfig`.
    pub mtu: u16,
    /// Bytes of IP packet that the loopback takes at once; packets are at most 65535.
    pub loopback_mtu: u32,
}

/// Where the payload of a frame comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TxPayload<'a> {
    /// There is none.
    None,
    /// `len` bytes of what a user's socket sends, from stream offset `start`.
    Stream {
        /// Whose.
        user: User,
        /// The first byte.
        start: u64,
        /// How many.
        len: u32,
    },
    /// These.
    Bytes(&'a [u8]),
}

impl TxPayload<'_> {
    /// How many bytes.
    #[inline]
    pub const fn len(&self) -> usize {
        match self {
            Self::None => 0,
            Self::Stream { len, .. } => *len as usize,
            Self::Bytes(bytes) => bytes.len(),
        }
    }

    /// Whether there are none.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// What is left to do for a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TxOffload {
    /// The Internet checksum of everything from byte `.0` of the frame to its end is to be put at byte `.0 + .1`. The
    /// field holds the folded sum of the pseudo-header, with the length of the whole transport packet. For loopback
    /// frames nobody computes it.
    pub checksum: Option<(u16, u16)>,
    /// The payload of one segment, if the frame is a super-segment that is to be cut; else 0.
    pub segment_size: u16,
    /// The frame goes to this stack itself, and has no Ethernet header.
    pub loopback: bool,
    /// The length of `header`.
    pub header_len: u16,
}

/// Where frames go: the device and the loopback.
pub trait FrameSink {
    /// What the way out can do. Read once in each turn.
    fn caps(&self) -> SinkCaps;

    /// Whether the next [`send`](Self::send) to the loopback, or to the device, will succeed.
    fn has_room(&self, loopback: bool) -> bool;

    /// Sends one frame. `header` is Ethernet, IP and TCP (or UDP, or ICMP), of at most
    /// [`MAX_HEADER_LEN`](crate::MAX_HEADER_LEN) bytes; for the loopback without Ethernet. It is complete but for what
    /// `offload` says.
    fn send(&mut self, header: &[u8], payload: TxPayload<'_>, offload: &TxOffload);
}
