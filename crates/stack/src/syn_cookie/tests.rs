use core::net::SocketAddr;
use core::time::Duration;

use proptest::prelude::*;
use sidecore_tcp::Instant;
use sidecore_wire::{SeqNumber, TcpHeader, TcpOptions, WindowScale};

use super::code::{Codec, LIFETIME_SECS, Offered, Request};
use crate::hash::Keys;

fn codec(seed: u8) -> Codec {
    Keys::new(&[seed; 32]).cookies()
}

fn request(remote: &str, irs: u32) -> Request {
    Request {
        local: "10.0.0.1:80".parse().unwrap(),
        remote: remote.parse().unwrap(),
        irs: SeqNumber(irs),
    }
}

const START: Instant = Instant::from_secs(64_000);

proptest! {
    #![proptest_config(sidecore_testkit::property_config(256))]

    /// What comes back is never larger than what the peer announced, and at least two thirds of what it did within reason.
    #[test]
    fn the_segment_size_comes_back(irs: u32, port: u16, mss in 88..=9000u16, secs in 64..100_000_000u64, later in 0..=64u64) {
        let now = Instant::from_secs(secs);
        let from = SocketAddr::from(([10, 0, 0, 9], port));
        let request = Request { remote: from, ..request("10.0.0.9:1", irs) };
        let cookie = codec(1).encode(now, &request, mss);
        let kept = codec(1).decode(now + Duration::from_secs(later), &request, cookie);
        prop_assert!(kept.is_some_and(|kept| kept <= mss), "{kept:?} of {mss}");
        if [536, 1220, 1360, 1440, 1460, 8940].contains(&mss) {
            prop_assert_eq!(kept, Some(mss));
        }
    }

    /// A scale, SACK and ECN fit into a timestamp, and it never lies in the future, nor far in the past.
    #[test]
    fn options_fit_into_a_timestamp(clock: u32, scale in prop::option::of(0..=14u8), sack: bool, ecn: bool) {
        let offered = Offered { window_scale: scale.map(WindowScale::new), sack, ecn };
        let said = offered.into_clock(clock);
        prop_assert_eq!(Offered::from_clock(said), offered);
        prop_assert!(clock.wrapping_sub(said) < 64, "{} of {}", said, clock);
    }
}

#[test]
fn a_cookie_is_good_for_two_minutes() {
    let (codec, request) = (codec(1), request("10.0.0.9:5", 77));
    // At the start of a period of 64 s.
    let cookie = codec.encode(START, &request, 1460);
    let after = |secs| codec.decode(START + Duration::from_secs(secs), &request, cookie);
    assert_eq!(after(0), Some(1460));
    assert_eq!(after(LIFETIME_SECS - 1), Some(1460));
    assert_eq!(after(LIFETIME_SECS), None);
    // Nor 256 periods later, when the eight bits are the same again; nor before it was made.
    assert_eq!(after(64 * 256), None);
    assert_eq!(
        codec.decode(START - Duration::from_secs(1), &request, cookie),
        None
    );
}

#[test]
fn it_is_one_connections_alone() {
    let now = START;
    let one = request("10.0.0.9:5", 77);
    let cookie = codec(1).encode(now, &one, 1460);
    for other in [
        request("10.0.0.9:6", 77),
        request("10.0.0.8:5", 77),
        request("[fd00::9]:5", 77),
        request("10.0.0.9:5", 78),
        Request {
            local: "10.0.0.1:81".parse().unwrap(),
            ..one
        },
    ] {
        assert_eq!(codec(1).decode(now, &other, cookie), None, "{other:?}");
    }
    assert_eq!(codec(2).decode(now, &one, cookie), None, "another secret");
}

/// Eight sizes in two periods, of 2^32: a guess is right once in 2^28 tries.
#[test]
fn guesses_fail() {
    let request = request("10.0.0.9:5", 77);
    let guess = |n: u32| SeqNumber(n.wrapping_mul(0x9e37_79b9));
    let good = (0..200_000).filter(|n| codec(3).decode(START, &request, guess(*n)).is_some());
    assert_eq!(good.count(), 0);
    // One that is nearly right is not.
    let cookie = codec(3).encode(START, &request, 536);
    for bit in 0..32 {
        let near = SeqNumber(cookie.0 ^ 1 << bit);
        assert_eq!(codec(3).decode(START, &request, near), None, "bit {bit}");
    }
}

/// RFC 6528: between the same ports, sequence numbers grow, so that an old segment is not taken for a new one's.
#[test]
fn cookies_grow_with_time() {
    let request = request("10.0.0.9:5", 77);
    let at = |period: u64| {
        let now = START + Duration::from_secs(64 * period);
        codec(1).encode(now, &request, 1460)
    };
    for period in 0..600 {
        let step = at(period + 2).distance_from(at(period)) as i32;
        assert!(step > 0, "{step}");
    }
}

#[test]
fn only_what_is_agreed_is_kept() {
    let options = |scale: Option<u8>, sack_permitted| TcpHeader {
        options: TcpOptions {
            window_scale: scale.map(WindowScale::new),
            sack_permitted,
            ..TcpOptions::NONE
        },
        ..TcpHeader::default()
    };
    // The peer's scale, and not ours; nothing that we do not want.
    let agreed = Offered::agreed(&options(Some(3), true), &options(Some(7), true));
    assert_eq!(agreed.window_scale, Some(WindowScale::new(3)));
    assert!(agreed.sack && !agreed.ecn);
    let agreed = Offered::agreed(&options(Some(3), true), &options(None, false));
    assert_eq!(agreed, Offered::default());
}
