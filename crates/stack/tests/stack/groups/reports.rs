//! What routers are told without having asked (RFC 3376 section 5.1), and what sockets may not do.

use super::*;

/// The first report at once, the second within a second, and no third.
fn twice(raw: &mut Raw, expected: &Records) {
    let now = told(&raw.turn());
    assert_eq!(now, *expected, "at once");
    let then = told(&raw.pass(Duration::from_secs(1)));
    assert_eq!(then, *expected, "within the interval");
    assert_eq!(raw.pass(Duration::from_secs(600)), []);
}

#[test]
fn rfc_3376_section_5_1_joining_and_leaving_is_said_twice() {
    let mut raw = Raw::new();
    let (a, _) = raw.shared("0.0.0.0:5000");
    let (b, _) = raw.shared("0.0.0.0:5000");
    raw.join(a, GROUP);
    twice(&mut raw, &vec![record(TO_EX, GROUP, &[])]);
    // The second and the first but one make no difference.
    raw.join(b, GROUP);
    raw.leave(a, GROUP);
    assert_eq!(raw.pass(Duration::from_secs(5)), []);
    raw.leave(b, GROUP);
    twice(&mut raw, &vec![record(TO_IN, GROUP, &[])]);
    // A socket that is closed leaves.
    raw.join(a, GROUP);
    raw.join(a, OTHER);
    let both = vec![record(TO_EX, GROUP, &[]), record(TO_EX, OTHER, &[])];
    assert_eq!(told(&raw.turn()), both, "in one report");
    raw.pass(Duration::from_secs(5));
    raw.node.stack.udp_close(a);
    let left = vec![record(TO_IN, GROUP, &[]), record(TO_IN, OTHER, &[])];
    assert_eq!(told(&raw.turn()), left);
    let again: Records = told(&raw.pass(Duration::from_secs(5)));
    assert_eq!(again.len(), 2);
    assert!(raw.count("igmp_out") >= 8);
}

#[test]
fn rfc_3376_section_5_1_sources_that_come_and_go() {
    let mut raw = Raw::new();
    let (a, _) = raw.shared("0.0.0.0:5000");
    let (b, _) = raw.shared("0.0.0.0:5000");
    // INCLUDE (A) to INCLUDE (B): ALLOW (B-A), BLOCK (A-B).
    raw.sources(a, GroupChange::JoinSource, &[5, 3]);
    twice(&mut raw, &vec![record(ALLOW, GROUP, &[3, 5])]);
    raw.sources(b, GroupChange::JoinSource, &[5, 6]);
    twice(&mut raw, &vec![record(ALLOW, GROUP, &[6])]);
    raw.leave(a, GROUP);
    twice(&mut raw, &vec![record(BLOCK, GROUP, &[3])]);
    // INCLUDE (A) to EXCLUDE (B): TO_EX (B). What b wants is not blocked.
    raw.join(a, GROUP);
    raw.sources(a, GroupChange::Block, &[6, 7]);
    assert_eq!(told(&raw.turn()), [record(TO_EX, GROUP, &[7])]);
    // The blocked source is a change of its own, and has its reports after those of the mode.
    let rest = told(&raw.pass(Duration::from_secs(5)));
    let block = record(BLOCK, GROUP, &[7]);
    assert_eq!(rest, [record(TO_EX, GROUP, &[7]), block.clone(), block]);
    // EXCLUDE (A) to EXCLUDE (B): ALLOW (A-B), BLOCK (B-A).
    raw.sources(a, GroupChange::Unblock, &[7]);
    raw.sources(a, GroupChange::Block, &[8]);
    twice(
        &mut raw,
        &vec![record(ALLOW, GROUP, &[7]), record(BLOCK, GROUP, &[8])],
    );
    // EXCLUDE (A) to INCLUDE (B): TO_IN (B).
    raw.leave(a, GROUP);
    twice(&mut raw, &vec![record(TO_IN, GROUP, &[5, 6])]);
    raw.sources(b, GroupChange::LeaveSource, &[5, 6]);
    twice(&mut raw, &vec![record(BLOCK, GROUP, &[5, 6])]);
}

