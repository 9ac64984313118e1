//! IPv6 through smoltcp's and etherparse's parsers: where they mean the same, they must say the
//! same.

use etherparse::{
    Icmpv6Slice, Icmpv6Type, IpNumber, Ipv6ExtensionsSlice, Ipv6FragmentHeaderSlice,
    Ipv6HeaderSlice, TcpHeaderSlice,
};
use proptest::collection::vec;
use proptest::prelude::*;
use sidecore_wire::groups::report_len;
use sidecore_wire::ipv6::extension::{ChainError, FragmentHeader, HeaderChain};
use sidecore_wire::mld;
use sidecore_wire::ndp::PrefixInformation;
use sidecore_wire::tcp::verify_checksum_v6;
use sidecore_wire::{GroupRecord, RecordKind};
use sidecore_wire::{
    Icmpv6, Ipv6Addr, Ipv6Header, MacAddress, NdpMessage, RouterAdvertisement, UdpHeader,
};
use smoltcp::wire as smol;

use crate::strategies::{config, tcp, udp};
use crate::strategies6::{
    chain, fragment, icmpv6, ipv6, ipv6_addr, link_local, ndp, odd_ipv6_packet,
};

fn mac_of(address: smol::RawHardwareAddress) -> MacAddress {
    let mut mac = [0; 6];
    mac.copy_from_slice(&address.as_bytes()[..6]);
    MacAddress(mac)
}

fn prefix_of(prefix: smol::NdiscPrefixInformation) -> PrefixInformation {
    PrefixInformation {
        prefix_len: prefix.prefix_len,
        on_link: prefix.flags.contains(smol::NdiscPrefixInfoFlags::ON_LINK),
        autonomous: prefix.flags.contains(smol::NdiscPrefixInfoFlags::ADDRCONF),
        valid_lifetime: prefix.valid_lifetime.secs() as u32,
        preferred_lifetime: prefix.preferred_lifetime.secs() as u32,
        prefix: prefix.prefix,
    }
}

/// What smoltcp makes of a message. Of several prefixes it keeps the last one.
fn ndp_of_smoltcp(bytes: &[u8]) -> Option<NdpMessage> {
    let packet = smol::Icmpv6Packet::new_checked(bytes).ok()?;
    Some(match smol::NdiscRepr::parse(&packet).ok()? {
        smol::NdiscRepr::RouterSolicit { lladdr } => NdpMessage::RouterSolicitation {
            source_link: lladdr.map(mac_of),
        },
        smol::NdiscRepr::RouterAdvert {
            hop_limit,
            flags,
            router_lifetime,
            reachable_time,
            retrans_time,
            lladdr,
            mtu,
            prefix_info,
        } => NdpMessage::RouterAdvertisement(RouterAdvertisement {
            hop_limit,
            managed: flags.contains(smol::NdiscRouterFlags::MANAGED),
            other: flags.contains(smol::NdiscRouterFlags::OTHER),
            router_lifetime: router_lifetime.secs() as u16,
            reachable_ms: reachable_time.total_millis() as u32,
            retransmit_ms: retrans_time.total_millis() as u32,
            source_link: lladdr.map(mac_of),
            mtu,
            prefixes: prefix_info.into_iter().map(prefix_of).collect(),
        }),
        smol::NdiscRepr::NeighborSolicit {
            target_addr,
            lladdr,
        } => NdpMessage::NeighborSolicitation {
            target: target_addr,
            source_link: lladdr.map(mac_of),
        },
        smol::NdiscRepr::NeighborAdvert {
            flags,
            target_addr,
            lladdr,
        } => NdpMessage::NeighborAdvertisement {
            router: flags.contains(smol::NdiscNeighborFlags::ROUTER),
            solicited: flags.contains(smol::NdiscNeighborFlags::SOLICITED),
            override_: flags.contains(smol::NdiscNeighborFlags::OVERRIDE),
            target: target_addr,
            target_link: lladdr.map(mac_of),
        },
        smol::NdiscRepr::Redirect {
            target_addr,
            dest_addr,
            lladdr,
            ..
        } => NdpMessage::Redirect {
            target: target_addr,
            destination: dest_addr,
            target_link: lladdr.map(mac_of),
        },
    })
}

