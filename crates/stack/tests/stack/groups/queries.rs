//! What routers are told when they ask (RFC 3376 section 5.2), and what is no question.

use super::*;

const ALL: Ipv4Addr = Ipv4Addr::UNSPECIFIED;

#[test]
fn rfc_3376_section_5_2_who_asks_for_all_is_told_all_within_the_time() {
    let (mut raw, id, _) = Raw::settled();
    raw.change(id, OTHER, GroupChange::JoinSource(host(4).into()))
        .unwrap();
    raw.pass(Duration::from_secs(5));
    let expected = vec![record(IS_EX, GROUP, &[]), record(IS_IN, OTHER, &[4])];
    let mut delays = Vec::new();
    for _ in 0..20 {
        let asked = raw.now;
        assert_eq!(raw.ask(&query(ALL, 100, &[])), [], "not at once");
        let next = raw.node.stack.next_timeout().unwrap();
        delays.push(next.duration_since(asked));
        assert_eq!(told(&raw.pass(Duration::from_secs(10))), expected);
    }
    assert!(delays.iter().all(|delay| *delay < Duration::from_secs(10)));
    delays.sort_unstable();
    delays.dedup();
    assert_eq!(delays.len(), 20, "each another");
    // Rule 2: asked twice, told once.
    raw.ask(&query(ALL, 100, &[]));
    raw.ask(&query(ALL, 100, &[]));
    assert_eq!(told(&raw.pass(Duration::from_secs(20))), expected);
}

#[test]
fn rfc_3376_section_5_2_who_asks_for_a_group_is_told_of_that() {
    let (mut raw, id, _) = Raw::settled();
    raw.join(id, OTHER);
    raw.pass(Duration::from_secs(5));
    raw.ask(&query(GROUP, 10, &[]));
    raw.ask(&query(GROUP, 10, &[]));
    let said = told(&raw.pass(Duration::from_secs(1)));
    assert_eq!(said, [record(IS_EX, GROUP, &[])]);
    raw.ask(&query(Ipv4Addr::new(239, 9, 9, 9), 10, &[]));
    assert_eq!(raw.pass(Duration::from_secs(5)), [], "not joined");
    // Rule 1: a sooner answer about all will do.
    raw.ask(&query(ALL, 1, &[]));
    raw.ask(&query(GROUP, 127, &[]));
    let said = told(&raw.pass(Duration::from_secs(20)));
    assert!(said == [record(IS_EX, GROUP, &[]), record(IS_EX, OTHER, &[])] || said.len() == 3);
    // Left before the time has come: nothing to be said but that.
    raw.ask(&query(GROUP, 127, &[]));
    raw.leave(id, GROUP);
    let said = told(&raw.pass(Duration::from_secs(20)));
    assert_eq!(said, vec![record(TO_IN, GROUP, &[]); 2]);
}

#[test]
fn rfc_3376_section_5_2_who_asks_for_sources_is_told_of_those() {
    let mut raw = Raw::new();
    let (a, _) = raw.shared("0.0.0.0:5000");
    raw.sources(a, GroupChange::JoinSource, &[2, 3, 4]);
    raw.pass(Duration::from_secs(5));
    let ask = |raw: &mut Raw, hosts: &[u8]| {
        let sources: Vec<_> = hosts.iter().map(|n| host(*n)).collect();
        raw.ask(&query(GROUP, 10, &sources));
    };
    // INCLUDE (A): IS_IN (A*B).
    ask(&mut raw, &[3, 9]);
    assert_eq!(
        told(&raw.pass(Duration::from_secs(1))),
        [record(IS_IN, GROUP, &[3])]
    );
    ask(&mut raw, &[8, 9]);
    assert_eq!(raw.pass(Duration::from_secs(1)), [], "no record, no report");
    // Rule 5: more sources before the answer.
    ask(&mut raw, &[2]);
    ask(&mut raw, &[2, 4]);
    assert_eq!(
        told(&raw.pass(Duration::from_secs(1))),
        [record(IS_IN, GROUP, &[2, 4])]
    );
    // Rule 4: the whole group before the answer.
    ask(&mut raw, &[2]);
    ask(&mut raw, &[]);
    ask(&mut raw, &[3]);
    let all = [record(IS_IN, GROUP, &[2, 3, 4])];
    assert_eq!(told(&raw.pass(Duration::from_secs(1))), all);
    // More than is kept: the whole group is the answer.
    let many: Vec<u8> = (1..=100).collect();
    ask(&mut raw, &many);
    assert_eq!(told(&raw.pass(Duration::from_secs(1))), all);
    // EXCLUDE (A): IS_IN (B-A).
    raw.leave(a, GROUP);
    raw.join(a, GROUP);
    raw.sources(a, GroupChange::Block, &[3]);
    raw.pass(Duration::from_secs(5));
    ask(&mut raw, &[2, 3]);
    assert_eq!(
        told(&raw.pass(Duration::from_secs(1))),
        [record(IS_IN, GROUP, &[2])]
    );
}

