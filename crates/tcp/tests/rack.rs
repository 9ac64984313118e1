//! Loss found by time, tail loss probes, proportional rate reduction (RFC 8985, RFC 9937).

mod common;

use std::time::Duration;

use common::script::*;
use sidecore_tcp::Config;

const RTT: Duration = ms(100);

/// SACK, no timestamps, a round trip of 100 ms: RTO is 300 ms.
fn path() -> Script {
    let config = Config {
        sack: true,
        ..plain()
    };
    Script::established_over(&config, syn().sack_permitted(), RTT)
}

/// Ten segments of 1000 bytes are out, of so many bytes written, and a round trip has passed.
fn ten_of(written: u64) -> Script {
    let mut t = path();
    t.write(written);
    t.sends([
        data(0, 1000),
        data(1000, 1000),
        data(2000, 1000),
        data(3000, 1000),
        data(4000, 1000),
        data(5000, 1000),
        data(6000, 1000),
        data(7000, 1000),
        data(8000, 1000),
        data(9000, 1000),
    ]);
    t.pass(RTT);
    t
}

// ---- RACK

#[test]
fn rfc_8985_6_2_what_was_sent_before_something_delivered_is_lost_after_a_quarter_of_the_least_round_trip()
 {
    let mut t = ten_of(10_000);
    t.recv(ack(0).sack(&[(1000, 2000)]));
    t.sends([]);
    assert_eq!(t.fire(), ms(25));
    t.sends([data(0, 1000)]);
    assert_eq!(t.connection.info().recoveries, 1);
    t.recv(ack(10_000));
    t.sends([]);
    t.no_timer();
    assert_eq!(t.connection.info().retransmissions, 1);
}

#[test]
fn the_reordering_timer_may_be_coarse() {
    let config = Config {
        sack: true,
        reordering_slack: ms(10),
        ..plain()
    };
    let mut t = Script::established_over(&config, syn().sack_permitted(), RTT);
    t.write(2000);
    t.sends([data(0, 1000), data(1000, 1000)]);
    t.pass(RTT);
    t.recv(ack(0).sack(&[(1000, 2000)]));
    assert_eq!(t.fire(), ms(35));
    t.sends([data(0, 1000)]);
}

#[test]
fn rfc_8985_6_2_with_three_segments_sacked_there_is_no_reordering_window() {
    let mut t = ten_of(10_000);
    t.recv(ack(0).sack(&[(1000, 4000)]));
    t.sends([data(0, 1000)]);
}

#[test]
fn rfc_8985_6_2_after_reordering_was_seen_three_sacked_segments_are_no_loss() {
    let mut t = ten_of(30_000);
    t.recv(ack(0).sack(&[(1000, 2000)]));
    t.sends([data(10_000, 1000)]);
    // It was only late.
    t.pass(ms(5));
    t.recv(ack(2000));
    assert!(t.connection.info().reordering_seen);
    t.poll_any();
    t.pass(ms(5));
    t.recv(ack(2000).sack(&[(3000, 8000)]));
    t.poll_any();
    assert_eq!(t.connection.info().retransmissions, 0);
    t.pass(ms(20));
    t.recv(ack(8000));
    assert_eq!(t.connection.info().recoveries, 0);
}

#[test]
fn rfc_8985_6_2_what_one_ack_delivers_is_no_reordering() {
    let mut t = ten_of(10_000);
    // The first segment is acknowledged, and by the same ACK what follows a gap.
    t.recv(ack(1000).sack(&[(2000, 3000), (6000, 9000)]));
    assert!(!t.connection.info().reordering_seen);
    // So that three SACKed segments are enough.
    t.sends([data(1000, 1000), data(3000, 1000), data(4000, 1000)]);
}

#[test]
fn rfc_8985_6_2_dsack_widens_the_reordering_window() {
    let mut t = ten_of(10_000);
    t.recv(ack(0).sack(&[(1000, 2000)]));
    assert_eq!(t.fire(), ms(25));
    t.sends([data(0, 1000)]);
    t.pass(ms(10));
    // The first transmission was late, and the second arrives, too.
    t.recv(ack(10_000));
    t.pass(ms(90));
    t.recv(ack(10_000).sack(&[(0, 1000)]));
    t.write(20_000);
    t.poll_any();
    t.pass(RTT);
    t.recv(ack(10_000).sack(&[(11_000, 12_000)]));
    t.sends([]);
    assert_eq!(t.fire(), ms(50));
    t.sends([data(10_000, 1000)]);
}

