//! What a socket may say in the IP header: traffic class (IP_TOS, IPV6_TCLASS) and hop limit (IP_TTL, IPV6_UNICAST_HOPS).
//!
//! Nearly no socket does. One flag of the slot says whether it does, and then its headers are written the thorough way.

use core::num::NonZeroU8;

use sidecore_wire::{Ipv4Header, ipv4, ipv6};

use crate::config::SocketOptions;
use crate::connections::{Slot, flag};

/// The upper six bits: DSCP. The lower two are TCP's (RFC 3168 section 5).
const DSCP: u8 = 0xfc;

/// What is not as usual in a socket's IP headers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Marking {
    pub(crate) class: u8,
    pub(crate) hop_limit: Option<NonZeroU8>,
}

impl Marking {
    /// That of a stream with these options.
    pub(crate) const fn of(options: &SocketOptions) -> Self {
        Self {
            class: options.traffic_class & DSCP,
            hop_limit: options.hop_limit,
        }
    }

    pub(crate) fn set_class(&mut self, class: u8) {
        self.class = class & DSCP;
    }

    const fn merged(self, old: u8) -> u8 {
        self.class | old & !DSCP
    }

    /// Changes an IPv4 header that was written already.
    pub(crate) fn write4(self, header: &mut [u8]) {
        let Ok((old, _)) = Ipv4Header::parse_quoted(header) else {
            return;
        };
        let new = Ipv4Header {
            dscp_ecn: self.merged(old.dscp_ecn),
            ttl: self.hop_limit.map_or(old.ttl, NonZeroU8::get),
            ..old
        };
        let payload_len = usize::from(old.total_len).saturating_sub(ipv4::MIN_HEADER_LEN);
        new.emit(header, payload_len);
    }

    /// Changes an IPv6 header that was written already.
    pub(crate) fn write6(self, header: &mut [u8]) {
        let Some(header) = header.first_chunk_mut::<{ ipv6::HEADER_LEN }>() else {
            return;
        };
        let old = header[0] << 4 | header[1] >> 4;
        let class = self.merged(old);
        header[0] = header[0] & 0xf0 | class >> 4;
        header[1] = header[1] & 0x0f | class << 4;
        if let Some(limit) = self.hop_limit {
            header[7] = limit.get();
        }
    }
}

impl Slot {
    /// The marking has changed: says whether there is one.
    pub(crate) fn note_marking(&mut self) {
        self.flags &= !flag::MARKED;
        if self.marking != Marking::default() {
            self.flags |= flag::MARKED;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sidecore_wire::Ipv6Header;

    #[test]
    fn only_what_is_marked_changes() {
        let marking = Marking::of(&SocketOptions {
            traffic_class: 0xb9,
            hop_limit: NonZeroU8::new(3),
            ..SocketOptions::default()
        });
        assert_eq!(marking.class, 0xb8, "not the bits of ECN");
        let (a, b) = ([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
        let old = Ipv4Header {
            dscp_ecn: 2,
            ..Ipv4Header::new(a, b, ipv4::PROTOCOL_TCP)
        };
        let mut bytes = [0; 20];
        old.emit(&mut bytes, 100);
        marking.write4(&mut bytes);
        let (new, _) = Ipv4Header::parse_quoted(&bytes).unwrap();
        assert_eq!((new.dscp_ecn, new.ttl, new.total_len), (0xba, 3, 120));
        assert_eq!((new.src, new.dst, new.dont_fragment), (a, b, true));

        let (a, b) = ("fd00::1".parse().unwrap(), "fd00::2".parse().unwrap());
        let old = Ipv6Header {
            traffic_class: 1,
            flow_label: 0xf_1234,
            ..Ipv6Header::new(a, b, ipv6::PROTOCOL_TCP)
        };
        let mut bytes = [0; 60];
        old.emit(&mut bytes, 20);
        marking.write6(&mut bytes);
        let (new, _) = Ipv6Header::parse(&bytes).unwrap();
        assert_eq!((new.traffic_class, new.hop_limit), (0xb9, 3));
        assert_eq!((new.flow_label, new.src, new.dst), (0xf_1234, a, b));
    }
}
