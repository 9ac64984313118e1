//! TCP options: maximum segment size (RFC 9293 section 3.7.1), window scale and timestamps (RFC
//! 7323), selective acknowledgment (RFC 2018), Fast Open cookies (RFC 7413).

use core::fmt;

use crate::SeqNumber;

use super::WindowScale;

const END: u8 = 0;
const NOP: u8 = 1;
const MSS: u8 = 2;
const WINDOW_SCALE: u8 = 3;
const SACK_PERMITTED: u8 = 4;
const SACK: u8 = 5;
const TIMESTAMPS: u8 = 8;
const FAST_OPEN: u8 = 34;

const MSS_LEN: usize = 4;
const WINDOW_SCALE_LEN: usize = 3;
const SACK_PERMITTED_LEN: usize = 2;
const SACK_BLOCK_LEN: usize = 8;
const TIMESTAMPS_LEN: usize = 10;

/// How NOP NOP TS starts: the layout that RFC 7323 appendix A recommends and that nearly every
/// segment has.
const ALIGNED_TIMESTAMPS: [u8; 4] = [NOP, NOP, TIMESTAMPS, TIMESTAMPS_LEN as u8];
const ALIGNED_TIMESTAMPS_LEN: usize = 2 + TIMESTAMPS_LEN;

/// Bytes of the options of nearly every SYN.
const OPENING_LEN: usize = MSS_LEN + SACK_PERMITTED_LEN + TIMESTAMPS_LEN + 1 + WINDOW_SCALE_LEN;

/// Bytes that the options of one header have room for.
const MAX_LEN: usize = 40;

/// SACK blocks that fit into one header.
pub const MAX_SACK_BLOCKS: usize = 4;

/// The timestamps option (RFC 7323 section 3).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Timestamps {
    /// TSval: the sender's clock.
    pub value: u32,
    /// TSecr: the latest TSval that the sender got; meaningless without ACK.
    pub echo: u32,
}

/// A run of bytes that arrived out of order (RFC 2018 section 3).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct SackBlock {
    /// The first sequence number that arrived.
    pub start: SeqNumber,
    /// The one after the last that arrived.
    pub end: SeqNumber,
}

/// Up to four SACK blocks, in the order of the option.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
// Aligned so that an empty list is written by two stores: unaligned, it was put together on the stack and copied, for six to twelve
// instructions with every segment.
#[repr(align(8))]
pub struct SackBlocks {
    // Unused blocks are zero, so that derived equality is that of the used ones.
    blocks: [SackBlock; MAX_SACK_BLOCKS],
    len: u8,
}

impl SackBlocks {
    /// No block.
    #[inline]
    pub const fn new() -> Self {
        let zero = SackBlock {
            start: SeqNumber(0),
            end: SeqNumber(0),
        };
        Self {
            blocks: [zero; MAX_SACK_BLOCKS],
            len: 0,
        }
    }

    /// Appends a block. Returns whether there was room.
    #[inline]
    pub fn push(&mut self, block: SackBlock) -> bool {
        let Some(slot) = self.blocks.get_mut(usize::from(self.len)) else {
            return false;
        };
        *slot = block;
        self.len += 1;
        true
    }

    /// The blocks.
    #[inline]
    pub fn iter(&self) -> core::iter::Copied<core::slice::Iter<'_, SackBlock>> {
        self.as_slice().iter().copied()
    }

    /// The blocks as a slice.
    #[inline]
    pub fn as_slice(&self) -> &[SackBlock] {
        self.blocks.get(..self.len()).unwrap_or_default()
    }

    /// How many blocks there are.
    #[inline]
    pub const fn len(&self) -> usize {
        self.len as usize
    }

    /// Whether there is no block.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl fmt::Debug for SackBlocks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.as_slice()).finish()
    }
}

impl FromIterator<SackBlock> for SackBlocks {
    /// The first four of the blocks.
    fn from_iter<I: IntoIterator<Item = SackBlock>>(blocks: I) -> Self {
        let mut collected = Self::new();
        for block in blocks.into_iter().take(MAX_SACK_BLOCKS) {
            collected.push(block);
        }
        collected
    }
}

