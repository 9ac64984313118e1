//! The table of RFC 4861 appendix C, as far as it is the cache's.

use super::*;

const NOW: Instant = Instant::from_secs(1);
const IP: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 7);
const MAC: MacAddress = MacAddress([2, 0, 0, 0, 0, 7]);
const OTHER: MacAddress = MacAddress([2, 0, 0, 0, 0, 8]);

fn cache() -> NeighborCache6 {
    NeighborCache6::new(NeighborConfig::default(), FlowHasher::new([1, 2]))
}

/// A cache with an entry in this state, and the entry's place.
fn with(state: State) -> (NeighborCache6, Place) {
    let mut cache = cache();
    let place = cache.place_for(IP).expect("room");
    cache.entry_mut(place).mac = MAC;
    cache.set(place, state, NOW);
    if matches!(state, State::Incomplete { .. }) {
        cache.entry_mut(place).mac = MacAddress::UNSPECIFIED;
    }
    (cache, place)
}

/// States by name, as the RFC has them.
fn name(cache: &NeighborCache6, place: Place) -> &'static str {
    match cache.entries[usize::from(place)].state {
        State::Vacant => "-",
        State::Incomplete { .. } => "INCOMPLETE",
        State::Reachable { .. } => "REACHABLE",
        State::Stale => "STALE",
        State::Delay { .. } => "DELAY",
        State::Probe { .. } => "PROBE",
        State::Unreachable { .. } => "(unreachable)",
        State::Permanent => "(permanent)",
    }
}

const INCOMPLETE: State = State::Incomplete {
    asked: 1,
    next: Instant::from_secs(2),
};
const REACHABLE: State = State::Reachable {
    until: Instant::from_secs(30),
};
const DELAY: State = State::Delay {
    until: Instant::from_secs(6),
};
const PROBE: State = State::Probe {
    asked: 1,
    next: Instant::from_secs(2),
};

#[test]
fn rfc_4861_appendix_c_advertisements() {
    // State, solicited, override, link address; then state and link address.
    let none = MacAddress::UNSPECIFIED;
    let rows = [
        (INCOMPLETE, true, false, Some(MAC), "REACHABLE", MAC),
        (INCOMPLETE, false, true, Some(MAC), "STALE", MAC),
        (INCOMPLETE, true, true, None, "INCOMPLETE", none),
        // Section 7.2.5 I: another address without override.
        (REACHABLE, true, false, Some(OTHER), "STALE", MAC),
        (State::Stale, true, false, Some(OTHER), "STALE", MAC),
        (DELAY, true, false, Some(OTHER), "DELAY", MAC),
        (PROBE, true, false, Some(OTHER), "PROBE", MAC),
        // The same address, or none.
        (State::Stale, true, false, Some(MAC), "REACHABLE", MAC),
        (PROBE, true, true, None, "REACHABLE", MAC),
        (State::Stale, false, true, Some(MAC), "STALE", MAC),
        (PROBE, false, false, Some(MAC), "PROBE", MAC),
        (REACHABLE, false, false, None, "REACHABLE", MAC),
        // Another address with override.
        (REACHABLE, true, true, Some(OTHER), "REACHABLE", OTHER),
        (PROBE, true, true, Some(OTHER), "REACHABLE", OTHER),
        (REACHABLE, false, true, Some(OTHER), "STALE", OTHER),
        (DELAY, false, true, Some(OTHER), "STALE", OTHER),
        (
            State::Permanent,
            true,
            true,
            Some(OTHER),
            "(permanent)",
            MAC,
        ),
    ];
    for (state, solicited, override_, mac, after, kept) in rows {
        let (mut cache, place) = with(state);
        let said = Advertised {
            mac,
            solicited,
            override_,
            router: false,
        };
        let done = cache.advertised(NOW, IP, &said);
        let row = format!("{state:?} S {solicited} O {override_} {mac:?}");
        assert_eq!(
            (name(&cache, place), cache.entry_mut(place).mac),
            (after, kept),
            "{row}"
        );
        let wakes = matches!(state, State::Incomplete { .. }) && mac.is_some();
        assert_eq!(done.wake, wakes.then_some(place), "{row}");
        let timed = matches!(after, "INCOMPLETE" | "DELAY" | "PROBE");
        assert_eq!(cache.next_timeout().is_some(), timed, "{row}");
    }
}

