//! What strangers can do to connections: RFC 5961, RFC 5927, and limits of answers.

use std::time::Duration;

use sidecore_tcp::State;
use sidecore_testkit::Event;
use sidecore_testkit::packet::{Station, header};
use sidecore_testkit::packet6::Station6;
use sidecore_wire::{Icmpv4, Icmpv6, Timestamps, icmpv4, icmpv6};

use crate::raw::*;
use crate::six;

const ROUTER: Station = Station::new(9);
const ROUTER6: Station6 = Station6::new(9);

/// All connections together send no more challenges than the budget of a second, which nobody knows: 10 to 30 of 20 here.
#[test]
fn challenges_have_a_limit_for_all() {
    let mut raw = Raw::with(|config| {
        config.neighbors.push((PEER.ip, PEER.mac));
        config.challenge_acks = 20;
    });
    let (_, listener) = raw.listen(80, 16);
    for port in 1..=10 {
        raw.open(listener, port, 80);
    }
    let challenge_all = |raw: &mut Raw| -> usize {
        let answer = |n: u16| raw.tcp(&header(n % 10 + 1, 80, SYN, 77, 0), &[]).len();
        (0..100).map(answer).sum()
    };
    let first = challenge_all(&mut raw);
    assert!((10..=30).contains(&first), "{first}");
    assert_eq!(raw.count("challenges_withheld"), 100 - first as u64);
    // Each has spent its own ten by now.
    raw.pass(Duration::from_secs(1));
    assert_eq!(challenge_all(&mut raw), 0);
    raw.pass(Duration::from_secs(4));
    let later = challenge_all(&mut raw);
    assert!((10..=30).contains(&later), "{later}");
    assert_ne!(first, later, "the budget is drawn anew");
}

/// RFC 5961 section 4.2 in every state, and for a SYN without the timestamps that were agreed.
#[test]
fn a_syn_is_challenged_in_every_synchronized_state() {
    let mut raw = Raw::new();
    let (_, listener) = raw.listen(80, 16);
    let mut syn = header(9, 80, SYN, 1000, 0);
    syn.options.timestamps = Some(Timestamps { value: 50, echo: 0 });
    let (syn_ack, _) = one(raw.tcp(&syn, &[])).tcp();
    let (iss, now) = (syn_ack.seq.0, syn_ack.options.timestamps.unwrap());
    let stamped = |flags, seq, ack| {
        let mut header = header(9, 80, flags, seq, ack);
        let value = 60;
        let echo = now.value;
        header.options.timestamps = Some(Timestamps { value, echo });
        header
    };
    raw.tcp(&stamped(ACK, 1001, iss + 1), &[]);
    let user = raw.node.accept(listener).unwrap();
    let challenged = |raw: &mut Raw, state, seq, ack| {
        assert_eq!(raw.node.tcp(user).unwrap().state(), state);
        let bare = header(9, 80, SYN, 123_456, 0);
        assert_eq!(one_tcp(raw.tcp(&bare, &[])), (ACK, seq, ack), "{state:?}");
        assert_eq!(raw.node.tcp(user).unwrap().state(), state);
    };
    challenged(&mut raw, State::Established, iss + 1, 1001);
    raw.node.shutdown(user);
    raw.turn();
    challenged(&mut raw, State::FinWait1, iss + 2, 1001);
    raw.tcp(&stamped(ACK, 1001, iss + 2), &[]);
    challenged(&mut raw, State::FinWait2, iss + 2, 1001);
    raw.tcp(&stamped(ACK | FIN, 1001, iss + 2), &[]);
    // In TIME-WAIT a SYN that is not newer (RFC 6191).
    let mut old = header(9, 80, SYN, 500, 0);
    old.options.timestamps = Some(Timestamps { value: 1, echo: 0 });
    assert_eq!(one_tcp(raw.tcp(&old, &[])), (ACK, iss + 2, 1002));
}

#[test]
fn a_repeated_syn_is_answered_at_a_limited_rate() {
    let mut raw = Raw::new();
    raw.listen(80, 4);
    let syn = header(9, 80, SYN, 1000, 0);
    let answers: usize = (0..100).map(|_| raw.tcp(&syn, &[]).len()).sum();
    assert_eq!(answers, 11, "the first, and ten in five seconds");
}

/// The frame without its Ethernet header: what an error quotes.
fn quote(frame: &[u8], len: usize) -> &[u8] {
    &frame[14..14 + len]
}

/// RFC 5927 section 5.2: what would be hard errors are soft ones for a connection that exists; RFC 6633: source quench is nothing.
#[test]
fn no_icmp_error_ends_a_connection() {
    let mut raw = Raw::new();
    let (_, listener) = raw.listen(80, 4);
    let (_, user) = raw.open(listener, 9, 80);
    raw.node.write(user, b"data");
    let data = raw.node.turn(raw.now).remove(0);
    let before = raw.node.tcp(user).unwrap().info();
    for code in 0..=15 {
        if code != icmpv4::UNREACHABLE_FRAGMENTATION_NEEDED {
            let message = Icmpv4::DestinationUnreachable {
                code,
                next_hop_mtu: 0,
            };
            raw.send(&ROUTER.icmp(&NODE, &message, quote(&data, 28)));
        }
    }
    let quench = Icmpv4::Other { type_: 4, code: 0 };
    for message in [
        Icmpv4::TimeExceeded { code: 0 },
        Icmpv4::ParameterProblem,
        quench,
    ] {
        raw.send(&ROUTER.icmp(&NODE, &message, quote(&data, 28)));
    }
    assert_eq!(raw.node.closed(user), None);
    let after = raw.node.tcp(user).unwrap().info();
    assert_eq!((after.cwnd, after.rto_us), (before.cwnd, before.rto_us));
    assert_eq!(raw.node.events(user), [Event::Incoming(listener)]);
}

/// RFC 5927 section 4.1: "SND.UNA =< SEG.SEQ < SND.NXT".
#[test]
fn packet_too_big_must_quote_what_is_in_flight() {
    let mut raw = six::Raw6::new();
    let listener = raw.listen(80);
    let (_, user) = raw.open(listener, 80);
    let send = |raw: &mut six::Raw6, quoted: &[u8]| {
        let message = Icmpv6::PacketTooBig { mtu: 1280 };
        raw.send(&ROUTER6.icmp(&six::NODE, &message, quoted));
        raw.node.tcp(user).unwrap().effective_mss()
    };
    raw.node.write(user, &[7; 1000]);
    let data = raw.node.turn(raw.now).remove(0);
    let before = raw.node.tcp(user).unwrap().effective_mss();
    // The sequence number is 4 bytes into TCP's header.
    for change in [1u32, 0x8000_0000, 1 << 20] {
        let mut forged = quote(&data, 48).to_vec();
        let seq = u32::from_be_bytes(forged[44..48].try_into().unwrap());
        let seq = if change == 1 { seq - 1 } else { seq + change };
        forged[44..48].copy_from_slice(&seq.to_be_bytes());
        assert_eq!(send(&mut raw, &forged), before, "{change}");
    }
    // Hard errors are soft for IPv6, too.
    for code in 0..=6 {
        let message = Icmpv6::DestinationUnreachable { code };
        raw.send(&ROUTER6.icmp(&six::NODE, &message, quote(&data, 48)));
    }
    let problem = Icmpv6::ParameterProblem {
        code: icmpv6::PROBLEM_NEXT_HEADER,
        pointer: 40,
    };
    raw.send(&ROUTER6.icmp(&six::NODE, &problem, quote(&data, 48)));
    assert_eq!(raw.node.closed(user), None);
}