#[test]
fn rfc_8985_3_2_a_retransmission_that_is_lost_is_found_without_a_timeout() {
    let mut t = ten_of(100_000);
    t.recv(ack(0).sack(&[(1000, 10_000)]));
    // PRR: one segment again, the rest of ssthresh (5000) new.
    t.sends([
        data(0, 1000),
        data(10_000, 1000),
        data(11_000, 1000),
        data(12_000, 1000),
        data(13_000, 1000),
    ]);
    t.pass(RTT);
    // What was sent after it arrives.
    t.recv(ack(0).sack(&[(1000, 11_000)]));
    t.sends([data(0, 1000), data(14_000, 1000)]);
    let info = t.connection.info();
    assert_eq!((info.retransmissions, info.timeouts), (2, 0));
    t.pass(RTT);
    t.recv(ack(14_000));
    assert_eq!(t.connection.info().recoveries, 1);
}

#[test]
fn rfc_8985_6_3_a_timeout_does_not_touch_what_was_sent_a_moment_ago() {
    let mut t = path();
    t.write(3000);
    t.sends([data(0, 1000), data(1000, 1000), data(2000, 1000)]);
    // A probe goes out after two round trips, and no more than one.
    assert_eq!(t.fire(), ms(202));
    t.sends([data(2000, 1000)]);
    t.pass(ms(290));
    t.write(4000);
    t.sends([data(3000, 1000)]);
    assert_eq!(t.fire(), ms(10));
    t.sends([data(0, 1000)]);
    let info = t.connection.info();
    assert_eq!(info.timeouts, 1);
    // What was sent again, and what was sent just now.
    assert_eq!(info.in_flight, 2000);
}

#[test]
fn rfc_8985_6_2_a_cumulative_ack_may_be_all_there_is() {
    let mut t = ten_of(10_000);
    for end in (1000..=10_000).step_by(1000) {
        t.recv(ack(end));
        t.sends([]);
    }
    t.no_timer();
    assert_eq!(t.connection.info().retransmissions, 0);
}

#[test]
fn without_ranges_loss_is_found_by_count() {
    let mut t = ten_of(10_000);
    t.ranges = sidecore_tcp::RangePool::new(2);
    t.recv(ack(0).sack(&[(1000, 4000)]));
    t.sends([]);
    // The timers see to it: a probe cannot be noted either.
    for _ in 0..3 {
        t.fire();
        t.poll_any();
    }
    assert!(t.connection.info().timeouts > 0);
    t.recv(ack(10_000));
    t.no_timer();
    assert!(t.ranges.refused() > 0);
    t.ranges = sidecore_tcp::RangePool::new(100);
    t.write(20_000);
    t.poll_any();
    t.pass(RTT);
    t.recv(ack(10_000).sack(&[(11_000, 14_000)]));
    t.sends([data(10_000, 1000)]);
}

// ---- tail loss probes

#[test]
fn rfc_8985_7_a_lost_tail_is_repaired_without_a_timeout() {
    let mut t = ten_of(10_000);
    // The last three are lost.
    t.recv(ack(7000));
    t.sends([]);
    let took = t.fire();
    assert!(took <= ms(202) && took > ms(190), "{took:?}");
    t.sends([data(9000, 1000)]);
    assert_eq!(t.connection.info().tail_probes, 1);
    t.pass(RTT);
    t.recv(ack(7000).sack(&[(9000, 10_000)]));
    t.sends([data(7000, 1000)]);
    t.pass(RTT);
    t.recv(ack(8000).sack(&[(9000, 10_000)]));
    t.sends([data(8000, 1000)]);
    t.pass(RTT);
    t.recv(ack(10_000));
    let info = t.connection.info();
    assert_eq!((info.timeouts, info.recoveries), (0, 1));
    t.no_timer();
}

