//! Retransmissions that were not needed, and how the sender takes them back (RFC 3522, 3708, 4015, 5682).

mod common;

use std::time::Duration;

use common::script::*;
use sidecore_tcp::{Algorithm, Config};
use sidecore_wire::TcpFlags;

const RTT: Duration = ms(100);

fn script(config: Config, timestamps: bool, sack: bool) -> Script {
    let mut syn = syn();
    if timestamps {
        syn = syn.timestamps(1, 0);
    }
    if sack {
        syn = syn.sack_permitted();
    }
    let config = Config {
        timestamps,
        sack,
        mss: if timestamps { MSS + 12 } else { MSS },
        ..config
    };
    let syn = syn.mss(Some(config.mss));
    Script::established_over(&config, syn, RTT)
}

fn five_out(t: &mut Script) {
    t.sends([
        data(0, 1000),
        data(1000, 1000),
        data(2000, 1000),
        data(3000, 1000),
        data(4000, 1000),
    ]);
}

/// The timer fires until something was sent by it: tail loss probes come first.
fn time_out(t: &mut Script) {
    while t.connection.info().timeouts == 0 {
        t.poll_any();
        t.fire();
    }
}

#[test]
fn rfc_3522_an_old_echo_tells_that_a_timeout_was_spurious() {
    for algorithm in [Algorithm::NewReno, Algorithm::Cubic] {
        let config = Config {
            congestion: algorithm,
            ..plain()
        };
        let mut t = script(config, true, false);
        t.write(5000);
        let sent = t.now.as_millis() as u32;
        five_out(&mut t);
        time_out(&mut t);
        t.sends([data(0, 1000)]);
        assert_eq!(t.connection.info().cwnd, 1000);
        assert_eq!(t.connection.info().rto_us, 600_000);
        t.pass(ms(50));
        t.recv(ack(1000).timestamps(2, sent));
        let info = t.connection.info();
        assert_eq!(info.undos, 1);
        assert_eq!((info.cwnd, info.ssthresh), (10_000, u32::MAX));
        // No backoff, and the long round trip counts (RFC 4015 section 3.2).
        assert!(info.srtt_us > 100_000, "{}", info.srtt_us);
        t.sends([]);
        t.recv(ack(5000).timestamps(3, sent));
        assert_eq!(t.connection.info().retransmissions, 1);
        t.no_timer();
    }
}

#[test]
fn rfc_3522_a_fresh_echo_tells_that_it_was_not() {
    let mut t = script(plain(), true, false);
    t.write(5000);
    five_out(&mut t);
    time_out(&mut t);
    t.sends([data(0, 1000)]);
    let again = t.now.as_millis() as u32;
    t.pass(RTT);
    t.recv(ack(1000).timestamps(2, again));
    assert_eq!(t.connection.info().undos, 0);
    t.sends([data(1000, 1000), data(2000, 1000)]);
}

#[test]
fn rfc_5682_acks_of_what_was_not_sent_again_tell_that_a_timeout_was_spurious() {
    for sack in [false, true] {
        let mut t = script(plain(), false, sack);
        t.write(100_000);
        t.poll_any();
        time_out(&mut t);
        t.sends([data(0, 1000)]);
        let resent = t.connection.info().retransmissions;
        let new = t.connection.send_nxt() as i64;
        t.pass(ms(10));
        // Step 2b: two new segments instead of what seems lost.
        t.recv(ack(1000));
        t.sends([data(new, 1000), data(new + 1000, 1000)]);
        t.pass(ms(1));
        // Step 3b.
        t.recv(ack(2000));
        let info = t.connection.info();
        assert_eq!((info.undos, info.retransmissions), (1, resent));
        assert_eq!(info.ssthresh, u32::MAX);
        assert!(info.cwnd >= 10_000, "{}", info.cwnd);
        assert_eq!(info.rto_us, 300_000);
        t.poll_any();
        t.recv(ack(new));
        assert_eq!(t.connection.info().retransmissions, resent);
    }
}

#[test]
fn rfc_5682_a_duplicate_after_the_new_data_tells_that_it_was_not() {
    let mut t = script(plain(), false, false);
    t.write(100_000);
    t.poll_any();
    time_out(&mut t);
    t.sends([data(0, 1000)]);
    t.recv(ack(1000));
    t.sends([data(10_000, 1000), data(11_000, 1000)]);
    t.recv(ack(1000));
    t.sends([data(1000, 1000)]);
    assert_eq!(t.connection.info().undos, 0);
}

