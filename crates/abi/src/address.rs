//! Addresses in entries: three words, IPv4 and IPv6 alike.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

/// An IP address and port in three words of an entry. IPv4 travels as an IPv4-mapped IPv6 address with family 4.
///
/// ```text
///   words 0, 1: address, 16 bytes in network order
///   word 2:     | port (16) | family: 0 none, 4, 6 (16) | scope (32) |
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Address(pub [u64; 3]);

impl Address {
    /// No address at all.
    pub const NONE: Self = Self([0; 3]);

    /// Packs a socket address.
    pub fn new(address: SocketAddr) -> Self {
        let (octets, family, scope) = match address.ip() {
            IpAddr::V4(ip) => (ip.to_ipv6_mapped().octets(), 4u64, 0u32),
            IpAddr::V6(ip) => {
                let scope = if let SocketAddr::V6(v6) = address {
                    v6.scope_id()
                } else {
                    0
                };
                (ip.octets(), 6u64, scope)
            }
        };
        let (high, low) = octets.split_at(8);
        Self([
            word(high),
            word(low),
            address.port() as u64 | family << 16 | (scope as u64) << 32,
        ])
    }

    /// Unpacks; `None` when the family is neither 4 nor 6, or says 4 over bytes that are not an IPv4-mapped address.
    pub fn get(self) -> Option<SocketAddr> {
        let mut octets = [0u8; 16];
        octets[..8].copy_from_slice(&self.0[0].to_ne_bytes());
        octets[8..].copy_from_slice(&self.0[1].to_ne_bytes());
        let ip = Ipv6Addr::from(octets);
        let port = self.0[2] as u16;
        match (self.0[2] >> 16) as u16 {
            4 => ip
                .to_ipv4_mapped()
                .map(|v4: Ipv4Addr| SocketAddr::new(IpAddr::V4(v4), port)),
            6 => Some(SocketAddr::V6(SocketAddrV6::new(
                ip,
                port,
                0,
                (self.0[2] >> 32) as u32,
            ))),
            _ => None,
        }
    }
}

fn word(bytes: &[u8]) -> u64 {
    let mut out = [0u8; 8];
    out.copy_from_slice(bytes);
    u64::from_ne_bytes(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trips_and_refuses_nonsense() {
        for text in [
            "10.77.0.2:80",
            "0.0.0.0:0",
            "[2001:db8::1]:443",
            "255.255.255.255:65535",
        ] {
            let address: SocketAddr = text.parse().unwrap();
            assert_eq!(Address::new(address).get(), Some(address));
        }
        assert_eq!(Address::NONE.get(), None);
        assert_eq!(
            Address([1, 2, 4 << 16]).get(),
            None,
            "family 4 over a plain IPv6 address"
        );
        assert_eq!(Address([0, 0, 5 << 16]).get(), None);
    }
}
