//! BBR over a bottleneck, in virtual time.

mod common;

use std::time::Duration;

use common::pair::{App, Fate, Link, Pair};
use sidecore_tcp::{Algorithm, BbrState, Config, Connection, LossDetection, RangePool};

const MBIT: u64 = 1_000_000 / 8;
/// The round trip of the paths here, without a queue.
const RTT: Duration = Duration::from_millis(40);

/// A bulk sender over a link of this rate, whose queue holds so many segments.
fn bulk(congestion: Algorithm, rate: u64, queue: usize, loss: u32) -> Pair {
    let config = Config {
        congestion,
        ..Config::default()
    };
    bulk_of(config, rate, queue, loss)
}

fn bulk_of(config: Config, rate: u64, queue: usize, loss: u32) -> Pair {
    let app = App {
        total: u64::MAX / 2,
        send_buffer: 8 << 20,
        write: 1 << 20,
        receive_buffer: 8 << 20,
        shutdown: false,
        ..App::default()
    };
    let idle = App {
        receive_buffer: 8 << 20,
        shutdown: false,
        ..App::default()
    };
    let there = Link {
        delay: RTT / 2,
        rate,
        queue,
        loss,
        ..Link::default()
    };
    let back = Link {
        delay: RTT / 2,
        ..Link::default()
    };
    let mut pair = Pair::new(7, [config.clone(), config], [app, idle], [there, back]);
    pair.cut = true;
    pair
}

/// Lets so much time pass; returns what arrived in it, in bytes a second, and the mean smoothed round-trip time in milliseconds.
fn run(pair: &mut Pair, time: Duration) -> (u64, f64) {
    let (began, before) = (pair.elapsed(), pair.ends[1].received());
    let (mut sum, mut count) = (0.0, 0.0);
    while pair.elapsed() < began + time {
        assert!(pair.step());
        let info = pair.ends[0].connection.info();
        sum += f64::from(info.srtt_us) / 1000.0;
        count += 1.0;
    }
    let took = (pair.elapsed() - began).as_secs_f64();
    let bytes = pair.ends[1].received() - before;
    ((bytes as f64 / took) as u64, sum / count)
}

/// What arrives, of what the link takes.
fn share(rate: u64, link: u64) -> f64 {
    rate as f64 / link as f64
}

#[test]
fn a_deep_buffer_is_left_empty_and_the_link_is_full() {
    let seconds = Duration::from_secs(10);
    let mut pair = bulk(Algorithm::Bbr, 20 * MBIT, 1000, 0);
    let (rate, rtt) = run(&mut pair, seconds);
    assert!(share(rate, 20 * MBIT) > 0.93, "{rate}");
    assert_eq!(pair.ends[0].connection.info().retransmissions, 0);
    let (cubic, cubic_rtt) = run(&mut bulk(Algorithm::Cubic, 20 * MBIT, 1000, 0), seconds);
    assert!(share(cubic, 20 * MBIT) > 0.9, "{cubic}");
    // Of 40 ms without a queue.
    assert!(rtt < 45.0 && cubic_rtt > 150.0, "{rtt} {cubic_rtt}");
}

#[test]
fn a_shallow_buffer_is_enough() {
    // A fourth of what the path holds.
    let mut pair = bulk(Algorithm::Bbr, 20 * MBIT, 20, 0);
    let (rate, _) = run(&mut pair, Duration::from_secs(10));
    assert!(share(rate, 20 * MBIT) > 0.93, "{rate}");
    let retransmissions = pair.ends[0].connection.info().retransmissions;
    run(&mut pair, Duration::from_secs(10));
    // What the first seconds lose is learned from.
    let later = pair.ends[0].connection.info().retransmissions - retransmissions;
    assert!(
        retransmissions < 200 && later < 40,
        "{retransmissions} {later}"
    );
}

#[test]
fn one_per_cent_of_loss_is_no_congestion() {
    let seconds = Duration::from_secs(10);
    let (bbr, _) = run(&mut bulk(Algorithm::Bbr, 20 * MBIT, 100, 10), seconds);
    let (cubic, _) = run(&mut bulk(Algorithm::Cubic, 20 * MBIT, 100, 10), seconds);
    // Between probes the short-term model gives way by 1 % in each round.
    assert!(share(bbr, 20 * MBIT) > 0.85, "{bbr}");
    assert!(bbr > 3 * cubic, "{bbr} {cubic}");
}

