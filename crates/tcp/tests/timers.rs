//! Keepalive, user timeout, ICMP, and what the timers are when.

mod common;

use common::script::*;
use sidecore_tcp::{CloseReason, Config, IcmpKind, Keepalive, State};

fn keepalive() -> Config {
    Config {
        keepalive: Some(Keepalive {
            idle: secs(100),
            interval: secs(10),
            probes: 3,
        }),
        ..plain()
    }
}

#[test]
fn a_silent_peer_is_probed_and_given_up() {
    let mut t = Script::established_with(&keepalive(), syn());
    assert_eq!(t.fire(), secs(100));
    // SEG.SEQ = SND.NXT - 1, no data.
    t.sends([ack(0).seq(-1)]);
    for _ in 0..2 {
        assert_eq!(t.fire(), secs(10));
        t.sends([ack(0).seq(-1)]);
    }
    t.fire_closes(CloseReason::TimedOut);
    t.sends([rst_ack(0, 0)]);
    t.no_timer();
}

#[test]
fn a_peer_that_answers_is_not_given_up() {
    let mut t = Script::established_with(&keepalive(), syn());
    for _ in 0..5 {
        t.fire();
        t.sends([ack(0).seq(-1)]);
        t.recv(ack(0));
        // Lazily: the timer fires at the interval, and sees that something came.
        assert_eq!(t.fire(), secs(10));
        t.sends([]);
        assert_eq!(t.fire(), secs(90));
        t.sends([ack(0).seq(-1)]);
        t.recv(ack(0));
        t.fire();
        t.sends([]);
    }
    assert_eq!(t.state(), State::Established);
}

#[test]
fn a_peer_that_answers_within_a_long_interval_is_not_given_up() {
    let config = Config {
        keepalive: Some(Keepalive {
            idle: secs(10),
            interval: secs(60),
            probes: 2,
        }),
        ..plain()
    };
    let mut t = Script::established_with(&config, syn());
    t.fire();
    for _ in 0..5 {
        t.sends([ack(0).seq(-1)]);
        t.recv(ack(0));
        assert_eq!(t.fire(), secs(60));
    }
    // Now it does not.
    t.sends([ack(0).seq(-1)]);
    assert_eq!(t.fire(), secs(60));
    t.sends([ack(0).seq(-1)]);
    t.fire_closes(CloseReason::TimedOut);
    t.sends([rst_ack(0, 0)]);
}

#[test]
fn traffic_puts_probes_off() {
    let mut t = Script::established_with(&keepalive(), syn());
    t.pass(secs(60));
    t.recv(data(0, 10));
    t.fire();
    t.sends([ack(10)]);
    t.fire();
    t.sends([]);
    let silent = t
        .connection
        .next_timeout()
        .unwrap()
        .duration_since(t.connection.info().last_received);
    assert_eq!(silent, secs(100));
}

#[test]
fn keepalive_can_be_switched() {
    let mut t = Script::established();
    t.no_timer();
    t.connection.set_keepalive(Some(Keepalive::default()));
    assert_eq!(t.fire(), secs(7200));
    t.sends([ack(0).seq(-1)]);
    t.connection.set_keepalive(None);
    t.no_timer();
}

#[test]
fn no_keepalive_while_data_is_out() {
    let mut t = Script::established_with(&keepalive(), syn());
    t.pass(secs(99));
    t.write(10);
    t.sends([data(0, 10)]);
    for _ in 0..2 {
        t.fire();
        t.sends([data(0, 10)]);
    }
    // The keepalive timer, at 100 s.
    t.fire();
    t.sends([]);
    t.fire();
    t.sends([data(0, 10)]);
    assert_eq!(t.state(), State::Established);
}

#[test]
fn we_answer_keepalive_probes() {
    let mut t = Script::established();
    t.recv(data(0, 10));
    t.fire();
    t.sends([ack(10)]);
    t.recv(ack(0).seq(9));
    t.sends([ack(10).seq(0)]);
    // The kind with one byte of garbage (RFC 9293 section 3.8.4).
    t.recv(data(9, 1));
    t.sends([ack(10)]);
}

#[test]
fn the_user_timeout_gives_up_exactly() {
    let config = Config {
        user_timeout: Some(secs(3)),
        ..plain()
    };
    let mut t = Script::established_with(&config, syn());
    t.write(10);
    t.sends([data(0, 10)]);
    let start = t.now;
    for expected in [200, 400, 800] {
        assert_eq!(t.fire(), ms(expected));
        t.sends([data(0, 10)]);
    }
    // 1.4 s have passed; the next would be at 3.0 s.
    assert_eq!(t.fire_timer().1.closed, Some(CloseReason::TimedOut));
    assert_eq!(t.now.duration_since(start), secs(3));
    t.sends([]);
    t.no_timer();
}