#[test]
fn rfc_8985_7_3_new_data_is_the_better_probe() {
    let mut t = path();
    t.write(2000);
    t.sends([data(0, 1000), data(1000, 1000)]);
    t.fire();
    // Something was written in between.
    t.write(2500);
    t.sends([data(2000, 500)]);
    assert_eq!(t.connection.info().retransmissions, 0);
}

#[test]
fn rfc_8985_7_3_the_probe_may_exceed_the_congestion_window() {
    let mut t = ten_of(100_000);
    assert_eq!(t.fire(), ms(102));
    t.sends([data(10_000, 1000)]);
    assert_eq!(t.connection.info().cwnd, 10_000);
    // One at most; then the retransmission timer.
    assert_eq!(t.fire(), ms(300));
    t.sends([data(0, 1000)]);
    assert_eq!(t.connection.info().timeouts, 1);
}

#[test]
fn rfc_8985_7_3_a_probe_that_cannot_be_sent_makes_way_for_the_timeout() {
    let mut t = ten_of(100_000);
    // The window shrinks: the last segment lies beyond it.
    t.recv(ack(2000).window(1500));
    t.sends([]);
    t.fire();
    t.sends([]);
    assert_eq!(t.connection.info().tail_probes, 0);
    t.fire();
    t.sends([data(2000, 1000)]);
    assert_eq!(t.connection.info().timeouts, 1);
    t.recv(ack(3000).window(1500));
    // As far as they begin within it.
    t.sends([data(3000, 1000), data(4000, 1000)]);
}

#[test]
fn rfc_8985_7_2_one_segment_waits_for_the_delayed_ack() {
    let mut t = path();
    t.write(500);
    t.sends([data(0, 500)]);
    // 2 * SRTT + 200 ms would be 400 ms: not later than RTO.
    assert_eq!(t.fire(), ms(300));
    t.sends([data(0, 500)]);
    assert_eq!(t.connection.info().tail_probes, 1);
    assert_eq!(t.connection.info().timeouts, 0);
    assert_eq!(t.connection.info().cwnd, 10_000);
}

#[test]
fn rfc_8985_7_4_a_probe_that_arrived_twice_was_for_nothing() {
    let mut t = path();
    t.write(2000);
    t.sends([data(0, 1000), data(1000, 1000)]);
    t.fire();
    t.sends([data(1000, 1000)]);
    t.recv(ack(2000));
    t.recv(ack(2000).sack(&[(1000, 2000)]));
    t.write(3000);
    t.sends([data(2000, 1000)]);
    t.recv(ack(3000));
    let info = t.connection.info();
    assert_eq!((info.ssthresh, info.recoveries), (u32::MAX, 0));
}

#[test]
fn rfc_8985_7_4_a_loss_that_the_probe_repaired_is_congestion() {
    let mut t = path();
    t.write(2000);
    t.sends([data(0, 1000), data(1000, 1000)]);
    t.fire();
    t.sends([data(1000, 1000)]);
    t.recv(ack(2000));
    t.write(3000);
    t.sends([data(2000, 1000)]);
    t.recv(ack(3000));
    let info = t.connection.info();
    assert!(info.ssthresh < 10_000, "{}", info.ssthresh);
    assert_eq!(info.timeouts, 0);
}

#[test]
fn rfc_8985_7_2_no_probe_without_sack_nor_where_something_is_sacked() {
    let mut t = Script::established_over(&plain(), syn(), RTT);
    t.write(2000);
    t.sends([data(0, 1000), data(1000, 1000)]);
    assert_eq!(t.fire(), ms(300));
    t.sends([data(0, 1000)]);
    assert_eq!(t.connection.info().timeouts, 1);

    let mut t = ten_of(10_000);
    t.recv(ack(0).sack(&[(1000, 4000)]));
    t.sends([data(0, 1000)]);
    t.fire();
    assert_eq!(t.connection.info().tail_probes, 0);
    assert_eq!(t.connection.info().timeouts, 1);
}

