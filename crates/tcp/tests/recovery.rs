//! Loss: fast retransmit and recovery with SACK found by count (RFC 6675) and without (RFC 6582), timeouts (RFC 6298), Karn.

mod common;

use common::script::*;
use sidecore_tcp::{Config, LossDetection, State};

/// With SACK, and loss found by count.
fn by_count() -> Script {
    let config = Config {
        sack: true,
        loss_detection: LossDetection::DupThresh,
        ..plain()
    };
    Script::established_with(&config, syn().sack_permitted())
}

/// Ten segments of 1000 bytes are out, and there are more.
fn ten_out(t: Script) -> Script {
    ten_of(t, 100_000)
}

/// Ten segments of 1000 bytes are out, and no more.
fn ten_in_all(t: Script) -> Script {
    ten_of(t, 10_000)
}

fn ten_of(mut t: Script, written: u64) -> Script {
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
    t
}

// ---- with SACK

#[test]
fn sack_recovery_of_one_loss() {
    let mut t = ten_out(by_count());
    // Each duplicate says that a segment has left the network: limited transmit (RFC 3042) sends a new one for it.
    t.recv(ack(0).sack(&[(1000, 2000)]));
    t.sends([data(10_000, 1000)]);
    t.recv(ack(0).sack(&[(1000, 3000)]));
    t.sends([data(11_000, 1000)]);
    // The third: the first segment is lost. ssthresh = 10 / 2 (what limited transmit has sent does not count); only the lost
    // one goes out.
    t.recv(ack(0).sack(&[(1000, 4000)]));
    t.sends([data(0, 1000)]);
    let info = t.connection.info();
    assert_eq!(info.ssthresh, 5000);
    assert_eq!(info.recoveries, 1);
    // From now on one segment for every two that were delivered (RFC 9937 section 6.2).
    t.recv(ack(0).sack(&[(1000, 5000)]));
    t.sends([]);
    t.recv(ack(0).sack(&[(1000, 6000)]));
    t.sends([]);
    t.recv(ack(0).sack(&[(1000, 7000)]));
    t.sends([data(12_000, 1000)]);
    t.recv(ack(0).sack(&[(1000, 8000)]));
    t.sends([]);
    // What is in flight has come down to ssthresh.
    t.recv(ack(0).sack(&[(1000, 9000)]));
    t.sends([]);
    // The hole is filled; all that was out when recovery began (12 000) is not acknowledged yet. Up to ssthresh.
    t.recv(ack(11_000));
    t.sends([data(13_000, 1000), data(14_000, 1000), data(15_000, 1000)]);
    assert_eq!(t.connection.info().ssthresh, 5000);
    t.recv(ack(12_000));
    assert_eq!(t.connection.info().cwnd, 5000);
    t.sends([data(16_000, 1000)]);
    assert_eq!(t.connection.info().retransmissions, 1);
    assert_eq!(t.connection.info().timeouts, 0);
}

#[test]
fn sack_recovery_of_several_losses() {
    let mut t = ten_out(by_count());
    // 0, 2000 and 5000 are lost.
    t.recv(ack(0).sack(&[(1000, 2000)]));
    t.sends([data(10_000, 1000)]);
    t.recv(ack(0).sack(&[(3000, 4000), (1000, 2000)]));
    t.sends([data(11_000, 1000)]);
    t.recv(ack(0).sack(&[(3000, 5000), (1000, 2000)]));
    t.sends([data(0, 1000)]);
    // More than two segments lie above 2000: it is lost too (IsLost). It goes out when pipe permits.
    t.recv(ack(0).sack(&[(6000, 7000), (3000, 5000), (1000, 2000)]));
    t.sends([]);
    t.recv(ack(0).sack(&[(6000, 8000), (3000, 5000), (1000, 2000)]));
    t.sends([]);
    // Now 5000 is lost as well: pipe = 1 + 3, and the window is 5.
    t.recv(ack(0).sack(&[(6000, 9000), (3000, 5000), (1000, 2000)]));
    t.sends([data(2000, 1000)]);
    t.recv(ack(0).sack(&[(6000, 10_000), (3000, 5000), (1000, 2000)]));
    t.sends([data(5000, 1000)]);
    // Partial ACKs.
    t.recv(ack(2000).sack(&[(6000, 10_000), (3000, 5000)]));
    t.sends([data(12_000, 1000)]);
    t.recv(ack(5000).sack(&[(6000, 11_000)]));
    t.sends([data(13_000, 1000), data(14_000, 1000)]);
    t.recv(ack(12_000));
    assert_eq!(t.connection.info().recoveries, 1);
    assert_eq!(t.connection.info().retransmissions, 3);
    assert_eq!(t.connection.info().cwnd, 5000);
}