impl<'a> IntoIterator for &'a SackBlocks {
    type Item = SackBlock;
    type IntoIter = core::iter::Copied<core::slice::Iter<'a, SackBlock>>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

/// What the Fast Open option says (RFC 7413 section 4.1.1): a cookie, or, without one, that the sender wants one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct FastOpenCookie {
    // Unused bytes are zero, so that derived equality is that of the used ones.
    bytes: [u8; Self::MAX_LEN],
    len: u8,
}

impl FastOpenCookie {
    /// Bytes of the shortest cookie.
    pub const MIN_LEN: usize = 4;
    /// Bytes of the longest.
    pub const MAX_LEN: usize = 16;

    /// No cookie: a request for one.
    pub const REQUEST: Self = Self {
        bytes: [0; Self::MAX_LEN],
        len: 0,
    };

    /// A cookie of 4 to 16 bytes, of even length, or, of no byte, a request; `None` of any other length, with which the option says
    /// nothing.
    pub fn new(cookie: &[u8]) -> Option<Self> {
        let len = cookie.len();
        let fits = len == 0 || (Self::MIN_LEN..=Self::MAX_LEN).contains(&len);
        if !fits || !len.is_multiple_of(2) {
            return None;
        }
        let mut bytes = [0; Self::MAX_LEN];
        bytes[..len].copy_from_slice(cookie);
        let len = len as u8;
        Some(Self { bytes, len })
    }

    /// The cookie.
    pub fn as_slice(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }

    /// Whether it is no cookie, but a request for one.
    pub const fn is_request(&self) -> bool {
        self.len == 0
    }
}

impl fmt::Debug for FastOpenCookie {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:02x?}", self.as_slice())
    }
}

/// What an option list says. Unknown options are skipped when parsing and never emitted.
///
/// Whether an option is allowed on a segment (MSS, window scale and SACK-permitted belong on SYNs)
/// is for the connection to judge.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TcpOptions {
    /// The largest payload that the sender takes, in bytes.
    pub mss: Option<u16>,
    /// The scale of the windows that the sender will announce.
    pub window_scale: Option<WindowScale>,
    /// The sender understands SACK blocks.
    pub sack_permitted: bool,
    /// The sender's clock and an echo of ours.
    pub timestamps: Option<Timestamps>,
    /// What the sender got out of order.
    pub sack: SackBlocks,
    /// Fast Open: a cookie, or a request for one. On a SYN only, which has an MSS too.
    pub fast_open: Option<FastOpenCookie>,
}

impl TcpOptions {
    /// No option.
    pub const NONE: Self = Self {
        mss: None,
        window_scale: None,
        sack_permitted: false,
        timestamps: None,
        sack: SackBlocks::new(),
        fast_open: None,
    };

    /// Reads an option list: the bytes between the fixed header and the payload.
    #[inline]
    pub(super) fn parse(list: &[u8]) -> Self {
        if list.is_empty() {
            return Self::NONE;
        }
        if let Ok(&[n0, n1, kind, len, v0, v1, v2, v3, e0, e1, e2, e3]) =
            <&[u8; ALIGNED_TIMESTAMPS_LEN]>::try_from(list)
            && [n0, n1, kind, len] == ALIGNED_TIMESTAMPS
        {
            let value = u32::from_be_bytes([v0, v1, v2, v3]);
            let echo = u32::from_be_bytes([e0, e1, e2, e3]);
            return Self {
                timestamps: Some(Timestamps { value, echo }),
                ..Self::NONE
            };
        }
        Self::parse_any(list)
    }

