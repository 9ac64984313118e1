//! IGMP and MLD, byte for byte.

use sidecore_wire::groups::report_len;
use sidecore_wire::ipv6::extension::HeaderChain;
use sidecore_wire::{
    GroupQuery, GroupRecord, GroupVersion, Icmpv6, Igmp, Ipv4Addr, Ipv4Header, Ipv6Addr,
    Ipv6Header, MacAddress, Mld, ParseError, RecordKind, checksum, igmp, ipv4, ipv6, mld,
};

const GROUP: Ipv4Addr = Ipv4Addr::new(239, 129, 2, 3);
const GROUP6: Ipv6Addr = Ipv6Addr::new(0xff15, 0, 0, 0, 0, 0, 0, 7);
const LINK: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1);
const GLOBAL: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);

/// With its checksum.
fn summed(mut message: Vec<u8>) -> Vec<u8> {
    let sum = checksum::complement(checksum::sum(&message, 0));
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    message
}

fn igmp_query(message: &[u8]) -> Result<GroupQuery<'_, Ipv4Addr>, ParseError> {
    match Igmp::parse(message)? {
        Igmp::Query(query) => Ok(query),
        other => panic!("not a query: {other:?}"),
    }
}

#[test]
fn rfc_3376_section_7_1_the_version_of_a_query() {
    let v1 = summed(vec![0x11, 0, 0, 0, 0, 0, 0, 0]);
    let query = igmp_query(&v1).unwrap();
    assert_eq!(
        (query.version, query.max_response_ms),
        (GroupVersion::V1, 10_000)
    );
    let v2 = summed(vec![0x11, 100, 0, 0, 239, 129, 2, 3]);
    let query = igmp_query(&v2).unwrap();
    assert_eq!(
        (query.version, query.max_response_ms),
        (GroupVersion::V2, 10_000)
    );
    assert_eq!((query.group, query.sources.len()), (GROUP, 0));
    // Of version 2 this is no floating-point number.
    let longest = summed(vec![0x11, 255, 0, 0, 0, 0, 0, 0]);
    assert_eq!(igmp_query(&longest).unwrap().max_response_ms, 25_500);
    let mut v3 = vec![0x11, 0x80, 0, 0, 239, 129, 2, 3, 0xfa, 0x81, 0, 2];
    v3.extend([10, 0, 0, 1, 10, 0, 0, 2]);
    let v3 = summed(v3);
    let query = igmp_query(&v3).unwrap();
    assert_eq!((query.version, query.group), (GroupVersion::V3, GROUP));
    // Sections 4.1.1 and 4.1.7: (mant | 0x10) << (exp + 3).
    assert_eq!((query.max_response_ms, query.interval_s), (12_800, 17 << 3));
    assert_eq!(query.robustness, 2);
    let sources: Vec<_> = query.sources.iter().collect();
    assert_eq!(
        sources,
        [Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2)]
    );
    assert!(query.sources.len() == 2 && !query.sources.is_empty());
    for len in [9, 10, 11] {
        let odd = summed(
            v3[..len]
                .iter()
                .enumerate()
                .map(|(at, b)| if at == 2 || at == 3 { 0 } else { *b })
                .collect(),
        );
        assert_eq!(igmp_query(&odd), Err(ParseError::BadLength));
    }
    let mut cut = v3[..19].to_vec();
    cut[2..4].fill(0);
    assert_eq!(igmp_query(&summed(cut)), Err(ParseError::Truncated));
    assert_eq!(igmp_query(&v3[..7]), Err(ParseError::Truncated));
    let mut wrong = v3.clone();
    wrong[19] ^= 1;
    assert_eq!(igmp_query(&wrong), Err(ParseError::BadChecksum));
    for (type_, expected) in [
        (0x12, Igmp::Report(GROUP)),
        (0x16, Igmp::Report(GROUP)),
        (0x17, Igmp::Other(0x17)),
        (0x99, Igmp::Other(0x99)),
    ] {
        let message = summed(vec![type_, 0, 0, 0, 239, 129, 2, 3]);
        assert_eq!(Igmp::parse(&message), Ok(expected));
    }
}