#[test]
fn enough_bytes_above_are_a_loss_before_three_duplicates() {
    // One SACK of a coalesced run of segments (RFC 6675 IsLost).
    let mut t = ten_out(by_count());
    t.recv(ack(0).sack(&[(1000, 6000)]));
    t.sends([data(0, 1000)]);
    assert_eq!(t.connection.info().recoveries, 1);
}

#[test]
fn a_hole_may_go_out_as_one_super_segment() {
    let mut t = by_count();
    t.tx.max_segments_bytes = 65_000;
    t.write(10_000);
    t.sends([data(0, 10_000)]);
    t.recv(ack(0).sack(&[(4000, 10_000)]));
    // cwnd 5000; pipe 0: the hole of 4000 at once.
    t.sends([data(0, 4000)]);
    t.recv(ack(10_000));
    t.sends([]);
    t.no_timer();
}

#[test]
fn duplicate_acks_without_news_do_not_count_with_sack() {
    let mut t = ten_out(by_count());
    for _ in 0..10 {
        t.recv(ack(0));
        t.sends([]);
    }
    for _ in 0..10 {
        t.recv(ack(0).sack(&[(1000, 2000)]));
    }
    t.sends([data(10_000, 1000)]);
    assert_eq!(t.connection.info().recoveries, 0);
}

#[test]
fn nonsense_sack_blocks_are_passed_over() {
    let mut t = ten_out(by_count());
    for blocks in [
        [(5000, 5000)],
        [(6000, 5000)],
        [(-1000, 2000)],
        [(0, 1000)],
        [(9000, 10_001)],
        [(20_000, 30_000)],
        [(1 << 30, (1 << 30) + 5)],
    ] {
        t.recv(ack(0).sack(&blocks));
        t.sends([]);
    }
    // D-SACK below the cumulative ACK.
    t.recv(ack(3000).sack(&[(1000, 2000)]));
    assert_eq!(t.connection.info().in_flight, 7000);
}

#[test]
fn the_scoreboard_survives_a_timeout() {
    let mut t = ten_in_all(by_count());
    t.recv(ack(0).sack(&[(1000, 3000)]));
    t.sends([]);
    t.fire();
    // cwnd is one segment; what is selectively acknowledged is not sent again.
    t.sends([data(0, 1000)]);
    assert_eq!(t.connection.info().cwnd, 1000);
    t.recv(ack(3000));
    // One segment more, however much it covers (RFC 3465 section 2.3).
    assert_eq!(t.connection.info().cwnd, 2000);
    t.sends([data(3000, 1000), data(4000, 1000)]);
}

#[test]
fn a_peer_that_reneges_gets_everything_again() {
    let mut t = ten_out(by_count());
    t.recv(ack(0).sack(&[(1000, 10_000)]));
    t.sends([
        data(0, 1000),
        data(10_000, 1000),
        data(11_000, 1000),
        data(12_000, 1000),
        data(13_000, 1000),
    ]);
    // It held 1000..10 000, but acknowledges 1000 only: it has thrown it away (RFC 2018 section 8).
    t.recv(ack(1000));
    t.sends([]);
    t.fire();
    t.sends([data(1000, 1000)]);
    t.recv(ack(2000));
    t.sends([data(2000, 1000), data(3000, 1000)]);
}

#[test]
fn sack_of_the_middle_then_an_ack_in_it() {
    let mut t = ten_out(by_count());
    t.recv(ack(0).sack(&[(2000, 4000)]));
    t.sends([data(10_000, 1000), data(11_000, 1000)]);
    // The cumulative ACK ends inside a reported range only if the peer discarded the rest.
    t.recv(ack(3000));
    assert_eq!(t.connection.info().in_flight, 9000);
    t.recv(ack(12_000));
    assert_eq!(t.connection.info().in_flight, 0);
}

// ---- without SACK

