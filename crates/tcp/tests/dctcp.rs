//! Data Center TCP (RFC 8257).

mod common;

use common::script::*;
use sidecore_tcp::{Algorithm, Config, Ecn};
use sidecore_wire::TcpFlags;
use sidecore_wire::ecn::{CE, ECT_0, NOT_ECT};

const ECE: TcpFlags = TcpFlags::ECE;
const CWR: TcpFlags = TcpFlags::CWR;
const SETUP: TcpFlags = ECE.union(CWR);
/// DCTCP.Alpha = 1.
const ONE: u32 = 1 << 20;

fn config() -> Config {
    Config {
        congestion: Algorithm::Dctcp,
        ..plain()
    }
}

fn dctcp() -> Script {
    let mut t = Script::accept(&config(), syn().with(SETUP));
    t.sends([syn_ack().with(ECE).ecn(ECT_0)]);
    t.pass(ms(100));
    t.recv(ack(0));
    t
}

/// One window of ten segments, each acknowledged alone; `marks` of them with ECE, evenly spread.
fn round(t: &mut Script, at: &mut i64, marks: i64) {
    let end = *at + 10_000;
    t.write(end as u64);
    t.poll_any();
    t.pass(ms(100));
    for n in 1..=10 {
        let echo = n * marks / 10 != (n - 1) * marks / 10;
        let flags = if echo { ECE } else { TcpFlags::EMPTY };
        t.recv(ack(*at + n * 1000).with(flags));
        t.poll_any();
    }
    *at = end;
}

fn alpha(t: &Script) -> f64 {
    f64::from(t.connection.info().dctcp_alpha.unwrap()) / f64::from(ONE)
}

#[test]
fn rfc_8257_3_6_syn_syn_ack_and_reset_are_ecn_capable() {
    let mut t = Script::connect(&config());
    t.sends([syn().with(SETUP).ecn(ECT_0)]);
    t.recv(syn_ack().with(ECE));
    t.sends([ack(0).ecn(ECT_0)]);
    t.connection.abort(t.now);
    t.sends([rst_ack(0, 0).ecn(ECT_0)]);
    // "ignores CE codepoints set on any SYN, SYN-ACK".
    let mut t = Script::connect(&config());
    t.poll_any();
    t.recv(syn_ack().with(ECE).ecn(CE));
    t.sends([ack(0)]);
}

#[test]
fn without_ecn_it_is_newreno() {
    let mut t = Script::connect(&config());
    t.poll_any();
    t.recv(syn_ack());
    t.sends([ack(0).ecn(NOT_ECT)]);
    t.write(10_000);
    t.poll_any();
    for _ in 0..3 {
        t.recv(ack(0).with(ECE));
    }
    assert_eq!(t.connection.info().ssthresh, 5000);
    let off = Config {
        ecn: Ecn::Off,
        ..config()
    };
    let mut t = Script::connect(&off);
    t.sends([syn().ecn(NOT_ECT)]);
}

#[test]
fn rfc_8257_3_2_each_ack_says_what_it_acknowledges() {
    let mut t = dctcp();
    t.recv(data(0, 1000));
    // The mark changes: what came before is acknowledged apart, without ECE.
    t.recv(data(1000, 1000).ecn(CE));
    t.sends([ack(1000), ack(2000).with(ECE)]);
    // As long as it stays, ACKs are delayed as ever.
    t.recv(data(2000, 1000).ecn(CE));
    t.sends([]);
    t.recv(data(3000, 1000).ecn(CE));
    t.sends([ack(4000).with(ECE)]);
    t.recv(data(4000, 1000).ecn(CE));
    t.recv(data(5000, 1000));
    t.sends([ack(5000).with(ECE), ack(6000)]);
    // CWR says nothing to it.
    t.recv(data(6000, 1000).ecn(CE));
    t.sends([ack(7000).with(ECE)]);
    t.recv(data(7000, 1000).with(CWR).ecn(CE));
    t.recv(data(8000, 1000).ecn(CE));
    t.sends([ack(9000).with(ECE)]);
    assert_eq!(t.connection.info().ce_received, 7);
}

#[test]
fn rfc_8257_3_2_a_burst_of_changes_is_told_in_order() {
    let mut t = dctcp();
    t.connection.set_receive_limit(40_000);
    t.poll_any();
    for n in 0..6 {
        let mark = if n / 2 % 2 == 1 { CE } else { ECT_0 };
        t.recv(data(n * 1000, 1000).ecn(mark));
    }
    t.sends([ack(2000), ack(4000).with(ECE), ack(6000)]);
    // More than it can remember: the oldest is told with the next.
    for n in 6..15 {
        let mark = if n % 2 == 1 { CE } else { ECT_0 };
        t.recv(data(n * 1000, 1000).ecn(mark));
    }
    t.sends([
        ack(11_000),
        ack(12_000).with(ECE),
        ack(13_000),
        ack(14_000).with(ECE),
        ack(15_000),
    ]);
}