#[test]
fn rfc_3376_section_4_2_reports_byte_for_byte() {
    let sources = [Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2)];
    let records = [
        GroupRecord {
            kind: RecordKind::ToExclude,
            group: GROUP,
            sources: &[],
        },
        GroupRecord {
            kind: RecordKind::Allow,
            group: Ipv4Addr::new(224, 0, 0, 251),
            sources: &sources,
        },
    ];
    let mut bytes = vec![0xee; report_len(&records)];
    assert_eq!(igmp::emit_report(&records, &mut bytes), 32);
    assert_eq!(checksum::fold(checksum::sum(&bytes, 0)), 0xffff);
    bytes[2..4].fill(0);
    let expected = [
        &[0x22, 0, 0, 0, 0, 0, 0, 2][..],
        &[4, 0, 0, 0, 239, 129, 2, 3],
        &[5, 0, 0, 2, 224, 0, 0, 251, 10, 0, 0, 1, 10, 0, 0, 2],
    ];
    assert_eq!(bytes, expected.concat());
    let mut short = [0xee; 8];
    igmp::emit_short(igmp::LEAVE, GROUP, &mut short);
    assert_eq!(Igmp::parse(&short), Ok(Igmp::Other(igmp::LEAVE)));
    assert_eq!(
        (short[0], short[1], &short[4..]),
        (0x17, 0, &GROUP.octets()[..])
    );
    for raw in 1..=6 {
        assert_eq!(RecordKind::from_raw(raw).unwrap() as u8, raw);
    }
    assert_eq!(
        (RecordKind::from_raw(0), RecordKind::from_raw(7)),
        (None, None)
    );
}

/// RFC 1112 section 6.4, RFC 2464 section 7.
#[test]
fn rfc_1112_section_6_4_groups_on_ethernet() {
    let mac = |text: &str| text.parse::<MacAddress>().unwrap();
    assert_eq!(igmp::multicast_mac(GROUP), mac("01:00:5e:01:02:03"));
    let low = Ipv4Addr::new(224, 0, 0, 251);
    assert_eq!(igmp::multicast_mac(low), mac("01:00:5e:00:00:fb"));
    assert_eq!(ipv6::multicast_mac(GROUP6), mac("33:33:00:00:00:07"));
}

#[test]
fn rfc_2113_router_alerts() {
    let header = Ipv4Header {
        ttl: 1,
        ..Ipv4Header::new(Ipv4Addr::new(10, 0, 0, 1), igmp::ALL_IGMPV3_ROUTERS, 2)
    };
    let mut packet = [0xee; 32];
    assert_eq!(header.emit_with_alert(&mut packet, 8), 24);
    let (parsed, payload) = Ipv4Header::parse(&packet).unwrap();
    assert_eq!((parsed.ttl, parsed.total_len, payload), (1, 32, 24..32));
    assert!(ipv4::has_router_alert(&packet[20..24]));
    for (options, has) in [
        (&[0x94, 4, 0, 0][..], true),
        (&[1, 1, 1, 0x94, 4, 0, 0, 0], true),
        (&[0x44, 4, 5, 0, 0x94, 4, 0, 0], true),
        (&[0, 0x94, 4, 0, 0], false),
        (&[0x94, 4, 0, 1], false),
        (&[0x94, 4, 0], false),
        (&[0x44, 0, 0x94, 4, 0, 0], false),
        (&[0x44, 1, 0x94, 4, 0, 0], false),
        (&[0x44], false),
        (&[], false),
    ] {
        assert_eq!(ipv4::has_router_alert(options), has, "{options:02x?}");
    }
}

#[test]
fn rfc_2711_router_alerts() {
    let packet = Ipv6Header::new(LINK, GROUP6, ipv6::HOP_BY_HOP);
    for (options, has) in [
        ([58, 0, 5, 2, 0, 0, 1, 0], true),
        ([58, 0, 1, 0, 5, 2, 0, 0], true),
        // Another value is another protocol's.
        ([58, 0, 5, 2, 0, 1, 1, 0], false),
        ([58, 0, 1, 4, 0, 0, 0, 0], false),
    ] {
        let chain = HeaderChain::parse(&packet, &options).unwrap();
        assert_eq!((chain.alert, chain.payload), (has, 8));
    }
    // Elsewhere it means nothing.
    let packet = Ipv6Header::new(LINK, GROUP6, ipv6::DESTINATION_OPTIONS);
    let chain = HeaderChain::parse(&packet, &[58, 0, 5, 2, 0, 0, 1, 0]).unwrap();
    assert!(!chain.alert);
}

