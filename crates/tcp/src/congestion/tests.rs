//! Windows over time.

use super::*;

const MSS: u32 = 1000;

fn ack(now: Instant, acked: u32) -> Ack {
    Ack {
        now,
        acked,
        mss: MSS,
        srtt_us: 100_000,
        rtt_us: 0,
        limit: u32::MAX,
        una: 0,
        nxt: 0,
    }
}

/// Acknowledges a window's worth of bytes per round trip of 100 ms, for so many round trips.
fn round_trips(controller: &mut Controller, window: &mut Window, now: &mut Instant, count: u32) {
    for _ in 0..count {
        let mut left = window.cwnd;
        while left > 0 {
            let acked = left.min(MSS);
            controller.on_ack(window, &ack(*now, acked));
            left -= acked;
        }
        *now = now.after_millis(100);
    }
}

fn start(algorithm: Algorithm) -> (Controller, Window, Instant) {
    let window = Window::initial(10, MSS);
    (
        Controller::new(algorithm, Instant::from_secs(50), 1),
        window,
        Instant::from_secs(50),
    )
}

#[test]
fn the_initial_window() {
    // RFC 6928: min (10*MSS, max (2*MSS, 14600)).
    assert_eq!(initial_window(10, 1460), 14_600);
    assert_eq!(initial_window(10, 1000), 10_000);
    assert_eq!(initial_window(10, 9000), 18_000);
    assert_eq!(initial_window(10, 65_000), 130_000);
    assert_eq!(initial_window(1, 1000), 1000);
}

#[test]
fn slow_start_doubles_up_to_the_threshold() {
    for algorithm in [Algorithm::NewReno, Algorithm::Cubic] {
        let (mut controller, mut window, mut now) = start(algorithm);
        round_trips(&mut controller, &mut window, &mut now, 3);
        assert_eq!(window.cwnd, 80_000);
        window.ssthresh = 100_000;
        round_trips(&mut controller, &mut window, &mut now, 1);
        assert!((100_000..102_000).contains(&window.cwnd), "{}", window.cwnd);
    }
}

#[test]
fn windows_stay_within_bounds() {
    for algorithm in [Algorithm::NewReno, Algorithm::Cubic] {
        let (mut controller, mut window, now) = start(algorithm);
        for _ in 0..100 {
            controller.on_ack(&mut window, &ack(now, u32::MAX / 4));
        }
        if algorithm == Algorithm::Cubic {
            window.grow(u32::MAX);
        }
        assert_eq!(window.cwnd, MAX_CWND);
        for _ in 0..100 {
            controller.on_loss(&mut window, now, 0, MSS);
            assert!(window.cwnd >= 2 * MSS);
            controller.on_rto(&mut window, now, 0, MSS);
            assert_eq!((window.cwnd, window.ssthresh), (MSS, 2 * MSS));
        }
    }
}

#[test]
fn newreno_grows_by_a_segment_in_each_round_trip() {
    let (mut controller, mut window, mut now) = start(Algorithm::NewReno);
    window.ssthresh = window.cwnd;
    round_trips(&mut controller, &mut window, &mut now, 7);
    assert_eq!(window.cwnd, 17_000);
    controller.on_loss(&mut window, now, 17_000, MSS);
    assert_eq!((window.cwnd, window.ssthresh), (8500, 8500));
}

#[test]
fn cubic_returns_to_where_the_loss_was_and_waits_there() {
    let (mut controller, mut window, mut now) = start(Algorithm::Cubic);
    window.cwnd = 500 * MSS;
    let flight = window.cwnd;
    controller.on_loss(&mut window, now, flight, MSS);
    assert_eq!(window.cwnd, 350 * MSS);
    controller.on_recovery_exit(&mut window, now);
    // K = cbrt(0.3 * 500 / 0.4) = 7.2 s.
    let began = now;
    let mut before = window.cwnd;
    let mut steps = Vec::new();
    while now.micros_since(began, u32::MAX) < 14_000_000 {
        round_trips(&mut controller, &mut window, &mut now, 10);
        steps.push(window.cwnd - before);
        before = window.cwnd;
        let t = f64::from(now.micros_since(began, u32::MAX)) / 1e6;
        let cubic = 0.4 * (t - 7.21f64).powi(3) + 500.0;
        let off = (f64::from(window.cwnd) / f64::from(MSS) - cubic).abs() / cubic;
        assert!(off < 0.03, "{t} s: {} for {cubic}", window.cwnd);
    }
    // Concave, a plateau, convex.
    assert!(
        steps[0] > 40 * MSS && steps[6] < 2 * MSS && steps[13] > 30 * MSS,
        "{steps:?}"
    );
}

#[test]
fn cubic_is_no_slower_than_reno_on_short_paths() {
    // RFC 9438 section 4.3: with small windows and round-trip times the Reno-friendly estimate leads.
    let (mut controller, mut window, mut now) = start(Algorithm::Cubic);
    window.cwnd = 10 * MSS;
    let flight = window.cwnd;
    controller.on_loss(&mut window, now, flight, MSS);
    controller.on_recovery_exit(&mut window, now);
    for _ in 0..200 {
        for _ in 0..window.cwnd / MSS {
            let ack = Ack {
                srtt_us: 1000,
                ..ack(now, MSS)
            };
            controller.on_ack(&mut window, &ack);
        }
        now = now.after_millis(1);
    }
    // By about 0.53 segments in each of the first round trips, then by one.
    assert!(window.cwnd > 190 * MSS, "{}", window.cwnd);
}