    /// Reads the list of nearly every SYN and SYN-ACK: MSS, SACK-permitted, timestamps, NOP and
    /// window scale, as [`emit`](Self::emit) writes it.
    fn parse_opening(list: &[u8]) -> Option<Self> {
        const BEFORE: [u8; 2] = [MSS, MSS_LEN as u8];
        const AMID: [u8; 4] = [
            SACK_PERMITTED,
            SACK_PERMITTED_LEN as u8,
            TIMESTAMPS,
            TIMESTAMPS_LEN as u8,
        ];
        const AFTER: [u8; 3] = [NOP, WINDOW_SCALE, WINDOW_SCALE_LEN as u8];
        let &[
            b0,
            b1,
            m0,
            m1,
            a0,
            a1,
            a2,
            a3,
            v0,
            v1,
            v2,
            v3,
            e0,
            e1,
            e2,
            e3,
            z0,
            z1,
            z2,
            shift,
        ] = <&[u8; OPENING_LEN]>::try_from(list).ok()?;
        let usual = [b0, b1] == BEFORE && [a0, a1, a2, a3] == AMID && [z0, z1, z2] == AFTER;
        usual.then(|| Self {
            mss: Some(u16::from_be_bytes([m0, m1])),
            window_scale: Some(WindowScale::new(shift)),
            sack_permitted: true,
            timestamps: Some(Timestamps {
                value: u32::from_be_bytes([v0, v1, v2, v3]),
                echo: u32::from_be_bytes([e0, e1, e2, e3]),
            }),
            ..Self::NONE
        })
    }

    /// Reads a list of any layout, up to its end, an end-of-list option, or a length that cannot
    /// be.
    fn parse_any(list: &[u8]) -> Self {
        Self::parse_opening(list).unwrap_or_else(|| Self::parse_each(list))
    }

    /// Reads one option after the other.
    fn parse_each(mut list: &[u8]) -> Self {
        let mut options = Self::NONE;
        while let Some((&kind, rest)) = list.split_first() {
            list = match kind {
                END => break,
                NOP => rest,
                _ => {
                    let Some(len) = rest.first().map(|len| usize::from(*len)) else {
                        break;
                    };
                    // The length counts kind and length.
                    let Some(value) = list.get(2..len) else { break };
                    options.set(kind, value);
                    list.get(len..).unwrap_or_default()
                }
            };
        }
        options
    }

    /// Takes one option. A known option of a wrong length says nothing, and the list goes on after
    /// it.
    fn set(&mut self, kind: u8, value: &[u8]) {
        match (kind, value) {
            (MSS, &[a, b]) => self.mss = Some(u16::from_be_bytes([a, b])),
            (WINDOW_SCALE, &[shift]) => self.window_scale = Some(WindowScale::new(shift)),
            (SACK_PERMITTED, &[]) => self.sack_permitted = true,
            (SACK, blocks) if blocks.len() % SACK_BLOCK_LEN == 0 => {
                self.sack = blocks.as_chunks().0.iter().map(sack_block).collect();
            }
            (TIMESTAMPS, &[v0, v1, v2, v3, e0, e1, e2, e3]) => {
                let value = u32::from_be_bytes([v0, v1, v2, v3]);
                let echo = u32::from_be_bytes([e0, e1, e2, e3]);
                self.timestamps = Some(Timestamps { value, echo });
            }
            (FAST_OPEN, cookie) => self.fast_open = FastOpenCookie::new(cookie).or(self.fast_open),
            _ => {}
        }
    }

