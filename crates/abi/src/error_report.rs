//! What became of a datagram: the report that the engine puts in front of the datagram's first bytes, in a chunk
//! ([`crate::EventKind::ErrorReport`]). It says what Linux' `struct sock_extended_err` says, and the address that the error came
//! from behind it (`IP_RECVERR`, `IPV6_RECVERR`).

use core::net::{IpAddr, Ipv6Addr};

use crate::Status;

/// Who says that something is wrong.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum ErrorOrigin {
    /// The engine itself (SO_EE_ORIGIN_LOCAL).
    Local = 1,
    /// ICMP (SO_EE_ORIGIN_ICMP).
    Icmp = 2,
    /// ICMPv6 (SO_EE_ORIGIN_ICMP6).
    Icmpv6 = 3,
}

impl ErrorOrigin {
    const fn from_raw(raw: u8) -> Option<Self> {
        Some(match raw {
            1 => Self::Local,
            2 => Self::Icmp,
            3 => Self::Icmpv6,
            _ => return None,
        })
    }
}

/// A report.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ErrorReport {
    /// Linux' number of the error (`ee_errno`): 111 for ECONNREFUSED.
    pub errno: u32,
    /// Who says so.
    pub origin: ErrorOrigin,
    /// Type of the ICMP message; 0 of [`ErrorOrigin::Local`].
    pub kind: u8,
    /// Code of the ICMP message.
    pub code: u8,
    /// Bytes of the largest packet that would have passed, where that is what was wrong (EMSGSIZE); of ICMPv6's parameter problem the
    /// offset of what is wrong; else 0.
    pub info: u32,
    /// Who sent the ICMP message; none of [`ErrorOrigin::Local`].
    pub offender: Option<IpAddr>,
}

/// Bytes of the datagram that a report has room for, at most: what an error quotes of it (RFC 1812 section 4.3.2.3, RFC 4443
/// section 2.4 (c)) less its headers.
pub const ERROR_PAYLOAD_MAX: usize = 1184;

const _: () = assert!(ErrorReport::LEN == 32 && ErrorReport::LEN.is_multiple_of(8));

impl ErrorReport {
    /// Bytes of a report; those of the datagram follow.
    pub const LEN: usize = 32;

    /// As it lies in memory: errno (4), origin, kind, code, family of the offender 0, 4 or 6 (1 each), info (4), 0 (4), offender
    /// (16, network order, IPv4 as an IPv4-mapped address); numbers in the machine's byte order.
    pub fn to_bytes(&self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        let (family, octets) = match self.offender {
            None => (0, [0; 16]),
            Some(IpAddr::V4(ip)) => (4, ip.to_ipv6_mapped().octets()),
            Some(IpAddr::V6(ip)) => (6, ip.octets()),
        };
        bytes[..4].copy_from_slice(&self.errno.to_ne_bytes());
        bytes[4..8].copy_from_slice(&[self.origin as u8, self.kind, self.code, family]);
        bytes[8..12].copy_from_slice(&self.info.to_ne_bytes());
        bytes[16..].copy_from_slice(&octets);
        bytes
    }

    /// From a chunk's bytes; `None` if there are too few, or if they are no report.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; Self::LEN] = bytes.first_chunk()?;
        let number = |at: usize| {
            let mut four = [0; 4];
            four.copy_from_slice(&bytes[at..at + 4]);
            u32::from_ne_bytes(four)
        };
        let mut octets = [0; 16];
        octets.copy_from_slice(&bytes[16..]);
        let ip = Ipv6Addr::from(octets);
        Some(Self {
            errno: number(0),
            origin: ErrorOrigin::from_raw(bytes[4])?,
            kind: bytes[5],
            code: bytes[6],
            info: number(8),
            offender: match bytes[7] {
                0 => None,
                4 => Some(IpAddr::V4(ip.to_ipv4_mapped()?)),
                6 => Some(IpAddr::V6(ip)),
                _ => return None,
            },
        })
    }

    /// The nearest [`Status`].
    pub const fn status(&self) -> Status {
        match self.errno {
            EACCES => Status::NotPermitted,
            EMSGSIZE => Status::MessageTooLarge,
            ECONNREFUSED => Status::ConnectionRefused,
            _ => Status::Unreachable,
        }
    }
}

const EACCES: u32 = 13;
const ENONET: u32 = 64;
const EPROTO: u32 = 71;
const EMSGSIZE: u32 = 90;
const ENOPROTOOPT: u32 = 92;
const EOPNOTSUPP: u32 = 95;
const ENETUNREACH: u32 = 101;
const ECONNREFUSED: u32 = 111;
const EHOSTDOWN: u32 = 112;
const EHOSTUNREACH: u32 = 113;