#[test]
fn mld_queries_of_both_versions() {
    let header = Ipv6Header {
        hop_limit: 1,
        ..Ipv6Header::new(LINK, ipv6::ALL_NODES, 58)
    };
    let mut query = [0u8; 44];
    query[0] = 130;
    query[4..6].copy_from_slice(&[0x27, 0x10]);
    query[24..28].copy_from_slice(&[0x0b, 125, 0, 1]);
    query[28..].copy_from_slice(&GLOBAL.octets());
    let parse = |ip: &Ipv6Header, len: usize| match Mld::parse(ip, true, &query[..len]) {
        Ok(Mld::Query(query)) => Ok((
            query.version,
            query.max_response_ms,
            query.robustness,
            query.interval_s,
            query.sources.iter().collect::<Vec<_>>(),
        )),
        Ok(other) => panic!("not a query: {other:?}"),
        Err(error) => Err(error),
    };
    let expected = (GroupVersion::V3, 10_000, 3, 125, vec![GLOBAL]);
    assert_eq!(parse(&header, 44), Ok(expected));
    let expected = (GroupVersion::V2, 10_000, 0, 0, vec![]);
    assert_eq!(parse(&header, 24), Ok(expected));
    // RFC 3810 section 8.1: neither.
    assert_eq!(parse(&header, 26), Err(ParseError::Malformed));
    assert_eq!(parse(&header, 23), Err(ParseError::Truncated));
    assert_eq!(parse(&header, 43), Err(ParseError::Truncated));
    // Section 6.2.
    let far = Ipv6Header {
        hop_limit: 64,
        ..header
    };
    let global = Ipv6Header {
        src: GLOBAL,
        ..header
    };
    for header in [far, global] {
        assert_eq!(parse(&header, 44), Err(ParseError::Malformed));
    }
    let unalerted = Mld::parse(&header, false, &query);
    assert_eq!(unalerted, Err(ParseError::Malformed));
    // Section 5.1.3: beyond 32768 the code is a floating-point number.
    query[4..6].copy_from_slice(&[0x80, 0x01]);
    let Ok(Mld::Query(long)) = Mld::parse(&header, true, &query) else {
        panic!("not a query");
    };
    assert_eq!(long.max_response_ms, 0x1001 << 3);
    query[0] = 131;
    query[8..24].copy_from_slice(&GROUP6.octets());
    let report = Mld::parse(&header, true, &query[..24]);
    assert_eq!(report, Ok(Mld::Report(GROUP6)));
    query[0] = 143;
    let other = Mld::parse(&header, true, &query);
    assert_eq!(other, Err(ParseError::Unsupported));
}

#[test]
fn mld_reports_byte_for_byte() {
    let groups = [ipv6::solicited_node(GLOBAL), GROUP6];
    let sources = [GLOBAL];
    let records = [
        GroupRecord {
            kind: RecordKind::ToExclude,
            group: groups[0],
            sources: &[],
        },
        GroupRecord {
            kind: RecordKind::Block,
            group: groups[1],
            sources: &sources,
        },
    ];
    let mut bytes = vec![0xee; report_len(&records)];
    let to = ipv6::ALL_MLDV2_ROUTERS;
    assert_eq!(mld::emit_report(LINK, to, &records, &mut bytes), 64);
    assert_eq!(bytes[..2], [143, 0]);
    assert_eq!(bytes[4..12], [0, 0, 0, 2, 4, 0, 0, 0]);
    assert_eq!(bytes[12..28], groups[0].octets());
    assert_eq!(bytes[28..32], [6, 0, 0, 1]);
    assert_eq!(bytes[32..48], groups[1].octets());
    assert_eq!(bytes[48..], GLOBAL.octets());
    assert!(Icmpv6::parse(LINK, to, &bytes).is_ok());

    let mut bytes = [0xee; 24];
    for (done, type_) in [(false, 131), (true, 132)] {
        mld::emit_v1(LINK, groups[0], done, groups[0], &mut bytes);
        assert_eq!(bytes[..2], [type_, 0]);
        assert_eq!(
            (&bytes[4..8], &bytes[8..]),
            (&[0; 4][..], &groups[0].octets()[..])
        );
        assert!(Icmpv6::parse(LINK, groups[0], &bytes).is_ok());
    }
}
