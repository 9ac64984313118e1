//! Sending: segmentation, silly windows, Nagle, cork, windows, probes, congestion window.

mod common;

use common::script::*;
use sidecore_tcp::{Algorithm, CloseReason, Config, State};

fn nagle() -> Config {
    Config {
        no_delay: false,
        ..plain()
    }
}

#[test]
fn data_goes_out_in_segments() {
    let mut t = Script::established();
    t.write(2500);
    t.sends([
        data(0, 1000).push(false),
        data(1000, 1000).push(false),
        data(2000, 500).push(true),
    ]);
    t.recv(ack(2500));
    t.no_timer();
    t.sends([]);
}

#[test]
fn super_segments() {
    let mut t = Script::established();
    t.tx.max_segments_bytes = 4500;
    t.write(9300);
    t.sends([data(0, 4000), data(4000, 4000), data(8000, 1300).push(true)]);
}

#[test]
fn the_smaller_of_both_segment_sizes() {
    let mut t = Script::established_with(&plain(), syn().mss(Some(400)));
    t.write(1000);
    t.sends([data(0, 400), data(400, 400), data(800, 200)]);
    let mut t = Script::established_with(&plain(), syn().mss(Some(9000)));
    t.write(2000);
    t.sends([data(0, 1000), data(1000, 1000)]);
    // Nobody talks us into segments of nothing.
    let t = Script::established_with(&plain(), syn().mss(Some(1)));
    assert_eq!(t.connection.effective_mss(), 88);
}

#[test]
fn nagle_holds_back_a_second_small_segment() {
    let mut t = Script::established_with(&nagle(), syn());
    t.write(100);
    t.sends([data(0, 100)]);
    t.write(200);
    t.sends([]);
    // A full segment may go.
    t.write(1250);
    t.sends([data(100, 1000)]);
    t.recv(ack(100));
    t.sends([data(1100, 150)]);
}

#[test]
fn nagle_does_not_hold_back_behind_full_segments() {
    // Minshall's variant: only a small segment waits for a small segment.
    let mut t = Script::established_with(&nagle(), syn());
    t.write(2300);
    t.sends([data(0, 1000), data(1000, 1000), data(2000, 300)]);
}

#[test]
fn nagle_lets_the_last_data_go() {
    let mut t = Script::established_with(&nagle(), syn());
    t.write(100);
    t.sends([data(0, 100)]);
    t.write(200);
    t.sends([]);
    t.connection.shutdown_send();
    t.sends([data(100, 100).fin()]);
}

#[test]
fn nagle_can_be_switched_off() {
    let mut t = Script::established_with(&nagle(), syn());
    t.write(100);
    t.sends([data(0, 100)]);
    t.write(200);
    t.sends([]);
    t.connection.set_no_delay(true);
    t.sends([data(100, 100)]);
}

#[test]
fn more_to_come_holds_a_partial_segment_for_200_ms() {
    let mut t = Script::established();
    t.connection.set_push(true);
    t.write(1500);
    t.sends([data(0, 1000)]);
    t.recv(ack(1000));
    t.sends([]);
    assert_eq!(t.fire(), ms(200));
    t.sends([data(1000, 500).push(false)]);
    t.recv(ack(1500));
    // Each hold is a new one.
    t.write(1600);
    t.sends([]);
    t.connection.set_push(false);
    t.sends([data(1500, 100).push(true)]);
    t.recv(ack(1600));
    t.no_timer();
}

#[test]
fn cork_holds_until_it_is_pulled() {
    let mut t = Script::established();
    t.connection.set_cork(true);
    t.write(300);
    t.sends([]);
    t.pass(ms(100));
    t.write(600);
    t.sends([]);
    assert_eq!(t.fire(), ms(100));
    t.sends([data(0, 600)]);
    t.recv(ack(600));
    t.write(700);
    t.sends([]);
    t.connection.set_cork(false);
    t.sends([data(600, 100)]);
    t.recv(ack(700));
    t.no_timer();
}

#[test]
fn a_close_pulls_the_cork() {
    let mut t = Script::established();
    t.connection.set_cork(true);
    t.write(300);
    t.sends([]);
    t.connection.shutdown_send();
    t.sends([data(0, 300).fin()]);
    t.recv(ack(301));
    t.no_timer();
}

#[test]
fn nothing_goes_beyond_the_peers_window() {
    let mut t = Script::established();
    t.recv(ack(0).window(2500));
    t.write(10_000);
    t.sends([data(0, 1000), data(1000, 1000)]);
    // 500 bytes are less than a segment and than half the largest window: they wait (RFC 9293 section 3.8.6.2.1).
    t.recv(ack(1000).window(1500));
    t.sends([]);
    t.recv(ack(2000).window(2500));
    t.sends([data(2000, 1000), data(3000, 1000)]);
}

#[test]
fn a_peer_with_small_windows_gets_half_of_them() {
    let mut t = Script::established_with(&plain(), syn().window(600));
    t.write(5000);
    t.recv(ack(0).window(600));
    t.sends([data(0, 600)]);
    t.recv(ack(600).window(200));
    t.sends([]);
    t.recv(ack(600).window(300));
    t.sends([data(600, 300)]);
}