/// The message with the last of its prefixes alone.
fn last_prefix(message: NdpMessage) -> NdpMessage {
    match message {
        NdpMessage::RouterAdvertisement(ra) => {
            NdpMessage::RouterAdvertisement(RouterAdvertisement {
                prefixes: ra.prefixes.iter().last().into_iter().collect(),
                ..ra
            })
        }
        other => other,
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn ipv6_as_both(bytes in odd_ipv6_packet()) {
        let ours = Ipv6Header::parse(&bytes);
        let theirs = smol::Ipv6Packet::new_checked(bytes.as_slice()).ok().filter(|p| p.version() == 6);
        prop_assert_eq!(ours.is_ok(), theirs.is_some());
        prop_assert_eq!(Ipv6Header::parse_quoted(&bytes).is_ok(), Ipv6HeaderSlice::from_slice(&bytes).is_ok());
        let (Ok((header, payload)), Some(packet)) = (ours, theirs) else { return Ok(()) };
        prop_assert_eq!(header.traffic_class, packet.traffic_class());
        prop_assert_eq!(header.flow_label, packet.flow_label());
        prop_assert_eq!(header.payload_len, packet.payload_len());
        prop_assert_eq!((header.next_header, header.hop_limit), (packet.next_header().into(), packet.hop_limit()));
        prop_assert_eq!((header.src, header.dst), (packet.src_addr(), packet.dst_addr()));
        prop_assert_eq!(&bytes[payload], packet.payload());
        let slice = Ipv6HeaderSlice::from_slice(&bytes).unwrap();
        prop_assert_eq!(header.traffic_class, slice.traffic_class());
        prop_assert_eq!(header.flow_label, slice.flow_label().value());
        prop_assert_eq!((header.src, header.dst), (slice.source_addr(), slice.destination_addr()));
    }

    #[test]
    fn emitted_ipv6_is_what_etherparse_writes((header, payload_len) in ipv6()) {
        let mut bytes = [0; 40];
        header.emit(&mut bytes, payload_len);
        let theirs = etherparse::Ipv6Header {
            traffic_class: header.traffic_class,
            flow_label: header.flow_label.try_into().unwrap(),
            payload_length: header.payload_len,
            next_header: IpNumber(header.next_header),
            hop_limit: header.hop_limit,
            source: header.src.octets(),
            destination: header.dst.octets(),
        };
        prop_assert_eq!(bytes, theirs.to_bytes());
    }

    #[test]
    fn fragment_headers_as_both(header in fragment()) {
        let mut bytes = [0; 8];
        header.emit(&mut bytes);
        let slice = Ipv6FragmentHeaderSlice::from_slice(&bytes).unwrap();
        let theirs = FragmentHeader {
            next_header: slice.next_header().0,
            offset: slice.fragment_offset().value() * 8,
            more: slice.more_fragments(),
            ident: slice.identification(),
        };
        prop_assert_eq!(header, theirs);
        let smol = smol::Ipv6FragmentHeader::new_checked(&bytes[2..]).unwrap();
        prop_assert_eq!((header.offset, header.more, header.ident), (smol.frag_offset() * 8, smol.more_frags(), smol.ident()));
    }

    /// Where we find the end of a chain, etherparse finds it too. It knows no limits and no options.
    #[test]
    fn chains_as_etherparse((first, bytes) in chain(), addresses in (ipv6_addr(), ipv6_addr())) {
        let header = Ipv6Header::new(addresses.0, addresses.1, first);
        let theirs = Ipv6ExtensionsSlice::from_slice(IpNumber(first), &bytes);
        match HeaderChain::parse(&header, &bytes) {
            Ok(HeaderChain { protocol, payload, fragment: None, .. }) => {
                // Authentication headers are known to them only.
                if protocol != 51 {
                    let (slice, last, rest) = theirs.unwrap();
                    prop_assert_eq!((protocol, payload), (last.0, slice.slice().len()));
                    prop_assert_eq!(rest.len(), bytes.len() - payload);
                    prop_assert!(!slice.is_fragmenting_payload());
                }
            }
            Ok(HeaderChain { fragment: Some(fragment), payload, .. }) => {
                let slice = Ipv6FragmentHeaderSlice::from_slice(&bytes[payload - 8..]).unwrap();
                prop_assert!(slice.is_fragmenting_payload());
                prop_assert_eq!(fragment.offset, slice.fragment_offset().value() * 8);
            }
            Err(ChainError::Problem { pointer, .. }) => {
                prop_assert!(usize::from(pointer) < 40 + bytes.len());
            }
            Err(ChainError::Discard(_)) => {}
        }
    }

    #[test]
    fn icmpv6_as_both(message in icmpv6(), src in ipv6_addr(), dst in ipv6_addr(), data in vec(any::<u8>(), 0..60)) {
        let mut bytes = vec![0; 8 + data.len()];
        message.emit(src, dst, &mut bytes, &data);
        let slice = Icmpv6Slice::from_slice(&bytes);
        if let Ok(slice) = slice {
            prop_assert!(slice.is_checksum_valid(src.octets(), dst.octets()));
            let same = match (message, slice.icmp_type()) {
                (Icmpv6::EchoRequest { ident, seq }, Icmpv6Type::EchoRequest(echo))
                | (Icmpv6::EchoReply { ident, seq }, Icmpv6Type::EchoReply(echo)) => (echo.id, echo.seq) == (ident, seq),
                (Icmpv6::DestinationUnreachable { code }, Icmpv6Type::DestinationUnreachable(theirs)) => theirs.code_u8() == code,
                (Icmpv6::PacketTooBig { mtu }, Icmpv6Type::PacketTooBig { mtu: theirs }) => mtu == theirs,
                (Icmpv6::TimeExceeded { code }, Icmpv6Type::TimeExceeded(theirs)) => theirs.code_u8() == code,
                (Icmpv6::ParameterProblem { code, pointer }, Icmpv6Type::ParameterProblem(theirs)) => {
                    (theirs.code.code_u8(), theirs.pointer) == (code, pointer)
                }
                // Codes that it does not know make the type one that it does not know.
                (_, Icmpv6Type::Unknown { type_u8, code_u8, .. }) => (type_u8, code_u8) == (bytes[0], bytes[1]),
                (Icmpv6::Other { .. }, _) => true,
                _ => false,
            };
            prop_assert!(same, "{:?} {:?}", message, slice.icmp_type());
        }
        let Ok(packet) = smol::Icmpv6Packet::new_checked(bytes.as_slice()) else { return Ok(()) };
        prop_assert!(packet.verify_checksum(&src, &dst));
        prop_assert_eq!((u8::from(packet.msg_type()), packet.msg_code()), (bytes[0], bytes[1]));
        prop_assert_eq!(packet.msg_type().is_error(), message.is_error());
        match message {
            Icmpv6::EchoRequest { ident, seq } | Icmpv6::EchoReply { ident, seq } => {
                prop_assert_eq!((packet.echo_ident(), packet.echo_seq_no()), (ident, seq));
            }
            Icmpv6::PacketTooBig { mtu } => prop_assert_eq!(packet.pkt_too_big_mtu(), mtu),
            Icmpv6::ParameterProblem { pointer, .. } => prop_assert_eq!(packet.param_problem_ptr(), pointer),
            _ => {}
        }
    }

    #[test]
    fn ndp_as_smoltcp(message in ndp(), src in link_local(), dst in link_local()) {
        let mut bytes = vec![0; message.len()];
        message.emit(src, dst, &mut bytes);
        let packet = smol::Icmpv6Packet::new_checked(bytes.as_slice()).unwrap();
        prop_assert!(packet.verify_checksum(&src, &dst));
        prop_assert_eq!(ndp_of_smoltcp(&bytes), Some(last_prefix(message)));
    }

    /// What we accept of damaged messages, smoltcp reads the same. It refuses more, and takes link
    /// addresses out of options of any length.
    #[test]
    fn damaged_ndp_as_smoltcp(message in ndp(), at: prop::sample::Index, byte: u8) {
        let mut bytes = vec![0; message.len()];
        message.emit(Ipv6Addr::UNSPECIFIED, Ipv6Addr::UNSPECIFIED, &mut bytes);
        let (src, dst) = ("fe80::1".parse().unwrap(), "fe80::2".parse().unwrap());
        let at = 4 + at.index(bytes.len().min(24) - 4);
        bytes[at] = byte;
        let header = Ipv6Header { hop_limit: 255, ..Ipv6Header::new(src, dst, 58) };
        let ours = NdpMessage::parse(&header, &bytes);
        // An option's own bytes may have become another option.
        let options_untouched = at < 16 || matches!(bytes[0], 135..=137);
        if let (Ok(ours), true) = (ours, options_untouched) {
            prop_assert_eq!(ndp_of_smoltcp(&bytes), Some(last_prefix(ours)));
        }
    }

    #[test]
    fn mld_reports_as_smoltcp(groups in vec(ipv6_addr(), 0..6), src in link_local(), dst in ipv6_addr()) {
        let kinds = [
            (RecordKind::IsInclude, smol::MldRecordType::ModeIsInclude),
            (RecordKind::IsExclude, smol::MldRecordType::ModeIsExclude),
            (RecordKind::ToInclude, smol::MldRecordType::ChangeToInclude),
            (RecordKind::ToExclude, smol::MldRecordType::ChangeToExclude),
            (RecordKind::Allow, smol::MldRecordType::AllowNewSources),
            (RecordKind::Block, smol::MldRecordType::BlockOldSources),
        ];
        for (ours, theirs) in kinds {
            let record = |group: &Ipv6Addr| GroupRecord { kind: ours, group: *group, sources: &[] };
            let records: Vec<_> = groups.iter().map(record).collect();
            let mut bytes = vec![0; report_len(&records)];
            mld::emit_report(src, dst, &records, &mut bytes);
            let packet = smol::Icmpv6Packet::new_checked(bytes.as_slice()).unwrap();
            prop_assert!(packet.verify_checksum(&src, &dst));
            let smol::MldRepr::Report { nr_mcast_addr_rcrds, mut data } = smol::MldRepr::parse(&packet).unwrap() else {
                panic!("not a report");
            };
            prop_assert_eq!(usize::from(nr_mcast_addr_rcrds), groups.len());
            for group in &groups {
                let record = smol::MldAddressRecord::new_checked(data).unwrap();
                prop_assert_eq!((record.record_type(), record.mcast_addr()), (theirs, *group));
                data = &data[20..];
            }
            prop_assert!(data.is_empty());
        }
    }

    #[test]
    fn transport_checksums_as_both(header in tcp(), (datagram, len) in udp(), src in ipv6_addr(), dst in ipv6_addr(), payload in vec(any::<u8>(), 0..100)) {
        let mut bytes = vec![0; header.len()];
        header.emit(&mut bytes);
        bytes.extend(&payload);
        let slice = TcpHeaderSlice::from_slice(&bytes).unwrap();
        let checksum = slice.calc_checksum_ipv6_raw(src.octets(), dst.octets(), &payload).unwrap();
        bytes[16..18].copy_from_slice(&checksum.to_be_bytes());
        prop_assert!(verify_checksum_v6(src, dst, &bytes));
        let packet = smol::TcpPacket::new_checked(bytes.as_slice()).unwrap();
        prop_assert!(packet.verify_checksum(&src.into(), &dst.into()));

        let mut bytes = vec![0x5a; 8 + len];
        datagram.emit(&mut bytes);
        smol::UdpPacket::new_unchecked(bytes.as_mut_slice()).fill_checksum(&src.into(), &dst.into());
        let (filled, _) = UdpHeader::parse(&bytes).unwrap();
        prop_assert!(filled.verify_v6(src, dst, &bytes));
        bytes[7] ^= 1;
        let (broken, _) = UdpHeader::parse(&bytes).unwrap();
        prop_assert!(!broken.verify_v6(src, dst, &bytes));
    }
}
