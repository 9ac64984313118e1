//! Options of neighbour discovery (RFC 4861 section 4.6).

use core::net::Ipv6Addr;

use crate::{MacAddress, ParseError};

pub(super) const SOURCE_LINK: u8 = 1;
pub(super) const TARGET_LINK: u8 = 2;
const PREFIX_INFORMATION: u8 = 3;
const MTU: u8 = 5;

/// Prefixes of one router advertisement that are kept; those behind them are ignored.
pub const MAX_PREFIXES: usize = 8;

const ON_LINK: u8 = 0x80;
const AUTONOMOUS: u8 = 0x40;

/// A prefix information option (RFC 4861 section 4.6.2).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct PrefixInformation {
    /// Bits of the prefix that count, at most 128.
    pub prefix_len: u8,
    /// L: addresses with it are neighbours.
    pub on_link: bool,
    /// A: addresses may be made from it (RFC 4862).
    pub autonomous: bool,
    /// How long it is valid, in seconds; all ones: for ever.
    pub valid_lifetime: u32,
    /// How long addresses made from it are preferred, in seconds; all ones: for ever.
    pub preferred_lifetime: u32,
    /// The prefix; bits behind `prefix_len` mean nothing.
    pub prefix: Ipv6Addr,
}

impl PrefixInformation {
    /// From the option's 32 bytes.
    fn parse(option: &[u8; 32]) -> Result<Self, ParseError> {
        let word = |at: usize| {
            let bytes = [option[at], option[at + 1], option[at + 2], option[at + 3]];
            u32::from_be_bytes(bytes)
        };
        let mut prefix = [0; 16];
        prefix.copy_from_slice(&option[16..]);
        if option[2] > 128 {
            return Err(ParseError::Malformed);
        }
        Ok(Self {
            prefix_len: option[2],
            on_link: option[3] & ON_LINK != 0,
            autonomous: option[3] & AUTONOMOUS != 0,
            valid_lifetime: word(4),
            preferred_lifetime: word(8),
            prefix: Ipv6Addr::from(prefix),
        })
    }

    pub(super) fn emit(&self, buf: &mut [u8]) -> usize {
        let option = &mut buf[..32];
        option[..3].copy_from_slice(&[PREFIX_INFORMATION, 4, self.prefix_len]);
        let on_link = if self.on_link { ON_LINK } else { 0 };
        let autonomous = if self.autonomous { AUTONOMOUS } else { 0 };
        option[3] = on_link | autonomous;
        option[4..8].copy_from_slice(&self.valid_lifetime.to_be_bytes());
        option[8..12].copy_from_slice(&self.preferred_lifetime.to_be_bytes());
        option[12..16].fill(0);
        option[16..].copy_from_slice(&self.prefix.octets());
        32
    }
}

/// The prefixes of a router advertisement, in its order.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Prefixes([Option<PrefixInformation>; MAX_PREFIXES]);

impl Prefixes {
    /// None.
    pub const NONE: Self = Self([None; MAX_PREFIXES]);

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = PrefixInformation> + '_ {
        self.0.iter().flatten().copied()
    }

    /// Adds one; false if there is no place.
    pub fn push(&mut self, prefix: PrefixInformation) -> bool {
        let place = self.0.iter_mut().find(|place| place.is_none());
        place.map(|place| *place = Some(prefix)).is_some()
    }
}

impl FromIterator<PrefixInformation> for Prefixes {
    /// The first [`MAX_PREFIXES`].
    fn from_iter<T: IntoIterator<Item = PrefixInformation>>(prefixes: T) -> Self {
        let mut all = Self::NONE;
        for prefix in prefixes.into_iter().take(MAX_PREFIXES) {
            all.push(prefix);
        }
        all
    }
}

/// The options of one message. Of options that come twice the last one counts, but for prefixes.
#[derive(Clone, Copy, Default)]
pub(super) struct Options {
    pub(super) source_link: Option<MacAddress>,
    pub(super) target_link: Option<MacAddress>,
    pub(super) mtu: Option<u32>,
    pub(super) prefixes: Prefixes,
}

impl Options {
    /// Reads the list. Unknown options are ignored; so are known ones of a length that is not theirs
    /// (a link address of another link layer, say).
    ///
    /// # Errors
    /// [`ParseError::Malformed`] if an option has length 0, which all messages forbid;
    /// [`ParseError::Truncated`] if one goes beyond the end.
    pub(super) fn parse(list: &[u8]) -> Result<Self, ParseError> {
        let mut options = Self::default();
        let mut rest = list;
        while !rest.is_empty() {
            let &[kind, units, ..] = rest else {
                return Err(ParseError::Truncated);
            };
            if units == 0 {
                return Err(ParseError::Malformed);
            }
            let Some((option, behind)) = rest.split_at_checked(usize::from(units) * 8) else {
                return Err(ParseError::Truncated);
            };
            options.take(kind, option);
            rest = behind;
        }
        Ok(options)
    }

    fn take(&mut self, kind: u8, option: &[u8]) {
        match (kind, option) {
            (SOURCE_LINK, &[_, _, a, b, c, d, e, f]) => {
                self.source_link = Some(MacAddress([a, b, c, d, e, f]));
            }
            (TARGET_LINK, &[_, _, a, b, c, d, e, f]) => {
                self.target_link = Some(MacAddress([a, b, c, d, e, f]));
            }
            (MTU, &[_, _, _, _, a, b, c, d]) => {
                self.mtu = Some(u32::from_be_bytes([a, b, c, d]));
            }
            (PREFIX_INFORMATION, option) => {
                if let Ok(option) = option.try_into()
                    && let Ok(prefix) = PrefixInformation::parse(option)
                {
                    self.prefixes.push(prefix);
                }
            }
            _ => {}
        }
    }
}

pub(super) fn emit_link_address(kind: u8, address: Option<MacAddress>, buf: &mut [u8]) -> usize {
    let Some(address) = address else { return 0 };
    buf[..2].copy_from_slice(&[kind, 1]);
    buf[2..8].copy_from_slice(&address.0);
    8
}

pub(super) fn emit_mtu(mtu: Option<u32>, buf: &mut [u8]) -> usize {
    let Some(mtu) = mtu else { return 0 };
    buf[..4].copy_from_slice(&[MTU, 1, 0, 0]);
    buf[4..8].copy_from_slice(&mtu.to_be_bytes());
    8
}
