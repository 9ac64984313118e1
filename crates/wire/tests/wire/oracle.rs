//! The same bytes through smoltcp's and etherparse's parsers: where they mean the same, they must
//! say the same.

use etherparse::{
    EtherType, Ethernet2HeaderSlice, Icmpv4Slice, Icmpv4Type, IpNumber, Ipv4HeaderSlice,
    TcpHeaderSlice, TcpOptionElement, UdpHeaderSlice,
};
use proptest::collection::vec;
use proptest::prelude::*;
use sidecore_wire::tcp::verify_checksum_v4;
use sidecore_wire::{
    ArpOperation, ArpPacket, EthernetHeader, Icmpv4, Ipv4Header, MacAddress, SackBlock, SeqNumber,
    TcpFlags, TcpHeader, TcpOptions, Timestamps, UdpHeader, WindowScale,
};
use smoltcp::phy::ChecksumCapabilities;
use smoltcp::wire as smol;

use crate::strategies::{
    arp, config, damaged, damaged_segment, ethernet, icmpv4, ipv4, ipv4_addr, odd_ipv4_packet,
    segment_of_odd_options, tcp, udp,
};

fn segment() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![damaged_segment(), segment_of_odd_options()]
}

fn block((start, end): (u32, u32)) -> SackBlock {
    SackBlock {
        start: SeqNumber(start),
        end: SeqNumber(end),
    }
}

/// What smoltcp and we both keep of options: it has room for three SACK blocks.
fn three_blocks(options: TcpOptions) -> TcpOptions {
    TcpOptions {
        sack: options.sack.iter().take(3).collect(),
        ..options
    }
}

fn options_of_smoltcp(repr: &smol::TcpRepr<'_>) -> TcpOptions {
    TcpOptions {
        mss: repr.max_seg_size,
        window_scale: repr.window_scale.map(WindowScale::new),
        sack_permitted: repr.sack_permitted,
        timestamps: repr.timestamp.map(|t| Timestamps {
            value: t.tsval,
            echo: t.tsecr,
        }),
        sack: repr
            .sack_ranges
            .iter()
            .flatten()
            .copied()
            .map(block)
            .collect(),
        fast_open: None,
    }
}

/// What etherparse finds, up to the first option that it does not take, which it does not go
/// beyond; and whether it took all.
fn options_of_etherparse(slice: &TcpHeaderSlice<'_>) -> (TcpOptions, bool) {
    let mut options = TcpOptions::NONE;
    for element in slice.options_iterator() {
        match element {
            Err(_) => return (options, false),
            Ok(TcpOptionElement::Noop) => {}
            Ok(TcpOptionElement::MaximumSegmentSize(mss)) => options.mss = Some(mss),
            Ok(TcpOptionElement::WindowScale(shift)) => {
                options.window_scale = Some(WindowScale::new(shift))
            }
            Ok(TcpOptionElement::SelectiveAcknowledgementPermitted) => {
                options.sack_permitted = true
            }
            Ok(TcpOptionElement::SelectiveAcknowledgement(first, rest)) => {
                options.sack = [Some(first)]
                    .into_iter()
                    .chain(rest)
                    .flatten()
                    .map(block)
                    .collect();
            }
            Ok(TcpOptionElement::Timestamp(value, echo)) => {
                options.timestamps = Some(Timestamps { value, echo })
            }
        }
    }
    (options, true)
}

fn flags_of_smoltcp(packet: &smol::TcpPacket<&[u8]>) -> TcpFlags {
    let bits = [
        (packet.fin(), TcpFlags::FIN),
        (packet.syn(), TcpFlags::SYN),
        (packet.rst(), TcpFlags::RST),
        (packet.psh(), TcpFlags::PSH),
        (packet.ack(), TcpFlags::ACK),
        (packet.urg(), TcpFlags::URG),
        (packet.ece(), TcpFlags::ECE),
        (packet.cwr(), TcpFlags::CWR),
        (packet.ns(), TcpFlags::AE),
    ];
    bits.into_iter()
        .filter(|(set, _)| *set)
        .fold(TcpFlags::EMPTY, |flags, (_, bit)| flags | bit)
}