#[test]
fn a_small_window_is_used_after_the_override_timeout() {
    let mut t = Script::established();
    t.recv(ack(0).window(100));
    t.write(5000);
    t.sends([]);
    assert_eq!(t.fire(), ms(200));
    t.sends([data(0, 100)]);
    // It is ordinary data: lost, it is sent again.
    assert_eq!(t.fire(), ms(200));
    t.sends([data(0, 100)]);
    t.recv(ack(100).window(5000));
    t.sends([data(100, 1000)]);
}

#[test]
fn what_the_override_timeout_sends_starts_the_user_timeout_anew() {
    let config = Config {
        user_timeout: Some(secs(30)),
        ..plain()
    };
    let mut t = Script::established_with(&config, syn());
    t.recv(ack(0).window(100));
    t.write(2000);
    t.sends([]);
    t.fire();
    t.sends([data(0, 100)]);
    t.recv(ack(100).window(5000));
    t.sends([data(100, 1000), data(1100, 900)]);
    t.recv(ack(2000));
    // Long after, the first timeout of something else is not the end.
    t.pass(secs(60));
    t.write(3000);
    t.sends([data(2000, 1000)]);
    t.fire();
    assert_eq!(t.state(), State::Established);
    t.sends([data(2000, 1000)]);
    t.recv(ack(3000));
    t.no_timer();
}

/// RFC 9293 section 3.10.7.4: SND.WL1 is there "to prevent using old segments to update the window".
#[test]
fn a_segment_that_was_overtaken_does_not_take_the_window_back() {
    let mut t = Script::established();
    // The peer has sent a segment with its window closed, and has then opened it.
    t.recv(ack(0).seq(100).window(5000));
    t.recv(data(0, 100).ack(0).window(0));
    t.poll_any();
    t.write(1000);
    t.sends([data(0, 1000)]);
    // What it sends again has a new ACK, and is news.
    t.recv(ack(1000).seq(200).window(5000));
    t.write(2000);
    t.sends([data(1000, 1000)]);
    t.recv(data(100, 100).ack(2000).window(300));
    t.poll_any();
    t.write(3000);
    t.sends([]);
}

#[test]
fn a_closed_window_is_probed_with_backoff() {
    let mut t = Script::established();
    t.write(1000);
    t.sends([data(0, 1000)]);
    t.recv(ack(1000).window(0));
    t.write(3000);
    t.sends([]);
    let mut expected = ms(200);
    for _ in 0..5 {
        assert_eq!(t.fire(), expected);
        // Without payload, from before the window: it must be answered, and takes no sequence number.
        t.sends([ack(0).seq(999)]);
        t.recv(ack(1000).window(0));
        t.sends([]);
        expected *= 2;
    }
    t.recv(ack(1000).window(2000));
    t.sends([data(1000, 1000), data(2000, 1000)]);
    t.recv(ack(3000));
    t.no_timer();
}

#[test]
fn probes_that_are_answered_keep_the_connection_for_ever() {
    let config = Config {
        user_timeout: Some(secs(10)),
        max_rto: secs(4),
        ..plain()
    };
    let mut t = Script::established_with(&config, syn());
    t.recv(ack(0).window(0));
    t.write(1000);
    t.sends([]);
    for _ in 0..50 {
        t.fire();
        t.sends([ack(0).seq(-1)]);
        t.pass(ms(1));
        t.recv(ack(0).window(0));
        t.sends([]);
    }
    assert_eq!(t.state(), State::Established);
}

#[test]
fn probes_that_are_not_answered_do_not() {
    let config = Config {
        user_timeout: Some(secs(10)),
        ..plain()
    };
    let mut t = Script::established_with(&config, syn());
    t.recv(ack(0).window(0));
    t.write(1000);
    t.sends([]);
    let start = t.now;
    for _ in 0..5 {
        t.fire();
        t.sends([ack(0).seq(-1)]);
    }
    t.fire_closes(CloseReason::TimedOut);
    let lasted = t.now.duration_since(start);
    assert!(lasted >= secs(10) && lasted < secs(11), "{lasted:?}");
}

#[test]
fn an_orphan_does_not_probe_for_ever() {
    let mut t = Script::established();
    t.recv(ack(0).window(0));
    t.write(1000);
    t.sends([]);
    t.connection.close();
    t.sends([]);
    for _ in 0..100 {
        let (_, outcome) = t.fire_timer();
        if let Some(reason) = outcome.closed {
            assert_eq!(reason, CloseReason::TimedOut);
            return;
        }
        t.sends([ack(0).seq(-1)]);
        t.recv(ack(0).window(0));
    }
    panic!("still there");
}

#[test]
fn a_window_that_opens_while_data_is_out_needs_no_probe() {
    let mut t = Script::established();
    t.write(3000);
    t.recv(ack(0).window(2000));
    t.sends([data(0, 1000), data(1000, 1000)]);
    t.recv(ack(1000).window(1000));
    t.sends([]);
    t.recv(ack(2000).window(1000));
    t.sends([data(2000, 1000)]);
}