    /// Bytes of the emitted list, padding counted: a multiple of 4, at most 40.
    #[inline]
    #[allow(
        clippy::len_without_is_empty,
        reason = "a list without bytes is a list without options"
    )]
    pub const fn len(&self) -> usize {
        let fixed = self.fixed_len();
        match self.sack_blocks_that_fit(fixed) {
            0 => fixed,
            n => fixed + 4 + n * SACK_BLOCK_LEN,
        }
    }

    /// Bytes of all options but SACK: at most 40.
    #[inline]
    const fn fixed_len(&self) -> usize {
        let mss = if self.mss.is_some() { MSS_LEN } else { 0 };
        let scale = if self.window_scale.is_some() {
            1 + WINDOW_SCALE_LEN
        } else {
            0
        };
        // SACK-permitted takes the place of the two NOPs before the timestamps.
        let timestamps = if self.timestamps.is_some() {
            ALIGNED_TIMESTAMPS_LEN
        } else if self.sack_permitted {
            2 + SACK_PERMITTED_LEN
        } else {
            0
        };
        let fast_open = match &self.fast_open {
            Some(cookie) => (2 + cookie.len as usize).next_multiple_of(4),
            None => 0,
        };
        mss + scale + timestamps + fast_open
    }

    #[inline]
    const fn sack_blocks_that_fit(&self, fixed_len: usize) -> usize {
        let room = (MAX_LEN - 4).saturating_sub(fixed_len) / SACK_BLOCK_LEN;
        let wanted = self.sack.len();
        if wanted < room { wanted } else { room }
    }

    /// Writes the list; `list` has exactly [`len`](Self::len) bytes.
    ///
    /// Order: MSS, SACK-permitted or NOP NOP, timestamps, NOP and window scale, Fast Open and NOPs, NOP
    /// NOP and SACK blocks.
    #[inline]
    pub(super) fn emit(&self, list: &mut [u8]) {
        if list.is_empty() {
            return;
        }
        let mut writer = Writer { list };
        if let Some(mss) = self.mss {
            let [a, b] = mss.to_be_bytes();
            writer.put([MSS, MSS_LEN as u8, a, b]);
        }
        match (self.timestamps, self.sack_permitted) {
            (Some(timestamps), permitted) => {
                writer.put(if permitted {
                    [
                        SACK_PERMITTED,
                        SACK_PERMITTED_LEN as u8,
                        TIMESTAMPS,
                        TIMESTAMPS_LEN as u8,
                    ]
                } else {
                    ALIGNED_TIMESTAMPS
                });
                writer.put(timestamps.value.to_be_bytes());
                writer.put(timestamps.echo.to_be_bytes());
            }
            (None, true) => writer.put([NOP, NOP, SACK_PERMITTED, SACK_PERMITTED_LEN as u8]),
            (None, false) => {}
        }
        if let Some(scale) = self.window_scale {
            writer.put([NOP, WINDOW_SCALE, WINDOW_SCALE_LEN as u8, scale.shift()]);
        }
        if let Some(cookie) = &self.fast_open {
            writer.put_fast_open(cookie);
        }
        let blocks = self.sack_blocks_that_fit(self.fixed_len());
        if blocks > 0 {
            writer.put([NOP, NOP, SACK, (2 + blocks * SACK_BLOCK_LEN) as u8]);
            for block in self.sack.iter().take(blocks) {
                writer.put(block.start.0.to_be_bytes());
                writer.put(block.end.0.to_be_bytes());
            }
        }
    }
}

fn sack_block(bytes: &[u8; SACK_BLOCK_LEN]) -> SackBlock {
    let [s0, s1, s2, s3, e0, e1, e2, e3] = *bytes;
    SackBlock {
        start: SeqNumber(u32::from_be_bytes([s0, s1, s2, s3])),
        end: SeqNumber(u32::from_be_bytes([e0, e1, e2, e3])),
    }
}

/// Appends words to a list whose length was computed before.
struct Writer<'a> {
    list: &'a mut [u8],
}

impl Writer<'_> {
    #[cold]
    fn put_fast_open(&mut self, cookie: &FastOpenCookie) {
        let len = 2 + usize::from(cookie.len);
        let mut bytes = [NOP; 20];
        bytes[0] = FAST_OPEN;
        bytes[1] = len as u8;
        bytes[2..len].copy_from_slice(cookie.as_slice());
        for word in bytes[..len.next_multiple_of(4)].as_chunks().0 {
            self.put(*word);
        }
    }

    #[inline]
    fn put(&mut self, word: [u8; 4]) {
        if let Some((head, rest)) = core::mem::take(&mut self.list).split_first_chunk_mut() {
            *head = word;
            self.list = rest;
        }
    }
}