#[test]
fn rfc_4861_appendix_c_link_addresses_that_come_along() {
    let rows = [
        (State::Vacant, MAC, "STALE"),
        (INCOMPLETE, MAC, "STALE"),
        (REACHABLE, MAC, "REACHABLE"),
        (REACHABLE, OTHER, "STALE"),
        (State::Stale, MAC, "STALE"),
        (DELAY, OTHER, "STALE"),
        (PROBE, MAC, "PROBE"),
        (PROBE, OTHER, "STALE"),
        (State::Permanent, OTHER, "(permanent)"),
    ];
    for (state, mac, after) in rows {
        let (mut cache, _) = with(state);
        let woken = cache.heard(NOW, IP, mac, None);
        let place = cache.find(IP).expect("an entry");
        assert_eq!(name(&cache, place), after, "{state:?}");
        assert_eq!(woken.is_some(), matches!(state, State::Incomplete { .. }));
        if state != State::Permanent {
            assert_eq!(cache.entry_mut(place).mac, mac, "{state:?}");
        }
    }
}

#[test]
fn rfc_4861_appendix_c_time_passes() {
    let (mut cache, place) = with(INCOMPLETE);
    let mut questions = 0;
    let mut now = NOW;
    while name(&cache, place) == "INCOMPLETE" {
        now = cache.next_timeout().expect("a timer");
        let gone = cache.expire(now, |question| {
            assert_eq!(question, Solicit { ip: IP, at: None });
            questions += 1;
        });
        assert_eq!(gone.is_some(), name(&cache, place) == "(unreachable)");
    }
    assert_eq!(
        (questions, now),
        (2, Instant::from_secs(4)),
        "three with the first"
    );

    let (mut cache, place) = with(DELAY);
    let mut questions = 0;
    while name(&cache, place) != "-" {
        now = cache.next_timeout().expect("a timer");
        cache.expire(now, |question| {
            let at = Some(MAC);
            assert_eq!(question, Solicit { ip: IP, at });
            questions += 1;
        });
    }
    assert_eq!((questions, now), (3, Instant::from_secs(9)));
}

#[test]
fn rfc_4861_section_7_3_3_packets_that_are_sent() {
    for (state, after) in [
        (REACHABLE, "REACHABLE"),
        (State::Stale, "DELAY"),
        (DELAY, "DELAY"),
        (PROBE, "PROBE"),
        (State::Permanent, "(permanent)"),
    ] {
        let (mut cache, place) = with(state);
        let found = cache.resolve(NOW, IP, |_| panic!("no question"));
        assert_eq!(found, Resolution6::Known(place, MAC));
        assert_eq!(name(&cache, place), after);
    }
    let (mut cache, place) = with(REACHABLE);
    cache.resolve(Instant::from_secs(31), IP, |_| panic!("no question"));
    assert_eq!(name(&cache, place), "DELAY", "its time had run out");
    assert_eq!(cache.known(Instant::from_secs(32), IP, place), Some(MAC));
    assert_eq!(cache.known(Instant::from_secs(36), IP, place), None);
}

#[test]
fn rfc_4861_section_7_3_1_confirmations() {
    for (state, after) in [
        (INCOMPLETE, "INCOMPLETE"),
        (State::Stale, "REACHABLE"),
        (DELAY, "REACHABLE"),
        (PROBE, "REACHABLE"),
        (State::Permanent, "(permanent)"),
    ] {
        let (mut cache, place) = with(state);
        cache.confirm(NOW, IP, place);
        assert_eq!(name(&cache, place), after, "{state:?}");
    }
    // A place that has become somebody else's.
    let (mut cache, place) = with(State::Stale);
    cache.confirm(NOW, Ipv6Addr::LOCALHOST, place);
    assert_eq!(name(&cache, place), "STALE");
}

#[test]
fn a_full_cache_forgets_who_is_missed_least() {
    let mut cache = NeighborCache6::new(
        NeighborConfig {
            capacity: WAYS,
            ..NeighborConfig::default()
        },
        FlowHasher::new([1, 2]),
    );
    let ip = |n: u16| Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, n);
    cache.add_permanent(ip(0), MAC);
    for n in 1..WAYS as u16 {
        cache.heard(NOW + Duration::from_secs(u64::from(n)), ip(n), MAC, None);
    }
    assert_eq!(cache.evicted, 0);
    cache.heard(Instant::from_secs(99), ip(99), MAC, None);
    assert_eq!(cache.evicted, 1);
    assert_eq!(cache.find(ip(1)), None, "the oldest");
    assert!(cache.find(ip(0)).is_some() && cache.find(ip(99)).is_some());
    // Those that are being asked for stay: there is no place for more.
    let mut cache = NeighborCache6::new(
        NeighborConfig {
            capacity: WAYS,
            ..NeighborConfig::default()
        },
        FlowHasher::new([1, 2]),
    );
    for n in 0..WAYS as u16 {
        let found = cache.resolve(NOW, ip(n), |_| {});
        assert!(matches!(found, Resolution6::Pending(_)));
    }
    let found = cache.resolve(NOW, ip(99), |_| panic!("no question"));
    assert_eq!(found, Resolution6::Unreachable);
}
