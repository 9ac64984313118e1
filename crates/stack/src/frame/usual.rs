//! The header of the usual segment (TCP with timestamps alone, or without options), written at once.
//!
//! Header by header, each with its own bounds, lengths and sums, it takes about four times as many instructions. That both
//! ways write the same bytes is tested.

use sidecore_wire::ethernet::{ETHERTYPE_IPV4, HEADER_LEN as ETHERNET_LEN};
use sidecore_wire::ipv4::{DEFAULT_TTL, MIN_HEADER_LEN as IP_LEN, PROTOCOL_TCP};
use sidecore_wire::tcp::MIN_HEADER_LEN as TCP_LEN;
use sidecore_wire::{MacAddress, TcpHeader, TcpOptions, checksum};

use crate::flow::FlowKey;

/// Bytes of the timestamps option with its padding.
const TIMESTAMPS_LEN: usize = 12;
/// NOP, NOP, kind 8, length 10: as RFC 7323 appendix A recommends.
const TIMESTAMPS: u32 = 0x0101_080a;
const IP: usize = ETHERNET_LEN;
const TCP: usize = IP + IP_LEN;
const OPTIONS: usize = TCP + TCP_LEN;
const LEN: usize = OPTIONS + TIMESTAMPS_LEN;

/// Version 4, five words; total length.
const IP_WORD_0: u32 = 0x4500_0000;
/// Identification 0, DF.
const IP_WORD_1: u32 = 0x0000_4000;
const IP_WORD_2: u32 = (DEFAULT_TTL as u32) << 24 | (PROTOCOL_TCP as u32) << 16;

/// A header with Ethernet, IPv4 and TCP at fixed places.
#[derive(Debug)]
pub(crate) struct UsualHeader {
    bytes: [u8; LEN],
    len: usize,
}

impl UsualHeader {
    /// Where TCP starts, with Ethernet.
    pub(crate) const TCP_START: u16 = TCP as u16;
    /// Where TCP starts, without.
    pub(crate) const TCP_START_LOOPBACK: u16 = IP_LEN as u16;

    /// The header of a segment with `payload_len` bytes, ports from `key`, and an ECN field; `None` if it has other options.
    #[inline]
    pub(crate) fn new(
        src: MacAddress,
        dst: MacAddress,
        key: &FlowKey,
        header: &TcpHeader,
        payload_len: u32,
        ecn: u8,
    ) -> Option<Self> {
        let TcpOptions {
            mss: None,
            window_scale: None,
            sack_permitted: false,
            timestamps,
            sack,
            // On SYNs only, which have an MSS.
            fast_open: _,
        } = &header.options
        else {
            return None;
        };
        let options_len = if timestamps.is_some() {
            TIMESTAMPS_LEN
        } else {
            0
        };
        let tcp_len = TCP_LEN + options_len;
        let total_len = u16::try_from(IP_LEN + tcp_len + payload_len as usize).ok()?;
        if !sack.is_empty() {
            return None;
        }
        let mut bytes = [0; LEN];
        bytes[..6].copy_from_slice(&dst.0);
        bytes[6..12].copy_from_slice(&src.0);
        bytes[12..14].copy_from_slice(&ETHERTYPE_IPV4.to_be_bytes());
        let addresses = halves(key.local_ip.to_bits()) + halves(key.remote_ip.to_bits());
        let word_0 = IP_WORD_0 | u32::from(ecn) << 16 | u32::from(total_len);
        put_ip(&mut bytes, key, word_0, addresses);
        put_tcp(&mut bytes, key, header, u32::from(total_len), addresses);
        let len = OPTIONS + options_len;
        Some(Self { bytes, len })
    }

