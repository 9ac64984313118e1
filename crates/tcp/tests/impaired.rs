//! Two connections on a path that does one thing wrong: what the sender makes of it, as a whole.

mod common;

use std::time::Duration;

use common::pair::{App, Fate, Link, Pair, START};
use proptest::prelude::*;
use sidecore_tcp::{Algorithm, Config, Info, LossDetection};
use sidecore_wire::TcpFlags;

const DELAY: Duration = Duration::from_millis(20);

/// Side 0 sends so much over 40 ms, in single segments.
fn sender(total: u64, config: Config) -> Pair {
    let link = Link {
        delay: DELAY,
        ..Link::default()
    };
    let app = App {
        total,
        tso: 0,
        ..App::default()
    };
    let mut pair = Pair::new(
        3,
        [config.clone(), config],
        [app, App::default()],
        [link.clone(), link],
    );
    pair.cut = true;
    pair.trace = std::env::var("TRACE").is_ok();
    pair
}

fn run(pair: &mut Pair) -> Info {
    pair.run(200_000);
    let info = pair.ends[0].connection.info();
    pair.assert_delivered();
    info
}

/// Of the data that side 0 sends for the first time, loses the segments with these numbers.
fn lose(pair: &mut Pair, numbers: std::ops::Range<usize>) {
    let mut seen = 0;
    let mut highest = None;
    pair.fate = Some(Box::new(move |side, header, len, _| {
        let first = highest.is_none_or(|highest| header.seq.distance_from(highest) as i32 > 0);
        if side != 0 || len == 0 || !first {
            return Fate::Arrives;
        }
        highest = Some(header.seq);
        seen += 1;
        if numbers.contains(&(seen - 1)) {
            Fate::Lost
        } else {
            Fate::Arrives
        }
    }));
}

#[test]
fn rfc_8985_a_lost_tail_costs_no_timeout() {
    // Ten segments, all in the first window; the last three, with the FIN, are lost.
    let total = 10 * 1448;
    let mut times = Vec::new();
    for loss_detection in [LossDetection::Rack, LossDetection::DupThresh] {
        let config = Config {
            loss_detection,
            ..Config::default()
        };
        let mut pair = sender(total, config);
        lose(&mut pair, 7..10);
        pair.run_until(10_000, |pair| pair.ends[1].received() == total);
        times.push(pair.elapsed());
        let info = pair.ends[0].connection.info();
        let by_time = loss_detection == LossDetection::Rack;
        assert_eq!(info.tail_probes, u32::from(by_time));
        assert_eq!(info.timeouts, u32::from(!by_time));
        pair.run(10_000);
        pair.assert_delivered();
    }
    assert!(times[0] + Duration::from_millis(50) < times[1], "{times:?}");
}

#[test]
fn rfc_8985_a_window_that_is_lost_but_for_its_first_segment_costs_no_timeout() {
    let mut pair = sender(10 * 1448, Config::default());
    lose(&mut pair, 1..10);
    let info = run(&mut pair);
    assert_eq!(info.timeouts, 0);
}

#[test]
fn rfc_8985_segments_that_overtake_each_other_are_not_sent_again_once_that_was_seen() {
    // Every tenth segment is 8 ms late: less than a quarter of the round trip of 40 ms.
    let mut pair = sender(1_000_000, Config::default());
    let mut count = 0;
    pair.fate = Some(Box::new(move |side, _, len, _| {
        count += usize::from(side == 0 && len > 0);
        if side == 0 && len > 0 && count.is_multiple_of(10) {
            Fate::Late(Duration::from_millis(8))
        } else {
            Fate::Arrives
        }
    }));
    let info = run(&mut pair);
    assert!(info.reordering_seen);
    assert!(info.retransmissions <= 2, "{info:?}");
    assert_eq!(info.timeouts, 0);

    // By count, each of them is taken for lost.
    let config = Config {
        loss_detection: LossDetection::DupThresh,
        ..Config::default()
    };
    let mut pair = sender(1_000_000, config);
    let mut count = 0;
    pair.fate = Some(Box::new(move |side, _, len, _| {
        count += usize::from(side == 0 && len > 0);
        if side == 0 && len > 0 && count.is_multiple_of(10) {
            Fate::Late(Duration::from_millis(8))
        } else {
            Fate::Arrives
        }
    }));
    assert!(run(&mut pair).retransmissions > 20);
}

#[test]
fn rfc_5682_and_3522_a_delay_spike_is_no_congestion() {
    for (timestamps, sack, algorithm) in [
        (true, true, Algorithm::Cubic),
        (false, true, Algorithm::Cubic),
        (true, false, Algorithm::NewReno),
        (false, false, Algorithm::NewReno),
    ] {
        let config = Config {
            timestamps,
            sack,
            congestion: algorithm,
            ..Config::default()
        };
        let mut pair = sender(2_000_000, config);
        // Between 300 and 900 ms everything stands still; then all of it arrives in the order in which it was sent, 50 µs apart.
        let mut free_at = [START; 2];
        pair.fate = Some(Box::new(move |side, _, _, now| {
            let (from, until) = (Duration::from_millis(300), Duration::from_millis(900));
            if now < START + from {
                return Fate::Arrives;
            }
            let leaves = now.max(START + until).max(free_at[side]);
            free_at[side] = leaves + Duration::from_micros(50);
            Fate::Late(leaves - now)
        }));
        let info = run(&mut pair);
        let shown = format!("timestamps {timestamps} SACK {sack}: {info:?}");
        assert!(info.timeouts > 0, "{shown}");
        assert!(info.undos > 0, "{shown}");
        assert_eq!(info.ssthresh, u32::MAX, "{shown}");
        // Repeated timeouts send the first segment again, and a probe the last.
        assert!(info.retransmissions <= 8, "{shown}");
    }
}