#[test]
fn rfc_3376_section_5_1_a_change_before_the_last_was_said_again() {
    let mut raw = Raw::new();
    let (a, _) = raw.shared("0.0.0.0:5000");
    // The mode goes first, and with it all sources; those that came later have their reports after it.
    raw.join(a, GROUP);
    assert_eq!(told(&raw.turn()), [record(TO_EX, GROUP, &[])]);
    raw.sources(a, GroupChange::Block, &[4]);
    assert_eq!(told(&raw.turn()), [record(TO_EX, GROUP, &[4])]);
    let rest = told(&raw.pass(Duration::from_secs(5)));
    assert_eq!(
        rest,
        [record(BLOCK, GROUP, &[4]), record(BLOCK, GROUP, &[4])]
    );
    // Joined and left in one turn: only how it ended.
    raw.leave(a, GROUP);
    raw.join(a, GROUP);
    assert_eq!(told(&raw.turn()), [record(TO_EX, GROUP, &[])]);
    raw.pass(Duration::from_secs(5));
    // A source that goes while its coming is still being said.
    raw.leave(a, GROUP);
    raw.pass(Duration::from_secs(5));
    raw.sources(a, GroupChange::JoinSource, &[2, 3]);
    assert_eq!(told(&raw.turn()), [record(ALLOW, GROUP, &[2, 3])]);
    raw.sources(a, GroupChange::LeaveSource, &[3]);
    let now = told(&raw.turn());
    assert_eq!(
        now,
        [record(ALLOW, GROUP, &[2]), record(BLOCK, GROUP, &[3])]
    );
    assert_eq!(
        told(&raw.pass(Duration::from_secs(5))),
        [record(BLOCK, GROUP, &[3])]
    );
}

#[test]
fn rfc_3376_section_8_1_as_often_as_the_router_says() {
    let mut raw = Raw::new();
    let (a, _) = raw.shared("0.0.0.0:5000");
    let mut asked = query(Ipv4Addr::UNSPECIFIED, 1, &[]);
    asked[8] = 4;
    raw.ask(&asked);
    raw.pass(Duration::from_secs(1));
    raw.join(a, GROUP);
    let said = told(&raw.pass(Duration::from_secs(10)));
    assert_eq!(said, vec![record(TO_EX, GROUP, &[]); 4]);
}

#[test]
fn rfc_3678_section_3_what_makes_no_sense() {
    use GroupChange::*;
    use StackError::*;
    let mut raw = Raw::new();
    let (id, _) = raw.shared("0.0.0.0:5000");
    let from = |n: u8| IpAddr::from(host(n));
    for (change, answer) in [
        (Leave, Err(AddressNotAvailable)),
        (LeaveSource(from(2)), Err(AddressNotAvailable)),
        (Block(from(2)), Err(AddressNotAvailable)),
        (JoinSource(GROUP.into()), Err(InvalidAddress)),
        (JoinSource("fd00::1".parse().unwrap()), Err(InvalidAddress)),
        (JoinSource(from(2)), Ok(())),
        (JoinSource(from(2)), Err(AddressNotAvailable)),
        (Join, Err(AddressInUse)),
        (Block(from(2)), Err(InvalidAddress)),
        (LeaveSource(from(3)), Err(AddressNotAvailable)),
        (LeaveSource(from(2)), Ok(())),
        (LeaveSource(from(2)), Err(AddressNotAvailable)),
        (Join, Ok(())),
        (Join, Err(AddressInUse)),
        (JoinSource(from(2)), Err(InvalidAddress)),
        (Unblock(from(2)), Err(AddressNotAvailable)),
        (Block(from(2)), Ok(())),
        (Block(from(2)), Err(AddressNotAvailable)),
        (Leave, Ok(())),
    ] {
        assert_eq!(raw.change(id, GROUP, change), answer, "{change:?}");
    }
    assert_eq!(
        raw.change(id, host(2), Join),
        Err(InvalidAddress),
        "no group"
    );
    let now = raw.now;
    let v6 = "ff02::5".parse().unwrap();
    let answer = raw.node.stack.udp_group(now, id, v6, Join);
    assert_eq!(answer, Err(InvalidAddress), "another version");
    raw.node.stack.udp_close(id);
    assert_eq!(raw.change(id, GROUP, Join), Err(NoSuchSocket));
}

#[test]
fn everything_has_its_limit() {
    let mut raw = Raw::with(|config| {
        config.groups = sidecore_stack::GroupConfig {
            groups: 3,
            per_socket: 2,
            sources: 2,
        };
    });
    let group = |n: u8| Ipv4Addr::new(239, 9, 9, n);
    let (a, _) = raw.shared("0.0.0.0:5000");
    let (b, _) = raw.shared("0.0.0.0:5000");
    raw.join(a, group(1));
    raw.join(a, group(2));
    assert_eq!(
        raw.change(a, group(3), GroupChange::Join),
        Err(StackError::Full)
    );
    raw.join(b, group(3));
    assert_eq!(
        raw.change(b, group(4), GroupChange::Join),
        Err(StackError::Full)
    );
    raw.join(b, group(1));
    for (n, answer) in [(5, Ok(())), (6, Ok(())), (7, Err(StackError::Full))] {
        let block = GroupChange::Block(host(n).into());
        assert_eq!(raw.change(b, group(1), block), answer);
    }
    // What was left makes room, once that was said.
    raw.leave(b, group(3));
    raw.pass(Duration::from_secs(5));
    raw.leave(b, group(1));
    raw.join(b, group(4));
}