#[test]
fn rfc_3376_section_4_1_1_long_times_are_floating_point() {
    let (mut raw, ..) = Raw::settled();
    // 1 | 111 | 1111: (15 | 16) << 10 tenths of a second.
    let longest = Duration::from_millis(31 * 1024 * 100);
    let mut last = Duration::ZERO;
    for _ in 0..50 {
        let asked = raw.now;
        raw.ask(&query(ALL, 0xff, &[]));
        let next = raw.node.stack.next_timeout().unwrap();
        last = last.max(next.duration_since(asked));
        raw.pass(longest);
    }
    assert!(last < longest && last > longest / 2, "{last:?}");
}

#[test]
fn rfc_3376_section_9_1_what_is_ignored() {
    let (mut raw, ..) = Raw::settled();
    let systems = Station::group(igmp::ALL_SYSTEMS);
    let good = query(ALL, 10, &[]);
    let mut bad_checksum = ROUTER.igmp(&systems, 1, true, &good);
    let last = bad_checksum.len() - 1;
    bad_checksum[last] ^= 1;
    let mut sources_missing = query(GROUP, 10, &[host(2), host(3)]);
    sources_missing.truncate(15);
    for (frame, why) in [
        (bad_checksum, "checksum"),
        (ROUTER.igmp(&systems, 2, true, &good), "not from the link"),
        (ROUTER.igmp(&systems, 1, false, &good), "no router alert"),
        (ROUTER.igmp(&systems, 1, true, &good[..7]), "too short"),
        (ROUTER.igmp(&systems, 1, true, &good[..11]), "of no version"),
        (
            ROUTER.igmp(&systems, 1, true, &sources_missing),
            "truncated",
        ),
        (
            ROUTER.igmp(&Station::group(GROUP), 1, true, &good),
            "for all, to a group",
        ),
        (
            ROUTER.igmp(&systems, 1, false, &short_query(ALL, 10)),
            "version 2 without router alert",
        ),
    ] {
        let ignored = raw.count("igmp_ignored");
        raw.send(&frame);
        assert_eq!(raw.count("igmp_ignored"), ignored + 1, "{why}");
        assert_eq!(raw.pass(Duration::from_secs(20)), [], "{why}");
    }
    // RFC 3376 section 4: other types are ignored in silence; so are fragments of anything, and what is not for us.
    let ignored = raw.count("igmp_ignored");
    raw.ask(&[0x99, 0, 0, 0, 1, 2, 3, 4]);
    assert_eq!(raw.count("igmp_ignored"), ignored);
    assert_eq!(raw.pass(Duration::from_secs(20)), []);
    // RFC 4541 section 2.1.1: switches that ask have no address.
    let switch = Station {
        ip: Ipv4Addr::UNSPECIFIED,
        ..ROUTER
    };
    raw.send(&switch.igmp(&systems, 1, true, &good));
    assert_eq!(raw.pass(Duration::from_secs(20)).len(), 1);
    // Section 4.1.12: to any address of ours it counts.
    raw.send(&ROUTER.igmp(&NODE, 1, true, &good));
    assert_eq!(raw.pass(Duration::from_secs(20)).len(), 1);
    raw.send(&ROUTER.igmp(&Station::group(GROUP), 1, true, &query(GROUP, 10, &[])));
    assert_eq!(raw.pass(Duration::from_secs(20)).len(), 1);
}