#[test]
fn old_window_updates_are_ignored() {
    // RFC 9293 section 3.10.7.4: SND.WL1 and SND.WL2.
    let mut t = Script::established();
    t.recv(data(0, 10).window(5000));
    t.recv(data(10, 10).window(4000));
    // Older by its sequence number.
    t.recv(data(0, 10).window(9000));
    assert_eq!(t.connection.info().send_window, 4000);
    t.write(2000);
    t.sends([data(0, 1000), data(1000, 1000)]);
    t.recv(ack(2000).window(3000));
    t.recv(ack(1000).window(8000));
    assert_eq!(t.connection.info().send_window, 3000);
}

// ---- the congestion window

#[test]
fn slow_start_doubles_in_each_round_trip() {
    for congestion in [Algorithm::NewReno, Algorithm::Cubic] {
        let config = Config {
            congestion,
            initial_window_segments: 2,
            ..plain()
        };
        let mut t = Script::established_with(&config, syn());
        t.recv(ack(0).window(60_000));
        t.write(100_000);
        t.sends([data(0, 1000), data(1000, 1000)]);
        t.recv(ack(2000));
        t.sends([
            data(2000, 1000),
            data(3000, 1000),
            data(4000, 1000),
            data(5000, 1000),
        ]);
        t.recv(ack(3000));
        t.sends([data(6000, 1000), data(7000, 1000)]);
        assert_eq!(t.connection.info().cwnd, 5000);
    }
}

#[test]
fn a_window_that_is_not_used_does_not_grow() {
    let mut t = Script::established();
    for number in 0..100 {
        t.write(number * 100 + 100);
        t.sends([data(number as i64 * 100, 100)]);
        t.recv(ack(number as i64 * 100 + 100));
    }
    assert_eq!(t.connection.info().cwnd, 10_000);
}

#[test]
fn the_window_restarts_after_idleness() {
    // RFC 5681 section 4.1; RFC 2861: halved for each timeout that went by.
    let config = Config {
        initial_window_segments: 2,
        abc_segments: 100,
        ..plain()
    };
    let mut t = Script::established_with(&config, syn());
    t.tx.max_segments_bytes = 65_000;
    t.recv(ack(0).window(60_000));
    t.write(30_000);
    t.sends([data(0, 2000)]);
    t.recv(ack(2000));
    t.sends([data(2000, 4000)]);
    t.recv(ack(6000));
    t.sends([data(6000, 8000)]);
    t.recv(ack(14_000));
    t.sends([data(14_000, 16_000)]);
    t.recv(ack(30_000));
    assert_eq!(t.connection.info().cwnd, 32_000);
    // Not yet idle for a retransmission timeout.
    t.pass(ms(100));
    t.write(60_000);
    t.sends([data(30_000, 30_000)]);
    t.recv(ack(60_000));
    t.pass(secs(1));
    t.write(90_000);
    t.sends([data(60_000, 2000)]);
}

#[test]
fn a_segment_smaller_than_the_window_waits_for_room() {
    let config = Config {
        initial_window_segments: 3,
        ..plain()
    };
    let mut t = Script::established_with(&config, syn());
    t.write(2500);
    t.sends([data(0, 1000), data(1000, 1000), data(2000, 500)]);
    // Half a segment of room: the next full one waits.
    t.write(5000);
    t.sends([]);
    t.recv(ack(1000));
    t.sends([data(2500, 1000), data(3500, 1000), data(4500, 500)]);
}

/// SND.WND counts from SND.UNA: when an ACK moves that, the window must be the one which that ACK brings, though it rides on a
/// retransmission, whose sequence number is older than SND.WL1.
#[test]
fn the_window_of_a_newer_ack_counts_though_its_sequence_number_is_old() {
    let mut t = Script::established();
    t.recv(data(100, 100).window(2000));
    t.sends([ack(0)]);
    t.write(5000);
    t.sends([data(0, 1000), data(1000, 1000)]);
    // What was missing comes again. Nothing may go: what was offered ends at 2000.
    t.recv(data(0, 100).ack(2000).window(0));
    t.sends([ack(200).seq(2000)]);
    assert_eq!(t.connection.info().send_window, 0);
}

#[test]
fn rfc_9293_3_8_6_acks_lie_within_a_window_that_has_shrunk() {
    // MUST-34: "a sending TCP peer MUST be robust against window shrinking".
    let mut t = Script::established();
    t.write(4000);
    t.sends([
        data(0, 1000),
        data(1000, 1000),
        data(2000, 1000),
        data(3000, 1000),
    ]);
    t.recv(ack(1000).window(500));
    t.recv(data(0, 1000).ack(1000).window(500));
    t.recv(data(1000, 1000).ack(1000).window(500));
    t.sends([ack(2000).seq(1500)]);
    t.recv(data(2000, 1000).ack(1000).window(0));
    t.recv(data(3000, 1000).ack(1000).window(0));
    t.sends([ack(4000).seq(1000)]);
    t.recv(data(4000, 1000).ack(1000).window(5000));
    t.recv(data(5000, 1000).ack(1000).window(5000));
    t.sends([ack(6000).seq(4000)]);
}