#[test]
fn an_ack_that_is_owed_does_not_take_the_window_back() {
    let mut t = dctcp();
    t.recv(data(0, 1000));
    t.recv(data(1000, 500).ecn(CE));
    t.sends([ack(1000).window(9000), ack(1500).with(ECE).window(8500)]);
}

#[test]
fn rfc_8257_3_2_data_carries_the_echo_and_owed_acks_go_first() {
    let mut t = dctcp();
    t.recv(data(0, 1000));
    t.recv(data(1000, 1000).ecn(CE));
    t.write(1000);
    t.sends([ack(1000), data(0, 1000).ack(2000).with(ECE).ecn(ECT_0)]);
}

#[test]
fn rfc_8257_3_3_alpha_begins_at_one_and_follows_the_marks() {
    let mut t = dctcp();
    assert_eq!(t.connection.info().dctcp_alpha, Some(ONE));
    let mut at = 0;
    let mut expected = 1.0;
    // The first ACK is a window of its own, as nothing was observed before.
    for _ in 0..100 {
        round(&mut t, &mut at, 5);
        expected = expected * 15.0 / 16.0 + 0.5 / 16.0;
    }
    assert!((alpha(&t) - 0.5).abs() < 0.06, "{} {expected}", alpha(&t));
    for _ in 0..100 {
        round(&mut t, &mut at, 10);
    }
    assert!(alpha(&t) > 0.97, "{}", alpha(&t));
}

#[test]
fn rfc_8257_3_3_windows_without_marks_count_though_header_prediction_takes_them() {
    let mut t = dctcp();
    let mut at = 0;
    for _ in 0..40 {
        round(&mut t, &mut at, 0);
    }
    let mut other = dctcp();
    let mut other_at = 0;
    round(&mut other, &mut other_at, 1);
    round(&mut t, &mut at, 1);
    // (15/16)^40 is 0.08; and then a mark of ten.
    assert!(alpha(&t) < 0.15, "{}", alpha(&t));
    assert!(alpha(&other) > 0.8, "{}", alpha(&other));
}

#[test]
fn rfc_8257_3_3_the_window_is_reduced_by_half_of_alpha_once_a_window() {
    let mut t = dctcp();
    let mut at = 0;
    for _ in 0..40 {
        round(&mut t, &mut at, 0);
    }
    t.write(at as u64 + 30_000);
    t.poll_any();
    let before = f64::from(t.connection.info().cwnd);
    t.recv(ack(at + 1000).with(ECE));
    let info = t.connection.info();
    let expected = before * (1.0 - alpha(&t) / 2.0);
    assert!((f64::from(info.cwnd) - expected).abs() < 2.0, "{info:?}");
    assert!(f64::from(info.cwnd) > 0.9 * before, "{info:?}");
    assert_eq!(info.ssthresh, info.cwnd);
    t.recv(ack(at + 2000).with(ECE));
    assert_eq!(t.connection.info().cwnd, info.cwnd);
    assert_eq!(t.connection.info().ecn_reductions, 1);
}

#[test]
fn marks_alone_do_not_make_the_window_less_than_two_segments() {
    let mut t = dctcp();
    let mut at = 0;
    for _ in 0..30 {
        round(&mut t, &mut at, 10);
    }
    assert_eq!(t.connection.info().cwnd, 2000);
    assert_eq!(t.connection.info().timeouts, 0);
}

#[test]
fn rfc_8257_3_5_loss_is_what_it_is_to_newreno() {
    let mut t = dctcp();
    let mut at = 0;
    for _ in 0..40 {
        round(&mut t, &mut at, 0);
    }
    t.write(at as u64 + 100_000);
    t.poll_any();
    let flight = t.connection.info().in_flight;
    for _ in 0..3 {
        t.recv(ack(at));
    }
    assert_eq!(t.connection.info().ssthresh, flight / 2);
    t.fire();
    t.poll_any();
    assert_eq!(t.connection.info().cwnd, 1000);
}

#[test]
fn cwr_is_sent_for_receivers_that_wait_for_it() {
    let mut t = dctcp();
    t.write(10_000);
    t.poll_any();
    t.recv(ack(1000).with(ECE));
    t.write(20_000);
    t.recv(ack(10_000).with(ECE));
    t.sends([
        data(10_000, 1000).with(CWR).ecn(ECT_0),
        data(11_000, 1000).ecn(ECT_0),
        data(12_000, 1000).ecn(ECT_0),
        data(13_000, 1000).ecn(ECT_0),
        data(14_000, 1000).ecn(ECT_0),
    ]);
}