    /// All of it.
    #[inline]
    pub(crate) fn with_ethernet(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    /// From the IP header on.
    #[inline]
    pub(crate) fn without_ethernet(&self) -> &[u8] {
        &self.bytes[IP..self.len]
    }
}

/// `addresses` is the sum of both addresses.
#[inline]
fn put_ip(bytes: &mut [u8; LEN], key: &FlowKey, word_0: u32, addresses: u32) {
    let sum = halves(word_0) + halves(IP_WORD_1) + halves(IP_WORD_2) + addresses;
    put(bytes, IP, word_0);
    put(bytes, IP + 4, IP_WORD_1);
    put(
        bytes,
        IP + 8,
        IP_WORD_2 | u32::from(checksum::complement(sum)),
    );
    put(bytes, IP + 12, key.local_ip.to_bits());
    put(bytes, IP + 16, key.remote_ip.to_bits());
}

/// `total_len` is that of the packet, `addresses` the sum of both addresses.
#[inline]
fn put_tcp(
    bytes: &mut [u8; LEN],
    key: &FlowKey,
    header: &TcpHeader,
    total_len: u32,
    addresses: u32,
) {
    let timestamps = header.options.timestamps;
    let words = if timestamps.is_some() { 8 } else { 5 };
    let flags = words << 12 | u32::from(header.flags.bits());
    let segment_len = total_len - IP_LEN as u32;
    let pseudo = checksum::fold(addresses + u32::from(PROTOCOL_TCP) + segment_len);
    put(
        bytes,
        TCP,
        u32::from(key.local_port) << 16 | u32::from(key.remote_port),
    );
    put(bytes, TCP + 4, header.seq.0);
    put(bytes, TCP + 8, header.ack.0);
    put(bytes, TCP + 12, flags << 16 | u32::from(header.window.0));
    put(
        bytes,
        TCP + 16,
        u32::from(pseudo) << 16 | u32::from(header.urgent),
    );
    if let Some(timestamps) = timestamps {
        put(bytes, OPTIONS, TIMESTAMPS);
        put(bytes, OPTIONS + 4, timestamps.value);
        put(bytes, OPTIONS + 8, timestamps.echo);
    }
}

/// The sum of both halves.
#[inline]
const fn halves(word: u32) -> u32 {
    (word >> 16) + (word & 0xffff)
}

#[inline]
fn put(bytes: &mut [u8; LEN], at: usize, word: u32) {
    bytes[at..at + 4].copy_from_slice(&word.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use sidecore_wire::{Ipv4Header, SackBlock, SeqNumber, TcpFlags, Timestamps, UnscaledWindow};

    use super::*;
    use crate::control::Link;
    use crate::frame::HeaderBuffer;

    const SRC: MacAddress = MacAddress([2, 0, 0, 0, 0, 1]);
    const DST: MacAddress = MacAddress([2, 0, 0, 0, 0, 2]);

    fn general(link: Link, key: &FlowKey, header: &TcpHeader, len: u32, ecn: u8) -> (Vec<u8>, u16) {
        let mut buffer = HeaderBuffer::new();
        let start = buffer.segment(link, SRC, key, header, len, ecn);
        (buffer.bytes().to_vec(), start)
    }

    proptest! {
        #![proptest_config(sidecore_testkit::property_config(256))]

        #[test]
        fn writes_what_the_general_way_writes(
            addresses: (u32, u32),
            ports: (u16, u16),
            numbers: (u32, u32),
            rest: (u16, u16),
            flags in 0..512u16,
            timestamps in any::<Option<(u32, u32)>>(),
            len in 0..65_535u32 - 52,
            ecn in 0..4u8,
        ) {
            let key = FlowKey {
                local_ip: addresses.0.into(),
                remote_ip: addresses.1.into(),
                local_port: ports.0,
                remote_port: ports.1,
            };
            let header = TcpHeader {
                seq: SeqNumber(numbers.0),
                ack: SeqNumber(numbers.1),
                flags: TcpFlags::from_bits(flags),
                window: UnscaledWindow(rest.0),
                urgent: rest.1,
                options: TcpOptions {
                    timestamps: timestamps.map(|(value, echo)| Timestamps { value, echo }),
                    ..TcpOptions::NONE
                },
                ..TcpHeader::default()
            };
            let usual = UsualHeader::new(SRC, DST, &key, &header, len, ecn).unwrap();
            let (bytes, start) = general(Link::Station(DST), &key, &header, len, ecn);
            prop_assert_eq!((usual.with_ethernet(), UsualHeader::TCP_START), (&bytes[..], start));
            let (bytes, start) = general(Link::Loopback, &key, &header, len, ecn);
            let loopback = (usual.without_ethernet(), UsualHeader::TCP_START_LOOPBACK);
            prop_assert_eq!(loopback, (&bytes[..], start));
            prop_assert!(Ipv4Header::parse_quoted(usual.without_ethernet()).is_ok());
        }
    }

    #[test]
    fn other_options_are_left_to_the_general_way() {
        let key = FlowKey {
            local_ip: [10, 0, 0, 1].into(),
            remote_ip: [10, 0, 0, 2].into(),
            local_port: 1,
            remote_port: 2,
        };
        let mut sack = TcpOptions::NONE;
        let start = SeqNumber(1);
        sack.sack.push(SackBlock {
            start,
            end: start.add(9),
        });
        let mss = TcpOptions {
            mss: Some(9),
            ..TcpOptions::NONE
        };
        let scale = TcpOptions {
            window_scale: Some(Default::default()),
            ..TcpOptions::NONE
        };
        let permitted = TcpOptions {
            sack_permitted: true,
            ..TcpOptions::NONE
        };
        for options in [sack, mss, scale, permitted] {
            let header = TcpHeader {
                options,
                ..TcpHeader::default()
            };
            assert!(UsualHeader::new(SRC, DST, &key, &header, 5, 0).is_none());
        }
        let header = TcpHeader::default();
        assert!(UsualHeader::new(SRC, DST, &key, &header, 65_536, 0).is_none());
    }
}
