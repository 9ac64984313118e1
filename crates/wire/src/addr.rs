//! Addresses: the link layer's here, the Internet layer's from `core::net`.

use core::fmt;
use core::str::FromStr;

pub use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

/// A 48-bit IEEE 802 address, in transmission order.
///
/// Written `02:00:00:00:00:01`; parsed from that form or with `-` between the octets.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[repr(transparent)]
pub struct MacAddress(pub [u8; 6]);

impl MacAddress {
    /// `ff:ff:ff:ff:ff:ff`, every station of the link.
    pub const BROADCAST: Self = Self([0xff; 6]);
    /// `00:00:00:00:00:00`, which ARP requests carry for the address they ask for.
    pub const UNSPECIFIED: Self = Self([0; 6]);

    /// Whether this is the broadcast address.
    #[inline]
    pub const fn is_broadcast(self) -> bool {
        matches!(self.0, [0xff, 0xff, 0xff, 0xff, 0xff, 0xff])
    }

    /// Whether this is a group address; broadcast is one (IEEE 802-2014 8.2.2: the I/G bit).
    #[inline]
    pub const fn is_multicast(self) -> bool {
        self.0[0] & 1 != 0
    }

    /// Whether a single station may have this address: neither a group address nor all zero.
    #[inline]
    pub const fn is_unicast(self) -> bool {
        !self.is_multicast() && !matches!(self.0, [0, 0, 0, 0, 0, 0])
    }
}

impl fmt::Display for MacAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl fmt::Debug for MacAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl From<[u8; 6]> for MacAddress {
    fn from(octets: [u8; 6]) -> Self {
        Self(octets)
    }
}

/// The text is not six two-digit hexadecimal octets separated by `:` or by `-`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MacAddressParseError;

impl fmt::Display for MacAddressParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not a MAC address: expected six two-digit octets such as 02:00:00:00:00:01")
    }
}

impl core::error::Error for MacAddressParseError {}

impl FromStr for MacAddress {
    type Err = MacAddressParseError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let bytes: &[u8; 17] = text
            .as_bytes()
            .try_into()
            .map_err(|_| MacAddressParseError)?;
        let separator = bytes[2];
        if separator != b':' && separator != b'-' {
            return Err(MacAddressParseError);
        }
        let mut octets = [0; 6];
        for (octet, group) in octets.iter_mut().zip(bytes.chunks(3)) {
            let (high, low) = match *group {
                [high, low] => (high, low),
                [high, low, s] if s == separator => (high, low),
                _ => return Err(MacAddressParseError),
            };
            *octet = hex_digit(high)? << 4 | hex_digit(low)?;
        }
        Ok(Self(octets))
    }
}

fn hex_digit(ascii: u8) -> Result<u8, MacAddressParseError> {
    match ascii {
        b'0'..=b'9' => Ok(ascii - b'0'),
        b'a'..=b'f' => Ok(ascii - b'a' + 10),
        b'A'..=b'F' => Ok(ascii - b'A' + 10),
        _ => Err(MacAddressParseError),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_round_trips() {
        let mac = MacAddress([0x02, 0xab, 0x00, 0xff, 0x10, 0x09]);
        assert_eq!(mac.to_string(), "02:ab:00:ff:10:09");
        assert_eq!("02:ab:00:ff:10:09".parse(), Ok(mac));
        assert_eq!("02-AB-00-FF-10-09".parse(), Ok(mac));
    }

    #[test]
    fn other_text_is_refused() {
        for text in [
            "",
            "02:ab:00:ff:10",
            "02:ab:00:ff:10:0",
            "02:ab:00:ff:10:09:",
            "02:ab:00-ff:10:09",
            "02.ab.00.ff.10.09",
            "02:ab:00:ff:10:0g",
            "+2:ab:00:ff:10:09",
            "é2:ab:00:ff:10:0",
        ] {
            assert_eq!(
                text.parse::<MacAddress>(),
                Err(MacAddressParseError),
                "{text:?}"
            );
        }
    }

    #[test]
    fn kinds() {
        assert!(MacAddress::BROADCAST.is_broadcast() && MacAddress::BROADCAST.is_multicast());
        assert!(!MacAddress::UNSPECIFIED.is_unicast());
        assert!(MacAddress([2, 0, 0, 0, 0, 1]).is_unicast());
        assert!(MacAddress([1, 0, 0x5e, 0, 0, 1]).is_multicast());
    }
}
