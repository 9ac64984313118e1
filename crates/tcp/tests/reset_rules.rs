//! Blind attacks and other oddities: RFC 5961, unacceptable segments, resets.

mod common;

use common::script::*;
use sidecore_tcp::initial_sequence_number;
use sidecore_tcp::{ChallengeLimit, CloseReason, Config, DropReason, Instant, State, reset_for};
use sidecore_tcp::{RangePool, timestamp_offset};
use sidecore_wire::{SeqNumber, SocketAddrV4, TcpFlags, TcpHeader};

#[test]
fn a_reset_exactly_at_rcv_nxt_resets() {
    let mut t = Script::established();
    t.recv(data(0, 100));
    let outcome = t.recv(rst(100));
    assert_eq!(outcome.closed, Some(CloseReason::Reset));
    assert_eq!(t.state(), State::Closed);
    t.sends([]);
    t.no_timer();
}

#[test]
fn a_reset_elsewhere_in_the_window_is_challenged() {
    let mut t = Script::established();
    for seq in [1, 5000, 9999] {
        let outcome = t.recv(rst(seq));
        assert_eq!(outcome.dropped, Some(DropReason::BadReset));
        t.sends([ack(0).seq(0)]);
    }
    assert_eq!(t.state(), State::Established);
    assert_eq!(t.connection.info().challenge_acks, 3);
}

#[test]
fn a_reset_outside_the_window_is_dropped_silently() {
    let mut t = Script::established();
    for seq in [-1, -5000, 10_000, 1 << 30] {
        let outcome = t.recv(rst(seq));
        assert_eq!(outcome.dropped, Some(DropReason::BadReset));
        t.sends([]);
    }
    assert_eq!(t.state(), State::Established);
}

#[test]
fn a_syn_is_challenged_wherever_it_is() {
    let mut t = Script::established();
    for seq in [-1, 0, 10, 1 << 30, -(1 << 30)] {
        let outcome = t.recv(syn().seq(seq));
        assert_eq!(outcome.dropped, Some(DropReason::UnexpectedSyn));
        t.sends([ack(0).seq(0)]);
    }
    assert_eq!(t.state(), State::Established);
}

#[test]
fn challenges_are_limited_to_ten_in_five_seconds() {
    let mut t = Script::established();
    for _ in 0..10 {
        let outcome = t.recv(rst(5));
        assert!(outcome.challenge);
        t.sends([ack(0)]);
    }
    assert!(!t.recv(rst(5)).challenge);
    t.sends([]);
    t.recv(syn());
    t.sends([]);
    t.pass(secs(1));
    t.recv(rst(5));
    t.sends([]);
    t.pass(secs(4));
    t.recv(rst(5));
    t.sends([ack(0)]);
}

/// RFC 5961 section 7: number and time "SHOULD be tunable".
#[test]
fn the_limit_of_challenges_is_configured() {
    let config = Config {
        challenge_limit: ChallengeLimit {
            count: 1,
            interval: secs(60),
        },
        ..plain()
    };
    let mut t = Script::established_with(&config, syn());
    t.recv(rst(5));
    t.sends([ack(0)]);
    t.pass(secs(15));
    t.recv(rst(5));
    t.sends([]);
}

/// Whoever knows the ports only must not be able to make a peer's keepalive probes go unanswered.
#[test]
fn forged_segments_leave_probes_their_answers() {
    let mut t = Script::established();
    t.recv(data(0, 10));
    t.fire();
    t.sends([ack(10)]);
    for _ in 0..50 {
        t.recv(syn());
        t.recv(ack(0).seq(-1000));
        t.poll_any();
    }
    t.recv(ack(0).seq(9));
    t.sends([ack(10)]);
}

#[test]
fn the_caller_may_withhold_a_challenge_and_nothing_else() {
    let mut t = Script::established();
    assert!(t.recv(rst(5)).challenge);
    t.connection.withhold_challenge();
    t.sends([]);
    // An ACK that was due anyway stays.
    t.recv(data(100, 10));
    assert!(!t.recv(rst(5)).challenge);
    t.connection.withhold_challenge();
    t.sends([ack(0)]);
}

/// RFC 5961 section 4.2 asks for an answer "irrespective of the sequence number"; a peer that has forgotten the connection, and its
/// timestamps with it, finds out by the challenge.
#[test]
fn a_syn_with_an_old_timestamp_is_challenged() {
    let config = Config {
        timestamps: true,
        ..plain()
    };
    let mut t = Script::established_with(&config, syn().timestamps(500, 0));
    let outcome = t.recv(syn().seq(12345).timestamps(1, 0));
    assert_eq!(outcome.dropped, Some(DropReason::UnexpectedSyn));
    assert!(outcome.challenge);
}

#[test]
fn acks_of_the_future_and_of_the_far_past_are_challenged() {
    let mut t = Script::established();
    t.write(1000);
    t.sends([data(0, 1000)]);
    t.recv(ack(1000));
    for bad in [1001, 1 << 30, 1000 - i64::from(WINDOW) - 1, -(1 << 30)] {
        let outcome = t.recv(data(0, 10).ack(bad));
        assert_eq!(outcome.dropped, Some(DropReason::BadAck), "{bad}");
        assert!(outcome.accept.is_none(), "{bad}");
        t.sends([ack(0).seq(1000)]);
    }
    // An old one within MAX.SND.WND counts for nothing, but its text does.
    let outcome = t.recv(data(0, 10).ack(500));
    assert_eq!(outcome.dropped, None);
    assert_eq!(outcome.accept.unwrap().len, 10);
    assert_eq!(t.connection.send_una(), 1000);
}

