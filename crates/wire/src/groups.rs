//! What IGMP and MLD say in the same words: queries, and the records of which reports are made (RFC 3376 section 4, RFC 3810
//! section 5). MLDv2 is IGMPv3 with longer addresses.

use core::fmt::Debug;
use core::marker::PhantomData;
use core::net::{Ipv4Addr, Ipv6Addr};

/// An address that a group or its sources have.
pub trait GroupAddress: Copy + Ord + Debug {
    /// Its bytes.
    const LEN: usize;

    /// From its bytes; `None` if there are too few.
    fn read(bytes: &[u8]) -> Option<Self>;

    /// Writes it to the start of `to`.
    ///
    /// # Panics
    /// If `to` is shorter than it.
    fn write(self, to: &mut [u8]);
}

impl GroupAddress for Ipv4Addr {
    const LEN: usize = 4;

    #[inline]
    fn read(bytes: &[u8]) -> Option<Self> {
        bytes.first_chunk().map(|octets: &[u8; 4]| (*octets).into())
    }

    #[inline]
    fn write(self, to: &mut [u8]) {
        to[..4].copy_from_slice(&self.octets());
    }
}

impl GroupAddress for Ipv6Addr {
    const LEN: usize = 16;

    #[inline]
    fn read(bytes: &[u8]) -> Option<Self> {
        bytes
            .first_chunk()
            .map(|octets: &[u8; 16]| (*octets).into())
    }

    #[inline]
    fn write(self, to: &mut [u8]) {
        to[..16].copy_from_slice(&self.octets());
    }
}

/// What the asker of a query speaks, by IGMP's numbers: MLDv1 is IGMPv2 (RFC 2710 section 1), MLDv2 is IGMPv3 (RFC 3810
/// section 1).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum GroupVersion {
    /// IGMPv1 (RFC 1112).
    V1,
    /// IGMPv2 (RFC 2236), MLDv1 (RFC 2710).
    V2,
    /// IGMPv3 (RFC 3376), MLDv2 (RFC 3810).
    V3,
}

/// The sources that a query names, as they lie in it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Sources<'a, A> {
    bytes: &'a [u8],
    address: PhantomData<A>,
}

impl<'a, A: GroupAddress> Sources<'a, A> {
    /// None at all.
    pub const NONE: Self = Self {
        bytes: &[],
        address: PhantomData,
    };

    /// The first `count` addresses of `bytes`; `None` if they are not all there.
    pub(crate) fn new(bytes: &'a [u8], count: usize) -> Option<Self> {
        let bytes = bytes.get(..count.checked_mul(A::LEN)?)?;
        Some(Self {
            bytes,
            address: PhantomData,
        })
    }

    /// How many there are.
    pub const fn len(&self) -> usize {
        self.bytes.len() / A::LEN
    }

    /// Whether there is none.
    pub const fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// One after the other, in the sender's order.
    pub fn iter(&self) -> impl Iterator<Item = A> + use<'a, A> {
        self.bytes.chunks_exact(A::LEN).filter_map(A::read)
    }
}

/// A membership query, or a multicast listener query.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct GroupQuery<'a, A> {
    /// What the asker speaks.
    pub version: GroupVersion,
    /// Within what time is to be answered, in milliseconds.
    pub max_response_ms: u32,
    /// Which group is asked for; unspecified: all.
    pub group: A,
    /// QRV: how often what may be lost is to be said; 0: the asker does not say (more than 7, or an older version).
    pub robustness: u8,
    /// QQIC: the time between queries in seconds; 0: the asker does not say (an older version).
    pub interval_s: u32,
    /// Of which sources is asked; none: of all.
    pub sources: Sources<'a, A>,
}

/// What a record of a report says (RFC 3376 section 4.2.12, RFC 3810 section 5.2.12).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum RecordKind {
    /// MODE_IS_INCLUDE: these sources are listened to, and no others.
    IsInclude = 1,
    /// MODE_IS_EXCLUDE: all sources are listened to but these.
    IsExclude = 2,
    /// CHANGE_TO_INCLUDE_MODE: from now on these only.
    ToInclude = 3,
    /// CHANGE_TO_EXCLUDE_MODE: from now on all but these.
    ToExclude = 4,
    /// ALLOW_NEW_SOURCES: these too, from now on.
    Allow = 5,
    /// BLOCK_OLD_SOURCES: these no longer.
    Block = 6,
}

impl RecordKind {
    /// From its number.
    pub const fn from_raw(raw: u8) -> Option<Self> {
        Some(match raw {
            1 => Self::IsInclude,
            2 => Self::IsExclude,
            3 => Self::ToInclude,
            4 => Self::ToExclude,
            5 => Self::Allow,
            6 => Self::Block,
            _ => return None,
        })
    }
}

/// One record of a report.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct GroupRecord<'a, A> {
    /// What it says.
    pub kind: RecordKind,
    /// Of which group.
    pub group: A,
    /// Of which sources; no more than 65535.
    pub sources: &'a [A],
}

/// Bytes of a record before its sources.
pub const fn record_head_len<A: GroupAddress>() -> usize {
    4 + A::LEN
}

impl<A: GroupAddress> GroupRecord<'_, A> {
    /// Bytes of it.
    #[allow(clippy::len_without_is_empty, reason = "a record is never empty")]
    pub const fn len(&self) -> usize {
        record_head_len::<A>() + self.sources.len() * A::LEN
    }

    /// Writes it to the start of `to` and returns its length.
    fn emit(&self, to: &mut [u8]) -> usize {
        assert!(self.sources.len() <= usize::from(u16::MAX), "too many");
        to[0] = self.kind as u8;
        to[1] = 0;
        to[2..4].copy_from_slice(&(self.sources.len() as u16).to_be_bytes());
        self.group.write(&mut to[4..]);
        let places = to[record_head_len::<A>()..].chunks_exact_mut(A::LEN);
        for (place, source) in places.zip(self.sources) {
            source.write(place);
        }
        self.len()
    }
}

/// Bytes of a report with these records: a header of eight bytes, and they.
pub fn report_len<A: GroupAddress>(records: &[GroupRecord<'_, A>]) -> usize {
    8 + records.iter().map(GroupRecord::len).sum::<usize>()
}

/// Writes all of a report but its type and checksum.
pub(crate) fn emit_records<A: GroupAddress>(records: &[GroupRecord<'_, A>], message: &mut [u8]) {
    message[..6].fill(0);
    assert!(records.len() <= usize::from(u16::MAX), "too many records");
    message[6..8].copy_from_slice(&(records.len() as u16).to_be_bytes());
    let mut at = 8;
    for record in records {
        at += record.emit(&mut message[at..]);
    }
}

/// A code of eight bits: a number, or from 128 on a floating-point number (RFC 3376 sections 4.1.1 and 4.1.7, RFC 3810 section
/// 5.1.9).
pub(crate) const fn code8(code: u8) -> u32 {
    if code < 0x80 {
        return code as u32;
    }
    let (exponent, mantissa) = ((code >> 4) & 7, (code & 0x0f) as u32);
    (mantissa | 0x10) << (exponent + 3)
}

/// The same of sixteen bits (RFC 3810 section 5.1.3).
pub(crate) const fn code16(code: u16) -> u32 {
    if code < 0x8000 {
        return code as u32;
    }
    let (exponent, mantissa) = ((code >> 12) & 7, (code & 0x0fff) as u32);
    (mantissa | 0x1000) << (exponent + 3)
}