#[test]
fn the_user_timeout_is_over_when_it_is_due_and_not_at_the_next_retransmission() {
    // Before the first retransmission; between two; and just after one.
    for millis in [50, 250, 1000, 1405] {
        let config = Config {
            user_timeout: Some(ms(millis)),
            ..plain()
        };
        let mut t = Script::established_with(&config, syn());
        t.write(10);
        t.sends([data(0, 10)]);
        let start = t.now;
        loop {
            if let Some(reason) = t.fire_timer().1.closed {
                assert_eq!(reason, CloseReason::TimedOut);
                break;
            }
            t.sends([data(0, 10)]);
        }
        assert_eq!(t.now.duration_since(start), ms(millis));
    }
}

#[test]
fn a_user_timeout_that_is_set_later_holds_for_what_is_out() {
    let mut t = Script::established();
    t.write(10);
    t.sends([data(0, 10)]);
    let start = t.now;
    t.connection.set_user_timeout(Some(ms(150)));
    t.fire_closes(CloseReason::TimedOut);
    assert_eq!(t.now.duration_since(start), ms(150));
    // After retransmissions it counts from the beginning, and longer is longer again.
    let mut t = Script::established();
    t.write(10);
    t.sends([data(0, 10)]);
    let start = t.now;
    for _ in 0..2 {
        t.fire();
        t.sends([data(0, 10)]);
    }
    t.connection.set_user_timeout(Some(ms(700)));
    t.connection.set_user_timeout(Some(ms(900)));
    // The timer that was shortened once is not made longer: it finds that there is time left.
    assert_eq!(t.fire(), ms(100));
    t.sends([data(0, 10)]);
    t.fire_closes(CloseReason::TimedOut);
    assert_eq!(t.now.duration_since(start), ms(900));
}

#[test]
fn a_long_timeout_comes_back_with_the_user_timeout() {
    let mut t = Script::established();
    t.connection.set_user_timeout(Some(ms(100)));
    t.connection.set_user_timeout(None);
    t.write(10);
    t.sends([data(0, 10)]);
    for expected in [100, 200, 400, 800] {
        assert_eq!(t.fire(), ms(expected));
        t.sends([data(0, 10)]);
    }
}

#[test]
fn unanswered_window_probes_end_with_the_user_timeout() {
    let config = Config {
        user_timeout: Some(ms(700)),
        ..plain()
    };
    let mut t = Script::established_with(&config, syn());
    t.recv(ack(0).window(0));
    t.write(10);
    t.sends([]);
    t.fire();
    let first = t.now;
    t.sends([ack(0).seq(-1)]);
    loop {
        if t.fire_timer().1.closed.is_some() {
            break;
        }
        t.sends([ack(0).seq(-1)]);
    }
    assert_eq!(t.now.duration_since(first), ms(700));
}

#[test]
fn the_default_user_timeout_is_that_of_fifteen_retransmissions() {
    let mut t = Script::established();
    t.write(10);
    t.sends([data(0, 10)]);
    let start = t.now;
    let mut attempts = 0;
    loop {
        let (_, outcome) = t.fire_timer();
        if outcome.closed.is_some() {
            break;
        }
        t.sends([data(0, 10)]);
        attempts += 1;
    }
    assert_eq!(attempts, 15);
    let lasted = t.now.duration_since(start);
    assert!(lasted > secs(920) && lasted < secs(930), "{lasted:?}");
}

#[test]
fn progress_starts_the_user_timeout_again() {
    let config = Config {
        user_timeout: Some(secs(3)),
        ..plain()
    };
    let mut t = Script::established_with(&config, syn());
    t.write(5000);
    t.sends([
        data(0, 1000),
        data(1000, 1000),
        data(2000, 1000),
        data(3000, 1000),
        data(4000, 1000),
    ]);
    for number in 1..5 {
        t.pass(secs(2));
        t.recv(ack(number * 1000));
        t.sends([]);
    }
    assert_eq!(t.state(), State::Established);
}

// ---- ICMP

#[test]
fn a_hard_error_refuses_an_open() {
    for kind in [IcmpKind::PortUnreachable, IcmpKind::ProtocolUnreachable] {
        let mut t = Script::connect(&plain());
        t.sends([syn()]);
        let closed = t.connection.handle_icmp(t.now, ISS, kind);
        assert_eq!(closed, Some(CloseReason::Refused));
        assert_eq!(t.state(), State::Closed);
    }
}

