//! An IPv6 packet from the outside in: header, chain of extension headers, ICMPv6, neighbour discovery, multicast
//! listeners. Whatever is accepted lies within the packet, and is the same after it was emitted and parsed again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sidecore_wire::ipv6::extension::{ChainError, HeaderChain, MAX_LEN};
use sidecore_wire::{
    GroupVersion, Icmpv6, Ipv6Header, Mld, NdpMessage, UdpHeader, icmpv6, ipv6, ndp,
};

fuzz_target!(|packet: &[u8]| {
    let Ok((header, payload)) = Ipv6Header::parse(packet) else {
        return assert!(
            packet.len() < 40 || packet[0] >> 4 != 6 || Ipv6Header::parse_quoted(packet).is_ok()
        );
    };
    let mut again = [0; ipv6::HEADER_LEN];
    header.emit(&mut again, payload.len());
    assert_eq!(again, packet[..40], "every bit of an IPv6 header is kept");
    let bytes = &packet[payload];
    let chain = match HeaderChain::parse(&header, bytes) {
        Ok(chain) => chain,
        Err(ChainError::Problem { pointer, .. }) => {
            return assert!(usize::from(pointer) < 40 + bytes.len());
        }
        Err(ChainError::Discard(_)) => return,
    };
    assert!(chain.payload <= bytes.len() && chain.payload <= MAX_LEN + 8);
    let transport = &bytes[chain.payload..];
    if chain.fragment.is_some() {
        if let Ok(rest) = HeaderChain::parse_rest(chain.protocol, transport) {
            assert!(rest.payload <= transport.len() && rest.fragment.is_none());
        }
        return;
    }
    match chain.protocol {
        ipv6::PROTOCOL_ICMPV6 => icmp(&header, transport),
        ipv6::PROTOCOL_UDP => udp(&header, transport),
        _ => {}
    }
});

fn icmp(ip: &Ipv6Header, message: &[u8]) {
    // Make the checksum right, so that the rest of the parser is reached.
    let mut message = message.to_vec();
    if message.len() >= 8 {
        icmpv6::put_checksum(ip.src, ip.dst, &mut message);
    }
    let Ok((parsed, at)) = Icmpv6::parse(ip.src, ip.dst, &message) else {
        return assert!(message.len() < 8, "only a short message is refused");
    };
    let mut again = vec![0; message.len()];
    parsed.emit(ip.src, ip.dst, &mut again, &message[at..]);
    assert_eq!(Icmpv6::parse(ip.src, ip.dst, &again), Ok((parsed, at)));

    // A hop limit that lets it through, so that the rest of the parsers is reached.
    let near = |hop_limit| Ipv6Header { hop_limit, ..*ip };
    if let Ok(message) = NdpMessage::parse(&near(ndp::HOP_LIMIT), &message) {
        let mut again = vec![0; message.len()];
        message.emit(ip.src, ip.dst, &mut again);
        assert_eq!(
            NdpMessage::parse(&near(ndp::HOP_LIMIT), &again),
            Ok(message)
        );
    }
    if let Ok(Mld::Query(query)) = Mld::parse(&near(1), true, &message) {
        assert_eq!(query.version == GroupVersion::V3, message.len() >= 28);
        assert_eq!(query.sources.iter().count(), query.sources.len());
    }
}

fn udp(ip: &Ipv6Header, datagram: &[u8]) {
    let Ok((header, _)) = UdpHeader::parse(datagram) else {
        return;
    };
    let verdict = header.verify_v6(ip.src, ip.dst, datagram);
    assert!(
        !verdict || header.checksum != 0,
        "an absent checksum is wrong over IPv6"
    );
}