#[test]
fn a_lost_retransmission_costs_no_timeout() {
    let mut pair = sender(500_000, Config::default());
    let mut victim = None;
    let mut lost = 0;
    let mut count = 0;
    pair.fate = Some(Box::new(move |side, header, len, _| {
        if side != 0 || len == 0 {
            return Fate::Arrives;
        }
        count += 1;
        if count == 40 {
            victim = Some(header.seq);
        }
        if victim == Some(header.seq) && lost < 2 {
            lost += 1;
            return Fate::Lost;
        }
        Fate::Arrives
    }));
    let info = run(&mut pair);
    assert_eq!((info.timeouts, info.recoveries), (0, 1), "{info:?}");
}

#[test]
fn hystart_leaves_slow_start_before_the_queue_overflows() {
    // 2 MB/s and a queue of two seconds: slow start alone would fill it.
    let link = Link {
        delay: Duration::from_millis(25),
        rate: 2_000_000,
        queue: 3000,
        ..Link::default()
    };
    let app = App {
        total: 6_000_000,
        send_buffer: 8 << 20,
        write: 1 << 20,
        tso: 0,
        ..App::default()
    };
    let reader = App {
        receive_buffer: 8 << 20,
        ..App::default()
    };
    let mut pair = Pair::new(
        3,
        [Config::default(), Config::default()],
        [app, reader],
        [link.clone(), Link { rate: 0, ..link }],
    );
    pair.cut = true;
    let info = run(&mut pair);
    // A probe at most: no timer can follow a queue that grows as fast.
    assert!(info.retransmissions <= info.tail_probes, "{info:?}");
    assert!(info.ssthresh < 1_000_000, "{info:?}");
}

#[test]
fn where_no_range_is_left_for_a_probe_the_retransmission_timer_comes() {
    // Ten segments in three runs, and room for two ranges; all but the first are lost, once.
    let mut pair = sender(10 * 1448, Config::default());
    pair.ends[0].ranges = sidecore_tcp::RangePool::new(0);
    lose(&mut pair, 5..10);
    pair.run(10_000);
    assert!(pair.ends[0].connection.info().timeouts > 0);
    pair.assert_delivered();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Whatever the path does, bytes arrive exactly once and in order, what a connection holds is bounded and given back
    /// ([`Pair`] checks the bytes, and the invariants of both control blocks after every step).
    #[test]
    fn bytes_arrive_once_and_in_order(
        seed in any::<u64>(),
        loss in 0u32..100,
        duplicate in 0u32..100,
        jitter_ms in 0u64..30,
        total in 1u64..150_000,
        bits in any::<u8>(),
        ranges in 0usize..80,
    ) {
        let link = Link {
            delay: Duration::from_millis(seed % 40),
            jitter: Duration::from_millis(jitter_ms),
            loss,
            duplicate,
            ..Link::default()
        };
        let config = Config {
            timestamps: bits & 1 != 0,
            sack: bits & 14 != 0,
            loss_detection: if bits & 16 == 0 { LossDetection::Rack } else { LossDetection::DupThresh },
            congestion: [Algorithm::Cubic, Algorithm::NewReno, Algorithm::Bbr][usize::from(bits >> 5) % 3],
            pacing: bits & 8 != 0,
            user_timeout: Some(Duration::from_secs(100_000)),
            ..Config::default()
        };
        let app = App { total, tso: if bits & 64 == 0 { 0 } else { 20_000 }, ..App::default() };
        let mut pair = Pair::new(
            seed,
            [config.clone(), config],
            [app.clone(), App { total: total / 4, ..app }],
            [link.clone(), link],
        );
        pair.cut = bits & 128 == 0;
        for end in &mut pair.ends {
            end.ranges = sidecore_tcp::RangePool::new(ranges);
        }
        // The right edge of a window never moves left.
        let mut edges = [None; 2];
        pair.fate = Some(Box::new(move |side, header, _, _| {
            if !header.flags.contains(TcpFlags::SYN) {
                let shift = 7;
                let edge = header.ack.add(u32::from(header.window.0) << shift);
                // To the precision of the window field.
                let slack = edge.add(1 << shift);
                let before: &mut Option<sidecore_wire::SeqNumber> = &mut edges[side];
                if let Some(before) = *before {
                    assert!(slack.distance_from(before) as i32 > 0, "the window shrank");
                }
                if before.is_none_or(|before| edge.distance_from(before) as i32 > 0) {
                    *before = Some(edge);
                }
            }
            Fate::Arrives
        }));
        pair.run(1_000_000);
        pair.assert_delivered();
    }
}