#[test]
fn the_rate_of_the_link_is_followed_both_ways() {
    let mut pair = bulk(Algorithm::Bbr, 20 * MBIT, 200, 0);
    run(&mut pair, Duration::from_secs(3));
    pair.links[0].rate = 5 * MBIT;
    let (rate, _) = run(&mut pair, Duration::from_secs(5));
    assert!(share(rate, 5 * MBIT) > 0.9, "{rate}");
    run(&mut pair, Duration::from_secs(8));
    let info = pair.ends[0].connection.bbr_info().expect("BBR");
    assert!(info.bandwidth < 5 * MBIT, "{info:?}");
    pair.links[0].rate = 50 * MBIT;
    run(&mut pair, Duration::from_secs(5));
    let (rate, _) = run(&mut pair, Duration::from_secs(5));
    assert!(share(rate, 50 * MBIT) > 0.9, "{rate}");
}

#[test]
fn the_round_trip_is_probed_every_five_seconds_and_the_cycle_goes_round() {
    let mut pair = bulk(Algorithm::Bbr, 20 * MBIT, 100, 0);
    let mut seen = Vec::new();
    while pair.elapsed() < Duration::from_secs(16) {
        assert!(pair.step());
        let state = pair.ends[0].connection.bbr_info().expect("BBR").state;
        if seen.last() != Some(&state) {
            seen.push(state);
        }
        if state == BbrState::ProbeRtt && seen.len() > 1 {
            let info = pair.ends[0].connection.info();
            assert!(info.in_flight <= 250_000, "{info:?}");
        }
    }
    use BbrState::{
        Drain, ProbeBwCruise, ProbeBwDown, ProbeBwRefill, ProbeBwUp, ProbeRtt, Startup,
    };
    let first = [
        Startup,
        Drain,
        ProbeBwCruise,
        ProbeBwRefill,
        ProbeBwUp,
        ProbeBwDown,
    ];
    assert_eq!(seen[..first.len()], first);
    for pair in seen[2..].windows(2) {
        let follows = match pair[0] {
            ProbeBwDown => [ProbeBwCruise, ProbeBwRefill],
            ProbeBwCruise => [ProbeBwRefill, ProbeBwRefill],
            ProbeBwRefill => [ProbeBwUp, ProbeBwUp],
            ProbeBwUp => [ProbeBwDown, ProbeBwDown],
            _ => [ProbeBwCruise, ProbeBwCruise],
        };
        assert!(
            follows.contains(&pair[1]) || pair[1] == ProbeRtt,
            "{seen:?}"
        );
    }
    let info = pair.ends[0].connection.bbr_info().expect("BBR");
    assert!((2..=3).contains(&info.probe_rtts), "{info:?}");
    assert!((40_000..42_000).contains(&info.min_rtt_us), "{info:?}");
}

#[test]
fn an_application_that_sends_little_does_not_lower_the_estimate() {
    let mut pair = bulk(Algorithm::Bbr, 20 * MBIT, 100, 0);
    run(&mut pair, Duration::from_secs(2));
    let before = pair.ends[0].connection.bbr_info().expect("BBR").bandwidth;
    // 10 KB in flight at most: a tenth of what the path holds.
    pair.ends[0].app.send_buffer = 10_000;
    run(&mut pair, Duration::from_secs(4));
    let (rate, _) = run(&mut pair, Duration::from_secs(12));
    assert!(rate < 3 * MBIT, "{rate}");
    let info = pair.ends[0].connection.bbr_info().expect("BBR");
    assert!(info.app_limited && info.bandwidth == before, "{info:?}");
    // It begins where it was.
    pair.ends[0].app.send_buffer = 8 << 20;
    let (rate, _) = run(&mut pair, Duration::from_secs(1));
    assert!(share(rate, 20 * MBIT) > 0.9, "{rate}");
}

#[test]
fn after_idleness_data_goes_out_at_the_known_rate() {
    let mut pair = bulk(Algorithm::Bbr, 20 * MBIT, 200, 0);
    run(&mut pair, Duration::from_secs(2));
    let written = pair.ends[0].written;
    pair.ends[0].app.total = written;
    pair.run_until(100_000, |pair| {
        pair.ends[0].connection.send_una() == written
    });
    let probes = pair.ends[0].connection.bbr_info().expect("BBR").probe_rtts;
    pair.now += Duration::from_secs(20);
    let retransmissions = pair.ends[0].connection.info().retransmissions;
    pair.ends[0].app.total = u64::MAX / 2;
    let (rate, rtt) = run(&mut pair, Duration::from_secs(1));
    // At once, and without a burst.
    assert!(share(rate, 20 * MBIT) > 0.88, "{rate}");
    assert!(rtt < 52.0, "{rtt}");
    let info = pair.ends[0].connection.info();
    assert_eq!(info.retransmissions, retransmissions);
    // "idleness is deemed a sufficient attempt": no ProbeRTT for it.
    let after = pair.ends[0].connection.bbr_info().expect("BBR");
    assert_eq!(after.probe_rtts, probes);
}