fn flags_of_etherparse(slice: &TcpHeaderSlice<'_>) -> TcpFlags {
    let bits = [
        (slice.fin(), TcpFlags::FIN),
        (slice.syn(), TcpFlags::SYN),
        (slice.rst(), TcpFlags::RST),
        (slice.psh(), TcpFlags::PSH),
        (slice.ack(), TcpFlags::ACK),
        (slice.urg(), TcpFlags::URG),
        (slice.ece(), TcpFlags::ECE),
        (slice.cwr(), TcpFlags::CWR),
        (slice.ns(), TcpFlags::AE),
    ];
    bits.into_iter()
        .filter(|(set, _)| *set)
        .fold(TcpFlags::EMPTY, |flags, (_, bit)| flags | bit)
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn tcp_as_smoltcp(bytes in segment()) {
        let ours = TcpHeader::parse(&bytes);
        let theirs = smol::TcpPacket::new_checked(bytes.as_slice());
        prop_assert_eq!(ours.is_ok(), theirs.is_ok());
        let (Ok((header, offset)), Ok(packet)) = (ours, theirs) else { return Ok(()) };
        prop_assert_eq!(offset, usize::from(packet.header_len()));
        prop_assert_eq!((header.src_port, header.dst_port), (packet.src_port(), packet.dst_port()));
        prop_assert_eq!(header.seq.0, packet.seq_number().0 as u32);
        prop_assert_eq!(header.ack.0, packet.ack_number().0 as u32);
        prop_assert_eq!(header.window.0, packet.window_len());
        prop_assert_eq!(header.urgent, packet.urgent_at());
        prop_assert_eq!(header.flags, flags_of_smoltcp(&packet));
        prop_assert_eq!(header.segment_len((bytes.len() - offset) as u32) as usize, packet.segment_len());

        // It refuses ports and flags that we take, and lists that we read up to the fault.
        let any = smol::IpAddress::v4(0, 0, 0, 0);
        let options = packet.options();
        if let Ok(repr) = smol::TcpRepr::parse(&packet, &any, &any, &ChecksumCapabilities::ignored()) {
            prop_assert_eq!(three_blocks(header.options), options_of_smoltcp(&repr), "{:?}", options);
        }
    }

    #[test]
    fn tcp_as_etherparse(bytes in segment()) {
        let ours = TcpHeader::parse(&bytes);
        let theirs = TcpHeaderSlice::from_slice(&bytes);
        prop_assert_eq!(ours.is_ok(), theirs.is_ok());
        let (Ok((header, offset)), Ok(slice)) = (ours, theirs) else { return Ok(()) };
        prop_assert_eq!(offset, slice.slice().len());
        prop_assert_eq!((header.src_port, header.dst_port), (slice.source_port(), slice.destination_port()));
        prop_assert_eq!(header.seq.0, slice.sequence_number());
        prop_assert_eq!(header.ack.0, slice.acknowledgment_number());
        prop_assert_eq!(header.window.0, slice.window_size());
        prop_assert_eq!(header.urgent, slice.urgent_pointer());
        prop_assert_eq!(header.flags, flags_of_etherparse(&slice));
        if let (options, true) = options_of_etherparse(&slice) {
            prop_assert_eq!(header.options, options, "{:?}", slice.options());
        }
    }

    #[test]
    fn emitted_tcp_is_read_by_both(header in tcp(), src in ipv4_addr(), dst in ipv4_addr(), payload in vec(any::<u8>(), 0..100)) {
        let mut bytes = vec![0; header.len()];
        header.emit(&mut bytes);
        bytes.extend(&payload);
        // Their checksum, our verdict; and theirs on ours.
        let slice = TcpHeaderSlice::from_slice(&bytes).unwrap();
        let (options, all) = options_of_etherparse(&slice);
        prop_assert!(all, "{:?}", slice.options());
        let checksum = slice.calc_checksum_ipv4_raw(src.octets(), dst.octets(), &payload).unwrap();
        bytes[16..18].copy_from_slice(&checksum.to_be_bytes());
        prop_assert!(verify_checksum_v4(src, dst, &bytes));
        let (parsed, _) = TcpHeader::parse(&bytes).unwrap();
        prop_assert_eq!(parsed.options, options);

        let packet = smol::TcpPacket::new_checked(bytes.as_slice()).unwrap();
        prop_assert!(packet.verify_checksum(&src.into(), &dst.into()));
        prop_assert_eq!(packet.payload(), payload);
        prop_assert_eq!(flags_of_smoltcp(&packet), header.flags);
    }

    #[test]
    fn ipv4_as_smoltcp(bytes in odd_ipv4_packet()) {
        let ours = Ipv4Header::parse(&bytes);
        let theirs = smol::Ipv4Packet::new_checked(bytes.as_slice()).ok().filter(|p| p.version() == 4);
        prop_assert_eq!(Ipv4Header::parse_unverified(&bytes).is_ok(), theirs.is_some());
        prop_assert_eq!(ours.is_ok(), theirs.as_ref().is_some_and(|p| p.verify_checksum()));
        let (Ok((header, payload)), Some(packet)) = (ours, theirs) else { return Ok(()) };
        prop_assert_eq!(header.dscp_ecn, packet.dscp() << 2 | packet.ecn());
        prop_assert_eq!((header.header_len, header.total_len), (packet.header_len(), packet.total_len()));
        prop_assert_eq!(header.ident, packet.ident());
        prop_assert_eq!((header.dont_fragment, header.more_fragments), (packet.dont_frag(), packet.more_frags()));
        prop_assert_eq!(header.fragment_offset, packet.frag_offset());
        prop_assert_eq!((header.ttl, header.protocol), (packet.hop_limit(), packet.next_header().into()));
        prop_assert_eq!((header.src, header.dst), (packet.src_addr(), packet.dst_addr()));
        prop_assert_eq!(&bytes[payload], packet.payload());
    }

    #[test]
    fn ipv4_as_etherparse(bytes in odd_ipv4_packet()) {
        let ours = Ipv4Header::parse_unverified(&bytes);
        let fits = |s: &Ipv4HeaderSlice<'_>| (s.slice().len()..=bytes.len()).contains(&usize::from(s.total_len()));
        let theirs = Ipv4HeaderSlice::from_slice(&bytes).ok().filter(fits);
        prop_assert_eq!(ours.is_ok(), theirs.is_some());
        let (Ok((header, payload)), Some(slice)) = (ours, theirs) else { return Ok(()) };
        prop_assert_eq!(payload.start, slice.slice().len());
        prop_assert_eq!(header.ident, slice.identification());
        prop_assert_eq!(header.fragment_offset, slice.fragments_offset().value() << 3);
        prop_assert_eq!(header.is_fragment(), slice.is_fragmenting_payload());
        prop_assert_eq!((header.src, header.dst), (slice.source_addr(), slice.destination_addr()));
    }

    #[test]
    fn emitted_ipv4_is_what_etherparse_writes((header, payload_len) in ipv4()) {
        let mut bytes = [0; 20];
        header.emit(&mut bytes, payload_len);
        let mut theirs = etherparse::Ipv4Header {
            dscp: (header.dscp_ecn >> 2).try_into().unwrap(),
            ecn: (header.dscp_ecn & 3).try_into().unwrap(),
            total_len: header.total_len,
            identification: header.ident,
            dont_fragment: header.dont_fragment,
            more_fragments: header.more_fragments,
            fragment_offset: (header.fragment_offset >> 3).try_into().unwrap(),
            time_to_live: header.ttl,
            protocol: IpNumber(header.protocol),
            source: header.src.octets(),
            destination: header.dst.octets(),
            ..Default::default()
        };
        theirs.header_checksum = theirs.calc_header_checksum();
        let theirs = theirs.to_bytes();
        prop_assert_eq!(bytes.as_slice(), theirs.as_slice());
    }

    #[test]
    fn ethernet_as_etherparse(header in ethernet(), cut in 0..20usize) {
        let mut frame = vec![0; 20];
        header.emit(&mut frame);
        frame.truncate(cut);
        let ours = EthernetHeader::parse(&frame);
        let theirs = Ethernet2HeaderSlice::from_slice(&frame);
        prop_assert_eq!(ours.is_ok(), theirs.is_ok());
        let (Ok((ours, _)), Ok(theirs)) = (ours, theirs) else { return Ok(()) };
        prop_assert_eq!(ours.dst.0, theirs.destination());
        prop_assert_eq!(ours.src.0, theirs.source());
        prop_assert_eq!(EtherType(ours.ethertype), theirs.ether_type());
    }

    #[test]
    fn arp_as_smoltcp(bytes in damaged(arp().prop_map(|packet| {
        let mut bytes = vec![0; 46];
        packet.emit(&mut bytes);
        bytes
    }), 28)) {
        let ours = ArpPacket::parse(&bytes).ok().map(|(packet, _)| packet);
        let theirs = smol::ArpPacket::new_checked(bytes.as_slice()).ok();
        let theirs = theirs.and_then(|packet| smol::ArpRepr::parse(&packet).ok()).and_then(|repr| match repr {
            smol::ArpRepr::EthernetIpv4 {
                operation,
                source_hardware_addr,
                source_protocol_addr,
                target_hardware_addr,
                target_protocol_addr,
            } => Some(ArpPacket {
                operation: match operation {
                    smol::ArpOperation::Request => ArpOperation::Request,
                    smol::ArpOperation::Reply => ArpOperation::Reply,
                    smol::ArpOperation::Unknown(_) => return None,
                },
                sender_mac: MacAddress(source_hardware_addr.0),
                sender_ip: source_protocol_addr,
                target_mac: MacAddress(target_hardware_addr.0),
                target_ip: target_protocol_addr,
            }),
            _ => None,
        });
        prop_assert_eq!(ours, theirs);
    }

    #[test]
    fn icmpv4_as_both(message in icmpv4(), data in vec(any::<u8>(), 0..60)) {
        let mut bytes = vec![0; 8 + data.len()];
        message.emit(&mut bytes, &data);
        let packet = smol::Icmpv4Packet::new_checked(bytes.as_slice()).unwrap();
        prop_assert!(packet.verify_checksum());
        let (type_, code) = (u8::from(packet.msg_type()), packet.msg_code());
        match message {
            Icmpv4::EchoRequest { ident, seq } | Icmpv4::EchoReply { ident, seq } => {
                prop_assert_eq!((ident, seq), (packet.echo_ident(), packet.echo_seq_no()));
                prop_assert_eq!(type_ == 8, matches!(message, Icmpv4::EchoRequest { .. }));
            }
            Icmpv4::DestinationUnreachable { code: ours, .. } => prop_assert_eq!((type_, code), (3, ours)),
            Icmpv4::TimeExceeded { code: ours } => prop_assert_eq!((type_, code), (11, ours)),
            Icmpv4::ParameterProblem => prop_assert_eq!((type_, code), (12, 0)),
            Icmpv4::Other { type_: t, code: c } => prop_assert_eq!((type_, code), (t, c)),
        }
        // Of timestamp messages, etherparse wants all 20 bytes.
        let Ok(slice) = Icmpv4Slice::from_slice(&bytes) else {
            prop_assert!(matches!(type_, 13 | 14));
            return Ok(());
        };
        prop_assert_eq!((slice.type_u8(), slice.code_u8()), (type_, code));
        if let Icmpv4Type::DestinationUnreachable(etherparse::icmpv4::DestUnreachableHeader::FragmentationNeeded {
            next_hop_mtu,
        }) = slice.icmp_type()
        {
            prop_assert_eq!(message, Icmpv4::DestinationUnreachable { code: 4, next_hop_mtu });
        }
    }

    #[test]
    fn udp_as_both(
        (mut bytes, src, dst) in (damaged(udp().prop_map(|(header, payload_len)| {
            let mut bytes = vec![0x5a; 8 + payload_len];
            header.emit(&mut bytes);
            bytes
        }), 8), ipv4_addr(), ipv4_addr()),
        fill: bool,
    ) {
        if fill && smol::UdpPacket::new_checked(bytes.as_slice()).is_ok() {
            smol::UdpPacket::new_unchecked(bytes.as_mut_slice()).fill_checksum(&src.into(), &dst.into());
        }
        let ours = UdpHeader::parse(&bytes);
        let theirs = smol::UdpPacket::new_checked(bytes.as_slice());
        prop_assert_eq!(ours.is_ok(), theirs.is_ok());
        let (Ok((header, payload)), Ok(packet)) = (ours, theirs) else { return Ok(()) };
        prop_assert_eq!((header.src_port, header.dst_port), (packet.src_port(), packet.dst_port()));
        prop_assert_eq!(&bytes[payload], packet.payload());
        let verdict = header.verify_v4(src, dst, &bytes);
        prop_assert_eq!(verdict, header.checksum == 0 || packet.verify_checksum(&src.into(), &dst.into()));
        prop_assert!(verdict || !fill);
        let slice = UdpHeaderSlice::from_slice(&bytes).unwrap();
        prop_assert_eq!((header.length, header.checksum), (slice.length(), slice.checksum()));
    }
}