#[test]
fn newreno_recovery() {
    let mut t = ten_out(Script::established());
    t.recv(ack(0));
    t.sends([data(10_000, 1000)]);
    t.recv(ack(0));
    t.sends([data(11_000, 1000)]);
    t.recv(ack(0));
    t.sends([data(0, 1000)]);
    assert_eq!(t.connection.info().ssthresh, 5000);
    // One segment for every two that were delivered (RFC 9937 section 6.2).
    for number in 0..6 {
        t.recv(ack(0));
        match number {
            2 => t.sends([data(12_000, 1000)]),
            5 => t.sends([data(13_000, 1000)]),
            _ => t.sends([]),
        }
    }
    // A partial ACK: the next segment is lost too, and goes out at once. Of the three segments that it acknowledges, two had
    // given duplicates; seven of those remain: pipe = 11 - 7 - 1 = 3, and ssthresh is 5.
    t.recv(ack(3000));
    t.sends([data(3000, 1000), data(14_000, 1000)]);
    // A full one: over.
    t.recv(ack(12_000));
    let info = t.connection.info();
    assert_eq!((info.cwnd, info.recoveries), (5000, 1));
}

#[test]
fn what_is_no_duplicate_ack() {
    let mut t = ten_out(Script::established());
    for number in 0..5 {
        // With data, or with another window.
        t.recv(data(number * 10, 10).ack(0));
        t.recv(ack(0).window(WINDOW - 1 - number as u16));
    }
    assert_eq!(t.connection.info().duplicate_acks, 0);
    assert_eq!(t.connection.info().recoveries, 0);
}

#[test]
fn newreno_does_not_recover_twice_from_one_loss() {
    // RFC 6582 section 4.1: duplicates of what recovery sent again.
    let mut t = ten_out(Script::established());
    for _ in 0..3 {
        t.recv(ack(0));
    }
    t.sends([data(0, 1000)]);
    t.recv(ack(10_000));
    t.sends([
        data(10_000, 1000),
        data(11_000, 1000),
        data(12_000, 1000),
        data(13_000, 1000),
        data(14_000, 1000),
    ]);
    for _ in 0..3 {
        t.recv(ack(10_000));
    }
    assert_eq!(t.connection.info().recoveries, 1);
}

// ---- timeouts

#[test]
fn a_timeout_backs_off_and_starts_slowly() {
    let mut t = ten_in_all(Script::established());
    let mut expected = ms(200);
    for _ in 0..3 {
        assert_eq!(t.fire(), expected);
        t.sends([data(0, 1000)]);
        expected *= 2;
    }
    let info = t.connection.info();
    // ssthresh counts the flight at the first timeout only (RFC 5681 section 3.1).
    assert_eq!((info.cwnd, info.ssthresh), (1000, 5000));
    assert_eq!(info.timeouts, 3);
    t.recv(ack(1000));
    t.sends([data(1000, 1000), data(2000, 1000)]);
    t.recv(ack(3000));
    t.sends([data(3000, 1000), data(4000, 1000), data(5000, 1000)]);
    // One segment for each ACK, however much it covers (RFC 3465 section 2.3).
    t.recv(ack(10_000));
    assert_eq!(t.connection.info().cwnd, 4000);
}

#[test]
fn the_backoff_stays_until_a_round_trip_was_measured() {
    // Karn: the ACK of a retransmission measures nothing.
    let mut t = Script::established();
    t.write(1000);
    t.sends([data(0, 1000)]);
    t.fire();
    t.sends([data(0, 1000)]);
    t.fire();
    t.sends([data(0, 1000)]);
    t.pass(ms(5));
    t.recv(ack(1000));
    assert_eq!(t.connection.info().rto_us, 800_000);
    t.write(2000);
    t.sends([data(1000, 1000)]);
    t.pass(ms(5));
    t.recv(ack(2000));
    assert_eq!(t.connection.info().rto_us, 200_000);
}

#[test]
fn timestamps_measure_retransmissions() {
    let config = Config {
        timestamps: true,
        ..plain()
    };
    let mut t = Script::established_with(&config, syn().timestamps(1, 0));
    t.write(988);
    t.sends([data(0, 988)]);
    t.fire();
    t.sends([data(0, 988)]);
    let sent = t.now.as_millis() as u32;
    t.pass(ms(7));
    t.recv(ack(988).timestamps(2, sent));
    // (7/8) * 0 + 7/8 ms: the estimate saw 7 ms.
    assert_eq!(t.connection.info().rto_us, 200_000);
    assert!(t.connection.info().srtt_us > 500);
}

#[test]
fn the_timer_restarts_at_each_new_ack() {
    let mut t = ten_out(Script::established());
    t.pass(ms(150));
    t.recv(ack(1000));
    while t
        .connection
        .poll_transmit(t.now, &t.tx, &mut t.ranges)
        .is_some()
    {}
    // srtt is now about 19 ms with a variation of up to 75: more than the minimum.
    let rto = u64::from(t.connection.info().rto_us);
    assert_eq!(t.fire(), std::time::Duration::from_micros(rto));
}