#[test]
fn it_goes_without_selective_acknowledgments_or_rack() {
    // Without SACK any loss ends a probe: none here but what Startup makes.
    for (sack, loss_detection, loss) in [
        (false, LossDetection::Rack, 0),
        (true, LossDetection::DupThresh, 2),
    ] {
        let config = Config {
            congestion: Algorithm::Bbr,
            sack,
            loss_detection,
            ..Config::default()
        };
        let mut pair = bulk_of(config, 10 * MBIT, 100, loss);
        let (rate, rtt) = run(&mut pair, Duration::from_secs(10));
        assert!(share(rate, 10 * MBIT) > 0.8, "{sack} {rate}");
        assert!(rtt < 70.0, "{rtt}");
    }
}

#[test]
fn a_path_that_holds_less_than_a_segment() {
    let mut pair = bulk(Algorithm::Bbr, MBIT / 8, 100, 0);
    for link in &mut pair.links {
        link.delay = Duration::from_millis(1);
    }
    let (rate, _) = run(&mut pair, Duration::from_secs(20));
    assert!(share(rate, MBIT / 8) > 0.9, "{rate}");
    let info = pair.ends[0].connection.info();
    assert!(info.cwnd >= 4 * 1448, "{info:?}");
}

#[test]
fn ten_gigabits_a_second_with_timers_of_a_millisecond() {
    let mut pair = bulk(Algorithm::Bbr, 10_000 * MBIT, 100_000, 0);
    pair.cut = false;
    for link in &mut pair.links {
        link.delay = Duration::from_millis(1);
    }
    for end in &mut pair.ends {
        end.app.tso = 65_000;
        end.app.send_buffer = 64 << 20;
        end.app.receive_buffer = 8 << 20;
    }
    pair.timer_granularity = Duration::from_millis(1);
    run(&mut pair, Duration::from_millis(30));
    let (rate, _) = run(&mut pair, Duration::from_millis(30));
    assert!(share(rate, 10_000 * MBIT) > 0.85, "{}", rate / MBIT);
}

#[test]
fn what_was_no_loss_is_taken_back() {
    let mut pair = bulk(Algorithm::Bbr, 20 * MBIT, 200, 0);
    run(&mut pair, Duration::from_secs(1));
    let cwnd = pair.ends[0].connection.info().cwnd;
    // One segment is 30 ms late, and taken for lost.
    let mut late = Some(());
    pair.fate = Some(Box::new(move |side, _, len, _| {
        if side == 0 && len > 1000 && late.take().is_some() {
            return Fate::Late(Duration::from_millis(30));
        }
        Fate::Arrives
    }));
    let (rate, _) = run(&mut pair, Duration::from_millis(500));
    let info = pair.ends[0].connection.info();
    assert_eq!((info.recoveries, info.undos), (1, 1), "{info:?}");
    assert!(info.cwnd >= cwnd - 1448, "{} {cwnd}", info.cwnd);
    assert!(share(rate, 20 * MBIT) > 0.93, "{rate}");
}

#[test]
fn a_snapshot_takes_the_model_along() {
    let mut pair = bulk(Algorithm::Bbr, 20 * MBIT, 100, 0);
    run(&mut pair, Duration::from_secs(3));
    let now = pair.now;
    let end = &mut pair.ends[0];
    let snapshot = end.connection.snapshot(&end.ranges);
    let mut ranges = RangePool::new(512);
    let restored = Connection::restore(&snapshot, now, now, &mut ranges).expect("fits");
    assert_eq!(restored.bbr_info(), end.connection.bbr_info());
    assert_eq!(restored.pacing_rate(), end.connection.pacing_rate());
    end.connection.release(&mut end.ranges);
    end.connection = restored;
    end.ranges = ranges;
    let (rate, rtt) = run(&mut pair, Duration::from_secs(2));
    assert!(share(rate, 20 * MBIT) > 0.93, "{rate}");
    assert!(rtt < 48.0, "{rtt}");
}
