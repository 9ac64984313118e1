//! Ethernet II frames (IEEE 802.3 clause 3).

use crate::{MacAddress, ParseError};

/// Bytes of an Ethernet header without tags.
pub const HEADER_LEN: usize = 14;

/// EtherType of IPv4.
pub const ETHERTYPE_IPV4: u16 = 0x0800;
/// EtherType of ARP.
pub const ETHERTYPE_ARP: u16 = 0x0806;
/// EtherType of IPv6.
pub const ETHERTYPE_IPV6: u16 = 0x86dd;
/// EtherType of an IEEE 802.1Q customer tag.
pub const ETHERTYPE_VLAN: u16 = 0x8100;
/// EtherType of an IEEE 802.1Q service tag (802.1ad).
pub const ETHERTYPE_SERVICE_VLAN: u16 = 0x88a8;

/// The header of an Ethernet II frame.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct EthernetHeader {
    /// To whom.
    pub dst: MacAddress,
    /// From whom.
    pub src: MacAddress,
    /// What the payload is: one of the `ETHERTYPE_*`, or a number that means nothing here. Below
    /// 0x0600 it is an IEEE 802.3 length.
    pub ethertype: u16,
}

impl EthernetHeader {
    /// Reads the header of a frame (without preamble and check sequence); the payload starts at the
    /// returned offset.
    ///
    /// # Errors
    /// [`ParseError::Truncated`] below 14 bytes; [`ParseError::Unsupported`] if the frame has a
    /// VLAN tag.
    #[inline]
    pub fn parse(frame: &[u8]) -> Result<(Self, usize), ParseError> {
        let Some(&[d0, d1, d2, d3, d4, d5, s0, s1, s2, s3, s4, s5, t0, t1]) =
            frame.first_chunk::<HEADER_LEN>()
        else {
            return Err(ParseError::Truncated);
        };
        let ethertype = u16::from_be_bytes([t0, t1]);
        if matches!(ethertype, ETHERTYPE_VLAN | ETHERTYPE_SERVICE_VLAN) {
            return Err(ParseError::Unsupported);
        }
        let dst = MacAddress([d0, d1, d2, d3, d4, d5]);
        let src = MacAddress([s0, s1, s2, s3, s4, s5]);
        Ok((
            Self {
                dst,
                src,
                ethertype,
            },
            HEADER_LEN,
        ))
    }

    /// Bytes that [`emit`](Self::emit) writes.
    #[inline]
    #[allow(clippy::len_without_is_empty, reason = "a header is never empty")]
    pub const fn len(&self) -> usize {
        HEADER_LEN
    }

    /// Writes the header at the start of `buf` and returns its length.
    ///
    /// # Panics
    /// If `buf` is shorter than 14 bytes.
    #[inline]
    pub fn emit(&self, buf: &mut [u8]) -> usize {
        let header = &mut buf[..HEADER_LEN];
        header[..6].copy_from_slice(&self.dst.0);
        header[6..12].copy_from_slice(&self.src.0);
        header[12..].copy_from_slice(&self.ethertype.to_be_bytes());
        HEADER_LEN
    }
}
