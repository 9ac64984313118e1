//! Pacing: how many segments go out in how much virtual time.

mod common;

use std::time::Duration;

use common::pair::{App, Fate, Link, Pair, START};
use sidecore_tcp::{Algorithm, Config, Instant};
use std::cell::RefCell;
use std::rc::Rc;

type Sent = Rc<RefCell<Vec<(Instant, u64)>>>;

/// A bulk sender over a path of 40 ms, and the times at which its segments go out, with their lengths.
fn sender(config: Config, tick: Duration) -> (Pair, Sent) {
    let app = App {
        total: u64::MAX / 2,
        send_buffer: 4 << 20,
        write: 1 << 20,
        shutdown: false,
        ..App::default()
    };
    let other = App {
        receive_buffer: 4 << 20,
        shutdown: false,
        ..App::default()
    };
    let link = Link {
        delay: Duration::from_millis(20),
        ..Link::default()
    };
    let mut pair = Pair::new(
        3,
        [config.clone(), config],
        [app, other],
        [link.clone(), link],
    );
    pair.timer_granularity = tick;
    let sent = Rc::new(RefCell::new(Vec::new()));
    let log = Rc::clone(&sent);
    pair.fate = Some(Box::new(move |side, _, len, now| {
        if side == 0 && len > 0 {
            log.borrow_mut().push((now, len as u64));
        }
        Fate::Arrives
    }));
    (pair, sent)
}

/// The most bytes and segments that went out in any window of this length after `from`.
fn most_in(sent: &[(Instant, u64)], from: Duration, window: Duration) -> (u64, usize) {
    let sent: Vec<_> = sent.iter().filter(|(at, _)| *at >= START + from).collect();
    let starts = 0..sent.len();
    let in_window = starts.map(|first| {
        let end = sent[first].0 + window;
        let inside = sent[first..].iter().take_while(|(at, _)| *at < end);
        inside.fold((0, 0), |(bytes, count), (_, len)| (bytes + len, count + 1))
    });
    in_window.max().unwrap_or_default()
}

#[test]
fn a_largest_rate_is_kept_in_every_window() {
    // A megabyte a second, whatever the window: 10 000 bytes in 10 ms, in quanta of two segments.
    let config = Config {
        max_pacing_rate: Some(1_000_000),
        ..Config::default()
    };
    let (mut pair, sent) = sender(config, Duration::ZERO);
    pair.run_until(100_000, |pair| pair.elapsed() > Duration::from_secs(2));
    let sent = sent.borrow();
    let (bytes, segments) = most_in(&sent, Duration::ZERO, Duration::from_millis(10));
    assert!(bytes <= 10_000 + 2 * 1448, "{bytes}");
    assert!(segments <= 5, "{segments}");
    let all: u64 = sent.iter().map(|(_, len)| len).sum();
    assert!((1_820_000..2_010_000).contains(&all), "{all}");
    assert_eq!(pair.ends[0].connection.max_pacing_rate(), Some(1_000_000));
    assert_eq!(pair.ends[0].connection.pacing_rate(), Some(1_000_000));
}

#[test]
fn timers_that_are_late_cost_no_throughput_and_make_no_more_than_their_tick_a_burst() {
    // 100 MB/s, with timers of a millisecond: 100 KB go out in each.
    let config = Config {
        max_pacing_rate: Some(100_000_000),
        initial_window_segments: 255,
        ..Config::default()
    };
    let tick = Duration::from_millis(1);
    let (mut pair, sent) = sender(config, tick);
    for link in &mut pair.links {
        link.delay = Duration::from_micros(500);
    }
    pair.run_until(1_000_000, |pair| {
        pair.elapsed() > Duration::from_millis(500)
    });
    let sent = sent.borrow();
    let from = Duration::from_millis(100);
    let (bytes, _) = most_in(&sent, from, Duration::from_micros(500));
    assert!(bytes <= 2 * 100_000 + 65_536, "{bytes}");
    let bytes: u64 = sent
        .iter()
        .filter(|(at, _)| *at >= START + from)
        .map(|(_, len)| len)
        .sum();
    assert!(bytes > 38_000_000, "{bytes}");
}

#[test]
fn the_window_is_spread_over_the_round_trip() {
    for congestion in [Algorithm::Cubic, Algorithm::NewReno] {
        let [unpaced, paced] = [false, true].map(|pacing| {
            let config = Config {
                congestion,
                pacing,
                ..Config::default()
            };
            let (mut pair, sent) = sender(config, Duration::ZERO);
            pair.run_until(10_000, |pair| pair.elapsed() > Duration::from_millis(50));
            let first = most_in(&sent.borrow(), Duration::ZERO, Duration::from_millis(1));
            pair.run_until(100_000, |pair| pair.elapsed() > Duration::from_millis(300));
            (first.0, pair.ends[1].received())
        });
        // The initial window at once, or by two segments.
        assert_eq!((unpaced.0, paced.0), (14_480, 2 * 1448));
        // In slow start twice a window in each round trip: it is no slower than half a round trip.
        assert!(paced.1 * 2 > unpaced.1, "{paced:?} {unpaced:?}");
    }
}

#[test]
fn the_bound_can_be_set_and_lifted() {
    let (mut pair, _) = sender(Config::default(), Duration::ZERO);
    let connection = &mut pair.ends[0].connection;
    assert_eq!(
        (connection.pacing_rate(), connection.max_pacing_rate()),
        (None, None)
    );
    connection.set_max_pacing_rate(Some(200_000));
    pair.run_until(100_000, |pair| pair.elapsed() > Duration::from_secs(1));
    let received = pair.ends[1].received();
    assert!((150_000..210_000).contains(&received), "{received}");
    let connection = &mut pair.ends[0].connection;
    connection.set_max_pacing_rate(None);
    assert_eq!(
        (connection.pacing_rate(), connection.max_pacing_rate()),
        (None, None)
    );
    pair.run_until(100_000, |pair| pair.elapsed() > Duration::from_secs(2));
    assert!(pair.ends[1].received() > 5_000_000);
}

#[test]
fn acknowledgments_do_not_wait() {
    // Both send; side 0 ten segments a second.
    let config = Config {
        max_pacing_rate: Some(14_480),
        ..Config::default()
    };
    let (mut pair, _) = sender(config, Duration::ZERO);
    pair.ends[1].connection.set_max_pacing_rate(None);
    pair.ends[1].app.total = 1_000_000;
    pair.run_until(100_000, |pair| pair.ends[0].received() == 1_000_000);
    assert!(
        pair.elapsed() < Duration::from_secs(1),
        "{:?}",
        pair.elapsed()
    );
    assert_eq!(pair.ends[1].connection.info().timeouts, 0);
}

#[test]
fn lost_data_is_sent_again_at_the_rate() {
    let config = Config {
        max_pacing_rate: Some(500_000),
        ..Config::default()
    };
    let (mut pair, sent) = sender(config, Duration::ZERO);
    pair.links[0].loss = 20;
    pair.ends[0].app.total = 500_000;
    pair.ends[0].app.shutdown = true;
    pair.ends[1].app.shutdown = true;
    pair.run(100_000);
    assert!(pair.ends[0].retransmissions > 3);
    let (bytes, _) = most_in(&sent.borrow(), Duration::ZERO, Duration::from_millis(20));
    // Two quanta, and the first retransmission of a recovery and a probe, which do not wait.
    assert!(bytes <= 10_000 + 4 * 1448, "{bytes}");
    pair.assert_delivered();
}
