//! Routers and hosts of versions 1 and 2 (RFC 1112 appendix I, RFC 2236, RFC 3376 section 7).

use super::*;

const ALL: Ipv4Addr = Ipv4Addr::UNSPECIFIED;

/// Type and group of each message, all of them of an older version, and where it went.
fn old(packets: &[Packet]) -> Vec<(u8, Ipv4Addr, Ipv4Addr)> {
    let all = packets.iter().map(|packet| {
        let Packet::Igmp(ip, bytes) = packet else {
            panic!("not IGMP: {packet:?}");
        };
        assert_eq!((ip.ttl, bytes.len()), (1, 8));
        (
            bytes[0],
            Ipv4Addr::new(bytes[4], bytes[5], bytes[6], bytes[7]),
            ip.dst,
        )
    });
    all.collect()
}

fn joined(type_: u8, group: Ipv4Addr) -> (u8, Ipv4Addr, Ipv4Addr) {
    (type_, group, group)
}

#[test]
fn rfc_3376_section_7_2_1_version_2_is_spoken_where_a_router_speaks_it() {
    let (mut raw, id, _) = Raw::settled();
    raw.ask(&short_query(ALL, 100));
    let report = joined(igmp::REPORT_V2, GROUP);
    assert_eq!(old(&raw.pass(Duration::from_secs(10))), [report]);
    // RFC 2236 section 3: joining is said at once and again, leaving to the routers.
    raw.join(id, OTHER);
    assert_eq!(old(&raw.turn()), [joined(igmp::REPORT_V2, OTHER)]);
    assert_eq!(
        old(&raw.pass(Duration::from_secs(10))),
        [joined(igmp::REPORT_V2, OTHER)]
    );
    // Sources are nothing that such a router could be told.
    raw.change(id, OTHER, GroupChange::Block(host(3).into()))
        .unwrap();
    assert_eq!(raw.pass(Duration::from_secs(10)), []);
    raw.leave(id, OTHER);
    assert_eq!(old(&raw.turn()), [(igmp::LEAVE, OTHER, igmp::ALL_ROUTERS)]);
    // A router of version 3 is answered in version 2 as long as the other is there.
    raw.ask(&query(ALL, 10, &[]));
    assert_eq!(old(&raw.pass(Duration::from_secs(10))), [report]);
    raw.ask(&short_query(GROUP, 10));
    assert_eq!(old(&raw.pass(Duration::from_secs(10))), [report]);
    // Section 8.12: 2 · 125 s and the response time of the last query for all.
    raw.pass(Duration::from_secs(2 * 125 + 10));
    raw.ask(&query(ALL, 10, &[]));
    let said = told(&raw.pass(Duration::from_secs(10)));
    assert_eq!(said, [record(IS_EX, GROUP, &[])]);
}

#[test]
fn rfc_3376_section_7_2_1_version_1_is_spoken_where_a_router_speaks_it() {
    let (mut raw, id, _) = Raw::settled();
    // RFC 1112 knows no router alert.
    let systems = Station::group(igmp::ALL_SYSTEMS);
    raw.send(&ROUTER.igmp(&systems, 1, false, &short_query(ALL, 0)));
    assert_eq!(
        old(&raw.pass(Duration::from_secs(10))),
        [joined(igmp::REPORT_V1, GROUP)]
    );
    raw.ask(&short_query(ALL, 50));
    assert_eq!(
        old(&raw.pass(Duration::from_secs(10))),
        [joined(igmp::REPORT_V1, GROUP)],
        "the oldest counts"
    );
    raw.leave(id, GROUP);
    assert_eq!(
        raw.pass(Duration::from_secs(10)),
        [],
        "version 1 has no word for it"
    );
    raw.join(id, GROUP);
    let said = old(&raw.pass(Duration::from_secs(20)));
    assert_eq!(said, vec![joined(igmp::REPORT_V1, GROUP); 2]);
}

#[test]
fn rfc_3376_section_7_2_1_a_change_of_version_forgets_what_was_to_be_said() {
    let (mut raw, id, _) = Raw::settled();
    raw.join(id, OTHER);
    assert_eq!(raw.turn().len(), 1);
    raw.ask(&query(ALL, 100, &[]));
    // A router of version 2 turns up: neither the second report nor the answer is due any more, only an answer to it.
    raw.ask(&short_query(ALL, 1));
    let said = old(&raw.pass(Duration::from_secs(20)));
    let mut groups: Vec<_> = said.iter().map(|(_, group, _)| *group).collect();
    groups.sort_unstable();
    assert_eq!(groups, [GROUP, OTHER]);
}

#[test]
fn rfc_2236_section_3_another_hosts_report_is_answer_enough() {
    let (mut raw, id, _) = Raw::settled();
    raw.join(id, OTHER);
    raw.pass(Duration::from_secs(5));
    raw.ask(&short_query(ALL, 100));
    let mut report = short_query(GROUP, 0);
    report[0] = igmp::REPORT_V2;
    raw.send(&PEER.igmp(&Station::group(GROUP), 1, true, &report));
    let said = old(&raw.pass(Duration::from_secs(10)));
    assert_eq!(said, [joined(igmp::REPORT_V2, OTHER)]);
    // A timer that runs is set anew only by a shorter time.
    raw.ask(&short_query(GROUP, 10));
    raw.ask(&short_query(GROUP, 250));
    assert_eq!(raw.pass(Duration::from_secs(1)).len(), 1);
    assert_eq!(raw.pass(Duration::from_secs(30)), []);
}

#[test]
fn rfc_3376_section_7_2_2_with_version_3_others_are_not_listened_to() {
    let (mut raw, ..) = Raw::settled();
    raw.ask(&query(ALL, 100, &[]));
    let mut report = short_query(GROUP, 0);
    report[0] = igmp::REPORT_V2;
    raw.send(&PEER.igmp(&Station::group(GROUP), 1, true, &report));
    assert_eq!(
        told(&raw.pass(Duration::from_secs(10))),
        [record(IS_EX, GROUP, &[])]
    );
    // Section 7.2.1: what a version 2 router asks of one group does not change the version.
    raw.ask(&short_query(GROUP, 10));
    assert_eq!(
        told(&raw.pass(Duration::from_secs(1))),
        [record(IS_EX, GROUP, &[])]
    );
}