#[test]
fn rfc_8985_7_a_fin_is_a_tail_too() {
    let mut t = path();
    t.write(1500);
    t.connection.shutdown_send();
    t.sends([data(0, 1000), data(1000, 500).fin()]);
    t.fire();
    t.sends([data(501, 999).fin()]);
    t.recv(ack(1501));
    t.no_timer();
}

#[test]
fn rfc_8985_7_3_where_no_probe_can_be_sent_there_is_a_timeout() {
    // The window has shrunk, and the last segment lies beyond it.
    let mut t = Script::with_sack();
    t.write(10_000);
    t.poll_any();
    t.pass(ms(10));
    t.recv(ack(1000).window(1000));
    t.fire();
    t.sends([]);
    assert_eq!(t.connection.info().tail_probes, 0);
    t.fire();
    t.sends([data(1000, 1000)]);
    assert_eq!(t.connection.info().timeouts, 1);
    // And again once there was an answer.
    t.recv(ack(2000).window(1000));
    t.poll_any();
    for _ in 0..4 {
        t.fire();
        t.poll_any();
    }
    assert!(t.connection.info().timeouts >= 3);
}

#[test]
fn rfc_8985_7_3_nor_where_it_is_not_known_what_was_sent_last() {
    let mut t = Script::with_sack();
    t.ranges = sidecore_tcp::RangePool::new(0);
    t.write(3000);
    t.poll_any();
    let mut timers = 0;
    while t.connection.info().timeouts == 0 {
        t.fire();
        t.poll_any();
        timers += 1;
        assert!(timers < 5, "the retransmission timer never fires");
    }
}

// ---- what Linux would say of it

#[test]
fn tcp_info_tells_of_the_recovery_in_segments() {
    let mut t = ten_of(20_500);
    let info = t.connection.tcp_info(t.now, &t.ranges);
    assert_eq!((info.state, info.ca_state), (1, 0));
    assert_eq!((info.unacked, info.sacked, info.lost), (10, 0, 0));
    assert_eq!((info.snd_cwnd, info.snd_ssthresh), (10, 0x7fff_ffff));
    assert_eq!((info.notsent_bytes, info.reordering), (10_500, 3));
    assert_eq!(info.last_data_sent, 100);
    assert_eq!((info.pacing_rate, info.delivery_rate), (0, 0));
    assert_eq!(info.max_pacing_rate, u64::MAX);
    t.recv(ack(0).sack(&[(2000, 3000)]));
    assert_eq!(t.connection.tcp_info(t.now, &t.ranges).ca_state, 1);
    t.poll_any();
    t.recv(ack(0).sack(&[(2000, 5000)]));
    let info = t.connection.tcp_info(t.now, &t.ranges);
    assert_eq!((info.ca_state, info.sacked, info.lost), (3, 3, 2));
    assert_eq!((info.retrans, info.retransmits), (0, 0));
    t.poll_any();
    let info = t.connection.tcp_info(t.now, &t.ranges);
    // What was sent again still counts as lost, with Linux.
    assert_eq!(info.lost, 2);
    assert!(info.retrans > 0 && info.retrans <= 2);
    assert_eq!(u64::from(info.retrans) * 1000, info.bytes_retrans);
    assert_eq!(
        info.bytes_sent,
        info.bytes_acked + 1000 * u64::from(info.unacked) + info.bytes_retrans
    );
}

#[test]
fn tcp_info_counts_timeouts_and_tells_of_the_pace() {
    let config = Config {
        sack: true,
        max_pacing_rate: Some(1_000_000),
        ..plain()
    };
    let mut t = Script::established_over(&config, syn().sack_permitted(), RTT);
    let info = t.connection.tcp_info(t.now, &t.ranges);
    assert_eq!(info.max_pacing_rate, 1_000_000);
    assert!(info.pacing_rate > 0 && info.pacing_rate <= 1_000_000);
    t.write(1000);
    t.poll_any();
    while t.connection.info().timeouts < 2 {
        t.fire();
        t.poll_any();
    }
    let info = t.connection.tcp_info(t.now, &t.ranges);
    assert_eq!((info.ca_state, info.retransmits, info.backoff), (4, 2, 2));
    assert_eq!((info.total_rto, info.unacked, info.retrans), (2, 1, 1));
}