#[test]
fn the_retransmission_timeout_has_an_upper_bound() {
    let config = Config {
        max_rto: ms(1500),
        ..plain()
    };
    let mut t = Script::established_with(&config, syn());
    t.write(1);
    t.sends([data(0, 1)]);
    let mut last = ms(0);
    for _ in 0..6 {
        last = t.fire();
        t.sends([data(0, 1)]);
    }
    assert_eq!(last, ms(1500));
}

#[test]
fn a_shrunken_window_still_gets_the_first_segment() {
    // RFC 9293 section 3.8.6: "the sender … SHOULD retransmit … lost data" beyond the window.
    let mut t = ten_out(Script::established());
    t.recv(ack(0).window(500));
    t.fire();
    t.sends([data(0, 1000)]);
    t.recv(ack(1000).window(0));
    t.sends([data(1000, 1000)]);
    // With the window shut and ACKs coming, the connection lives on.
    for _ in 0..100 {
        t.fire();
        t.sends([data(1000, 1000)]);
        t.recv(ack(1000).window(0));
        t.sends([]);
    }
    assert_eq!(t.state(), State::Established);
    t.recv(ack(10_000).window(20_000));
    assert!(t.connection.wants_transmit());
}

#[test]
fn recovery_then_timeout_then_everything_arrives() {
    let mut t = ten_out(by_count());
    t.recv(ack(0).sack(&[(5000, 10_000)]));
    t.sends([
        data(0, 1000),
        data(1000, 1000),
        data(2000, 1000),
        data(3000, 1000),
        data(4000, 1000),
    ]);
    t.fire();
    t.sends([data(0, 1000)]);
    t.recv(ack(10_000));
    assert_eq!(t.connection.info().in_flight, 0);
    assert!(t.connection.wants_transmit());
}

#[test]
fn nothing_left_to_send_so_the_suspects_go_out() {
    // NextSeg () rules 3 and 4 of RFC 6675.
    let mut t = by_count();
    t.tx.max_segments_bytes = 65_000;
    t.write(10_000);
    t.sends([data(0, 10_000)]);
    // 0 is lost; 7000 is suspect, as only one segment lies above it; 9000 may be.
    t.recv(ack(0).sack(&[(1000, 7000)]));
    t.sends([data(0, 1000), data(9000, 1000)]);
    t.recv(ack(0).sack(&[(8000, 9000), (1000, 7000)]));
    t.sends([data(7000, 1000)]);
    assert_eq!(t.connection.info().recoveries, 1);
    // Once only.
    t.recv(ack(7000).sack(&[(8000, 9000)]));
    t.sends([]);
    t.recv(ack(9000));
    t.sends([]);
    t.recv(ack(10_000));
    t.no_timer();
}

#[test]
fn another_loss_after_progress_halves_again() {
    let mut t = ten_in_all(Script::established());
    t.fire();
    t.sends([data(0, 1000)]);
    assert_eq!(t.connection.info().ssthresh, 5000);
    t.recv(ack(1000));
    t.sends([data(1000, 1000), data(2000, 1000)]);
    t.fire();
    t.sends([data(1000, 1000)]);
    assert_eq!(t.connection.info().ssthresh, 2000);
    t.fire();
    t.sends([data(1000, 1000)]);
    assert_eq!(t.connection.info().ssthresh, 2000);
}

#[test]
fn data_behind_a_hole_measures_no_round_trip() {
    let mut t = ten_out(by_count());
    t.pass(ms(1));
    t.recv(ack(0).sack(&[(1000, 8000)]));
    t.sends([data(0, 1000), data(10_000, 1000), data(11_000, 1000)]);
    t.pass(ms(150));
    t.recv(ack(12_000));
    // What the handshake measured.
    assert_eq!(t.connection.info().srtt_us, 1);
}

#[test]
fn what_limited_transmit_replaced_does_not_open_the_window_again() {
    let config = Config {
        sack: true,
        ..plain()
    };
    for sack in [true, false] {
        let offer = if sack { syn().sack_permitted() } else { syn() };
        let mut t = Script::established_over(&config, offer, ms(100));
        t.write(30_000);
        t.poll_any();
        t.pass(ms(100));
        let window = t.connection.info().cwnd;
        for end in [2000, 3000] {
            let blocks: &[_] = &[(1000, end)];
            t.recv(ack(0).sack(if sack { blocks } else { &[] }));
            t.poll_any();
        }
        // It was only late: of the three segments, one is news.
        t.recv(ack(3000));
        assert_eq!(t.connection.info().cwnd, window + 1000, "SACK: {sack}");
    }
}