#[test]
fn rfc_5682_a_duplicate_first_tells_nothing() {
    let mut t = script(plain(), false, true);
    t.write(10_000);
    t.poll_any();
    time_out(&mut t);
    t.sends([data(0, 1000)]);
    t.recv(ack(0).sack(&[(1000, 2000)]));
    assert_eq!(t.connection.info().undos, 0);
    assert_eq!(t.connection.info().cwnd, 1000);
}

#[test]
fn rfc_3708_dsack_of_all_that_was_sent_again_undoes_a_recovery() {
    let mut t = script(plain(), false, true);
    t.write(10_000);
    t.poll_any();
    t.pass(RTT);
    t.recv(ack(0).sack(&[(2000, 8000)]));
    t.sends([data(0, 1000), data(1000, 1000)]);
    assert_eq!(t.connection.info().ssthresh, 5000);
    // The first two were late only.
    t.pass(ms(5));
    t.recv(ack(10_000));
    assert_eq!(t.connection.info().undos, 0);
    t.pass(RTT);
    t.recv(ack(10_000).sack(&[(0, 1000)]));
    assert_eq!(t.connection.info().undos, 0);
    t.recv(ack(10_000).sack(&[(1000, 2000)]));
    let info = t.connection.info();
    assert_eq!(info.undos, 1);
    assert_eq!((info.cwnd, info.ssthresh), (10_000, u32::MAX));
}

#[test]
fn rfc_3708_dsack_of_a_part_undoes_nothing() {
    let mut t = script(plain(), false, true);
    t.write(10_000);
    t.poll_any();
    t.pass(RTT);
    t.recv(ack(0).sack(&[(2000, 8000)]));
    t.sends([data(0, 1000), data(1000, 1000)]);
    t.pass(RTT);
    t.recv(ack(10_000).sack(&[(0, 1000)]));
    // Again, and one from before.
    t.recv(ack(10_000));
    assert_eq!(t.connection.info().undos, 0);
    assert_eq!(t.connection.info().ssthresh, 5000);
}

#[test]
fn rfc_3522_an_old_echo_undoes_a_fast_recovery() {
    let mut t = script(plain(), true, true);
    t.write(10_000);
    let sent = t.now.as_millis() as u32;
    t.poll_any();
    t.pass(RTT);
    t.recv(ack(0).sack(&[(1000, 8000)]).timestamps(2, sent));
    t.sends([data(0, 1000)]);
    t.pass(ms(3));
    t.recv(ack(8000).timestamps(3, sent));
    let info = t.connection.info();
    assert_eq!((info.undos, info.recoveries), (1, 1));
    assert_eq!((info.cwnd, info.ssthresh), (10_000, u32::MAX));
    t.recv(ack(10_000).timestamps(4, sent));
    t.no_timer();
}

#[test]
fn rfc_9438_4_9_cubic_is_where_it_was() {
    let config = Config {
        congestion: Algorithm::Cubic,
        ..plain()
    };
    let mut t = script(config, true, true);
    t.write(10_000);
    let sent = t.now.as_millis() as u32;
    t.poll_any();
    t.pass(RTT);
    t.recv(ack(0).sack(&[(1000, 8000)]).timestamps(2, sent));
    assert_eq!(t.connection.info().ssthresh, 7000);
    t.poll_any();
    t.pass(ms(3));
    t.recv(ack(8000).timestamps(3, sent));
    let info = t.connection.info();
    assert_eq!((info.cwnd, info.ssthresh), (10_000, u32::MAX));
}

#[test]
fn rfc_4015_3_4_nothing_is_undone_where_the_ack_echoes_congestion() {
    let setup = TcpFlags::ECE | TcpFlags::CWR;
    for echo in [TcpFlags::EMPTY, TcpFlags::ECE] {
        let config = Config {
            timestamps: true,
            ..plain()
        };
        let syn = syn().timestamps(1, 0).with(setup);
        let mut t = Script::established_over(&config, syn, RTT);
        assert!(t.connection.info().ecn);
        t.write(5000);
        let sent = t.now.as_millis() as u32;
        t.poll_any();
        time_out(&mut t);
        t.poll_any();
        t.pass(ms(50));
        t.recv(ack(900).timestamps(2, sent).with(echo));
        let undone = u32::from(echo == TcpFlags::EMPTY);
        assert_eq!(t.connection.info().undos, undone);
    }
}