#[test]
fn segments_without_ack_are_dropped() {
    let mut t = Script::established();
    let outcome = t.recv(data(0, 10).flags(TcpFlags::EMPTY));
    assert_eq!(outcome.dropped, Some(DropReason::NoAck));
    assert!(outcome.accept.is_none());
    t.sends([]);
}

#[test]
fn data_outside_the_window_is_answered_by_an_ack() {
    let mut t = Script::established();
    for seq in [10_001, 1 << 30] {
        let outcome = t.recv(data(seq, 10));
        assert_eq!(outcome.dropped, Some(DropReason::OutOfWindow));
        t.sends([ack(0).seq(0)]);
    }
    // Data that reaches beyond the window is cut there.
    let outcome = t.recv(data(0, 15_000));
    assert_eq!(outcome.accept.unwrap().len, 10_000);
    t.sends([ack(10_000).window(0)]);
    // An old duplicate.
    let outcome = t.recv(data(0, 10));
    assert_eq!(outcome.dropped, Some(DropReason::Duplicate));
    t.sends([ack(10_000)]);
}

#[test]
fn an_old_segment_without_data_is_answered_at_a_limited_rate() {
    // Two ends that disagree must not answer each other for ever.
    let mut t = Script::established();
    t.recv(data(0, 10));
    t.sends([]);
    t.fire();
    t.sends([ack(10)]);
    let mut answers = 0;
    for _ in 0..100 {
        t.recv(ack(0).seq(9));
        answers += usize::from(t.connection.wants_transmit());
        while t
            .connection
            .poll_transmit(t.now, &t.tx, &mut t.ranges)
            .is_some()
        {}
    }
    assert_eq!(answers, 10);
}

#[test]
fn a_christmas_tree() {
    let all = TcpFlags::from_bits(0x1ff);
    let mut t = Script::established();
    t.recv(data(5, 10).flags(all));
    t.sends([ack(0)]);
    assert_eq!(t.state(), State::Established);
}

#[test]
fn resets_for_segments_to_nowhere() {
    let header = TcpHeader {
        src_port: 1,
        dst_port: 2,
        seq: SeqNumber(u32::MAX),
        ack: SeqNumber(77),
        flags: TcpFlags::SYN,
        ..TcpHeader::default()
    };
    let reset = reset_for(&header, 10).unwrap();
    assert_eq!(reset.flags, TcpFlags::RST | TcpFlags::ACK);
    assert_eq!((reset.seq, reset.ack), (SeqNumber(0), SeqNumber(10)));
    assert_eq!((reset.src_port, reset.dst_port), (2, 1));
    let with_ack = TcpHeader {
        flags: TcpFlags::ACK | TcpFlags::FIN,
        ..header
    };
    let reset = reset_for(&with_ack, 10).unwrap();
    assert_eq!(reset.flags, TcpFlags::RST);
    assert_eq!(reset.seq, SeqNumber(77));
    let is_reset = TcpHeader {
        flags: TcpFlags::RST,
        ..header
    };
    assert_eq!(reset_for(&is_reset, 0), None);
}

#[test]
fn a_closed_connection_takes_nothing() {
    let mut t = Script::established();
    t.connection.abort(t.now);
    t.sends([rst_ack(0, 0)]);
    let outcome = t.recv(data(0, 10));
    assert_eq!(outcome.dropped, Some(DropReason::Closed));
    assert!(outcome.accept.is_none());
}

#[test]
fn initial_sequence_numbers() {
    let address = |port| SocketAddrV4::new([10, 0, 0, 1].into(), port);
    let key = [7; 16];
    let now = Instant::from_secs(5);
    let isn = |now, port| initial_sequence_number(&key, now, address(port), address(80));
    assert_eq!(isn(now, 1), isn(now, 1));
    assert_ne!(isn(now, 1), isn(now, 2));
    assert_ne!(
        isn(now, 1),
        initial_sequence_number(&[8; 16], now, address(1), address(80))
    );
    // 250 000 a second (RFC 6528: a clock of 4 microseconds).
    let later = isn(Instant::from_secs(6), 1);
    assert_eq!(later.distance_from(isn(now, 1)), 250_000);
    // Timestamps: one offset for a pair of addresses, whatever the ports.
    let offset = |port| timestamp_offset(&key, address(port), address(80));
    assert_eq!(offset(1), offset(2));
    assert_ne!(
        offset(1),
        timestamp_offset(&[8; 16], address(1), address(80))
    );
}

#[test]
fn a_pool_of_nothing_holds_nothing() {
    let mut t = Script::with_sack();
    t.ranges = RangePool::new(0);
    let outcome = t.recv(data(100, 10));
    assert_eq!(outcome.dropped, Some(DropReason::NoRanges));
    assert_eq!(t.ranges.refused(), 1);
    t.sends([ack(0)]);
    assert!(t.recv(data(0, 100)).accept.is_some());
}