/// What Linux makes of an ICMP error about a datagram: its number, and whether a connected socket that did not ask for reports is
/// told as well, because trying again would not help. `None`: it is no error.
pub const fn icmp_errno(kind: u8, code: u8) -> Option<(u32, bool)> {
    Some(match (kind, code) {
        // Destination unreachable (RFC 792, RFC 1122 section 3.2.2.1).
        (3, 0 | 11) => (ENETUNREACH, false),
        (3, 1 | 12) => (EHOSTUNREACH, false),
        (3, 2) => (ENOPROTOOPT, true),
        (3, 3) => (ECONNREFUSED, true),
        (3, 4) => (EMSGSIZE, true),
        (3, 5) => (EOPNOTSUPP, false),
        (3, 6 | 9) => (ENETUNREACH, true),
        (3, 7) => (EHOSTDOWN, true),
        (3, 8) => (ENONET, true),
        (3, 10 | 13..=15) => (EHOSTUNREACH, true),
        // Time exceeded, parameter problem.
        (11, _) => (EHOSTUNREACH, false),
        (12, _) => (EPROTO, true),
        _ => return None,
    })
}

/// The same of ICMPv6.
pub const fn icmpv6_errno(kind: u8, code: u8) -> Option<(u32, bool)> {
    Some(match (kind, code) {
        // Destination unreachable (RFC 4443 section 3.1).
        (1, 0) => (ENETUNREACH, false),
        (1, 1 | 5 | 6) => (EACCES, true),
        (1, 2 | 3) => (EHOSTUNREACH, false),
        (1, 4) => (ECONNREFUSED, true),
        // Packet too big, time exceeded, parameter problem.
        (2, _) => (EMSGSIZE, true),
        (3, _) => (EHOSTUNREACH, false),
        (4, _) => (EPROTO, true),
        _ => return None,
    })
}

/// The error of a datagram that is larger than what passes, found on this side.
pub const TOO_LARGE: u32 = EMSGSIZE;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_and_back() {
        for (origin, offender) in [
            (ErrorOrigin::Local, None),
            (ErrorOrigin::Icmp, Some("10.0.0.1")),
            (ErrorOrigin::Icmpv6, Some("2001:db8::1")),
        ] {
            let report = ErrorReport {
                errno: ECONNREFUSED,
                origin,
                kind: 3,
                code: 4,
                info: 1400,
                offender: offender.map(|text| text.parse().unwrap()),
            };
            let mut bytes = report.to_bytes();
            assert_eq!(ErrorReport::from_bytes(&bytes), Some(report));
            assert_eq!(ErrorReport::from_bytes(&bytes[..31]), None);
            bytes[4] = 0;
            assert_eq!(ErrorReport::from_bytes(&bytes), None, "no origin");
            bytes[4] = 1;
            bytes[7] = 5;
            assert_eq!(ErrorReport::from_bytes(&bytes), None, "no family");
        }
    }

    /// Numbers and severity as in Linux' `icmp_err_convert` and `icmpv6_err_convert`.
    #[test]
    fn errors_as_linux_has_them() {
        assert_eq!(icmp_errno(3, 3), Some((111, true)));
        assert_eq!(icmp_errno(3, 1), Some((113, false)));
        assert_eq!(icmp_errno(3, 4), Some((90, true)));
        assert_eq!(icmp_errno(3, 16), None);
        assert_eq!(icmp_errno(11, 1), Some((113, false)));
        assert_eq!((icmp_errno(8, 0), icmp_errno(0, 0)), (None, None));
        assert_eq!(icmpv6_errno(1, 4), Some((111, true)));
        assert_eq!(icmpv6_errno(1, 1), Some((13, true)));
        assert_eq!(icmpv6_errno(2, 0), Some((90, true)));
        assert_eq!((icmpv6_errno(1, 7), icmpv6_errno(129, 0)), (None, None));
        let status = |errno| {
            let report = ErrorReport {
                errno,
                origin: ErrorOrigin::Icmp,
                kind: 0,
                code: 0,
                info: 0,
                offender: None,
            };
            report.status()
        };
        assert_eq!(status(111), Status::ConnectionRefused);
        assert_eq!(status(90), Status::MessageTooLarge);
        assert_eq!(status(13), Status::NotPermitted);
        assert_eq!(status(101), Status::Unreachable);
    }
}