#[test]
fn a_soft_error_only_explains() {
    // RFC 9293 MUST-56.
    let mut t = Script::connect(&plain());
    t.sends([syn()]);
    let closed = t
        .connection
        .handle_icmp(t.now, ISS, IcmpKind::HostUnreachable);
    assert_eq!(closed, None);
    for _ in 0..7 {
        t.fire();
        t.sends([syn()]);
    }
    t.fire_closes(CloseReason::Unreachable);
}

#[test]
fn errors_on_an_established_connection_end_nothing() {
    // RFC 5927 section 5.2.
    let mut t = Script::established();
    t.write(10);
    t.sends([data(0, 10)]);
    for kind in [
        IcmpKind::PortUnreachable,
        IcmpKind::ProtocolUnreachable,
        IcmpKind::HostUnreachable,
        IcmpKind::TimeExceeded,
    ] {
        assert_eq!(t.connection.handle_icmp(t.now, ISS.add(1), kind), None);
    }
    assert_eq!(t.state(), State::Established);
}

#[test]
fn errors_about_what_is_not_in_flight_are_forged() {
    let mut t = Script::connect(&plain());
    t.sends([syn()]);
    for seq in [ISS.add(1), ISS.sub(1), ISS.add(1 << 20)] {
        let closed = t
            .connection
            .handle_icmp(t.now, seq, IcmpKind::PortUnreachable);
        assert_eq!(closed, None);
    }
    assert_eq!(t.state(), State::SynSent);
    let mut t = Script::established();
    let kind = IcmpKind::FragmentationNeeded { mtu: 600 };
    t.connection.handle_icmp(t.now, ISS.add(1), kind);
    assert_eq!(t.connection.effective_mss(), MSS);
}

#[test]
fn a_smaller_path_mtu_sends_smaller_segments_again() {
    let mut t = Script::established();
    t.write(3000);
    t.sends([data(0, 1000), data(1000, 1000), data(2000, 1000)]);
    let cwnd = t.connection.info().cwnd;
    let kind = IcmpKind::FragmentationNeeded { mtu: 540 };
    assert_eq!(t.connection.handle_icmp(t.now, ISS.add(1), kind), None);
    assert_eq!(t.connection.effective_mss(), 500);
    t.sends([
        data(0, 500),
        data(500, 500),
        data(1000, 500),
        data(1500, 500),
        data(2000, 500),
        data(2500, 500),
    ]);
    // Not congestion.
    assert_eq!(t.connection.info().cwnd, cwnd);
    t.recv(ack(3000));
    // A larger one is not believed, nor one too small to be true.
    t.write(3500);
    t.sends([data(3000, 500)]);
    for mtu in [1500, 541] {
        let kind = IcmpKind::FragmentationNeeded { mtu };
        t.connection.handle_icmp(t.now, ISS.add(3001), kind);
        assert_eq!(t.connection.effective_mss(), 500);
    }
    let kind = IcmpKind::FragmentationNeeded { mtu: 41 };
    t.connection.handle_icmp(t.now, ISS.add(3001), kind);
    assert_eq!(t.connection.effective_mss(), 88);
}

#[test]
fn a_router_that_does_not_tell_its_mtu() {
    let mut t = Script::established();
    t.write(1000);
    t.sends([data(0, 1000)]);
    let kind = IcmpKind::FragmentationNeeded { mtu: 0 };
    t.connection.handle_icmp(t.now, ISS.add(1), kind);
    // The next plateau below 1040 (RFC 1191 section 7.1).
    assert_eq!(t.connection.effective_mss(), 1006 - 40);
}

#[test]
fn rfc_6298_2_3_a_granularity_above_the_round_trip() {
    for (above, expected) in [(false, 200), (true, 300)] {
        let config = Config {
            min_rto_above_srtt: above,
            ..plain()
        };
        let mut t = Script::established_over(&config, syn(), ms(100));
        // The same round trip time again and again: RTTVAR dwindles.
        for sent in 1..=40 {
            t.write(sent * 100);
            t.poll_any();
            t.pass(ms(100));
            t.recv(ack(sent as i64 * 100));
        }
        t.write(5000);
        t.poll_any();
        let after = t.fire();
        assert!(
            after >= ms(expected) && after < ms(expected + 5),
            "{after:?}"
        );
    }
}