#[test]
fn cubic_gives_way_to_newcomers() {
    // Fast convergence (section 4.7): a second loss below W_max releases room.
    let mut cubic = Cubic::default();
    let mut window = Window {
        cwnd: 100 * MSS,
        ssthresh: NO_SSTHRESH,
    };
    let now = Instant::from_secs(1);
    cubic.on_loss(&mut window, now, 100 * MSS, MSS);
    cubic.on_loss(&mut window, now, 80 * MSS, MSS);
    window.cwnd = 56 * MSS;
    // W_max = 80 * 0.85 = 68 segments: K = cbrt(12 / 0.4) = 3.1 s.
    let mut at = now;
    for _ in 0..32 {
        for _ in 0..window.cwnd / MSS {
            cubic.on_ack(&mut window, &ack(at, MSS));
        }
        at = at.after_millis(100);
    }
    assert!(
        (66 * MSS..77 * MSS).contains(&window.cwnd),
        "{}",
        window.cwnd
    );
}

#[test]
fn idle_time_does_not_count() {
    let (mut controller, mut window, mut now) = start(Algorithm::Cubic);
    window.cwnd = 100 * MSS;
    let flight = window.cwnd;
    controller.on_loss(&mut window, now, flight, MSS);
    controller.on_recovery_exit(&mut window, now);
    round_trips(&mut controller, &mut window, &mut now, 5);
    let before = window.cwnd;
    now = now.after_millis(600_000);
    controller.on_restart(&mut window, now, 600_000_000);
    round_trips(&mut controller, &mut window, &mut now, 1);
    assert!(window.cwnd < before + 15 * MSS, "{before} {}", window.cwnd);
}

#[test]
fn another_clock_changes_nothing() {
    let grown = |jump: bool| {
        let (mut controller, mut window, mut now) = start(Algorithm::Cubic);
        controller.on_loss(&mut window, now, 400 * MSS, MSS);
        controller.on_recovery_exit(&mut window, now);
        round_trips(&mut controller, &mut window, &mut now, 20);
        if jump {
            let to = Instant::from_secs(7777);
            controller.change_clock(now, to);
            now = to;
        }
        round_trips(&mut controller, &mut window, &mut now, 20);
        window.cwnd
    };
    assert_eq!(grown(false), grown(true));
}

/// One round of slow start in which every ACK measures this round-trip time. Returns the window after it.
fn hystart_round(
    controller: &mut Controller,
    window: &mut Window,
    position: &mut u32,
    rtt_us: u32,
) -> u32 {
    let flight = window.cwnd;
    let nxt = position.wrapping_add(flight);
    for n in 1..=flight / MSS {
        let acked = Ack {
            rtt_us,
            una: position.wrapping_add(n * MSS),
            nxt: nxt.wrapping_add(n * 2 * MSS),
            ..ack(Instant::from_secs(50), MSS)
        };
        controller.on_ack(window, &acked);
    }
    *position = nxt;
    window.cwnd
}

#[test]
fn rfc_9406_4_2_a_rising_round_trip_time_ends_slow_start() {
    let (mut controller, mut window, _) = start(Algorithm::Cubic);
    let mut at = 0u32.wrapping_sub(25_000);
    assert_eq!(
        hystart_round(&mut controller, &mut window, &mut at, 40_000),
        20_000
    );
    assert_eq!(
        hystart_round(&mut controller, &mut window, &mut at, 41_000),
        40_000
    );
    // More than an eighth: conservative slow start, which grows by a fourth.
    let before = window.cwnd;
    hystart_round(&mut controller, &mut window, &mut at, 47_000);
    let grown = window.cwnd - before;
    assert!(grown < before / 2 && grown > before / 5, "{before} {grown}");
    assert_eq!(window.ssthresh, NO_SSTHRESH);
    for _ in 0..5 {
        hystart_round(&mut controller, &mut window, &mut at, 50_000);
    }
    assert!(window.ssthresh <= window.cwnd);
}

#[test]
fn rfc_9406_4_2_a_round_trip_time_that_falls_again_resumes_slow_start() {
    let (mut controller, mut window, _) = start(Algorithm::Cubic);
    let mut at = 0;
    for rtt in [
        40_000, 40_000, 60_000, 39_000, 39_000, 39_000, 39_000, 39_000,
    ] {
        hystart_round(&mut controller, &mut window, &mut at, rtt);
    }
    assert_eq!(window.ssthresh, NO_SSTHRESH);
    let before = window.cwnd;
    hystart_round(&mut controller, &mut window, &mut at, 39_000);
    assert_eq!(window.cwnd, before / MSS * MSS + before);
}

#[test]
fn rfc_3465_2_2_one_ack_counts_up_to_its_limit() {
    let (mut controller, mut window, now) = start(Algorithm::NewReno);
    let stretched = Ack {
        limit: 2 * MSS,
        ..ack(now, 10 * MSS)
    };
    controller.on_ack(&mut window, &stretched);
    assert_eq!(window.cwnd, 12_000);
}
